"""A gradient check sees a wrong entry of any size, beside any other, and fails no kernel for rounding."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelab as kl

pytestmark = pytest.mark.slow

BOTH = pytest.mark.parametrize("fast", [False, True])
WIDTHS = ("float64", "float32", "float16", "bfloat16")


def passes(kernel: Any, x: kl.array, *others: Any, outputs: int | None = None, **options: Any) -> bool:
    n = x.size if outputs is None else outputs
    y = kl.zeros(n, dtype=x.dtype)
    report = kl.autograd.gradcheck(
        kernel, n, [x, *others], [y], raise_exception=False, show_summary=False, **options
    )
    return bool(report)


def elementwise(expression: str, width: str, rules: str = "") -> Any:
    text = f"def k(x: array[{width}], y: array[{width}]):\n    i = tid()\n    y[i] = {expression}\n"
    return kl.compile(rules + text)["k"]


def leaf(values: Any, width: str = "float64") -> kl.array:
    return kl.array(np.asarray(values), dtype=getattr(kl, width), requires_grad=True)


SQUARE = """
def square(v: {width}):
    return v * v

@func_grad(square, check=False)
def adj_square(v: {width}, adj_ret: {width}):
    adjoint[v] += {factor} * v * adj_ret

"""


@BOTH
@pytest.mark.parametrize("scale", ["1e-300", "1e-100", "1e-40", "1.0", "1e45", "1e290"])
def test_a_wrong_sign_fails_in_any_unit(scale: str, fast: bool) -> None:
    x = leaf([1.0, 2.0, 3.0])
    for factor, is_right in (("-2.0", False), ("2.01", False), ("2.0", True)):
        rules = SQUARE.format(width="float64", factor=factor)
        assert passes(elementwise(f"{scale} * square(x[i])", "float64", rules), x, fast=fast) is is_right


MATRIX = (
    SQUARE.format(width="float64", factor="WRONG")
    + """
def k(x: array[float64], rows: array[float64], columns: array[float64], row: int, column: int,
      y: array[float64]):
    i = tid()
    s = float64(0.0)
    for k in range(len(x)):
        t = x[k] * x[k] / float64(1 + i + k)
        if i == row and k == column:
            t = square(x[k]) / float64(1 + i + k)
        s += columns[k] * t
    y[i] = rows[i] * s
"""
)
WRONG, RIGHT = (kl.compile(MATRIX.replace("WRONG", factor))["k"] for factor in ("2.02", "2.0"))


@settings(max_examples=15, deadline=None)
@given(st.booleans(), st.integers(0, 2**32 - 1), st.floats(0, 100), st.floats(0, 2))
def test_a_wrong_entry_fails_beside_rows_and_columns_in_larger_units(
    fast: bool, seed: int, rows: float, columns: float
) -> None:
    """Rows in any units; columns only in such as leave the sum of a row with digits for each."""
    rng, (n, m) = np.random.default_rng(seed), (4, 5)
    x = leaf(rng.uniform(0.5, 1.5, m))
    units = (kl.array(10.0 ** rng.uniform(-d, d, k), dtype=kl.float64) for d, k in ((rows, n), (columns, m)))
    given = (*units, int(rng.integers(n)), int(rng.integers(m)))
    assert not passes(WRONG, x, *given, outputs=n, fast=fast)
    assert passes(RIGHT, x, *given, outputs=n, fast=fast)


ZEROS = [
    "log(exp(x[i])) - x[i]",
    "sqrt(x[i] * x[i]) - abs(x[i])",
    "sin(x[i]) * sin(x[i]) + cos(x[i]) * cos(x[i])",
    "tan(atan(x[i])) - x[i]",
    "(x[i] + 1.0) * (x[i] - 1.0) - x[i] * x[i]",
    "pow(abs(x[i]), 3.0) / (x[i] * x[i]) - abs(x[i])",
    "cosh(x[i]) - 0.5 * (exp(x[i]) + exp(-x[i]))",
    "100.0 + log(exp(x[i])) - x[i]",
]


@BOTH
@pytest.mark.parametrize("expression", ZEROS)
def test_derivatives_that_are_zero_up_to_rounding_pass(expression: str, fast: bool) -> None:
    rng = np.random.default_rng(3)
    for width in WIDTHS:
        kernel = elementwise(expression, width)
        assert passes(kernel, leaf(rng.uniform(-2.5, 2.5, 6), width), fast=fast), width


VANISHING = [
    "x[i] * x[i] * x[i]",
    "pow(x[i], 5.0) + 1.0",
    "x[i] * abs(x[i])",
    "max(x[i], 0.0) * max(x[i], 0.0) + 100.0",
    "1.0 - cos(x[i])",
]


@BOTH
@pytest.mark.parametrize("others", [[], [0.7]])
@pytest.mark.parametrize("expression", VANISHING)
def test_derivatives_that_vanish_at_the_point_pass(expression: str, others: list[float], fast: bool) -> None:
    for width in ("float64", "float32"):
        assert passes(elementwise(expression, width), leaf([0.0, *others], width), fast=fast)


KINKS = [
    "max(x[i], 0.0)",
    "where(x[i] > 0.0, 1.0, 0.0)",
    "where(x[i] > 0.0, x[i], 2.0 * x[i]) * 1e-30",
    "100.0 + 3.0 * abs(x[i] - 1e-13)",
    "where(x[i] > 0.0, 1.0, 0.0) + log(exp(x[i])) - x[i]",
]


@BOTH
@pytest.mark.parametrize("others", [[], [0.7]])
@pytest.mark.parametrize("expression", KINKS)
def test_kinks_and_jumps_are_no_rounding(expression: str, others: list[float], fast: bool) -> None:
    assert not passes(elementwise(expression, "float64"), leaf([0.0, *others]), fast=fast)


@BOTH
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "expression", ["sin(x[i]) * x[i]", "exp(-x[i] * x[i])", "square(x[i]) / (1.0 + x[i])"]
)
def test_a_right_kernel_passes_in_every_precision_and_a_wrong_one_fails(
    expression: str, width: str, fast: bool
) -> None:
    x = leaf(np.random.default_rng(4).uniform(0.3, 2.0, 12), width)
    assert passes(elementwise(expression, width, SQUARE.format(width=width, factor="2.0")), x, fast=fast)
    wrong = elementwise(f"{expression} + square(x[i])", width, SQUARE.format(width=width, factor="1.8"))
    assert not passes(wrong, x, fast=fast)


@BOTH
@pytest.mark.parametrize("width", WIDTHS)
def test_rounding_in_between_is_allowed_for(width: str, fast: bool) -> None:
    """Float64 comes in and goes out; what is in between is rounded to fewer digits."""
    kernel = elementwise("float64(TYPE(x[i]) * TYPE(x[i])) * x[i]".replace("TYPE", width), "float64")
    assert passes(kernel, leaf([0.3, 1.1, 2.7]), fast=fast)


TURNING = """
def wave(v: {width}):
    return sin(v * {width}({turns}))

@func_grad(wave, check=False)
def adj_wave(v: {width}, adj_ret: {width}):
    adjoint[v] += {width}({factor}) * cos(v * {width}({turns})) * adj_ret

"""


@BOTH
@pytest.mark.parametrize("factor", ["0.0", "1.0"])
@pytest.mark.parametrize("turns", ["1e8", "1e10", "1e12"])
def test_a_wrong_rule_fails_though_the_function_turns_within_the_steps(
    turns: str, factor: str, fast: bool
) -> None:
    for width in ("float64", "float32"):
        kernel = elementwise("wave(x[i])", width, TURNING.format(width=width, turns=turns, factor=factor))
        assert not passes(kernel, leaf([0.1, 0.2, -0.3], width), fast=fast), width


@BOTH
def test_a_step_that_is_lost_beside_an_element_is_refused(fast: bool) -> None:
    kernel, x = elementwise("x[i] * x[i]", "float64"), leaf([0.0, 2.0])
    with pytest.raises(kl.KernelValueError, match="a step of 1e-20 is lost beside an element of size 2"):
        passes(kernel, x, eps=1e-20, fast=fast)
    with pytest.raises(kl.KernelValueError, match="is lost beside an element"):
        kl.autograd.jacobian_fd(kernel, 2, [x], [kl.zeros(2, dtype=kl.float64)], eps=1e-20)
    assert passes(kernel, leaf([0.0]), eps=1e-20, fast=fast)


FLAT = """
def bend(v: {width}):
    return {body}

@func_grad(bend, check=False)
def adj_bend(v: {width}, adj_ret: {width}):
    adjoint[v] += {width}(0.0) * adj_ret

"""


@BOTH
@pytest.mark.parametrize("width", ["float64", "float32"])
@pytest.mark.parametrize(
    ("body", "at", "eps"),
    [
        ("v * v * v", 1.0, 1e10),  # the differences cancel, and their rounding is larger than the slope
        ("exp(-v * v)", 1.0, 100.0),  # both ends are 0
        ("v + TYPE(1e6)", 1.0, 1e-12),  # the step is lost in the value
        ("exp(-v * v)", 1e-8, 1e-12),
    ],
)
def test_a_step_at_which_differences_say_nothing_passes_no_wrong_rule(
    body: str, at: float, eps: float, width: str, fast: bool
) -> None:
    body = body.replace("TYPE", width)
    wrong = elementwise("bend(x[i])", width, FLAT.format(width=width, body=body))
    assert not passes(wrong, leaf([at, 2 * at, -3 * at], width), eps=eps, fast=fast)


@BOTH
def test_a_step_that_the_function_needs_passes_a_right_rule(fast: bool) -> None:
    ramp = elementwise("max(x[i], float64(0.0)) + float64(1.0)", "float64")
    assert passes(ramp, leaf([-1e-8, 1e-8]), eps=1e-9, fast=fast)  # 1e-8 beside a kink
    assert passes(elementwise("x[i] * x[i] * x[i]", "float64"), leaf([1.0, -3.0]), eps=1e3, fast=fast)


@BOTH
def test_a_slope_that_small_steps_hide_is_told_where_inputs_are_tiny(fast: bool) -> None:
    for width in ("float64", "float32"):
        wrong = elementwise("bend(x[i])", width, FLAT.format(width=width, body="exp(-v * v)"))
        assert not passes(wrong, leaf([1e-8, 2e-8, -3e-8], width), fast=fast)
        assert passes(elementwise("exp(-x[i] * x[i])", width), leaf([1e-8, 2e-8, -3e-8], width), fast=fast)


CUBE = """
def cube(t: float64):
    return t * t * t

@func_grad(cube, check=False)
def adj_cube(t: float64, adj_ret: float64):
    adjoint[t] += FACTOR * 3.0 * t * t * adj_ret

def k(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = cube(x[i])
"""


@BOTH
@pytest.mark.parametrize("size", [1e-5, 1e-9, 1e-15, 1e-60])
@pytest.mark.parametrize("factor", ["0.0", "1.05", "-1.0", "1000.0"])
def test_a_wrong_rule_fails_at_tiny_inputs(factor: str, size: float, fast: bool) -> None:
    x = leaf(size * np.array([1.0, -2.0, 0.3]))
    assert not passes(kl.compile(CUBE.replace("FACTOR", factor))["k"], x, fast=fast)
    assert passes(kl.compile(CUBE.replace("FACTOR", "1.0"))["k"], x, fast=fast)


@pytest.mark.parametrize("size", [1e-6, 1e-15, 1e-60])
@pytest.mark.parametrize("factor", ["0.0", "1.0", "1.05"])
def test_so_does_a_tape(factor: str, size: float) -> None:
    kernel = kl.compile(CUBE.replace("FACTOR", factor))["k"]
    x, y = leaf(size * np.array([1.0, -2.0, 0.3])), leaf(np.zeros(3))
    with kl.Tape() as tape:
        kernel[3](x, y)
    assert bool(kl.autograd.gradcheck_tape(tape, raise_exception=False)) == (factor == "1.0")


@BOTH
@pytest.mark.parametrize("size", [1e-4, 1e-6, 1e-12])
@pytest.mark.parametrize("expression", ["sqrt(x[i])", "1.0 / x[i]", "log(x[i])", "1000.0 + x[i] * x[i]"])
def test_a_right_kernel_passes_near_the_border_of_its_domain(
    expression: str, size: float, fast: bool
) -> None:
    assert passes(elementwise(expression, "float64"), leaf(size * np.array([1.0, 2.0, 0.3])), fast=fast)


@pytest.mark.parametrize("check", [kl.autograd.gradcheck, kl.autograd.taylor_test])
def test_a_check_that_has_nothing_to_compare_is_an_error(check: Any) -> None:
    def nothing(x: kl.array) -> kl.array:
        return (x * x)[:0]

    with pytest.raises(kl.GradientError, match="0 pairs checked: what nothing returns has no elements"):
        check(nothing, inputs=[leaf([1.0, 2.0])], show_summary=False)
