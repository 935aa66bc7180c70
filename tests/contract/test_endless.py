"""Loops that never end: an error where nothing changes their condition, else as endless as in Python."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import KernelAssertionError
from kernelab.lang.ir import While, walk
from kernelab.passes.ad.vjp import vjp
from tests.frontend.helpers import agrees_with_python
from tests.support.lowering import lowered

HEAD = """
def spin(n: int):
    while n > 0:
        pass
    return n

def twice(n: int):
    return 2 * n

def kernel(n: int, y: array[float]):
"""
SETTLED = {
    "an empty body": "while n > 0:\n    pass",
    "a body that computes": "t = 0.0\nwhile n > 0:\n    t += 1.0",
    "an element that nobody writes": "while y[1] < n:\n    pass",
    "a break": "while True:\n    if n < 1:\n        break",
    "a return": "while True:\n    if n < 1:\n        break\n    if n < -1:\n        return",
    "a loop inside": "while n > 0:\n    for k in range(3):\n        t = k",
    "a loop in a function": "y[1] = float(spin(n))",
    "an if around": "if n > 0:\n    while n > 0:\n        pass",
    "a body that prints": "while n > 0:\n    print(n)",
    "a body that writes": "while n > 0:\n    y[1] = y[1] + 1.0",
    "a condition by a function": "while twice(n) > n:\n    pass",
    "a body that writes elsewhere": "t = zeros(2, dtype=float)\nwhile y[1] < n:\n    t[0] += 1.0",
}
ENDLESS = {
    "a value that changes and stays": "t = 1.0\nwhile t > 0.0:\n    t = t * 1.0 + 1.0 - 1.0",
    "an element that the body writes": "while y[1] == 0.0:\n    y[2] = 1.0",
    "a dead counter": "k = n\nwhile k > 0:\n    k = k + 1 - 1",
}


def text(body: str) -> str:
    return HEAD + "".join(f"    {line}\n" for line in [*body.split("\n"), "y[0] = 1.0"])


@pytest.mark.parametrize("body", SETTLED.values(), ids=SETTLED)
def test_a_loop_whose_condition_nothing_changes_is_an_error(body: str) -> None:
    y = kl.zeros(3, dtype=float)
    with pytest.raises(KernelAssertionError, match="this loop never ends") as caught:
        kl.compile(text(body))["kernel"][1](1, y)
    assert "while" in str(caught.value)
    assert y.numpy()[0] == 0.0


@pytest.mark.parametrize("body", SETTLED.values(), ids=SETTLED)
def test_it_is_passed_where_its_condition_does_not_hold(body: str) -> None:
    agrees_with_python(text(body), n=0, y=np.zeros(3, np.float32))


class Interrupted(Exception):
    pass


@contextmanager
def interrupted_soon() -> Iterator[None]:
    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("body", ENDLESS.values(), ids=ENDLESS)
def test_any_other_runs_until_it_is_interrupted(body: str) -> None:
    kernel, y = kl.compile(text(body))["kernel"], kl.zeros(3, dtype=float)
    kl.launch(kernel, dim=0, inputs=[1, y])  # builds it
    with pytest.raises(Interrupted), interrupted_soon():
        kernel[1](1, y)
    assert y.numpy()[0] == 0.0


def test_an_adjoint_does_not_run_a_loop_that_it_does_not_need() -> None:
    function = lowered(text("k = n\nwhile k > 0:\n    k -= 1"), "kernel")
    program = vjp(function, ["y"])
    assert any(isinstance(stmt, While) for stmt in walk(program.primal.body))
    assert not any(isinstance(stmt, While) for stmt in walk(program.adjoint.body))
