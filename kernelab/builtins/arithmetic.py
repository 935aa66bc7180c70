"""Operators.

What Python's operators mean between numbers, truth values and integers.  Signed integers wrap around; `//`
and `%` follow Python, also for floats.  Between vectors and matrices: see `vector` and `matrix`.
"""

import math
from functools import partial
from typing import Any

import numpy as np

from kernelab.builtins.table import (
    Bool,
    Element,
    Float,
    Int,
    Number,
    Signed,
    Unsigned,
    Whole,
    builtin,
    or_zero,
    piecewise_constant,
    zero_of,
)
from kernelab.lang.build import Expr
from kernelab.lang.ir import Const
from kernelab.lang.ops import Bilinear, Linear, Rules, Zero
from kernelab.lang.types import HALVES, scalar_of

NONZERO = (0.5, 3.0)
EACH = "The same component by component."
COMMUTATIVE = ("commutative",)

SELECTS = ("selects",)
"""The operation passes a cotangent on to one operand, and zero to the others."""


@builtin(
    cpp="({a} + {b})",
    numpy=np.add,
    derivative=Linear(lambda w, a, b: (w, w), signs=(1, 1)),
    exact=True,
    symbol="+",
    tags=COMMUTATIVE,
    by_component="The sum component by component.",
)
def add(a: Number, b: Number) -> Number:
    """The sum ``a + b``."""


@builtin(
    cpp="({a} - {b})",
    numpy=np.subtract,
    derivative=Linear(lambda w, a, b: (w, -w), signs=(1, -1)),
    exact=True,
    symbol="-",
    by_component="The difference component by component.",
)
def sub(a: Number, b: Number) -> Number:
    """The difference ``a - b``."""


@builtin(
    cpp="({a} * {b})",
    numpy=np.multiply,
    exact=True,
    symbol="*",
    tags=COMMUTATIVE,
    derivative=Bilinear(lambda w, a, b: w * b, lambda w, a, b: w * a),
)
def mul(a: Number, b: Number) -> Number:
    """The product ``a * b``."""


@builtin(
    cpp="(-{x})",
    numpy=np.negative,
    derivative=Linear(lambda w, x: (-w,)),
    exact=True,
    symbol="-",
    by_component="The opposite of each component.",
)
def neg(x: Number) -> Number:
    """The opposite ``-x``."""


@builtin(
    cpp="(+{x})",
    numpy=np.positive,
    derivative=Linear(lambda w, x: (w,)),
    exact=True,
    symbol="+",
    by_component="``x`` itself.",
)
def pos(x: Number) -> Number:
    """``x`` itself."""


def _div_jvp(y: Expr, operands: Any, tangents: Any) -> Expr | None:
    r = 1.0 / operands[1]
    direct, through = (None if dot is None else chain(dot, r) for dot in tangents)
    if through is None:
        return direct
    # Not by `y * r`, whose square of `r` may be out of range where the derivative is not.
    moved: Expr = -chain(through, y)
    return moved if direct is None else direct + moved


def _div_vjp(y: Expr, operands: Any, w: Expr) -> tuple[Expr, Expr]:
    share = chain(w, 1.0 / operands[1])
    return share, -chain(share, y)


@builtin(
    cpp="({a} / {b})",
    numpy=np.divide,
    derivative=Rules(_div_jvp, _div_vjp),
    tags=("unbounded",),
    exact=True,
    symbol="/",
    domain=((-3.0, 3.0), NONZERO),
)
def div(a: Float, b: Float) -> Float:
    """The quotient ``a / b``; division by zero gives an infinity or NaN."""


def chain_jvp(y: Expr, operands: Any, tangents: Any) -> Expr | None:
    """The tangent of a masked product, of scalars as of vectors and matrices."""
    (d, p), (d_dot, p_dot) = operands, tangents
    if d_dot is None:
        return None if p_dot is None else chain(d, p_dot)
    moved: Expr = chain(d_dot, p)
    return moved if p_dot is None else moved + chain(d, p_dot)


@builtin(
    cpp="({w} == 0 ? 0 : {d} == 0 ? 0 : {w} * {d})",
    numpy=lambda w, d: np.where((w == 0) | (d == 0), 0, w * d),
    exact=True,
    symbol="*",
    derivative=Bilinear(lambda u, w, d: chain_both(u, d), lambda u, w, d: chain_both(u, w)),
    tags=SELECTS,
)
def chain_both(w: Float, d: Float) -> Float:
    """``w * d``, and 0 where either is 0, even if the other is infinite or NaN.

    It is what `chain` adds to the derivative of its partial.  A factor of 0 has the other as its slope.
    """


@builtin(
    cpp="({d} == 0 ? 0 : {d} * {p})",
    numpy=lambda d, p: np.where(d == 0, 0, d * p),
    exact=True,
    symbol="*",
    derivative=Rules(chain_jvp, lambda y, operands, w: (chain(w, operands[1]), chain_both(w, operands[0]))),
    tags=SELECTS,
)
def chain(d: Float, p: Float) -> Float:
    """A derivative times a partial: ``d * p``, and 0 where ``d`` is 0, even if ``p`` is infinite or NaN."""


@piecewise_constant(
    cpp="({b} == -1 ? ({T})-{a} : ({T})({a} / {b} - ({a} % {b} != 0 && ({a} % {b} < 0) != ({b} < 0))))",
    numpy=np.floor_divide,
    symbol="//",
    domain=((-9.0, 9.0), (1.0, 5.0)),
)
def floordiv(a: Signed, b: Signed) -> Signed:
    """The quotient rounded down, as in Python: ``-7 // 2`` is -4.  An error where ``b`` is 0."""


@piecewise_constant(
    cpp="({a} / {b})", numpy=np.floor_divide, symbol="//", name="floordiv", domain=((0.0, 9.0), (1.0, 5.0))
)
def floordiv_unsigned(a: Unsigned, b: Unsigned) -> Unsigned:
    """The quotient rounded down.  The launch ends with an error where ``b`` is 0."""


@piecewise_constant(
    cpp="({b} == -1 ? ({T})0 : ({T})({a} % {b} + "
    "({a} % {b} != 0 && ({a} % {b} < 0) != ({b} < 0) ? {b} : 0)))",
    numpy=np.mod,
    symbol="%",
    domain=((-9.0, 9.0), (1.0, 5.0)),
)
def mod(a: Signed, b: Signed) -> Signed:
    """The remainder with the sign of ``b``, as in Python: ``-7 % 3`` is 2.  An error where ``b`` is 0."""


@piecewise_constant(cpp="({a} % {b})", numpy=np.mod, symbol="%", name="mod", domain=((0.0, 9.0), (1.0, 5.0)))
def mod_unsigned(a: Unsigned, b: Unsigned) -> Unsigned:
    """The remainder.  The launch ends with an error where ``b`` is 0."""


@builtin(
    cpp="{m}fmod{f}({a}, {b})",
    numpy=np.fmod,
    exact=True,
    domain=((-3.0, 3.0), NONZERO),
    singular=True,
    # Not trunc(a / b): 1.0 / 0.1 rounds up to 10, and fmod(1.0, 0.1) is 1.0 - 9 * 0.1.
    partials=lambda y, a, b: (1.0, -((a - y) / b).apply("rint")),
)
def fmod(a: Float, b: Float) -> Float:
    """The remainder with the sign of ``a``, as in C: ``fmod(-7.0, 3.0)`` is -1."""


def _is_away(r: Expr, b: Expr) -> Expr:
    """Whether a remainder as in C has the other sign than the divisor."""
    return and_(ne(r, 0), ne(lt(r, 0), lt(b, 0)))


def _mod_expand(a: Expr, b: Expr) -> Expr:
    r = fmod(a, b)
    moved: Expr = where(_is_away(r, b), r + b, r)
    # Python gives a remainder of zero the sign of the divisor.
    return where(eq(moved, 0), moved.apply("copysign", b), moved)


@builtin(
    expand=_mod_expand,
    numpy=np.mod,
    name="mod",
    symbol="%",
    domain=((-3.0, 3.0), NONZERO),
    singular=True,
    partials=lambda y, a, b: (1.0, -floordiv(a, b)),
)
def mod_float(a: Float, b: Float) -> Float:
    """The remainder with the sign of ``b``, as in Python; ``a % 0.0`` is NaN.

    The derivative is that of ``a - b * floor(a / b)``, 0 across the jumps.
    """


def _floordiv_expand(a: Expr, b: Expr) -> Expr:
    own = scalar_of(a.type)
    if own in HALVES:  # whose quotient may be rounded across a whole number
        wide: Expr = floordiv(a.apply("float32"), b.apply("float32"))
        return wide.apply(own.name)
    # As Python does: the remainder is exact, so what is left divides almost exactly.  It has the sign of `a`,
    # so that the difference does not overflow.
    r = fmod(a, b)
    whole = (a - r) / b
    quotient: Expr = where(_is_away(r, b), whole - 1.0, whole)
    down = quotient.apply("floor")
    rounded = where(gt(quotient - down, 0.5), down + 1.0, down)
    signed = where(eq(quotient, 0), (quotient * 0.0).apply("copysign", a / b), rounded)
    # By an infinity the quotient is a zero of either sign, or just below it.
    opposite = ne(lt(a, 0), lt(b, 0))
    below = and_(and_(opposite, ne(a, 0)), lt(a.apply("abs"), math.inf))
    by_infinity: Expr = where(below, b.const(-1.0), a / b)
    return where(eq(b, 0), a / b, where(eq(b.apply("abs"), math.inf), by_infinity, signed))


@builtin(
    expand=_floordiv_expand,
    numpy=np.floor_divide,
    derivative=Zero(),
    name="floordiv",
    symbol="//",
    domain=((-3.0, 3.0), NONZERO),
)
def floordiv_float(a: Float, b: Float) -> Float:
    """The quotient rounded down, as in Python: ``1.0 // 0.1`` is 9.  ``a // 0.0`` is ``a / 0.0``."""


def _pow_base(a: Expr, b: Expr) -> Expr | float:
    """dy/da = b a^(b-1), without a power where the exponent is a small constant."""
    match b.atom:
        case Const(1):
            return 1.0
        case Const(2):
            return 2.0 * a
    return chain(b, pow_(a, b - 1.0))


def _pow_exponent(y: Expr, a: Expr) -> Expr:
    return where(eq(a, 0), 0.0, y * a.apply("log"))


@builtin(
    cpp="{m}pow{f}({x}, {y})",
    numpy=np.power,
    name="pow",
    symbol="**",
    singular=True,
    partials=lambda y, a, b: (_pow_base(a, b), _pow_exponent(y, a)),
    domain=((0.3, 3.0), (-2.0, 2.0)),
)
def pow_(x: Float, y: Float) -> Float:
    """The power ``x ** y``; NaN for a negative ``x`` and a ``y`` that is not a whole number.

    ``x ** 0`` is 1 and has derivative 0 in ``x``; ``0 ** y`` has derivative 0 in ``y``.
    """


@builtin(
    cpp="{m}pow{f}({x}, ({T}){y})",
    name="pow",
    symbol="**",
    singular=True,
    domain=((0.3, 3.0), (-4.0, 4.0)),
    numpy=lambda a, n: np.power(a, np.asarray(n).astype(np.asarray(a).dtype)),
    partials=lambda y, a, n: (_pow_base(a, n.apply(str(a.type))), None),
)
def pow_int(x: Float, y: Int) -> Float:
    """The power ``x ** y`` with a whole exponent, which is rounded to the type of ``x``; ``x ** 0`` is 1."""


@piecewise_constant(cpp="({a} < {b})", numpy=np.less, symbol="<")
def lt(a: Number, b: Number) -> Bool:
    """Whether ``a`` is less than ``b``."""


@piecewise_constant(cpp="({a} <= {b})", numpy=np.less_equal, symbol="<=")
def le(a: Number, b: Number) -> Bool:
    """Whether ``a`` is at most ``b``."""


@piecewise_constant(cpp="({a} > {b})", numpy=np.greater, symbol=">")
def gt(a: Number, b: Number) -> Bool:
    """Whether ``a`` is greater than ``b``."""


@piecewise_constant(cpp="({a} >= {b})", numpy=np.greater_equal, symbol=">=")
def ge(a: Number, b: Number) -> Bool:
    """Whether ``a`` is at least ``b``."""


@piecewise_constant(cpp="({a} == {b})", numpy=np.equal, symbol="==", tags=COMMUTATIVE)
def eq(a: Element, b: Element) -> Bool:
    """Whether the two are equal; NaN equals nothing."""


@piecewise_constant(cpp="({a} != {b})", numpy=np.not_equal, symbol="!=", tags=COMMUTATIVE)
def ne(a: Element, b: Element) -> Bool:
    """Whether the two differ."""


@piecewise_constant(cpp="({a} && {b})", numpy=np.logical_and, symbol="and", name="and", tags=COMMUTATIVE)
def and_(a: Bool, b: Bool) -> Bool:
    """Whether both hold."""


@piecewise_constant(cpp="({a} || {b})", numpy=np.logical_or, symbol="or", name="or", tags=COMMUTATIVE)
def or_(a: Bool, b: Bool) -> Bool:
    """Whether at least one holds."""


@piecewise_constant(cpp="__builtin_expect({a}, 0)", numpy=lambda a: a, exact=True)
def rarely(a: Bool) -> Bool:
    """Whether it holds, of what hardly ever does: compilers lay out code, and choose it, accordingly."""


@piecewise_constant(cpp="(!{a})", numpy=np.logical_not, symbol="not", name="not")
def not_(a: Bool) -> Bool:
    """Whether ``a`` does not hold."""


_bitwise = partial(piecewise_constant, tags=COMMUTATIVE, domain=(0.0, 9.0), by_component=EACH)


@_bitwise(cpp="({a} & {b})", numpy=np.bitwise_and, symbol="&")
def bit_and(a: Whole, b: Whole) -> Whole:
    """The bits set in both."""


@_bitwise(cpp="({a} | {b})", numpy=np.bitwise_or, symbol="|")
def bit_or(a: Whole, b: Whole) -> Whole:
    """The bits set in at least one."""


@_bitwise(cpp="({a} ^ {b})", numpy=np.bitwise_xor, symbol="^")
def bit_xor(a: Whole, b: Whole) -> Whole:
    """The bits set in exactly one."""


@piecewise_constant(
    cpp="(~{a})",
    numpy=np.invert,
    symbol="~",
    domain=(0.0, 9.0),
    by_component="All bits of each component flipped.",
)
def invert(a: Int) -> Int:
    """All bits flipped."""


@piecewise_constant(
    cpp="(({U}){b} < sizeof({T}) * 8 ? ({T})(({U}){a} << {b}) : ({T})0)",
    numpy=np.left_shift,
    symbol="<<",
    domain=((-9.0, 9.0), (0.0, 9.0)),
    by_component=EACH,
)
def shl(a: Int, b: Int) -> Int:
    """The bits of ``a`` moved up by ``b``; 0 where ``b`` is negative or not less than the width."""


@piecewise_constant(
    cpp="(({U}){b} < sizeof({T}) * 8 ? ({T})({a} >> {b}) : ({T})-({a} < 0))",
    numpy=np.right_shift,
    symbol=">>",
    domain=((-9.0, 9.0), (0.0, 9.0)),
    by_component=EACH,
)
def shr(a: Int, b: Int) -> Int:
    """The bits of ``a`` moved down by ``b``, with its sign; 0 or -1 where `shl` gives 0."""


def _where_jvp(y: Expr, operands: Any, tangents: Any) -> Expr | None:
    (cond, a, b), (_, a_dot, b_dot) = operands, tangents
    if a_dot is None and b_dot is None:
        return None
    return where(cond, or_zero(a_dot, a), or_zero(b_dot, b))


def _where_vjp(y: Expr, operands: Any, w: Expr) -> tuple[None, Expr, Expr]:
    cond = operands[0]
    return None, where(cond, w, zero_of(w)), where(cond, zero_of(w), w)


WHERE = Rules(_where_jvp, _where_vjp)


@builtin(
    cpp="({cond} ? {value_if_true} : {value_if_false})",
    numpy=np.where,
    derivative=WHERE,
    exact=True,
    tags=SELECTS,
)
def where(cond: Bool, value_if_true: Element, value_if_false: Element) -> Element:
    """The value for which ``cond`` decides; both are computed, and the derivative follows the one chosen."""
