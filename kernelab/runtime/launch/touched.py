"""The elements of its arguments that a launch touches: access regions of its kernel, computed on demand.

Knows kernels' regions and arrays; must not know tapes.  Most launches are never asked, so nothing is computed
ahead; what was found is remembered for launches that agree in their grid and in the arguments that matter.
"""

import functools
from collections.abc import Sequence
from typing import Any

from kernelab.passes.access.access_regions import Box, Region, Situation, covers
from kernelab.passes.access.no_clobber import Contest
from kernelab.runtime.array.array import array
from kernelab.runtime.kernel.program import Groups, Positions, Program

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


def box_of(region: Region, extents: tuple[int, ...], arguments: Sequence[Any]) -> Box | None:
    """The box of a region in a launch of a grid: None if it touches nothing, everything if unknown."""
    return box_and_whole(region, extents, arguments)[0]


def box_and_whole(
    region: Region, extents: tuple[int, ...], arguments: Sequence[Any]
) -> tuple[Box | None, bool]:
    """The same, and whether the box is the whole array."""
    shape = arguments[region.position].shape
    if not region.uses:
        return _box(region, extents, shape)
    facts = _facts(region, arguments)
    if facts is None:
        return tuple([(0, extent, 1) for extent in shape]), True
    return _box(region, extents, *facts)


def overwrites(
    target: array,
    elements: array,
    region: Region,
    extents: tuple[int, ...],
    arguments: Sequence[Any],
) -> bool:
    """Whether a write to `target`, which overlaps the box of a region, changes an element of the region."""
    facts = _facts(region, arguments)
    boxes = () if facts is None else _boxes(region, extents, *facts)
    return len(boxes) < 2 or any(target.overlaps(part(elements, box)) for box in boxes)


def touched(region: Region, extents: tuple[int, ...], arguments: Sequence[Any]) -> array | None:
    """The part of its argument that a region is in a launch of a grid, None if it touches nothing."""
    box, is_whole = box_and_whole(region, extents, arguments)
    argument: array = arguments[region.position]
    if is_whole:
        return argument
    return None if box is None else part(argument, box)


def changed_part(
    program: Program, extents: tuple[int, ...], arguments: Sequence[Any], position: int
) -> array:
    """The part of one of its arguments that a program changes, as precisely as needed."""
    target: array = arguments[position]
    target.allocation.alert()
    if not target.allocation.watches.starts:
        return target
    found = touched(program.regions_changed[position], extents, arguments)
    return target[:0] if found is None else found


def settled(
    program: Program, extents: tuple[int, ...], arguments: Sequence[Any], groups: Groups
) -> Positions:
    """The arrays that a launch of a program changes, but nothing of what it reads of them."""
    found = []
    for i, contests in sorted(program.contests.items()):
        facts = [_facts(region, arguments) for one in contests for region in (one.read, one.change)]
        is_known = None not in facts and not any(i in group for group in groups)
        if is_known and _settled(contests, extents, *facts):
            found.append(i)
    return tuple(found)


def _facts(region: Region, arguments: Sequence[Any]) -> Facts | None:
    """What a region asks of its arguments; None where one of them is neither an array nor a number."""
    facts: list[Any] = []
    for i in (region.position, *region.uses):
        given: Any = arguments[i] if i < len(arguments) else None
        if isinstance(given, array):
            facts.append(given.shape)
        elif isinstance(given, bytes):
            facts.append(int.from_bytes(given, "little", signed=True))
        elif hasattr(given, "__int__"):
            facts.append(int(given))
        else:
            return None
    return tuple(facts)


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
