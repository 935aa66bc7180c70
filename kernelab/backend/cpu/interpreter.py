"""The interpreter: runs IR with NumPy, a statement at a time for all threads at once.

The oracle of the tests, and what runs kernels where there is no compiler.  It takes any verified function
without calls, also with vectors and matrices.  Threads run in lockstep, in chunks; where threads may see what
others change they run one by one, so that the result is that of the CPU.  A plain store to one element by
several threads leaves the value of the last.  After an error threads with lower numbers still finish, so that
the error reported is the one a run thread by thread meets first.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeGuard

import numpy as np
from numpy.lib.array_utils import byte_bounds

from kernelab.backend.common import backends
from kernelab.backend.common.backends import Args, Output, Part
from kernelab.backend.cpu.chunk import Bounds, Chunk, Failure, Program, Trip
from kernelab.backend.cpu.lanes import Frame, Numpy, Sums
from kernelab.codegen.cpp.entry import GRID_SLOTS, MEMORY, EntryInfo, layout_of
from kernelab.data_classes import dataclass, replace
from kernelab.errors import Span, text_of
from kernelab.lang import ir
from kernelab.lang.build import elem_of
from kernelab.lang.ir import Function, Var, While
from kernelab.lang.ops import COPY
from kernelab.lang.types import Array, bytes_of, is_differentiable, scalar_of
from kernelab.passes.access.independence import changed, touched_by_first

MOST = 1000
"""The most iterations of `while` loops, each of all threads at once, of a run: a tenth of a second."""


class Patient(Chunk):
    """A run of some threads; `given_up` says which of them had not left their loops when patience ended."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.trips = 0
        self.given_up = np.zeros(len(self.threads), np.bool_)

    def going(self, trip: Trip, carried: list[Numpy]) -> Numpy:
        """A mask of the lanes that enter another iteration."""
        going = super().going(trip, carried)
        self.trips += isinstance(trip.loop, While)
        if self.trips > MOST and isinstance(trip.loop, While):
            self.given_up[self.own(trip.around)[going]] = True
            going[:] = False
        return going


# ----------------------------------------------------------------------------------------------- interpreter


WIDTH = 1 << 14
"""The number of threads of a chunk: enough to hide Python's cost, few enough to stay in the cache."""


@dataclass(frozen=True, slots=True, eq=False)
class InterpretedEntry:
    """A function that the interpreter runs; `width` threads at once, 1 for strict thread order.

    `chunk` makes what runs some of them.  With `lanes`, the first coordinate counts lanes, where it does not
    matter which of several failing threads is reported.
    """

    info: EntryInfo
    program: Program
    width: int = WIDTH
    chunk: Callable[..., Chunk] = Chunk
    lanes: bool = False

    def __call__(self, args: Args, /, limit: int = 0, room: int = 0, left: Sequence[Part] = ()) -> None:
        """Run threads of the grid; raises the KernelError of the first thread that fails."""
        try:
            self._run(backends.slots_of(args), Bounds(limit, room), left[0].done if left else 0)
        except KeyboardInterrupt:
            raise backends.interrupted(self.info.name) from None

    def _run(self, slots: list[int], bounds: Bounds, done: int) -> None:
        grid = slots[:GRID_SLOTS]
        launch = Launch(self.program, self.info, slots, bounds, self.chunk)
        try:
            for threads in self._together(launch, grid, done):
                failure = launch.chunk(threads, grid)
                if failure is not None:
                    raise backends.failure(self.info, failure.status, grid)
        finally:
            launch.sums.settle()
            launch.output.flush()
        backends.warn_of_negative_indices(self.info.sites[number] for number in sorted(launch.wrapped))

    def _together(self, launch: "Launch", grid: Sequence[int], done: int) -> Iterator[range]:
        """The threads that run together, one chunk after another.

        Threads that see what others change run one by one, as on the CPU, but those of all lanes together.
        """
        total, descending = int(np.prod(grid)), self.program.function.descending
        left = range(total - done) if descending else range(done, total)
        width = self.width if launch.independent else 1
        if width == 1 and self.lanes and total == len(left) and launch.has_lanes(grid[0]):
            size = total // grid[0]
            for first in reversed(range(size)) if descending else range(size):
                yield range(first, total, size)
            return
        starts = range(left.start, left.stop, width)
        for start in reversed(starts) if descending else starts:
            yield range(start, min(left.stop, start + width))


class Launch:
    """The arguments of a launch as NumPy arrays."""

    def __init__(
        self,
        program: Program,
        info: EntryInfo,
        slots: Sequence[int],
        bounds: Bounds,
        chunk_of: Callable[..., Chunk] = Chunk,
    ) -> None:
        self.program = program
        self.bounds = bounds
        self.chunk_of = chunk_of
        self.arrays: dict[Var, Numpy] = {}
        self.values: dict[Var, Numpy] = {}
        self.residuals: dict[Var, tuple[Numpy, Numpy]] = {}
        self.output = Output()
        self.wrapped: set[int] = set()
        threads = int(np.prod(slots[:GRID_SLOTS]))
        for var, param in zip(program.function.params, info.layout.params, strict=True):
            if param.residual:
                self.residuals[var] = backends.residual_of(slots, param, threads)
            elif isinstance(param.type, Array):
                self.arrays[var] = backends.array_of(slots, param)
            else:
                self.values[var] = backends.value_of(slots, param)
        alone = {var: elements for var, elements in self.arrays.items() if not self.shared(var)}
        self.sums = Sums(program.late, alone)

    def shared(self, var: Var) -> bool:
        """Whether an array has memory in common with another one that the launch was given."""
        own = self.arrays[var]
        return any(own is not other and np.may_share_memory(own, other) for other in self.arrays.values())

    @property
    def independent(self) -> bool:
        """Whether the threads of this launch may run together, with the arrays that it was given."""
        if not self.program.independent:
            return False
        return not any(self.shared(var) for var in changed(self.program.function) if var in self.arrays)

    def has_lanes(self, extent: int) -> bool:
        """Whether no thread touches what another changes whose first coordinate, below `extent`, differs."""
        by_lane, arrays = touched_by_first(self.program.function), self.arrays
        pairs = [(own, other) for own in changed(self.program.function) if own in arrays for other in arrays]
        together = [(a, b) for a, b in pairs if a is b or np.may_share_memory(arrays[a], arrays[b])]
        return extent > 1 and all(
            {a, b} <= by_lane and _rows_are_apart(arrays[a], arrays[b]) for a, b in together
        )

    def chunk(self, threads: range, grid: Sequence[int]) -> Failure | None:
        """Run some threads; what the first that failed says, if any did."""
        function = self.program.function
        frame = Frame(np.arange(threads.start, threads.stop, threads.step))
        for var, value in self.values.items():
            frame.define(var, value)
        linear = frame.threads
        positions = (linear,) if len(function.threads) < 2 else np.unravel_index(linear, tuple(grid))
        for var, position in zip(function.threads, positions, strict=False):
            frame.define(var, position)
        if function.linear is not None:
            frame.define(function.linear, frame.threads)
        bounds = replace(self.bounds, used=self.kept)
        chunk = self.chunk_of(self.program, self.arrays, self.sums, threads, bounds)
        chunk.run(frame)
        chunk.print(self.output)
        self.wrapped |= chunk.wrapped
        return chunk.failure or self._append(chunk)

    @property
    def kept(self) -> int:
        """The bytes that the residuals take."""
        return sum(bytes_of(elem_of(var)) * int(handle[1]) for var, (handle, _) in self.residuals.items())

    def _append(self, chunk: Chunk) -> Failure | None:
        for var, (handle, starts) in self.residuals.items():
            dtype = scalar_of(elem_of(var)).dtype
            pieces = chunk.appended.get(var, [])
            owners = np.concatenate([np.zeros(0, np.int64), *(threads for threads, _ in pieces)])
            values = np.concatenate([np.zeros(0, dtype), *(values for _, values in pieces)])
            # A thread's values stand together, in the order in which it appended them.
            counts = np.bincount(owners, minlength=len(chunk.threads))
            starts[slice(chunk.threads.start, chunk.threads.stop, chunk.threads.step)] = (
                handle[1] + np.cumsum(counts) - counts
            )
            try:
                backends.append(handle, values[np.argsort(owners, kind="stable")])
            except MemoryError:
                return Failure(MEMORY, 0, chunk.threads.start)
        return None


def _rows_are_apart(one: Numpy, other: Numpy) -> bool:
    """Whether no row of an array has bytes in common with another row of the same or of another array."""
    bounds = [byte_bounds(rows[:1]) for rows in (one, other)]
    step = max(high for _, high in bounds) - min(low for low, _ in bounds)
    return one.strides[0] == other.strides[0] and step <= abs(one.strides[0])


class Interpreter:
    """The backend that needs nothing but NumPy."""

    name = "interp"

    def build(self, functions: Sequence[Function], threads: int = 0) -> dict[str, backends.Entry]:
        """An entry for each function, by name."""
        return {function.name: entry(function) for function in functions}


def entry(
    function: Function, width: int = WIDTH, chunk: Callable[..., Chunk] = Chunk, lanes: bool = False
) -> InterpretedEntry:
    """The entry of a function that runs `width` threads at once, by what `chunk` makes."""
    program = Program.of(function)
    name, layout, coordinates = function.name, layout_of(function), len(function.threads)
    info = EntryInfo(name, name, layout, program.sites, coordinates, range(0), descending=function.descending)
    return InterpretedEntry(info, program, width, chunk, lanes)


def run(function: Function, grid: Sequence[int], arguments: Mapping[str, Any], width: int = WIDTH) -> None:
    """Run a kernel over a grid of 1 to 4 extents with arguments by parameter name.

    Arrays have the parameter's dtype, with components as last axes; raises a KernelError as any launch does.
    """
    built = entry(function, width)
    built(backends.pack(built.info.layout, grid, arguments))


def evaluate(function: Function, *operands: Numpy) -> list[Numpy]:
    """The results of a function without arrays, for operands whose first axis counts the threads."""
    lanes = len(operands[0]) if operands else 1
    frame = Frame(np.arange(lanes))
    for param, operand in zip(function.params, operands, strict=True):
        frame.define(param, operand)
    chunk = Chunk(Program.of(function), {}, Sums((), {}), range(lanes))
    results = chunk.run(frame)
    if chunk.failure is not None:
        raise backends.failure(entry(function).info, chunk.failure.status, [lanes, 1, 1, 1])
    return results


backends.register(Interpreter())


# ----------------------------------------------------------------------------------------- one thread watched


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A thread, by its number, added a value to the element, or stored one if `is_store`.

    `component` is that of a vector or matrix which alone was changed, counted through; None is all of it.
    """

    span: Span
    thread: int
    value: Any
    component: int | None = None
    is_store: bool = False


class Pointed(Chunk):
    """A chunk that notes what changes the element at some bytes."""

    def __init__(
        self, element: range, changes: list[Change], grown: Mapping[ir.Var, ir.Let], *rest: Any
    ) -> None:
        super().__init__(*rest)
        self.element = element
        self.changes = changes
        self.grown = grown

    def stmt(self, stmt: ir.Stmt, frame: Frame) -> None:
        """Run a statement, and note what it did to the element."""
        super().stmt(stmt, frame)
        if isinstance(stmt, ir.Store | ir.Atomic) and stmt.array not in self.locals:
            self.note(stmt, frame)

    def note(self, stmt: ir.Store | ir.Atomic, frame: Frame) -> None:
        """Keep the changes of the lanes that hit."""
        hits = self.hits(stmt, self.places(stmt, frame)[0])
        is_store = isinstance(stmt, ir.Store) or stmt.kind != "add"
        for span, share in [(stmt.span, stmt.value)] if is_store else self.shares(stmt):
            values: Numpy = frame.values(share)
            self.changes += [
                Change(span, int(frame.threads[k]), values[k].copy(), stmt.component, is_store)
                for k in hits.tolist()
            ]

    def shares(self, stmt: ir.Store | ir.Atomic) -> list[tuple[Span, ir.Atom]]:
        """What is added, share by share: that of a variable at each line that uses it."""
        added, rest = list[tuple[Span, ir.Atom]](), stmt.value
        while isinstance(rest, ir.Var) and rest in self.grown:
            one = self.grown[rest]
            rest, share = one.args
            added.append((one.span, share))
        return added[::-1] if isinstance(rest, ir.Const) and added else [(stmt.span, rest), *added[::-1]]

    def hits(self, stmt: ir.Store | ir.Atomic, places: Sequence[Any]) -> Numpy:
        """The lanes whose index, at some places, is that of the element."""
        addresses = self.addresses(stmt.array, places)
        return np.flatnonzero((addresses >= self.element.start) & (addresses < self.element.stop))


def can_interpret(function: ir.Function) -> bool:
    """Whether the interpreter can run a program: it has no snippets."""
    return not any(ir.of_kind(function.body, ir.Native))


def changes_of(function: ir.Function, args: Args, element: range) -> list[Change]:
    """Run a program on packed arguments, whose memory it changes; what it did to the `element` at some bytes.

    Raises the KernelError of the first thread that fails.
    """
    changes: list[Change] = []
    grown = {stmt.out: stmt for stmt in ir.walk(function.body) if is_sum(stmt)}
    entry(function, chunk=partial(Pointed, element, changes, grown))(args)
    return changes


# ----------------------------------------------------------------------------------------------------- watch


SIGNS = {"add": "+=", "min": "min=", "max": "max=", "and": "&=", "or": "|=", "xor": "^="}
"""The operators that print atomics; others exchange values, which is printed as an assignment."""


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """A value at a line: that of a variable, or of an element that was read, written or added to.

    `sign` is "=" for what is now so, else how the element was changed by the value.  `is_read` tells elements
    that were read from those that were written.  `loops` has the names and numbers of the iterations around
    it, the outermost first.  `wide` is the value in float64, and `left` how many digits agree with that,
    where the two were compared.
    """

    span: Span
    name: str
    sign: str
    value: Any
    is_read: bool = False
    loops: tuple[tuple[str, int], ...] = ()
    wide: Any = None
    left: float | None = None


def is_sum(stmt: ir.Stmt) -> TypeGuard[ir.Let]:
    """Whether a statement of an unmerged adjoint adds to a cotangent: ``x_bar = add(x_bar, share)``."""
    if not isinstance(stmt, ir.Let) or stmt.op.name != "add" or not stmt.out.hint.endswith("_bar"):
        return False
    before = stmt.args[0]
    return before.value == 0 if isinstance(before, ir.Const) else before.hint == stmt.out.hint


class Watched(Chunk):
    """A chunk of one thread that notes what it does, up to `most` values among those that `keeps` takes.

    With `expressions` it notes every float, by the text that computes it.
    """

    def __init__(
        self, seen: list[Seen], most: int, keeps: Callable[[Seen], bool], expressions: bool, *rest: Any
    ) -> None:
        super().__init__(*rest)
        self.seen = seen
        self.most = most
        self.keeps = keeps
        self.expressions = expressions
        self.loops: list[tuple[str, int]] = []

    def stmt(self, stmt: ir.Stmt, frame: Frame) -> None:
        """Run a statement, and note its value."""
        if isinstance(stmt, ir.Custom):
            for out, values in zip(stmt.outs, self.block(stmt.body, frame), strict=True):
                frame.define(out, values)
                if out.hint:
                    self.note(stmt, out.hint, values)
            return
        if isinstance(stmt, ir.If):
            self.note(stmt, "if", frame.values(stmt.cond))
        super().stmt(stmt, frame)
        match stmt:
            case ir.Let(out, _, (_, share)) if is_sum(stmt):
                self.note(stmt, out.hint, frame.values(share), "+=")
            case ir.Let(out) if out.hint:
                self.note(stmt, out.hint, frame.values(out))
            case ir.Let(out, op) if self.expressions and op is not COPY and is_differentiable(out.type):
                self.note(stmt, text_of(stmt.span), frame.values(out))
            case ir.Load(out, array, indices, held=None):
                name = f"{array.hint}{self.index(indices, frame)}"
                self.note(stmt, name, frame.values(out), is_read=True)
            case ir.Restore(_, outs):
                for out in outs:
                    if out.hint:
                        self.note(stmt, out.hint, frame.values(out))
            case ir.Store(array, indices, value):
                self.note(stmt, f"{array.hint}{self.index(indices, frame)}", frame.values(value))
            case ir.Atomic(_, kind, array, indices, value):
                name = f"{array.hint}{self.index(indices, frame)}"
                self.note(stmt, name, frame.values(value), SIGNS.get(kind, "="))
            case _:
                pass

    def iteration(self, trip: Trip) -> list[Numpy]:
        """Run an iteration, and note its number."""
        loop, number = trip.loop, trip.number
        name = (isinstance(loop, ir.For) and loop.index.hint) or "iteration"
        self.loops.append((name, int(number[0])))
        if isinstance(loop, ir.For):
            self.note(loop, name, number)
        try:
            return super().iteration(trip)
        finally:
            self.loops.pop()

    def index(self, indices: tuple[ir.Atom, ...], frame: Frame) -> str:
        """The indices as they are written."""
        return f"[{', '.join(str(int(frame.places(index)[0])) for index in indices)}]"

    def note(self, stmt: ir.Stmt, name: str, values: Numpy, sign: str = "=", is_read: bool = False) -> None:
        """Keep the value of the only thread."""
        if len(self.seen) < self.most:
            value = values[0].copy() if values.ndim > 1 else values[0]
            one = Seen(stmt.span, name, sign, value, is_read, tuple(self.loops))
            if self.keeps(one):
                self.seen.append(one)


def watch(
    function: ir.Function,
    args: Args,
    thread: int,
    most: int,
    keeps: Callable[[Seen], bool] = lambda one: True,
    expressions: bool = False,
) -> list[Seen]:
    """Run one thread of a program on packed arguments, whose memory it changes; at most `most` values.

    Raises the KernelError that the thread ends with, if it does.
    """
    seen: list[Seen] = []
    run_thread(function, args, thread, partial(Watched, seen, most, keeps, expressions))
    return seen


def run_thread(function: ir.Function, args: Args, thread: int, chunk: Callable[..., Chunk]) -> None:
    """Run one thread of a program on packed arguments, by what `chunk` makes.

    Raises the KernelError that the thread ends with, if it does.
    """
    built = entry(function)
    slots = backends.slots_of(args)
    grid = slots[:GRID_SLOTS]
    launch = Launch(built.program, built.info, slots, Bounds(), chunk)
    failure = launch.chunk(range(thread, thread + 1), grid)
    launch.sums.settle()
    if failure is not None:
        raise backends.failure(built.info, failure.status, grid)
