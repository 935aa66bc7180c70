"""The levels of forward mode, which carries tangents beside arrays, and reverse mode, which records programs.

The backward pass over the recorded programs is that of a tape.  What an adjoint will read is kept from just
before it is overwritten.  Both note what ran, to explain zeros.  Knows levels; must not know functions.
"""

import weakref
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial, reduce
from math import prod
from operator import add
from typing import Any

from kernelab.autodiff.records.adjoint_buffers import (
    Adjoints,
    Argument,
    Extents,
    Kept,
    KeptStarts,
    KeptValues,
    fresh,
)
from kernelab.autodiff.records.backward import BackwardPlan, sweep
from kernelab.autodiff.records.half_sums import in_float32
from kernelab.autodiff.records.moves import HostCallRecord, Move
from kernelab.autodiff.records.records import LaunchEntry, pullback_of
from kernelab.autodiff.records.snapshots import Snapshot, room
from kernelab.autodiff.transforms.base_level import BASE
from kernelab.autodiff.transforms.host_calls import HostCall
from kernelab.autodiff.transforms.levels import Level, within
from kernelab.backend.common.tiered import beside
from kernelab.backend.cuda.launch_config import LAUNCH_CONFIG, LaunchConfig
from kernelab.data_classes import dataclass
from kernelab.errors import KernelError, KernelTypeError
from kernelab.lang.types import is_differentiable, scalar_of
from kernelab.passes.access.access_regions import Box, Region
from kernelab.runtime.array.array import array, numbers_of
from kernelab.runtime.context.conversion import itemsize
from kernelab.runtime.context.recorder import Place, caller
from kernelab.runtime.kernel.facts import Groups, Positions
from kernelab.runtime.kernel.program import Program, Pullback
from kernelab.runtime.launch.footprint import box_and_whole, settled
from kernelab.runtime.memory.memory import Allocation, zeros_like_memory
from kernelab.runtime.memory.spaces import space_of
from kernelab.runtime.memory.streams import configured

# ---------------------------------------------------------------------------------------------- reverse mode


FindBox = Callable[[], tuple[Box | None, bool]]


class LevelSnapshot(Snapshot):
    """What an adjoint will read of an array, copied at a level, where lanes may differ, and as a whole."""

    __slots__ = ("_find_box", "level")

    def __init__(self, level: Level, elements: array, find_box: FindBox | None = None) -> None:
        self.level = level
        self._find_box = find_box
        super().__init__(elements)

    def box(self) -> tuple[Box | None, bool]:
        return super().box() if self._find_box is None else self._find_box()

    def overwritten(self, target: array, needed: array) -> None:
        self.exposed()

    def exposed(self) -> None:
        needed = self.needed()
        if needed is not None:
            view, kept = room(self.elements, self._box)
            self.level.move(kept, needed)  # may be refused: then the elements are still needed where they are
            self._room = view
            self.release()


class Ran(LaunchEntry):
    """A program that ran at a level; `arguments` are None where they are of no interest."""

    __slots__ = ()

    program: Program
    arguments: tuple[Any, ...]

    @property
    def title(self) -> str:
        return f"the launch of `{self.program.name}`"

    @property
    def written(self) -> list[array]:
        """The arrays that it changed."""
        return self._arrays(self.program.changed)

    def flow(self: Any) -> tuple[Sequence[array], Sequence[array], Sequence[array]]:
        """What it read, reached and wrote, as far as adjoints flow there."""
        reached = self.reached
        return reached, reached, self.written

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

    @property
    def may_begin(self) -> bool:
        return bool(self.inner)  # adjoints may arrive at what it has appended

    def pull(self, bars: Adjoints, level: Level) -> None:
        if not any(bars.reach(self.arguments[i]) for i in self.program.changed):
            return
        if isinstance(self.pullback, KernelTypeError):
            raise self.refused(self.pullback)
        threads = prod(self.grid)
        if threads > self.pullback.exact_additions:
            self.pullback.warn_of_rounded_sums(threads)
        arguments, first = self._adjoint_arguments(self.pullback, bars), len(self.arguments)
        places = [first + k for k in self.pullback.wide_bars]
        with in_float32(level, arguments, places), configured(self.config):
            level.run(self.pullback.wide_adjoint, self.grid, arguments)

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
class Moved(Ran):
    """A program that ran and is not swept: `active` arguments have tangents, no other has derivatives.

    The others are kept if they are arrays of integers, or come from the inputs through such.
    """

    program: Program
    arguments: tuple[Argument | None, ...]
    active: Positions
    groups: Groups
    place: Place

    @property
    def reached(self) -> list[array]:
        """The arrays from which tangents pass; where values go on without, those that an adjoint reaches."""
        passed: Sequence[int] = self.active
        if passed and self.program.dead_ends:
            with suppress(KernelError):  # there may be no adjoint: no message
                passed = self.program.pullback(self.active, self.groups).reached
        return self._arrays(i for i in passed if i in self.program.reads)

    def pull(self, bars: Adjoints, level: Level) -> None:
        """Do nothing: no adjoint passes."""


class Explaining(Level):
    """Keeps what ran in `entries`, also on what came from the inputs through integers, to explain zeros.

    Derivatives are carried by the memory that it follows, and by what the residuals in `kept` hold.
    """

    takes_derivatives = True
    kept: Container[Kept]

    def __init__(self, parent: Level) -> None:
        super().__init__(parent)
        self.entries: list[Any] = []
        self._ended: set[Allocation] = set()

    def carries(self, memory: Allocation) -> bool:
        return memory in self.followed()

    def _active(self, program: Program, arguments: Sequence[Argument]) -> tuple[Positions, Groups]:
        """The arrays that may carry derivatives while a program runs, if any do, and which share memory.

        Those are all that it changes, and in whatever shares memory with these it reads what it has written.
        """
        carrying = {i for i in program.floats if self._is_carried_by(arguments[i])}
        if not carrying:
            return (), ()
        groups = program.sharing(arguments)
        carrying.update(program.changed, *groups)
        return tuple(i for i in program.floats if i in carrying), groups

    def _is_carried_by(self, argument: Argument) -> bool:
        if isinstance(argument, KeptValues):
            return argument.kept in self.kept
        return isinstance(argument, array) and self.carries(argument.allocation)

    def _ran(self, entry: Ran) -> None:
        """Keep a program that ran on what carries derivatives."""
        self.entries.append(entry)
        ends = entry.dead_ends
        self._ended.update(target.allocation for _, _, target in ends if not is_differentiable(target.dtype))

    def _pass(self, program: Program, grid: Extents, arguments: Sequence[Argument]) -> None:
        """Run a program on nothing that carries derivatives, and keep it if it may have to be explained."""
        self.parent.run(program, grid, arguments)
        if self._ended and within(arguments, program.reads, self._ended):
            arrays = tuple(argument if isinstance(argument, array) else None for argument in arguments)
            passed = Moved(program, arrays, (), (), caller())
            self.entries.append(passed)
            self._ended.update(target.allocation for target in passed.written)

    def lacking(self, entry: Any) -> Sequence[array]:
        """The arrays behind integers that adjoints of an entry would reach if these carried derivatives."""
        match entry:
            case Move():
                read: Sequence[array] = entry.reached
            case Ran(program=program):
                read = entry._arrays(i for i in program.reads if program.leads[i])
            case _:
                return ()
        return [one for one in read if one.allocation in self._ended and is_differentiable(one.dtype)]

    def _pass_move(self, dest: array, src: array, add: bool) -> None:
        if src.allocation in self._ended:
            self.entries.append(Move(dest, src, add, caller()))
            self._ended.add(dest.allocation)


class Reverse(Explaining):
    """Remembers what runs on the memories of `tracked`, which grow as results are computed from them.

    What programs append is tracked, too: another program may be an adjoint that reads it.  With `ahead` the
    adjoints are built while the primals run, since they follow at the same level.
    """

    def __init__(self, parent: Level, inputs: Iterable[array], ahead: bool = False) -> None:
        super().__init__(parent)
        self._builds_ahead = ahead and parent is BASE
        self.inputs = frozenset([source.allocation for source in inputs])
        self.tracked = dict.fromkeys(self.inputs, 0)  # with how many entries there were then
        self.kept: set[Kept] = set()
        self._snapshots: dict[Hashable, weakref.ref[LevelSnapshot]] = {}

    def _run_primal(self, pullback: Pullback, grid: Extents, arguments: Sequence[Argument]) -> None:
        adjoint = pullback.adjoint
        if not self._builds_ahead or adjoint.is_check or adjoint.is_begun:
            self.parent.run(pullback.primal, grid, arguments)
            return
        space = next((space_of(a.allocation) for a in arguments if isinstance(a, array)), None)
        with beside(partial(adjoint.build_ahead, space, prod(grid))):
            self.parent.run(pullback.primal, grid, arguments)

    def _run(self, program: Program, grid: Extents, arguments: Sequence[Argument]) -> None:
        active, groups = self._active(program, arguments)
        if not active:
            self._pass(program, grid, arguments)
            return
        pullback = pullback_of(program, active, groups, settled(program, grid, arguments, groups))
        kept: tuple[Kept, ...] = ()
        snapshots: tuple[tuple[int, LevelSnapshot], ...] = ()
        inner = {i: len(a.extents) for i, a in enumerate(arguments) if isinstance(a, Kept)}
        if isinstance(pullback, Pullback):
            kept = tuple(Kept(elem) for elem in pullback.residuals)
            self._run_primal(pullback, grid, [*arguments, *kept])
            snapshots = tuple(
                (i, self._snapshot(argument, region, grid, arguments))
                for i, region in pullback.needed
                if isinstance(argument := arguments[i], array)
            )
        else:
            self.parent.run(program, grid, arguments)
        config, place = LAUNCH_CONFIG.get(), caller()
        self._ran(Run(program, pullback, grid, tuple(arguments), kept, snapshots, inner, config, place))
        for i in active:
            argument = arguments[i]
            if isinstance(argument, array):
                self._track(argument.allocation)
            elif isinstance(argument, Kept):
                self.kept.add(argument)

    def _track(self, memory: Allocation) -> None:
        self.tracked.setdefault(memory, len(self.entries))

    def derives(self, targets: Sequence[array], sources: Sequence[array]) -> None:
        """Track the derivatives of tracked sources, even zeros that no entry has written."""
        for one, source in zip(targets, sources, strict=True):
            if source.allocation in self.tracked:
                self._track(one.allocation)

    def launched_nothing(self, name: str, targets: Sequence[array], arguments: Sequence[Any]) -> None:
        """Track results without elements: a sum of these has a derivative, zero."""
        if any(one.allocation in self.tracked for one in arguments if isinstance(one, array)):
            for target in targets:
                if not target.size:
                    self._track(target.allocation)

    def followed(self) -> Collection[Allocation]:
        return self.tracked

    def _move(self, dest: array, src: array, add: bool) -> None:
        self.parent.move(dest, src, add)
        touched = dest.allocation in self.tracked or src.allocation in self.tracked
        if touched and is_differentiable(dest.dtype):
            self.entries.append(Move(dest, src, add, caller()))
            self._track(dest.allocation)
        else:
            self._pass_move(dest, src, add)

    def _called_host(self, call: HostCall, arguments: Sequence[array], results: Sequence[array]) -> None:
        keeps = tuple([LevelSnapshot(self.parent, one) for one in (*arguments, *results)])
        active = [k for k, one in enumerate(arguments) if call.in_place or one.allocation in self.tracked]
        self.entries.append(HostCallRecord(call, (*arguments,), (*results,), keeps, active, caller()))
        for result in results:
            self._track(result.allocation)

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

    def pull(self, level: Level, bars: Adjoints) -> None:
        """Take adjoints back through what ran, at a level; only those of the inputs are left."""
        sweep(BackwardPlan(self.entries, (), shared=self.inputs, started=bars.memory), bars, level)

    def forget(self, memory: Allocation) -> None:
        """Do nothing: entries keep their memory."""


# ---------------------------------------------------------------------------------------------- forward mode


class Forward(Explaining):
    """Carries tangents: `dots` holds the tangents of each memory that has any, `kept` those of residuals.

    A program that appends a value to a residual appends its tangent to another at the same time, so both
    begin at the same places.
    """

    def __init__(self, parent: Level) -> None:
        super().__init__(parent)
        self.dots: dict[Allocation, Allocation] = {}
        self.kept: dict[Kept, Kept] = {}

    def dot(self, primal: array) -> array:
        """The tangent of an array: the same elements of a memory that starts as zeros."""
        memory = self.dots.get(primal.allocation)
        if memory is None:
            memory = self.dots[primal.allocation] = zeros_like_memory(primal.allocation)
        return primal.twin(memory)

    def followed(self) -> Collection[Allocation]:
        return self.dots

    def _run(self, program: Program, grid: Extents, arguments: Sequence[Argument]) -> None:
        active, groups = self._active(program, arguments)
        if not active:
            self._pass(program, grid, arguments)
            return
        dots = [self._tangent(arguments[i]) for i in active]
        given = enumerate(arguments)
        moved = tuple(one if i in active or self._is_behind_integers(one) else None for i, one in given)
        self.parent.run(program.tangent(active, groups), grid, [*arguments, *dots])
        self._ran(Moved(program, moved, active, groups, caller()))

    def _is_behind_integers(self, argument: Argument) -> bool:
        if not isinstance(argument, array):
            return False
        return not is_differentiable(argument.dtype) or argument.allocation in self._ended

    def forget(self, memory: Allocation) -> None:
        self.unfollow(memory)
        dot = self.dots.pop(memory, None)
        if dot is not None:
            self.parent.forget(dot)
        self.parent.forget(memory)

    def _called_host(self, call: HostCall, arguments: Sequence[array], results: Sequence[array]) -> None:
        moving = [k for k, elements in enumerate(arguments) if self.carries(elements.allocation)]
        back = call.reversed(len(results), moving)
        dots = {k: self._flat(self.dot(arguments[k])) for k in moving}
        tangents = self._transposed(back, [*arguments, *results], dots, results)
        for result, tangent in zip(results, tangents, strict=True):
            self.parent.move(self.dot(result), tangent)

    def _transposed(
        self, back: HostCall, values: Sequence[array], dots: Mapping[int, array], results: Sequence[array]
    ) -> list[array]:
        """The tangents of results, by what takes their adjoints back to those of values with tangents."""
        tangents = [fresh(result.shape, result.dtype, result) for result in results]
        for n, tangent in enumerate(tangents):
            scalar = scalar_of(tangent.dtype)
            for e in range(tangent.allocation.nbytes // itemsize(scalar)):
                seeds = [fresh(one.shape, one.dtype, one) for one in results]
                seeds[n].host().reshape(-1)[e] = 1
                bars = self.parent.call_host(back, [*values, *seeds])
                parts = [(self._flat(bars[k]), dot) for k, dot in dots.items()]
                with self.parent.active():
                    products = [bar * dot for bar, dot in parts]
                    slope = reduce(add, (product.sum() for product in products))
                offset = e * itemsize(scalar)
                element = array.over(tangent.allocation, offset, (1,), (itemsize(scalar),), scalar)
                self.parent.move(element, slope)
                for product in products:  # as large as a Jacobian where tangents have lanes
                    self.parent.forget(product.allocation)
        return tangents

    def _flat(self, elements: array) -> array:
        """The numbers of an array in a row, in memory of their own."""
        copy = self.parent.copy(elements)
        return numbers_of(copy.allocation, scalar_of(copy.dtype))

    def _tangent(self, argument: Argument) -> Argument:
        match argument:
            case array():
                return self.dot(argument)
            case Kept():
                return self.kept.setdefault(argument, Kept(argument.elem))
            case KeptValues(kept):
                return KeptValues(self.kept[kept])
            case _:
                raise AssertionError("neither numbers nor starts have tangents")

    def _move(self, dest: array, src: array, add: bool) -> None:
        self.parent.move(dest, src, add)
        if dest.allocation in self.dots or src.allocation in self.dots:
            self.parent.move(self.dot(dest), self.dot(src), add)
            self.entries.append(Move(dest, src, add, caller()))
        else:
            self._pass_move(dest, src, add)
