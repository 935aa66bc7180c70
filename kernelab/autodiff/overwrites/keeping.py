"""Saved values: copies of exactly the elements that are overwritten, each made once.

    needed  traj[3:7]     a write to traj[5:]    keeps traj[5:7], and traj[3:5] stays where it is

An adjoint then reads an array that has the shape of the argument but holds the needed elements only: the kept
ones, and those that still stand in the argument.  Knows arrays; must not know policies.
"""

import numpy as np

from kernelab.passes.access.access_regions import Box
from kernelab.runtime.array.array import array
from kernelab.runtime.memory.interop import HostArray, checksum, itemsize
from kernelab.runtime.memory.memory import allocate, copy_bytes

Lost = slice | HostArray
"""Positions among the needed elements: a stretch of them in order, or a mask in their shape."""


class Kept:
    """The elements of `needed`, the part `box` of an argument, before and after some of them are lost."""

    __slots__ = ("_argument", "_box", "_gone", "_left", "_pieces", "_room", "needed")

    def __init__(self, argument: array, box: Box, needed: array) -> None:
        self.needed = needed
        self._argument = argument
        self._box = box
        self._left = needed.size
        self._pieces: list[tuple[Lost, HostArray]] = []
        self._gone: HostArray | None = None
        self._room: array | None = None

    @property
    def is_complete(self) -> bool:
        """Whether none of the elements stands in the argument any more."""
        return not self._left

    def keep(self, target: array) -> int:
        """Copy what a write to `target` is going to destroy; how many bytes that is."""
        before = self._left
        encloses_all = self._gone is None and encloses(target, self.needed)
        if encloses_all and (self._is_whole or not _on_device(self._argument)):
            self._room = self._all()
            self._left = 0
        elif encloses_all:
            self._keep_some(slice(0, self.needed.size))
        else:
            lost = _stretch(target, self.needed) or mask(target, self.needed)
            self._keep_some(lost)
        return (before - self._left) * itemsize(self.needed.dtype)

    @property
    def _is_whole(self) -> bool:
        return self.needed is self._argument and self.needed.is_contiguous

    def _all(self) -> array:
        if self._is_whole:
            low, high = self.needed.extent
            held, shape = self.needed.allocation, self.needed.shape
            memory = allocate(high - low, cleared=False, beside=held)
            copy_bytes(memory, 0, held, low - held.address, high - low)
            return array.over(memory, 0, shape, self.needed.strides, self.needed.dtype)
        made, elements = room(self._argument, self._box)
        elements.host()[...] = self.needed.seen()
        return made

    def _keep_some(self, lost: Lost) -> None:
        if self._gone is None:
            self._gone = np.zeros(self.needed.shape, np.bool_)
        if isinstance(lost, slice):
            in_order = self._gone.reshape(-1)
            stretch = lost
            if not in_order[stretch].any():
                in_order[stretch] = True
                self._add(stretch, self._in_order(self.needed.seen())[stretch].copy())
                return
            lost = np.zeros(self._gone.shape, np.bool_)
            lost.reshape(-1)[stretch] = True
        new = lost & ~self._gone
        self._gone |= new
        self._add(new, self.needed.seen()[new])

    def _add(self, lost: Lost, values: HostArray) -> None:
        if len(values):
            self._pieces.append((lost, values))
            self._left -= len(values)

    def _in_order(self, values: HostArray) -> HostArray:
        """Values in the shape of the needed elements, with one axis for all of theirs."""
        return values.reshape((-1, *values.shape[self.needed.ndim :]))

    def whole(self) -> array:
        """An array like the argument that holds the needed elements as they were."""
        if self._room is not None:
            return self._room
        values = self.needed.seen().copy()
        for lost, kept in self._pieces:
            (self._in_order(values) if isinstance(lost, slice) else values)[lost] = kept
        made, elements = room(self._argument, self._box)
        elements.host()[...] = values
        return made

    def checksum(self) -> int:
        """A checksum of the elements that still stand in the argument."""
        values = self.needed.seen()
        return checksum(values if self._gone is None else values[~self._gone])


def encloses(target: array, needed: array) -> bool:
    """Whether all bytes of `needed` are known to be among those of `target`."""
    if target is needed or (target.packed == needed.packed and target.dtype == needed.dtype):
        return True
    (low, high), (start, stop) = target.extent, needed.extent
    return target.is_contiguous and low <= start and stop <= high


def _stretch(target: array, needed: array) -> slice | None:
    """The needed elements that `target` overwrites, where both stand in memory without gaps."""
    if not (target.is_contiguous and needed.is_contiguous):
        return None
    (low, high), (start, stop) = target.extent, needed.extent
    size = itemsize(needed.dtype)
    return slice((max(low, start) - start) // size, -((start - min(high, stop)) // size))


def mask(target: array, needed: array) -> HostArray:
    """Mask of the needed elements that have bytes in common with `target`."""
    (low, high), (start, stop) = target.extent, needed.extent
    first = min(low, start)
    memory = np.zeros(max(high, stop) - first, np.bool_)
    _bytes(memory, target, first)[...] = True
    return np.asarray(_bytes(memory, needed, first).any(axis=-1))


def _bytes(memory: HostArray, elements: array, first: int) -> HostArray:
    """One truth value for each byte of each element, in a memory that begins at address `first`."""
    size = itemsize(elements.dtype)
    shape, strides = (*elements.shape, size), (*elements.strides, 1)
    return np.ndarray(shape, np.bool_, memory.data, elements.ptr - first, strides)


def _on_device(elements: array) -> bool:
    return elements.allocation.space is not None


def room(argument: array, box: Box) -> tuple[array, array]:
    """Memory for the elements of a box alone, as an array like the argument, and as one of the box.

    The array's indices are the argument's; outside of the box there is nothing.  On a device there is room
    from index 0 on, since a launch finds the memory of an array by the address of its first element.
    """
    size = itemsize(argument.dtype)
    strides: list[int] = []
    for (_, count, step), stride in zip(reversed(box), reversed(argument.strides), strict=True):
        if stride == 0:
            strides.insert(0, 0)
        elif count == 1 or size % step:
            strides.insert(0, size)
            size *= (count - 1) * step + 1
        else:
            strides.insert(0, size // step)
            size *= count
    begin = sum(first * stride for (first, _, _), stride in zip(box, strides, strict=True))
    before = begin if _on_device(argument) else 0
    memory = allocate(before + size, cleared=False, beside=argument.allocation)
    made = array.over(memory, before - begin, argument.shape, tuple(strides), argument.dtype)
    shape = tuple(count for _, count, _ in box)
    steps = tuple(step * stride for (_, _, step), stride in zip(box, strides, strict=True))
    return made, array.over(memory, before, shape, steps, argument.dtype)
