"""The interface of a backend, the registry of backends, and errors from the status of a launch.

A backend turns functions into entries; an entry runs over packed arguments as
`kernelab.codegen.cpp.entry` lays them out, and raises the KernelError that its status stands for.  Knows
which backends there are, not how they work.
"""

import ctypes
import math
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Protocol

from kernelab.backend.common.compiler import ADVICE, find_compiler
from kernelab.codegen.cpp import entry as abi
from kernelab.codegen.cpp.entry import GRID_SLOTS, EntryInfo, Site, thread_position
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
)
from kernelab.lang.ir import Function

Args = bytes | ctypes.Array[ctypes.c_longlong]
"""The packed arguments of a launch, slots of eight bytes."""


def slots_of(args: Args) -> list[int]:
    """The slots as numbers."""
    slots: list[int] = memoryview(args).cast("B").cast("q").tolist()
    return slots


class Entry(Protocol):
    """A function that can be launched."""

    @property
    def info(self) -> EntryInfo: ...

    def __call__(self, args: Args, /, limit: int = 0, done: int = 0, room: int = 0) -> None:
        """Run the threads of the grid but the first `done`; raises a KernelError if something goes wrong.

        Raises StorageFull if a thread would save more than `limit` bytes before it has changed anything, and
        KernelMemoryError if the residuals, or what a thread saves later, would take more than `room`; 0 is
        any number.
        """


class StorageFull(KernelError):
    """A thread would save more than it may: `done` threads have run, it and the rest have changed nothing."""

    done = 0


class Backend(Protocol):
    """Something that makes entries of functions."""

    @property
    def name(self) -> str: ...

    def build(self, functions: Sequence[Function]) -> dict[str, Entry]:
        """An entry for each function, by name; they are scalarised, without calls, of distinct names.

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
        known = ", ".join(sorted({*_BACKENDS, *_MODULES}))
        raise BuildError(
            Diagnostic(f"there is no backend {name!r}", code="backend", hint=f"there are: {known}")
        )
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
    warnings.warn(message + ADVICE, KernelWarning, stacklevel=3)


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
                    return KernelAssertionError(Diagnostic(message, span, "assertion"))
                message = f"{site.message or 'integer division by zero'}; in thread {thread}"
                hint = "test the divisor first, or divide floats"
                diagnostic = Diagnostic(message, _span(site), "zero-division", hint=hint)
                return KernelZeroDivisionError(diagnostic)

            error = told(thread, ())
            error.failed = Failed(status[abi.THREAD], told)
            return error
        case abi.MEMORY, _:
            return memory_error(info.name, place)
        case abi.FULL, _:
            full = StorageFull(memory_error(info.name, place).diagnostics[0])
            rest = math.prod(grid[:GRID_SLOTS]) - 1 - status[abi.THREAD]
            full.done = rest if info.descending else status[abi.THREAD]
            return full
        case abi.KEPT, Site():
            return kept_error(info.name, site, place, status[abi.ROOM])
        case abi.STOPPED, _:
            message = f"`{info.name}` was stopped before it had finished"
            return KernelError(Diagnostic(message, None, "stopped"))
        case code, _:
            raise AssertionError(f"entry {info.name} ended with the unknown status {code}")


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
    hint = f"launch over fewer threads, or test the index against `{site.array}.shape[{axis}]` first"
    if not extent:
        hint = f"it has no elements, as where None is passed: pass an array, or test `if {site.array}:` first"
    return KernelIndexError(Diagnostic(message, _span(site), "index-error", hint=hint))


def memory_error(name: str, thread: str) -> KernelError:
    """The error of a launch whose saved values no longer fit into memory."""
    message = f"`{name}` ran out of memory for the values that its gradient needs; in thread {thread}"
    hint = (
        'launch over fewer threads at a time, or let loops keep less: for k in range(n, adjoint="checkpoint")'
    )
    return KernelError(Diagnostic(message, None, "out-of-memory", hint=hint))


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
    return KernelMemoryError(Diagnostic(message, _span(site), "out-of-memory", hint=hint))


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
    return KernelMemoryError(Diagnostic(message, _span(site), "capture", hint=hint))


def _amount(nbytes: int) -> str:
    """A number of bytes as a reader wants it."""
    if nbytes < 10_000:
        return f"{nbytes} bytes"
    power = 3 if nbytes >= 10**9 else 2 if nbytes >= 10**6 else 1
    return f"{nbytes / 1000**power:.3g} {' kMG'[power].strip()}B"


def interrupted(name: str) -> KernelInterrupt:
    """The error of an interrupt during the run of an entry."""
    message = f"the kernel `{name}` was interrupted; the arrays that it writes are partly written"
    return KernelInterrupt(Diagnostic(message, None, "interrupted"))
