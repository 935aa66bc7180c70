"""Every way to a Jacobian gives the same matrix, whatever is launched on, and whatever is returned."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl

K = kl.compile(
    """
def product(x: array[float64], z: array[float64], y: array[float64]):
    i = tid()
    y[i] = x[i] * z[i] + x[i]

def where_positive(x: array[float64], z: array[float64], y: array[float64]):
    i = tid()
    if x[i] > 1.0:
        y[i] = x[i] * z[i]

def doubled(x: array[float64], z: array[float64]):
    i = tid()
    z[i] = 2.0 * x[i] * z[i]

def stretched(x: array2d[vec2d], z: array2d[vec2d]):
    i, j = tid()
    z[i, j] = x[i, j] * x[i, j].x
"""
)
N = 3
VIEWS: dict[str, Callable[[Any], Any]] = {
    "whole": lambda a: a,
    "slice": lambda a: a[:N],
    "later slice": lambda a: a[1 : N + 1],
    "reversed": lambda a: a[::-1],
    "every other": lambda a: a[::2],
    "reshaped": lambda a: a.reshape((2, -1))[1],
}
WINDOWS: dict[str, Callable[[Any], Any]] = {
    "rows": lambda a: a[1:3],
    "columns": lambda a: a[:, 1:3],
    "a corner": lambda a: a[:2, 1:4],
    "every other of both axes": lambda a: a[::2, ::2],
    "a transposed corner": lambda a: a.transpose((1, 0))[1:3, :2],
}
RESULTS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "the result": lambda x, z, y: y,
    "an input": lambda x, z, y: x,
    "both inputs": lambda x, z, y: (z, x),
    "all": lambda x, z, y: (x, y, z),
    "a view of the result": lambda x, z, y: y[::-1],
    "a view of an input": lambda x, z, y: (x[1:], y),
    "a reversed input": lambda x, z, y: x[::-1],
}


def reals(count: int, seed: int) -> kl.array:
    values = np.random.default_rng(seed).uniform(0.5, 1.5, count)
    return kl.array(values, dtype=kl.float64, requires_grad=True)


def agree(function: Callable[..., Any], inputs: list[kl.array]) -> None:
    """Dense and sparse Jacobians, both transforms and differences give one matrix; the check passes."""
    found = kl.autograd.jacobian(function, inputs=inputs)
    sparse = kl.autograd.jacobian(function, inputs=inputs, sparse=True)
    numeric = kl.autograd.jacobian_fd(function, inputs=inputs)
    for (i, j), value in found.items():

        def output(*given: kl.array, j: Any = j) -> kl.array:
            returned = function(*given)
            picked: kl.array = returned[j] if isinstance(returned, tuple) else returned
            return picked

        back = kl.func.jacrev(output, argnums=int(i))(*inputs).numpy()
        ahead = kl.func.jacfwd(output, argnums=int(i))(*inputs).numpy()
        np.testing.assert_allclose(value.numpy(), back, rtol=1e-12, err_msg=f"{i, j}")
        np.testing.assert_allclose(ahead, back, rtol=1e-12, err_msg=f"{i, j}")
        np.testing.assert_allclose(sparse[i, j].numpy(), back, rtol=1e-12, err_msg=f"{i, j}")
        np.testing.assert_allclose(numeric[i, j].numpy(), back, rtol=1e-6, atol=1e-9, err_msg=f"{i, j}")
    for fast in (True, False):
        assert kl.autograd.gradcheck(function, inputs=inputs, fast=fast, show_summary=False)


@pytest.mark.parametrize("returned", RESULTS)
@pytest.mark.parametrize("kernel", ["product", "where_positive"])
def test_a_function_may_return_what_it_was_given(kernel: str, returned: str) -> None:
    def function(x: kl.array, z: kl.array) -> Any:
        y = kl.zeros(N, dtype=kl.float64)
        K[kernel][N](x, z, y)
        return RESULTS[returned](x, z, y)

    agree(function, [reals(N, 0), reals(N, 1)])


@pytest.mark.parametrize("second", VIEWS)
@pytest.mark.parametrize("first", VIEWS)
def test_each_input_may_be_passed_as_another_view(first: str, second: str) -> None:
    counts = {"later slice": N + 1, "every other": 2 * N, "reshaped": 2 * N}

    def function(x: kl.array, z: kl.array) -> Any:
        y = kl.zeros(N, dtype=kl.float64)
        K["product"][N](VIEWS[first](x), VIEWS[second](z), y)
        return y, x

    agree(function, [reals(counts.get(first, N), 2), reals(counts.get(second, N), 3)])


@pytest.mark.parametrize("window", WINDOWS)
def test_the_output_may_be_a_window_of_an_array(window: str) -> None:
    def function(x: kl.array) -> Any:
        z = WINDOWS[window](kl.zeros((4, 5), dtype=kl.vec2d))
        K["stretched"][z.shape](x, z)
        return z

    x = kl.array(np.random.default_rng(8).uniform(0.5, 1.5, (4, 5, 2)), dtype=kl.vec2d, requires_grad=True)
    z = WINDOWS[window](kl.zeros((4, 5), dtype=kl.vec2d))
    right = kl.func.jacfwd(function)(x).numpy().reshape(2 * z.size, 2 * x.size)
    of_launch = kl.autograd.jacobian(K["stretched"], z.shape, [x], [z])[0, 0]
    of_function = kl.autograd.jacobian(function, inputs=[x])[0, 0]
    np.testing.assert_allclose(of_launch.numpy(), right, rtol=1e-12)
    np.testing.assert_allclose(of_function.numpy(), right, rtol=1e-12)


def test_an_input_may_be_left_out_of_the_launch() -> None:
    def function(x: kl.array, z: kl.array) -> Any:
        y = kl.full(N, 2.0, dtype=kl.float64)
        K["product"][N](x, x, y)
        return y, z

    agree(function, [reals(N, 4), reals(N, 5)])


def test_a_launch_may_change_what_is_returned() -> None:
    def function(x: kl.array, z: kl.array) -> Any:
        own = kl.clone(z)
        K["doubled"][N](x, own)
        return own, x

    agree(function, [reals(N, 6), reals(N, 7)])


@pytest.mark.parametrize("compute", [kl.autograd.jacobian, kl.autograd.jacobian_fd])
def test_a_function_that_computes_from_other_arrays_than_its_parameters_is_told(compute: Any) -> None:
    x = kl.array([1.0, 2.0, 3.0], requires_grad=True)
    with pytest.warns(kl.KernelWarning, match="computes nothing from its inputs: all derivatives are 0"):
        compute(lambda a: x * x, inputs=[x])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compute(lambda a: 0.0 * a, inputs=[x])
        compute(lambda a: x * a, inputs=[x])


@pytest.mark.parametrize("compute", [kl.autograd.jacobian, kl.autograd.jacobian_fd])
def test_one_array_that_is_two_inputs_has_one_jacobian_by_both(compute: Any) -> None:
    x = kl.array([1.0, 2.0, 3.0], requires_grad=True)
    for function in (lambda a, b: 2.0 * a, lambda a, b: 2.0 * b, lambda a, b: a + b):
        for jacobian in compute(function, inputs=[x, x]).values():
            np.testing.assert_allclose(jacobian.numpy(), 2.0 * np.eye(3), rtol=1e-5)
