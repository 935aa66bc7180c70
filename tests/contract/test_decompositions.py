"""Decompositions: that they are what they say for every kind of matrix, and what derivatives need of them."""

from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.lang.types import Mat, float64
from tests.support.table import Numpy, case_of, cotangents, lanes, tangent

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(3)


def matrices(n: int) -> list[Numpy]:
    """Random, badly scaled, singular, orthogonal, mirroring, of rank one and zero."""
    drawn = [RNG.normal(size=(n, n)) for _ in range(20)]
    scaled = [m * 10.0 ** -np.arange(0, 6 * n, 6) for m in drawn[:5]]
    turned = [np.linalg.qr(m)[0] for m in drawn[:5]]
    rank_one = [np.outer(m[0], m[-1]) for m in drawn[:5]]
    return [*drawn, *scaled, *turned, *rank_one, np.zeros((n, n)), np.eye(n), np.diag([-1.0] * n)]


def assert_orthonormal(q: Numpy, tolerance: float) -> None:
    np.testing.assert_allclose(q.T @ q, np.eye(len(q)), atol=tolerance)


def assert_rotation(q: Numpy, tolerance: float) -> None:
    assert_orthonormal(q, tolerance)
    assert np.linalg.det(q) > 0


WIDTHS = [(np.float64, 1e-13), (np.float32, 1e-5)]


@pytest.mark.parametrize(("dtype", "tolerance"), WIDTHS)
def test_singular_values_in_space_are_those_of_numpy_with_two_rotations(
    dtype: type, tolerance: float
) -> None:
    for m in matrices(3):
        u, sigma, v = kl.svd3(m.astype(dtype))
        np.testing.assert_allclose(u @ np.diag(sigma) @ v.T, m, atol=tolerance)
        np.testing.assert_allclose(np.abs(sigma), np.linalg.svd(m)[1], atol=tolerance)
        assert_rotation(u, tolerance)
        assert_rotation(v, tolerance)
        assert sigma[0] >= sigma[1] >= 0.0
        assert abs(np.linalg.det(m)) < tolerance or (sigma[2] > 0) == (np.linalg.det(m) > 0)


@pytest.mark.parametrize(("dtype", "tolerance"), WIDTHS)
def test_singular_values_in_the_plane_are_those_of_numpy(dtype: type, tolerance: float) -> None:
    for m in matrices(2):
        u, sigma, v = kl.svd2(m.astype(dtype))
        np.testing.assert_allclose(u @ np.diag(sigma) @ v.T, m, atol=tolerance)
        np.testing.assert_allclose(sigma, np.linalg.svd(m)[1], atol=tolerance)
        assert_orthonormal(u, tolerance)
        assert_orthonormal(v, tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), WIDTHS)
def test_eigenvalues_of_the_symmetric_part_are_those_of_numpy(dtype: type, tolerance: float) -> None:
    for m in matrices(3):
        q, d = kl.eig3(m.astype(dtype))
        symmetric = (m + m.T) / 2
        np.testing.assert_allclose(q @ np.diag(d) @ q.T, symmetric, atol=tolerance)
        np.testing.assert_allclose(np.sort(d), np.linalg.eigvalsh(symmetric), atol=tolerance)
        assert_rotation(q, tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), WIDTHS)
def test_a_matrix_is_a_rotation_times_an_upper_triangle(dtype: type, tolerance: float) -> None:
    for m in matrices(3):
        q, r = kl.qr3(m.astype(dtype))
        np.testing.assert_allclose(q @ r, m, atol=tolerance)
        assert_rotation(q, tolerance)
        assert np.array_equal(r, np.triu(r))
        assert r[0, 0] >= 0.0
        assert r[1, 1] >= -tolerance


def bar_of(name: str, n: int, m: Numpy, *parts: Numpy) -> Numpy:
    """The cotangent of a matrix for cotangents of its parts."""
    w = np.concatenate([np.ravel(part) for part in parts])
    (bar,) = cotangents(case_of(name, Mat(float64, n, n)), [lanes(m)], lanes(w)).values()
    return np.asarray(bar[0])


NONE, NOTHING = np.zeros((3, 3)), np.zeros(3)
TURNED = np.linalg.qr(RNG.normal(size=(3, 3)))[0]


def test_a_sum_of_functions_of_equal_eigenvalues_has_its_derivative() -> None:
    bar = bar_of("eig3", 3, 2.0 * np.eye(3), NONE, np.full(3, 4.0))
    np.testing.assert_allclose(bar, 4.0 * np.eye(3))


def test_the_eigenvector_of_a_single_eigenvalue_has_its_derivative_beside_equal_ones() -> None:
    m = np.diag([2.0, 2.0, 5.0])
    q, _ = kl.eig3(m)
    w = RNG.normal(size=3)
    bar = bar_of("eig3", 3, m, np.outer(w, [0.0, 0.0, 1.0]), NOTHING)
    step, direction = 1e-6, RNG.normal(size=(3, 3))
    moved = [kl.eig3(m + s * direction) for s in (step, -step)]
    # The differences follow the vector of the value 5, wherever it stands and whatever its sign.
    ends = [v[:, np.argmax(d)] * np.sign(np.dot(v[:, np.argmax(d)], q[:, 2])) for v, d in moved]
    np.testing.assert_allclose((bar * direction).sum(), w @ (ends[0] - ends[1]) / (2 * step), atol=1e-6)


def test_an_eigenvector_of_equal_eigenvalues_has_no_derivative() -> None:
    assert np.isnan(bar_of("eig3", 3, np.eye(3), np.ones((3, 3)), NOTHING)).any()
    case = case_of("eig3", Mat(float64, 3, 3))
    moved = tangent(case, [lanes(np.eye(3))], {"a": lanes(RNG.normal(size=(3, 3)))})
    assert np.isnan(moved[0, :9]).all()
    assert np.isfinite(moved[0, 9:]).all()


def test_what_else_needs_vectors_of_equal_singular_values_has_no_derivative() -> None:
    assert np.isnan(bar_of("svd3", 3, np.eye(3), NONE, NOTHING, np.ones((3, 3)))).any()
    assert np.isnan(bar_of("svd2", 2, np.eye(2), np.ones((2, 2)), np.zeros(2), np.zeros((2, 2)))).any()
    assert bar_of("svd3", 3, np.eye(3), NONE, np.ones(3), NONE).tolist() == np.eye(3).tolist()


EQUAL = [
    np.eye(3),
    0.7 * TURNED,
    np.diag([2.0, 2.0, 1.0]),
    np.diag([2.0, 1.0, 1.0]),
    np.diag([2.0, 2.0, -2.0]),
]


@pytest.mark.parametrize("m", EQUAL, ids=lambda m: str(np.round(np.linalg.svd(m)[1], 1)))
@pytest.mark.parametrize("power", [0, 1, 2])
def test_a_function_of_equal_singular_values_has_no_derivative_in_either_mode(m: Numpy, power: int) -> None:
    n = len(m)
    u, sigma, v = kl.svd3(m)
    w, direction = RNG.normal(size=(2, n, n))
    middle = np.diag(np.asarray(sigma) ** power)
    bar = bar_of("svd3", n, m, w @ v @ middle, power * np.diag(u.T @ w @ v), w.T @ u @ middle)
    assert np.isnan(bar).any()
    moved = tangent(case_of("svd3", Mat(float64, n, n)), [lanes(m)], {"a": lanes(direction)})
    assert np.isnan(moved[0, : n * n]).any()
    assert np.isfinite(moved[0, n * n : n * n + n]).all()


def test_equal_singular_values_in_the_plane_have_no_derivative_of_what_they_stretch() -> None:
    for m in (np.eye(2), np.diag([3.0, -3.0])):
        u, sigma, v = kl.svd2(m)
        w = RNG.normal(size=(2, 2))
        bar = bar_of("svd2", 2, m, w @ v @ np.diag(sigma), np.diag(u.T @ w @ v), w.T @ u @ np.diag(sigma))
        assert np.isnan(bar).any()


def test_the_triangle_of_a_singular_matrix_has_no_derivative() -> None:
    last = np.zeros((3, 3))
    last[2, 2] = 1.0
    for m in (np.diag([1.0, 1.0, 0.0]), np.ones((3, 3)), np.zeros((3, 3))):
        assert np.isnan(bar_of("qr3", 3, m, NONE, last)).any()
        assert not bar_of("qr3", 3, m, NONE, NONE).any()


@pytest.mark.parametrize("scale", [1e-140, 1e140])
def test_the_triangle_of_a_tiny_or_huge_matrix_has_its_derivative(scale: float) -> None:
    """Of a multiple of a matrix the rotation is the same, and the triangle that multiple."""
    m, w, v, direction = np.random.default_rng(3).normal(size=(4, 3, 3))
    np.testing.assert_allclose(
        bar_of("qr3", 3, scale * m, scale * w, v), bar_of("qr3", 3, m, w, v), rtol=1e-9
    )
    case, dots = case_of("qr3", Mat(float64, 3, 3)), {"a": lanes(direction)}
    moved, wanted = (tangent(case, [lanes(matrix)], dots)[0] for matrix in (scale * m, m))
    np.testing.assert_allclose(scale * moved[:9], wanted[:9], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(moved[9:], wanted[9:], rtol=1e-9, atol=1e-12)


# ------------------------------------------------------------------------- numbers of every size

LOOKS = {
    "svd2": "u, s, v = svd2(a[0])\n    y[0] = ddot(u, w[0]) + ddot(v, w[0]) + dot(s, d[0])",
    "svd3": "u, s, v = svd3(a[0])\n    y[0] = ddot(u, w[0]) + ddot(v, w[0]) + dot(s, d[0])",
    "eig3": "q, s = eig3(a[0])\n    y[0] = ddot(q, w[0]) + dot(s, d[0])",
    "polar2": "r, s = polar(a[0])\n    y[0] = ddot(r, w[0]) + dot(s[0], d[0])",
    "polar3": "r, s = polar(a[0])\n    y[0] = ddot(r, w[0]) + dot(s[1], d[0])",
    "qr3": "q, r = qr3(a[0])\n    y[0] = ddot(q, w[0]) + dot(r[1], d[0])",
}
PLAIN = np.array([[3.0, 0.5, -0.2], [0.1, -2.0, 0.4], [-0.3, 0.6, 1.0]])
SIZES = {
    "float16": [1e-3, 1.0, 100.0, 1e4],
    "bfloat16": [1e-30, 1.0, 1e30],
    "float32": [1e-35, 1e-22, 1.0, 1e19, 1e35],
    "float64": [1e-300, 1e-160, 1.0, 1e155, 1e300],
}
DIGITS = {"float16": 2e-2, "bfloat16": 0.15, "float32": 1e-5, "float64": 1e-12}


def looked_at(name: str, number: Any, m: Numpy, scale: float) -> tuple[float, Numpy]:
    """A loss of all parts of a decomposition of a multiple of `m`, and its gradient in units of that."""
    n = int(name[-1])
    mat, vec = kl.types.matrix((n, n), number), kl.types.vector(n, number)
    head = "def look(a: array[mat], w: array[mat], d: array[vec], y: array[number]):"
    look = kl.compile(f"{head}\n    {LOOKS[name]}", {"mat": mat, "vec": vec, "number": number})["look"]
    w, d = PLAIN[::-1, :n][:n] * 0.1, PLAIN[0, :n] / scale
    a = kl.array([m], dtype=mat, requires_grad=True)
    y = kl.zeros(1, dtype=number, requires_grad=True)
    with kl.Tape() as tape:
        look[1](a, kl.array([w], dtype=mat), kl.array([d], dtype=vec), y)
    tape.backward(y)
    assert a.grad is not None
    return float(y.numpy()[0]), a.grad.numpy()[0].astype(np.float64) * scale


@pytest.mark.parametrize("width", SIZES)
@pytest.mark.parametrize("name", LOOKS)
def test_values_and_gradients_are_those_of_a_matrix_of_any_size(name: str, width: str) -> None:
    n, number = int(name[-1]), getattr(kl, width)
    for scale in SIZES[width]:
        held = kl.array(PLAIN[:n, :n] * scale, dtype=number).numpy().astype(np.float64)
        value, slopes = looked_at(name, number, held, scale)
        wanted, exact = looked_at(name, kl.float64, held / scale, 1.0)
        np.testing.assert_allclose(value, wanted, rtol=DIGITS[width], atol=DIGITS[width])
        np.testing.assert_allclose(slopes, exact, atol=DIGITS[width] * np.abs(exact).max())


# ------------------------------------------------------------------------- the polar decomposition


def polar_of(m: Numpy) -> tuple[Numpy, Numpy]:
    """By NumPy: the closest rotation, and what it leaves."""
    u, _, vt = np.linalg.svd(m)
    signs = np.ones(len(m))
    signs[-1] = np.sign(np.linalg.det(u @ vt))
    rotation = u @ np.diag(signs) @ vt
    return rotation, rotation.T @ m


PLANE = np.array([[0.6, -0.8], [0.8, 0.6]])
SMOOTH = [
    *(*EQUAL[:4], TURNED @ np.diag([3.0, 2.0, -1.0]), RNG.normal(size=(3, 3)), np.diag([1.0, 1e-3, 1e-3])),
    *(np.eye(2), 5.0 * PLANE, PLANE @ np.diag([3.0, -1.0]), RNG.normal(size=(2, 2)), np.diag([1.0, 0.0])),
]


@pytest.mark.parametrize("m", SMOOTH, ids=lambda m: str(np.round(np.linalg.svd(m)[1], 1)))
@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
def test_the_polar_decomposition_has_its_derivative_in_both_modes(m: Numpy, scale: float) -> None:
    n = len(m)
    if np.linalg.det(m) == 0.0 and n == 3:
        return
    rotation, stretch = kl.polar(scale * m)
    for found, wanted in zip((rotation, stretch / scale), polar_of(m), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-13)
    w, v, direction = np.random.default_rng(3).normal(size=(3, n, n))
    step = 1e-6 * np.abs(np.linalg.svd(m)[1]).min() if n == 3 else 1e-6
    ends = [polar_of(m + s * direction) for s in (step, -step)]
    turned, stretched = ((a - b) / (2 * step) for a, b in zip(*ends, strict=True))
    bar = bar_of("polar", n, scale * m, w * scale, v)
    slope = (w * turned).sum() + (v * stretched).sum()
    np.testing.assert_allclose((bar * direction).sum(), slope, rtol=1e-5, atol=1e-5)
    moved = tangent(case_of("polar", Mat(float64, n, n)), [lanes(scale * m)], {"a": lanes(direction)})[0]
    np.testing.assert_allclose(moved[: n * n] * scale, turned.ravel(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(moved[n * n :], stretched.ravel(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "m",
    [
        np.zeros((3, 3)),
        np.diag([1.0, 0.0, 0.0]),
        np.diag([1.0, 1.0, -1.0]),
        np.diag([1.0, -1.0]),
        np.zeros((2, 2)),
    ],
)
def test_where_several_rotations_are_equally_close_one_is_given_and_has_no_derivative(m: Numpy) -> None:
    rotation, stretch = kl.polar(m)
    assert_rotation(rotation, 1e-13)
    np.testing.assert_allclose(rotation @ stretch, m, atol=1e-13)
    needed, nothing = RNG.normal(size=m.shape), np.zeros(m.shape)
    assert np.isnan(bar_of("polar", len(m), m, needed, nothing)).any()
    assert np.isnan(bar_of("polar", len(m), m, nothing, needed + needed.T)).any()
    moved = tangent(case_of("polar", Mat(float64, *m.shape)), [lanes(m)], {"a": lanes(needed + needed.T)})
    assert np.isnan(moved).any()
    assert not bar_of("polar", len(m), m, nothing, nothing).any()


@pytest.mark.parametrize(("dtype", "tolerance"), WIDTHS)
def test_a_matrix_is_a_rotation_times_a_symmetric_one(dtype: type, tolerance: float) -> None:
    for n in (2, 3):
        for m in matrices(n):
            rotation, stretch = kl.polar(m.astype(dtype))
            assert_rotation(rotation, tolerance)
            np.testing.assert_allclose(stretch, stretch.T)
            np.testing.assert_allclose(rotation @ stretch, m, atol=tolerance)


TEXT = """
def parts(a: array[mat33], b: array[mat22], y: array[mat33], z: array[mat22], e: array[float]):
    i = tid()
    u, sigma, v = svd3(a[i])
    q, r = qr3(a[i])
    y[i] = u * diag(sigma) * transpose(v) + q * r + u * transpose(v)
    u2, s2, v2 = svd2(b[i])
    z[i] = u2 * diag(s2) * transpose(v2)
    vectors, values = eig3(a[i])
    e[i] = values[0] * values[1] * values[2] + vectors[0, 0] * vectors[0, 0] + s2[0] + r[0, 0]


def filled(a: array[mat33], y: array[mat33], n: int):
    i = tid()
    u, v, q, r = mat33(), mat33(), mat33(), mat33()
    sigma, d = vec3(), vec3()
    for k in range(n):
        svd3(a[i], u, sigma, v)
        eig3(a[i], q, d)
    y[i] = u * diag(sigma) * transpose(v) + q * diag(d) * transpose(q)
"""
KERNELS = kl.compile(TEXT)


def test_in_a_kernel_they_differentiate() -> None:
    a = kl.array(RNG.normal(size=(3, 3, 3)), dtype=kl.mat33, requires_grad=True)
    b = kl.array(RNG.normal(size=(3, 2, 2)), dtype=kl.mat22, requires_grad=True)
    outputs = [kl.zeros(3, dtype=kl.mat33), kl.zeros(3, dtype=kl.mat22), kl.zeros(3)]
    assert kl.autograd.gradcheck(KERNELS["parts"], 3, [a, b], outputs)
    kl.launch(KERNELS["parts"], 3, [a, b], outputs)
    np.testing.assert_allclose(outputs[1].numpy(), b.numpy(), atol=1e-5)


def test_variables_that_exist_are_filled_also_in_loops() -> None:
    m = RNG.normal(size=(3, 3, 3)).astype(np.float32)
    a, y = kl.array(m, dtype=kl.mat33), kl.zeros(3, dtype=kl.mat33)
    kl.launch(KERNELS["filled"], 3, [a, y, 2])
    np.testing.assert_allclose(y.numpy(), m + (m + m.transpose(0, 2, 1)) / 2, atol=1e-5)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("svd3(a[0], u, sigma, a[0])", "svd3 changes a variable, and a\\[0\\] is none"),
        ("svd3(a[0], u, u, v)", "svd3 fills a variable of type vec3, not mat33"),
        ("u, sigma = svd3(a[0])", "3 values cannot be unpacked into 2 names"),
    ],
)
def test_what_cannot_be_filled_is_refused(line: str, message: str) -> None:
    text = f"def k(a: array[mat33]):\n    u, v, sigma = mat33(), mat33(), vec3()\n    {line}\n"
    with pytest.raises(kl.KernelError, match=message):
        kl.compile(text)
