"""Runs that end: threads whose `while` loops go on for too long are given up.

For functions that run where their author never meant them to, such as an iteration that does not converge.
"""

from typing import Any

import numpy as np

from kernelab.backend.interpreter.chunk import Chunk
from kernelab.backend.interpreter.lanes import Frame, Numpy
from kernelab.errors import Diagnostic, KernelError
from kernelab.lang.ir import Loop, While

MOST = 1000
"""How many iterations of `while` loops, each of all threads at once, a run may take: a tenth of a second."""


class Patient(Chunk):
    """A run of some threads; `given_up` says which of them had not left their loops when patience ended."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.trips = 0
        self.given_up = np.zeros(len(self.threads), np.bool_)

    def going(
        self, stmt: Loop, around: Frame, carried: list[Numpy], trip: int, counts: Numpy | None
    ) -> Numpy:
        """Which lanes enter another iteration."""
        going = super().going(stmt, around, carried, trip, counts)
        self.trips += isinstance(stmt, While)
        if self.trips > MOST and isinstance(stmt, While):
            self.given_up[self.own(around)[going]] = True
            going[:] = False
        return going


class Strict(Patient):
    """A run that ends with a KernelError where one of its threads would be given up."""

    def going(
        self, stmt: Loop, around: Frame, carried: list[Numpy], trip: int, counts: Numpy | None
    ) -> Numpy:
        """Which lanes enter another iteration."""
        going = super().going(stmt, around, carried, trip, counts)
        if self.given_up.any():
            message = f"a loop has not ended after {MOST:,} iterations"
            raise KernelError(Diagnostic(message, stmt.span, "value"))
        return going
