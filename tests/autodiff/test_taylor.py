"""The Taylor test passes no gradient that it could not judge."""

from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.views.checks.report import taylor_view
from kernelab.views.pages import markup

TEXT = """
def half_root(t: float64):
    return sqrt(t - 50.0)
@func_grad(half_root, check=False)
def adj_half_root(t: float64, r: float64):
    adjoint[t] += r / sqrt(t - 50.0)
def far(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = half_root(x[i])
def roots(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = sqrt(x[i])
def logs(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = log(x[i])
def square(t: float64):
    return t * t
@func_grad(square, check=False)
def adj_square(t: float64, r: float64):
    adjoint[t] += t * r
def beside_large(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = where(i == 0, 1.0e15, square(x[i]))
def one_wrong(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = square(x[i]) if i == 7 else x[i] * x[i]
def large(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = float64(1.0e200) * square(x[i])
def linear(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = float64(0.3) * x[i]
def near_zero(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = square(x[i]) if x[i] < 10.0 else x[i] * x[i]
def sum_near_zero(x: array[float64], y: array[float64]):
    i = tid()
    y[0] += square(x[i]) if x[i] < 10.0 else x[i] * x[i]
def cancelled(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = (x[i] + 1.0e8) - 1.0e8 + x[i] * x[i]
def summed(x: array[float64], y: array[float64]):
    i = tid()
    y[0] += x[i] * x[i]
def constant(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = where(x[i] > 0.0, 3.0, inf)
def wave(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = float64(3.0) + sin(x[i]) * float64(0.1)
def bent(t: float64):
    return sin(t)
@func_grad(bent, check=False)
def adj_bent(t: float64, r: float64):
    adjoint[t] += r * cos(t) * float64(1.0001)
def wrong_wave(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = float64(3.0) + bent(x[i]) * float64(0.1)
"""


@pytest.fixture(scope="module")
def kernels() -> dict[str, Any]:
    return dict(kl.compile(TEXT))


def taylor(kernel: Any, *values: float) -> Any:
    x = kl.array(np.array(values), dtype=kl.float64, requires_grad=True)
    y = kl.zeros(len(values), dtype=kl.float64)
    return kl.autograd.taylor_test(kernel, len(values), [x], [y], show_summary=False)


def test_a_wrong_gradient_fails_where_the_largest_steps_leave_the_domain(kernels: dict[str, Any]) -> None:
    report = taylor(kernels["far"], 60.0, 51.5, 100.0)
    assert not np.isfinite(report.remainders[0])
    assert not report and report.is_finite and report.slope == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("name", ["roots", "logs"])
def test_a_right_gradient_passes_near_the_border_of_the_domain(kernels: dict[str, Any], name: str) -> None:
    report = taylor(kernels[name], 0.05, 0.04, 0.06)
    assert not np.isfinite(report.remainders[0])
    assert report and report.slope == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize(
    ("name", "value"), [("roots", 0.0), ("roots", -1.0), ("logs", 0.0), ("logs", np.nan)]
)
def test_what_is_not_finite_does_not_pass(kernels: dict[str, Any], name: str, value: float) -> None:
    report = taylor(kernels[name], 1.0, value)
    assert not report and not report.is_finite
    assert "nothing finite" in markup.render(taylor_view(report))


def test_large_outputs_that_do_not_move_hide_no_other(kernels: dict[str, Any]) -> None:
    report = taylor(kernels["beside_large"], 1.0, 2.0, 3.0)
    assert not report and report.slope == pytest.approx(1.0, abs=0.05)


def test_what_does_not_depend_on_the_inputs_passes_whatever_it_is(kernels: dict[str, Any]) -> None:
    assert taylor(kernels["constant"], 1.0, -2.0)


def test_one_wrong_element_of_many_fails(kernels: dict[str, Any]) -> None:
    report = taylor(kernels["one_wrong"], *np.linspace(0.5, 1.5, 200_000))
    assert not report and report.slope == pytest.approx(1.0, abs=0.1)


def test_a_wrong_gradient_of_values_whose_squares_are_infinite_fails(kernels: dict[str, Any]) -> None:
    report = taylor(kernels["large"], 1.0, 2.0)
    assert not report and report.slope == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("value", [0.0, 1.0, 1e9])
def test_roundings_of_a_linear_function_tell_no_slope(kernels: dict[str, Any], value: float) -> None:
    report = taylor(kernels["linear"], *5 * [value])
    assert report and np.isnan(report.slope)


@pytest.mark.parametrize(
    ("name", "size"), [("near_zero", 1e4), ("near_zero", 1e6), ("near_zero", 1e8), ("sum_near_zero", 1e4)]
)
def test_large_entries_hide_no_wrong_one(kernels: dict[str, Any], name: str, size: float) -> None:
    report = taylor(kernels[name], 1.0, 2.0, 3.0, 4.0 * size, 5.0 * size)
    assert not report and report.slope == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("name", ["cancelled", "summed", "roots"])
@pytest.mark.parametrize("size", [1e4, 1e6, 1e8])
def test_right_entries_of_very_different_sizes_pass(kernels: dict[str, Any], name: str, size: float) -> None:
    assert taylor(kernels[name], 1.0, 2.0, 3.0, 4.0 * size, 5.0 * size)


def test_a_remainder_that_changes_its_sign_between_two_steps_tells_the_same(kernels: dict[str, Any]) -> None:
    for phase in 10.0 ** np.linspace(-5.0, -1.0, 41):
        for sign in (-1.0, 1.0):
            report = taylor(kernels["wave"], sign * phase)
            assert report and not report.slope < 1.9
            report = taylor(kernels["wrong_wave"], sign * phase)
            assert not report and (report.fault or report.slope < 1.2)


STEADY = """
def grown(t: float):
    return exp(t)

@func_grad(grown, check=False)
def adj_grown(t: float, r: float):
    adjoint[t] += {factor} * exp(t) * r

def grow(x: array[float], y: array[float]):
    i = tid()
    y[i] = grown(x[i])
"""


@pytest.mark.parametrize("factor", [1.5, 1.05])
@pytest.mark.parametrize("count", [4, 300])
@pytest.mark.parametrize("size", [1e-9, 1e-12])
def test_a_wrong_gradient_of_results_that_hardly_change_does_not_pass(
    factor: float, count: int, size: float
) -> None:
    grow = kl.compile(STEADY.format(factor=factor))["grow"]
    values = np.resize([1.0, 1.7, 2.3, 0.6], count) * size
    x, y = kl.array(values, dtype=float, requires_grad=True), kl.zeros(count, requires_grad=True)
    assert not kl.autograd.taylor_test(grow, dim=count, inputs=[x], outputs=[y])


def test_where_rounding_hides_the_remainders_a_taylor_test_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    x, y = kl.array([1e-12, 2e-12], requires_grad=True), kl.zeros(2, requires_grad=True)
    grow = kl.compile(STEADY.format(factor=1.0))["grow"]
    assert not kl.autograd.taylor_test(grow, dim=2, inputs=[x], outputs=[y])
    assert "too little beside their size to tell: use gradcheck" in capsys.readouterr().out
