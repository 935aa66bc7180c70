"""Sums into one element: a running total where nothing looks at the element, memory where something does."""

from textwrap import indent

import numpy as np
import pytest

import kernelab as kl
from kernelab.codegen.totals import totals
from tests.support.lowering import lowered


def summed(body: str) -> list[str]:
    """The arrays whose additions in a kernel over x, y, s and k go to a running total."""
    head = "def f(x: array[float], y: array[int], s: array[float], k: int, wide: array[float64]):"
    function = lowered("\n".join([head, "    i = tid()", indent(body, "    ")]), "f")
    return [stmt.array.hint for stmt in totals(function)]


def test_a_sum_over_all_threads_has_a_running_total() -> None:
    assert summed("s[0] += x[i]\ns[k] += x[i]\ns[k + 1] += x[i]") == ["s", "s", "s"]


def test_a_sum_over_the_iterations_of_a_loop_has_one_for_each_thread() -> None:
    assert summed("for n in range(k):\n    s[i] += x[n]") == ["s"]


def test_scattered_additions_have_none() -> None:
    assert summed("s[y[i]] += x[i]\nfor n in range(k):\n    s[n] += x[i]") == []


def test_an_element_that_is_looked_at_in_between_has_none() -> None:
    assert summed("s[0] += x[i]\ns[1] = s[0]") == []


def test_an_addition_whose_old_value_is_used_has_none() -> None:
    assert summed("y[atomic_add(y, 0, 1)] = 1\nx[i] = atomic_add(s, 0, x[i])") == []


def test_float64_needs_none() -> None:
    assert summed("wide[0] += float64(x[i])") == []


SUMS = """
def total(x: array[float], s: array[float]):
    s[0] += x[tid()]

def halves(x: array[float16], s: array[float16]):
    s[0] += x[tid()]

def rows(x: array[float], s: array[float]):
    i = tid()
    for _ in range(20_000_000):
        s[i] += x[0]

def scaled(x: array[float], factor: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * factor[0]

def running(x: array[float], s: array[float]):
    i = tid()
    atomic_add(s, 0, x[i])
"""


@pytest.fixture(scope="module")
def kernels() -> dict[str, kl.Kernel]:
    return kl.compile(SUMS)


def test_twenty_million_ones_sum_to_twenty_million(kernels: dict[str, kl.Kernel]) -> None:
    n = 20_000_000
    s = kl.zeros(1)
    kl.launch(kernels["total"], n, [kl.ones(n), s])
    assert s.numpy()[0] == n


def test_so_they_do_in_a_loop_of_one_thread(kernels: dict[str, kl.Kernel]) -> None:
    s = kl.zeros(2)
    kl.launch(kernels["rows"], 2, [kl.ones(1), s])
    assert s.list() == [20_000_000, 20_000_000]


def test_five_thousand_halves_sum_to_five_thousand(kernels: dict[str, kl.Kernel]) -> None:
    s = kl.zeros(1, dtype=kl.float16)
    kl.launch(kernels["halves"], 5000, [kl.ones(5000, dtype=kl.float16), s])
    assert s.list() == [5000]


def test_the_gradient_of_what_every_thread_reads_does_not_saturate(kernels: dict[str, kl.Kernel]) -> None:
    n = 20_000_000
    factor, y = kl.ones(1, requires_grad=True), kl.zeros(n, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernels["scaled"], n, [kl.ones(n), factor, y])
    tape.backward(grads={y: kl.ones(n)})
    assert factor.grad.numpy()[0] == n


def test_arrays_that_share_memory_see_every_addition_at_once(kernels: dict[str, kl.Kernel]) -> None:
    x = kl.ones(4)
    kl.launch(kernels["running"], 4, [x, x])
    assert x.list() == [5, 1, 1, 1]
    y = kl.array([1.0, 1.0, 1.0], requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernels["running"], 3, [y, y])
    tape.backward(grads={y: kl.array([1.0, 0.0, 0.0])})
    # y[0] becomes 2 * y[0] + y[1] + y[2].
    np.testing.assert_array_equal(y.grad.numpy(), [2, 1, 1])


def test_a_launch_that_fails_keeps_what_threads_before_added() -> None:
    part = kl.compile("""
    def part(x: array[float], s: array[float]):
        i = tid()
        s[0] += x[i]
    """)["part"]
    s = kl.zeros(1)
    with pytest.raises(IndexError):
        kl.launch(part, 5, [kl.ones(3), s])
    assert s.list() == [3]
