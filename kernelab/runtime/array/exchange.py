"""The protocols by which arrays share memory with other libraries: NumPy, DLPack, reinterpretation.

The methods here are those of `array` that need nothing of its inside.
"""

import ctypes
import weakref
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import import_module
from itertools import chain
from typing import Any, Self

import numpy as np

from kernelab import hooks
from kernelab.backend.common.reach import bounds, folds
from kernelab.backend.cuda.synchronisation import ANY, LEGACY, Partner, TorchStream
from kernelab.errors import KernelTypeError, LaunchError
from kernelab.guidance.bad_calls import explains_bad_calls
from kernelab.host.traced import Origins, traced
from kernelab.lang.operators import BINARY
from kernelab.lang.structs import Struct
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
from kernelab.runtime.array.array_attributes import Gradients
from kernelab.runtime.array.layout import Part, Strided, contiguous_strides
from kernelab.runtime.array.origins import has_floats, note_as_integers
from kernelab.runtime.array.transfers import look_at
from kernelab.runtime.context.conversion import HostArray, itemsize, too_many_axes, value_type
from kernelab.runtime.context.recorder import RECORDER, called, warn_at
from kernelab.runtime.memory.device import Device, get_cuda_devices, get_device
from kernelab.runtime.memory.dlpack import CPU, CUDA, Described, capsule_of, described_as_brain, taken
from kernelab.runtime.memory.memory import Allocation, MemorySpace, point_at
from kernelab.runtime.memory.spaces import OPEN, DeviceAllocation, Space, space_of

INTERFACE = "__cuda_array_interface__"

_METHODS = (np.sum, np.mean, np.max, np.min, np.amax, np.amin)
"""The functions of NumPy that call a method of the array, where it has one."""

_OF_SHAPES = (np.shape, np.ndim, np.size, np.zeros_like, np.ones_like, np.empty_like, np.full_like)
"""The functions of NumPy that read no values of their first argument."""

_SYMBOLS = {entry.ufunc: entry.symbol for entry in BINARY}
"""The operators that ufuncs of NumPy stand for."""


@lru_cache(maxsize=256)
def _buffers(nbytes: int) -> Any:
    """The type of buffers of so many bytes whose items are those of the pair that NumPy's arrays give."""
    return type("data", (ctypes.c_ubyte * nbytes,), {"__getitem__": lambda self, k: self.pair[k]})


def _addressed(memory: Allocation, address: int) -> Any:
    """A buffer of some memory; ``data[0]`` is an address in it, as programs expect that know NumPy's pair.

    The memory counts as exposed as long as this or a view of it lives.
    """
    exposed = memory.expose()
    data = _buffers(memory.nbytes).from_address(memory.address)
    data.allocation, data.exposed, data.pair = memory, exposed, (address, False)
    return data


def is_outside(data: object) -> bool:
    """Whether an object that may be on a CUDA device says that it is."""
    return _interface(data) is not None


def _interface(data: Any) -> dict[str, Any] | None:
    try:
        interface: dict[str, Any] | None = getattr(data, INTERFACE, None)
    except RuntimeError as problem:  # PyTorch's way to say that gradients stand in the way
        message = f"this {type(data).__name__} does not hand its memory over: {problem}"
        raise KernelTypeError.of(message, "shared", "pass x.detach()") from None
    return interface


def from_interface(data: Any, elem: Any) -> Part:
    """The memory of an object with the CUDA array interface.

    With a vector or matrix for `elem` the last axes are its components; with numbers of another type, `elem`
    is left to the caller.  Raises KernelTypeError for what no array can look at.
    """
    told = _interface(data)
    assert told is not None
    if isinstance(elem, Struct):
        message = f"an array of {elem} cannot be made over memory of another library on a device"
        raise KernelTypeError.of(message, "shared", "copy it to the CPU first")
    if told.get("mask") is not None:
        raise KernelTypeError.of("an array with a mask cannot be shared", "shared")
    address, read_only = told["data"]
    scalar, shape = value_type(np.dtype(told["typestr"])), tuple(told["shape"])
    assert isinstance(scalar, Scalar)
    strides = told.get("strides") or contiguous_strides(shape, scalar.dtype.itemsize)
    space = _space_of(address, data)
    stream = told.get("stream")
    if stream is not None:
        space.require_free("an array is shared with another library")
        space.stream_sync.meet(0, stream)
    described = Described(address or 0, shape, tuple(strides), scalar, _ordinal(space), data)
    return over(space, described, elem, (ANY,), writable=not read_only)


def _space_of(address: int, data: object) -> Space:
    if not address:
        return _opened(get_device("cuda"))
    places = [get_device(name) for name in OPEN] or get_cuda_devices()
    for place in (*places, *get_cuda_devices()):
        if _opened(place).driver.owns(address):
            return _opened(place)
    message = f"no CUDA device of this machine has the memory that this {type(data).__name__} tells of"
    raise KernelTypeError.of(message, "device", f"its address is {address:#x}")


def _opened(place: Device) -> Space:
    assert place.space is not None
    return place.space


def _ordinal(space: MemorySpace) -> int:
    return int(space.name.partition(":")[2])


def capsule(
    elements: Any, stream: Any = None, dl_device: Any = None, copy: bool | None = None, partner: Partner = ANY
) -> Any:
    """The elements of an array of a device as a DLPack capsule, for a consumer that works in `stream`.

    Its stream waits for what kernelab has to do; None is CUDA's default stream, -1 one that does not wait.
    """
    space = space_of(elements.allocation)
    assert space is not None
    if dl_device is not None and tuple(dl_device) != (2, _ordinal(space)):
        if tuple(dl_device) != (CPU, 0) or copy is False:
            raise BufferError(f"this array is on {space.name}, and is not copied to device {dl_device}")
        return elements.to("cpu").__dlpack__()
    if not elements.allocation.writable:
        raise BufferError("this array is read-only, and DLPack cannot say so: pass a copy, kl.clone(x)")
    if stream == 0:
        raise BufferError("DLPack knows no stream 0: pass 1 for CUDA's default stream, or None")
    if stream != -1:
        space.require_free("an array is shared with another library")
    shared = elements.__copy__() if copy else elements
    shape, strides = _scalars(shared)
    if not copy:
        _share(shared, partner)
    else:
        shared.allocation.flush()
    if stream != -1:
        space.stream_sync.meet(LEGACY if stream is None else int(stream), 0)
    scalar = scalar_of(shared.dtype)
    return capsule_of(Described(shared.ptr, shape, strides, scalar, _ordinal(space), shared.allocation))


def _scalars(elements: Strided) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides of the numbers, those of components last."""
    parts, size = shape_of(elements.dtype), scalar_of(elements.dtype).dtype.itemsize
    return elements.shape + parts, elements.strides + contiguous_strides(parts, size)


def _share(elements: Strided, partner: Partner) -> None:
    memory = elements.allocation
    assert isinstance(memory, DeviceAllocation)
    memory.share((partner,))


def from_capsule(source: Any, elem: Value | None) -> Part:
    """The memory of a device that DLPack describes: of an object that speaks it, or of a capsule.

    Raises KernelTypeError where numbers would have to be converted.
    """
    if type(source).__name__ == "PyCapsule":
        described = taken(source)
        space = _opened(get_device(f"cuda:{described.ordinal}"))
        space.driver.wait_for_all()  # a capsule does not say what it has to wait for
    else:
        space = _opened(get_device(f"cuda:{source.__dlpack_device__()[1]}"))
        described = taken(source.__dlpack__(stream=space.driver.own_stream))
    # PyTorch says which stream it uses at the moment; other libraries work in any.
    is_torch = type(source).__module__.partition(".")[0] == "torch"
    part = over(space, described, elem, (TorchStream(_ordinal(space)) if is_torch else ANY,))
    if elem is not None and scalar_of(elem) != scalar_of(part.dtype):
        message = f"numbers of {part.dtype} cannot be shared as {scalar_of(elem)}"
        hint = "convert them on either side: kl.array(kl.from_dlpack(x), dtype=...)"
        raise KernelTypeError.of(message, "dlpack", hint)
    return part


def warn_of_end(elements: Any, hint: str) -> None:
    """Warn where an array with gradients, which a tape has computed, goes to another library."""
    memory = elements.allocation
    seen = (witness for ref in memory.witnesses if (witness := ref()) is not None)
    if not elements.requires_grad or not any(witness.computed(memory) for witness in seen):
        return
    message = f"{called(elements)} was computed on a tape: no gradient comes back from another library"
    warn_at(message, "library", hint)


def over(
    space: Space,
    described: Described,
    elem: Value | None,
    partners: tuple[Partner, ...],
    *,
    writable: bool = True,
) -> Part:
    """Described elements; their last axes are components if `elem` has the same numbers."""
    shape, strides, size = described.shape, described.strides, described.scalar.dtype.itemsize
    low, high = bounds(described.address, shape, strides, size)
    memory = space.borrow(low, high, described.owner, partners, writable=writable)
    dtype: Value = described.scalar
    if elem is not None and scalar_of(elem) == described.scalar:
        dtype, parts = elem, shape_of(elem)
        at = len(shape) - len(parts)
        if at < 0 or shape[at:] != parts or strides[at:] != contiguous_strides(parts, size):
            message = f"the last axes of shape {shape} are not components of {elem}, side by side"
            raise KernelTypeError.of(message, "shape", f"they have to be {parts}")
        shape, strides = shape[:at], strides[:at]
    if not shape:
        shape, strides = (1,), (size,)
    if len(shape) > 4:
        raise KernelTypeError(too_many_axes(len(shape)))
    memory.folded |= folds(shape, strides, itemsize(dtype))
    return Part(memory, described.address - memory.address, shape, strides, dtype)


def at_address(
    space: Space | None,
    address: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    size: int,
    deleter: Callable[[int, int], None] | None,
) -> Allocation:
    """The allocation over an address of a device, or of the host; raises LaunchError where it is none of it.

    `deleter` is called with the address and the size when nobody looks at it any more.
    """
    low, high = bounds(address, shape, strides, size)
    owner = None if space else next((one for one in OPEN.values() if one.driver.owns(address)), None)
    if owner is not None:
        message = f"the address {address:#x} is in the memory of {owner.name}, and the array is on the CPU"
        raise LaunchError.of(message, "device", f'write device="{owner.name}"')
    if space is not None and low < high and not space.driver.owns(address):
        message = f"the address {address:#x} is not in the memory of {space.name}"
        hint = "pass the address of the first element there, such as x.data_ptr() or x.data.ptr"
        raise LaunchError.of(message, "device", hint)
    memory = point_at(low, high - low) if space is None else space.borrow(low, high, None, (ANY,))
    if deleter is not None:
        weakref.finalize(memory, deleter, low, high - low)
    return memory


# -------------------------------------------------------------------------------------------------- exchange


class Exchange(Gradients):
    """The methods of an array that other libraries call."""

    __slots__ = ()

    def numpy(self) -> HostArray:
        """The elements as a NumPy array over the same memory, components in the last axes.

        What is written through it changes the array; a tape that needs the old values notices.  What is on a
        CUDA device is copied, and the copy cannot be written: nothing would come of it.

        While a tape records, this is a subclass of NumPy's array for what gradients depend on.  It remembers
        where it comes from, and so does what NumPy makes of it: `backward` warns where that reached a launch.
        """
        origins = look_at(self)
        if self.allocation.space is not None:
            copied = self.seen().copy()
            copied.flags.writeable = False
            return traced(copied, origins) if origins else copied
        view = self._view(self.allocation.expose())
        if not self.allocation.writable:
            view.flags.writeable = False
        return traced(view, origins) if origins else view

    to_numpy = numpy

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> HostArray:
        values = self.numpy()
        if dtype is not None and dtype != values.dtype:
            return values.astype(dtype)
        return values.copy() if copy else values

    def __origins__(self) -> Origins:
        return look_at(self)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = (), **options: Any) -> Any:
        """Apply a ufunc of NumPy to the elements: ``np.sin(x)`` is NumPy's array.

        An operator with NumPy's array to the left makes an array; ``np.add(x, 1, out=x)`` assigns.
        """
        symbol = _SYMBOLS.get(ufunc)
        if method == "__call__" and not out and isinstance(inputs[0], np.ndarray | np.generic):
            if ufunc is np.matmul:
                return hooks.matmul(*inputs)
            if symbol:
                return hooks.operate(symbol, inputs)
        options = {name: _values(value) for name, value in options.items()}  # `where` may be an array, too
        origins = tuple(chain.from_iterable(look_at(one) for one in inputs if isinstance(one, Exchange)))
        values = [_values(one) for one in inputs]
        into = tuple(one.seen().copy() if isinstance(one, Exchange) else one for one in out)
        result = getattr(ufunc, method)(*values, **options, **({"out": into} if into else {}))
        for target, written in zip(out, into, strict=True):
            if written is not target:
                target.assign(traced(written, origins))
        if into:
            return out[0] if len(out) == 1 else out
        return traced(result, origins)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Apply one of NumPy's functions to the elements: ``np.dot(x, y)``; ``out=x`` assigns.

        Raises KernelTypeError where NumPy takes none but its own arrays.
        """
        if func in _OF_SHAPES and args:
            args = _without_values(args[0]), *args[1:]
        origins = tuple(chain.from_iterable(look_at(each) for each in _exchanged((args, kwargs))))
        out = kwargs.get("out")
        into: dict[str, Any] = {"out": out.seen().copy()} if isinstance(out, Exchange) else {}
        if func in _METHODS:  # NumPy would call `x.sum`; its sum of all has no axis
            args = *map(_values, args[:1]), *args[1:]
            kwargs = {name: _values(value) for name, value in kwargs.items()}
            into = dict.fromkeys(into)
        try:
            result = traced(func._implementation(*args, **kwargs | into), origins)
        except (TypeError, AttributeError) as problem:
            message = f"np.{func.__name__} does not take these arguments: {str(problem).splitlines()[0]}"
            hint = "where it wants an array of NumPy pass x.numpy(), which has the same memory on the CPU"
            raise KernelTypeError.of(message, "numpy", hint) from None
        return out.assign(np.atleast_1d(result)) if into else result

    def __jax_array__(self) -> Any:
        """A copy for JAX, whose arrays never change: ``jnp.asarray(x)``."""
        warn_of_end(self, "kernelab.interop.jax.function(f) hands gradients on")
        return import_module("jax.numpy").array(self.numpy())

    def __buffer__(self, _: int) -> memoryview:
        """The memory for Python, from 3.12 on: ``memoryview(x)``."""
        return self.numpy().data

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
            "data": _addressed(self.allocation, self.ptr),
            "offset": self.offset,
            "strides": values.strides,
        }

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The memory of a CUDA device described for other libraries, version 3; there is none on the CPU.

        They wait for the stream that it names; later launches and copies wait for the whole device.
        """
        space, scalar = space_of(self.allocation), scalar_of(self.dtype)
        if space is None or scalar == bfloat16:  # for which NumPy's words have no name
            raise AttributeError(INTERFACE)
        shape, strides = _scalars(self)
        _share(self, ANY)
        return {
            "shape": shape,
            "strides": strides,
            "typestr": scalar.dtype.str,
            "data": (self.ptr if self.size else 0, not self.allocation.writable),
            "version": 3,
            "stream": space.driver.own_stream,
        }

    @property
    def typecode(self) -> str:
        """The name of the dtype: Python's `reprlib` asks every class named `array` for it."""
        return str(self.dtype)

    def __dlpack__(self, **options: Any) -> Any:
        """The memory for another library, shared; components stand in the last axes.

        Of a CUDA device, the stream of the other library, which it names, waits for what kernelab does there.
        Raises BufferError where the memory is read-only and the other library cannot say that it minds.
        """
        elem: Any = self.dtype
        if isinstance(elem, Struct):
            message = f"DLPack knows no elements of {elem}"
            raise KernelTypeError.of(message, "dlpack", f"share a field: x['{elem.fields[0].name}']")
        warn_of_end(self, "pass kl.clone(x, requires_grad=False) where values are meant to go alone")
        if self.allocation.space is not None:
            options.pop("max_version", None)
            return capsule(self, **options)
        if scalar_of(self.dtype) == bfloat16:
            return described_as_brain(self.view(uint16).numpy().__dlpack__(**options), brain=True)
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The device in DLPack's words."""
        space = self.allocation.space
        return (CPU, 0) if space is None else (CUDA, _ordinal(space))

    @explains_bad_calls(
        positional="write x.reshape(...) for another shape: view reads the bytes as another type"
    )
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
            raise KernelTypeError.of(message, "grad", "detach it first: kl.clone(x, requires_grad=False)")
        view = self.over(self.allocation, self.offset, shape, strides, elem)
        if has_floats(self.dtype):
            note_as_integers(view)
        return view

    @property
    def capacity(self) -> int:
        """The bytes from the first element to the end of the last."""
        low, high = bounds(0, self.shape, self.strides, itemsize(self.dtype))
        return high - low

    @property
    def pinned(self) -> bool:
        """Whether the memory is the host's, and locked in place."""
        return self.allocation.is_pinned

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


def _values(value: Any) -> Any:
    return value.__array__() if isinstance(value, Exchange) else value


def _without_values(value: Any) -> Any:
    """An array of NumPy in the shape and type of one of kernelab's, where NumPy has that type."""
    if not isinstance(value, Exchange):
        return value
    elem: Any = value.dtype
    if isinstance(elem, Struct) or scalar_of(elem) == bfloat16:
        return value
    return np.broadcast_to(np.zeros((), scalar_of(elem).dtype), _scalars(value)[0])


def _exchanged(values: Any) -> Iterator[Exchange]:
    """The arrays among arguments."""
    if isinstance(values, Exchange):
        yield values
    elif isinstance(values, list | tuple | dict):
        for value in values.values() if isinstance(values, dict) else values:
            yield from _exchanged(value)


Layout = tuple[tuple[int, ...], tuple[int, ...]]


def _viewed(shape: tuple[int, ...], strides: tuple[int, ...], old: Value, new: Value) -> Layout:
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
        message = f"the last axes of an array of shape {shape} are not components of {new}"
        hint = f"they have to be {components}, side by side, after at least one other axis"
        raise KernelTypeError.of(message, "dtype", hint)
    message = f"{old} has {itemsize(old)} bytes, {new} has {itemsize(new)}"
    raise KernelTypeError.of(f"a view keeps the size of elements: {message}", "dtype")
