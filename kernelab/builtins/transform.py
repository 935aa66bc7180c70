"""Rigid motions and spatial vectors.

A transform is a translation ``p`` and a rotation ``q``, made by ``transform(p, q)``; ``*`` is one after the
other.  A spatial vector is six numbers: an angular part on top, a linear part at the bottom.
"""

from collections.abc import Sequence
from typing import Any

from kernelab.builtins.composite import composite
from kernelab.builtins.rotations import conjugate, product, rotated
from kernelab.builtins.table import Float, Mat33, Mat44, Mat66, QuatF, TransformF, Vec3, Vec6, matrix
from kernelab.builtins.vector import crossed, dotted
from kernelab.lang.ops import Linear


def _sum(*vectors: Sequence[Any]) -> list[Any]:
    first, *others = ([*v] for v in vectors)
    for other in others:
        first = [x + y for x, y in zip(first, other, strict=True)]
    return first


def _multiplied(rows: Sequence[Sequence[Any]], v: Sequence[Any]) -> list[Any]:
    return [dotted(row[:3], v) for row in rows[:3]]


for _name, _symbol in (("mul", "*"), ("transform_multiply", "")):

    @composite(name=_name, symbol=_symbol, exact=True)
    def transform_multiply(m: Any, a: TransformF, b: TransformF) -> TransformF:
        """The transform ``b``, then ``a``."""
        return [*_sum(rotated(a[3:], b[:3]), a[:3]), *product(a[3:], b[3:])]


@composite(exact=True)
def transform_inverse(m: Any, xform: TransformF) -> TransformF:
    """The transform that undoes ``xform``, whose rotation has length 1."""
    back = conjugate(xform[3:])
    return [*(-x for x in rotated(back, xform[:3])), *back]


@composite(exact=True)
def transform_get_translation(m: Any, xform: TransformF) -> Vec3:
    """The translation of ``xform``."""
    return xform[:3]


@composite(exact=True)
def transform_get_rotation(m: Any, xform: TransformF) -> QuatF:
    """The rotation of ``xform``."""
    return xform[3:]


@composite(exact=True)
def transform_set_translation(m: Any, xform: TransformF, p: Vec3) -> TransformF:
    """``xform`` with the translation ``p``: it changes the variable, as ``xform.p = p`` does."""
    return [*p, *xform[3:]]


@composite(exact=True)
def transform_set_rotation(m: Any, xform: TransformF, q: QuatF) -> TransformF:
    """``xform`` with the rotation ``q``: it changes the variable, as ``xform.q = q`` does."""
    return [*xform[:3], *q]


@composite(exact=True)
def transform_point(m: Any, xform: TransformF, point: Vec3) -> Vec3:
    """``point`` moved by ``xform``: turned, then shifted."""
    return _sum(rotated(xform[3:], point), xform[:3])


@composite(exact=True)
def transform_vector(m: Any, xform: TransformF, vec: Vec3) -> Vec3:
    """The direction ``vec`` turned by ``xform``."""
    return rotated(xform[3:], vec)


@composite(name="transform_point", exact=True)
def transform_point_by_matrix(m: Any, mat: Mat44, point: Vec3) -> Vec3:
    """``point`` moved by the first three rows of ``mat``, whose last column is the translation."""
    return _sum(_multiplied(mat, point), [row[3] for row in mat[:3]])


@composite(name="transform_vector", exact=True)
def transform_vector_by_matrix(m: Any, mat: Mat44, vec: Vec3) -> Vec3:
    """The direction ``vec`` turned by the upper left corner of ``mat``."""
    return _multiplied(mat, vec)


@composite(exact=True)
def spatial_dot(m: Any, a: Vec6, b: Vec6) -> Float:
    """The inner product of two spatial vectors."""
    return dotted(a, b)


@composite(exact=True)
def spatial_top(m: Any, svec: Vec6) -> Vec3:
    """The first, angular part of a spatial vector."""
    return svec[:3]


@composite(exact=True)
def spatial_bottom(m: Any, svec: Vec6) -> Vec3:
    """The second, linear part of a spatial vector."""
    return svec[3:]


@composite(exact=True)
def spatial_cross(m: Any, a: Vec6, b: Vec6) -> Vec6:
    """The rate of change of a motion ``b`` in a frame moving by ``a``: ``w x w'``, ``v x w' + w x v'``."""
    return [*crossed(a[:3], b[:3]), *_sum(crossed(a[3:], b[:3]), crossed(a[:3], b[3:]))]


@composite(exact=True)
def spatial_cross_dual(m: Any, a: Vec6, b: Vec6) -> Vec6:
    """The rate of change of a force ``b`` in a frame moving by ``a``: ``w x w' + v x v'``, ``w x v'``."""
    return [*_sum(crossed(a[:3], b[:3]), crossed(a[3:], b[3:])), *crossed(a[:3], b[3:])]


@composite(exact=True)
def transform_twist(m: Any, t: TransformF, x: Vec6) -> Vec6:
    """The motion ``x`` as seen after ``t = (p, R)``: ``R w`` over ``R v + p x R w``."""
    w, v = rotated(t[3:], x[:3]), rotated(t[3:], x[3:])
    return [*w, *_sum(v, crossed(t[:3], w))]


@composite(exact=True)
def transform_wrench(m: Any, t: TransformF, x: Vec6) -> Vec6:
    """The force ``x`` as seen after ``t = (p, R)``: ``R torque + p x R force`` over ``R force``."""
    torque, force = rotated(t[3:], x[:3]), rotated(t[3:], x[3:])
    return [*_sum(torque, crossed(t[:3], force)), *force]


@composite(exact=True)
def velocity_at_point(m: Any, qd: Vec6, r: Vec3) -> Vec3:
    """The velocity ``v + w x r`` of the point ``r`` of a body that moves by ``qd = (w, v)``."""
    return _sum(qd[3:], crossed(qd[:3], r))


@composite(
    exact=True, derivative=Linear(lambda w, r, s: (_block(w, 0, 0) + _block(w, 3, 3), _block(w, 3, 0)))
)
def spatial_adjoint(m: Any, r: Mat33, s: Mat33) -> Mat66:
    """The matrix of the blocks ``[[r, 0], [s, r]]``; with ``s = skew(p) * r`` it is `transform_twist`."""
    zero = [0.0 * r[0][0]] * 3
    return [*([*row, *zero] for row in r), *([*low, *row] for low, row in zip(s, r, strict=True))]


def _block(w: Any, i: int, j: int) -> Any:
    """The 3 by 3 block of a matrix whose first entry is at ``i, j``."""
    return matrix([[w.at(i + row, j + column) for column in range(3)] for row in range(3)])
