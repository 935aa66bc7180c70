"""The private adjoints of a sweep: one buffer for each allocation, made when it is first asked for.

Knows arrays and their memory; must not know records or tapes.
"""

from collections.abc import Callable, Iterable

from kernelab.runtime.memory import Allocation, zeros_beside
from kernelab.runtime.strided import array


class _Bars(dict[array, array]):
    """Adjoints by array, made when they are first asked for."""

    def __init__(self, made: Callable[[array], array]) -> None:
        self._made = made

    def __missing__(self, primal: array) -> array:
        bar = self[primal] = self._made(primal)
        return bar


class Adjoints:
    """The private adjoints of one sweep."""

    def __init__(self) -> None:
        self._memory: dict[Allocation, Allocation] = {}
        self._arrays = _Bars(self._made)
        self._over: dict[Allocation, list[array]] = {}

    def of(self, primal: array) -> array:
        """The adjoint of an array: the same elements of a buffer that starts as zeros."""
        return self._arrays[primal]

    def of_all(self, primals: Iterable[array]) -> list[array]:
        """The adjoints of several."""
        return list(map(self._arrays.__getitem__, primals))

    def _made(self, primal: array) -> array:
        held = primal.allocation
        memory = self._memory.get(held)
        if memory is None:
            memory = self._memory[held] = zeros_beside(held)
        self._over.setdefault(held, []).append(primal)
        return primal.twin(memory)

    def share(self, primal: Allocation, bar: Allocation) -> None:
        """Let `bar` be the adjoint of some memory."""
        self._memory[primal] = bar

    def drop(self, primal: Allocation) -> None:
        """Let go of an adjoint that nobody will ask for any more."""
        self._memory.pop(primal, None)
        for elements in self._over.pop(primal, ()):
            del self._arrays[elements]

    def known(self, primal: array) -> array | None:
        """The same, None while it is zero everywhere."""
        return self.of(primal) if primal.allocation in self._memory else None
