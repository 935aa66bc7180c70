"""What the host has seen of a tape's arrays, and what may come from that: arrays, fills, launched numbers.

No tape can follow values through the host.  That they were seen first is all that is known of arrays; a
number either says itself where it was taken, or is one of those seen last in a result or a leaf and taken for
it.  Knows arrays and lines; must not know records.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from kernelab.lang.types import Scalar, is_differentiable
from kernelab.runtime.memory import Allocation
from kernelab.runtime.recorder import Place, caller
from kernelab.runtime.strided import array
from kernelab.runtime.taken import Taken, TakenFloat

FEW = 16
"""Of arrays with more elements no number is remembered."""

MANY = 256
"""How many numbers are remembered, the latest."""

LATEST = 256
"""How many numbers are known by where they were taken, the latest."""

ORDINARY = frozenset((0.0, 1.0, -1.0))
"""Numbers that everybody writes."""

DIGITS = 6
"""A number with more significant digits has hardly been written by hand."""


@dataclass(frozen=True, slots=True)
class HostValues:
    """Where the host made an array of its values, and what of the tape it had looked at before, and where."""

    place: Place
    source: array
    taken: Place


@dataclass(frozen=True, slots=True)
class PassedOn:
    """The record, counted from 0, that was given a number which the host had seen in `source`, and where.

    `written` says that it may as well have been written by hand.
    """

    record: int
    source: array
    taken: Place
    written: bool


class FromHost:
    """What the host saw last, the arrays that it made or changed afterwards, and the numbers passed on.

    `seen` are the latest numbers that it has seen, with their arrays and lines.
    """

    def __init__(self) -> None:
        self.arrays: WeakKeyDictionary[Allocation, HostValues] = WeakKeyDictionary()
        self.numbers: list[PassedOn] = []
        self._last: tuple[array, Place] | None = None
        self.seen: dict[float, tuple[array, Place]] = {}
        self.taken: deque[Taken] = deque(maxlen=LATEST)

    def clear(self) -> None:
        """Forget everything."""
        self.arrays.clear()
        self.numbers.clear()
        self._last = None
        self.seen.clear()
        self.taken.clear()

    def saw(self, elements: array, computed: bool) -> Taken | None:
        """Remember what the host looks at: of what the tape has not computed, only numbers."""
        last = elements, caller()
        if computed:
            self._last = last
        self.seen |= dict.fromkeys(_numbers(elements), last)
        for old in list(islice(self.seen, max(0, len(self.seen) - MANY))):
            del self.seen[old]
        if elements.size != 1:
            return None
        self.taken.append(Taken(*last))
        return self.taken[-1]

    def saw_constants(self, elements: array) -> None:
        """Take numbers of an array without gradients for its own, wherever they were seen before."""
        for value in _numbers(elements) if self.seen else ():
            self.seen.pop(value, None)

    def came_in(self, elements: array) -> None:
        """Remember an array that the host has made or changed."""
        if (
            self._last is not None
            and is_differentiable(elements.dtype)
            and elements.size <= self._last[0].size
        ):
            self.arrays[elements.allocation] = HostValues(caller(), *self._last)

    def passed_on(self, record: int, values: Iterable[Any]) -> None:
        """Look for numbers that the host has seen, or made of these, among those that a record is given."""
        for value in chain.from_iterable(map(_components, values)):
            origin = value.taken if isinstance(value, TakenFloat) else None
            if origin is not None and origin in self.taken:
                self.numbers.append(PassedOn(record, origin.elements, origin.place, written=False))
            elif isinstance(value, float | np.floating) and float(value) in self.seen:
                source, taken = self.seen[float(value)]
                self.numbers.append(PassedOn(record, source, taken, _is_short(float(value))))


def _numbers(elements: array) -> set[float]:
    if elements.size > FEW or not isinstance(elements.dtype, Scalar) or not is_differentiable(elements.dtype):
        return set()
    return {float(value) for value in elements.host().ravel()} - ORDINARY


def _components(value: Any) -> Iterable[Any]:
    """The numbers in what stands for a number, a vector or a matrix."""
    if isinstance(value, np.ndarray):
        return value.ravel().tolist()
    if isinstance(value, tuple | list):
        return chain.from_iterable(map(_components, value))
    return (value,)


def _is_short(value: float) -> bool:
    return float(f"{value:.{DIGITS}g}") == value
