"""Memory of loops: a loop of any length has its gradient, within a budget, to the last bit."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.backend.common.backends import Args, Entry, StorageFull
from kernelab.runtime.kernel.dispatch import run_within_budget
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.settings import SETTINGS, settings
from kernelab.views.kernel.kernel_facts import view
from kernelab.views.pages.markup import render
from kernelab.views.tape.tape_view import tape_view

pytestmark = pytest.mark.slow

CELL = """
def growth(rate: array[float64], start: float64, steps: int, population: array[float64]):
    i = tid()
    p = start
    for k in range(steps * (1 + i % 3)):
        p = p + 0.5 * rate[i] * p * (1.0 - p)
    population[i] = p * p

def search(rate: array[float64], start: float64, steps: int, population: array[float64]):
    i = tid()
    p = start
    k = 0
    while True:
        p = p + 0.5 * rate[i] * sin(p)
        k += 1
        if p > 3.0 or k > steps:
            break
    population[i] = p * float64(k)

def shared(rate: array[float64], start: float64, steps: int, population: array[float64]):
    i, j = tid()
    p = start
    for k in range(steps * (i + j)):
        p = sin(p) + rate[0] * rate[j]
    population[i] += p

def fewer(rate: array[float64], start: float64, steps: int, population: array[float64]):
    i = tid()
    p = start
    for k in range(steps * (61 - 20 * i)):
        p = sin(p) + rate[0] * rate[i]
    population[i] += p

def kept(rate: array[float64], start: float64, steps: int, population: array[float64]):
    i = tid()
    p = start
    for k in range(steps, adjoint="recompute"):
        p = p * cos(rate[i] * p)
    for k in range(steps):
        p = p * sin(p + rate[i])
    population[i] = p
"""


@pytest.fixture(scope="module")
def kernels() -> dict[str, Any]:
    return kl.compile(CELL)


@pytest.fixture
def budget() -> Iterator[Any]:
    token = SETTINGS.set(settings())
    yield kl.config
    SETTINGS.reset(token)


def gradient(kernel: Kernel, dim: int | tuple[int, ...], steps: int) -> np.ndarray[Any, Any]:
    size = dim if isinstance(dim, int) else max(dim)
    rate = kl.array(np.linspace(0.2, 0.6, size), dtype=kl.float64, requires_grad=True)
    population = kl.zeros(size, dtype=kl.float64, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernel, dim, inputs=[rate, 0.3, steps], outputs=[population])
    tape.backward(grads={population: kl.ones(size, dtype=kl.float64)})
    assert rate.grad is not None
    found: np.ndarray[Any, Any] = rate.grad.numpy().copy()
    return found


@pytest.mark.parametrize("backend", ["", "interp"])
@pytest.mark.parametrize(
    ("name", "dim"), [("growth", 7), ("search", 5), ("shared", (3, 4)), ("shared", (4, 3)), ("kept", 4)]
)
def test_beyond_the_budget_the_gradient_is_the_same_to_the_last_bit(
    name: str, dim: Any, backend: str, budget: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELAB_BACKEND", backend)
    kernel = kl.compile(CELL)[name]
    assert isinstance(kernel, Kernel)
    budget.loop_memory = 0
    expected = gradient(kernel, dim, 40)
    for memory in (1, 400, 700, 1_000, 5_000):
        budget.loop_memory = memory
        # The interpreter runs threads together: where they add to one element, their order may differ.
        rtol = 1e-12 if (name, backend) == ("shared", "interp") else 0.0
        np.testing.assert_allclose(gradient(kernel, dim, 40), expected, rtol=rtol, atol=0.0)
    assert kernel.spilled >= (1 if name in ("kept", "search") else 3)


def test_derivatives_of_any_order_stay_within_the_budget(
    kernels: dict[str, Any], budget: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    spills: list[bool] = []

    def counted(*given: Any) -> bool:
        spills.append(run_within_budget(*given))
        return spills[-1]

    def energy(rate: Any) -> Any:
        population = kl.zeros(1, dtype=kl.float64)
        kl.launch(kernels["shared"], (1, 3), inputs=[rate, 0.3, 20], outputs=[population])
        return population

    monkeypatch.setattr("kernelab.runtime.kernel.program.run_within_budget", counted)
    rate = kl.array([0.2, 0.3, 0.4], dtype=kl.float64)
    for transform in (kl.func.grad(energy), kl.func.hessian(energy)):
        budget.loop_memory = 0
        expected = transform(rate).numpy()
        assert not any(spills)
        budget.loop_memory = 100
        np.testing.assert_array_equal(transform(rate).numpy(), expected)
        assert any(spills)
        spills.clear()


def test_threads_that_fit_before_one_does_not_are_swept_once(kernels: dict[str, Any], budget: Any) -> None:
    kernel = kernels["fewer"]
    budget.loop_memory = 0
    expected, before = gradient(kernel, 4, 10), kernel.spilled
    budget.loop_memory = 1000
    np.testing.assert_array_equal(gradient(kernel, 4, 10), expected)
    assert kernel.spilled == before + 1


@pytest.mark.parametrize("of", ["a function", "a kernel"])
def test_beyond_the_budget_transforms_and_jacobians_keep_checkpoints(
    of: str, kernels: dict[str, Any], budget: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, spills = 400, 0

    def run_frugally(usual: Entry, frugal: Callable[[], Entry], args: Args, _: int) -> bool:
        nonlocal spills
        if not usual.info.saves:
            usual(args)
            return False
        with pytest.raises(StorageFull) as full:
            usual(args, 8 * steps // 2)
        frugal()(args, 8 * steps // 2, left=full.value.left)
        spills += 1
        return True

    def grown(rate: Any) -> Any:
        population = kl.zeros(1, dtype=kl.float64)
        kl.launch(kernels["growth"], 1, inputs=[rate, 0.3, steps], outputs=[population])
        return population

    rate = kl.array([0.2], dtype=kl.float64, requires_grad=True)
    population = kl.zeros(1, dtype=kl.float64)
    budget.loop_memory = 0
    expected = kl.func.grad(grown)(rate).numpy()
    monkeypatch.setattr("kernelab.runtime.kernel.program.run_within_budget", run_frugally)
    if of == "a function":
        found = kl.func.grad(grown)(rate)
    else:
        arguments: dict[str, Any] = {"inputs": [rate, 0.3, steps], "outputs": [population]}
        found = kl.autograd.jacobian(kernels["growth"], dim=1, **arguments)[0, 0]
    np.testing.assert_array_equal(found.numpy().ravel(), expected)
    assert spills


def test_a_loop_within_the_budget_saves_every_iteration(kernels: dict[str, Any], budget: Any) -> None:
    before = kernels["growth"].spilled
    budget.loop_memory = 8 * 100
    gradient(kernels["growth"], 1, 100)
    assert kernels["growth"].spilled == before
    gradient(kernels["growth"], 1, 101)
    assert kernels["growth"].spilled == before + 1


def test_ten_million_steps_in_one_thread_have_a_gradient_under_the_default_budget(
    kernels: dict[str, Any],
) -> None:
    before = kernels["growth"].spilled
    # The population is full long before: all that is left of the derivative is the way there.
    assert np.abs(gradient(kernels["growth"], 1, 10_000_000)).max() < 1e-12
    assert kernels["growth"].spilled == before + 1


def test_a_million_steps_have_the_derivative_of_their_differences(kernels: dict[str, Any]) -> None:
    kernel, step = kernels["search"], 1e-13

    def value(rate: float) -> float:
        population = kl.zeros(1, dtype=kl.float64)
        given = kl.array([rate], dtype=kl.float64)
        kl.launch(kernel, 1, inputs=[given, 0.3, 1_000_000], outputs=[population])
        return float(population.numpy()[0])

    def slope(rate: float) -> float:
        given = kl.array([rate], dtype=kl.float64, requires_grad=True)
        population = kl.zeros(1, dtype=kl.float64, requires_grad=True)
        with kl.Tape() as tape:
            kl.launch(kernel, 1, inputs=[given, 0.3, 1_000_000], outputs=[population])
        tape.backward(grads={population: kl.ones(1, dtype=kl.float64)})
        assert given.grad is not None
        return float(given.grad.numpy()[0])

    differences = (value(1e-6 + step) - value(1e-6 - step)) / (2 * step)
    assert slope(1e-6) == pytest.approx(differences, rel=1e-4)


REPORTED = """
def k(x: array[float], n: int, out: array[float]):
    s = 1.0
    t = 0.0
    for a in range(n):
        s = s * x[a]
    for b in range(n):
        t = t + x[b]
    for c in range(n, adjoint="checkpoint"):
        for d in range(n, adjoint="recompute"):
            s = sin(s) * t
    out[0] = s
"""


def test_the_view_says_what_each_loop_saves_at_its_line() -> None:
    kernel = kl.compile(REPORTED)["k"]
    assert isinstance(kernel, Kernel)
    (saved,) = (line for line in render(view(kernel, ("none",))).splitlines() if line.startswith("saved"))
    assert saved == (
        "saved for the backward pass: loop of line 5: s (4 bytes an iteration); "
        "loop of line 9: s (4 bytes a checkpoint); loop of line 9: s (4 bytes an iteration of a segment); "
        "loop of line 10: s (4 bytes an iteration); "
        "loop of line 7: nothing"
    )


def test_a_kernel_tells_what_each_loop_saves() -> None:
    kernel = kl.compile(REPORTED)["k"]
    assert isinstance(kernel, Kernel)
    found = [(loop.line, loop.storage, loop.bytes) for loop in kernel.loops()]
    assert found == [(5, "save", 4), (7, "nothing", 0), (9, "checkpoint", 4), (10, "recompute", 4)]
    assert repr(kernel.loops()[:2]) == (
        "(<loop of line 5: save, 4 bytes an iteration>, <loop of line 7: nothing>)"
    )


def test_what_a_smaller_memory_costs_is_shown_with_the_kernel_and_the_tape(budget: Any) -> None:
    kernel = kl.compile(CELL)["growth"]
    assert isinstance(kernel, Kernel)
    rate = kl.array([0.5], dtype=kl.float64, requires_grad=True)
    population = kl.zeros(1, dtype=kl.float64, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernel, 1, inputs=[rate, 0.3, 1000], outputs=[population])
    assert "beyond the memory for loops" not in render(view(kernel, ("none",)))
    budget.loop_memory = 1000
    tape.backward(grads={population: kl.ones(1, dtype=kl.float64)})
    again = "a backward pass kept checkpoints, and ran the iterations between them again"
    cost = f"beyond the memory for loops: {again}"
    assert cost in render(view(kernel, ("none",))).splitlines()
    assert f"growth, {cost}" in render(tape_view(tape)).splitlines()


@pytest.mark.parametrize("wrong", [-1, 0.5, "1 GB", None, True])
def test_a_budget_is_a_number_of_bytes(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"^loop_memory is a number of bytes, or 0 for any number, not "):
        kl.config.loop_memory = wrong
