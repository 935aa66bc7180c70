"""Queries about the structure of a function that decide how it is printed."""

from collections.abc import Callable, Iterator, Sequence

from kernelab.lang.ir import Atom, Block, Const, For, If, Loop, Var, atoms, blocks
from kernelab.lang.types import Scalar

SHORT = 1 << 14
"""A loop of at most so many statements in all runs without a poll."""


def used(block: Block) -> set[Atom]:
    """Every atom that is read anywhere in a block."""
    found: set[Atom] = set(block.yields)
    for stmt in block.stmts:
        found.update(atoms(stmt))
        for inner in blocks(stmt):
            found |= used(inner)
    return found


def weight(block: Block) -> int:
    """About how many statements run, counting loops of unknown length once."""
    total = 1
    for stmt in block.stmts:
        match stmt:
            case For(_, _, Const(count)):
                total += max(1, int(count)) * weight(stmt.body)
            case _:
                total += 1 + sum(weight(inner) for inner in blocks(stmt))
    return total


def is_short(loop: Loop) -> bool:
    """Whether a loop provably ends soon."""
    if not (isinstance(loop, For) and isinstance(loop.count, Const)):
        return False
    return int(loop.count.value) * weight(loop.body) <= SHORT


def sides(stmt: If) -> tuple[bool, Block, Block]:
    """The branch to print first, whether it is the one where the condition holds, and the other."""
    if stmt.then.stmts or stmt.then.yields or not stmt.orelse.stmts:
        return True, stmt.then, stmt.orelse
    return False, stmt.orelse, stmt.then


def ends_in_choice(block: Block, stop: Atom) -> bool:
    """Whether the last statement is an `If` that decides `stop`."""
    last = block.stmts[-1] if block.stmts else None
    return isinstance(last, If) and stop in last.outs


def stop_values(block: Block, stop: Atom) -> Iterator[Atom]:
    """The values of `stop` at the places where an iteration ends, as the emitter prints them."""
    if not ends_in_choice(block, stop):
        yield stop
        return
    last = block.stmts[-1]
    assert isinstance(last, If) and isinstance(stop, Var)
    position = last.outs.index(stop)
    for branch in (last.then, last.orelse):
        yield from stop_values(branch, branch.yields[position])


def stops(value: Atom) -> bool:
    """Whether what a loop yields for its `stop` says that it ends."""
    return isinstance(value, Const) and bool(value.value)


def chosen(stmt: If, branch: Block, yields: Sequence[Atom]) -> tuple[Atom, ...]:
    """The values of `yields` if a branch was taken."""
    values = dict(zip(stmt.outs, branch.yields, strict=True))
    return tuple(value if isinstance(value, Const) else values.get(value, value) for value in yields)


Move = tuple[str, str, Scalar]


def ordered(
    moves: Sequence[Move], temporary: Callable[[str], str]
) -> Iterator[tuple[str, str, Scalar | None]]:
    """Assignments, one after the other, that do what `moves` do at once.

    The third part is the type where the target is a new temporary, which breaks a cycle such as a swap.
    """
    waiting = [move for move in moves if move[0] != move[1]]
    while waiting:
        free = next((m for m in waiting if all(m[0] != value for _, value, _ in waiting)), None)
        if free is not None:
            waiting.remove(free)
            yield free[0], free[1], None
            continue
        target, _, scalar = waiting[0]
        old = temporary(f"{target}_old")
        yield old, target, scalar
        waiting = [(t, old if value == target else value, s) for t, value, s in waiting]
