"""What goes into a launch and comes out: packed arguments as NumPy arrays and back, and the printed text.

Both backends of the CPU keep what a launch prints and hand it over when the launch has ended, also if it
ended with an error.  Printed values are formatted as C's printf or Python would.  Knows the launch ABI of
`kernelab.codegen.cpp.entry`; must not know what runs.
"""

import ctypes
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kernelab.backend.common.backends import Args
from kernelab.codegen.cpp.entry import GRID_SLOTS, PRINT_LIMIT, Layout, Message, Param
from kernelab.errors import with_article
from kernelab.lang.rounding import rounded
from kernelab.lang.types import Array, Scalar, Value, scalar_of, shape_of

# ------------------------------------------------------------------------------------------- packed arguments


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


# ----------------------------------------------------------------------------------------------- printed text


class Output:
    """The text of one launch; of more than `PRINT_LIMIT` prints only the number is kept."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.prints = 0

    def add(self, message: Message, values: Sequence[Any]) -> None:
        """One print, with its values as NumPy scalars."""
        self.prints += 1
        if self.prints <= PRINT_LIMIT:
            self._pieces.append(formatted(message, values))

    def flush(self) -> None:
        """Write what was added to where Python prints."""
        left = self.prints - PRINT_LIMIT
        if left > 0:
            line = "" if self._pieces[-1].endswith("\n") else "\n"
            self._pieces.append(f"{line}... and {left:,} more line{'s' * (left != 1)}\n")
        if self._pieces:
            sys.stdout.write("".join(self._pieces))


def formatted(message: Message, values: Sequence[Any]) -> str:
    """The text of one print."""
    triples = zip(message.specs, message.types, values, strict=True)
    shown = [_shown(spec, type, value) for spec, type, value in triples]
    return "".join(text + part for text, part in zip(message.texts, [*shown, ""], strict=True))


def _shown(spec: str, type: Scalar, value: Any) -> str:
    if not spec:
        return str(value)
    number = value.item()
    if type.is_int and number < 0 and spec[-1] in "uxXo":
        number += 1 << type.bits
    return str(spec % number)


def replay(messages: Sequence[Message], words: Numpy, prints: int) -> None:
    """Write what an entry kept: for each print the number of its message, and a word for each value."""
    output = Output()
    position = 0
    while position < len(words):
        message = messages[int(words[position])]
        end = position + 1 + len(message.types)
        kept = words[position + 1 : end]
        output.add(message, [_value(kept[k : k + 1], type) for k, type in enumerate(message.types)])
        position = end
    output.prints = max(output.prints, prints)
    output.flush()


def _value(word: Numpy, type: Scalar) -> Any:
    return word.view(np.uint8)[: type.dtype.itemsize].view(type.dtype)[0]
