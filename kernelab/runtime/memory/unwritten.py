"""Tracks which bytes of an allocation have never been written: memory from `empty`, in checked mode.

Knows memory; must not know kernels.  As a witness of the memory it hears of whatever is written through
kernelab, and copies hand it on.  Where others may write, through a view of NumPy's or an address, all counts
as written (`Allocation.register_addresses`).
"""

import weakref
from typing import Any

import numpy as np

from kernelab.runtime.context.conversion import HostArray
from kernelab.runtime.memory.memory import Allocation, Change, Elements
from kernelab.settings import settings


def begin(memory: Allocation) -> None:
    """Note from now on what is written to new memory, or, outside of checked mode, whether anything is."""
    if settings().check is None:
        memory.unwritten = False
    else:
        Unwritten(memory)


def unwritten(memory: Allocation) -> "Unwritten | None":
    """What nobody has written of some memory; None where that is nothing, or not known."""
    if memory.unwritten is False:  # of `empty`, outside of checked mode: unwritten up to the first write
        memory.unwritten = None
        if memory.version == 0 and memory.nbytes:
            Unwritten(memory)
    mask: Unwritten | None = memory.unwritten
    return mask


class Unwritten:
    """The bytes of an allocation that hold whatever the memory held; forgotten when there are none."""

    __slots__ = ("__weakref__", "_bytes", "_memory")

    def __init__(self, memory: Allocation, all_of_it: bool = True) -> None:
        self._memory = weakref.ref(memory)
        self._bytes: HostArray = np.full(memory.nbytes, all_of_it)
        memory.unwritten = self
        memory.witness((weakref.ref(self),))

    def alert(self, memory: Allocation, change: Change | None) -> None:
        """Nothing has to be kept."""

    def computed(self, memory: Allocation) -> bool:
        return False

    def is_exposed(self, memory: Allocation) -> None:
        """The memory itself ends what is known."""

    def before_write(self, target: Elements) -> None:
        """Every element of `target` is about to be written."""
        self._bytes_of(target)[...] = False
        self._end_if_written()

    def has_written(self, target: Elements, scalars: HostArray) -> None:
        """Those scalars of an array over the memory are written, of the others nothing is known."""
        self._bytes_of(target)[scalars] = False
        self._end_if_written()

    def scalars(self, elements: Elements) -> HostArray:
        """Whether each scalar of an array over the memory has a byte that nobody has written."""
        return np.asarray(self._bytes_of(elements).any(axis=-1))

    def copied(self, dest: Elements, source: Elements) -> None:
        """`dest` is a copy of `source`, an array over the memory, or these numbers in another precision."""
        of_dest = unwritten(dest.allocation) or Unwritten(dest.allocation, all_of_it=False)
        of_dest._bytes_of(dest)[...] = self.scalars(source)[..., None]
        of_dest._end_if_written()

    def duplicated(self, copy: Allocation) -> None:
        """`copy` has the bytes of the memory: as many of them are unwritten."""
        Unwritten(copy, all_of_it=False)._bytes[...] = self._bytes

    def clear_in(self, copy: Allocation) -> None:
        """Set to zero in a copy of the memory what nobody has written."""
        np.frombuffer(copy.buffer(), np.uint8)[self._bytes] = 0
        copy.publish()

    def state(self) -> HostArray:
        """What is known now."""
        return self._bytes.copy()

    def restore(self, state: HostArray) -> None:
        """Know what was known, and no more."""
        self._bytes[...] = state
        memory = self._memory()
        if memory is not None:
            memory.unwritten = self

    def _end_if_written(self) -> None:
        memory = self._memory()
        if memory is not None and not self._bytes.any():
            memory.unwritten = None

    def _bytes_of(self, elements: Any) -> HostArray:
        """The bytes of an array, along a last axis for each of its scalars."""
        outline = elements.outline()
        size = outline.dtype.itemsize
        view: HostArray = np.ndarray(
            (*outline.shape, size), bool, self._bytes, elements.offset, (*outline.strides, 1)
        )
        return view
