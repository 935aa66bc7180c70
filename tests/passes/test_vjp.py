"""What the adjoint keeps, and what it does not."""

import numpy as np
import pytest

from kernelab.lang.ir import Atomic, For, Function, Load, Restore, Save, Store, While, walk
from kernelab.lang.verify import verify
from kernelab.passes.ad.vjp import Vjp, vjp
from kernelab.passes.common.copying import widen
from tests.support.derivatives import derivatives, gradients, wide
from tests.support.lowering import lowered


def adjoint(text: str, *active: str) -> Function:
    return reverse(text, *active).adjoint


def reverse(text: str, *active: str) -> Vjp:
    program = vjp(lowered(text, "k"), active)
    verify(program.primal)
    verify(program.adjoint)
    return program


def kinds(function: Function, *kind: type) -> list[object]:
    return [stmt for stmt in walk(function.body) if isinstance(stmt, kind)]


SUM = """
def k(x: array[float], out: array[float]):
    s = 0.0
    for j in range(len(x)):
        s += 2.0 * x[j]
    out[tid()] = s
"""


def test_a_plain_sum_saves_nothing_and_is_not_replayed() -> None:
    found = adjoint(SUM, "x", "out")
    assert len(kinds(found, For)) == 1
    assert not kinds(found, Save, Restore)


def test_a_product_saves_its_carried_value_once_an_iteration() -> None:
    found = adjoint(SUM.replace("s = 0.0", "s = 1.0").replace("+= 2.0 *", "*="), "x", "out")
    (save,) = kinds(found, Save)
    assert isinstance(save, Save)
    assert len(save.atoms) == 1


def test_nothing_with_a_loop_in_it_runs_more_than_twice() -> None:
    text = """
def k(x: array[float], out: array[float]):
    s = 1.0
    for a in range(len(x)):
        for b in range(a):
            for c in range(b):
                s *= x[c]
    out[tid()] = s
"""
    found = adjoint(text, "x", "out")
    assert len(kinds(found, For)) == 2 * 3


def test_the_adjoint_of_a_store_reads_the_adjoint_and_clears_it() -> None:
    found = adjoint(
        "def k(x: array[float], y: array[float]):\n    i = tid()\n    y[i] = sin(x[i])\n", "x", "y"
    )
    (store,) = kinds(found, Store)
    assert isinstance(store, Store)
    assert store.array.hint == "y_bar"
    (accumulation,) = kinds(found, Atomic)
    assert isinstance(accumulation, Atomic)
    assert accumulation.array.hint == "x_bar"


def test_an_inactive_input_costs_nothing() -> None:
    text = """
def k(x: array[float], w: array[float], y: array[float]):
    i = tid()
    y[i] = sin(x[i]) * w[i]
"""
    found = adjoint(text, "w", "y")
    assert {stmt.array.hint for stmt in kinds(found, Atomic)} == {"w_bar"}  # type: ignore[attr-defined]


def test_what_is_overwritten_is_kept_only_if_the_adjoint_needs_its_value() -> None:
    linear = "def k(a: array[float]):\n    i = tid()\n    a[i] = 3.0 * a[i]\n"
    squared = "def k(a: array[float]):\n    i = tid()\n    a[i] = a[i] * a[i]\n"
    assert not reverse(linear, "a").residuals
    assert len(reverse(squared, "a").residuals) == 1


def test_a_value_that_was_just_stored_is_not_kept() -> None:
    text = (
        "def k(x: array[float], y: array[float]):\n    i = tid()\n    y[i] = x[i]\n    x[i] = y[i] * y[i]\n"
    )
    kept = [residual.array.span.line for residual in reverse(text, "x", "y").residuals]
    assert kept == [3]


def test_the_adjoint_of_an_if_is_an_if() -> None:
    text = """
def k(x: array[float], y: array[float]):
    i = tid()
    if x[i] > 0.0:
        y[i] = sqrt(x[i])
"""
    found = adjoint(text, "x", "y")
    assert [type(stmt).__name__ for stmt in found.body.stmts].count("If") == 1


def test_statements_of_the_adjoint_know_the_line_they_come_from() -> None:
    found = adjoint(SUM, "x", "out")
    assert {stmt.span.line for stmt in walk(found.body)} <= set(range(2, 7))


def test_a_while_loop_becomes_a_reversed_loop_over_its_trips() -> None:
    text = """
def k(x: array[float], y: array[float]):
    i = tid()
    v = x[i]
    while v < 4.0:
        v = v * v
    y[i] = v
"""
    found = adjoint(text, "x", "y")
    assert len(kinds(found, While)) == 1
    (swept,) = kinds(found, For)
    assert isinstance(swept, For)
    assert swept.reverse


@pytest.mark.parametrize(
    ("branch", "slope"),
    [
        ("sqrt(x[i])", 0.25),
        ("x[i] * log(x[i])", 1.0 + np.log(4.0)),
        ("(1.0 / x[i]) * 2.0", -0.125),
        ("x[i] ** -0.5", -0.0625),
        ("exp(1.0 / x[i]) * x[i]", 0.75 * np.exp(0.25)),
        ("normalize(vec2(x[i], 0.0)).x / x[i]", -0.0625),
    ],
)
def test_a_masked_branch_does_not_poison_the_gradient(branch: str, slope: float) -> None:
    text = f"""
def k(x: array[float], y: array[float]):
    i = tid()
    y[i] = where(x[i] > 0.0, {branch}, 0.0)
"""
    function = widen(lowered(text, "k"))
    arguments = wide(function, {"x": np.array([0.0, 4.0, -1.0]), "y": np.zeros(3)})
    pulled = gradients(vjp(function, ["x", "y"]), (3,), arguments, {"x": np.zeros(3), "y": np.ones(3)})
    assert pulled["x"].tolist() == pytest.approx([0.0, slope, 0.0])


def test_running_the_adjoint_does_not_change_primal_arrays() -> None:
    found = adjoint("def k(a: array[float]):\n    i = tid()\n    a[i] = a[i] * a[i]\n", "a")
    changed = {stmt.array.hint for stmt in kinds(found, Store, Atomic)}  # type: ignore[attr-defined]
    assert changed == {"a_bar"}
    assert "a" not in {stmt.array.hint for stmt in kinds(found, Load)}  # type: ignore[attr-defined]


SEQUENTIAL = {
    "the last writer": "y[0] = x[i] * x[i]",
    "a scan": "if i > 0:\n        y[i] = y[i - 1] * x[i]\n    else:\n        y[0] = x[0]",
    "a product into one element": "y[i % 2] *= x[i]",
    "a sum that sees itself": "atomic_add(y, 0, x[i] * y[0])",
    "a neighbour that changes": "x[i] += x[(i + 1) % 4] * y[0]",
    "the old value of an atomic": "y[i] = atomic_add(x, 0, 0.5) * x[i]",
}


@pytest.mark.parametrize("line", SEQUENTIAL.values(), ids=SEQUENTIAL)
def test_threads_that_run_in_turn_and_see_each_other_have_the_gradient_of_what_ran(line: str) -> None:
    function = widen(lowered(f"def k(x: array[float], y: array[float]):\n    i = tid()\n    {line}\n", "k"))
    rng = np.random.default_rng(2)
    found = derivatives(function, (4,), {"x": rng.normal(size=4), "y": rng.normal(size=4)}, rng)
    assert found.agree(), found


def test_a_float_parameter_gets_its_gradient_in_an_array_of_one_element() -> None:
    text = "def k(s: float, x: array[float], y: array[float]):\n    i = tid()\n    y[i] = s * s * x[i]\n"
    function = widen(lowered(text, "k"))
    arguments = wide(function, {"s": 3.0, "x": np.array([1.0, 2.0]), "y": np.zeros(2)})
    seeds = {"s": np.zeros(1), "x": np.zeros(2), "y": np.ones(2)}
    pulled = gradients(vjp(function, ["s", "x", "y"]), (2,), arguments, seeds)
    assert pulled["s"].tolist() == [18.0]
