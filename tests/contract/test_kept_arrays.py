"""An array that a function makes in one run and keeps for the next has lost what it was computed of."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl

LOST = "no derivative flows through .*, which an earlier run of the function has computed"


def keeping(squared: int) -> Callable[..., kl.array]:
    """A function of arrays that keeps the square of one of them."""
    kept: dict[str, kl.array] = {}

    def function(*args: kl.array) -> kl.array:
        if not kept:
            kept["y"] = args[squared] * args[squared]
        return kept["y"] * args[0]

    return function


def values(*numbers: float) -> kl.array:
    return kl.array(numbers, dtype=float)


def total(function: Callable[..., kl.array]) -> Callable[..., kl.array]:
    return lambda *args: kl.utils.array_sum(function(*args), out=kl.zeros(1))


RUNS: dict[str, Callable[[], Any]] = {
    "columns of another argument": lambda: kl.func.jacfwd(keeping(1), argnums=(0, 1))(values(2), values(3)),
    "columns of another chunk": lambda: kl.func.jacfwd(keeping(0), chunk_size=1)(values(2, 3)),
    "a sparse Jacobian": lambda: kl.autograd.jacobian(
        keeping(0), inputs=[kl.array(np.linspace(1, 2, 300), dtype=float, requires_grad=True)], sparse=True
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_transform_that_runs_a_function_again_warns_of_what_it_has_kept(name: str) -> None:
    with pytest.warns(kl.KernelWarning, match=LOST):
        RUNS[name]()


def test_so_does_the_next_call_of_a_transform() -> None:
    gradient = kl.func.grad(total(keeping(0)))
    assert gradient(values(2)).list() == [12]
    with pytest.warns(kl.KernelWarning, match=LOST):
        gradient(values(2))


def test_what_was_computed_for_lanes_is_not_there_for_the_next_ones() -> None:
    with pytest.raises(kl.GradientError, match="computed in an earlier run, for lanes that are no longer"):
        kl.func.vmap(keeping(0), chunk_size=1)(kl.array(np.ones((3, 2)), dtype=float))


def test_what_depends_on_no_argument_may_be_kept_and_so_may_results() -> None:
    kept: list[kl.array] = []
    weights = values(1, 2)

    def function(x: kl.array, z: kl.array) -> kl.array:
        if not kept:
            kept.append(weights * weights)
        return kept[0] * x * z

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jacobian = kl.func.jacfwd(function, argnums=(0, 1))(values(3, 4), values(5, 6))
        np.testing.assert_array_equal(jacobian[1].numpy(), np.diag([3.0, 16.0]))
        value, gradient = kl.func.value_and_grad(total(lambda x: x * x))(values(3, 4))
        again = kl.func.grad(total(lambda x: x * gradient))(values(1, 1))
        assert again.list() == [6, 8]
        assert kl.func.grad(lambda x: total(lambda x: x * x)(x) * value)(values(1, 1)).list() == [50, 50]


def test_what_stops_gradients_is_a_constant() -> None:
    kept: list[kl.array] = []

    def function(x: kl.array) -> kl.array:
        if not kept:
            kept.append(kl.map(kl.stop_gradient, x * x))
        return kept[0] * x

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = (kl.func.grad(total(function))(values(2)).list() for _ in range(2))
    assert first == second == [4]
