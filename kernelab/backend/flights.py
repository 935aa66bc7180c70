"""Launches on a device that have been started and not been looked after yet, each with a block to report to.

A launch on a device returns at once.  What went wrong is known when somebody waits: then the blocks are read
in the order of the launches, and the first failure is raised, with the line that launched.  Knows the
driver's protocol and status blocks; must not know arrays.
"""

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernelab.backend.base import failure, interrupted, outgrown_error, thread_text
from kernelab.backend.driver import Driver, LostError, wait_until
from kernelab.codegen.entry import (
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
"""So many launches may be under way: the next one waits for all of them."""

TOLD = 4
"""How many launches the message of a lost device names."""

Block = tuple[int, int]
"""A status block: its address for the host, and for the device."""


@dataclass(frozen=True, slots=True)
class Flight:
    """A launch under way: what it was, the block that it reports to, where it runs and who launched it."""

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
        """What went wrong; None if nothing did."""
        status = list(fields(self.block))
        return None if status[CODE] == OK else self.failure(status)

    def failure(self, status: Sequence[int]) -> KernelError:
        """The error that its status block stands for, with the line that launched."""
        found = self._outgrown(status) or failure(self.info, status, self.grid[:GRID_SLOTS])
        if self.place:
            first, *rest = found.diagnostics
            message = f"{first.message}, launched in {self.place}"
            found.diagnostics = (replace(first, message=message), *rest)
        return found

    def _outgrown(self, status: Sequence[int]) -> KernelError | None:
        """Of a launch that nobody runs again with more room: what it means that there was too little."""
        if status[CODE] not in (MEMORY, FULL):
            return None
        place = thread_text(status[THREAD], self.grid[:GRID_SLOTS], self.info.coordinates)
        return outgrown_error(self.info.name, self.info.sites[status[SITE]], place)

    def stop(self) -> None:
        """Tell it to end."""
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
class Replay:
    """Launches of a graph under way: they report to blocks that stay theirs, and `keeper` keeps."""

    flights: Sequence[Flight]
    stream: int = 0
    place: object = ""
    keeper: object = None

    @property
    def info(self) -> EntryInfo:
        """What the first of them that has something to say is, else the first."""
        return next((flight for flight in self.flights if flight.reports), self.flights[0]).info

    @property
    def named(self) -> str:
        """The graph as a message calls it."""
        names = ", ".join(dict.fromkeys(f"`{flight.info.name}`" for flight in self.flights))
        return f"the graph of {names}" + (f" ({self.place})" if self.place else "")

    @property
    def reports(self) -> bool:
        """Whether any of them has anything to say by now."""
        return any(flight.reports for flight in self.flights)

    def error(self) -> KernelError | None:
        """What went wrong first; the blocks are cleared by that."""
        found = [error for flight in self.flights if (error := flight.error()) is not None]
        for flight in self.flights:
            ctypes.memset(flight.block[0], 0, 8 * STATUS_FIELDS)
        return found[0] if found else None

    def stop(self) -> None:
        """Tell them to end."""
        for flight in self.flights:
            flight.stop()

    freed: Sequence[Block] = ()


def fields(block: Block) -> "ctypes.Array[ctypes.c_longlong]":
    """The fields of a status block."""
    return (ctypes.c_longlong * STATUS_FIELDS).from_address(block[0])


class Flights:
    """The launches of a device that are under way."""

    def __init__(self, driver: Driver, name: str) -> None:
        self._driver = driver
        self._name = name
        self._flying: list[Flight | Replay] = []
        self._blocks: list[Block] = []
        self.captured: list[Flight] | None = None
        """The launches of the capture that goes on; None where there is none."""
        self._joined: list[Flights] = []
        self._turn = threading.RLock()
        self.lost: Diagnostic | None = None
        """Why the device is of no use any more; None while it is."""

    def __len__(self) -> int:
        return len(self._flying)

    def block(self, limit: int) -> Block:
        """A cleared status block for a launch, which says how much each thread may keep."""
        with self._turn:
            if len(self._flying) >= MOST:
                self.settle()
            made = self._blocks.pop() if self._blocks else self._new()
        ctypes.memset(made[0], 0, 8 * STATUS_FIELDS)
        fields(made)[LIMIT] = limit
        return made

    def _new(self) -> Block:
        size = 8 * STATUS_FIELDS
        host, device = self._driver.shared(size * 64)
        self._blocks += [(host + size * k, device + size * k) for k in range(63, 0, -1)]
        return host, device

    def give_back(self, block: Block) -> None:
        """Let another launch use a status block, whose launch has ended."""
        self._blocks.append(block)

    def add(self, flight: Flight | Replay) -> None:
        """Look after a launch that has been started, or captured."""
        if self.captured is not None:
            assert isinstance(flight, Flight)
            self.captured.append(flight)
            return
        with self._turn:
            self._flying.append(flight)

    def require_alive(self) -> None:
        """Raise LostError where an earlier launch has made the device unusable."""
        if self.lost is not None:
            raise LostError(self.lost)

    def join(self, other: "Flights") -> None:
        """Say that this device and another have exchanged bytes: who waits for one waits for both."""
        for one, its in ((self, other), (other, self)):
            if its not in one._joined:
                one._joined.append(its)

    def move(self, stream: int) -> None:
        """Look for launches of a stream in the device's own, which waits for it."""
        with self._turn:
            self._flying = [replace(f, stream=0) if f.stream == stream else f for f in self._flying]

    def look(self) -> None:
        """Raise the first error that launches have met by now."""
        if any(flight.reports for flight in self._flying):
            self.settle()

    def settle_with(self, flight: Flight) -> None:
        """Wait for all launches and one more, whose status its launcher reads; raises as `settle` does."""
        with self._turn:
            landing, self._flying = self._flying, []
            self._land(landing, [*landing, flight])

    def settle(self, stream: int | None = None) -> None:
        """Wait for the launches of a stream, or for all, and raise the first error that they have met.

        Raises KernelInterrupt where the user interrupts: what is under way is told to stop.
        """
        if self._joined:
            joined, self._joined = self._joined, []  # those come back here, and find none
            for other in joined:
                other.settle()
        if not self._flying:
            return
        with self._turn:
            landing = [flight for flight in self._flying if stream in (None, flight.stream)]
            self._flying = [flight for flight in self._flying if stream not in (None, flight.stream)]
            if landing:
                self._land(landing, landing)

    def _land(self, asked: list[Flight | Replay], landing: list[Flight | Replay]) -> None:
        """Wait for launches, and ask some of them what went wrong."""
        try:
            for stream in dict.fromkeys(flight.stream for flight in landing):
                wait(self._driver, stream)
        except KeyboardInterrupt:
            self._stop(landing)
            raise interrupted(self._running(landing).info.name) from None
        except LostError as problem:
            self.lost = self._told(landing, problem)
            raise LostError(self.lost) from problem
        errors = [error for flight in asked if (error := flight.error()) is not None]
        self._blocks += [block for flight in asked for block in flight.freed]
        if errors:
            raise errors[0]

    def _stop(self, landing: list[Flight | Replay]) -> None:
        for flight in landing:
            flight.stop()
        for stream in dict.fromkeys(flight.stream for flight in landing):
            self._driver.wait(stream)

    def _running(self, landing: list[Flight | Replay]) -> Flight | Replay:
        """The launch that an interrupt has met: the first that was told to stop before its end."""
        return next((flight for flight in landing if flight.reports), landing[0])

    def _told(self, landing: list[Flight | Replay], problem: KernelError) -> Diagnostic:
        """Which launches may have made the device unusable: it does not say which of them did."""
        (why,) = problem.diagnostics
        names = ", ".join(flight.named for flight in landing[:TOLD])
        more = len(landing) - TOLD
        names += f" and {more} more" if more > 0 else ""
        who = f"running {names}" if len(landing) == 1 else f"one of the launches {names}"
        message = why.message.replace("running a kernel", who)
        hint = why.hint
        if len(landing) > 1:
            hint = f"{hint}; kl.synchronize() behind each launch then shows which one it is"
        return replace(why, message=message, hint=hint)


def wait(driver: Driver, stream: int) -> None:
    """Wait for a stream so that Python handles signals meanwhile."""
    wait_until(lambda: driver.finished(stream))
