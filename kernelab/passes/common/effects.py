"""Effects: finds the array parameters that a function reads, writes and accumulates into.

    y[i] = x[i]; atomic_add(s, 0, x[i])        reads x, writes y, accumulates into s
    y[i] = atomic_add(s, 0, 1.0)               reads s too: the old value is used

Arrays count as a whole: which of their elements are meant is the business of `access_forms`.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kernelab.errors import Source
from kernelab.lang.ir import (
    Append,
    Atomic,
    Block,
    Function,
    Load,
    Native,
    Stmt,
    Store,
    Var,
    locals_of,
    reads,
    walk,
)


@dataclass(frozen=True, slots=True)
class Effects:
    """The arrays that are read, plainly written, and accumulated into by atomics, as parameter Vars."""

    reads: frozenset[Var]
    writes: frozenset[Var]
    accumulates: frozenset[Var]

    @property
    def changed(self) -> frozenset[Var]:
        """The arrays whose elements the function may change."""
        return self.writes | self.accumulates


def effects(function: Function) -> Effects:
    """The effects of a function on its array parameters, on any path through it."""
    return _outside(function, block_effects(function.body))


def effects_by_line(function: Function) -> dict[tuple[Source, int], Effects]:
    """The effects of each source line of a function on its array parameters."""
    lines: dict[tuple[Source, int], list[Stmt]] = {}
    for stmt in walk(function.body):
        lines.setdefault((stmt.span.source, stmt.span.line), []).append(stmt)
    return {line: _outside(function, _effects(stmts, function.body)) for line, stmts in lines.items()}


def _outside(function: Function, found: Effects) -> Effects:
    own = locals_of(function.body)
    return Effects(found.reads - own, found.writes - own, found.accumulates - own) if own else found


def block_effects(block: Block) -> Effects:
    """The effects of a block on arrays, with the blocks inside it."""
    return _effects(walk(block), block)


def _effects(stmts: Iterable[Stmt], around: Block) -> Effects:
    """The effects of the statements of a block on arrays."""
    read: set[Var] = set()
    writes: set[Var] = set()
    accumulates: set[Var] = set()
    old_values: dict[Var, Var] = {}
    for stmt in stmts:
        match stmt:
            case Load(_, array):
                if stmt.held is None:
                    read.add(array)
            case Store(array) | Append(array):
                writes.add(array)
            case Atomic(out, _, array):
                accumulates.add(array)
                if stmt.held is None:
                    old_values[out] = array
            case Native():
                for access, array in stmt.arrays:
                    read |= {array} if access in ("read", "write") else set()
                    writes |= {array} if access in ("store", "write", "clear") else set()
                    accumulates |= {array} if access == "add" else set()
            case _:
                pass
    if old_values:
        read |= {old_values[atom] for atom in reads(around) if isinstance(atom, Var) and atom in old_values}
    return Effects(frozenset(read), frozenset(writes), frozenset(accumulates))


Groups = Collection[Collection[Var]]


def aliases(function: Function, groups: Groups) -> dict[Var, frozenset[Var]]:
    """For each array parameter, the parameters that may share its elements, itself among them."""
    shared = {var: frozenset({var}) for var in function.params}
    shared |= {var: frozenset({var}) for var in locals_of(function.body)}
    for group in groups:
        shared.update(dict.fromkeys(group, frozenset(group)))
    return shared
