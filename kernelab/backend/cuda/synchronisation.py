"""Synchronisation with a CUDA device: streams that use the same memory, and launches whose status is pending.

A device's own stream hands memory out, takes it back, copies and clears.  Before it touches an allocation
it waits for the other streams in which launches have used it; any other stream waits for the own one.
Memory that another library looks at too has partners: streams in which that library works.  They and we
wait for each other around everything that is done there.  Knows the driver; must not know kernels.
"""

import ctypes
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from importlib import import_module
from typing import Protocol

from kernelab.backend.common.backends import (
    failure,
    interrupted,
    outgrown_error,
    thread_text,
    warn_of_wrapped_indices,
)
from kernelab.backend.cuda.faults import LostError
from kernelab.backend.cuda.nvidia import Driver
from kernelab.codegen.cpp.entry import (
    CODE,
    FULL,
    GRID_SLOTS,
    LIMIT,
    MEMORY,
    OK,
    SITE,
    STATUS_FIELDS,
    STOP,
    THREAD,
    WRAPPED,
    EntryInfo,
)
from kernelab.data_classes import dataclass, replace
from kernelab.errors import Diagnostic, KernelError, KernelIndexError

# ---------------------------------------------------------------------------------------------------- streams


LEGACY = 1
"""CUDA's word for its default stream, which PyTorch calls 0: CU_STREAM_LEGACY."""

ANY = -1
"""A partner whose streams are not known: the whole device is waited for."""


Partner = int | Callable[[], int]
"""A stream of another library, or what says which one that library uses now."""


class TorchStream:
    """The stream that PyTorch uses on a device at the moment in which it is asked for."""

    __slots__ = ("ordinal",)

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TorchStream) and other.ordinal == self.ordinal

    def __hash__(self) -> int:
        return hash(("torch", self.ordinal))

    def __call__(self) -> int:
        stream: int = import_module("torch").cuda.current_stream(self.ordinal).cuda_stream
        return stream or LEGACY


class Used(Protocol):
    """Memory of a device, and who else uses it."""

    used: set[int]
    partners: frozenset[Partner]


class EventPool:
    """Events for cross-stream waits, each in one use at a time.

    Freeing memory makes streams wait too, and Python frees it anywhere: between two calls of the
    driver, and in other threads.  A shared event would then be recorded anew before it was waited for.
    """

    __slots__ = ("_driver", "_idle")

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._idle: list[int] = []

    def hold(self, stream: int, other: int) -> None:
        """Make a stream wait for another one."""
        try:
            event = self._idle.pop()
        except IndexError:
            event = self._driver.open_event(timed=False)
        self._driver.record(event, other)
        self._driver.hold(stream, event)
        self._idle.append(event)


class StreamSync:
    """The streams of a device, as far as kernelab has opened them; 0 is the device's own."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._opened: set[int] = set()
        self.events = EventPool(driver)
        self.is_capturing = False
        """Whether launches are captured: all of them in the device's own stream, one after another."""

    def open(self) -> int:
        """A new stream."""
        stream = self._driver.open_stream()
        self._opened.add(stream)
        return stream

    def close(self, stream: int) -> None:
        """Give a stream back: what it has to do comes before what the device's own does from now on."""
        self._opened.discard(stream)
        if not self.is_capturing:  # then it has had nothing to do since all was waited for
            self.events.hold(0, stream)
        self._driver.close_stream(stream)

    def is_open(self, stream: int) -> bool:
        """Whether kernelab has opened a stream."""
        return stream in self._opened

    def before(self, memories: Iterable[Used], stream: int = 0) -> None:
        """Make a stream wait for all uses of memory by others."""
        if self.is_capturing:
            return
        waiting: set[int] = set()
        for memory in memories:
            if memory.used or memory.partners:
                waiting |= _streams(memory.partners) | (memory.used & self._opened)
                if not stream:
                    memory.used.clear()
        if ANY in waiting:
            self._driver.wait_for_all()
            return
        for other in waiting - {stream}:
            self.events.hold(stream, other)

    def after(self, memories: Collection[Used], stream: int = 0) -> bool:
        """Say that a stream has been given something to do with memory, which partners wait for.

        Returns whether the device's own stream waits for it now, as for one of another library: nobody says
        when that ends.
        """
        if self.is_capturing:
            return False
        partners = _streams(partner for memory in memories for partner in memory.partners)
        if stream in self._opened:
            for memory in memories:
                memory.used.add(stream)
        foreign = bool(stream) and stream not in self._opened
        if foreign:
            self.events.hold(0, stream)
        if ANY in partners:
            self._driver.wait(stream)
        else:
            for partner in partners - {stream}:
                self.events.hold(partner, stream)
        return foreign

    def meet(self, stream: int, other: int) -> None:
        """Make a stream wait for the work so far of another."""
        if ANY in (stream, other):
            self._driver.wait_for_all()
        else:
            self.events.hold(stream, other)


def _streams(partners: Iterable[Partner]) -> set[int]:
    return {partner() if callable(partner) else partner for partner in partners}


# ------------------------------------------------------------------------------------------- pending launches


MOST = 1024
"""The most pending launches: the next one waits for all of them."""

NAMED = 4
"""The number of launches that the message of a lost device names."""

BLOCK = 8 * STATUS_FIELDS
"""The bytes of a status block."""

Block = tuple[int, int]
"""A status block: its address for the host, and for the device."""


@dataclass(frozen=True, slots=True)
class PendingLaunch:
    """A launch that may still run: its entry, grid, status block, stream, and the line that launched it."""

    info: EntryInfo
    grid: Sequence[int]
    block: Block
    stream: int = 0
    place: object = ""

    @property
    def named(self) -> str:
        """The launch as a message calls it."""
        return f"`{self.info.name}`" + (f" ({self.place})" if self.place else "")

    def error(self) -> KernelError | None:
        """The error of the launch, None if there is none; warns where computed indices were negative."""
        status = list(fields(self.block))
        if status[CODE] != OK:
            return self.failure(status)
        try:
            warn_of_wrapped_indices(self.info, status[WRAPPED])
        except KernelIndexError as error:
            return error
        return None

    def failure(self, status: Sequence[int]) -> KernelError:
        """The error that its status block stands for, with the line that launched."""
        extents = self.grid[:GRID_SLOTS]
        if status[CODE] in (MEMORY, FULL):  # of workspace, and it is not run again with more
            thread = thread_text(status[THREAD], extents, self.info.coordinates)
            error: KernelError = outgrown_error(self.info.name, self.info.sites[status[SITE]], thread)
        else:
            error = failure(self.info, status, extents)
        if self.place:
            first, *rest = error.diagnostics
            message = f"{first.message}, launched in {self.place}"
            error.diagnostics = (replace(first, message=message), *rest)
        return error

    def stop(self) -> None:
        """Ask the launch to end."""
        fields(self.block)[STOP] = 1

    @property
    def reports(self) -> bool:
        """Whether it has anything to say by now."""
        return bool(fields(self.block)[CODE] != OK)

    @property
    def freed(self) -> list[Block]:
        """The blocks that others may use at its end."""
        return [self.block]


@dataclass(frozen=True, slots=True)
class PendingGraph:
    """A run of a graph: its launches report to blocks that stay theirs, as long as `keeper` lives."""

    launches: Sequence[PendingLaunch]
    stream: int = 0
    place: object = ""
    keeper: object = None

    @property
    def info(self) -> EntryInfo:
        """The entry of the first launch with something to report, else of the first."""
        return next((launch for launch in self.launches if launch.reports), self.launches[0]).info

    @property
    def named(self) -> str:
        """The graph as a message calls it."""
        names = ", ".join(dict.fromkeys(f"`{launch.info.name}`" for launch in self.launches))
        return f"the graph of {names}" + (f" ({self.place})" if self.place else "")

    @property
    def reports(self) -> bool:
        """Whether any of them has anything to say by now."""
        return any(launch.reports for launch in self.launches)

    def error(self) -> KernelError | None:
        """The first error, if any; clears the status blocks."""
        errors = [launch.error() for launch in self.launches]
        for launch in self.launches:
            ctypes.memset(launch.block[0], 0, BLOCK)
        return next(filter(None, errors), None)

    def stop(self) -> None:
        """Tell them to end."""
        for launch in self.launches:
            launch.stop()

    freed: Sequence[Block] = ()


Pending = PendingLaunch | PendingGraph


def fields(block: Block) -> "ctypes.Array[ctypes.c_longlong]":
    return (ctypes.c_longlong * STATUS_FIELDS).from_address(block[0])


class PendingLaunches:
    """The pending launches of a device, and the status blocks that they report to."""

    def __init__(self, driver: Driver, name: str) -> None:
        self._driver = driver
        self._name = name
        self._pending: list[Pending] = []
        self._blocks: list[Block] = []
        self.captured: list[PendingLaunch] | None = None
        """The launches of the capture that goes on; None where there is none."""
        self._turn = threading.RLock()
        self.lost: Diagnostic | None = None
        """Why the device is of no use any more; None while it is."""

    def __len__(self) -> int:
        return len(self._pending)

    def block(self, limit: int) -> Block:
        """A cleared status block for a launch, which says how much each thread may keep."""
        with self._turn:
            if len(self._pending) >= MOST:
                self.synchronize()
            if not self._blocks:
                host, device = self._driver.shared(BLOCK * 64)
                self._blocks += [(host + BLOCK * k, device + BLOCK * k) for k in range(63, -1, -1)]
            block = self._blocks.pop()
        ctypes.memset(block[0], 0, BLOCK)
        fields(block)[LIMIT] = limit
        return block

    def give_back(self, block: Block) -> None:
        """Return the status block of an ended launch to the pool."""
        self._blocks.append(block)

    def add(self, launch: Pending) -> None:
        """Note a launch that has been started, or captured."""
        if self.captured is not None:
            assert isinstance(launch, PendingLaunch)
            self.captured.append(launch)
            return
        with self._turn:
            self._pending.append(launch)

    def require_alive(self) -> None:
        """Raise LostError where an earlier launch has made the device unusable."""
        if self.lost is not None:
            raise LostError(self.lost)

    def move(self, stream: int) -> None:
        """Count launches of a stream as the device's own stream's, which waits for them."""
        with self._turn:
            self._pending = [replace(f, stream=0) if f.stream == stream else f for f in self._pending]

    def check(self) -> None:
        """Raise the first error that pending launches have reported by now."""
        if any(launch.reports for launch in self._pending):
            self.synchronize()

    def synchronize_with(self, launch: PendingLaunch) -> None:
        """Wait for all launches and one more, whose status the caller reads; raises like `synchronize`."""
        with self._turn:
            awaited, self._pending = self._pending, []
            self._finish(awaited, [*awaited, launch])

    def synchronize(self, stream: int | None = None) -> None:
        """Wait for the launches of a stream, or for all, and raise their first error.

        Raises KernelInterrupt where the user interrupts, after stopping the pending launches.
        """
        if not self._pending:
            return
        with self._turn:
            awaited = [launch for launch in self._pending if stream in (None, launch.stream)]
            self._pending = [launch for launch in self._pending if stream not in (None, launch.stream)]
            if awaited:
                self._finish(awaited, awaited)

    def _finish(self, asked: list[Pending], awaited: list[Pending]) -> None:
        """Wait for launches, and ask some of them what went wrong."""
        try:
            for stream in dict.fromkeys(launch.stream for launch in awaited):
                self._driver.wait(stream)
        except KeyboardInterrupt:
            for launch in awaited:
                launch.stop()
            for stream in dict.fromkeys(launch.stream for launch in awaited):
                while not self._driver.finished(stream):  # a wait would end at once in a thread of that cell
                    time.sleep(0)
            stopped = next((launch for launch in awaited if launch.reports), awaited[0])
            raise interrupted(stopped.info.name) from None
        except LostError as problem:
            self.lost = _loss(awaited, problem)
            raise LostError(self.lost) from problem
        errors = [error for launch in asked if (error := launch.error()) is not None]
        self._blocks += [block for launch in asked for block in launch.freed]
        if errors:
            raise errors[0]


def _loss(awaited: list[Pending], problem: KernelError) -> Diagnostic:
    """The error of a lost device, with the launches that may have caused it."""
    (why,) = problem.diagnostics
    names = ", ".join(launch.named for launch in awaited[:NAMED])
    if len(awaited) > NAMED:
        names += f" and {len(awaited) - NAMED} more"
    who, hint = f"running {names}", why.hint
    if len(awaited) > 1:
        who = f"one of the launches {names}"
        hint = f"{hint}; kl.synchronize() behind each launch then shows which one it is"
    return replace(why, message=why.message.replace("running a kernel", who), hint=hint)
