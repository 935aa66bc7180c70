"""Unrolls short loops whose counter picks a component of a vector or matrix.

    before    for k in range(3): v[k] = m[k, k]            each access chooses among all components
    after     v[0] = m[0, 0]; v[1] = m[1, 1]; ...          each access is a number of its own

Adjoints then keep nothing for such a loop.  Other loops stay loops: their bodies need no choice.
"""

from collections.abc import Iterator, Sequence

from kernelab.lang import ir
from kernelab.lang.build import type_of
from kernelab.passes.common.copying import Copier

MOST = 96
"""The statements that a loop may become: more takes compilers longer, and readers of the adjoint."""

_CHOOSE = frozenset({"extract", "row", "insert"})
"""The operations on components, of a vector or matrix that is their first operand."""


def unrolled(function: ir.Function) -> ir.Function:
    """The function without short loops whose counter picks a component."""
    loops = [stmt for stmt in ir.of_kind(function.body, ir.For) if _picks(stmt)]
    return _Unroller(frozenset(loops)).function(function) if loops else function


def _picks(loop: ir.For) -> bool:
    """Whether an index of a component depends on the counter."""
    depends: set[ir.Atom] = {loop.index}
    for stmt in ir.walk(loop.body):
        if not isinstance(stmt, ir.Let) or depends.isdisjoint(stmt.args):
            continue
        if stmt.op.name not in _CHOOSE:
            depends.add(stmt.out)
        elif not depends.isdisjoint(_indices(stmt)):
            return True
    return False


def _indices(stmt: ir.Let) -> Sequence[ir.Atom]:
    return stmt.args[1 : -1 if stmt.op.name == "insert" else None]


class _Unroller(Copier):
    def __init__(self, loops: frozenset[ir.Stmt]) -> None:
        super().__init__()
        self.loops = loops

    def loop(self, stmt: ir.Loop) -> None:
        count = self.atom(stmt.count) if isinstance(stmt, ir.For) else None
        if not isinstance(stmt, ir.For) or not isinstance(count, ir.Const) or not self._is_short(stmt, count):
            super().loop(stmt)
            return
        values = self.atoms(stmt.inits)
        for k in range(int(count.value)):
            self.env[stmt.index] = ir.Const(k, type_of(stmt.index))
            self.env.update(zip(stmt.carries, values, strict=True))
            self.stmts(stmt.body)
            values = self.atoms(stmt.body.yields)
        self.env.update(zip(stmt.outs, values, strict=True))

    def _is_short(self, stmt: ir.For, count: ir.Const) -> bool:
        if stmt not in self.loops or stmt.stop is not None or stmt.storage is not None:
            return False
        assert not stmt.reverse, "an adjoint is not written out"
        return int(count.value) * sum(1 for _ in self._copied(stmt.body)) <= MOST

    def _copied(self, block: ir.Block) -> Iterator[ir.Stmt]:
        """The statements of a block, those of a loop inside as often as it runs if that is known."""
        for stmt in block.stmts:
            yield stmt
            turns = 1
            if isinstance(stmt, ir.For) and stmt in self.loops and isinstance(stmt.count, ir.Const):
                turns = int(stmt.count.value)
            for inner in ir.blocks(stmt):
                yield from [*self._copied(inner)] * turns
