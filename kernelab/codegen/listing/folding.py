"""Which intermediate values a reader sees inside an expression instead of on a line of their own.

    t_1 = x[i]              s = s + x[i] * 2.0
    t_2 = t_1 * 2.0
    s   = s + t_2

Knows the IR and about how wide a line becomes; must not know how a line is printed.  A value is folded if it
has no name of the user's, is used once, in the block that computes it, and nothing between writes what it
reads.  An index such as ``i + 1`` is folded however often it is used.
"""

from collections import Counter
from collections.abc import Iterator
from typing import TypeGuard

from kernelab.lang.ir import (
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
    While,
    atoms,
    blocks,
    defs,
    reads,
    walk,
)
from kernelab.lang.types import Scalar

WIDTH = 66
"""How many characters an expression may take, about."""

Folded = dict[Var, Let | Load | If]
"""The statement behind each Var that is printed where it is used; an `If` only chooses between two values."""


def fold(function: Function, nameless: frozenset[Var] = frozenset()) -> Folded:
    """What is folded in a function; a Var among `nameless` counts as one that the user gave no name."""
    uses = Counter(reads(function.body))
    once = {atom for atom, count in uses.items() if count == 1}
    folded: Folded = {stmt.out: stmt for stmt in walk(function.body) if _is_small_index(stmt)}
    width: dict[Atom, int] = {}
    for block in reversed(list(_all_blocks(function.body))):
        mine = _candidates(block, once, nameless, folded)
        _keep_lines_short(block, mine, folded, width)
        _keep_what_is_overwritten(block, mine)
        folded |= mine
    for stmt in walk(function.body):
        if isinstance(stmt, For | While) and stmt.stop is not None:
            _keep_stop(stmt, stmt.body.yields[stmt.stop], folded)
    return folded


def _keep_stop(loop: For | While, stop: Atom, folded: Folded) -> None:
    """What ends a loop is tested after the carried values are assigned: it must not read the old ones."""
    changed = {var for var, value in zip(loop.carries, loop.body.yields, strict=True) if value is not var}
    if isinstance(stop, Var) and not changed.isdisjoint(leaves(stop, folded)):
        folded.pop(stop, None)


def hint_of(out: Var, stmt: Stmt | None = None) -> str:
    """The name that a user would know a value by; an element read is not the array it is read from."""
    is_array = isinstance(stmt, Load) and out.hint == stmt.array.hint
    hint = out.hint.replace(".", "_")  # the leaves of a struct: p.mass
    return hint if hint.isidentifier() and not is_array else ""


def operands(stmt: Stmt) -> tuple[Atom, ...]:
    """What the printed line of a statement reads, with what a folded choice yields."""
    return (*atoms(stmt), *(atom for block in blocks(stmt) for atom in block.yields))


def leaves(atom: Atom, folded: Folded) -> Iterator[Var]:
    """The Vars by name that an atom's printed expression reads."""
    if not isinstance(atom, Var):
        return
    stmt = folded.get(atom)
    if stmt is None:
        yield atom
        return
    for inner in operands(stmt):
        yield from leaves(inner, folded)


def _all_blocks(block: Block) -> Iterator[Block]:
    yield block
    for stmt in walk(block):
        yield from blocks(stmt)


def _is_small_index(stmt: Stmt) -> TypeGuard[Let]:
    """``i + 1``, ``j - n``: shorter to say again than to name."""
    if not isinstance(stmt, Let) or hint_of(stmt.out) or stmt.op.symbol not in ("+", "-"):
        return False
    is_integer = isinstance(stmt.out.type, Scalar) and stmt.out.type.is_int
    return is_integer and all(not isinstance(arg, Var) or hint_of(arg) for arg in stmt.args)


def _chooses(stmt: Stmt, folded: Folded) -> TypeGuard[If]:
    """Whether an If is ``a if c else b``, or ``and`` and ``or``: its branches fold into what they yield."""
    if not isinstance(stmt, If) or len(stmt.outs) != 1:
        return False
    return all(defs(inner) and defs(inner)[0] in folded for block in blocks(stmt) for inner in block.stmts)


def _is_flag(stmt: Stmt) -> bool:
    """``True if c else False``, whatever it is called."""
    return isinstance(stmt, If) and {type(a) for b in blocks(stmt) for a in b.yields} == {Const}


def _candidates(block: Block, once: set[Atom], nameless: frozenset[Var], folded: Folded) -> Folded:
    used_at = _places(block)
    mine: Folded = {}
    for stmt in block.stmts:
        if isinstance(stmt, Let | Load) or _chooses(stmt, folded):
            (out,) = defs(stmt)
            unnamed = out in nameless or _is_flag(stmt) or not hint_of(out, stmt)
            if unnamed and out in once and out in used_at:
                mine[out] = stmt
    return mine


def _places(block: Block) -> dict[Atom, int]:
    """Where in the block itself each atom is read; the yields come after the last statement."""
    places: dict[Atom, int] = {}
    for position, stmt in enumerate(block.stmts):
        places |= dict.fromkeys(atoms(stmt), position)
    return places | dict.fromkeys(block.yields, len(block.stmts))


def _keep_lines_short(block: Block, mine: Folded, folded: Folded, width: dict[Atom, int]) -> None:
    """Give the widest operands lines of their own until the rest fits one."""
    for stmt in block.stmts:
        chosen = next((out for out in defs(stmt) if out in mine), None) if isinstance(stmt, If) else None
        parts = atoms(stmt) if chosen is None else operands(stmt)
        around = _width_around(stmt)
        for atom in sorted(set(parts), key=lambda atom: -width.get(atom, 0)):
            if around + sum(_width(part, mine, folded, width) for part in parts) <= WIDTH:
                break
            if isinstance(atom, Var):
                mine.pop(atom, None)
        total = around + sum(_width(part, mine, folded, width) for part in parts)
        if total > WIDTH and chosen is not None:
            mine.pop(chosen)
        width |= dict.fromkeys(defs(stmt), total)


def _width(atom: Atom, mine: Folded, folded: Folded, width: dict[Atom, int]) -> int:
    if atom in mine or atom in folded:
        return width.get(atom, 5)
    return len(atom.hint) or 3 if isinstance(atom, Var) else 3


def _width_around(stmt: Stmt) -> int:
    match stmt:
        case Let(_, op, args):
            return 3 * (len(args) - 1) if op.symbol else len(op.name) + 2 * len(args)
        case _:
            return 4


def _keep_what_is_overwritten(block: Block, mine: Folded) -> None:
    """A read moves to where it is printed only if nothing on the way writes its array."""
    used_at = _places(block)
    printed_at: dict[Var, int] = {}
    for position, stmt in reversed(list(enumerate(block.stmts))):
        for out in [out for out in defs(stmt) if out in mine]:
            place = used_at[out]
            consumer = defs(block.stmts[place]) if place < len(block.stmts) else ()
            printed_at[out] = max([place, *(printed_at[var] for var in consumer if var in mine)])
            between = block.stmts[position + 1 : printed_at[out]]
            if _loaded(stmt) & {array for other in between for array in _changed(other)}:
                del mine[out]


def _within(stmt: Stmt) -> list[Stmt]:
    """A statement, and those in its blocks."""
    return [stmt, *(inner for block in blocks(stmt) for inner in walk(block))]


def _loaded(stmt: Stmt) -> set[Var]:
    """The arrays that a statement, with the blocks in it, reads."""
    return {inner.array for inner in _within(stmt) if isinstance(inner, Load)}


def _changed(stmt: Stmt) -> set[Var]:
    """The arrays that a statement, with the blocks in it, writes."""
    inner = _within(stmt)
    natives = {array for each in inner if isinstance(each, Native) for array in each.changed}
    return natives | {each.array for each in inner if isinstance(each, Store | Atomic)}
