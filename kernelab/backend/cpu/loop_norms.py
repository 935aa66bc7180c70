"""Runs an adjoint and measures the cotangents that its loops carry, iteration by iteration.

Knows programs and packed arguments; must not know tapes.
"""

from collections.abc import Set
from functools import partial
from typing import Any

import numpy as np

from kernelab.backend.common.backends import Args
from kernelab.backend.cpu.chunk import Chunk
from kernelab.backend.cpu.interpreter import can_be_pointed, entry
from kernelab.backend.cpu.lanes import Frame, Numpy
from kernelab.backend.cpu.zero_trace import cotangents_in
from kernelab.errors import Span
from kernelab.lang import ir
from kernelab.lang.types import is_differentiable

Squares = dict[tuple[Span, int], float]
"""The sum of the squares of what a loop carries after an iteration, over all threads."""


class Measuring(Chunk):
    """A chunk that adds up the squares of the cotangents after each iteration."""

    def __init__(self, bars: Set[ir.Atom], squares: Squares, *rest: Any) -> None:
        super().__init__(*rest)
        self.bars, self.squares = bars, squares

    def iteration(
        self, stmt: ir.Loop, around: Frame, carried: list[Numpy], trip: int, counts: Numpy | None
    ) -> list[Numpy]:
        """Run an iteration, and measure what it yields."""
        yields = super().iteration(stmt, around, carried, trip, counts)
        if not _carries_cotangents(stmt, self.bars):
            return yields
        numbers = np.full(len(around), trip) if counts is None else counts - 1 - trip
        for carry, value in zip(stmt.carries, yields, strict=True):
            if carry in self.bars:
                squares = np.square(value.reshape(len(around), -1).astype(np.float64)).sum(axis=1)
                for number in np.unique(numbers):
                    key = stmt.span, int(number)
                    self.squares[key] = self.squares.get(key, 0.0) + float(squares[numbers == number].sum())
        return yields


def has_measurable_loops(function: ir.Function) -> bool:
    """Whether an adjoint has loops that carry cotangents, and the interpreter can run it."""
    bars = cotangents_in(function)
    loops = any(_carries_cotangents(stmt, bars) for stmt in ir.walk(function.body))
    return loops and can_be_pointed(function)


def loop_norms(function: ir.Function, args: Args) -> dict[tuple[Span, int], float]:
    """The norm of the cotangents by loop and iteration, those next to the loss first; changes the memory."""
    squares: Squares = {}
    entry(function, chunk=partial(Measuring, cotangents_in(function), squares))(args)
    return {key: float(np.sqrt(total)) for key, total in sorted(squares.items(), key=lambda one: -one[0][1])}


def _carries_cotangents(stmt: ir.Stmt, bars: Set[ir.Atom]) -> bool:
    if not isinstance(stmt, ir.For) or not stmt.reverse:
        return False
    return any(carry in bars and is_differentiable(carry.type) for carry in stmt.carries)
