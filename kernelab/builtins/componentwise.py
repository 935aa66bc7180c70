"""Vectors: component by component.

The least and the greatest component, absolute value, comparisons, tests for NaN and infinities, and the
operators that are not those of linear algebra: remainders, and a number divided by each component.
"""

from collections.abc import Callable, Sequence
from functools import partial, reduce
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
    gt,
    lt,
    mod,
    ne,
    or_,
    where,
)
from kernelab.builtins.scalar import abs_, isfinite, isinf, isnan, max_, min_
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
    components_of,
    each,
    on_components,
    parts,
    piecewise_constant,
    zero_of,
)
from kernelab.lang.build import Expr
from kernelab.lang.ops import Expanded, Rules, overloads
from kernelab.lang.types import int32


def _fold_numpy(takes: Any) -> Any:
    return lambda v: reduce(lambda best, x: np.where(takes(x, best), x, best), components_of(v))


def _place(takes: Any, where: Any, components: Sequence[Any], index: Any) -> Any:
    """The index of the best of some expressions or NumPy arrays; `index` is that of the first."""
    best = components[0]
    for k, x in enumerate(components[1:], 1):
        better = takes(x, best)
        best, index = where(better, x, best), where(better, k, index)
    return index


def _place_numpy(takes: Any) -> Any:
    return lambda v: _place(takes, np.where, components_of(v), np.zeros(v.shape[:-1], np.int32))


def _place_expand(takes: Any) -> Any:
    return lambda v: _place(takes, where, parts(v), v.const(0, int32))


def _of_component(place: Any) -> Rules:
    """The derivative of picking the component at `place(v)`."""
    return Rules(
        lambda y, x, dots: dots[0].apply("extract", place(x[0])),
        lambda y, x, w: (zero_of(x[0]).apply("insert", place(x[0]), w),),
    )


@piecewise_constant(expand=_place_expand(lt), numpy=_place_numpy(np.less))
def argmin(a: NumVecN) -> Index:
    """The index of the least component, of the first of these if there are several."""


@piecewise_constant(expand=_place_expand(gt), numpy=_place_numpy(np.greater))
def argmax(a: NumVecN) -> Index:
    """The index of the greatest component, of the first of these if there are several."""


@builtin(
    expand=lambda v: reduce(min_, parts(v)),
    numpy=_fold_numpy(np.less),
    name="min",
    exact=True,
    derivative=_of_component(argmin),
)
def least(a: NumVecN) -> Number:
    """The least component; where there are several, the first has the derivative."""


@builtin(
    expand=lambda v: reduce(max_, parts(v)),
    numpy=_fold_numpy(np.greater),
    name="max",
    exact=True,
    derivative=_of_component(argmax),
)
def greatest(a: NumVecN) -> Number:
    """The greatest component; where there are several, the first has the derivative."""


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
