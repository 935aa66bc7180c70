"""Adjoints launched by themselves, and backward passes, where something else differentiates or runs again."""

from collections.abc import Callable
from typing import Any

import pytest

import kernelab as kl
from kernelab.errors import KernelWarning, LaunchError, TapeError

KERNELS = kl.compile(
    """
class Spring:
    k: float
    rest: array[float]
def double(x: array[float], y: array[float]):
    i = tid()
    y[i] = 2.0 * x[i]
def scale(x: array[float], s: float, y: array[float]):
    i = tid()
    y[i] = s * x[i]
def pull(p: Spring, x: array[float], y: array[float]):
    i = tid()
    y[i] = p.k * (x[i] - p.rest[i])
"""
)


def pair() -> tuple[Any, Any]:
    return kl.array([1.0, 2.0], requires_grad=True), kl.zeros(2, requires_grad=True)


@pytest.mark.parametrize("given", [[], [None], [None, None]])
@pytest.mark.parametrize("later", [False, True])
def test_adjoints_of_outputs_go_with_the_outputs(given: list[Any], later: bool) -> None:
    (x, y), bar = pair(), kl.array([1.0, 10.0])
    command = kl.launch(KERNELS["scale"], 2, [x, 3.0], [y], given, [bar], adjoint=True, record_cmd=later)
    if later:
        command.launch()
    assert x.grad.list() == [3.0, 30.0] and bar.list() == [1.0, 10.0]


def test_more_adjoints_than_inputs_are_refused() -> None:
    x, y = pair()
    with pytest.raises(LaunchError, match="2 adjoints for the 1 input of `double`"):
        kl.launch(KERNELS["double"], 2, [x], [y], [None, None], [kl.ones(2)], adjoint=True)
    with pytest.raises(LaunchError, match="the adjoint of `s` is an array of one element, not of 2"):
        kl.launch(KERNELS["scale"], 2, [x, 3.0], [y], [None, kl.zeros(2)], [kl.ones(2)], adjoint=True)


def test_an_adjoint_that_starts_from_nothing_or_reaches_nothing_warns() -> None:
    x, y = pair()
    y.requires_grad = False
    with pytest.warns(KernelWarning, match="nothing that `double` writes has an adjoint"):
        kl.launch(KERNELS["double"], 2, [x], [y], adjoint=True)
    with pytest.warns(KernelWarning, match="nothing that `double` reads has an adjoint"):
        kl.launch(KERNELS["double"], 2, [y], [x], adjoint=True)


def test_numbers_in_a_struct_of_adjoints_are_named() -> None:
    spring, bar = KERNELS["Spring"](2.0), KERNELS["Spring"]()
    spring.rest, bar.rest = kl.zeros(2), kl.zeros(2)
    x, y = pair()
    y.grad.fill_(1.0)
    with pytest.warns(KernelWarning, match="does not get those of `p.k`"):
        kl.launch(KERNELS["pull"], 2, [spring, x], [y], [bar, None], adjoint=True)
    assert bar.rest.list() == [-2.0, -2.0] and x.grad.list() == [2.0, 2.0]


def adjoint_of(cotangent: Any) -> Any:
    bar = kl.zeros(2, requires_grad=True)
    kl.launch(KERNELS["double"], 2, [kl.zeros(2)], [kl.zeros(2)], [bar], [cotangent], adjoint=True)
    return bar


def backward_from(cotangent: Any, w: Any, y: Any, tape: kl.Tape) -> Any:
    tape.backward(grads={y: cotangent})
    return w.grad


def backward_from_the_gradient(cotangent: Any, w: Any, y: Any, tape: kl.Tape) -> Any:
    y.grad.assign(cotangent)
    tape.backward()
    return w.grad


def ways() -> list[Callable[[Any], Any]]:
    w = kl.array([3.0, 4.0], requires_grad=True)
    with kl.Tape() as tape:
        y = w * 5.0
    return [
        adjoint_of,
        lambda cotangent: backward_from(cotangent, w, y, tape),
        lambda cotangent: backward_from_the_gradient(cotangent, w, y, tape),
    ]


@pytest.mark.parametrize("way", range(3))
def test_no_transform_goes_through_what_a_backward_pass_takes(way: int) -> None:
    x, ones, go = kl.array([1.0, 2.0]), kl.ones(2), ways()[way]

    def f(x: Any) -> Any:
        return go(x * x) + x * 0.0

    with pytest.raises(kl.GradientError):
        kl.func.grad(lambda x: f(x).sum())(x)
    with pytest.raises(kl.GradientError):
        kl.func.jvp(f, (x,), (ones,))
    with pytest.raises(kl.GradientError):
        kl.func.vmap(f)(kl.ones((3, 2)))


@pytest.mark.parametrize("way", range(3))
def test_a_tape_tells_that_it_does_not_go_through_what_a_backward_pass_takes(way: int) -> None:
    x = kl.array([1.0, 2.0], requires_grad=True)
    go = ways()[way]
    with kl.Tape() as tape:
        total = (go(x * x) * 1.0).sum() + x.sum()
    with pytest.warns(KernelWarning, match="does not differentiate what a backward pass has computed"):
        tape.backward(total)
    assert x.grad.list() == [1.0, 1.0]


@pytest.mark.parametrize("way", range(2))
def test_no_backward_pass_runs_in_a_checkpoint_which_runs_again(way: int) -> None:
    x, go = kl.array([1.0, 2.0], requires_grad=True), ways()[way]
    with kl.Tape(), pytest.raises(TapeError, match="cannot run in a checkpoint"):
        kl.checkpoint(lambda x: go(kl.ones(2)) * x, x)


# ------------------------------------------------------------------- gradients of an earlier pass


def with_gradient() -> Any:
    x = kl.array([0.5, -1.0], requires_grad=True)
    with kl.Tape() as tape:
        loss = (x * x * x).sum()
    tape.backward(loss)
    return x


READS: dict[str, Callable[[Any, Any], Any]] = {
    "an operator": lambda x, bar: x - 0.1 * bar,
    "a function mapped": lambda x, bar: kl.map(lambda a, b: a - 0.1 * b, x, bar),
    "a number": lambda x, bar: kl.map(lambda a, b: a - 0.1 * b, x, bar[0:1]),
    "a clone": lambda x, bar: x - kl.clone(bar),
    "a copy": lambda x, bar: x - kl.zeros(2, requires_grad=True).assign(bar),
    "custom_vjp": lambda x, bar: x - kl.func.custom_vjp(lambda a: 0.1 * a, lambda a, b: 0.1 * b)(bar),
}


@pytest.mark.parametrize("how", READS)
def test_a_tape_tells_of_the_gradient_of_an_earlier_pass_that_depends_on_its_leaf(how: str) -> None:
    """One step of gradient descent inside of the outer loss, as in meta-learning."""
    x = with_gradient()
    with kl.Tape() as tape:
        stepped = READS[how](x, x.grad)
        loss = (stepped * stepped).sum()
    with pytest.warns(KernelWarning, match="from a gradient back to `x`: a tape does not differentiate"):
        tape.backward(loss)


def test_a_tape_tells_of_the_gradient_of_another_leaf_or_result_of_the_same_pass() -> None:
    x, w = pair()
    with kl.Tape() as tape:
        y = x * x * w
        loss = (y * y).sum()
    tape.backward(loss)
    for bar in (w.grad, y.grad):
        with kl.Tape() as tape:
            loss = (x * bar).sum()
        with pytest.warns(KernelWarning, match="back to `x`: a tape does not differentiate"):
            tape.backward(loss)


def descend(x: Any) -> Any:
    x -= 0.1 * x.grad
    return x.grad


MEANT: dict[str, Callable[[Any], Any]] = {
    "a clone taken before": lambda x: kl.clone(x.grad),
    "of what has changed since": descend,
    "that was set to zero": lambda x: x.grad.zero_(),
    "that was computed with before": lambda x: 0.1 * x.grad,
}


@pytest.mark.parametrize("how", MEANT)
def test_a_gradient_that_is_meant_as_a_constant_is_silent(how: str) -> None:
    x = with_gradient()
    bar = MEANT[how](x)
    with kl.Tape() as tape:
        loss = (x * bar).sum()
    tape.backward(loss)


def test_the_gradient_of_what_a_tape_does_not_read_is_a_constant() -> None:
    x, steps = with_gradient(), kl.array([0.1, 0.2], requires_grad=True)
    with kl.Tape() as tape:
        loss = (steps * x.grad).sum()
    tape.backward(loss)
    assert steps.grad.list() == x.grad.list()
