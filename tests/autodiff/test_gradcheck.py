"""The gradient check passes what is right, fails what is wrong, and says which entry."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.autodiff.checks.witnesses import Witnesses
from kernelab.errors import GradientError, KernelTypeError, KernelValueError
from kernelab.lang.ir import Block, Function, Let
from kernelab.lang.ops import Partials
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.program import Program
from kernelab.views.checks.report import gradcheck_view
from kernelab.views.pages.markup import render

CELL = """
def wave(x: array[float], gain: float, y: array[float]):
    i = tid()
    y[i] = gain * sin(3.0 * x[i]) * x[i]

def squares(x: array[float], total: array[float]):
    i = tid()
    atomic_add(total, 0, x[i] * x[i])

def in_place(x: array[float]):
    i = tid()
    x[i] = x[i] * x[i] + x[i]

def turned(p: array[vec2], m: array[mat22], q: array[vec2]):
    i = tid()
    q[i] = m[i] * p[i] / (1.0 + length(p[i]))
"""


@pytest.fixture(scope="module")
def kernels() -> dict[str, Any]:
    return kl.compile(CELL)


def reals(n: int, seed: int = 0, scale: float = 1.0) -> Any:
    return kl.array(np.random.default_rng(seed).normal(size=n) * scale, dtype=float, requires_grad=True)


def check(kernel: Kernel, dim: int, inputs: list[Any], outputs: list[Any], **options: Any) -> Any:
    return kl.autograd.gradcheck(kernel, dim, inputs, outputs, show_summary=False, **options)


def test_a_right_gradient_passes(kernels: dict[str, Any]) -> None:
    report = check(kernels["wave"], 6, [reals(6), 1.5], [kl.zeros(6, dtype=float)])
    assert report
    (pair,) = report.pairs
    assert (pair.input, pair.output, pair.entries) == ("x", "y", 36)


def test_the_square_of_a_thousand_passes_in_float32(kernels: dict[str, Any]) -> None:
    x = kl.array([1000.0, 1e-3, -500.0], dtype=float, requires_grad=True)
    assert check(kernels["squares"], 3, [x], [kl.zeros(1, dtype=float)])


def test_an_array_that_is_input_and_output_is_checked(kernels: dict[str, Any]) -> None:
    report = check(kernels["in_place"], 4, [reals(4)], [])
    assert [(pair.input, pair.output) for pair in report.pairs] == [("x", "x")]
    assert report


def test_vectors_and_matrices_are_checked_by_component(kernels: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    p = kl.array(rng.normal(size=(3, 2)), dtype=kl.vec2, requires_grad=True)
    m = kl.array(rng.normal(size=(3, 2, 2)), dtype=kl.mat22, requires_grad=True)
    report = check(kernels["turned"], 3, [p, m], [kl.zeros(3, dtype=kl.vec2)])
    assert [pair.entries for pair in report.pairs] == [36, 72]
    assert report


def test_arguments_keep_their_values_and_gradients(kernels: dict[str, Any]) -> None:
    x = reals(4)
    before = x.numpy().copy()
    x.grad = kl.full(4, 7.0, dtype=float)
    check(kernels["in_place"], 4, [x], [])
    assert x.numpy().tolist() == before.tolist()
    assert x.grad.numpy().tolist() == [7.0] * 4


def test_only_inputs_that_require_gradients_are_varied(kernels: dict[str, Any]) -> None:
    p = kl.array(np.ones((2, 2)), dtype=kl.vec2, requires_grad=True)
    m = kl.array(np.ones((2, 2, 2)), dtype=kl.mat22)
    report = check(kernels["turned"], 2, [p, m], [kl.zeros(2, dtype=kl.vec2)])
    assert [pair.input for pair in report.pairs] == ["p"]


def test_the_number_of_elements_can_be_limited(kernels: dict[str, Any]) -> None:
    limits = {"max_inputs_per_var": 2, "max_outputs_per_var": 3}
    (pair,) = check(kernels["wave"], 6, [reals(6), 1.5], [kl.zeros(6, dtype=float)], **limits).pairs
    assert pair.entries == 6


class FaultyProgram(Program):
    """A program whose adjoint multiplies by partials that are off by a factor."""

    def pullback(self, *given: Any) -> Any:
        made = super().pullback(*given)
        made.adjoint = self.once(("faulty", made), lambda: Program(scaled(made.adjoint.flat, Faulty.factor)))
        return made


class Faulty(Kernel):
    """A kernel with such a program."""

    factor = 1.0

    @cached_property
    def program(self) -> Program:
        return FaultyProgram(super().program.function)


def scaled(adjoint: Function, factor: float) -> Function:
    """The same adjoint, with the first cosine in it multiplied."""
    stmts = [planted(stmt, factor) for stmt in adjoint.body.stmts]
    body = Block(tuple(stmts), adjoint.body.yields)
    return Function(adjoint.name, adjoint.params, body, adjoint.threads, adjoint.span, adjoint.linear)


def planted(stmt: Any, factor: float) -> Any:
    if not (isinstance(stmt, Let) and stmt.op.name == "cos"):
        return stmt
    assert isinstance(stmt.op.derivative, Partials)
    cos = stmt.op
    wrong = replace(cos, cpp=f"({factor!r}f * {cos.cpp})", numpy=lambda x: factor * np.cos(x))
    return Let(stmt.out, wrong, stmt.args, stmt.span)


@pytest.fixture
def faulty(kernels: dict[str, Any]) -> Iterator[type[Faulty]]:
    yield Faulty
    Faulty.factor = 1.0


@pytest.mark.parametrize("factor", [1.004, 0.99, -1.0, 0.0])
def test_a_gradient_that_is_off_fails_and_the_entry_is_named(
    kernels: dict[str, Any], faulty: type[Faulty], factor: float
) -> None:
    faulty.factor = factor
    kernel = faulty.of("wave", kernels["wave"].loaded)
    report = check(kernel, 4, [reals(4), 1.5], [kl.zeros(4, dtype=float)], raise_exception=False)
    assert not report
    worst = report.worst()
    assert worst.input_index == worst.output_index
    assert worst.max_rel_error > 1e-3


@pytest.mark.parametrize("factor", [1.004, 0.0])
def test_large_sparse_jacobians_are_checked_by_their_entries(
    kernels: dict[str, Any], faulty: type[Faulty], factor: float
) -> None:
    n = 300
    right = check(kernels["wave"], n, [reals(n), 1.5], [kl.zeros(n, dtype=float)], fast=False)
    assert right
    assert right.pairs[0].entries == n * n
    assert not right.compared[0].is_part
    faulty.factor = factor
    kernel = faulty.of("wave", kernels["wave"].loaded)
    zeros = kl.zeros(n, dtype=float)
    report = check(kernel, n, [reals(n), 1.5], [zeros], raise_exception=False, fast=False)
    assert not report
    worst = report.worst()
    assert worst.input_index == worst.output_index
    assert worst.verdict == "adjoint"
    error = report.relative[0, 0].numpy()
    assert np.count_nonzero(error > 1e-3) == np.count_nonzero(np.diag(error) > 1e-3) > 0


RULES = """
def k(x: array[float], y: array[float]):
    i = tid()
    y[i] = cube(x[i])

def cube(x: float):
    return x * x * x

@func_grad(cube, check=False)
def adj_cube(x: float, adj_ret: float):
    adjoint[x] += {grad} * x * x * adj_ret

@func_jvp(cube)
def jvp_cube(x: float, x_dot: float):
    return {jvp} * x * x * x_dot
"""


@pytest.mark.parametrize("n", [3, 300])
@pytest.mark.parametrize(
    ("grad", "jvp", "verdict"), [(3.03, 3.0, "adjoint"), (3.03, 3.03, "custom"), (3.1, 3.3, "custom")]
)
def test_the_verdict_is_the_fault_that_was_planted(n: int, grad: float, jvp: float, verdict: str) -> None:
    kernel = kl.compile(RULES.format(grad=grad, jvp=jvp))["k"]
    report = check(kernel, n, [reals(n)], [kl.zeros(n, dtype=float)], raise_exception=False)
    assert not report
    assert report.worst().verdict == verdict


def test_a_failure_raises_and_names_both_values(kernels: dict[str, Any], faulty: type[Faulty]) -> None:
    faulty.factor = -1.0
    kernel = faulty.of("wave", kernels["wave"].loaded)
    with pytest.raises(
        GradientError, match=r"d y\[\d\] / d x\[\d\] is .* by the adjoint and .* by differences"
    ):
        check(kernel, 2, [reals(2), 1.5], [kl.zeros(2, dtype=float)])


def test_nothing_to_check_is_an_error(kernels: dict[str, Any]) -> None:
    x = kl.zeros(3, dtype=float)
    with pytest.raises(GradientError, match="0 pairs checked: no argument of wave has requires_grad"):
        check(kernels["wave"], 3, [x, 1.0], [kl.zeros(3, dtype=float)])
    with pytest.raises(GradientError, match="0 pairs checked: the launch of wave has no threads"):
        check(kernels["wave"], 0, [reals(3), 1.0], [kl.zeros(3, dtype=float)])


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(KernelTypeError, match="gradcheck takes a kernel or a Python function, not an int"):
        kl.autograd.gradcheck(3, 1, [reals(1)])  # type: ignore[arg-type]


def test_the_summary_is_shown_once(kernels: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    report = kl.autograd.gradcheck(kernels["squares"], 2, [reals(2)], [kl.zeros(1, dtype=float)])
    assert capsys.readouterr().out.count("PASS") == 1
    assert report


def made(body: str, parameters: str = "x: array[float], y: array[float]") -> Any:
    return kl.compile(f"def k({parameters}):\n    i = tid()\n    {body}\n")["k"]


def test_a_check_inside_a_tape_is_not_recorded(kernels: dict[str, Any]) -> None:
    x, y = reals(3), kl.zeros(3, dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernels["wave"], 3, [x, 1.5], [y])
        assert check(kernels["wave"], 3, [x, 1.5], [y])
    assert len(tape) == 1


def test_a_number_given_by_an_array_of_one_element_is_varied(kernels: dict[str, Any]) -> None:
    gain = kl.full(1, 1.5, dtype=float, requires_grad=True)
    report = check(kernels["wave"], 3, [reals(3), gain], [kl.zeros(3, dtype=float)])
    assert report
    assert [pair.input for pair in report.pairs] == ["x", "gain"]


def test_a_step_function_has_a_derivative_of_zero_and_passes() -> None:
    assert check(
        made("y[i] = floor(x[i])"), 3, [kl.array([0.3, 1.7, -2.4], requires_grad=True)], [kl.zeros(3)]
    )


def test_numpy_arrays_are_arguments_like_others(kernels: dict[str, Any]) -> None:
    assert check(kernels["wave"], 3, [reals(3), 1.5], [np.zeros(3, np.float32)])


@pytest.mark.parametrize("body", ["y[i] = 1.0 / x[i]", "y[i] = sqrt(x[i])", "y[i] = sin(1000.0 * x[i])"])
def test_a_function_that_bends_sharply_near_the_input_is_looked_at_more_closely(
    body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Smaller steps decide that: what rounding loses, which takes six more runs, is not asked for."""
    monkeypatch.delattr(Witnesses, "terms")
    x = kl.array([1e-3, 2e-3], dtype=float, requires_grad=True)
    assert check(made(body), 2, [x], [kl.zeros(2)])


def test_an_array_that_is_passed_twice_is_checked_as_one() -> None:
    x = reals(3)
    report = check(made("y[i] = x[i] * x[i]"), 3, [x, x], [])
    assert report
    assert report.pairs[0].entries == 9


def test_a_wrong_number_of_arguments_is_named(kernels: dict[str, Any]) -> None:
    with pytest.raises(kl.LaunchError, match="kernel `wave` takes 3 arguments, not 2; `y` is missing"):
        check(kernels["wave"], 3, [reals(3), 1.5], [])


def test_empty_arrays_are_nothing_to_check(kernels: dict[str, Any]) -> None:
    with pytest.raises(GradientError, match="`x` has no elements"):
        check(kernels["wave"], 0, [kl.zeros(0, requires_grad=True), 1.5], [kl.zeros(0)])


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("value", [-1.0, 0.0])
def test_what_is_infinite_or_not_a_number_fails(value: float, fast: bool) -> None:
    kernel = made("y[tid()] = sqrt(x[tid()])")
    x = kl.array([value, 1.0, value], dtype=float, requires_grad=True)
    report = check(kernel, 3, [x], [kl.zeros(3)], fast=fast, raise_exception=False)
    assert not report
    (pair,) = report.pairs
    assert pair.verdict == "not finite"
    errors = {(other.abs_error, other.rel_error) for other in pair.others}
    assert {(pair.max_abs_error, pair.max_rel_error)} == errors == {(np.inf, np.inf)}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"eps": 0.0}, "eps=0.0 is not a step"),
        ({"eps": float("nan")}, "eps=nan is not a step"),
        ({"eps": "a"}, "eps='a' is not a step"),
        ({"atol": float("nan")}, "atol=nan is not a tolerance"),
        ({"rtol": -1}, "rtol=-1 is not a tolerance"),
        ({"max_inputs_per_var": 1.5}, "max_inputs_per_var=1.5 is not a number of elements"),
        ({"max_outputs_per_var": "a"}, "max_outputs_per_var='a' is not a number of elements"),
        ({"fast": "yes"}, "fast='yes' says nothing"),
    ],
)
def test_options_that_mean_nothing_are_named(kernels: dict[str, Any], options: Any, told: str) -> None:
    with pytest.raises(KernelValueError, match=told):
        kl.autograd.gradcheck(kernels["squares"], 2, [reals(2)], [kl.zeros(1)], show_summary=False, **options)


@pytest.mark.parametrize(
    ("expression", "left", "right"),
    [
        ("abs(x[i])", -1, 1),
        ("3.0 * abs(x[i]) + x[i]", -2, 4),
        ("where(x[i] > 0.0, 2.0 * x[i], -2.0 * x[i])", None, None),
        ("x[i] * x[i] + 1000.0", None, None),
        ("x[i] * abs(x[i])", None, None),
    ],
)
def test_a_kink_that_passes_by_symmetry_shows_the_slopes_of_both_sides(
    expression: str, left: int | None, right: int
) -> None:
    text = f"def f(x: array[float], y: array[float]):\n    i = tid()\n    y[i] = {expression}\n"
    x = kl.array([1.0, 0.0], dtype=float, requires_grad=True)
    for wanted in (False, True):  # by its pattern, and as a whole
        report = check(
            kl.compile(text)["f"],
            2,
            [x],
            [kl.zeros(2)],
            raise_exception=False,
            max_outputs_per_var=2 * wanted,
        )
        (pair,) = report.pairs
        if left is None:
            assert pair.verdict != "sub-gradient"
            continue
        assert report and pair.verdict == "sub-gradient"
        assert f"the slope is {left} to the left and {right} to the right: `abs` of 0" in pair.explanation
        assert "d y[1] / d x[1]" in pair.explanation
        assert pair.span is not None and pair.span.line == 3
        assert "~ PASS  gradcheck of f" in render(gradcheck_view(report))


@pytest.mark.parametrize("columns", [0, 2])  # by its pattern, and as a whole
@pytest.mark.parametrize(("slope", "is_right"), [("cos(v)", True), ("1.1 * cos(v)", False)])
def test_inputs_of_a_few_nanometres_are_moved_by_less(slope: str, is_right: bool, columns: int) -> None:
    text = f"""
def wave(v: float):
    return sin(v)

@func_grad(wave, check=False)
def adj_wave(v: float, adj_ret: float):
    adjoint[v] += {slope} * adj_ret

def phase(d: array[float], wavelength: float, y: array[float]):
    i = tid()
    y[i] = wave(2.0 * pi * d[i] / wavelength)
"""
    d = kl.array([100e-9, 80e-9], dtype=float, requires_grad=True)
    kernel, outputs = kl.compile(text)["phase"], [kl.zeros(2)]
    inputs = [d, 550e-9]
    report = check(kernel, 2, inputs, outputs, raise_exception=False, max_outputs_per_var=columns)
    assert bool(report) is is_right
    if not is_right:
        assert report.worst().verdict == "custom"


def test_an_array_that_a_function_changes_has_the_name_of_its_parameter() -> None:
    text = "def k(x: array[float], y: array[float]):\n    i = tid()\n    y[i] = x[i] * y[i]\n"
    kernel = kl.compile(text)["k"]

    def changed(x: kl.array, y: kl.array) -> None:
        kernel[2](x, y)

    x, y = (kl.array(values, dtype=float, requires_grad=True) for values in ([1.0, 2.0], [3.0, 5.0]))
    report = kl.autograd.gradcheck(changed, inputs=[x, y], outputs=[y], show_summary=False)
    assert [(pair.output, pair.input) for pair in report.pairs] == [("y", "x"), ("y", "y")]
    assert report and y.list() == [3.0, 5.0]
