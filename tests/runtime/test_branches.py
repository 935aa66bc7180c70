"""Host code that depends on a number in memory: `capture_if` and `capture_while` outside of captures."""

from collections.abc import Iterator
from typing import Any

import pytest

import kernelab as kl
from tests.support.devices import opened
from tests.support.simulated import SimulatedDriver

KERNELS = kl.compile("""
def count_down(left: array[int], x: array[float]):
    i = tid()
    left[i] -= 1
    x[i] = 2.0 * x[i]

def square(x: array[float], y: array[float]):
    y[0] = x[0] * x[0]
""")


@pytest.fixture
def device() -> Iterator[str]:
    with opened(SimulatedDriver(1 << 20)):
        yield "cuda:0"


@pytest.mark.parametrize("place", ["cpu", "cuda:0"])
def test_a_loop_goes_on_while_the_condition_is_not_zero(place: str, device: str) -> None:
    left, x = kl.array([3], dtype=int, device=place), kl.ones(1, device=place)

    def body(x: Any) -> None:
        kl.launch(KERNELS["count_down"], 1, [left, x])

    kl.capture_while(left, body, x=x)
    assert left.list() == [0] and x.list() == [8.0]


def test_the_condition_chooses_a_function() -> None:
    chosen = []
    for number in (1, 0):
        condition = kl.array([number], dtype=int)
        kl.capture_if(condition, lambda: chosen.append("true"), lambda: chosen.append("false"))
        kl.capture_if(condition, on_true=lambda: chosen.append("only true"))
    assert chosen == ["true", "only true", "false"]


def test_a_tape_records_what_ran() -> None:
    x, y = kl.array([3.0], requires_grad=True), kl.zeros(1, requires_grad=True)
    with kl.Tape() as tape:
        kl.capture_if(kl.ones(1, dtype=int), lambda: kl.launch(KERNELS["square"], 1, [x, y]))
    tape.backward(y)
    assert x.grad.list() == [6.0]


def test_the_body_may_be_a_graph(device: str) -> None:
    left, x = kl.array([2], dtype=int, device=device), kl.ones(1, device=device)
    kl.launch(KERNELS["count_down"], 1, [left, x])
    with kl.ScopedCapture(device) as capture:
        kl.launch(KERNELS["count_down"], 1, [left, x])
    left.fill_(3)
    kl.capture_while(left, capture.graph)
    assert left.list() == [0] and x.list() == [16.0]


def test_within_a_capture_there_is_nothing_to_decide_by(device: str) -> None:
    condition = kl.ones(1, dtype=int, device=device)
    with (
        pytest.raises(kl.LaunchError, match="capture_if decides by a number in memory"),
        kl.ScopedCapture(device),
    ):
        kl.capture_if(condition, lambda: None)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kl.capture_if(True, lambda: None), "by the first element of an array, not by the bool True"),
        (lambda: kl.capture_if(kl.ones(1, dtype=int), 3), "capture_if runs a function or a graph"),
    ],
)
def test_what_is_no_condition_and_no_body_is_refused(call: Any, message: str) -> None:
    with pytest.raises(kl.LaunchError, match=message):
        call()
