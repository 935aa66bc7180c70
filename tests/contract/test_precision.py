"""Lost digits are told from kinks and wrong rules: by a verdict of their own, at the line that loses them."""

from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.views.checks.report import gradcheck_view
from kernelab.views.pages.markup import render

KERNELS = kl.compile(
    """@func
def steep(v: float):
    return v * v

@func_grad(steep, check=False)
def adj_steep(v: float, adj_ret: float):
    adjoint[v] += 3.0 * v * adj_ret

def wrong_rule(x: array[float], y: array[float]):
    i = tid()
    y[i] = steep(x[i]) + (1.0 - cos(x[i])) / x[i]**2

def cosine(x: array[float], y: array[float]):
    i = tid()
    y[i] = (1.0 - cos(x[i])) / x[i]**2

def cosine_in_steps(x: array[float], y: array[float]):
    i = tid()
    c = cos(x[i])
    top = 1.0 - c
    square = x[i] * x[i]
    y[i] = top / square

def roots(x: array[float], y: array[float]):
    i = tid()
    y[i] = sqrt(x[i] + 1.0) - sqrt(x[i])

def variance(x: array[float], y: array[float]):
    s = float(0.0)
    q = float(0.0)
    for i in range(len(x)):
        s += x[i]
        q += x[i] * x[i]
    n = float(len(x))
    y[tid()] = q / n - (s / n) * (s / n)

def quadratic(x: array[float], y: array[float]):
    i = tid()
    y[i] = sqrt(x[i] * x[i] + 1.0) - x[i]

def shifted(x: array[float], y: array[float]):
    i = tid()
    large = x[i] * x[i] + 1.0e6
    y[i] = sin(large - 1.0e6)

def overflows(x: array[float], y: array[float]):
    i = tid()
    y[i] = log(exp(x[i]))

def hyperbolic(x: array[float], y: array[float]):
    i = tid()
    up = exp(x[i])
    down = exp(-x[i])
    y[i] = 1.0 / (up - down)

def absolute(x: array[float], y: array[float]):
    i = tid()
    y[i] = 3.0 * abs(x[i] - 0.5)

def ramp(x: array[float], y: array[float]):
    i = tid()
    y[i] = max(x[i], 0.0)
"""
)


def check(name: str, values: Any, dtype: Any = float, **options: Any) -> Any:
    kernel = KERNELS[name]
    x = kl.array(values, dtype=dtype, requires_grad=True)
    n = 1 if name == "variance" else len(values)
    y = kl.zeros(n, dtype=dtype, requires_grad=True)
    return kl.autograd.gradcheck(
        kernel, dim=n, inputs=[x], outputs=[y], raise_exception=False, show_summary=False, **options
    )


NEAR = (1e4 + 0.01 * np.random.default_rng(0).normal(size=20)).tolist()


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(
    ("name", "values", "line"),
    [
        ("cosine", [1e-3], 15),
        ("cosine", [1.0, 2e-3, 0.5], 15),
        ("cosine_in_steps", [1e-3], 20),
        ("roots", [1e6], 26),
        ("variance", NEAR, 35),
        ("quadratic", [3e3], 39),
        ("shifted", [0.3], 44),
        ("overflows", [100.0], 48),
        ("hyperbolic", [1e-5], 54),
    ],
)
def test_lost_digits_are_named_at_their_line(name: str, values: Any, line: int, fast: bool) -> None:
    report = check(name, values, fast=fast)
    worst = report.worst()
    assert (bool(report), worst.verdict) == (False, "precision")
    assert worst.span is not None
    assert worst.span.line == line
    assert "in float32 and" in worst.explanation
    assert "precision: the formula is right" in render(gradcheck_view(report))
    assert "has lost its digits" in report.failure(None).message


@pytest.mark.parametrize(("name", "values"), [("cosine", [1.0]), ("roots", [2.0]), ("quadratic", [1.0])])
def test_where_digits_are_left_the_same_kernels_pass(name: str, values: Any) -> None:
    assert check(name, values)


def test_a_wrong_rule_is_a_wrong_rule_also_where_digits_are_lost() -> None:
    for values in ([0.5], [1e-3], [1e-3, 0.7]):
        worst = check("wrong_rule", values).worst()
        assert (worst.passed, worst.verdict) == (False, "custom")


def test_a_kink_is_a_kink() -> None:
    worst = check("ramp", [0.0]).worst()
    assert (worst.passed, worst.verdict) == (False, "kink")
