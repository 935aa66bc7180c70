"""The owners of ranges of addresses, to find the owner of memory that arrives as a bare address.

Knows addresses only.  The owners are held weakly, and own disjoint ranges.
"""

import weakref
from bisect import bisect_left, bisect_right, insort
from typing import Generic, Protocol, TypeVar


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
        self._bury()
        start = owner.address
        if start not in self._owners:
            insort(self._starts, start)
        # The list is only noted here: an owner may die while another one is being added.
        self._owners[start] = weakref.ref(owner, lambda _: self._dead.append(start))

    def moved(self, owner: T, before: int) -> None:
        """The owner that had its range at an address has grown."""
        self._owners.pop(before, None)
        del self._starts[bisect_left(self._starts, before)]
        self.add(owner)

    def owners(self, low: int, high: int) -> list[T]:
        """The allocations that own any byte between two addresses."""
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
