"""How the host sees the elements of an array: as NumPy arrays over its memory, or a mirror of a device's.

The part of an array that knows where NumPy finds the elements.
"""

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from kernelab.lang.traced import traced
from kernelab.lang.types import Value, scalar_of, shape_of
from kernelab.runtime.interop import HostArray, itemsize
from kernelab.runtime.memory import Allocation, contiguous_strides
from kernelab.runtime.transfers import look_at

if TYPE_CHECKING:
    from kernelab.runtime.strided import array


class Hosting:
    """The part of an array that the host reads and writes."""

    __slots__ = ()

    if TYPE_CHECKING:
        allocation: Allocation
        shape: tuple[int, ...]
        strides: tuple[int, ...]
        dtype: Value
        _host: HostArray | None

        @property
        def offset(self) -> int: ...

        @property
        def size(self) -> int: ...

        @property
        def is_contiguous(self) -> bool: ...

    def host(self) -> HostArray:
        """The elements as a NumPy array for kernelab's own use, components in the last axes.

        Those of a device are brought here, and go back there with the next launch: they are not to be kept.
        """
        if self._host is not None:
            return self._host
        made = self._view(self.allocation.buffer())
        if not self.allocation.writable:
            made.flags.writeable = False
        if self.allocation.is_steady:
            cast("array", self)._host = made
        return made

    def seen(self) -> HostArray:
        """The same, only to be read, until the next launch."""
        return self.host() if self.allocation.space is None else self._view(self.allocation.seen())

    def outline(self) -> HostArray:
        """A NumPy array that stands in memory like the elements do, whatever it holds."""
        return self.host() if self.allocation.space is None else self._view(self.allocation.image())

    def blank(self) -> HostArray:
        """The same as `host`, where every element is about to be written."""
        memory = self.allocation
        whole = self.size * itemsize(self.dtype) == memory.nbytes and self.is_contiguous
        return self._view(memory.blank()) if whole and memory.space is not None else self.host()

    def numpy(self) -> HostArray:
        """The elements as a NumPy array over the same memory, components in the last axes.

        What is written through it changes the array; a tape that needs the old values notices.  What is on a
        CUDA device is copied, and the copy cannot be written: nothing would come of it.

        While a tape records, this is a subclass of NumPy's array for what gradients depend on.  It remembers
        where it comes from, and so does what NumPy makes of it: `backward` warns where that reached a launch.
        """
        found = look_at(cast("array", self))
        if self.allocation.space is not None:
            copied = self.seen().copy()
            copied.flags.writeable = False
            return traced(copied, found) if found else copied
        view = self._view(self.allocation.expose())
        if not self.allocation.writable:
            view.flags.writeable = False
        return traced(view, found) if found else view

    def _view(self, buffer: Any) -> HostArray:
        known = self._host
        if known is not None:
            return np.ndarray(known.shape, known.dtype, buffer, self.offset, known.strides)
        scalar, components = scalar_of(self.dtype).dtype, shape_of(self.dtype)
        if not components:
            return np.ndarray(self.shape, scalar, buffer, self.offset, self.strides)
        strides = self.strides + contiguous_strides(components, scalar.itemsize)
        return np.ndarray(self.shape + components, scalar, buffer, self.offset, strides)
