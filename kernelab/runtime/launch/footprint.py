"""The footprint of a launch: its threads, the elements that it touches, and the values that it keeps.

Knows the regions of kernels and arrays; must not know launches or tapes.  Most launches are never asked for
the elements that they touch, so nothing is computed ahead; what was found is remembered for launches that
agree in their grid and in the arguments that matter.
"""

import ctypes
import functools
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np

from kernelab.backend.common.backends import free
from kernelab.data_classes import dataclass
from kernelab.errors import LaunchError
from kernelab.lang.types import bytes_of, int64
from kernelab.passes.access.access_regions import Box, Region, Situation, covers
from kernelab.passes.access.independence import Contest
from kernelab.runtime.array.array import array
from kernelab.runtime.array.layout import is_integer
from kernelab.runtime.kernel.facts import Groups, Positions
from kernelab.runtime.kernel.program import Program
from kernelab.runtime.memory.memory import Allocation, allocate
from kernelab.runtime.memory.spaces import DeviceAllocation, Space

# ---------------------------------------------------------------------------------------------------- threads


MAX_THREADS = 2**31 - 1
"""Thread indices are int32."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The number of threads of a launch along each dimension, with the packed slots."""

    extents: tuple[int, ...]
    threads: int
    packed: bytes

    def position(self, thread: int) -> tuple[int, ...]:
        """The position of a thread, given its number."""
        return tuple(map(int, np.unravel_index(thread, self.extents)))


def grid_of(dim: int | Sequence[int]) -> Grid:
    """The grid that `dim` stands for; raises LaunchError where it is none."""
    if dim.__class__ is int:
        return _grid(dim)
    if isinstance(dim, array):
        message = f"a grid cannot have an array of shape {dim.shape} for its dimensions"
        raise LaunchError.of(message, "dim", "pass len(x), x.size or x.shape")
    sizes: Any = dim
    try:
        extents = (
            sizes
            if isinstance(sizes, str | range | Set | Mapping) or not isinstance(sizes, Iterable)
            else tuple(sizes)
        )
        hash(extents)
    except (TypeError, ValueError):  # an array without axes, a tuple with a list in it
        raise _no_grid(dim) from None
    return _grid(extents)


@functools.lru_cache(maxsize=4096, typed=True)
def _grid(dim: Any) -> Grid:
    extents = dim if isinstance(dim, tuple) else (dim,)
    if not all(map(is_integer, extents)) or not 1 <= len(extents) <= 4:
        raise _no_grid(dim)
    extents = tuple(int(n) for n in extents)
    threads = math.prod(extents)
    if min(extents) < 0 or threads > MAX_THREADS:
        hint = f"every dimension is 0 or more, and there are at most {MAX_THREADS:,} threads"
        raise _no_grid(extents, hint)
    return Grid(extents, threads, struct.pack("=4q", *extents, *(1,) * (4 - len(extents))))


def _no_grid(dim: Any, hint: str = "pass an int, or a tuple of 1 to 4 ints") -> LaunchError:
    if isinstance(dim, tuple | list) and any(isinstance(extent, array) for extent in dim):
        hint = "the number of threads comes before the arguments: write launch(kernel, dim=n, inputs=[...])"
        return LaunchError.of("a grid cannot have arrays for its dimensions", "dim", hint)
    try:
        text = repr(dim)
    except ValueError:  # Python writes no int of thousands of digits
        text = "of an int of so many digits"
    return LaunchError.of(f"a grid cannot have the dimensions {text}", "dim", hint)


# ------------------------------------------------------------------------------------------- elements touched


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


def lane_of(elements: array, lane: int, axis: int = 0) -> array:
    """One lane of an array that has an axis for them, the first unless another is named."""
    offset = elements.offset + lane * elements.strides[axis]
    shape, strides = [*elements.shape], [*elements.strides]
    del shape[axis], strides[axis]
    return array.over(elements.allocation, offset, tuple(shape), tuple(strides), elements.dtype)


def box_and_whole(
    region: Region, extents: tuple[int, ...], arguments: Sequence[Any]
) -> tuple[Box | None, bool]:
    """The box of a region in a launch of a grid, and whether it is the whole array.

    It is None if the region touches nothing, everything if it is unknown.
    """
    shape = arguments[region.position].shape
    if not region.uses:
        return _box(region, extents, shape)
    facts = _facts(region, arguments)
    if facts is None:
        return tuple([(0, extent, 1) for extent in shape]), True
    return _box(region, extents, *facts)


def overwrites(
    target: array, elements: array, region: Region, extents: tuple[int, ...], arguments: Sequence[Any]
) -> bool:
    """Whether a write to `target`, which overlaps the box of a region, changes an element of the region."""
    boxes = boxes_of(region, extents, arguments)
    return len(boxes) < 2 or any(target.overlaps(part(elements, box)) for box in boxes)


def boxes_of(region: Region, extents: tuple[int, ...], arguments: Sequence[Any]) -> tuple[Box, ...]:
    """The boxes of the single accesses of a region in a launch of a grid; none where these are not known."""
    facts = _facts(region, arguments)
    return () if facts is None else _boxes(region, extents, *facts)


def changed_part(
    program: Program, extents: tuple[int, ...], arguments: Sequence[Any], position: int
) -> array:
    """The part of one of its arguments that a program changes."""
    argument: array = arguments[position]
    box, is_whole = box_and_whole(program.regions_changed[position], extents, arguments)
    if is_whole:
        return argument
    return argument[:0] if box is None else part(argument, box)


def settled(
    program: Program, extents: tuple[int, ...], arguments: Sequence[Any], groups: Groups
) -> Positions:
    """The arrays that a launch of a program changes, but nothing of what it reads of them."""
    positions = []
    for i, contests in sorted(program.contests.items()):
        facts = [_facts(region, arguments) for one in contests for region in (one.read, one.change)]
        is_known = None not in facts and not any(i in group for group in groups)
        if is_known and _settled(contests, extents, *facts):
            positions.append(i)
    return tuple(positions)


def _facts(region: Region, arguments: Sequence[Any]) -> Facts | None:
    """What a region asks of its arguments; None where one of them is neither an array nor a number."""
    facts: list[Any] = []
    for i in (region.position, *region.uses):
        argument: Any = arguments[i] if i < len(arguments) else None
        if isinstance(argument, array):
            facts.append(argument.shape)
        elif isinstance(argument, bytes):
            facts.append(int.from_bytes(argument, "little", signed=True))
        elif hasattr(argument, "__int__"):
            facts.append(int(argument))
        else:
            return None
    return tuple(facts)


class _Shape(tuple[int, ...]):
    """A shape in place of an array."""

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, ...]:
        return self


def _situation(region: Region, extents: tuple[int, ...], facts: Facts) -> Situation:
    values = [_Shape(fact) if isinstance(fact, tuple) else fact for fact in facts]
    arguments = dict(zip((region.position, *region.uses), values, strict=True))
    return Situation((*extents, *(1,) * (4 - len(extents))), arguments)


@functools.lru_cache(_REMEMBERED)
def _box(region: Region, extents: tuple[int, ...], *facts: Any) -> tuple[Box | None, bool]:
    box = region.box(_situation(region, extents, facts))
    return box, box is not None and covers(box, facts[0])


@functools.lru_cache(_REMEMBERED)
def _boxes(region: Region, extents: tuple[int, ...], *facts: Any) -> tuple[Box, ...]:
    """The boxes of the single accesses of a region, where they are known."""
    return tuple(region.boxes(_situation(region, extents, facts)))


@functools.lru_cache(_REMEMBERED)
def _settled(contests: tuple[Contest, ...], extents: tuple[int, ...], *facts: Facts) -> bool:
    situations = [
        _situation(region, extents, fact)
        for region, fact in zip((r for one in contests for r in (one.read, one.change)), facts, strict=True)
    ]
    pairs = zip(situations[::2], situations[1::2], strict=True)
    return all(one.settled(read, change) for one, (read, change) in zip(contests, pairs, strict=True))


# ------------------------------------------------------------------------------------------------ values kept


_WORTH_SHARING = 256
"""How many threads a launch has before it looks for a table of starts that others have made."""


class Residual:
    """Room for the values that a launch appends, which its entry allocates and this object frees.

    `space` is the memory of the device where the launch runs; None for the host's.
    """

    __slots__ = ("_space", "_starts", "_table", "_values", "elem")

    def __init__(self, elem: Any, threads: int, space: Space | None = None) -> None:
        self.elem = elem
        self._space = space
        self._table = (ctypes.c_longlong * 3)()
        self._values: DeviceAllocation | None = None
        self._starts = (allocate if space is None else space.allocate)(8 * threads, cleared=True)

    def __del__(self, free: Callable[[int], None] = free) -> None:
        if self._space is None:
            free(self._table[0])
        elif self._table[0] and self._values is None and self._space.takes_back:
            self._space.driver.free(self._table[0])

    @property
    def packed(self) -> bytes:
        return struct.pack("=3q", ctypes.addressof(self._table), self._starts.address, 0)

    def arrays(self) -> tuple[array, array]:
        """The values, and the position of each thread's first one."""
        address, length, _ = self._table
        itemsize = bytes_of(self.elem)
        if self._space is None:
            values = Allocation(address, length * itemsize, self)
            self._starts = _shared_if_even(self._starts, length)
        else:
            self._values = values = self._values or self._space.adopt(address, length * itemsize)
            if self._space.capture is not None:
                self._space.capture.touched[values] = None
        return (
            array.over(values, 0, (length,), (itemsize,), self.elem),
            array.over(self._starts, 0, (self._starts.nbytes // 8,), (8,), int64),
        )


def _shared_if_even(starts: Allocation, length: int) -> Allocation:
    """Offsets of the threads in a residual, shared by all launches if each thread appends as many values."""
    threads = starts.nbytes // 8
    if threads < _WORTH_SHARING or length % threads:
        return starts
    even = _even_starts(threads, length // threads)
    own, expected = (np.frombuffer(memory.buffer(), np.int64) for memory in (starts, even))
    return even if np.array_equal(own, expected) else starts


@functools.lru_cache(maxsize=16)
def _even_starts(threads: int, step: int) -> Allocation:
    starts = allocate(8 * threads, cleared=False)
    np.frombuffer(starts.buffer(), np.int64)[:] = np.arange(0, threads * step, step) if step else 0
    return starts
