"""Runs one chunk of threads with NumPy, every statement at once for all of them.

A chunk's threads run in lockstep.  Those whose lanes a branch or a loop leaves out wait; those that have
failed have no effects any more, nor do those after them.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NoReturn, assert_never

import numpy as np

from kernelab.backend.common.backends import Output
from kernelab.backend.cpu.lanes import Frame, LaneStack, Numpy, Sums, in_turn
from kernelab.codegen.cpp.entry import (
    ASSERTION,
    DIVISION,
    FULL,
    INDEX,
    KEPT,
    ROOM,
    STATUS_FIELDS,
    Message,
    Site,
    message_of,
)
from kernelab.codegen.cpp.wide_accumulators import totals, wide
from kernelab.codegen.cpp.writer import early_saves
from kernelab.data_classes import dataclass
from kernelab.errors import KernelTypeError
from kernelab.lang import ir
from kernelab.lang.build import elem_of, type_of
from kernelab.lang.ops import SHAPE
from kernelab.lang.rounding import computed
from kernelab.lang.types import Array, Scalar, bfloat16, scalar_of, shape_of
from kernelab.passes.access.independence import independent

Failing = ir.ArrayAccess | ir.Assert | ir.Save | ir.Append
"""The statements that can end a launch."""


@dataclass(frozen=True, slots=True)
class Program:
    """A function, the number of each statement that can fail, and the Vars that are read."""

    function: ir.Function
    sites: tuple[Site, ...]
    numbers: dict[ir.Stmt, int]
    read: frozenset[ir.Atom]
    early: frozenset[ir.Stmt]
    independent: bool
    late: tuple[ir.Atomic, ...]

    @staticmethod
    @lru_cache(16)
    def of(function: ir.Function) -> "Program":
        failing = [stmt for stmt in ir.walk(function.body) if isinstance(stmt, Failing)]
        numbers: dict[ir.Stmt, int] = {stmt: number for number, stmt in enumerate(failing)}
        read = frozenset(ir.reads(function.body))
        sites, early = tuple(map(_site, failing)), early_saves(function.body)
        alone, late = independent(function), (*totals(function), *wide(function))
        return Program(function, sites, numbers, read, early, alone, late)


def _site(stmt: Failing) -> Site:
    match stmt:
        case ir.Assert(_, "negative", array):
            return Site(stmt.span, array=array)
        case ir.Assert():
            return Site(stmt.span, message=stmt.message)
        case ir.Load() | ir.Store() | ir.Atomic():
            return Site(stmt.span, array=stmt.array.hint)
        case ir.Save() | ir.Append():
            return Site(stmt.span)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a thread ended: what a status block says of it."""

    code: int
    site: int
    thread: int
    offender: int = 0
    extent: int = 0
    axis: int = 0
    room: int = 0

    @property
    def status(self) -> list[int]:
        fields = [self.code, self.site, self.thread, self.offender, self.extent, self.axis]
        fields += [0] * (STATUS_FIELDS - len(fields))
        fields[ROOM] = self.room
        return fields


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of the bytes that threads save before their first change, and keep later; 0 is any number.

    `used` is what residuals take already.
    """

    early: int = 0
    room: int = 0
    used: int = 0


_UNBOUNDED = Bounds()

PIECE = 256
"""About how many bytes it takes to hold what lanes append at once, beside the values."""


ENDLESS = 2**62
"""The iterations of a `while`: as many as it likes."""


@dataclass(frozen=True, slots=True)
class Trip:
    """A trip through a loop: what lanes carry into it, how many came before, and how many each has in all."""

    loop: ir.Loop
    around: Frame
    carried: list[Numpy]
    before: int
    counts: Numpy

    @property
    def number(self) -> Numpy:
        """The index of the loop in each lane; of a `while`, how many trips came before."""
        is_reversed = isinstance(self.loop, ir.For) and self.loop.reverse
        return self.counts - 1 - self.before if is_reversed else np.full(len(self.around), self.before)


class _NobodyLeft(Exception):
    """The first thread of a chunk has failed, so that nothing of the chunk needs to run on."""


class Chunk:
    """A run of some threads, in steps of one or of all threads of a lane.

    `limit` is the lowest thread that has failed: it and those after it have no effects any more.  `sums` take
    additions in the place of some of `arrays`.  `bounds` hold for all threads together.
    """

    def __init__(
        self,
        program: Program,
        arrays: Mapping[ir.Var, Numpy],
        sums: Sums,
        threads: range,
        bounds: Bounds = _UNBOUNDED,
    ) -> None:
        self.program = program
        self.arrays = arrays
        self.sums = sums
        self.threads = threads
        self.bounds = bounds
        self.used = bounds.used
        self.limit = threads.stop
        self.failure: Failure | None = None
        self.stacks: dict[ir.Stack, LaneStack] = {}
        self.locals: dict[ir.Var, Numpy] = {}
        self.appended: dict[ir.Var, list[tuple[Numpy, Numpy]]] = {}
        self.wrapped: set[int] = set()
        """The numbers of the accesses whose computed index was below zero."""
        self.printed: list[tuple[Message, Numpy, list[Numpy]]] = []

    def run(self, frame: Frame) -> list[Numpy]:
        """The yields of the function's body."""
        with np.errstate(all="ignore"):
            try:
                return self.block(self.program.function.body, frame)
            except _NobodyLeft:
                return []

    def block(self, block: ir.Block, frame: Frame) -> list[Numpy]:
        for stmt in block.stmts:
            self.stmt(stmt, frame)
        return [frame.values(atom) for atom in block.yields]

    def stmt(self, stmt: ir.Stmt, frame: Frame) -> None:
        match stmt:
            case ir.Let():
                self.let(stmt, frame)
            case ir.Alloc(out, shape):
                self.allocate(out, shape, frame)
            case ir.Load(out):
                frame.define(out, self.load(stmt, frame))
            case ir.Store(array, _, value):
                places, live = self.places(stmt, frame)
                self.storage(array)[places] = frame.values(value)[:live]
            case ir.Atomic(out):
                frame.define(out, self.atomic(stmt, frame))
            case ir.If():
                self.choice(stmt, frame)
            case ir.For() | ir.While():
                self.loop(stmt, frame)
            case ir.Assert(cond, "negative"):
                if not np.all(frame.values(cond)[: self.live(frame)]):
                    self.wrapped.add(self.program.numbers[stmt])
            case ir.Assert(cond, kind):
                self.check(stmt, frame.values(cond), ASSERTION if kind == "assertion" else DIVISION, frame)
            case ir.Print(_, _, shown):
                live = self.live(frame)
                values = [frame.values(atom)[:live] for atom in shown]
                self.printed.append((message_of(stmt), frame.threads[:live], values))
            case ir.Native(_, snippet):
                message = f"{snippet.name} is native C++, which the interpreter cannot run"
                hint = "install a C++ compiler, or write the function in Python"
                raise KernelTypeError.of(message, "native", hint, stmt.span)
            case ir.Save():
                self.save(stmt, frame)
            case ir.Restore(stack, outs):
                live = self.live(frame)
                for out, saved_value in zip(outs, self.stack(stack).pop(self.own(frame)[:live]), strict=True):
                    frame.define(out, _filled(saved_value, live, frame))
            case ir.Append(array, value):
                self.append(stmt, array, frame.values(value), frame)
            case ir.Call(_, called) | ir.Custom(_, _, ir.CustomRules(called)):
                raise AssertionError(f"the call of {called.name} should have been inlined")
            case _:
                assert_never(stmt)

    def let(self, stmt: ir.Let, frame: Frame) -> None:
        if stmt.op is SHAPE:
            array, axis = stmt.args
            assert isinstance(array, ir.Var) and isinstance(array.type, Array)
            extents = np.array(self.shape(array)[: array.type.ndim], np.int64)
            frame.define(stmt.out, extents[frame.places(axis)])
            return
        operands = [frame.operand(arg) for arg in stmt.args]
        if bfloat16 in map(scalar_of, (type_of(stmt.out), *map(type_of, stmt.args))):
            frame.define(stmt.out, computed(stmt.op.numpy, operands, scalar_of(type_of(stmt.out)).dtype))
            return
        frame.define(stmt.out, stmt.op.numpy(*operands))

    def own(self, frame: Frame) -> Numpy:
        """The numbers of a frame's threads within the chunk."""
        return (frame.threads - self.threads.start) // self.threads.step

    def save(self, stmt: ir.Save, frame: Frame) -> None:
        self.stack(stmt.stack).push(self.own(frame), [frame.values(atom) for atom in stmt.atoms])
        is_early = stmt in self.program.early
        most = self.bounds.early if is_early else self.bounds.room
        if most and sum(stack.nbytes for stack in self.stacks.values()) > most:
            self.end(Failure(FULL, 0, self.first) if is_early else self.overfull(stmt))

    def append(self, stmt: ir.Append, array: ir.Var, values: Numpy, frame: Frame) -> None:
        self.appended.setdefault(array, []).append((self.own(frame), values))
        self.used += values.nbytes + PIECE
        if 0 < self.bounds.room < self.used:
            self.end(self.overfull(stmt))

    def overfull(self, stmt: ir.Stmt) -> Failure:
        return Failure(KEPT, self.program.numbers[stmt], self.first, room=self.bounds.room)

    @property
    def first(self) -> int:
        """The thread of the chunk that comes first."""
        return self.threads[-1 if self.program.function.descending else 0]

    def end(self, failure: Failure) -> NoReturn:
        """Nothing of the chunk runs on."""
        self.failure = failure
        raise _NobodyLeft

    def stack(self, stack: ir.Stack) -> LaneStack:
        return self.stacks.setdefault(stack, LaneStack(len(self.threads)))

    def print(self, output: Output) -> None:
        """Hand over what the threads have printed, thread after thread, up to the one that failed."""
        lanes = [
            (thread, message, values, lane)
            for message, threads, values in self.printed
            for lane, thread in enumerate(threads.tolist())
            if thread <= self.limit
        ]
        for _, message, values, lane in sorted(lanes, key=lambda entry: entry[0]):
            output.add(message, [value[lane] for value in values])

    # -------------------------------------------------------------------------------------- failures

    def live(self, frame: Frame) -> int:
        """The number of lanes of a frame, from its first, that may still have effects."""
        if self.failure is None:
            return len(frame)
        return int(np.searchsorted(frame.threads, self.limit))

    def fail(self, failure: Failure) -> None:
        self.failure, self.limit = failure, failure.thread
        if self.limit == self.threads.start:
            raise _NobodyLeft

    def check(self, stmt: ir.Stmt, holds: Numpy, code: int, frame: Frame) -> None:
        wrong = np.flatnonzero(~holds[: self.live(frame)])
        if len(wrong):
            self.fail(Failure(code, self.program.numbers[stmt], int(frame.threads[wrong[0]])))

    # -------------------------------------------------------------------------------------- memory

    def places(self, stmt: ir.ArrayAccess, frame: Frame) -> tuple[tuple[Any, ...], int]:
        """The index of the elements that the live lanes touch, and how many these are."""
        live = self.live(frame)
        indices = [frame.places(index)[:live] for index in stmt.indices]
        extents = self.shape(stmt.array)
        if all(((i >= 0) & (i < n)).all() for i, n in zip(indices, extents, strict=False)):
            return (*self._own_lanes(stmt, frame, live), *indices, *component_of(stmt)), live
        # An index below zero counts from the end, as in Python; an unsigned one never does.
        signed = [isinstance(atom.type, Scalar) and atom.type.kind == "int" for atom in stmt.indices]
        counted = [
            np.where(i < 0, i + n, i) if is_signed else i
            for i, n, is_signed in zip(indices, extents, signed, strict=False)
        ]
        computed = (i for i, atom in zip(indices, stmt.indices, strict=True) if isinstance(atom, ir.Var))
        if any(np.any(i < 0) for i in computed):
            self.wrapped.add(self.program.numbers[stmt])
        outside = [(i < 0) | (i >= n) for i, n in zip(counted, extents, strict=False)]
        wrong = np.flatnonzero(np.logical_or.reduce(outside))
        if len(wrong):
            live = int(wrong[0])
            axis = next(k for k, bad in enumerate(outside) if bad[live])
            thread, offender = int(frame.threads[live]), int(indices[axis][live])
            self.fail(Failure(INDEX, self.program.numbers[stmt], thread, offender, extents[axis], axis))
        return (*self._own_lanes(stmt, frame, live), *(i[:live] for i in counted), *component_of(stmt)), live

    def _own_lanes(self, stmt: ir.ArrayAccess, frame: Frame, live: int) -> tuple[Numpy, ...]:
        """The first index into a local array, which has the threads of the chunk as first axis."""
        return (self.own(frame)[:live],) if stmt.array in self.locals else ()

    def addresses(self, array: ir.Var, places: Sequence[Any]) -> Numpy:
        """The addresses of elements of an array, or of components where the places say which."""
        elements = self.storage(array)
        steps = [np.multiply(k, stride) for k, stride in zip(places, elements.strides, strict=False)]
        return np.asarray(elements.ctypes.data + sum(steps))

    def allocate(self, var: ir.Var, shape: tuple[int, ...], frame: Frame) -> None:
        if var not in self.locals:
            whole = (len(self.threads), *shape, *shape_of(elem_of(var)))
            self.locals[var] = np.empty(whole, scalar_of(elem_of(var)).dtype)
        self.locals[var][self.own(frame)] = 0

    def storage(self, array: ir.Var) -> Numpy:
        """The elements of an array; those of a local one have the threads of the chunk as first axis."""
        return self.locals[array] if array in self.locals else self.arrays[array]

    def shape(self, array: ir.Var) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.storage(array).shape
        return shape[1:] if array in self.locals else shape

    def load(self, stmt: ir.Load, frame: Frame) -> Numpy:
        if stmt.held is not None:
            return frame.values(stmt.held)
        places, live = self.places(stmt, frame)
        return _filled(self.storage(stmt.array)[places], live, frame)

    def atomic(self, stmt: ir.Atomic, frame: Frame) -> Numpy:
        places, live = self.places(stmt, frame)
        array, values = self.storage(stmt.array), frame.values(stmt.value)[:live]
        needs_no_old = stmt.held is not None or stmt.out not in self.program.read
        if needs_no_old and stmt.kind == "add":
            self.sums.add(stmt, array, places, values)
        else:
            compare = None if stmt.compare is None else frame.values(stmt.compare)[:live]
            old = in_turn(stmt.kind, array, places, values, compare)
            if not needs_no_old:
                return _filled(old, live, frame)
        return _blank(stmt.out, frame) if stmt.held is None else frame.values(stmt.held)

    # -------------------------------------------------------------------------------------- regions

    def choice(self, stmt: ir.If, frame: Frame) -> None:
        cond = frame.values(stmt.cond)
        sides = [(np.flatnonzero(cond), stmt.then), (np.flatnonzero(~cond), stmt.orelse)]
        results = [_blank(out, frame) for out in stmt.outs]
        for lanes, block in sides:
            if len(lanes):
                for result, value in zip(results, self.block(block, frame.choose(lanes)), strict=True):
                    result[lanes] = value
        for out, result in zip(stmt.outs, results, strict=True):
            frame.define(out, result)

    def loop(self, stmt: ir.Loop, frame: Frame) -> None:
        counts = frame.places(stmt.count) if isinstance(stmt, ir.For) else np.full(len(frame), ENDLESS)
        lanes = np.flatnonzero(counts[: self.live(frame)] > 0)
        results = [np.array(frame.values(init)) for init in stmt.inits]
        carried = [result[lanes] for result in results]
        around, before = frame.choose(lanes), 0
        while len(lanes):
            trip = Trip(stmt, around, carried, before, counts[lanes])
            carried = self.iteration(trip)
            before += 1
            going = self.going(trip, carried)
            if going.all():
                continue
            for result, value in zip(results, carried, strict=True):
                result[lanes[~going]] = value[~going]
            lanes, carried = lanes[going], [value[going] for value in carried]
            around = frame.choose(lanes)
        for out, result in zip(stmt.outs, results, strict=True):
            frame.define(out, result)

    def iteration(self, trip: Trip) -> list[Numpy]:
        loop, inner = trip.loop, trip.around.inner()
        for carry, value in zip(loop.carries, trip.carried, strict=True):
            inner.define(carry, value)
        if isinstance(loop, ir.For):
            inner.define(loop.index, trip.number)
        return self.block(loop.body, inner)

    def going(self, trip: Trip, carried: list[Numpy]) -> Numpy:
        """A mask of the lanes that enter another iteration, with what this one has yielded."""
        going: Numpy = trip.counts > trip.before + 1
        if trip.loop.stop is not None:
            going &= ~carried[trip.loop.stop]
        going[self.live(trip.around) :] = False
        return going


def component_of(stmt: ir.ArrayAccess) -> tuple[int, ...]:
    """The index of the one component of an element that a statement touches, nothing for all of it."""
    if stmt.component is None:
        return ()
    return tuple(int(k) for k in np.unravel_index(stmt.component, shape_of(elem_of(stmt.array))))


def _filled(values: Numpy, live: int, frame: Frame) -> Numpy:
    """Values of the live lanes, and zeros for those that have no effects any more."""
    if live == len(frame):
        return values
    filled = np.zeros((len(frame), *values.shape[1:]), values.dtype)
    filled[:live] = values
    return filled


def _blank(out: ir.Var, frame: Frame) -> Numpy:
    type = type_of(out)
    return np.zeros((len(frame), *shape_of(type)), scalar_of(type).dtype)
