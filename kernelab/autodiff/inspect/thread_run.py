"""Traces one thread of a launch: every value it reads, computes and writes, line by line, and every adjoint.

The thread runs alone, by the interpreter, on copies: it sees arrays as they are now, not what other threads
of the launch would write.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from kernelab.autodiff.checks.lost_digits import digits, digits_of
from kernelab.autodiff.records.records import LaunchRecord, Record, pullback_of
from kernelab.autodiff.tape.finite import as_launched
from kernelab.autodiff.tape.measures import sweep_on_copies
from kernelab.autodiff.tape.tape import Tape
from kernelab.autodiff.transforms.base_level import BASE
from kernelab.autodiff.transforms.wide_level import Wide
from kernelab.backend.cpu.interpreter import Seen, watch
from kernelab.data_classes import dataclass, replace
from kernelab.errors import Diagnostic, KernelTypeError, KernelValueError, LaunchError, TapeError, near
from kernelab.hooks import Printed
from kernelab.lang.ir import For, Function, of_kind
from kernelab.lang.rounding import epsilon
from kernelab.lang.types import Array, bytes_of, float64, is_differentiable, scalar_of, with_scalar
from kernelab.passes.ad.vjp import Vjp
from kernelab.passes.common.copying import widen
from kernelab.runtime.array.array import array
from kernelab.runtime.array.transfers import readable
from kernelab.runtime.context.conversion import described
from kernelab.runtime.context.recorder import name_of_memory
from kernelab.runtime.kernel.arguments import array_of, ordered, require_arguments_readable
from kernelab.runtime.kernel.facts import Groups
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.program import Pullback
from kernelab.runtime.launch.call import bind
from kernelab.runtime.launch.command import no_grid
from kernelab.runtime.launch.footprint import Grid, Residual, grid_of
from kernelab.runtime.memory.memory import Allocation, allocate, duplicate_of, zeros_like_memory
from kernelab.runtime.ops.function_calls import as_launch

MOST = 10_000
"""How many values of a run are kept at most."""

OPTIONS = ("where", "compare", "expressions")
"""What the trace of a function takes besides its arguments and the cotangents."""


Where = int | range | Mapping[str, int | range] | None
"""Lines and iterations of a kernel."""


@dataclass(frozen=True, slots=True, eq=False)
class ThreadRun(Printed):
    """The run of one thread: values of the primal, then of the adjoint; `note` says why there are none.

    `lost` are sentences about values of a recorded launch that were overwritten, and not saved.
    """

    kernel: str
    thread: tuple[int, ...]
    primal: tuple[Seen, ...]
    adjoint: tuple[Seen, ...]
    note: str = ""
    record: int | None = None
    lost: tuple[str, ...] = ()

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
    where: Where = None,
    compare: Literal["float64"] | None = None,
    expressions: bool = False,
) -> ThreadRun:
    """Run one thread of a launch and its adjoint, and keep every value; nothing that it is given changes.

    `thread` is the position in the grid `dim`, an int or as many as the grid has dimensions; the arguments
    are those of `launch`.  `adjoints` maps arrays, or names of parameters, to the cotangents that the sweep
    starts with; otherwise every element of a float array that the kernel changes has 1.  `where` is a line, a
    range of lines, or what both have to be, by name: ``{"line": 7, "k": 3}``, of a loop over `k`, or
    ``"iteration"`` of the innermost loop.  With ``compare="float64"`` the thread runs in float64, too, and
    with `expressions` every subexpression has a row.  Raises LaunchError for a thread outside of the grid,
    and what a launch raises, KernelValueError for no such place, and GradientError in a lane of `vmap`.
    """
    keeps = chosen(where)
    _require_precision(compare)
    call = ThreadArguments.of(kernel, thread, dim, inputs, outputs)
    _require_loops(where, call.kernel)
    kernel, position, parts, reverse = call.kernel, call.position, call.parts, call.reverse
    if isinstance(reverse, KernelTypeError):
        seen = watch(kernel.program.unmerged, b"".join(parts), call.linear, MOST, keeps, expressions)
        return ThreadRun(kernel.name, position, tuple(seen), (), reverse.diagnostics[0].message)
    arguments = [a if isinstance(a, array) else p for a, p in zip(call.arguments, parts[1:], strict=True)]
    bars = call.bars(reverse, adjoints)
    barred = [bars[i] for i in reverse.active]
    way = ThreadRunner(reverse.unmerged, call.grid, call.linear, keeps, expressions)
    wide = None if compare is None else way.widened(kernel, arguments, barred)
    primal, adjoint = way.run(arguments, barred)
    if wide is not None:
        primal, adjoint = beside(primal, wide[0]), beside(adjoint, wide[1])
    return ThreadRun(kernel.name, position, tuple(primal), tuple(adjoint))


def _require_precision(compare: object) -> None:
    if compare not in (None, "float64"):
        message = f"compare={compare!r} is not a precision"
        raise KernelValueError.of(message, "compare", 'write compare="float64"')


def trace_record(
    tape: Tape,
    record: int | LaunchRecord,
    thread: int | Sequence[int] = 0,
    loss: array | None = None,
    grads: Mapping[array, Any] | None = None,
    where: Where = None,
    compare: Literal["float64"] | None = None,
    expressions: bool = False,
) -> ThreadRun:
    """Run one thread of a recorded launch, and its adjoint on the cotangents that arrive there.

    `record` is a launch of the tape, or its number there, from 1, as the view of the tape shows it; -1 is the
    last.  The cotangents are those of ``tape.backward(loss, grads)``, or of the last `backward`.  No gradient
    changes.  Values that were overwritten since are those that the tape has saved.  Raises TapeError where
    the record is not a launch with an adjoint, it is not known what the gradient is of, or float64 would need
    values that the launch has overwritten; otherwise as `trace_thread` does.
    """
    keeps, records = chosen(where), tuple(tape)
    _require_precision(compare)
    k = _place_of(record, records)
    launch = None if k is None else records[k]
    is_launch = isinstance(launch, LaunchRecord) and launch.space is None
    reverse = getattr(launch, "pullback", None) if is_launch else None
    if k is None or not isinstance(launch, LaunchRecord) or not isinstance(reverse, Pullback):
        message = f"record {record} of this tape is not a launch on the CPU that has an adjoint"
        numbers = ", ".join(str(i) for i, one in enumerate(records, 1) if isinstance(one, LaunchRecord))
        hint = f"records count from 1, as in the view of the tape; its launches are {numbers or 'none'}"
        raise TapeError.of(message, "record", hint)
    _require_loops(where, launch.kernel)
    seeds = tape.cotangents(loss, grads) if loss is not None or grads is not None else tape.last_cotangents
    if seeds is None:
        hint = "write kl.trace(tape, record, thread, loss=loss), or call tape.backward(loss) first"
        raise TapeError.of("say what the gradient is of", "trace", hint)
    position = _position(thread, launch.grid)
    linear = int(np.ravel_multi_index(position, launch.grid.extents))
    saved, adjoints = launch.saved(), sweep_on_copies(records, seeds, end=k + 1)
    again, wide = as_launched(launch), None
    way = ThreadRunner(reverse.unmerged, launch.grid, linear, keeps, expressions)
    if compare is not None:
        wide = way.widened(launch.kernel, _arguments(launch, again), launch.bars(adjoints))
    swept = way.watched(reverse.unmerged.adjoint, launch.adjoint_parts(adjoints, saved))
    adjoint = _of_cotangents(swept, launch.kernel.primal)
    if again is None:  # the adjoint computes again what it needs, from what the launch has kept
        kept = {residual.array.hint: "a kept value" for residual in reverse.unmerged.residuals}
        kept |= {residual.starts.hint: "" for residual in reverse.unmerged.residuals}
        rest = [(one, one.name.partition("[")[0]) for one in swept if one not in adjoint]
        primal = [replace(one, name=kept.get(name, one.name)) for one, name in rest if kept.get(name) != ""]
    else:
        primal = way.watched(launch.kernel.program.unmerged, launch.parts_with(again))
    if wide is not None:
        primal, adjoint = beside(primal, wide[0]), beside(adjoint, wide[1])
    lost = tuple(
        f"`{called}` was overwritten at {one.place}, and not saved: its values below are those of now"
        for one in tape.overwrites
        if one.outcome == "tainted" and one.reader.record() is launch
        for called in [name_of_memory(one.elements.allocation) or "an array"]
    )
    return ThreadRun(launch.kernel.name, position, tuple(primal), tuple(adjoint), "", k + 1, lost)


def _place_of(record: object, records: Sequence[Record]) -> int | None:
    """The place among some records of one of them, of its number from 1, or from -1 of the last."""
    if isinstance(record, int):
        k = record - 1 if record > 0 else len(records) + record
        return k if 0 <= k < len(records) else None
    return records.index(record) if record in records else None


def _arguments(record: LaunchRecord, again: Mapping[int, array] | None) -> list[array | bytes]:
    """The arguments of a launch as they were: arrays, and packed numbers."""
    if again is None:
        message = f"`{record.kernel.name}` overwrites what it reads, and kept that in its own precision"
        hint = "leave out compare=, or write the results to another array than the one that is read"
        raise TapeError.of(message, "compare", hint, record.place.span)
    arguments = [again.get(i, argument) for i, argument in enumerate(record.arguments)]
    parts = zip(arguments, record.parts[1:], strict=True)
    return [one if isinstance(one, array) else part for one, part in parts]


def _of_cotangents(seen: Sequence[Seen], primal: Function) -> list[Seen]:
    """What an adjoint does to cotangents, without the values of the primal that it computes again."""
    replayed = {param.hint for param in primal.params}
    names = [one.name.partition("[")[0] for one in seen]
    is_bar = [name.endswith("_bar") and name not in replayed for name in names]
    shown = [one for one, is_one in zip(seen, is_bar, strict=True) if is_one]
    totals = {(one.span.line, one.name): one.value for one in shown if one.sign == "+="}
    # A sum that goes, as it is, to the one element of the same name at the same line is left out.
    handed_on = [totals.get((one.span.line, f"{one.name}[0]")) for one in shown]
    pairs = zip(shown, handed_on, strict=True)
    return [one for one, total in pairs if total is None or not np.array_equal(one.value, total)]


@dataclass(frozen=True, slots=True)
class ThreadRunner:
    """How one thread runs: forth and back, with what is kept of it."""

    programs: Vjp
    grid: Grid
    linear: int
    keeps: Callable[[Seen], bool]
    expressions: bool

    def run(
        self, arguments: Sequence[array | bytes], bars: Sequence[array], is_wide: bool = False
    ) -> tuple[list[Seen], list[Seen]]:
        """What is seen of the primal and of the adjoint, in float64 if `is_wide`."""
        primal, adjoint = self.programs.primal, self.programs.adjoint
        types = [residual.type for residual in self.programs.residuals]
        if is_wide:
            primal, adjoint = widen(primal), widen(adjoint)
            types = [with_scalar(type, float64) if is_differentiable(type) else type for type in types]
        residuals = [Residual(scalar_of(type), self.grid.threads) for type in types]
        parts = [self.grid.packed, *(one.packed if isinstance(one, array) else one for one in arguments)]
        forth = self.watched(primal, [*parts, *(residual.packed for residual in residuals)])
        saved = [values for residual in residuals for values in residual.arrays()]  # alive until the end
        back = self.watched(adjoint, [*parts, *(one.packed for one in (*bars, *saved))])
        return forth, _of_cotangents(back, primal)

    def widened(
        self, kernel: Kernel, arguments: Sequence[array | bytes], bars: Sequence[array]
    ) -> tuple[list[Seen], list[Seen]]:
        """The same in float64, on copies."""
        level = Wide(BASE)
        pairs = zip(arguments, kernel.primal.params, strict=True)
        packs: list[Any] = [level.given(argument, param.type) for argument, param in pairs]
        return self.run(packs, [level.stand_in(bar) for bar in bars], is_wide=True)

    def watched(self, function: Function, parts: Sequence[bytes]) -> list[Seen]:
        return watch(function, b"".join(parts), self.linear, MOST, self.keeps, self.expressions)


def beside(seen: Sequence[Seen], wide: Sequence[Seen]) -> list[Seen]:
    """The floats of a run with those of the same run in float64, and the digits on which they agree."""
    by_place: dict[Hashable, list[Seen]] = {}
    for one in reversed(wide):
        by_place.setdefault((one.span.line, one.name, one.sign, one.loops), []).append(one)
    compared = []
    for one in seen:
        twins = by_place.get((one.span.line, one.name, one.sign, one.loops))
        value = np.asarray(one.value)
        if twins and value.dtype.kind not in "iub":
            exact = (twins.pop() if len(twins) > 1 else twins[0]).value  # one read may stand for several
            most = digits_of(epsilon(value.dtype))
            left = float(digits(value[np.newaxis], np.asarray(exact)[np.newaxis], most)[0])
            one = replace(one, wide=exact, left=left)
        compared.append(one)
    return compared


def chosen(where: Where) -> Callable[[Seen], bool]:
    """Whether a value is at the lines, and in the iterations, that were chosen."""
    asked = where if isinstance(where, Mapping) else {} if where is None else {"line": where}
    if not all(isinstance(name, str) and isinstance(at, int | range) for name, at in asked.items()):
        hint = 'write where=7, where=range(7, 9), or where={"line": 7, "k": 3}, of iteration 3 over k'
        raise KernelValueError.of(f"where={where!r} is not a place of a kernel", "where", hint)
    wanted = {name: range(at, at + 1) if isinstance(at, int) else at for name, at in asked.items()}

    def keeps(one: Seen) -> bool:
        numbers = {"line": one.span.line, **({"iteration": one.loops[-1][1]} if one.loops else {})}
        numbers |= dict(one.loops)
        return all(name in numbers and numbers[name] in among for name, among in wanted.items())

    return keeps


def _require_loops(where: Where, kernel: Kernel) -> None:
    """Raise KernelValueError where a place names no loop of a kernel."""
    if not isinstance(where, Mapping):
        return
    hints = (loop.index.hint for loop in of_kind(kernel.program.unmerged.body, For))
    loops = dict.fromkeys(hint for hint in hints if hint)
    for name in where:
        if name not in ("line", "iteration", *loops):
            message = f"where={where!r} names {name}, which is no loop of `{kernel.name}`"
            over = f"its loops run over {', '.join(loops)}" if loops else "it has no loop with an index"
            hint = near(name, loops, f'{over}; "line" and "iteration" go, too')
            raise KernelValueError.of(message, "where", hint)


def trace_call(function: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> ThreadRun:
    """The run of a function for kernels and of its adjoint, as of one thread; `adjoints` among the names."""
    own = {name: value for name, value in named.items() if name in OPTIONS}
    rest = {name: value for name, value in named.items() if name not in OPTIONS}
    return trace_thread(*thread_of_call(function, arguments, rest), **own)


def thread_of_call(function: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
    """The arguments of `trace_thread` for the call of a function, with `adjoints` among the names."""
    rest = {name: value for name, value in named.items() if name != "adjoints"}
    call = as_launch(function, arguments, rest)
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
        active = {*self.kernel.program.floats, *self.kernel.plan.numbers}
        if not active:
            message = "no parameter is a float or an array of floats, so there is no adjoint"
            return KernelTypeError(Diagnostic(message, self.kernel.span))
        return pullback_of(self.kernel.program, active, self.sharing)

    def bars(self, reverse: Pullback, adjoints: Mapping[Any, Any] | None) -> dict[int, array]:
        """The adjoints that a sweep starts with, by positions: of a number one element."""
        memories = {copy: zeros_like_memory(copy) for copy in self.copies.values()}
        bars: dict[int, array] = {}
        for i in reverse.active:
            type = self.kernel.primal.params[i].type
            if isinstance(type, Array):
                bars[i] = self.arguments[i].twin(memories[self.arguments[i].allocation])
            else:
                memory = allocate(bytes_of(type), cleared=True)
                bars[i] = array.over(memory, 0, (1,), (bytes_of(type),), type)
        _seed(self.kernel, self.originals, bars, adjoints)
        return bars


def _position(thread: Any, grid: Grid) -> tuple[int, ...]:
    position = tuple(thread) if isinstance(thread, tuple | list) else (thread,)
    if not all(isinstance(i, int | np.integer) for i in position):
        message = f"a thread is an int, or one for each dimension of the grid, not {described(thread)}"
        raise LaunchError.of(message, "thread", "write kl.trace(kernel, 0, dim=n, inputs=[...])")
    if len(position) == 1 < len(grid.extents) and 0 <= position[0] < grid.threads:
        return grid.position(position[0])
    pairs = zip(position, grid.extents, strict=False)
    if len(position) != len(grid.extents) or not all(0 <= i < n for i, n in pairs):
        extents = " × ".join(map(str, grid.extents))
        message = f"there is no thread {thread} in a grid of {extents} threads"
        raise LaunchError.of(message, "thread", "threads count from 0")
    return tuple(map(int, position))


def _copied(kernel: Kernel, arguments: list[Any], parts: list[bytes]) -> dict[Allocation, Allocation]:
    """Put copies in place of the arrays; arrays that share memory still do."""
    copies: dict[Allocation, Allocation] = {}
    for i in kernel.program.arrays:
        primal = arguments[i]
        if primal.__class__ is not array:
            name = kernel.plan.parameters[i].name
            message = f"picked elements cannot be traced: `{name}` is an indexedarray"
            raise LaunchError.of(message, "index", "pass x.contiguous()", kernel.span)
        memory = primal.allocation
        if memory not in copies:
            copies[memory] = duplicate_of(memory)
        arguments[i] = primal.twin(copies[memory])
        parts[1 + i] = arguments[i].packed
    return copies


def _seed(
    kernel: Kernel, arguments: Sequence[Any], bars: Mapping[int, array], adjoints: Mapping[Any, Any] | None
) -> None:
    if adjoints is None:
        for i in bars.keys() & set(kernel.plan.written):
            bars[i].host()[...] = 1
        return
    given: object = adjoints
    if not isinstance(given, Mapping):
        message = f"`adjoints` maps outputs to their cotangents, and here it is {described(adjoints)}"
        raise LaunchError.of(message, "trace", "write adjoints={y: kl.ones_like(y)}")
    for key, cotangent in adjoints.items():
        values = np.asarray(readable(cotangent) if isinstance(cotangent, array) else cotangent)
        for i in _named(kernel, arguments, bars, key):
            expected = bars[i].host().shape
            if values.shape not in ((), expected):
                name = kernel.plan.parameters[i].name
                message = f"the cotangent of `{name}` has shape {values.shape}, where {expected} is needed"
                raise LaunchError.of(message, "trace", "write adjoints={y: kl.ones_like(y)}")
            bars[i].host()[...] = values.astype(scalar_of(bars[i].dtype).dtype)


def _named(kernel: Kernel, arguments: Sequence[Any], bars: Mapping[int, array], key: object) -> list[int]:
    """The arguments with an adjoint that a name, or the argument itself, stands for; raises LaunchError."""
    names = {kernel.plan.parameters[i].name: i for i in bars}
    if isinstance(key, str) and key in names:
        return [names[key]]
    positions = [i for i in bars if array_of(arguments[i]) is key]
    if not positions:
        called = f"`{key}`" if isinstance(key, str) else "what `adjoints` names"
        message = f"{called} is not a float argument of `{kernel.name}`"
        raise LaunchError.of(message, "seed", f"name one of {', '.join(names)}", kernel.span)
    return positions
