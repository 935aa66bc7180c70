"""Converts data of the host to kernel types: dtypes by all their names, nested lists as NumPy arrays.

Knows NumPy and the kernel types; must not know arrays.  Fractions are dropped where ints are asked for, as
NumPy does; a number that would become another one, or infinite, is refused.
"""

import functools
import numbers
import operator
import re
import sys
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelab.errors import Diagnostic, KernelTypeError, KernelValueError, a_thing, near, type_name
from kernelab.host.traced import Traced, untraced
from kernelab.host.values import refuse_mask, type_of
from kernelab.lang.rounding import fits, largest, require, rounded, widened
from kernelab.lang.structs import Struct, StructArray, layout, unfit_for_arrays
from kernelab.lang.types import (
    BY_DTYPE,
    LARGEST,
    SCALARS,
    Array,
    Mat,
    Scalar,
    Value,
    Vec,
    bfloat16,
    bool_,
    bytes_of,
    float32,
    float64,
    int32,
    int64,
    named_types,
    scalar_of,
    shape_of,
    size_of,
    type_named,
)
from kernelab.runtime.context.recorder import caller

_NONE = object()

HostArray = np.ndarray[Any, Any]

PART_BYTES = 16 << 20
"""The bytes that are copied at once: some milliseconds, tens of them where the pages are new."""


def as_numpy(data: Any, purpose: str = "make an array from") -> HostArray:
    """Host data as a NumPy array of numbers; raises KernelTypeError or KernelValueError for anything else."""
    refuse_mask(data)
    try:
        plain = untraced(data) if isinstance(_first(data), Traced) else data
        values = plain if isinstance(plain, np.ndarray) else _kept_ints(np.asarray(plain), plain)
        if values.dtype == object and values.size and _culprit(values) is None:
            values = np.asarray(values.tolist())
    except (TypeError, ValueError, RuntimeError) as problem:  # the last of PyTorch, where gradients go on
        message, hint = f"cannot {purpose} {described(data)}: {problem}", ""
        if "inhomogeneous" in str(problem):
            message = f"cannot {purpose} {described(data)}: its rows have different lengths"
            hint = "give every row the same number of elements"
        raise KernelTypeError.of(message, "data", hint) from None
    if values.dtype.kind in "biufV":
        return values
    raise _no_numbers(values, data, purpose)


def _first(data: Any) -> Any:
    while isinstance(data, list | tuple) and data:
        data = data[0]
    return data


def _kept_ints(values: HostArray, data: Any) -> HostArray:
    """The values of a list, as ints where NumPy makes floats of them: of numbers of int64 beside uint64."""
    if values.dtype != float64.dtype or not (np.abs(values) >= 2.0**53).any():
        return values
    ints = np.asarray(data, dtype=object)
    if not all(isinstance(number, int | np.integer) for number in ints.flat):
        return values
    types = (np.dtype(name) for name in ("int64", "uint64") if fits(ints, np.dtype(name)).all())
    return ints.astype(next(types, values.dtype))


def converted(values: HostArray, scalar: Scalar) -> HostArray:
    """The values as numbers of that type; raises KernelValueError for one that does not fit."""
    wanted = scalar.dtype
    if values.dtype == wanted:
        return values
    if scalar is bfloat16 and values.dtype == np.uint16:
        message = "numbers of uint16 may be counts, or the bits of bfloat16 numbers"
        hint = "write x.astype(np.float32) for counts, and kl.array(x).view(kl.bfloat16) for bits"
        raise KernelTypeError.of(message, "dtype", hint)
    values = widened(values)
    if values.dtype.kind == "V":
        raise KernelTypeError.of(f"structs cannot become numbers of {scalar}", "dtype")
    if values.dtype.kind == "f" and scalar.is_float and not scalar.flavor:
        try:
            with np.errstate(over="raise", invalid="ignore"):
                return values.astype(wanted)
        except FloatingPointError:
            pass  # it may be infinite already: the rest looks at each number
    with np.errstate(over="ignore", invalid="ignore"):
        result = rounded(values, wanted)
    if values.size and scalar.kind != "bool" and not np.can_cast(values.dtype, wanted):
        outside = _outside(values, result, scalar)
        if outside.any():
            raise _does_not_fit(values[outside].flat[0], scalar)
    return result


def copy_elements(target: HostArray, values: HostArray) -> None:
    """Copy elements as NumPy does, a part after the other: an interrupt arrives between two of them."""
    if target.nbytes <= PART_BYTES or target.shape != values.shape:
        target[...] = values
        return
    rows = max(1, len(target) * PART_BYTES // target.nbytes)
    for start in range(0, len(target), rows):
        if rows == 1:
            copy_elements(target[start], values[start])
        else:
            target[start : start + rows] = values[start : start + rows]


def summed(name: str, elem: Any) -> str:
    """How a program writes the sum of all numbers of an array, components of vectors and matrices too."""
    view = "" if isinstance(elem, Scalar | Struct) else f".view(kl.{scalar_of(elem)})"
    return f"{name}{view}.sum()"


def described(data: Any, by_shape: bool = False) -> str:
    """Describe host data in a message: the dtype of an array, or its shape where that matters."""
    if data is _NONE:
        return "None"
    if isinstance(data, np.ndarray):
        return f"a NumPy array of {f'shape {data.shape}' if by_shape else data.dtype}"
    if isinstance(data, str):
        return f"the text {data[:20]!r}"
    if isinstance(data, int) and abs(data) >= 10**30:
        return "a large int"  # it may have thousands of digits, which Python refuses to write
    if isinstance(data, bool | int | float | np.number):
        return f"the {type_name(data)} {data!s}"
    return a_thing(data)


def _outside(values: HostArray, result: HostArray, scalar: Scalar) -> HostArray:
    """Mask of numbers that changed in the conversion: outside the range of the int type, or infinite."""
    if scalar.is_float:
        return np.isinf(result) & np.isfinite(values)
    return ~fits(values, scalar.dtype)


def _does_not_fit(number: Any, scalar: Scalar) -> KernelValueError:
    value = number.item() if isinstance(number, np.generic) else number
    shown = str(value) if abs(value) < 1e30 or isinstance(value, float) else "a number of so many digits"
    if scalar.is_float:
        hint = f"{scalar} holds numbers up to {largest(scalar.dtype):.3g}"
    else:
        limits = np.iinfo(scalar.dtype)
        hint = f"{scalar} holds {limits.min} to {limits.max}"
    return KernelValueError.of(f"{shown} does not fit {scalar}", "range", hint)


def _no_numbers(values: HostArray, data: Any, purpose: str) -> Exception:
    culprit = _culprit(data)
    if culprit is None:
        hint = "the largest ints are those of uint64, the largest floats those of float64"
        return KernelValueError.of("an int of so many digits fits no type of numbers", "range", hint)
    message = f"cannot {purpose} {described(data)}"
    hint = "elements are numbers, vectors and matrices of numbers, or structs"
    if values.dtype.kind == "c":
        message, hint = f"{message}: complex numbers have no type here", "pass x.real and x.imag apart"
    elif hasattr(data, "__iter__") and not hasattr(data, "__len__"):
        hint = "write list(...) around it"
    elif isinstance(data, set | frozenset | dict):
        hint = "write sorted(...) around it, or list(x.values())"
    elif culprit is not data and not (culprit is _NONE and data is None):
        message += f" that holds {described(culprit)}"
    return KernelTypeError.of(message, "data", hint)


def _culprit(data: Any) -> Any:
    """The first part of nested data that is not a number, None if there is none."""
    if isinstance(data, numbers.Real | np.bool_):
        return None
    if not isinstance(data, list | tuple) and not (isinstance(data, np.ndarray) and data.ndim):
        return _NONE if data is None else data
    return next((culprit for part in data if (culprit := _culprit(part)) is not None), None)


# ------------------------------------------------------------------------------------------ types of elements


_BY_PYTHON: dict[object, Scalar] = {bool: bool_, int: int32, float: float32}
_BY_NAME = {"float": float32, "int": int32}


@functools.cache
def array_type(elem: Any, ndim: int) -> Any:
    """The type of arrays of `elem`; one object for each, so that a launch may compare by identity."""
    if not isinstance(elem, Struct):
        return Array(_with_size(elem), ndim)
    unfit = unfit_for_arrays(elem)
    if unfit is not None:
        raise KernelTypeError.of(unfit[0], "dtype", unfit[1])
    return StructArray(elem, ndim)


@functools.cache
def itemsize(elem: Any) -> int:
    """The size of an element in memory, in bytes."""
    if not isinstance(elem, Struct):
        return bytes_of(_with_size(elem))
    array_type(elem, 1)  # refuses a struct that holds arrays
    return layout(elem).itemsize


def _with_size(elem: Value) -> Value:
    require(scalar_of(elem).dtype)
    if size_of(elem) == 0:
        message = f"an array cannot hold {elem}: it has no components"
        raise KernelTypeError.of(message, "dtype", "make an array of numbers")
    return elem


def value_type(dtype: Any) -> Value:
    """The kernel type that `dtype` names: a kernel type, ``float``, a NumPy dtype or scalar, or a name.

    Raises KernelTypeError where there is none.
    """
    if isinstance(dtype, Scalar | Vec | Mat):
        return dtype
    struct = getattr(dtype, "__kernelab_struct__", None)
    if struct is not None:
        return struct  # type: ignore[no-any-return]
    elem = _BY_PYTHON.get(dtype) if isinstance(dtype, type) else None
    if elem is None and isinstance(dtype, str):
        return _BY_NAME.get(dtype) or type_named(dtype) or type_of_numpy(dtype)
    return elem or type_of_numpy(dtype)


def type_of_numpy(dtype: Any) -> Scalar:
    """The type of numbers that NumPy calls by this dtype; raises KernelTypeError where there is none."""
    try:
        kind = None if dtype is None else BY_DTYPE.get(np.dtype(dtype).newbyteorder("="))
    except (TypeError, ValueError):
        kind = None
    if kind is None:
        named = described(dtype) if hasattr(dtype, "dtype") else repr(dtype)
        raise KernelTypeError.of(f"{named} is not a type of array elements", "dtype", _type_instead(dtype))
    return kind


def _type_instead(dtype: Any) -> str:
    if isinstance(dtype, bool):
        return f"write requires_grad={dtype}: by position this is the type"
    if isinstance(dtype, int):
        return "a shape of several dimensions is one argument, zeros((2, 3)); x.reshape(...) gives another"
    if isinstance(dtype, float):
        return "several numbers are one argument: array([1.0, 2.0])"
    if isinstance(dtype, np.dtype) and dtype.names:
        return "name the struct that has these fields: kl.array(data, dtype=Particle)"
    if hasattr(dtype, "dtype"):
        return "write dtype=x.dtype for the type of its elements"
    names = ", ".join(scalar.name for scalar in SCALARS)
    use = f"use {names}, a vector such as vec3 or a matrix such as mat33"
    return near(dtype, named_types(), use) if isinstance(dtype, str) else use


def scalar_of_dtype(dtype: np.dtype[Any]) -> Scalar | None:
    """The kernel scalar stored exactly as NumPy stores `dtype`, if there is one."""
    return BY_DTYPE.get(dtype) if dtype.isnative else None


# ----------------------------------------------------------------------------------------- values of elements


def host_values(data: Any, dtype: Value | None) -> tuple[HostArray, Value]:
    """`data` as a NumPy array with the components of an element in its last axes, and the element type.

    Without a `dtype`, NumPy data keep theirs, and Python numbers get 32 bits unless they need more.
    """
    values = as_numpy(data)
    elem = dtype if dtype is not None else natural_type(values, data)
    return _with_components(converted(values, scalar_of(elem)), elem), elem


def fitting(value: Any, elem: Value) -> HostArray:
    """`value` as numbers of an element type, of whatever shape; raises where they are none, or do not fit."""
    scalar = scalar_of(elem)
    # Most values are plain numbers of a size that every type of 32 bits holds.
    plain = type(value) is int or (type(value) is float and scalar.is_float)
    if plain and scalar.kind in ("float", "int") and scalar.bits >= 32 and abs(value) < 2**31:
        return np.asarray(value, scalar.dtype)
    return converted(as_numpy(value, "set elements to"), scalar)


def is_plain(value: Any, elem: Any) -> bool:
    """Whether this is a number of Python's that every number of this kind from 32 bits on can be."""
    scalar = elem if elem.__class__ is Scalar else getattr(elem, "scalar", None)
    if scalar is float32 or scalar is float64:
        return (value.__class__ is float or value.__class__ is int) and -(2**31) < value < 2**31
    return (scalar is int32 or scalar is int64) and value.__class__ is int and -(2**31) < value < 2**31


def element(value: Any, elem: Value) -> HostArray:
    """One number, or the components of one element; raises KernelValueError for several."""
    values, components = fitting(value, elem), shape_of(elem)
    if values.shape == () or values.shape == components:
        return values
    if components and values.size == size_of(elem):
        return values.reshape(components)
    message = f"an element of {elem} cannot be {described(value)} of shape {values.shape}"
    hint = f"give a number, or {size_of(elem)} components" if components else "give one number"
    raise KernelValueError.of(message, "shape", hint)


def element_type(value: Any) -> Value:
    """The type of which this is one element: a number, or a vector or matrix of those components."""
    elem = type_of(value)
    if elem is not None:
        return elem
    values = as_numpy(value)
    scalar = scalar_of(natural_type(values, value))
    match values.shape:
        case ():
            return scalar
        case (n,) if 1 <= n <= LARGEST:
            return Vec(scalar, n)
        case (n, m) if 1 <= n * m <= LARGEST:
            return Mat(scalar, n, m)
        case shape:
            message = f"{described(value)} of shape {shape} is not an element of an array"
            hint = "an element is a number, a vector or a matrix; make the array with kl.array(...)"
            raise KernelTypeError.of(message, "shape", hint)


def natural_type(values: HostArray, data: Any) -> Value:
    """The type of host numbers: their own dtype's, and for Python's numbers 32 bits unless they need more."""
    is_typed = hasattr(data, "dtype") or hasattr(data, "__array__") or isinstance(data, memoryview)
    if is_typed or _holds_elements_of(data, values.dtype):
        return type_of_numpy(values.dtype)
    if values.size == 0 or values.dtype == float64.dtype:
        return float32
    if values.dtype == int64.dtype:
        fits = np.iinfo(np.int32)
        return int32 if fits.min <= values.min() and values.max() <= fits.max else int64
    return type_of_numpy(values.dtype)


def _holds_elements_of(data: Any, dtype: np.dtype[Any]) -> bool:
    """Whether a list holds arrays, vectors or matrices of the language with numbers of this dtype."""
    if isinstance(data, list | tuple):
        is_of_numbers = not data or isinstance(data[0], int | float)
        return not is_of_numbers and any(_holds_elements_of(one, dtype) for one in data)
    elem = type_of(data) or getattr(data, "dtype", None)
    return isinstance(elem, Scalar | Vec | Mat) and scalar_of(elem).dtype == dtype


def _with_components(values: HostArray, elem: Value) -> HostArray:
    components = shape_of(elem)
    if not components or (values.ndim >= len(components) and values.shape[-len(components) :] == components):
        return values
    if values.size == 0:
        return values.reshape((0, *components))
    count = size_of(elem)
    while values.ndim > 1 and values.shape[-1] == 1 and values.shape[-2] % count == 0:
        values = values[..., 0]  # a column: what ctypes and matrices of one column give
    if values.ndim and values.shape[-1] == count:
        return values.reshape(values.shape[:-1] + components)
    if values.ndim and values.shape[-1] and values.shape[-1] % count == 0:
        return values.reshape((*values.shape[:-1], -1, *components))
    wanted = " x ".join(str(n) for n in components)
    message = f"cannot make an array of {elem} from data of shape {values.shape}"
    hint = f"the last axes must be {wanted}, or the last one a multiple of {count}"
    raise KernelTypeError.of(message, "shape", hint)


def is_whole(value: Any) -> bool:
    """Whether a value counts something: an int of Python's or NumPy's, and no truth value."""
    return hasattr(value, "__index__") and not isinstance(value, bool)


# ----------------------------------------------------------------------------------------------------- shapes


LONGEST = 2**31 - 1
"""The longest axis of an array that a program makes; arrays of derivatives may be longer."""


def shape_tuple(shape: int | Sequence[int]) -> tuple[int, ...]:
    """An array's shape from a number or a sequence of 1 to 4; raises KernelTypeError or ValueError."""
    if shape.__class__ is int and 0 <= shape <= LONGEST:
        return (shape,)
    if shape.__class__ is tuple and 0 < len(shape) <= 4:
        for n in shape:
            if n.__class__ is not int or not 0 <= n <= LONGEST:
                break
        else:
            return shape
    sizes: Any = shape
    several = sizes.ndim if isinstance(sizes, np.ndarray) else isinstance(sizes, Sequence)
    extents = tuple(_extent(n) for n in (sizes if several and not isinstance(sizes, str) else (sizes,)))
    if not 1 <= len(extents) <= 4:
        raise KernelTypeError(too_many_axes(len(extents)))
    if any(n < 0 for n in extents):
        message = f"an array cannot have the shape {extents}"
        raise KernelValueError.of(message, "shape", "extents are 0 or more")
    if max(extents) > LONGEST:
        count = f"{max(extents):,}: kernels count them as ints"
        hint = "spread them over two axes, such as shape (n // 1024, 1024)"
        raise KernelValueError.of(f"an axis has at most {LONGEST:,} elements, not {count}", "shape", hint)
    return extents


def too_many_axes(count: int) -> Diagnostic:
    """The diagnostic for an array of too many dimensions."""
    hint = "make one axis of several: shape (a, b, c, d, e) becomes (a, b, c, d * e)"
    hint = hint if count else "a single number is an array of one element: shape 1"
    return Diagnostic(f"an array has 1 to 4 dimensions, not {count}", caller().span, "ndim", hint=hint)


def strides_tuple(strides: Sequence[int], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The bytes from one element to the next along each axis, all 0 or more; raises KernelValueError."""
    steps = tuple(strides) if isinstance(strides, Sequence) else (strides,)
    if len(steps) == len(shape) and all(isinstance(n, int | np.integer) and n >= 0 for n in steps):
        return tuple(int(n) for n in steps)
    hint = "give the bytes from one element to the next for each axis, 0 or more"
    raise KernelValueError.of(f"an array of shape {shape} cannot have the strides {steps}", "strides", hint)


def checked_address(ptr: Any, nbytes: int) -> int:
    """The address of so many bytes, as an int; raises KernelTypeError or KernelValueError if it is none."""
    if not isinstance(ptr, int | np.integer) or isinstance(ptr, bool):
        message = f"ptr is the address of the first element, a whole number, not {described(ptr)}"
        raise KernelTypeError.of(message, "memory", "pass x.ptr, or x.ctypes.data of NumPy's")
    if ptr < 0 or int(ptr) + nbytes > sys.maxsize:
        message = f"there is no memory for {nbytes:,} bytes at {described(ptr)}"
        raise KernelValueError.of(message, "memory", "check ptr, shape and strides")
    return int(ptr)


def checksum(data: bytes | memoryview | HostArray, start: int = 0) -> int:
    """A checksum of bytes, or of the elements of a NumPy array in order, that goes on from `start`."""
    if isinstance(data, np.ndarray):
        # As bytes, since brain floats give no buffer of their own.
        data = np.ascontiguousarray(data).reshape(-1).view(np.uint8).data
    return zlib.crc32(data, start)


def extents_of(shape: tuple[Any, ...]) -> tuple[int, ...]:
    """The extents of a shape to be, one of which may be -1; raises KernelTypeError for other things."""
    return tuple(_extent(n) for n in shape)


def _extent(count: Any) -> int:
    try:
        if not isinstance(count, bool | np.bool_):
            return operator.index(count)
    except TypeError:  # arrays of several numbers say no more than that, and have an __index__
        pass
    message = f"the extent of an array is a whole number, not {described(count)}"
    raise KernelTypeError.of(message, "shape", _extent_instead(count))


def _extent_instead(count: Any) -> str:
    if isinstance(count, float | np.floating):
        return "write int(...) around it"
    if isinstance(count, str) and re.fullmatch(r"cpu|cuda(:\d+)?", count):
        return f'write device="{count}"'
    return "write 3, or (2, 3)"
