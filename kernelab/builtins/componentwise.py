"""Vectors: component by component.

The least and the greatest component, absolute value, comparisons, tests for NaN and infinities, and the
operators that are not those of linear algebra: remainders, and a number divided by each component.
"""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import gt, lt
from typing import Any

import numpy as np

from kernelab.builtins.arithmetic import (
    COMMUTATIVE,
    NONZERO,
    SELECTS,
    WHERE,
    and_,
    div,
    eq,
    mod,
    ne,
    or_,
    where,
)
from kernelab.builtins.composite import composite
from kernelab.builtins.scalar import abs_, isfinite, isinf, isnan
from kernelab.builtins.table import (
    ANYWHERE,
    AnyVecN,
    Bool,
    Float,
    Index,
    IntVecN,
    Number,
    NumVecN,
    VecN,
    builtin,
    each,
    on_components,
    parts,
    piecewise_constant,
    zero_of,
)
from kernelab.lang.build import Expr
from kernelab.lang.ops import Expanded, Rules, Zero, overloads
from kernelab.lang.types import int32


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
    return _place(m, lt, a)


@composite(derivative=Zero(), exact=True)
def argmax(m: Any, a: NumVecN) -> Index:
    """The index of the greatest component, of the first of these if there are several."""
    return _place(m, gt, a)


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


# ------------------------------------------------------------------------- operators


def _mod_or_zero(a: Expr, b: Expr) -> Expr:
    is_zero = b.eq(zero_of(b))
    remainder: Expr = where(is_zero, zero_of(a), mod(a, where(is_zero, b.const(1), b)))
    return remainder


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
