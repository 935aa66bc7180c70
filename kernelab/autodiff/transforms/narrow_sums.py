"""Float32 accumulators for float16 adjoints that many launches add to.

    w (bfloat16) read by 1000 launches     w_bar += each launch's share, in float32; rounded once, at the end

A bfloat16 that sums ones stops at 256, a float16 at 2048.  Only memory that nothing here writes, seen through
one array, is treated so: nothing reads its adjoint before the backward pass is over.  The sums are programs,
run at the level of the backward pass, so lanes and derivatives of it are those of any other program.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Protocol

from kernelab.autodiff.records.adjoint_buffers import Adjoints
from kernelab.autodiff.transforms.levels import BASE, Level, fresh
from kernelab.autodiff.transforms.trees import scalars
from kernelab.lang.types import HALVES, Array, Scalar, float32, scalar_of
from kernelab.runtime.array.array import array
from kernelab.runtime.kernel.kernel import Kernel, kernels_of
from kernelab.runtime.memory.memory import Allocation

INDICES = ("i", "j", "k", "l")

TEXT = """
def take_share({arrays}):
    {at} = tid()
    total[{at}] += float32(bar[{at}])
    bar[{at}] = {half}(0.0)

def give_sum({arrays}):
    {at} = tid()
    bar[{at}] = {half}(total[{at}] + float32(bar[{at}]))
"""


class Reaching(Protocol):
    """The questions to an entry: the arrays that adjoints flow to, and those that it wrote."""

    @property
    def reached(self) -> Sequence[array]: ...

    @property
    def written(self) -> Sequence[array]: ...


class NarrowSums:
    """The float32 sums of a backward pass, by the entry that reaches their arrays."""

    def __init__(self, reached: Mapping[int, Sequence[array]]) -> None:
        self._reached = reached
        self._sums: dict[array, array] = {}

    def take(self, i: int, adjoints: Adjoints, level: Level = BASE) -> None:
        """Move what entry `i` has added out of the adjoints."""
        for elements in self._reached.get(i, ()):
            if adjoints.reach(elements):
                bar = scalars(adjoints.of(elements))
                if elements not in self._sums:
                    self._sums[elements] = fresh(bar.shape, float32, bar)
                _run("take_share", level, bar, self._sums[elements])

    def give(self, adjoints: Adjoints, level: Level = BASE) -> None:
        """Round the sums, once, into the adjoints."""
        for elements, total in self._sums.items():
            _run("give_sum", level, scalars(adjoints.of(elements)), total)
            level.forget(total.allocation)


@cache
def has_halves(type: Array) -> bool:
    """Whether the elements of an array type consist of floats of 16 bits."""
    return scalar_of(type.elem) in HALVES


def narrow_sums(
    entries: Sequence[Reaching], live: Iterable[int], but: Collection[Allocation] = ()
) -> NarrowSums | None:
    """The sums worth keeping: of halves that several entries reach, and none writes; None if no halves."""
    found: dict[Allocation, list[tuple[int, array]]] = {}
    halves: dict[int, bool] = {}  # by type: there is one object for each type of arrays
    for i in live:
        for elements in entries[i].reached:
            known = id(elements.type)
            if known not in halves:
                halves[known] = has_halves(elements.type)
            if halves[known]:
                found.setdefault(elements.allocation, []).append((i, elements))
    if not found:
        return None
    written = {target.allocation for entry in entries for target in entry.written}
    reached: dict[int, list[array]] = {}
    for memory, several in found.items():
        first = several[0][1]
        alike = len({(elements.ptr, elements.shape, elements.strides) for _, elements in several}) == 1
        fits = first.size and scalars(first).ndim <= len(INDICES)
        if alike and fits and len(several) > 1 and memory not in written and memory not in but:
            for i in dict.fromkeys(i for i, _ in several):
                reached.setdefault(i, []).append(first)
    return NarrowSums(reached)


def _run(name: str, level: Level, bar: array, total: array) -> None:
    half = scalar_of(bar.dtype)
    level.run(_kernels(half, bar.ndim)[name].program, bar.shape, [bar, total])


@cache
def _kernels(half: Scalar, ndim: int) -> dict[str, Kernel]:
    kind = "array" if ndim == 1 else f"array{ndim}d"
    arrays, at = f"bar: {kind}[{half}], total: {kind}[float32]", ", ".join(INDICES[:ndim])
    return kernels_of(TEXT.format(arrays=arrays, at=at, half=half), "kernelab sums")
