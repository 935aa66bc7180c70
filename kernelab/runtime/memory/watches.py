"""The watchers of a stretch of memory, found by the bytes that they watch.

Knows addresses; must not know memory.
"""

import weakref
from bisect import bisect_left, bisect_right
from typing import Any, Protocol

Elements = Any
"""An array over the memory."""


class Watcher(Protocol):
    """Someone who needs the bytes of an allocation as they are."""

    def before_write(self, target: Elements) -> None:
        """`target`, an array over the watched allocation, is about to be overwritten."""

    def exposed(self) -> None:
        """The host is about to get a writable view of the allocation."""


class Watches:
    """The watchers of an allocation, by the first address that each watches: `starts` are these."""

    __slots__ = ("_longest", "_watched", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self._watched: list[tuple[int, weakref.ref[Watcher]]] = []
        self._longest = 0

    def __len__(self) -> int:
        return len(self.starts)

    def add(self, watcher: Watcher, start: int, stop: int) -> None:
        """Add a watcher, which is forgotten when it dies."""
        watched = stop, weakref.ref(watcher, lambda ref: self._drop(start, ref))
        # From here on nothing is made that Python would look for garbage at, which drops others.
        position = bisect_right(self.starts, start)
        self.starts.insert(position, start)
        self._watched.insert(position, watched)
        self._longest = max(self._longest, stop - start)

    def remove(self, watcher: Watcher, start: int) -> None:
        """Forget a watcher, given its first address."""
        for _, ref in self._watched[bisect_left(self.starts, start) : bisect_right(self.starts, start)]:
            if ref() is watcher:
                self._drop(start, ref)

    def of(self, low: int, high: int) -> list[Watcher]:
        """The watchers of any bytes between two addresses."""
        first, last = bisect_left(self.starts, low - self._longest), bisect_left(self.starts, high)
        watchers = [ref() for stop, ref in self._watched[first:last] if low < stop]
        return [watcher for watcher in watchers if watcher is not None]

    def _drop(self, start: int, gone: weakref.ref[Watcher]) -> None:
        position = bisect_left(self.starts, start)
        while self._watched[position][1] is not gone:
            position += 1
        del self.starts[position], self._watched[position]
