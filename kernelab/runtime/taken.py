"""Where host code took numbers out of arrays while a tape records: the origins that `lang.traced` carries.

No tape can follow what the host computes, but numbers can say what they come from.  Where such a number
reaches a launch, or an array, the recorder knows that a chain of gradients ends there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import ref

from kernelab.lang.traced import Origins, leave
from kernelab.runtime.recorder import Place

if TYPE_CHECKING:
    from kernelab.runtime.strided import array

MANY = 256
"""How many numbers that have lost their origins are remembered, the latest."""

FEW = 16
"""Of arrays with more elements no number is remembered that loses its origins."""

ORDINARY = frozenset((0.0, 1.0, -1.0))
"""Numbers that everybody writes."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class Taken:
    """Where the host took numbers, of which array, and after how many records; its maker keeps it alive.

    `lost` are the latest numbers, of this array and others, that go on without their origins.
    """

    elements: "array"
    place: Place
    record: int
    lost: "dict[float, Taken]"

    def left(self, number: float) -> None:
        """A number that was taken here, or computed from one, goes on without knowing it."""
        if number in ORDINARY:
            return
        self.lost.pop(number, None)
        self.lost[number] = self
        if len(self.lost) > MANY:
            del self.lost[next(iter(self.lost))]


def origin(taken: Taken) -> Origins:
    """What numbers that were taken there carry."""
    return (ref(taken),)


def takings(found: Origins) -> Iterator[Taken]:
    """Where numbers were taken that come from these origins."""
    for known in found:
        taken = known()
        if isinstance(taken, Taken):
            yield taken


def let_go(values: Any, found: Origins) -> None:
    """Somebody gets numbers in a way that no origin can go with."""
    if found and values.size <= FEW and values.dtype.kind == "f":
        for number in values.ravel().tolist():
            leave(number, found)
