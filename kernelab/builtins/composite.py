"""Operations composed of scalar ones: one Python function defines both the IR and the NumPy version.

    @composite()
    def quat_from_axis_angle(m: Any, axis: Vec3, angle: Float) -> QuatF: ...

It is called with expressions to expand the operation into scalar ones, through which derivatives go, and with
NumPy arrays to compute.  A vector reaches it as the list of its components, a matrix as the list of its rows;
it returns the same.  Its first parameter, which is none of the operation's, has the functions for either.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernelab.builtins.arithmetic import and_, bit_xor, eq, le, mod_unsigned, or_, shr, where
from kernelab.builtins.scalar import abs_, acos, asin, atan2, cbrt, cos, floor, log, sin, sqrt
from kernelab.builtins.table import builtin, matrix, parts, rows, stacked, stacked_rows, vector
from kernelab.builtins.vector import in_scalar, length, length_numpy, normalize, normalize_numpy
from kernelab.lang.build import Expr, integer
from kernelab.lang.ir import For, Var
from kernelab.lang.ops import Derivative, Expanded, KindPattern, MatPattern, Pattern, VecPattern
from kernelab.lang.rounding import converted, epsilon
from kernelab.lang.types import BY_DTYPE, Mat, Scalar, Vec, int32, scalar_of

_EXPANDED = Expanded()


class Functions:
    """The operations of the table as functions of expressions, for the definitions of composed ones."""

    sqrt, sin, cos, asin, acos, atan2, log, cbrt, floor = (
        staticmethod(f) for f in (sqrt, sin, cos, asin, acos, atan2, log, cbrt, floor)
    )
    where, both, either, le, equal = (staticmethod(f) for f in (where, and_, or_, le, eq))
    magnitude, shr, xor, rem = (staticmethod(f) for f in (abs_, shr, bit_xor, mod_unsigned))

    @staticmethod
    def epsilon(x: Expr) -> float:
        """The distance from 1 to the next number of the type of `x`."""
        return epsilon(scalar_of(x.type).dtype)

    @staticmethod
    def repeated(
        count: int, body: Callable[[Sequence[Expr]], Sequence[Expr]], values: Sequence[Expr]
    ) -> list[Expr]:
        """`body` applied to values so many times, in a loop."""
        builder = values[0].builder
        carries, outs = ([Var(x.type, "", builder.span) for x in values] for _ in range(2))
        with builder.block() as inner:
            after = [x.atom for x in body([Expr(builder, carry) for carry in carries])]
        inits, block = tuple(x.atom for x in values), inner.close(*after)
        index, span = Var(int32, "k"), builder.span
        builder.emit(For(tuple(outs), index, integer(count), tuple(carries), inits, block, span))
        return [Expr(builder, out) for out in outs]

    @staticmethod
    def norm(v: Sequence[Any]) -> Any:
        """The length of a vector."""
        return length(vector(v))

    @staticmethod
    def unit(v: Sequence[Any]) -> list[Any]:
        """The components of a vector divided by its length."""
        return parts(normalize(vector(v)))

    to = staticmethod(in_scalar)

    @staticmethod
    def type_of(x: Expr) -> Scalar:
        """The type of a number."""
        return scalar_of(x.type)


class NumpyFunctions:
    """The same of NumPy arrays."""

    sqrt, sin, cos, asin, acos, atan2, log, cbrt, floor = (
        staticmethod(f)
        for f in (np.sqrt, np.sin, np.cos, np.arcsin, np.arccos, np.arctan2, np.log, np.cbrt, np.floor)
    )
    where, both, either, le, equal = (
        staticmethod(f) for f in (np.where, np.logical_and, np.logical_or, np.less_equal, np.equal)
    )
    magnitude, shr, xor, rem = (staticmethod(f) for f in (np.abs, np.right_shift, np.bitwise_xor, np.mod))

    @staticmethod
    def to(x: Any, scalar: Scalar) -> Any:
        """A number converted to another type."""
        return converted(x, scalar.dtype)

    @staticmethod
    def type_of(x: Any) -> Scalar:
        """The type of a number."""
        return BY_DTYPE[np.asarray(x).dtype]

    @staticmethod
    def epsilon(x: Any) -> float:
        """The distance from 1 to the next number of the type of `x`."""
        return epsilon(x.dtype)

    @staticmethod
    def repeated(
        count: int, body: Callable[[Sequence[Any]], Sequence[Any]], values: Sequence[Any]
    ) -> Sequence[Any]:
        """`body` applied to values so many times."""
        for _ in range(count):
            values = body(values)
        return values

    @staticmethod
    def norm(v: Sequence[Any]) -> Any:
        """The length of a vector."""
        return length_numpy(stacked(v))

    @staticmethod
    def unit(v: Sequence[Any]) -> list[Any]:
        """The components of a vector divided by its length."""
        unit = normalize_numpy(stacked(v))
        return [unit[..., k] for k in range(len(v))]


def composite(
    *, derivative: Derivative = _EXPANDED, **record: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the record of the decorated function, which says what the operation computes.

    Its first parameter has the functions for expressions, or for NumPy arrays; the others are the operands.
    `record` are more arguments of `builtin`.
    """

    def decorate(meaning: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(meaning)
        _, *parameters = signature.parameters.values()
        operands = [parameter.annotation for parameter in parameters]
        result: Pattern = signature.return_annotation
        setattr(meaning, "__signature__", signature.replace(parameters=parameters))  # noqa: B010
        return builtin(
            expand=lambda *xs: _expression(result, meaning(Functions, *map(_components, xs))),
            numpy=lambda *xs: _array(result, meaning(NumpyFunctions, *map(_columns, operands, xs))),
            derivative=derivative,
            **record,
        )(meaning)

    return decorate


def _components(x: Expr) -> Any:
    match x.type:
        case Scalar():
            return x
        case Vec():
            return parts(x)
        case Mat():
            return rows(x)


def _expression(pattern: Pattern, value: Any) -> Expr:
    match pattern:
        case KindPattern(kind):
            first: Expr = value[0]
            return first.make(kind(scalar_of(first.type)), *value)
        case VecPattern():
            return vector(value)
        case MatPattern():
            return matrix(value)
        case _:
            result: Expr = value
            return result


def _columns(pattern: Pattern, x: Any) -> Any:
    match pattern:
        case MatPattern():
            return [[x[..., i, j] for j in range(x.shape[-1])] for i in range(x.shape[-2])]
        case VecPattern() | KindPattern():
            return [x[..., k] for k in range(x.shape[-1])]
        case _:
            return x


def _array(pattern: Pattern, value: Any) -> Any:
    match pattern:
        case MatPattern():
            return stacked_rows(value)
        case VecPattern() | KindPattern():
            return stacked(value)
        case _:
            return value
