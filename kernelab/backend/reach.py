"""Which bytes the array arguments of a launch reach: a fact of its packed slots."""

from collections.abc import Sequence

from kernelab.codegen.entry import Layout, Param
from kernelab.lang.types import Array, bytes_of

Reach = tuple[int, int]
"""The lowest address of any element, and one past the highest; equal where there are none."""


def reach_of(layout: Layout, slots: Sequence[int]) -> dict[str, Reach]:
    """The bytes of each array argument that is no residual, by the parameter's name."""
    arrays = (param for param in layout.params if isinstance(param.type, Array) and not param.residual)
    return {param.name: _reach(param, slots) for param in arrays}


def _reach(param: Param, slots: Sequence[int]) -> Reach:
    assert isinstance(param.type, Array)
    ndim, address = param.type.ndim, slots[param.slot]
    shape = slots[param.slot + 1 : param.slot + 1 + ndim]
    strides = slots[param.slot + 1 + ndim : param.slot + 1 + 2 * ndim]
    if 0 in shape:
        return address, address
    steps = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    low, high = (sum(step for step in steps if (step < 0) == below) for below in (True, False))
    return address + low, address + high + bytes_of(param.type.elem)
