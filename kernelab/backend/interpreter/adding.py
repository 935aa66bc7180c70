"""A launch run by the interpreter, with every change of one element noted: thread, line and value.

Knows programs, packed arguments and addresses; must not know what the element is.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelab.backend.common.backends import Args
from kernelab.backend.interpreter.chunk import Chunk
from kernelab.backend.interpreter.interpreter import entry
from kernelab.backend.interpreter.lanes import Frame, Numpy
from kernelab.errors import Span
from kernelab.lang.ir import Atomic, Function, Native, Stmt, Store, walk


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A thread, by its number, added a value to the element, or stored one if `is_store`.

    `component` is that of a vector or matrix which alone was changed, counted through; None is all of it.
    """

    span: Span
    thread: int
    value: Any
    component: int | None = None
    is_store: bool = False


class Pointed(Chunk):
    """A chunk that notes what changes the element at some bytes."""

    changes: list[Change]
    element: range

    def stmt(self, stmt: Stmt, frame: Frame) -> None:
        """Run a statement, and note what it did to the element."""
        super().stmt(stmt, frame)
        if isinstance(stmt, Store | Atomic) and stmt.array not in self.locals:
            self.note(stmt, frame)

    def note(self, stmt: Store | Atomic, frame: Frame) -> None:
        """Keep the changes of the lanes that hit."""
        places, live = self.places(stmt, frame)
        elements = self.storage(stmt.array)
        addresses = np.full(live, elements.ctypes.data, np.int64)
        for place, stride in zip(places, elements.strides, strict=False):
            addresses += np.asarray(place, np.int64) * stride
        hits = np.flatnonzero((addresses >= self.element.start) & (addresses < self.element.stop))
        values: Numpy = frame.values(stmt.value)
        is_store = isinstance(stmt, Store) or stmt.kind != "add"
        self.changes += [
            Change(stmt.span, int(frame.threads[k]), values[k].copy(), stmt.component, is_store)
            for k in hits.tolist()
        ]


def can_be_pointed(function: Function) -> bool:
    """Whether the interpreter can run a program: it has no snippets."""
    return not any(isinstance(stmt, Native) for stmt in walk(function.body))


def changes_of(function: Function, args: Args, element: range) -> list[Change]:
    """Run a program on packed arguments, whose memory it changes; what it did to the `element` at some bytes.

    Raises the KernelError of the first thread that fails.
    """
    found: list[Change] = []

    def chunk(*given: Any) -> Chunk:
        made = Pointed(*given)
        made.changes, made.element = found, element
        return made

    entry(function, chunk=chunk)(args)
    return found
