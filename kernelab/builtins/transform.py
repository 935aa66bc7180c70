"""Rigid motions and spatial vectors.

A transform is a translation ``p`` and a rotation ``q``, made by ``transform(p, q)``; ``*`` is one after the
other.  A spatial vector is six numbers: an angular part on top, a linear part at the bottom.
"""

from collections.abc import Sequence
from typing import Any

from kernelab.builtins.composite import composite
from kernelab.builtins.rotations import conjugate, crossed, dotted, product, rotated
from kernelab.builtins.table import Float, Mat33, Mat44, Mat66, QuatF, TransformF, Vec3, Vec6, matrix
from kernelab.lang.ops import Linear


def _sum(*vectors: Sequence[Any]) -> list[Any]:
    first, *others = ([*v] for v in vectors)
    for other in others:
        first = [x + y for x, y in zip(first, other, strict=True)]
    return first


def _composed(m: Any, a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    return [*_sum(rotated(m, a[3:], b[:3]), a[:3]), *product(m, a[3:], b[3:])]


def _inverse(m: Any, t: Sequence[Any]) -> list[Any]:
    back = conjugate(m, t[3:])
    return [*(-x for x in rotated(m, back, t[:3])), *back]


def _multiplied(m: Any, rows: Sequence[Sequence[Any]], v: Sequence[Any]) -> list[Any]:
    return [dotted(row[:3], v) for row in rows[:3]]


for _name, _symbol in (("mul", "*"), ("transform_multiply", "")):

    @composite(_composed, name=_name, symbol=_symbol, exact=True)
    def transform_multiply(a: TransformF, b: TransformF) -> TransformF:
        """The transform ``b``, then ``a``."""


@composite(_inverse, exact=True)
def transform_inverse(xform: TransformF) -> TransformF:
    """The transform that undoes ``xform``, whose rotation has length 1."""


@composite(lambda m, t: t[:3], exact=True)
def transform_get_translation(xform: TransformF) -> Vec3:
    """The translation of ``xform``."""


@composite(lambda m, t: t[3:], exact=True)
def transform_get_rotation(xform: TransformF) -> QuatF:
    """The rotation of ``xform``."""


@composite(lambda m, t, p: [*p, *t[3:]], exact=True)
def transform_set_translation(xform: TransformF, p: Vec3) -> TransformF:
    """``xform`` with the translation ``p``: it changes the variable, as ``xform.p = p`` does."""


@composite(lambda m, t, q: [*t[:3], *q], exact=True)
def transform_set_rotation(xform: TransformF, q: QuatF) -> TransformF:
    """``xform`` with the rotation ``q``: it changes the variable, as ``xform.q = q`` does."""


@composite(lambda m, t, p: _sum(rotated(m, t[3:], p), t[:3]), exact=True)
def transform_point(xform: TransformF, point: Vec3) -> Vec3:
    """``point`` moved by ``xform``: turned, then shifted."""


@composite(lambda m, t, v: rotated(m, t[3:], v), exact=True)
def transform_vector(xform: TransformF, vec: Vec3) -> Vec3:
    """The direction ``vec`` turned by ``xform``."""


@composite(
    lambda m, a, p: _sum(_multiplied(m, a, p), [row[3] for row in a[:3]]),
    name="transform_point",
    exact=True,
)
def transform_point_by_matrix(mat: Mat44, point: Vec3) -> Vec3:
    """``point`` moved by the first three rows of ``mat``, whose last column is the translation."""


@composite(_multiplied, name="transform_vector", exact=True)
def transform_vector_by_matrix(mat: Mat44, vec: Vec3) -> Vec3:
    """The direction ``vec`` turned by the upper left corner of ``mat``."""


@composite(lambda m, a, b: dotted(a, b), exact=True)
def spatial_dot(a: Vec6, b: Vec6) -> Float:
    """The inner product of two spatial vectors."""


@composite(lambda m, a: a[:3], exact=True)
def spatial_top(svec: Vec6) -> Vec3:
    """The first, angular part of a spatial vector."""


@composite(lambda m, a: a[3:], exact=True)
def spatial_bottom(svec: Vec6) -> Vec3:
    """The second, linear part of a spatial vector."""


def _moved(m: Any, a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    return [*crossed(a[:3], b[:3]), *_sum(crossed(a[3:], b[:3]), crossed(a[:3], b[3:]))]


@composite(_moved, exact=True)
def spatial_cross(a: Vec6, b: Vec6) -> Vec6:
    """The rate of change of a motion ``b`` in a frame moving by ``a``: ``w x w'``, ``v x w' + w x v'``."""


def _pushed(m: Any, a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    return [*_sum(crossed(a[:3], b[:3]), crossed(a[3:], b[3:])), *crossed(a[:3], b[3:])]


@composite(_pushed, exact=True)
def spatial_cross_dual(a: Vec6, b: Vec6) -> Vec6:
    """The rate of change of a force ``b`` in a frame moving by ``a``: ``w x w' + v x v'``, ``w x v'``."""


def _twist(m: Any, t: Sequence[Any], x: Sequence[Any]) -> list[Any]:
    w, v = rotated(m, t[3:], x[:3]), rotated(m, t[3:], x[3:])
    return [*w, *_sum(v, crossed(t[:3], w))]


@composite(_twist, exact=True)
def transform_twist(t: TransformF, x: Vec6) -> Vec6:
    """The motion ``x`` as seen after ``t = (p, R)``: ``R w`` over ``R v + p x R w``."""


def _wrench(m: Any, t: Sequence[Any], x: Sequence[Any]) -> list[Any]:
    torque, force = rotated(m, t[3:], x[:3]), rotated(m, t[3:], x[3:])
    return [*_sum(torque, crossed(t[:3], force)), *force]


@composite(_wrench, exact=True)
def transform_wrench(t: TransformF, x: Vec6) -> Vec6:
    """The force ``x`` as seen after ``t = (p, R)``: ``R torque + p x R force`` over ``R force``."""


@composite(lambda m, qd, r: _sum(qd[3:], crossed(qd[:3], r)), exact=True)
def velocity_at_point(qd: Vec6, r: Vec3) -> Vec3:
    """The velocity ``v + w x r`` of the point ``r`` of a body that moves by ``qd = (w, v)``."""


def _adjoint(m: Any, r: Sequence[Sequence[Any]], s: Sequence[Sequence[Any]]) -> list[list[Any]]:
    zero = [0.0 * r[0][0]] * 3
    return [*([*row, *zero] for row in r), *([*low, *row] for low, row in zip(s, r, strict=True))]


@composite(
    _adjoint,
    exact=True,
    derivative=Linear(lambda w, r, s: (_block(w, 0, 0) + _block(w, 3, 3), _block(w, 3, 0))),
)
def spatial_adjoint(r: Mat33, s: Mat33) -> Mat66:
    """The matrix of the blocks ``[[r, 0], [s, r]]``; with ``s = skew(p) * r`` it is `transform_twist`."""


def _block(w: Any, i: int, j: int) -> Any:
    """The 3 by 3 block of a matrix whose first entry is at ``i, j``."""
    return matrix([[w.at(i + row, j + column) for column in range(3)] for row in range(3)])
