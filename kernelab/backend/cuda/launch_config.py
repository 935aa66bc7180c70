"""How a launch runs on a CUDA device: threads of a block, stream, build of the kernel, and workspace.

The text for a device assumes, unless its function is `aliased`: arrays that it changes share no bytes with
others, nor do their elements; strides and extents are not negative and fit in 32 bits, and so does the
number of threads.  A launch that does not meet these runs another build.  Threads run one after another
where neither the text (`passes/access/independence.py`) nor the slots of the launch prove that they may run
at once.

What its threads save goes to a workspace, allocated before it.  A thread of the device has a part of the
arena for its loops; a thread of the grid, a part of each residual.  A thread cannot allocate more: where
its workspace was too small, what a launch has changed is put back and it runs again with twice as much.
"""

import ctypes
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from fractions import Fraction
from typing import Self

from kernelab.backend.common.reach import arrays_in, overlapping, reach_of
from kernelab.backend.cuda.nvidia import Driver
from kernelab.codegen.cpp.accumulator_helpers import MOST_THREADS
from kernelab.codegen.cpp.entry import GRID_SLOTS, TILE, EntryInfo, Layout, Param, layout_of
from kernelab.codegen.cpp.snippets import has_device_words
from kernelab.codegen.cpp.wide_accumulators import met_by_all
from kernelab.data_classes import dataclass
from kernelab.errors import LaunchError
from kernelab.lang.build import elem_of
from kernelab.lang.ir import Append, Atomic, Function, Native, of_kind
from kernelab.lang.types import Array, bytes_of, scalar_of
from kernelab.passes.access.independence import contested, own_atomics

# ---------------------------------------------------------------------------------------------- configuration


BLOCK = 256
"""The threads of a block where nobody says otherwise."""


@dataclass(frozen=True, slots=True)
class LaunchConfig:
    """The threads of a block, and how many blocks there are at most; 0 is as many as serve the device.

    With fewer threads than the grid has, each of them runs several of the grid's.
    """

    threads: int = BLOCK
    blocks: int = 0


DEFAULT_CONFIG = LaunchConfig()

LAUNCH_CONFIG: ContextVar[LaunchConfig] = ContextVar("kernelab launch configuration", default=DEFAULT_CONFIG)

NO_STREAMS: Mapping[str, int] = {}

STREAMS: ContextVar[Mapping[str, int]] = ContextVar("kernelab streams", default=NO_STREAMS)
"""The stream of each device in which launches run, by its name; the device's own where there is none."""


def current_stream(device: str) -> int:
    """The stream of a device in which launches run now."""
    return STREAMS.get().get(device, 0)


def config_of(block_dim: int, max_blocks: int) -> LaunchConfig:
    """The configuration that a launch asks for, `DEFAULT_CONFIG` itself where it is that.

    Raises LaunchError where no device can run it.
    """
    if block_dim == BLOCK and not max_blocks:
        return DEFAULT_CONFIG
    if not _is_int(block_dim) or not 1 <= block_dim <= MOST_THREADS:
        hint = f"block_dim is an int from 1 to {MOST_THREADS}, {BLOCK} unless given"
        raise LaunchError.of(f"a block cannot have {block_dim!r} threads", "block_dim", hint)
    if not _is_int(max_blocks):
        message = f"max_blocks cannot be {max_blocks!r}"
        raise LaunchError.of(message, "max_blocks", "pass an int; 0 sets no limit")
    return LaunchConfig(int(block_dim), max(int(max_blocks), 0))


def _is_int(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


# ------------------------------------------------------------------------------------------------------ build


MOST = 2**31 - 1
"""The largest number of threads, extent or stride for which positions fit in 32 bits."""


def is_specializable(layout: Layout, changed: frozenset[str], slots: Sequence[int]) -> bool:
    """Whether the packed slots of a launch meet the preconditions; `changed` names what it changes."""
    if threads_of(slots) > MOST:
        return False
    for _, _, _, shape, strides in arrays_in(layout, slots):
        if not 0 <= min(*shape, *strides) <= max(*shape, *strides) <= MOST:
            return False
    return not overlapping(layout, changed, slots)


def misaligned(layout: Layout, slots: Sequence[int]) -> Param | None:
    """The first array with numbers at addresses that are not multiples of their size; None if there is none.

    A CPU reads and writes those, a device fails.
    """
    for param, elem, address, shape, strides in arrays_in(layout, slots):
        size = scalar_of(elem).bits // 8
        steps = [stride for extent, stride in zip(shape, strides, strict=True) if extent > 1]
        if 0 not in shape and any(number % size for number in (address, *steps)):
            return param
    return None


# ----------------------------------------------------------------------------------------------- thread order


def in_turn(function: Function) -> str:
    """Why the threads of a function must not run at once on a device: the end of a sentence, "" if they may.

    They may where nobody stores to or reads an element that another thread changes: sums, and what else is
    the same in any order, excepted.
    """
    for stmt in of_kind(function.body, Native):
        if stmt.changed and not has_device_words(stmt.snippet):
            return f"its snippet {stmt.snippet.name} is written for threads that run one after another"
    for array in contested(function):
        return f"its threads may meet at elements of `{array.hint}`, where their order matters"
    return ""


def unordered(function: Function) -> str:
    """Why sums of a function may differ in their last bits from run to run: the end of a sentence, "" if not.

    Running totals of one element are left out: a block adds them up in one order.
    """
    ordered = {*own_atomics(function), *met_by_all(function)}
    for stmt in of_kind(function.body, Atomic):
        if stmt.kind == "add" and stmt not in ordered and scalar_of(elem_of(stmt.array)).is_float:
            return f"kl.config.deterministic is set, and its threads add to elements of `{stmt.array.hint}`"
    return ""


# -------------------------------------------------------------------------------------------------- workspace


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
        appended = Counter(stmt.array.hint for stmt in of_kind(function.body, Append))
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
        self._scratch.release()
