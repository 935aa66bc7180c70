"""Affine forms: integers as a constant plus multiples of leaves, and counters that grow evenly in a loop.

    x[3 * i + n - 1]        the index is Form(-1, ((Thread, 3), (IntParam, 1)))

Leaves are integer parameters, extents of arrays, thread indices, loop counters, and operations that are not
linear.  `access_forms` makes forms of a function, `access_regions` gives them values.

    i = 3; for k in ...: i = i + 2        at the start of iteration k, i is 3 + 2 * k

Carried integers that grow by the same amount in every iteration count.  So do cursors into residuals, and the
index of a `while`.  Reverse mode recomputes them from the number of the iteration instead of saving them;
integers wrap, so this is exact.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kernelab.data_classes import dataclass
from kernelab.lang.build import Builder, type_of, zero
from kernelab.lang.ir import Atom, Block, Const, If, Let, Loop, Var, defined, entering
from kernelab.lang.types import Scalar


@dataclass(frozen=True, slots=True)
class IntParam:
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
    """The index of a loop or number of an iteration, 0 up to a count; each loop has a number of its own."""

    number: int
    count: "Form | None"


class Pace(NamedTuple):
    """An integer that changes by a fixed amount in each iteration of a loop: its start, and that amount."""

    start: "Form"
    rate: "Form"


@dataclass(frozen=True, slots=True)
class Bound:
    """A condition of going on with a loop: `greater` exceeds `lesser` by `gap` at least."""

    lesser: Pace
    greater: Pace
    gap: int


@dataclass(frozen=True, slots=True)
class Trips:
    """The most iterations of a loop that goes on only where all its bounds hold."""

    bounds: tuple[Bound, ...]


@dataclass(frozen=True, slots=True)
class Applied:
    """An operation that is not linear.

    A ``join`` is one of its operands, it is not known which; each join has a number of its own.
    """

    name: str
    args: tuple["Form", ...]
    number: int = 0


Leaf = IntParam | Extent | Thread | Counter | Trips | Applied


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
        """The part that is the same in every thread and iteration, and the rest."""
        same = tuple(term for term in self.terms if is_uniform(term[0]))
        return Form(self.const, same), {leaf: n for leaf, n in self.terms if not is_uniform(leaf)}


def is_uniform(leaf: Leaf) -> bool:
    """Whether a leaf is the same in every thread and iteration of a launch."""
    match leaf:
        case IntParam() | Extent():
            return True
        case Thread() | Counter() | Trips():
            return False
        case Applied(name, args):
            return name != "join" and all(is_uniform(inner) for arg in args for inner, _ in arg.terms)


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition: `greater` exceeds `lesser` by `gap` at least; or, if that is None, the two differ."""

    lesser: Form
    greater: Form
    gap: int | None


_LIMITED = frozenset({"mul", "floordiv", "mod", "min", "max", "clamp"})


def compared(name: str, left: Form, right: Form) -> Iterator[Guard]:
    """The guard that a comparison implies."""
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


def applied(name: str, args: list[Form]) -> Form | None:
    """The form of an operation on forms, None if it has none."""
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
            return args[0] if _is_plain(args[0]) else operation("cast", args)
        case _:
            return operation(name, args) if name in _LIMITED else None


def _is_plain(form: Form) -> bool:
    """Whether a form is a leaf or a constant: then it has not wrapped around."""
    return not form.terms or (form.const == 0 and len(form.terms) == 1 and form.terms[0][1] == 1)


def single(leaf: Leaf) -> Form:
    return Form(0, ((leaf, 1),))


def operation(name: str, args: list[Form], number: int = 0) -> Form:
    """The form that is an operation which is not linear."""
    return single(Applied(name, tuple(args), number))


def counted(start: Form, rate: Form, counter: Counter) -> Form:
    """The form of a counter that begins at `start` and is raised by `rate` in each iteration."""
    number = single(counter)
    return start.plus(operation("mul", [number, rate]) if rate.terms else number.times(rate.const))


def counters_of(form: Form) -> Iterator[Counter]:
    """The counters with which a form changes at a steady pace."""
    for leaf, _ in form.terms:
        match leaf:
            case Counter():
                yield leaf
            case Applied("mul", (Form(0, ((Counter() as counter, 1),)), _)):
                yield counter


def pace(form: Form, counter: Counter) -> Pace:
    """A form as what it starts with and what each iteration adds; the start may still know the counter."""
    start, rate = Form(form.const), Form(0)
    for leaf, factor in form.terms:
        match leaf:
            case Counter() if leaf == counter:
                rate = rate.plus(Form(factor))
            case Applied("mul", (number, amount)) if number == single(counter):
                rate = rate.plus(amount, factor)
            case _:
                start = start.plus(single(leaf), factor)
    return Pace(start, rate)


# --------------------------------------------------------------------------------------------------- counters


@dataclass(frozen=True, slots=True)
class Term:
    """An amount by which an iteration raises a counter, or lowers it if `sign` is -1."""

    sign: int
    amount: Atom


Step = tuple[Term, ...]


def counters(loop: Loop) -> dict[int, Step]:
    """The carries that count, by position, with what an iteration adds to each."""
    integers = [
        i for i, carry in enumerate(loop.carries) if isinstance(carry.type, Scalar) and carry.type.is_int
    ]
    if not integers:
        return {}
    inside: set[Atom] = {*entering(loop), *defined(loop.body)}
    path = _Path()
    path.follow(loop.body, None if loop.stop is None else loop.body.yields[loop.stop])
    steps = {i: path.step(loop.body.yields[i], loop.carries[i], inside) for i in integers}
    return {i: step for i, step in steps.items() if step is not None}


def value_after(builder: Builder, start: Atom, step: Step, number: Atom, hint: str = "") -> Atom:
    """The value of a counter that began at `start` after `number` iterations."""
    type = type_of(start)
    total: Atom = zero(type)
    for term in step:
        total = builder.apply("add" if term.sign > 0 else "sub", total, term.amount)
    passed = number if number.type == type else builder.apply(str(type), number)
    return builder.apply("add", start, builder.apply("mul", total, passed), hint=hint)


class _Path:
    """The ways through an iteration after which another follows, as far as they are known.

    `while c: B` is a choice between B and the end: what the end leaves, no iteration starts with.
    """

    def __init__(self) -> None:
        self.lets: dict[Atom, Let] = {}
        self.choices: dict[Atom, tuple[Atom, ...]] = {}
        self.steps: dict[tuple[Atom, Var], Step | None] = {}

    def follow(self, block: Block, stop: Atom | None) -> None:
        self.lets |= {stmt.out: stmt for stmt in block.stmts if isinstance(stmt, Let)}
        for stmt in block.stmts:
            if isinstance(stmt, If):
                position = stmt.outs.index(stop) if stop in stmt.outs else None
                ways = [way for way in (stmt.then, stmt.orelse) if not _ends(way, position)]
                self.choices |= {out: tuple(way.yields[i] for way in ways) for i, out in enumerate(stmt.outs)}
                for way in ways:
                    self.follow(way, None if position is None else way.yields[position])

    def step(self, value: Atom, carry: Var, inside: set[Atom]) -> Step | None:
        """The amount added to `carry` to give `value`, if it is the same in every iteration."""
        if (value, carry) not in self.steps:
            self.steps[value, carry] = self._step(value, carry, inside)
        return self.steps[value, carry]

    def _step(self, value: Atom, carry: Var, inside: set[Atom]) -> Step | None:
        if value is carry:
            return ()
        if value in self.choices:
            steps = {self.step(choice, carry, inside) for choice in self.choices[value]}
            return steps.pop() if len(steps) == 1 else None
        stmt = self.lets.get(value)
        match None if stmt is None else (stmt.op.name, stmt.args):
            case ("add" | "sub" as name, (rest, amount)) if amount not in inside:
                term = Term(-1 if name == "sub" else 1, amount)
            case ("add", (amount, rest)) if amount not in inside:
                term = Term(1, amount)
            case _:
                return None
        before = self.step(rest, carry, inside)
        return None if before is None else (term, *before)


def _ends(way: Block, position: int | None) -> bool:
    if position is None:
        return False
    stop = way.yields[position]
    return isinstance(stop, Const) and bool(stop.value)
