"""Arrays that a function makes under a transform, and keeps: their derivatives end with that run.

cache = {}
def f(x):
    if "y" not in cache:
        cache["y"] = x * x            the first run knows that y depends on x
    return cache["y"] * x             for the next one y is a constant
"""

from collections.abc import Callable, Container, Iterable, Iterator
from weakref import WeakKeyDictionary

from kernelab.data_classes import dataclass
from kernelab.errors import GradientError
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import called, refusal, warn_at
from kernelab.runtime.launch.call import Call
from kernelab.runtime.memory.memory import Allocation

_HINT = "compute it anew in each run, or return it (has_aux=True)"


@dataclass(frozen=True, slots=True)
class _Ended:
    """What ended with a run: the version of the memory, and whether each lane had values of its own."""

    version: int
    had_lanes: bool


_ENDED: "WeakKeyDictionary[Allocation, _Ended]" = WeakKeyDictionary()


def note_ended(
    carrying: Iterable[Allocation], first: int, returned: Container[Allocation], has_lanes: bool
) -> None:
    """Note the memory that a run has made, from the serial number `first` on, and not returned."""
    for memory in carrying:
        if memory.serial > first and memory not in returned:
            _ENDED[memory] = _Ended(memory.version, has_lanes)


def look_at_kept(call: Call, carries: Callable[[Allocation], bool]) -> None:
    """Warn of an array that a launch reads and an earlier run has kept; GradientError if lanes differed."""
    for i in call.kernel.plan.read if _ENDED else ():
        elements = call.arguments[i]
        if not isinstance(elements, array) or elements.allocation not in _ENDED:
            continue
        memory = elements.allocation
        ended = _ENDED.pop(memory)
        if ended.version != memory.version or carries(memory):
            continue
        name = called(elements, "an array")
        if ended.had_lanes:
            _ENDED[memory] = ended
            message = f"{name} was computed in an earlier run, for lanes that are no longer there"
            raise refusal(GradientError, message, "kept", _HINT)
        message = f"no derivative flows through {name}, which an earlier run of the function has computed"
        warn_at(message, "kept", f"{_HINT}; as a constant keep kl.stop_gradient(y)")


def led_to(call: Call, memories: Container[Allocation]) -> Iterator[Allocation]:
    """The memory that a launch changes and that has a derivative by some of these."""
    places, arguments = call.kernel.program.leads, call.arguments
    for i in call.kernel.plan.read:
        if isinstance(one := arguments[i], array) and one.allocation in memories:
            yield from (arguments[k].allocation for k in places[i])
