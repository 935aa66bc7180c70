"""Synchronisation of the streams of a device that use the same memory, by a pool of CUDA events.

A device's own stream hands memory out, takes it back, copies and clears.  Before it touches an allocation it
waits for the other streams in which launches have used it; any other stream waits for the own one.  Memory
that another library looks at too has partners: streams in which that library works.  They and we wait for
each other around everything that is done there.  Knows the driver; must not know kernels.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from kernelab.backend.cuda.driver import Driver

LEGACY = 1
"""CUDA's word for its default stream, which PyTorch calls 0: CU_STREAM_LEGACY."""

ANY = -1
"""A partner whose streams are not known: the whole device is waited for."""


Partner = int | Callable[[], int]
"""A stream of another library, or what says which one that library uses now."""


class Used(Protocol):
    """Memory of a device, and who else uses it."""

    used: set[int]
    partners: frozenset[Partner]


class EventPool:
    """Events for cross-stream waits, each in one use at a time.

    Whoever frees memory makes streams wait too, and Python frees it anywhere: between two calls of the
    driver, and in other threads.  A shared event would then be recorded anew before it was waited for.
    """

    __slots__ = ("_driver", "_idle")

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._idle: list[int] = []

    def hold(self, stream: int, other: int, waiting: Driver | None = None) -> None:
        """Make a stream, of the device `waiting` if one is given, wait for another of this device."""
        try:
            event = self._idle.pop()
        except IndexError:
            event = self._driver.open_event(timed=False)
        self._driver.record(event, other)
        (waiting or self._driver).hold(stream, event)
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

    def follow(self, other: "StreamSync") -> None:
        """Make the device's own stream wait for the work so far of another device's own stream."""
        other.events.hold(0, 0, waiting=self._driver)


def _streams(partners: Iterable[Partner]) -> set[int]:
    return {partner() if callable(partner) else partner for partner in partners}
