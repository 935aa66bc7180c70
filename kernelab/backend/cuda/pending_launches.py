"""Asynchronous launches on a device whose status has not been checked yet.

A launch on a device returns at once, and reports to a status block of its own.  When somebody waits, the
blocks are read in the order of the launches, and the first failure is raised, with the line that launched.
Knows the driver's protocol and status blocks; must not know arrays.
"""

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernelab.backend.common.backends import failure, interrupted, outgrown_error, thread_text
from kernelab.backend.cuda.driver import Driver, LostError
from kernelab.codegen.common.entry import (
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
    EntryInfo,
)
from kernelab.errors import Diagnostic, KernelError

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
        """The error of the launch; None if there is none."""
        status = list(fields(self.block))
        return None if status[CODE] == OK else self.failure(status)

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
    """The fields of a status block."""
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
        self._joined: list[PendingLaunches] = []
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

    def join(self, other: "PendingLaunches") -> None:
        """Say that this device and another have exchanged bytes: who waits for one waits for both."""
        for one, its in ((self, other), (other, self)):
            if its not in one._joined:
                one._joined.append(its)

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
        if self._joined:
            joined, self._joined = self._joined, []  # those come back here, and find none
            for other in joined:
                other.synchronize()
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
                self._driver.wait(stream)
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
