"""Snapshots: copies of exactly the elements that are overwritten, each made once, just before.

    needed  traj[3:7]     a write to traj[5:]    keeps traj[5:7], and traj[3:5] stays where it is

An adjoint then reads an array that has the shape of the argument but holds the needed elements only: the kept
ones, and those that still stand in the argument.  Knows arrays and their memory; subclasses of `Snapshot`
decide what happens in place of a copy.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np

from kernelab.data_classes import dataclass
from kernelab.passes.access.access_regions import Box
from kernelab.runtime.array.array import array
from kernelab.runtime.array.layout import pack_address
from kernelab.runtime.context.conversion import HostArray, checksum, itemsize
from kernelab.runtime.launch.footprint import part
from kernelab.runtime.memory.memory import address_in, allocate, copy_bytes, set_aside

SMALL = 1 << 20
"""Up to how many bytes a copy is a `bytes`; more take memory from where arrays have theirs."""

Lost = slice | HostArray
"""Positions among the needed elements: a stretch of them in order, or a mask in their shape."""


@dataclass(slots=True, eq=False)
class Copied:
    """A copy of all elements of an array without gaps; the array of it takes longer to make than the copy."""

    elements: array
    memory: bytearray

    @property
    def packed(self) -> bytes:
        """What a launch gets that reads the copy."""
        return pack_address(address_in(self.memory)) + self.elements.packed[8:]

    @property
    def source(self) -> "Copied":
        """What a launch reads in place of the elements."""
        return self

    @property
    def saved(self) -> array:
        """A new array with the elements."""
        like, memory = self.elements, allocate(len(self.memory), cleared=False)
        np.frombuffer(memory.blank(), np.uint8)[:] = self.memory
        return array.over(memory, 0, like.shape, like.strides, like.dtype)

    def check(self) -> None:
        """Nothing changes the copy."""


class Snapshot:
    """The elements of an array as they are now; what a write is about to destroy of them is copied first.

    It watches the whole array until something there changes; only then `box` says which elements matter.  A
    change through a NumPy view goes unseen, so while there is such a view a checksum is kept and compared.
    `spent` says that some elements are overwritten.  One that does not watch at once waits for `begin`.
    """

    __slots__ = (
        "__weakref__",
        "_box",
        "_changed",
        "_checksum",
        "_copied",
        "_extent",
        "_gone",
        "_left",
        "_needed",
        "_pieces",
        "_room",
        "_watches",
        "elements",
        "spent",
    )  # fmt: skip

    def __init__(self, elements: array, begin: bool = True) -> None:
        self.elements = elements
        self.spent = False
        self._watches = False
        self._box: Box = ()
        self._needed: array | None = None
        self._left = 0
        self._pieces: list[tuple[Lost, HostArray]] = []
        self._gone: HostArray | None = None
        self._copied: Copied | None = None
        self._room: array | None = None
        self._changed = False
        self._checksum: int | None = None
        self._extent: tuple[int, int] | None = elements.extent
        if begin:
            self.begin(None)

    def begin(self, target: array | None) -> None:
        """Watch the elements, or what is left of them when `target`, if any, has been overwritten."""
        if target is not None:
            self.before_write(target)
        if self._extent is not None:
            memory, self._watches = self.elements.allocation, True
            memory.watch(self, self._extent)
            if memory.is_exposed:
                self.exposed()

    def box(self) -> tuple[Box | None, bool]:
        """The elements that matter, None if there are none, and whether they are all of the array's.

        Computed when something changes.
        """
        return tuple([(0, extent, 1) for extent in self.elements.shape]), True

    @property
    def source(self) -> "Copied | array | None":
        """What a launch reads in place of the elements, if any of them are copied."""
        return self._copied or self.saved

    @property
    def saved(self) -> array | None:
        """An array to read in place of the elements, if any of them are copied."""
        if self._copied is not None:
            return self._copied.saved
        if self._room is not None or not self._pieces:
            return self._room
        assert self._needed is not None
        values = self._needed.seen().copy()
        for lost, kept in self._pieces:
            (self._in_order(values) if isinstance(lost, slice) else values)[lost] = kept
        view, elements = room(self.elements, self._box)
        elements.host()[...] = values
        return view

    def check(self) -> None:
        """Raise TapeError where the old elements are lost."""

    def restore(self) -> bool:
        """Put the elements back as they were; false if they have changed unseen."""
        is_known, saved = not self.has_changed_unseen(), self.saved
        if saved is not None:
            self.elements.host()[...] = saved.seen()
        return is_known

    def has_changed_unseen(self) -> bool:
        """Whether some of the elements changed without being saved."""
        self.look_for_change()
        return self._changed

    # -------------------------------------------------------------------------------------- as a watcher

    def exposed(self) -> None:
        """From here on the elements may change unseen."""
        if self.needed() is not None and self._checksum is None:
            self._checksum = self._sum()

    def before_write(self, target: array) -> None:
        """Save the elements if `target` overwrites any of them."""
        needed = self.needed()
        if needed is not None and (target is needed or target.overlaps(needed)):
            self.overwritten(target, needed)

    def overwritten(self, target: array, needed: array) -> None:
        """A write to `target` is about to destroy some of the `needed` elements."""
        self.look_for_change()
        self.spent = True
        self.keep(target, needed)

    def look_for_change(self) -> None:
        """Note it if the elements have changed unseen."""
        if self._checksum is not None and self._checksum != self._sum():
            self._changed = True

    def needed(self) -> array | None:
        """The elements that matter; None if none does, or all are taken care of."""
        if self._extent is None:
            return None
        if self._needed is None:
            box, is_whole = self.box()
            if box is None:
                self.release()
                return None
            self._box, self._needed = box, self.elements
            if not is_whole:
                self._needed = part(self.elements, box)
                self._watch(self._needed.extent)
            self._left = self._needed.size
        return self._needed

    def release(self) -> None:
        """Watch the elements no longer."""
        self._checksum = None
        self._watch(None)

    def _watch(self, extent: tuple[int, int] | None) -> None:
        """Watch other bytes from now on, or none."""
        memory, before = self.elements.allocation, self._extent
        self._extent = extent
        if self._watches and before is not None:  # None where another thread has released it by now
            memory.unwatch(self, before)
            if extent is not None:
                memory.watch(self, extent)

    def _sum(self) -> int:
        """A checksum of the elements that still stand in the array."""
        assert self._needed is not None
        return checksum(self._needed.host() if self._gone is None else self._needed.seen()[~self._gone])

    # -------------------------------------------------------------------------------------- what it copies

    def keep(self, target: array, needed: array) -> int:
        """Copy what a write to `target` is going to destroy; how many bytes that is."""
        before = self._left
        encloses_all = self._gone is None and encloses(target, needed)
        on_device = needed.allocation.space is not None
        is_whole = needed is self.elements and needed.is_contiguous
        low, high = needed.extent
        if encloses_all and is_whole and 0 < before * itemsize(needed.dtype) <= SMALL and not on_device:
            self._copied = Copied(needed, needed.allocation.copied(low, high))
            self._left = 0
        elif encloses_all and (is_whole or not on_device):
            self._room = self._all(needed, is_whole)
            self._left = 0
        elif encloses_all:
            self._keep_some(slice(0, needed.size), needed)
        else:
            self._keep_some(_stretch(target, needed) or mask(target, needed), needed)
        if not self._left:
            self.release()
        elif self._checksum is not None:
            self._checksum = self._sum()
        return (before - self._left) * itemsize(needed.dtype)

    def _all(self, needed: array, is_whole: bool) -> array:
        if is_whole:
            low, high = needed.extent
            source = needed.allocation
            memory = allocate(high - low, cleared=False, beside=source)
            copy_bytes(memory, 0, source, low - source.address, high - low)
            return array.over(memory, 0, needed.shape, needed.strides, needed.dtype)
        view, elements = room(self.elements, self._box)
        elements.host()[...] = needed.seen()
        return view

    def _keep_some(self, lost: Lost, needed: array) -> None:
        if self._gone is None:
            self._gone = np.zeros(needed.shape, np.bool_)
        if isinstance(lost, slice):
            in_order = self._gone.reshape(-1)
            stretch = lost
            if not in_order[stretch].any():
                in_order[stretch] = True
                self._add(stretch, self._in_order(needed.seen())[stretch].copy())
                return
            lost = np.zeros(self._gone.shape, np.bool_)
            lost.reshape(-1)[stretch] = True
        new = lost & ~self._gone
        self._gone |= new
        self._add(new, needed.seen()[new])

    def _add(self, lost: Lost, values: HostArray) -> None:
        if len(values):
            self._pieces.append((lost, values))
            self._left -= len(values)

    def _in_order(self, values: HostArray) -> HostArray:
        """Values in the shape of the needed elements, with one axis for all of theirs."""
        return values.reshape((-1, *values.shape[self.elements.ndim :]))


@contextmanager
def as_they_were(keeps: Sequence[Snapshot], others: Iterable[array] = ()) -> Iterator[bool]:
    """Within it arrays hold what they held when snapshots of them were made; false if that is lost for some.

    What happens within it to these, and to the memory of others, is undone.
    """
    changing = [*(keep.elements for keep in keeps if keep.spent), *others]
    with ExitStack() as aside:
        for memory in {elements.allocation for elements in changing}:
            aside.enter_context(set_aside(memory))
        # What was read first was kept first, and wins where two overlap.
        yield all(keep.restore() for keep in reversed(keeps))


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
    shape, strides = (*elements.shape, itemsize(elements.dtype)), (*elements.strides, 1)
    return np.ndarray(shape, np.bool_, memory.data, elements.ptr - first, strides)


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
    before = begin if argument.allocation.space is not None else 0
    memory = allocate(before + size, cleared=False, beside=argument.allocation)
    view = array.over(memory, before - begin, argument.shape, tuple(strides), argument.dtype)
    shape = tuple(count for _, count, _ in box)
    steps = tuple(step * stride for (_, _, step), stride in zip(box, strides, strict=True))
    return view, array.over(memory, before, shape, steps, argument.dtype)
