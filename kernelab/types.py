"""Types of kernel values by name, and vectors and matrices of any size: ``kl.types.vector(6, float)``."""

from typing import Any

from kernelab.errors import Diagnostic, KernelValueError
from kernelab.lang.types import LARGEST, Array, Mat, Scalar, Vec, scalar_of, type_named
from kernelab.runtime.interop import value_type


def vector(length: int, dtype: Any = float) -> Vec:
    """The type of vectors of `length` scalars; raises KernelValueError beyond 16."""
    _require_size(length)
    return Vec(scalar_of(value_type(dtype)), length)


def matrix(shape: tuple[int, int], dtype: Any = float) -> Mat:
    """The type of matrices of `shape`, rows first; raises KernelValueError beyond 16 entries."""
    rows, columns = shape
    _require_size(rows * columns if rows > 0 and columns > 0 else 0)
    return Mat(scalar_of(value_type(dtype)), rows, columns)


def _require_size(count: int) -> None:
    if not 1 <= count <= LARGEST:
        message = f"a kernel value holds 1 to {LARGEST} numbers, not {count}"
        raise KernelValueError(Diagnostic(message, code="size", hint="use an array for more"))


def __getattr__(name: str) -> Any:
    """The named types: ``kl.types.vec3``."""
    type = type_named(name)
    if type is None:
        raise AttributeError(f"kernelab.types has no {name}", name=name, obj=None)
    return type


__all__ = ["Array", "Mat", "Scalar", "Vec", "matrix", "vector"]
