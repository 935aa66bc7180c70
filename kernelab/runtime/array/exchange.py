"""What arrays say to other libraries: NumPy, DLPack, reinterpretation, marks.

The methods here are those of `array` that need nothing of its inside.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any, Self

from kernelab.errors import Diagnostic, KernelTypeError
from kernelab.host.traced import Origins, traced
from kernelab.lang.types import (
    Mat,
    Scalar,
    Value,
    Vec,
    bfloat16,
    is_differentiable,
    scalar_of,
    shape_of,
    uint16,
)
from kernelab.runtime.array.gradients import Gradients
from kernelab.runtime.array.outside import capsule, interface_of
from kernelab.runtime.array.transfers import look_at
from kernelab.runtime.context.recorder import RECORDER
from kernelab.runtime.memory.dlpack import CPU, CUDA, as_brain, is_brain
from kernelab.runtime.memory.interop import HostArray, itemsize, value_type
from kernelab.runtime.memory.memory import bounds, contiguous_strides
from kernelab.runtime.memory.pinned import pinned_like


class Exchange(Gradients):
    """The part of an array that others speak to."""

    __slots__ = ()

    def numpy(self) -> HostArray:
        """The elements as a NumPy array over the same memory, components in the last axes.

        What is written through it changes the array; a tape that needs the old values notices.  What is on a
        CUDA device is copied, and the copy cannot be written: nothing would come of it.

        While a tape records, this is a subclass of NumPy's array for what gradients depend on.  It remembers
        where it comes from, and so does what NumPy makes of it: `backward` warns where that reached a launch.
        """
        found = look_at(self)
        if self.allocation.space is not None:
            copied = self.seen().copy()
            copied.flags.writeable = False
            return traced(copied, found) if found else copied
        view = self._view(self.allocation.expose())
        if not self.allocation.writable:
            view.flags.writeable = False
        return traced(view, found) if found else view

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> HostArray:
        values = self.numpy()
        if dtype is not None and dtype != values.dtype:
            return values.astype(dtype)
        return values.copy() if copy else values

    def __array_wrap__(self, values: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """What NumPy has computed of the elements: ``np.sin(x)`` is NumPy's array."""
        return traced(values if values.ndim else values[()], self._origins())

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """What a function of NumPy's makes of the elements, such as ``np.dot(x, y)``."""
        found = tuple(chain.from_iterable(each._origins() for each in _exchanged((args, kwargs))))
        return traced(func._implementation(*args, **kwargs), found)

    def _origins(self) -> Origins:
        """What numbers computed of the elements are to remember, if a tape records."""
        recorder = RECORDER.get()
        if recorder is None or not recorder.sees_values:
            return ()
        return recorder.looked_at(self)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """NumPy's description of the memory, which it keeps alive; it has no word for bfloat16.

        Of these, and of those on a device, NumPy asks `__array__`.
        """
        if scalar_of(self.dtype) == bfloat16 or self.allocation.space is not None:
            raise AttributeError("__array_interface__")
        values = self.host()
        look_at(self)
        described = {"shape": values.shape, "typestr": values.dtype.str, "version": 3}
        if not self.allocation.writable:
            return described | {"data": (self.ptr, True), "strides": values.strides}
        return described | {
            "data": self.allocation.expose(),
            "offset": self.offset,
            "strides": values.strides,
        }

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The memory of a CUDA device described for other libraries, version 3; there is none on the CPU.

        They wait for the stream that it names; later launches and copies wait for the whole device.
        """
        return interface_of(self)

    @property
    def typecode(self) -> str:
        """The name of the dtype, for which Python's `reprlib` asks all that is called array."""
        return str(self.dtype)

    def __dlpack__(self, **options: Any) -> Any:
        """The memory for another library, shared; components stand in the last axes.

        Of a CUDA device, the stream of the other library, which it names, waits for what kernelab does there.
        Raises BufferError where the memory is read-only and the other library cannot say that it minds.
        """
        if self.allocation.space is not None:
            options.pop("max_version", None)
            return capsule(self, **options)
        if scalar_of(self.dtype) == bfloat16:
            options.pop("max_version", None)
            return as_brain(self.view(uint16).numpy().__dlpack__(**options))
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The device in DLPack's words."""
        space = self.allocation.space
        return (CPU, 0) if space is None else (CUDA, int(space.name.partition(":")[2]))

    def view(self, dtype: Any) -> Self:
        """The same bytes read as elements of another type.

        Its elements are as large, or numbers as wide: of vectors and matrices the components become the last
        axes, or the last axes components.  Raises KernelTypeError otherwise, and where gradients would be
        read as something else.
        """
        elem = value_type(dtype)
        shape, strides = _viewed(self.shape, self.strides, self.dtype, elem)
        mixes = is_differentiable(elem) and scalar_of(elem) != scalar_of(self.dtype)
        if self.requires_grad and mixes:
            message = f"gradients of {self.dtype} cannot be read as {elem}"
            hint = "detach it first: kl.clone(x, requires_grad=False)"
            raise KernelTypeError(Diagnostic(message, code="grad", hint=hint))
        return self.over(self.allocation, self.offset, shape, strides, elem)

    @property
    def capacity(self) -> int:
        """The bytes from the first element to the end of the last."""
        low, high = bounds(0, self.shape, self.strides, itemsize(self.dtype))
        return high - low

    @property
    def pinned(self) -> bool:
        """Whether the memory is the host's, locked in place for copies to a device and from there."""
        return self.allocation.is_pinned

    def _pin(self) -> None:
        memory = pinned_like(self.allocation)
        if memory is not None:
            self.place(memory, self.offset, self.shape, self.strides, self.dtype)

    def mark_read(self) -> None:
        """Say that code other than a kernel has read the elements, for `Tape.record_func`.

        Tapes know what kernels read.  A tape that does not save what is overwritten warns of a later write,
        or raises TapeError.
        """
        recorder = RECORDER.get()
        if recorder is not None:
            recorder.marked_read(self)

    def mark_write(self) -> None:
        """Say that other code is about to change the elements: tapes that need them save them first."""
        self.allocation.will_write(self)


def _exchanged(values: Any) -> Iterator[Exchange]:
    """The arrays among arguments."""
    if isinstance(values, Exchange):
        yield values
    elif isinstance(values, list | tuple | dict):
        for value in values.values() if isinstance(values, dict) else values:
            yield from _exchanged(value)


class Capsule:
    """A DLPack capsule as an array that hands it over; NumPy looks inside for the device that it is on."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule
        self.dtype = "bfloat16" if is_brain(capsule) else ""

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0


Layout = tuple[tuple[int, ...], tuple[int, ...]]


def _viewed(shape: tuple[int, ...], strides: tuple[int, ...], old: Value, new: Value) -> Layout:
    """Shape and strides of the elements read as another type."""
    if itemsize(new) == itemsize(old):
        return shape, strides
    if isinstance(new, Scalar) and isinstance(old, Vec | Mat) and new.bits == old.scalar.bits:
        return shape + shape_of(old), strides + contiguous_strides(shape_of(old), itemsize(new))
    if isinstance(old, Scalar) and isinstance(new, Vec | Mat) and old.bits == new.scalar.bits:
        components = shape_of(new)
        at = len(shape) - len(components)
        dense = strides[at:] == contiguous_strides(components, itemsize(old))
        if at > 0 and shape[at:] == components and dense:
            return shape[:at], strides[:at]
        message = f"the last axes of an array of shape {shape} are no components of {new}"
        hint = f"they have to be {components}, side by side, after at least one other axis"
        raise KernelTypeError(Diagnostic(message, code="dtype", hint=hint))
    message = f"{old} has {itemsize(old)} bytes, {new} has {itemsize(new)}"
    raise KernelTypeError(Diagnostic(f"a view keeps the size of elements: {message}", code="dtype"))
