"""Numbers that host code takes out of arrays: floats that know where they come from while a tape records.

No tape can follow what the host computes, but a float can: what Python's arithmetic makes of a `TakenFloat`
is one again.  Where such a number reaches a launch, the recorder knows that a chain of gradients ends there.
Numbers go through NumPy, `math` and `float()` without a trace.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, ref

from kernelab.runtime.recorder import Place

if TYPE_CHECKING:
    from kernelab.runtime.strided import array


@dataclass(slots=True, eq=False, weakref_slot=True)
class Taken:
    """Where the host took a number, and of which array; whoever made this decides how long that matters."""

    elements: "array"
    place: Place


class TakenFloat(float):
    """A float that host code took from an array, or computed from one; a float in every other respect.

    Copies and pickles of it are plain floats.
    """

    __slots__ = ("_taken",)

    _taken: "ReferenceType[Taken]"

    @property
    def taken(self) -> Taken | None:
        """Where it comes from, None where that does not matter any more."""
        return self._taken()

    def __reduce_ex__(self, _protocol: Any) -> Any:
        return float, (float(self),)


def remembering(value: Any, taken: Taken | None) -> Any:
    """A number that remembers where it was taken; anything but a float of Python's itself."""
    return value if taken is None or value.__class__ is not float else _made(value, ref(taken))


def _made(value: float, taken: "ReferenceType[Taken]") -> TakenFloat:
    made = TakenFloat(value)
    made._taken = taken
    return made


def _following(compute: Callable[..., Any]) -> Callable[..., Any]:
    """A method of float whose results are taken from where the number itself is."""

    def computed(self: TakenFloat, *others: Any) -> Any:
        result = compute(self, *others)
        return _made(result, self._taken) if result.__class__ is float else result

    return computed


_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
_UNARY = ("__neg__", "__pos__", "__abs__")

for _name in (*_UNARY, *(f"__{side}{name}__" for name in _BINARY for side in ("", "r"))):
    setattr(TakenFloat, _name, _following(getattr(float, _name)))
