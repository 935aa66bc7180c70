"""Second derivatives through kernels that overwrite what their adjoints need.

Every kernel is the middle of a function of an array to a number.  Forward over reverse is compared with
central differences of the gradient over float64, with the Hessian, and lane by lane; reverse over reverse
with forward over reverse, and so is the next order.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl

TEXT = """
def in_place(a: array[float64], y: array[float64]):
    i = tid()
    a[i] = sin(a[i]) + a[i] * a[i]
    a[i] *= a[i]
    y[i] = a[i] * cos(a[i])

def divided(a: array[float64], y: array[float64]):
    i = tid()
    y[i] = 1.5
    y[i] /= a[i] * a[(i + 1) % 4]
    a[i] -= y[i]
    y[i] *= a[i]

def in_a_loop(a: array[float64], y: array[float64]):
    i = tid()
    for k in range(4):
        a[i] = sin(a[i]) * a[i] + 0.5 * a[i]
    y[i] = a[i] * a[i]

def until_it_is_large(a: array[float64], y: array[float64]):
    i = tid()
    while a[i] < 1.5:
        a[i] = 0.5 * a[i] * a[i] + a[i] + 0.25
    y[i] = a[i] * a[i]

def old_values_of_an_atomic(a: array[float64], y: array[float64]):
    i = tid()
    y[i] = a[i] * atomic_add(a, 0, a[i] * a[i])

def an_extremum(a: array[float64], y: array[float64]):
    i = tid()
    atomic_max(y, 0, a[i] * a[i] * a[i])
    y[i] = y[i] * a[i]

def a_local_array(a: array[float64], y: array[float64]):
    i = tid()
    c = zeros(3, dtype=float64)
    for j in range(6):
        c[j % 3] = a[i] * c[(j + 1) % 3] + sin(a[i])
        a[i] = 0.5 * a[i] * c[j % 3] + 0.3
    y[i] = c[2] * c[1]

def an_array_passed_twice(a: array[float64], b: array[float64], y: array[float64]):
    i = tid()
    a[i] = b[i] * b[i]
    b[i] = a[i] * b[i]
    y[i] = b[i]

def with_checkpoints(a: array[float64], y: array[float64]):
    i = tid()
    s = a[i]
    for k in range(20, adjoint="checkpoint"):
        s = sin(s) * a[i] + 0.3
        a[i] = a[i] * (1.0 + 0.01 * s)
    y[i] = s * a[i]

def run_again(a: array[float64], y: array[float64]):
    i = tid()
    s = a[i]
    for k in range(5, adjoint="recompute"):
        s = sin(s) * a[i] + 0.3
        a[i] = a[i] * (1.0 + 0.01 * s)
    y[i] = s * a[i]

def vectors(a: array[vec2d], y: array[float64]):
    i = tid()
    a[i] = vec2d(a[i][1] * a[i][0], sin(a[i][0]))
    y[i] = dot(a[i], a[i])

def squares(y: array[float64], s: array[float64]):
    i = tid()
    atomic_add(s, 0, y[i] * y[i])
"""
NAMES = [line.split("(")[0][4:] for line in TEXT.splitlines() if line.startswith("def ")][:-1]
COUNT, STEP = 4, 1e-5
Function = Callable[[Any], Any]
kernels: dict[str, Any] = kl.compile(TEXT)
COMPILED: dict[str, Any] = kl.compile(TEXT)


def doubles(values: Any) -> Any:
    return kl.array(values, dtype=kl.float64)


def sum_of_squares(y: Any, among: dict[str, Any] = kernels) -> Any:
    total = kl.zeros(1, dtype=kl.float64)
    among["squares"][y.shape[0]](y, total)
    return total


def through(name: str, among: dict[str, Any] = kernels) -> Function:
    """A function of an array to one number, with the kernel in the middle."""

    def f(x: Any) -> Any:
        a, y = kl.clone(x), kl.zeros(COUNT, dtype=kl.float64)
        if name == "vectors":
            among[name][2](a.reshape((2, 2)).view(kl.vec2d), y)
        elif name == "an_array_passed_twice":
            among[name][COUNT](a, a, y)
        else:
            among[name][COUNT](a, y)
        return sum_of_squares(y, among)

    return f


def point(name: str) -> tuple[Any, Any]:
    """Where a function is differentiated, and along which direction."""
    rng = np.random.default_rng(len(name))
    return rng.uniform(0.4, 0.9, COUNT), rng.normal(size=COUNT)


def moved_gradient(f: Function, x: Any, v: Any) -> Any:
    """How the gradient moves along a direction, by central differences."""
    gradient = kl.func.grad(f)
    ahead, behind = (gradient(doubles(x + step * v)).numpy() for step in (STEP, -STEP))
    return (ahead - behind) / (2 * STEP)


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELAB_BACKEND", "interp")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("interpreted")
def test_forward_over_reverse_agrees_with_differences_of_the_gradient(name: str) -> None:
    f, (x, v) = through(name), point(name)
    expected = moved_gradient(f, x, v)
    _, moved = kl.func.hvp(f, (doubles(x),), (doubles(v),))
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(moved.numpy(), expected, atol=1e-6 * scale)
    hessian = kl.func.hessian(f)(doubles(x)).numpy()
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-12 * scale)
    np.testing.assert_allclose(hessian @ v, moved.numpy(), rtol=1e-10, atol=1e-12 * scale)
    forward = kl.func.jacfwd(kl.func.jacfwd(f))(doubles(x)).numpy()
    np.testing.assert_allclose(forward[0], hessian, rtol=1e-10, atol=1e-12 * scale)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("interpreted")
def test_reverse_over_reverse_agrees_with_forward_over_reverse(name: str) -> None:
    f, (x, _) = through(name), point(name)
    hessian, gradient = kl.func.hessian(f)(doubles(x)).numpy(), kl.func.grad(f)(doubles(x)).numpy()
    scale = float(np.abs(hessian).max())
    twice = kl.func.jacrev(kl.func.grad(f))(doubles(x)).numpy()
    np.testing.assert_allclose(twice, hessian, atol=1e-12 * scale)
    slope = kl.func.grad(lambda x: sum_of_squares(kl.func.grad(f)(x)))
    np.testing.assert_allclose(slope(doubles(x)).numpy(), 2 * hessian @ gradient, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["in_a_loop", "until_it_is_large", "an_array_passed_twice"])
@pytest.mark.usefixtures("interpreted")
def test_orders_beyond_the_second_agree(name: str) -> None:
    f, (x, v) = through(name), point(name)
    slope = kl.func.grad(lambda x: sum_of_squares(kl.func.grad(f)(x)))
    _, moved = kl.func.jvp(slope, (doubles(x),), (doubles(v),))
    ahead, behind = (slope(doubles(x + step * v)).numpy() for step in (STEP, -STEP))
    scale = float(np.abs(moved.numpy()).max())
    np.testing.assert_allclose(moved.numpy(), (ahead - behind) / (2 * STEP), atol=1e-5 * scale)
    third = kl.func.grad(lambda x: sum_of_squares(slope(x)))(doubles(x)).numpy()
    expected = 2 * kl.func.jacfwd(slope)(doubles(x)).numpy().T @ slope(doubles(x)).numpy()
    np.testing.assert_allclose(third, expected, rtol=1e-9)


@pytest.mark.parametrize("name", ["in_place", "until_it_is_large", "an_array_passed_twice"])
@pytest.mark.usefixtures("interpreted")
def test_hessians_of_many_lanes_are_those_of_each(name: str) -> None:
    f, (x, _) = through(name), point(name)
    lanes = np.stack([x, 0.7 * x, 0.9 * x])
    found = kl.func.vmap(kl.func.hessian(f))(doubles(lanes)).numpy()
    expected = [kl.func.hessian(f)(doubles(lane)).numpy() for lane in lanes]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    slope = kl.func.grad(lambda x: sum_of_squares(kl.func.grad(f)(x)))
    expected = [slope(doubles(lane)).numpy() for lane in lanes]
    np.testing.assert_allclose(kl.func.vmap(slope)(doubles(lanes)).numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["until_it_is_large", "an_array_passed_twice", "vectors"])
def test_machine_code_finds_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, v = map(doubles, point(name))
    compiled = [part.numpy() for part in kl.func.hvp(through(name, COMPILED), (x,), (v,))]
    monkeypatch.setenv("KERNELAB_BACKEND", "interp")
    found = [part.numpy() for part in kl.func.hvp(through(name), (x,), (v,))]
    np.testing.assert_allclose(compiled, found, rtol=1e-12)
    twice = kl.func.jacrev(kl.func.grad(through(name)))(x).numpy()
    monkeypatch.delenv("KERNELAB_BACKEND")
    again = kl.func.jacrev(kl.func.grad(through(name, COMPILED)))(x).numpy()
    np.testing.assert_allclose(again, twice, rtol=1e-12)


@pytest.mark.usefixtures("interpreted")
def test_residuals_that_begin_elsewhere_in_every_lane_keep_their_tangents() -> None:
    f = through("until_it_is_large")
    lanes = np.array([[0.2, 1.4, 0.5, 0.6], [0.9, 0.3, 1.2, 0.4]])
    along = np.array([1.0, -0.5, 0.3, 0.2])
    _, moved = kl.func.jvp(kl.func.vmap(kl.func.grad(f)), (doubles(lanes),), (doubles([along, along]),))
    expected = [moved_gradient(f, lane, along) for lane in lanes]
    np.testing.assert_allclose(moved.numpy(), expected, rtol=1e-6)
