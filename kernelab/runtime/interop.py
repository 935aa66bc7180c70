"""Between host data and kernel types: dtypes by every name they go by, and nested lists as NumPy arrays.

Knows NumPy and the kernel types; must not know arrays.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelab.errors import Diagnostic, KernelTypeError
from kernelab.lang.structs import Struct, StructArray, array_inside, layout
from kernelab.lang.types import (
    SCALARS,
    Array,
    Mat,
    Scalar,
    Value,
    Vec,
    bool_,
    bytes_of,
    float32,
    float64,
    int32,
    int64,
    scalar_of,
    shape_of,
    type_named,
)

HostArray = np.ndarray[Any, Any]

_BY_PYTHON: dict[object, Scalar] = {bool: bool_, int: int32, float: float32}
_BY_NAME = {"float": float32, "int": int32}
_BY_DTYPE = {scalar.dtype: scalar for scalar in SCALARS}


@functools.cache
def array_type(elem: Any, ndim: int) -> Any:
    """The type of arrays of `elem`; one object for each, so that a launch may compare by identity."""
    if not isinstance(elem, Struct):
        return Array(elem, ndim)
    if not elem.fields:
        hint = "give it a field, or pass an array of numbers"
        raise KernelTypeError(
            Diagnostic(f"an array cannot hold {elem}: it has no fields", hint=hint, code="dtype")
        )
    inside = array_inside(elem)
    if inside is not None:
        message = f"an array cannot hold {elem}: its field {inside} is an array"
        hint = "keep the structs in a Python list, or pass the field's array as an argument of its own"
        raise KernelTypeError(Diagnostic(message, hint=hint, code="dtype"))
    return StructArray(elem, ndim)


@functools.cache
def itemsize(elem: Any) -> int:
    """The size of an element in memory, in bytes."""
    if not isinstance(elem, Struct):
        return bytes_of(elem)
    array_type(elem, 1)  # refuses a struct that holds arrays
    return layout(elem).itemsize


def value_type(dtype: Any) -> Value:
    """The kernel type that `dtype` names: a kernel type, ``float``, a NumPy dtype or scalar, or a name.

    Raises KernelTypeError where there is none.
    """
    if isinstance(dtype, Scalar | Vec | Mat):
        return dtype
    struct = getattr(dtype, "__kernelab_struct__", None)
    if struct is not None:
        return struct  # type: ignore[no-any-return]
    found = _BY_PYTHON.get(dtype) if isinstance(dtype, type) else None
    if found is None and isinstance(dtype, str):
        return _BY_NAME.get(dtype) or type_named(dtype) or _by_numpy(dtype)
    return found or _by_numpy(dtype)


def _by_numpy(dtype: Any) -> Scalar:
    try:
        found = _BY_DTYPE.get(np.dtype(dtype).newbyteorder("="))
    except TypeError:
        found = None
    if found is None:
        known = ", ".join(scalar.name for scalar in SCALARS)
        message = f"{dtype!r} is no type of array elements"
        hint = f"use {known}, a vector such as vec3 or a matrix such as mat33"
        raise KernelTypeError(Diagnostic(message, hint=hint, code="dtype"))
    return found


def scalar_of_dtype(dtype: np.dtype[Any]) -> Scalar | None:
    """The kernel scalar stored exactly as NumPy stores `dtype`, if there is one."""
    return _BY_DTYPE.get(dtype) if dtype.isnative else None


def host_values(data: Any, dtype: Value | None) -> tuple[HostArray, Value]:
    """`data` as a NumPy array with the components of an element in its last axes, and the element type.

    Without a `dtype`, NumPy data keep theirs, and Python numbers get 32 bits unless they need more.
    """
    values = data if isinstance(data, np.ndarray) else _as_numpy(data)
    elem = dtype if dtype is not None else _natural(values, data)
    try:
        values = values.astype(scalar_of(elem).dtype, copy=False)
    except (TypeError, ValueError):
        message = f"cannot make an array of {elem} from {_described(data)}"
        raise KernelTypeError(Diagnostic(message, code="dtype")) from None
    return _with_components(values, elem), elem


def _as_numpy(data: Any) -> HostArray:
    try:
        return np.asarray(data)
    except ValueError:
        message = f"cannot make an array from {_described(data)}: its rows have different lengths"
        hint = "give every row the same number of elements"
        raise KernelTypeError(Diagnostic(message, code="data", hint=hint)) from None


def _natural(values: HostArray, data: Any) -> Value:
    if hasattr(data, "dtype"):
        return _by_numpy(values.dtype)
    if values.size == 0 or values.dtype == float64.dtype:
        return float32
    if values.dtype == int64.dtype:
        fits = np.iinfo(np.int32)
        return int32 if fits.min <= values.min() and values.max() <= fits.max else int64
    return _by_numpy(values.dtype)


def _with_components(values: HostArray, elem: Value) -> HostArray:
    components = shape_of(elem)
    if not components or (values.ndim >= len(components) and values.shape[-len(components) :] == components):
        return values
    if values.size == 0:
        return values.reshape((0, *components))
    count = int(np.prod(components))
    if values.ndim and values.shape[-1] == count:
        return values.reshape(values.shape[:-1] + components)
    wanted = " x ".join(str(n) for n in components)
    message = f"cannot make an array of {elem} from data of shape {values.shape}"
    raise KernelTypeError(Diagnostic(message, hint=f"the last axes must be {wanted}", code="shape"))


def _described(data: Any) -> str:
    if isinstance(data, np.ndarray):
        return f"a NumPy array of {data.dtype}"
    return f"a {type(data).__name__}"


def shape_tuple(shape: int | Sequence[int]) -> tuple[int, ...]:
    """An array's shape from a number or a sequence of 1 to 4; raises KernelTypeError or ValueError."""
    extents = tuple(int(n) for n in shape) if isinstance(shape, Sequence | np.ndarray) else (int(shape),)
    if not 1 <= len(extents) <= 4:
        message = f"an array has 1 to 4 dimensions, not {len(extents)}"
        raise KernelTypeError(Diagnostic(message, code="ndim"))
    if any(n < 0 for n in extents):
        message = f"an array cannot have the shape {extents}"
        raise KernelTypeError(Diagnostic(message, hint="extents are 0 or more", code="shape"))
    return extents
