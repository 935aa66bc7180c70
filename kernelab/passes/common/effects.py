"""Effects: finds the array parameters that a function reads, writes and accumulates into.

    y[i] = x[i]; atomic_add(s, 0, x[i])        reads x, writes y, accumulates into s
    y[i] = atomic_add(s, 0, 1.0)               reads s too: the old value is used

Arrays count as a whole: which of their elements are meant is the business of `access_forms`.
"""

from collections.abc import Callable, Collection, Iterable, Set
from functools import cache

from kernelab.data_classes import dataclass
from kernelab.errors import Source
from kernelab.lang import ir


@dataclass(frozen=True, slots=True)
class Effects:
    """The arrays that are read, plainly written, and accumulated into by atomics, as parameter Vars."""

    reads: frozenset[ir.Var]
    writes: frozenset[ir.Var]
    accumulates: frozenset[ir.Var]

    @property
    def changed(self) -> frozenset[ir.Var]:
        """The arrays whose elements the function may change."""
        return self.writes | self.accumulates


def effects(function: ir.Function) -> Effects:
    """The effects of a function on its array parameters, on any path through it."""
    return _outside(block_effects(function.body), ir.locals_of(function.body))


def effects_by_line(function: ir.Function) -> dict[tuple[Source, int], Effects]:
    """The effects of each source line of a function on its array parameters."""
    lines: dict[tuple[Source, int], list[ir.Stmt]] = {}
    for stmt in ir.walk(function.body):
        lines.setdefault((stmt.span.source, stmt.span.line), []).append(stmt)
    own, used = ir.locals_of(function.body), _used_in(function.body)
    return {line: _outside(_effects(stmts, used), own) for line, stmts in lines.items()}


def _outside(inner: Effects, own: frozenset[ir.Var]) -> Effects:
    return Effects(inner.reads - own, inner.writes - own, inner.accumulates - own) if own else inner


def block_effects(block: ir.Block) -> Effects:
    """The effects of a block on arrays, with the blocks inside it."""
    return _effects(ir.walk(block), _used_in(block))


def _used_in(block: ir.Block) -> Callable[[], Set[ir.Atom]]:
    """The values that a block reads: found when they are first asked for, which few programs do."""
    return cache(lambda: frozenset(ir.reads(block)))


def _effects(stmts: Iterable[ir.Stmt], used: Callable[[], Set[ir.Atom]]) -> Effects:
    """The effects of some statements on arrays, of a block in which some values are used."""
    read: set[ir.Var] = set()
    writes: set[ir.Var] = set()
    accumulates: set[ir.Var] = set()
    old_values: dict[ir.Var, ir.Var] = {}
    for stmt in stmts:
        match stmt:
            case ir.Load(_, array):
                if stmt.held is None:
                    read.add(array)
            case ir.Store(array) | ir.Append(array):
                writes.add(array)
            case ir.Atomic(out, _, array):
                accumulates.add(array)
                if stmt.held is None:
                    old_values[out] = array
            case ir.Native():
                for access, array in stmt.arrays:
                    read |= {array} if access in ("read", "write") else set()
                    writes |= {array} if access in ("store", "write", "clear") else set()
                    accumulates |= {array} if access == "add" else set()
            case _:
                pass
    if old_values:
        read |= {array for old_value, array in old_values.items() if old_value in used()}
    return Effects(frozenset(read), frozenset(writes), frozenset(accumulates))


def reads_of_old(function: ir.Function) -> frozenset[ir.Var]:
    """The arrays with upward-exposed reads: a thread may read an element that it has not stored before."""
    found: set[ir.Var] = set()
    _find_reads_of_old(function.body, set(), _used_in(function.body), found)
    return frozenset(found)


_Element = tuple[object, ...]


def _find_reads_of_old(
    block: ir.Block, stored: set[_Element], used: Callable[[], Set[ir.Atom]], found: set[ir.Var]
) -> set[_Element]:
    """Find them in a block, and return the elements `stored` after it."""
    for stmt in block.stmts:
        match stmt:
            case ir.Store(array, indices):
                stored.add((array, indices, stmt.component))
            case ir.Load(_, array, indices) if stmt.held is None:
                if stored.isdisjoint({(array, indices, None), (array, indices, stmt.component)}):
                    found.add(array)
            case ir.If():
                then, orelse = (
                    _find_reads_of_old(one, set(stored), used, found) for one in (stmt.then, stmt.orelse)
                )
                stored = then & orelse
            case _:
                found |= _effects((stmt,), used).reads
                for inner in ir.blocks(stmt):
                    _find_reads_of_old(inner, set(stored), used, found)
    return stored


Groups = Collection[Collection[ir.Var]]


def aliases(function: ir.Function, groups: Groups) -> dict[ir.Var, frozenset[ir.Var]]:
    """For each array parameter, the parameters that may share its elements, itself among them."""
    shared = {var: frozenset({var}) for var in function.params}
    shared |= {var: frozenset({var}) for var in ir.locals_of(function.body)}
    for group in groups:
        shared.update(dict.fromkeys(group, frozenset(group)))
    return shared
