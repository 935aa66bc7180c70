"""The interface of a backend: the registry, packed arguments, errors from a status, and printed text.

A backend turns functions into entries; an entry runs over packed arguments as `kernelab.codegen.cpp.entry`
lays them out, and raises the KernelError that its status stands for.  Knows which backends there are, not
how they work.  Both backends of the CPU keep what a launch prints and hand it over when the launch has
ended, also if it ended with an error.
"""

import ctypes
import math
import re
import struct
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, Protocol

import numpy as np

from kernelab.backend.common.compiler import advice, find_compiler
from kernelab.codegen.cpp import entry as abi
from kernelab.codegen.cpp.entry import (
    GRID_SLOTS,
    PRINT_LIMIT,
    EntryInfo,
    Layout,
    Message,
    Param,
    Site,
    thread_position,
)
from kernelab.data_classes import dataclass
from kernelab.errors import (
    NOWHERE,
    BuildError,
    Diagnostic,
    KernelAssertionError,
    KernelError,
    KernelIndexError,
    KernelInterrupt,
    KernelMemoryError,
    KernelWarning,
    KernelZeroDivisionError,
    Span,
    with_article,
)
from kernelab.lang.ir import Function
from kernelab.lang.rounding import rounded
from kernelab.lang.types import Array, Scalar, Value, scalar_of, shape_of
from kernelab.settings import settings

Args = bytes | ctypes.Array[ctypes.c_longlong]
"""The packed arguments of a launch, slots of eight bytes."""


def slots_of(args: Args) -> list[int]:
    slots: list[int] = memoryview(args).cast("B").cast("q").tolist()
    return slots


grid_in = struct.Struct(f"{GRID_SLOTS}q").unpack_from
"""The extents of the grid of a launch, from its packed arguments."""


class Part(NamedTuple):
    """Some threads of a launch: those of a box, () for all, but the first `done` threads of the launch.

    A box has for each of the four axes the first coordinate and the one behind the last (`entry.BOX`).
    `begun` says that others of its threads have run.
    """

    box: tuple[int, ...] = ()
    done: int = 0
    begun: bool = False


class Entry(Protocol):
    """A function that can be launched."""

    @property
    def info(self) -> EntryInfo: ...

    def __call__(self, args: Args, /, limit: int = 0, room: int = 0, left: Sequence[Part] = ()) -> None:
        """Run all threads of the grid, or those that are `left`; raises the error of the first that fails.

        Raises StorageFull if a thread would save more than `limit` bytes before it has changed anything, and
        KernelMemoryError if the residuals, or what a thread saves later, would take more than `room`; 0 is
        any number.
        """


class StorageFull(KernelError):
    """A thread would save more than it may: those that are `left` have changed nothing, all others ran."""

    left: "Sequence[Part]" = ()


class Backend(Protocol):
    """Something that makes entries of functions."""

    @property
    def name(self) -> str: ...

    def build(self, functions: Sequence[Function], threads: int = 0) -> dict[str, Entry]:
        """An entry for each function, by name; they are scalarised, without calls, of distinct names.

        What else a launch of so many threads would wait for is built at the same time.
        Raises BuildError.
        """


_BACKENDS: dict[str, Backend] = {}
_MODULES = {"cpu": "kernelab.backend.cpu.cpu_backend", "interp": "kernelab.backend.cpu.interpreter"}


def register(backend: Backend) -> None:
    """Make a backend known by its name; the first of a name stays."""
    _BACKENDS.setdefault(backend.name, backend)


def get(name: str) -> Backend:
    """The backend of that name; raises BuildError if there is none."""
    if name not in _BACKENDS and name in _MODULES:
        import_module(_MODULES[name])
    if name not in _BACKENDS:
        names = ", ".join(sorted({*_BACKENDS, *_MODULES}))
        raise BuildError.of(f"there is no backend {name!r}", "backend", f"there are: {names}")
    return _BACKENDS[name]


def default() -> str:
    """The backend for the CPU: "cpu" where there is a C++ compiler, else "interp", with one warning."""
    if find_compiler() is not None:
        return "cpu"
    _warn_that_there_is_no_compiler()
    return "interp"


@cache
def _warn_that_there_is_no_compiler() -> None:
    message = "there is no C++ compiler: kernels run on the NumPy interpreter, slowly; "
    warnings.warn(message + advice(), KernelWarning, stacklevel=3)


@dataclass(frozen=True, slots=True)
class Failed:
    """A thread that failed, counted through the grid.

    `told` makes the error again, of another name for the thread and of arrays with an axis for lanes.
    """

    thread: int
    told: Callable[[str, Collection[str]], KernelError]


def failure(info: EntryInfo, status: Sequence[int], grid: Sequence[int]) -> KernelError:
    """The error that a status block stands for; its code is not OK."""
    site = info.sites[status[abi.SITE]] if info.sites else None
    place = thread_text(status[abi.THREAD], grid, info.coordinates)
    thread = f"{place} of `{info.name}`"
    match status[abi.CODE], site:
        case abi.INDEX | abi.ASSERTION | abi.DIVISION, Site():
            code, index, extent, axis = (status[at] for at in (abi.CODE, abi.OFFENDER, abi.EXTENT, abi.AXIS))

            def told(thread: str, with_lanes: Collection[str]) -> KernelError:
                if code == abi.INDEX:
                    return index_error(site, index, extent, axis - (site.array in with_lanes), thread)
                if code == abi.ASSERTION:
                    said = f"assertion failed: {site.message}" if site.message else "assertion failed"
                    message, span = f"{said}; in thread {thread}", _span(site)
                    return KernelAssertionError.of(message, "assertion", span=span)
                message = f"{site.message or 'integer division by zero'}; in thread {thread}"
                hint = "test the divisor first, or divide floats"
                return KernelZeroDivisionError.of(message, "zero-division", hint, _span(site))

            error = told(thread, ())
            error.failed = Failed(status[abi.THREAD], told)
            return error
        case abi.MEMORY, _:
            return memory_error(info.name, place)
        case abi.FULL, _:
            full = StorageFull(memory_error(info.name, place).diagnostics[0])
            full.left = (rest_of(Part(), info, status, grid),)
            return full
        case abi.KEPT, Site():
            return kept_error(info.name, site, place, status[abi.ROOM])
        case abi.STOPPED, _:
            return KernelError.of(f"`{info.name}` was stopped before it had finished", "stopped")
        case code, _:
            raise AssertionError(f"entry {info.name} ended with the unknown status {code}")


def rest_of(part: Part, info: EntryInfo, status: Sequence[int], grid: Sequence[int]) -> Part:
    """What is left of a part that ended with a thread that failed: that thread, and those behind it."""
    thread = status[abi.THREAD]
    done = math.prod(grid[:GRID_SLOTS]) - 1 - thread if info.descending else thread
    return Part(part.box, done, part.begun or done > part.done)


def _span(site: Site) -> Span | None:
    return None if site.span is NOWHERE else site.span


def thread_text(linear: int, grid: Sequence[int], coordinates: int) -> str:
    """A thread as a reader finds it: ``3``, or ``(1, 2)`` where the kernel unpacks coordinates."""
    position = thread_position(linear, tuple(grid[:GRID_SLOTS]), coordinates)
    return str(position[0]) if len(position) == 1 else str(position)


def index_error(site: Site, index: int, extent: int, axis: int, thread: str) -> KernelIndexError:
    """The error of an index outside an array."""
    message = (
        f"index {index} is out of bounds for axis {axis} of array `{site.array}` with size {extent};"
        f" in thread {thread}"
    )
    way = f"launch with dim={site.array}.shape" if thread.startswith("(") else "launch over fewer threads"
    hint = f"{way}, or test the index against `{site.array}.shape[{axis}]` first"
    if not extent:
        hint = f"it has no elements, as where None is passed: pass an array, or test `if {site.array}:` first"
    return KernelIndexError.of(message, "index-error", hint, _span(site))


def warn_of_wrapped_indices(info: EntryInfo, bits: int) -> None:
    """Warn, once for each line, of computed indices below zero, by status[WRAPPED].

    Raises KernelIndexError where the settings say so.
    """
    warn_of_negative_indices(site for number, site in enumerate(info.wraps) if bits >> min(number, 63) & 1)


def warn_of_negative_indices(sites: Iterable[Site]) -> None:
    """The same at some accesses.

    Leaves out code that no user wrote, and `array.__getitem__` with indices, which are NumPy's.
    """
    wanted = settings().negative_index
    if wanted == "wrap":
        return
    for site in sites:
        if site.span.source.label in (NOWHERE.source.label, "<indexedarray>"):
            continue
        array = re.sub("(_bar|_dot)+$", "", site.array)
        message = f"an index of `{array}` was negative: it counted from the end, as in Python"
        hint = "test it first, as in `if i > 0:`, or write `(i - 1) % n` where it is meant to go round"
        span = site.span
        if wanted == "error":
            raise KernelIndexError.of(message, "negative-index", hint, span)
        if span.line not in span.source.told:
            span.source.told.add(span.line)
            hint += '; kl.config.negative_index = "error" makes it an error'
            Diagnostic(message, span, "negative-index", "warning", hint=hint).warn()


def memory_error(name: str, thread: str) -> KernelError:
    """The error of a launch whose saved values no longer fit into memory."""
    message = f"`{name}` ran out of memory for the values that its gradient needs; in thread {thread}"
    hint = (
        'launch over fewer threads at a time, or let loops keep less: for k in range(n, adjoint="checkpoint")'
    )
    return KernelError.of(message, "out-of-memory", hint)


def kept_error(name: str, site: Site, thread: str, room: int) -> KernelMemoryError:
    """The error of a launch that would keep more for its gradient than it may, at what would be kept."""
    message = (
        f"`{name}` would take more than {_amount(room)} for values that its gradient needs;"
        f" it ended in thread {thread}, and the arrays that it writes are partly written"
    )
    hint = (
        "write results to another array than the one that is read, so that nothing has to be kept; launch "
        "over fewer threads or steps at a time; or allow more: kl.config.kept_memory = ..."
    )
    return KernelMemoryError.of(message, "out-of-memory", hint, _span(site))


def outgrown_error(name: str, site: Site, thread: str) -> KernelMemoryError:
    """The error of a captured launch that keeps more for its gradient than there was room for before."""
    message = (
        f"`{name}` keeps more values for its gradient than when it was captured; it ended in thread "
        f"{thread}, and the arrays that it writes are partly written"
    )
    hint = (
        "run the block once with the values that make its loops longest, and capture it again: a graph has "
        "the workspace that its launches needed before"
    )
    return KernelMemoryError.of(message, "capture", hint, _span(site))


def _amount(nbytes: int) -> str:
    if nbytes < 10_000:
        return f"{nbytes} bytes"
    power = 3 if nbytes >= 10**9 else 2 if nbytes >= 10**6 else 1
    return f"{nbytes / 1000**power:.3g} {' kMG'[power].strip()}B"


def interrupted(name: str) -> KernelInterrupt:
    """The error of an interrupt during the run of an entry."""
    message = f"the kernel `{name}` was interrupted; the arrays that it writes are partly written"
    return KernelInterrupt(Diagnostic(message, None, "interrupted"))


# ------------------------------------------------------------------------------------------- packed arguments


Numpy = np.ndarray[Any, Any]

_libc = ctypes.CDLL("ucrtbase" if sys.platform == "win32" else None)
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
        argument = arguments[param.name]
        if param.residual:
            slots += [*(array.ctypes.data for array in argument), 0]
        elif isinstance(param.type, Array):
            slots += _array_slots(argument, param.name, param.type)
        else:
            slots += _value_slots(argument, param.type)
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
        kept = zip(words[position + 1 : end, None].view(np.uint8), message.types, strict=True)
        output.add(message, [word[: type.dtype.itemsize].view(type.dtype)[0] for word, type in kept])
        position = end
    output.prints = max(output.prints, prints)
    output.flush()
