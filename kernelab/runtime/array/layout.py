"""Strided layout of elements in memory: offsets, contiguity, overlaps, and views of the same memory.

What an array is before anybody computes with it, copies it or differentiates it; those are other modules.
"""

import functools
import math
import struct
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from kernelab.backend.common.reach import bounds, folds
from kernelab.errors import Diagnostic, KernelTypeError, KernelValueError
from kernelab.host.traced import traced
from kernelab.host.values import frozen
from kernelab.lang.types import Array, Value, scalar_of, shape_of
from kernelab.runtime.context.conversion import (
    HostArray,
    array_type,
    described,
    extents_of,
    itemsize,
    shape_tuple,
)
from kernelab.runtime.context.recorder import ENTERED, RECORDER, notify_outside_use
from kernelab.runtime.memory.memory import Allocation, address_of

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
        view: Self = object.__new__(cls.class_of(dtype))
        view.place(allocation, offset, shape, strides, dtype)
        return view

    @classmethod
    def whole(
        cls, allocation: Allocation, shape: Extents, strides: Extents, dtype: Value, type: Array
    ) -> Self:
        """An array of this very class, and of a known type, that begins where its memory does."""
        view: Self = object.__new__(cls)
        _fill(view, allocation, allocation.address, shape, strides, dtype, type)
        return view

    def place(
        self, allocation: Allocation, offset: int, shape: Extents, strides: Extents, dtype: Value
    ) -> None:
        """Set where the elements stand; `offset` and `strides` in bytes."""
        ndim = len(shape)
        _fill(self, allocation, allocation.address + offset, shape, strides, dtype, array_type(dtype, ndim))

    def twin(self, allocation: Allocation) -> Self:
        """The array that stands in `allocation` as this one stands in its own."""
        view: Self = object.__new__(self.class_of(self.dtype))
        address = allocation.address + self._address - self.allocation.address
        _fill(view, allocation, address, self.shape, self.strides, self.dtype, self.type)
        return view

    # -------------------------------------------------------------------------------------- layout

    @property
    def ptr(self) -> int:
        """The address of the first element; ``array(ptr=x.ptr, ...)`` is an array over the same memory."""
        self.allocation.register_addresses()
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
            extent = bounds(self._address, self.shape, self.strides, itemsize(self.dtype))
            _set_extent(self, extent)
            return extent
        return self._extent

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements stand in memory in order and without gaps."""
        shape = self.shape
        if len(shape) == 1:
            return shape[0] < 2 or self.strides[0] == itemsize(self.dtype)
        return _dense_bytes(shape, self.strides, itemsize(self.dtype)) is not None

    @property
    def is_whole(self) -> bool:
        """Whether the array is all of its memory, in order."""
        return _dense_bytes(self.shape, self.strides, itemsize(self.dtype)) == self.allocation.nbytes

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
        view = self._view(self.allocation.buffer())
        if not self.allocation.writable:
            view.flags.writeable = False
        if self.allocation.space is None:
            _set_host(self, view)
        return view

    def seen(self) -> HostArray:
        """The same, only to be read, until the next launch."""
        return self.host() if self.allocation.space is None else self._view(self.allocation.seen())

    def outline(self) -> HostArray:
        """A NumPy array that stands in memory like the elements do, whatever it holds."""
        return self.host() if self.allocation.space is None else self._view(self.allocation.image())

    def blank(self) -> HostArray:
        """The same as `host`, where every element is about to be written."""
        memory = self.allocation
        return self._view(memory.blank()) if memory.space is not None and self.is_whole else self.host()

    def _view(self, buffer: Any) -> HostArray:
        host = self._host
        if host is not None:
            return np.ndarray(host.shape, host.dtype, buffer, self.offset, host.strides)
        scalar, components = scalar_of(self.dtype).dtype, shape_of(self.dtype)
        if not components:
            return np.ndarray(self.shape, scalar, buffer, self.offset, self.strides)
        strides = self.strides + contiguous_strides(components, scalar.itemsize)
        return np.ndarray(self.shape + components, scalar, buffer, self.offset, strides)


# Assignment to an array explains what cannot be assigned (`fixed`); these set slots directly.
_SLOTS = {name: vars(Strided)[name].__set__ for name in Strided.__slots__ if name != "__weakref__"}
_set_allocation, _set_address, _set_dtype = (_SLOTS[name] for name in ("allocation", "_address", "dtype"))
_set_shape, _set_strides, _set_ndim = (_SLOTS[name] for name in ("shape", "strides", "ndim"))
_set_type, _set_packed = (_SLOTS[name] for name in ("type", "packed"))
_set_host, _set_extent, _set_grad = (_SLOTS[name] for name in ("_host", "_extent", "_grad"))
pack_address = struct.Struct("=q").pack
_PACK = {n: struct.Struct(f"={1 + 2 * n}q").pack for n in range(1, 17)}


def packed_in(buffers: Mapping[Allocation, Allocation], several: Iterable[Strided]) -> list[bytes]:
    """What launches get for the twins of some arrays, each in the buffer of its memory."""
    return [
        pack_address(buffers[memory := one.allocation].address + one._address - memory.address)
        + one.packed[8:]
        for one in several
    ]


def _fill(
    view: Strided,
    allocation: Allocation,
    address: int,
    shape: Extents,
    strides: Extents,
    dtype: Value,
    type: Array,
) -> None:
    ndim = len(shape)
    _set_allocation(view, allocation)
    _set_address(view, address)
    _set_shape(view, shape)
    _set_strides(view, strides)
    _set_dtype(view, dtype)
    _set_ndim(view, ndim)
    _set_type(view, type)
    _set_packed(view, _PACK[ndim](address, *shape, *strides))
    _set_host(view, None)
    _set_extent(view, None)
    _set_grad(view, None)


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


# ------------------------------------------------------------------------------------------------------ views


class Views(Strided):
    """The part of an array that looks at its memory in other ways."""

    __slots__ = ()

    def _along_first(self, key: Any) -> Any:
        """The view that an int or a slice selects along the first axis; None for the general path."""
        shape, strides, extent = self.shape, self.strides, self.shape[0]
        if key.__class__ is int:
            if not -extent <= key < extent:
                return None
            if self.ndim == 1:
                recorder = RECORDER.get()
                origins = notify_outside_use([self], by_host=True) if ENTERED else ()
                origins = origins if recorder is None else origins + recorder.looked_at(self)
                values = self._host
                value = (self.seen() if values is None else values)[key]
                value = frozen(self.dtype, value.copy()) if value.ndim else value
                return traced(value, origins) if origins or recorder is not None else value
            offset = self.offset + (key if key >= 0 else key + extent) * strides[0]
            return self.over(self.allocation, offset, shape[1:], strides[1:], self.dtype)
        try:
            start, stop, step = key.indices(extent)
        except (TypeError, ValueError):  # no whole numbers, or a step of 0: the general path says so
            return None
        count = len(range(start, stop, step))
        if not count:
            return None
        offset = self.offset + start * strides[0]
        if count > 1:  # else the step may be of any size
            strides = (step * strides[0], *strides[1:])
        shape = (count, *shape[1:])
        return self.over(self.allocation, offset, shape, strides, self.dtype)

    def _seen(self, values: HostArray, axes: int) -> Self:
        offset = address_of(values) - self.allocation.host_address
        return self.over(self.allocation, offset, values.shape[:axes], values.strides[:axes], self.dtype)

    def reshape(self, *shape: Any) -> Self:
        """A view of another shape; one extent may be -1.  Raises KernelValueError if it does not fit."""
        several = len(shape) == 1 and isinstance(shape[0], Sequence) and not isinstance(shape[0], str)
        wanted = extents_of(tuple(shape[0]) if several else shape)
        if not self.is_contiguous:
            message = "only a contiguous array can be reshaped without a copy"
            raise KernelValueError.of(message, "shape", "write x.contiguous().reshape(...)")
        try:
            extents = np.empty(self.shape, np.bool_).reshape(wanted).shape
        except ValueError:
            message = f"an array of shape {self.shape} cannot be reshaped to {wanted}"
            hint = f"it has {math.prod(self.shape)} elements, and keeps them all; one extent may be -1"
            raise KernelValueError.of(message, "shape", hint) from None
        extents = shape_tuple(extents)
        strides = contiguous_strides(extents, itemsize(self.dtype))
        return self.over(self.allocation, self.offset, extents, strides, self.dtype)

    @property
    def T(self) -> Self:  # noqa: N802 (NumPy's name)
        """A view with the axes reversed."""
        return self.transpose()

    def flatten(self) -> Self:
        """A one-dimensional view."""
        return self.reshape(-1)

    def transpose(self, axes: Any = None, *others: Any) -> Self:
        """A view with the axes in another order, by default reversed."""
        axes = (axes, *others) if others else axes
        if others:
            # NumPy takes them for the order, PyTorch for two axes that change places.
            message = f"transpose takes the axes in their new order as one tuple, not {axes}"
            raise KernelTypeError.of(message, "shape", "write x.transpose((1, 0))")
        if axes is not None and not isinstance(axes, Sequence):
            message = f"transpose takes the axes in their new order, not {described(axes)}"
            raise KernelTypeError.of(message, "shape", "write x.transpose((1, 0))")
        order = tuple(reversed(range(self.ndim))) if axes is None else tuple(axes)
        if sorted(order) != list(range(self.ndim)):
            hint = f"write x.transpose({tuple(reversed(range(self.ndim)))}), or another order of these"
            raise KernelValueError.of(f"{order} is not an order of the {self.ndim} axes", "shape", hint)
        shape, strides = (tuple(values[i] for i in order) for values in (self.shape, self.strides))
        return self.over(self.allocation, self.offset, shape, strides, self.dtype)


def is_integer(key: Any) -> bool:
    """Whether an index is one number."""
    return isinstance(key, int | np.integer) and not isinstance(key, bool | np.timedelta64)


def is_picked(value: Any) -> bool:
    """Whether these are elements picked from an array: an `indexedarray`."""
    return hasattr(type(value), "gathered")


def shaped(values: HostArray, shape: tuple[int, ...], components: tuple[int, ...]) -> HostArray:
    """Host data in the shape of an array; raises KernelValueError where they do not fit."""
    if values.shape == components:
        return np.broadcast_to(values, shape + components)
    try:
        return values.reshape(shape + components)
    except ValueError:
        raise KernelValueError(other_shape(shape, values.shape[: values.ndim - len(components)])) from None


def other_shape(wanted: tuple[int, ...], actual: tuple[int, ...], elements: str = "") -> Diagnostic:
    """The diagnostic for data of another shape; `elements` names their type where the last axes are parts."""
    hint = ""
    if not actual:
        hint = "x.fill_(value) sets all elements to one value"
    elif math.prod(actual) == math.prod(wanted):
        hint = f"give the data that shape: data.reshape({wanted})"
    else:
        hint = f"give {math.prod(wanted)} elements, or make another array of the data: kl.array(data)"
    told = f"{wanted} with the components of {elements}" if elements else f"{wanted}"
    return Diagnostic(f"the array has shape {told}, the data have shape {actual}", code="shape", hint=hint)


def fits(values: HostArray, elem: Value) -> bool:
    """Whether the components of an element lie side by side, as kernels expect them."""
    components = shape_of(elem)
    dense = contiguous_strides(components, values.itemsize)
    return values.strides[values.ndim - len(components) :] == dense and values.dtype.isnative


@functools.lru_cache(4096)
def _dense_bytes(shape: Extents, strides: Extents, size: int) -> int | None:
    """The bytes of elements of `size` bytes that stand in memory in order; None where there are gaps."""
    dense = contiguous_strides(shape, size)
    has_gaps = 0 not in shape and any(shape[k] > 1 and strides[k] != dense[k] for k in range(len(shape)))
    return None if has_gaps else math.prod(shape) * size


def contiguous_strides(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """The strides of elements of `size` bytes that stand in memory in order and without gaps."""
    strides: list[int] = []
    for extent in reversed(shape):
        strides.append(size)
        size *= max(extent, 1)
    return tuple(reversed(strides))
