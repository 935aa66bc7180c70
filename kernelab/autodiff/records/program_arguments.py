"""The arguments of programs: arrays, packed numbers, and the residuals that programs have appended to."""

from dataclasses import dataclass

from kernelab.lang.types import Value
from kernelab.runtime.array.array import array
from kernelab.runtime.launch.residual import Residual
from kernelab.runtime.memory.spaces import Space

Extents = tuple[int, ...]


class Kept:
    """The residual that a program appends to while it runs, one for each lane where lanes differ.

    `extents` counts the lanes of the levels through which the program came, the outermost first.
    """

    def __init__(self, elem: Value) -> None:
        self.elem = elem
        self.residual: Residual | None = None
        self.levels: list[object] = []
        self.extents: list[int] = []

    def arrays(self, inner: int = 0) -> tuple[array, array]:
        """The values, and where those of each thread of each lane begin.

        To a program that came through the `inner` innermost levels already, their lanes are threads.
        """
        assert self.residual is not None
        values, starts = self.residual.arrays()
        return values, starts.reshape(*self.extents[: len(self.extents) - inner], -1)


@dataclass(frozen=True, slots=True)
class KeptValues:
    kept: Kept


@dataclass(frozen=True, slots=True)
class KeptStarts:
    kept: Kept
    inner: int = 0


Argument = array | bytes | Kept | KeptValues | KeptStarts
"""An array, a number packed as a launch wants it, or what another program has kept."""


def packed(given: Argument, threads: int, space: Space | None) -> bytes:
    """An argument as an entry takes it, for a launch of some threads."""
    match given:
        case array():
            return given.packed
        case bytes():
            return given
        case Kept():
            given.residual = Residual(given.elem, threads, space)
            return given.residual.packed
        case KeptValues(kept):
            return kept.arrays()[0].packed
        case KeptStarts(kept, inner):
            return kept.arrays(inner)[1].packed
