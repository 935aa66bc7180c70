"""`gradcheck_tape` moves extrema off ties, tells nothing of its own passes, and sees wrong products."""

from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.autodiff.checks.endtoend import Pulled
from kernelab.autodiff.records.adjoint_buffers import Adjoints

kernels: dict[str, Any] = kl.compile("""
def largest(x: array[float], y: array[float]):
    i = tid()
    atomic_max(y, 0, x[i])

def smallest(x: array[float], y: array[float]):
    i = tid()
    atomic_min(y, 0, x[i])

def grow(x: array[float], y: array[float]):
    i = tid()
    y[i] = y[i] * y[i] + x[i]

def hat(x: array[float], weight: array[float]):
    i = tid()
    weight[i] = max(x[i], 0.0) ** 4.0

def mean(x: array[float], weight: array[float], y: array[float]):
    i = tid()
    if weight[i] > 0.0:
        y[i] = 1.0 + x[i]

def spread(weight: array[float], mean: array[float], loss: array[float]):
    i = tid()
    atomic_add(loss, 0, weight[i] * mean[i])

def add(x: array[float], total: array[float]):
    i = tid()
    atomic_add(total, 0, x[i])

def scale(x: array[float], total: array[float], y: array[float]):
    i = tid()
    y[i] = total[0] * x[i]

def thirds(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i] / 3.0 + x[i] ** 0.1 + radians(x[i])
""")
VIEWS = {"apart": (slice(0, 1), slice(1, 2)), "overlapping": (slice(0, 2), slice(1, 3))}


def leaf(*values: float) -> kl.array:
    return kl.array(values, dtype=float, requires_grad=True)


@pytest.mark.parametrize("views", VIEWS)
@pytest.mark.parametrize(("name", "start"), [("largest", -1e3), ("smallest", 1e3)])
def test_extrema_in_two_views_of_one_array_are_checked_away_from_ties(
    name: str, start: float, views: str
) -> None:
    x, z, y = leaf(1.0, 3.0, 2.0), leaf(2.5, 5.0, 0.5), leaf(start, start, start)
    first, second = VIEWS[views]
    with kl.Tape() as tape:
        kernels[name][3](x, y[first])
        kernels[name][3](z, y[second])
    assert kl.autograd.gradcheck_tape(tape, raise_exception=False)


def test_a_true_tie_of_two_launches_is_still_found() -> None:
    x, z, y = leaf(1.0, 3.0), leaf(3.0, 2.0), leaf(-1e3, -1e3)
    with kl.Tape() as tape:
        kernels["largest"][2](x, y[0:1])
        kernels["largest"][2](z, y[0:2])
    assert not kl.autograd.gradcheck_tape(tape, raise_exception=False)


def test_a_check_tells_nothing_of_its_own_passes(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = leaf(1.0, 3.0, 2.0), kl.array([1.0, 2.0, 3.0], dtype=float)
    with kl.Tape(overwrite="save") as tape:
        kernels["grow"][3](x, y)
        kernels["grow"][3](x, y)
    for _ in range(2):
        kl.autograd.gradcheck_tape(tape, raise_exception=False)
    assert "earlier pass" not in capsys.readouterr().err


def test_a_wrong_product_of_right_launches_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adjoints of reversed views in the wrong order, alike in both engines: no launch alone shows it."""
    of = Adjoints.of

    def in_storage_order(self: Adjoints, primal: kl.array) -> kl.array:
        reversed_view = primal.ndim == 1 and primal.strides[0] < 0
        return of(self, primal[::-1] if reversed_view else primal)

    x, y, z = leaf(1.0, 3.0, 2.0), leaf(0.0, 0.0, 0.0), leaf(0.0, 0.0, 0.0)
    with kl.Tape() as tape:
        kernels["grow"][3](x, y)
        kernels["grow"][3](y[::-1], z)
    assert kl.autograd.gradcheck_tape(tape, raise_exception=False)
    monkeypatch.setattr(Adjoints, "of", in_storage_order)
    monkeypatch.setattr(Pulled, "agrees_with", lambda self, swept: True)
    report = kl.autograd.gradcheck_tape(tape, raise_exception=False)
    bad = report.first_bad()
    assert bad is not None and "their product is not the derivative" in bad.reason


def test_a_kink_on_the_way_that_the_loss_does_not_see_is_a_note() -> None:
    """A mean where something stands: a jump where the weight is 0, of which the next launch takes 0 times."""
    x, weight, mean, loss = leaf(1.0, 0.0, 2.0), leaf(0.0, 0.0, 0.0), leaf(0.0, 0.0, 0.0), leaf(0.0)
    with kl.Tape() as tape:
        kernels["hat"][3](x, weight)
        kernels["mean"][3](x, weight, mean)
        kernels["spread"][3](weight, mean, loss)
    report = kl.autograd.gradcheck_tape(tape, raise_exception=False)
    assert report and report.whole is not None
    assert report.whole.note.endswith(
        "has a kink or a jump near these values, but not what the tape ends with"
    )
    with kl.Tape() as tape:
        kernels["hat"][3](x, weight)
        kernels["mean"][3](x, weight, mean)
    assert not kl.autograd.gradcheck_tape(tape, raise_exception=False)


def test_a_sum_into_zeros_is_checked_from_zeros() -> None:
    x, total, y = leaf(1.0, 3.0, 2.0), kl.zeros(1, requires_grad=True), leaf(0.0, 0.0, 0.0)
    with kl.Tape() as tape:
        kernels["add"][3](x, total)
        kernels["scale"][3](x, total, y)
    report = kl.autograd.gradcheck_tape(tape, raise_exception=False)
    assert report and report.whole is not None and report.is_exact
    total.fill_(7.0)
    report = kl.autograd.gradcheck_tape(tape, raise_exception=False)
    assert report and report.whole is not None and not report.is_exact


def test_constants_of_derivatives_do_not_round_in_the_check() -> None:
    x, y = leaf(*(0.1 + 0.02 * i for i in range(40))), kl.zeros(40, requires_grad=True)
    with kl.Tape() as tape:
        kernels["thirds"][40](x, y)
    report = kl.autograd.gradcheck_tape(tape, raise_exception=False)
    assert report.whole is not None and report.whole.worst < 1e-9


LEAVES_OUT = """
def product(a: float, b: float):
    return a * b * b

@func_grad(product, check=False)
def adj_product(a: float, b: float, adj_ret: float):
    adjoint[a] += b * b * adj_ret

def scaled(a: array[float], i: int, b: float):
    return a[i] * b

@func_grad(scaled, check=False)
def adj_scaled(a: array[float], i: int, b: float, adj_ret: float):
    adjoint[b] += a[i] * adj_ret

def square(v: float):
    return v * v

@func_grad(square)
def adj_square(v: float, adj_ret: float):
    adjoint[v] += 2.0 * v * adj_ret

def of_numbers(x: array[float], z: array[float], y: array[float]):
    i = tid()
    y[i] = product(x[i], z[i])

def of_an_array(x: array[float], z: array[float], y: array[float]):
    i = tid()
    y[i] = scaled(z, i, x[i])

def stopped(x: array[float], z: array[float], y: array[float]):
    i = tid()
    y[i] = square(x[i]) * stop_gradient(z[i])

def picked(x: array[float], z: array[float], y: array[float]):
    i = tid()
    y[i] = square(x[int(z[i]) % 3])

def decided(x: array[float], z: array[float], y: array[float]):
    i = tid()
    if z[i] > 2.5:
        y[i] = square(x[i])
"""


@pytest.mark.parametrize("through", ["leaf", "computed"])
@pytest.mark.parametrize("name", ["of_numbers", "of_an_array"])
def test_an_array_that_a_rule_leaves_out_fails(name: str, through: str) -> None:
    """No adjoint reaches `z`, so its gradient is zero: the check has to move it all the same."""
    made = kl.compile(LEAVES_OUT)
    x, z, y = leaf(1.0, 2.0, 3.0), leaf(2.0, 3.0, 5.0), leaf(0.0, 0.0, 0.0)
    with kl.Tape() as tape:
        made[name][3](x, z if through == "leaf" else z * z, y)
    report = kl.autograd.gradcheck_tape(tape, raise_exception=False)
    bad = report.first_bad()
    assert bad is not None and bad.report is not None
    assert bad.kernel == name and not all(pair.passed for pair in bad.report.pairs)


@pytest.mark.parametrize("name", ["stopped", "picked", "decided"])
def test_an_array_without_a_derivative_passes_beside_a_rule(name: str) -> None:
    made = kl.compile(LEAVES_OUT)
    x, z, y = leaf(1.0, 2.0, 3.0), leaf(2.0, 3.0, 5.0), leaf(0.0, 0.0, 0.0)
    with kl.Tape() as tape:
        made[name][3](x, z, y)
    assert kl.autograd.gradcheck_tape(tape, raise_exception=False)


STEEP = """
def growth(v: float):
    return exp(v)

@func_grad(growth, check=False)
def adj_growth(v: float, adj_ret: float):
    adjoint[v] += where(v < 0.0, {factor}, 1.0) * exp(v) * adj_ret

def grown(x: array[float], y: array[float]):
    i = tid()
    y[i] = growth(x[i])

def weighed(y: array[float], w: array[float], loss: array[float]):
    i = tid()
    atomic_add(loss, 0, w[i] * y[i])
"""


@pytest.mark.parametrize("weights", [None, False, True], ids=["no loss", "loss", "weights are sources"])
@pytest.mark.parametrize("factor", [1.0, 2.0, 1.001])
def test_a_wrong_entry_shows_beside_others_that_are_far_larger(factor: float, weights: bool | None) -> None:
    made = kl.compile(STEEP.format(factor=factor))
    values = [-2.0, -0.7, 1.5, 20.0]
    x, y, loss = leaf(*values), leaf(0.0, 0.0, 0.0, 0.0), leaf(0.0)
    with kl.Tape() as tape:
        made["grown"][4](x, y)
        if weights is not None:
            w = kl.array(np.exp(np.negative(values)), dtype=float, requires_grad=weights)
            made["weighed"][4](y, w, loss)
    report = kl.autograd.gradcheck_tape(tape, raise_exception=False, show_summary=False)
    assert bool(report) == (factor == 1.0)
    bad = report.first_bad()
    assert factor == 1.0 or (bad is not None and bad.kernel == "grown")


def passive_within(x: Any) -> Any:
    y = kl.zeros(3)
    kernels["grow"][3](x, y)
    return y * x


def by_host_within(x: Any) -> Any:
    return kl.array((x * x).numpy()) * x


def whole_within(x: Any) -> Any:
    y = kl.zeros(3, requires_grad=True)
    kernels["grow"][3](x, y)
    return y * x


@pytest.mark.filterwarnings("ignore:no gradient flows")
@pytest.mark.parametrize("options", [{}, {"eps": 1e-3}])
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("within", [passive_within, by_host_within, whole_within])
def test_a_chain_that_ends_within_a_checkpoint_fails(within: Any, depth: int, options: Any) -> None:
    x, total = leaf(0.5, 1.0, 1.5), kl.zeros(1, requires_grad=True)
    with kl.Tape() as tape:
        twice = (lambda x: kl.checkpoint(within, x)) if depth == 2 else within
        kernels["add"][3](kl.checkpoint(twice, x), total)
    report = kl.autograd.gradcheck_tape(tape, raise_exception=False, **options)
    assert bool(report) is (within is whole_within)
    if within is not whole_within:
        assert report.launches[0].fault == "cut" and "no gradient flows" in report.launches[0].reason


def test_a_function_of_the_host_without_gradients_is_nothing_to_check() -> None:
    x, table, total = leaf(1.0, 2.0), kl.zeros(2), kl.zeros(1, requires_grad=True)
    table.assign([3.0, 4.0])
    squared = kl.func.custom_vjp(
        lambda t: kl.array(t.numpy() ** 2, dtype=t.dtype), lambda t, bar: 2 * t.numpy() * bar.numpy()
    )
    with kl.Tape() as tape:
        kernels["add"][2](squared(table) * x, total)
    tape.backward(total)
    assert x.grad.list() == [9.0, 16.0]
    report = kl.autograd.gradcheck_tape(tape, eps=1e-3)
    assert [launch.kernel for launch in report.launches] == ["array_mul", "add"]


SETTING: dict[str, Any] = {
    "fill_": lambda x, made: x.fill_(0.5),
    "assign": lambda x, made: x.assign(np.array([0.5, 0.6, 0.7])),
    "a copy": lambda x, made: kl.copy(x, kl.array([0.5, 0.6, 0.7], dtype=float)),
    "a launch": lambda x, made: made["begun"][3](x),
    "after it was read": lambda x, made: (made["cubed"][3](x, leaf(0.0, 0.0, 0.0)), x.fill_(0.5)),
}

SET = """
def cube(v: float):
    return v * v * v

@func_grad(cube, check=False)
def adj_cube(v: float, adj_ret: float):
    adjoint[v] += {factor} * v * v * adj_ret

def begun(x: array[float]):
    x[tid()] = 0.5

def cubed(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i] * x[i]

def by_rule(x: array[float], w: array[float], y: array[float]):
    i = tid()
    y[i] = cube(x[i]) * w[i]
"""


@pytest.mark.parametrize("factor", [3.0, 2.9])
@pytest.mark.parametrize("how", SETTING)
def test_a_wrong_gradient_of_what_the_tape_itself_has_set_fails(how: str, factor: float) -> None:
    made = kl.compile(SET.format(factor=factor))
    x, w, y = leaf(1.0, 2.0, 3.0), leaf(1.0, -1.0, 2.0), leaf(0.0, 0.0, 0.0)
    with kl.Tape() as tape:
        SETTING[how](x, made)
        made["by_rule"][3](x, w, y)
    report = kl.autograd.gradcheck_tape(tape, raise_exception=False, show_summary=False)
    assert bool(report) == (factor == 3.0)
    bad = report.first_bad()
    assert factor == 3.0 or (bad is not None and bad.kernel == "by_rule")


SMALL_AND_LARGE = """
def inverse(x: array[float], y: array[float]):
    i = tid()
    y[i] = 1.0 / x[i]

def ratio(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] / x[(i + 1) % 4]

def vanished(x: array[float], y: array[float]):
    i = tid()
    y[i] = exp(-x[i])

def doubled(x: array[float]):
    i = tid()
    x[i] = 2.0 * x[i]

@func_grad(wrong_inverse, check=False)
def adj_wrong_inverse(v: float, adj_ret: float):
    adjoint[v] += -1.01 * adj_ret / (v * v)

def wrong_inverse(v: float):
    return 1.0 / v

def wrong(x: array[float], y: array[float]):
    i = tid()
    y[i] = wrong_inverse(x[i])

def orbit(x: array[float], a: array[float]):
    i = tid()
    m = x[i]
    for j in range(4):
        m = m * 0.9 + sin(m) * 0.7 * a[i]
    x[i] = m * x[i]
    a[i] *= m
"""


@pytest.mark.parametrize("size", [1e-9, 1e-12, 1e3], ids=str)
@pytest.mark.parametrize("name", ["inverse", "ratio", "vanished", "wrong"])
def test_a_tape_is_checked_where_its_inputs_are_small_or_large(name: str, size: float) -> None:
    x = kl.array(np.array([1.0, 1.7, 2.3, 0.6]) * size, dtype=float, requires_grad=True)
    y = kl.zeros(4, requires_grad=True)
    with kl.Tape() as tape:
        kl.compile(SMALL_AND_LARGE)[name][4](x, y)
    report = kl.autograd.gradcheck_tape(tape, raise_exception=False, show_summary=False)
    assert report.passed == (name != "wrong"), str(report)
    assert report.whole is not None or name == "wrong"


def test_digits_that_are_lost_where_values_explode_are_no_fault_of_the_backward_pass() -> None:
    """The leaf that the launches change is the large number that they left when the tape runs again."""
    x = kl.array(np.linspace(0.2, 1.0, 5), dtype=float, requires_grad=True)
    a = kl.array(np.linspace(0.5, 0.9, 5), dtype=float, requires_grad=True)
    orbit = kl.compile(SMALL_AND_LARGE)["orbit"]
    with kl.Tape() as tape:
        y = kl.clone(x)
        for _ in range(2):
            orbit[5](y, a)
        _loss = (y * y).sum()
    report = kl.autograd.gradcheck_tape(tape, raise_exception=False, show_summary=False)
    assert all(launch.fault != "sweep" for launch in report.launches)


def test_a_failure_at_other_values_than_the_tape_began_with_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    x, y = kl.array([2.0, 3.0], requires_grad=True), kl.zeros(2, requires_grad=True)
    kernels = kl.compile(SMALL_AND_LARGE)
    with kl.Tape() as tape:
        kernels["doubled"][2](x)
        kernels["wrong"][2](x, y)
    with pytest.raises(kl.GradientError, match="at the values that stand there now"):
        kl.autograd.gradcheck_tape(tape)
    assert "at the values that stand there now" in capsys.readouterr().out
