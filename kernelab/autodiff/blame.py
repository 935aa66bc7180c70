"""Whose fault a wrong entry of a Jacobian is: the line of a wrong rule, or of a kink near the input.

The subject runs on the interpreter, in float64, and what its statements compute is noted: as it is, and with
the input element a little more and a little less.  A grad function that a user wrote is compared with
differences at the values that it was given; and the first statement whose operands move evenly, but whose
result does not, is where the function has a kink or a jump.  Must not know reports.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from kernelab.autodiff.levels import BASE, Argument, Extents, will_write
from kernelab.autodiff.programs import Program
from kernelab.autodiff.subject import Subject
from kernelab.autodiff.trees import scalars
from kernelab.autodiff.wide import Wide
from kernelab.backend import interp
from kernelab.backend.chunk import Chunk
from kernelab.backend.lanes import Frame
from kernelab.errors import KernelError, Span
from kernelab.lang.build import type_of
from kernelab.lang.ir import Atom, Custom, CustomRules, Let, Native, Stmt, Var, walk
from kernelab.lang.ops import SHAPE
from kernelab.lang.types import Array, is_differentiable
from kernelab.passes.inline import inline
from kernelab.runtime.grid import grid_of
from kernelab.runtime.launch import packed_slots
from kernelab.runtime.rulecheck import evaluate, mistake_at
from kernelab.runtime.strided import array

Numpy = np.ndarray[Any, Any]

MOST_NUMBERS, MOST_STATEMENTS = 1 << 22, 50_000
"""After how many numbers, or statements, a trace ends: what comes later is not looked at."""

MOST_THREADS = 1 << 14
"""Launches of more threads are not traced."""

MOST_POINTS = 1 << 12
"""At how many of the values that it was given a rule is compared."""

NEARBY = 1e-7
"""How far the input is moved to find a kink, relative to its size where that exceeds 1."""

UNEVEN = 1e-2
"""How much more one side moves than the other at a kink."""

NOISE = 1e-12
"""What rounding moves, relative to the values."""


@dataclass(frozen=True, slots=True)
class Blame:
    """Where a wrong derivative comes from: `kind` is "custom" or "kink"."""

    kind: str
    told: str
    span: Span


def blame(subject: Subject, i: int, column: int, eps: float | None = None) -> Blame | None:
    """What is at fault that the derivatives by number `column` of input `i` are wrong, None if unknown."""
    try:
        here = _traced(subject, i, column, 0.0)
        found = _wrong_rule(here)
        if found is not None:
            return found
        step = eps if eps is not None else NEARBY
        ahead, behind = (_traced(subject, i, column, sign * step) for sign in (1.0, -1.0))
        return _kink(here, ahead, behind)
    except KernelError:  # native C++, or a run that fails where it was not asked to go: nobody is blamed
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


class Trace:
    """The events of a run, in order, up to some number of statements and values."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._numbers = MOST_NUMBERS
        self._statements = MOST_STATEMENTS

    def step(self, lanes: int) -> None:
        """Count a statement that runs for some threads."""
        self._numbers -= lanes
        self._statements -= 1
        if self._numbers < 0 or self._statements < 0:
            raise _EnoughError


class _Tracing(Wide):
    """Runs programs on the interpreter, in float64, and notes what they compute."""

    def __init__(self) -> None:
        super().__init__(BASE)
        self.trace = Trace()

    def run(self, program: Program, grid: Extents, arguments: Sequence[Argument]) -> None:
        will_write(program, arguments)
        made, wide = grid_of(grid), program.widened
        if made.threads > MOST_THREADS:
            super().run(program, grid, arguments)
            return
        given = [
            self._given(a, param.type) for a, param in zip(arguments, program.function.params, strict=True)
        ]
        entry = interp.entry(wide.function, chunk=partial(_Noting, self.trace))
        entry(packed_slots([made.packed, *(a.packed if isinstance(a, array) else a for a in given)]))  # type: ignore[list-item]


class _Noting(Chunk):
    """Runs some threads, and notes what they compute."""

    def __init__(self, trace: Trace, *given: Any) -> None:
        super().__init__(*given)
        self.trace = trace

    def stmt(self, stmt: Stmt, frame: Frame) -> None:
        self.trace.step(len(frame))
        if isinstance(stmt, Custom):
            self.custom(stmt, frame)
        else:
            super().stmt(stmt, frame)

    def let(self, stmt: Let, frame: Frame) -> None:
        super().let(stmt, frame)
        if stmt.op is not SHAPE and any(is_differentiable(type_of(arg)) for arg in stmt.args):
            operands = tuple(frame.values(arg) for arg in stmt.args)
            self.trace.events.append(Event(stmt, frame.threads, operands, frame.values(stmt.out)))

    def custom(self, stmt: Custom, frame: Frame) -> None:
        arrays = [arg for arg in stmt.args if _is_array(arg)]
        operands = () if arrays else tuple(frame.values(arg) for arg in stmt.args)
        if operands:
            self.trace.events.append(Event(stmt, frame.threads, operands, None))
        if any(isinstance(inner, Native) for inner in walk(stmt.body)) and operands:
            results = evaluate(inline(stmt.rules.function), *operands)
        else:
            results = self.block(stmt.body, frame)
        for out, values in zip(stmt.outs, results, strict=True):
            frame.define(out, values)


def _is_array(atom: Atom) -> bool:
    return isinstance(atom, Var) and isinstance(atom.type, Array)


def _traced(subject: Subject, i: int, column: int, step: float) -> list[Event]:
    """What runs if one number of an input is moved by a step, relative to its size."""
    started, level = subject.start(), _Tracing()
    values = scalars(level.wide(started.inputs[i])).host()
    place = np.unravel_index(column, values.shape)
    values[place] += step * max(1.0, abs(float(values[place])))
    with suppress(_EnoughError):
        started.go(level)
    return level.trace.events


# ------------------------------------------------------------------------------------------ verdicts


def _wrong_rule(events: Sequence[Event]) -> Blame | None:
    """The first grad function that is not the derivative at the values that it was given."""
    given: dict[CustomRules, list[tuple[Numpy, ...]]] = {}
    for event in events:
        if isinstance(event.stmt, Custom):
            given.setdefault(event.stmt.rules, []).append(event.operands)
    for rules, operands in given.items():
        points = [np.concatenate(values)[:MOST_POINTS] for values in zip(*operands, strict=True)]
        found = mistake_at(rules, points)
        if found is not None and found.span is not None:
            return Blame("custom", found.message, found.span)
    return None


def _kink(here: Sequence[Event], ahead: Sequence[Event], behind: Sequence[Event]) -> Blame | None:
    """The first statement at which the runs part, or that bends what came to it evenly."""
    for at, after, before in zip(here, ahead, behind, strict=False):
        if after.stmt is not at.stmt or before.stmt is not at.stmt:
            return None
        if at.result is None or after.result is None or before.result is None:
            continue
        if not (len(at.threads) == len(after.threads) == len(before.threads)):
            return None
        assert isinstance(at.stmt, Let)
        if _bends(before.result, at.result, after.result) and not any(
            _bends(*three) for three in zip(before.operands, at.operands, after.operands, strict=True)
        ):
            return Blame("kink", _told(at, before.result, after.result), at.stmt.span)
    return None


def _uneven(before: Numpy, at: Numpy, after: Numpy) -> Numpy:
    """Where a value moves by another amount to one side than to the other."""
    if at.dtype.kind != "f":
        return np.asarray((before != at) | (after != at))
    with np.errstate(invalid="ignore", over="ignore"):
        up, down = after - at, at - before
        most = np.maximum(np.abs(up), np.abs(down))
        return np.asarray((np.abs(up - down) > UNEVEN * most) & (most > NOISE * np.abs(at)))


def _bends(before: Numpy, at: Numpy, after: Numpy) -> bool:
    return bool(_uneven(before, at, after).any())


def _told(event: Event, before: Numpy, after: Numpy) -> str:
    assert isinstance(event.stmt, Let)
    assert event.result is not None
    where = np.argwhere(_uneven(before, event.result, after))[0]
    operands = [float(values[tuple(where[: values.ndim])]) for values in event.operands]
    given = " and ".join(f"{value:.6g}" for value in operands)
    op, thread = event.stmt.op, int(event.threads[where[0]])
    return f"`{op.symbol or op.name}` of {given}, in thread {thread}, has a kink or a jump within the step"
