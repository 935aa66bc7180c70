"""Small kernels that copy, add and set elements of device arrays in place, with any strides.

    copy      dest[i, j] = src[i, j]
    add       dest[i, j] += src[i, j]
    clear     dest[i, j] = 0

Axes that follow one another in all arrays are taken as one.  Each function says whether it has done its work;
where it has not, the host has to, by its mirrors.  Nobody is told of what changes.
"""

import math
import struct
from collections.abc import Callable, Sequence
from functools import cache

from kernelab import hooks
from kernelab.lang.types import Scalar, scalar_of, shape_of, uint8, uint16, uint32, uint64
from kernelab.runtime.array.layout import Strided
from kernelab.runtime.memory.interop import itemsize
from kernelab.runtime.memory.memory import allocate, contiguous_strides

INDICES = ("i", "j", "k", "l")

MOST = 2**31 - 1
"""The largest number of elements that one launch takes."""

BITS = {1: uint8, 2: uint16, 4: uint32, 8: uint64}
"""What scalars are copied as, by their size."""

Axis = tuple[int, tuple[int, ...]]
"""An extent, and the strides of the arrays along it."""


def copy(dest: Strided, src: Strided) -> bool:
    """Copy elements of equal shape and dtype, which may overlap."""
    if not _are_together(dest, src):
        return False
    apart = dest.extent[1] <= src.extent[0] or src.extent[1] <= dest.extent[0]
    source = src if apart else gathered(src)
    return source is not None and _run("copy", BITS[scalar_of(dest.dtype).bits // 8], dest, source)


def add(dest: Strided, src: Strided) -> bool:
    """Add elements of equal shape and dtype, of another memory."""
    return (
        dest.allocation is not src.allocation
        and _are_together(dest, src)
        and _run("add", scalar_of(dest.dtype), dest, src)
    )


def clear(dest: Strided) -> bool:
    """Set elements to zero."""
    if dest.allocation.space is None:
        return False
    return fill(dest, bytes(1)) or _run("clear", BITS[scalar_of(dest.dtype).bits // 8], dest)


def fill(dest: Strided, element: bytes) -> bool:
    """Set every element of an array without gaps to the bytes of one, or to a part that they repeat."""
    memory, pattern = dest.allocation, _repeated(element)
    if memory.space is None or pattern is None or not dest.is_contiguous:
        return False
    memory.fill(dest.offset, pattern, dest.size * itemsize(dest.dtype) // len(pattern))  # type: ignore[attr-defined]
    return True


def _repeated(element: bytes) -> bytes | None:
    """The one, two or four bytes that an element repeats; None where it does not."""
    sizes = (size for size in (1, 2, 4) if len(element) % size == 0)
    return next((element[:n] for n in sizes if element[:n] * (len(element) // n) == element), None)


def _are_together(dest: Strided, src: Strided) -> bool:
    return dest.allocation.space is not None and dest.allocation.space is src.allocation.space


def gathered(src: Strided) -> Strided | None:
    """The elements without gaps in memory of their own, of the same device; None where the host has to."""
    made = room_for(src)
    return made if copy(made, src) else None


def room_for(elements: Strided) -> Strided:
    """An array like another, without gaps, in new memory of the same device."""
    size, shape = itemsize(elements.dtype), elements.shape
    memory = allocate(elements.size * size, cleared=False, beside=elements.allocation)
    return elements.over(memory, 0, shape, contiguous_strides(shape, size), elements.dtype)


# ------------------------------------------------------------------------------------------ axes


def _run(what: str, scalar: Scalar, dest: Strided, *others: Strided) -> bool:
    """Run a kernel over all scalars; not where they are too many, or stand along too many axes."""
    arrays = (dest, *others)
    parts = contiguous_strides(shape_of(dest.dtype), scalar_of(dest.dtype).bits // 8)
    axes = _axes(dest, [(*elements.strides, *parts) for elements in arrays])
    extents = [extent for extent, _ in axes]
    if any(extent > 1 and strides[0] == 0 for extent, strides in axes):
        return False
    if len(axes) > len(INDICES) or math.prod(extents) > MOST:
        return False
    if 0 in extents:
        return True
    grid = [*extents, *[1] * (len(INDICES) - len(extents))]
    slots = [*grid]
    for n, elements in enumerate(arrays):
        slots += [elements.allocation.address + elements.offset, *extents, *(s[n] for _, s in axes)]
    _entry(what, scalar, len(axes))(struct.pack(f"={len(slots)}q", *slots))
    return True


def _axes(dest: Strided, strides: Sequence[tuple[int, ...]]) -> list[Axis]:
    """The axes along which there is more than one scalar, the shortest way last; one at the least."""
    extents = (*dest.shape, *shape_of(dest.dtype))
    given = [axis for axis in zip(extents, zip(*strides, strict=True), strict=True) if axis[0] != 1]
    merged: list[Axis] = []
    for extent, steps in sorted(given, key=lambda axis: -abs(axis[1][0])):
        if merged and all(outer == extent * inner for outer, inner in zip(merged[-1][1], steps, strict=True)):
            merged[-1] = (merged[-1][0] * extent, steps)
        else:
            merged.append((extent, steps))
    return merged or [(1, (scalar_of(dest.dtype).bits // 8,) * len(strides))]


# ------------------------------------------------------------------------------------------ kernels

BODIES = {
    "copy": ("dest, src", "dest[{at}] = src[{at}]"),
    "add": ("dest, src", "dest[{at}] += src[{at}]"),
    "clear": ("dest", "dest[{at}] = {scalar}(0)"),
}


@cache
def _entry(what: str, scalar: Scalar, ndim: int) -> Callable[[bytes], None]:
    names, body = BODIES[what]
    at = ", ".join(INDICES[:ndim])
    type = f"array[{scalar}]" if ndim == 1 else f"array{ndim}d[{scalar}]"
    head = ", ".join(f"{name}: {type}" for name in names.split(", "))
    text = f"def {what}_elements({head}):\n    {at} = tid()\n    {body.format(at=at, scalar=scalar)}\n"
    return hooks.compile_entry(text, f"{what}_elements")
