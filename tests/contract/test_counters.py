"""Checks of functions and tapes that count in an array of integers, which goes on or begins anew."""

from collections.abc import Callable
from typing import Any

import pytest

import kernelab as kl

compact: Any = kl.compile("""
def compact(x: array[float], n: array[int], y: array[float]):
    i = tid()
    if x[i] > 0.0:
        k = atomic_add(n, 0, 1)
        y[k] = x[i] * x[i]
""")["compact"]


RESETS: dict[str, Callable[[Any], Any]] = {
    "zero_": lambda n: n.zero_(),
    "fill_": lambda n: n.fill_(0),
    "assign": lambda n: n.assign([0]),
    "item assignment": lambda n: n.__setitem__(slice(None), 0),
    "a copy": lambda n: kl.copy(n, kl.zeros(1, dtype=int)),
}


def leaf() -> Any:
    return kl.array([1.0, -2.0, 3.0], requires_grad=True)


def on(x: Any) -> Any:
    """Both launches count in one array."""
    n, y = kl.zeros(1, dtype=int), kl.zeros(5, requires_grad=x.requires_grad)
    compact[3](x, n, y)
    compact[3](x * x, n, y)
    return y


def anew(reset: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What the first launch has gathered is gathered again."""

    def function(x: Any) -> Any:
        n = kl.ones(1, dtype=int)
        y, z = (kl.zeros(3, requires_grad=x.requires_grad) for _ in range(2))
        reset(n)
        compact[3](x, n, y)
        reset(n)
        compact[3](y, n, z)
        return z

    return function


FUNCTIONS = {"on": on} | {f"anew by {name}": anew(reset) for name, reset in RESETS.items()}
CHECKS: dict[str, Callable[[Any, Any], Any]] = {
    "gradcheck": lambda f, x: kl.autograd.gradcheck(f, inputs=[x], show_summary=False),
    "fast gradcheck": lambda f, x: kl.autograd.gradcheck(f, inputs=[x], fast=True, show_summary=False),
    "Taylor test": lambda f, x: kl.autograd.taylor_test(f, inputs=[x], show_summary=False),
}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_that_counts_passes(name: str, check: str) -> None:
    assert CHECKS[check](FUNCTIONS[name], leaf())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_tape_that_counts_is_checked_end_to_end(name: str) -> None:
    with kl.Tape() as tape:
        FUNCTIONS[name](leaf())
    report = kl.autograd.gradcheck_tape(tape, show_summary=False)
    assert report.whole is not None
    assert report.is_exact


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_digits_are_lost_by_counting(name: str) -> None:
    x = leaf()
    with kl.Tape() as tape:
        y = FUNCTIONS[name](x)
    tape.backward(grads={y: kl.ones_like(y)})
    for report in (kl.precision(FUNCTIONS[name], inputs=[x]), kl.precision(tape)):
        assert "0.0 left" not in str(report) and "7.2 left" in str(report)
