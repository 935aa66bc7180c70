"""Quaternions.

The components are ``x, y, z, w``, the real part last; a unit quaternion stands for a rotation.  ``*`` is the
product of quaternions: ``(a * b)`` turns by ``b`` first.  `dot`, `length`, `normalize`, `lerp`, ``+``, ``-``
and products with a number work as for vectors.
"""

from collections.abc import Sequence
from operator import add, sub
from typing import Any

from kernelab.builtins.composed.composite import composite
from kernelab.builtins.records.table import Float, Mat33, Mat44, QuatF, Vec3, Vec4
from kernelab.lang.ops import Bilinear, Linear

UNIT = (0.0, 1.0)


def crossed(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    """The cross product of two lists of components."""
    (ax, ay, az), (bx, by, bz) = a, b
    return [ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx]


def dotted(a: Sequence[Any], b: Sequence[Any]) -> Any:
    """The sum of the products of components, from the first to the last."""
    total = a[0] * b[0]
    for x, y in zip(a[1:], b[1:], strict=True):
        total = total + x * y
    return total


def product(_: Any, a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    """The product of quaternions."""
    (ax, ay, az, aw), (bx, by, bz, bw) = a, b
    return [
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by + ay * bw + az * bx - ax * bz,
        aw * bz + az * bw + ax * by - ay * bx,
        aw * bw - ax * bx - ay * by - az * bz,
    ]


def conjugate(_: Any, q: Sequence[Any]) -> list[Any]:
    """The quaternion that turns back."""
    x, y, z, w = q
    return [-x, -y, -z, w]


def rotated(_: Any, q: Sequence[Any], v: Sequence[Any]) -> list[Any]:
    """The vector part of q v q*, where q has length 1: (2 w^2 - 1) v + 2 w (u x v) + 2 (u . v) u."""
    u, w = q[:3], q[3]
    along, straight = 2.0 * dotted(u, v), 2.0 * w * w - 1.0
    return [straight * x + 2.0 * w * c + along * k for x, c, k in zip(v, crossed(u, v), u, strict=True)]


def rotated_back(m: Any, q: Sequence[Any], v: Sequence[Any]) -> list[Any]:
    """`v` turned by the conjugate of `q`."""
    return rotated(m, conjugate(m, q), v)


@composite(
    product,
    name="mul",
    symbol="*",
    exact=True,
    derivative=Bilinear(lambda w, a, b: w * quat_inverse(b), lambda w, a, b: quat_inverse(a) * w),
)
def quat_product(a: QuatF, b: QuatF) -> QuatF:
    """The product of two quaternions: the rotation ``b``, then ``a``."""


@composite(conjugate, exact=True, derivative=Linear(lambda w, q: (quat_inverse(w),)))
def quat_inverse(quat: QuatF) -> QuatF:
    """The conjugate, which turns back; the inverse where ``quat`` has length 1."""


@composite(rotated, exact=True)
def quat_rotate(quat: QuatF, vec: Vec3) -> Vec3:
    """``vec`` turned by the unit quaternion ``quat``."""


@composite(rotated_back, exact=True)
def quat_rotate_inv(quat: QuatF, vec: Vec3) -> Vec3:
    """``vec`` turned back by the unit quaternion ``quat``."""


def _from_axis_angle(m: Any, axis: Sequence[Any], angle: Any) -> list[Any]:
    half = angle * 0.5
    sine = m.sin(half)
    return [*(x * sine for x in axis), m.cos(half)]


@composite(_from_axis_angle)
def quat_from_axis_angle(axis: Vec3, angle: Float) -> QuatF:
    """The rotation by ``angle`` in radians around ``axis``, a unit vector; it is not normalized."""


def _between_vectors(m: Any, a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    # The half of the angle: the sum of the rotation by all of it and of none.
    a, b = m.unit(a), m.unit(b)
    q = [*crossed(a, b), dotted(a, a) * dotted(b, b) + dotted(a, b)]
    size = m.norm(q)
    return [x / size for x in q]


@composite(_between_vectors)
def quat_between_vectors(a: Vec3, b: Vec3) -> QuatF:
    """The shortest rotation that turns the direction of ``a`` into that of ``b``, of any length above 0.

    Of opposite directions no rotation is the shortest, and a zero vector has none: NaN.
    """


def _to_axis_angle(m: Any, q: Sequence[Any]) -> list[Any]:
    u, w = q[:3], q[3]
    size, sign = m.norm(u), m.where(w < 0.0, -1.0 + 0.0 * w, 1.0 + 0.0 * w)
    return [*(x * sign for x in m.unit(u)), 2.0 * m.atan2(size, w * sign)]


@composite(_to_axis_angle, parts=(Vec3, Float))
def quat_to_axis_angle(quat: QuatF) -> Vec4:
    """The axis and the angle of a rotation: ``axis, angle = quat_to_axis_angle(quat)``.

    The angle is from 0 to pi.  Without a rotation the axis is 0 and the derivative of both is 0.
    """


def _from_rpy(m: Any, roll: Any, pitch: Any, yaw: Any) -> list[Any]:
    (sr, sp, sy), (cr, cp, cy) = ([f(a * 0.5) for a in (roll, pitch, yaw)] for f in (m.sin, m.cos))
    return [
        sr * cp * cy - cr * sp * sy,
        cr * sp * cy + sr * cp * sy,
        cr * cp * sy - sr * sp * cy,
        cr * cp * cy + sr * sp * sy,
    ]


@composite(_from_rpy)
def quat_rpy(roll: Float, pitch: Float, yaw: Float) -> QuatF:
    """The rotation by ``roll`` around x, then ``pitch`` around y, then ``yaw`` around z, in radians."""


def _slerp(m: Any, a: Sequence[Any], b: Sequence[Any], t: Any) -> list[Any]:
    cosine = dotted(a, b)
    b = [m.where(cosine < 0.0, -y, y) for y in b]
    apart, together = (m.norm([f(x, y) for x, y in zip(a, b, strict=True)]) for f in (sub, add))
    angle = 2.0 * m.atan2(apart, together)
    sine = m.sin(angle)
    near = sine < 1e-6
    safe = m.where(near, 1.0 + 0.0 * sine, sine)
    first = m.where(near, 1.0 - t, m.sin((1.0 - t) * angle) / safe)
    second = m.where(near, t, m.sin(t * angle) / safe)
    return [x * first + y * second for x, y in zip(a, b, strict=True)]


@composite(_slerp, domain=((-3.0, 3.0), (-3.0, 3.0), UNIT))
def quat_slerp(a: QuatF, b: QuatF, t: Float) -> QuatF:
    """From the unit quaternion ``a`` at 0 to ``b`` at ``t = 1``, at constant speed, the shorter way."""


def matrix_entries(m: Any, q: Sequence[Any]) -> list[list[Any]]:
    """The rows of the matrix that turns as a unit quaternion does."""
    one, none = 1.0 + 0.0 * q[3], 0.0 * q[3]
    axes = [[one if i == j else none for i in range(3)] for j in range(3)]
    columns = [rotated(m, q, axis) for axis in axes]
    return [[column[i] for column in columns] for i in range(3)]


@composite(matrix_entries)
def quat_to_matrix(quat: QuatF) -> Mat33:
    """The matrix that turns as the unit quaternion ``quat`` does."""


def quaternion_of(m: Any, rows: Sequence[Sequence[Any]]) -> list[Any]:
    """The unit quaternion of the rows of a rotation matrix, of unit length for what is nearly one, too."""
    (a, b, c), (d, e, f), (g, h, i) = rows
    # Four times the square of w, x, y, z: one of them is at least 1.
    w, x, y, z = a + e + i + 1.0, a - e - i + 1.0, e - a - i + 1.0, i - a - e + 1.0
    by_w, by_x, by_y = a + e + i > 0.0, m.both(m.le(e, a), m.le(i, a)), m.le(i, e)

    def chosen(*options: Any) -> Any:
        return m.where(by_w, options[0], m.where(by_x, options[1], m.where(by_y, options[2], options[3])))

    # A multiple of it, by one factor: the chosen number stands in its own place.
    multiple = [
        chosen(h - f, x, b + d, c + g),
        chosen(c - g, b + d, y, f + h),
        chosen(d - b, c + g, f + h, z),
        chosen(w, h - f, c - g, d - b),
    ]
    length = m.sqrt(dotted(multiple, multiple))
    return [number / length for number in multiple]


@composite(quaternion_of)
def quat_from_matrix(mat: Mat33) -> QuatF:
    """The unit quaternion of a rotation matrix: ``w`` is positive, or the greatest of ``x, y, z`` is.

    Its length is 1 also where the matrix is a rotation but for rounding, and it changes along the unit
    quaternions alone.
    """


def _quaternion_of_corner(m: Any, rows: Sequence[Sequence[Any]]) -> list[Any]:
    return quaternion_of(m, [row[:3] for row in rows[:3]])


@composite(_quaternion_of_corner, name="quat_from_matrix")
def quat_from_corner(mat: Mat44) -> QuatF:
    """The same of the rotation in the upper left corner of a matrix that moves points."""
