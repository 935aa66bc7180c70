"""Coverage of arrays by boxes of indices: what the records of a tape have read and written of them."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations, starmap
from typing import Literal

import numpy as np

from kernelab.autodiff.records.records import LaunchRecord, Record
from kernelab.autodiff.records.snapshots import mask
from kernelab.lang.types import int8
from kernelab.passes.access.access_regions import Axis, Box
from kernelab.passes.access.independence import disjoint
from kernelab.runtime.array.array import array
from kernelab.runtime.context.conversion import itemsize
from kernelab.runtime.launch.footprint import box_and_whole, boxes_of, part
from kernelab.runtime.memory.memory import Allocation

MOST = 64
"""How many boxes are kept at most: what does not fit is left out."""


class Coverage:
    """Boxes over one array; it may cover less than was added, never more."""

    __slots__ = ("_boxes",)

    def __init__(self) -> None:
        self._boxes: list[Box] = []

    def __iter__(self) -> Iterator[Box]:
        return iter(self._boxes)

    def covers(self, box: Box) -> bool:
        """Whether all elements of a box are in one of the boxes."""
        return any(all(map(_within, box, one)) for one in self._boxes)

    def add(self, box: Box) -> None:
        """Count the elements of a box too."""
        if self.covers(box):
            return
        for k, one in enumerate(self._boxes):
            joined = _joined(one, box)
            if joined is not None:
                del self._boxes[k]
                self.add(joined)
                return
        if not self.is_full:
            self._boxes.append(box)

    @property
    def is_full(self) -> bool:
        """Whether another box may be left out."""
        return len(self._boxes) == MOST


def _within(inner: Axis, outer: Axis) -> bool:
    """Whether the indices `inner` are all among `outer`."""
    (first, count, step), (start, total, stride) = inner, outer
    if first < start or first + (count - 1) * step > start + (total - 1) * stride:
        return False
    return (first - start) % stride == 0 and (count == 1 or step % stride == 0)


def _joined(a: Box, b: Box) -> Box | None:
    """The box that holds the elements of two and nothing else, where they differ along one axis only."""
    differing = [k for k, pair in enumerate(zip(a, b, strict=True)) if pair[0] != pair[1]]
    if len(differing) != 1:
        return None
    k = differing[0]
    axis = _continued(*sorted((a[k], b[k])))
    return None if axis is None else (*a[:k], axis, *a[k + 1 :])


def _continued(low: Axis, high: Axis) -> Axis | None:
    """The indices of two in one, where `high` goes on with `low` or they overlap in step."""
    (first, count, step), (start, total, stride) = low, high
    if count == 1:
        step = start - first if total == 1 else stride
    if total == 1:
        stride = step
    if step != stride or step <= 0 or (start - first) % step or start > first + count * step:
        return None
    last = max(first + (count - 1) * step, start + (total - 1) * step)
    return first, (last - first) // step + 1, step


def are_all(parts: Sequence[array], elements: array) -> bool:
    """Whether all elements of an array are in some parts of the same memory."""
    if sum(_nbytes(one) for one in parts) < _nbytes(elements):
        return False
    if elements.is_contiguous and all(one.is_contiguous for one in parts):
        end = elements.offset
        for begin, length in sorted((one.offset, _nbytes(one)) for one in parts):
            end = max(end, begin + length) if begin <= end else end
        return end >= elements.offset + _nbytes(elements)
    return bool(np.any([mask(one, elements) for one in parts], axis=0).all())


def rest_of(elements: array, parts: Sequence[array]) -> list[array] | None:
    """The elements of an array around a part that is a box of it, as boxes; None where it is not one box."""
    box = _box_of(parts[0], elements) if len(parts) == 1 else None
    if box is None:
        return None
    whole = [(0, extent, 1) for extent in elements.shape]
    rest = []
    for axis, (first, count, _) in enumerate(box):
        for begin, end in ((0, first), (first + count, elements.shape[axis])):
            if begin < end:
                rest.append(part(elements, (*box[:axis], (begin, end - begin, 1), *whole[axis + 1 :])))
    return rest


def _box_of(inner: array, elements: array) -> Box | None:
    """The box of contiguous elements that an array over the same memory has; None if it is no such box."""
    if inner.strides != elements.strides or not elements.is_contiguous:
        return None
    axes, left = [], inner.offset - elements.offset
    for extent, count, stride in zip(elements.shape, inner.shape, elements.strides, strict=True):
        first, left = divmod(left, stride)
        if first < 0 or first + count > extent:
            return None
        axes.append((first, count, 1))
    return tuple(axes) if left == 0 else None


def _nbytes(elements: array) -> int:
    return elements.size * itemsize(elements.dtype)


# ---------------------------------------------------------------------------------------------------- pieces


WHOLE: Box = ()
"""Stands for all elements of an array, where no box is known or it is all of them."""


def boxes_in(record: Record, how: Literal["read", "written"], k: int) -> Sequence[Box]:
    """The boxes of the k-th array that a record reads, which are disjoint, or that it has written."""
    if record.__class__ is not LaunchRecord:
        return (WHOLE,)
    if how == "read":
        i = record.outline.read[k]
        region = record.kernel.regions_read_in_text.get(i)
    else:
        i = record.outline.written[k]
        region = record.kernel.program.regions_changed.get(i)
    elements, extents = record.arguments[i], record.grid.extents
    if region is None or not isinstance(elements, array):
        return (WHOLE,)
    if len(region.places) > 1 and not elements.allocation.folded:
        several = _several(boxes_of(region, extents, record.arguments), how == "read")
        if several:
            return several
    hull, is_whole = box_and_whole(region, extents, record.arguments)
    return () if hull is None else (WHOLE,) if is_whole else (hull,)


def may_touch(record: Record, memory: Allocation, bytes: range) -> bool:
    """Whether a record may have read or written one of these bytes of a memory."""
    element = array.over(memory, bytes.start, (len(bytes),), (1,), int8)
    sides: tuple[tuple[Literal["read", "written"], Sequence[array]], ...]
    sides = ("read", record.read), ("written", record.written)
    for how, arrays in sides:
        for k, one in enumerate(arrays):
            for box in boxes_in(record, how, k) if one.allocation is memory else ():
                if box == WHOLE or part(one, box).overlaps(element):
                    return True
    return False


@lru_cache(1024)
def _several(boxes: Sequence[Box], apart: bool) -> Sequence[Box]:
    """Boxes joined where that is exact; none if they are one, too many, or are to be disjoint and are not."""
    joined = Coverage()
    for box in boxes:
        joined.add(box)
    several = tuple(joined)
    if not 1 < len(several) < MOST or (apart and not all(starmap(disjoint, combinations(several, 2)))):
        return ()
    return several


Writes = list[tuple[Record, int]]
"""Records, each with the number of one of the arrays that it has written."""


class Written:
    """The part of an array that has been written: the boxes of `writes`, which may still grow."""

    __slots__ = ("_boxes", "_whole", "_writes", "target")

    def __init__(self, target: array, writes: Writes) -> None:
        self.target = target
        self._writes = writes
        self._boxes = Coverage()
        self._whole = False

    def parts(self) -> list[array]:
        """The parts that have been written."""
        for record, k in self._writes:
            for box in boxes_in(record, "written", k):
                self._whole = self._whole or box is WHOLE or self._boxes.is_full
                if not self._whole:
                    self._boxes.add(box)
        self._writes.clear()
        return [self.target] if self._whole else [part(self.target, box) for box in self._boxes]

    def unread(self, read: Coverage) -> list[array]:
        """The written parts of which some element is not in what has been read."""
        parts = self.parts()
        if self._whole:
            return parts
        return [part(self.target, box) for box in self._boxes if not read.covers(box)]


class History:
    """What has been read and written so far of a memory, beginning with the `first` write.

    It `is_input` if there was none: it was read before.
    Arrays are known by their packed layout: those that were read as a `whole`, those of which boxes were
    read, and those that were written.
    """

    __slots__ = ("_boxes", "_writes", "_written", "is_input", "whole")

    def __init__(self, first: tuple[array, tuple[Record, int]] | None) -> None:
        self.is_input = first is None
        self.whole: set[bytes] = set()
        self._boxes: dict[bytes, Coverage] = {}
        self._writes: dict[bytes, tuple[array, Writes]] = {}
        self._written: dict[bytes, Written] = {}
        if first is not None:
            target, write = first
            self._writes[target.packed] = target, [write]

    def write(self, record: Record, k: int, target: array) -> None:
        """Count that a record has written `target`, its k-th array."""
        entry = self._writes.get(target.packed)
        if entry is None:
            self._writes[target.packed] = target, [(record, k)]
        else:
            entry[1].append((record, k))

    def written(self, source: array) -> list[array]:
        """The parts that have been written of which `source` has some elements."""
        if source.packed in self._writes:
            mine = self._parts_of(source.packed)
            if (parts := mine.parts()) and parts[0] is mine.target:
                return parts
        parts = [one for packed in self._writes for one in self._parts_of(packed).parts()]
        return [one for one in parts if one.overlaps(source)]

    def read_box(self, source: array, box: Box) -> array | None:
        """Count that a box is read; its elements, None if it was read before."""
        read = self._boxes.setdefault(source.packed, Coverage())
        if read.covers(box):
            return None
        read.add(box)
        return part(source, box)

    def unread(self) -> Iterator[array]:
        """The parts that were written and not read: their gradients are the cotangents."""
        for packed, (target, _) in self._writes.items():
            if packed in self.whole:
                continue
            read = self._boxes.get(packed)
            yield from [target] if read is None else self._parts_of(packed).unread(read)

    def _parts_of(self, packed: bytes) -> Written:
        parts = self._written.get(packed)
        if parts is None:
            parts = self._written[packed] = Written(*self._writes[packed])
        return parts
