"""Strided layout of elements in memory: offsets, contiguity, overlaps, NumPy views.

What an array is before anybody computes with it, copies it or differentiates it; those are other modules.
"""

import math
import struct
from collections.abc import Container, Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from kernelab.lang.types import Array, Value, scalar_of, shape_of
from kernelab.runtime.memory.interop import HostArray, array_type, itemsize
from kernelab.runtime.memory.memory import Allocation, bounds, contiguous_strides, folds

Extents = tuple[int, ...]


class Part(NamedTuple):
    """Elements somewhere in memory, of which `Strided.over` makes an array."""

    allocation: Allocation
    offset: int
    shape: Extents
    strides: Extents
    dtype: Value


class Strided:
    """Elements of `dtype` in memory from the address `ptr`, with steps of `strides` bytes along each axis.

    `packed` is what a launch passes to a kernel.  None of this changes once `place` has set it.
    """

    __slots__ = (
        "__weakref__",
        "_address",
        "_extent",
        "_grad",
        "_host",
        "allocation",
        "dtype",
        "ndim",
        "packed",
        "shape",
        "strides",
        "type",
    )

    allocation: Allocation
    _address: int
    shape: Extents
    strides: Extents
    dtype: Value
    ndim: int
    type: Array
    packed: bytes
    _host: HostArray | None
    _extent: tuple[int, int] | None
    _grad: Any

    @classmethod
    def class_of(cls, dtype: Any) -> Any:
        """The class of arrays of this type of elements."""
        return cls

    @classmethod
    def over(
        cls, allocation: Allocation, offset: int, shape: Extents, strides: Extents, dtype: Value
    ) -> Self:
        """An array over memory that exists, `offset` and `strides` in bytes."""
        made: Self = object.__new__(cls.class_of(dtype))
        made.place(allocation, offset, shape, strides, dtype)
        return made

    def place(
        self, allocation: Allocation, offset: int, shape: Extents, strides: Extents, dtype: Value
    ) -> None:
        """Set where the elements stand; `offset` and `strides` in bytes."""
        ndim = len(shape)
        _fill(self, allocation, allocation.address + offset, shape, strides, dtype, array_type(dtype, ndim))

    def twin(self, allocation: Allocation) -> Self:
        """The array that stands in `allocation` as this one stands in its own."""
        made: Self = object.__new__(self.class_of(self.dtype))
        address = allocation.address + self._address - self.allocation.address
        _fill(made, allocation, address, self.shape, self.strides, self.dtype, self.type)
        return made

    def packed_in(self, allocation: Allocation) -> bytes:
        """What a launch gets for the twin in `allocation`."""
        return _PACK_ADDRESS(allocation.address + self._address - self.allocation.address) + self.packed[8:]

    # -------------------------------------------------------------------------------------- layout

    @property
    def ptr(self) -> int:
        """The address of the first element; ``array(ptr=x.ptr, ...)`` is an array over the same memory."""
        self.allocation.tell_address()
        return self._address

    @property
    def size(self) -> int:
        """The number of elements."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def offset(self) -> int:
        """The offset of the first element in its memory, in bytes."""
        return self._address - self.allocation.address

    @property
    def extent(self) -> tuple[int, int]:
        """The lowest address of any element, and one past the highest."""
        if self._extent is None:
            found = bounds(self._address, self.shape, self.strides, itemsize(self.dtype))
            _set_extent(self, found)
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
    def is_whole(self) -> bool:
        """Whether the array is all of its memory, in order."""
        if len(self.shape) == 1 and self.strides[0] == itemsize(self.dtype):
            return self.shape[0] * self.strides[0] == self.allocation.nbytes
        return self.is_contiguous and self.size * itemsize(self.dtype) == self.allocation.nbytes

    @property
    def folds(self) -> bool:
        """Whether elements may have bytes in common with each other, as in a sliding window of NumPy's."""
        return folds(self.shape, self.strides, itemsize(self.dtype))

    # -------------------------------------------------------------------------------------- NumPy's views

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
            _set_host(self, made)
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

    def _view(self, buffer: Any) -> HostArray:
        known = self._host
        if known is not None:
            return np.ndarray(known.shape, known.dtype, buffer, self.offset, known.strides)
        scalar, components = scalar_of(self.dtype).dtype, shape_of(self.dtype)
        if not components:
            return np.ndarray(self.shape, scalar, buffer, self.offset, self.strides)
        strides = self.strides + contiguous_strides(components, scalar.itemsize)
        return np.ndarray(self.shape + components, scalar, buffer, self.offset, strides)


# Assignment to an array explains what cannot be assigned (`fixed`); slots set by these ask nobody.
_SLOTS = {name: vars(Strided)[name].__set__ for name in Strided.__slots__ if name != "__weakref__"}
_set_allocation, _set_address, _set_dtype = (_SLOTS[name] for name in ("allocation", "_address", "dtype"))
_set_shape, _set_strides, _set_ndim = (_SLOTS[name] for name in ("shape", "strides", "ndim"))
_set_type, _set_packed = (_SLOTS[name] for name in ("type", "packed"))
_set_host, _set_extent, _set_grad = (_SLOTS[name] for name in ("_host", "_extent", "_grad"))
_PACK_ADDRESS = struct.Struct("=q").pack
_PACK = {n: struct.Struct(f"={1 + 2 * n}q").pack for n in range(1, 17)}


def _fill(
    made: Strided,
    allocation: Allocation,
    address: int,
    shape: Extents,
    strides: Extents,
    dtype: Value,
    type: Array,
) -> None:
    ndim = len(shape)
    _set_allocation(made, allocation)
    _set_address(made, address)
    _set_shape(made, shape)
    _set_strides(made, strides)
    _set_dtype(made, dtype)
    _set_ndim(made, ndim)
    _set_type(made, type)
    _set_packed(made, _PACK[ndim](address, *shape, *strides))
    _set_host(made, None)
    _set_extent(made, None)
    _set_grad(made, None)


# --------------------------------------------------------------------------------------------------- overlap


_WORK = 10_000
"""How long to look for a common byte of two views, in NumPy's units, before assuming that there is one."""


def share_bytes(one: Strided, other: Strided) -> bool:
    """Whether two arrays have bytes in common."""
    (low, high), (other_low, other_high) = one.extent, other.extent
    if high <= other_low or other_high <= low or low == high or other_low == other_high:
        return False
    axes = [*zip(one.shape, one.strides, strict=True), *zip(other.shape, other.strides, strict=True)]
    period = math.gcd(*(stride for extent, stride in axes if extent > 1))
    distance = (other._address - one._address) % period if period else 0
    if distance >= itemsize(one.dtype) and distance + itemsize(other.dtype) <= period:
        return False  # they never meet in any period of their strides, as the fields of structs
    try:
        return np.shares_memory(one.outline(), other.outline(), max_work=_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def groups_sharing(arrays: Mapping[int, Strided], changed: Container[int]) -> tuple[tuple[int, ...], ...]:
    """The positions of arrays that have bytes in common of which one array is changed, in disjoint groups."""
    groups: list[set[int]] = []
    for i, one in arrays.items():
        partners = {
            j
            for j, other in arrays.items()
            if i != j
            and (i in changed or j in changed)
            and one.allocation is other.allocation
            and share_bytes(one, other)
        }
        if partners:
            touching = [group for group in groups if group & partners]
            groups = [group for group in groups if not group & partners]
            groups.append({i}.union(partners, *touching))
    return tuple(tuple(sorted(group)) for group in groups)
