"""The byte ranges that the arrays of a launch reach, and overlaps that keep its threads from running at once.

Knows packed arguments; must not know where a launch runs.
"""

import math
from collections.abc import Iterator, Sequence

from kernelab.codegen.cpp.entry import GRID_SLOTS, EntryInfo, Layout, Param
from kernelab.data_classes import dataclass
from kernelab.lang.types import Array, Value, bytes_of


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


def bounds(address: int, shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, int]:
    """The lowest address of any element, and one past the highest; equal where there are no elements."""
    if 0 in shape:
        return address, address
    reach = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    low = address + sum(step for step in reach if step < 0)
    high = address + sum(step for step in reach if step > 0) + itemsize
    return low, high


def folds(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
    """Whether elements may have bytes in common with each other."""
    reach = itemsize
    for stride, extent in sorted((abs(s), n) for s, n in zip(strides, shape, strict=True) if n > 1):
        if stride < reach:
            return 0 not in shape
        reach += stride * (extent - 1)
    return False


def arrays_in(
    layout: Layout, slots: Sequence[int]
) -> Iterator[tuple[Param, Value, int, Sequence[int], Sequence[int]]]:
    """The array parameters that are not residuals, each with the elements, address, shape and strides."""
    for param in layout.params:
        if isinstance(param.type, Array) and not param.residual:
            first, ndim = param.slot + 1, param.type.ndim
            shape, strides = slots[first : first + ndim], slots[first + ndim : first + 2 * ndim]
            yield param, param.type.elem, slots[param.slot], shape, strides


def reach_of(layout: Layout, slots: Sequence[int]) -> dict[str, Reach]:
    """The bytes of each array argument that is not a residual, by the parameter's name."""
    return {
        param.name: _reach(first, shape, strides, bytes_of(elem))
        for param, elem, first, shape, strides in arrays_in(layout, slots)
    }


def _reach(first: int, shape: Sequence[int], strides: Sequence[int], size: int) -> Reach:
    if 0 in shape:
        return Reach(first, first, first, size, ())
    steps = tuple(stride for extent, stride in zip(shape, strides, strict=True) if extent > 1)
    if len(shape) == 1 and size <= strides[0]:
        return Reach(first, first + (shape[0] - 1) * strides[0] + size, first, size, steps)
    low, high = bounds(first, shape, strides, size)
    return Reach(low, high, first, size, steps, folds(shape, strides, size))


def overlapping(
    layout: Layout, changed: frozenset[str], slots: Sequence[int], summed: frozenset[str] = frozenset()
) -> str:
    """Why arguments of a launch keep its threads from running at once: arrays share memory; "" if not.

    Those that are only `summed` may do so with one another.
    """
    reach = reach_of(layout, slots)
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
