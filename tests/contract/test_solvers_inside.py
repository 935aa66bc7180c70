"""Solvers of SciPy inside of what is differentiated: their results are the host's, and that is said."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import optimize

import kernelab as kl
from kernelab.interop.scipy import problem

X = [0.7, 1.2]


def distance(u: Any) -> Callable[[Any], Any]:
    """The loss whose minimum is `u`."""
    return lambda v: ((v - u) * (v - u)).sum()


SOLVERS: dict[str, Callable[[Any, Any], Any]] = {
    "the value": lambda u, v: [problem(distance(u), v).fun(np.ones(2))] * 2,
    "the gradient": lambda u, v: problem(distance(u), v).jac(np.ones(2)),
    "the values of several functions": lambda u, v: problem(lambda v: v * u, v).fun(np.ones(2)),
    "the Jacobian": lambda u, v: problem(lambda v: v * u, v).jac(np.ones(2)).diagonal(),
    "the Hessian": lambda u, v: problem(lambda v: (v * v * v * u).sum(), v).hess(np.ones(2)).diagonal(),
    "a product with it": lambda u, v: problem(lambda v: (v * v * u).sum(), v).hessp(np.ones(2), np.ones(2)),
    "the value of as_numpy": lambda u, v: [kl.func.as_numpy(distance(u), v)(np.ones(2))[0]] * 2,
    "the gradient of as_numpy": lambda u, v: kl.func.as_numpy(distance(u), v)(np.ones(2))[1],
    "a minimum": lambda u, v: optimize.minimize(kl.func.as_numpy(distance(u), v), np.ones(2), jac=True).x,
}
inside = pytest.mark.parametrize("found", SOLVERS.values(), ids=SOLVERS)
either = pytest.mark.parametrize("dtype", [kl.float32, kl.float64], ids=str)


def with_solver(found: Callable[[Any, Any], Any], dtype: Any) -> Callable[[Any], Any]:
    """A loss of x through what is `found` for 2 x, and beside it."""

    def loss(x: Any) -> Any:
        return (kl.array(found(x * 2.0, kl.zeros(2, dtype=dtype)), dtype=dtype) * x).sum()

    return loss


@inside
@either
@pytest.mark.parametrize("transform", [kl.func.grad, kl.func.jacrev], ids=["grad", "jacrev"])
def test_what_a_solver_gets_from_a_captured_array_is_told(
    found: Callable[[Any, Any], Any], dtype: Any, transform: Callable[..., Any]
) -> None:
    with pytest.warns(kl.KernelWarning, match="the host"):
        transform(with_solver(found, dtype))(kl.array(X, dtype=dtype))


@inside
@either
def test_a_solver_does_not_read_what_differs_between_lanes(
    found: Callable[[Any, Any], Any], dtype: Any
) -> None:
    with pytest.raises(kl.GradientError, match="differ between the lanes"):
        kl.func.vmap(with_solver(found, dtype))(kl.array([X, X], dtype=dtype))


def test_a_value_that_a_solver_gets_on_a_tape_is_told() -> None:
    x = kl.array(X, dtype=kl.float64, requires_grad=True)
    with kl.Tape() as tape:
        y = with_solver(SOLVERS["the value"], kl.float64)(x)
    with pytest.warns(kl.KernelWarning, match="the host"):
        tape.backward(y)


@inside
@either
def test_a_solver_that_knows_nothing_of_the_argument_is_silent(
    found: Callable[[Any, Any], Any], dtype: Any
) -> None:
    def loss(x: Any) -> Any:
        return (kl.array(found(kl.array(X, dtype=dtype), kl.zeros(2, dtype=dtype)), dtype=dtype) * x).sum()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        slope = kl.func.grad(loss)(kl.array(X, dtype=dtype))
    assert slope.numpy() == pytest.approx(found(kl.array(X, dtype=dtype), kl.zeros(2, dtype=dtype)), abs=1e-6)


@inside
@either
def test_a_result_that_is_only_looked_at_is_silent(found: Callable[[Any, Any], Any], dtype: Any) -> None:
    def loss(x: Any) -> Any:
        y, zeros = x * 2.0, kl.zeros(2, dtype=dtype)
        assert np.isclose(found(y, zeros), found(y, zeros)).all()
        return (x * x).sum()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kl.func.grad(loss)(kl.array(X, dtype=dtype)).numpy() == pytest.approx([1.4, 2.4])
