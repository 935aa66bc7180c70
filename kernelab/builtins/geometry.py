"""Norms, and geometry of edges and triangles.

A norm says how long a vector is; `length` is the Euclidean one.  ``delta`` of a Huber norm is positive;
where it is left out it is 1.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product
from typing import Any

from kernelab.builtins.composite import composite
from kernelab.builtins.table import ANYWHERE, Float, Vec3, VecN, added
from kernelab.builtins.vector import crossed, dotted
from kernelab.lang.ops import Zero
from kernelab.lang.types import int32


@composite(exact=True)
def norm_l1(m: Any, v: VecN) -> Float:
    """The sum of the absolute values of the components; derivative 0 in a component that is 0."""
    return added([m.magnitude(x) for x in v])


@composite(exact=True)
def norm_l2(m: Any, v: VecN) -> Float:
    """The Euclidean length of ``v``, as `length`; the zero vector has derivative 0."""
    return m.norm(v)


def _with_delta(meaning: Callable[..., Any]) -> Callable[..., Any]:
    """Register the record of a function of ``v`` and ``delta``, and that of the same with ``delta = 1``."""
    operation = composite(exact=True, domain=(ANYWHERE, (0.5, 2.0)))(meaning)

    def at_one(m: Any, v: VecN) -> Any:
        """The same with ``delta = 1``."""
        return meaning(m, v, 1.0 + 0.0 * v[0])

    at_one.__annotations__["return"] = meaning.__annotations__["return"]
    composite(exact=True, name=meaning.__name__)(at_one)
    return operation


@_with_delta
def norm_huber(m: Any, v: VecN, delta: Float) -> Float:
    """Half the square of the length up to ``delta``, then ``delta * (length - delta / 2)``."""
    size = m.norm(v)
    return m.where(m.le(size, delta), 0.5 * added([x * x for x in v]), delta * (size - 0.5 * delta))


@_with_delta
def norm_pseudo_huber(m: Any, v: VecN, delta: Float) -> Float:
    """``delta * sqrt(1 + (length / delta) ** 2)``: smooth everywhere, and ``delta`` for the zero vector."""
    return m.norm([delta, *v])


@_with_delta
def smooth_normalize(m: Any, v: VecN, delta: Float) -> VecN:
    """``v`` divided by `norm_pseudo_huber`: nearly a unit vector where ``v`` is long, smooth at 0."""
    size = m.norm([delta, *v])
    safe = m.where(size > 0.0, size, 1.0 + 0.0 * size)
    return [x / safe for x in v]


# ---------------------------------------------------------------------------------------- edges and triangles


Flag: Any = int32

Point = Sequence[Any]

ROUNDING = 8.0
"""How many units in the last place of the size of a triangle count as touching."""


def _between(a: Point, b: Point) -> list[Any]:
    return [y - x for x, y in zip(a, b, strict=True)]


def _clamped(m: Any, x: Any) -> Any:
    one = 1.0 + 0.0 * x
    return m.where(x > 1.0, one, m.where(x < 0.0, 0.0 * one, x))


def _ratio(m: Any, a: Any, b: Any) -> Any:
    """a / b, and 0 where b is 0."""
    return m.where(b > 0.0, a / m.where(b > 0.0, b, 1.0 + 0.0 * b), 0.0 * a)


@composite(domain=(ANYWHERE, ANYWHERE, ANYWHERE, ANYWHERE, (1e-6, 1e-5)), exact=True)
def closest_point_edge_edge(m: Any, p1: Vec3, q1: Vec3, p2: Vec3, q2: Vec3, epsilon: Float) -> Vec3:
    """The closest points of the edges from ``p1`` to ``q1`` and ``p2`` to ``q2``: ``s``, ``t`` and distance.

    The points are ``p1 + s * (q1 - p1)`` and ``p2 + t * (q2 - p2)``.  An edge whose squared length is at most
    ``epsilon`` counts as its first point.  Parallel edges have many nearest points; one is chosen.  At
    distance 0 the derivative of the distance is 0.
    """
    # Ericson, Real-Time Collision Detection (2005), 5.1.9.
    d1, d2, r = _between(p1, q1), _between(p2, q2), _between(p2, p1)
    a, e, f = dotted(d1, d1), dotted(d2, d2), dotted(d2, r)
    b, c = dotted(d1, d2), dotted(d1, r)
    is_point, is_other = m.le(a, epsilon), m.le(e, epsilon)
    s = _clamped(m, _ratio(m, b * f - c * e, a * e - b * b))
    t = _ratio(m, b * s + f, e)
    # Where the nearest point lies beyond an end of the second edge, it is that end.
    beyond = m.either(t < 0.0, t > 1.0)
    t = _clamped(m, t)
    s = m.where(beyond, _clamped(m, _ratio(m, b * t - c, a)), s)
    none = 0.0 * a
    s = m.where(is_other, _clamped(m, _ratio(m, -c, a)), s)
    t = m.where(is_other, none, m.where(is_point, _clamped(m, _ratio(m, f, e)), t))
    s = m.where(is_point, none, s)
    gap = [x + s * y - t * z for x, y, z in zip(r, d1, d2, strict=True)]
    return [s, t, m.norm(gap)]


def _separates(m: Any, axis: Point, first: Sequence[Point], second: Sequence[Point], size: Any) -> Any:
    """Whether an axis separates the triangles, whose corners are relative to one of the first."""
    ends = []
    for triangle in (first, second):
        places = [dotted(axis, corner) for corner in triangle]
        ends.append((reduce(m.min, places), reduce(m.min, [-x for x in places])))
    (low, minus_high), (other_low, other_minus_high) = ends
    slack = size * m.norm(axis)
    return m.either(low + other_minus_high > slack, other_low + minus_high > slack)


@composite(derivative=Zero(), exact=True)
def intersect_tri_tri(m: Any, v0: Vec3, v1: Vec3, v2: Vec3, u0: Vec3, u1: Vec3, u2: Vec3) -> Flag:
    """1 where two triangles, given by their corners, have a point in common, also in a common plane, else 0.

    What touches up to rounding has.
    """
    # Two triangles are apart exactly if some axis separates them: a normal, the cross product of two edges,
    # or, in a common plane, a normal of an edge.
    first, second = ([_between(v0, corner) for corner in three] for three in ((v0, v1, v2), (u0, u1, u2)))
    edges, others = ([_between(three[k], three[(k + 1) % 3]) for k in range(3)] for three in (first, second))
    normal, other = crossed(edges[0], edges[1]), crossed(others[0], others[1])
    axes = [normal, other, *(crossed(a, b) for a, b in product(edges, others))]
    axes += [crossed(normal, edge) for edge in edges] + [crossed(other, edge) for edge in others]
    size = ROUNDING * m.epsilon(v0[0]) * (m.norm(edges[0]) + m.norm(edges[1]) + m.norm(others[0]))
    apart = _separates(m, axes[0], first, second, size)
    for axis in axes[1:]:
        apart = m.either(apart, _separates(m, axis, first, second, size))
    return m.to(m.equal(apart, False), int32)
