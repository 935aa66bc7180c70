"""How values are saved: where they stand in a record of the arena, and when a thread can still start anew."""

from collections.abc import Sequence

from kernelab.codegen.cpp import spelling
from kernelab.lang.ir import Append, Atomic, Block, Print, Save, Stmt, Store, blocks, walk
from kernelab.lang.types import Scalar


def early_saves(body: Block) -> frozenset[Stmt]:
    """The saves that a thread passes before it has changed anything: there it can still start anew."""
    found: set[Stmt] = set()
    for stmt in body.stmts:
        inside = [stmt, *(inner for block in blocks(stmt) for inner in walk(block))]
        if any(isinstance(inner, Store | Atomic | Append | Print) for inner in inside):
            break
        found.update(inner for inner in inside if isinstance(inner, Save))
    return frozenset(found)


def widest_saved(body: Block) -> int:
    """The size of the widest scalar that a function saves: the size of every record is a multiple of it."""
    saved = (atom.type for stmt in walk(body) if isinstance(stmt, Save) for atom in stmt.atoms)
    return max((spelling.size(type) for type in saved if isinstance(type, Scalar)), default=1)


def record(scalars: Sequence[Scalar], widest: int) -> tuple[list[int], int]:
    """Where each scalar stands in a saved record, the widest first, and the record's size."""
    offsets = [0] * len(scalars)
    end = 0
    for k in sorted(range(len(scalars)), key=lambda k: -scalars[k].bits):
        offsets[k] = end
        end += spelling.size(scalars[k])
    return offsets, (end + widest - 1) // widest * widest
