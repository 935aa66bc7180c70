"""Lengths, directions and angles of vectors, from the smallest numbers of each width to the greatest."""

from typing import Any

import numpy as np
import pytest

import kernelab as kl

WIDTHS = {
    "float16": (kl.float16, kl.vec3h, [6e-8, 3e-6, 2e-3, 1.0, 300.0, 3e4]),
    "bfloat16": (kl.bfloat16, kl.types.vector(3, kl.bfloat16), [1e-38, 1e-30, 1e-20, 1.0, 1e20, 1e38]),
    "float32": (kl.float32, kl.vec3, [2e-45, 1e-41, 1e-30, 3e-23, 1e-19, 1.0, 1e19, 1e30, 1.5e38]),
    "float64": (kl.float64, kl.vec3d, [5e-324, 1e-310, 1e-200, 1e-162, 1.0, 1e154, 1e200, 1e308]),
}
DIRECTIONS = [(1.0, 0.0, 0.0), (1.0, -1.0, 1.0), (0.25, 1.0, -0.5)]
EPSILON = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2**-23, "float64": 2**-52}
SMALLEST = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149, "float64": 5e-324}
GREATEST = {"float16": 65504.0, "bfloat16": 3.3e38, "float32": 3.4e38, "float64": 1.7e308}
TEXT = """
def sizes(v: array[vector], size: array[number], unit: array[vector]):
    i = tid()
    size[i] = length(v[i])
    unit[i] = normalize(v[i])
"""


def wide(a: Any) -> Any:
    return a.numpy().astype(np.float64)


def exact(v: Any) -> tuple[Any, Any]:
    """Lengths and directions in twice the range: scaled by the greatest component."""
    v = v.astype(np.float64)
    greatest = np.abs(v).max(axis=-1, keepdims=True)
    ratio = np.sqrt(((v / greatest) ** 2).sum(axis=-1, keepdims=True))
    return (greatest * ratio)[..., 0], v / greatest / ratio


@pytest.mark.parametrize("width", WIDTHS)
def test_lengths_and_directions_have_all_digits_at_every_size(width: str) -> None:
    number, vector, sizes = WIDTHS[width]
    kernel = kl.compile(TEXT, {"number": number, "vector": vector})["sizes"]
    given = np.array([np.array(d) * s for s in sizes for d in DIRECTIONS])
    v = kl.array(given, dtype=vector)
    size, unit = kl.zeros(len(given), dtype=number), kl.zeros(len(given), dtype=vector)
    kernel[len(given)](v, size, unit)
    wanted, direction = exact(wide(v))
    np.testing.assert_allclose(wide(size), wanted, rtol=2 * EPSILON[width], atol=SMALLEST[width])
    np.testing.assert_allclose(wide(unit), direction, rtol=2 * EPSILON[width], atol=EPSILON[width])
    for at, each in enumerate(v.list()):
        assert kl.length(each) == size.numpy()[at]
        np.testing.assert_array_equal(np.asarray(kl.normalize(each)), unit.numpy()[at])


@pytest.mark.parametrize("width", WIDTHS)
def test_both_modes_have_the_derivatives_at_every_size(width: str) -> None:
    number, vector, sizes = WIDTHS[width]
    kernel = kl.compile(TEXT, {"number": number, "vector": vector})["sizes"]
    epsilon = EPSILON[width]

    def both(v: Any) -> Any:
        size, unit = kl.zeros(1, dtype=number), kl.zeros(1, dtype=vector)
        kernel[1](v, size, unit)
        return size, unit

    for scale in sizes:
        for towards in DIRECTIONS:
            v = kl.array([np.array(towards) * scale], dtype=vector)
            held, direction = exact(wide(v)[0])
            for transform in (kl.func.jacrev, kl.func.jacfwd):
                of_size, of_unit = (wide(d).reshape(-1, 3) for d in transform(both)(v))
                np.testing.assert_allclose(of_size[0], direction, rtol=8 * epsilon, atol=4 * epsilon)
                if held * 2.0**-number.dtype.itemsize > SMALLEST[width] / epsilon and held < 1e300:
                    across = (np.eye(3) - np.outer(direction, direction)) / held
                    np.testing.assert_allclose(of_unit, across, atol=8 * epsilon / held)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_zero_vector_has_length_0_no_direction_and_derivative_0(width: str) -> None:
    number, vector, _ = WIDTHS[width]
    kernel = kl.compile(TEXT, {"number": number, "vector": vector})["sizes"]

    def both(v: Any) -> Any:
        size, unit = kl.zeros(1, dtype=number), kl.zeros(1, dtype=vector)
        kernel[1](v, size, unit)
        return size, unit

    for found in (*both(kl.zeros(1, dtype=vector)), *kl.func.jacrev(both)(kl.zeros(1, dtype=vector))):
        assert not found.numpy().any()


@pytest.mark.parametrize("width", WIDTHS)
def test_both_modes_have_the_derivatives_of_the_angle_at_every_size(width: str) -> None:
    number, _, sizes = WIDTHS[width]
    head, body = (
        "def angle(y: array[number], x: array[number], a: array[number]):",
        "a[0] = atan2(y[0], x[0])",
    )
    kernel = kl.compile(f"{head}\n    {body}", {"number": number})["angle"]

    def angle(y: Any, x: Any) -> Any:
        a = kl.zeros(1, dtype=number)
        kernel[1](y, x, a)
        return a

    for scale in sizes:
        for towards in [(1.0, 1.0), (-1.0, 0.25), (0.125, -1.0), (1.0, 0.0)]:
            given = [kl.array([part * scale], dtype=number) for part in towards]
            (held,), (direction,) = exact(np.array([[wide(part)[0] for part in given]]))
            if held < 4.0 / GREATEST[width]:
                continue  # the slope is out of range itself
            wanted = np.array([direction[1], -direction[0]]) / held
            for transform in (kl.func.jacrev, kl.func.jacfwd):
                found = [wide(slope).item() for slope in transform(angle, (0, 1))(*given)]
                np.testing.assert_allclose(found, wanted, rtol=8 * EPSILON[width], atol=2 * SMALLEST[width])


@pytest.mark.parametrize("sizes", [(1e-30, 1e-25), (1e25, 1e30), (1e-40, 1e38), (1.0, 1.0)])
def test_a_rotation_between_vectors_of_any_length(sizes: tuple[float, float]) -> None:
    module = kl.compile("""
def between(a: array[vec3], b: array[vec3], q: array[quat], r: array[vec4]):
    i = tid()
    q[i] = quat_between_vectors(a[i], b[i])
    axis, angle = quat_to_axis_angle(quat(a[i][0], 0.0, 0.0, 1.0))
    r[i] = vec4(axis[0], axis[1], axis[2], angle)
""")
    a, b = ([[0.0, 0.0, size], [size, 0.0, 0.0]][k : k + 1] for k, size in enumerate(sizes))
    b = [[sizes[1], 0.0, 0.0]]
    q, r = kl.zeros(1, dtype=kl.quat), kl.zeros(1, dtype=kl.vec4)
    module["between"][1](kl.array(a, dtype=kl.vec3), kl.array(b, dtype=kl.vec3), q, r)
    np.testing.assert_allclose(q.numpy()[0], [0, np.sqrt(0.5), 0, np.sqrt(0.5)], atol=1e-6)


def test_the_axis_of_the_smallest_rotation_is_a_unit_vector() -> None:
    axis, angle = kl.quat_to_axis_angle(kl.quat(0.0, -1e-40, 0.0, 1.0))
    np.testing.assert_allclose(np.asarray(axis), [0, -1, 0], rtol=1e-5)
    assert 0 < angle < 1e-39
