"""Loops along rows: each lane has its own row, and all lanes reach the same column in each iteration.

    for k in range(n): s += x[i, k]        reads x[i, 0] .. x[i, 15] by one load for each lane

Such a loop keeps a block of columns as vectors, as many as there are lanes, and writes it when it comes to
the next one (`codegen.vectors.vector_rows`).  A gather in each iteration would take four times as long.
"""

from collections.abc import Iterator, Mapping, Set

from kernelab.codegen.cpp.wide_accumulators import totals, wide
from kernelab.codegen.vectors.launch_rule import is_field
from kernelab.codegen.vectors.variation import UNIFORM, Variations
from kernelab.lang import ir
from kernelab.lang.build import elem_of
from kernelab.lang.types import float32, int32, scalar_of, size_of, uint32
from kernelab.passes.access.independence import read_only


def columns_walked(
    function: ir.Function, variations: Variations, width: int
) -> Mapping[ir.ArrayAccess, ir.For]:
    """The accesses of a function whose loop may keep a block of `width` columns, each with that loop."""
    walked: dict[ir.ArrayAccess, ir.For] = {}
    steady, summed = read_only(function), {*totals(function), *wide(function)}
    for loop in ir.walk(function.body):
        if not isinstance(loop, ir.For) or loop.stop is not None or variations.of(loop.count) != UNIFORM:
            continue
        varies = {*ir.entering(loop), *ir.defined(loop.body)}
        for stmt in always_run(loop.body):
            if isinstance(stmt, ir.Load) and stmt.array in steady and varies.isdisjoint(stmt.indices):
                varies.discard(stmt.out)  # it is read before the loop
            if not _is_of_words(stmt.array) or not _is_next_column(stmt, loop, varies, variations):
                continue
            if stmt.array in steady or _may_keep_changes(stmt, loop, function, width, summed):
                walked[stmt] = loop
    return walked


def always_run(block: ir.Block) -> Iterator[ir.ArrayAccess]:
    """The accesses of a block that stand in no branch."""
    for stmt in ir.walk(block, lambda stmt: () if isinstance(stmt, ir.If) else ir.blocks(stmt)):
        if isinstance(stmt, ir.Store | ir.Atomic) or (isinstance(stmt, ir.Load) and stmt.held is None):
            yield stmt


def _is_of_words(array: ir.Var) -> bool:
    elem = elem_of(array)
    return scalar_of(elem) in (float32, int32, uint32) and size_of(elem) == 1 and not is_field(array)


def _is_next_column(stmt: ir.ArrayAccess, loop: ir.For, varies: Set[ir.Atom], variations: Variations) -> bool:
    """Whether each iteration comes to the column beside the last one, in the same row of each lane.

    `varies` are the values that are computed in the loop.
    """
    lets, of = variations.lets, variations.of

    def changes(atom: ir.Atom) -> bool:
        return atom in varies and (atom not in lets or any(map(changes, lets[atom].args)))

    def is_next(column: ir.Atom) -> bool:
        let = lets.get(column)
        if let is None or let.op.name not in ("add", "sub"):
            return column is loop.index
        return [is_next(arg) for arg in let.args if changes(arg)] == [True]

    *rows, column = stmt.indices
    if of(column) != UNIFORM or all(of(row) == UNIFORM for row in rows):
        return False
    return is_next(column) and not any(map(changes, rows))


def _may_keep_changes(
    stmt: ir.ArrayAccess, loop: ir.For, function: ir.Function, width: int, summed: Set[ir.Atomic]
) -> bool:
    """Whether a loop may write an array later: only this thread comes to the row, only so in this loop."""
    if isinstance(loop.count, ir.Const) and loop.count.value < width:
        return False  # to read and write a part of a block takes longer
    inside = [*_accesses_to(stmt.array, loop.body)]
    if not all(one.indices == stmt.indices and one in loop.body.stmts for one in inside):
        return False
    rows = stmt.indices[:-1]
    is_own = all(one.indices[:-1] == rows for one in _accesses_to(stmt.array, function.body))
    return is_own and {*function.threads}.issubset(rows) and summed.isdisjoint(inside)


def _accesses_to(array: ir.Var, block: ir.Block) -> Iterator[ir.ArrayAccess]:
    return (stmt for stmt in ir.walk(block) if isinstance(stmt, ir.ArrayAccess) and stmt.array is array)
