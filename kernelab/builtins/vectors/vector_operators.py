"""Vectors: operators component by component.

The operators that are not those of linear algebra: bits of integers, remainders, and a number divided by each
component.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from kernelab.builtins.records.components import each, zero_of
from kernelab.builtins.records.table import ANYWHERE, Float, IntVecN, VecN, builtin
from kernelab.builtins.scalars.arithmetic import (
    NONZERO,
    bit_and,
    bit_or,
    bit_xor,
    invert,
    mod,
    shl,
    shr,
    where,
)
from kernelab.lang.build import Expr
from kernelab.lang.ops import Expanded, Zero, overloads


def _by_component(operation: Any) -> Callable[..., Expr]:
    def expand(*operands: Expr) -> Expr:
        return each(operation, *operands)

    return expand


for _operation in (bit_and, bit_or, bit_xor, shl, shr):
    _op = overloads(_operation.__name__)[0]

    @builtin(
        name=_op.name,
        symbol=_op.symbol,
        expand=_by_component(_operation),
        numpy=_op.numpy,
        derivative=Zero(),
        exact=True,
        domain=_op.domain,
        tags=sorted(_op.tags),
        matrices=_op.numpy,
    )
    def bits_of_vectors(a: IntVecN, b: IntVecN) -> IntVecN:
        """The same component by component."""


@builtin(
    name="invert",
    symbol="~",
    expand=_by_component(invert),
    numpy=np.invert,
    derivative=Zero(),
    exact=True,
    domain=(0.0, 9.0),
    matrices=np.invert,
)
def invert_vector(a: IntVecN) -> IntVecN:
    """All bits of each component flipped."""


def _mod_or_zero(a: Expr, b: Expr) -> Expr:
    is_zero = b.eq(zero_of(b))
    remainder: Expr = where(is_zero, zero_of(a), mod(a, where(is_zero, b.const(1), b)))
    return remainder


@builtin(
    name="mod",
    symbol="%",
    expand=_by_component(_mod_or_zero),
    numpy=lambda a, b: np.where(b == 0, 0, np.mod(a, np.where(b == 0, 1, b))),
    derivative=Zero(),
    exact=True,
    domain=((-9.0, 9.0), (-3.0, 3.0)),
)
def mod_vectors(a: IntVecN, b: IntVecN) -> IntVecN:
    """The remainder component by component, as Python's ``%``; 0 where a component of ``b`` is 0."""


@builtin(
    name="mod",
    symbol="%",
    expand=_by_component(mod),
    numpy=overloads("mod")[2].numpy,
    derivative=Expanded(),
    exact=True,
    domain=(ANYWHERE, NONZERO),
)
def mod_float_vectors(a: VecN, b: VecN) -> VecN:
    """The remainder component by component, as Python's ``%``."""


@builtin(
    name="div",
    symbol="/",
    expand=_by_component(Expr.__truediv__),
    numpy=lambda s, v: s[..., None] / v,
    derivative=Expanded(),
    exact=True,
    domain=(ANYWHERE, NONZERO),
    matrices=lambda s, m: s[..., None, None] / m,
)
def div_by_vector(a: Float, b: VecN) -> VecN:
    """The number ``a`` divided by each component."""
