"""Locates the cause of a wrong Jacobian entry: the line of a wrong rule, or of a kink near the input.

The subject runs on the interpreter, in float64, and what its statements compute is noted: as it is, and with
the input element a little more and a little less.  What a user wrote for a derivative, and the rule in the
record of each operation, is compared with differences at the values that it was given; and the first
statement whose operands move evenly, but whose result does not, is where the function has a kink or a jump.
An operation is compared alone, in a kernel over float64 whose adjoint is made by the same passes as any.
Must not know reports.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from kernelab.autodiff.checks.lost_digits import number
from kernelab.autodiff.checks.screening import Fault
from kernelab.autodiff.jacobians.subject import Subject
from kernelab.autodiff.records.adjoint_buffers import plain_copy, scalars
from kernelab.autodiff.rule_checks import host_rule_check
from kernelab.autodiff.rule_checks.interpreted import Interpreted
from kernelab.autodiff.rule_checks.operation_check import Operation, adjoints, has_derivative, wrong_adjoint
from kernelab.autodiff.rule_checks.rule_check import mistake_at
from kernelab.autodiff.rule_checks.rule_samples import evaluate
from kernelab.autodiff.transforms.host_calls import HostCall
from kernelab.backend.cpu.chunk import Chunk
from kernelab.backend.cpu.lanes import Frame, Numpy
from kernelab.data_classes import dataclass
from kernelab.errors import KernelError
from kernelab.lang.build import type_of
from kernelab.lang.ir import Custom, CustomRules, Function, Let, Native, Stmt, of_kind
from kernelab.lang.ops import SHAPE
from kernelab.lang.types import Array, is_differentiable
from kernelab.passes.common.copying import inline
from kernelab.runtime.array.array import array
from kernelab.runtime.kernel.program import Program

MOST_NUMBERS, MOST_STATEMENTS = 1 << 22, 50_000
"""After how many numbers, or statements, a trace ends: what comes later is not looked at."""

MOST_THREADS = 1 << 18
"""Launches of more threads are not traced."""

MOST_POINTS = 1 << 12
"""At how many of the values that it was given a rule is compared."""

MOST_LOCAL = 1 << 11
"""How many statements are looked at one by one."""

NEARBY = 1e-7
"""How far the input is moved to find a kink, relative to its size where that exceeds 1."""

UNEVEN = 1e-2
"""How much more one side moves than the other at a kink."""

NOISE = 1e-12
"""What rounding moves, relative to the values."""


def blame(subject: Subject, i: int, column: int, eps: float | None = None) -> Fault | None:
    """Find the cause of wrong derivatives by number `column` of input `i`; None if unknown."""
    try:
        hosts: list[Hosted] = []
        here = _traced(subject, i, column, 0.0, hosts)
        cause = _wrong_rule(here) or _wrong_record(here) or _wrong_host_rule(hosts)
        if cause is not None:
            return cause
        step = eps if eps is not None else NEARBY
        ahead, behind = (_traced(subject, i, column, sign * step) for sign in (1.0, -1.0))
        return _kink(here, ahead, behind)
    except KernelError:  # native C++, or a run that fails at the moved input: no cause is named
        return None


def blame_infinite(subject: Subject, i: int, column: int) -> Fault | None:
    """Find the statement without a finite derivative among those that number `column` of input `i` moves."""
    try:
        here, ahead = (_traced(subject, i, column, step) for step in (0.0, NEARBY))
        return _infinite(here[:MOST_LOCAL], ahead)
    except KernelError:
        return None


# ------------------------------------------------------------------------------------------ traces


@dataclass(frozen=True, slots=True)
class Event:
    """A statement that ran, for which threads, on which values, and what it computed."""

    stmt: Let | Custom
    threads: Numpy
    operands: tuple[Numpy, ...]
    result: Numpy | None


class _EnoughError(Exception):
    """A trace has become so long that it ends here."""


class _EventsLevel(Interpreted):
    """Runs programs on the interpreter, in float64, and notes in order what so many statements compute."""

    def __init__(self, hosts: "list[Hosted]") -> None:
        super().__init__(partial(_EventsChunk, self), MOST_THREADS)
        self.hosts, self.events = hosts, list[Event]()
        self._numbers, self._statements = MOST_NUMBERS, MOST_STATEMENTS

    def step(self, lanes: int) -> None:
        """Count a statement that runs for some threads."""
        self._numbers -= lanes
        self._statements -= 1
        if self._numbers < 0 or self._statements < 0:
            raise _EnoughError

    def function(self, program: Program) -> Function:
        return program.function  # its grad functions still apart

    def call_host(self, call: HostCall, arguments: Sequence[array]) -> list[array]:
        self.hosts.append((call, [plain_copy(self.stand_in(elements)) for elements in arguments]))
        return super().call_host(call, arguments)


class _EventsChunk(Chunk):
    """Runs some threads, and notes what they compute."""

    def __init__(self, level: _EventsLevel, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.level = level

    def stmt(self, stmt: Stmt, frame: Frame) -> None:
        self.level.step(len(frame))
        if isinstance(stmt, Custom):
            self.custom(stmt, frame)
        else:
            super().stmt(stmt, frame)

    def let(self, stmt: Let, frame: Frame) -> None:
        super().let(stmt, frame)
        if stmt.op is not SHAPE and any(is_differentiable(type_of(arg)) for arg in stmt.args):
            operands = tuple(frame.values(arg) for arg in stmt.args)
            self.level.events.append(Event(stmt, frame.threads, operands, frame.values(stmt.out)))

    def custom(self, stmt: Custom, frame: Frame) -> None:
        arrays = [arg for arg in stmt.args if isinstance(arg.type, Array)]
        operands = () if arrays else tuple(frame.values(arg) for arg in stmt.args)
        self.level.events.append(Event(stmt, frame.threads, operands, None))
        if operands and any(of_kind(stmt.body, Native)):
            results = evaluate(inline(stmt.rules.function), *operands)
        else:
            results = self.block(stmt.body, frame)
        for out, values in zip(stmt.outs, results, strict=True):
            frame.define(out, values)


Hosted = tuple[HostCall, list[array]]
"""A call of a Python function with a derivative of its own, and its arguments in float64."""


def _traced(
    subject: Subject, i: int, column: int, step: float, hosts: list[Hosted] | None = None
) -> list[Event]:
    """Run with one number of an input moved by a step, relative to its size, and trace the values."""
    started, level = subject.start(), _EventsLevel([] if hosts is None else hosts)
    values = scalars(level.wide(started.inputs[i])).host()
    place = np.unravel_index(column, values.shape)
    values[place] += step * max(1.0, abs(float(values[place])))
    with suppress(_EnoughError):
        started.go(level)
    return level.events


# ------------------------------------------------------------------------------------------ verdicts


def _wrong_rule(events: Sequence[Event]) -> Fault | None:
    """The first rule that is wrong at the values that it was given; of a function of arrays, at samples."""
    calls: dict[CustomRules, list[tuple[Numpy, ...]]] = {}
    for event in events:
        if isinstance(event.stmt, Custom):
            calls.setdefault(event.stmt.rules, []).append(event.operands)
    for rules, operands in sorted(calls.items(), key=lambda call: not call[1][0]):
        points = [np.concatenate(values)[:MOST_POINTS] for values in zip(*operands, strict=True)]
        mistake = mistake_at(rules, points)
        if mistake is not None and mistake.span is not None:
            return Fault("custom", mistake.message, mistake.span)
    return None


def _wrong_host_rule(calls: Sequence[Hosted]) -> Fault | None:
    """The first derivative of a Python function that is not that at the arguments of a call."""
    for call, arrays in calls:
        place = host_rule_check.place_of(call.back)
        explanation = None if place is None else host_rule_check.mistake(call, arrays)
        if place is not None and explanation is not None:
            return Fault("custom", explanation, place.span)
    return None


def _wrong_record(events: Sequence[Event]) -> Fault | None:
    """The first operation the rule in whose record is not its derivative at the values that it was given."""
    by_operation: dict[Operation, list[Event]] = {}
    for event in events:
        if isinstance(event.stmt, Let):
            by_operation.setdefault(Operation.of(event.stmt), []).append(event)
    for operation, group in by_operation.items():
        cause = _mistaken(operation, group) if has_derivative(operation) else None
        if cause is not None:
            return cause
    return None


def _mistaken(operation: Operation, events: Sequence[Event]) -> Fault | None:
    points, owners, threads = _points(events)
    wrong = wrong_adjoint(operation, points)
    if wrong is None:
        return None
    event = events[int(owners[wrong.point])]
    assert isinstance(event.stmt, Let)
    name, operands = _called(event.stmt), [number(values[wrong.point]) for values in points]
    if "surrogate" in operation.op.tags:
        message = f"{name} has the derivative 0, whatever it is given: that is what it is for"
        return Fault("surrogate", message, event.stmt.span)
    if wrong.jumps:
        return Fault("kink", _bent(name, operands, int(threads[wrong.point])), event.stmt.span)
    message = f"the adjoint of {name} is {wrong.claimed:.6g} where its differences are {wrong.slope:.6g}, at "
    return Fault("builtin", message + ", ".join(operands), event.stmt.span)


def _points(events: Sequence[Event]) -> tuple[list[Numpy], Numpy, Numpy]:
    """The operands of events of one operation, a point a row; and which event and thread each row is of."""
    points = [np.concatenate(values) for values in zip(*(event.operands for event in events), strict=True)]
    owners = np.repeat(np.arange(len(events)), [len(event.threads) for event in events])
    threads = np.concatenate([event.threads for event in events])
    sampled = np.unique(np.linspace(0, len(owners) - 1, MOST_POINTS).astype(int))
    return [values[sampled] for values in points], owners[sampled], threads[sampled]


def _infinite(here: Sequence[Event], ahead: Sequence[Event]) -> Fault | None:
    """The first statement without a finite result, or derivative, whose operands are finite and move."""
    for at, after in zip(here, ahead, strict=False):
        if after.stmt is not at.stmt or len(after.threads) != len(at.threads):
            return None
        cause = _without_slope(at, after)
        if cause is not None:
            return cause
    return None


def _without_slope(at: Event, after: Event) -> Fault | None:
    if not isinstance(at.stmt, Let) or at.result is None:
        return None
    operation = Operation.of(at.stmt)
    if not has_derivative(operation):
        return None
    moving = [new != old for new, old in zip(after.operands, at.operands, strict=True)]
    infinite = [~np.isfinite(values) for values in at.operands]
    lanes = np.flatnonzero(_in_any(moving) & ~_in_any(infinite))
    if not len(lanes):
        return None
    points, results = [values[lanes] for values in at.operands], at.result[lanes]
    slopes = adjoints(operation, points)
    has_value = ~_in_any([~np.isfinite(results)])
    has_slope = ~_in_any([~np.isfinite(v) for v in slopes])
    if (has_value & has_slope).all():
        return None
    first = int(np.argmin(has_value & has_slope))
    operands = " and ".join(number(values[first]) for values in points)
    name, thread = _called(at.stmt), int(at.threads[lanes[first]])
    message = f"the derivative of {name} is infinite at {operands}, in thread {thread}"
    if not has_value[first]:
        kind = "infinite" if np.isinf(results[first]).any() else "not a number"
        message = f"{name} of {operands}, in thread {thread}, is {kind}"
    return Fault("not finite", message, at.stmt.span)


def _in_any(flags: Sequence[Numpy]) -> Numpy:
    """In which threads any component of any operand is flagged."""
    flagged: Numpy = np.any([each.reshape(len(each), -1).any(axis=1) for each in flags], axis=0)
    return flagged


def _kink(here: Sequence[Event], ahead: Sequence[Event], behind: Sequence[Event]) -> Fault | None:
    """The first statement at which the runs diverge, or that bends by itself."""
    for at, after, before in zip(here, ahead, behind, strict=False):
        if after.stmt is not at.stmt or before.stmt is not at.stmt:
            return None
        if at.result is None or after.result is None or before.result is None:
            continue
        if not (len(at.threads) == len(after.threads) == len(before.threads)):
            return None
        assert isinstance(at.stmt, Let)
        bent = _bent_sharply(before, at, after)
        if bent.any():
            return Fault("kink", _kink_text(at, bent), at.stmt.span)
    return None


def _uneven(before: Numpy, at: Numpy, after: Numpy) -> Numpy:
    """Mask of values that move by different amounts to the two sides."""
    if at.dtype.kind != "f":
        return np.asarray((before != at) | (after != at))
    with np.errstate(invalid="ignore", over="ignore"):
        up, down = after - at, at - before
        most = np.maximum(np.abs(up), np.abs(down))
        return np.asarray((np.abs(up - down) > UNEVEN * most) & (most > NOISE * np.abs(at)))


def _bent_sharply(before: Event, at: Event, after: Event) -> Numpy:
    """Mask of results that move unevenly, and more so than a smooth operation lets them.

    At a smooth minimum, as `x * x` at 0, the two sides differ by less than the operands move.  Where operands
    are bent already the operation bends them further: `sqrt` of that `x * x` is a kink.
    """
    assert before.result is not None
    assert at.result is not None
    assert after.result is not None
    mask = _uneven(before.result, at.result, after.result)
    if not mask.any() or at.result.dtype.kind != "f":
        return mask
    lanes = len(at.result)
    smooth = np.zeros(lanes)
    with np.errstate(invalid="ignore", over="ignore"):
        for old, x, new in zip(before.operands, at.operands, after.operands, strict=True):
            if x.dtype.kind == "f":
                least = np.fmax(UNEVEN * np.abs(new - old), np.abs(new - 2.0 * x + old) / UNEVEN)
                smooth = np.fmax(smooth, least.reshape(lanes, -1).max(axis=1))
        bent = np.abs(after.result - 2.0 * at.result + before.result).reshape(lanes, -1)
    return np.asarray(mask & (bent > smooth[:, np.newaxis]).reshape(mask.shape))


def _kink_text(event: Event, bent: Numpy) -> str:
    assert isinstance(event.stmt, Let)
    assert event.result is not None
    where = np.argwhere(bent)[0]
    # A componentwise operation is named by the component, any other by the whole operand.
    matching = (values.shape == event.result.shape for values in event.operands)
    places = (tuple(where) if same else where[0] for same in matching)
    operands = [number(x[place]) for x, place in zip(event.operands, places, strict=True)]
    return _bent(_called(event.stmt), operands, int(event.threads[where[0]]))


def _bent(name: str, operands: Sequence[str], thread: int) -> str:
    return f"{name} of {' and '.join(operands)}, in thread {thread}, has a kink or a jump within the step"


def _called(stmt: Let) -> str:
    return f"`{stmt.op.symbol or stmt.op.name}`"
