"""Norms.

How long a vector is, in several ways; `length` is the Euclidean one.  ``delta`` is positive; where it is left
out it is 1.
"""

from collections.abc import Sequence
from typing import Any

from kernelab.builtins.composed.composite import composite
from kernelab.builtins.records.components import added
from kernelab.builtins.records.table import ANYWHERE, Float, VecN

DELTA = (ANYWHERE, (0.5, 2.0))


def _huber(m: Any, v: Sequence[Any], delta: Any) -> Any:
    size = m.norm(v)
    return m.where(m.le(size, delta), 0.5 * added([x * x for x in v]), delta * (size - 0.5 * delta))


def _pseudo_huber(m: Any, v: Sequence[Any], delta: Any) -> Any:
    return m.norm([delta, *v])


def _smooth(m: Any, v: Sequence[Any], delta: Any) -> list[Any]:
    size = _pseudo_huber(m, v, delta)
    safe = m.where(size > 0.0, size, 1.0 + 0.0 * size)
    return [x / safe for x in v]


def _one(v: Sequence[Any]) -> Any:
    return 1.0 + 0.0 * v[0]


@composite(lambda m, v: added([m.magnitude(x) for x in v]), exact=True)
def norm_l1(v: VecN) -> Float:
    """The sum of the absolute values of the components; derivative 0 in a component that is 0."""


@composite(lambda m, v: m.norm(v), exact=True)
def norm_l2(v: VecN) -> Float:
    """The Euclidean length of ``v``, as `length`; the zero vector has derivative 0."""


@composite(_huber, exact=True, domain=DELTA)
def norm_huber(v: VecN, delta: Float) -> Float:
    """Half the square of the length up to ``delta``, then ``delta * (length - delta / 2)``."""


@composite(lambda m, v: _huber(m, v, _one(v)), exact=True, name="norm_huber")
def norm_huber_1(v: VecN) -> Float:
    """The same with ``delta = 1``."""


@composite(_pseudo_huber, exact=True, domain=DELTA)
def norm_pseudo_huber(v: VecN, delta: Float) -> Float:
    """``delta * sqrt(1 + (length / delta) ** 2)``: smooth everywhere, and ``delta`` for the zero vector."""


@composite(lambda m, v: _pseudo_huber(m, v, _one(v)), exact=True, name="norm_pseudo_huber")
def norm_pseudo_huber_1(v: VecN) -> Float:
    """The same with ``delta = 1``."""


@composite(_smooth, exact=True, domain=DELTA)
def smooth_normalize(v: VecN, delta: Float) -> VecN:
    """``v`` divided by `norm_pseudo_huber`: nearly a unit vector where ``v`` is long, smooth at 0."""


@composite(lambda m, v: _smooth(m, v, _one(v)), exact=True, name="smooth_normalize")
def smooth_normalize_1(v: VecN) -> VecN:
    """The same with ``delta = 1``."""
