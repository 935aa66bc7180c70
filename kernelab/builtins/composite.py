"""Operations composed of scalar ones: one Python function defines both the IR and the NumPy version.

    @composite()
    def quat_from_axis_angle(m: Any, axis: Vec3, angle: Float) -> QuatF: ...

It is called with expressions to expand the operation into scalar ones, through which derivatives go, and with
NumPy arrays to compute.  A vector reaches it as the list of its components, a matrix as the list of its rows;
it returns the same.  Its first parameter, which is none of the operation's, has the functions for either.
"""

import inspect
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from kernelab.builtins.arithmetic import and_, bit_xor, eq, le, mod_unsigned, or_, shr, where
from kernelab.builtins.scalar import abs_, acos, asin, atan2, cbrt, cos, floor, log, max_, min_, sin, sqrt
from kernelab.builtins.table import (
    builtin,
    components_of,
    entries_of,
    in_scalar,
    matrix,
    parts,
    rows,
    stacked,
    stacked_rows,
    vector,
)
from kernelab.lang.build import Expr, integer
from kernelab.lang.ir import For, Var
from kernelab.lang.ops import Derivative, Expanded, KindPattern, MatPattern, Pattern, VecPattern, overloads
from kernelab.lang.rounding import converted, epsilon
from kernelab.lang.types import BY_DTYPE, Mat, Scalar, Vec, int32, scalar_of

_EXPANDED = Expanded()


def _repeated(
    count: int, body: Callable[[Sequence[Expr]], Sequence[Expr]], values: Sequence[Expr]
) -> Sequence[Expr]:
    """`body` applied to values so many times, in a loop."""
    builder = values[0].builder
    carries, outs = ([Var(x.type, "", builder.span) for x in values] for _ in range(2))
    with builder.block() as inner:
        after = [x.atom for x in body([Expr(builder, carry) for carry in carries])]
    inits, block = tuple(x.atom for x in values), inner.close(*after)
    index, span = Var(int32, "k"), builder.span
    builder.emit(For(tuple(outs), index, integer(count), tuple(carries), inits, block, span))
    return [Expr(builder, out) for out in outs]


def _repeated_numpy(
    count: int, body: Callable[[Sequence[Any]], Sequence[Any]], values: Sequence[Any]
) -> Sequence[Any]:
    """The same of NumPy arrays."""
    for _ in range(count):
        values = body(values)
    return values


def _corrected(
    values: Sequence[Expr], is_rare: Expr, correct: Callable[[], Sequence[Expr]]
) -> Sequence[Expr]:
    """Values, or where `is_rare` what `correct` computes, in a branch that few threads take."""
    builder, test = is_rare.builder, is_rare.apply("rarely").atom
    outs = builder.select(test, lambda: [x.atom for x in correct()], lambda: [x.atom for x in values])
    return [Expr(builder, out) for out in outs]


def _corrected_numpy(
    values: Sequence[Any], is_rare: Any, correct: Callable[[], Sequence[Any]]
) -> Sequence[Any]:
    """The same of NumPy arrays."""
    return [np.where(is_rare, new, old) for new, old in zip(correct(), values, strict=True)]


_OPERATIONS: dict[str, Any] = {
    "sqrt": sqrt, "sin": sin, "cos": cos, "asin": asin, "acos": acos, "atan2": atan2, "log": log,
    "cbrt": cbrt, "floor": floor, "magnitude": abs_, "where": where, "both": and_, "either": or_, "le": le,
    "equal": eq, "min": min_, "max": max_, "shr": shr, "xor": bit_xor, "rem": mod_unsigned,
}  # fmt: skip

# `norm` is the length of a vector, `unit` its components divided by that; `to` converts a number to a type,
# and `epsilon` is the distance from 1 to the next number of its own; `const` is a
# constant of the type of a number, or of another.
_OF_EXPRESSIONS = SimpleNamespace(
    **_OPERATIONS,
    norm=lambda v: vector(v).apply("length"),
    unit=lambda v: parts(vector(v).apply("normalize")),
    to=in_scalar,
    type_of=lambda x: scalar_of(x.type),
    epsilon=lambda x: epsilon(scalar_of(x.type).dtype),
    const=lambda x, number, type=None: x.const(number, type),
    repeated=_repeated,
    corrected=_corrected,
)
_OF_ARRAYS = SimpleNamespace(
    **{name: operation.overloads[0].numpy for name, operation in _OPERATIONS.items()},
    norm=lambda v: overloads("length")[0].numpy(stacked(v)),
    unit=lambda v: components_of(overloads("normalize")[0].numpy(stacked(v))),
    to=lambda x, scalar: converted(x, scalar.dtype),
    type_of=lambda x: BY_DTYPE[np.asarray(x).dtype],
    epsilon=lambda x: epsilon(x.dtype),
    const=lambda x, number, type=None: (type or BY_DTYPE[x.dtype]).dtype.type(number),
    repeated=_repeated_numpy,
    corrected=_corrected_numpy,
)


def composite(
    *, derivative: Derivative = _EXPANDED, **record: Any
) -> Callable[[Callable[..., Any]], Callable[..., Expr]]:
    """Register the record of the decorated function, which says what the operation computes.

    Its first parameter has the functions for expressions, or for NumPy arrays; the others are the operands.
    `record` are more arguments of `builtin`.
    """

    def decorate(meaning: Callable[..., Any]) -> Callable[..., Expr]:
        signature = inspect.signature(meaning)
        _, *parameters = signature.parameters.values()
        operands = [parameter.annotation for parameter in parameters]
        result: Pattern = signature.return_annotation
        setattr(meaning, "__signature__", signature.replace(parameters=parameters))  # noqa: B010
        return builtin(
            expand=lambda *xs: _expression(result, meaning(_OF_EXPRESSIONS, *map(_components, xs))),
            numpy=lambda *xs: _array(result, meaning(_OF_ARRAYS, *map(_columns, operands, xs))),
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
            return entries_of(x)
        case VecPattern() | KindPattern():
            return components_of(x)
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
