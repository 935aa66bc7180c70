"""A launch that fails while it runs, in a function that catches the error: what it wrote is told of."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

import kernelab as kl

KERNELS = kl.compile(
    """
def beyond(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]
    y[i] += x[i + 1]
def asserted(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]
    assert x[i] < 2.5, "too large"
def divided(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * float(4 // (2 - i))
"""
)


def tried(kernel: str) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        y = kl.zeros(3, requires_grad=True)
        with contextlib.suppress(kl.KernelError):
            kl.launch(KERNELS[kernel], 3, [x], [y])
        return y * 1.0 + x * 0.0

    return function


def total(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: function(x).sum()


TRANSFORMS: dict[str, Callable[[Any, Any], Any]] = {
    "grad": lambda f, x: kl.func.grad(total(f))(x),
    "vjp": lambda f, x: kl.func.vjp(f, x),
    "jvp": lambda f, x: kl.func.jvp(f, (x,), (kl.ones(3),)),
    "jacfwd": lambda f, x: kl.func.jacfwd(f)(x),
    "jacrev": lambda f, x: kl.func.jacrev(f)(x),
    "hessian": lambda f, x: kl.func.hessian(total(f))(x),
    "vmap": lambda f, x: kl.func.vmap(f)(kl.array([[1.0, 2.0, 3.0], [1.0, 1.0, 1.0]])),
    "vmap of grad": lambda f, x: kl.func.vmap(kl.func.grad(total(f)))(kl.ones((2, 3)) * 3.0),
    "grad of a checkpoint": lambda f, x: kl.func.grad(lambda x: kl.checkpoint(f, x).sum())(x),
}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_function_that_goes_on_after_a_launch_that_failed_has_no_derivative(
    kernel: str, transform: str
) -> None:
    with pytest.raises(kl.GradientError, match=f"this launch of `{kernel}` failed, and the function went on"):
        TRANSFORMS[transform](tried(kernel), kl.array([1.0, 2.0, 3.0]))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("run", [lambda f, x: f(x), kl.checkpoint])
def test_no_gradient_flows_through_a_launch_that_failed_on_a_tape(kernel: str, run: Any) -> None:
    x = kl.array([1.0, 2.0, 3.0], requires_grad=True)
    with kl.Tape() as tape:
        loss = run(tried(kernel), x).sum()
    with pytest.raises(kl.TapeError, match="which failed before it had written all of"):
        tape.backward(loss)


@pytest.mark.parametrize("run", [lambda f, x: f(x), kl.checkpoint])
def test_what_a_launch_that_failed_wrote_without_gradients_is_told_of(run: Any) -> None:
    def function(x: Any) -> Any:
        y = kl.zeros(3)
        with contextlib.suppress(kl.KernelError):
            kl.launch(KERNELS["asserted"], 3, [x], [y])
        return y

    x = kl.array([1.0, 2.0, 3.0], requires_grad=True)
    with kl.Tape() as tape:
        loss = (run(function, x) + x).sum()
    with pytest.warns(kl.KernelWarning, match="it does not require gradients"):
        tape.backward(loss)


@pytest.mark.parametrize("catches", [True, False])
def test_so_is_all_that_a_checkpoint_that_failed_wrote(catches: bool) -> None:
    x, targets = kl.array([1.0, 2.0, 3.0], requires_grad=True), [kl.zeros(3), kl.zeros(3)]

    def function() -> None:
        with contextlib.suppress(kl.KernelError if catches else ()):
            for y in targets[::-1]:
                kl.copy(y, x)
            kl.launch(KERNELS["asserted"], 3, [x], [targets[0]])

    for target in targets:
        with kl.Tape() as tape:
            with contextlib.suppress(kl.KernelError):
                kl.checkpoint(function)
            loss = (target + x).sum()
        with pytest.warns(kl.KernelWarning, match="it does not require gradients"):
            tape.backward(loss)


def test_a_launch_that_is_refused_before_it_runs_may_be_tried() -> None:
    def function(x: Any) -> Any:
        y = kl.zeros(3)
        with pytest.raises(kl.LaunchError):
            kl.launch(KERNELS["asserted"], 3, [x])
        kl.launch(KERNELS["asserted"], 3, [x], [y])
        return y.sum()

    assert kl.func.grad(function)(kl.ones(3)).list() == [2.0, 2.0, 2.0]
