"""`tape.measure()`, `norms()` and `profile()`: on copies, in loops too, and what is worth a word."""

from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.views.tape.answers import answer
from kernelab.views.tape.digest import Digest

kernels: dict[str, Any] = kl.compile("""
def deep(x: array[float], factor: float, y: array[float]):
    i = tid()
    s = x[i]
    for k in range(40):
        s = factor * tanh(s)
    y[i] = s

def root(x: array[float], y: array[float]):
    i = tid()
    y[i] = sqrt(x[i])

def total(y: array[float], loss: array[float]):
    atomic_add(loss, 0, y[tid()])

def grows(x: array[float]):
    i = tid()
    x[i] = 2.0 * x[i]
""")


def recorded(name: str, values: list[float], *more: float) -> tuple[kl.Tape, kl.array, kl.array]:
    x = kl.array(values, dtype=float, requires_grad=True)
    y, loss = kl.zeros(len(values), requires_grad=True), kl.zeros(1, requires_grad=True)
    with kl.Tape() as tape:
        kernels[name][len(values)](x, *more, y)
        kernels["total"][len(values)](y, loss)
    return tape, x, loss


def test_measuring_changes_no_gradient_and_needs_no_backward() -> None:
    tape, x, loss = recorded("root", [1.0, 4.0])
    norms = tape.measure(loss)
    assert x.grad.numpy().tolist() == [0, 0]
    assert [(step.record, step.iteration) for step in norms.steps] == [(2, None), (1, None)]
    np.testing.assert_allclose([step.norm for step in norms.steps], [2**0.5, np.hypot(0.5, 0.25)], rtol=1e-6)
    tape.backward(loss)
    assert x.grad.numpy().tolist() == [0.5, 0.25]
    assert tape.norms() is norms


def test_steps_are_counted_from_one_and_columns_without_entries_are_left_out() -> None:
    tape, _, loss = recorded("root", [1.0, 4.0])
    text, page = str(tape.measure(loss)), tape.norms()._repr_mimebundle_()["text/html"]
    assert text.splitlines()[-4].split() == ["step", "record", "norm", "where"]
    assert [label.split(">")[1] for label in page.split("</text>")[:-1]][-2:] == ["1", "2"]


def test_without_a_loss_what_is_computed_last_is_measured() -> None:
    tape, _, loss = recorded("root", [1.0, 4.0])
    assert [step.norm for step in tape.measure().steps] == [step.norm for step in tape.measure(loss).steps]
    with pytest.raises(kl.TapeError, match="computed nothing"):
        kl.Tape().measure()


def test_each_iteration_of_a_loop_has_its_size() -> None:
    tape, x, loss = recorded("deep", [0.3, 0.5], 0.9)
    *steps, whole = tape.measure(loss).steps[1:]
    assert [step.iteration for step in steps] == list(range(39, -1, -1))
    assert {step.line.line for step in steps if step.line} == {5}
    tape.backward(loss)
    for step in (steps[-1], whole):
        assert step.norm == pytest.approx(float(np.linalg.norm(x.grad.numpy())), rel=1e-5)


def test_iterations_of_a_loop_inside_belong_to_the_one_around_them() -> None:
    text = "def k(x: array[float], y: array[float]):\n    s = x[0]\n    for j in range(2):\n"
    text += "        for k in range(3):\n            s = s * 2.0\n    y[0] = s\n"
    x, y = kl.array([1.0], dtype=float, requires_grad=True), kl.zeros(1, requires_grad=True)
    with kl.Tape() as tape:
        kl.compile(text)["k"][1](x, y)
    assert [(step.iteration, step.norm) for step in tape.measure(y).steps] == [
        (1, 8.0),
        (0, 64.0),
        (None, 64.0),
    ]


LOOPS = {
    "while s < 100.0": "    while s < 100.0:\n        s = s * s",
    "break at the top": "    for k in range(9):\n        if s > 100.0:\n            break\n        s = s * s",
    "break at the end": "    while True:\n        s = s * s\n        if s > 100.0:\n            break",
    "no test": "    for k in range(3):\n        s = s * s",
}


@pytest.mark.parametrize("loop", LOOPS)
def test_the_test_that_ends_a_loop_is_no_iteration(loop: str) -> None:
    text = f"def k(x: array[float], y: array[float]):\n    s = x[0]\n{LOOPS[loop]}\n    y[0] = s\n"
    x, y = kl.array([2.0], dtype=float, requires_grad=True), kl.zeros(1, requires_grad=True)
    with kl.Tape() as tape:
        kl.compile(text)["k"][1](x, y)
    *steps, _ = tape.measure(y).steps
    assert [(step.iteration, step.norm) for step in steps] == [(2, 32.0), (1, 256.0), (0, 1024.0)]


@pytest.mark.parametrize(("factor", "trend"), [(0.5, "vanishes"), (3.0, "explodes")])
def test_what_vanishes_or_explodes_is_named_at_record_line_and_iteration(factor: float, trend: str) -> None:
    values = [0.3] if trend == "vanishes" else [0.0]  # at 0 every factor counts in full
    tape, _, loss = recorded("deep", values, factor)
    text = str(tape.measure(loss))
    assert f"the gradient {trend} in record 1, the launch of `deep`, iteration" in text
    assert "for k in range(40):" in text


def test_what_is_not_finite_is_named_at_its_line() -> None:
    tape, _, loss = recorded("root", [0.0, 1.0])
    norms = tape.measure(loss)
    assert norms.steps[-1].trend == "not finite"
    assert "is not finite in record 1, the launch of `root` (<text>, line 11: y[i] = sqrt(x[i]))" in str(
        norms
    )


def test_a_zero_is_named() -> None:
    tape, _, loss = recorded("deep", [0.3], 0.0)
    assert "the gradient is zero in record 1" in str(tape.measure(loss))


def test_a_shown_tape_gets_the_steps_and_the_button_asks_for_them() -> None:
    tape, x, _ = recorded("deep", [0.3, 0.5], 0.9)
    digest = Digest(tape, lambda memories: {})
    digest.look()
    assert not digest.parts["sweep"]
    answer(digest, {"ask": "measure"})
    digest.look()
    sweep = digest.parts["sweep"]
    assert len(sweep) == 42
    assert sweep[1][1][0][0] == -1 and sweep[1][2].endswith("line 5, iteration 39")
    assert len(sweep[0]) == 2
    assert x.grad.numpy().tolist() == [0, 0]


def test_the_profile_has_each_kernel_and_leaves_arrays_as_they_are() -> None:
    x = kl.array([1.0, 2.0], dtype=float, requires_grad=True)
    loss = kl.zeros(1, requires_grad=True)
    with kl.Tape() as tape:
        for _ in range(3):
            kernels["grows"][2](x)
        kernels["total"][2](x, loss)
    profile = tape.profile(loss)
    rows = {one.name: one for one in profile.kernels}
    assert (rows["grows"].launches, rows["total"].launches) == (3, 1)
    assert rows["grows"].nbytes == 3 * 2 * 8 and rows["grows"].backward is not None
    assert all(one.forward > 0 and one.rate > 0 for one in profile.kernels)
    spent = [one.forward + (one.backward or 0.0) for one in profile.kernels]
    assert spent == sorted(spent, reverse=True)
    assert x.numpy().tolist() == [8, 16] and loss.numpy().tolist() == [24]
    assert x.grad.numpy().tolist() == [0, 0]
    assert "GB/s" in str(profile) and "grows" in str(profile)
    assert "not timed" not in str(profile)


def test_the_profile_says_how_many_records_are_not_timed() -> None:
    x, loss = kl.array([1.0, 2.0], dtype=float, requires_grad=True), kl.zeros(1, requires_grad=True)
    with kl.Tape() as tape:
        kernels["total"][2](kl.checkpoint(lambda x: x * x, x), loss)
    told = str(tape.profile(loss)).splitlines()[0]
    assert told.endswith("; not timed: 1 record of checkpoints, copies or functions")
