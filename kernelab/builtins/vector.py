"""Vectors.

Operators work component by component; ``*`` is with a scalar, `dot`, `cross`, `outer` and `cw_mul` are the
products of two vectors.  Sums run from the first component to the last.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kernelab.builtins.arithmetic import (
    COMMUTATIVE,
    NONZERO,
    SELECTS,
    chain,
    chain_jvp,
    div,
    gt,
    mul,
    of_partial,
    where,
)
from kernelab.builtins.scalar import sqrt
from kernelab.builtins.table import (
    ANYWHERE,
    Float,
    Number,
    NumMatNM,
    NumVec3,
    NumVecM,
    NumVecN,
    VecN,
    added,
    builtin,
    components_of,
    each,
    in_scalar,
    matrix,
    on_components,
    or_zero,
    parts,
    stacked,
    vector,
    zero_of,
)
from kernelab.lang.build import Expr
from kernelab.lang.ops import Bilinear, Expanded, Rules
from kernelab.lang.rounding import Numpy, rounded
from kernelab.lang.types import BY_DTYPE, HALVES, Mat, Scalar, float32, float64, scalar_of


def dotted(a: Sequence[Any], b: Sequence[Any]) -> Any:
    """The sum of the products of components, from the first to the last."""
    return added([x * y for x, y in zip(a, b, strict=True)])


def crossed(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    """The cross product of two lists of components."""
    (ax, ay, az), (bx, by, bz) = a, b
    return [ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx]


def _inner(a: Expr, b: Expr) -> Expr:
    """The inner product of two vectors or two matrices."""
    return a.apply("ddot" if isinstance(a.type, Mat) else "dot", b)


@on_components(mul, symbol="*", derivative=Bilinear(lambda w, s, v: _inner(w, v), lambda w, s, v: s * w))
def scale_vector(a: Number, b: NumVecN) -> NumVecN:
    """Each component times a scalar."""


@on_components(mul, symbol="*", derivative=Bilinear(lambda w, v, s: w * s, lambda w, v, s: _inner(w, v)))
def vector_scaled(a: NumVecN, b: Number) -> NumVecN:
    """Each component times a scalar."""


def _div_jvp(y: Expr, operands: Any, tangents: Any) -> Expr | None:
    (v, s), (v_dot, s_dot) = operands, tangents
    r = 1.0 / s
    direct = None if v_dot is None else chain(v_dot, r)
    if s_dot is None:
        return direct
    # Through v, which is finite where y may not be.
    moved: Expr = -(v * chain(chain(s_dot, r), r))
    return moved if direct is None else direct + moved


def _div_vjp(y: Expr, operands: Any, w: Expr) -> tuple[Expr, Expr]:
    v, s = operands
    r = 1.0 / s
    return chain(w, r), -chain(chain(_inner(w, v), r), r)


@on_components(div, symbol="/", derivative=Rules(_div_jvp, _div_vjp), domain=(ANYWHERE, NONZERO))
def div_vector(a: VecN, b: Float) -> VecN:
    """Each component divided by a scalar."""


@on_components(
    chain,
    symbol="*",
    derivative=Rules(chain_jvp, lambda y, x, w: (chain(w, x[1]), added(parts(each(of_partial, w, x[0]))))),
    tags=SELECTS,
)
def chain_scaled(d: VecN, p: Float) -> VecN:
    """A derivative times a partial: 0 where ``d`` has a 0, even if ``p`` is infinite or NaN."""


@on_components(
    chain,
    symbol="*",
    derivative=Rules(chain_jvp, lambda y, x, w: (chain(w, x[1]), each(of_partial, w, x[0]))),
    tags=SELECTS,
)
def chain_each(d: VecN, p: VecN) -> VecN:
    """Derivatives times partials: 0 where ``d`` has a 0, even if ``p`` is infinite or NaN there."""


@on_components(
    mul,
    name="cw_mul",
    derivative=Bilinear(lambda w, a, b: cw_mul(w, b), lambda w, a, b: cw_mul(w, a)),
    tags=COMMUTATIVE,
)
def cw_mul(a: NumVecN, b: NumVecN) -> NumVecN:
    """The product component by component."""


@on_components(div, name="cw_div", derivative=Expanded(), domain=(ANYWHERE, NONZERO))
def cw_div(a: VecN, b: VecN) -> VecN:
    """The quotient component by component."""


@builtin(
    expand=lambda a, b: dotted(parts(a), parts(b)),
    numpy=lambda a, b: dotted(components_of(a), components_of(b)),
    derivative=Bilinear(lambda w, a, b: w * b, lambda w, a, b: w * a),
    exact=True,
    tags=COMMUTATIVE,
)
def dot(a: NumVecN, b: NumVecN) -> Number:
    """The inner product: the sum of the products of the components."""


@builtin(
    expand=lambda a, b: vector(crossed(parts(a), parts(b))),
    numpy=lambda a, b: stacked(crossed(components_of(a), components_of(b))),
    exact=True,
    derivative=Bilinear(lambda w, a, b: cross(b, w), lambda w, a, b: cross(w, a)),
)
def cross(a: NumVec3, b: NumVec3) -> NumVec3:
    """The cross product of two vectors in space."""


@builtin(
    expand=lambda a, b: matrix([[x * y for y in parts(b)] for x in parts(a)]),
    exact=True,
    numpy=lambda a, b: a[..., :, None] * b[..., None, :],
    derivative=Bilinear(lambda w, a, b: w * b, lambda w, a, b: a * w),
)
def outer(a: NumVecN, b: NumVecM) -> NumMatNM:
    """The matrix of all products ``a[i] * b[j]``."""


@builtin(
    expand=lambda v: added([x * x for x in parts(v)]),
    numpy=lambda v: added([x * x for x in components_of(v)]),
    exact=True,
    derivative=Rules(lambda y, x, dots: 2.0 * dot(x[0], dots[0]), lambda y, x, w: (x[0] * (2.0 * w),)),
)
def length_sq(a: NumVecN) -> Number:
    """The square of the length: ``dot(a, a)``."""


# ------------------------------------------------------------------------- length
#
# Squares overflow, or vanish, long before the length does.  Where they might, the components are first
# multiplied by a power of two, which rounds nothing; elsewhere by 1.


class _Limits(NamedTuple):
    """The range of sums of squares used as they are, and the factors that scale components of others."""

    low: float
    high: float
    up: float
    down: float


_LIMITS = {
    float32: _Limits(2.0**-100, 2.0**120, 2.0**100, 2.0**-70),
    float64: _Limits(2.0**-900, 2.0**1000, 2.0**600, 2.0**-550),
}
"""For each type that lengths are computed in: float32 also for numbers of 16 bits."""


def _computed_in(scalar: Scalar) -> Scalar:
    return float32 if scalar in HALVES else scalar


def _scaled(components: Sequence[Any], scalar: Scalar, const: Any, where: Any) -> tuple[list[Any], Any]:
    """Components times a power of two with which their squares are in range, and its inverse.

    They are expressions or NumPy arrays, as are the constants and what `where` chooses.
    """
    limits, total = _LIMITS[scalar], added([x * x for x in components])
    small, large = total < limits.low, total > limits.high

    def chosen(up: float, down: float) -> Any:
        return where(small, const(up), where(large, const(down), const(1.0)))

    factor = chosen(limits.up, limits.down)
    return [x * factor for x in components], chosen(1.0 / limits.up, 1.0 / limits.down)


def _scaled_parts(v: Expr) -> tuple[list[Expr], Expr]:
    scalar = _computed_in(scalar_of(v.type))
    components = [in_scalar(x, scalar) for x in parts(v)]
    return _scaled(components, scalar, components[0].const, where)


def _scaled_arrays(v: Numpy) -> tuple[list[Numpy], Numpy]:
    scalar = _computed_in(BY_DTYPE[v.dtype])
    return _scaled(components_of(v.astype(scalar.dtype)), scalar, scalar.dtype.type, np.where)


def _length(v: Expr) -> Expr:
    components, back = _scaled_parts(v)
    return in_scalar(sqrt(added([x * x for x in components])) * back, scalar_of(v.type))


def length_numpy(v: Numpy) -> Numpy:
    """The lengths of vectors, whose components are the last axis."""
    components, back = _scaled_arrays(v)
    return rounded(np.sqrt(added([x * x for x in components])) * back, v.dtype)


def _or_one(length: Expr) -> Expr:
    """A length to divide by: 1 for the zero vector, whose components are 0 themselves."""
    safe: Expr = where(gt(length, 0.0), length, 1.0)
    return safe


@builtin(
    expand=_length,
    numpy=length_numpy,
    exact=True,
    derivative=Rules(
        lambda y, x, dots: dot(normalize(x[0]), dots[0]), lambda y, x, w: (normalize(x[0]) * w,)
    ),
)
def length(a: VecN) -> Float:
    """The Euclidean length of ``a``; the zero vector has derivative 0.

    Exact to rounding also where squares of its components would overflow or vanish.
    """


def _normalize(v: Expr) -> Expr:
    components, _ = _scaled_parts(v)
    size = _or_one(sqrt(added([x * x for x in components])))
    return vector([in_scalar(x / size, scalar_of(v.type)) for x in components])


def normalize_numpy(v: Numpy) -> Numpy:
    """Vectors divided by their lengths; their components are the last axis."""
    components, _ = _scaled_arrays(v)
    size = np.sqrt(added([x * x for x in components]))
    size = np.where(size > 0, size, size.dtype.type(1))
    return rounded(stacked([x / size for x in components]), v.dtype)


def _turned(y: Expr, x: Expr, change: Expr) -> Expr:
    """The part of a change across the unit vector `y`, over the length of `x`: its own transpose."""
    size = length(x)
    across = (change - y * dot(y, change)) / _or_one(size)
    turned: Expr = where(gt(size, 0.0), across, zero_of(across))
    return turned


@builtin(
    expand=_normalize,
    numpy=normalize_numpy,
    exact=True,
    derivative=Rules(lambda y, x, dots: _turned(y, x[0], dots[0]), lambda y, x, w: (_turned(y, x[0], w),)),
)
def normalize(a: VecN) -> VecN:
    """``a`` divided by its length, however small or large; the zero vector stays 0 and has derivative 0."""


def _lerp_jvp(y: Expr, operands: Any, tangents: Any) -> Expr:
    a, b, t = operands
    a_dot, b_dot, t_dot = (or_zero(d, x) for d, x in zip(tangents, operands, strict=True))
    moved: Expr = a_dot * (1.0 - t) + b_dot * t + (b - a) * t_dot
    return moved


def _lerp_vjp(y: Expr, operands: Any, w: Expr) -> tuple[Expr, Expr, Expr]:
    a, b, t = operands
    return w * (1.0 - t), w * t, _inner(w, b - a)


@builtin(
    expand=lambda a, b, t: a * (1.0 - t) + b * t,
    name="lerp",
    exact=True,
    numpy=lambda a, b, t: a * (1 - t)[..., None] + b * t[..., None],
    derivative=Rules(_lerp_jvp, _lerp_vjp),
    matrices=lambda a, b, t: a * (1 - t)[..., None, None] + b * t[..., None, None],
)
def lerp_vectors(a: VecN, b: VecN, t: Float) -> VecN:
    """From ``a`` at ``t = 0`` to ``b`` at ``t = 1``: ``a * (1 - t) + b * t``."""
