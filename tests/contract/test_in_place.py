"""Code that changes, within one kernel, the arrays that it reads.

Every kernel runs on a tape, compiled and interpreted, against central differences of itself; its tangent and
its second derivatives against differences too.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.lang.ir import Function
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.ad.vjp import vjp
from kernelab.passes.common.scalarise import scalarise
from kernelab.runtime.launch.call import Call
from kernelab.runtime.launch.footprint import grid_of
from kernelab.runtime.memory.device import CPU
from tests.support.derivatives import active_names, derivatives, gradients, pushed, wide

TEXT = """
def in_place(a: array[float64]):
    i = tid()
    a[i] = sin(a[i]) + a[i] * a[i]

def multiplied(a: array[float64], b: array[float64]):
    i = tid()
    a[i] *= b[i] * a[i]

def divided(a: array[float64], b: array[float64]):
    i = tid()
    a[i] /= b[i] + a[i]

def floor_divided(a: array[float64], b: array[float64]):
    i = tid()
    s = a[i] * b[i]
    a[i] //= 0.25
    b[i] = s * a[i] + s

def read_then_overwritten(a: array[float64], b: array[float64]):
    i = tid()
    s = exp(a[i])
    a[i] = 2.0
    b[i] = s * s * a[i]

def twice_the_same_element(a: array[float64]):
    i = tid()
    a[i] = a[i] * a[i]
    a[i] = cos(a[i]) * a[i]
    a[i] = a[i] * a[i]

def overwritten_by_the_next_thread(a: array[float64]):
    i = tid()
    a[i + 1] = a[i + 1] * a[i]

def read_from_the_thread_before(a: array[float64]):
    i = tid()
    s = a[i + 1] * a[i + 1]
    a[i] = s * a[i]

def all_into_one(a: array[float64], b: array[float64]):
    i = tid()
    b[0] = a[i] * b[0] + a[i] * a[i]

def in_a_loop(a: array[float64], steps: int):
    i = tid()
    for k in range(steps):
        a[i] = sin(a[i]) * a[i] + a[i]

def until_it_is_large(a: array[float64]):
    i = tid()
    while a[i] < 4.0:
        a[i] = a[i] * a[i] + a[i] + 0.5

def prefix_products(a: array[float64]):
    for k in range(a.shape[0] - 1):
        a[k + 1] = a[k] * a[k + 1]

def reversed_in_place(a: array[float64]):
    n = a.shape[0]
    for k in range(n // 2):
        s = a[k] * a[n - 1 - k]
        a[k] = a[n - 1 - k] * s
        a[n - 1 - k] = s

def swapped(a: array[float64], b: array[float64]):
    i = tid()
    s = a[i]
    a[i] = b[i] * b[i]
    b[i] = s * s

def sometimes(a: array[float64], b: array[float64]):
    i = tid()
    if a[i] > b[i]:
        a[i] = a[i] * b[i]
    else:
        b[i] = a[i] * b[i]
    a[i] += a[i] * b[i]

def two_rows(a: array2d[float64]):
    i = tid()
    a[1, i] = a[0, i] * a[0, i]
    a[0, i] = a[1, i] * a[0, i]

def rows(a: array2d[float64], steps: int):
    i = tid()
    for t in range(steps):
        a[t + 1, i] = sin(a[t, i]) * a[t + 1, i]

def rows_by_a_row(a: array2d[float64], steps: int):
    i = tid()
    for t in range(steps):
        a[t + 1, i] = sin(a[t, i]) + a[t, i] * a[t, i]

def rows_up_and_down(a: array2d[float64], steps: int):
    i = tid()
    for t in range(steps):
        a[t + 1, i] = a[t, i] * a[t, i]
    for t in range(steps):
        a[steps - 1 - t, i] = a[steps - t, i] * a[steps - 1 - t, i]

def rows_again(a: array2d[float64], steps: int):
    i = tid()
    for r in range(2):
        for t in range(steps):
            a[t + 1, i] = a[t, i] * a[t, i] + 0.1

def a_row_at_once(a: array2d[float64], t: int):
    i = tid()
    a[t + 1, i] = a[t, i] * a[t, i]

def rows_backwards(a: array2d[float64], steps: int):
    i = tid()
    for k in range(steps, 0, -1):
        a[k - 1, i] = a[k, i] * a[k, i]

def neighbours_of_a_row(a: array2d[float64], t: int):
    i = tid()
    n = a.shape[1]
    if i > 0 and i < n - 1:
        a[t + 1, i] = a[t, i - 1] * a[t, i + 1]

def odd_from_even(a: array[float64]):
    i = tid()
    a[2 * i + 1] = a[2 * i] * a[2 * i]

def slots(a: array[float64], count: array[int], b: array[float64]):
    i = tid()
    slot = atomic_add(count, 0, 1)
    b[slot] = a[i] * a[i] * b[slot]

def slots_of_large_ones(a: array[float64], count: array[int], b: array[float64]):
    i = tid()
    if a[i] > 0.4:
        slot = atomic_add(count, 0, 2)
        b[slot // 2] = a[i] * a[i] + b[slot // 2]

def vectors(a: array[vec3d]):
    i = tid()
    a[i] = cross(a[i], vec3d(a[i][1], a[i][2], a[i][0])) + a[i] * dot(a[i], a[i])
"""

STRIDED = """
def two_of_one(a: array[float64], b: array[float64]):
    i = tid()
    a[i] = b[i] * b[i]
    b[i] = a[i] * b[i]

def shifted(a: array[float64], b: array[float64]):
    i = tid()
    b[i] = a[i] * b[i]
    a[i] = b[i] * b[i]
"""

kernels: dict[str, Any] = kl.compile(TEXT + STRIDED)
INTERPRETED: dict[str, Any] = kl.compile(TEXT)


@dataclass(frozen=True)
class Case:
    """A grid and the arguments: how many random numbers an array has, or the argument itself."""

    grid: int
    given: tuple[Any, ...]

    def arguments(self) -> tuple[Any, ...]:
        rng = np.random.default_rng(3)
        return tuple(rng.uniform(0.2, 0.9, n) if isinstance(n, tuple) else n for n in self.given)


A, ROWS = (5,), (4, 3)
CASES = {
    "in_place": Case(5, (A,)),
    "multiplied": Case(5, (A, A)),
    "divided": Case(5, (A, A)),
    "floor_divided": Case(5, (A, A)),
    "read_then_overwritten": Case(5, (A, A)),
    "twice_the_same_element": Case(5, (A,)),
    "overwritten_by_the_next_thread": Case(4, (A,)),
    "read_from_the_thread_before": Case(4, (A,)),
    "all_into_one": Case(5, (A, (1,))),
    "in_a_loop": Case(5, (A, 4)),
    "until_it_is_large": Case(5, (A,)),
    "prefix_products": Case(1, (A,)),
    "reversed_in_place": Case(1, (A,)),
    "swapped": Case(5, (A, A)),
    "sometimes": Case(5, (A, A)),
    "two_rows": Case(3, (ROWS,)),
    "rows": Case(3, (ROWS, 3)),
    "rows_by_a_row": Case(3, (ROWS, 3)),
    "rows_up_and_down": Case(3, (ROWS, 3)),
    "rows_again": Case(3, (ROWS, 3)),
    "a_row_at_once": Case(3, (ROWS, 2)),
    "rows_backwards": Case(3, (ROWS, 3)),
    "neighbours_of_a_row": Case(3, (ROWS, 1)),
    "odd_from_even": Case(2, (A,)),
    "slots": Case(5, (A, np.zeros(1, np.int32), A)),
    "slots_of_large_ones": Case(5, (A, np.zeros(1, np.int32), A)),
    "vectors": Case(3, ((3, 3),)),
}


def launched(kernel: Any, arguments: tuple[Any, ...], requires_grad: bool = False) -> list[Any]:
    types = [parameter.type for parameter in kernel.plan.parameters]
    return [
        kl.array(value, dtype=type.elem, requires_grad=requires_grad and value.dtype == np.float64)
        if isinstance(value, np.ndarray)
        else value
        for value, type in zip(arguments, types, strict=True)
    ]


@pytest.fixture(scope="module")
def compiled() -> dict[str, Any]:
    """The kernels, built for the cases all at once."""
    parts = []
    for name, case in CASES.items():
        kernel = kernels[name]
        given = tuple(launched(kernel, case.arguments(), requires_grad=True))
        settled = Call(kernel, grid_of(case.grid), given, ()).settled(())
        active = kernel.positions(active_names(kernel.primal))
        reverse = kernel.program.pullback(active, (), settled)
        parts += [
            (kernel.program, kernel.primal),
            (reverse.primal, reverse.primal.flat),
            (reverse.adjoint, reverse.adjoint.flat),
        ]
    functions = [replace(function, name=f"part_{i}") for i, (_, function) in enumerate(parts)]
    entries = CPU.backend.build([scalarise(function) for function in functions])
    for i, (program, _) in enumerate(parts):
        program.entry = entries[f"part_{i}"]
    return kernels


def slope_on_a_tape(kernel: Any, case: Case, rng: np.random.Generator) -> tuple[float, float]:
    """The derivative in a random direction against a random cotangent, by a tape and by differences."""
    arguments = case.arguments()
    floats = [i for i, value in enumerate(arguments) if getattr(value, "dtype", None) == np.float64]
    cotangents = {i: rng.normal(size=arguments[i].shape) for i in floats}
    directions = {i: rng.normal(size=arguments[i].shape) for i in floats}

    def total(step: float) -> float:
        moved = [
            value + step * directions[i] if i in directions else value for i, value in enumerate(arguments)
        ]
        given = launched(kernel, tuple(moved))
        kl.launch(kernel, case.grid, given)
        return float(sum(np.sum(cotangents[i] * given[i].numpy()) for i in floats))

    given = launched(kernel, arguments, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernel, case.grid, given)
    changed, read = kernel.plan.written, kernel.plan.read
    tape.backward(grads={given[i]: cotangents[i] for i in floats if i in changed})
    pulled = sum(np.sum(given[i].grad.numpy() * directions[i]) for i in floats if i in read)
    unchanged = sum(np.sum(cotangents[i] * directions[i]) for i in floats if i not in changed)
    return float(pulled + unchanged), (total(1e-6) - total(-1e-6)) / 2e-6


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_on_a_tape_is_that_of_what_ran(name: str, compiled: dict[str, Any]) -> None:
    slope, differences = slope_on_a_tape(compiled[name], CASES[name], np.random.default_rng(1))
    assert slope == pytest.approx(differences, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("name", CASES)
def test_the_interpreter_agrees(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELAB_BACKEND", "interp")
    slope, differences = slope_on_a_tape(INTERPRETED[name], CASES[name], np.random.default_rng(2))
    assert slope == pytest.approx(differences, rel=1e-6, abs=1e-7)


def prepared(name: str) -> tuple[Function, tuple[int, ...], dict[str, Any]]:
    function = kernels[name].primal
    values = zip(function.params, CASES[name].arguments(), strict=True)
    return function, (CASES[name].grid,), wide(function, {param.hint: value for param, value in values})


@pytest.mark.parametrize("name", CASES)
def test_tangent_adjoint_and_differences_agree(name: str) -> None:
    function, grid, arguments = prepared(name)
    found = derivatives(function, grid, arguments, np.random.default_rng(4), step=1e-6)
    assert found.agree(), found


@pytest.mark.parametrize("name", CASES)
def test_second_derivatives_agree_with_differences_of_first_ones(name: str) -> None:
    function, grid, arguments = prepared(name)
    names, rng = active_names(function), np.random.default_rng(6)
    u, v, w = ({n: rng.normal(size=np.shape(arguments[n])) for n in names} for _ in "uvw")

    def slope(step: float) -> float:
        moved = {n: value + step * u[n] if n in u else value for n, value in arguments.items()}
        dots = pushed(function, grid, moved, v)
        return float(sum(np.sum(w[n] * dots[n]) for n in names))

    tangent = jvp(function, names)
    seeds = {n: np.zeros_like(arguments[n]) for n in names} | {f"{n}_dot": w[n] for n in names}
    given = {**arguments, **{f"{n}_dot": v[n] for n in names}}
    pulled = gradients(vjp(tangent, active_names(tangent)), grid, given, seeds)
    second = float(sum(np.sum(pulled[n] * u[n]) for n in names))
    assert second == pytest.approx((slope(1e-5) - slope(-1e-5)) / 2e-5, rel=1e-5, abs=1e-5)


# ------------------------------------------------------------------------- arrays that share memory


ALIASES: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "an array passed twice": lambda x: (x[:4], x[:4]),
    "overlapping views": lambda x: (x[:4], x[2:6]),
    "views that overlap the other way": lambda x: (x[2:6], x[:4]),
    "a view and its reverse": lambda x: (x[:4], x[3::-1]),
    "interleaved views": lambda x: (x[:8:2], x[1:8:2]),
    "views of two strides": lambda x: (x[:4], x[:8:2]),
    "disjoint views": lambda x: (x[:4], x[4:]),
}


@pytest.mark.parametrize("name", ["two_of_one", "shifted"])
@pytest.mark.parametrize("alias", ALIASES)
def test_two_arguments_over_common_memory(alias: str, name: str) -> None:
    rng = np.random.default_rng(7)
    start, direction, cotangent = rng.uniform(0.5, 1.2, 8), rng.normal(size=8), rng.normal(size=8)

    def total(step: float) -> float:
        x = kl.array(start + step * direction, dtype=kl.float64)
        kl.launch(kernels[name], 4, list(ALIASES[alias](x)))
        return float(cotangent @ x.numpy())

    x = kl.array(start, dtype=kl.float64, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernels[name], 4, list(ALIASES[alias](x)))
    tape.backward(grads={x: cotangent})
    differences = (total(1e-6) - total(-1e-6)) / 2e-6
    assert x.grad.numpy() @ direction == pytest.approx(differences, rel=1e-6)


# ------------------------------------------------------------------------- what it costs

KEPT = {
    "rows_by_a_row": 0,
    "rows_backwards": 0,
    "a_row_at_once": 0,
    "neighbours_of_a_row": 0,
    "odd_from_even": 0,
    "in_place": 5,
    "in_a_loop": 20,
    "rows_again": 18,
    "two_rows": 6,
}


@pytest.mark.parametrize("name", KEPT)
def test_only_what_the_kernel_destroys_is_kept(name: str, compiled: dict[str, Any]) -> None:
    given = launched(compiled[name], CASES[name].arguments(), requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(compiled[name], CASES[name].grid, given)
    values = tape.launches[0].residuals[::2]
    assert sum(kept.size for kept in values) == KEPT[name]
    assert tape.saved_bytes == 0


def test_a_grid_or_a_number_decides_what_is_kept() -> None:
    kernel = kl.compile(
        "def from_to(a: array2d[float64], source: int, target: int):\n"
        "    i = tid()\n"
        "    a[target, i] = a[source, i] * a[source, i]\n"
    )["from_to"]
    for target, kept in ((1, 0), (0, 3), (-4, 3), (-1, 0)):
        a = kl.array(np.full((4, 3), 0.5), dtype=kl.float64, requires_grad=True)
        with kl.Tape() as tape:
            kl.launch(kernel, 3, [a, 0, target])
        assert sum(values.size for values in tape.launches[0].residuals[::2]) == kept
        tape.backward(grads={a: np.ones((4, 3))})
        expected = np.ones((4, 3))
        expected[target] = 0
        expected[0] += 1
        np.testing.assert_allclose(a.grad.numpy(), expected)


def test_launches_share_the_table_of_where_threads_begin() -> None:
    kernel = kl.compile(TEXT)["in_place"]
    a = kl.array(np.linspace(0.1, 0.9, 300), dtype=kl.float64, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernel, 300, [a])
        kl.launch(kernel, 300, [a])
    first, second = (record.residuals[1] for record in tape.launches)
    assert first.allocation is second.allocation
    tape.backward(grads={a: np.ones(300)})
    x, slope = np.linspace(0.1, 0.9, 300), np.ones(300)
    for _ in range(2):
        slope *= np.cos(x) + 2 * x
        x = np.sin(x) + x * x
    np.testing.assert_allclose(a.grad.numpy(), slope)


def test_a_loop_reads_what_its_last_iteration_has_written() -> None:
    text = """
def kernel(x: array[float64], y: array[float64], n: int):
    x[1] = 2.0 * x[0]
    for k in range(n):
        y[k] = x[0] * x[1]
        x[1] = y[k] + x[1]
"""
    kernel = kl.compile(text)["kernel"]
    x = kl.array([0.5, 7.0], dtype=kl.float64, requires_grad=True)
    y = kl.zeros(3, dtype=kl.float64, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernel, 1, [x, y, 3])
    np.testing.assert_allclose(y.numpy(), [0.5, 0.75, 1.125])
    tape.backward(grads={y: np.array([0.0, 0.0, 1.0])})
    # The last is 2 x0 x0 (1 + x0) ** 2.
    np.testing.assert_allclose(x.grad.numpy(), [4 * 0.5 * 1.5**2 + 4 * 0.25 * 1.5, 0.0])
