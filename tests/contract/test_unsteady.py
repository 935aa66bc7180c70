"""Checks and differences of a function that gives something else each time say so; others stay silent."""

import itertools
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import kernelab as kl

ADD = """
def add(x: array[float], total: array[float]):
    i = tid()
    total[i] += x[i]
"""
add: Any = kl.compile(ADD)["add"]


def counting() -> Callable[[Any], Any]:
    counts = itertools.count(1)
    return lambda x: x * float(next(counts))


def counting_beside() -> Callable[[Any], Any]:
    counts = itertools.count(1)
    return lambda x: x * x + float(next(counts))


def drawing() -> Callable[[Any], Any]:
    rng = np.random.default_rng(0)
    return lambda x: x * kl.array(rng.normal(size=x.shape), dtype=x.dtype)


def adding() -> Callable[[Any], Any]:
    total = kl.zeros(3)

    def added(x: Any) -> Any:
        add[3](x, total)
        return total * x

    return added


UNSTEADY = {
    "a counter": counting,
    "a counter that is added": counting_beside,
    "random numbers": drawing,
    "an array from outside": adding,
}
TOLD = "gives something else each time that it runs at the same inputs"


def steady(x: Any) -> Any:
    rng, total = np.random.default_rng(0), kl.zeros(3)
    add[3](x, total)
    return total * x * kl.array(rng.normal(size=3), dtype=x.dtype)


def one() -> Any:
    return kl.array([0.5, -1.0, 2.0], requires_grad=True)


@pytest.mark.parametrize("name", UNSTEADY)
def test_differences_of_what_changes_from_run_to_run_warn_at_the_line(name: str) -> None:
    with pytest.warns(kl.KernelWarning, match=TOLD) as caught:
        kl.autograd.jacobian_fd(UNSTEADY[name](), inputs=[one()])
    assert "kl.autograd.jacobian_fd(UNSTEADY[name]()" in str(caught[0].message)


@pytest.mark.parametrize("name", UNSTEADY)
def test_so_do_sparse_jacobians_that_take_several_runs(name: str) -> None:
    function = UNSTEADY[name]()
    with pytest.warns(kl.KernelWarning, match=f"{TOLD}: these are Jacobians of several runs"):
        kl.autograd.jacobian(lambda x: (function(x), 2.0 * function(x)), inputs=[one()], sparse=True)


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("name", UNSTEADY)
def test_a_check_of_it_fails(name: str, fast: bool) -> None:
    function, check = UNSTEADY[name](), partial(kl.autograd.gradcheck, fast=fast, show_summary=False)
    report = check(function, inputs=[one()], raise_exception=False)
    assert [pair.verdict for pair in report.pairs] == ["nondeterministic"]
    with pytest.raises(kl.GradientError, match=TOLD):
        check(function, inputs=[one()])


@pytest.mark.parametrize("name", [name for name in UNSTEADY if name != "an array from outside"])
def test_a_taylor_test_of_it_says_so(name: str) -> None:
    report = kl.autograd.taylor_test(UNSTEADY[name](), inputs=[one()], show_summary=False)
    assert not report
    assert TOLD in report.fault


def test_what_is_made_anew_in_each_run_is_steady() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kl.autograd.jacobian_fd(steady, inputs=[one()])
        assert kl.autograd.gradcheck(steady, inputs=[one()], show_summary=False)
        assert kl.autograd.taylor_test(steady, inputs=[one()], show_summary=False)


def test_results_that_are_not_numbers_are_the_same_again() -> None:
    root = kl.compile("def root(t: float):\n    return sqrt(t)")["root"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kl.autograd.jacobian_fd(lambda x: kl.map(root, x), inputs=[one()])
