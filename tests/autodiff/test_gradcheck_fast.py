"""The check along random directions finds one wrong entry among many, names it, and passes what is right."""

from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import GradientError

N = 160

CELL = """
def dense(x: array[float], y: array[float]):
    i = tid()
    s = float(0.0)
    for k in range(x.shape[0]):
        s = s + x[k] * x[k] / (1.0 + float(i + k))
    y[i] = s

def one_wrong(x: array[float], y: array[float]):
    i = tid()
    s = float(0.0)
    for k in range(x.shape[0]):
        w = x[k]
        if k == 7 and i == 3:
            w = odd(x[k])
        s = s + w * w / (1.0 + float(i + k))
    y[i] = s

def wrong_above(x: array[float], y: array[float]):
    i = tid()
    if x[i] > 1.45:
        y[i] = odd(x[i])
    else:
        y[i] = x[i]

def again(x: array[float], n: int):
    i = tid()
    for k in range(n):
        x[i] = x[i] * x[i] + sin(x[i])

def squares(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]

def steps(x: array[float], y: array[float]):
    i = tid()
    y[i] = floor(x[i]) + sin(30.0 * x[i])

def turned(p: array[vec2], m: array[mat22], q: array[vec2]):
    i = tid()
    q[i] = m[i] * p[i] / (1.0 + length(p[i]))

def scaled(x: array[float], gain: float, y: array[float]):
    i = tid()
    y[i] = gain * x[i]

def bent(x: array[float], y: array[float]):
    i = tid()
    y[i] = abs(x[i])

def adjoint_only(x: array[float], y: array[float]):
    i = tid()
    y[i] = cube(x[i])

def bends_sharply(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = sin(float64(1000.0) * x[0] + float64(i)) + x[1]
    if i == 150:
        y[i] = square(x[0]) + x[1]

def square(t: float64):
    return t * t

@func_grad(square, check=False)
def adj_square(t: float64, adj_ret: float64):
    adjoint[t] += float64(2.02) * t * adj_ret

def cube(x: float):
    return x * x * x

@func_grad(cube, check=False)
def adj_cube(x: float, adj_ret: float):
    adjoint[x] += 3.03 * x * x * adj_ret

@func_jvp(cube)
def jvp_cube(x: float, x_dot: float):
    return 3.0 * x * x * x_dot

def odd(x: float):
    return x * 1.0

@func_grad(odd, check=False)
def adj_odd(x: float, adj_ret: float):
    adjoint[x] += 1.004 * adj_ret
"""


@pytest.fixture(scope="module")
def kernels() -> dict[str, Any]:
    return kl.compile(CELL)


def reals(n: int = N) -> Any:
    return kl.array(np.random.default_rng(2).uniform(0.5, 1.5, n), dtype=float, requires_grad=True)


def check(kernel: Any, inputs: list[Any], outputs: list[Any], **options: Any) -> Any:
    return kl.autograd.gradcheck(
        kernel, N, inputs, outputs, show_summary=False, raise_exception=False, **options
    )


def test_a_right_gradient_passes_along_directions(kernels: dict[str, Any]) -> None:
    report = check(kernels["dense"], [reals()], [kl.zeros(N)])
    assert report
    (pair,) = report.pairs
    assert (pair.entries, pair.directions) == (N * N, 9)
    assert pair.autodiff == pytest.approx(pair.numeric, rel=1e-6)


def test_one_entry_of_many_that_is_off_by_four_thousandths_is_found_and_named(
    kernels: dict[str, Any],
) -> None:
    report = check(kernels["one_wrong"], [reals()], [kl.zeros(N)])
    assert not report
    worst = report.worst()
    assert (worst.output_index, worst.input_index) == ((3,), (7,))
    assert worst.max_rel_error == pytest.approx(0.004, rel=0.01)
    assert worst.verdict == "custom"
    assert worst.entries < N  # of the one column whose products differ, in the rows where they differ most


@pytest.mark.parametrize("fast", [True, False])
def test_rows_that_bend_sharply_do_not_hide_a_wrong_one(kernels: dict[str, Any], fast: bool) -> None:
    x = kl.array([0.7, 1.3], dtype=kl.float64, requires_grad=True)
    report = check(kernels["bends_sharply"], [x], [kl.zeros(N, dtype=kl.float64)], fast=fast)
    assert not report
    worst = report.worst()
    assert (worst.verdict, worst.output_index, worst.input_index) == ("custom", (150,), (0,))


def test_one_branch_that_is_off_is_found(kernels: dict[str, Any]) -> None:
    x = reals()
    report = check(kernels["wrong_above"], [x], [kl.zeros(N)], fast=True)
    assert not report
    worst = report.worst()
    assert worst.input_index == worst.output_index
    assert x.numpy()[worst.input_index] > 1.45


@pytest.mark.parametrize("fast", [True, False])
def test_both_ways_agree_on_what_passes(kernels: dict[str, Any], fast: bool) -> None:
    thousand = kl.full(N, 1000.0, dtype=float, requires_grad=True)
    assert check(kernels["squares"], [thousand], [kl.zeros(N)], fast=fast)
    assert check(kernels["again"], [reals(), 3], [], fast=fast)
    assert check(kernels["steps"], [reals()], [kl.zeros(N)], fast=fast)
    rng = np.random.default_rng(1)
    p = kl.array(rng.normal(size=(N, 2)), dtype=kl.vec2, requires_grad=True)
    m = kl.array(rng.normal(size=(N, 2, 2)), dtype=kl.mat22, requires_grad=True)
    report = check(kernels["turned"], [p, m], [kl.zeros(N, dtype=kl.vec2)], fast=fast)
    assert report
    assert [pair.directions for pair in report.pairs] == [9 * fast, 9 * fast]


def test_a_function_is_checked_along_directions(kernels: dict[str, Any]) -> None:
    def twice(x: Any) -> Any:
        y, z = kl.zeros_like(x), kl.zeros_like(x)
        kernels["dense"][N](x, y)
        kernels["again"][N](y, 2)
        kernels["squares"][N](y, z)
        return z

    report = kl.autograd.gradcheck(twice, inputs=[reals()], show_summary=False)
    assert report
    assert report.pairs[0].directions == 9


def test_limits_on_elements_hold_along_directions(kernels: dict[str, Any]) -> None:
    limits = {"max_inputs_per_var": 5, "max_outputs_per_var": 4}
    (pair,) = check(kernels["one_wrong"], [reals()], [kl.zeros(N)], fast=True, **limits).pairs
    assert (pair.entries, pair.passed) == (20, True)


def test_errors_of_entries_that_were_not_compared_are_refused(kernels: dict[str, Any]) -> None:
    report = check(kernels["dense"], [reals()], [kl.zeros(N)])
    with pytest.raises(GradientError, match=r"compared along directions"):
        _ = report.absolute


def test_the_report_says_that_directions_were_compared(
    kernels: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    kl.autograd.gradcheck(kernels["dense"], N, [reals()], [kl.zeros(N)])
    shown = capsys.readouterr().out
    assert "agree in 9 products with random directions, of 25600 entries" in shown
    assert "9 random directions" in shown


def test_a_kink_under_one_of_many_elements_is_found_and_told_from_a_wrong_adjoint(
    kernels: dict[str, Any],
) -> None:
    values = np.linspace(-1.5, -0.5, N)
    values[5] = 1e-12
    report = check(kernels["bent"], [kl.array(values, dtype=float, requires_grad=True)], [kl.zeros(N)])
    assert not report
    assert (report.worst().input_index, report.worst().verdict) == ((5,), "kink")


def test_an_adjoint_that_is_off_by_a_hundredth_everywhere_is_told_from_a_kink(
    kernels: dict[str, Any],
) -> None:
    report = check(kernels["adjoint_only"], [reals()], [kl.zeros(N)])
    assert not report
    worst = report.worst()
    assert (worst.verdict, worst.input_index) == ("adjoint", worst.output_index)
    assert worst.max_rel_error == pytest.approx(0.01, rel=0.01)


@pytest.mark.parametrize("fast", [True, False])
def test_a_function_that_changes_from_run_to_run_is_nondeterministic(
    kernels: dict[str, Any], fast: bool
) -> None:
    runs = []

    def restless(x: Any) -> Any:
        y = kl.zeros_like(x)
        runs.append(x)
        kernels["scaled"][x.shape[0]](x, float(len(runs)), y)
        return y

    report = kl.autograd.gradcheck(
        restless, inputs=[reals(4)], show_summary=False, raise_exception=False, fast=fast
    )
    assert not report
    assert report.worst().verdict == "nondeterministic"


# ------------------------------------------------------------------------------------------ too many entries

WRONG_BESIDE_NEIGHBOURS = """
def square(x: float):
    return x * x

@func_grad(square, check=False)
def adj_square(x: float, adj_ret: float):
    adjoint[x] += 3.0 * x * adj_ret

def step(x: array[float], y: array[float]):
    i = tid()
    y[i] = square(x[i]) + sin(x[(i + 1) % x.shape[0]])
"""
MANY = 20_000


def test_a_wrong_rule_is_found_in_a_jacobian_that_no_matrix_should_hold() -> None:
    x = kl.array(np.linspace(1.0, 2.0, MANY), dtype=float, requires_grad=True)
    step = kl.compile(WRONG_BESIDE_NEIGHBOURS)["step"]
    report = kl.autograd.gradcheck(step, MANY, [x], [kl.zeros(MANY)], raise_exception=False)
    (pair,) = report.pairs
    assert not pair.passed
    assert pair.input_index == pair.output_index
    assert pair.verdict == "custom"
    assert abs(pair.autodiff / pair.numeric - 1.5) < 0.01
    assert pair.entries < 100


def test_more_entries_than_a_matrix_should_hold_are_refused() -> None:
    x = kl.ones(MANY, requires_grad=True)
    step = kl.compile(WRONG_BESIDE_NEIGHBOURS)["step"]
    with pytest.raises(kl.GradientError, match=r"has 4\.0e\+08 entries: too many to compare each"):
        kl.autograd.gradcheck(step, MANY, [x], [kl.zeros(MANY)], fast=False)


def test_a_race_of_many_threads_is_named_without_a_matrix_of_all_entries() -> None:
    text = "def pass_on(x: array[float], y: array[float]):\n    i = tid()\n"
    text += "    y[i] = 2.0 * x[(i + 1) % x.shape[0]]"
    x = kl.array(np.linspace(1.0, 2.0, MANY), dtype=float, requires_grad=True)
    report = kl.autograd.gradcheck(kl.compile(text)["pass_on"], MANY, [x], [x], raise_exception=False)
    (pair,) = report.pairs
    assert pair.verdict == "race"
    assert pair.entries < 100


WRONG_NEAR_ZERO = """
def square(x: float64):
    return x * x

@func_grad(square, check=False)
def adj_square(x: float64, adj_ret: float64):
    adjoint[x] += 3.0 * x * adj_ret

def squares(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = square(x[i]) if x[i] < 10.0 else x[i] * x[i]
"""


@pytest.mark.parametrize("exponent", range(2, 10))
def test_a_wrong_entry_is_found_beside_inputs_of_any_size(exponent: int) -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0 * 10.0**exponent, 5.0 * 10.0**exponent])
    x, y = (kl.array(v, dtype=kl.float64, requires_grad=True) for v in (values, np.zeros(5)))
    squares = kl.compile(WRONG_NEAR_ZERO)["squares"]
    for fast in (True, False):
        assert not kl.autograd.gradcheck(squares, 5, [x], [y], fast=fast, raise_exception=False)
    with kl.Tape() as tape:
        squares[5](x, y)
    assert not kl.autograd.gradcheck_tape(tape, raise_exception=False)
