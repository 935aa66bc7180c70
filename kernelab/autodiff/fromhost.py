"""What the host has seen of a tape's arrays, and what comes from that: arrays, fills, launched numbers.

Numbers and NumPy's arrays say themselves where they were taken.  What has lost that (`float()`, `math`, lists
put together by NumPy) is known again by its value; what else may come from the tape, if it does not look as
if written by hand, is for `detours` to judge.  Knows arrays and lines; must not know records.
"""

from collections.abc import Collection, Iterable, Iterator
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

    `taken` says of what on the tape they were computed, nothing if they do not say themselves; `latest` is
    what the host had looked at last, and as large.
    """

    place: Place
    record: int
    how: str
    taken: tuple[Taken, ...]
    latest: Taken | None = None

    @property
    def certain(self) -> bool:
        """Whether they do come from there."""
        return bool(self.taken)


@dataclass(frozen=True, slots=True)
class PassedOn:
    """A number that a record, counted from 0, was given for a parameter, and where the host took it.

    `taken` is empty if it does not say so itself.  Then `equal` is where an equal one was taken, and
    `written` says that it may have been written by hand.
    """

    record: int
    position: int
    taken: tuple[Taken, ...]
    equal: Taken | None = None
    written: bool = False

    @property
    def certain(self) -> bool:
        """Whether it does come from there."""
        return bool(self.taken)


class FromHost:
    """What the host saw, the arrays that it made or changed afterwards, and the numbers passed on.

    `lost` are the latest numbers that it has seen and that do not know it, with where they were taken.
    """

    def __init__(self) -> None:
        self.arrays: WeakKeyDictionary[Allocation, list[HostValues]] = WeakKeyDictionary()
        self.numbers: list[PassedOn] = []
        self.lost: dict[float, Taken] = {}
        self._plain: dict[tuple[Place, int], PassedOn] = {}
        self._last: Taken | None = None
        self._taken: dict[tuple[Allocation, Place, int], Taken] = {}
        self._known: set[Taken] = set()

    def clear(self) -> None:
        """Forget everything."""
        self.arrays.clear()
        self.numbers.clear()
        self.lost.clear()
        self._plain.clear()
        self._last = None
        self._taken.clear()
        self._known.clear()

    @property
    def takings(self) -> Collection[Taken]:
        """Where the host took numbers, in order."""
        return self._taken.values()

    @property
    def passed(self) -> Iterator[PassedOn]:
        """The numbers passed on that come from the tape, and those that may."""
        yield from self.numbers
        yield from self._plain.values()

    def saw(self, elements: array, record: int, computed: bool) -> Origins:
        """Remember what the host looks at; what that is to carry."""
        came = self.came_from(elements.allocation)
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

    def came_from(self, memory: Allocation) -> list[Taken]:
        """Where the values that the host wrote to some memory were taken on the tape."""
        return [taken for values in self.arrays.get(memory, ()) for taken in values.taken]

    def came_in(
        self, elements: array, data: Any, record: int, how: str, replaced: bool = True
    ) -> HostValues | None:
        """Remember an array that the host has made of data, or changed; `replaced` if not by one number."""
        elem: Any = elements.dtype
        if not self._known or not (isinstance(elem, Struct) or is_differentiable(elem)):
            return None
        found = self._takings(data)
        if any(taken.elements.allocation is elements.allocation for taken in found) and how == "array":
            return None  # another view of the same memory
        if not found and _is_written(data):
            return None
        latest = self._last if replaced else None
        if latest is not None and elements.size > latest.elements.size:
            latest = None
        values = HostValues(caller(), record, how, found, latest)
        self.arrays.setdefault(elements.allocation, []).append(values)
        return values

    def passed_on(self, record: int, place: Place, given: Iterable[tuple[int, Any]]) -> None:
        """Remember the numbers that the host has taken, or may have made of these, among those given."""
        for passed in self.numbers_in(record, given):
            if passed.certain or passed.equal is not None:
                self.numbers.append(passed)
            else:
                self._plain[place, passed.position] = passed

    def numbers_in(self, record: int, given: Iterable[tuple[int, Any]]) -> Iterator[PassedOn]:
        """The numbers that the host has taken, or may have made of these, among those given by position."""
        if not self._known:
            return
        for position, value in given:
            found = self._takings(value)
            if found:
                yield PassedOn(record, position, found)
                continue
            for number in _components(value):
                passed = PassedOn(record, position, (), self.lost.get(number), _is_short(number))
                if passed.equal is not None or not passed.written:
                    yield passed

    def _takings(self, data: Any) -> tuple[Taken, ...]:
        """Where the numbers in data were taken on this tape."""
        return tuple(taken for taken in takings(_origins(data)) if taken in self._known)


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
