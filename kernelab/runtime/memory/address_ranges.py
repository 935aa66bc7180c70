"""Who owns, and who watches, ranges of addresses.

`Ranges` finds the owner of memory that arrives as a bare address; `Watches` the watchers of bytes that are
about to be written.  Both hold what they find weakly, and threads take turns in them.  Knows addresses;
must not know memory.
"""

import weakref
from bisect import bisect_left, bisect_right, insort
from typing import Any, Generic, Protocol, TypeVar

from kernelab.data_classes.turns import Turn

LISTS = Turn()
"""Who goes through lists of owners, watchers or witnesses, or changes them, holds this."""


class Owner(Protocol):
    """The owner of the bytes from `address` on."""

    address: int
    nbytes: int


T = TypeVar("T", bound=Owner)


class Ranges(Generic[T]):
    """The living owners, by address."""

    __slots__ = ("_dead", "_owners", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._owners: dict[int, weakref.ref[T]] = {}
        self._dead: list[int] = []

    def add(self, owner: T) -> None:
        """Remember an owner until it dies; nothing else may own any of its bytes."""
        with LISTS.lock:
            self._bury()
            start = owner.address
            if start not in self._owners:
                insort(self._starts, start)
            # The list is only noted here: an owner may die while another one is being added.
            self._owners[start] = weakref.ref(owner, lambda _: self._dead.append(start))

    def moved(self, owner: T, before: int) -> None:
        """The owner that had its range at an address has grown."""
        with LISTS.lock:
            self._owners.pop(before, None)
            del self._starts[bisect_left(self._starts, before)]
            self.add(owner)

    def owners(self, low: int, high: int) -> list[T]:
        """The allocations that own any byte between two addresses."""
        with LISTS.lock:
            self._bury()
            first = max(0, bisect_right(self._starts, low) - 1)
            last = bisect_left(self._starts, high)
            living = [self._owners[start]() for start in self._starts[first:last]]
        return [owner for owner in living if owner is not None and low < owner.address + owner.nbytes]

    def all(self) -> list[T]:
        """Every living owner."""
        return [owner for ref in list(self._owners.values()) if (owner := ref()) is not None]

    def _bury(self) -> None:
        while self._dead:
            start = self._dead.pop()
            owner = self._owners.get(start)
            if owner is not None and owner() is None:
                del self._owners[start], self._starts[bisect_left(self._starts, start)]


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
        with LISTS.lock:
            # From here on nothing is made that Python would look for garbage at, which drops others.
            position = bisect_right(self.starts, start)
            self.starts.insert(position, start)
            self._watched.insert(position, watched)
            self._longest = max(self._longest, stop - start)

    def remove(self, watcher: Watcher, start: int) -> None:
        """Forget a watcher, given its first address."""
        with LISTS.lock:
            for _, ref in self._watched[bisect_left(self.starts, start) : bisect_right(self.starts, start)]:
                if ref() is watcher:
                    self._drop(start, ref)

    def of(self, low: int, high: int) -> list[Watcher]:
        """The watchers of any bytes between two addresses."""
        with LISTS.lock:
            first, last = bisect_left(self.starts, low - self._longest), bisect_left(self.starts, high)
            watchers = [ref() for stop, ref in self._watched[first:last] if low < stop]
        return [watcher for watcher in watchers if watcher is not None]

    def _drop(self, start: int, gone: weakref.ref[Watcher]) -> None:
        with LISTS.lock:
            position = bisect_left(self.starts, start)
            while self._watched[position][1] is not gone:
                position += 1
            del self.starts[position], self._watched[position]
