"""The sums that the interpreter takes in float64, as `codegen.cpp.wide_accumulators` says: they reach their
arrays late.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from kernelab.backend.interpreter.lanes import Numpy
from kernelab.lang.ir import Atomic, Var
from kernelab.lang.rounding import rounded, widened


class Sums:
    """A float64 beside each element of the arrays that some additions go to, once there is one.

    `arrays` are those of the launch that share no memory with others.
    """

    def __init__(self, additions: Iterable[Atomic], arrays: Mapping[Var, Numpy]) -> None:
        self._late = frozenset(stmt.array for stmt in additions if stmt.array in arrays)
        self._arrays = arrays
        self._sums: dict[Var, Numpy] = {}

    def add(self, stmt: Atomic, array: Numpy, places: tuple[Any, ...], values: Numpy) -> None:
        """Add values, one a lane, to places of an array or beside it."""
        if stmt.array not in self._late:
            np.add.at(array, places, values)
            return
        if stmt.array not in self._sums:
            self._sums[stmt.array] = np.zeros(self._arrays[stmt.array].shape)
        np.add.at(self._sums[stmt.array], places, values)

    def settle(self) -> None:
        """Bring the sums to their elements."""
        with np.errstate(all="ignore"):
            for var, sums in self._sums.items():
                reached = sums != 0
                array = self._arrays[var]
                array[reached] = rounded(widened(array[reached]) + sums[reached], array.dtype)
