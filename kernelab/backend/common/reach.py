"""The byte ranges that the arrays of a launch reach, and overlaps that keep its threads from running at once.

Knows packed arguments; must not know where a launch runs.
"""

import math
from collections.abc import Sequence

from kernelab.codegen.cpp.entry import GRID_SLOTS, EntryInfo, Layout, Param
from kernelab.data_classes import dataclass
from kernelab.lang.types import Array, bytes_of


@dataclass(frozen=True, slots=True)
class Reach:
    """The lowest address of any element, and one past the highest: equal where there are none.

    `first` is the address of the first element, of `size` bytes, and `steps` are the strides along which
    there are more; `folds` says that two elements may have bytes in common.
    """

    low: int
    high: int
    first: int
    size: int
    steps: tuple[int, ...]
    folds: bool = False

    def meets(self, other: "Reach") -> bool:
        """Whether the two may have bytes in common; fields of the same structs have none."""
        if self.high <= other.low or other.high <= self.low:
            return False
        period = math.gcd(*self.steps, *other.steps)
        distance = (other.first - self.first) % period if period else 0
        return not (distance >= self.size and distance + other.size <= period)


def reach_of(layout: Layout, slots: Sequence[int]) -> dict[str, Reach]:
    """The bytes of each array argument that is not a residual, by the parameter's name."""
    arrays = (param for param in layout.params if isinstance(param.type, Array) and not param.residual)
    return {param.name: _reach(param, slots) for param in arrays}


def _reach(param: Param, slots: Sequence[int]) -> Reach:
    assert isinstance(param.type, Array)
    ndim, first, size = param.type.ndim, slots[param.slot], bytes_of(param.type.elem)
    shape = slots[param.slot + 1 : param.slot + 1 + ndim]
    strides = slots[param.slot + 1 + ndim : param.slot + 1 + 2 * ndim]
    if 0 in shape:
        return Reach(first, first, first, size, ())
    if ndim == 1 and size <= strides[0]:
        step = strides[0] if shape[0] > 1 else 0
        return Reach(first, first + (shape[0] - 1) * strides[0] + size, first, size, (step,) if step else ())
    reach = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    low = first + sum(step for step in reach if step < 0)
    high = first + sum(step for step in reach if step > 0) + size
    axes = sorted(
        (abs(stride), stride, extent) for extent, stride in zip(shape, strides, strict=True) if extent > 1
    )
    span, folds = size, False
    for step, _, extent in axes:
        folds |= step < span
        span += step * (extent - 1)
    return Reach(low, high, first, size, tuple(stride for _, stride, _ in axes), folds)


def overlapping(
    info: EntryInfo, changed: frozenset[str], slots: Sequence[int], summed: frozenset[str] = frozenset()
) -> str:
    """Why arguments of a launch keep its threads from running at once: arrays share memory; "" if not.

    Those that are only `summed` may do so with one another.
    """
    reach = reach_of(info.layout, slots)
    for name in changed & reach.keys():
        if reach[name].folds and name not in summed:
            return f"elements of `{name}`, which it changes, may share memory"
        for other, bytes_of_other in reach.items():
            if other == name or (name in summed and other in summed):
                continue
            if reach[name].meets(bytes_of_other):
                return f"`{name}`, which it changes, may share memory with `{other}`"
    return ""


def repeated(info: EntryInfo, slots: Sequence[int]) -> str:
    """Why the grid of a launch does so: it has dimensions that the kernel does not unpack; "" if not."""
    if info.coordinates < 2 or all(extent == 1 for extent in slots[info.coordinates : GRID_SLOTS]):
        return ""
    return f"its grid has more dimensions than the {info.coordinates} indices that it unpacks"
