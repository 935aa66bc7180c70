"""The arguments of programs: arrays, packed numbers, and the residuals that programs have appended to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernelab.lang.types import Value
from kernelab.passes.access.access_regions import Box, Region
from kernelab.runtime.array.array import array
from kernelab.runtime.kernel.program import Groups, Positions, Program
from kernelab.runtime.launch.residual import Residual
from kernelab.runtime.launch.touched import box_of, is_settled
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


def box_among(region: Region, grid: Extents, arguments: Sequence[Argument]) -> Box | None:
    """The box of a region in a run of a program: None if it touches nothing, everything if unknown."""
    given = _known((region.position, *region.uses), arguments)
    if given is not None:
        return box_of(region, grid, given)
    elements = arguments[region.position]
    assert isinstance(elements, array)
    return tuple((0, extent, 1) for extent in elements.shape)


def settled(program: Program, grid: Extents, arguments: Sequence[Argument], groups: Groups) -> Positions:
    """The arrays that a run of a program changes, but nothing of what it reads of them."""
    found = []
    for i, contests in sorted(program.contests.items()):
        places = [region for one in contests for region in (one.read, one.change)]
        given = _known([k for region in places for k in (i, *region.uses)], arguments)
        shared = any(i in group for group in groups)
        if given is not None and not shared and is_settled(contests, grid, given):
            found.append(i)
    return tuple(found)


def _known(positions: Sequence[int], arguments: Sequence[Argument]) -> dict[int, Any] | None:
    """The arrays and integers at some positions; None where one of them is neither, or not there."""
    given: dict[int, Any] = {i: arguments[i] for i in positions if i < len(arguments)}
    for i, argument in given.items():
        if isinstance(argument, bytes):
            given[i] = int.from_bytes(argument, "little", signed=True)
    is_known = given.keys() == set(positions) and all(isinstance(one, array | int) for one in given.values())
    return given if is_known else None
