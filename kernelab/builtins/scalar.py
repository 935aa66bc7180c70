"""Scalar mathematics.

Angles are in radians.  A float of 16 bits is computed in float32 and rounded.  At a kink or a tie the docs
say which derivative is taken; where a partial is infinite, as for `sqrt` at 0, it counts only if the incoming
derivative is not 0, so a branch that is masked out leaves no NaN.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kernelab.builtins.arithmetic import SELECTS, bit_and, chain, ge, gt, le, lt, shr, where
from kernelab.builtins.table import (
    Bool,
    Float,
    Index,
    Int,
    Number,
    builtin,
    each,
    or_zero,
    piecewise_constant,
    vector,
    zero_of,
)
from kernelab.lang.build import Expr
from kernelab.lang.ops import Expanded, Rules, Zero
from kernelab.lang.rounding import Numpy
from kernelab.lang.types import Scalar, scalar_of

UNIT = (-0.95, 0.95)
POSITIVE = (0.1, 3.0)
LN2, LN10 = math.log(2.0), math.log(10.0)


def _function(
    name: str, numpy: Callable[..., Any], partials: Callable[..., Any], /, **record: Any
) -> Callable[[Callable[..., Any]], Callable[..., Expr]]:
    """The decorator of a function of one number that the mathematical library of C has under this name."""
    return builtin(cpp=f"{{m}}{name}{{f}}({{x}})", numpy=numpy, partials=partials, **record)


@_function("sin", np.sin, lambda y, x: cos(x))
def sin(x: Float) -> Float:
    """Sine of ``x``."""


@_function("cos", np.cos, lambda y, x: -sin(x))
def cos(x: Float) -> Float:
    """Cosine of ``x``."""


@_function("tan", np.tan, lambda y, x: 1.0 + y * y, domain=(-1.2, 1.2))
def tan(x: Float) -> Float:
    """Tangent of ``x``."""


def _one_minus_square(x: Expr) -> Expr:
    """``1 - x * x`` to the last digits, and so its slope, for which the factors would cancel near 0."""
    return where(lt(abs_(x), 0.5), 1.0 - x * x, (1.0 - x) * (1.0 + x))


def _circle(x: Expr) -> Expr:
    return _one_minus_square(x).apply("sqrt")


@_function("asin", np.arcsin, lambda y, x: 1.0 / _circle(x), singular=True, domain=UNIT)
def asin(x: Float) -> Float:
    """The angle in [-pi/2, pi/2] whose sine is ``x``; NaN outside [-1, 1]."""


@_function("acos", np.arccos, lambda y, x: -1.0 / _circle(x), singular=True, domain=UNIT)
def acos(x: Float) -> Float:
    """The angle in [0, pi] whose cosine is ``x``; NaN outside [-1, 1]."""


@_function("atan", np.arctan, lambda y, x: 1.0 / (1.0 + x * x))
def atan(x: Float) -> Float:
    """The angle in [-pi/2, pi/2] whose tangent is ``x``."""


def _atan2_partials(angle: Expr, y: Expr, x: Expr) -> tuple[Expr, Expr]:
    r = vector([x, y]).apply("length")  # its square may be out of range where the slopes are not
    return x / r / r, -(y / r / r)


@builtin(
    cpp="{m}atan2{f}({y}, {x})",
    numpy=np.arctan2,
    partials=_atan2_partials,
    singular=True,
    domain=((-3.0, 3.0), POSITIVE),
)
def atan2(y: Float, x: Float) -> Float:
    """The angle in [-pi, pi] of the point ``(x, y)``, 0 at the origin, where there is no derivative."""


@_function("sinh", np.sinh, lambda y, x: cosh(x), tags=("unbounded",))
def sinh(x: Float) -> Float:
    """Hyperbolic sine of ``x``."""


@_function("cosh", np.cosh, lambda y, x: sinh(x), tags=("unbounded",))
def cosh(x: Float) -> Float:
    """Hyperbolic cosine of ``x``."""


@_function("tanh", np.tanh, lambda y, x: 1.0 - y * y)
def tanh(x: Float) -> Float:
    """Hyperbolic tangent of ``x``."""


@_function("asinh", np.arcsinh, lambda y, x: 1.0 / vector([x.const(1.0), x]).apply("length"))
def asinh(x: Float) -> Float:
    """The number whose hyperbolic sine is ``x``."""


@_function(
    "acosh", np.arccosh, lambda y, x: 1.0 / (sqrt(x - 1.0) * sqrt(x + 1.0)), singular=True, domain=(1.1, 4.0)
)
def acosh(x: Float) -> Float:
    """The number from 0 whose hyperbolic cosine is ``x``; NaN below 1, derivative infinite at 1."""


@_function("atanh", np.arctanh, lambda y, x: 1.0 / _one_minus_square(x), singular=True, domain=UNIT)
def atanh(x: Float) -> Float:
    """The number whose hyperbolic tangent is ``x``; infinite at -1 and 1, NaN beyond."""


@_function("exp", np.exp, lambda y, x: y, tags=("unbounded", "vanishes"))
def exp(x: Float) -> Float:
    """The exponential of ``x``."""


@_function("expm1", np.expm1, lambda y, x: exp(x), tags=("unbounded",))
def expm1(x: Float) -> Float:
    """``exp(x) - 1``, to the last digits where ``x`` is close to 0."""


@_function("log", np.log, lambda y, x: 1.0 / x, singular=True, domain=POSITIVE)
def log(x: Float) -> Float:
    """The natural logarithm of ``x``; minus infinity at 0, NaN below."""


@_function("log1p", np.log1p, lambda y, x: 1.0 / (1.0 + x), singular=True, domain=UNIT)
def log1p(x: Float) -> Float:
    """``log(1 + x)``, to the last digits where ``x`` is close to 0; minus infinity at -1, NaN below."""


@_function("log2", np.log2, lambda y, x: 1.0 / (x * LN2), singular=True, domain=POSITIVE)
def log2(x: Float) -> Float:
    """The logarithm of ``x`` to base 2; minus infinity at 0, NaN below."""


@_function("log10", np.log10, lambda y, x: 1.0 / (x * LN10), singular=True, domain=POSITIVE)
def log10(x: Float) -> Float:
    """The logarithm of ``x`` to base 10; minus infinity at 0, NaN below."""


@_function("sqrt", np.sqrt, lambda y, x: 0.5 / y, singular=True, domain=POSITIVE, exact=True)
def sqrt(x: Float) -> Float:
    """The square root of ``x``; NaN below 0, derivative infinite at 0."""


@_function("cbrt", np.cbrt, lambda y, x: 1.0 / (3.0 * y * y), singular=True, domain=POSITIVE)
def cbrt(x: Float) -> Float:
    """The cube root of ``x``, of any sign; derivative infinite at 0."""


@_function(
    "fabs",
    np.abs,
    lambda y, x: where(gt(x, 0.0), 1.0, where(lt(x, 0.0), x.const(-1.0), 0.0)),
    name="abs",
    exact=True,
)
def abs_(x: Float) -> Float:
    """The absolute value of ``x``; derivative 0 at 0."""


@piecewise_constant(cpp="({x} < 0 ? ({T})-{x} : {x})", numpy=np.abs, name="abs")
def abs_int(x: Int) -> Int:
    """The absolute value of ``x``; the least integer is its own."""


@piecewise_constant(
    cpp="({x} < 0 ? ({T})-1 : ({T})1)",
    numpy=lambda x: np.where(x < 0, -1, 1),
    by_component="-1 in the components that are less than 0, 1 in the others.",
)
def sign(x: Number) -> Number:
    """-1 where ``x`` is less than 0, else 1."""


@piecewise_constant(cpp="({x} == 0 ? ({T})0 : ({T})1)", numpy=lambda x: np.where(x == 0, 0, 1))
def nonzero(x: Number) -> Number:
    """0 where ``x`` is 0, else 1."""


@piecewise_constant(cpp="({x} < 0 ? ({T})1 : ({T})0)", numpy=lambda x: np.where(x < 0, 1, 0))
def step(x: Number) -> Number:
    """1 where ``x`` is less than 0, else 0."""


@builtin(
    cpp="{m}copysign{f}({x}, {y})",
    numpy=np.copysign,
    exact=True,
    domain=((0.5, 3.0), (0.5, 3.0)),
    partials=lambda z, x, y: (copysign(x.const(1.0), x) * copysign(y.const(1.0), y), None),
)
def copysign(x: Float, y: Float) -> Float:
    """The absolute value of ``x`` with the sign of ``y``; derivative 0 in ``y``."""


def _bits_expand(x: Expr) -> Expr:
    """Neighbours are added in pairs, then fours, then eights; a product adds the bytes into the highest."""
    bits = x.apply(str(Scalar("uint", scalar_of(x.type).bits))).apply("uint64")
    bits = bits - bit_and(shr(bits, 1), 0x5555555555555555)
    bits = bit_and(bits, 0x3333333333333333) + bit_and(shr(bits, 2), 0x3333333333333333)
    bits = bit_and(bits + shr(bits, 4), 0x0F0F0F0F0F0F0F0F)
    counted: Expr = shr(bits * 0x0101010101010101, 56)
    return counted.apply("int32")


@piecewise_constant(
    expand=_bits_expand,
    numpy=lambda x: np.unpackbits(np.asarray(x)[..., None].view(np.uint8), axis=-1).sum(axis=-1),
    domain=(-99.0, 99.0),
)
def bit_count(x: Int) -> Index:
    """The number of bits of ``x`` that are set."""


def _choice(takes_second: Any) -> Rules:
    """The derivative of what returns its second operand where `takes_second(a, b)`, else its first."""

    def select(operands: Any, first: Expr, second: Expr) -> Expr:
        return each(lambda a, b, x, y: where(takes_second(a, b), y, x), *operands, first, second)

    def jvp(y: Expr, operands: Any, tangents: Any) -> Expr:
        return select(operands, *(or_zero(dot, x) for dot, x in zip(tangents, operands, strict=True)))

    def vjp(y: Expr, operands: Any, w: Expr) -> tuple[Expr, Expr]:
        return select(operands, w, zero_of(w)), select(operands, zero_of(w), w)

    return Rules(jvp, vjp)


@builtin(
    cpp="({b} < {a} ? {b} : {a})",
    numpy=lambda a, b: np.where(b < a, b, a),
    name="min",
    exact=True,
    derivative=_choice(lambda a, b: lt(b, a)),
    tags=SELECTS,
    by_component="The lesser of the two in each component; at a tie the first, which has the derivative.",
)
def min_(a: Number, b: Number) -> Number:
    """The lesser of the two; at a tie, and where one is NaN, the first, which has the derivative."""


@builtin(
    cpp="({b} > {a} ? {b} : {a})",
    numpy=lambda a, b: np.where(b > a, b, a),
    name="max",
    exact=True,
    derivative=_choice(lambda a, b: gt(b, a)),
    tags=SELECTS,
    by_component="The greater of the two in each component; at a tie the first, which has the derivative.",
)
def max_(a: Number, b: Number) -> Number:
    """The greater of the two; at a tie, and where one is NaN, the first, which has the derivative."""


@builtin(
    expand=lambda x, lo, hi: min_(max_(x, lo), hi),
    exact=True,
    derivative=Expanded(),
    tags=SELECTS,
    numpy=lambda x, lo, hi: np.where(hi < np.where(lo > x, lo, x), hi, np.where(lo > x, lo, x)),
    domain=((-3.0, 3.0), (-2.0, -1.0), (1.0, 2.0)),
)
def clamp(x: Number, low: Number, high: Number) -> Number:
    """``min(max(x, low), high)``; on a bound the derivative goes to ``x``."""


@piecewise_constant(cpp="{m}floor{f}({x})", numpy=np.floor)
def floor(x: Float) -> Float:
    """``x`` rounded down to a whole number."""


@piecewise_constant(cpp="{m}ceil{f}({x})", numpy=np.ceil)
def ceil(x: Float) -> Float:
    """``x`` rounded up to a whole number."""


@piecewise_constant(cpp="{m}trunc{f}({x})", numpy=np.trunc)
def trunc(x: Float) -> Float:
    """``x`` rounded towards 0."""


@piecewise_constant(cpp="{m}rint{f}({x})", numpy=np.rint)
def rint(x: Float) -> Float:
    """``x`` rounded to the nearest whole number, halves to the even one."""


def _round_half_away(x: Numpy) -> Numpy:
    whole = np.trunc(x)
    rounded = whole + np.where(np.abs(x - whole) >= 0.5, np.sign(x), 0)
    result: Numpy = np.copysign(rounded, x)
    return result


@piecewise_constant(cpp="{m}round{f}({x})", numpy=_round_half_away, name="round")
def round_(x: Float) -> Float:
    """``x`` rounded to the nearest whole number, halves away from 0; Python's ``round`` is `rint`."""


@builtin(
    expand=lambda x: x - trunc(x), numpy=lambda x: x - np.trunc(x), partials=lambda y, x: 1.0, exact=True
)
def frac(x: Float) -> Float:
    """The fractional part ``x - trunc(x)``, with the sign of ``x``; derivative 1, also across the jumps."""


@piecewise_constant(cpp="({a} != {a})", numpy=np.isnan)
def isnan(a: Float) -> Bool:
    """Whether ``a`` is not a number."""


@piecewise_constant(cpp="({a} == {a} && {a} - {a} != 0)", numpy=np.isinf)
def isinf(a: Float) -> Bool:
    """Whether ``a`` is infinite."""


@piecewise_constant(cpp="({a} - {a} == 0)", numpy=np.isfinite)
def isfinite(a: Float) -> Bool:
    """Whether ``a`` is neither infinite nor NaN."""


@builtin(expand=lambda x: x * (180.0 / math.pi), partials=lambda y, x: 180.0 / math.pi)
def degrees(x: Float) -> Float:
    """``x`` radians in degrees."""


@builtin(expand=lambda x: x * (math.pi / 180.0), partials=lambda y, x: math.pi / 180.0)
def radians(x: Float) -> Float:
    """``x`` degrees in radians."""


@builtin(
    expand=lambda a, b, t: a * (1.0 - t) + b * t, partials=lambda y, a, b, t: (1.0 - t, t, b - a), exact=True
)
def lerp(a: Float, b: Float, t: Float) -> Float:
    """From ``a`` at ``t = 0`` to ``b`` at ``t = 1``: ``a * (1 - t) + b * t``, also outside of these."""


def _progress(a: Any, b: Any, x: Any) -> Expr:
    return clamp((x - a) / (b - a), 0.0, 1.0)


def _smoothstep_expand(a: Expr, b: Expr, x: Expr) -> Expr:
    t = _progress(a, b, x)
    return t * t * (3.0 - 2.0 * t)


def _smoothstep_numpy(a: Numpy, b: Numpy, x: Numpy) -> Numpy:
    t = (x - a) / (b - a)
    t = np.where(t < 0, 0, np.where(t > 1, 1, t)).astype(t.dtype)
    result: Numpy = t * t * (3 - 2 * t)
    return result


def _smoothstep_partials(y: Expr, a: Expr, b: Expr, x: Expr) -> tuple[Expr, Expr, Expr]:
    t, rest = _progress(a, b, x), _progress(b, a, x)  # 1 - t would lose its digits near b
    slope = chain(6.0 * t * rest, 1.0 / (b - a))
    return -(slope * rest), -(slope * t), slope


@builtin(
    expand=_smoothstep_expand,
    numpy=_smoothstep_numpy,
    partials=_smoothstep_partials,
    singular=True,
    domain=((-2.0, -1.0), (1.0, 2.0), (-3.0, 3.0)),
    exact=True,
)
def smoothstep(a: Float, b: Float, x: Float) -> Float:
    """0 up to ``a``, 1 from ``b`` on, smooth between: ``t*t*(3 - 2*t)`` with ``t = (x - a) / (b - a)``."""


# ------------------------------------------------------------------------------------------ special functions


SLOPE = 2.0 / math.sqrt(math.pi)
"""The derivative of the error function at 0."""

STEPS = 3
"""Each step triples the digits: three take a guess that is right to 1 percent beyond float64."""


@_function("erf", np.vectorize(math.erf, otypes=[float]), lambda y, x: SLOPE * exp(-(x * x)))
def erf(x: Float) -> Float:
    """The error function of ``x``."""


@_function("erfc", np.vectorize(math.erfc, otypes=[float]), lambda y, x: -SLOPE * exp(-(x * x)))
def erfc(x: Float) -> Float:
    """The complementary error function ``1 - erf(x)``, accurate where that is small."""


def _guesses(a: Any, c: Any, log: Any, sqrt: Any) -> tuple[Any, Any]:
    """Two guesses of the y >= 0 with ``erf(y) = a`` and ``erfc(y) = c``: for small a, and for all others.

    The first is the beginning of the Taylor series, the second the approximation of S. Winitzki, "A handy
    approximation for the error function and its inverse" (2008).
    """
    near = a * (0.886226925452758 + a * a * (0.232013666534655 + a * a * 0.127556175305598))
    half_log = log(c * (1.0 + a)) * 0.5
    shifted = 4.330746750799873 + half_log
    return near, sqrt(sqrt(shifted * shifted - half_log * 13.605442176870748) - shifted)


def _inverse(a: Expr, c: Expr) -> Expr:
    """The y >= 0 with ``erf(y) = a`` and ``erfc(y) = c``, where ``a + c = 1``, by Halley's method."""
    small = lt(a, 0.5)
    y = where(small, *_guesses(a, c, log, sqrt))
    for _ in range(STEPS):
        # What is missing is the difference of small numbers on either side, or nothing would be left of it.
        missing = where(small, a - erf(y), erfc(y) - c)
        step = missing / (SLOPE * exp(-(y * y)))
        y = y + step / (1.0 - y * step)
    end = where(ge(c, 0.0), float("inf"), c.const(float("nan")))
    return where(gt(c, 0.0), y, where(le(c, 0.0), end, c))


def _inverse_of(a: float, c: float) -> float:
    """The same on the host, one number at a time."""
    if not c > 0.0:
        return math.inf if c == 0.0 else math.nan
    near, far = _guesses(a, c, math.log, math.sqrt)
    y: float = near if a < 0.5 else far
    for _ in range(STEPS):
        missing = a - math.erf(y) if a < 0.5 else math.erfc(y) - c
        slope = SLOPE * math.exp(-(y * y))
        step = missing / slope if slope else 0.0
        y += step / (1.0 - y * step)
    return y


def _erfcinv_of(x: float) -> float:
    c = min(x, 2.0 - x)
    return math.copysign(_inverse_of(1.0 - c, c), 1.0 - x)


@builtin(
    expand=lambda x: copysign(_inverse(abs_(x), 1.0 - abs_(x)), x),
    numpy=np.vectorize(lambda x: math.copysign(_inverse_of(abs(x), 1.0 - abs(x)), x), otypes=[float]),
    partials=lambda y, x: exp(y * y) * (1.0 / SLOPE),
    singular=True,
    domain=(-0.95, 0.95),
)
def erfinv(x: Float) -> Float:
    """The number whose error function is ``x``: infinite at -1 and 1, NaN beyond."""


def _expand_erfcinv(x: Expr) -> Expr:
    c = where(lt(x, 1.0), x, 2.0 - x)
    return copysign(_inverse(1.0 - c, c), 1.0 - x)


@builtin(
    expand=_expand_erfcinv,
    numpy=np.vectorize(_erfcinv_of, otypes=[float]),
    domain=(0.05, 1.95),
    singular=True,
    partials=lambda y, x: exp(y * y) * (-1.0 / SLOPE),
)
def erfcinv(x: Float) -> Float:
    """The number whose complementary error function is ``x``: infinite at 0 and 2, NaN beyond."""


# ------------------------------------------------------------------------------------------------ surrogates
# The difference from the derivative of their value is what they are for, so a gradient check finds it.


@builtin(
    cpp="({x})",
    numpy=np.copy,
    derivative=Zero(),
    exact=True,
    tags=("surrogate",),
    by_component="``x`` itself, as a constant to derivatives: they are 0.",
)
def stop_gradient(x: Float) -> Float:
    """``x`` itself, as a constant to derivatives: they are 0."""
