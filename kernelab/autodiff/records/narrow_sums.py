"""Accumulation of 16-bit adjoints in float32: a bfloat16 that sums ones stops at 256, a float16 at 2048.

    w (bfloat16) read by 1000 launches     w_bar += each launch's share, in float32; rounded once, at the end

A sum ends with the first launch that reads what was written: the adjoint of the write finds it rounded.
Each view has sums of its own.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence

from kernelab.autodiff.records.adjoint_buffers import Adjoints, Level, fresh, scalars
from kernelab.autodiff.records.half_sums import give_sum, take_share
from kernelab.autodiff.records.records import Step
from kernelab.lang.types import HALVES, Array, float32, scalar_of
from kernelab.runtime.array.array import array
from kernelab.runtime.memory.memory import Allocation

FEW = 16
"""The additions that a half bears, where summing them wider would cost as much as they do."""


class NarrowSums:
    """The float32 sums of a backward pass.

    `reached` has their arrays, by the entry that reaches them, and whether it is the first to do so.
    """

    def __init__(self, reached: Mapping[int, Sequence[tuple[array, bool]]]) -> None:
        self._reached = reached
        self._sums: dict[array, array] = {}

    def take(self, i: int, adjoints: Adjoints, level: Level) -> None:
        """Move what entry `i` has added out of the adjoints; round what is complete with it."""
        for elements, is_first in self._reached.get(i, ()):
            if adjoints.reach(elements):
                bar = scalars(adjoints.of(elements))
                if elements not in self._sums:
                    self._sums[elements] = fresh(bar.shape, float32, bar)
                take_share(level, bar, self._sums[elements])
            if is_first:
                self.give(adjoints, level, (elements.allocation,))

    def give(self, adjoints: Adjoints, level: Level, memories: Collection[Allocation] | None = None) -> None:
        """Round the sums, of some memories or of all, into the adjoints."""
        for elements in [one for one in self._sums if memories is None or one.allocation in memories]:
            total = self._sums.pop(elements)
            give_sum(level, scalars(adjoints.of(elements)), total)


WITHOUT_HALVES: dict[int, Array] = {}
"""Array types without halves that were asked for, by identity: there is one object of each type."""


def has_halves(type: Array) -> bool:
    """Whether the elements of an array type consist of floats of 16 bits."""
    if scalar_of(type.elem) in HALVES:
        return True
    WITHOUT_HALVES[id(type)] = type
    return False


def narrow_sums(steps: Sequence[Step], live: Collection[int]) -> NarrowSums | None:
    """The sums worth keeping: of halves that several entries reach between two writes; None if no halves."""
    groups: dict[Hashable, list[tuple[int, array]]] = {}
    writes = Counter[Allocation]()
    for i, step in enumerate(steps):
        written = {target.allocation for target in step.written}
        for elements in step.reached if i in live else ():
            memory = elements.allocation
            if memory not in written and has_halves(elements.type):
                groups.setdefault((elements.packed, writes[memory]), []).append((i, elements))
        writes.update(written)
    reached: dict[int, list[tuple[array, bool]]] = {}
    for several in groups.values():
        places, first = dict.fromkeys(i for i, _ in several), several[0][1]
        if first.size and len(several) > (FEW if writes[first.allocation] else 1):
            for i in places:
                reached.setdefault(i, []).append((first, i == several[0][0]))
    return NarrowSums(reached) if groups else None
