"""A rule that a user wrote is compared in any unit, wherever its function is defined, or it is told."""

import warnings
from typing import Any

import numpy as np
import pytest

import kernelab as kl

pytestmark = pytest.mark.slow

TEXT = """
def f(t: float64):
    {body}

@{kind}
def rule(t: float64, {cotangent}: float64):
    {rule}

def k(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = f(x[i])
"""
REVERSE = {"kind": "func_grad(f)", "cotangent": "adj_ret"}
FORWARD = {"kind": "func_jvp(f)", "cotangent": "t_dot"}


def told(body: str, slope: str, forward: bool = False) -> list[str]:
    """What is said of a function and a formula for its derivative, as a rule of either mode."""
    rule = f"return {slope} * t_dot" if forward else f"adjoint[t] += {slope} * adj_ret"
    return told_of(TEXT.format(body=f"return {body}", rule=rule, **(FORWARD if forward else REVERSE)))


def told_of(text: str) -> list[str]:
    kernel: Any = kl.compile(text)["k"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kernel.vjp(["x", "y"])
    return [str(w.message) for w in caught if issubclass(w.category, kl.KernelWarning)]


BOTH = pytest.mark.parametrize("forward", [False, True])
IN_ANY_UNIT = {
    "t * t": "2.0 * t",
    "sin(t)": "cos(t)",
    "exp(-t * t)": "-2.0 * t * exp(-t * t)",
    "max(t, 0.25)": "where(t > 0.25, float64(1.0), float64(0.0))",
    "log(exp(t)) - t": "0.0",
    "sin(t) / t": "(cos(t) / t - sin(t) / (t * t))",
    "(t + 1000.0) * (t - 1000.0) + 1000000.0": "2.0 * t",
}


@BOTH
@pytest.mark.parametrize("unit", ["1e-250", "1e-30", "1e-8", "1.0", "1e8", "1e250"])
@pytest.mark.parametrize("value", IN_ANY_UNIT)
def test_a_rule_is_compared_in_any_unit(value: str, unit: str, forward: bool) -> None:
    slope = IN_ANY_UNIT[value]
    assert told(f"{unit} * ({value})", f"{unit} * {slope}", forward) == []
    if slope != "0.0":
        assert "rule gives" in told(f"{unit} * ({value})", f"1.001 * {unit} * {slope}", forward)[0]


@BOTH
@pytest.mark.parametrize("beside", ["1.0", "1e6", "1000.0 * t"])
def test_a_small_term_is_compared_beside_a_large_one(beside: str, forward: bool) -> None:
    large = "1000.0" if "t" in beside else "0.0"
    for factor, is_right in (("1e-4", True), ("2e-4", large != "0.0")):
        found = told(f"{beside} + 1e-4 * sin(t)", f"({large} + {factor} * cos(t))", forward)
        assert (found == []) == is_right


@BOTH
@pytest.mark.parametrize("steep", ["1e3", "1e4", "1e5", "1e6", "1e7"])
def test_a_steep_function_is_no_kink(steep: str, forward: bool) -> None:
    slope = f"{steep} * cos({steep} * t)"
    assert told(f"sin({steep} * t)", slope, forward) == []
    assert "rule gives" in told(f"sin({steep} * t)", f"1.1 * {slope}", forward)[0]


DOMAINS = {
    "sqrt(t - 50.0)": "0.5 / sqrt(t - 50.0)",
    "sqrt(-7.0 - t)": "-0.5 / sqrt(-7.0 - t)",
    "log(t - 1e6)": "1.0 / (t - 1e6)",
    "sqrt(1e-8 - t * t)": "-t / sqrt(1e-8 - t * t)",
    "acos(1e8 * t)": "-1e8 / sqrt(1.0 - 1e16 * t * t)",
}


@BOTH
@pytest.mark.parametrize("value", DOMAINS)
def test_a_function_is_looked_for_where_it_is_defined(value: str, forward: bool) -> None:
    assert told(value, DOMAINS[value], forward) == []
    assert "rule gives" in told(value, f"1.2 * {DOMAINS[value]}", forward)[0]


@pytest.mark.parametrize("condition", ["t > 50.0", "t < -50.0", "abs(t) < 1e-5", "t > 1000.0 and t < 1e7"])
def test_an_assertion_is_a_border_of_the_domain(condition: str) -> None:
    for factor, is_right in (("2.0", True), ("1.5", False)):
        body, rule = f"assert {condition}\n    return t * t", f"adjoint[t] += {factor} * t * adj_ret"
        assert (told_of(TEXT.format(body=body, rule=rule, **REVERSE)) == []) == is_right


@BOTH
def test_what_changes_its_form_far_away_is_compared_there(forward: bool) -> None:
    assert "rule gives" in told("max(0.0, t - 50.0)", "where(t > 50.0, 2.0, 0.0)", forward)[0]


@BOTH
@pytest.mark.parametrize("value", ["sqrt(-1.0 - t * t)", "t / 0.0"])
def test_a_rule_that_could_not_be_compared_is_told_at_its_line(value: str, forward: bool) -> None:
    (message,) = told(value, "1.0", forward)
    assert "rule was not compared with f" in message
    assert "def rule(" in message


ARRAYS = """
def f(a: array[float64], i: int):
    return a[{index}] * a[{index}]

@func_grad(f)
def rule(a: array[float64], i: int, adj_ret: float64):
    adjoint[a][{index}] += {factor} * a[{index}] * adj_ret

def k(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = f(x, i)
"""


@pytest.mark.parametrize("index", ["i", "3 * i + 1", "i + 20"])
def test_arrays_are_as_long_as_a_function_needs(index: str) -> None:
    for factor, is_right in (("2.0", True), ("1.5", False)):
        assert (told_of(ARRAYS.format(index=index, factor=factor)) == []) == is_right
    (message,) = told_of(ARRAYS.format(index="i + 100000", factor="2.0"))
    assert "was not compared" in message


NOT_LINEAR = ["min({r}, 5.0)", "abs({r})", "where(abs({r}) < 1e-4, 0.0, {r})", "clamp({r}, -1.5, 1.5)"]


@BOTH
@pytest.mark.parametrize("factor", NOT_LINEAR)
def test_a_rule_that_is_not_linear_is_told(factor: str, forward: bool) -> None:
    given = factor.format(r="t_dot" if forward else "adj_ret")
    rule = f"return 2.0 * t * {given}" if forward else f"adjoint[t] += 2.0 * t * {given}"
    text = TEXT.format(body="return t * t", rule=rule, **(FORWARD if forward else REVERSE))
    (message,) = told_of(text)
    assert "rule" in message


SEVERAL = """
def f(t: float64):
    return 3.0 * t, 4.0 * t

@func_grad(f)
def rule(t: float64, a: float64, b: float64):
    adjoint[t] += {}

def k(x: array[float64], y: array[float64]):
    i = tid()
    p, q = f(x[i])
    y[i] = p + q
"""


@pytest.mark.parametrize("rule", ["3.0 * a + 4.0 * min(b, 7.0)", "3.0 * a + 4.0 * b + 0.0 * sqrt(a * b)"])
def test_no_cotangent_of_several_is_clipped(rule: str) -> None:
    assert told_of(SEVERAL.format("3.0 * a + 4.0 * b")) == []
    assert told_of(SEVERAL.format(rule))


# ---------------------------------------------------------------------------- rules of Python functions


def clipped(x: kl.array, y_bar: kl.array) -> kl.array:
    return 2.0 * x * kl.map(lambda v: kl.min(v, 1.0), y_bar)


def squared(x: kl.array, y_bar: kl.array) -> kl.array:
    return 2.0 * x * y_bar * y_bar


def by_its_sign(x: kl.array, y_bar: kl.array) -> kl.array:
    return 2.0 * x * kl.map(lambda v: kl.abs(v), y_bar)


def scaled_by_the_largest(x: kl.array, y_bar: kl.array) -> Any:
    bar = y_bar.numpy()
    return 2.0 * x.numpy() * bar * np.abs(bar).max()


NOT_LINEAR = [clipped, squared, by_its_sign, scaled_by_the_largest]


def in_float32(x: kl.array, y_bar: kl.array) -> Any:
    return (2.0 * x.numpy().astype(np.float32) * y_bar.numpy().astype(np.float32)).astype(x.numpy().dtype)


def recorded(function: Any) -> kl.Tape:
    x = kl.array([0.5, 1.5, 2.5], requires_grad=True)
    with kl.Tape() as tape:
        function(x).sum()
    return tape


@pytest.mark.parametrize("back", NOT_LINEAR)
def test_a_rule_of_custom_vjp_that_is_not_linear_fails_the_checks(back: Any) -> None:
    square = kl.func.custom_vjp(lambda x: x * x, back, check=False)
    x = kl.array([0.5, 1.5, 2.5], requires_grad=True)
    report = kl.autograd.gradcheck(square, inputs=[x], raise_exception=False)
    assert not report and report.worst().verdict == "nonlinear"
    assert not kl.autograd.gradcheck(lambda x: square(2.0 * x) + x, inputs=[x], raise_exception=False)
    assert not kl.autograd.gradcheck_tape(recorded(square), raise_exception=False)
    assert not kl.autograd.taylor_test(square, inputs=[x])


@pytest.mark.parametrize("back", NOT_LINEAR)
def test_so_it_does_within_a_checkpoint(back: Any) -> None:
    square = kl.func.custom_vjp(lambda x: x * x, back, check=False)
    tape = recorded(lambda x: kl.checkpoint(lambda y: square(y) * 2.0, x))
    report = kl.autograd.gradcheck_tape(tape, raise_exception=False)
    assert not report
    wrong = [c.report for c in report.launches if c.report is not None]
    assert [each.worst().verdict for each in wrong] == ["nonlinear"]


def test_one_that_is_linear_up_to_the_rounding_of_float32_passes() -> None:
    square = kl.func.custom_vjp(lambda x: x * x, in_float32)
    x = kl.array([0.5, 1.5, 2.5], requires_grad=True)
    assert kl.autograd.gradcheck(square, inputs=[x], raise_exception=False)
    assert kl.autograd.gradcheck_tape(recorded(square), raise_exception=False)


@pytest.mark.parametrize("factor", [1.01, -1.0, 0.0])
def test_a_wrong_rule_within_a_checkpoint_fails_the_check_of_the_tape(factor: float) -> None:
    square = kl.func.custom_vjp(lambda x: x * x, lambda x, y_bar: 2.0 * factor * x * y_bar, check=False)
    for function in (
        lambda x: kl.checkpoint(square, x),
        lambda x: kl.checkpoint(lambda y: square(y) * 2.0, x * 1.5),
        lambda x: kl.checkpoint(lambda y: kl.checkpoint(square, y * y) + y, x),
    ):
        assert not kl.autograd.gradcheck_tape(recorded(function), raise_exception=False)


@pytest.mark.parametrize(
    "options",
    [
        {"atol": 1e-3, "rtol": 1e-3},
        {"eps": 1e-4},
        {"max_outputs_per_var": 2},
        {"max_inputs_per_var": 2},
        {"reverse_launches": True},
        {"fast": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("factor", [1.5, 1.0])
def test_a_check_of_a_tape_looks_at_rules_and_checkpoints_whatever_its_options(
    options: Any, factor: float
) -> None:
    square = kl.func.custom_vjp(lambda x: x * x, lambda x, y_bar: 2.0 * factor * x * y_bar, check=False)
    for function in (
        lambda x: square(x * 1.5) * 2.0,
        lambda x: kl.checkpoint(square, x) * 2.0,
        lambda x: kl.checkpoint(lambda y: kl.checkpoint(square, y * y) + y, x),
    ):
        report = kl.autograd.gradcheck_tape(
            recorded(function), raise_exception=False, show_summary=False, **options
        )
        assert bool(report) is (factor == 1.0)
        assert not any(one.is_open for one in report.launches)


def test_a_checkpoint_that_cannot_be_run_again_is_left_open() -> None:
    runs = iter((1.0, 2.0, 3.0, 4.0, 5.0, 6.0))
    tape = recorded(lambda x: kl.checkpoint(lambda y: y * next(runs), x) * 2.0)
    for options in ({}, {"eps": 1e-4}):
        report = kl.autograd.gradcheck_tape(tape, show_summary=False, **options)
        assert [(one.kernel, "something else" in one.reason) for one in report.launches if one.is_open] == [
            ("the checkpoint of <lambda>", True)
        ]


@pytest.mark.parametrize("options", [{}, {"eps": 1e-4}], ids=str)
def test_a_function_that_fails_on_other_numbers_is_left_open(options: Any) -> None:
    def only_once(x: kl.array) -> Any:
        return x * x if x.dtype == kl.float32 else 1 / 0

    function = kl.func.custom_vjp(only_once, lambda x, y_bar: 2.0 * x * y_bar, check=False)
    report = kl.autograd.gradcheck_tape(recorded(function), show_summary=False, **options)
    assert [one.kernel for one in report.launches if one.is_open] == ["the function only_once"]


OVERFLOWS = """
def f(t: float, b: float):
    return log(1.0 + exp(b * t)) / b

@func_grad(f)
def rule(t: float, b: float, adj_ret: float):
    s = 1.0 / (1.0 + exp(-b * t))
    adjoint[t] += s * adj_ret
    adjoint[b] += adj_ret * (t * s - log(1.0 + exp(b * t)) / b) / b

def k(x: array[float], y: array[float]):
    i = tid()
    y[i] = f(x[i], x[i])
"""


def test_a_rule_that_is_not_finite_at_samples_is_compared_without_a_word_of_numpy() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kl.compile(OVERFLOWS)["k"].vjp(["x", "y"])
