"""Atomics: sums, extrema and the old value that an atomic returns; an error where nothing is right."""

import numpy as np
import pytest

import kernelab as kl
from tests.contract.agree import gradients_are_right

X = [0.7, -0.4, 1.3, 0.2, -0.9]


def test_a_sum_into_one_element_gives_every_term_its_cotangent() -> None:
    text = """
def k(x: array[float64], s: array[float64]):
    i = tid()
    atomic_add(s, 0, x[i] * x[i])
    atomic_sub(s, 1, sin(x[i]))
    s[2] += x[i]
    s[2] -= x[i] * x[0]
"""
    gradients_are_right(text, 5, x=X, s=[0.5, 0.1, 0.0])


def test_a_sum_may_stand_in_a_loop_and_a_branch_and_meet_an_element_twice() -> None:
    text = """
def k(x: array[float64], n: array[int], s: array[float64]):
    i = tid()
    for j in range(n[i]):
        if x[j] > 0.0:
            atomic_add(s, n[j] % 3, x[j] * x[i])
        else:
            s[n[j] % 3] += x[i] * x[i]
"""
    gradients_are_right(text, 5, x=X, n=[3, 0, 5, 4, 1], s=[0.5, 0.1, 0.0])


def test_the_cotangent_of_a_maximum_goes_to_the_one_value_that_stays() -> None:
    text = """
def k(x: array[float64], high: array[float64], low: array[float64]):
    i = tid()
    atomic_max(high, 0, x[i] * x[i])
    atomic_min(low, 0, sin(x[i]))
"""
    gradients_are_right(text, 5, x=X, high=[0.1], low=[0.0])


def test_a_value_from_before_that_nobody_beats_keeps_the_cotangent_of_a_maximum() -> None:
    text = "def k(x: array[float64], high: array[float64]):\n    atomic_max(high, 0, x[tid()])\n"
    found = gradients_are_right(text, 5, x=X, high=[7.0])
    assert not found["x"].any()
    assert found["high"].all()


def test_of_equal_values_the_first_one_has_the_whole_cotangent_of_a_maximum() -> None:
    kernel = kl.compile("def k(x: array[float], high: array[float]):\n    atomic_max(high, 0, x[tid()])\n")[
        "k"
    ]
    x = kl.array([1.0, 3.0, 3.0], dtype=float, requires_grad=True)
    high = kl.zeros(1, dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        kernel[3](x, high)
    tape.backward(high)
    assert x.grad is not None
    assert x.grad.list() == [0.0, 1.0, 0.0]


def test_an_element_is_read_anew_after_an_atomic() -> None:
    text = """
def k(x: array[float64], s: array[float64], y: array[float64]):
    i = tid()
    before = s[0]
    atomic_add(s, 0, x[i] * x[i])
    y[i] = before * s[0]
"""
    gradients_are_right(text, 5, x=X, s=[0.3], y=[0.0] * 5)


def test_the_old_value_of_a_sum_may_be_a_factor() -> None:
    text = """
def k(x: array[float64], s: array[float64], y: array[float64]):
    i = tid()
    old = atomic_add(s, 0, x[i] * x[i])
    y[i] = old * old * x[i]
"""
    gradients_are_right(text, 5, x=X, s=[0.3], y=[0.0] * 5)


def test_the_old_value_of_an_extremum_may_be_a_factor() -> None:
    text = """
def k(x: array[float64], s: array[float64], y: array[float64]):
    i = tid()
    y[i] = x[i] * atomic_max(s, 0, x[i] * x[i])
    y[i] += sin(atomic_min(s, 1, x[i]))
"""
    gradients_are_right(text, 5, x=X, s=[0.1, 0.1], y=[0.0] * 5)


def test_the_old_value_of_a_counter_may_be_an_index() -> None:
    text = """
def k(x: array[float64], used: array[int], kept: array[float64]):
    i = tid()
    if x[i] > 0.0:
        slot = atomic_add(used, 0, 1)
        kept[slot] = x[i] * x[i]
"""
    found = gradients_are_right(text, 5, x=X, used=[0], kept=[0.0] * 5)
    assert [bool(g) for g in found["x"]] == [True, False, True, True, False]


def test_atomics_of_integers_lead_and_take_no_gradient_with_them() -> None:
    text = """
def k(x: array[float64], used: array[int], y: array[float64]):
    i = tid()
    a = atomic_exch(used, 0, i) % 5
    b = atomic_add(used, 1, 2) % 5
    c = atomic_max(used, 2, 4 - i) % 5
    y[i] = x[a] * x[b] + x[c] * x[i]
"""
    gradients_are_right(text, 5, x=X, used=[3, 0, 1], y=[0.0] * 5)


@pytest.mark.parametrize("atomic", ["atomic_exch(s, 0, x[i])", "atomic_cas(s, 0, float64(0.0), x[i])"])
def test_exchanges_of_floats_have_no_right_derivative_and_say_so(atomic: str) -> None:
    head = "def k(x: array[float64], s: array[float64], y: array[float64]):"
    text = f"{head}\n    i = tid()\n    y[i] = {atomic}\n"
    kernel = kl.compile(text)["k"]
    x = kl.array(np.array(X), dtype=kl.float64, requires_grad=True)
    s, y = (kl.zeros(5, kl.float64, requires_grad=True) for _ in "sy")
    with kl.Tape() as tape:
        kernel[5](x, s, y)
    with pytest.raises(kl.KernelTypeError, match="s has no derivative"):
        tape.backward(grads={y: np.ones(5)})
