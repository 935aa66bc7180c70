"""The interpreter: runs IR with NumPy, a statement at a time for all threads at once.

The oracle of the tests, and what runs kernels where there is no compiler.  It takes any verified function
without calls, also with vectors and matrices.  Threads run in lockstep, in chunks; where threads may see what
others change they run one by one, so that the result is that of the CPU.  A plain store to one element by
several threads leaves the value of the last.  After an error threads with lower numbers still finish, so that
the error reported is the one a run thread by thread meets first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np

from kernelab.backend import base, packing
from kernelab.backend.base import Args
from kernelab.backend.lanes import Frame, LaneStack, Numpy
from kernelab.backend.order import changed, independent
from kernelab.backend.printing import Output
from kernelab.backend.turns import in_turn
from kernelab.codegen.entry import (
    ASSERTION,
    DIVISION,
    FULL,
    GRID_SLOTS,
    INDEX,
    MEMORY,
    STATUS_FIELDS,
    EntryInfo,
    Site,
    layout_of,
)
from kernelab.codegen.printing import Message, message_of
from kernelab.codegen.saving import early_saves
from kernelab.codegen.totals import totals
from kernelab.errors import Diagnostic, KernelTypeError, Span
from kernelab.lang.build import type_of
from kernelab.lang.ir import (
    Alloc,
    Append,
    Assert,
    Atom,
    Atomic,
    Block,
    Call,
    Custom,
    CustomRules,
    For,
    Function,
    If,
    Let,
    Load,
    Loop,
    Native,
    Print,
    Restore,
    Save,
    Stack,
    Stmt,
    Store,
    Var,
    While,
    reads,
    walk,
)
from kernelab.lang.ops import SHAPE
from kernelab.lang.types import Array, Scalar, scalar_of, shape_of

WIDTH = 1 << 14
"""How many threads run at once: enough to hide Python, few enough to stay in the cache."""


@dataclass(frozen=True, slots=True)
class Program:
    """A function, the number of each statement that can fail, and the Vars that are read."""

    function: Function
    sites: tuple[Site, ...]
    numbers: dict[Stmt, int]
    read: frozenset[Atom]
    early: frozenset[Stmt]
    independent: bool
    totals: tuple[Atomic, ...]

    @staticmethod
    def of(function: Function) -> "Program":
        failing = [stmt for stmt in walk(function.body) if isinstance(stmt, Load | Store | Atomic | Assert)]
        numbers: dict[Stmt, int] = {stmt: number for number, stmt in enumerate(failing)}
        read = frozenset(reads(function.body))
        sites, early = tuple(map(_site, failing)), early_saves(function.body)
        alone, sums = independent(function), totals(function)
        return Program(function, sites, numbers, read, early, alone, sums)


def _site(stmt: Load | Store | Atomic | Assert) -> Site:
    if isinstance(stmt, Assert):
        return Site(stmt.span, message=stmt.message)
    return Site(stmt.span, array=stmt.array.hint)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a thread ended: what a status block says of it."""

    code: int
    site: int
    thread: int
    offender: int = 0
    extent: int = 0
    axis: int = 0

    @property
    def status(self) -> list[int]:
        fields = [self.code, self.site, self.thread, self.offender, self.extent, self.axis]
        return fields + [0] * (STATUS_FIELDS - len(fields))


class _NobodyLeft(Exception):
    """The first thread of a chunk has failed, so that nothing of the chunk needs to run on."""


class _Chunk:
    """A run of some consecutive threads.

    `limit` is the lowest thread that has failed: it and those after it have no effects any more.  `sums` are
    the arrays that take additions in the place of some of `arrays`.  `room` is how many bytes the threads may
    save together, 0 any number.
    """

    def __init__(
        self,
        program: Program,
        arrays: Mapping[Var, Numpy],
        sums: Mapping[Var, Numpy],
        threads: range,
        room: int = 0,
    ) -> None:
        self.program = program
        self.arrays = arrays
        self.sums = sums
        self.threads = threads
        self.room = room
        self.limit = threads.stop
        self.failure: Failure | None = None
        self.stacks: dict[Stack, LaneStack] = {}
        self.locals: dict[Var, Numpy] = {}
        self.appended: dict[Var, list[tuple[Numpy, Numpy]]] = {}
        self.printed: list[tuple[Message, Numpy, list[Numpy]]] = []

    def run(self, frame: Frame) -> list[Numpy]:
        """The yields of the function's body."""
        with np.errstate(all="ignore"):
            try:
                return self.block(self.program.function.body, frame)
            except _NobodyLeft:
                return []

    def block(self, block: Block, frame: Frame) -> list[Numpy]:
        for stmt in block.stmts:
            self.stmt(stmt, frame)
        return [frame.values(atom) for atom in block.yields]

    def stmt(self, stmt: Stmt, frame: Frame) -> None:
        match stmt:
            case Let():
                self.let(stmt, frame)
            case Alloc(out, shape):
                self.allocate(out, shape, frame)
            case Load(out):
                frame.define(out, self.load(stmt, frame))
            case Store(array, _, value):
                places, live = self.places(stmt, frame)
                self.storage(array)[places] = frame.values(value)[:live]
            case Atomic(out):
                frame.define(out, self.atomic(stmt, frame))
            case If():
                self.choice(stmt, frame)
            case For() | While():
                self.loop(stmt, frame)
            case Assert(cond, kind):
                self.check(stmt, frame.values(cond), ASSERTION if kind == "assertion" else DIVISION, frame)
            case Print(_, _, shown):
                live = self.live(frame)
                values = [frame.values(atom)[:live] for atom in shown]
                self.printed.append((message_of(stmt), frame.threads[:live], values))
            case Native(_, snippet):
                raise _uncompiled(snippet.name, stmt.span)
            case Save():
                self.save(stmt, frame)
            case Restore(stack, outs):
                live = self.live(frame)
                for out, saved_value in zip(outs, self.stack(stack).pop(self.own(frame)[:live]), strict=True):
                    frame.define(out, _filled(saved_value, live, frame))
            case Append(array, value):
                self.appended.setdefault(array, []).append((self.own(frame), frame.values(value)))
            case Call(_, called) | Custom(_, _, CustomRules(called)):
                raise AssertionError(f"the call of {called.name} should have been inlined")
            case _:
                assert_never(stmt)

    def let(self, stmt: Let, frame: Frame) -> None:
        if stmt.op is SHAPE:
            array, axis = stmt.args
            assert isinstance(array, Var) and isinstance(array.type, Array)
            extents = np.array(self.shape(array)[: array.type.ndim], np.int64)
            frame.define(stmt.out, extents[frame.places(axis)])
            return
        frame.define(stmt.out, stmt.op.numpy(*(frame.operand(arg) for arg in stmt.args)))

    def own(self, frame: Frame) -> Numpy:
        """The numbers of a frame's threads within the chunk."""
        return frame.threads - self.threads.start

    def save(self, stmt: Save, frame: Frame) -> None:
        self.stack(stmt.stack).push(self.own(frame), [frame.values(atom) for atom in stmt.atoms])
        used = sum(stack.nbytes for stack in self.stacks.values()) if self.room else 0
        if used > self.room and stmt in self.program.early:
            first = self.threads[-1 if self.program.function.descending else 0]
            self.failure = Failure(FULL, 0, first)
            raise _NobodyLeft

    def stack(self, stack: Stack) -> LaneStack:
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
        """How many lanes of a frame, from its first, may still have effects."""
        if self.failure is None:
            return len(frame)
        return int(np.searchsorted(frame.threads, self.limit))

    def fail(self, failure: Failure) -> None:
        self.failure, self.limit = failure, failure.thread
        if self.limit == self.threads.start:
            raise _NobodyLeft

    def check(self, stmt: Stmt, holds: Numpy, code: int, frame: Frame) -> None:
        wrong = np.flatnonzero(~holds[: self.live(frame)])
        if len(wrong):
            self.fail(Failure(code, self.program.numbers[stmt], int(frame.threads[wrong[0]])))

    # -------------------------------------------------------------------------------------- memory

    def places(self, stmt: Load | Store | Atomic, frame: Frame) -> tuple[tuple[Any, ...], int]:
        """The index of the elements that the live lanes touch, and how many these are."""
        live = self.live(frame)
        given = [frame.places(index)[:live] for index in stmt.indices]
        extents = self.shape(stmt.array)
        found = [_from_start(i, atom, n) for i, atom, n in zip(given, stmt.indices, extents, strict=False)]
        outside = [(i < 0) | (i >= n) for i, n in zip(found, extents, strict=False)]
        wrong = np.flatnonzero(np.logical_or.reduce(outside))
        if len(wrong):
            live = int(wrong[0])
            axis = next(k for k, bad in enumerate(outside) if bad[live])
            thread, offender = int(frame.threads[live]), int(given[axis][live])
            self.fail(Failure(INDEX, self.program.numbers[stmt], thread, offender, extents[axis], axis))
        lanes = (self.own(frame)[:live],) if stmt.array in self.locals else ()
        return (*lanes, *(i[:live] for i in found), *_component(stmt)), live

    def allocate(self, var: Var, shape: tuple[int, ...], frame: Frame) -> None:
        assert isinstance(var.type, Array)
        if var not in self.locals:
            whole = (len(self.threads), *shape, *shape_of(var.type.elem))
            self.locals[var] = np.empty(whole, scalar_of(var.type.elem).dtype)
        self.locals[var][self.own(frame)] = 0

    def storage(self, array: Var) -> Numpy:
        """The elements of an array; those of a local one have the threads of the chunk as first axis."""
        return self.locals[array] if array in self.locals else self.arrays[array]

    def shape(self, array: Var) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.storage(array).shape
        return shape[1:] if array in self.locals else shape

    def load(self, stmt: Load, frame: Frame) -> Numpy:
        if stmt.held is not None:
            return frame.values(stmt.held)
        places, live = self.places(stmt, frame)
        return _filled(self.storage(stmt.array)[places], live, frame)

    def atomic(self, stmt: Atomic, frame: Frame) -> Numpy:
        places, live = self.places(stmt, frame)
        array, values = self.storage(stmt.array), frame.values(stmt.value)[:live]
        known = stmt.held is not None or stmt.out not in self.program.read
        if known and stmt.kind == "add":
            np.add.at(self.sums.get(stmt.array, array), places, values)
        else:
            compare = None if stmt.compare is None else frame.values(stmt.compare)[:live]
            old = in_turn(stmt.kind, array, places, values, compare)
            if not known:
                return _filled(old, live, frame)
        return _blank(stmt.out, frame) if stmt.held is None else frame.values(stmt.held)

    # -------------------------------------------------------------------------------------- regions

    def choice(self, stmt: If, frame: Frame) -> None:
        cond = frame.values(stmt.cond)
        sides = [(np.flatnonzero(cond), stmt.then), (np.flatnonzero(~cond), stmt.orelse)]
        results = [_blank(out, frame) for out in stmt.outs]
        for lanes, block in sides:
            if len(lanes):
                for result, value in zip(results, self.block(block, frame.choose(lanes)), strict=True):
                    result[lanes] = value
        for out, result in zip(stmt.outs, results, strict=True):
            frame.define(out, result)

    def loop(self, stmt: Loop, frame: Frame) -> None:
        counts = frame.places(stmt.count) if isinstance(stmt, For) else None
        lanes = np.arange(self.live(frame))
        if counts is not None:
            lanes = lanes[counts[lanes] > 0]
        results = [np.array(frame.values(init)) for init in stmt.inits]
        carried = [result[lanes] for result in results]
        around, trip = frame.choose(lanes), 0
        while len(lanes):
            carried = self.iteration(stmt, around, carried, trip, None if counts is None else counts[lanes])
            trip += 1
            going = self.going(stmt, around, carried, trip, None if counts is None else counts[lanes])
            if going.all():
                continue
            for result, value in zip(results, carried, strict=True):
                result[lanes[~going]] = value[~going]
            lanes, carried = lanes[going], [value[going] for value in carried]
            around = frame.choose(lanes)
        for out, result in zip(stmt.outs, results, strict=True):
            frame.define(out, result)

    def iteration(
        self, stmt: Loop, around: Frame, carried: list[Numpy], trip: int, counts: Numpy | None
    ) -> list[Numpy]:
        inner = around.inner()
        for carry, value in zip(stmt.carries, carried, strict=True):
            inner.define(carry, value)
        if isinstance(stmt, For):
            assert counts is not None
            inner.define(stmt.index, counts - 1 - trip if stmt.reverse else np.asarray(trip))
        return self.block(stmt.body, inner)

    def going(
        self, stmt: Loop, around: Frame, carried: list[Numpy], trip: int, counts: Numpy | None
    ) -> Numpy:
        """Which lanes enter another iteration."""
        going = np.ones(len(around), bool) if counts is None else counts > trip
        if stmt.stop is not None:
            going &= ~carried[stmt.stop]
        going[self.live(around) :] = False
        return going


def _from_start(index: Numpy, atom: Atom, extent: int) -> Numpy:
    """An index as Python counts it; an unsigned one never counts from the end."""
    signed = isinstance(atom.type, Scalar) and atom.type.kind == "int"
    return np.where(index < 0, index + extent, index) if signed else index


def _component(stmt: Load | Store | Atomic) -> tuple[int, ...]:
    if stmt.component is None:
        return ()
    assert isinstance(stmt.array.type, Array)
    return tuple(int(k) for k in np.unravel_index(stmt.component, shape_of(stmt.array.type.elem)))


def _filled(values: Numpy, live: int, frame: Frame) -> Numpy:
    """Values of the live lanes, and zeros for those that have no effects any more."""
    if live == len(frame):
        return values
    filled = np.zeros((len(frame), *values.shape[1:]), values.dtype)
    filled[:live] = values
    return filled


def _blank(out: Var, frame: Frame) -> Numpy:
    type = type_of(out)
    return np.zeros((len(frame), *shape_of(type)), scalar_of(type).dtype)


# ------------------------------------------------------------------------------------------ entries


@dataclass(frozen=True, slots=True, eq=False)
class InterpretedEntry:
    """A function that the interpreter runs; `width` threads at once, 1 for strict thread order."""

    info: EntryInfo
    program: Program
    width: int = WIDTH

    def __call__(self, args: Args, /, limit: int = 0, done: int = 0) -> None:
        """Run threads of the grid; raises the KernelError of the first thread that fails."""
        try:
            self._run(list(args), limit, done)
        except KeyboardInterrupt:
            raise base.interrupted(self.info.name) from None

    def _run(self, slots: list[int], room: int, done: int) -> None:
        grid = slots[:GRID_SLOTS]
        launch = _Launch(self.program, self.info, slots, room)
        total = int(np.prod(grid))
        left = range(total - done) if self.program.function.descending else range(done, total)
        try:
            self._chunks(launch, grid, left)
        finally:
            launch.settle()
            launch.output.flush()

    def _chunks(self, launch: "_Launch", grid: Sequence[int], left: range) -> None:
        # Threads that see what others change run one by one, as on the CPU.
        width = self.width if launch.independent else 1
        starts = range(left.start, left.stop, width)
        for start in reversed(starts) if self.program.function.descending else starts:
            failure = launch.chunk(range(start, min(left.stop, start + width)), grid)
            if failure is not None:
                raise base.failure(self.info, failure.status, grid)


class _Launch:
    """The arguments of a launch as NumPy arrays."""

    def __init__(self, program: Program, info: EntryInfo, slots: Sequence[int], room: int = 0) -> None:
        self.program = program
        self.room = room
        self.arrays: dict[Var, Numpy] = {}
        self.values: dict[Var, Numpy] = {}
        self.residuals: dict[Var, tuple[Numpy, Numpy]] = {}
        self.output = Output()
        threads = int(np.prod(slots[:GRID_SLOTS]))
        for var, param in zip(program.function.params, info.layout.params, strict=True):
            if param.residual:
                self.residuals[var] = packing.residual_of(slots, param, threads)
            elif isinstance(param.type, Array):
                self.arrays[var] = packing.array_of(slots, param)
            else:
                self.values[var] = packing.value_of(slots, param)
        summed = {stmt.array for stmt in program.totals if not self.shared(stmt.array)}
        self.sums = {var: np.zeros(self.arrays[var].shape) for var in summed}

    def shared(self, var: Var) -> bool:
        """Whether an array has memory in common with another one that the launch was given."""
        own = self.arrays[var]
        return any(own is not other and np.may_share_memory(own, other) for other in self.arrays.values())

    def settle(self) -> None:
        """Bring the running totals to their elements."""
        with np.errstate(all="ignore"):
            for var, sums in self.sums.items():
                reached = sums != 0
                self.arrays[var][reached] += sums[reached]

    @property
    def independent(self) -> bool:
        """Whether the threads of this launch may run together, with the arrays that it was given."""
        if not self.program.independent:
            return False
        return not any(self.shared(var) for var in changed(self.program.function) if var in self.arrays)

    def chunk(self, threads: range, grid: Sequence[int]) -> Failure | None:
        """Run some threads; what the first that failed says, if any did."""
        function = self.program.function
        frame = Frame(np.arange(threads.start, threads.stop))
        for var, value in self.values.items():
            frame.define(var, value)
        for var, position in zip(function.threads, self._positions(frame.threads, grid), strict=False):
            frame.define(var, position)
        if function.linear is not None:
            frame.define(function.linear, frame.threads)
        chunk = _Chunk(self.program, self.arrays, self.sums, threads, self.room)
        chunk.run(frame)
        chunk.print(self.output)
        return chunk.failure or self._append(chunk)

    def _positions(self, linear: Numpy, grid: Sequence[int]) -> tuple[Numpy, ...]:
        if len(self.program.function.threads) < 2:
            return (linear,)
        return tuple(np.unravel_index(linear, tuple(grid)))

    def _append(self, chunk: _Chunk) -> Failure | None:
        for var, (handle, starts) in self.residuals.items():
            assert isinstance(var.type, Array)
            dtype = scalar_of(var.type.elem).dtype
            pieces = chunk.appended.get(var, [])
            owners = np.concatenate([np.zeros(0, np.int64), *(threads for threads, _ in pieces)])
            values = np.concatenate([np.zeros(0, dtype), *(values for _, values in pieces)])
            # A thread's values stand together, in the order in which it appended them.
            counts = np.bincount(owners, minlength=len(chunk.threads))
            starts[chunk.threads.start : chunk.threads.stop] = handle[1] + np.cumsum(counts) - counts
            try:
                packing.append(handle, values[np.argsort(owners, kind="stable")])
            except MemoryError:
                return Failure(MEMORY, 0, chunk.threads.start)
        return None


class Interpreter:
    """The backend that needs nothing but NumPy."""

    name = "interp"

    def build(self, functions: Sequence[Function]) -> dict[str, base.Entry]:
        """An entry for each function, by name."""
        return {function.name: entry(function) for function in functions}


def entry(function: Function, width: int = WIDTH) -> InterpretedEntry:
    """The entry of a function that runs `width` threads at once."""
    program = Program.of(function)
    name, layout, coordinates = function.name, layout_of(function), len(function.threads)
    info = EntryInfo(name, name, layout, program.sites, coordinates, range(0), descending=function.descending)
    return InterpretedEntry(info, program, width)


def run(function: Function, grid: Sequence[int], arguments: Mapping[str, Any], width: int = WIDTH) -> None:
    """Run a kernel over a grid of 1 to 4 extents with arguments by parameter name.

    Arrays have the parameter's dtype, with components as last axes; raises a KernelError as any launch does.
    """
    made = entry(function, width)
    made(packing.pack(made.info.layout, grid, arguments))


def evaluate(function: Function, *operands: Numpy) -> list[Numpy]:
    """What a function without arrays yields, for operands whose first axis counts the threads."""
    lanes = len(operands[0]) if operands else 1
    frame = Frame(np.arange(lanes))
    for param, operand in zip(function.params, operands, strict=True):
        frame.define(param, operand)
    chunk = _Chunk(Program.of(function), {}, {}, range(lanes))
    results = chunk.run(frame)
    if chunk.failure is not None:
        raise base.failure(entry(function).info, chunk.failure.status, [lanes, 1, 1, 1])
    return results


base.register(Interpreter())


def _uncompiled(name: str, span: Span) -> KernelTypeError:
    message = f"{name} is native C++, which the interpreter cannot run"
    hint = "install a C++ compiler, or write the function in Python"
    return KernelTypeError(Diagnostic(message, span, "native", hint=hint))
