"""What a Python function with a derivative of its own uses of the arrays around it, and leaves in them."""

from collections.abc import Iterable, Mapping, Sequence
from threading import get_ident
from typing import Any
from weakref import WeakKeyDictionary

from kernelab.autodiff.records.provenance import SMALL
from kernelab.data_classes import dataclass
from kernelab.host.traced import Origins
from kernelab.lang.types import is_differentiable
from kernelab.runtime.array.array import array
from kernelab.runtime.context.conversion import checksum
from kernelab.runtime.context.recorder import Place, Recorder, called, caller, warn_at
from kernelab.runtime.memory.memory import Allocation, youngest


@dataclass(frozen=True, slots=True)
class Used:
    """Memory that a function has used, in a version: the type of its elements, checksums of the parts.

    These are None where they are large, or on a device.
    """

    version: int
    dtype: Any
    sums: dict[tuple[Any, ...], int] | None

    @staticmethod
    def of(memory: Allocation, arrays: Sequence[array]) -> "Used":
        """The memory as it is now, of which some arrays were used."""
        parts = {(one.offset, one.shape, one.strides, one.dtype): one.extent for one in arrays}
        if memory.space is not None or sum(high - low for low, high in parts.values()) > SMALL:
            return Used(memory.version, arrays[0].dtype, None)
        return Used(memory.version, arrays[0].dtype, {place: _sum(memory, place) for place in parts})

    def has_changed(self, memory: Allocation) -> bool:
        """Whether these parts may have changed since."""
        if memory.version == self.version:
            return False
        return self.sums is None or any(_sum(memory, place) != known for place, known in self.sums.items())


def _sum(memory: Allocation, place: tuple[Any, ...]) -> int:
    return checksum(array.over(memory, *place).seen())


class Surroundings(Recorder):
    """Notes which arrays a function uses of those around it, and where values of its copies go.

    `used` is memory that is older than its run and not given to it, in the version that it finds, and what it
    uses there.  `carrying` is what holds such values, with the type of elements.
    """

    def __init__(self, own: Iterable[Allocation], before: Mapping[Allocation, Used]) -> None:
        self.used = dict[Allocation, tuple[int, list[array]]]()
        self.carrying = WeakKeyDictionary[Allocation, Any](dict.fromkeys(own))
        self._own, self._first, self._thread = {*own}, youngest(), get_ident()
        self._changed = {one: one.version for one, used in before.items() if used.has_changed(one)}
        self._stale = dict[Allocation, tuple[str, Place]]()

    def used_outside(self, elements: array, by_host: bool) -> Origins:
        memory = elements.allocation
        if get_ident() == self._thread and memory.serial < self._first and memory not in self._own:
            self.used.setdefault(memory, (memory.version, []))[1].append(elements)
            if memory in self._changed and memory not in self._stale:
                self._stale[memory] = called(elements, "an array"), caller()
        return ()

    def computed_outside(self, read: Sequence[array], written: Sequence[array]) -> None:
        if get_ident() == self._thread and any(one.allocation in self.carrying for one in read):
            floats = (one for one in written if is_differentiable(one.dtype))
            self.carrying.update((one.allocation, one.dtype) for one in floats)

    def warn_of_stale(self, func: str) -> bool:
        """Warn of arrays that have changed since `func` was called, not in this run: if there are any."""
        is_told = False
        for memory, (name, place) in self._stale.items():
            if memory.version == self._changed[memory]:
                message = f"{name} has changed since {func} was called, and its derivative reads it here: "
                hint = f"pass it to {func} as an argument, integers as a copy: k.copy()"
                warn_at(f"{message}that is not the derivative of what ran", "changed", hint, place)
                is_told = True
        return is_told
