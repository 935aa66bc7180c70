"""`kl.func.as_numpy`: a function of arrays as one of NumPy vectors, in float64, as SciPy takes it."""

from typing import Any

import numpy as np
import pytest
from scipy import optimize

import kernelab as kl
from kernelab.errors import KernelTypeError

KERNELS = kl.compile("""
def rosenbrock(x: array[float], loss: array[float]):
    i = tid()
    a = 1.0 - x[i]
    b = x[i + 1] - x[i] * x[i]
    atomic_add(loss, 0, a * a + 100.0 * b * b)

def any_rosenbrock(x: array[Any], loss: array[Any]):
    i = tid()
    one = x[i] - x[i] + type(x[i])(1.0)
    a = one - x[i]
    b = x[i + 1] - x[i] * x[i]
    atomic_add(loss, 0, a * a + type(x[i])(100.0) * b * b)
""")
X = np.array([-1.2, 1.0, 0.3, 0.7])


def rosenbrock(x: Any) -> Any:
    loss = kl.zeros(1, dtype=float)
    kl.launch(KERNELS["rosenbrock"], dim=len(x) - 1, inputs=[x], outputs=[loss])
    return loss


def in_float64(x: Any) -> Any:
    loss = kl.zeros(1, dtype=kl.float64)
    kl.launch(KERNELS["any_rosenbrock"], dim=len(x) - 1, inputs=[x], outputs=[loss])
    return loss


@pytest.mark.parametrize(("func", "dtype"), [(rosenbrock, float), (in_float64, kl.float64)])
def test_value_and_gradient_are_exact_in_float64(func: Any, dtype: Any) -> None:
    value, gradient = kl.func.as_numpy(func, dtype=dtype)(X)
    assert isinstance(value, float)
    assert gradient.dtype == np.float64
    np.testing.assert_allclose(value, optimize.rosen(X), rtol=1e-14)
    np.testing.assert_allclose(gradient, optimize.rosen_der(X), rtol=1e-13)


def test_scipy_minimises_in_two_lines() -> None:
    fun = kl.func.as_numpy(rosenbrock)
    found = optimize.minimize(fun, X, jac=True)
    assert found.fun < 1e-12
    np.testing.assert_allclose(found.x, np.ones(4), atol=1e-6)


def test_several_arrays_stand_in_the_vector_one_after_another() -> None:
    weights, bias = kl.zeros((2, 3), dtype=float), kl.zeros(2, dtype=kl.float64)
    scale = kl.array([2.0], dtype=float)

    def loss(w: Any, b: Any) -> Any:
        rows = w @ kl.array([1.0, 2.0, 3.0], dtype=float)
        return ((rows.astype(kl.float64) + b) ** 2).sum() * scale.astype(kl.float64)

    vector = np.arange(8.0) / 7
    value, gradient = kl.func.as_numpy(loss, weights, bias)(vector)
    w, b = vector[:6].reshape(2, 3), vector[6:]
    rest = w @ [1.0, 2.0, 3.0] + b
    np.testing.assert_allclose(value, 2 * (rest**2).sum(), rtol=1e-14)
    np.testing.assert_allclose(gradient[:6].reshape(2, 3), 4 * np.outer(rest, [1, 2, 3]), rtol=1e-14)
    np.testing.assert_allclose(gradient[6:], 4 * rest, rtol=1e-14)
    assert weights.list() == [0.0] * 6


def test_vectors_fill_arrays_of_vectors_and_further_arguments_pass() -> None:
    def loss(p: Any, factor: float) -> Any:
        return kl.map(lambda v: kl.dot(v, v) * v[1], p).sum() * factor

    value, gradient = kl.func.as_numpy(loss, kl.zeros(1, dtype=kl.vec3))([1.0, 2.0, 3.0], 0.5)
    assert value == 14.0
    assert gradient.tolist() == [2.0, 11.0, 6.0]


def test_the_host_cannot_read_what_is_computed_in_float64_and_a_vector_has_its_length() -> None:
    def stale(x: Any) -> Any:
        return x.sum() if (x * x).sum().item() > 1.0 else x.sum() * 2.0

    with pytest.raises(
        kl.GradientError, match=r"is computed in float64: its values cannot be read(.|\n)*hint:"
    ):
        kl.func.as_numpy(stale)(X)
    assert kl.func.as_numpy(stale, dtype=kl.float64)(X)[0] == pytest.approx(X.sum(), abs=1e-15)
    with pytest.raises(kl.KernelValueError, match="takes 3 numbers, and the vector has 4"):
        kl.func.as_numpy(rosenbrock, kl.zeros(3))(X)
    with pytest.raises(kl.KernelTypeError, match="example 0 is an array of kernelab, not"):
        kl.func.as_numpy(rosenbrock, X)


@pytest.mark.parametrize("made", [kl.func.grad, kl.func.value_and_grad])
def test_the_gradient_of_a_function_in_its_place_is_refused(made: Any) -> None:
    def loss(x: kl.array) -> kl.array:
        return (x * x).sum()

    message = f"takes the gradient itself, and was given {made.__name__} of loss"
    with pytest.raises(KernelTypeError, match=rf"(?s){message}.*write as_numpy\(loss\)"):
        kl.func.as_numpy(made(loss))
