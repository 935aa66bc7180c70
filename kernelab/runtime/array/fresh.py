"""New memory for arrays: how elements will stand in it, and of which device it is; must not know arrays."""

import math
from collections.abc import Sequence
from typing import Any

from kernelab.errors import Diagnostic, KernelValueError
from kernelab.runtime.memory.device import Device
from kernelab.runtime.memory.interop import itemsize, strides_tuple
from kernelab.runtime.memory.memory import Allocation, allocate, bounds, contiguous_strides
from kernelab.runtime.memory.pinned import allocate_pinned


def laid_out(shape: tuple[int, ...], elem: Any, strides: Sequence[int] | None) -> tuple[tuple[int, ...], int]:
    """The strides of a new array, in bytes, contiguous unless given, and how many bytes it needs."""
    size = itemsize(elem)
    if strides is None:
        return contiguous_strides(shape, size), math.prod(shape) * size
    steps = strides_tuple(strides, shape)
    return steps, bounds(0, shape, steps, size)[1]


def require_room(capacity: int | None, needed: int) -> None:
    """Raise KernelValueError unless memory of so many bytes, if that is known, holds what is needed."""
    if capacity is not None and needed > capacity:
        message = f"the elements take {needed:,} bytes, and there are {capacity:,} at the address"
        raise KernelValueError(Diagnostic(message, code="capacity", hint="check shape, strides and dtype"))


def allocate_on(place: Device, nbytes: int, *, cleared: bool, pinned: bool = False) -> Allocation:
    """New memory of a device, or pinned on the host where a device can make use of it.

    Raises KernelMemoryError.
    """
    space = place.space
    if space is None:
        made = allocate_pinned(nbytes, cleared=cleared) if pinned else None
        if made is not None:
            return made
        return allocate(nbytes, cleared=cleared)
    return space.allocate(nbytes, cleared=cleared)
