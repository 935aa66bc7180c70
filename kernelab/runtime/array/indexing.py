"""Indices of arrays: integers, slices, arrays of indices, and truth values for an axis."""

from types import EllipsisType
from typing import Any

import numpy as np

from kernelab.errors import KernelIndexError, KernelTypeError, KernelValueError
from kernelab.lang.types import Mat, Vec, bool_, int32, scalar_of
from kernelab.runtime.array.layout import Strided, is_integer
from kernelab.runtime.context.conversion import HostArray, described

Index = int | slice | None | EllipsisType


def keys_of(elements: Any, key: Index | tuple[Index, ...], *, looks: bool = False) -> tuple[Any, ...]:
    """An index with a part for every axis; raises KernelTypeError or KernelIndexError where it is none.

    A mask becomes the indices at which it is true.  A step of 0 is a KernelValueError.  Where it only looks,
    None may stand for a new axis beside slices.
    """
    keys: tuple[Any, ...] = key if isinstance(key, tuple) else (key,)
    for k in keys:
        is_usual = is_integer(k) or isinstance(k, slice) or k is Ellipsis or k is None
        if not (is_usual or is_indices(k) or _is_mask(k)):
            raise _no_index(k)
        if isinstance(k, slice):
            _require_bounds(k)
    count = sum(k is not Ellipsis and k is not None for k in keys)
    if count > elements.ndim:
        message = f"{count} indices for an array of shape {elements.shape}"
        hint = "give at most one for each axis"
        if isinstance(elements.dtype, Vec | Mat):
            hint += f"; x.view(kl.{scalar_of(elements.dtype)}) has some for components, too"
        raise KernelIndexError.of(message, "index", hint)
    rest: tuple[Any, ...] = (slice(None),) * (elements.ndim - count)
    at = next((at for at, k in enumerate(keys) if k is Ellipsis), None)
    whole = keys + rest if at is None else keys[:at] + rest + keys[at + 1 :]
    if any(k is None for k in keys):
        picks = any(is_indices(k) or _is_mask(k) for k in whole)
        if picks or not (looks and any(isinstance(k, slice) for k in whole)):
            raise _no_index(None)
    elif any(map(_is_mask, whole)):
        return tuple(_chosen(k, elements, axis) if _is_mask(k) else k for axis, k in enumerate(whole))
    return whole


def _is_mask(key: Any) -> bool:
    """Whether these are truth values for an axis."""
    if isinstance(key, Strided):
        return key.dtype == bool_ and key.ndim == 1
    if isinstance(key, np.ndarray):
        return key.ndim == 1 and key.dtype == np.bool_
    return isinstance(key, list) and bool(key) and all(isinstance(k, bool | np.bool_) for k in key)


def _chosen(mask: Any, elements: Any, axis: int) -> HostArray:
    """The indices at which a mask is true, as values of the host."""
    if len(mask) != elements.shape[axis]:
        message = f"{len(mask)} truth values for axis {axis} with size {elements.shape[axis]}"
        raise KernelIndexError.of(f"{message} (the shape is {elements.shape})", "index")
    values = mask if isinstance(mask, list | np.ndarray) else mask.numpy()
    return np.flatnonzero(values).astype(np.int32)


def _require_bounds(key: slice) -> None:
    parts = (key.start, key.stop, key.step)
    no_integer = next((part for part in parts if part is not None and not hasattr(part, "__index__")), None)
    if no_integer is not None:
        raise _no_index(no_integer)
    if key.step == 0:
        hint = "leave it out to take every element"
        raise KernelValueError.of("the slice step cannot be zero", "value", hint)


def _no_index(key: Any) -> KernelTypeError:
    kind = getattr(key, "dtype", None)
    if isinstance(key, float | np.floating):
        hint = "write int(...) around it"
    elif key is None:
        hint = "None makes an axis of extent 1 beside slices: x[:, None]"
    elif isinstance(key, str):
        hint = "only arrays of structs have fields"
    elif str(kind) == "bool":
        hint = "a mask has one axis: write x.flatten()[mask.flatten()]"
    elif isinstance(key, Strided) and key.ndim == 1 and str(kind).lstrip("u").startswith("int"):
        message = f"an array of indices holds int32, and this one {kind}"
        return KernelTypeError.of(message, "index", "convert them: indices.astype(int)")
    else:
        hint = "index the NumPy view instead: x.numpy()[...]"
    what = described(key)
    what += f" of {kind}" if what == "an array" else ""
    message = f"an array is indexed by integers, slices, and arrays of integers, not {what}"
    return KernelTypeError.of(message, "index", hint)


def is_indices(key: Any) -> bool:
    """Whether these are indices for an axis: an array, a NumPy array or a list of integers."""
    if isinstance(key, Strided):
        return key.dtype == int32 and key.ndim == 1
    if isinstance(key, np.ndarray):
        return key.ndim == 1 and key.dtype.kind in "iu"
    return isinstance(key, list) and bool(key) and all(is_integer(k) for k in key)


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
            raise KernelIndexError.of(f"{message} (the shape is {shape})", "index", hint)
