"""Quaternions and transforms: that they are rotations and motions, by facts found without them."""

from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.lang.types import Quat, float64
from tests.support.table import LANES, case_of, cotangents

RNG = np.random.default_rng(3)


def unit(n: int) -> np.ndarray:
    v = RNG.normal(size=n)
    return v / np.linalg.norm(v)


def turning(axis: np.ndarray, angle: float) -> np.ndarray:
    """Rodrigues' formula: the matrix of a rotation around a unit vector."""
    x, y, z = axis
    k = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + np.sin(angle) * k + (1 - np.cos(angle)) * k @ k


AXIS, OTHER = unit(3), unit(3)
Q, P, V = kl.quat_from_axis_angle(AXIS, np.float64(0.7)), unit(4), RNG.normal(size=3)


def test_a_quaternion_of_axis_and_angle_turns_as_rodrigues_says() -> None:
    np.testing.assert_allclose(kl.quat_to_matrix(Q), turning(AXIS, 0.7), atol=1e-14)
    np.testing.assert_allclose(kl.quat_rotate(Q, V), turning(AXIS, 0.7) @ V, atol=1e-14)
    np.testing.assert_allclose(kl.quat_rotate_inv(Q, V), turning(AXIS, 0.7).T @ V, atol=1e-14)
    axis, angle = kl.quat_to_axis_angle(Q)
    np.testing.assert_allclose([*axis, angle], [*AXIS, 0.7], atol=1e-14)
    axis, angle = kl.quat_to_axis_angle(-Q)
    np.testing.assert_allclose([*axis, angle], [*AXIS, 0.7], atol=1e-14)


def test_the_product_turns_by_the_second_first() -> None:
    both = kl.mul(P, Q)
    np.testing.assert_allclose(kl.quat_rotate(both, V), kl.quat_rotate(P, kl.quat_rotate(Q, V)), atol=1e-14)
    np.testing.assert_allclose(kl.mul(Q, kl.quat_inverse(Q)), [0, 0, 0, 1], atol=1e-14)


@pytest.mark.parametrize("angle", [0.3, 2.0, 3.0, -3.1])
@pytest.mark.parametrize("axis", [(1.0, 0, 0), (0, 1.0, 0), (0, 0, 1.0), tuple(OTHER)])
def test_the_quaternion_of_a_matrix_turns_as_the_matrix(axis: tuple[float, ...], angle: float) -> None:
    matrix = turning(np.array(axis), angle)
    q = kl.quat_from_matrix(matrix)
    np.testing.assert_allclose(kl.quat_to_matrix(q), matrix, atol=1e-14)
    np.testing.assert_allclose(np.linalg.norm(q), 1.0, atol=1e-14)


def test_roll_pitch_and_yaw_turn_around_x_then_y_then_z() -> None:
    x, y, z = np.eye(3)
    matrix = turning(z, 0.7) @ turning(y, 0.5) @ turning(x, 0.3)
    np.testing.assert_allclose(kl.quat_to_matrix(kl.quat_rpy(*np.array([0.3, 0.5, 0.7]))), matrix, atol=1e-14)


def test_interpolation_is_at_constant_speed_and_the_shorter_way() -> None:
    start, end = kl.quat_identity(kl.float64), kl.quat_from_axis_angle(AXIS, np.float64(1.2))
    third = kl.quat_from_axis_angle(AXIS, np.float64(0.4))
    t = np.float64(1 / 3)
    np.testing.assert_allclose(kl.quat_slerp(start, end, t), third, atol=1e-14)
    np.testing.assert_allclose(kl.quat_slerp(start, -end, t), third, atol=1e-14)
    np.testing.assert_allclose(kl.quat_slerp(end, end, t), end, atol=1e-14)


def test_components_and_conventions_are_those_of_warp() -> None:
    q, v = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 0.5, 0.25])
    np.testing.assert_allclose(kl.quat_rotate(q, v), [28.5, 48.5, 12.25])
    np.testing.assert_allclose(kl.quat_to_matrix(q)[0], [33.0, -20.0, 22.0])
    a, b = np.arange(1.0, 7.0), np.array([0.5, -1.0, 2.0, 0.25, 3.0, -2.0])
    np.testing.assert_allclose(kl.spatial_cross(a, b), [7.0, -0.5, -2.0, 3.0, -2.25, -4.0])
    np.testing.assert_allclose(kl.spatial_cross_dual(a, b), [-21.0, 9.0, 8.75, -13.0, 2.75, 2.5])


def test_a_transform_turns_then_shifts_and_its_inverse_undoes_it() -> None:
    a, b = np.concatenate([V, Q]), np.concatenate([OTHER, P])
    point = RNG.normal(size=3)
    np.testing.assert_allclose(kl.transform_point(a, point), turning(AXIS, 0.7) @ point + V, atol=1e-14)
    np.testing.assert_allclose(kl.transform_vector(a, point), turning(AXIS, 0.7) @ point, atol=1e-14)
    once = kl.transform_point(a, kl.transform_point(b, point))
    np.testing.assert_allclose(kl.transform_point(kl.transform_multiply(a, b), point), once, atol=1e-14)
    back = kl.transform_multiply(a, kl.transform_inverse(a))
    np.testing.assert_allclose(back, kl.transform_identity(kl.float64), atol=1e-14)


def test_without_a_rotation_axis_and_angle_have_derivative_zero() -> None:
    still = np.broadcast_to([0.0, 0.0, 0.0, 1.0], (LANES, 4)).copy()
    bars = cotangents(case_of("quat_to_axis_angle", Quat(float64)), [still], np.ones((LANES, 4)))
    assert not bars["quat"].any()


TEXT = """
def turn(
    q: array[quat], t: array[transform], v: array[vec3], y: array[vec3], m: array[float], p: array[quat]
):
    i = tid()
    r = normalize(q[i])
    axis, angle = quat_to_axis_angle(r)
    rest = quat_identity()
    pose = transform(v[i], r * rest) * t[i]
    y[i] = transform_point(transform_inverse(pose), v[i]) + axis * angle + quat_rotate(quat(axis, r.w), v[i])
    s = quat_slerp(r, quat_from_matrix(quat_to_matrix(r)), 0.5)
    r[1] = 2.0
    p[i] = r * 2.0 + s - quat(0.1, 0.2, 0.3, 0.4)
    w = spatial_cross(spatial_vector(v[i], axis), spatial_vector(1.0))
    m[i] = w[0] + spatial_bottom(w).y + dot(s, r) + length(transform_get_rotation(pose)) + s[3]
"""


def test_in_a_kernel_they_are_values_that_differentiate() -> None:
    turn = kl.compile(TEXT)["turn"]
    q = kl.array(RNG.normal(size=(3, 4)), dtype=kl.quat, requires_grad=True)
    t = kl.array(RNG.normal(size=(3, 7)), dtype=kl.transform, requires_grad=True)
    v = kl.array(RNG.normal(size=(3, 3)), dtype=kl.vec3, requires_grad=True)
    outputs = [kl.zeros(3, dtype=kl.vec3), kl.zeros(3), kl.zeros(3, dtype=kl.quat)]
    assert kl.autograd.gradcheck(turn, 3, [q, t, v], outputs)


def test_the_product_with_a_vector_is_refused() -> None:
    text = "def k(q: quat, x: array[vec4]):\n    x[0] = q * x[0]\n"
    with pytest.raises(kl.KernelTypeError, match="cannot multiply quat by vec4"):
        kl.compile(text)


def test_a_host_value_joins_its_parts() -> None:
    pose = kl.transform(kl.vec3(1, 2, 3), kl.quat_identity())
    assert pose.tolist() == [1, 2, 3, 0, 0, 0, 1]
    assert kl.array([pose], dtype=kl.transform).numpy().shape == (1, 7)


@pytest.mark.parametrize("angle", [0.3, 2.2, 3.1, -3.1])
def test_the_quaternion_of_a_matrix_has_length_one_if_the_matrix_is_only_nearly_a_rotation(
    angle: float,
) -> None:
    exact = turning(AXIS, angle)
    found = kl.quat_from_matrix(kl.mat33d(exact + 1e-3 * RNG.normal(size=(3, 3))))
    turned = kl.quat_from_axis_angle(kl.vec3d(*AXIS), np.float64(angle))
    assert np.linalg.norm(found) == pytest.approx(1.0, abs=1e-12)
    assert abs(np.dot(found, turned)) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("angle", [0.0, 1e-6, 1e-5, 1e-3, 0.05, 0.5])
def test_between_close_quaternions_slerp_has_its_first_and_second_derivatives(angle: float) -> None:
    """At a difference of 0 by differences, and in float32 those of float64: no digits are lost beside it."""
    weights = "(1.0, 2.0, 3.0, 4.0)"
    text = "def k(x: array[{0}], y: array[{0}]):\n    a = normalize({1}(x[0], x[1], x[2], x[3]))\n"
    text += f"    y[0] = dot(quat_slerp(a, {{1}}(0.0, 0.0, 0.0, 1.0), x[4]), {{1}}{weights})"

    def function(scalar: str, quaternion: str) -> Any:
        kernel = kl.compile(text.format(scalar, quaternion))["k"]

        def of(x: Any) -> Any:
            y = kl.zeros(1, dtype=x.dtype)
            kl.launch(kernel, dim=1, inputs=[x], outputs=[y])
            return y

        return of

    narrow, wide = function("float32", "quat"), function("float64", "quatd")
    x = kl.array([0.6 * np.sin(angle), 0.8 * np.sin(angle), 0.0, np.cos(angle), 0.3], dtype=kl.float32)
    exact = x.astype(kl.float64)
    for transform, tolerance in ((kl.func.grad, 1e-5), (kl.func.hessian, 1e-3)):
        np.testing.assert_allclose(transform(narrow)(x), transform(wide)(exact), atol=tolerance)
    steps = 1e-4 * np.eye(5)
    after, before = (
        np.stack([kl.func.grad(wide)(kl.array(exact.numpy() + sign * step)).numpy() for step in steps])
        for sign in (1.0, -1.0)
    )
    np.testing.assert_allclose(kl.func.hessian(wide)(exact), (after - before) / 2e-4, atol=1e-6)
