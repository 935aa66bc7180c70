"""`backward(check_finite=True)`: the launch, the thread and the line where a value turned NaN or infinite."""

import warnings
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.lang.verify import verify
from kernelab.passes.common.scalarise import scalarise
from kernelab.passes.common.shadow_values import poison
from tests.support.leaves import leaf, result

TEXT = """
def logs(x: array[float], y: array[float]):
    i = tid()
    safe = where(x[i] > 0.0, log(x[i]), 0.0)
    t = log(x[i] + 1.0)
    y[i] = t * 2.0 + safe

def roots(x: array[float], y: array[float]):
    i = tid()
    d = x[i] - 1.0
    y[i] = sqrt(d) + 3.0

def total(x: array[float], l: array[float]):
    atomic_add(l, 0, x[tid()])

def scaled(x: array[float], a: float, y: array[float]):
    i = tid()
    y[i] = a * x[i]

def directions(v: array[vec3], out: array[vec3]):
    i, j = tid()
    d = v[i]
    s = float(0.0)
    for k in range(3):
        s += d[k] * d[k]
    out[i] = d / sqrt(s)

def lengths(v: array[vec3], l: array[float]):
    atomic_add(l, 0, dot(v[tid()], vec3(1.0, 1.0, 1.0)))

def growing(x: array[float], n: int, y: array[float]):
    i = tid()
    kept = zeros(2, dtype=float)
    kept[0] = x[i]
    k = int(0)
    while k < n:
        kept[1] = kept[0] * kept[0]
        kept[0] = kept[1]
        k += 1
    y[i] = kept[0]

def in_place(x: array[float]):
    i = tid()
    x[i] = x[i] / (x[i] - 2.0)

def doubled(x: array[float]):
    x[tid()] *= 2.0

def rows(x: array2d[float], t: int):
    i = tid()
    x[t + 1, i] = sqrt(x[t, i] - 2.0)

def extremes(x: array[float], y: array[float]):
    i = tid()
    best = INFINITE
    for k in range(3):
        best = min(best, x[k])
    y[i] = best + x[i]

class Particle:
    pos: float
    vel: float
    mass: float

def pull(p: array[Particle], f: array[float]):
    i = tid()
    f[i] = p[i].mass / (p[i].pos - 1.0)

def move(p: array[Particle], f: array[float]):
    i = tid()
    p[i].vel += f[i]
    p[i].pos += p[i].vel
"""

INFINITE = float("inf")
kernels: dict[str, Any] = kl.compile(TEXT)
total = kernels["total"]


def refusal(tape: kl.Tape, loss: kl.array) -> str:
    with pytest.raises(kl.NotFiniteError) as caught:
        tape.backward(loss, check_finite=True)
    return str(caught.value)


def through(name: str, x: kl.array, *more: Any) -> tuple[kl.Tape, kl.array]:
    y, loss = result(x.size), result()
    with kl.Tape() as tape:
        kernels[name][x.size](x, *more, y)
        total[x.size](y, loss)
    return tape, loss


@pytest.mark.parametrize("name", [name for name, kernel in kernels.items() if isinstance(kernel, kl.Kernel)])
def test_poisoned_programs_are_well_formed(name: str) -> None:
    kernel = kernels[name]
    names = [param.hint for param in kernel.primal.params if str(param.type).startswith("array")]
    names = [name for name in names if "int" not in str(kernel.primal.param(name).type)]
    for program in (kernel.primal, kernel.vjp(names).adjoint):
        verify(poison(scalarise(program)).function)


def test_the_line_and_the_thread_where_a_value_turns_are_named() -> None:
    text = refusal(*through("logs", leaf(1, 2, -3, -4)))
    assert "a value turns nan here, in thread 2 of the launch of `logs`" in text
    assert "t = log(x[i] + 1.0)" in text
    assert "kernels[name][x.size](x, *more, y)" in text


def test_what_a_selection_leaves_out_is_not_blamed() -> None:
    x = leaf(1, 0, -0.5)
    tape, loss = through("logs", x)
    tape.backward(loss, check_finite=True)
    assert x.grad is not None and np.isfinite(x.grad.numpy()).all()


def test_infinity_as_a_start_of_a_minimum_is_not_blamed() -> None:
    tape, loss = through("extremes", leaf(3, 1, 2))
    tape.backward(loss, check_finite=True)


def test_an_input_that_is_not_finite_is_named_as_input() -> None:
    x = leaf(1, 2, np.inf, 3)
    text = refusal(*through("logs", x))
    assert "`x` is inf at [2] when the launch of `logs` reads it, in thread 2; it is an input" in text


def test_values_from_the_host_are_named_with_their_line() -> None:
    x, y, loss = leaf(1, 2), result(2), result()
    with kl.Tape() as tape:
        x.assign([1.0, np.nan])
        kernels["logs"][2](x, y)
        total[2](y, loss)
    text = refusal(tape, loss)
    assert "it is set by `assign`" in text and "x.assign([1.0, np.nan])" in text


def test_a_number_passed_that_is_not_finite_is_named() -> None:
    assert "the argument `a` of the launch of `scaled` is nan" in refusal(
        *through("scaled", leaf(1, 2), float("nan"))
    )


def test_a_vector_that_turns_is_found_through_loops_and_two_thread_indices() -> None:
    v = kl.array([[1, 0, 0], [0, 0, 0]], dtype=kl.vec3, requires_grad=True)
    out, loss = kl.zeros(2, dtype=kl.vec3, requires_grad=True), result()
    with kl.Tape() as tape:
        kernels["directions"][2, 1](v, out)
        kernels["lengths"][2](out, loss)
    text = refusal(tape, loss)
    assert "a value turns nan here, in thread (1, 0)" in text and "out[i] = d / sqrt(s)" in text


def test_a_value_that_overflows_in_a_while_loop_and_a_local_array_is_found() -> None:
    text = refusal(*through("growing", leaf(0.5, 10), 8))
    assert "a value turns inf here, in thread 1" in text and "kept[1] = kept[0] * kept[0]" in text


def test_a_sum_that_overflows_is_blamed_on_the_addition() -> None:
    text = refusal(*through("scaled", leaf(3e38, 3e38), 1.0))
    assert "a value turns inf here, in thread 1 of the launch of `total`" in text


def test_an_infinite_slope_is_found_in_the_adjoint() -> None:
    x = leaf(2, 1, 5)
    tape, loss = through("roots", x)
    text = refusal(tape, loss)
    assert "the gradient of `x` turns inf at [1]: it begins at this line" in text
    assert "the adjoint of the launch of `roots` computes inf in thread 1" in text
    assert "y[i] = sqrt(d) + 3.0" in text


def test_a_cotangent_that_is_not_finite_is_named() -> None:
    x = leaf(1, 2)
    tape, _ = through("logs", x)
    y = tape.launches[0].named["y"]
    with pytest.raises(kl.NotFiniteError, match=r"the cotangent of `y` is nan at \[1\]"):
        tape.backward(grads={y: [1.0, np.nan]}, check_finite=True)


def test_the_line_and_the_thread_are_named_where_an_array_changes_in_place() -> None:
    x, loss = leaf(1, 2), result()
    with kl.Tape() as tape:
        kernels["in_place"][2](x)
        kernels["in_place"][2](x)
        total[2](x, loss)
    text = refusal(tape, loss)
    assert "a value turns inf here, in thread 1 of the launch of `in_place`" in text
    assert "x[i] = x[i] / (x[i] - 2.0)" in text


def test_so_they_are_where_a_kernel_reads_and_writes_one_array_under_two_names() -> None:
    x, loss = leaf(5, -2), result()
    with kl.Tape() as tape:
        kernels["roots"][2](x, x)
        total[2](x, loss)
    before = x.numpy().copy()
    text = refusal(tape, loss)
    np.testing.assert_array_equal(x.numpy(), before)
    assert "a value turns nan here, in thread 1 of the launch of `roots`" in text
    assert "y[i] = sqrt(d) + 3.0" in text


def test_an_array_changed_in_place_that_was_not_finite_before_is_named_as_input() -> None:
    x, loss = leaf(1, np.nan), result()
    with kl.Tape() as tape:
        kernels["in_place"][2](x)
        total[2](x, loss)
    text = refusal(tape, loss)
    assert "`x` is nan when the launch of `in_place` reads it, in thread 1; it is an input" in text


def test_the_rows_of_one_array_are_read_again_where_they_stand() -> None:
    rows, loss = kl.array([[5.0, 1.5], [0.0, 0.0]], dtype=float, requires_grad=True), result()
    with kl.Tape() as tape:
        kernels["rows"][2](rows, 0)
        total[2](rows[1], loss)
    text = refusal(tape, loss)
    assert "a value turns nan here, in thread 1 of the launch of `rows`" in text


def test_an_array_changed_in_place_is_named_though_its_line_is_lost() -> None:
    x, loss = leaf(1, 2e38), result()
    with kl.Tape() as tape:
        kernels["doubled"][2](x)
        total[2](x, loss)
    text = refusal(tape, loss)
    assert "the launch of `doubled` leaves `x` inf at [1]" in text
    assert "what it read is overwritten by now" in text


def test_a_line_is_known_though_other_fields_of_the_structs_that_it_reads_have_changed() -> None:
    particles = kl.zeros(2, dtype=kernels["Particle"], requires_grad=True)
    particles["pos"].assign([0.0, 1.0])
    particles["mass"].fill_(1.0)
    f, loss = result(2), result()
    with kl.Tape() as tape:
        kernels["pull"][2](particles, f)
        kernels["move"][2](particles, f)
        total[2](particles["pos"], loss)
    text = refusal(tape, loss)
    assert "a value turns inf here, in thread 1 of the launch of `pull`" in text
    assert "f[i] = p[i].mass / (p[i].pos - 1.0)" in text


def test_a_gradient_that_is_not_finite_since_an_earlier_pass_is_named() -> None:
    x = leaf(2, 1)
    tape, loss = through("roots", x)
    tape.backward(loss)
    x.assign([2.0, 3.0])
    again, loss = through("roots", x)
    text = refusal(again, loss)
    assert "the gradient of `x` is inf at [1] since an earlier backward pass, and this one would add" in text
    assert "hint: clear it first: tape.zero(), or x.grad.zero_()" in text
    again.zero()
    again.backward(loss, check_finite=True)
    assert x.grad is not None and np.isfinite(x.grad.numpy()).all()


def test_nothing_changes_when_everything_is_finite() -> None:
    x = leaf(1, 2)
    tape, loss = through("logs", x)
    tape.backward(loss)
    assert x.grad is not None
    plain = x.grad.list()
    tape.zero()
    tape.backward(loss, check_finite=True)
    assert x.grad.list() == plain


def test_a_failed_check_leaves_primal_data_and_the_gradients_of_leaves() -> None:
    x = leaf(2, 1, 5)
    tape, loss = through("roots", x)
    before = x.numpy().copy()
    refusal(tape, loss)
    assert (x.numpy() == before).all() and loss.item() > 0
    assert x.grad is not None and x.grad.list() == [0, 0, 0]


NOT_FINITE = [
    [1.0, np.inf, 2.0],
    [np.inf] * 3,
    [1.0, np.nan, 2.0],
    [-np.inf, 1e308, 0.0],
    [1e308, 1e308, -1e308],
]


@pytest.mark.parametrize("values", NOT_FINITE)
@pytest.mark.parametrize("name", ["squares", "reciprocals", "added"])
def test_numpy_does_not_warn_of_checks_of_what_is_infinite(name: str, values: list[float]) -> None:
    kernel = EXTREME[name]

    def function(x: kl.array) -> kl.array:
        y = kl.zeros(3, dtype=kl.float64)
        kernel[3](x, y)
        return y

    x = kl.array(values, dtype=kl.float64, requires_grad=True)
    y = kl.zeros(3, dtype=kl.float64, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("ignore", kl.KernelWarning)
        for fast in (True, False):
            kl.autograd.gradcheck(
                kernel, 3, [x], [y], fast=fast, raise_exception=False, show_summary=False
            )._repr_mimebundle_()
        kl.autograd.gradcheck(function, inputs=[x], raise_exception=False, show_summary=False)
        for report in (
            kl.autograd.taylor_test(kernel, 3, [x], [y], show_summary=False),
            kl.autograd.taylor_test(function, inputs=[x], show_summary=False),
        ):
            report._repr_mimebundle_()
        str(kl.autograd.jacobian_fd(function, inputs=[x]))
        with kl.Tape() as tape:
            kernel[3](x, y)
        kl.autograd.gradcheck_tape(tape, raise_exception=False, show_summary=False)
        tape.backward(grads={y: kl.ones_like(y)}, check_finite=False)
        str(kl.contributions(tape, x, 0, grads={y: kl.ones_like(y)}))


def test_numpy_warns_of_the_users_own_numbers_in_a_check() -> None:
    def function(x: kl.array) -> kl.array:
        return x * float(np.exp(np.float64(1e4)) > 2.0)

    with pytest.warns(RuntimeWarning, match="overflow"):
        kl.autograd.gradcheck(
            function, inputs=[kl.ones(2, requires_grad=True)], raise_exception=False, show_summary=False
        )


EXTREME = kl.compile("""
def squares(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = x[i] * x[i]

def reciprocals(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = 1.0 / x[i]

def added(x: array[float64], y: array[float64]):
    y[0] += x[tid()]
""")
