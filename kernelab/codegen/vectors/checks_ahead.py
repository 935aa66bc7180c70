"""The checks of a function alone: what its threads may fail at, without their effects.

    for k < count[i]:                    for k < count[i]:
      j = of[start[i] + k]                 j = of[start[i] + k]
      atomic_add(x_bar[j], y_bar[i])       check x_bar[j], y_bar[i]

Where a function is to check an index after it has changed something, vector code runs all checks of a group
first.
"""

from collections.abc import Iterator
from dataclasses import replace

from kernelab.codegen.vectors.vector_values import Refused
from kernelab.lang import ir
from kernelab.lang.types import int32
from kernelab.passes.access.independence import read_only
from kernelab.passes.common.simplify import eliminate

_NOTHING = ir.Const(0, int32)


def checks_of(function: ir.Function) -> ir.Block:
    """The assertions of a function, and a `Store` for each access, of which the value does not count.

    The Vars are those of the function.  Raises Refused where an index depends on what threads change.
    """
    found = eliminate(replace(function, body=_accesses(function.body))).body
    steady = read_only(function)
    for stmt in ir.walk(found):
        if isinstance(stmt, ir.Save) or (
            isinstance(stmt, ir.Load) and stmt.held is None and stmt.array not in steady
        ):
            raise Refused("an index that is tested after a thread has changed something depends on changes")
    return found


def _accesses(block: ir.Block) -> ir.Block:
    return ir.Block(tuple(inner for stmt in block.stmts for inner in _checked(stmt)), block.yields)


def _checked(stmt: ir.Stmt) -> Iterator[ir.Stmt]:
    match stmt:
        case ir.Load(held=None):
            yield stmt
            yield ir.Store(stmt.array, stmt.indices, _NOTHING, stmt.span)
        case ir.Store() | ir.Atomic():
            yield ir.Store(stmt.array, stmt.indices, _NOTHING, stmt.span)
        case ir.If(then=then, orelse=orelse):
            yield replace(stmt, then=_accesses(then), orelse=_accesses(orelse))
        case ir.For(body=body) | ir.While(body=body):
            yield replace(stmt, body=_accesses(body))
        case _:
            yield stmt
