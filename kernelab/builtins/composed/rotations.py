"""Rotations: angles, twists, and matrices of rigid motions.

Angles are in radians.  Axes are numbered 0, 1, 2 for x, y, z; three of them say in which order a rotation is
put together: the first axis turns first, and all stay fixed in space.
"""

from collections.abc import Sequence
from typing import Any

from kernelab.builtins.composed.composite import composite
from kernelab.builtins.composed.quaternion import dotted, matrix_entries, product, quaternion_of
from kernelab.builtins.records.table import ANYWHERE, Float, Index, Mat44, QuatF, TransformF, Vec3, Vec10

AXES = ((0.0, 0.0), (1.0, 1.0), (2.0, 2.0))


def _pick(m: Any, items: Sequence[Any], axis: Any) -> Any:
    """The item at an axis."""
    return m.where(m.equal(axis, 0), items[0], m.where(m.equal(axis, 1), items[1], items[2]))


def _about(m: Any, axis: Any, angle: Any) -> list[Any]:
    """The rotation by an angle around one of the axes."""
    sine, zero = m.sin(angle * 0.5), angle * 0.0
    return [*(m.where(m.equal(axis, k), sine, zero) for k in range(3)), m.cos(angle * 0.5)]


def _from_euler(m: Any, e: Sequence[Any], i: Any, j: Any, k: Any) -> list[Any]:
    first, second, third = (_about(m, axis, _pick(m, e, axis)) for axis in (i, j, k))
    return product(m, third, product(m, second, first))


@composite(_from_euler, domain=(ANYWHERE, *AXES))
def quat_from_euler(e: Vec3, i: Index, j: Index, k: Index) -> QuatF:
    """The rotation by ``e[i]`` around axis ``i``, then ``e[j]`` around ``j``, then ``e[k]`` around ``k``."""


def _to_euler(m: Any, q: Sequence[Any], i: Any, j: Any, k: Any) -> list[Any]:
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
    middle = m.where(proper, middle, middle - 0.5 * PI)
    return [m.where(m.equal(i, axis), first, m.where(m.equal(j, axis), middle, third)) for axis in range(3)]


PI = 3.141592653589793


@composite(_to_euler, domain=(ANYWHERE, *AXES))
def quat_to_euler(q: QuatF, i: Index, j: Index, k: Index) -> Vec3:
    """The angles that `quat_from_euler` takes for the rotation ``q``: ``e[i]`` is that around axis ``i``.

    Where the first axis is the last one too, ``e[3 - i - j]`` is the angle of the last turn.  The middle
    angle is from -pi/2 to pi/2, or from 0 to pi where the first axis is the last.  At the ends of that range
    only the sum or the difference of the two others is known; there is no derivative.
    """


def _clamped(m: Any, x: Any) -> Any:
    one = 1.0 + 0.0 * x
    return m.where(x > 1.0, one, m.where(x < -1.0, -one, x))


def _to_rpy(m: Any, q: Sequence[Any]) -> list[Any]:
    x, y, z, w = q
    return [
        m.atan2(2.0 * (w * x + y * z), 1.0 - 2.0 * (x * x + y * y)),
        m.asin(_clamped(m, 2.0 * (w * y - z * x))),
        m.atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z)),
    ]


@composite(_to_rpy, domain=(-0.4, 0.4))
def quat_to_rpy(q: QuatF) -> Vec3:
    """Roll, pitch and yaw of the unit quaternion ``q``: what `quat_rpy` takes.

    Where pitch is a right angle, roll and yaw are not determined and there is no derivative.
    """


def _twist(m: Any, axis: Sequence[Any], q: Sequence[Any]) -> list[Any]:
    along = dotted(q[:3], axis)
    twist = [*(x * along for x in axis), q[3]]
    size = m.norm(twist)
    safe = m.where(size > 0.0, size, 1.0 + 0.0 * size)
    return [x / safe for x in twist]


@composite(_twist)
def quat_twist(axis: Vec3, q: QuatF) -> QuatF:
    """The part of the rotation ``q`` that turns around ``axis``, a unit vector.

    It is 0, with derivative 0, where ``q`` is half a turn around an axis at a right angle.
    """


def _twist_angle(m: Any, axis: Sequence[Any], q: Sequence[Any]) -> Any:
    along = dotted(q[:3], axis)
    return 2.0 * m.atan2(m.where(along < 0.0, -along, along), q[3])


@composite(_twist_angle)
def quat_twist_angle(axis: Vec3, q: QuatF) -> Float:
    """The angle by which ``q`` turns around ``axis``, a unit vector: from 0 to 2 pi, without sign."""


@composite(lambda m, axis, q: 2.0 * m.atan2(dotted(q[:3], axis), q[3]))
def quat_twist_angle_signed(axis: Vec3, q: QuatF) -> Float:
    """The angle by which ``q`` turns around ``axis``, a unit vector: positive by the right-hand rule."""


def _to_matrix(m: Any, t: Sequence[Any]) -> list[list[Any]]:
    zero = t[0] * 0.0
    turned = matrix_entries(m, t[3:])
    return [*([*row, x] for row, x in zip(turned, t[:3], strict=True)), [zero, zero, zero, zero + 1.0]]


@composite(_to_matrix, exact=True)
def transform_to_matrix(xform: TransformF) -> Mat44:
    """The matrix that moves points as ``xform`` does, whose rotation has length 1."""


def _corner(rows: Sequence[Sequence[Any]]) -> tuple[list[Any], list[Sequence[Any]]]:
    """The last column and the rest of the first three rows."""
    return [row[3] for row in rows[:3]], [row[:3] for row in rows[:3]]


def _from_matrix(m: Any, rows: Sequence[Sequence[Any]]) -> list[Any]:
    p, turned = _corner(rows)
    return [*p, *quaternion_of(m, turned)]


@composite(_from_matrix)
def transform_from_matrix(mat: Mat44) -> TransformF:
    """The transform of a matrix that turns and shifts: its last column and the rotation of its corner."""


def _compose(m: Any, p: Sequence[Any], q: Sequence[Any], scale: Sequence[Any]) -> list[list[Any]]:
    rows = _to_matrix(m, [*p, *q])
    scaled = [[x * s for x, s in zip(row[:3], scale, strict=True)] for row in rows[:3]]
    return [*([*row, x] for row, x in zip(scaled, p, strict=True)), rows[3]]


@composite(_compose, exact=True)
def transform_compose(position: Vec3, rotation: QuatF, scale: Vec3) -> Mat44:
    """The matrix that scales along the axes, then turns, then shifts."""


def _decompose(m: Any, rows: Sequence[Sequence[Any]]) -> list[Any]:
    p, corner = _corner(rows)
    scale = [m.norm([row[k] for row in corner]) for k in range(3)]
    safe = [m.where(s > 0.0, s, 1.0 + 0.0 * s) for s in scale]
    turned = [[x / s for x, s in zip(row, safe, strict=True)] for row in corner]
    return [*p, *quaternion_of(m, turned), *scale]


@composite(_decompose, parts=(Vec3, QuatF, Vec3))
def transform_decompose(m: Mat44) -> Vec10:
    """Position, rotation and scale: what `transform_compose` takes, for a matrix that does not mirror."""
