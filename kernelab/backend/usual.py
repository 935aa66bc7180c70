"""What the text for a device takes for granted of a launch, unless its function is `aliased`.

Arrays that it changes share no bytes with others, nor do their elements; strides and extents are not negative
and fit in 32 bits, and so does the number of threads.  A launch that is not so runs another build.
"""

from collections.abc import Sequence

from kernelab.backend.reach import Reach, reach_of
from kernelab.codegen.entry import Layout, Param
from kernelab.lang.types import Array, scalar_of

MOST = 2**31 - 1
"""The largest number of threads, extent or stride of a usual launch."""


def is_usual(layout: Layout, changed: frozenset[str], slots: Sequence[int]) -> bool:
    """Whether all of that holds for the packed slots of a launch; `changed` names what it changes."""
    if slots[0] * slots[1] * slots[2] * slots[3] > MOST:
        return False
    for param in layout.params:
        if isinstance(param.type, Array) and not param.residual:
            numbers = slots[param.slot + 1 : param.slot + 1 + 2 * param.type.ndim]
            if numbers and not 0 <= min(numbers) <= max(numbers) <= MOST:
                return False
    reach = reach_of(layout, slots)
    return not any(_is_shared(name, reach) for name in changed & reach.keys())


def misaligned(layout: Layout, slots: Sequence[int]) -> Param | None:
    """The first array with numbers at addresses that are no multiples of their size; None if there is none.

    A CPU reads and writes those, a device fails.
    """
    for param in layout.params:
        if isinstance(param.type, Array) and not param.residual:
            ndim, size = param.type.ndim, scalar_of(param.type.elem).bits // 8
            first = param.slot + 1
            shape, strides = slots[first : first + ndim], slots[first + ndim : first + 2 * ndim]
            steps = [stride for extent, stride in zip(shape, strides, strict=True) if extent > 1]
            if 0 not in shape and any(number % size for number in (slots[param.slot], *steps)):
                return param
    return None


def _is_shared(name: str, reach: dict[str, Reach]) -> bool:
    mine = reach[name]
    return mine.folds or any(mine.meets(other) for key, other in reach.items() if key != name)
