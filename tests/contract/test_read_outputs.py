"""A check varies what an output begins with, too, where that is read."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl

CELL = """
def square(t: float):
    return t * t
@func_grad(square, check=False)
def adj_square(t: float, adj_ret: float):
    adjoint[t] += 3.0 * t * adj_ret

def wrong(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] + square(y[i])

def right(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] + y[i] * y[i]

def added(x: array[float], y: array[float]):
    i = tid()
    y[i] += x[i] * x[i]

def twice(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i]
    y[i] = y[i] * y[i]
"""
K = kl.compile(CELL)


def arrays() -> tuple[kl.array, kl.array]:
    return kl.array([1.0, 2.0, 3.0], requires_grad=True), kl.array([2.0, 3.0, 4.0], requires_grad=True)


def checked(function: Any, x: kl.array, y: kl.array, **options: Any) -> Any:
    dim = 3 if isinstance(function, kl.Kernel) else None
    return kl.autograd.gradcheck(
        function, dim, [x], [y], raise_exception=False, show_summary=False, **options
    )


def by_function(name: str) -> Callable[[kl.array, kl.array], None]:
    def fill(x: kl.array, y: kl.array) -> None:
        K[name][3](x, y)

    return fill


@pytest.mark.parametrize("make", [K.__getitem__, by_function], ids=["kernel", "function"])
@pytest.mark.parametrize("fast", [True, False])
def test_a_wrong_derivative_by_what_an_output_held_fails(make: Callable[[str], Any], fast: bool) -> None:
    x, y = arrays()
    report = checked(make("wrong"), x, y, fast=fast)
    assert [(pair.input, pair.output, pair.passed) for pair in report.pairs] == [
        ("x", "y", True),
        ("y", "y", False),
    ]
    dim = 3 if isinstance(make("wrong"), kl.Kernel) else None
    assert not kl.autograd.taylor_test(make("wrong"), dim, [x], [y], show_summary=False)
    assert checked(make("wrong"), x, y, input_output_mask=[("x", "y")])
    assert y.list() == [2.0, 3.0, 4.0]
    y.requires_grad = False
    assert checked(make("wrong"), x, y)


@pytest.mark.parametrize("make", [K.__getitem__, by_function], ids=["kernel", "function"])
@pytest.mark.parametrize("name", ["right", "added", "twice"])
def test_a_right_one_passes(make: Callable[[str], Any], name: str) -> None:
    assert checked(make(name), *arrays())


@pytest.mark.parametrize("make", [K.__getitem__, by_function], ids=["kernel", "function"])
def test_an_output_without_numbers_in_it_yet_is_not_varied(make: Callable[[str], Any]) -> None:
    x, _ = arrays()
    report = checked(make("twice"), x, kl.array([np.nan] * 3, requires_grad=True))
    assert report
    assert [pair.input for pair in report.pairs] == ["x"]


def test_an_output_that_is_only_added_to_is_no_input() -> None:
    report = checked(K["added"], *arrays())
    assert report
    assert [pair.input for pair in report.pairs] == ["x"]
