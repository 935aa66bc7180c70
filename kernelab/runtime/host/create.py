"""Creates arrays: from data, of zeros, of ones, of one value, like another; copies one into another."""

from collections.abc import Sequence
from functools import lru_cache
from types import NoneType
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np

import kernelab.runtime.host.structarray  # noqa: F401 (makes itself the class of arrays of structs)
from kernelab.errors import KernelError, KernelTypeError, KernelValueError, a_thing, near
from kernelab.guidance.bad_calls import explains_bad_calls, show_signature
from kernelab.host.traced import follow
from kernelab.lang.structs import Struct
from kernelab.lang.types import Array, Mat, Scalar, Value, Vec, bfloat16, is_differentiable, scalar_of
from kernelab.runtime.array.array import DETACHED, duplicate, require_array, struct_named
from kernelab.runtime.array.array import array as array
from kernelab.runtime.array.array_attributes import Ranked
from kernelab.runtime.array.exchange import from_capsule
from kernelab.runtime.array.layout import is_picked
from kernelab.runtime.array.transfers import allocate_on, laid_out, put, transfer
from kernelab.runtime.context.conversion import (
    array_type,
    described,
    element,
    element_type,
    is_whole,
    shape_tuple,
    value_type,
)
from kernelab.runtime.context.recorder import made_from_host
from kernelab.runtime.memory.device import CPU, Device, get_device
from kernelab.runtime.memory.dlpack import CPU as DLPACK_CPU
from kernelab.runtime.memory.dlpack import CUDA, MANAGED, Bits, Capsule, is_brain, is_of_the_cpu
from kernelab.runtime.memory.torch_versions import count_writes
from kernelab.runtime.memory.unwritten import begin

Shape = int | Sequence[int]


class Options(TypedDict, total=False):
    """The options of a new array besides its data, shape and dtype.

    `strides` in bytes, where they are not contiguous; `n` for a shape of one dimension.  `pinned` locks
    memory of the host in place, where there is a CUDA device.
    `retain_grad` says nothing: gradients are kept.
    """

    pinned: bool
    retain_grad: bool
    strides: Sequence[int] | None
    n: int


def _require_known(options: Options) -> None:
    for name in options:
        if name not in Options.__annotations__:
            hint = near(name, _NAMED, f"there is {', '.join(_NAMED[:-1])} and {_NAMED[-1]}")
            raise KernelTypeError.of(f"arrays are not made with an option {name}", "option", hint)


_NAMED = ("shape", "dtype", "device", "requires_grad", "strides")


def zeros(
    shape: Shape | None = None,
    dtype: Any = float,
    device: Device | str | None = None,
    requires_grad: bool = False,
    **options: Unpack[Options],
) -> array:
    """An array of zeros, in every component.

    `shape` is an int or a tuple of 1 to 4 of them, `dtype` a type of numbers, vectors, matrices or structs.
    With `requires_grad` it has a `.grad` of the same shape and dtype, zero at first.  Raises KernelTypeError
    where the shape is missing, LaunchError for a device that is not there.

    >>> kl.zeros((2, 3), dtype=float).tolist()
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    return _new(shape, dtype, device, requires_grad, options, cleared=True)


def empty(
    shape: Shape | None = None,
    dtype: Any = float,
    device: Device | str | None = None,
    requires_grad: bool = False,
    **options: Unpack[Options],
) -> array:
    """An array whose elements hold whatever the memory held; the rest as for `zeros`.

    A checked launch that reads an element which nobody has written is an error (`kernelab.config`).

    >>> kl.empty((2, 3), dtype=kl.vec3).shape
    (2, 3)
    """
    result = _new(shape, dtype, device, requires_grad, options, cleared=False)
    begin(result.allocation)
    return result


def ones(
    shape: Shape | None = None,
    dtype: Any = float,
    device: Device | str | None = None,
    requires_grad: bool = False,
    **options: Unpack[Options],
) -> array:
    """An array of ones, in every component; the rest as for `zeros`.

    >>> kl.ones(2, dtype=kl.vec3).shape
    (2,)
    """
    return full(shape, 1, dtype, device, requires_grad, **options)


def full(
    shape: Shape | None = None,
    value: Any = 0,
    dtype: Any = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    **options: Unpack[Options],
) -> array:
    """An array that holds `value` everywhere; its dtype is `value`'s unless given: of a list, a vector's.

    The rest as for `zeros`.  Raises KernelValueError for a number that the dtype cannot hold.

    >>> kl.full(3, 7, dtype=int).list()
    [7, 7, 7]
    """
    elem: Any = struct_named(value)
    if dtype is not None:
        elem = value_type(dtype)
    elif elem is None:
        elem = element_type(value)
    filling = None if isinstance(elem, Struct) else element(value, elem)
    result = _new(shape, elem, device, requires_grad, options, cleared=False)
    if filling is None:
        result.blank()[...] = result._fitting(value)
    else:
        put(result, filling)
    made_from_host(result, value)
    return result


def zeros_like(
    src: array,
    device: Device | str | None = None,
    requires_grad: bool | None = None,
    **options: Unpack[Options],
) -> array:
    """Zeros in the shape and dtype of `src`; `requires_grad` too unless given.

    They are on its device unless another one is given.  Raises KernelTypeError for what is not an array.

    >>> kl.zeros_like(kl.ones((2, 2))).shape
    (2, 2)
    """
    return zeros(*_like(src, device, requires_grad, "zeros_like", options), **options)


def ones_like(
    src: array,
    device: Device | str | None = None,
    requires_grad: bool | None = None,
    **options: Unpack[Options],
) -> array:
    """Ones in the shape and dtype of `src`; the rest as for `zeros_like`.

    >>> kl.ones_like(kl.zeros(2)).list()
    [1.0, 1.0]
    """
    return ones(*_like(src, device, requires_grad, "ones_like", options), **options)


def empty_like(
    src: array,
    device: Device | str | None = None,
    requires_grad: bool | None = None,
    **options: Unpack[Options],
) -> array:
    """Elements like those of `src` that hold whatever the memory held; the rest as for `zeros_like`.

    >>> kl.empty_like(kl.zeros(4, dtype=int)).dtype
    int32
    """
    return empty(*_like(src, device, requires_grad, "empty_like", options), **options)


def full_like(
    src: array,
    value: Any,
    device: Device | str | None = None,
    requires_grad: bool | None = None,
    **options: Unpack[Options],
) -> array:
    """One value everywhere in the shape and dtype of `src`; the rest as for `zeros_like`.

    Raises KernelTypeError or KernelValueError for a value that is not an element of that dtype.

    >>> kl.full_like(kl.zeros(2), 7.0).list()
    [7.0, 7.0]
    """
    shape, *like = _like(src, device, requires_grad, "full_like", options)
    return full(shape, value, *like, **options)


def from_numpy(
    arr: np.ndarray[Any, Any],
    dtype: Any = None,
    shape: Shape | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    retain_grad: bool = False,
) -> array:
    """An array over the memory of a NumPy array where the dtype fits, else over a converted copy.

    The dtype is NumPy's unless given; with a vector or matrix the last axes are its components.
    `retain_grad` changes nothing.  Raises KernelTypeError where data and dtype do not go together,
    KernelValueError for numbers that do not fit.

    >>> kl.from_numpy(np.arange(3)).list()
    [0, 1, 2]
    """
    values = arr if isinstance(arr, np.ndarray) else np.asarray(arr)
    return array(values, dtype, shape, device, requires_grad, copy=False)


def from_dlpack(source: Any, dtype: Any = None, requires_grad: bool = False) -> array:
    """An array over the memory of another library's array, by DLPack: of a tensor of PyTorch, of JAX, ...

    A DLPack capsule will do too, once.  With a vector or matrix for a `dtype` the last axes are its
    components, and on the CPU integers may be read as others of the same size.  Of a CUDA device the other
    library first makes kernelab's stream wait for what it has to do.  Raises KernelTypeError for what does
    not speak DLPack, is in the memory of something else, or cannot be shared as that type.

    >>> host = np.arange(3, dtype=np.float32)
    >>> x = kl.from_dlpack(host)
    >>> x[0] = 5.0
    >>> float(host[0])
    5.0
    """
    if type(source).__name__ == "PyCapsule" and is_of_the_cpu(source):
        source = Capsule(source)
    if type(source).__name__ == "PyCapsule":
        return _of_device(source, dtype, requires_grad)
    if not hasattr(source, "__dlpack__") or not hasattr(source, "__dlpack_device__"):
        message = f"from_dlpack takes an array of another library, not {a_thing(source)}"
        raise KernelTypeError.of(message, "dlpack", "make an array of it: kl.array(...)")
    kind = source.__dlpack_device__()[0]
    if kind in (CUDA, MANAGED):
        return _of_device(source, dtype, requires_grad)
    if kind != DLPACK_CPU:
        message = f"this {type(source).__name__} is in the memory of neither the CPU nor a CUDA device"
        raise KernelTypeError.of(message, "dlpack", "copy it there first")
    values = follow(_shared(source), source)
    wanted = values.dtype if dtype is None else scalar_of(value_type(dtype)).dtype
    if wanted != values.dtype:
        if wanted.kind not in "biu" or values.dtype.kind not in "biu" or wanted.itemsize != values.itemsize:
            message = f"numbers of {values.dtype} cannot be shared as {wanted}"
            hint = "convert them on either side: kl.array(kl.from_dlpack(x), dtype=...)"
            raise KernelTypeError.of(message, "dlpack", hint)
        values = values.view(wanted)
    result = from_numpy(values, dtype, device=CPU, requires_grad=requires_grad)
    count_writes(result, source)
    return result


def from_other(source: Any, dtype: Any = None) -> array:
    """An array over the memory of another library's, by DLPack or else by its `__cuda_array_interface__`.

    Raises KernelTypeError where that library does not hand the memory over.
    """
    if hasattr(source, "__dlpack__"):
        try:
            return from_dlpack(source, dtype)
        except (BufferError, RuntimeError, ValueError) as problem:
            if isinstance(problem, KernelError):
                raise
            message = f"{a_thing(source)} cannot be shared: {problem}"
            hint = "pass a dense one, in the memory of the CPU or of a CUDA device"
            raise KernelTypeError.of(message, "dlpack", hint) from None
    return array(source, dtype, copy=False)


def _shared(source: Any) -> Any:
    """The memory of another library's array as a NumPy array; brain floats come as their bits."""
    if isinstance(source, array):  # the same memory, which tapes know: no chain ends here
        return source.numpy()
    if is_brain(source):
        return np.from_dlpack(Bits(source)).view(bfloat16.dtype)
    try:
        return np.from_dlpack(source)
    except ValueError:
        message = f"the __dlpack__ of {a_thing(source)} returns no DLPack capsule that is still unused"
        hint = "hand over an array of NumPy, PyTorch, JAX, ..."
        raise KernelTypeError.of(message, "dlpack", hint) from None


def _of_device(source: Any, dtype: Any, requires_grad: bool) -> array:
    result = array.over(*from_capsule(source, None if dtype is None else value_type(dtype)))
    if requires_grad:
        result.requires_grad = True
    made_from_host(result, source)
    return result


def clone(
    src: array,
    device: Device | str | None = None,
    requires_grad: bool | None = None,
    **options: Unpack[Options],
) -> array:
    """A contiguous copy; a tape differentiates through it unless ``requires_grad=False`` detaches it.

    It has the shape and dtype of `src`, and is on its device unless another one is given.  Raises
    KernelTypeError for what is not an array, LaunchError for a device that is not there.

    >>> x = kl.ones(2)
    >>> y = kl.clone(x)
    >>> y += 2.0
    >>> x.list(), y.list()
    ([1.0, 1.0], [3.0, 3.0])
    """
    _require_known(options)
    place = None if device is None else get_device(device)
    if is_picked(src):
        src = src.contiguous()
    require_array(src, "clone takes")
    wanted = src.requires_grad if requires_grad is None else requires_grad
    how = DETACHED if requires_grad is False else "clone"
    return duplicate(src, wanted, how, place, options.get("pinned", False))


@explains_bad_calls(src="write kl.copy(dest, src), or x.copy() for a new array")
def copy(
    dest: array, src: array, dest_offset: int = 0, src_offset: int = 0, count: int = 0, stream: object = None
) -> None:
    """Copy the elements of `src` into `dest`; a tape differentiates through it.

    With `count`, or an offset, that many elements (by default as many as `src` has left) of the flattened
    arrays.  Raises KernelValueError where shapes or ranges do not fit.

    >>> x = kl.zeros(3)
    >>> kl.copy(x, kl.ones(3))
    >>> x.list()
    [1.0, 1.0, 1.0]
    """
    if not (count or dest_offset or src_offset) and dest.__class__ is array and src.__class__ is array:
        transfer(dest, src, "copy")
        return
    if is_picked(src):
        src = src.contiguous()
    if is_picked(dest):
        if dest_offset or src_offset or count:
            message = "picked elements are copied all together, without offsets or a count"
            raise KernelValueError.of(message, "range", "copy x.contiguous()")
        dest.assign(src)
        return
    require_array(dest, "the destination of a copy is")
    require_array(src, "the source of a copy is", "write dest.assign(...) for other data")
    for name, number in (("dest_offset", dest_offset), ("src_offset", src_offset), ("count", count)):
        if not is_whole(number) or number < 0:
            message = f"`{name}` is a whole number of elements, 0 or more, not {described(number)}"
            raise KernelValueError.of(message, "range")
    if count or dest_offset or src_offset:
        count = count or src.size - src_offset
        src = _stretch(src, src_offset, count, "src")
        dest = _stretch(dest, dest_offset, count, "dest")
    transfer(dest, src, "copy")


def _like(
    src: array, device: Device | str | None, requires_grad: bool | None, name: str, options: Options
) -> tuple[Any, ...]:
    """The shape, dtype, device and `requires_grad` of an array like another, of which some may be given."""
    if not is_picked(src):
        require_array(src, f"{name} takes")
    if {"shape", "dtype"} & options.keys():
        hint = f"write kl.{name.removesuffix('_like')}(shape=x.shape, dtype=...)"
        raise KernelTypeError.of(f"{name} takes shape and dtype of its array", "option", hint)
    wanted = src.requires_grad if requires_grad is None else requires_grad
    return src.shape, src.dtype, src.device if device is None else device, wanted


if TYPE_CHECKING:  # which takes ``array2d[float]`` for a type only if it is a class
    array1d = array
    array2d = array
    array3d = array
    array4d = array
else:
    array1d, array2d, array3d, array4d = (
        Ranked(array, "array", "(data, dtype)`` makes an `array` of", ndim) for ndim in (1, 2, 3, 4)
    )


def _new(
    shape: Shape | None,
    dtype: Any,
    device: Device | str | None,
    requires_grad: bool,
    options: Options,
    *,
    cleared: bool,
) -> array:
    place = get_device(device)
    if shape is not None and not options and (dtype is float or dtype.__class__ in _PLAIN):
        extents = shape_tuple(shape)
        elem, steps, nbytes, is_active, type = _layout(extents, dtype)
        memory = allocate_on(place, nbytes, cleared=cleared)
        memory.requires_grad = bool(requires_grad) and is_active
        result: array = array.whole(memory, extents, steps, elem, type)
        if requires_grad and not is_active:
            result.requires_grad = True  # warns
        return result
    _require_known(options)
    shape = options.get("n") if shape is None else shape
    if shape is None:
        hint = "write kl.zeros(10), or kl.zeros((2, 3))"
        raise KernelTypeError.of("a new array needs a shape", "shape", hint)
    elem = value_type(float if dtype is None else dtype)
    extents, strides = shape_tuple(shape), options.get("strides")
    steps, nbytes = laid_out(extents, elem, strides)
    memory = allocate_on(place, nbytes, cleared=cleared, pinned=options.get("pinned", False))
    result = array.over(memory, 0, extents, steps, elem)
    if strides is not None:
        result.allocation.folded = result.folds
    if requires_grad:
        result.requires_grad = True
    return result


def unfilled(shape: tuple[int, ...], elem: Any, place: Device, requires_grad: bool) -> array:
    """An array for a launch that writes each of its elements, of whatever the memory held."""
    return _new(shape, elem, place, requires_grad, {}, cleared=False)


_PLAIN = frozenset({Scalar, Vec, Mat, NoneType})
"""The classes of element types for which layouts are remembered, beside `float`."""


@lru_cache(256)
def _layout(extents: tuple[int, ...], dtype: Any) -> tuple[Value, tuple[int, ...], int, bool, Array]:
    """Elements, strides and bytes of an array without gaps, whether it can have a gradient, its type."""
    elem = value_type(float if dtype is None else dtype)
    steps, nbytes = laid_out(extents, elem, None)
    return elem, steps, nbytes, is_differentiable(elem), array_type(elem, len(extents))


def _stretch(whole: array, offset: int, count: int, name: str) -> array:
    if offset < 0 or offset + count > whole.size:
        message = f"`{name}` has {whole.size} elements: it has no {count} from {offset} on"
        raise KernelValueError.of(message, "range")
    if whole.ndim > 1 and not whole.is_contiguous:
        message = f"offsets and a count go over elements without gaps, and `{name}` is a view with gaps"
        raise KernelValueError.of(message, "range", "copy slices: kl.copy(dest[0:2], src[0:2])")
    row = whole if whole.ndim == 1 else whole.flatten()
    stretch: array = row[offset : offset + count]
    return stretch


show_signature(array, array.__init__)
for _maker in (zeros, empty, ones, full, zeros_like, ones_like, empty_like, full_like, clone):
    show_signature(_maker, _maker, ("options",), strides=None, pinned=False)
