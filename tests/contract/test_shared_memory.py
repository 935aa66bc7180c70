"""What a launch writes through one argument and reads through another over the same memory.

Nothing but the launch itself has a derivative in that memory, so only the launch can know that one is needed.
"""

from typing import Any

import numpy as np
import pytest

import kernelab as kl

TEXT = """
def through(a: array[float64], b: array[float64], x: array[float64], y: array[float64]):
    i = tid()
    a[i] = x[i] * x[1]
    y[i] = b[i] * b[0] * x[0]

def added(a: array[float64], b: array[float64], x: array[float64], y: array[float64]):
    i = tid()
    a[i + 1] += x[i] * x[1]
    y[i] = b[i] * b[i]

def shifted(a: array[float64], b: array[float64]):
    i = tid()
    a[i] = b[i + 1] * b[i]

def scattered(a: array[float64], b: array[float64]):
    i = tid()
    a[i // 2] += b[i] * b[i]
"""
X = np.array([0.7, 1.2, -0.4])
W = np.array([1.0, -2.0, 0.5])
VIEWS: dict[str, Any] = {
    "one array": lambda made: (made, made),
    "two views": lambda made: (made[:], made[:]),
    "overlapping views": lambda made: (made[1:], made[:5]),
}


@pytest.fixture(scope="module")
def kernels() -> dict[str, Any]:
    return kl.compile(TEXT)


def weighted(y: kl.array) -> kl.array:
    loss = kl.zeros(1, dtype=kl.float64, requires_grad=True)
    kl.utils.array_inner(y, kl.array(W, dtype=kl.float64), out=loss)
    return loss


def slopes(f: Any, step: float = 1e-6) -> np.ndarray[Any, Any]:
    """Central differences of a function of three numbers, which returns an array."""
    ends = [[f(kl.array(X + sign * step * e)).numpy().copy() for e in np.eye(3)] for sign in (1, -1)]
    found: np.ndarray[Any, Any] = (np.array(ends[0]) - np.array(ends[1])) / (2 * step)
    return found


@pytest.fixture(params=list(VIEWS))
def f(request: pytest.FixtureRequest, kernels: dict[str, Any], name: str) -> Any:
    """A function of `x` that passes by memory of its own."""

    def function(x: kl.array) -> kl.array:
        a, b = VIEWS[request.param](kl.zeros(6, dtype=kl.float64))
        y = kl.zeros(3, dtype=kl.float64, requires_grad=True)
        kl.launch(kernels[name], dim=3, inputs=[a, b, x], outputs=[y])
        return weighted(y)

    return function


@pytest.mark.parametrize("name", ["through", "added"])
def test_a_tape_follows_it(f: Any) -> None:
    x = kl.array(X, dtype=kl.float64, requires_grad=True)
    with kl.Tape() as tape:
        loss = f(x)
    tape.backward(loss)
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), slopes(f)[:, 0], atol=1e-8)


@pytest.mark.parametrize("name", ["through", "added"])
def test_transforms_follow_it(f: Any) -> None:
    x, along = kl.array(X), kl.array([0.3, -0.5, 1.1], dtype=kl.float64)
    expected = slopes(f)[:, 0]
    np.testing.assert_allclose(kl.func.grad(f)(x).numpy(), expected, atol=1e-8)
    _, tangent = kl.func.jvp(f, (x,), (along,))
    np.testing.assert_allclose(tangent.numpy(), [expected @ along.numpy()], atol=1e-8)


@pytest.mark.parametrize("name", ["through", "added"])
def test_transforms_follow_it_at_second_order(f: Any) -> None:
    expected = slopes(kl.func.grad(f))
    hessian = kl.func.hessian(f)(kl.array(X)).numpy().reshape(3, 3)
    np.testing.assert_allclose(hessian, expected, atol=1e-7)
    twice = kl.func.jacrev(kl.func.grad(f))(kl.array(X)).numpy().reshape(3, 3)
    np.testing.assert_allclose(twice, expected, atol=1e-7)


def test_an_adjoint_that_adds_to_what_it_reads_is_differentiated(kernels: dict[str, Any]) -> None:
    def f(x: kl.array) -> kl.array:
        y = kl.clone(x)
        kl.launch(kernels["scattered"], dim=3, inputs=[y, y])
        return weighted(y)

    hessian = kl.func.hessian(f)(kl.array(X)).numpy().reshape(3, 3)
    np.testing.assert_allclose(hessian, slopes(kl.func.grad(f)), atol=1e-7)


@pytest.mark.parametrize("alias", VIEWS)
def test_every_lane_overwrites_what_it_reads_in_memory_of_its_own(
    kernels: dict[str, Any], alias: str
) -> None:
    """Where only tangents differ between lanes, they share primal arrays, but none that is read again."""

    def f(x: kl.array) -> kl.array:
        memory = kl.zeros(6, dtype=kl.float64)
        memory[:3] = x
        memory[3:] = x
        kl.launch(kernels["shifted"], dim=3, inputs=[*VIEWS[alias](memory)])
        return memory

    expected = slopes(f).T
    np.testing.assert_allclose(kl.func.jacfwd(f)(kl.array(X)).numpy(), expected, atol=1e-8)
    np.testing.assert_allclose(kl.func.jacrev(f)(kl.array(X)).numpy(), expected, atol=1e-8)
