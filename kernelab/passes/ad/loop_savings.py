"""Reports the values that an adjoint saves for each loop of its kernel, from the text of the adjoint.

    for k in range(n): s = s * s        save, 4 bytes an iteration: s is a float32
    for k in range(n): s = s + x[k]     nothing: the adjoint of a sum reads no value of it

Nothing is decided here: `primal_replay` writes what is saved, and `simplify` takes away what nobody reads.
"""

from dataclasses import dataclass
from typing import Literal

from kernelab.errors import Span
from kernelab.lang.build import type_of
from kernelab.lang.ir import Block, For, Function, Save, Storage, While, blocks, walk
from kernelab.lang.types import bytes_of


@dataclass(frozen=True, slots=True)
class LoopStorage:
    """The storage of a loop, and the bytes of each saved iteration: none if its sweep needs none."""

    span: Span
    storage: Storage | Literal["nothing"]
    bytes: int

    def __repr__(self) -> str:
        each = "a checkpoint" if self.storage == "checkpoint" else "an iteration"
        size = f", {self.bytes} bytes {each}" if self.bytes else ""
        return f"<loop of line {self.line}: {self.storage}{size}>"

    @property
    def line(self) -> int:
        return self.span.line


def loop_storage(primal: Function, adjoint: Function) -> tuple[LoopStorage, ...]:
    """The loops of a kernel in the order of its text, and what its adjoint saves of each."""
    kept: dict[Span, int] = {}
    _collect(adjoint.body, kept)
    found: dict[Span, LoopStorage] = {}
    for stmt in walk(primal.body):
        if isinstance(stmt, For | While) and stmt.span not in found:
            size, chosen = kept.get(stmt.span, 0), stmt.storage if isinstance(stmt, For) else None
            found[stmt.span] = LoopStorage(stmt.span, (chosen or "save") if size else "nothing", size)
    return tuple(sorted(found.values(), key=lambda loop: (loop.span.line, loop.span.column)))


def _collect(block: Block, kept: dict[Span, int]) -> int:
    """The bytes that a block saves outside of its loops; those of a loop inlined twice count once."""
    saved = 0
    for stmt in block.stmts:
        if isinstance(stmt, Save):
            saved += sum(bytes_of(type_of(atom)) for atom in stmt.atoms)
        inside = sum(_collect(inner, kept) for inner in blocks(stmt))
        if isinstance(stmt, For | While):
            kept[stmt.span] = max(kept.get(stmt.span, 0), inside)
        else:
            saved += inside
    return saved
