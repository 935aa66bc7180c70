"""Lost digits are told from kinks and wrong rules: by a verdict of their own, at the line that loses them."""

import math
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.views.checks.report import gradcheck_view, precision_view
from kernelab.views.pages.markup import render
from kernelab.views.pages.page import render as render_page

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


CHAIN = kl.compile(
    """def cosine(x: array[float], by: float, y: array[float]):
    i = tid()
    top = 1.0 - cos(x[i])
    y[i] = by * top / x[i]**2

def total(y: array[float], loss: array[float]):
    atomic_add(loss, 0, y[tid()])
"""
)


def lost(found: Any) -> dict[int, tuple[float | None, float | None]]:
    return {
        line.span.line: tuple(None if loss is None else loss.lost for loss in (line.forward, line.backward))
        for line in found.lines
    }


@pytest.mark.parametrize("block", [lambda f, x: f(x), kl.checkpoint], ids=["plain", "checkpoint"])
def test_what_the_host_loses_is_seen_behind_it_and_nobody_calls_that_complete(block: Any) -> None:
    def shifted(x: kl.array) -> Any:
        values = x.numpy()
        far = values.dtype.type(1e6)
        return values + far - far

    function = kl.func.custom_vjp(shifted, lambda x, y_bar: y_bar * 1.0, check=False)
    x = kl.array([0.123456, 1.2345678], requires_grad=True)
    with kl.Tape() as tape:
        loss = (block(function, x) * 2.0).sum()
    for found in (
        kl.precision(tape, loss=loss),
        kl.precision(lambda x: (block(function, x) * 2.0).sum(), inputs=[x]),
    ):
        assert not found.is_complete
        assert "functions of the host" in str(found)
        product = next(line for line in found.lines if line.span.line_text.endswith("a * b"))
        assert product.forward is not None
        assert product.forward.left == pytest.approx(1.9, abs=0.1)


def test_digits_are_told_by_line_forwards_and_backwards() -> None:
    x = kl.array([1e-3, 0.5], dtype=float, requires_grad=True)
    y, loss = (kl.zeros(n, dtype=float, requires_grad=True) for n in (2, 1))
    alone = kl.precision(CHAIN["cosine"], dim=2, inputs=[x, 2.0], outputs=[y])
    with kl.Tape() as tape:
        kl.launch(CHAIN["cosine"], dim=2, inputs=[x, 2.0], outputs=[y])
        kl.launch(CHAIN["total"], dim=2, inputs=[y], outputs=[loss])
    for found in (alone, kl.precision(tape, loss=loss)):
        assert found.is_complete
        by_line = lost(found)
        assert by_line[3][0] == pytest.approx(5.9, abs=0.1)
        assert by_line[4][0] == pytest.approx(0.0, abs=0.2)
        worst = found.worst()
        assert (worst.span.line, worst.text) == (3, "1.0 - cos(x[i])")
    assert lost(kl.precision(tape, loss=loss))[7][0] == pytest.approx(0.0, abs=0.2)
    assert y.grad is None or not y.grad.numpy().any()
    assert x.grad is None or not x.grad.numpy().any()

    text = str(alone)
    assert "5.9, 1.3 left" in next(line for line in text.splitlines() if "top = " in line)
    page = render_page(precision_view(alone))
    assert page.count("<rect") == 4
    assert "4.76837e-07 in float32 and 5e-07 in float64" in page


def test_where_digits_are_left_no_line_loses_any() -> None:
    x = kl.array([1.0, 2.0], dtype=float, requires_grad=True)
    y = kl.zeros(2, dtype=float, requires_grad=True)
    found = kl.precision(CHAIN["cosine"], dim=2, inputs=[x, 2.0], outputs=[y])
    assert found.worst() is None
    assert "no line loses a digit" in str(found)


def test_what_has_no_precision_is_refused() -> None:
    with pytest.raises(TypeError, match="precision takes a kernel, a function or a tape"):
        kl.precision(3.0)
    with pytest.raises(kl.TapeError, match="say what the gradient is of"):
        kl.precision(kl.Tape())
    with pytest.raises(kl.LaunchError, match="dim is missing"):
        kl.precision(CHAIN["total"])


@pytest.mark.parametrize("dtype", [kl.float32, kl.float64])
def test_float64_is_not_compared_with_itself(dtype: Any) -> None:
    x = kl.array([0.1, 0.2], dtype=dtype, requires_grad=True)
    found = kl.precision(lambda x: (x + 1e6) - 1e6, inputs=[x])
    assert found.is_complete == bool(found.lines) == (dtype is kl.float32)
    if dtype is kl.float64:
        assert "no line was looked at" in str(found) and "in float64 alone" in str(found)


def test_of_threads_that_lose_as_much_the_one_with_the_fewest_digits_is_told() -> None:
    def left(values: list[float]) -> float:
        x = kl.array(values, requires_grad=True)
        found = kl.precision(lambda x: (lambda y: y * y)((x + 1e4) - 1e4), inputs=[x])
        line = next(line for line in found.lines if line.span.line_text.endswith("a - b"))
        assert line.backward is not None
        return line.backward.left

    assert left([math.nan, 0.1]) == left([0.1]) == pytest.approx(2.4, abs=0.1)
