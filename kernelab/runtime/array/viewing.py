"""Views of an array's memory: indexing, slicing, reshape, transpose.

Knows shapes and strides; the methods here are those of `array` that make arrays over the same memory.
"""

import math
from collections.abc import Sequence
from types import EllipsisType
from typing import Any, Self

import numpy as np

from kernelab.errors import Diagnostic, KernelIndexError, KernelTypeError, KernelValueError
from kernelab.host.traced import traced
from kernelab.host.values import frozen
from kernelab.lang.types import Value, int32, shape_of
from kernelab.runtime.array.layout import Strided
from kernelab.runtime.context.conversion import described
from kernelab.runtime.context.recorder import RECORDER
from kernelab.runtime.memory.interop import HostArray, extents_of, itemsize, shape_tuple
from kernelab.runtime.memory.memory import address_of, contiguous_strides

Index = int | slice | None | EllipsisType


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
                values = self._host
                value = (self.seen() if values is None else values)[key]
                value = frozen(self.dtype, value.copy()) if value.ndim else value
                if recorder is None:
                    return value
                return traced(value, recorder.looked_at(self))
            offset = self.offset + (key if key >= 0 else key + extent) * strides[0]
            return self.over(self.allocation, offset, shape[1:], strides[1:], self.dtype)
        start, stop, step = key.indices(extent)
        count = len(range(start, stop, step))
        if not count:
            return None
        offset = self.offset + start * strides[0]
        shape, strides = (count, *shape[1:]), (step * strides[0], *strides[1:])
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
            hint = "write x.contiguous().reshape(...)"
            raise KernelValueError(Diagnostic(message, code="shape", hint=hint))
        try:
            extents = np.empty(self.shape, np.bool_).reshape(wanted).shape
        except ValueError:
            message = f"an array of shape {self.shape} cannot be reshaped to {wanted}"
            hint = f"it has {math.prod(self.shape)} elements, and keeps them all; one extent may be -1"
            raise KernelValueError(Diagnostic(message, code="shape", hint=hint)) from None
        extents = shape_tuple(extents)
        strides = contiguous_strides(extents, itemsize(self.dtype))
        return self.over(self.allocation, self.offset, extents, strides, self.dtype)

    def _with_new_axes(self, keys: tuple[Any, ...]) -> Self:
        """The view that indices select, with an axis of extent 1 where one of them is None."""
        whole: Any = self
        part: Self = whole[tuple(k for k in keys if k is not None)]
        if not isinstance(part, Views) or is_picked(part):
            raise _no_index(None)
        shape, strides = list(part.shape), list(part.strides)
        kept = [k for k in keys if not is_integer(k)]
        # What stands behind `...`, or behind the last index where there is no `...`, counts from the end.
        behind = kept[kept.index(Ellipsis) + 1 :] if Ellipsis in kept else []
        before = kept[: kept.index(Ellipsis)] if Ellipsis in kept else kept
        for at, k in enumerate(before):
            if k is None:
                shape.insert(at, 1)
                strides.insert(at, itemsize(part.dtype))
        for at, k in enumerate(reversed(behind)):
            if k is None:
                shape.insert(len(shape) - at, 1)
                strides.insert(len(strides) - at, itemsize(part.dtype))
        return part.over(part.allocation, part.offset, tuple(shape), tuple(strides), part.dtype)

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
            raise KernelTypeError(Diagnostic(message, code="shape", hint="write x.transpose((1, 0))"))
        if axes is not None and not isinstance(axes, Sequence):
            message = f"transpose takes the axes in their new order, not {described(axes)}"
            raise KernelTypeError(Diagnostic(message, code="shape", hint="write x.transpose((1, 0))"))
        order = tuple(reversed(range(self.ndim))) if axes is None else tuple(axes)
        if sorted(order) != list(range(self.ndim)):
            message = f"{order} is no order of the {self.ndim} axes"
            hint = f"write x.transpose({tuple(reversed(range(self.ndim)))}), or another order of these"
            raise KernelValueError(Diagnostic(message, code="shape", hint=hint))
        shape, strides = (tuple(values[i] for i in order) for values in (self.shape, self.strides))
        return self.over(self.allocation, self.offset, shape, strides, self.dtype)


def keys_of(elements: Any, key: Index | tuple[Index, ...]) -> tuple[Any, ...]:
    """An index with a part for every axis; raises KernelTypeError or KernelIndexError where it is none."""
    keys: tuple[Any, ...] = key if isinstance(key, tuple) else (key,)
    for k in keys:
        if not (is_integer(k) or isinstance(k, slice) or k is Ellipsis or is_indices(k)):
            raise _no_index(k)
    given = sum(k is not Ellipsis for k in keys)
    if given > elements.ndim:
        message = f"{given} indices for an array of shape {elements.shape}"
        raise KernelIndexError(Diagnostic(message, code="index", hint="give at most one for each axis"))
    rest: tuple[Any, ...] = (slice(None),) * (elements.ndim - given)
    at = next((at for at, k in enumerate(keys) if k is Ellipsis), None)
    if at is None:
        return keys + rest
    return keys[:at] + rest + keys[at + 1 :]


def _no_index(key: Any) -> KernelTypeError:
    kind = getattr(key, "dtype", None)
    if isinstance(key, float | np.floating):
        hint = "write int(...) around it"
    elif key is None:
        hint = "None makes an axis of extent 1 beside slices: x[:, None]"
    elif isinstance(key, str):
        hint = "only arrays of structs have fields"
    elif kind == np.bool_:
        hint = "give the places where it is true: x[np.flatnonzero(mask)]"
    else:
        hint = "index the NumPy view instead: x.numpy()[...]"
    message = f"an array is indexed by integers, slices, and arrays of integers, not {described(key)}"
    return KernelTypeError(Diagnostic(message, hint=hint, code="index"))


def is_integer(key: Any) -> bool:
    """Whether an index is one number."""
    return isinstance(key, int | np.integer) and not isinstance(key, bool | np.timedelta64)


def is_indices(key: Any) -> bool:
    """Whether these are indices for an axis: an array, a NumPy array or a list of integers."""
    if isinstance(key, Strided):
        return key.dtype == int32 and key.ndim == 1
    if isinstance(key, np.ndarray):
        return key.ndim == 1 and key.dtype.kind in "iu"
    return isinstance(key, list) and bool(key) and all(is_integer(k) for k in key)


def is_picked(value: Any) -> bool:
    """Whether these are elements picked from an array: an `indexedarray`."""
    return hasattr(type(value), "gathered")


def require_inside(shape: tuple[int, ...], keys: tuple[Any, ...]) -> None:
    """Raise KernelIndexError for an integer beyond its axis."""
    for axis, (extent, key) in enumerate(zip(shape, keys, strict=True)):
        if is_integer(key) and not -extent <= key < extent:
            message = f"index {key} is out of bounds for axis {axis} with size {extent}"
            hint = (
                f"indices go from 0 to {extent - 1}, or from -{extent} to -1"
                if extent
                else "it has no elements"
            )
            raise KernelIndexError(Diagnostic(f"{message} (the shape is {shape})", code="index", hint=hint))


def shaped(values: HostArray, shape: tuple[int, ...], components: tuple[int, ...]) -> HostArray:
    """Host data in the shape of an array; raises KernelValueError where they do not fit."""
    if values.shape == components:
        return np.broadcast_to(values, shape + components)
    try:
        return values.reshape(shape + components)
    except ValueError:
        found = values.shape[: values.ndim - len(components)]
        raise KernelValueError(other_shape(shape, found)) from None


def other_shape(wanted: tuple[int, ...], found: tuple[int, ...]) -> Diagnostic:
    """The diagnostic for data of another shape."""
    hint = ""
    if not found:
        hint = "x.fill_(value) sets all elements to one value"
    elif math.prod(found) == math.prod(wanted):
        hint = f"give the data that shape: data.reshape({wanted})"
    else:
        hint = f"give {math.prod(wanted)} elements, or make another array of the data: kl.array(data)"
    return Diagnostic(f"the array has shape {wanted}, the data have shape {found}", code="shape", hint=hint)


def fits(values: HostArray, elem: Value) -> bool:
    """Whether the components of an element lie side by side, as kernels expect them."""
    components = shape_of(elem)
    dense = contiguous_strides(components, values.itemsize)
    return values.strides[values.ndim - len(components) :] == dense and values.dtype.isnative
