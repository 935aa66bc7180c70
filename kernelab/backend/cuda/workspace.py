"""The workspace of a launch on a device: memory, allocated before it, for the values that its threads save.

A thread of the device has a part of the arena for its loops; a thread of the grid, a part of each residual.
A thread cannot allocate more: where its workspace was too small, what a launch has changed is put back and it
runs again with twice as much.
"""

import ctypes
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

from kernelab.backend.cuda.driver import Driver
from kernelab.backend.cuda.launch_config import reach_of
from kernelab.codegen.cpp.entry import GRID_SLOTS, TILE, EntryInfo, Layout, layout_of
from kernelab.lang.ir import Append, Function, walk
from kernelab.lang.types import Array, bytes_of

FIRST_ARENA = 512
"""The bytes of the arena that a thread has at first."""


def threads_of(slots: Sequence[int]) -> int:
    """The number of threads of a launch."""
    return math.prod(slots[:GRID_SLOTS])


class Scratch:
    """Memory of the device that is freed after a launch."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._addresses: list[int] = []

    def allocate(self, nbytes: int) -> int:
        """New memory; raises KernelMemoryError."""
        self._addresses.append(self._driver.allocate(max(nbytes, 8)))
        return self._addresses[-1]

    def keep(self, address: int) -> None:
        """Transfer the ownership of some memory to the caller."""
        self._addresses.remove(address)

    def release(self) -> None:
        """Give back all that is left."""
        while self._addresses:
            self._driver.free(self._addresses.pop())


@dataclass(slots=True)
class Workspace:
    """The workspace of each thread: bytes of the arena, and elements of each residual by its name."""

    arena: int
    residuals: dict[str, int]

    @classmethod
    def of(cls, function: Function) -> Self:
        """The workspace that a function starts with: each place that appends may be passed once."""
        appended = Counter(stmt.array.hint for stmt in walk(function.body) if isinstance(stmt, Append))
        return cls(0 if layout_of(function).arena is None else FIRST_ARENA, dict(appended))

    @property
    def needed(self) -> bool:
        return bool(self.arena or self.residuals)

    def fit(self, layout: Layout, threads: int, most: int) -> None:
        """Begin a launch with at most so many bytes of residuals, 0 is any number."""
        kept = self.kept(layout, threads)
        if 0 < most < kept:
            self.residuals = {name: max(count * most // kept, 1) for name, count in self.residuals.items()}

    def grow(self, layout: Layout, threads: int, most: int) -> bool:
        """Double it, with at most `most` bytes of residuals (0 is any number); False if none may grow."""
        kept = self.kept(layout, threads)
        times = Fraction(most, kept) if 0 < most < 2 * kept else 2
        larger = {name: int(times * count) for name, count in self.residuals.items()}
        if larger and all(larger[name] <= count for name, count in self.residuals.items()):
            return False
        self.arena, self.residuals = 2 * self.arena, larger
        return True

    def kept(self, layout: Layout, threads: int) -> int:
        """The bytes that the residuals of a launch take."""
        arrays = (param for param in layout.params if param.residual)
        return sum(
            self._elements(param.name, threads) * bytes_of(param.type.elem)
            for param in arrays
            if isinstance(param.type, Array)
        )

    def _elements(self, name: str, threads: int) -> int:
        """The number of elements of a residual, in whole tiles."""
        return -(-threads // TILE) * TILE * self.residuals[name]

    def allocate(
        self, layout: Layout, slots: list[int], threads_at_once: int, threads: int, scratch: Scratch
    ) -> None:
        """Fill the slots of the arena, for the threads that run at once, and of residuals, for the grid."""
        if layout.arena is not None:
            slots[layout.arena] = scratch.allocate(threads_at_once * self.arena)
            slots[layout.arena + 1] = self.arena
        for param in layout.params:
            if param.residual:
                assert isinstance(param.type, Array)
                each, count = self.residuals[param.name], self._elements(param.name, threads)
                slots[param.slot] = scratch.allocate(count * bytes_of(param.type.elem))
                slots[param.slot + 2] = each

    def hand_over(
        self, layout: Layout, slots: Sequence[int], filled: Sequence[int], scratch: Scratch
    ) -> None:
        """Say in the host's handle of each residual where its values are, and how many; they are its now."""
        for param in layout.params:
            if param.residual:
                handle = (ctypes.c_longlong * 3).from_address(slots[param.slot])
                count = self._elements(param.name, threads_of(slots))
                scratch.keep(filled[param.slot])
                handle[:] = [filled[param.slot], count, count]


class Snapshot:
    """The elements of what a launch may change, as they were before it."""

    def __init__(
        self, driver: Driver, info: EntryInfo, changed: frozenset[str], slots: Sequence[int]
    ) -> None:
        self._driver = driver
        self._scratch = Scratch(driver)
        self._copies: list[tuple[int, int, int]] = []
        for name, reach in reach_of(info.layout, slots).items():
            nbytes = reach.high - reach.low
            if name in changed and nbytes:
                copy = self._scratch.allocate(nbytes)
                driver.copy(copy, reach.low, nbytes)
                self._copies.append((reach.low, copy, nbytes))

    def put_back(self) -> None:
        """Undo what the launch has changed."""
        for low, copy, nbytes in self._copies:
            self._driver.copy(low, copy, nbytes)

    def release(self) -> None:
        """Forget it."""
        self._scratch.release()
