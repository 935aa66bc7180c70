"""The base level, which runs programs as they are, and the level that the caller stands in.

Programs of a check are interpreted until they have run as many statements as a build would pay for.
"""

import math
from collections.abc import Sequence

import numpy as np

from kernelab import hooks
from kernelab.autodiff.records.adjoint_buffers import Argument, Extents, packed, plain_copy
from kernelab.autodiff.records.moves import cleared
from kernelab.autodiff.transforms.host_calls import HostCall
from kernelab.autodiff.transforms.levels import Level
from kernelab.backend.cpu import interpreter
from kernelab.errors import TapeError
from kernelab.lang.ir import Block, Const, For, If, Native, While
from kernelab.lang.types import is_differentiable
from kernelab.passes.access.independence import independent
from kernelab.runtime.array.origins import note_called
from kernelab.runtime.array.transfers import device_add, device_copy
from kernelab.runtime.context.recorder import (
    ENTERED,
    RECORDER,
    Recorder,
    notify_outside_use,
    observing_outside_use,
    refusal,
)
from kernelab.runtime.host.create import array
from kernelab.runtime.kernel.program import Program
from kernelab.runtime.launch.call import will_write
from kernelab.runtime.launch.footprint import grid_of
from kernelab.runtime.memory.spaces import OPEN, space_of

PATIENCE = 3000
"""How many statements are interpreted of a program: that takes as long as a build."""

AT_ONCE = 2000
"""The number of threads together for which a statement takes twice as long as for one."""


class Interpretation:
    """A program as the interpreter runs it, and how many statements it has run of it."""

    def __init__(self, program: Program) -> None:
        self._entry = interpreter.entry(program.flat, lanes=True)
        self._steps = _steps(program.flat.body)
        self._runs_at_once = independent(program.flat)
        self._interpreted = 0.0

    def begin(self, threads: int, shares: bool) -> interpreter.InterpretedEntry | None:
        """The entry that interprets a launch of so many threads; None where it is time to build.

        Where arguments share memory that it changes, threads run one by one.
        """
        runs_at_once = self._runs_at_once and not shares
        self._interpreted += self._steps * (1 + threads / AT_ONCE if runs_at_once else threads)
        return self._entry if self._interpreted < PATIENCE else None


def _steps(block: Block) -> float:
    """The number of statements that a thread runs at most; infinite where only the run can tell."""
    count = 0.0
    for stmt in block.stmts:
        count += 1
        match stmt:
            case If():
                count += _steps(stmt.then) + _steps(stmt.orelse)
            case For(count=Const(value)):
                count += float(value) * _steps(stmt.body)
            case For() | While() | Native():
                return math.inf
    return count


def current() -> Level:
    """The level that the caller stands in; raises TapeError where a tape records."""
    recorder = RECORDER.get()
    if recorder is None:
        return BASE
    if isinstance(recorder, Level):
        return recorder
    message = "a tape is recording, and it cannot see through a transform such as grad or vmap"
    hint = "call it outside of the tape; transforms compose with one another"
    raise refusal(TapeError, message, "nested", hint)


class Base(Level):
    """Runs programs as they are."""

    tabulate = Recorder.tabulate
    unreadable = Recorder.unreadable

    def __init__(self) -> None:
        super().__init__(self)

    def run(self, program: Program, grid: Extents, arguments: Sequence[Argument]) -> None:
        if ENTERED:
            notify_outside_use([argument for argument in arguments if isinstance(argument, array)])
        shape = grid_of(grid)
        will_write(program, grid, arguments)
        if not shape.threads:
            return
        space = next((space_of(a.allocation) for a in arguments if isinstance(a, array)), None)
        args = b"".join([shape.packed, *(packed(a, shape.threads, space) for a in arguments)])
        entry = None
        if program.is_check and not OPEN:
            interpretation = program.once("interpretation", lambda: Interpretation(program))
            entry = interpretation.begin(shape.threads, bool(program.sharing(arguments)))
        if entry is not None:
            entry(args)
        else:
            program.run(args, program.shares(arguments))

    def first(self, elements: array) -> array:
        return elements

    def copy(self, elements: array) -> array:
        if ENTERED:
            notify_outside_use((elements,))
        copied = plain_copy(elements)
        if elements.allocation.unwritten:
            elements.allocation.unwritten.copied(copied, elements)
        return copied

    def clear(self, elements: array) -> None:
        cleared(elements)

    def call_host(self, call: HostCall, arguments: Sequence[array]) -> list[array]:
        call.settle(arguments)
        results = call.run_alone(arguments)
        if call.rule_of is not None:
            self.compare_rule(call, arguments)
            compared = call.rule_of[0].compared
            if compared is not None and compared.known.uses_state:
                results = call.run_alone(arguments)
        return results

    def compare_rule(self, call: HostCall, arguments: Sequence[array]) -> None:
        assert call.rule_of is not None
        with call.surroundings_kept(), call.rule_of[0].surroundings_kept():
            hooks.compare_host_rule(call.rule_of, arguments)

    def move(self, dest: array, src: array, add: bool = False) -> None:
        if ENTERED:
            notify_outside_use((dest, src))
        dest.allocation.will_write(dest)
        if device_add(dest, src) if add else device_copy(dest, src):
            return
        target, values = dest.host(), src.host()
        if not add:
            target[...] = values.copy() if np.may_share_memory(target, values) else values
            if src.allocation.unwritten:
                src.allocation.unwritten.copied(dest, src)
            return
        repeated = [k for k, stride in enumerate(target.strides) if stride == 0 and target.shape[k] > 1]
        if repeated:  # one element stands for several: it gets what goes to all of them
            values = values.sum(axis=tuple(repeated), keepdims=True, dtype=values.dtype)
            target = target[tuple(slice(0, 1) if k in repeated else slice(None) for k in range(target.ndim))]
        target += values


BASE = Base()


def run_host_call(call: HostCall, arrays: Sequence[array]) -> list[array]:
    """Run a Python function that has a derivative of its own; the level or tape that is active follows it."""
    recorder = RECORDER.get()
    if isinstance(recorder, Level):
        return recorder.call_host(call, arrays)
    with observing_outside_use(recorder):
        results = BASE.call_host(call, arrays)
    follows = any(one.requires_grad for one in arrays)
    for result in results:
        result.requires_grad = follows and is_differentiable(result.dtype)
    if recorder is not None:
        recorder.called_host(call, arrays, results)
    else:
        note_called(call.title, arrays, results)
    return results
