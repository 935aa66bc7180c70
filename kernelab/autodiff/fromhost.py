"""What the host has seen of a tape's arrays, and what comes from that: arrays, fills, launched numbers.

Numbers and NumPy's arrays say themselves where they were taken.  What has lost that (`float()`, `math`, lists
put together by NumPy) is known again by its value, or guessed: an array that the host makes after it had
looked at one as large.  Knows arrays and lines; must not know records.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from kernelab.lang.structs import Struct
from kernelab.lang.traced import Origins, origins
from kernelab.lang.types import is_differentiable
from kernelab.runtime.memory import Allocation
from kernelab.runtime.recorder import Place, caller
from kernelab.runtime.strided import array
from kernelab.runtime.structs import Instance
from kernelab.runtime.taken import FEW, Taken, origin, takings

DIGITS = 6
"""A number with more significant digits has hardly been written by hand."""


@dataclass(frozen=True, slots=True)
class HostValues:
    """Where the host made an array of its values, or changed one, after how many records, and how.

    `taken` says of what on the tape they were computed; if not `certain`, of what they may have been.
    """

    place: Place
    record: int
    how: str
    taken: tuple[Taken, ...]
    certain: bool


@dataclass(frozen=True, slots=True)
class PassedOn:
    """A number that a record, counted from 0, was given for a parameter, and where the host took it.

    If not `certain`, it is only equal to one that was taken; `written` says that it may as well have been
    written by hand.
    """

    record: int
    position: int
    taken: tuple[Taken, ...]
    certain: bool = True
    written: bool = False


class FromHost:
    """What the host saw, the arrays that it made or changed afterwards, and the numbers passed on.

    `lost` are the latest numbers that it has seen and that do not know it, with where they were taken.
    """

    def __init__(self) -> None:
        self.arrays: WeakKeyDictionary[Allocation, list[HostValues]] = WeakKeyDictionary()
        self.numbers: list[PassedOn] = []
        self.lost: dict[float, Taken] = {}
        self._last: Taken | None = None
        self._taken: dict[tuple[Allocation, Place, int], Taken] = {}
        self._known: set[Taken] = set()

    def clear(self) -> None:
        """Forget everything."""
        self.arrays.clear()
        self.numbers.clear()
        self.lost.clear()
        self._last = None
        self._taken.clear()
        self._known.clear()

    def saw(self, elements: array, record: int, computed: bool) -> Origins:
        """Remember what the host looks at; what that is to carry."""
        came = [taken for values in self.arrays.get(elements.allocation, ()) for taken in values.taken]
        if came and not elements.requires_grad:
            return tuple(chain.from_iterable(map(origin, came[-1:])))
        place = caller()
        key = elements.allocation, place, elements.allocation.version
        taken = self._taken.get(key)
        if taken is None:
            taken = self._taken[key] = Taken(elements, place, record, self.lost)
            self._known.add(taken)
        if computed:
            self._last = taken
        return origin(taken)

    def came_in(self, elements: array, data: Any, record: int, how: str, replaced: bool = True) -> None:
        """Remember an array that the host has made of data, or changed; `replaced` if not by one number."""
        elem: Any = elements.dtype
        if not self._known or not (isinstance(elem, Struct) or is_differentiable(elem)):
            return
        found = self._takings(data)
        if any(taken.elements.allocation is elements.allocation for taken in found) and how == "array":
            return  # another view of the same memory
        certain = bool(found)
        if not found:
            found = self._guessed(elements, data, replaced)
        if found:
            values = HostValues(caller(), record, how, found, certain)
            self.arrays.setdefault(elements.allocation, []).append(values)

    def passed_on(self, record: int, given: Iterable[tuple[int, Any]]) -> None:
        """Look for numbers that the host has taken, or made of these, among those that a record is given."""
        if not self._known:
            return
        for position, value in given:
            found = self._takings(value)
            if found:
                self.numbers.append(PassedOn(record, position, found))
                continue
            for number in _components(value) if self.lost else ():
                taken = self.lost.get(number)
                if taken is not None:
                    self.numbers.append(PassedOn(record, position, (taken,), False, _is_short(number)))

    def _takings(self, data: Any) -> tuple[Taken, ...]:
        """Where the numbers in data were taken on this tape."""
        return tuple(taken for taken in takings(_origins(data)) if taken in self._known)

    def _guessed(self, elements: array, data: Any, replaced: bool) -> tuple[Taken, ...]:
        """Where numbers without origins may have been taken."""
        if elements.size <= FEW and self.lost:
            for number in _components(data):
                if number in self.lost and not _is_short(number):
                    return (self.lost[number],)
        if self._last is None or elements.size > self._last.elements.size:
            return ()
        return (self._last,) if replaced and not _is_written(data) else ()


def _origins(data: Any) -> Origins:
    """The origins of numbers, also of those in structs."""
    if isinstance(data, Instance):
        return _origins(list(data._values.values()))
    if isinstance(data, list | tuple) and any(isinstance(part, Instance) for part in data):
        return tuple(chain.from_iterable(map(_origins, data)))
    return origins(data)


def _components(value: Any) -> Iterable[float]:
    """The floats in what stands for a number, a vector or a matrix, or in a small array."""
    if isinstance(value, np.ndarray):
        return value.ravel().tolist() if value.size <= FEW and value.dtype.kind == "f" else ()
    if isinstance(value, tuple | list):
        return chain.from_iterable(map(_components, value))
    return (float(value),) if isinstance(value, float | np.floating) else ()


def _is_written(data: Any) -> bool:
    """Whether somebody has written these numbers by hand."""
    if isinstance(data, list | tuple):
        return len(data) <= FEW and all(map(_is_written, data))
    if isinstance(data, np.ndarray):
        return data.dtype.kind in "biu"
    if isinstance(data, float | np.floating):
        return _is_short(float(data))
    return isinstance(data, int | np.integer)


def _is_short(value: float) -> bool:
    return float(f"{value:.{DIGITS}g}") == value
