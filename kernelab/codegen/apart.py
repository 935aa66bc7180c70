"""Which threads never meet, since each has elements of its own; and which indices are never negative.

Facts of the text of one function.  They hold where elements of an array do not share bytes, and arrays do not
share them with each other, which belongs to a launch.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from kernelab.lang.ir import (
    Append,
    Atom,
    Atomic,
    Block,
    Const,
    For,
    Function,
    If,
    Let,
    Load,
    Native,
    Stmt,
    Store,
    Var,
    blocks,
    locals_of,
    walk,
)
from kernelab.lang.ops import SHAPE


def changed(function: Function) -> frozenset[Var]:
    """The arrays that a function stores to or accumulates into."""
    plain = {stmt.array for stmt in walk(function.body) if isinstance(stmt, Store | Atomic)}
    natives = (stmt.changed for stmt in walk(function.body) if isinstance(stmt, Native))
    return frozenset(plain.union(*natives))


def own_atomics(function: Function) -> frozenset[Atomic]:
    """The atomics on elements that no other thread touches in the whole launch."""
    places: dict[Var, list[tuple[Atom, ...]]] = {}
    atomics: list[Atomic] = []
    shared: set[Var] = set()
    for stmt in walk(function.body):
        match stmt:
            case Native():
                shared |= {array for _, array in stmt.arrays}
            case Append(array):
                shared.add(array)
            case Load(_, array, indices) | Store(array, indices):
                places.setdefault(array, []).append(indices)
            case Atomic():
                places.setdefault(stmt.array, []).append(stmt.indices)
                atomics.append(stmt)
    arrays = {stmt.array for stmt in atomics} - shared
    own = {array for array in arrays if is_apart(function, places[array])}
    return frozenset(stmt for stmt in atomics if stmt.array in own)


def read_only(function: Function) -> frozenset[Var]:
    """The parameters that a function reads and nobody changes while it runs."""
    read = {stmt.array for stmt in walk(function.body) if isinstance(stmt, Load)}
    return frozenset(read - changed(function) - locals_of(function.body))


Pin = tuple[Var, int]
"""A number, such as a thread index, and the only value that it has at some place."""


def pins(function: Function) -> dict[Stmt, frozenset[Pin]]:
    """The numbers that branches leave a single value, for the statements within these."""
    found: dict[Stmt, frozenset[Pin]] = {}
    tested: dict[Var, Pin] = {}

    def visit(block: Block, known: frozenset[Pin]) -> None:
        for stmt in block.stmts:
            found[stmt] = known
            match stmt:
                case Let(out, op, (Var() as index, Const(value))) if op.name == "eq":
                    tested[out] = index, int(value)
                case If(_, Var() as cond, then, orelse) if cond in tested:
                    visit(then, known | {tested[cond]})
                    visit(orelse, known)
                case _:
                    for inner in blocks(stmt):
                        visit(inner, known)

    visit(function.body, frozenset())
    return found


def is_apart(function: Function, places: Sequence[tuple[Atom, ...]], pinned: Collection[Var] = ()) -> bool:
    """Whether no two threads meet: each thread index stands alone on an axis, and is shifted by as much.

    So may the quotient and the remainder that it is split into.  Those that are `pinned` have the same value
    wherever one comes to these places.
    """
    shifted = {
        stmt.out: (stmt.args, stmt.op.name)
        for stmt in walk(function.body)
        if isinstance(stmt, Let) and stmt.op.name == "add"
    }
    parts = _parts(function)

    def shift(atom: Atom, alike: Collection[Atom]) -> int | None:
        if atom in alike:
            return 0
        args = shifted[atom][0] if isinstance(atom, Var) and atom in shifted else ()
        numbers = [int(arg.value) for arg in args if isinstance(arg, Const)]
        # Below zero an index would count from the end, and might meet another there.
        return numbers[0] if any(arg in alike for arg in args) and numbers and numbers[0] >= 0 else None

    def alone(axis: int, alike: Collection[Atom]) -> bool:
        found = {shift(indices[axis], alike) for indices in places}
        return len(found) == 1 and None not in found

    def told(alike: Collection[Var]) -> bool:
        """Whether threads for which a number, that all of these hold, is not the same do not meet."""
        if any(var in pinned for var in alike) or any(alone(axis, alike) for axis in axes):
            return True
        return any(
            told(part.quotients) and told(part.remainders) for var in alike for part in parts.get(var, ())
        )

    axes = range(len(places[0]))
    if function.linear is not None and any(alone(axis, (function.linear,)) for axis in axes):
        return True
    return bool(function.threads) and all(told((thread,)) for thread in function.threads)


@dataclass(slots=True)
class _Parts:
    """What a number that is not negative gives divided by one that is positive: the two tell it."""

    quotients: list[Var] = field(default_factory=list)
    remainders: list[Var] = field(default_factory=list)


def _parts(function: Function) -> dict[Var, list[_Parts]]:
    """How numbers are split by divisors that are the same for all threads: thread indices and their parts."""
    positive: set[Var] = set()
    found: dict[tuple[Atom, Atom], _Parts] = {}
    lets = [stmt for stmt in walk(function.body) if isinstance(stmt, Let)]
    for stmt in lets:
        if _is_positive(stmt, function.params):
            positive.add(stmt.out)
    for stmt in lets:
        if stmt.op.name not in ("floordiv", "mod"):
            continue
        split, divisor = stmt.args
        if divisor in positive or (isinstance(divisor, Const) and divisor.value > 0):
            parts = found.setdefault((split, divisor), _Parts())
            (parts.quotients if stmt.op.name == "floordiv" else parts.remainders).append(stmt.out)
    by_number: dict[Var, list[_Parts]] = {}
    for (split, _), parts in found.items():
        if isinstance(split, Var):
            by_number.setdefault(split, []).append(parts)
    return by_number


def _is_positive(stmt: Let, params: Collection[Var]) -> bool:
    """Whether a number is the same for all threads, and above zero, or the extent of an array."""
    if stmt.op is SHAPE:
        return True
    bounds = [arg for arg in stmt.args if isinstance(arg, Const) and arg.value > 0]
    return stmt.op.name == "max" and bool(bounds) and any(arg in params for arg in stmt.args)


def never_negative(function: Function) -> frozenset[Var]:
    """The integers that cannot be below zero, unless they are too large for their type."""
    found = {*function.threads}
    for stmt in walk(function.body):
        match stmt:
            case For(index=index):
                found.add(index)
            case Let(out, op, args) if op.name in ("add", "mul"):
                if all(arg.value >= 0 if isinstance(arg, Const) else arg in found for arg in args):
                    found.add(out)
    return frozenset(found)
