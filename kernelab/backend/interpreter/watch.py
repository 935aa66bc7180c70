"""Runs a program and records every value that one thread loads, computes, stores and adds, by line.

The interpreter runs it, whatever the kernel runs on otherwise.  Knows programs and packed arguments; must not
know what is made of the values.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeGuard

import numpy as np

from kernelab.backend.common import backends
from kernelab.backend.common.backends import Args
from kernelab.backend.interpreter.chunk import Bounds, Chunk
from kernelab.backend.interpreter.interpreter import Launch, entry
from kernelab.backend.interpreter.lanes import Frame, Numpy
from kernelab.codegen.common.entry import GRID_SLOTS
from kernelab.errors import Span
from kernelab.lang import ir


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

    def __init__(
        self, element: range, changes: list[Change], grown: Mapping[ir.Var, ir.Let], *given: Any
    ) -> None:
        super().__init__(*given)
        self.element = element
        self.changes = changes
        self.grown = grown

    def stmt(self, stmt: ir.Stmt, frame: Frame) -> None:
        """Run a statement, and note what it did to the element."""
        super().stmt(stmt, frame)
        if isinstance(stmt, ir.Store | ir.Atomic) and stmt.array not in self.locals:
            self.note(stmt, frame)

    def note(self, stmt: ir.Store | ir.Atomic, frame: Frame) -> None:
        """Keep the changes of the lanes that hit."""
        places, live = self.places(stmt, frame)
        elements = self.storage(stmt.array)
        addresses = np.full(live, elements.ctypes.data, np.int64)
        for place, stride in zip(places, elements.strides, strict=False):
            addresses += np.asarray(place, np.int64) * stride
        hits = np.flatnonzero((addresses >= self.element.start) & (addresses < self.element.stop))
        is_store = isinstance(stmt, ir.Store) or stmt.kind != "add"
        for span, share in [(stmt.span, stmt.value)] if is_store else self.shares(stmt):
            values: Numpy = frame.values(share)
            self.changes += [
                Change(span, int(frame.threads[k]), values[k].copy(), stmt.component, is_store)
                for k in hits.tolist()
            ]

    def shares(self, stmt: ir.Store | ir.Atomic) -> list[tuple[Span, ir.Atom]]:
        """What is added, share by share: that of a variable at each line that uses it."""
        found, rest = list[tuple[Span, ir.Atom]](), stmt.value
        while isinstance(rest, ir.Var) and rest in self.grown:
            one = self.grown[rest]
            rest, share = one.args
            found.append((one.span, share))
        return found[::-1] if isinstance(rest, ir.Const) and found else [(stmt.span, rest), *found[::-1]]


def can_be_pointed(function: ir.Function) -> bool:
    """Whether the interpreter can run a program: it has no snippets."""
    return not any(isinstance(stmt, ir.Native) for stmt in ir.walk(function.body))


def changes_of(function: ir.Function, args: Args, element: range) -> list[Change]:
    """Run a program on packed arguments, whose memory it changes; what it did to the `element` at some bytes.

    Raises the KernelError of the first thread that fails.
    """
    found: list[Change] = []
    grown = {stmt.out: stmt for stmt in ir.walk(function.body) if is_sum(stmt)}
    entry(function, chunk=partial(Pointed, element, found, grown))(args)
    return found


# ----------------------------------------------------------------------------------------------------- watch


SIGNS = {"add": "+=", "min": "min=", "max": "max=", "and": "&=", "or": "|=", "xor": "^="}
"""The operators that print atomics; others exchange values, which is printed as an assignment."""


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """A value at a line: that of a variable, or of an element that was read, written or added to.

    `sign` is "=" for what is now so, else how the element was changed by the value.  `is_read` tells elements
    that were read from those that were written.
    """

    span: Span
    name: str
    sign: str
    value: Any
    is_read: bool = False


def is_sum(stmt: ir.Stmt) -> TypeGuard[ir.Let]:
    """Whether a statement of an unmerged adjoint adds to a cotangent: ``x_bar = add(x_bar, share)``."""
    if not isinstance(stmt, ir.Let) or stmt.op.name != "add" or not stmt.out.hint.endswith("_bar"):
        return False
    before = stmt.args[0]
    return before.value == 0 if isinstance(before, ir.Const) else before.hint == stmt.out.hint


class Watched(Chunk):
    """A chunk of one thread that notes what it does, up to `most` values."""

    def __init__(self, seen: list[Seen], most: int, *given: Any) -> None:
        super().__init__(*given)
        self.seen = seen
        self.most = most

    def stmt(self, stmt: ir.Stmt, frame: Frame) -> None:
        """Run a statement, and note its value."""
        if isinstance(stmt, ir.Custom):
            for out, values in zip(stmt.outs, self.block(stmt.body, frame), strict=True):
                frame.define(out, values)
                if out.hint:
                    self.note(stmt, out.hint, values)
            return
        if isinstance(stmt, ir.If):
            self.note(stmt, "if", frame.values(stmt.cond))
        super().stmt(stmt, frame)
        match stmt:
            case ir.Let(out, _, (_, share)) if is_sum(stmt):
                self.note(stmt, out.hint, frame.values(share), "+=")
            case ir.Let(out) if out.hint:
                self.note(stmt, out.hint, frame.values(out))
            case ir.Load(out, array, indices, held=None):
                name = f"{array.hint}{self.index(indices, frame)}"
                self.note(stmt, name, frame.values(out), is_read=True)
            case ir.Restore(_, outs):
                for out in outs:
                    if out.hint:
                        self.note(stmt, out.hint, frame.values(out))
            case ir.Store(array, indices, value):
                self.note(stmt, f"{array.hint}{self.index(indices, frame)}", frame.values(value))
            case ir.Atomic(_, kind, array, indices, value):
                name = f"{array.hint}{self.index(indices, frame)}"
                self.note(stmt, name, frame.values(value), SIGNS.get(kind, "="))
            case _:
                pass

    def iteration(
        self, stmt: ir.Loop, around: Frame, carried: list[Numpy], trip: int, counts: Numpy | None
    ) -> list[Numpy]:
        """Run an iteration, and note its number."""
        if isinstance(stmt, ir.For):
            assert counts is not None
            number = counts - 1 - trip if stmt.reverse else counts * 0 + trip
            self.note(stmt, stmt.index.hint or "iteration", number)
        return super().iteration(stmt, around, carried, trip, counts)

    def index(self, indices: tuple[ir.Atom, ...], frame: Frame) -> str:
        """The indices as they are written."""
        return f"[{', '.join(str(int(frame.places(index)[0])) for index in indices)}]"

    def note(self, stmt: ir.Stmt, name: str, values: Numpy, sign: str = "=", is_read: bool = False) -> None:
        """Keep the value of the only thread."""
        if len(self.seen) < self.most:
            value = values[0]
            self.seen.append(Seen(stmt.span, name, sign, value.copy() if value.ndim else value[()], is_read))


def watch(function: ir.Function, args: Args, thread: int, most: int) -> list[Seen]:
    """Run one thread of a program on packed arguments, whose memory it changes; at most `most` values.

    Raises the KernelError that the thread ends with, if it does.
    """
    made = entry(function)
    slots = backends.slots_of(args)
    grid = slots[:GRID_SLOTS]
    seen: list[Seen] = []
    launch = Launch(made.program, made.info, slots, Bounds(), partial(Watched, seen, most))
    failure = launch.chunk(range(thread, thread + 1), grid)
    launch.sums.settle()
    if failure is not None:
        raise backends.failure(made.info, failure.status, grid)
    return seen
