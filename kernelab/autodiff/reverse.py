"""The level of reverse mode: remembers the programs that run, and takes adjoints back through them.

What an adjoint will read is kept from just before it is overwritten.  Knows levels; must not know functions.
"""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass

from kernelab.autodiff.levels import (
    Argument,
    Extents,
    Kept,
    KeptStarts,
    KeptValues,
    Level,
    fresh,
    known,
    sharing,
    will_write,
)
from kernelab.autodiff.programs import Program, Pullback
from kernelab.errors import KernelTypeError
from kernelab.lang.types import Value, is_differentiable
from kernelab.runtime.memory import Allocation, allocate
from kernelab.runtime.strided import array


class Keeper:
    """Keeps the elements of an array that an adjoint will read, from just before they are overwritten."""

    __slots__ = ("__weakref__", "elements", "level", "saved")

    def __init__(self, level: Level, elements: array) -> None:
        self.level = level
        self.elements = elements
        self.saved: array | None = None
        elements.allocation.watch(self, elements.extent)
        if elements.allocation.is_exposed:
            self._keep()

    @property
    def now(self) -> array:
        """The elements as they were."""
        return self.elements if self.saved is None else self.saved

    def before_write(self, target: array) -> None:
        if target.overlaps(self.elements):
            self._keep()

    def exposed(self) -> None:
        self._keep()

    def _keep(self) -> None:
        if self.saved is None:
            made = fresh(self.elements.shape, self.elements.dtype)
            self.elements.allocation.unwatch(self, self.elements.extent)
            self.level.move(made, self.elements)
            self.saved = made


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """A program that ran, and all that its adjoint needs; `error` is why there is none."""

    program: Program
    pullback: Pullback | KernelTypeError
    grid: Extents
    arguments: tuple[Argument, ...]
    kept: tuple[Kept, ...]
    keepers: tuple[tuple[int, Keeper], ...]

    def pull(self, level: Level, bars: "Bars") -> None:
        changed = [given for i in self.program.changed if isinstance(given := self.arguments[i], array)]
        if not any(given.allocation in bars.memory for given in changed):
            return
        if isinstance(self.pullback, KernelTypeError):
            raise self.pullback
        arguments = list(self.arguments)
        for i, keeper in self.keepers:
            arguments[i] = keeper.now
        for i in self.pullback.active:
            primal = self.arguments[i]
            assert isinstance(primal, array)
            arguments.append(bars.of(primal))
        for kept in self.kept:
            arguments += [KeptValues(kept), KeptStarts(kept)]
        level.run(self.pullback.adjoint, self.grid, arguments)


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """A copy, or an addition."""

    dest: array
    src: array
    add: bool

    def pull(self, level: Level, bars: "Bars") -> None:
        if self.dest.allocation not in bars.memory:
            return
        moved = fresh(self.dest.shape, self.dest.dtype)
        level.move(moved, bars.of(self.dest))
        if not self.add:
            level.move(bars.of(self.dest), fresh(self.dest.shape, self.dest.dtype))
        level.move(bars.of(self.src), moved, add=True)


class Bars:
    """The adjoints of a pass back: a memory of zeros for each memory that is reached."""

    def __init__(self) -> None:
        self.memory: dict[Allocation, Allocation] = {}

    def of(self, primal: array) -> array:
        """The adjoint of an array."""
        memory = self.memory.get(primal.allocation)
        if memory is None:
            memory = self.memory[primal.allocation] = allocate(primal.allocation.nbytes, cleared=True)
        return primal.twin(memory)


class Reverse(Level):
    """Remembers what runs on the memories of `tracked`, which grow as results are computed from them."""

    def __init__(self, parent: Level) -> None:
        super().__init__(parent)
        self.tracked: set[Allocation] = set()
        self.entries: list[Run | Move] = []
        self._keepers: dict[tuple[bytes, Value], weakref.ref[Keeper]] = {}

    def run(self, program: Program, grid: Extents, arguments: Sequence[Argument]) -> None:
        will_write(program, arguments)
        found = known(arguments, program.floats, self.tracked)
        if not found:
            self.parent.run(program, grid, arguments)
            return
        active = tuple(i for i in program.floats if i in found or i in program.changed)
        try:
            pullback: Pullback | KernelTypeError = program.pullback(active, sharing(program, arguments))
        except KernelTypeError as error:
            pullback = error  # raised where an adjoint has to pass
        kept: tuple[Kept, ...] = ()
        keepers: tuple[tuple[int, Keeper], ...] = ()
        if isinstance(pullback, Pullback):
            kept = tuple(Kept(elem) for elem in pullback.residuals)
            self.parent.run(pullback.primal, grid, [*arguments, *kept])
            read = ((i, arguments[i]) for i in pullback.needed)
            keepers = tuple((i, self._keeper(given)) for i, given in read if isinstance(given, array))
        else:
            self.parent.run(program, grid, arguments)
        self.entries.append(Run(program, pullback, grid, tuple(arguments), kept, keepers))
        self.tracked.update(arguments[i].allocation for i in active)  # type: ignore[union-attr]

    def carries(self, memory: Allocation) -> bool:
        return memory in self.tracked

    def move(self, dest: array, src: array, add: bool = False) -> None:
        self.parent.move(dest, src, add)
        touched = dest.allocation in self.tracked or src.allocation in self.tracked
        if touched and is_differentiable(dest.dtype):
            self.entries.append(Move(dest, src, add))
            self.tracked.add(dest.allocation)

    def _keeper(self, elements: array) -> Keeper:
        key = elements.packed, elements.dtype
        ref = self._keepers.get(key)
        found = None if ref is None else ref()
        if found is None or found.saved is not None:
            found = Keeper(self.parent, elements)
            self._keepers[key] = weakref.ref(found)
        return found

    def pull(self, level: Level, bars: Bars) -> None:
        """Take adjoints back through all that ran, the last first, at a level."""
        for entry in reversed(self.entries):
            entry.pull(level, bars)
