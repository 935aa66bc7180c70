"""What a gradient check says is wrong is what was planted, and it names the line."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.autodiff.checks import blame
from kernelab.autodiff.rule_checks import operation_check
from kernelab.autodiff.rule_checks.operation_check import Operation, has_derivative, wrong_adjoint
from kernelab.autodiff.rule_checks.rule_samples import evaluate
from kernelab.errors import GradientError
from kernelab.lang import ops
from kernelab.lang.ir import Let
from kernelab.lang.ops import Partials, Rules
from kernelab.lang.types import float32, float64
from tests.support.table import cases

CELL = """
def everywhere(x: array[float], y: array[float]):
    i = tid()
    y[i] = sin(x[i]) + off_by_one_percent(x[i])

def in_one_element(x: array[float], y: array[float]):
    i = tid()
    y[i] = off_at_seven(x[i], i)

def in_one_branch(x: array[float], y: array[float]):
    i = tid()
    if x[i] > 1.0:
        y[i] = off_by_one_percent(x[i])
    else:
        y[i] = x[i]

def in_a_loop(x: array[float], y: array[float]):
    i = tid()
    s = 0.0
    for k in range(3):
        s += off_by_one_percent(x[i] + float(k))
    y[i] = s

def bent(x: array[float], y: array[float]):
    i = tid()
    t = 2.0 * x[i]
    y[i] = abs(t) * 3.0

def jumping(x: array[float], y: array[float]):
    i = tid()
    t = 2.0 * x[i]
    if t > 1.0:
        y[i] = t * t
    else:
        y[i] = 0.0

def smallest(x: array[float], y: array[float]):
    i = tid()
    y[i] = min(x[i], 0.5) * x[i]

def smallest_component(x: array[float], y: array[float]):
    i = tid()
    y[i] = min(vec3(x[i], 0.5, 1.0))

def direction(x: array[float], y: array[float]):
    i = tid()
    y[i] = normalize(vec3(x[i], 0.0, 0.0))[0]

def racing(x: array[float], y: array[float]):
    i = tid()
    y[i % 2] = x[i] * x[i]

def reading_others(x: array[float]):
    i = tid()
    if i > 0:
        x[i] = x[i] + 0.5 * x[i - 1]

def taking_turns(x: array[float], count: array[int], y: array[float]):
    i = tid()
    slot = atomic_add(count, 0, 1)
    y[slot] = x[i] * x[i]

def reshaped(x: array[float], y: array2d[float]):
    i = tid()
    y[i // 2, i % 2] = x[i] * x[i]

def through_a_function(x: array[float], y: array[float]):
    i = tid()
    y[i] = twice_removed(x[i]) + cos(x[i])

def twice_removed(v: float):
    return tan(v) + removed(v)

def removed(v: float):
    return off_by_one_percent(2.0 * v)

def sines_in_loops(x: array[float], y: array[float]):
    i = tid()
    s = 0.0
    for k in range(3):
        s = s * x[i] + cos(x[i])
        while s > 0.5:
            s = s - sin(x[i])
    y[i] = s

def sine_in_a_function(x: array[float], y: array[float]):
    i = tid()
    y[i] = sine_of(x[i] * x[i]) + tanh(x[i])

def sine_of(v: float):
    w = 1.0 + v
    return sin(w)

def lengths(x: array[float], y: array[float]):
    i = tid()
    v = vec3(x[i], 2.0, sin(x[i]))
    y[i] = length(v)

def detached(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * stop_gradient(x[i])

def rooted(x: array[float], y: array[float]):
    i = tid()
    t = x[i] * x[i]
    y[i] = sqrt(t - 1.0)

def chaotic(x: array[float], y: array[float]):
    i = tid()
    s = x[i]
    for k in range(100):
        s = 3.9 * s * (1.0 - s)
    y[i] = s

def rapid(x: array[float], y: array[float]):
    i = tid()
    y[i] = sin(exp(x[i]))

def heads(x: array[float], y: array[float]):
    i = tid()
    r = rand_init(7, i)
    if randf(r) < x[i]:
        y[i] = 1.0

def placed(x: array[float], y: array[float]):
    i = tid()
    y[int(x[i])] = 2.0

def saturated(x: array[float], y: array[float]):
    i = tid()
    y[i] = clamp(3.0 * x[i], 0.0, 0.1)

def rectified(x: array[float], y: array[float]):
    i = tid()
    if x[i] > 0.0:
        y[i] = x[i]

def off_by_one_percent(x: float):
    return x * x * x

@func_grad(off_by_one_percent, check=False)
def adj_off_by_one_percent(x: float, adj_ret: float):
    adjoint[x] += 3.03 * x * x * adj_ret

def off_at_seven(x: float, i: int):
    return x * x

@func_grad(off_at_seven, check=False)
def adj_off_at_seven(x: float, i: int, adj_ret: float):
    if i == 7:
        adjoint[x] += 2.02 * x * adj_ret
    else:
        adjoint[x] += 2.0 * x * adj_ret
"""
LINES = CELL.split("\n")


@pytest.fixture(scope="module")
def kernels() -> dict[str, Any]:
    return kl.compile(CELL)


def judged(function: Any, values: Any, outputs: Any = None, **options: Any) -> Any:
    x = kl.array(np.asarray(values), dtype=float, requires_grad=True)
    rest = {} if outputs is None else {"dim": x.size, "outputs": outputs}
    options = {"raise_exception": False, "show_summary": False} | options
    return kl.autograd.gradcheck(function, inputs=[x], **rest, **options)


def reals(n: int) -> Any:
    return np.random.default_rng(3).uniform(0.6, 1.6, n)


@pytest.mark.parametrize("n", [9, 300])
@pytest.mark.parametrize("name", ["everywhere", "in_one_element", "in_one_branch", "in_a_loop"])
def test_a_wrong_rule_is_named_at_its_line(kernels: dict[str, Any], name: str, n: int) -> None:
    report = judged(kernels[name], reals(n), [kl.zeros(n)])
    worst = report.worst()
    assert worst.verdict == "custom"
    assert worst.span is not None
    assert LINES[worst.span.line - 1].startswith("def adj_off")
    assert "gives" in worst.explanation
    if name == "in_one_element":
        assert (worst.output_index, worst.others) == ((7,), ())


@pytest.mark.parametrize(
    ("name", "values", "line"),
    [
        ("bent", [1.0, 1e-12], "    y[i] = abs(t) * 3.0"),
        ("jumping", [0.3, 0.5], "    if t > 1.0:"),
        ("smallest", [0.3, 0.5], "    y[i] = min(x[i], 0.5) * x[i]"),
        ("smallest_component", [0.3, 0.5], "    y[i] = min(vec3(x[i], 0.5, 1.0))"),
        # By the same amount to both sides: differences grow as the step shrinks.
        ("direction", [1.0, 0.0], "    y[i] = normalize(vec3(x[i], 0.0, 0.0))[0]"),
    ],
)
def test_a_kink_is_named_at_its_line(
    kernels: dict[str, Any], name: str, values: list[float], line: str
) -> None:
    worst = judged(kernels[name], values, [kl.zeros(2)]).worst()
    assert (worst.verdict, worst.input_index) == ("kink", (1,))
    assert worst.span is not None
    assert LINES[worst.span.line - 1] == line
    assert "thread 1" in worst.explanation


@pytest.mark.parametrize(("name", "values"), [("chaotic", [0.3, 0.4]), ("rapid", [25.0, 30.0])])
def test_a_derivative_that_no_step_is_small_enough_for_is_no_kink(
    kernels: dict[str, Any], name: str, values: list[float]
) -> None:
    worst = judged(kernels[name], values, [kl.zeros(2)]).worst()
    assert (worst.verdict, worst.span) == ("chaos", None)


@pytest.mark.parametrize(
    ("name", "line", "said"),
    [
        ("heads", "    if randf(r) < x[i]:", "a condition has derivative 0"),
        ("placed", "    y[int(x[i])] = 2.0", "an index has derivative 0"),
    ],
)
def test_a_pass_of_what_only_decides_says_so(
    kernels: dict[str, Any], capsys: pytest.CaptureFixture[str], name: str, line: str, said: str
) -> None:
    """`backward` ends with an error there: a pass alone would say that all is well."""
    report = judged(kernels[name], [0.3, 1.2], [kl.zeros(2)], show_summary=True)
    assert report
    assert [LINES[end.span.line - 1] for end in report.zeros] == [line]
    assert said in capsys.readouterr().out
    assert not judged(kernels["rectified"], [0.3, 1.2], [kl.zeros(2)]).zeros


@pytest.mark.parametrize("fast", [False, True])
def test_a_pass_of_derivatives_that_are_all_zero_says_so(
    kernels: dict[str, Any], capsys: pytest.CaptureFixture[str], fast: bool
) -> None:
    assert judged(kernels["saturated"], [0.3, 1.2], [kl.zeros(2)], show_summary=True, fast=fast)
    assert "zero here: every derivative by `x`; kl.contributions says why" in capsys.readouterr().out
    assert judged(kernels["saturated"], [0.01, 1.2], [kl.zeros(2)], show_summary=True, fast=fast)
    assert "zero here" not in capsys.readouterr().out


def test_threads_that_race_are_named_with_both_results(kernels: dict[str, Any]) -> None:
    report = judged(kernels["racing"], [1.0, 2.0, 3.0, 4.0], [kl.zeros(2)])
    assert report.worst().verdict == "race"
    assert "y[0] is 9 if the first thread runs first, 1 if the last does" in report.worst().explanation
    assert "threads 0 and 2 of `racing` both store to y[0]" in report.worst().explanation
    with pytest.raises(
        GradientError, match="the result of reading_others depends on the order of its threads"
    ):
        judged(kernels["reading_others"], [1.0, 2.0, 3.0], [], raise_exception=True)


def test_threads_that_take_turns_or_have_their_own_elements_do_not_race(kernels: dict[str, Any]) -> None:
    assert judged(kernels["reshaped"], reals(4), [kl.zeros((2, 2))])
    x = kl.array(reals(3), dtype=float, requires_grad=True)
    arguments = [x, kl.zeros(1, dtype=int)]
    assert kl.autograd.gradcheck(kernels["taking_turns"], 3, arguments, [kl.zeros(3)], show_summary=False)


def test_in_a_function_of_several_launches_the_line_is_found_too(kernels: dict[str, Any]) -> None:
    def f(x: Any) -> Any:
        y, z = kl.zeros_like(x), kl.zeros_like(x)
        kernels["smallest"][x.size](x, y)
        kernels["everywhere"][x.size](y, z)
        return z

    worst = judged(f, reals(5)).worst()
    assert worst.verdict == "custom"
    assert worst.span is not None
    assert LINES[worst.span.line - 1].startswith("def adj_off_by_one_percent")


def test_a_trace_that_would_be_long_ends_early(
    kernels: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blame, "MOST_STATEMENTS", 1)
    worst = judged(kernels["bent"], [1.0, 1e-12], [kl.zeros(2)]).worst()
    assert (worst.verdict, worst.span) == ("both", None)


def test_the_next_worst_entries_are_listed(
    kernels: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    report = judged(kernels["everywhere"], reals(9), [kl.zeros(9)], show_summary=True)
    others = report.worst().others
    assert len(others) == 4
    assert all(other.input_index == other.output_index for other in others)
    shown = capsys.readouterr().out
    assert all(f"d y[{k}] / d x[{k}]" in shown for (k,) in (other.input_index for other in others))
    assert "def adj_off_by_one_percent" in shown


def test_the_error_shows_the_line_at_fault(kernels: dict[str, Any]) -> None:
    with pytest.raises(GradientError, match=r"(?s)is not its derivative.*def adj_off_by_one_percent\(x"):
        judged(kernels["everywhere"], reals(3), [kl.zeros(3)], raise_exception=True)


# ------------------------------------------------------------------------------------------ wrong records


def planted(name: str, derivative: Any) -> Any:
    """The record of an operation of float32, with another derivative for a while."""

    @contextmanager
    def within() -> Iterator[None]:
        (op, _) = ops.resolve(name, [float32]) or (None, None)
        before = op.derivative
        object.__setattr__(op, "derivative", derivative)
        try:
            yield
        finally:
            object.__setattr__(op, "derivative", before)

    return within()


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("sines_in_loops", "            s = s - sin(x[i])"),
        ("sine_in_a_function", "    return sin(w)"),
        ("lengths", "    v = vec3(x[i], 2.0, sin(x[i]))"),
    ],
)
def test_a_wrong_rule_of_a_builtin_is_named_at_its_line(name: str, line: str) -> None:
    with planted("sin", Partials(lambda y, x: x.apply("cos") * 1.01)):
        kernel = kl.compile(CELL)[name]
        worst = judged(kernel, [0.8, 1.1, 1.4], [kl.zeros(3)]).worst()
    assert worst.verdict == "builtin"
    assert LINES[worst.span.line - 1] == line
    assert "the adjoint of `sin` is" in worst.explanation


def test_a_rule_that_is_wrong_for_the_adjoint_alone_is_named_too() -> None:
    rule = Rules(lambda y, xs, dots: dots[0] * xs[0].apply("cos"), lambda y, xs, g: g * 0.5)
    with planted("sin", rule):
        worst = judged(kl.compile(CELL)["sine_in_a_function"], [0.8, 1.1], [kl.zeros(2)]).worst()
    assert (worst.verdict, LINES[worst.span.line - 1]) == ("builtin", "    return sin(w)")


def test_a_wrong_grad_function_is_found_through_functions_that_call_it(kernels: dict[str, Any]) -> None:
    worst = judged(kernels["through_a_function"], [0.7, 0.9], [kl.zeros(2)]).worst()
    assert worst.verdict == "custom"
    assert LINES[worst.span.line - 1].startswith("def adj_off_by_one_percent")


def test_a_surrogate_is_no_fault_but_is_named(kernels: dict[str, Any]) -> None:
    worst = judged(kernels["detached"], [0.7, 0.9], [kl.zeros(2)]).worst()
    assert (worst.verdict, LINES[worst.span.line - 1]) == (
        "surrogate",
        "    y[i] = x[i] * stop_gradient(x[i])",
    )


def test_no_record_is_blamed_that_is_right() -> None:
    rng = np.random.default_rng(5)
    for case in list(cases((float64,)))[::7]:
        operation = Operation(case.op, case.types, case.result)
        if case.active and has_derivative(operation) and "surrogate" not in case.op.tags:
            assert wrong_adjoint(operation, case.draw(int(rng.integers(99)))) is None, case.name


def test_stairs_that_a_step_of_a_large_number_passes_are_a_kink() -> None:
    text = "def stairs(x: array[float], y: array[float]):\n    y[tid()] = floor(x[tid()]) * x[tid()]"
    x, y = kl.array([690056.9375], requires_grad=True), kl.zeros(1, requires_grad=True)
    with pytest.raises(GradientError, match="has a kink or a jump within the step"):
        kl.autograd.gradcheck(kl.compile(text)["stairs"], dim=1, inputs=[x], outputs=[y])


def test_an_infinite_derivative_is_named_at_its_line(kernels: dict[str, Any]) -> None:
    worst = judged(kernels["rooted"], [1.5, 1.0], [kl.zeros(2)]).worst()
    assert worst.verdict == "not finite"
    assert LINES[worst.span.line - 1] == "    y[i] = sqrt(t - 1.0)"
    assert worst.explanation == "the derivative of `sqrt` is infinite at 0, in thread 1"
    worst = judged(kernels["rooted"], [1.5, 0.5], [kl.zeros(2)]).worst()
    assert worst.explanation == "`sqrt` of -0.75, in thread 1, is not a number"


@pytest.mark.parametrize(
    ("expression", "operand"),
    [
        ("max(v)", "[1. 1. 0.]"),
        ("min(-v)", "[-1. -1. -0.]"),
        ("max(outer(v, v) * v)", "[2. 2. 0.]"),
        ("max(v, vec3d(0.5, 0.5, 0.0))[2]", "0 and 0"),
    ],
)
def test_a_kink_of_an_operation_on_vectors_is_told_by_its_operands(expression: str, operand: str) -> None:
    text = f"def k(x: array[vec3d], y: array[float64]):\n    v = x[tid()]\n    y[tid()] = {expression}\n"
    x = kl.array([[0.3, 0.2, 2.0], [1.0, 1.0, 0.0]], dtype=kl.vec3d, requires_grad=True)
    outputs = [kl.zeros(2, dtype=kl.float64)]
    report = kl.autograd.gradcheck(
        kl.compile(text)["k"], 2, [x], outputs, raise_exception=False, show_summary=False
    )
    assert report.worst().verdict == "kink"
    assert operand in report.worst().explanation


def test_a_kink_of_any_operation_can_be_told() -> None:
    rng = np.random.default_rng(7)
    for case in cases((float64,)):
        operation = Operation(case.op, case.types, case.result)
        if not case.active or not has_derivative(operation):
            continue
        points = case.draw(int(rng.integers(99)))
        result = evaluate(operation_check._applied(operation), *points)[0]
        (stmt,) = (s for s in operation_check._applied(operation).body.stmts if isinstance(s, Let))
        event = blame.Event(stmt, np.arange(len(result)), tuple(points), result)
        told = blame._kink_text(event, np.ones(result.shape, dtype=bool))
        assert told.startswith(f"{blame._called(stmt)} of "), case.name


def test_at_a_jump_rounding_may_take_the_adjoint_where_nothing_was_kept() -> None:
    """The values that loops overwrite are kept for the way that the primal went."""
    text = """def overwriting(x: array[float64], z: array[float64], y: array[float64]):
        i = tid()
        s = x[i]
        if s * s >= s * 1.5:
            for k in range(3):
                z[i] = z[i] * z[i]
                y[i] += z[i]
        else:
            for k in range(2):
                z[i] = z[i] * z[i]
                y[i] += z[i]
        y[i] += (1.0 + 1e-9 * s) - 1.0"""
    x, z, y = (
        kl.array(values, dtype=float64, requires_grad=True)
        for values in (np.full(8, 1.5), np.linspace(0.1, 0.9, 8), np.zeros(8))
    )
    kernel = kl.compile(text)["overwriting"]
    report = kl.autograd.gradcheck(kernel, 8, [x, z], [y], raise_exception=False, show_summary=False)
    assert report.worst().verdict == "kink"
    assert "`>=` of 2.25 and 2.25" in report.worst().explanation


@pytest.mark.parametrize("product", ["m.T @ m", "m @ m.T", "cw_mul(m.T, m)", "transpose(m) * m"])
def test_no_product_of_a_transposed_matrix_is_blamed_for_a_jump(product: str) -> None:
    kernel = kl.compile(f"""
def k(x: array[float64], y: array[float64]):
    i = tid()
    m = mat22d(x[i], 1.0, 2.0, x[i] * x[i])
    y[i] = ({product})[0, 1]
    if x[i] > 1.0:
        y[i] += 1.0
""")["k"]
    x, y = (kl.array([0.5, 1.0, 2.0], dtype=kl.float64, requires_grad=True), kl.zeros(3, dtype=kl.float64))
    report = kl.autograd.gradcheck(kernel, 3, [x], [y], raise_exception=False, show_summary=False)
    assert report.worst().verdict == "kink"
