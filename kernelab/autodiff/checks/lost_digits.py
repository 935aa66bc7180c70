"""Precision check: runs programs in their own precision and in float64, and counts the digits that agree.

Both run on the interpreter, before common subexpressions are merged, on the same inputs.  What a statement
loses is the difference between the digits that its operands have and those that its result has, as where
nearly equal numbers are subtracted; a comparison that comes out otherwise loses all.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from kernelab.autodiff.checks.screening import Fault
from kernelab.autodiff.checks.tape_replay import Line, NotReplayableError
from kernelab.autodiff.checks.witnesses import Pair
from kernelab.autodiff.jacobians.jacobian import Trace
from kernelab.autodiff.jacobians.subject import Subject, Variable, of_function, of_kernel, outside_transforms
from kernelab.autodiff.records.adjoint_buffers import (
    Adjoints,
    Argument,
    Extents,
    Kept,
    KeptStarts,
    KeptValues,
    packed,
    plain_copy,
    scalars,
)
from kernelab.autodiff.tape.seeds import values_of
from kernelab.autodiff.tape.tape import Tape
from kernelab.autodiff.transforms.base_level import BASE
from kernelab.autodiff.transforms.host_calls import HostCall
from kernelab.autodiff.transforms.host_numbers import varied_inputs
from kernelab.autodiff.transforms.levels import Level
from kernelab.autodiff.transforms.wide_level import Wide
from kernelab.backend.cpu import interpreter
from kernelab.backend.cpu.chunk import Chunk, Trip
from kernelab.backend.cpu.lanes import Frame, Numpy
from kernelab.data_classes import dataclass
from kernelab.errors import NOWHERE, KernelError, KernelTypeError, Source, Span, TapeError, text_of
from kernelab.guidance.bad_calls import explains_bad_calls
from kernelab.hooks import Printed
from kernelab.lang import ir
from kernelab.lang.dependence import dependences, reached
from kernelab.lang.ops import SHAPE
from kernelab.lang.rounding import epsilon
from kernelab.lang.types import Type, float64, is_differentiable, with_scalar
from kernelab.passes.access.independence import independent
from kernelab.passes.common.copying import inline, widen_all
from kernelab.runtime.array.array import array
from kernelab.runtime.context.conversion import described
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.program import Program
from kernelab.runtime.launch.call import will_write
from kernelab.runtime.launch.command import no_grid, require_lists
from kernelab.runtime.launch.footprint import grid_of

MOST_NUMBERS = 1 << 23
"""Of a longer run, what comes later is not looked at."""

MOST_THREADS, MOST_ALONE = 1 << 14, 1 << 9
"""Launches of more threads are not looked at; fewer where threads have to run one by one."""

FAULT = 3.0
"""How many digits no single operation on numbers loses."""

NOTABLE = 1.0
"""How many digits a statement loses at least to be named."""


def digits_of(scalar_epsilon: float) -> float:
    """The decimal digits of a correctly rounded number whose neighbours are that far apart at 1."""
    return -math.log10(scalar_epsilon / 2.0)


def digits(own: Numpy, wide: Numpy, most: float) -> Numpy:
    """How many digits agree, at most `most`, for each of some values; components count together."""
    rows = (len(own), -1)
    a, b = own.astype(np.float64).reshape(rows), wide.astype(np.float64).reshape(rows)
    least = float(np.finfo(own.dtype).tiny) if own.dtype.kind == "f" else 0.0
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= least)
        error = np.where(same, 0.0, np.abs(a - b)).max(axis=1, initial=0.0)
        agreeing = -np.log10(error / np.abs(b).max(axis=1, initial=0.0))
    agreeing = np.where(np.isnan(agreeing), 0.0, np.clip(agreeing, 0.0, most) + 0.0)
    return np.asarray(np.where(same.all(axis=1), most, agreeing))


@dataclass(frozen=True, slots=True)
class Loss:
    """The worst that a statement did: the digits `left` of its result, and `before` of its operands.

    `own` and `wide` are the result in its own precision and in float64, `precision` the name of the former.
    """

    span: Span
    own: Any
    wide: Any
    left: float
    before: float
    most: float
    precision: str
    thread: int
    is_backward: bool
    is_decision: bool

    @property
    def lost(self) -> float:
        """How many digits the statement itself loses."""
        return self.before - self.left

    @property
    def text(self) -> str:
        """The expression in the source."""
        return text_of(self.span)

    @property
    def told(self) -> str:
        """What happened, in words."""
        thread = f", in thread {self.thread}"
        if self.is_decision:
            return f"`{self.text}` is {self.own} in {self.precision} and {self.wide} in float64{thread}"
        values = f"{number(self.own)} in {self.precision} and {number(self.wide)} in float64{thread}"
        left = f"{self.left:.1f} of {self.most:.1f} digits are left; its operands have {self.before:.1f}"
        where = "the adjoint of " * self.is_backward
        return f"{where}`{self.text}` computes {values}: {left}"


def number(value: Any) -> str:
    """A number, or the components of a value, in six digits."""
    return f"{float(value):.6g}" if np.ndim(value) == 0 else np.array2string(np.asarray(value), precision=6)


# ------------------------------------------------------------------------------------------ side by side


@dataclass(frozen=True, slots=True)
class Computed:
    """What a statement computed for some threads."""

    stmt: ir.Let | ir.Load | ir.Atomic
    threads: Numpy
    operands: list[Numpy]
    result: Numpy


Key = tuple[ir.Var, int, tuple[int, ...]]
"""A value, the first of the threads that run together, and the numbers of the iterations around it."""


class FloatsChunk(Chunk):
    """A run of some threads that hands every float to `note`, and what is decided by floats."""

    def __init__(self, note: Callable[[Key, Computed], None], *arguments: Any) -> None:
        super().__init__(*arguments)
        self.note = note
        self.trips: list[int] = []

    def stmt(self, stmt: ir.Stmt, frame: Frame) -> None:
        if isinstance(stmt, ir.Atomic) and stmt.kind == "add" and is_differentiable(stmt.out.type):
            places, live = self.places(stmt, frame)
            before = self.element(stmt.array, places)
            super().stmt(stmt, frame)
            if live == len(frame):
                computed = Computed(
                    stmt, frame.threads, [frame.values(stmt.value), before], self.element(stmt.array, places)
                )
                self.note((stmt.out, self.threads.start, tuple(self.trips)), computed)
            return
        super().stmt(stmt, frame)
        if not isinstance(stmt, ir.Let | ir.Load) or (isinstance(stmt, ir.Let) and stmt.op is SHAPE):
            return
        args = stmt.args if isinstance(stmt, ir.Let) else ()
        floats = [arg for arg in args if is_differentiable(arg.type)]
        if floats or is_differentiable(stmt.out.type):
            operands = [frame.values(arg) for arg in floats]
            computed = Computed(stmt, frame.threads, operands, frame.values(stmt.out))
            self.note((stmt.out, self.threads.start, tuple(self.trips)), computed)

    def element(self, array: ir.Var, places: tuple[Any, ...]) -> Numpy:
        """What elements hold, with what accumulators hold for them."""
        values: Numpy = self.storage(array)[places]
        return np.array(values + self.sums.pending(array, places)).astype(values.dtype)

    def iteration(self, trip: Trip) -> list[Numpy]:
        self.trips.append(trip.before)
        try:
            return super().iteration(trip)
        finally:
            self.trips.pop()


class SideBySide(Wide):
    """Runs programs in their own precision and, on copies, in float64.

    `losses` has the worst of each expression, by its place and whether it is of the adjoint, and `left` the
    fewest digits that its result had.  `is_complete` is false where something could not be looked at: more
    threads or numbers than the limits allow, or C++; `calls_host` says that a Python function computed
    something; `is_faulty` that an operation on numbers gave something else than float64 does for the same
    operands.
    """

    def __init__(self) -> None:
        super().__init__(BASE)
        self.is_complete = True
        self.calls_host = False
        self.is_faulty = False
        self.losses: dict[tuple[Span, bool], Loss] = {}
        self.left: dict[tuple[Span, bool], float] = {}
        self._room = MOST_NUMBERS
        self._kept: dict[Kept, Kept] = {}

    run, move = Level.run, Level.move

    def _run(self, program: Program, grid: Extents, arguments: Sequence[Argument]) -> None:
        params, shape = program.function.params, grid_of(grid)
        twins = [self._twin(a, param.type) for a, param in zip(arguments, params, strict=True)]
        for i in program.changed:  # the run in float64 finds integers as they were before the other one
            if isinstance(one := twins[i], array) and one is arguments[i]:
                twins[i] = plain_copy(one)
        will_write(program, grid, arguments)
        text = inline(program.unmerged)
        most = MOST_THREADS if independent(text) else MOST_ALONE
        if shape.threads > most or not interpreter.can_interpret(text):
            self.is_complete = False
            self.parent.run(program, grid, arguments)
            self.parent.run(program.widened, grid, twins)
            return
        wide, widened = widen_all(text)
        own, names = dict[Key, Computed](), {out: var for var, out in widened.items()}
        adjoint = cotangents(text)

        def keep(key: Key, computed: Computed) -> None:
            self._room -= computed.result.size
            self.is_complete &= self._room >= 0
            if self._room >= 0:
                own[key] = computed

        def compare(key: Key, computed: Computed) -> None:
            first = own.get((names[key[0]], *key[1:])) if key[0] in names else None
            if first is not None:
                self.see(first, computed, first.stmt.out in adjoint)

        for function, note, operands in ((text, keep, arguments), (wide, compare, twins)):
            parts = [shape.packed, *(packed(each, shape.threads, None) for each in operands)]
            interpreter.entry(function, chunk=partial(FloatsChunk, note))(b"".join(parts))

    def _twin(self, argument: Argument, type: Type) -> Argument:
        match argument:
            case Kept():
                is_float = is_differentiable(argument.elem)
                twin = Kept(with_scalar(argument.elem, float64) if is_float else argument.elem)
                self._kept[argument] = twin
                return twin
            case KeptValues(kept):
                return KeptValues(self._kept[kept])
            case KeptStarts(kept, inner):
                return KeptStarts(self._kept[kept], inner)
            case _:
                return super().given(argument, type)

    def call_host(self, call: HostCall, arguments: Sequence[array]) -> list[array]:
        self.calls_host = True
        own, results = self.parent.call_host(call, arguments), super().call_host(call, arguments)
        for result, values in zip(results, own, strict=True):
            self.parent.move(result, values)
            self.note(result.allocation)
        return results

    def _move(self, dest: array, src: array, add: bool) -> None:
        twins = self.stand_in(dest), self.stand_in(src)
        dest.allocation.will_write(dest)
        self.parent.move(dest, src, add)
        if is_differentiable(dest.dtype):
            self.parent.move(*twins, add)

    def see(self, own: Computed, wide: Computed, is_backward: bool) -> None:
        """Compare what a statement computed for the threads that both runs have there."""
        both, at, there = np.intersect1d(own.threads, wide.threads, True, True)
        if not len(both):
            return
        out, a, b = own.stmt.out, own.result[at], wide.result[there]
        is_decision = not is_differentiable(out.type)
        dtypes = [each.dtype for each in (own.operands if is_decision else [a])]
        most = min(digits_of(epsilon(dtype)) for dtype in dtypes)
        operands = [digits(x[at], y[there], most) for x, y in zip(own.operands, wide.operands, strict=False)]
        before = np.min(operands, axis=0) if operands else np.full(len(both), most)
        left = np.where(a == b, before, 0.0) if is_decision else digits(a, b, most)
        if isinstance(own.stmt, ir.Let) and isinstance(wide.stmt, ir.Let) and not is_decision:
            self.is_faulty |= _is_faulty(own, wide.stmt, most)
        before = before if operands else left  # an element is read as it was written
        if isinstance(own.stmt, ir.Atomic):  # a sum has no more digits than the worst that is added to it
            before = np.full(len(both), before.min())
        # Of several threads in which it loses as much, the one with the fewest digits left.
        place, k = (own.stmt.span, is_backward), int(np.lexsort((left, left - before))[0])
        self.left[place] = min(self.left.get(place, most), float(left.min()))
        results = a[k].copy(), b[k].copy()
        agreeing = float(left[k]), float(before[k]), most
        loss = Loss(place[0], *results, *agreeing, str(dtypes[0]), int(both[k]), is_backward, is_decision)
        worst = self.losses.get(place)
        if worst is None or (loss.lost, -loss.left) > (worst.lost, -worst.left):
            self.losses[place] = loss

    def worst(self, is_backward: bool | None = None) -> Loss | None:
        """The loss of the most digits, the first of several; None where no statement loses a digit."""
        among = (loss for loss in self.losses.values() if is_backward in (None, loss.is_backward))
        loss = max(among, key=lambda loss: round(loss.lost, 1), default=None)
        return loss if loss is not None and loss.lost >= NOTABLE else None


def _is_faulty(own: Computed, wide: ir.Let, most: float) -> bool:
    """Whether an operation on numbers, which are all floats, loses digits that it was given."""
    if own.result.ndim > 1 or len(wide.args) != len(own.operands) or any(x.ndim > 1 for x in own.operands):
        return False
    with np.errstate(all="ignore"):
        exact = np.asarray(wide.op.numpy(*(x.astype(np.float64) for x in own.operands)))
        is_range = ~np.isfinite(own.result) | (np.abs(exact) > np.finfo(np.float32).max)
    return bool(((digits(own.result, exact, most) < most - FAULT) & ~is_range).any())


def cotangents(function: ir.Function) -> frozenset[ir.Var]:
    """The values of an adjoint that depend on cotangents; of a primal, none."""
    bars = [param for param in function.params if param.hint.endswith("_bar")]
    return reached(dependences(function.body), bars)


# ------------------------------------------------------------------------------------------ of a subject


def compared(
    subject: Subject, output: Variable | None = None, row: int = 0
) -> tuple[SideBySide, list[Numpy]]:
    """Run a subject and its adjoint side by side: what was seen, and the gradients in its own precision.

    Number `row` of an output has the cotangent 1; without an output all have it.
    """
    level = SideBySide()
    trace, bars = Trace(subject, level), Adjoints()
    for target, elements in zip(trace.targets, trace.outputs, strict=True):
        bar = scalars(bars.of(elements)).host()
        if output is None:
            bar[...] = 1
        elif target.key == output.key:
            bar[np.unravel_index(row, bar.shape)] = 1
    trace.level.pull(level, bars)
    return level, [scalars(bars.of(source)).host().reshape(-1) for source in trace.inputs]


def parted(subject: Subject, pair: Pair, k: int) -> Fault | None:
    """Where float64 and a kernel's own precision part on the way to entry `k` of a Jacobian, in words.

    None where they do not: the program as it is written gives in its own precision what it gives in float64.
    Where nearly equal numbers are subtracted, so are their cotangents further back: the former is named.
    """
    row, column = pair.place(k)
    try:
        level, bars = compared(subject, pair.output, row)
    except KernelError:  # a run that fails in one of the two precisions
        return Fault("precision", "", None)
    i = subject.sources.index(pair.input)
    own, claimed, exact = (
        float(each[at]) for each, at in ((bars[i], column), (pair.adjoint, k), (pair.exact, k))
    )
    is_reproduced = own == claimed or not np.isfinite(own) or abs(own - claimed) < abs(own - exact)
    if level.is_faulty or (level.is_complete and not is_reproduced):
        return None
    back, forth = level.worst(is_backward=True), level.worst(is_backward=False)
    if back is not None and forth is not None and 2.0 * forth.lost >= back.lost:
        line = f"; the sum of its gradient loses digits, too, at line {back.span.line}"
        return Fault("precision", forth.told + line * (back.span.line != forth.span.line), forth.span)
    loss = back or forth
    return Fault("precision", "", None) if loss is None else Fault("precision", loss.told, loss.span)


# ------------------------------------------------------------------------------------------ by line


_CALL = "write kl.precision(kernel, dim=n, inputs=[...], outputs=[...]), or kl.precision(tape, loss=loss)"


@dataclass(frozen=True, slots=True)
class LineDigits:
    """The digits of a source line: the fewest that are left there, and the loss of the most by one operation.

    `forward` is of the values that it computes, `backward` of its adjoint; None where it computes no floats.
    """

    span: Span
    forward: Loss | None
    backward: Loss | None


@dataclass(frozen=True, slots=True, eq=False)
class Precision(Printed):
    """What a kernel or a tape loses at each of its lines; `is_complete` is false where not all was run.

    `digits` is how many a correctly rounded number of its precision has.
    """

    name: str
    lines: tuple[LineDigits, ...]
    digits: float
    is_complete: bool

    def __repr__(self) -> str:
        return f"<precision of {self.name}: {len(self.lines)} lines>"

    def worst(self) -> Loss | None:
        """The operation that loses the most digits; None where none loses a digit."""
        losses = [loss for line in self.lines for loss in (line.forward, line.backward) if loss is not None]
        worst = max(losses, key=lambda loss: loss.lost, default=None)
        return worst if worst is not None and worst.lost >= NOTABLE else None


@explains_bad_calls(dim=_CALL, inputs=_CALL, outputs=_CALL)
def precision(
    kernel_or_tape: Any,
    dim: int | Sequence[int] | None = None,
    inputs: Sequence[Any] = (),
    outputs: Sequence[Any] = (),
    loss: array | None = None,
    grads: Mapping[array, Any] | None = None,
) -> Precision:
    r"""How many digits each line of a kernel, a function, or all kernels of a tape, loses against float64.

    A kernel runs on copies of its arguments, a function at `inputs`, and its adjoint with ones behind all
    outputs; a tape runs again from what it began with, and back from ``backward(loss, grads)``, or from the
    last `backward`.  Both run on the interpreter, in their own precision and in float64: launches of more
    than 16,384 threads, or of 512 that have to run one by one, C++, and what computes in float64 alone are
    run, but not looked at.  Nothing that is given changes.  Raises GradientError where no input has
    gradients, TapeError for a tape that cannot run again, and what a launch raises.

    >>> text = "def far(x: array[float], y: array[float]):\n    y[tid()] = (x[tid()] + 1e4) - 1e4"
    >>> x, y = kl.array([0.1], requires_grad=True), kl.zeros(1, requires_grad=True)
    >>> found = kl.precision(kl.compile(text)["far"], dim=1, inputs=[x], outputs=[y])
    >>> "2.4 of 7.2 digits are left" in str(found)
    True
    """
    if isinstance(kernel_or_tape, Tape):
        return _made("the tape", _of_tape(kernel_or_tape, loss, grads))
    if not callable(kernel_or_tape):
        message = f"precision takes a kernel, a function or a tape, not {described(kernel_or_tape)}"
        raise KernelTypeError.of(message, "call", _CALL)
    require_lists(inputs=inputs, outputs=outputs)
    if not isinstance(kernel_or_tape, Kernel):
        subject = of_function(kernel_or_tape, varied_inputs(kernel_or_tape, inputs), outputs, "precision")
    elif dim is None:
        raise no_grid(kernel_or_tape, [*inputs, *outputs])
    else:
        subject = of_kernel(kernel_or_tape, dim, inputs, outputs, "precision")
    with outside_transforms("precision"):
        level, _ = compared(subject)
    return _made(subject.name, level)


def _of_tape(tape: Tape, loss: array | None, grads: Mapping[array, Any] | None) -> SideBySide:
    seeds = tape.cotangents(loss, grads) if loss is not None or grads is not None else tape.last_cotangents
    if seeds is None:
        hint = "write kl.precision(tape, loss=loss), or call tape.backward(loss) first"
        raise TapeError.of("say what the gradient is of", "precision", hint)
    records, level, bars = tuple(tape), SideBySide(), Adjoints()
    with outside_transforms("precision"):
        try:
            run, reverse, _ = Line(records, "save").reversed_run(len(records), level)
        except NotReplayableError as reason:
            hint = "ask for the precision of its kernels, one by one"
            raise TapeError.of(f"the tape cannot run again: {reason}", "precision", hint) from None
        for target, cotangent in seeds.items():
            bars.of(run.of(target)).host()[...] = values_of(cotangent)
        reverse.pull(level, bars)
    return level


def _made(name: str, level: SideBySide) -> Precision:
    """The losses by line, in the order of the text."""
    # What computes in float64 alone was compared with itself.
    is_wide = all(loss.most >= digits_of(epsilon(float64.dtype)) for loss in level.losses.values())
    worst: dict[tuple[Source, int], dict[bool, Loss]] = {}
    for (span, is_backward), loss in level.losses.items():
        # The texts that `kl.map`, and a call of a function, make themselves are no lines of the user's.
        if is_wide or span == NOWHERE or span.source.label.startswith("<map_"):
            continue
        line = worst.setdefault((span.source, span.line), {})
        before = line.get(is_backward)
        if before is None or (loss.lost, -loss.left) > (before.lost, -before.left):
            line[is_backward] = loss
    lines = [
        LineDigits(next(iter(losses.values())).span, losses.get(False), losses.get(True))
        for _, losses in sorted(worst.items(), key=lambda item: (item[0][0].label, item[0][1]))
    ]
    most = max((loss.most for losses in worst.values() for loss in losses.values()), default=0.0)
    is_complete = level.is_complete and not level.calls_host and not (is_wide and level.losses)
    return Precision(name, tuple(lines), most, is_complete)
