"""Puts the statements of a loop into the order in which a person would write them.

    before    p_2 = p_1 * x[k]              after    push(p_1)
              push(p_1)                              p_2 = p_1 * x[k]
              q, stop = if c: ...                    trips_2 = trips_1 + 1
              trips_2 = trips_1 + 1                  q, stop = if c: ...

Carried values are saved before new ones are computed, so that old and new can have one name; what ends the
loop comes last, so that it reads as a `break`.  A statement moves only where the order makes no difference.
Knows the IR only.
"""

from dataclasses import replace

from kernelab.lang.ir import (
    Block,
    For,
    Function,
    If,
    Let,
    Load,
    Restore,
    Save,
    Stmt,
    Var,
    While,
    atoms,
    blocks,
    walk,
)


def tidy(function: Function) -> Function:
    """The same function with what its loops save first, and what ends them last, where that can be."""
    return replace(function, body=_block(function.body))


def _block(block: Block) -> Block:
    return Block(tuple(_stmt(stmt) for stmt in block.stmts), block.yields)


def _stmt(stmt: Stmt) -> Stmt:
    if isinstance(stmt, If):
        return replace(stmt, then=_block(stmt.then), orelse=_block(stmt.orelse))
    if not isinstance(stmt, For | While):
        return stmt
    body = _saving_first(_block(stmt.body), stmt.carries)
    return replace(stmt, body=body if stmt.stop is None else _with_last(body, body.yields[stmt.stop]))


def _saving_first(body: Block, carries: tuple[Var, ...]) -> Block:
    """Saves and restores keep their order among themselves; the first may go before all else."""
    for position, stmt in enumerate(body.stmts):
        if isinstance(stmt, Save) and set(stmt.atoms) <= set(carries):
            return Block((stmt, *body.stmts[:position], *body.stmts[position + 1 :]), body.yields)
        if any(isinstance(inner, Save | Restore) for inner in _within(stmt)):
            return body
    return body


def _within(stmt: Stmt) -> list[Stmt]:
    return [stmt, *(inner for block in blocks(stmt) for inner in walk(block))]


def _with_last(body: Block, stop: object) -> Block:
    for position, stmt in enumerate(body.stmts):
        after = body.stmts[position + 1 :]
        if isinstance(stmt, If) and stop in stmt.outs and _can_wait(stmt, after):
            return Block((*body.stmts[:position], *after, stmt), body.yields)
    return body


def _can_wait(choice: If, after: tuple[Stmt, ...]) -> bool:
    inner = _within(choice)
    read: set[object] = {atom for stmt in after for atom in atoms(stmt)}
    if not all(isinstance(stmt, Let | Load | If) for stmt in inner) or not read.isdisjoint(choice.outs):
        return False
    return all(isinstance(stmt, Let | Save) for stmt in after)
