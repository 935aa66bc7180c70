"""Special functions."""

import math
from typing import Any

import numpy as np

from kernelab.builtins.records.table import Float, builtin
from kernelab.builtins.scalars.arithmetic import ge, gt, le, lt, where
from kernelab.builtins.scalars.scalar import abs_, copysign, exp, log, sqrt
from kernelab.lang.build import Expr

SLOPE = 2.0 / math.sqrt(math.pi)
"""The derivative of the error function at 0."""

STEPS = 3
"""Each step triples the digits: three take a guess that is right to 1 percent beyond float64."""

_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


@builtin(cpp="{m}erf{f}({x})", numpy=_erf, partials=lambda y, x: SLOPE * exp(-(x * x)))
def erf(x: Float) -> Float:
    """The error function of ``x``."""


@builtin(cpp="{m}erfc{f}({x})", numpy=_erfc, partials=lambda y, x: -SLOPE * exp(-(x * x)))
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
    result: Expr = where(gt(c, 0.0), y, where(le(c, 0.0), end, c))
    return result


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


def _erfinv_of(x: float) -> float:
    return math.copysign(_inverse_of(abs(x), 1.0 - abs(x)), x)


def _erfcinv_of(x: float) -> float:
    c = min(x, 2.0 - x)
    return math.copysign(_inverse_of(1.0 - c, c), 1.0 - x)


_erfinv = np.vectorize(_erfinv_of, otypes=[np.float64])
_erfcinv = np.vectorize(_erfcinv_of, otypes=[np.float64])


@builtin(
    expand=lambda x: copysign(_inverse(abs_(x), 1.0 - abs_(x)), x),
    numpy=_erfinv,
    partials=lambda y, x: exp(y * y) * (1.0 / SLOPE),
    singular=True,
    domain=(-0.95, 0.95),
)
def erfinv(x: Float) -> Float:
    """The number whose error function is ``x``: infinite at -1 and 1, NaN beyond."""


def _expand_erfcinv(x: Expr) -> Expr:
    c = where(lt(x, 1.0), x, 2.0 - x)
    result: Expr = copysign(_inverse(1.0 - c, c), 1.0 - x)
    return result


@builtin(
    expand=_expand_erfcinv,
    numpy=_erfcinv,
    domain=(0.05, 1.95),
    singular=True,
    partials=lambda y, x: exp(y * y) * (-1.0 / SLOPE),
)
def erfcinv(x: Float) -> Float:
    """The number whose complementary error function is ``x``: infinite at 0 and 2, NaN beyond."""
