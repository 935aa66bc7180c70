"""What custom derivatives do to arrays: they add to adjoints, and change no values of the forward pass."""

from collections.abc import Iterator, Sequence
from functools import lru_cache

from kernelab.lang import ir


def changing(function: ir.Function, array: ir.Var) -> ir.Stmt:
    """The first statement that changes an array, of those that a function changes."""
    return next(stmt for stmt in ir.walk(function.body) if array in ir.changed(stmt))


@lru_cache(512)
def beyond_adding(function: ir.Function, array: ir.Var) -> ir.Stmt | None:
    """The first statement that reads or replaces elements of an array; None where it is only added to."""
    stmts = [*ir.walk(function.body)]
    used = _used(function.body, stmts)
    for stmt in stmts:
        match stmt:
            case ir.Atomic(out, "add") if stmt.array is array and out not in used:
                pass
            case ir.Load() | ir.Store() | ir.Atomic() if stmt.array is array:
                return stmt
            case ir.Call(_, callee, args):
                if any(beyond_adding(callee, param) for param in _handed(callee, args, array)):
                    return stmt
    return None


def _used(body: ir.Block, stmts: Sequence[ir.Stmt]) -> set[ir.Atom]:
    """What statements read, without those of which nobody reads the result."""
    lets = [stmt for stmt in stmts if isinstance(stmt, ir.Let)]
    used = {atom for stmt in stmts if not isinstance(stmt, ir.Let) for atom in ir.atoms(stmt)}
    used |= {*body.yields, *(atom for stmt in stmts for block in ir.blocks(stmt) for atom in block.yields)}
    for stmt in reversed(lets):
        if stmt.out in used:
            used.update(stmt.args)
    return used


def _handed(callee: ir.Function, args: tuple[ir.Atom, ...], array: ir.Var) -> Iterator[ir.Var]:
    return (param for param, arg in zip(callee.params, args, strict=True) if arg is array)
