"""Where the elements of an array stand: how many, from where to where, in order or not, over whose bytes.

Knows addresses, shapes and strides; must not know what the elements hold.
"""

from typing import TYPE_CHECKING, cast

from kernelab.lang.types import Value
from kernelab.runtime.interop import itemsize
from kernelab.runtime.memory import Allocation, bounds, contiguous_strides, folds
from kernelab.runtime.overlap import share_bytes

if TYPE_CHECKING:
    from kernelab.runtime.strided import array


class Layout:
    """The part of an array that is about the places of its elements."""

    __slots__ = ()

    if TYPE_CHECKING:
        allocation: Allocation
        ptr: int
        shape: tuple[int, ...]
        strides: tuple[int, ...]
        dtype: Value
        ndim: int
        _extent: tuple[int, int] | None

    @property
    def size(self) -> int:
        """The number of elements."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def offset(self) -> int:
        """Where in its memory the first element stands, in bytes."""
        return self.ptr - self.allocation.address

    @property
    def extent(self) -> tuple[int, int]:
        """The lowest address of any element, and one past the highest."""
        if self._extent is None:
            found = bounds(self.ptr, self.shape, self.strides, itemsize(self.dtype))
            cast("array", self)._extent = found
            return found
        return self._extent

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements stand in memory in order and without gaps."""
        if self.ndim == 1:
            return self.shape[0] < 2 or self.strides[0] == itemsize(self.dtype)
        return self.size == 0 or all(
            stride == dense
            for extent, stride, dense in zip(
                self.shape, self.strides, contiguous_strides(self.shape, itemsize(self.dtype)), strict=True
            )
            if extent > 1
        )

    @property
    def folds(self) -> bool:
        """Whether elements may have bytes in common with each other, as in a sliding window of NumPy's."""
        return folds(self.shape, self.strides, itemsize(self.dtype))

    def overlaps(self, other: "array") -> bool:
        """Whether the two have bytes in common."""
        return share_bytes(cast("array", self), other)
