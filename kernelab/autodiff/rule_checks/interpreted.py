"""Levels that run programs in float64 on the interpreter; one changes the last digits of every value.

Subclasses of `Chunk` observe every statement that the interpreter runs.  `Noisy` changes the last digits of
every value: how far results then move tells the size of the terms that they are sums of, and with it their
rounding (D. S. Parker, "Monte Carlo arithmetic", UCLA, 1997).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from kernelab.autodiff.records.adjoint_buffers import Argument, Extents, packed
from kernelab.autodiff.transforms.base_level import BASE
from kernelab.autodiff.transforms.wide_level import Wide
from kernelab.backend.cpu import interpreter
from kernelab.backend.cpu.chunk import Chunk
from kernelab.backend.cpu.lanes import Frame
from kernelab.lang.build import type_of
from kernelab.lang.ir import Function, Let
from kernelab.lang.types import is_differentiable
from kernelab.runtime.kernel.program import Program
from kernelab.runtime.launch.footprint import grid_of


class Interpreted(Wide):
    """Runs programs in float64 by chunks of class `chunk`; above `most` threads, or with C++, as usual."""

    def __init__(self, chunk: Callable[..., Chunk], most: int) -> None:
        super().__init__(BASE)
        self.chunk = chunk
        self.most = most

    def function(self, program: Program) -> Function | None:
        """The function that is run for a program; None where the interpreter cannot run it."""
        return program.flat if interpreter.can_interpret(program.flat) else None

    def run_wide(self, program: Program, grid: Extents, arguments: Sequence[Argument]) -> None:
        shape, function = grid_of(grid), self.function(program)
        if shape.threads > self.most or function is None:
            super().run_wide(program, grid, arguments)
            return
        parts = [shape.packed, *(packed(each, shape.threads, None) for each in arguments)]
        interpreter.entry(function, chunk=self.chunk, lanes=True)(b"".join(parts))


class Noisy(Interpreted):
    """Multiplies what every statement computes by a number that is 1 up to `noise`."""

    def __init__(self, noise: float, seed: int) -> None:
        super().__init__(partial(NoisyChunk, noise, np.random.default_rng(seed)), MOST_THREADS)


MOST_THREADS = 1 << 20


class NoisyChunk(Chunk):
    """A run of some threads in which every value is multiplied by a number that is 1 up to `noise`."""

    def __init__(self, noise: float, rng: "np.random.Generator", *arguments: Any) -> None:
        super().__init__(*arguments)
        self.noise, self.rng = noise, rng

    def let(self, stmt: Let, frame: Frame) -> None:
        super().let(stmt, frame)
        if is_differentiable(type_of(stmt.out)):
            frame.define(stmt.out, noisy(frame.values(stmt.out), self.noise, self.rng))


def noisy(values: "np.ndarray[Any, Any]", noise: float, rng: "np.random.Generator") -> Any:
    """Values multiplied by numbers that are 1 up to `noise`."""
    return values * (1.0 + noise * rng.uniform(-1.0, 1.0, values.shape))
