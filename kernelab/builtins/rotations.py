"""Quaternions and rotations.

The components of a quaternion are ``x, y, z, w``, the real part last; a unit quaternion stands for a
rotation. ``*`` is the product of quaternions: ``(a * b)`` turns by ``b`` first.  `dot`, `length`,
`normalize`, `lerp`, ``+``, ``-`` and products with a number work as for vectors.  Angles are in radians.
Axes are numbered 0, 1, 2 for x, y, z; three of them say in which order a rotation is put together: the first
axis turns first, and all stay fixed in space.
"""

import math
from collections.abc import Sequence
from operator import add, sub
from typing import Any

from kernelab.builtins.composite import composite
from kernelab.builtins.table import ANYWHERE, Float, Index, Mat33, Mat44, QuatF, TransformF, Vec3, Vec4, Vec10
from kernelab.builtins.vector import crossed, dotted
from kernelab.lang.ops import Bilinear, Linear

UNIT = (0.0, 1.0)


def product(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    """The product of quaternions."""
    (ax, ay, az, aw), (bx, by, bz, bw) = a, b
    return [
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by + ay * bw + az * bx - ax * bz,
        aw * bz + az * bw + ax * by - ay * bx,
        aw * bw - ax * bx - ay * by - az * bz,
    ]


def conjugate(q: Sequence[Any]) -> list[Any]:
    """The quaternion that turns back."""
    x, y, z, w = q
    return [-x, -y, -z, w]


def rotated(q: Sequence[Any], v: Sequence[Any]) -> list[Any]:
    """The vector part of q v q*, where q has length 1: (2 w^2 - 1) v + 2 w (u x v) + 2 (u . v) u."""
    u, w = q[:3], q[3]
    along, straight = 2.0 * dotted(u, v), 2.0 * w * w - 1.0
    return [straight * x + 2.0 * w * c + along * k for x, c, k in zip(v, crossed(u, v), u, strict=True)]


@composite(
    name="mul",
    symbol="*",
    exact=True,
    derivative=Bilinear(lambda w, a, b: w * quat_inverse(b), lambda w, a, b: quat_inverse(a) * w),
)
def quat_product(m: Any, a: QuatF, b: QuatF) -> QuatF:
    """The product of two quaternions: the rotation ``b``, then ``a``."""
    return product(a, b)


@composite(exact=True, derivative=Linear(lambda w, q: (quat_inverse(w),)))
def quat_inverse(m: Any, quat: QuatF) -> QuatF:
    """The conjugate, which turns back; the inverse where ``quat`` has length 1."""
    return conjugate(quat)


@composite(exact=True)
def quat_rotate(m: Any, quat: QuatF, vec: Vec3) -> Vec3:
    """``vec`` turned by the unit quaternion ``quat``."""
    return rotated(quat, vec)


@composite(exact=True)
def quat_rotate_inv(m: Any, quat: QuatF, vec: Vec3) -> Vec3:
    """``vec`` turned back by the unit quaternion ``quat``."""
    return rotated(conjugate(quat), vec)


@composite()
def quat_from_axis_angle(m: Any, axis: Vec3, angle: Float) -> QuatF:
    """The rotation by ``angle`` in radians around ``axis``, a unit vector; it is not normalized."""
    half = angle * 0.5
    sine = m.sin(half)
    return [*(x * sine for x in axis), m.cos(half)]


@composite()
def quat_between_vectors(m: Any, a: Vec3, b: Vec3) -> QuatF:
    """The shortest rotation that turns the direction of ``a`` into that of ``b``, of any length above 0.

    Of opposite directions no rotation is the shortest, and a zero vector has none: NaN.
    """
    # The half of the angle: the sum of the rotation by all of it and of none.
    a, b = m.unit(a), m.unit(b)
    q = [*crossed(a, b), dotted(a, a) * dotted(b, b) + dotted(a, b)]
    size = m.norm(q)
    return [x / size for x in q]


@composite(parts=(Vec3, Float))
def quat_to_axis_angle(m: Any, quat: QuatF) -> Vec4:
    """The axis and the angle of a rotation: ``axis, angle = quat_to_axis_angle(quat)``.

    The angle is from 0 to pi.  Without a rotation the axis is 0 and the derivative of both is 0.
    """
    u, w = quat[:3], quat[3]
    size, sign = m.norm(u), m.where(w < 0.0, -1.0 + 0.0 * w, 1.0 + 0.0 * w)
    return [*(x * sign for x in m.unit(u)), 2.0 * m.atan2(size, w * sign)]


@composite()
def quat_rpy(m: Any, roll: Float, pitch: Float, yaw: Float) -> QuatF:
    """The rotation by ``roll`` around x, then ``pitch`` around y, then ``yaw`` around z, in radians."""
    (sr, sp, sy), (cr, cp, cy) = ([f(a * 0.5) for a in (roll, pitch, yaw)] for f in (m.sin, m.cos))
    return [
        sr * cp * cy - cr * sp * sy,
        cr * sp * cy + sr * cp * sy,
        cr * cp * sy - sr * sp * cy,
        cr * cp * cy + sr * sp * sy,
    ]


@composite(domain=((-3.0, 3.0), (-3.0, 3.0), UNIT))
def quat_slerp(m: Any, a: QuatF, b: QuatF, t: Float) -> QuatF:
    """From the unit quaternion ``a`` at 0 to ``b`` at ``t = 1``, at constant speed, the shorter way."""
    cosine = dotted(a, b)
    b = [m.where(cosine < 0.0, -y, y) for y in b]
    apart, together = ([f(x, y) for x, y in zip(a, b, strict=True)] for f in (sub, add))
    angle = 2.0 * m.atan2(m.norm(apart), m.norm(together))
    sine, size = m.sin(angle), dotted(together, together)
    half = dotted(apart, apart) / m.where(size > 0.0, size, 1.0 + 0.0 * sine)
    square = half * (4.0 - half * (8.0 / 3.0 - half * (92.0 / 45.0)))
    near = sine < (100.0 * m.epsilon(sine)) ** (1.0 / 6.0)
    safe = m.where(near, 1.0 + 0.0 * sine, sine)

    def share(s: Any) -> Any:
        """sin(s angle) / sin(angle), and its series where the quotient's derivatives lose their digits."""
        rest = square * (1.0 - s * s) * (1.0 / 6.0 + square * (7.0 - 3.0 * s * s) / 360.0)
        return m.where(near, s * (1.0 + rest), m.sin(s * angle) / safe)

    first, second = share(1.0 - t), share(t)
    return [x * first + y * second for x, y in zip(a, b, strict=True)]


def matrix_entries(q: Sequence[Any]) -> list[list[Any]]:
    """The rows of the matrix that turns as a unit quaternion does."""
    one, none = 1.0 + 0.0 * q[3], 0.0 * q[3]
    axes = [[one if i == j else none for i in range(3)] for j in range(3)]
    columns = [rotated(q, axis) for axis in axes]
    return [[column[i] for column in columns] for i in range(3)]


@composite()
def quat_to_matrix(m: Any, quat: QuatF) -> Mat33:
    """The matrix that turns as the unit quaternion ``quat`` does."""
    return matrix_entries(quat)


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


@composite()
def quat_from_matrix(m: Any, mat: Mat33) -> QuatF:
    """The unit quaternion of a rotation matrix: ``w`` is positive, or the greatest of ``x, y, z`` is.

    Its length is 1 also where the matrix is a rotation but for rounding, and it changes along the unit
    quaternions alone.
    """
    return quaternion_of(m, mat)


@composite(name="quat_from_matrix")
def quat_from_corner(m: Any, mat: Mat44) -> QuatF:
    """The same of the rotation in the upper left corner of a matrix that moves points."""
    return quaternion_of(m, [row[:3] for row in mat[:3]])


# -------------------------------------------------------------- angles, twists, and matrices of rigid motions


AXES = ((0.0, 0.0), (1.0, 1.0), (2.0, 2.0))


def _pick(m: Any, items: Sequence[Any], axis: Any) -> Any:
    return m.where(m.equal(axis, 0), items[0], m.where(m.equal(axis, 1), items[1], items[2]))


def _about(m: Any, axis: Any, angle: Any) -> list[Any]:
    """The rotation by an angle around one of the axes."""
    sine, zero = m.sin(angle * 0.5), angle * 0.0
    return [*(m.where(m.equal(axis, k), sine, zero) for k in range(3)), m.cos(angle * 0.5)]


@composite(domain=(ANYWHERE, *AXES))
def quat_from_euler(m: Any, e: Vec3, i: Index, j: Index, k: Index) -> QuatF:
    """The rotation by ``e[i]`` around axis ``i``, then ``e[j]`` around ``j``, then ``e[k]`` around ``k``."""
    first, second, third = (_about(m, axis, _pick(m, e, axis)) for axis in (i, j, k))
    return product(third, product(second, first))


@composite(domain=(ANYWHERE, *AXES))
def quat_to_euler(m: Any, q: QuatF, i: Index, j: Index, k: Index) -> Vec3:
    """The angles that `quat_from_euler` takes for the rotation ``q``: ``e[i]`` is that around axis ``i``.

    Where the first axis is the last one too, ``e[3 - i - j]`` is the angle of the last turn.  The middle
    angle is from -pi/2 to pi/2, or from 0 to pi where the first axis is the last.  At the ends of that range
    only the sum or the difference of the two others is known; there is no derivative.
    """
    # Bernardes and Viollet, Quaternion to Euler angles conversion (2022), where i = k: proper Euler angles.
    proper, last = m.equal(i, k), 3 - i - j
    w = q[3]
    one = 1.0 + 0.0 * w
    is_even = m.either(m.equal(j - i, 1), m.equal(j - i, -2))
    sign = m.where(is_even, one, -one)
    x, y, z = _pick(m, q, i), _pick(m, q, j), _pick(m, q, last) * sign
    a, b = m.where(proper, w, w - y), m.where(proper, x, x + z)
    c, d = m.where(proper, y, y + w), m.where(proper, z, z - x)
    middle = 2.0 * m.atan2(m.norm([c, d]), m.norm([a, b]))
    total, apart = m.atan2(b, a), m.atan2(d, c)
    first, third = total - apart, total + apart
    third = m.where(proper, third, third * sign)
    middle = m.where(proper, middle, middle - 0.5 * math.pi)
    return [m.where(m.equal(i, axis), first, m.where(m.equal(j, axis), middle, third)) for axis in range(3)]


def _clamped(m: Any, x: Any) -> Any:
    one = 1.0 + 0.0 * x
    return m.where(x > 1.0, one, m.where(x < -1.0, -one, x))


@composite(domain=(-0.4, 0.4))
def quat_to_rpy(m: Any, q: QuatF) -> Vec3:
    """Roll, pitch and yaw of the unit quaternion ``q``: what `quat_rpy` takes.

    Where pitch is a right angle, roll and yaw are not determined and there is no derivative.
    """
    x, y, z, w = q
    return [
        m.atan2(2.0 * (w * x + y * z), 1.0 - 2.0 * (x * x + y * y)),
        m.asin(_clamped(m, 2.0 * (w * y - z * x))),
        m.atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z)),
    ]


@composite()
def quat_twist(m: Any, axis: Vec3, q: QuatF) -> QuatF:
    """The part of the rotation ``q`` that turns around ``axis``, a unit vector.

    It is 0, with derivative 0, where ``q`` is half a turn around an axis at a right angle.
    """
    along = dotted(q[:3], axis)
    twist = [*(x * along for x in axis), q[3]]
    size = m.norm(twist)
    safe = m.where(size > 0.0, size, 1.0 + 0.0 * size)
    return [x / safe for x in twist]


@composite()
def quat_twist_angle(m: Any, axis: Vec3, q: QuatF) -> Float:
    """The angle by which ``q`` turns around ``axis``, a unit vector: from 0 to 2 pi, without sign."""
    along = dotted(q[:3], axis)
    return 2.0 * m.atan2(m.where(along < 0.0, -along, along), q[3])


@composite()
def quat_twist_angle_signed(m: Any, axis: Vec3, q: QuatF) -> Float:
    """The angle by which ``q`` turns around ``axis``, a unit vector: positive by the right-hand rule."""
    return 2.0 * m.atan2(dotted(q[:3], axis), q[3])


def _to_matrix(m: Any, t: Sequence[Any]) -> list[list[Any]]:
    zero = t[0] * 0.0
    turned = matrix_entries(t[3:])
    return [*([*row, x] for row, x in zip(turned, t[:3], strict=True)), [zero, zero, zero, zero + 1.0]]


@composite(exact=True)
def transform_to_matrix(m: Any, xform: TransformF) -> Mat44:
    """The matrix that moves points as ``xform`` does, whose rotation has length 1."""
    return _to_matrix(m, xform)


def _corner(rows: Sequence[Sequence[Any]]) -> tuple[list[Any], list[Sequence[Any]]]:
    """The last column and the rest of the first three rows."""
    return [row[3] for row in rows[:3]], [row[:3] for row in rows[:3]]


@composite()
def transform_from_matrix(m: Any, mat: Mat44) -> TransformF:
    """The transform of a matrix that turns and shifts: its last column and the rotation of its corner."""
    p, turned = _corner(mat)
    return [*p, *quaternion_of(m, turned)]


@composite(exact=True)
def transform_compose(m: Any, position: Vec3, rotation: QuatF, scale: Vec3) -> Mat44:
    """The matrix that scales along the axes, then turns, then shifts."""
    rows = _to_matrix(m, [*position, *rotation])
    scaled = [[x * s for x, s in zip(row[:3], scale, strict=True)] for row in rows[:3]]
    return [*([*row, x] for row, x in zip(scaled, position, strict=True)), rows[3]]


@composite(parts=(Vec3, QuatF, Vec3))
def transform_decompose(functions: Any, m: Mat44) -> Vec10:
    """Position, rotation and scale: what `transform_compose` takes, for a matrix that does not mirror."""
    p, corner = _corner(m)
    scale = [functions.norm([row[k] for row in corner]) for k in range(3)]
    safe = [functions.where(s > 0.0, s, 1.0 + 0.0 * s) for s in scale]
    turned = [[x / s for x, s in zip(row, safe, strict=True)] for row in corner]
    return [*p, *quaternion_of(functions, turned), *scale]
