"""Finds outputs that depend on the order of threads: each program runs again with the last thread first."""

import math
from collections.abc import Sequence

import numpy as np

from kernelab.autodiff.jacobians.subject import Key, Subject
from kernelab.autodiff.records.adjoint_buffers import Argument, Extents, scalars
from kernelab.autodiff.transforms.base_level import BASE
from kernelab.autodiff.transforms.levels import Level
from kernelab.data_classes import dataclass
from kernelab.lang.rounding import alike
from kernelab.runtime.array.array import array
from kernelab.runtime.kernel.program import Program

SUMS = 1e-3
"""How far sums of another order may differ, relative to the largest element."""


@dataclass(frozen=True, slots=True)
class Race:
    """A number of an output, by its position, and what it is with the first and the last thread first."""

    position: int
    usual: float
    turned: float


class Reordered(Level):
    """Runs programs whose threads may meet with the last thread first; `has_met` says if there was one."""

    def __init__(self, parent: Level) -> None:
        super().__init__(parent)
        self.has_met = False

    def run(self, program: Program, grid: Extents, arguments: Sequence[Argument]) -> None:
        if (program.meets or program.sharing(arguments)) and math.prod(grid) > 1:
            self.has_met = True
            program = program.turned
        self.parent.run(program, grid, arguments)

    def move(self, dest: array, src: array, add: bool = False) -> None:
        self.parent.move(dest, src, add)


def racing_outputs(subject: Subject) -> dict[Key, Race]:
    """By the key of each output that depends on the order of threads, where it does first."""
    kernel = subject.kernel
    if kernel is not None and not (kernel.program.meets or kernel.program.sharing(subject.arguments)):
        return {}
    level = Reordered(BASE)
    turned = subject.start().go(level)
    if not level.has_met:
        return {}
    usual = subject.start().go(BASE)
    pairs = zip(subject.targets(usual), usual, turned, strict=True)
    differences = {target.key: first_difference(a, b) for target, a, b in pairs}
    return {key: race for key, race in differences.items() if race is not None}


def first_difference(usual: array, turned: array) -> Race | None:
    """The first place where two runs differ by more than the rounding of sums, None if there is none."""
    a, b = (scalars(each).host().astype(np.float64).reshape(-1) for each in (usual, turned))
    where = np.flatnonzero(~alike(a, b, SUMS))
    return Race(int(where[0]), float(a[where[0]]), float(b[where[0]])) if len(where) else None
