"""Operations composed of scalar ones: one Python function defines both the IR and the NumPy version.

`composite` calls it with expressions to expand the operation into scalar ones, through which derivatives go,
and with NumPy arrays to compute.  A vector reaches it as the list of its components, a matrix as the list of
its rows; it returns the same.  Its first argument has the functions for either.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernelab.builtins.records.components import matrix, parts, rows, stacked, stacked_rows, vector
from kernelab.builtins.records.table import ANYWHERE, Interval, builtin
from kernelab.builtins.scalars.arithmetic import and_, le, or_, where
from kernelab.builtins.scalars.scalar import acos, asin, atan2, cbrt, cos, floor, log, sin, sqrt
from kernelab.builtins.vectors.vector import length, length_numpy, normalize, normalize_numpy
from kernelab.lang.build import Expr, integer
from kernelab.lang.ir import For, Var
from kernelab.lang.ops import Derivative, Expanded, KindPattern, MatPattern, Pattern, VecPattern
from kernelab.lang.rounding import converted, epsilon
from kernelab.lang.types import SCALARS, Scalar, int32, scalar_of


class Functions:
    """The operations of the table as functions of expressions, for the definitions of composed ones."""

    sqrt, sin, cos, asin, acos, atan2, log = (
        staticmethod(f) for f in (sqrt, sin, cos, asin, acos, atan2, log)
    )
    where, both, either, le = (staticmethod(f) for f in (where, and_, or_, le))

    cbrt, floor = staticmethod(cbrt), staticmethod(floor)

    @staticmethod
    def magnitude(x: Expr) -> Expr:
        """The absolute value."""
        return x.apply("abs")

    @staticmethod
    def epsilon(x: Expr) -> float:
        """The distance from 1 to the next number of the type of `x`."""
        return epsilon(scalar_of(x.type).dtype)

    @staticmethod
    def equal(x: Expr, y: Any) -> Expr:
        """Whether two numbers are equal."""
        return x.eq(y)

    @staticmethod
    def repeated(
        count: int, body: Callable[[Sequence[Expr]], Sequence[Expr]], values: Sequence[Expr]
    ) -> list[Expr]:
        """`body` applied to values so many times, in a loop."""
        return _loop(count, body, values)

    @staticmethod
    def norm(v: Sequence[Any]) -> Any:
        """The length of a vector."""
        return length(vector(v))

    @staticmethod
    def unit(v: Sequence[Any]) -> list[Any]:
        """The components of a vector divided by its length."""
        return parts(normalize(vector(v)))

    @staticmethod
    def to(x: Expr, scalar: Scalar) -> Expr:
        """A number converted to another type."""
        return x if x.type == scalar else x.apply(str(scalar))

    @staticmethod
    def type_of(x: Expr) -> Scalar:
        """The type of a number."""
        return scalar_of(x.type)

    @staticmethod
    def shr(x: Expr, by: Any) -> Expr:
        """The bits of an unsigned number moved down."""
        return x.apply("shr", by)

    @staticmethod
    def xor(x: Expr, y: Expr) -> Expr:
        """The bits set in exactly one."""
        return x.apply("bit_xor", y)

    @staticmethod
    def rem(x: Expr, y: Expr) -> Expr:
        """The remainder of unsigned numbers, of which the second is not 0."""
        return x.apply("mod", y)


class NumpyFunctions:
    """The same of NumPy arrays."""

    sqrt, sin, cos, asin, acos, atan2, log = (
        staticmethod(f) for f in (np.sqrt, np.sin, np.cos, np.arcsin, np.arccos, np.arctan2, np.log)
    )
    both, either, le, equal = (
        staticmethod(f) for f in (np.logical_and, np.logical_or, np.less_equal, np.equal)
    )

    @staticmethod
    def where(cond: Any, a: Any, b: Any) -> Any:
        """`a` where `cond`, else `b`; a number takes the type of the other."""
        return np.where(cond, a, b)

    cbrt, floor = staticmethod(np.cbrt), staticmethod(np.floor)
    shr, xor, rem = (staticmethod(f) for f in (np.right_shift, np.bitwise_xor, np.mod))

    @staticmethod
    def to(x: Any, scalar: Scalar) -> Any:
        """A number converted to another type."""
        return converted(x, scalar.dtype)

    @staticmethod
    def type_of(x: Any) -> Scalar:
        """The type of a number."""
        return next(scalar for scalar in SCALARS if scalar.dtype == np.asarray(x).dtype)

    magnitude = staticmethod(np.abs)

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
        found = normalize_numpy(stacked(v))
        return [found[..., k] for k in range(len(v))]


def _loop(count: int, body: Callable[[Sequence[Expr]], Sequence[Expr]], values: Sequence[Expr]) -> list[Expr]:
    builder = values[0].builder
    carries, outs = ([Var(x.type, "", builder.span) for x in values] for _ in range(2))
    with builder.block() as inner:
        after = [x.atom for x in body([Expr(builder, carry) for carry in carries])]
    inits = tuple(x.atom for x in values)
    block = inner.close(*after)
    builder.emit(
        For(tuple(outs), Var(int32, "k"), integer(count), tuple(carries), inits, block, builder.span)
    )
    return [Expr(builder, out) for out in outs]


def composite(
    meaning: Callable[..., Any],
    *,
    derivative: Derivative | None = None,
    domain: Interval | tuple[Interval, ...] = ANYWHERE,
    exact: bool = False,
    name: str = "",
    symbol: str = "",
    tags: Sequence[str] = (),
    parts: Sequence[Pattern] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function's record; ``meaning(functions, *operands)`` says what it computes."""

    def decorate(template: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(template)
        operands = [parameter.annotation for parameter in signature.parameters.values()]
        result: Pattern = signature.return_annotation
        return builtin(
            expand=lambda *xs: _expression(result, meaning(Functions, *map(_taken_apart, xs))),
            numpy=lambda *xs: _array(result, meaning(NumpyFunctions, *map(_columns, operands, xs))),
            derivative=Expanded() if derivative is None else derivative,
            domain=domain,
            exact=exact,
            name=name,
            symbol=symbol,
            tags=tags,
            parts=parts,
        )(template)

    return decorate


def _taken_apart(x: Expr) -> Any:
    found: list[Any] = parts(x)
    if len(getattr(x.type, "shape", ())) == 2:
        return rows(x)
    return found if hasattr(x.type, "shape") else x


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
