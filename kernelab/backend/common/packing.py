"""The packed arguments of a launch as NumPy arrays, and back.

Knows the launch ABI of `kernelab.codegen.common.entry`; must not know what runs.
"""

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kernelab.backend.common.backends import Args
from kernelab.codegen.common.entry import GRID_SLOTS, Layout, Param
from kernelab.errors import with_article
from kernelab.lang.rounding import rounded
from kernelab.lang.types import Array, Value, scalar_of, shape_of

Numpy = np.ndarray[Any, Any]

_libc = ctypes.CDLL(None)
_libc.realloc.restype = ctypes.c_void_p
_libc.realloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

free = _libc.free
"""Releases memory that an entry has allocated, by its address; 0 is none."""

free.argtypes, free.restype = [ctypes.c_void_p], None


class _Memory:
    """Memory that belongs to someone else, in the form from which NumPy makes an array."""

    def __init__(
        self, address: int, shape: Sequence[int], strides: Sequence[int], dtype: np.dtype[Any]
    ) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (address, False),
            "shape": tuple(shape),
            "strides": tuple(strides),
            "typestr": dtype.str,
        }


def view(address: int, shape: Sequence[int], strides: Sequence[int], elem: Value) -> Numpy:
    """The array at an address: `shape` and `strides` are those of the elements, components follow as axes."""
    dtype, inner = scalar_of(elem).dtype, shape_of(elem)
    if 0 in shape:
        return np.empty((*shape, *inner), dtype)
    tail = [dtype.itemsize * int(np.prod(inner[k + 1 :])) for k in range(len(inner))]
    return np.asarray(_Memory(address, (*shape, *inner), (*strides, *tail), dtype)).view(dtype)


def array_of(args: Sequence[int], param: Param) -> Numpy:
    """The array that an argument stands for."""
    assert isinstance(param.type, Array)
    ndim, slot = param.type.ndim, param.slot
    shape, strides = args[slot + 1 : slot + 1 + ndim], args[slot + 1 + ndim : slot + 1 + 2 * ndim]
    return view(args[slot], shape, strides, param.type.elem)


def value_of(args: Sequence[int], param: Param) -> Numpy:
    """The value that an argument stands for, with its components as axes."""
    assert not isinstance(param.type, Array)
    dtype = scalar_of(param.type).dtype
    slots = np.array(args[param.slot : param.slot + param.slots], np.int64)
    low = slots.view(np.uint8).reshape(-1, 8)[:, : dtype.itemsize]
    return np.ascontiguousarray(low).view(dtype).reshape(shape_of(param.type))


def residual_of(args: Sequence[int], param: Param, threads: int) -> tuple[Numpy, Numpy]:
    """A residual's {address, length, capacity}, and where each thread's values start."""
    long = np.dtype(np.int64)
    handle = np.asarray(_Memory(args[param.slot], (3,), (8,), long))
    if threads == 0:
        return handle, np.empty(0, long)
    return handle, np.asarray(_Memory(args[param.slot + 1], (threads,), (8,), long))


def append(handle: Numpy, values: Numpy) -> None:
    """Append to a residual, which grows where it must; raises MemoryError."""
    address, length, capacity = map(int, handle)
    itemsize = values.dtype.itemsize
    needed = length + len(values)
    if needed > capacity:
        capacity = max(needed, 2 * capacity)
        address = _libc.realloc(address, capacity * itemsize)
        if not address:
            raise MemoryError
        handle[0], handle[2] = address, capacity
    if len(values):
        kept = np.asarray(_Memory(address, (needed,), (itemsize,), values.dtype)).view(values.dtype)
        kept[length:] = values
    handle[1] = needed


def pack(layout: Layout, grid: Sequence[int], arguments: Mapping[str, Any]) -> Args:
    """The slots of a launch with arguments by name; the arrays must outlive their use.

    An argument is an array of the parameter's dtype, with components as last axes, or a number or vector;
    for a residual it is the pair of int64 arrays {address, length, capacity} and starts.
    """
    slots = [*grid, *[1] * (GRID_SLOTS - len(grid))]
    for param in layout.params:
        given = arguments[param.name]
        if param.residual:
            slots += [*(array.ctypes.data for array in given), 0]
        elif isinstance(param.type, Array):
            slots += _array_slots(given, param.name, param.type)
        else:
            slots += _value_slots(given, param.type)
    slots += [0] * (layout.slots - len(slots))
    return (ctypes.c_longlong * len(slots))(*slots)


def _array_slots(array: Numpy, name: str, type: Array) -> list[int]:
    dtype, inner = scalar_of(type.elem).dtype, shape_of(type.elem)
    shape = array.shape[: type.ndim]
    if array.dtype != dtype or array.shape != (*shape, *inner) or array.ndim != type.ndim + len(inner):
        raise TypeError(
            f"{name} is {with_article(type)}, not an array of shape {array.shape} and dtype {array.dtype}"
        )
    return [array.ctypes.data, *shape, *array.strides[: type.ndim]]


def _value_slots(value: Any, type: Value) -> list[int]:
    components = np.broadcast_to(rounded(value, scalar_of(type).dtype), shape_of(type)).flatten()
    slots = np.zeros((components.size, 8), np.uint8)
    slots[:, : components.itemsize] = components.view(np.uint8).reshape(components.size, -1)
    return [int(slot) for slot in slots.view(np.int64).ravel()]
