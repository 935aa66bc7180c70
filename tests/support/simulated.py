"""A simulated CUDA device: a driver whose memory is memory of the host, and which runs CUDA text by the shim.

Its memory is closed to the host except while a call of the driver works on it: code that reads an address of
the device as if it were the host's ends the process, as on a real machine.  Nothing that is started in a
stream runs before somebody waits or asks for it.  What it cannot show is time,
threads that really run at once, and the driver's own mistakes.
"""

import ctypes
import itertools
import mmap
import zlib
from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelab.backend.common.backends import Entry, pack, slots_of
from kernelab.backend.cuda.faults import fault
from kernelab.backend.cuda.nvidia import Driver
from kernelab.backend.cuda.synchronisation import LEGACY
from kernelab.codegen.cpp.entry import layout_of
from kernelab.lang.ir import Function
from kernelab.lang.types import Array
from tests.support import shim

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

CLOSED = 0
"""PROT_NONE, for which Python has no name."""

OWN = 0x7057
"""By what number other libraries know the device's own stream."""

GRAIN = 256
"""Memory is handed out in multiples of so many bytes, as by CUDA."""


class SimulatedDriver:
    """One simulated device with `nbytes` of memory; with the methods of `nvidia.Driver`."""

    name = "simulated device"
    architecture = "sm_80"
    processors = 2
    hurries = False

    _shared: "list[ctypes.Array[ctypes.c_char]]" = []  # noqa: RUF012 (of all devices)
    _numbers = itertools.count(LEGACY + 1)
    _events: "dict[int, _Moment]" = {}  # noqa: RUF012 (of all devices: they wait for each other's)

    identity = f"shim {zlib.crc32(' '.join((shim.BEFORE, shim.AFTER, *shim.FLAGS)).encode())}"

    def __init__(self, nbytes: int = 64 << 20) -> None:
        self._memory = mmap.mmap(-1, nbytes)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._nbytes = nbytes
        self._gaps = [(self._base, nbytes)]
        self.taken: dict[int, int] = {}
        self.launches: list[tuple[int, int]] = []
        self.copies: list[str] = []
        self.replays = 0
        self.queues: dict[int, list[Callable[[], None]]] = {0: [], LEGACY: []}
        self._noted: list[Callable[[], None]] | None = None
        self._clock = 0.0
        self._open = 0
        self._protect(CLOSED)

    def _protect(self, how: int) -> None:
        assert _libc.mprotect(self._base, self._nbytes, how) == 0

    @contextmanager
    def _working(self) -> Iterator[None]:
        """The device's memory can be used within."""
        self._open += 1
        self._protect(mmap.PROT_READ | mmap.PROT_WRITE)
        try:
            yield
        finally:
            self._open -= 1
            if not self._open:
                self._protect(CLOSED)

    # ---------------------------------------------------------------------------------------- code

    def compile(self, text: str, quickly: bool = False) -> bytes:
        return shim.compiled(text)

    def load(self, code: bytes, symbol: str) -> object:
        return shim.loaded(code)[f"{symbol}_start"]

    # ---------------------------------------------------------------------------------------- memory

    def allocate(self, nbytes: int) -> int:
        size = max(-(-nbytes // GRAIN), 1) * GRAIN
        for at, (address, room) in enumerate(self._gaps):
            if room >= size:
                del self._gaps[at]
                if room > size:
                    insort(self._gaps, (address + size, room - size))
                self.taken[address] = size
                return address
        raise fault("CUDA_ERROR_OUT_OF_MEMORY", f"allocating {nbytes:,} bytes", self.name)

    def free(self, address: int) -> None:
        insort(self._gaps, (address, self.taken.pop(address)))
        merged: list[tuple[int, int]] = []
        for start, room in self._gaps:
            if merged and sum(merged[-1]) == start:
                start, room = merged[-1][0], merged.pop()[1] + room
            merged.append((start, room))
        self._gaps = merged

    def memory(self) -> tuple[int, int]:
        return self._nbytes - sum(self.taken.values()), self._nbytes

    def upload(self, address: int, source: int, nbytes: int) -> None:
        self._require_mine(address, nbytes)
        self.copies.append("up")
        taken = ctypes.create_string_buffer(ctypes.string_at(source, nbytes), nbytes)
        self._put(lambda: ctypes.memmove(address, taken, nbytes))

    def download(self, target: int, address: int, nbytes: int) -> None:
        self._require_mine(address, nbytes)
        self.copies.append("down")
        self._put(lambda: ctypes.memmove(target, address, nbytes))
        self.wait()

    def copy(self, target: int, source: int, nbytes: int) -> None:
        self._require_mine(target, nbytes)
        self._require_mine(source, nbytes)
        self.copies.append("across")
        self._put(lambda: ctypes.memmove(target, source, nbytes))

    def fill(self, address: int, pattern: bytes, count: int) -> None:
        assert len(pattern) in (1, 2, 4) and address % len(pattern) == 0
        self._require_mine(address, len(pattern) * count)
        self._put(lambda: ctypes.memmove(address, pattern * count, len(pattern) * count))

    def _put(self, work: Callable[[], object], stream: int = 0) -> None:
        """Start some work on the memory in a stream."""

        def start() -> None:
            with self._working():
                work()

        self._enqueue(start, stream)

    def _enqueue(self, work: Callable[[], None], stream: int) -> None:
        """Put work into a stream: if that is captured, into the graph."""
        if self._noted is None or stream != 0:
            self.queue(stream).append(work)
        else:
            self._noted.append(work)

    def owns(self, address: int) -> bool:
        return self._base <= address < self._base + self._nbytes

    def _require_mine(self, address: int, nbytes: int) -> None:
        inside = any(a <= address and address + nbytes <= a + size for a, size in self.taken.items())
        assert inside, f"{nbytes} bytes at {address:#x} are no memory of the device"

    def shared(self, nbytes: int) -> tuple[int, int]:
        self._shared.append((ctypes.c_char * nbytes)())
        address = ctypes.addressof(self._shared[-1])
        return address, address

    # ---------------------------------------------------------------------------------------- running

    def launch(
        self, function: object, blocks: int, threads: int, slots: bytes, status: int, stream: int = 0
    ) -> None:
        assert callable(function)
        self.launches.append((blocks, threads))
        given = (ctypes.c_longlong * (len(slots) // 8)).from_buffer_copy(slots)
        arguments = [ctypes.byref(given), ctypes.c_void_p(status)]

        def start() -> None:
            self._clock += 1.0
            function(*arguments, ctypes.c_longlong(blocks), ctypes.c_longlong(threads))

        self._put(start, stream)

    @property
    def own_stream(self) -> int:
        return OWN

    def queue(self, stream: int) -> list[Callable[[], None]]:
        """What a stream still has to do; the device's own is known to other libraries by a number."""
        return self.queues[0 if stream == OWN else stream]

    def unshare(self, address: int) -> None:
        self._shared[:] = [held for held in self._shared if ctypes.addressof(held) != address]

    def begin_capture(self) -> None:
        assert self._noted is None and not any(self.queues.values()), "something is under way"
        self._noted = []

    def end_capture(self) -> object:
        noted, self._noted = self._noted, None
        return noted

    def replay(self, graph: object, stream: int = 0) -> None:
        assert isinstance(graph, list) and self._noted is None
        self.replays += 1
        self.queue(stream).extend(graph)

    def _require_no_capture(self) -> None:
        if self._noted is not None:
            raise fault("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "waiting", self.name)

    def finished(self, stream: int = 0) -> bool:
        self._require_no_capture()
        waiting = self.queue(stream)
        if waiting:
            waiting.pop(0)()
        return not waiting

    def wait(self, stream: int = 0) -> None:
        while not self.finished(stream):
            pass

    def wait_for_all(self) -> None:
        for stream in self.queues:
            self.wait(stream)

    # ---------------------------------------------------------------------------------------- order

    def open_stream(self) -> int:
        stream = next(self._numbers)
        self.queues[stream] = []
        return stream

    def close_stream(self, stream: int) -> None:
        if self.queues[stream]:
            self.wait(stream)
        del self.queues[stream]

    def open_event(self, timed: bool) -> int:
        event = next(self._numbers)
        self._events[event] = _Moment(self, 0, True)
        return event

    def close_event(self, event: int) -> None:
        del self._events[event]

    def record(self, event: int, stream: int) -> None:
        assert self._noted is None or stream != 0, "an event was captured"
        moment = self._events[event] = _Moment(self, stream)

        def come() -> None:
            moment.come, moment.time = True, self._clock

        self.queue(stream).append(come)

    def hold(self, stream: int, event: int) -> None:
        moment = self._events[event]
        assert self._noted is None or stream != 0, "a capture waits for what is not in it"
        self.queue(stream).append(lambda: self._until(moment))

    def _until(self, moment: "_Moment") -> None:
        while not moment.come:
            moment.driver.finished(moment.stream)

    def happened(self, event: int) -> bool:
        return self._events[event].come

    def wait_for(self, event: int) -> None:
        self._until(self._events[event])

    def elapsed(self, start: int, end: int) -> float:
        return self._events[end].time - self._events[start].time


@dataclass
class _Moment:
    """Where an event was recorded, whether it has come, and how many launches had run then."""

    driver: SimulatedDriver
    stream: int
    come: bool = False
    time: float = 0.0


def launch(driver: Driver, entry: Entry, function: Function, grid: Sequence[int], **arguments: Any) -> None:
    """Run an entry of the device on arrays of the host: copied there, and back."""
    layout = layout_of(function)
    given = {
        name: np.ascontiguousarray(a) if isinstance(a, np.ndarray) else a for name, a in arguments.items()
    }
    slots = slots_of(pack(layout, grid, given))
    moved: list[tuple[int, Any]] = []

    def move(slot: int, values: Any) -> None:
        address = driver.allocate(values.nbytes)
        driver.upload(address, values.ctypes.data, values.nbytes)
        slots[slot] = address
        moved.append((address, values))

    for param in layout.params:
        if param.residual:
            move(param.slot + 1, given[param.name][1])
        elif isinstance(param.type, Array):
            move(param.slot, given[param.name])
    try:
        entry((ctypes.c_longlong * len(slots))(*slots))
    finally:
        for address, values in moved:
            driver.download(values.ctypes.data, address, values.nbytes)
            driver.free(address)
        for name, values in arguments.items():
            if isinstance(values, np.ndarray):
                values[...] = given[name]
