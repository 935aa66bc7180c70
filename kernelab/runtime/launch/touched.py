"""The elements of its arguments that a launch touches: access regions of its kernel, computed on demand.

Knows kernels' regions and arrays; must not know tapes.  Most launches are never asked, so nothing is computed
ahead; what was found is remembered for launches that agree in their grid and in the arguments that matter.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from kernelab.passes.access.access_regions import Box, Region, Situation, covers
from kernelab.passes.access.no_clobber import Contest
from kernelab.runtime.array.array import array

_REMEMBERED = 4096

Facts = tuple[Any, ...]
"""What a region asks of its arguments, in order: the shapes of arrays, and integers."""


def part(elements: array, box: Box) -> array:
    """The view of an array that a box of its indices is."""
    pairs = list(zip(box, elements.strides, strict=True))
    offset = elements.offset + sum(first * stride for (first, _, _), stride in pairs)
    shape = tuple(count for _, count, _ in box)
    strides = tuple(step * stride for (_, _, step), stride in pairs)
    return array.over(elements.allocation, offset, shape, strides, elements.dtype)


def box_of(
    region: Region, extents: tuple[int, ...], arguments: Sequence[Any] | Mapping[int, Any]
) -> Box | None:
    """The box of a region in a launch of a grid, None if it touches nothing."""
    return box_and_whole(region, extents, arguments)[0]


def box_and_whole(
    region: Region, extents: tuple[int, ...], arguments: Sequence[Any] | Mapping[int, Any]
) -> tuple[Box | None, bool]:
    """The same, and whether the box is the whole array."""
    if not region.uses:
        return _box(region, extents, arguments[region.position].shape)
    return _box(region, extents, *_facts(region, arguments))


def overwrites(
    target: array,
    elements: array,
    region: Region,
    extents: tuple[int, ...],
    arguments: Sequence[Any],
) -> bool:
    """Whether a write to `target`, which overlaps the box of a region, changes an element of the region."""
    boxes = _boxes(region, extents, *_facts(region, arguments))
    return len(boxes) == 1 or any(target.overlaps(part(elements, box)) for box in boxes)


def touched(region: Region, extents: tuple[int, ...], arguments: Sequence[Any]) -> array | None:
    """The part of its argument that a region is in a launch of a grid, None if it touches nothing."""
    box, is_whole = box_and_whole(region, extents, arguments)
    argument: array = arguments[region.position]
    if is_whole:
        return argument
    return None if box is None else part(argument, box)


def is_settled(
    contests: tuple[Contest, ...], extents: tuple[int, ...], arguments: Sequence[Any] | Mapping[int, Any]
) -> bool:
    """Whether all contests over one array are settled in a launch of a grid."""
    facts = [_facts(region, arguments) for one in contests for region in (one.read, one.change)]
    return _settled(contests, extents, *facts)


def _facts(region: Region, arguments: Sequence[Any] | Mapping[int, Any]) -> Facts:
    used = [arguments[i] for i in region.uses]
    facts = [given.shape if isinstance(given, array) else int(given) for given in used]
    return arguments[region.position].shape, *facts


class _Shape(tuple[int, ...]):
    """A shape in the place of an array."""

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, ...]:
        return self


def _situation(region: Region, extents: tuple[int, ...], facts: Facts) -> Situation:
    known = [_Shape(fact) if isinstance(fact, tuple) else fact for fact in facts]
    arguments = dict(zip((region.position, *region.uses), known, strict=True))
    return Situation((*extents, *(1,) * (4 - len(extents))), arguments)


@functools.lru_cache(_REMEMBERED)
def _box(region: Region, extents: tuple[int, ...], *facts: Any) -> tuple[Box | None, bool]:
    """A box, and whether it is the whole array."""
    box = region.box(_situation(region, extents, facts))
    return box, box is not None and covers(box, facts[0])


@functools.lru_cache(_REMEMBERED)
def _boxes(region: Region, extents: tuple[int, ...], *facts: Any) -> tuple[Box, ...]:
    """The boxes of the single accesses of a region, where they can be told apart."""
    return tuple(region.boxes(_situation(region, extents, facts)))


@functools.lru_cache(_REMEMBERED)
def _settled(contests: tuple[Contest, ...], extents: tuple[int, ...], *facts: Facts) -> bool:
    situations = [
        _situation(region, extents, known)
        for region, known in zip((r for one in contests for r in (one.read, one.change)), facts, strict=True)
    ]
    pairs = zip(situations[::2], situations[1::2], strict=True)
    return all(one.settled(read, change) for one, (read, change) in zip(contests, pairs, strict=True))
