"""The level of `vmap`, which runs many lanes at once.

An array that differs between lanes has one copy in memory for each; a program of which any array differs
gets an axis for the lanes, and runs once.  Knows levels; must not know functions.
"""

import math
import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, takewhile
from typing import ClassVar

from kernelab.autodiff.records.adjoint_buffers import Argument, Extents, Kept, KeptStarts, fresh, scalars
from kernelab.autodiff.transforms.forward_and_reverse import LevelSnapshot
from kernelab.autodiff.transforms.host_calls import HostCall
from kernelab.autodiff.transforms.levels import Level, within
from kernelab.backend.common.backends import Failed, thread_text
from kernelab.errors import Diagnostic, GradientError, KernelError
from kernelab.runtime.array.array import array, parts_of
from kernelab.runtime.context.conversion import HostArray
from kernelab.runtime.context.recorder import called, caller, refusal
from kernelab.runtime.kernel.facts import Positions
from kernelab.runtime.kernel.program import Program
from kernelab.runtime.launch.call import Call
from kernelab.runtime.launch.footprint import changed_part, lane_of
from kernelab.runtime.memory.memory import Allocation, allocate, announce, youngest


class Batch(Level):
    """Runs `lanes` lanes at once; `wide` holds, for each memory that differs between them, all of them.

    `before` counts the lanes of earlier chunks; `asked` is the name of the transform that the user called.
    Where a function runs more than once, `outside` keeps what it finds in memory from before it ran.
    """

    ALIGNED: ClassVar[int] = 16
    has_lanes = True

    def __init__(
        self, parent: Level, lanes: int, randomness: str = "same", before: int = 0, asked: str = ""
    ) -> None:
        super().__init__(parent)
        self.asked = asked
        self.lanes = lanes
        self.before = before
        self.randomness = randomness
        self.wide: dict[Allocation, Allocation] = {}
        self.outside: dict[Allocation, list[LevelSnapshot]] | None = None
        self._widened_outside: list[array] = []
        self._start = youngest()

    def unreadable(self, elements: array) -> Diagnostic | None:
        if elements.allocation not in self.wide:
            return self.parent.unreadable(elements)
        hint = "write kl.where(x > 0.0, y, z) for an if, kl.where(x > 0.0, x, 0.0) for x[x > 0.0], kl.sin(x) "
        hint += "for np.sin(x), x[0:1] for x[0]; or compute with them in kernels, or in a function of "
        hint += "kl.func.custom_vjp"
        if self.asked == "vmap":
            message = "the values of this array differ between the lanes of a vmap: they cannot be read here"
        else:
            asked = self.asked or "what is asked for"
            message = f"{asked} runs the function along several directions at once: "
            message += "the values of this array cannot be read here"
            hint += "; grad, jacrev, jvp and hvp run the function along one"
        return Diagnostic(message, caller().span, "lanes", hint=hint)

    def tabulate(self, target: array, sources: Sequence[array], compute: Callable[..., HostArray]) -> None:
        if not any(source.allocation in self.wide for source in sources):
            self.parent.tabulate(target, sources, compute)
            return
        wide, views = self.widen(target, copy=False), [self.view(source) for source in sources]
        for lane in range(self.lanes):
            self.parent.tabulate(lane_of(wide, lane), [lane_of(view, lane) for view in views], compute)

    def call_host(self, call: HostCall, arguments: Sequence[array]) -> list[array]:
        if not any(elements.allocation in self.wide for elements in arguments):
            return self.parent.call_host(call, arguments)
        views = [self.view(elements) for elements in arguments]
        lanes = [self.parent.call_host(call, [lane_of(v, lane) for v in views]) for lane in range(self.lanes)]
        results = []
        for each in zip(*lanes, strict=True):
            results.append(fresh(each[0].shape, each[0].dtype, each[0]))
            view = self.widen(results[-1], copy=False)
            for lane, result in enumerate(each):
                self.parent.move(lane_of(view, lane), result)
        return results

    def compare_rule(self, call: HostCall, arguments: Sequence[array]) -> None:
        self.parent.compare_rule(call, [lane_of(self.view(elements), 0) for elements in arguments])

    def stride(self, memory: Allocation) -> int:
        """The distance between the lanes of a memory, in bytes."""
        return memory.nbytes + -memory.nbytes % self.ALIGNED

    def view(self, elements: array) -> array:
        """An array in all lanes, with an axis for them in front; all the same where they do not differ."""
        memory = self.wide.get(elements.allocation)
        apart = 0 if memory is None else self.stride(elements.allocation)
        shape, strides = (self.lanes, *elements.shape), (apart, *elements.strides)
        return array.over(memory or elements.allocation, elements.offset, shape, strides, elements.dtype)

    def first(self, elements: array) -> array:
        return self.parent.first(lane_of(self.view(elements), 0))

    def widen(self, elements: array, copy: bool = True) -> array:
        """Give an array a copy for each lane; the view of all of them."""
        memory = elements.allocation
        if memory not in self.wide:
            widened = allocate(self.lanes * self.stride(memory), cleared=True, beside=memory)
            parts = parts_of(elements)
            before = [self.view(part) for part in parts]
            self.wide[memory] = widened
            after = [self.view(part) for part in parts]
            if memory.parts:
                widened.parts = tuple([(one.offset, one.shape, one.strides, one.dtype) for one in after])
            for part, values in zip(after, before, strict=True) if copy else ():
                self.parent.move(part, values)
            if self._is_outside(memory):
                self._widened_outside += parts
        return self.view(elements)

    def _run(self, program: Program, grid: Extents, arguments: Sequence[Argument]) -> None:
        self._refuse_outside([arguments[i] for i in program.changed])
        self._keep_outside(arguments)
        differing = within(arguments, program.arrays, self.wide)
        starts = tuple(
            i for i, a in enumerate(arguments) if isinstance(a, KeptStarts) and self in a.kept.levels
        )
        distinct = self._distinct(program)
        drawn = program.changed if distinct else ()
        if not differing and not starts and not drawn:
            self.parent.run(program, grid, arguments)
            return
        wide = self._differing(program, arguments, {*differing, *starts, *drawn})
        written = {
            i: changed_part(program, grid, arguments, i)
            for i in program.changed
            if isinstance(arguments[i], array)
        }
        for target in written.values():  # also where lanes agree: the tangents of what is kept may not
            target.allocation.notify_watchers(target)
        self._will_write([target for i, target in written.items() if i in wide])
        self._run_wide(program, grid, arguments, wide, distinct)

    def _run_wide(
        self, program: Program, grid: Extents, arguments: Sequence[Argument], wide: Positions, distinct: bool
    ) -> None:
        is_differentiated = any(level.takes_derivatives for level in self.parent.outwards())
        if program.is_opaque or (is_differentiated and program.has_rules_of_arrays):
            self._one_by_one(program, grid, arguments, wide)
            return
        parts = [self._lanes_of(i in wide, a) for i, a in enumerate(arguments)]
        before = self.before if distinct else None
        laned, every, numbers = with_lanes(program, grid, wide, self.lanes, before)
        try:
            self.parent.run(laned, every, [*parts, *numbers])
        except KernelError as error:
            raise _with_lane(error, program, grid, {program.flat.params[i].hint for i in wide}) from None

    def left_out(self, call: Call) -> None:
        self._refuse_outside(call.targets)
        if self._distinct(call.kernel.program):
            message = f"`{call.kernel.name}` draws random numbers unrecorded, the same ones in every lane"
            hint = 'record the launch, or say randomness="same"'
            raise self.refusing(refusal(GradientError, message, "randomness", hint))
        super().left_out(call)

    def followed(self) -> Collection[Allocation]:
        return self.wide

    def _will_write(self, targets: Sequence[array]) -> None:
        """Announce writes to the copies for the lanes; what holds one value for all is no longer used."""
        for target in targets:
            self.widen(target)
        announce([(target, None) for target in targets])
        for target in targets:
            for level in self.parent.outwards():
                level.unfollow(target.allocation)

    def _refuse_outside(self, written: Sequence[Argument]) -> None:
        """Raise GradientError where a mapped function writes an array that existed before it ran."""
        for argument in written if self.asked == "vmap" else ():
            if isinstance(argument, array) and self._is_outside(argument.allocation):
                name = called(argument, "an array")
                is_shared = argument.allocation.serial > self._start
                where = "which NumPy shares" if is_shared else "made outside of it"
                message = f"a function in vmap writes {name}, {where}: there is one for all lanes"
                hint = "make it in the function, as in y = kl.zeros_like(x), and return it"
                raise self.refusing(refusal(GradientError, message, "lanes", hint))

    def _is_outside(self, memory: Allocation) -> bool:
        return memory.serial <= self._start or (memory.borrowed and memory.is_exposed)

    def _keep_outside(self, arguments: Sequence[Argument]) -> None:
        """Keep what memory from outside holds, from just before it changes, if `outside` is asked for."""
        kept = self.outside
        if kept is None:
            return
        for one in arguments:
            if isinstance(one, array) and one.allocation not in kept and self._is_outside(one.allocation):
                kept[one.allocation] = [LevelSnapshot(self.parent, part) for part in parts_of(one)]

    def leave(self, *, undo: bool) -> None:
        """Leave memory from outside as one run of the function does, or put back what it held before."""
        for kept in chain.from_iterable(self.outside.values()) if undo and self.outside else ():
            if kept.saved is not None:
                self.parent.move(kept.elements, kept.saved)
        for part in () if undo else self._widened_outside:
            self.parent.move(part, lane_of(self.view(part), 0))

    def _differing(self, program: Program, arguments: Sequence[Argument], wide: set[int]) -> tuple[int, ...]:
        """The arguments that differ between lanes if those in `wide` do; arrays of one memory do together."""
        groups = program.sharing(arguments)
        while True:
            more = wide.union(program.to_widen(tuple(sorted(wide)), groups))
            arrays = {i: a.allocation for i in program.arrays if isinstance(a := arguments[i], array)}
            memories = {arrays[i] for i in more if i in arrays}
            more = {i for i in more if i in wide or i in arrays}
            more |= {i for i, memory in arrays.items() if memory in memories}
            if more == wide:
                return tuple(sorted(wide))
            wide = more

    def _one_by_one(
        self, program: Program, grid: Extents, arguments: Sequence[Argument], wide: Sequence[int]
    ) -> None:
        if any(isinstance(argument, Kept | KeptStarts) for argument in arguments):
            message = (
                f"`{program.name}` overwrites what its adjoint needs, beside native C++ or a rule of arrays"
            )
            hint = "write its results to another array, or leave vmap away"
            raise self.refusing(GradientError.of(message, "lanes", hint, program.function.span))
        if self._distinct(program):
            message = f"`{program.name}` draws random numbers beside native C++ or a rule of arrays, "
            message += "the same ones in every lane"
            hint = 'draw them in a kernel of its own, or say randomness="same"'
            raise self.refusing(GradientError.of(message, "randomness", hint, program.function.span))
        views = {i: self.widen(argument) for i in wide if isinstance(argument := arguments[i], array)}
        for lane in range(self.lanes):
            parts = [lane_of(views[i], lane) if i in views else a for i, a in enumerate(arguments)]
            self.parent.run(program, grid, parts)

    def _lanes_of(self, wide: bool, argument: Argument) -> Argument:
        if isinstance(argument, Kept):
            argument.levels.append(self)
            argument.extents.insert(0, self.lanes)
        return self.widen(argument) if wide and isinstance(argument, array) else argument

    def _distinct(self, program: Program) -> bool:
        if self.randomness == "error" and program.draws:
            is_vmap = self.asked in ("", "vmap")
            message = f"`{program.name}` draws random numbers inside {'a vmap' if is_vmap else self.asked}"
            hint = 'say whether the lanes draw the same: randomness="same", or "different"'
            hint = hint if is_vmap else 'leave out randomness="error": all columns draw the same'
            raise self.refusing(GradientError.of(message, "randomness", hint, program.function.span))
        return self.randomness == "different" and program.draws

    def _move(self, dest: array, src: array, add: bool) -> None:
        self._refuse_outside((dest,))
        self._keep_outside((dest, src))
        if src.allocation in self.wide or dest.allocation in self.wide:
            self._will_write((dest,))
            self.parent.move(self.view(dest), self.view(src), add)
        else:
            self.parent.move(dest, src, add)

    def forget(self, memory: Allocation) -> None:
        self.unfollow(memory)
        self.parent.forget(self.wide.pop(memory, memory))

    def end(self) -> None:
        """Mark arrays that the function has kept as unreadable: they have no value common to all lanes."""
        for memory in self.wide:
            if memory.serial > self._start:
                memory.end(_refuse_kept)

    # -------------------------------------------------------------------------------------- in and out

    def split(self, elements: array, axis: int = 0) -> array:
        """An array whose lanes are the slices of another along an axis."""
        order = (axis, *(k for k in range(elements.ndim) if k != axis))
        moved = elements.transpose(order)
        if moved.ndim == 1:
            shape, strides = (*moved.shape, 1), (*moved.strides, 0)
            moved = array.over(moved.allocation, moved.offset, shape, strides, moved.dtype)
        result = fresh(moved.shape[1:], elements.dtype, elements)
        self.parent.move(self.widen(result, copy=False), moved)
        return result

    def seeds(self, like: array, values: HostArray) -> array:
        """An array like another whose lanes hold the given values, lanes first."""
        result = fresh(like.shape, like.dtype, like)
        self.fill(result, values)
        return result

    def fill(self, elements: array, values: HostArray) -> None:
        """Set the lanes of an array in memory that no program has used; the rest of it becomes zeros."""
        view = self.widen(elements, copy=False).host()
        view[...] = values.reshape(view.shape)

    def numbers(self, elements: array) -> HostArray:
        """The numbers of an array, as they are computed, a lane a row."""
        return scalars(self.parent.stand_in(self.view(elements))).host().reshape(self.lanes, -1)


def with_lanes(
    program: Program, grid: Extents, wide: Positions, lanes: int, before: int | None = None
) -> tuple[Program, Extents, tuple[bytes, ...]]:
    """The program with an axis for lanes at `wide`, its grid, and the numbers that are its last arguments.

    Each lane draws its own numbers if `before` is given.
    """
    threads = math.prod(grid)
    coordinates = len(program.flat.threads)
    extents = (threads,) if coordinates <= 1 else (*grid, *(1,) * (coordinates - len(grid)))
    batched = program.batched(wide, len(extents), before is not None)
    numbers = (threads, extents[0]) if before is None else (threads, extents[0], before)
    first, rest = (lanes,), extents
    if len(extents) == 4:
        first, rest = (lanes * extents[0],), extents[1:]
    return batched, (*first, *rest), tuple(struct.pack("=q", number) for number in numbers)


@contextmanager
def drawing_again(level: Level, recorded: Level) -> Iterator[None]:
    """A context in which the lanes from `level` up to `recorded` draw the numbers that were drawn there."""
    levels = takewhile(lambda one: one is not recorded, level.outwards())
    changed = [(one, one.randomness) for one in levels if isinstance(one, Batch)]
    for batch, _ in changed:
        batch.randomness = "same"
    try:
        yield
    finally:
        for batch, randomness in changed:
            batch.randomness = randomness


def _refuse_kept() -> None:
    message = (
        "this array was made in a function under vmap, which has returned: it differed between the lanes"
    )
    hint = "return it from the function: vmap then gives it for all lanes"
    raise refusal(GradientError, message, "lanes", hint)


def _with_lane(error: KernelError, program: Program, grid: Extents, wide: Collection[str]) -> KernelError:
    """The error without the axis for the lanes, naming the lane."""
    failure = error.failed
    if not isinstance(failure, Failed):
        return error
    lane, linear = divmod(failure.thread, math.prod(grid))
    padded = (*grid, *(1,) * (4 - len(grid)))
    thread = f"{thread_text(linear, padded, len(program.flat.threads))} of `{program.name}`, in lane {lane}"
    told = failure.told(thread, wide)
    told.failed = lane  # a launch has failed, and no level around names the thread again
    return told
