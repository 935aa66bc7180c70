"""Kernel value types by name, and vectors and matrices of any size: ``kl.types.vector(6, float)``."""

import builtins
from collections.abc import Callable
from typing import Any

from kernelab.errors import KernelTypeError, KernelValueError
from kernelab.guidance.missing_names import missing
from kernelab.host.values import type_of
from kernelab.lang.structs import Struct, StructArray
from kernelab.lang.types import (
    LARGEST,
    SCALARS,
    Array,
    Mat,
    Quat,
    Scalar,
    Transform,
    Vec,
    bfloat16,
    bool_,
    size_of,
    type_named,
)
from kernelab.runtime.array.array import array
from kernelab.runtime.array.array_attributes import is_any, shaped_annotation
from kernelab.runtime.context.conversion import is_whole, itemsize, value_type

scalar_types = tuple(scalar for scalar in SCALARS if scalar is not bool_)
int_types = tuple(scalar for scalar in scalar_types if scalar.is_int)
float_types = tuple(scalar for scalar in scalar_types if scalar.is_float)

np_dtype_to_warp_type = {scalar.dtype: scalar for scalar in SCALARS if scalar is not bfloat16}
"""The types of numbers by their NumPy dtypes; `dtype_from_numpy` takes other spellings, too."""


def vector(length: int, dtype: Any = float) -> Vec:
    """The type of vectors of `length` scalars; raises KernelValueError for more than a value holds.

    With `Any` for either it is an annotation of functions and kernels that take several types.
    """
    some: Any = shaped_annotation("vector", (length,), dtype)
    if some is not None:
        return some  # type: ignore[no-any-return]
    _require_size(_extent(length))
    return Vec(_scalar(dtype), length)


def matrix(shape: tuple[int, int], dtype: Any = float) -> Mat:
    """The type of matrices of `shape`, rows first; raises KernelValueError for more than a value holds."""
    try:
        rows, columns = shape
    except (TypeError, ValueError):
        message = f"the shape of a matrix is two numbers, rows and columns, not {shape!r}"
        raise KernelTypeError.of(message, "shape", "write matrix((2, 3), float)") from None
    some: Any = shaped_annotation("matrix", (rows, columns), dtype)
    if some is not None:
        return some  # type: ignore[no-any-return]
    rows, columns = _extent(rows), _extent(columns)
    _require_size(rows * columns if rows >= 0 and columns >= 0 else -1)
    return Mat(_scalar(dtype), rows, columns)


def quaternion(dtype: Any = float) -> Quat:
    """The type of quaternions over a float type."""
    some: Any = shaped_annotation("quaternion", (), dtype)
    return some if some is not None else Quat(_float(dtype))


def transformation(dtype: Any = float) -> Transform:
    """The type of rigid motions over a float type."""
    some: Any = shaped_annotation("transformation", (), dtype)
    return some if some is not None else Transform(_float(dtype))


def type_size(dtype: Any) -> int:
    """The number of scalars in a value of a type: 3 for ``vec3``."""
    return size_of(_element(dtype))


def type_size_in_bytes(dtype: Any) -> int:
    """The size in bytes of an element of a type in an array; of an array type, its elements'."""
    return itemsize(_element(dtype))


def type_repr(type: Any) -> str:
    """The name of a type, as messages write it."""
    return type if isinstance(type, str) else str(type if isinstance(type, Array) else _element(type))


def types_equal(a: Any, b: Any) -> bool:
    """Whether two types are the same, under any of their names; `Any` equals itself alone."""
    if is_any(a) or is_any(b):
        return bool(a == b)
    if isinstance(a, Array | StructArray | array) or isinstance(b, Array | StructArray | array):
        first, second = (getattr(type, "type", type) for type in (a, b))
        return bool(first == second)
    return value_type(a) == value_type(b)


def type_is_scalar(type: Any) -> bool:
    """Whether this is a type of integers or floats."""
    return type_is_int(type) or type_is_float(type)


def type_is_value(type: Any) -> bool:
    """Whether this is a type of numbers, or of values with components."""
    return isinstance(_meaning(type), Scalar | Vec | Mat)


def type_is_array(type: Any) -> bool:
    """Whether this is a type of arrays, or the class `array`."""
    return type is array or isinstance(type, Array | StructArray)


def is_array(value: Any) -> bool:
    """Whether this is an array, or an annotation of one."""
    return isinstance(value, array | Array | StructArray)


def is_scalar(value: Any) -> bool:
    """Whether this is an integer or a float, of Python, NumPy or kernelab."""
    return is_int(value) or is_float(value)


def is_value(value: Any) -> bool:
    """Whether this is a number, or a value with components."""
    return is_scalar(value) or is_composite(value)


Test = Callable[[Any], bool]


def _tests(name: str, what: str, holds: Test) -> tuple[Test, Test]:
    """``type_is_name`` and ``is_name``: whether something is a type of such values, or is such a value."""

    def of_type(type: Any) -> bool:
        return holds(_meaning(type))

    def of_value(value: Any) -> bool:
        return not isinstance(value, builtins.type) and holds(_meaning(type_of(value) or type(value)))

    of_type.__name__, of_value.__name__ = f"type_is_{name}", f"is_{name}"
    of_type.__doc__ = f"Whether this is a type of {what}."
    of_value.__doc__ = f"Whether this is one of {what}."
    return of_type, of_value


type_is_int, is_int = _tests("int", "integers", lambda type: isinstance(type, Scalar) and type.is_int)
type_is_float, is_float = _tests("float", "floats", lambda type: isinstance(type, Scalar) and type.is_float)
type_is_vector, is_vector = _tests(
    "vector",
    "vectors, and not of quaternions or transforms",
    lambda type: isinstance(type, Vec) and not isinstance(type, Quat | Transform),
)
type_is_matrix, is_matrix = _tests("matrix", "matrices", lambda type: isinstance(type, Mat))
type_is_quaternion, is_quaternion = _tests("quaternion", "quaternions", lambda type: isinstance(type, Quat))
type_is_transformation, is_transformation = _tests(
    "transformation", "transforms", lambda type: isinstance(type, Transform)
)
type_is_composite, is_composite = _tests(
    "composite", "vectors, matrices, quaternions and transforms", lambda type: isinstance(type, Vec | Mat)
)
type_is_struct, is_struct = _tests("struct", "structs", lambda type: isinstance(type, Struct))


def _meaning(type: Any) -> Any:
    """The kernel type that this names, None if it names none."""
    if not isinstance(type, Scalar | Vec | Mat | Struct | builtins.type):
        return None
    try:
        return value_type(type)
    except KernelTypeError:
        return None


def _element(type: Any) -> Any:
    return type.elem if isinstance(type, Array | StructArray) else value_type(type)


def _scalar(dtype: Any) -> Scalar:
    scalar = value_type(dtype)
    if not isinstance(scalar, Scalar):
        message = f"the components of a vector or matrix are numbers, not {scalar}"
        raise KernelTypeError.of(message, "dtype", "write float, int, kl.float64, ...")
    return scalar


def _float(dtype: Any) -> Scalar:
    scalar = _scalar(dtype)
    if not scalar.is_float:
        message = f"quaternions and transforms are made of floats, not of {scalar}"
        raise KernelTypeError.of(message, "dtype", "write float32 or float64")
    return scalar


def _extent(count: Any) -> int:
    if not is_whole(count):
        message = f"a vector or matrix has a whole number of components, not {count!r}"
        raise KernelTypeError.of(message, "size", "write vector(3, float)")
    return int(count)


def _require_size(count: int) -> None:
    if not 0 <= count <= LARGEST:
        message = f"a kernel value holds at most {LARGEST} numbers, not {count}"
        raise KernelValueError.of(message, "size", "use an array for more")


def __getattr__(name: str) -> Any:
    """The named types: ``kl.types.vec3``."""
    type = type_named(name)
    if type is None:
        raise missing(__name__, name, __all__)
    return type


def __dir__() -> list[str]:
    """The names that a completer offers."""
    return [*__all__]


__all__ = [
    "Array", "Mat", "Scalar", "Vec", "array", "float_types", "int_types", "is_array", "is_composite",
    "is_float", "is_int", "is_matrix", "is_quaternion", "is_scalar", "is_struct", "is_transformation",
    "is_value", "is_vector", "matrix", "np_dtype_to_warp_type", "quaternion", "scalar_types",
    "transformation", "type_is_array", "type_is_composite", "type_is_float", "type_is_int",
    "type_is_matrix", "type_is_quaternion", "type_is_scalar", "type_is_struct", "type_is_transformation",
    "type_is_value", "type_is_vector", "type_repr", "type_size", "type_size_in_bytes", "types_equal",
    "vector",
]  # fmt: skip
