"""Computes the cotangents of the operands of one operation, by transposing its derivative.

    y = sin(x)      from g, that of y:    g * cos(x)
    y = a * b                             g * b, g * a
    y = a - b                             g, -g
    y = floor(x)                          none

None stands for a cotangent of zero.  Knows records; must not know statements.
"""

from collections.abc import Sequence

from kernelab.lang.build import Expr
from kernelab.lang.ops import Bilinear, Expanded, Linear, Op, Partials, Rules, Undefined, Zero
from kernelab.lang.types import Scalar
from kernelab.passes.ad.jvp import as_tuple, scaled


def pull(op: Op, y: Expr, xs: Sequence[Expr], g: Expr, masked: bool = False) -> tuple[Expr | None, ...]:
    """The cotangents of the operands of ``y = op(xs)`` from the cotangent `g` of its result.

    Where `g` may be a zero that masks a branch, it is multiplied so that it stays zero.
    """
    match op.derivative:
        case Partials(fn, singular):
            return tuple(scaled(g, partial, singular or masked) for partial in as_tuple(fn(y, *xs)))
        case Bilinear() if masked and all(isinstance(x.type, Scalar) for x in xs):
            a, b = xs
            return scaled(g, b, True), scaled(g, a, True)
        case Linear(transpose):
            return _cotangents(transpose(g, *xs))
        case Bilinear(left, right):
            return _cotangents((left(g, *xs), right(g, *xs)))
        case Rules(_, rule):
            return _cotangents(rule(y, tuple(xs), g))
        case Zero() | Undefined():
            return (None,) * len(xs)
        case Expanded():
            raise AssertionError(f"{op.name} should have been expanded")


def _cotangents(value: object) -> tuple[Expr | None, ...]:
    return tuple(item if isinstance(item, Expr) else None for item in as_tuple(value))
