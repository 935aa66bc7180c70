"""Kernel value types by name, and vectors and matrices of any size: ``kl.types.vector(6, float)``."""

import builtins
from typing import Any

from kernelab.errors import Diagnostic, KernelTypeError, KernelValueError
from kernelab.guidance.hint_tables import missing
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
from kernelab.runtime.host.struct_instances import Instance

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
        raise KernelTypeError(Diagnostic(message, code="shape", hint="write matrix((2, 3), float)")) from None
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


def type_is_int(type: Any) -> bool:
    """Whether this is a type of integers."""
    meaning = _meaning(type)
    return isinstance(meaning, Scalar) and meaning.is_int


def type_is_float(type: Any) -> bool:
    """Whether this is a type of floats."""
    meaning = _meaning(type)
    return isinstance(meaning, Scalar) and meaning.is_float


def type_is_scalar(type: Any) -> bool:
    """Whether this is a type of integers or floats."""
    return type_is_int(type) or type_is_float(type)


def type_is_vector(type: Any) -> bool:
    """Whether this is a type of vectors, and not of quaternions or transforms."""
    meaning = _meaning(type)
    return isinstance(meaning, Vec) and not isinstance(meaning, Quat | Transform)


def type_is_matrix(type: Any) -> bool:
    """Whether this is a type of matrices."""
    return isinstance(_meaning(type), Mat)


def type_is_quaternion(type: Any) -> bool:
    """Whether this is a type of quaternions."""
    return isinstance(_meaning(type), Quat)


def type_is_transformation(type: Any) -> bool:
    """Whether this is a type of transforms."""
    return isinstance(_meaning(type), Transform)


def type_is_composite(type: Any) -> bool:
    """Whether values of this type have components: vectors, matrices, quaternions and transforms."""
    return isinstance(_meaning(type), Vec | Mat)


def type_is_value(type: Any) -> bool:
    """Whether this is a type of numbers, or of values with components."""
    return isinstance(_meaning(type), Scalar | Vec | Mat)


def type_is_struct(type: Any) -> bool:
    """Whether this is a struct."""
    return isinstance(_meaning(type), Struct)


def type_is_array(type: Any) -> bool:
    """Whether this is a type of arrays, or the class `array`."""
    return type is array or isinstance(type, Array | StructArray)


def is_array(value: Any) -> bool:
    """Whether this is an array, or an annotation of one."""
    return isinstance(value, array | Array | StructArray)


def is_int(value: Any) -> bool:
    """Whether this is an integer, of Python, NumPy or kernelab."""
    return not isinstance(value, builtins.type) and type_is_int(type(value))


def is_float(value: Any) -> bool:
    """Whether this is a number with a fraction, of Python, NumPy or kernelab."""
    return not isinstance(value, builtins.type) and type_is_float(type(value))


def is_scalar(value: Any) -> bool:
    """Whether this is an integer or a float."""
    return is_int(value) or is_float(value)


def is_vector(value: Any) -> bool:
    """Whether this is a vector, and not a quaternion or transform."""
    return type_is_vector(type_of(value))


def is_matrix(value: Any) -> bool:
    """Whether this is a matrix."""
    return type_is_matrix(type_of(value))


def is_quaternion(value: Any) -> bool:
    """Whether this is a quaternion."""
    return type_is_quaternion(type_of(value))


def is_transformation(value: Any) -> bool:
    """Whether this is a transform."""
    return type_is_transformation(type_of(value))


def is_composite(value: Any) -> bool:
    """Whether this value has components: a vector, matrix, quaternion or transform."""
    return type_of(value) is not None


def is_value(value: Any) -> bool:
    """Whether this is a number, or a value with components."""
    return is_scalar(value) or is_composite(value)


def is_struct(value: Any) -> bool:
    """Whether this is an instance of a struct."""
    return isinstance(value, Instance)


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
        raise KernelTypeError(Diagnostic(message, code="dtype", hint="write float, int, kl.float64, ..."))
    return scalar


def _float(dtype: Any) -> Scalar:
    scalar = _scalar(dtype)
    if not scalar.is_float:
        message = f"quaternions and transforms are made of floats, not of {scalar}"
        raise KernelTypeError(Diagnostic(message, code="dtype", hint="write float32 or float64"))
    return scalar


def _extent(count: Any) -> int:
    if not is_whole(count):
        message = f"a vector or matrix has a whole number of components, not {count!r}"
        raise KernelTypeError(Diagnostic(message, code="size", hint="write vector(3, float)"))
    return int(count)


def _require_size(count: int) -> None:
    if not 0 <= count <= LARGEST:
        message = f"a kernel value holds at most {LARGEST} numbers, not {count}"
        raise KernelValueError(Diagnostic(message, code="size", hint="use an array for more"))


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
