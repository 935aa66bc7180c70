"""Indices: where in its arrays each access of a function falls, as far as the text of the function tells.

    traj[t + 1, i % n]        Access(traj, "change", (Form(1, t), Form(0, mod(i, n))), guards, ...)

An index is a `Form`: a constant plus multiples of leaves, which are integer parameters, extents of arrays,
thread indices, loop counters, and operations that are not linear.  None stands for an index that the text
does not tell, such as one that is loaded.  A `Guard` is an inequality that holds where the access is reached.
Values, that is what the leaves are at a launch, are the business of `boxes`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, assert_never

from kernelab.lang.ir import (
    Alloc,
    Append,
    Assert,
    Atom,
    Atomic,
    Block,
    Call,
    Const,
    Custom,
    For,
    Function,
    If,
    Let,
    Load,
    Native,
    Print,
    Restore,
    Save,
    Stmt,
    Store,
    Var,
    While,
    reads,
)
from kernelab.lang.types import Array, int32, int64


@dataclass(frozen=True, slots=True)
class Given:
    """The integer parameter at a position."""

    position: int


@dataclass(frozen=True, slots=True)
class Extent:
    """An extent of the array parameter at a position."""

    position: int
    axis: int


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread index; that of `axis` None is the position of the thread in the grid."""

    axis: int | None


@dataclass(frozen=True, slots=True)
class Counter:
    """The index of a loop, 0 up to a count; loops are told apart by their number."""

    number: int
    count: "Form | None"


@dataclass(frozen=True, slots=True)
class Applied:
    """An operation that is not linear; ``join`` is one of its operands."""

    name: str
    args: tuple["Form", ...]


Leaf = Given | Extent | Thread | Counter | Applied


@dataclass(frozen=True, slots=True)
class Form:
    """A constant plus multiples of leaves."""

    const: int
    terms: tuple[tuple[Leaf, int], ...] = ()

    def plus(self, other: "Form", factor: int = 1) -> "Form":
        """The sum with a multiple of another form."""
        total = dict(self.terms)
        for leaf, count in other.terms:
            total[leaf] = total.get(leaf, 0) + factor * count
        terms = tuple((leaf, count) for leaf, count in total.items() if count)
        return Form(self.const + factor * other.const, terms)

    def times(self, factor: int) -> "Form":
        return Form(0).plus(self, factor)

    def minus(self, other: "Form") -> "Form":
        return self.plus(other, -1)

    def split(self) -> tuple["Form", dict[Leaf, int]]:
        """What is the same in every thread and iteration, and the rest."""
        same = tuple(term for term in self.terms if is_uniform(term[0]))
        return Form(self.const, same), {leaf: n for leaf, n in self.terms if not is_uniform(leaf)}


def is_uniform(leaf: Leaf) -> bool:
    """Whether a leaf is the same in every thread and iteration of a launch."""
    match leaf:
        case Given() | Extent():
            return True
        case Thread() | Counter():
            return False
        case Applied(name, args):
            return name != "join" and all(is_uniform(inner) for arg in args for inner, _ in arg.terms)


@dataclass(frozen=True, slots=True)
class Guard:
    """Where it holds, `greater` exceeds `lesser` by `gap` at least; or, if that is None, the two differ."""

    lesser: Form
    greater: Form
    gap: int | None


@dataclass(frozen=True, slots=True)
class Access:
    """A read or a change of an array parameter, with the outermost loop around it."""

    position: int
    kind: Literal["read", "change"]
    index: tuple[Form | None, ...]
    guards: tuple[Guard, ...]
    loop: int | None
    reverse: bool


def accesses(function: Function) -> tuple[Access, ...]:
    """Every access to an array parameter; a load of what is known already is none."""
    walker = _Walker(function)
    walker.block(function.body)
    return tuple(walker.found)


_SIGNED = (int32, int64)
_LIMITED = frozenset({"mul", "floordiv", "mod", "min", "max", "clamp"})
_OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}

Condition = tuple[str, Atom, Atom]


class _Walker:
    def __init__(self, function: Function) -> None:
        self.positions = {param: i for i, param in enumerate(function.params)}
        self.forms: dict[Var, Form | None] = {
            param: Form(0, ((Given(i), 1),)) for param, i in self.positions.items() if param.type in _SIGNED
        }
        for axis, thread in enumerate(function.threads):
            leaf = Thread(axis if len(function.threads) > 1 else None)
            self.forms[thread] = Form(0, ((leaf, 1),))
        if function.linear is not None:
            self.forms[function.linear] = Form(0, ((Thread(None), 1),))
        self.used = frozenset(reads(function.body))
        self.conditions: dict[Var, Condition] = {}
        self.guards: list[Guard] = []
        self.loops: list[tuple[int, bool]] = []
        self.numbered = 0
        self.found: list[Access] = []

    def form(self, atom: Atom) -> Form | None:
        if isinstance(atom, Const):
            return Form(int(atom.value)) if atom.type in _SIGNED else None
        return self.forms.get(atom)

    def block(self, block: Block) -> None:
        for stmt in block.stmts:
            self.stmt(stmt)

    def stmt(self, stmt: Stmt) -> None:
        match stmt:
            case Let():
                self.let(stmt)
            case Load(_, array, indices) if stmt.held is None:
                self.access(array, "read", indices)
            case Store(array, indices):
                self.access(array, "change", indices)
            case Atomic(out, _, array, indices):
                self.access(array, "change", indices)
                if stmt.held is None and out in self.used:
                    self.access(array, "read", indices)
            case If():
                self.branches(stmt)
            case For() | While():
                self.loop(stmt)
            case Custom(outs, _, _, body):
                self.block(body)
                for out, source in zip(outs, body.yields, strict=False):
                    self.forms[out] = self.form(source)
            case Native():
                for _, touched in stmt.arrays:
                    self.anywhere(touched)
            case Append(array):
                self.anywhere(array)
            case Call():
                raise AssertionError("calls are inlined before anyone asks where they reach")
            case Load() | Restore() | Alloc() | Assert() | Print() | Save():
                pass  # what they define has no form
            case _:
                assert_never(stmt)

    def anywhere(self, array: Var) -> None:
        """Note that an array may be read and changed, nobody knows where."""
        position = self.positions.get(array)
        if position is None:
            return
        assert isinstance(array.type, Array)
        unknown = (None,) * array.type.ndim
        self.found.append(Access(position, "read", unknown, (), None, False))
        self.found.append(Access(position, "change", unknown, (), None, False))

    def access(self, array: Var, kind: Literal["read", "change"], indices: tuple[Atom, ...]) -> None:
        position = self.positions.get(array)
        if position is None:
            return
        loop, reverse = self.loops[0] if self.loops else (None, False)
        forms = tuple(self.form(index) for index in indices)
        self.found.append(Access(position, kind, forms, tuple(self.guards), loop, reverse))

    def let(self, stmt: Let) -> None:
        name, args = stmt.op.name, stmt.args
        if name in ("and", "or") or (name in _OPPOSITE and args[0].type in _SIGNED):
            self.conditions[stmt.out] = name, args[0], args[1]
        elif name == "not":
            self.conditions[stmt.out] = name, args[0], args[0]
        elif name == "shape" and isinstance(args[0], Var) and isinstance(args[1], Const):
            if args[0] in self.positions:
                leaf = Extent(self.positions[args[0]], int(args[1].value))
                self.forms[stmt.out] = Form(0, ((leaf, 1),))
        elif stmt.out.type in _SIGNED:
            choices = args[1:] if name == "where" else args
            forms = [self.form(arg) for arg in choices]
            if all(form is not None for form in forms):
                self.forms[stmt.out] = _applied(name, [form for form in forms if form is not None])

    def branches(self, stmt: If) -> None:
        for truth, branch in ((True, stmt.then), (False, stmt.orelse)):
            before = len(self.guards)
            self.guards += self.implied(stmt.cond, truth)
            self.block(branch)
            del self.guards[before:]
        for out, then, orelse in zip(stmt.outs, stmt.then.yields, stmt.orelse.yields, strict=True):
            first, second = self.form(then), self.form(orelse)
            if first is not None and second is not None:
                self.forms[out] = first if first == second else _leaf("join", [first, second])
            elif isinstance(orelse, Const) and orelse.value is False:
                self.conditions[out] = "and", stmt.cond, then
            elif isinstance(then, Const) and then.value is True:
                self.conditions[out] = "or", stmt.cond, orelse

    def loop(self, stmt: For | While) -> None:
        reverse = False
        if isinstance(stmt, For):
            self.forms[stmt.index] = Form(0, ((Counter(self.numbered, self.form(stmt.count)), 1),))
            reverse = stmt.reverse
        self.loops.append((self.numbered, reverse))
        self.numbered += 1
        self.block(stmt.body)
        self.loops.pop()

    def implied(self, atom: Atom, truth: bool) -> Iterator[Guard]:
        """What holds where a condition is true, or false."""
        if not isinstance(atom, Var) or atom not in self.conditions:
            return
        name, a, b = self.conditions[atom]
        if name == "not":
            yield from self.implied(a, not truth)
        elif name in ("and", "or"):
            if truth == (name == "and"):
                yield from self.implied(a, truth)
                yield from self.implied(b, truth)
        else:
            left, right = self.form(a), self.form(b)
            if left is not None and right is not None:
                yield from _compared(name if truth else _OPPOSITE[name], left, right)


def _compared(name: str, left: Form, right: Form) -> Iterator[Guard]:
    match name:
        case "lt":
            yield Guard(left, right, 1)
        case "le":
            yield Guard(left, right, 0)
        case "gt":
            yield Guard(right, left, 1)
        case "ge":
            yield Guard(right, left, 0)
        case "eq":
            yield Guard(left, right, 0)
            yield Guard(right, left, 0)
        case _:
            yield Guard(left, right, None)


def _applied(name: str, args: list[Form]) -> Form | None:
    match name:
        case "add":
            return args[0].plus(args[1])
        case "sub":
            return args[0].minus(args[1])
        case "neg":
            return args[0].times(-1)
        case "pos":
            return args[0]
        case "mul" if not args[1].terms:
            return args[0].times(args[1].const)
        case "mul" if not args[0].terms:
            return args[1].times(args[0].const)
        case "int32" | "int64":
            return args[0] if _is_plain(args[0]) else _leaf("cast", args)
        case "where":
            return _leaf("join", args)
        case _:
            return _leaf(name, args) if name in _LIMITED else None


def _is_plain(form: Form) -> bool:
    """Whether a form is a leaf or a constant: then it has not wrapped around."""
    return not form.terms or (form.const == 0 and len(form.terms) == 1 and form.terms[0][1] == 1)


def _leaf(name: str, args: list[Form]) -> Form:
    return Form(0, ((Applied(name, tuple(args)), 1),))
