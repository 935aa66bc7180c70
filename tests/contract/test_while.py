"""Overwrites by `while` loops: what a loop counts tells what it touches, and no more is saved."""

import warnings
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from tests.contract.agree import gradients_are_right

ROWS, N = 6, 3

TEXT = """
def counted(traj: array2d[float64], steps: int):
    i = tid()
    t = int(0)
    while t < steps:
        traj[t + 1, i] = sin(traj[t, i]) + 0.5 * traj[t, i]
        t += 1

def left_at_the_end(traj: array2d[float64], steps: int):
    i = tid()
    t = int(0)
    while True:
        traj[t + 1, i] = sin(traj[t, i]) + 0.5 * traj[t, i]
        t += 1
        if t >= steps:
            break

def left_early(traj: array2d[float64], steps: int):
    i = tid()
    t = int(0)
    while t < steps and traj[t, i] < 9.0:
        if traj[t, i] > 0.6:
            traj[t + 1, i] = 0.5 * traj[t, i]
            t += 1
            continue
        traj[t + 1, i] = sin(traj[t, i]) + 0.5 * traj[t, i]
        t += 1

def downwards(traj: array2d[float64], steps: int):
    i = tid()
    t = steps
    while t > 0:
        traj[t - 1, i] = sin(traj[t, i]) + 0.5 * traj[t, i]
        t -= 1

def in_rounds(traj: array2d[float64], steps: int):
    i = tid()
    t = int(0)
    while t < steps:
        v = traj[t, i]
        r = int(0)
        while r < 2:
            v = sin(v) + 0.5 * v
            r += 1
        traj[t + 1, i] = v
        t += 1

def rows_up_to(x: array2d[float64], y: array[float64], rows: int):
    i = tid()
    t = int(0)
    while t < rows:
        y[i] += x[t, i] * x[t, i]
        t += 1

def fill_row(x: array2d[float64], row: int):
    x[row, tid()] = 2.0

def total(x: array[float64], loss: array[float64]):
    loss[0] += x[tid()] * x[tid()]

def one_of_two(x: array[float64], choice: array[float64], n: int):
    i = tid()
    a = i + 1 if choice[0] > 0.0 else i
    b = i + 1 if choice[1] > 0.0 else i
    if a < n:
        x[b] = 5.0

def squares(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = x[i] * x[i]
"""

kernels = kl.compile(TEXT)
START = np.array([0.3, 0.9, -0.5])


def run(name: str, threads: int, *arguments: Any) -> None:
    kernels[name][threads](*arguments)


@pytest.mark.parametrize("name", ["counted", "left_at_the_end", "left_early", "downwards", "in_rounds"])
def test_a_trajectory_written_by_a_while_loop_keeps_nothing_and_is_right(name: str) -> None:
    first, last = (ROWS - 1, 0) if name == "downwards" else (0, ROWS - 1)

    def loss_at(start: np.ndarray[Any, Any]) -> tuple[kl.Tape, Any, Any]:
        x = kl.array(start, dtype=kl.float64, requires_grad=True)
        traj = kl.zeros((ROWS, N), kl.float64, requires_grad=True)
        loss = kl.zeros(1, kl.float64, requires_grad=True)
        with kl.Tape(overwrite="error") as tape:
            kl.copy(traj[first], x)
            run(name, N, traj, ROWS - 1)
            run("total", N, traj[last], loss)
        return tape, x, loss

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tape, x, loss = loss_at(START)
        tape.backward(loss)
    assert tape.saved_bytes == 0
    assert not any(record.residuals for record in tape.launches)
    for i in range(N):
        step = 1e-6 * np.eye(N)[i]
        ends = [loss_at(START + sign * step)[2].item() for sign in (1, -1)]
        assert x.grad.numpy()[i] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("row", "kept"), [(3, 0), (2, N), (0, N)])
def test_what_a_while_loop_has_read_is_kept_before_it_is_overwritten_and_nothing_else(
    row: int, kept: int
) -> None:
    start = np.linspace(0.1, 1.2, ROWS * N).reshape(ROWS, N)
    x = kl.array(start, dtype=kl.float64, requires_grad=True)
    y = kl.zeros(N, kl.float64, requires_grad=True)
    with kl.Tape() as tape:
        run("rows_up_to", N, x, y, 3)
        run("fill_row", N, x, row)
    tape.backward(grads={y: np.ones(N)})
    assert tape.saved_bytes == 8 * kept
    expected = np.where(np.arange(ROWS)[:, None] < 3, 2.0 * start, 0.0)
    np.testing.assert_allclose(x.grad.numpy(), expected)


def test_an_index_is_not_taken_for_another_that_was_chosen_between_the_same_two() -> None:
    x = kl.array([0.5, 1.5, -2.0, 3.0], dtype=kl.float64, requires_grad=True)
    y, choice = kl.zeros(4, kl.float64, requires_grad=True), kl.array([-1.0, 1.0], dtype=kl.float64)
    with kl.Tape() as tape:
        run("squares", 4, x, y)
        run("one_of_two", 3, x, choice, 3)  # writes x[3], though a < 3
    tape.backward(grads={y: np.ones(4)})
    np.testing.assert_allclose(x.grad.numpy(), [1.0, 3.0, -4.0, 6.0])


def test_loops_that_count_in_every_way_agree_with_differences() -> None:
    text = """
def k(x: array[float64], n: array[int], y: array[float64]):
    i = tid()
    t = int(0)
    s = 0.0
    while t < n[i]:
        u = t
        while u >= 0:
            if x[u] > 1.0:
                u -= 2
                continue
            s += x[u] * x[t] * float64(u + 1)
            if s > 40.0:
                break
            if u == 3:
                u -= 2
            else:
                u -= 1
                u -= 1
        t += 1
        y[t] += s * s
    y[t] = y[t] * s + float64(t)
"""
    gradients_are_right(text, 3, x=[0.7, -0.4, 1.3, 0.2, -0.9], n=[0, 5, 3], y=[0.1] * 6)
