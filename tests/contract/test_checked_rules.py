"""A gradient check compares rules that users wrote: their size, that they are linear, and both modes."""

import warnings
from typing import Any

import pytest

import kernelab as kl

TEXT = """
def f(t: {width}):
    return t * t

@func_grad(f, check=False)
def rule(t: {width}, r: {width}):
    adjoint[t] += {grad}

@func_jvp(f, check=False)
def tangent(t: {width}, d: {width}):
    return {jvp}

def k(x: array[{width}], y: array[{width}]):
    i = tid()
    y[i] = f(x[i])
"""
WIDTHS = pytest.mark.parametrize("width", ["float64", "float32", "float16"])
RIGHT = {"grad": "2.0 * t * r", "jvp": "2.0 * t * d"}
OFF = {"grad": "2.002 * t * r", "jvp": "2.002 * t * d"}
CLIPS = ["min({}, 5.0)", "abs({})", "where(abs({0}) < 1e-3, 0.0, {0})", "clamp({}, -1.625, 1.625)"]


def verdicts(width: str, **rules: str) -> list[str]:
    """What each check says of a kernel: "" where it passes; all entries, directions, the Taylor test."""
    kernel: Any = kl.compile(TEXT.format(**RIGHT | rules, width=width))["k"]
    x = kl.array([0.5, 1.0, 2.0], dtype=getattr(kl, width), requires_grad=True)
    arguments = kernel, 3, [x], [kl.zeros(3, dtype=x.dtype)]
    found = []
    for fast in (False, True):
        report = kl.autograd.gradcheck(*arguments, fast=fast, raise_exception=False, show_summary=False)
        found.append(report.worst().verdict)
    found.append("" if kl.autograd.taylor_test(*arguments, show_summary=False) else "fails")
    return found


@WIDTHS
def test_right_rules_pass(width: str) -> None:
    assert verdicts(width) == ["", "", ""]


@WIDTHS
def test_a_grad_function_that_is_off_by_a_thousandth_fails(width: str) -> None:
    assert all(verdicts(width, grad=OFF["grad"])[:2])


@WIDTHS
def test_a_jvp_function_that_is_off_by_a_thousandth_fails(width: str) -> None:
    assert verdicts(width, jvp=OFF["jvp"]) == ["tangent", "tangent", "fails"]


@WIDTHS
@pytest.mark.parametrize("clip", CLIPS)
def test_rules_that_are_not_linear_fail(width: str, clip: str) -> None:
    grad, jvp = f"2.0 * t * {clip.format('r')}", f"2.0 * t * {clip.format('d')}"
    assert all(verdicts(width, grad=grad))
    assert all(verdicts(width, jvp=jvp))


def test_the_error_is_at_the_line_of_the_rule() -> None:
    kernel: Any = kl.compile(TEXT.format(**RIGHT | {"jvp": OFF["jvp"]}, width="float64"))["k"]
    x = kl.ones(3, dtype=kl.float64, requires_grad=True)
    with pytest.raises(kl.GradientError, match="along a direction the tangent is") as caught:
        kl.autograd.gradcheck(kernel, 3, [x], [kl.zeros(3, dtype=kl.float64)], show_summary=False)
    assert "def tangent(" in str(caught.value)


@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("launches", [1, 3])
def test_a_tape_with_a_rule_that_is_not_linear_fails(clip: str, launches: int) -> None:
    grad = f"2.0 * t * {clip.format('r')}"
    for rule, is_right in ((RIGHT["grad"], True), (grad, False)):
        kernel: Any = kl.compile(TEXT.format(**RIGHT | {"grad": rule}, width="float64"))["k"]
        x = kl.array([0.3, 0.4, 0.5], dtype=kl.float64, requires_grad=True)
        with kl.Tape() as tape:
            for _ in range(launches):
                y = kl.zeros(3, dtype=kl.float64, requires_grad=True)
                kernel[3](x, y)
                x = y
        report = kl.autograd.gradcheck_tape(tape, raise_exception=False, show_summary=False)
        assert bool(report) is is_right


NATIVE = """
@func_native("return x * x;", adj_snippet="adj_x += 2.0 * x * {};")
def f(x: float64) -> float64: ...

def k(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = f(x[i])
"""


@pytest.mark.parametrize(("cotangent", "is_right"), [("adj_ret", True), ("fmin(adj_ret, 5.0)", False)])
def test_an_adjoint_in_cpp_has_to_be_linear(cotangent: str, is_right: bool) -> None:
    kernel: Any = kl.compile(NATIVE.format(cotangent))["k"]
    x = kl.array([0.5, 1.0, 2.0], dtype=kl.float64, requires_grad=True)
    y = kl.zeros(3, dtype=kl.float64)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        report = kl.autograd.gradcheck(kernel, 3, [x], [y], raise_exception=False, show_summary=False)
    assert bool(report) is is_right
    assert bool(caught) is not is_right


TWO = """
def both(t: float64):
    return t * t, sin(t)

@func_grad(both, check=False)
def rule(t: float64, r: float64, q: float64):
    adjoint[t] += 2.0 * t * r + cos(t) * q + {more}

def k(x: array[float64], y: array[float64], z: array[float64]):
    i = tid()
    y[i], z[i] = both(x[i])
"""


@pytest.mark.parametrize("more", ["0.5 * r * q", "1e-3 * abs(r + q) - 1e-3 * abs(r) - 1e-3 * abs(q)", "0.0"])
def test_cotangents_of_several_results_have_to_add_up(more: str) -> None:
    kernel = kl.compile(TWO.format(more=more))["k"]
    x = kl.array([0.3, 0.7], dtype=kl.float64, requires_grad=True)
    arguments = kernel, 2, [x], [kl.zeros(2, dtype=x.dtype) for _ in range(2)]
    is_right = more == "0.0"
    for fast in (False, True):
        report = kl.autograd.gradcheck(*arguments, fast=fast, raise_exception=False, show_summary=False)
        assert report.worst().verdict == ("" if is_right else "nonlinear")
    assert bool(kl.autograd.taylor_test(*arguments, show_summary=False)) == is_right
