"""The trace of one thread: values line by line, adjoints in reverse order, and no array changed."""

from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.autodiff.inspect.thread_run import ThreadRun

KERNELS = kl.compile(
    """def spring(x: array[vec3], rest: float, energy: array[float]):
    i = tid()
    d = length(x[i] - x[i + 1]) - rest
    atomic_add(energy, 0, 0.5 * d * d)

def iterate(x: array[float], n: int):
    i = tid()
    for k in range(n):
        x[i] = x[i] * x[i] + 1.0

def choose(x: array[float], y: array2d[float]):
    i, j = tid()
    if x[i] > 1.0:
        y[i, j] = sqrt(x[i])
    else:
        y[i, j] = 2.0 * x[i]

def doubled(x: array[Any], by: float = 2.0):
    x[tid()] *= type(x[0])(by)

def count(n: array[int]):
    n[tid()] = 7

def copy_shared(a: array[float], b: array[float]):
    b[tid() + 1] = 2.0 * a[tid()]
    b[tid() + 2] = a[tid() + 1]
"""
)


HALVES = kl.compile(
    """def halve(x: array[float], y: array[float16]):
    y[tid()] = float16(x[tid()])

def weigh(y: array[float16], weight: float, z: array[float]):
    z[tid()] += weight * float(y[tid()])
"""
)


def pairs(seen: Any) -> list[tuple[str, str, Any]]:
    return [(one.name, "reads" if one.is_read else one.sign, one.value) for one in seen]


def last(run: ThreadRun, name: str) -> Any:
    return [one.value for one in run.adjoint if one.name == name][-1]


def test_every_line_shows_what_it_reads_computes_and_writes() -> None:
    x = kl.array([2.0, 3.0], dtype=float)
    run = kl.trace(KERNELS["iterate"], 1, 2, [x, 2])
    assert pairs(run.primal) == [
        *(("k", "=", 0), ("x[1]", "reads", 3.0), ("x[1]", "=", 10.0)),
        *(("k", "=", 1), ("x[1]", "reads", 10.0), ("x[1]", "=", 101.0)),
    ]
    assert [one.span.line for one in run.primal] == [8, 9, 9, 8, 9, 9]


def test_nothing_that_it_is_given_changes() -> None:
    x = kl.array([2.0, 3.0], dtype=float, requires_grad=True)
    version = x.allocation.version
    kl.trace(KERNELS["iterate"], 1, 2, [x, 2])
    assert x.list() == [2.0, 3.0]
    assert (x.allocation.version, x.allocation.adjoint) == (version, None)


def test_the_adjoint_is_that_of_a_tape() -> None:
    points = np.random.default_rng(3).normal(size=(4, 3))
    x = kl.array(points, dtype=kl.vec3, requires_grad=True)
    energy = kl.zeros(1, dtype=float, requires_grad=True)
    run = kl.trace(KERNELS["spring"], 2, 3, [x, 0.25], [energy])
    with kl.Tape() as tape:
        kl.launch(KERNELS["spring"], dim=1, inputs=[x[2:], 0.25], outputs=[energy])
    tape.backward(energy)
    gradient = x.grad.numpy()
    for i in (2, 3):
        np.testing.assert_allclose(last(run, f"x_bar[{i}]"), gradient[i], rtol=1e-5)
    uses = [(one.span.line, one.value) for one in run.adjoint if (one.name, one.sign) == ("d_bar", "+=")]
    assert [line for line, _ in uses] == [4, 4]  # 0.5 * d * d uses it twice
    assert last(run, "rest_bar[0]") == pytest.approx(-sum(share for _, share in uses))


def test_values_that_the_kernel_overwrites_come_back_on_the_way() -> None:
    x = kl.array([2.0], dtype=float)
    run = kl.trace(KERNELS["iterate"], 0, 1, [x, 2])
    reads = [one.value for one in run.adjoint if one.name == "x_bar[0]" and one.sign == "+="]
    # In both iterations, each of the two factors has its own share.
    assert reads == pytest.approx([5.0, 5.0, 2 * 5 * 2, 2 * 5 * 2])


def test_the_sweep_starts_with_the_cotangents_that_are_given() -> None:
    x, y = kl.array([4.0, 0.5], dtype=float), kl.zeros((2, 3), dtype=float)
    kernel = KERNELS["choose"]
    by_array = kl.trace(kernel, (0, 1), (2, 3), [x], [y], adjoints={y: np.full((2, 3), 8.0)})
    by_name = kl.trace(kernel, (1, 2), (2, 3), [x], [y], adjoints={"y": 8.0})
    assert last(by_array, "x_bar[0]") == pytest.approx(8 * 0.5 / 2)
    assert last(by_name, "x_bar[1]") == pytest.approx(8 * 2)
    assert ("if", "=", True) in pairs(by_array.primal)


def test_arrays_that_share_memory_share_it_in_the_copies() -> None:
    memory = kl.array([1.0, 5.0, 9.0, 9.0], dtype=float)
    run = kl.trace(KERNELS["copy_shared"], 0, 1, [memory, memory])
    assert pairs(run.primal)[-2:] == [("a[1]", "reads", 2.0), ("b[2]", "=", 2.0)]
    # The adjoint knows it too: what it adds is what a tape finds.
    with kl.Tape() as tape:
        shared = kl.array([1.0, 5.0, 9.0, 9.0], dtype=float, requires_grad=True)
        kl.launch(KERNELS["copy_shared"], dim=1, inputs=[shared, shared])
    tape.backward(grads={shared: np.ones(4)})
    bars = [one for one in run.adjoint if one.sign == "+=" and one.name.endswith("[0]")]
    assert 1.0 + sum(one.value for one in bars) == shared.grad.list()[0]


def test_a_kernel_of_any_type_and_defaults_are_those_of_a_launch() -> None:
    run = kl.trace(KERNELS["doubled"], 0, 1, [kl.array([3.0], dtype=kl.float64)])
    assert pairs(run.primal)[-1] == ("x[0]", "=", 6.0)


def test_the_text_stands_line_by_line() -> None:
    x = kl.array([2.0], dtype=float)
    shown = str(kl.trace(KERNELS["iterate"], 0, 1, [x, 1])).splitlines()
    assert shown[0] == "thread 0 of iterate, run alone on copies"
    assert any(line.split()[-3:] == ["reads", "x[0]", "2"] for line in shown)
    assert "adjoint, from the last line to the first" in shown
    assert [line.split() for line in shown[-2:]] == [["x_bar[0]", "+=", "2"]] * 2


def test_a_long_run_shows_its_ends() -> None:
    x = kl.array([0.0], dtype=float)
    shown = str(kl.trace(KERNELS["iterate"], 0, 1, [x, 100]))
    assert "150 more" in shown


def test_a_kernel_without_floats_says_that_there_is_no_adjoint() -> None:
    run = kl.trace(KERNELS["count"], 0, 1, [kl.zeros(1, dtype=int)])
    assert run.adjoint == ()
    assert "no adjoint: no parameter is a float" in str(run)


@pytest.mark.parametrize(("thread", "dim"), [(3, 3), ((0, 0), 3), (-1, 3)])
def test_a_thread_outside_of_the_grid_is_refused(thread: Any, dim: Any) -> None:
    with pytest.raises(kl.LaunchError, match="there is no thread"):
        kl.trace(KERNELS["count"], thread, dim, [kl.zeros(3, dtype=int)])


def test_a_trace_without_a_grid_says_how_to_write_one() -> None:
    with pytest.raises(kl.LaunchError, match="dim is missing") as caught:
        kl.trace(KERNELS["count"], 0, inputs=[kl.zeros(3, dtype=int)])
    assert "write dim=n.shape" in str(caught.value)


def test_cotangents_of_what_is_no_argument_are_refused() -> None:
    x = kl.ones(1, dtype=float)
    with pytest.raises(kl.LaunchError, match="`z` is not a float argument of `iterate`"):
        kl.trace(KERNELS["iterate"], 0, 1, [x, 1], adjoints={"z": 1.0})


def test_an_index_outside_is_the_error_of_the_launch() -> None:
    with pytest.raises(kl.KernelIndexError, match="index 3 is out of bounds"):
        kl.trace(KERNELS["count"], 3, 4, [kl.zeros(3, dtype=int)])


def test_of_a_matrix_trace_is_still_the_sum_of_its_diagonal() -> None:
    assert kl.trace(kl.mat22(1.0, 2.0, 3.0, 4.0)) == 5.0


RECORDED = kl.compile(
    """def power(x: array[float], y: array[float]):
    i = tid()
    s = x[i]
    for k in range(3):
        s = s * s
    y[i] = s

def square_in_place(y: array[float]):
    i = tid()
    y[i] = y[i] * y[i]

def total(y: array[float], loss: array[float]):
    atomic_add(loss, 0, 2.0 * y[tid()])

def cosine(x: array[float], by: float, y: array[float]):
    i = tid()
    y[i] = by * (1.0 - cos(x[i])) / x[i]**2
"""
)


@pytest.fixture
def recorded() -> tuple[kl.Tape, kl.array, kl.array]:
    x = kl.array([1.1, 1.2], dtype=float, requires_grad=True)
    y, loss = (kl.zeros(n, dtype=float, requires_grad=True) for n in (2, 1))
    with kl.Tape() as tape:
        kl.launch(RECORDED["power"], dim=2, inputs=[x], outputs=[y])
        kl.launch(RECORDED["square_in_place"], dim=2, inputs=[y])
        kl.launch(RECORDED["total"], dim=2, inputs=[y], outputs=[loss])
    return tape, x, loss


def test_a_record_of_a_tape_is_traced_on_the_cotangents_that_arrived_there(
    recorded: tuple[kl.Tape, kl.array, kl.array],
) -> None:
    tape, x, loss = recorded
    first, second = kl.trace(tape, 1, 1, loss=loss), kl.trace(tape, tape.launches[1], 1, loss=loss)
    assert x.grad is None or not x.grad.numpy().any()
    tape.backward(loss)
    assert last(first, "x_bar[1]") == pytest.approx(x.grad.numpy()[1], rel=1e-5)
    assert pairs(first.adjoint)[0] == ("y_bar[1]", "reads", pytest.approx(4.0 * 1.2**8, rel=1e-5))
    # What the second launch has overwritten is what it kept of it.
    assert pairs(second.primal) == [("a kept value", "reads", pytest.approx(1.2**8, rel=1e-5))]
    assert "primal, as far as the adjoint repeats it" in str(second)
    assert pairs(second.adjoint)[0] == ("y_bar[1]", "reads", 2.0)
    again = kl.trace(tape, -3, 1)  # of the last backward
    assert pairs(again.adjoint) == pairs(first.adjoint)
    assert "launch 1 of the tape, run again" in str(again)


def test_a_traced_record_gets_sums_of_halves_as_a_backward_pass_adds_them() -> None:
    """In float32: added in halves, twenty ones after 2048 are lost."""
    x, z = (kl.ones(1, dtype=float, requires_grad=True) for _ in range(2))
    y = kl.zeros(1, dtype=kl.float16, requires_grad=True)
    with kl.Tape() as tape:
        HALVES["halve"][1](x, y)
        for weight in (*[1.0] * 20, 2048.0):
            HALVES["weigh"][1](y, weight, z)
    run, parts = kl.trace(tape, 1, loss=z), kl.contributions(tape, x, 0, z)
    tape.backward(z)
    assert last(run, "x_bar[0]") == parts.total == x.grad[0] == 2068.0


def test_a_record_that_cannot_be_traced_is_refused(recorded: tuple[kl.Tape, kl.array, kl.array]) -> None:
    tape, _, loss = recorded
    with pytest.raises(kl.TapeError, match="say what the gradient is of"):
        kl.trace(tape, 1)
    for number in (0, 7, -4):
        with pytest.raises(kl.TapeError, match=f"record {number} of this tape is not a launch") as caught:
            kl.trace(tape, number, loss=loss)
        assert "count from 1, as in the view of the tape; its launches are 1, 2, 3" in str(caught.value)
    with pytest.raises(TypeError, match="a tape is traced by one of its launches"):
        kl.trace(tape)


def test_lines_and_iterations_are_chosen(recorded: tuple[kl.Tape, kl.array, kl.array]) -> None:
    tape, x, loss = recorded
    given: Any = {"dim": 2, "inputs": [x], "outputs": [kl.zeros(2, dtype=float)]}
    of_line = kl.trace(RECORDED["power"], 0, **given, where=5)
    assert pairs(of_line.primal) == [("s", "=", pytest.approx(1.1**n, rel=1e-5)) for n in (2, 4, 8)]
    for place in ({"k": 1}, {"iteration": 1}, {"k": range(1, 2), "line": range(4, 6)}):
        run = kl.trace(RECORDED["power"], 0, **given, where=place)
        assert pairs(run.primal) == [("k", "=", 1), ("s", "=", pytest.approx(1.1**4, rel=1e-5))]
        assert [one.span.line for one in run.adjoint] == [5, 5]
    assert pairs(kl.trace(tape, 1, loss=loss, where={"line": 5, "k": 2}).primal) == pairs(of_line.primal)[2:]
    with pytest.raises(kl.KernelValueError, match="where='5' is not a place of a kernel"):
        kl.trace(RECORDED["power"], 0, **given, where="5")
    with pytest.raises(kl.KernelValueError, match="names j, which is no loop of `power`") as caught:
        kl.trace(RECORDED["power"], 0, **given, where={"line": 5, "j": 3})
    assert "its loops run over k" in str(caught.value)
    with pytest.raises(kl.KernelValueError, match="names j, which is no loop of `power`"):
        kl.trace(tape, 1, loss=loss, where={"j": 3})


def test_each_subexpression_stands_beside_its_value_in_float64() -> None:
    x, y = kl.array([1e-3], dtype=float), kl.zeros(1, dtype=float)
    run = kl.trace(RECORDED["cosine"], 0, 1, [x, 2.0, y], compare="float64", expressions=True)
    seen = {one.name: one for one in run.primal}
    assert seen["cos(x[i])"].left == pytest.approx(7.2, abs=0.1)
    lost = seen["1.0 - cos(x[i])"]
    assert (lost.wide, lost.left) == (pytest.approx(5e-7, rel=1e-4), pytest.approx(1.3, abs=0.1))
    assert seen["y[0]"].wide == pytest.approx(1.0, rel=1e-4)
    assert {one.name: one.left for one in run.adjoint}["by_bar[0]"] == pytest.approx(1.3, abs=0.1)
    shown = str(run).splitlines()
    header = next(line for line in shown if "digits" in line)
    row = next(line for line in shown if "  1.0 - cos(x[i]) =" in line)
    assert header.split()[-3:] == ["in", "float64", "digits"]
    assert row.split()[-3:] == ["4.76837e-07", "5e-07", "1.3"]
    gap = kl.compile("def gap(x: float):\n    return sqrt(x + 1.0) - sqrt(x)\n")["gap"]
    names = [one.name for one in kl.trace(gap, 1e6, compare="float64", expressions=True).primal]
    assert names == ["x", "x + 1.0", "sqrt(x + 1.0)", "sqrt(x)", "sqrt(x + 1.0) - sqrt(x)", "result[0]"]
    with pytest.raises(kl.KernelValueError, match="compare='float16' is not a precision"):
        kl.trace(RECORDED["cosine"], 0, 1, [x, 2.0, y], compare="float16")


def test_the_gradient_of_a_number_is_shown_once_at_its_parameter() -> None:
    text = "def product(x: float, y: float):\n    t = x * y\n    return t + sin(x)\n"
    product = kl.compile(text)["product"]
    run = kl.trace(product, 2.0, 3.0)
    assert [one.name for one in run.adjoint if one.span.line == 1] == ["x_bar[0]", "y_bar[0]"]
    assert [one.name for one in run.adjoint if one.span.line == 2] == ["x_bar", "y_bar"]


def test_a_record_is_compared_with_float64_on_the_cotangents_that_arrived() -> None:
    x, y = kl.array([1e-3, 0.5], dtype=float, requires_grad=True), kl.zeros(2, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(RECORDED["cosine"], 2, [x, 2.0], [y])
        kl.launch(RECORDED["square_in_place"], 2, [], [y])
    tape.backward(grads={y: kl.ones(2)})
    gradient = x.grad.numpy().copy()
    run = kl.trace(tape, 1, 0, compare="float64", expressions=True)
    (value,) = (one for one in run.primal if one.name == "y[0]")
    assert value.wide == pytest.approx(1.0, rel=1e-6) and value.left < 2.0
    (cosine,) = (one for one in run.primal if one.name == "1.0 - cos(x[i])")
    assert cosine.wide == pytest.approx(5e-7, rel=1e-6) and cosine.left < 2.0
    assert all(one.left is not None for one in run.primal)
    bars = [one for one in run.adjoint if one.name == "y_bar[0]" and one.is_read]
    assert bars[0].value == pytest.approx(bars[0].wide) == pytest.approx(2 * 0.953674, rel=1e-5)
    np.testing.assert_array_equal(x.grad.numpy(), gradient)
    with pytest.raises(kl.TapeError, match="`square_in_place` overwrites what it reads, and kept that"):
        kl.trace(tape, 2, 0, compare="float64")
    with pytest.raises(kl.KernelValueError, match="compare='float16' is not a precision"):
        kl.trace(tape, 1, 0, compare="float16")  # type: ignore[call-arg]


def test_the_result_of_a_function_gets_its_cotangent_at_the_return() -> None:
    text = "def f(x: float, guess: float):\n    b = x * x + guess\n    return b\n"
    run = kl.trace(kl.compile(text)["f"], 2.0, 1.0)
    told = [(one.span.line, one.name) for one in run.adjoint if one.sign == "+="]
    assert told == [
        (3, "b_bar"),
        (2, "guess_bar"),
        (2, "x_bar"),
        (2, "x_bar"),
        (1, "x_bar[0]"),
        (1, "guess_bar[0]"),
    ]


def test_a_traced_record_says_which_of_its_values_are_lost() -> None:
    x, y = kl.array([0.5], dtype=float, requires_grad=True), kl.zeros(1, requires_grad=True)
    with kl.Tape(overwrite="warn") as tape:
        kl.launch(RECORDED["power"], 1, [x], [y])
        with pytest.warns(kl.KernelWarning, match="`x` is overwritten"):
            x.fill_(3.0)
    assert "`x` was overwritten at test_threadrun.py, line" in str(
        kl.trace(tape, 1, 0, grads={y: kl.ones(1)})
    )
