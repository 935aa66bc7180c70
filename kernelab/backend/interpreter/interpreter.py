"""The interpreter: runs IR with NumPy, a statement at a time for all threads at once.

The oracle of the tests, and what runs kernels where there is no compiler.  It takes any verified function
without calls, also with vectors and matrices.  Threads run in lockstep, in chunks; where threads may see what
others change they run one by one, so that the result is that of the CPU.  A plain store to one element by
several threads leaves the value of the last.  After an error threads with lower numbers still finish, so that
the error reported is the one a run thread by thread meets first.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernelab.backend.common import backends, packing
from kernelab.backend.common.backends import Args
from kernelab.backend.common.print_output import Output
from kernelab.backend.interpreter.chunk import Bounds, Chunk, Failure, Program
from kernelab.backend.interpreter.lanes import Frame, Numpy, Sums
from kernelab.codegen.common.entry import GRID_SLOTS, MEMORY, EntryInfo, layout_of
from kernelab.lang.build import elem_of
from kernelab.lang.ir import Function, Loop, Var, While
from kernelab.lang.types import Array, bytes_of, scalar_of
from kernelab.passes.access.independence import changed

MOST = 1000
"""The most iterations of `while` loops, each of all threads at once, of a run: a tenth of a second."""


class Patient(Chunk):
    """A run of some threads; `given_up` says which of them had not left their loops when patience ended."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.trips = 0
        self.given_up = np.zeros(len(self.threads), np.bool_)

    def going(
        self, stmt: Loop, around: Frame, carried: list[Numpy], trip: int, counts: Numpy | None
    ) -> Numpy:
        """A mask of the lanes that enter another iteration."""
        going = super().going(stmt, around, carried, trip, counts)
        self.trips += isinstance(stmt, While)
        if self.trips > MOST and isinstance(stmt, While):
            self.given_up[self.own(around)[going]] = True
            going[:] = False
        return going


# ----------------------------------------------------------------------------------------------- interpreter


WIDTH = 1 << 14
"""The number of threads of a chunk: enough to hide Python's cost, few enough to stay in the cache."""


@dataclass(frozen=True, slots=True, eq=False)
class InterpretedEntry:
    """A function that the interpreter runs; `width` threads at once, 1 for strict thread order.

    `chunk` makes what runs some of them.
    """

    info: EntryInfo
    program: Program
    width: int = WIDTH
    chunk: Callable[..., Chunk] = Chunk

    def __call__(self, args: Args, /, limit: int = 0, done: int = 0, room: int = 0) -> None:
        """Run threads of the grid; raises the KernelError of the first thread that fails."""
        try:
            self._run(backends.slots_of(args), Bounds(limit, room), done)
        except KeyboardInterrupt:
            raise backends.interrupted(self.info.name) from None

    def _run(self, slots: list[int], bounds: Bounds, done: int) -> None:
        grid = slots[:GRID_SLOTS]
        launch = Launch(self.program, self.info, slots, bounds, self.chunk)
        total = int(np.prod(grid))
        left = range(total - done) if self.program.function.descending else range(done, total)
        # Threads that see what others change run one by one, as on the CPU.
        width = self.width if launch.independent else 1
        starts = range(left.start, left.stop, width)
        try:
            for start in reversed(starts) if self.program.function.descending else starts:
                failure = launch.chunk(range(start, min(left.stop, start + width)), grid)
                if failure is not None:
                    raise backends.failure(self.info, failure.status, grid)
        finally:
            launch.sums.settle()
            launch.output.flush()


class Launch:
    """The arguments of a launch as NumPy arrays."""

    def __init__(
        self,
        program: Program,
        info: EntryInfo,
        slots: Sequence[int],
        bounds: Bounds,
        made: Callable[..., Chunk] = Chunk,
    ) -> None:
        self.program = program
        self.bounds = bounds
        self.made = made
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

    def chunk(self, threads: range, grid: Sequence[int]) -> Failure | None:
        """Run some threads; what the first that failed says, if any did."""
        function = self.program.function
        frame = Frame(np.arange(threads.start, threads.stop))
        for var, value in self.values.items():
            frame.define(var, value)
        linear = frame.threads
        positions = (linear,) if len(function.threads) < 2 else np.unravel_index(linear, tuple(grid))
        for var, position in zip(function.threads, positions, strict=False):
            frame.define(var, position)
        if function.linear is not None:
            frame.define(function.linear, frame.threads)
        bounds = replace(self.bounds, used=self.kept)
        chunk = self.made(self.program, self.arrays, self.sums, threads, bounds)
        chunk.run(frame)
        chunk.print(self.output)
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
            starts[chunk.threads.start : chunk.threads.stop] = handle[1] + np.cumsum(counts) - counts
            try:
                packing.append(handle, values[np.argsort(owners, kind="stable")])
            except MemoryError:
                return Failure(MEMORY, 0, chunk.threads.start)
        return None


class Interpreter:
    """The backend that needs nothing but NumPy."""

    name = "interp"

    def build(self, functions: Sequence[Function]) -> dict[str, backends.Entry]:
        """An entry for each function, by name."""
        return {function.name: entry(function) for function in functions}


def entry(function: Function, width: int = WIDTH, chunk: Callable[..., Chunk] = Chunk) -> InterpretedEntry:
    """The entry of a function that runs `width` threads at once, by what `chunk` makes."""
    program = Program.of(function)
    name, layout, coordinates = function.name, layout_of(function), len(function.threads)
    info = EntryInfo(name, name, layout, program.sites, coordinates, range(0), descending=function.descending)
    return InterpretedEntry(info, program, width, chunk)


def run(function: Function, grid: Sequence[int], arguments: Mapping[str, Any], width: int = WIDTH) -> None:
    """Run a kernel over a grid of 1 to 4 extents with arguments by parameter name.

    Arrays have the parameter's dtype, with components as last axes; raises a KernelError as any launch does.
    """
    made = entry(function, width)
    made(packing.pack(made.info.layout, grid, arguments))


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
