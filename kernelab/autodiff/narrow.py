"""Adjoints of halves that many launches add to: between launches their sum is a float32.

    w (bfloat16) read by 1000 launches     w_bar += each launch's share, in float32; rounded once, at the end

A bfloat16 that sums ones stops at 256, a float16 at 2048.  Only memory that the tape does not write, seen
through one array, is treated so: nothing reads its adjoint before the sweep is over.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from kernelab.autodiff.adjoints import Adjoints
from kernelab.autodiff.steps import Step
from kernelab.lang.rounding import rounded, widened
from kernelab.lang.types import HALVES, scalar_of
from kernelab.runtime.interop import HostArray
from kernelab.runtime.memory import Allocation
from kernelab.runtime.strided import array


class NarrowSums:
    """The float32 sums of a sweep, by the step that reaches their arrays."""

    def __init__(self, reached: Mapping[int, Sequence[array]]) -> None:
        self._reached = reached
        self._sums: dict[array, HostArray] = {}

    def take(self, i: int, adjoints: Adjoints) -> None:
        """Move what step `i` has added out of the adjoints."""
        for elements in self._reached.get(i, ()):
            bar = adjoints.known(elements)
            if bar is not None:
                share = bar.host()
                known = self._sums.get(elements)
                self._sums[elements] = widened(share) + (np.float32(0) if known is None else known)
                share[...] = 0

    def give(self, adjoints: Adjoints) -> None:
        """Round the sums, once, into the adjoints."""
        for elements, total in self._sums.items():
            bar = adjoints.known(elements)
            assert bar is not None
            values = bar.host()
            values[...] = rounded(total + widened(values), values.dtype)


def narrow_sums(steps: Sequence[Step], live: Iterable[int], but: Collection[Allocation]) -> NarrowSums | None:
    """The sums worth keeping: of halves that several live steps reach, and none writes; None if no halves."""
    found: dict[Allocation, list[tuple[int, array]]] = {}
    halves: dict[int, bool] = {}  # by type: there is one object for each type of arrays
    for i in live:
        for elements in steps[i].reached:
            known = id(elements.type)
            if known not in halves:
                halves[known] = scalar_of(elements.dtype) in HALVES
            if halves[known]:
                found.setdefault(elements.allocation, []).append((i, elements))
    if not found:
        return None
    written = {target.allocation for step in steps for target in step.written}
    reached: dict[int, list[array]] = {}
    for memory, several in found.items():
        first = several[0][1]
        alike = len({(elements.ptr, elements.shape, elements.strides) for _, elements in several}) == 1
        if alike and len(several) > 1 and memory not in written and memory not in but:
            for i, _ in several:
                reached.setdefault(i, []).append(first)
    return NarrowSums(reached)
