"""The adjoints of a backward pass: one buffer for each memory, allocated on first use.

Knows arrays, their memory and what programs take; must not know records or tapes.
"""

from collections.abc import Iterable

from kernelab.autodiff.records.programs import Argument, Kept, KeptValues
from kernelab.runtime.array.array import array
from kernelab.runtime.memory.memory import Allocation, zeros_beside


class _Buffers(dict[array, array]):
    """Adjoints by array, made when they are first asked for; `memory` holds the buffers."""

    def __init__(self) -> None:
        self.memory: dict[Allocation, Allocation] = {}
        self.over: dict[Allocation, list[array]] = {}

    def __missing__(self, primal: array) -> array:
        held = primal.allocation
        memory = self.memory.get(held)
        if memory is None:
            memory = self.memory[held] = zeros_beside(held)
        self.over.setdefault(held, []).append(primal)
        bar = self[primal] = primal.twin(memory)
        return bar


class Adjoints:
    """The adjoints of one backward pass: of arrays, and of the residuals that programs have appended to."""

    def __init__(self) -> None:
        self._buffers = _Buffers()
        self._residuals: dict[Kept, array] = {}

    def of(self, primal: array) -> array:
        """The adjoint of an array: the same elements of a buffer that starts as zeros."""
        return self._buffers[primal]

    def of_all(self, primals: Iterable[array]) -> list[array]:
        """The adjoints of several."""
        return list(map(self._buffers.__getitem__, primals))

    def of_residual(self, residual: Kept) -> array:
        """The adjoint of what a program has appended."""
        if residual not in self._residuals:
            values, _ = residual.arrays()
            self._residuals[residual] = values.twin(zeros_beside(values.allocation))
        return self._residuals[residual]

    def of_argument(self, given: Argument) -> array:
        """The adjoint of what a program was given, which is neither a number nor says where threads begin."""
        match given:
            case array():
                return self.of(given)
            case Kept():
                return self.of_residual(given)
            case KeptValues(residual):
                return self.of_residual(residual)
            case _:
                raise AssertionError("neither numbers nor starts have adjoints")

    def reach(self, given: Argument) -> bool:
        """Whether there is an adjoint of what a program was given."""
        if isinstance(given, array):
            return given.allocation in self._buffers.memory
        return given in self._residuals

    def known(self, primal: array) -> array | None:
        """The adjoint of an array, None while it is zero everywhere."""
        return self.of(primal) if primal.allocation in self._buffers.memory else None

    def share(self, primal: Allocation, bar: Allocation) -> None:
        """Make `bar` the adjoint of some memory."""
        self._buffers.memory[primal] = bar

    def drop(self, primal: Allocation) -> Allocation | None:
        """Drop an adjoint that is not needed any more; returns its buffer, if there was one."""
        for elements in self._buffers.over.pop(primal, ()):
            del self._buffers[elements]
        return self._buffers.memory.pop(primal, None)
