"""Writes to arrays from the host and copies between arrays, with notice to the recorder.

On a device small kernels copy, add and set elements in place, with any strides:

    copy      dest[i, j] = src[i, j]
    add       dest[i, j] += src[i, j]
    fill      dest[i, j] = value

Knows memory and the current recorder; must not know how arrays are made.
"""

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from kernelab import hooks
from kernelab.backend.common.reach import bounds
from kernelab.errors import Diagnostic, GradientError, KernelTypeError, KernelValueError
from kernelab.host.traced import Origins
from kernelab.lang.types import Array, Scalar, scalar_of, shape_of, uint8, uint16, uint32, uint64
from kernelab.runtime.array.layout import Strided, contiguous_strides, other_shape, share_bytes
from kernelab.runtime.array.origins import note_copied, refuse_written_as_integers
from kernelab.runtime.context.conversion import HostArray, copy_elements, itemsize, strides_tuple
from kernelab.runtime.context.recorder import ENTERED, RECORDER, Recorder, note_unrecorded, notify_outside_use
from kernelab.runtime.memory.device import Device
from kernelab.runtime.memory.memory import Allocation, allocate, copy_bytes
from kernelab.runtime.memory.streams import allocate_pinned


def laid_out(shape: tuple[int, ...], elem: Any, strides: Sequence[int] | None) -> tuple[tuple[int, ...], int]:
    """The strides of a new array, in bytes, contiguous unless given, and how many bytes it needs."""
    size = itemsize(elem)
    if strides is None:
        return contiguous_strides(shape, size), math.prod(shape) * size
    steps = strides_tuple(strides, shape)
    return steps, bounds(0, shape, steps, size)[1]


def allocate_on(place: Device, nbytes: int, *, cleared: bool, pinned: bool = False) -> Allocation:
    """New memory of a device, or of the host, pinned where there is a device.

    Raises KernelMemoryError.
    """
    if place.space is not None:
        return place.space.allocate(nbytes, cleared=cleared)
    memory = allocate_pinned(nbytes) if pinned else None
    return allocate(nbytes, cleared=cleared) if memory is None else memory


# ------------------------------------------------------------------------------------------------- transfers


def look_at(elements: Strided) -> Origins:
    """To be called where the host is about to see elements; what these are to remember."""
    origins = notify_outside_use([elements], by_host=True) if ENTERED else ()
    recorder = RECORDER.get()
    return origins if recorder is None else origins + recorder.looked_at(elements)


def unreadable(elements: Strided) -> Diagnostic | None:
    """Explain why the host cannot read an array, such as a lane in `vmap`; None where it can."""
    return next((reason for _, reason in _refusals(elements)), None)


def require_readable(elements: Strided) -> None:
    """Raise GradientError where the values of an array differ between lanes."""
    refusals = [*_refusals(elements)]
    for recorder, reason in refusals:
        recorder.refused(reason)
    if refusals:
        raise GradientError(refusals[0][1])


def _refusals(elements: Strided) -> Iterator[tuple[Recorder, Diagnostic]]:
    """The recorders at which the host cannot read an array, the current one first, each with its reason."""
    current = RECORDER.get()
    for recorder in ENTERED if current is None else (current, *ENTERED):
        if (reason := recorder.unreadable(elements)) is not None:
            yield recorder, reason


def readable(elements: Strided) -> HostArray:
    """The elements for host code that returns none of them; raises GradientError where lanes differ."""
    require_readable(elements)
    return elements.seen()


def tabulate(target: Strided, sources: Sequence[Strided], compute: Callable[..., HostArray]) -> Strided:
    """Set `target`, a new array of ints, to ``compute(*values)`` of `sources`: in each lane its own."""
    if ENTERED:
        notify_outside_use(sources, by_host=True)
    (RECORDER.get() or Recorder()).tabulate(target, sources, compute)
    return target


def transfer(dest: Strided, src: Strided, how: str) -> None:
    """Copy the elements of `src` into `dest`, of equal shape and dtype, and tell the recorder."""
    if dest.type is not src.type and dest.dtype != src.dtype:
        message = f"cannot copy {src.dtype} elements into an array of {dest.dtype}"
        hint = "convert them: kl.utils.array_cast(src, dest), or kl.array(src, dtype=...)"
        raise KernelTypeError.of(message, "dtype", hint)
    if dest.shape != src.shape:
        raise KernelValueError(_other_extents(dest, src))
    if dest.allocation.folded or not dest.allocation.writable:
        require_writable(dest)
    if ENTERED:
        notify_outside_use((src,), written=(dest,))
    recorder = RECORDER.get()
    if recorder is not None:
        refuse_written_as_integers(recorder, (dest,), src)
        if recorder.copies_again and share_bytes(dest, src):
            src = copy(src)  # who copies once more has to find the elements
    dest.allocation.will_write(dest)
    (low, high), (start, stop) = dest.extent, src.extent
    apart = high <= start or stop <= low
    if dest.allocation.space is not None or src.allocation.space is not None:
        move(dest, src)
    else:
        copy_elements(dest.host(), src.host() if apart else src.host().copy())  # as in `put`
    if recorder is not None:
        recorder.copied(dest, src, how)
    elif dest.allocation.requires_grad:
        note_copied(how, dest, *((src,) if dest.is_whole else (src, dest)))
    if src.allocation.unwritten:  # at last: a transform copies once more
        src.allocation.unwritten.copied(dest, src)


def write(target: Strided, values: Any, how: str, data: Any) -> None:
    """Set the elements to numbers that fit, made of host `data`, and tell the watchers and the recorder."""
    memory = target.allocation
    if memory.folded or not memory.writable:
        require_writable(target)
    if ENTERED:
        notify_outside_use((), written=(target,))
    recorder = RECORDER.get()
    if recorder is not None:
        refuse_written_as_integers(recorder, (target,))
    if memory.watches.starts or memory.witnesses:
        memory.will_write(target)
    else:
        memory.version += 1
    put(target, values)
    memory.publish()
    if recorder is not None:
        recorder.overwritten(target, how, data)
    else:
        note_unrecorded(target, data)


def put(target: Strided, values: Any) -> None:
    """Set the elements to numbers that fit; a device repeats one value itself."""
    one = None if target.allocation.space is None else _one_value(target, values)
    if one is not None and device_fill(target, one.tobytes()):
        return
    if isinstance(values, np.ndarray):
        elements = target.blank()
        # NumPy itself gets a[0:5:2] = a[0:3] wrong: it reads elements that it has written.
        copy_elements(elements, values.copy() if np.may_share_memory(elements, values) else values)
    else:
        target.blank().fill(values)


def _one_value(target: Strided, values: Any) -> HostArray | None:
    """The value of every element, if one value fills them all."""
    outline = target.outline()
    components = outline.shape[target.ndim :]
    if isinstance(values, np.ndarray) and values.shape not in ((), components):
        return None
    value = np.empty(components, outline.dtype)
    value[...] = values
    return value


def _other_extents(dest: Strided, src: Strided) -> Diagnostic:
    if dest.size == src.size:
        hint = f"reshape the source: src.reshape({dest.shape})"
    elif src.size < dest.size:
        hint = "copy them to the front: kl.copy(dest, src, count=src.size)"
    else:
        hint = "copy the first ones: kl.copy(dest, src, count=dest.size)"
    return replace(other_shape(dest.shape, src.shape), hint=hint)


def move(dest: Strided, src: Strided) -> None:
    """Copy elements of equal shape and dtype where a device is involved: within one, without the host."""
    into, source = dest.allocation, src.allocation
    if into is not source and into.space is source.space and dest.is_contiguous and src.is_contiguous:
        copy_bytes(into, dest.offset, source, src.offset, src.size * itemsize(src.dtype))
        return
    if device_copy(dest, src):
        return
    values = src.seen()
    dest.blank()[...] = values.copy() if into is source else values
    into.publish()


def require_writable(target: Strided) -> None:
    """Raise KernelValueError for an array that cannot be written."""
    if not target.allocation.writable:
        message = "this array shares the memory of a read-only NumPy array"
        raise KernelValueError.of(message, "read-only", "make a copy: array(data)")
    if target.allocation.folded and target.folds:
        message = "elements of this array share bytes with each other: it cannot be written"
        raise KernelValueError.of(message, "read-only", "make a copy: array(data)")


# --------------------------------------------------------------------------------------- in place on a device

# Axes that follow one another in all arrays are taken as one.  Each function says whether it has done its
# work; where it has not, the host has to, by its mirrors.  No watcher is notified.

INDICES = ("i", "j", "k", "l")
"""What the thread indices are called in kernels that are written here."""

MOST = 2**31 - 1
"""The largest number of elements that one launch takes."""

BITS = {1: uint8, 2: uint16, 4: uint32, 8: uint64}
"""What scalars are copied as, by their size."""

Axis = tuple[int, tuple[int, ...]]
"""An extent, and the strides of the arrays along it."""


def device_copy(dest: Strided, src: Strided) -> bool:
    """Copy elements of equal shape and dtype, which may overlap."""
    if not _are_together(dest, src):
        return False
    apart = dest.extent[1] <= src.extent[0] or src.extent[1] <= dest.extent[0]
    source = src if apart else gathered(src)
    return source is not None and _run("copy", BITS[scalar_of(dest.dtype).bits // 8], dest, source)


def device_add(dest: Strided, src: Strided) -> bool:
    """Add elements of equal shape and dtype, of another memory."""
    return (
        dest.allocation is not src.allocation
        and _are_together(dest, src)
        and _run("add", scalar_of(dest.dtype), dest, src)
    )


def device_clear(dest: Strided) -> bool:
    """Set elements to zero."""
    return device_fill(dest, bytes(scalar_of(dest.dtype).bits // 8))


def device_fill(dest: Strided, element: bytes) -> bool:
    """Set every element to the bytes of one."""
    memory = dest.allocation
    if memory.space is None:
        return False
    pattern = _repeated(element) if dest.is_contiguous else None
    if pattern is not None:
        memory.fill(dest.offset, pattern, dest.size * itemsize(dest.dtype) // len(pattern))  # type: ignore[attr-defined]
        return True
    if dest.outline().dtype.names:
        return False  # structs have fields of several sizes
    size = scalar_of(dest.dtype).bits // 8
    if element[:size] * (len(element) // size) == element:
        return _run("fill", BITS[size], dest, value=element[:size])
    components = [(element[k : k + size], dest.offset + k) for k in range(0, len(element), size)]
    return all(
        _run("fill", BITS[size], dest.over(memory, at, dest.shape, dest.strides, BITS[size]), value=value)
        for value, at in components
    )


def _repeated(element: bytes) -> bytes | None:
    """The one, two or four bytes that an element repeats; None where it does not."""
    sizes = (size for size in (1, 2, 4) if len(element) % size == 0)
    return next((element[:n] for n in sizes if element[:n] * (len(element) // n) == element), None)


def _are_together(dest: Strided, src: Strided) -> bool:
    """Whether a device holds both, as numbers of one type."""
    space = dest.allocation.space
    if space is None or space is not src.allocation.space:
        return False
    return scalar_of(dest.dtype) == scalar_of(src.dtype)


def gathered(src: Strided) -> Strided | None:
    """The elements without gaps in memory of their own, of the same device; None where the host has to."""
    size, shape = itemsize(src.dtype), src.shape
    memory = allocate(src.size * size, cleared=False, beside=src.allocation)
    dense = src.over(memory, 0, shape, contiguous_strides(shape, size), src.dtype)
    return dense if device_copy(dense, src) else None


def _run(what: str, scalar: Scalar, dest: Strided, *others: Strided, value: bytes = b"") -> bool:
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
    slots = [*extents, *[1] * (len(INDICES) - len(extents))]
    for n, elements in enumerate(arrays):
        slots += [elements.allocation.address + elements.offset, *extents, *(s[n] for _, s in axes)]
    _entry(what, scalar, len(axes))(
        struct.pack(f"={len(slots)}q", *slots) + (value and value.ljust(8, b"\0"))
    )
    return True


def _axes(dest: Strided, strides: Sequence[tuple[int, ...]]) -> list[Axis]:
    """The axes along which there is more than one scalar, the shortest way last; one at the least."""
    extents = (*dest.shape, *shape_of(dest.dtype))
    axes = [axis for axis in zip(extents, zip(*strides, strict=True), strict=True) if axis[0] != 1]
    merged: list[Axis] = []
    for extent, steps in sorted(axes, key=lambda axis: -abs(axis[1][0])):
        if merged and all(outer == extent * inner for outer, inner in zip(merged[-1][1], steps, strict=True)):
            merged[-1] = (merged[-1][0] * extent, steps)
        else:
            merged.append((extent, steps))
    return merged or [(1, (scalar_of(dest.dtype).bits // 8,) * len(strides))]


BODIES = {
    "copy": ("dest, src", "dest[{at}] = src[{at}]"),
    "add": ("dest, src", "dest[{at}] += src[{at}]"),
    "fill": ("dest", "dest[{at}] = value"),
}


@cache
def _entry(what: str, scalar: Scalar, ndim: int) -> Callable[[bytes], None]:
    names, body = BODIES[what]
    at = ", ".join(INDICES[:ndim])
    head = ", ".join(f"{name}: {Array(scalar, ndim)}" for name in names.split(", "))
    head += f", value: {scalar}" * (what == "fill")
    text = f"def {what}_elements({head}):\n    {at} = tid()\n    {body.format(at=at, scalar=scalar)}\n"
    return hooks.compile_entry(text, f"{what}_elements")
