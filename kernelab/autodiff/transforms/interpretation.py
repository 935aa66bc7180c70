"""Interprets the programs of a check until they have run as many statements as a build would pay for."""

import math

from kernelab.backend.cpu import interpreter
from kernelab.lang.ir import Block, Const, For, If, Native, While
from kernelab.passes.access.independence import independent
from kernelab.runtime.kernel.program import Program

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

    @staticmethod
    def of(program: Program) -> "Interpretation":
        """The interpretation of a program, made once."""
        return program.once("interpretation", lambda: Interpretation(program))

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
