"""Arrays that several launches outside of the tape computed: what they come from is told."""

import operator
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import kernelab as kl

K: dict[str, Any] = kl.compile("""
def square(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]

def total(x: array[float], loss: array[float]):
    atomic_add(loss, 0, x[tid()])
""")
square, total = K["square"], K["total"]


def leaf() -> Any:
    return kl.array([1.0, 2.0, 3.0], requires_grad=True)


def result(count: int = 3) -> Any:
    return kl.zeros(count, requires_grad=True)


def told(run: Callable[[], Any]) -> str:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        run()
    return "\n".join(str(warning.message) for warning in seen)


BEFORE: dict[str, Callable[[Any], Any]] = {
    "two launches": lambda x: x * x * x,
    "a result that is gone": lambda x: 2.0 * (x + 1.0),
    "changed in place": lambda x: operator.imul(x * x, 3.0),
    "by kernels": lambda x: by_kernels(x, 1),
    "by kernels without Python": lambda x: by_kernels(x, 300),
    "of a number": lambda x: kl.map(lambda v: v, kl.ones(3)) * x.sum(),
}


def by_kernels(x: Any, times: int) -> Any:
    y, z = result(), result()
    for _ in range(times):
        square[3](x, y)
        square[3](y, z)
    return z


@pytest.mark.parametrize("name", BEFORE)
def test_several_launches_before_the_tape_are_reported(name: str) -> None:
    for _ in range(20):  # at last without Python
        x = leaf()
        z, loss = BEFORE[name](x), result(1)
        with kl.Tape() as tape:
            total[3](z, loss)
        assert "which computed `z` outside of the tape" in told(lambda: tape.backward(loss))  # noqa: B023


@pytest.mark.filterwarnings("ignore:this tape already holds")
def test_what_becomes_of_a_result_between_two_stretches_of_a_tape_is_reported() -> None:
    x, y, loss = leaf(), result(), result(1)
    with kl.Tape() as tape:
        square[3](x, y)
    z = 2.0 * y
    with tape:
        total[3](z, loss)
        total[3](x, loss)
    assert "which computed `z` outside of the tape" in told(lambda: tape.backward(loss))


def test_what_has_changed_since_is_not_followed_back() -> None:
    x, loss = leaf(), result(1)
    y = 2.0 * x
    y.assign([1.0, 2.0, 3.0])
    z = 3.0 * y
    z.assign([1.0, 2.0, 3.0])
    with kl.Tape() as tape:
        total[3](z, loss)
    assert told(lambda: tape.backward(loss)) == ""


def test_a_running_mean_holds_no_more_than_it_comes_from() -> None:
    x, mean = leaf(), result()
    for _ in range(50):
        mean = 0.9 * mean + 0.1 * x
    assert len(mean.allocation.origin[4]) < 8
