"""Vectors.

Operators work component by component; ``*`` is with a scalar, `dot`, `cross`, `outer` and `cw_mul` are the
products of two vectors.  Sums run from the first component to the last.
"""

import operator
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np

from kernelab.builtins.arithmetic import (
    COMMUTATIVE,
    NONZERO,
    SELECTS,
    WHERE,
    and_,
    chain,
    chain_both,
    chain_jvp,
    div,
    eq,
    gt,
    mod,
    mul,
    ne,
    or_,
    where,
)
from kernelab.builtins.composite import composite
from kernelab.builtins.scalar import abs_, isfinite, isinf, isnan, lerp
from kernelab.builtins.table import (
    ANYWHERE,
    AnyVecN,
    Bool,
    Float,
    Index,
    IntVecN,
    Number,
    NumMatNM,
    NumVec3,
    NumVecM,
    NumVecN,
    VecN,
    added,
    builtin,
    each,
    matrix,
    on_components,
    parts,
    piecewise_constant,
    zero_of,
)
from kernelab.lang.build import Expr
from kernelab.lang.ops import Bilinear, Expanded, Rules, Zero, overloads
from kernelab.lang.types import HALVES, Mat, float32, float64, int32

# ------------------------------------------------------------------------- components
#
# The least and the greatest component, absolute value, comparisons, tests for NaN and infinities, and the
# operators that are not those of linear algebra: remainders, and a number divided by each component.


def _place(m: Any, takes: Callable[[Any, Any], Any], components: Sequence[Any]) -> Any:
    """The index of the best component, of the first of these if there are several."""
    best, index = components[0], m.const(components[0], 0, int32)
    for k, x in enumerate(components[1:], 1):
        better = takes(x, best)
        best, index = m.where(better, x, best), m.where(better, k, index)
    return index


def _of_component(place: Any) -> Rules:
    """The derivative of picking the component at `place(v)`."""
    return Rules(
        lambda y, x, dots: dots[0].apply("extract", place(x[0])),
        lambda y, x, w: (zero_of(x[0]).apply("insert", place(x[0]), w),),
    )


@composite(derivative=Zero(), exact=True)
def argmin(m: Any, a: NumVecN) -> Index:
    """The index of the least component, of the first of these if there are several."""
    return _place(m, operator.lt, a)


@composite(derivative=Zero(), exact=True)
def argmax(m: Any, a: NumVecN) -> Index:
    """The index of the greatest component, of the first of these if there are several."""
    return _place(m, operator.gt, a)


@composite(name="min", exact=True, derivative=_of_component(argmin))
def least(m: Any, a: NumVecN) -> Number:
    """The least component; where there are several, the first has the derivative."""
    return reduce(m.min, a)


@composite(name="max", exact=True, derivative=_of_component(argmax))
def greatest(m: Any, a: NumVecN) -> Number:
    """The greatest component; where there are several, the first has the derivative."""
    return reduce(m.max, a)


@builtin(expand=lambda v: each(abs_, v), numpy=np.abs, name="abs", exact=True, derivative=Expanded())
def abs_vector(x: NumVecN) -> NumVecN:
    """The absolute value of each component; derivative 0 at 0."""


@on_components(where, derivative=WHERE, tags=SELECTS)
def where_vector(cond: Bool, value_if_true: AnyVecN, value_if_false: AnyVecN) -> AnyVecN:
    """The value for which ``cond`` decides; both are computed, and the derivative follows the one chosen."""


def _of_components(test: Any, join: Any, whole: Any, **record: Any) -> Callable[..., Any]:
    """The decorator of a test of components, joined to one truth value; `whole` joins those of NumPy."""
    of_numbers = test.overloads[0].numpy
    return piecewise_constant(
        expand=lambda *operands: reduce(join, map(test, *map(parts, operands))),
        numpy=lambda *operands: whole(of_numbers(*operands), axis=-1),
        matrices=lambda *operands: whole(of_numbers(*operands), axis=(-2, -1)),
        name=test.name,
        **record,
    )


@_of_components(eq, and_, np.all, symbol="==", tags=COMMUTATIVE)
def eq_vectors(a: AnyVecN, b: AnyVecN) -> Bool:
    """Whether all components are equal."""


@_of_components(ne, or_, np.any, symbol="!=", tags=COMMUTATIVE)
def ne_vectors(a: AnyVecN, b: AnyVecN) -> Bool:
    """Whether any components differ."""


@_of_components(isnan, or_, np.any)
def isnan_vector(a: VecN) -> Bool:
    """Whether any component is not a number."""


@_of_components(isinf, or_, np.any)
def isinf_vector(a: VecN) -> Bool:
    """Whether any component is infinite."""


@_of_components(isfinite, and_, np.all)
def isfinite_vector(a: VecN) -> Bool:
    """Whether every component is neither infinite nor NaN."""


def _mod_or_zero(a: Expr, b: Expr) -> Expr:
    is_zero = b.eq(zero_of(b))
    return where(is_zero, zero_of(a), mod(a, where(is_zero, b.const(1), b)))


@piecewise_constant(
    name="mod",
    symbol="%",
    expand=partial(each, _mod_or_zero),
    numpy=lambda a, b: np.where(b == 0, 0, np.mod(a, np.where(b == 0, 1, b))),
    domain=((-9.0, 9.0), (-3.0, 3.0)),
)
def mod_vectors(a: IntVecN, b: IntVecN) -> IntVecN:
    """The remainder component by component, as Python's ``%``; 0 where a component of ``b`` is 0."""


@builtin(
    name="mod",
    symbol="%",
    expand=partial(each, mod),
    numpy=overloads("mod")[2].numpy,
    derivative=Expanded(),
    exact=True,
    domain=(ANYWHERE, NONZERO),
)
def mod_float_vectors(a: VecN, b: VecN) -> VecN:
    """The remainder component by component, as Python's ``%``."""


@on_components(div, symbol="/", derivative=Expanded(), domain=(ANYWHERE, NONZERO))
def div_by_vector(a: Float, b: VecN) -> VecN:
    """The number ``a`` divided by each component."""


# ------------------------------------------------------------------------- products


def dotted(a: Sequence[Any], b: Sequence[Any]) -> Any:
    """The sum of the products of components, from the first to the last."""
    return added([x * y for x, y in zip(a, b, strict=True)])


def crossed(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    """The cross product of two lists of components."""
    (ax, ay, az), (bx, by, bz) = a, b
    return [ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx]


def _inner(a: Expr, b: Expr) -> Expr:
    return a.apply("ddot" if isinstance(a.type, Mat) else "dot", b)


@on_components(mul, symbol="*", derivative=Bilinear(lambda w, s, v: _inner(w, v), lambda w, s, v: s * w))
def scale_vector(a: Number, b: NumVecN) -> NumVecN:
    """Each component times a scalar."""


@on_components(mul, symbol="*", derivative=Bilinear(lambda w, v, s: w * s, lambda w, v, s: _inner(w, v)))
def vector_scaled(a: NumVecN, b: Number) -> NumVecN:
    """Each component times a scalar."""


def _div_jvp(y: Expr, operands: Any, tangents: Any) -> Expr | None:
    v_dot, s_dot = tangents
    r = 1.0 / operands[1]
    direct = None if v_dot is None else chain(v_dot, r)
    if s_dot is None:
        return direct
    # Not by the square of `r`, as for numbers.
    moved: Expr = -each(chain, chain(s_dot, r), y)
    return moved if direct is None else direct + moved


def _div_vjp(y: Expr, operands: Any, w: Expr) -> tuple[Expr, Expr]:
    share = chain(w, 1.0 / operands[1])
    return share, -added(parts(each(chain, share, y)))


@on_components(
    div, symbol="/", derivative=Rules(_div_jvp, _div_vjp), domain=(ANYWHERE, NONZERO), tags=("unbounded",)
)
def div_vector(a: VecN, b: Float) -> VecN:
    """Each component divided by a scalar."""


@on_components(
    chain,
    symbol="*",
    derivative=Rules(chain_jvp, lambda y, x, w: (chain(w, x[1]), added(parts(each(chain_both, w, x[0]))))),
    tags=SELECTS,
)
def chain_scaled(d: VecN, p: Float) -> VecN:
    """A derivative times a partial: 0 where ``d`` has a 0, even if ``p`` is infinite or NaN."""


@on_components(
    chain,
    symbol="*",
    derivative=Rules(chain_jvp, lambda y, x, w: (chain(w, x[1]), each(chain_both, w, x[0]))),
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


@composite(derivative=Bilinear(lambda w, a, b: w * b, lambda w, a, b: w * a), exact=True, tags=COMMUTATIVE)
def dot(m: Any, a: NumVecN, b: NumVecN) -> Number:
    """The inner product: the sum of the products of the components."""
    return dotted(a, b)


@composite(derivative=Bilinear(lambda w, a, b: cross(b, w), lambda w, a, b: cross(w, a)), exact=True)
def cross(m: Any, a: NumVec3, b: NumVec3) -> NumVec3:
    """The cross product of two vectors in space."""
    return crossed(a, b)


@builtin(
    expand=lambda a, b: matrix([[x * y for y in parts(b)] for x in parts(a)]),
    exact=True,
    numpy=lambda a, b: a[..., :, None] * b[..., None, :],
    derivative=Bilinear(lambda w, a, b: w * b, lambda w, a, b: a * w),
)
def outer(a: NumVecN, b: NumVecM) -> NumMatNM:
    """The matrix of all products ``a[i] * b[j]``."""


@composite(
    derivative=Rules(lambda y, x, dots: 2.0 * dot(x[0], dots[0]), lambda y, x, w: (x[0] * (2.0 * w),)),
    exact=True,
    tags=("product",),
)
def length_sq(m: Any, a: NumVecN) -> Number:
    """The square of the length: ``dot(a, a)``."""
    return added([x * x for x in a])


# ------------------------------------------------------------------------- length
#
# Squares overflow, or vanish, long before the length does.  Where they do, a branch that hardly any thread
# takes multiplies the components by a power of two first, which rounds nothing.


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


def scaled(m: Any, v: Sequence[Any]) -> tuple[list[Any], Any]:
    """Components times a power of two with which their squares are in range, and its inverse."""
    components, limits = _widened(m, v)
    total, first = added([x * x for x in components]), components[0]
    small, large = total < limits.low, total > limits.high

    def chosen(up: float, down: float) -> Any:
        return m.where(small, m.const(first, up), m.where(large, m.const(first, down), m.const(first, 1.0)))

    factor = chosen(limits.up, limits.down)
    return [x * factor for x in components], chosen(1.0 / limits.up, 1.0 / limits.down)


def _widened(m: Any, v: Sequence[Any]) -> tuple[list[Any], _Limits]:
    own = m.type_of(v[0])
    scalar = float32 if own in HALVES else own
    return [m.to(x, scalar) for x in v], _LIMITS[scalar]


Meaning = Callable[[Any, Sequence[Any], Any, Any], list[Any]]
"""Results, from the functions for operands, components, the root of their squares, and the scale of both."""


def _without_overflow(m: Any, v: Sequence[Any], meaning: Meaning) -> list[Any]:
    """What `meaning` makes of components, which are scaled where their squares are out of range."""
    components, limits = _widened(m, v)
    square = added([x * x for x in components])
    small, large = square < limits.low, square > limits.high

    def corrected() -> list[Any]:
        scale, back = (
            m.where(small, m.const(square, one), m.const(square, other))
            for one, other in ((limits.up, limits.down), (1.0 / limits.up, 1.0 / limits.down))
        )
        changed = [x * scale for x in components]
        return meaning(m, changed, m.sqrt(added([x * x for x in changed])), back)

    usual = meaning(m, components, m.sqrt(square), m.const(square, 1.0))
    return [m.to(x, m.type_of(v[0])) for x in m.corrected(usual, m.either(small, large), corrected)]


def _or_one(length: Expr) -> Expr:
    """A length to divide by: 1 for the zero vector, whose components are 0 themselves."""
    return where(gt(length, 0.0), length, 1.0)


@composite(
    derivative=Rules(
        lambda y, x, dots: dot(normalize(x[0]), dots[0]), lambda y, x, w: (normalize(x[0]) * w,)
    ),
    exact=True,
    tags=("product",),
)
def length(m: Any, a: VecN) -> Float:
    """The Euclidean length of ``a``; the zero vector has derivative 0.

    Exact to rounding also where squares of its components would overflow or vanish.
    """
    (size,) = _without_overflow(m, a, lambda m, components, size, back: [size * back])
    return size


def _turned(y: Expr, x: Expr, change: Expr) -> Expr:
    """The part of a change across the unit vector `y`, over the length of `x`: its own transpose."""
    size = length(x)
    across = (change - y * dot(y, change)) / _or_one(size)
    return where(gt(size, 0.0), across, zero_of(across))


@composite(
    derivative=Rules(lambda y, x, dots: _turned(y, x[0], dots[0]), lambda y, x, w: (_turned(y, x[0], w),)),
    exact=True,
    tags=("product",),
)
def normalize(m: Any, a: VecN) -> VecN:
    """``a`` divided by its length, however small or large; the zero vector stays 0 and has derivative 0."""
    return _without_overflow(m, a, _divided)


def _divided(m: Any, components: Sequence[Any], size: Any, back: Any) -> list[Any]:
    size = m.where(size > 0.0, size, m.const(size, 1.0))
    return [x / size for x in components]


@on_components(lerp, derivative=Expanded())
def lerp_vectors(a: VecN, b: VecN, t: Float) -> VecN:
    """From ``a`` at ``t = 0`` to ``b`` at ``t = 1``: ``a * (1 - t) + b * t``."""
