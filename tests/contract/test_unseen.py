"""Writes behind the tape's back: an error where an adjoint has to pass them, silence where none does."""

from collections.abc import Callable
from typing import Any

import pytest

import kernelab as kl

TEXT = """
def square(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]

def total(y: array[float], loss: array[float]):
    atomic_add(loss, 0, y[tid()])

def half(x: array[float], y: array[float]):
    i = tid()
    y[i] = 0.5 * x[i + 1]
"""
kernels: dict[str, Any] = kl.compile(TEXT)
square, total, half = (kernels[name] for name in ("square", "total", "half"))


def leaf(*values: float) -> Any:
    return kl.array(values, dtype=float, requires_grad=True)


def result(n: int) -> Any:
    return kl.zeros(n, dtype=float, requires_grad=True)


def test_a_write_through_a_numpy_view_between_two_launches_is_an_error_at_backward() -> None:
    x, y, loss = leaf(1, 2, 3), result(3), result(1)
    with kl.Tape() as tape:
        square[3](x, y)
        y.numpy()[0] = 0.0
        total[3](y, loss)
    with pytest.raises(kl.TapeError, match="the tape did not see how"):
        tape.backward(loss)


def test_so_is_a_launch_that_was_not_recorded() -> None:
    x, y, loss = leaf(1, 2, 3), result(3), result(1)
    with kl.Tape() as tape:
        square[3](x, y)
        kl.launch(square, 3, [x], [y], record_tape=False)
        total[3](y, loss)
    with pytest.raises(kl.TapeError, match="the tape did not see how"):
        tape.backward(loss)


@pytest.mark.parametrize("computed", [False, True])
def test_so_is_a_launch_that_failed_half_way(computed: bool) -> None:
    x, y, loss = leaf(1, 2, 3), result(3), result(1)
    with kl.Tape() as tape:
        if computed:
            square[3](x, y)
        with pytest.raises(kl.KernelIndexError):
            half[3](x, y)
        total[3](y, loss)
    match = "no gradient flows through the launch of `half`, which failed before it had written all of `y`"
    with pytest.raises(kl.TapeError, match=match) as caught:
        tape.backward(loss)
    assert "half[3](x, y)" in str(caught.value)


def test_a_launch_that_failed_is_silent_where_another_one_writes_everything_anew() -> None:
    x, y, loss = leaf(1, 2, 3), result(3), result(1)
    with kl.Tape() as tape:
        with pytest.raises(kl.KernelIndexError):
            half[3](x, y)
        square[3](x, y)
        total[3](y, loss)
    tape.backward(loss)
    assert x.grad.list() == [2, 4, 6]


@pytest.mark.filterwarnings("ignore:this tape already holds")
def test_so_is_a_fill_between_two_blocks_of_one_tape() -> None:
    x, y, loss = leaf(1, 2, 3), result(3), result(1)
    tape = kl.Tape()
    with tape:
        square[3](x, y)
    y.fill_(7.0)
    with tape:
        total[3](y, loss)
    with pytest.raises(kl.TapeError, match="the tape did not see how"):
        tape.backward(loss)


def test_a_write_to_other_elements_is_silent() -> None:
    x, y, loss = leaf(1, 2, 3), result(6), result(1)
    with kl.Tape() as tape:
        square[3](x, y[:3])
        kl.launch(square, 3, [x], [y[3:]], record_tape=False)
        total[3](y[:3], loss)
    tape.backward(loss)
    assert x.grad.list() == [2, 4, 6]


def test_a_write_to_what_no_adjoint_reaches_is_silent() -> None:
    x, y, z, loss = leaf(1, 2, 3), result(3), result(3), result(1)
    with kl.Tape() as tape:
        square[3](x, z)
        z.numpy()[:] = 0.0
        square[3](x, y)
        total[3](z, result(1))
        total[3](y, loss)
    tape.backward(loss)
    assert x.grad.list() == [2, 4, 6]


def test_reading_through_numpy_is_silent() -> None:
    x, y, loss = leaf(1, 2, 3), result(3), result(1)
    with kl.Tape() as tape:
        square[3](x, y)
        assert y.numpy().sum() == 14
        total[3](y, loss)
    tape.backward(loss)
    assert x.grad.list() == [2, 4, 6]


def test_a_computed_number_without_requires_grad_passes_its_adjoint_on() -> None:
    scale = kl.compile(
        "def scale(x: array[float], g: float, y: array[float]):\n    i = tid()\n    y[i] = g * x[i]\n"
    )
    x, gain, y, loss = leaf(1, 2, 3), kl.zeros(1), result(3), result(1)
    with kl.Tape() as tape:
        total[3](x, gain)
        scale["scale"][3](x, gain, y)
        total[3](y, loss)
    tape.backward(loss)
    assert x.grad.list() == [12, 12, 12]


SQUARES = kl.func.custom_vjp(lambda q: q * q, lambda q, bar: 2.0 * q * bar)
CALLS: dict[str, Callable[[Any], Any]] = {
    "the array": SQUARES,
    "a slice": lambda y: SQUARES(y[1:]),
    "another shape": lambda y: SQUARES(y.reshape((3, 1))),
    "two arguments": lambda y: kl.func.custom_vjp(lambda a, b: a * b, lambda a, b, bar: (b * bar, a * bar))(
        kl.ones(3), y
    ),
    "twice": lambda y: SQUARES(SQUARES(y)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("is_inside", [False, True], ids=["on the tape", "in a checkpoint"])
def test_so_is_one_before_a_function_of_custom_vjp(call: Callable[[Any], Any], is_inside: bool) -> None:
    def loss(x: Any) -> Any:
        y = x * x
        y.numpy()[:] = 1.0
        return call(y).sum()

    x = kl.array([1.0, 2.0, 3.0], requires_grad=True)
    with kl.Tape() as tape:
        total = kl.checkpoint(loss, x) if is_inside else loss(x)
    with pytest.raises(kl.TapeError, match="was changed before this line, and the tape did not see how"):
        tape.backward(total)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("made", [lambda x: x * x, SQUARES], ids=["an operator", "such a function"])
@pytest.mark.parametrize("transform", [kl.func.grad, kl.func.jacfwd, kl.func.jacrev])
def test_so_is_one_in_a_transform(
    call: Callable[[Any], Any], made: Callable[[Any], Any], transform: Callable[..., Any]
) -> None:
    def loss(x: Any) -> Any:
        y = made(x)
        y.numpy()[:] = 1.0
        return call(y).sum()

    with pytest.raises(kl.GradientError, match="was changed before this line, and the transform did not see"):
        transform(loss)(kl.array([1.0, 2.0, 3.0]))
