"""Adjoint programs that skip clearing the cotangents of stored elements, where nobody reads these again.

before    g = y_bar[i]; y_bar[i] = 0; x_bar[i] += a * g
after     g = y_bar[i]; x_bar[i] += a * g
"""

from collections.abc import Sequence

from kernelab.data_classes import replace
from kernelab.lang import ir
from kernelab.lang.build import elem_of


def cleared_once(function: ir.Function) -> frozenset[ir.Var]:
    """The arrays of which each thread reads an element of its own and then sets it to zero, and no more.

    All thread indices are among those of the element, in any order.
    """
    stmts = [*ir.walk(function.body)]
    if not function.threads or any(isinstance(stmt, ir.Native) for stmt in stmts):
        return frozenset()
    touching = {array: [stmt for stmt in stmts if array in ir.atoms(stmt)] for array in function.params}
    inner = (block for stmt in ir.once(function.body) if isinstance(stmt, ir.If) for block in ir.blocks(stmt))
    blocks = [function.body, *inner]
    return frozenset(
        array
        for array, found in touching.items()
        if len(found) == 2
        and _is_clear(found[1])
        and _is_own(found, function.threads)
        and any(set(found) <= {*block.stmts} for block in blocks)
    )


def _is_own(stmts: Sequence[ir.Stmt], threads: tuple[ir.Var, ...]) -> bool:
    """Whether statements touch one element, which no other thread touches by them."""
    places = {stmt.indices if isinstance(stmt, ir.Load | ir.Store) else () for stmt in stmts}
    return len(places) == 1 and {*threads} <= {*places.pop()}


def _is_clear(stmt: ir.Stmt) -> bool:
    return (
        isinstance(stmt, ir.Store)
        and stmt.component is None
        and isinstance(stmt.value, ir.Const)
        and stmt.value.value == 0
    )


def without_clears(function: ir.Function) -> ir.Function:
    """The function without the statements that set `cleared_once` elements to zero.

    They become loads that nobody uses: by the number of its statements it is cut into the same parts.
    """
    return replace(function, body=_without(function.body, cleared_once(function)))


def _without(block: ir.Block, arrays: frozenset[ir.Var]) -> ir.Block:
    stmts: list[ir.Stmt] = []
    for stmt in block.stmts:
        if isinstance(stmt, ir.Store) and stmt.array in arrays:
            unused = ir.Var(elem_of(stmt.array), "unused", stmt.span)
            stmts.append(ir.Load(unused, stmt.array, stmt.indices, stmt.span))
        elif isinstance(stmt, ir.If):
            then, orelse = (_without(inner, arrays) for inner in (stmt.then, stmt.orelse))
            stmts.append(replace(stmt, then=then, orelse=orelse))
        else:
            stmts.append(stmt)
    return replace(block, stmts=tuple(stmts))
