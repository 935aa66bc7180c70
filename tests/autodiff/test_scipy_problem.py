"""`kernelab.interop.scipy.problem`: what SciPy's solvers ask of a function, in float64."""

from typing import Any

import numpy as np
import pytest
from scipy import integrate, optimize, sparse

import kernelab as kl
from kernelab.interop.scipy import problem

KERNELS = kl.compile("""
def rosenbrock(x: array[float], loss: array[float]):
    i = tid()
    a = 1.0 - x[i]
    b = x[i + 1] - x[i] * x[i]
    atomic_add(loss, 0, a * a + 100.0 * b * b)

def bands(x: array[Any], y: array[Any]):
    i = tid()
    y[i] = x[i] * x[i] * x[i] + x[i]
    if i > 0:
        y[i] = y[i] - x[i - 1]

def decay(t: float, y: array[float], rate: array[float]):
    i = tid()
    rate[i] = -(1.0 + t) * y[i] + y[(i + 1) % 3]
""")
X = np.array([-1.2, 1.0, 0.3, 0.7])


def rosenbrock(x: Any) -> Any:
    loss = kl.zeros(1, dtype=float)
    kl.launch(KERNELS["rosenbrock"], dim=len(x) - 1, inputs=[x], outputs=[loss])
    return loss


def bands(x: Any) -> Any:
    y = kl.zeros_like(x)
    kl.launch(KERNELS["bands"], dim=len(x), inputs=[x], outputs=[y])
    return y


def decay(t: float, y: Any) -> Any:
    rate = kl.zeros(3, dtype=float)
    kl.launch(KERNELS["decay"], dim=3, inputs=[t, y], outputs=[rate])
    return rate


def test_values_and_derivatives_are_those_of_scipy_in_float64() -> None:
    p = problem(rosenbrock, X)
    assert p.fun(X) == pytest.approx(optimize.rosen(X), rel=1e-14)
    np.testing.assert_allclose(p.jac(X), optimize.rosen_der(X), rtol=1e-13)
    np.testing.assert_allclose(p.hess(X), optimize.rosen_hess(X), rtol=1e-13)
    np.testing.assert_allclose(p.hessp(X, X[::-1]), optimize.rosen_hess_prod(X, X[::-1]), rtol=1e-13)


@pytest.mark.parametrize("method", ["Newton-CG", "trust-exact", "BFGS"])
def test_minimize_finds_the_minimum(method: str) -> None:
    p = problem(rosenbrock, np.array([1.2, 0.8, 1.1, 0.9]))
    second = {"hessp": p.hessp} if method == "Newton-CG" else {"hess": p.hess} if method != "BFGS" else {}
    found = optimize.minimize(p.fun, p.x0, jac=p.jac, method=method, tol=1e-10, **second)
    np.testing.assert_allclose(found.x, 1.0, atol=1e-6)


def test_root_and_least_squares_take_dense_and_sparse_jacobians() -> None:
    dense = problem(bands, np.linspace(0.5, 1.5, 6))
    assert dense.jac(dense.x0).shape == (6, 6)
    np.testing.assert_allclose(optimize.root(dense.fun, dense.x0, jac=dense.jac).x, 0.0, atol=1e-9)
    thin = problem(bands, kl.array(np.linspace(0.5, 1.5, 6), dtype=kl.float64), sparse=True)
    found = thin.jac(thin.x0)
    assert sparse.issparse(found)
    assert found.nnz == 11
    np.testing.assert_allclose(found.toarray(), dense.jac(dense.x0), rtol=1e-14)
    solved = optimize.least_squares(thin.fun, thin.x0, jac=thin.jac, method="trf", gtol=1e-14)
    np.testing.assert_allclose(solved.fun, 0.0, atol=1e-9)
    assert thin.sparsity.nnz == 11


def test_solve_ivp_takes_time_before_the_vector() -> None:
    p = problem(decay, np.array([1.0, 2.0, 3.0]), time=True)
    with_jac = integrate.solve_ivp(p.fun, (0.0, 1.0), p.x0, jac=p.jac, method="BDF", rtol=1e-9, atol=1e-12)
    without = integrate.solve_ivp(p.fun, (0.0, 1.0), p.x0, method="DOP853", rtol=1e-10, atol=1e-12)
    assert p.jac(1.0, p.x0).diagonal().tolist() == [-2.0] * 3
    np.testing.assert_allclose(with_jac.y[:, -1], without.y[:, -1], rtol=1e-6)


def test_a_function_of_several_arrays_takes_their_numbers_one_after_another() -> None:
    a, b = kl.array([1.0, 2.0], dtype=float), kl.array([3.0, 4.0], dtype=float)
    p = problem(lambda a, b: (a * a * b).sum(), (a, b))
    assert p.x0.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert p.fun(p.x0) == 19.0
    assert p.jac(p.x0).tolist() == [6.0, 16.0, 1.0, 4.0]
    assert p.hess(p.x0).tolist() == [[6, 0, 2, 0], [0, 8, 0, 4], [2, 0, 0, 0], [0, 4, 0, 0]]
    assert p.hessp(p.x0, np.ones(4)).tolist() == [8.0, 12.0, 2.0, 4.0]
    with pytest.raises(kl.KernelTypeError, match="a sparse jac is that of a function of one array"):
        problem(lambda a, b: a, (a, b), sparse=True)


def test_an_error_within_a_solver_names_the_line_that_called_the_solver() -> None:
    squared = kl.compile("def squared(x: array[float]):\n    x[tid()] = x[tid()] * x[tid()]")["squared"]

    def loss(x: Any) -> Any:
        squared[len(x)](x)
        return x.sum()

    p = problem(loss, kl.ones(3))
    with pytest.raises(kl.GradientError, match="loss changes its argument `x`") as caught:
        optimize.minimize(p.fun, p.x0, jac=p.jac)
    assert "optimize.minimize(p.fun, p.x0, jac=p.jac)" in str(caught.value)
    assert "squared[len(x)](x)" in str(caught.value)


def test_a_gradient_is_that_of_the_values_that_are_there_now() -> None:
    weights = kl.array([1.0, 1.0, 1.0], dtype=float)
    p, x = problem(lambda x: (x * x * weights).sum(), np.ones(3)), np.ones(3)
    for weight in (1.0, 5.0):
        weights.fill_(weight)
        assert p.jac(x).tolist() == [2.0 * weight] * 3
        assert p.fun(x) == 3.0 * weight
    optimize.minimize(p.fun, x, jac=p.jac, options={"maxiter": 0})
    weights.fill_(7.0)
    assert p.jac(x).tolist() == [14.0] * 3


def test_a_solver_runs_the_function_once_for_value_and_gradient() -> None:
    runs: list[int] = []
    p = problem(lambda x: (runs.append(1), (x * x).sum())[1], np.ones(3))
    p.jac(p.x0)
    runs.clear()
    found = optimize.minimize(p.fun, p.x0, jac=p.jac)
    assert len(runs) == found.nfev


def test_what_no_solver_takes_is_an_error() -> None:
    several = problem(lambda x: (x, x), np.ones(3))
    for ask in (several.fun, several.jac):
        with pytest.raises(kl.KernelTypeError, match="returns 2 arrays, and SciPy takes one vector"):
            ask(np.ones(3))
    with pytest.raises(kl.KernelTypeError, match="hess is that of one number, and bands returns several"):
        problem(bands, np.ones(3)).hess(np.ones(3))
    with pytest.raises(kl.KernelTypeError, match="x0 is the text 'abc', and has to be real numbers"):
        problem(bands, "abc")
    with pytest.raises(kl.KernelTypeError, match="take a Python function, not an int"):
        problem(3, np.ones(3))  # type: ignore[arg-type]


SOLVING: dict[str, Any] = {
    "fun": lambda f, x: problem(f, x).fun(np.array([1.0, 2.0])),
    "jac": lambda f, x: problem(f, x).jac(np.array([1.0, 2.0])),
    "hess": lambda f, x: problem(f, x).hess(np.array([1.0, 2.0])),
    "as_numpy": lambda f, x: kl.func.as_numpy(f, x)(np.array([1.0, 2.0])),
    "minimize": lambda f, x: optimize.minimize(
        problem(f, x).fun, np.array([1.0, 2.0]), method="Nelder-Mead", options={"maxfev": 1}
    ),
}


@pytest.mark.parametrize("dtype", [kl.float32, kl.float64], ids=str)
@pytest.mark.parametrize("solve", SOLVING.values(), ids=SOLVING)
def test_arrays_that_the_function_leaves_have_what_was_computed(solve: Any, dtype: Any) -> None:
    written, kept = kl.zeros(2, dtype=dtype), list[Any]()

    def loss(x: Any) -> Any:
        squares = x * x
        kept[:] = [x, squares]
        kl.copy(written, squares[::-1])
        return (squares * squares).sum()

    solve(loss, kl.zeros(2, dtype=dtype))
    if solve is not SOLVING["hess"]:  # which runs for two lanes at once
        assert [one.list() for one in kept] == [[1.0, 2.0], [1.0, 4.0]]
    assert written.list() == [4.0, 1.0]
    assert kl.map(kl.sqrt, written).list() == [2.0, 1.0]


@pytest.mark.parametrize("dtype", [kl.float32, kl.float64], ids=str)
def test_a_state_goes_on_from_call_to_call(dtype: Any) -> None:
    state = kl.zeros(2, dtype=dtype)

    def loss(x: Any) -> Any:
        kl.copy(state, state + x)
        return (state * x).sum()

    p = problem(loss, kl.zeros(2, dtype=dtype))
    at = np.array([1.0, 2.0])
    assert [p.fun(at), p.fun(at)] == [5.0, 10.0]
    assert p.jac(at) == pytest.approx([4.0, 8.0])
    assert state.list() == [3.0, 6.0]


def test_arrays_of_several_sizes_stand_in_one_vector() -> None:
    p = problem(lambda a, b: (a * a).sum() * b, (kl.array([1.0, 2.0]), kl.array([3.0])))
    assert p.x0.tolist() == [1.0, 2.0, 3.0]
    assert p.jac(p.x0) == pytest.approx([6.0, 12.0, 5.0])
    assert p.hess(p.x0) == pytest.approx(np.array([[6.0, 0.0, 2.0], [0.0, 6.0, 4.0], [2.0, 4.0, 0.0]]))


@pytest.mark.parametrize("dtype", [kl.bfloat16, kl.float16], ids=str)
def test_a_program_over_halves_runs_in_float64(dtype: Any) -> None:
    p = problem(lambda x: (x * x * x).sum(), kl.array([1.0, 2.0], dtype=dtype))
    assert p.jac(np.array([1.1, 2.3])) == pytest.approx([3.63, 15.87])
