"""The level of reverse mode: records the programs that run and sweeps their adjoints.

What an adjoint will read is kept from just before it is overwritten.  Adjoints of 16 bits that many
launches add to are summed in float32:

    w (bfloat16) read by 1000 launches     w_bar += each launch's share, in float32; rounded once, at the end

A bfloat16 that sums ones stops at 256, a float16 at 2048.  A sum ends with the first launch that reads what
was written: the adjoint of the write finds it rounded.  Each view has sums of its own.  The sums are
programs, run at the level of the backward pass, so lanes and derivatives of it are those of any other
program.  Knows levels; must not know functions.
"""

import weakref
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import cache
from math import prod
from typing import Any, Protocol

from kernelab.autodiff.records.adjoint_buffers import (
    Adjoints,
    Argument,
    Extents,
    Kept,
    KeptStarts,
    KeptValues,
)
from kernelab.autodiff.records.records import LaunchEntry
from kernelab.autodiff.records.snapshots import Snapshot, room
from kernelab.autodiff.transforms.host_calls import HostCall, of_recorded
from kernelab.autodiff.transforms.levels import BASE, Level, active_with, carried, fresh
from kernelab.autodiff.transforms.trees import scalars
from kernelab.backend.cuda.launch_config import LAUNCH_CONFIG, LaunchConfig
from kernelab.data_classes import dataclass
from kernelab.errors import KernelTypeError
from kernelab.lang.types import HALVES, Array, Scalar, float32, is_differentiable, scalar_of
from kernelab.passes.access.access_regions import Box, Region
from kernelab.passes.access.dead_ends import DeadEnd
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import Place, caller
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.program import Program, Pullback
from kernelab.runtime.kernel.texts import kernels_of
from kernelab.runtime.launch.footprint import box_and_whole, settled
from kernelab.runtime.memory.memory import Allocation
from kernelab.runtime.memory.streams import configured


class LevelSnapshot(Snapshot):
    """What an adjoint will read of an array, copied at a level, where lanes may differ, and as a whole."""

    __slots__ = ("_find_box", "level", "saved")

    def __init__(
        self, level: Level, elements: array, find_box: Callable[[], tuple[Box | None, bool]]
    ) -> None:
        self.level = level
        self.saved: array | None = None
        self._find_box = find_box
        super().__init__(elements)

    def box(self) -> tuple[Box | None, bool]:
        return self._find_box()

    def overwritten(self, target: array, needed: array) -> None:
        self.exposed()

    def exposed(self) -> None:
        needed = self.needed()
        if needed is not None:
            view, kept = room(self.elements, self._box)
            self.release()
            self.level.move(kept, needed)
            self.saved = view


class Ran(LaunchEntry):
    """A program that ran at a level; `arguments` are None where they are of no interest."""

    __slots__ = ()

    program: Program
    arguments: tuple[Any, ...]

    @property
    def title(self) -> str:
        return f"the launch of `{self.program.name}`"

    @property
    def dead_ends(self) -> Sequence[tuple[DeadEnd, array, array]]:
        ends, names = self.program.dead_ends, (param.hint for param in self.program.function.params)
        given: dict[str, Any] = dict(zip(names, self.arguments, strict=True)) if ends else {}
        pairs = [(end, given[end.source], given[end.target]) for end in ends]
        return [(end, a, b) for end, a, b in pairs if a is not None and b is not None]

    @property
    def written(self) -> list[array]:
        """The arrays that it changed."""
        return self._arrays(self.program.changed)

    def _arrays(self, among: Iterable[int]) -> list[array]:
        return [argument for i in among if isinstance(argument := self.arguments[i], array)]


@dataclass(frozen=True, slots=True, eq=False)
class Run(Ran):
    """A program that ran at a level, and all that its adjoint needs; `pullback` may be why there is none.

    `inner` says, for each residual that it was given, through how many levels of lanes that had come;
    `config` is the launch configuration with which it ran on a CUDA device.
    """

    program: Program
    pullback: Pullback | KernelTypeError
    grid: Extents
    arguments: tuple[Argument, ...]
    kept: tuple[Kept, ...]
    snapshots: tuple[tuple[int, LevelSnapshot], ...]
    inner: dict[int, int]
    config: LaunchConfig
    place: Place

    @property
    def reached(self) -> list[array]:
        """The arrays that adjoints flow to."""
        reached = self.pullback.reached if isinstance(self.pullback, Pullback) else ()
        return self._arrays(i for i in reached if i in self.program.reads)

    def pull(self, level: Level, bars: Adjoints) -> None:
        if not any(bars.reach(self.arguments[i]) for i in self.program.changed):
            return
        if isinstance(self.pullback, KernelTypeError):
            raise self.refused(self.pullback)
        self.pullback.tell_rounded_sums(prod(self.grid))
        with configured(self.config):
            level.run(self.pullback.adjoint, self.grid, self._adjoint_arguments(self.pullback, bars))

    def _adjoint_arguments(self, pullback: Pullback, bars: Adjoints) -> list[Argument]:
        """The arguments of the adjoint, in the order of its parameters."""
        arguments = [KeptValues(a) if isinstance(a, Kept) else a for a in self.arguments]
        for i, saved in self.saved().items():
            arguments[i] = saved
        arguments += [bars.of_argument(self.arguments[i]) for i in pullback.active]
        for kept in self.kept:
            arguments += [KeptValues(kept), KeptStarts(kept)]
        for i in pullback.reopened:
            reopened = self.arguments[i]
            assert isinstance(reopened, Kept)
            arguments.append(KeptStarts(reopened, self.inner[i]))
        return [*arguments, *(bars.of_residual(self.kept[k]) for k in pullback.memories)]


@dataclass(frozen=True, slots=True, eq=False)
class Passed(Ran):
    """A program that ran on what has come from the inputs through integers: it has derivative zero."""

    program: Program
    arguments: tuple[array | None, ...]
    place: Place

    @property
    def reached(self) -> list[array]:
        """The arrays that it read."""
        return self._arrays(self.program.reads)

    def pull(self, level: Level, bars: Adjoints) -> None:
        """Do nothing: no adjoint passes."""


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """A copy, or an addition."""

    dest: array
    src: array
    add: bool

    @property
    def reached(self) -> tuple[array]:
        return (self.src,)

    @property
    def written(self) -> tuple[array]:
        return (self.dest,)

    def pull(self, level: Level, bars: Adjoints) -> None:
        if not bars.reach(self.dest):
            return
        moved = level.copy(bars.of(self.dest))
        if not self.add:
            level.move(bars.of(self.dest), fresh(self.dest.shape, self.dest.dtype, self.dest))
        level.move(bars.of(self.src), moved, add=True)


@dataclass(frozen=True, slots=True, eq=False)
class HostRun:
    """A Python function that ran; `kept` are copies of its arguments and results."""

    call: HostCall
    arguments: tuple[array, ...]
    results: tuple[array, ...]
    kept: tuple[array, ...]

    @property
    def reached(self) -> tuple[array, ...]:
        return self.arguments

    @property
    def written(self) -> tuple[array, ...]:
        return self.results

    def pull(self, level: Level, bars: Adjoints) -> None:
        if not any(bars.reach(result) for result in self.results):
            return
        seeds = [level.copy(bars.of(result)) for result in self.results]
        for result in self.results:
            level.move(bars.of(result), fresh(result.shape, result.dtype, result))
        adjoints = level.call_host(self.call.reversed(len(self.results)), [*self.kept, *seeds])
        for source, bar in zip(self.arguments, adjoints, strict=True):
            level.move(bars.of(source), bar, add=True)


@dataclass(frozen=True, slots=True, eq=False)
class FunctionRun:
    """A function of `record_func`, which changes the adjoints of arrays; `kept` is what these held."""

    call: HostCall
    arrays: tuple[array, ...]
    kept: tuple[array, ...]

    @property
    def reached(self) -> tuple[array, ...]:
        return self.arrays

    @property
    def written(self) -> tuple[array, ...]:
        return self.arrays

    def pull(self, level: Level, bars: Adjoints) -> None:
        given = [level.copy(bars.of(elements)) for elements in self.arrays]
        for elements, bar in zip(self.arrays, level.call_host(self.call, [*self.kept, *given]), strict=True):
            level.move(bars.of(elements), bar)


class Explaining(Level):
    """Keeps what ran in `entries`, also on what came from the inputs through integers, to explain zeros."""

    def __init__(self, parent: Level) -> None:
        super().__init__(parent)
        self.entries: list[Any] = []
        self._ended: set[Allocation] = set()

    def _ran(self, entry: Ran) -> None:
        """Keep a program that ran on what carries derivatives."""
        self.entries.append(entry)
        ends = entry.dead_ends
        self._ended.update(target.allocation for _, _, target in ends if not is_differentiable(target.dtype))

    def _pass(self, program: Program, arguments: Sequence[Argument]) -> None:
        """Keep a program that ran on nothing that carries derivatives, if it may have to be explained."""
        if self._ended and any(self._has_ended(arguments[i]) for i in program.reads):
            arrays = tuple(argument if isinstance(argument, array) else None for argument in arguments)
            passed = Passed(program, arrays, caller())
            self.entries.append(passed)
            self._ended.update(target.allocation for target in passed.written)

    def _has_ended(self, argument: Argument) -> bool:
        return isinstance(argument, array) and argument.allocation in self._ended

    def _pass_move(self, dest: array, src: array, add: bool) -> None:
        if src.allocation in self._ended:
            self.entries.append(Move(dest, src, add))
            self._ended.add(dest.allocation)


class Reverse(Explaining):
    """Remembers what runs on the memories of `tracked`, which grow as results are computed from them.

    What programs append is tracked, too: another program may be an adjoint that reads it.
    """

    def __init__(self, parent: Level) -> None:
        super().__init__(parent)
        self.tracked: set[Allocation] = set()
        self._appended: set[Kept] = set()
        self._made: dict[int, list[Allocation]] = {}
        self._snapshots: dict[Hashable, weakref.ref[LevelSnapshot]] = {}

    def _run(self, program: Program, grid: Extents, arguments: Sequence[Argument]) -> None:
        tracked = {i for i in program.floats if carried(arguments[i], self.tracked, self._appended)}
        if not tracked:
            self.parent.run(program, grid, arguments)
            self._pass(program, arguments)
            return
        groups = program.sharing(arguments)
        active = active_with(tracked, program, groups)
        intact = settled(program, grid, arguments, groups)
        try:
            pullback: Pullback | KernelTypeError = program.pullback(active, groups, intact)
        except KernelTypeError as error:
            pullback = error  # raised where an adjoint has to pass
        kept: tuple[Kept, ...] = ()
        snapshots: tuple[tuple[int, LevelSnapshot], ...] = ()
        inner = {i: len(a.extents) for i, a in enumerate(arguments) if isinstance(a, Kept)}
        if isinstance(pullback, Pullback):
            kept = tuple(Kept(elem) for elem in pullback.residuals)
            self.parent.run(pullback.primal, grid, [*arguments, *kept])
            snapshots = tuple(
                (i, self._snapshot(argument, region, grid, arguments))
                for i, region in pullback.needed
                if isinstance(argument := arguments[i], array)
            )
        else:
            self.parent.run(program, grid, arguments)
        self._ran(
            Run(
                program,
                pullback,
                grid,
                tuple(arguments),
                kept,
                snapshots,
                inner,
                LAUNCH_CONFIG.get(),
                caller(),
            )
        )
        for i in active:
            argument = arguments[i]
            if isinstance(argument, array):
                self._track(argument.allocation)
            elif isinstance(argument, Kept):
                self._appended.add(argument)

    def _track(self, memory: Allocation) -> None:
        """Track a memory that the last entry has written: earlier entries have no adjoint there."""
        if memory not in self.tracked:
            self.tracked.add(memory)
            self._made.setdefault(len(self.entries) - 1, []).append(memory)

    def derives(self, targets: Sequence[array], sources: Sequence[array]) -> None:
        """Track the derivatives of tracked sources, even zeros that no entry has written."""
        for one, source in zip(targets, sources, strict=True):
            if source.allocation in self.tracked:
                self._track(one.allocation)

    def followed(self) -> Collection[Allocation]:
        return self.tracked

    def carries(self, memory: Allocation) -> bool:
        return memory in self.tracked

    def tracked_before(self, entry: int) -> set[Allocation]:
        """The tracked arrays before an entry was made."""
        later = (memory for i, memories in self._made.items() if i >= entry for memory in memories)
        return self.tracked.difference(later)

    def _move(self, dest: array, src: array, add: bool) -> None:
        self.parent.move(dest, src, add)
        touched = dest.allocation in self.tracked or src.allocation in self.tracked
        if touched and is_differentiable(dest.dtype):
            self.entries.append(Move(dest, src, add))
            self._track(dest.allocation)
        else:
            self._pass_move(dest, src, add)

    def _call_host(self, call: HostCall, arguments: Sequence[array]) -> list[array]:
        kept = [self.parent.copy(elements) for elements in arguments]
        results = self.parent.call_host(call, kept)
        kept += [self.parent.copy(result) for result in results]
        self.entries.append(HostRun(call, tuple(arguments), tuple(results), tuple(kept)))
        for result in results:
            self._track(result.allocation)
        return results

    def _record_func(self, backward: Callable[[], object], arrays: tuple[array, ...]) -> None:
        call, kept = of_recorded(backward, arrays, BASE), tuple(map(self.parent.copy, arrays))
        self.entries.append(FunctionRun(call, arrays, kept))
        for elements in arrays:
            self._track(elements.allocation)

    def _snapshot(
        self, elements: array, region: Region, grid: Extents, arguments: Sequence[Argument]
    ) -> LevelSnapshot:
        used = [arguments[i] for i in region.uses if i < len(arguments)]
        uses = tuple(argument.shape if isinstance(argument, array) else argument for argument in used)
        key = elements.packed, elements.dtype, region, grid, uses
        ref = self._snapshots.get(key)
        snapshot = None if ref is None else ref()
        if snapshot is None or snapshot.saved is not None:
            snapshot = LevelSnapshot(self.parent, elements, lambda: box_and_whole(region, grid, arguments))
            self._snapshots[key] = weakref.ref(snapshot)
        return snapshot

    def pull(self, level: Level, bars: Adjoints, first: int = 0, end: int | None = None) -> None:
        """Take adjoints back through what ran, the last first, at a level; from entry `first` up to `end`.

        Only the adjoints of memory that was tracked from the beginning are left.
        """
        narrow = narrow_sums(self.entries, range(len(self.entries)))
        for i in range((len(self.entries) if end is None else end) - 1, first - 1, -1):
            self.entries[i].pull(level, bars)
            if narrow is not None:
                narrow.take(i, bars, level)
            for memory in self._made.get(i, ()):
                bar = bars.drop(memory)
                if bar is not None:
                    level.forget(bar)
        if narrow is not None:
            narrow.give(bars, level)

    def forget(self, memory: Allocation) -> None:
        """Do nothing: entries keep their memory."""


# ------------------------------------------------------------------------------------- float32 sums of halves


INDICES = ("i", "j", "k", "l")

FEW = 16
"""The additions that a half bears, where summing them wider would cost as much as they do."""

TEXT = """
def take_share({arrays}):
    {at} = tid()
    total[{at}] += float32(bar[{at}])
    bar[{at}] = {half}(0.0)

def give_sum({arrays}):
    {at} = tid()
    bar[{at}] = {half}(total[{at}] + float32(bar[{at}]))
"""


class Reaching(Protocol):
    """The protocol of an entry: the arrays that adjoints flow to, and those that it wrote."""

    @property
    def reached(self) -> Sequence[array]: ...

    @property
    def written(self) -> Sequence[array]: ...


class NarrowSums:
    """The float32 sums of a backward pass.

    `reached` has their arrays, by the entry that reaches them, and whether it is the first to do so.
    """

    def __init__(self, reached: Mapping[int, Sequence[tuple[array, bool]]]) -> None:
        self._reached = reached
        self._sums: dict[array, array] = {}

    def take(self, i: int, adjoints: Adjoints, level: Level = BASE) -> None:
        """Move what entry `i` has added out of the adjoints; round what is complete with it."""
        for elements, is_first in self._reached.get(i, ()):
            if adjoints.reach(elements):
                bar = scalars(adjoints.of(elements))
                if elements not in self._sums:
                    self._sums[elements] = fresh(bar.shape, float32, bar)
                _run("take_share", level, bar, self._sums[elements])
            if is_first:
                self.give(adjoints, level, (elements.allocation,))

    def give(
        self, adjoints: Adjoints, level: Level = BASE, memories: Collection[Allocation] | None = None
    ) -> None:
        """Round the sums, of some memories or of all, into the adjoints."""
        for elements in [one for one in self._sums if memories is None or one.allocation in memories]:
            total = self._sums.pop(elements)
            _run("give_sum", level, scalars(adjoints.of(elements)), total)
            level.forget(total.allocation)


@cache
def has_halves(type: Array) -> bool:
    """Whether the elements of an array type consist of floats of 16 bits."""
    return scalar_of(type.elem) in HALVES


def narrow_sums(
    entries: Sequence[Reaching], live: Collection[int], but: Collection[Allocation] = ()
) -> NarrowSums | None:
    """The sums worth keeping: of halves that several entries reach between two writes; None if no halves."""
    groups: dict[Hashable, list[tuple[int, array]]] = {}
    halves: dict[int, bool] = {}  # by type: there is one object for each type of arrays
    writes = Counter[Allocation]()
    for i, entry in enumerate(entries):
        written = {target.allocation for target in entry.written}
        for elements in entry.reached if i in live else ():
            key = id(elements.type)
            if key not in halves:
                halves[key] = has_halves(elements.type)
            memory = elements.allocation
            if halves[key] and memory not in written and memory not in but:
                view = elements.ptr, elements.shape, elements.strides
                groups.setdefault((view, writes[memory]), []).append((i, elements))
        writes.update(written)
    reached: dict[int, list[tuple[array, bool]]] = {}
    for several in groups.values():
        places, first = dict.fromkeys(i for i, _ in several), several[0][1]
        fits = first.size and scalars(first).ndim <= len(INDICES)
        if fits and len(several) > (FEW if writes[first.allocation] else 1):
            for i in places:
                reached.setdefault(i, []).append((first, i == several[0][0]))
    return NarrowSums(reached) if groups else None


def _run(name: str, level: Level, bar: array, total: array) -> None:
    half = scalar_of(bar.dtype)
    level.run(_kernels(half, bar.ndim)[name].program, bar.shape, [bar, total])


@cache
def _kernels(half: Scalar, ndim: int) -> dict[str, Kernel]:
    kind = "array" if ndim == 1 else f"array{ndim}d"
    arrays, at = f"bar: {kind}[{half}], total: {kind}[float32]", ", ".join(INDICES[:ndim])
    return kernels_of(TEXT.format(arrays=arrays, at=at, half=half), "kernelab sums")
