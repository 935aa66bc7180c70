"""Which elements of its arguments a launch touches: the boxes of its kernel, found when somebody asks.

Knows kernels' regions and arrays; must not know tapes.  Most launches are never asked, so nothing is computed
ahead; what was found is remembered for launches that agree in their grid and in the arguments that matter.
"""

import functools
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from kernelab.passes.boxes import Box, Region, Situation, covers
from kernelab.passes.settled import Contest
from kernelab.runtime.strided import array

if TYPE_CHECKING:
    from kernelab.runtime.launch import Grid

_REMEMBERED = 4096


def part(elements: array, box: Box) -> array:
    """The view of an array that a box of its indices is."""
    if covers(box, elements.shape):
        return elements
    pairs = list(zip(box, elements.strides, strict=True))
    offset = elements.offset + sum(first * stride for (first, _, _), stride in pairs)
    shape = tuple(count for _, count, _ in box)
    strides = tuple(step * stride for (_, _, step), stride in pairs)
    return array.over(elements.allocation, offset, shape, strides, elements.dtype)


def box_of(region: Region, grid: "Grid", arguments: Sequence[Any]) -> Box | None:
    """The box of a region at a launch, None if it touches nothing."""
    uses = (region.position, *region.uses)
    return _box(region, grid.extents, _facts(uses, arguments))


def touched(region: Region, grid: "Grid", arguments: Sequence[Any]) -> array | None:
    """The part of its argument that a region is at a launch, None if it touches nothing."""
    box = box_of(region, grid, arguments)
    return None if box is None else part(arguments[region.position], box)


def is_settled(contests: tuple[Contest, ...], grid: "Grid", arguments: Sequence[Any]) -> bool:
    """Whether all contests over one array are settled at a launch."""
    uses = {i for one in contests for region in (one.read, one.change) for i in region.uses}
    return _settled(contests, grid.extents, _facts((contests[0].read.position, *sorted(uses)), arguments))


def _facts(uses: Sequence[int], arguments: Sequence[Any]) -> tuple[tuple[int, Hashable], ...]:
    """What a region asks of its arguments: the shapes of arrays, and numbers."""
    return tuple([(i, _fact(arguments[i])) for i in uses])


def _fact(argument: Any) -> Hashable:
    return _Shape(argument.shape) if isinstance(argument, array) else int(argument)


class _Shape(tuple[int, ...]):
    """A shape in the place of an array."""

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, ...]:
        return self


def _situation(extents: tuple[int, ...], facts: tuple[tuple[int, Any], ...]) -> Situation:
    return Situation((*extents, *(1,) * (4 - len(extents))), dict(facts))


@functools.lru_cache(_REMEMBERED)
def _box(region: Region, extents: tuple[int, ...], facts: tuple[tuple[int, Any], ...]) -> Box | None:
    return region.box(_situation(extents, facts))


@functools.lru_cache(_REMEMBERED)
def _settled(
    contests: tuple[Contest, ...], extents: tuple[int, ...], facts: tuple[tuple[int, Any], ...]
) -> bool:
    situation = _situation(extents, facts)
    return all(contest.settled(situation) for contest in contests)
