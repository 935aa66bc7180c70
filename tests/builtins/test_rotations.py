"""Angles, twists and matrices of rotations, and the attributes of transforms."""

from itertools import permutations, product

import numpy as np
import pytest

import kernelab as kl
from tests.support.table import Numpy

RNG = np.random.default_rng(9)
AXES = [np.int32(k) for k in range(3)]


def same_rotation(a: Numpy, b: Numpy) -> bool:
    return bool(min(np.abs(a - b).max(), np.abs(a + b).max()) < 1e-12)


def unit() -> Numpy:
    q = RNG.normal(size=4)
    return np.asarray(q / np.linalg.norm(q))


@pytest.mark.parametrize("order", list(permutations(AXES)))
def test_angles_around_three_axes_give_the_rotation_back_also_at_gimbal_lock(order: tuple[int, ...]) -> None:
    locked = np.zeros(3)
    locked[order[1]] = np.pi / 2
    for q in [*(unit() for _ in range(8)), kl.quat_from_euler(locked, *order)]:
        angles = kl.quat_to_euler(q, *order)
        assert abs(angles[order[1]]) <= np.pi / 2 + 1e-12
        assert same_rotation(kl.quat_from_euler(angles, *order), q)


@pytest.mark.parametrize(("i", "j"), [(i, j) for i, j in product(range(3), range(3)) if i != j])
def test_proper_euler_angles_turn_around_the_first_axis_twice(i: int, j: int) -> None:
    q, axes = unit(), np.eye(3)
    e = kl.quat_to_euler(q, AXES[i], AXES[j], AXES[i])
    first, middle, last = (
        kl.quat_from_axis_angle(axes[k], angle) for k, angle in ((i, e[i]), (j, e[j]), (i, e[3 - i - j]))
    )
    product_of = kl.transform_multiply
    turns = [np.concatenate([np.zeros(3), turn]) for turn in (last, middle, first)]
    assert same_rotation(product_of(product_of(turns[0], turns[1]), turns[2])[3:], q)
    assert 0.0 <= e[j] <= np.pi


def test_roll_pitch_and_yaw_come_back_and_are_angles_around_x_y_and_z() -> None:
    angles = np.array([0.3, -0.7, 1.1])
    q = kl.quat_rpy(*angles)
    np.testing.assert_allclose(kl.quat_to_rpy(q), angles, atol=1e-14)
    assert same_rotation(kl.quat_from_euler(angles, *AXES), q)


def test_a_twist_is_the_turn_around_an_axis_whatever_swings_afterwards() -> None:
    axis, across = np.array([0.0, 0.0, 1.0]), np.array([1.0, 0.0, 0.0])
    twist = kl.quat_from_axis_angle(axis, np.float64(0.6))
    swing = kl.quat_from_axis_angle(across, np.float64(0.4))
    place = np.zeros(3)
    whole = kl.transform_multiply(np.concatenate([place, swing]), np.concatenate([place, twist])).q
    np.testing.assert_allclose(kl.quat_twist(axis, whole), twist, atol=1e-14)
    assert np.isclose(kl.quat_twist_angle(-axis, whole), 0.6)
    assert np.isclose(kl.quat_twist_angle_signed(-axis, whole), -0.6)


def test_a_matrix_is_put_together_of_position_rotation_and_scale_and_taken_apart() -> None:
    p, q, s = RNG.normal(size=3), unit(), np.array([0.5, 2.0, 3.0])
    m = kl.transform_compose(p, q, s)
    np.testing.assert_allclose(m[:3, :3], kl.quat_to_matrix(q) @ np.diag(s), atol=1e-14)
    found = kl.transform_decompose(m)
    np.testing.assert_allclose(found[0], p, atol=1e-14)
    assert same_rotation(found[1], q)
    np.testing.assert_allclose(found[2], s, atol=1e-14)
    moves = np.concatenate([p, q])
    back = kl.transform_from_matrix(kl.transform_to_matrix(moves))
    assert same_rotation(back[3:], q)
    np.testing.assert_allclose(back[:3], p)


def test_motions_and_forces_change_frames_so_that_power_stays_the_same() -> None:
    t = np.concatenate([RNG.normal(size=3), unit()])
    motion, force = RNG.normal(size=(2, 6))
    before = kl.spatial_dot(motion, force)
    # Here the linear part of a motion meets the force, its angular part the torque.
    after = kl.spatial_dot(kl.transform_twist(t, motion), kl.transform_wrench(t, force))
    assert np.isclose(before, after)
    turn, place = kl.quat_to_matrix(t[3:]), kl.skew(t[:3])
    matrix = kl.spatial_adjoint(turn, place @ turn)
    np.testing.assert_allclose(matrix @ motion, kl.transform_twist(t, motion), atol=1e-14)
    velocity = kl.velocity_at_point(motion, t[:3])
    np.testing.assert_allclose(velocity, motion[3:] + np.cross(motion[:3], t[:3]), atol=1e-14)


TEXT = """
class Body:
    pose: transform
    p: vec3


def move(t: array[transform], v: array[vec3], bodies: array[Body], y: array[vec3], j: array[spatial_matrix]):
    i = tid()
    s = t[i]
    s.p = v[i] * 2.0
    s.p += vec3(1.0)
    s.q = normalize(s.q)
    transform_set_translation(s, s.p * 3.0)
    t[i].p = s.p
    t[i].q = quat_identity()
    bodies[i].pose.p = v[i]
    bodies[i].p = v[i]
    bodies[i].p -= v[i] * 2.0
    b = bodies[i]
    b.p += v[i]
    b.pose.q = quaternion(vec3(0.0), 1.0)
    w = transformation(b.pose.p)
    y[i] = transform_point(s, v[i]) + b.pose.p + w.p + transform_point(b.pose, v[i]) + b.p
    j[i] = spatial_adjoint(quat_to_matrix(s.q), skew(s.p)) * 2.0


def attached(t: array[transform], v: array[vec3], y: array[transform]):
    i = tid()
    s = t[i]
    s.p += cross(s.p, v[i])
    if v[i].x > 0.0:
        transform_set_rotation(s, s.q * quat(v[i], 1.0))
    y[i] = s
    y[i].p = s.p * 2.0


def powers(j: array[spatial_matrix], x: array[spatial_vector], y: array[spatial_vector]):
    i = tid()
    y[i] = transpose(j[i]) * (j[i] * x[i])
"""
KERNELS = kl.compile(TEXT)


def test_translation_and_rotation_of_a_transform_are_read_and_written_as_attributes() -> None:
    v = RNG.normal(size=(2, 3)).astype(np.float32)
    t = kl.array(np.full((2, 7), 0.5), dtype=kl.transform)
    bodies = kl.zeros(2, dtype=KERNELS["Body"])
    y, j = kl.zeros(2, dtype=kl.vec3), kl.zeros(2, dtype=kl.spatial_matrix)
    kl.launch(KERNELS["move"], 2, [t, kl.array(v, dtype=kl.vec3), bodies, y, j])
    place = (v * 2.0 + 1.0) * 3.0
    np.testing.assert_allclose(t.numpy()[:, :3], place, rtol=1e-6)
    np.testing.assert_allclose(t.numpy()[:, 3:], [[0, 0, 0, 1]] * 2)
    q = np.full(4, 0.5)
    turned = np.array([kl.quat_rotate(q, x.astype(float)) for x in v])
    np.testing.assert_allclose(y.numpy(), turned + place + v + v + v + v, rtol=1e-5)
    np.testing.assert_allclose(bodies.numpy()["pose"][:, :3], v)
    np.testing.assert_allclose(bodies.numpy()["p"], -v)
    assert j.numpy().shape == (2, 6, 6)


def test_a_transform_that_is_changed_in_parts_differentiates() -> None:
    t = kl.array(RNG.normal(size=(2, 7)), dtype=kl.transform, requires_grad=True)
    v = kl.array(RNG.normal(size=(2, 3)), dtype=kl.vec3, requires_grad=True)
    assert kl.autograd.gradcheck(KERNELS["attached"], 2, [t, v], [kl.zeros(2, dtype=kl.transform)])


def test_spatial_matrices_are_values_that_multiply_and_differentiate() -> None:
    j = kl.array(RNG.normal(size=(2, 6, 6)), dtype=kl.spatial_matrix, requires_grad=True)
    x = kl.array(RNG.normal(size=(2, 6)), dtype=kl.spatial_vector, requires_grad=True)
    y = kl.zeros(2, dtype=kl.spatial_vector)
    assert kl.autograd.gradcheck(KERNELS["powers"], 2, [j, x], [y])
    kl.launch(KERNELS["powers"], 2, [j, x, y])
    m = j.numpy()
    np.testing.assert_allclose(y.numpy(), np.einsum("nki,nkl,nl->ni", m, m, x.numpy()), rtol=1e-4, atol=1e-4)


FILLED = """
def kernel(q: array[quat], y: array[float]):
    i = tid()
    axis = vec3()
    angle = {start}
    for k in range(2):
        if k == 1:
            quat_to_axis_angle(q[i], axis, angle)
    y[i] = angle * axis.z + angle
"""


@pytest.mark.parametrize("start", ["float(0.0)", "0.0", "float(1)", "2.0 * q[i].w"])
def test_an_angle_that_starts_as_a_literal_is_filled(start: str) -> None:
    kernel = kl.compile(FILLED.format(start=start))["kernel"]
    turns = [kl.quat_from_axis_angle(kl.vec3(0.0, 0.6, 0.8), angle) for angle in (0.5, 2.0)]
    q, y = kl.array(turns, dtype=kl.quat, requires_grad=True), kl.zeros(2, requires_grad=True)
    kernel[2](q, y)
    np.testing.assert_allclose(y.numpy(), [0.9, 3.6], rtol=1e-5)
    assert kl.autograd.gradcheck(kernel, 2, inputs=[q], outputs=[y])


def test_a_truth_value_is_no_angle() -> None:
    with pytest.raises(kl.KernelTypeError, match="fills a variable of type float32, not bool"):
        kl.compile(FILLED.format(start="False"))
