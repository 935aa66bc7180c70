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
OTHERS = kl.compile(
    """
def cube(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i] * x[i]
def cube_of_some(x: array[float], y: array[float]):
    i = tid()
    if x[i] < 2.5:
        y[i] = x[i] * x[i] * x[i]
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


RUNS: list[Callable[[Any, Any], Any]] = [
    lambda f, x: f(x),
    kl.checkpoint,
    lambda f, x: kl.checkpoint(lambda x: kl.checkpoint(f, x), x),
]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("run", RUNS)
def test_no_gradient_flows_through_a_launch_that_failed_on_a_tape(kernel: str, run: Any) -> None:
    x = kl.array([1.0, 2.0, 3.0], requires_grad=True)
    with kl.Tape() as tape:
        loss = run(tried(kernel), x).sum()
    with pytest.raises(kl.TapeError, match="which failed before it had written all of"):
        tape.backward(loss)


@pytest.mark.parametrize("run", RUNS)
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


def falling_back(kernel: str, replace: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """A function that tries a launch, and replaces what that wrote."""

    def function(x: Any) -> Any:
        y = x * 2.0
        with contextlib.suppress(kl.KernelError):
            kl.launch(KERNELS[kernel], 3, [x], [y])
        y = replace(x, y)
        return y * 1.0 + x

    return function


def cubed(x: Any, y: Any) -> Any:
    kl.launch(OTHERS["cube"], 3, [x], [y])
    return y


def filled(x: Any, y: Any) -> Any:
    y.fill_(2.0)
    return y * x


def copied(x: Any, y: Any) -> Any:
    kl.copy(y, x * x)
    return y


FALLBACKS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any], Any]]] = {
    "a new array": (lambda x, y: cubed(x, kl.zeros_like(x)), lambda x: 3 * x * x + 1),
    "the same array": (cubed, lambda x: 3 * x * x + 1),
    "a fill": (filled, lambda x: 0 * x + 3),
    "a copy": (copied, lambda x: 2 * x + 1),
}
ALONG_ONE = {name: run for name, run in TRANSFORMS.items() if not name.startswith("vmap")}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("fallback", FALLBACKS)
def test_a_function_that_replaces_what_a_launch_that_failed_wrote_has_the_derivative_of_the_rest(
    kernel: str, fallback: str
) -> None:
    replace, slope = FALLBACKS[fallback]
    x, function = kl.array([1.0, 2.0, 3.0]), falling_back(kernel, replace)
    expected = slope(x.numpy())
    assert kl.func.grad(total(function))(x).list() == expected.tolist()
    assert kl.func.jvp(function, (x,), (kl.ones(3),))[1].list() == expected.tolist()
    assert kl.func.jacrev(function)(x).numpy().diagonal().tolist() == expected.tolist()
    if kernel != "beyond":  # it reads what it writes, of which lanes of tangents have copies
        assert kl.func.jacfwd(function)(x).numpy().diagonal().tolist() == expected.tolist()
    assert kl.func.grad(lambda x: kl.checkpoint(function, x).sum())(x).list() == expected.tolist()
    x.requires_grad = True
    for run in RUNS:
        with kl.Tape() as tape:
            loss = run(function, x).sum()
        tape.zero()
        tape.backward(loss)
        assert x.grad.list() == expected.tolist()


def test_a_launch_of_a_checkpoint_that_fails_at_first_alone_is_told_of(monkeypatch: Any) -> None:
    def interrupted(call: Any) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    def function(x: Any) -> Any:
        y = kl.zeros(3, requires_grad=True)
        with contextlib.suppress(KeyboardInterrupt):
            kl.launch(OTHERS["cube"], 3, [x], [y])
        return x * 2.0

    x = kl.array([1.0, 2.0, 3.0], requires_grad=True)
    monkeypatch.setattr("kernelab.runtime.launch.call.Call.primal", interrupted)
    with kl.Tape() as tape:
        loss = kl.checkpoint(function, x).sum()
    with pytest.raises(kl.TapeError, match="it did something else than at first"):
        tape.backward(loss)


KEPT: dict[str, Callable[[Any, Any], Any]] = {
    "a part of it": lambda x, y: kl.launch(OTHERS["cube"], 2, [x], [y]) or y,
    "under a condition": lambda x, y: kl.launch(OTHERS["cube_of_some"], 3, [x], [y]) or y,
    "a slice": lambda x, y: (y[1:].fill_(2.0), y)[1],
    "as an input": lambda x, y: cubed(y, kl.zeros_like(x)),
    "read before": lambda x, y: y * 1.0 + cubed(x, y),
    "looked at": lambda x, y: x * float(y.numpy()[0]),
}


@pytest.mark.filterwarnings("ignore:no gradient flows:kernelab.errors.KernelWarning")
@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("transform", ALONG_ONE)
def test_what_is_left_of_it_has_no_derivative(kept: str, transform: str) -> None:
    with pytest.raises(kl.GradientError, match="this launch of `asserted` failed, and the function went on"):
        TRANSFORMS[transform](falling_back("asserted", KEPT[kept]), kl.array([1.0, 2.0, 3.0]))


@pytest.mark.parametrize("transform", ["grad", "vjp", "jvp"])
def test_a_function_that_returns_it_has_no_derivative(transform: str) -> None:
    def function(x: Any) -> Any:
        y = kl.zeros(1)
        with contextlib.suppress(kl.KernelError):
            kl.launch(KERNELS["asserted"], 3, [x], [y])
        return y

    x = kl.array([1.0, 2.0, 3.0], requires_grad=True)
    with pytest.raises(kl.GradientError, match="failed, and the function went on"):
        kl.func.grad(function)(x) if transform == "grad" else TRANSFORMS[transform](function, x)
    with pytest.raises(kl.GradientError, match="failed, and the function went on"):
        kl.autograd.gradcheck(function, inputs=[x], show_summary=False)


def test_what_an_earlier_view_shows_of_it_has_no_derivative() -> None:
    def function(x: Any) -> Any:
        y = kl.zeros(3)
        view = y.numpy()
        with contextlib.suppress(kl.KernelError):
            kl.launch(KERNELS["asserted"], 3, [x], [y])
        return (x * kl.array(view.copy())).sum()

    with pytest.raises(kl.GradientError, match="failed, and the function went on"):
        kl.func.grad(function)(kl.array([1.0, 2.0, 3.0]))


def test_a_launch_that_may_have_failed_in_some_lanes_only_is_refused() -> None:
    with pytest.raises(kl.GradientError, match="failed, and the function went on"):
        TRANSFORMS["vmap"](falling_back("asserted", cubed), kl.array([1.0, 2.0, 3.0]))
    x = kl.array([1.0, 2.0, 3.0])
    scaled = kl.func.vmap(lambda s: falling_back("asserted", cubed)(x) * s)  # it fails in all of them
    assert scaled(kl.array([1.0, 2.0])).numpy().tolist() == [[2.0, 10.0, 30.0], [4.0, 20.0, 60.0]]


def test_an_inner_function_that_reads_what_failed_around_it_has_no_derivative() -> None:
    def function(x: Any) -> Any:
        y = kl.zeros(3)
        with contextlib.suppress(kl.KernelError):
            kl.launch(KERNELS["asserted"], 3, [x], [y])
        return kl.func.grad(lambda z: (z * y).sum())(x).sum()

    with pytest.raises(kl.GradientError, match="failed, and the function went on"):
        kl.func.grad(function)(kl.array([1.0, 2.0, 3.0]))


def test_a_launch_that_is_refused_before_it_runs_may_be_tried() -> None:
    def function(x: Any) -> Any:
        y = kl.zeros(3)
        with pytest.raises(kl.LaunchError):
            kl.launch(KERNELS["asserted"], 3, [x])
        kl.launch(KERNELS["asserted"], 3, [x], [y])
        return y.sum()

    assert kl.func.grad(function)(kl.ones(3)).list() == [2.0, 2.0, 2.0]
