"""Traces one thread of a launch: every value it reads, computes and writes, line by line, and every adjoint.

The thread runs alone, by the interpreter, on copies: it sees arrays as they are now, not what other threads
of the launch would write.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelab.autodiff.records.records import pullback_of
from kernelab.backend.cpu.interpreter import Seen, watch
from kernelab.errors import Diagnostic, KernelTypeError, LaunchError
from kernelab.lang.types import Array, bytes_of, scalar_of
from kernelab.runtime.array.array import array
from kernelab.runtime.array.transfers import readable
from kernelab.runtime.context.conversion import described
from kernelab.runtime.kernel.arguments import Reference, ordered, require_arguments_readable
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.program import Groups, Pullback
from kernelab.runtime.launch.command import no_grid
from kernelab.runtime.launch.footprint import Grid, Residual, grid_of
from kernelab.runtime.launch.launch import bind
from kernelab.runtime.memory.memory import Allocation, allocate
from kernelab.runtime.ops.function_calls import as_launch

MOST = 10_000
"""How many values of a run are kept at most."""


@dataclass(frozen=True, slots=True, eq=False)
class ThreadRun:
    """The run of one thread: values of the primal, then of the adjoint; `note` says why there are none."""

    kernel: str
    thread: tuple[int, ...]
    primal: tuple[Seen, ...]
    adjoint: tuple[Seen, ...]
    note: str = ""

    def __repr__(self) -> str:
        counts = f"{len(self.primal)} values, {len(self.adjoint)} adjoints"
        return f"<thread {', '.join(map(str, self.thread))} of {self.kernel}: {counts}>"


def trace_thread(
    kernel: Kernel,
    thread: int | Sequence[int] = 0,
    dim: int | Sequence[int] | None = None,
    inputs: Sequence[Any] = (),
    outputs: Sequence[Any] = (),
    adjoints: Mapping[Any, Any] | None = None,
) -> ThreadRun:
    """Run one thread of a launch and its adjoint, and keep every value; nothing that it is given changes.

    `thread` is the position in the grid `dim`, an int or as many as the grid has dimensions; the arguments
    are those of `launch`.  `adjoints` maps arrays, or names of parameters, to the cotangents that the sweep
    starts with; otherwise every element of a float array that the kernel changes has 1.  Raises LaunchError
    for a thread outside of the grid, and what a launch raises, and GradientError in a lane of `vmap`.
    """
    made = ThreadArguments.of(kernel, thread, dim, inputs, outputs)
    kernel, position, linear, parts = made.kernel, made.position, made.linear, made.parts
    reverse = made.reverse
    if isinstance(reverse, KernelTypeError):
        seen = watch(kernel.program.unmerged, b"".join(parts), linear, MOST)
        return ThreadRun(kernel.name, position, tuple(seen), (), reverse.diagnostics[0].message)
    residuals = [Residual(type, made.grid.threads) for type in reverse.residuals]
    function = reverse.unmerged.primal
    slots = b"".join([*parts, *(residual.packed for residual in residuals)])
    primal = watch(function, slots, linear, MOST)
    bars = made.bars(reverse, adjoints)
    saved = [values for residual in residuals for values in residual.arrays()]  # alive until the run is over
    slots = b"".join([*parts, *(bars[i].packed for i in reverse.active), *(one.packed for one in saved)])
    replayed = {param.hint for param in function.params}
    adjoint = (
        seen
        for seen in watch(reverse.unmerged.adjoint, slots, linear, MOST)
        if (name := seen.name.partition("[")[0]).endswith("_bar") and name not in replayed
    )
    return ThreadRun(kernel.name, position, tuple(primal), tuple(adjoint))


def trace_call(function: Any, given: Sequence[Any], named: Mapping[str, Any]) -> ThreadRun:
    """The run of a function for kernels and of its adjoint, as of one thread; `adjoints` among the names."""
    return trace_thread(*thread_of_call(function, given, named))


def thread_of_call(function: Any, given: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
    """The arguments of `trace_thread` for the call of a function, with `adjoints` among the names."""
    rest = {name: value for name, value in named.items() if name != "adjoints"}
    call = as_launch(function, given, rest)
    return call.kernel, 0, 1, call.inputs, call.outputs, named.get("adjoints")


@dataclass(frozen=True, slots=True, eq=False)
class ThreadArguments:
    """One thread of a launch to be run alone: packed arguments, in which copies stand for the arrays.

    `originals` are the arguments as they were given, `copies` the memory of the copies by that of these.
    """

    kernel: Kernel
    grid: Grid
    position: tuple[int, ...]
    originals: tuple[Any, ...]
    arguments: list[Any]
    parts: list[bytes]
    copies: dict[Allocation, Allocation]

    @classmethod
    def of(
        cls,
        kernel: Kernel,
        thread: int | Sequence[int],
        dim: int | Sequence[int] | None,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
    ) -> "ThreadArguments":
        """The thread of a launch with these arguments; raises as `trace_thread` does."""
        if dim is None:
            raise no_grid(kernel, [*inputs, *outputs])
        grid = grid_of(dim)
        position = _position(thread, grid)
        arguments, parts = [*inputs, *outputs], [grid.packed]
        if len(arguments) != kernel.arity:
            arguments = ordered(kernel.loaded, arguments, {})
        kernel = kernel.of_arguments(arguments)
        bind(kernel, arguments, parts)
        require_arguments_readable(arguments)
        originals = tuple(arguments)
        return cls(kernel, grid, position, originals, arguments, parts, _copied(kernel, arguments, parts))

    @property
    def linear(self) -> int:
        """The number of the thread in the grid."""
        return int(np.ravel_multi_index(self.position, self.grid.extents))

    @property
    def sharing(self) -> Groups:
        """The positions of arguments that share memory."""
        return self.kernel.program.sharing(self.originals)

    @property
    def reverse(self) -> Pullback | KernelTypeError:
        """Reverse mode by all arguments that have derivatives, or why there is none."""
        return _reverse(self.kernel, self.sharing)

    def bars(self, reverse: Pullback, adjoints: Mapping[Any, Any] | None) -> dict[int, array]:
        """The adjoints that a sweep starts with, by the positions of the arguments."""
        bars = _bars(self.kernel, reverse, self.arguments, self.copies)
        _seed(self.kernel, self.originals, bars, adjoints)
        return bars


def _position(thread: Any, grid: Grid) -> tuple[int, ...]:
    position = tuple(thread) if isinstance(thread, tuple | list) else (thread,)
    if not all(isinstance(i, int | np.integer) for i in position):
        message = f"a thread is an int, or one for each dimension of the grid, not {described(thread)}"
        hint = "write kl.trace(kernel, 0, dim=n, inputs=[...])"
        raise LaunchError(Diagnostic(message, code="thread", hint=hint))
    if len(position) == 1 < len(grid.extents) and 0 <= position[0] < grid.threads:
        return tuple(map(int, np.unravel_index(position[0], grid.extents)))
    pairs = zip(position, grid.extents, strict=False)
    if len(position) != len(grid.extents) or not all(0 <= i < n for i, n in pairs):
        extents = " × ".join(map(str, grid.extents))
        message = f"there is no thread {thread} in a grid of {extents} threads"
        raise LaunchError(Diagnostic(message, code="thread", hint="threads count from 0"))
    return tuple(map(int, position))


def _copied(kernel: Kernel, arguments: list[Any], parts: list[bytes]) -> dict[Allocation, Allocation]:
    """Put copies in the place of the arrays; what shares memory still does."""
    copies: dict[Allocation, Allocation] = {}
    for i in kernel.plan.arrays:
        primal = arguments[i]
        if primal.__class__ is not array:
            name = kernel.plan.parameters[i].name
            message = f"picked elements cannot be traced: `{name}` is an indexedarray"
            raise LaunchError(Diagnostic(message, kernel.span, "index", hint="pass x.contiguous()"))
        memory = primal.allocation
        if memory not in copies:
            copies[memory] = allocate(memory.nbytes, cleared=False)
            np.frombuffer(copies[memory].buffer(), np.uint8)[:] = np.frombuffer(memory.buffer(), np.uint8)
        arguments[i] = primal.twin(copies[memory])
        parts[1 + i] = arguments[i].packed
    return copies


def _reverse(kernel: Kernel, shared: Groups) -> Pullback | KernelTypeError:
    plan = kernel.plan
    active = {*plan.floats, *plan.numbers}
    if not active:
        message = "no parameter is a float or an array of floats, so there is no adjoint"
        return KernelTypeError(Diagnostic(message, kernel.span))
    return pullback_of(kernel, active, shared)


def _bars(
    kernel: Kernel, reverse: Pullback, arguments: Sequence[Any], copies: Mapping[Allocation, Allocation]
) -> dict[int, array]:
    """Adjoints of zeros: of arrays in memory of the same layout, of numbers one element."""
    memories = {copy: allocate(copy.nbytes, cleared=True) for copy in copies.values()}
    bars: dict[int, array] = {}
    for i in reverse.active:
        type = kernel.primal.params[i].type
        if isinstance(type, Array):
            bars[i] = arguments[i].twin(memories[arguments[i].allocation])
        else:
            memory = allocate(bytes_of(type), cleared=True)
            bars[i] = array.over(memory, 0, (1,), (bytes_of(type),), type)
    return bars


def _seed(
    kernel: Kernel, arguments: Sequence[Any], bars: Mapping[int, array], adjoints: Mapping[Any, Any] | None
) -> None:
    if adjoints is None:
        for i in bars.keys() & set(kernel.plan.written):
            bars[i].host()[...] = 1
        return
    for key, cotangent in adjoints.items():
        values = readable(cotangent) if isinstance(cotangent, array) else cotangent
        for i in _named(kernel, arguments, bars, key):
            bars[i].host()[...] = np.asarray(values).astype(scalar_of(bars[i].dtype).dtype)


def _named(kernel: Kernel, arguments: Sequence[Any], bars: Mapping[int, array], key: object) -> list[int]:
    """The arguments with an adjoint that a name, or the argument itself, stands for; raises LaunchError."""
    names = {kernel.plan.parameters[i].name: i for i in bars}
    if isinstance(key, str) and key in names:
        return [names[key]]
    whole = [argument.array if isinstance(argument, Reference) else argument for argument in arguments]
    positions = [i for i in bars if whole[i] is key]
    if not positions:
        called = f"`{key}`" if isinstance(key, str) else "what `adjoints` names"
        message = f"{called} is no float argument of `{kernel.name}`"
        raise LaunchError(Diagnostic(message, kernel.span, "seed", hint=f"name one of {', '.join(names)}"))
    return positions
