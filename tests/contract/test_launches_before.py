"""Arrays that launches, functions and copies outside of the tape made: what they come from is told."""

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
doubled = kl.func.custom_vjp(lambda x: 2.0 * x, lambda x, bar: 2.0 * bar)


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
    "a function of custom_vjp": lambda x: doubled(x),
    "of a number": lambda x: kl.map(lambda v: v, kl.ones(3)) * x.sum(),
}


COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": lambda x: copied(x, lambda y: kl.copy(y, x)),
    "assign": lambda x: kl.zeros_like(x).assign(x),
    "item assignment": lambda x: copied(x, lambda y: operator.setitem(y, slice(None), x)),
    "in parts": lambda x: copied(x, lambda y: [kl.copy(y[i : i + 1], x[i : i + 1]) for i in range(3)]),
    "contiguous": lambda x: x[::-1].contiguous(),
    "picked elements": lambda x: x[kl.array([2, 0, 1], dtype=int)].contiguous(),
    "set at indices": lambda x: copied(x, lambda y: operator.setitem(y, kl.array([2, 0, 1], dtype=int), x)),
    "sorted keys": lambda x: as_pairs(x, lambda x, other: kl.utils.radix_sort_pairs(x, other, 3)),
    "sorted values": lambda x: as_pairs(x, lambda x, other: kl.utils.radix_sort_pairs(other, x, 3)),
    "sorted segments": lambda x: as_pairs(
        x, lambda x, other: kl.utils.segmented_sort_pairs(x, other, 3, kl.array([0, 3], dtype=int))
    ),
}


def copied(x: Any, copy: Callable[[Any], Any]) -> Any:
    y = kl.zeros_like(x)
    copy(y)
    return y


def as_pairs(x: Any, sort: Callable[[Any, Any], Any]) -> Any:
    pairs = kl.zeros(6, requires_grad=True)
    kl.copy(pairs, x, count=3)
    sort(pairs, kl.array([2, 1, 0, 0, 0, 0], dtype=int))
    return pairs


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


@pytest.mark.parametrize("name", COPIES)
def test_copies_of_what_was_computed_before_the_tape_are_reported(name: str) -> None:
    x, loss = leaf(), result(1)
    z = COPIES[name](x * x)
    with kl.Tape() as tape:
        total[z.size](z, loss)
    assert "which computed `z` outside of the tape" in told(lambda: tape.backward(loss))


@pytest.mark.parametrize("name", [*COPIES, "clone"])
def test_a_copy_before_the_tape_is_reported_where_the_gradient_of_its_source_is_read(name: str) -> None:
    """It may be meant as a beginning, so the pass itself is silent."""
    x, w, loss = leaf(), leaf(), result(1)
    z = COPIES.get(name, kl.clone)(x)
    with kl.Tape() as tape:
        total[z.size](z, loss)
        total[3](w, loss)
    assert told(lambda: tape.backward(loss)) == told(lambda: (z.grad, w.grad)) == ""
    assert "which filled `z` outside of the tape" in told(lambda: x.grad)
    with kl.Tape() as tape:
        total[z.size](z, loss)
    assert told(lambda: tape.backward(loss)) == ""


@pytest.mark.parametrize("read", [lambda z: kl.clone(z), lambda z: doubled(z)], ids=["clone", "function"])
def test_what_the_tape_copies_or_gives_to_functions_first_is_reported(read: Callable[[Any], Any]) -> None:
    x, loss = leaf(), result(1)
    z = x * x
    with kl.Tape() as tape:
        total[3](read(z), loss)
    assert "which computed `z` outside of the tape" in told(lambda: tape.backward(loss))


def test_a_copy_of_a_clone_without_gradients_is_silent() -> None:
    x, w, loss = leaf(), leaf(), result(1)
    z = kl.zeros_like(x).assign(kl.clone(x, requires_grad=False))
    with kl.Tape() as tape:
        total[3](z, loss)
        total[3](w, loss)
    assert told(lambda: (tape.backward(loss), x.grad)) == ""


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


SCRATCH: dict[str, tuple[bool, str]] = {
    "in one line": (False, "s[i] = x[i] * x[i]; y[i] = s[i] * x[i]"),
    "on both sides": (
        False,
        "if x[i] > 2.0:\n        s[i] = x[i] * x[i]\n    else:\n        s[i] = x[i]\n    y[i] = s[i]",
    ),
    "in a loop": (
        False,
        "s[i] = 0.0\n    for k in range(x.shape[0]):\n        s[i] = s[i] * x[k] + 1.0\n    y[i] = s[i]",
    ),
    "on one side": (True, "if x[i] > 2.0:\n        s[i] = x[i] * x[i]\n    y[i] = s[i]"),
    "at another element": (True, "s[i] = x[i] * x[i]; y[i] = s[0]"),
    "after the read": (True, "y[i] = s[i] * x[i]; s[i] = x[i] * x[i]"),
    "in a loop that may not run": (
        True,
        "for k in range(x.shape[0] - 3):\n        s[i] = x[k]\n    y[i] = s[i]",
    ),
    "an atomic's old value": (True, "y[i] = atomic_add(s, i, x[i])"),
}


@pytest.mark.parametrize("name", SCRATCH)
def test_a_launch_that_reads_only_what_it_has_stored_is_silent(name: str) -> None:
    """Arrays for values on the way hold those of an earlier launch; nothing comes of these."""
    is_told, body = SCRATCH[name]
    text = f"def step(x: array[float], s: array[float], y: array[float]):\n    i = tid()\n    {body}\n"
    step = kl.compile(text)["step"]
    x, s, y = leaf(), result(), result()
    step[3](x, s, y)
    with kl.Tape() as tape:
        step[3](x, s, y)
    message = told(lambda: tape.backward(grads={y: kl.ones(3)}))
    assert ("which computed `s` outside of the tape" in message) == is_told, message
