"""The intermediate representation: typed, structured, in static single assignment form.

    function ::= name(param...) threads block            a kernel has no results; a function yields them
    block    ::= stmt... yields atom...
    atom     ::= Var | Const(value, type)                a constant vector or matrix has equal components
    stmt     ::= Let(out, op, atoms)                     pure application of an operation of the table
               | Load(out, array, indices, held)         `held`: what the element held, if known already
               | Store(array, indices, value)
               | Alloc(out, shape)                       a local array of zeros, the thread's own
               | Atomic(out, kind, array, indices, value)    `out`: the old value; `held` as for a load;
                                                             `compare`: what "cas" expects to find
               | If(outs, cond, then, orelse)            values leave a region only through its outs
               | For(outs, index, count, reverse, carries, inits, stop, body, storage)
               | While(outs, carries, inits, stop, body, ends)    `ends`: an earlier program has run it
               | Assert(cond, kind, message)             ends the launch at the span, or is noted there
               | Print(texts, specs, values)             a line for the reader: an effect, never replayed
               | Native(outs, snippet, atoms)            C++ that a user wrote: its result, then its sums
               | Call(outs, function, atoms)
               | Custom(outs, atoms, rules, body)        a call laid open whose derivative a user wrote
               | Save(stack, atoms) | Restore(stack, outs)   last in, first out; introduced only by vjp
               | Append(array, value)                    at the end of a residual; introduced only by record

A loop is canonical: `index` runs over 0 .. count-1, backwards if `reverse`.  `carries` are the values that
an iteration receives, first `inits` and then what the body yields; the last ones are the `outs`.  `stop`
names a carried bool that ends the loop after the iteration that yields true: there is no break.  `storage`
is what its user wants reverse mode to keep of it.

The body of a `Custom` runs like any other code; its first outs are the results of the function, any more are
integers that a pass needs.  Differentiation looks at its rules, and `inline` removes it.

Every `Var` is assigned once and is visible in the blocks nested below its definition.  Vars and statements
are compared by identity, types and constants by structure.  Every statement has the span of the source it
comes from; a derived statement inherits the span of its primal.  `component` of an array access is set by
`scalarise` alone: the access then touches one component of a vector or matrix element.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Literal, TypeVar, assert_never

from kernelab import hooks
from kernelab.data_classes import dataclass, field, replace
from kernelab.errors import NOWHERE, Span
from kernelab.hooks import Displayed
from kernelab.lang.native import Access, Snippet
from kernelab.lang.ops import Op
from kernelab.lang.types import Array, Type, Value


class Var:
    """A value or an array parameter, with the name that the user gave it as a hint."""

    __slots__ = ("hint", "span", "type")

    def __init__(self, type: Type, hint: str = "", span: Span = NOWHERE) -> None:
        self.type = type
        self.hint = hint
        self.span = span

    def __repr__(self) -> str:
        return f"<{self.hint or '_'}: {self.type}>"


@dataclass(frozen=True, slots=True)
class Const:
    """A number; of a vector or matrix type it stands for that number in every component.

    `exact` is the number that a rule wrote, or that was computed of constants, before it was rounded to the
    type; a wider program has that.
    """

    value: bool | int | float
    type: Value
    exact: float | None = field(default=None, compare=False, repr=False)

    def __eq__(self, other: object) -> bool:
        """Whether the two are one number: 0.0 and -0.0 are two."""
        if not isinstance(other, Const) or self.value != other.value or self.type != other.type:
            return False
        return self.value != 0 or math.copysign(1.0, self.value) == math.copysign(1.0, other.value)


Atom = Var | Const


class Stack:
    """Links the `Save` that pushes onto a last-in-first-out store with the `Restore` that pops from it.

    The hint says what is pushed: what a loop needs of each iteration, of some (a checkpoint), or, when it
    runs again from a checkpoint, of those of a segment.
    """

    __slots__ = ("hint",)

    def __init__(self, hint: str = "") -> None:
        self.hint = hint


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    stmts: tuple["Stmt", ...]
    yields: tuple[Atom, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Let:
    out: Var
    op: Op
    args: tuple[Atom, ...]
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class Alloc:
    """A local array: `out` is an array Var, seen where any Var defined here is; new zeros each time."""

    out: Var
    shape: tuple[int, ...]
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    out: Var
    array: Var
    indices: tuple[Atom, ...]
    span: Span = NOWHERE
    held: Atom | None = None
    component: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    array: Var
    indices: tuple[Atom, ...]
    value: Atom
    span: Span = NOWHERE
    component: int | None = None


AtomicKind = Literal["add", "min", "max", "and", "or", "xor", "exch", "cas"]


@dataclass(frozen=True, slots=True, eq=False)
class Atomic:
    out: Var
    kind: AtomicKind
    array: Var
    indices: tuple[Atom, ...]
    value: Atom
    span: Span = NOWHERE
    held: Atom | None = None
    component: int | None = None
    compare: Atom | None = None


@dataclass(frozen=True, slots=True, eq=False)
class If:
    outs: tuple[Var, ...]
    cond: Atom
    then: Block
    orelse: Block
    span: Span = NOWHERE


Storage = Literal["save", "recompute", "checkpoint"]
"""What reverse mode keeps of a loop: every iteration's values, only those before it, or some between."""


@dataclass(frozen=True, slots=True, eq=False)
class For:
    outs: tuple[Var, ...]
    index: Var
    count: Atom
    carries: tuple[Var, ...]
    inits: tuple[Atom, ...]
    body: Block
    span: Span = NOWHERE
    reverse: bool = False
    stop: int | None = None
    storage: Storage | None = None


@dataclass(frozen=True, slots=True, eq=False)
class While:
    """A loop that may run forever, which is an effect, unless it is known that it `ends`."""

    outs: tuple[Var, ...]
    carries: tuple[Var, ...]
    inits: tuple[Atom, ...]
    stop: int
    body: Block
    span: Span = NOWHERE
    ends: bool = False


AssertKind = Literal["assertion", "division", "negative"]
"""A "negative" one is noted only: the message is the array of which an index counts from the end."""


@dataclass(frozen=True, slots=True, eq=False)
class Assert:
    cond: Atom
    kind: AssertKind
    message: str
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class Print:
    """Text for the reader: `texts[0]`, then each value followed by the next text.

    Values are scalars.  A spec is a conversion of C's printf, such as ``%6.2f``, or "" for Python's way.
    """

    texts: tuple[str, ...]
    specs: tuple[str, ...]
    values: tuple[Atom, ...]
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class Native:
    """A snippet of C++ with the arguments for its parameters; scalarised, a vector's components in order."""

    outs: tuple[Var, ...]
    snippet: Snippet
    args: tuple[Atom, ...]
    span: Span = NOWHERE

    @property
    def arrays(self) -> tuple[tuple[Access, Var], ...]:
        """The arrays that it is handed, and what it does to each."""
        params = (param for param in self.snippet.arguments if isinstance(param.type, Array))
        vars = (arg for arg in self.args if isinstance(arg, Var) and isinstance(arg.type, Array))
        return tuple((param.access, var) for param, var in zip(params, vars, strict=True))

    @property
    def changed(self) -> tuple[Var, ...]:
        """The arrays whose elements it may change."""
        return tuple(var for access, var in self.arrays if access not in ("read", "absent"))


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A call of a function, or of its `gradient`: the derivatives with respect to each float argument."""

    outs: tuple[Var, ...]
    function: "Function"
    args: tuple[Atom, ...]
    span: Span = NOWHERE
    gradient: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Custom:
    outs: tuple[Var, ...]
    args: tuple[Atom, ...]
    rules: "CustomRules"
    body: Block
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class Save:
    stack: Stack
    atoms: tuple[Atom, ...]
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class Restore:
    stack: Stack
    outs: tuple[Var, ...]
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class Append:
    array: Var
    value: Atom
    span: Span = NOWHERE


Stmt = (
    Let | Alloc | Load | Store | Atomic | If | For | While | Assert | Print | Native | Call | Custom
    | Save | Restore | Append
)  # fmt: skip
Loop = For | While
_Kind = TypeVar("_Kind")
ArrayAccess = Load | Store | Atomic


@dataclass(frozen=True, slots=True, eq=False)
class Function(Displayed):
    """A kernel (`threads` are its thread indices, it yields nothing) or a function (it yields its results).

    Thread indices are int32, as many as the kernel unpacks from `tid()`; `linear` is the int64 position of
    the thread in the grid, which derived programs use to find what the thread has saved.  Where threads run
    one after another, the last comes first if `descending`: an adjoint takes back what the primal did.
    `aliased` says that arrays among the parameters may share memory that the launch changes.
    """

    name: str
    params: tuple[Var, ...]
    body: Block
    threads: tuple[Var, ...] = ()
    span: Span = NOWHERE
    linear: Var | None = None
    descending: bool = False
    aliased: bool = False
    custom: "CustomRules | None" = None

    def param(self, name: str) -> Var:
        """The parameter of that name; KeyError if there is none."""
        for var in self.params:
            if var.hint == name:
                return var
        raise KeyError(name)

    def __str__(self) -> str:
        """The function as readable text."""
        return hooks.text(self)


RuleName = Literal["grad", "replay", "jvp"]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class CustomRules:
    """The derivative of a function as its user wrote it, as functions with its parameters first.

    `grad` then takes the adjoint of each result and, for each array of floats, its adjoint array; it yields
    what to add to the adjoint of each float.  `replay` yields the results again, without effects.  `jvp` then
    takes the tangents of the floats and of the arrays of floats, in order; it yields those of float results.
    `checked` names those that claim to be right, not surrogates.
    """

    function: "Function"
    grad: "Function | None" = None
    replay: "Function | None" = None
    jvp: "Function | None" = None
    checked: frozenset[RuleName] = frozenset()

    @property
    def functions(self) -> dict[str, "Function"]:
        """All functions in it, by the names of its fields."""
        named = {"function": self.function, "grad": self.grad, "replay": self.replay, "jvp": self.jvp}
        return {name: function for name, function in named.items() if function is not None}

    def mapped(self, change: Callable[["Function"], "Function"]) -> "CustomRules":
        """The same with each of its functions changed."""
        changed: dict[str, Any] = {name: change(function) for name, function in self.functions.items()}
        return replace(self, **changed)


def defs(stmt: Stmt) -> tuple[Var, ...]:
    """The Vars that a statement defines for the statements after it."""
    match stmt:
        case Let(out) | Alloc(out) | Load(out) | Atomic(out):
            return (out,)
        case If(outs) | For(outs) | While(outs) | Native(outs) | Call(outs) | Custom(outs) | Restore(_, outs):
            return outs
        case Store() | Assert() | Print() | Save() | Append():
            return ()
        case _:
            assert_never(stmt)


def atoms(stmt: Stmt) -> tuple[Atom, ...]:
    """The atoms and arrays that a statement itself reads, without those read inside its blocks."""
    match stmt:
        case Let(_, _, args) | Native(_, _, args) | Call(_, _, args) | Custom(_, args):
            return args
        case Load(_, array, indices):
            return (array, *indices) if stmt.held is None else (array, *indices, stmt.held)
        case Store(array, indices, value):
            return (array, *indices, value)
        case Atomic(_, _, array, indices, value):
            others = (atom for atom in (stmt.held, stmt.compare) if atom is not None)
            return (array, *indices, value, *others)
        case If(_, cond) | Assert(cond):
            return (cond,)
        case For():
            return (stmt.count, *stmt.inits)
        case While():
            return stmt.inits
        case Print(_, _, values) | Save(_, values):
            return values
        case Restore() | Alloc():
            return ()
        case Append(array, value):
            return (array, value)
        case _:
            assert_never(stmt)


def blocks(stmt: Stmt) -> tuple[Block, ...]:
    """The blocks nested directly in a statement."""
    match stmt:
        case If(_, _, then, orelse):
            return (then, orelse)
        case For() | While() | Custom():
            return (stmt.body,)
        case _:
            return ()


def entering(stmt: Stmt) -> tuple[Var, ...]:
    """The Vars with which an iteration begins: the index of a loop, and what it carries."""
    match stmt:
        case For(index=index, carries=carries):
            return (index, *carries)
        case While(carries=carries):
            return carries
        case _:
            return ()


def changed(stmt: Stmt) -> tuple[Var, ...]:
    """The arrays whose elements a statement itself may change; of a call, those of the caller."""
    match stmt:
        case Store(array) | Append(array) | Atomic(_, _, array):
            return (array,)
        case Native():
            return stmt.changed
        case Call(_, function, args):
            inside = changed_by(function)
            pairs = zip(function.params, args, strict=True)
            return tuple(arg for param, arg in pairs if param in inside and isinstance(arg, Var))
        case _:
            return ()


@lru_cache(512)  # two calls of what calls twice, and so on, ask for it more often than anybody can count
def changed_by(function: Function) -> tuple[Var, ...]:
    """The array parameters that a function changes, also through the functions that it calls."""
    arrays = {array for stmt in walk(function.body) for array in changed(stmt)}
    return tuple(param for param in function.params if param in arrays)


def flows(stmt: Stmt) -> Iterator[tuple[Atom, Var]]:
    """What depends on what by a statement itself: pairs of a value or array, and a Var or array it goes into.

    What a block yields goes into the outs.  Stacks, calls and the arrays of native code are not followed.
    """
    match stmt:
        case Let(out, _, args):
            yield from ((arg, out) for arg in args)
        case Load(out, array):
            yield array, out
        case Atomic(out, _, array, _, value):
            yield from ((array, out), (value, array))
        case Store(array, _, value) | Append(array, value):
            yield value, array
        case If(outs) | Custom(outs):
            for inner in blocks(stmt):
                yield from zip(inner.yields, outs, strict=True)
        case For() | While():
            yield from zip(stmt.inits, stmt.carries, strict=True)
            yield from zip(stmt.body.yields, stmt.carries, strict=True)
            yield from zip(stmt.carries, stmt.outs, strict=True)
        case Native(outs, _, args):
            yield from ((arg, out) for out in outs for arg in args)
        case Alloc() | Assert() | Print() | Call() | Save() | Restore():
            pass
        case _:
            assert_never(stmt)


_NESTED = frozenset((If, For, While, Custom))
"""The statements with blocks: others, most of a program, need no second look."""


def locals_of(block: Block) -> frozenset[Var]:
    """The local arrays that are made anywhere in a block."""
    return frozenset(stmt.out for stmt in of_kind(block, Alloc))


def walk(block: Block, entered: Callable[[Stmt], Iterable[Block]] = blocks) -> Iterator[Stmt]:
    """Every statement of a block and of the blocks inside it, outer before inner, in order.

    `entered` gives the blocks of a statement that count.
    """
    for stmt in block.stmts:
        yield stmt
        if stmt.__class__ in _NESTED:
            for inner in entered(stmt):
                yield from walk(inner, entered)


def called(function: Function) -> Iterator[Function]:
    """A function, and all that it calls, also through others, each once."""
    seen, waiting = {function}, [function]
    while waiting:
        one = waiting.pop()
        yield one
        more = {stmt.function for stmt in of_kind(one.body, Call)} - seen
        seen |= more
        waiting += more


def of_kind(block: Block, kind: type[_Kind]) -> Iterator[_Kind]:
    """The statements of one kind in a block and in those inside it."""
    return (stmt for stmt in walk(block) if isinstance(stmt, kind))


def once(block: Block) -> Iterator[Stmt]:
    """The statements of a block that a thread comes to at most once."""
    return walk(block, lambda stmt: blocks(stmt) if isinstance(stmt, If) else ())


def within(stmt: Stmt) -> Iterator[Stmt]:
    """A statement, and every one in its blocks."""
    return walk(Block((stmt,)))


def reads(block: Block) -> Iterator[Atom]:
    """Every atom that a block reads or yields, in it and in the blocks inside it, as often as it does."""
    for stmt in block.stmts:
        yield from atoms(stmt)
        if stmt.__class__ in _NESTED:
            for inner in blocks(stmt):
                yield from reads(inner)
    yield from block.yields


def defined(block: Block) -> Iterator[Var]:
    """Every Var that is defined in a block and in the blocks inside it."""
    for stmt in walk(block):
        yield from (*entering(stmt), *defs(stmt))
