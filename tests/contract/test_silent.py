"""Harmless programs: a tape saves nothing for them, warns of nothing, and raises nothing.

A false alarm is a failure.  Every program is run with each policy; its gradient is checked against central
differences of the same program.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl

TEXT = """
def square(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = x[i] * x[i]

def double(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = 2.0 * x[i]

def add(x: array[float64], y: array[float64]):
    i = tid()
    y[i] += x[i]

def total(x: array[float64], loss: array[float64]):
    atomic_add(loss, 0, x[tid()] * x[tid()])

def total_of_row(x: array2d[float64], row: int, loss: array[float64]):
    i = tid()
    atomic_add(loss, 0, x[row, i] * x[row, i])

def next_row(traj: array2d[float64], t: int):
    i = tid()
    traj[t + 1, i] = sin(traj[t, i]) + 0.5 * traj[t, i]

def next_row_of_neighbours(traj: array2d[float64], t: int):
    i = tid()
    n = traj.shape[1]
    if i > 0 and i < n - 1:
        traj[t + 1, i] = traj[t, i - 1] * traj[t, i + 1]
    else:
        traj[t + 1, i] = traj[t, i]

def verlet(traj: array2d[float64], t: int):
    i = tid()
    if t > 0:
        traj[t + 1, i] = 2.0 * traj[t, i] - traj[t - 1, i] - 0.01 * sin(traj[t, i])
    else:
        traj[t + 1, i] = traj[t, i] - 0.005 * sin(traj[t, i])

def all_rows(traj: array2d[float64], steps: int):
    i = tid()
    for t in range(steps):
        traj[t + 1, i] = sin(traj[t, i]) + 0.5 * traj[t, i]

def all_rows_backwards(traj: array2d[float64], steps: int):
    i = tid()
    for k in range(steps):
        t = steps - k
        traj[t - 1, i] = sin(traj[t, i])

def next_flat(traj: array[float64], t: int, n: int):
    i = tid()
    traj[(t + 1) * n + i] = sin(traj[t * n + i])

def from_to(traj: array2d[float64], source: int, target: int):
    i = tid()
    traj[target, i] = sin(traj[source, i])

def relax(x: array[float64], colour: int):
    i = tid()
    x[2 * i + colour] = 0.5 * x[2 * i + 1 - colour] * x[2 * i + 1 - colour]

def even_from_odd(x: array[float64]):
    i = tid()
    x[2 * i] = x[2 * i + 1] * x[2 * i + 1]

def upper_from_lower(x: array[float64], half: int):
    i = tid()
    x[half + i] = x[i] * x[i]

def below_the_first(x: array2d[float64]):
    i, j = tid()
    if i > 0:
        x[i, j] = x[0, j] * x[0, j]

def scale(x: array[float64], factor: array[float64], y: array[float64]):
    i = tid()
    y[i] = x[i] * factor[0]

def gather(x: array[float64], index: array[int], y: array[float64]):
    i = tid()
    y[i] = x[index[i]] * x[index[i]]

def fill_index(index: array[int], k: int):
    i = tid()
    index[i] = (i + k) % index.shape[0]

class Body:
    position: float64
    speed: float64

def drift(bodies: array[Body], y: array[float64]):
    i = tid()
    y[i] = bodies[i].position * bodies[i].position

def kick(bodies: array[Body], impulse: float64):
    i = tid()
    bodies[i].speed = impulse
"""

kernels: dict[str, Any] = kl.compile(TEXT)
N = 6
START = np.linspace(0.3, 1.3, N)

Program = Callable[[Any, kl.Tape], Any]
PROGRAMS: dict[str, Program] = {}


def harmless(program: Program) -> Program:
    """Add a program: it computes a loss from a leaf of N elements, on a tape that it enters itself."""
    PROGRAMS[program.__name__] = program
    return program


def run(name: str, grid: Any, *arguments: Any) -> None:
    kl.launch(kernels[name], grid, list(arguments))


def result(shape: Any = N) -> Any:
    return kl.zeros(shape, dtype=kl.float64, requires_grad=True)


def loss_of(y: Any) -> Any:
    loss = result(1)
    run("total", y.size, y, loss)
    return loss


def trajectory(x: Any, rows: int) -> Any:
    """An array of rows, the first of which is x."""
    traj = result((rows, N))
    kl.copy(traj[0], x)
    return traj


# ------------------------------------------------------------------------- buffers


@harmless
def fresh_arrays(x: Any, tape: kl.Tape) -> Any:
    with tape:
        for _ in range(4):
            y = result()
            run("square", N, x, y)
            x = y
        return loss_of(x)


@harmless
def linear_ping_pong(x: Any, tape: kl.Tape) -> Any:
    with tape:
        a, b = kl.clone(x), result()
        for _ in range(5):
            run("double", N, a, b)
            a, b = b, a
        return loss_of(a)


@harmless
def work_array_of_a_linear_step(x: Any, tape: kl.Tape) -> Any:
    work, y = result(), result()
    with tape:
        for _ in range(3):
            work.zero_()
            run("add", N, x, work)
            run("add", N, work, y)
        return loss_of(y)


@harmless
def zero_before_use(x: Any, tape: kl.Tape) -> Any:
    y = kl.full(N, 7.0, dtype=kl.float64, requires_grad=True)
    with tape:
        y.zero_()
        run("add", N, x, y)
        return loss_of(y)


@harmless
def results_that_are_filled_again(x: Any, tape: kl.Tape) -> Any:
    y, other = result(), result()
    with tape:
        run("square", N, x, other)
        other.fill_(1.0)
        run("square", N, x, y)
        return loss_of(y)


@harmless
def loss_accumulation(x: Any, tape: kl.Tape) -> Any:
    loss = result(1)
    with tape:
        for _ in range(3):
            run("total", N, x, loss)
    return loss


@harmless
def accumulation_of_squares(x: Any, tape: kl.Tape) -> Any:
    with tape:
        y = result()
        run("square", N, x, y)
        for _ in range(3):
            run("add", N, x, y)
        return loss_of(y)


@harmless
def overwriting_after_backward(x: Any, tape: kl.Tape) -> Any:
    with tape:
        y = result()
        run("square", N, x, y)
        loss = loss_of(y)
    tape.backward(loss)
    tape.zero()
    return loss


@harmless
def gradients_that_are_changed(x: Any, tape: kl.Tape) -> Any:
    with tape:
        y = result()
        run("square", N, x, y)
        loss = loss_of(y)
    x.grad.fill_(3.0)
    x.grad.zero_()
    return loss


# ------------------------------------------------------------------------- trajectories


@harmless
def a_trajectory(x: Any, tape: kl.Tape) -> Any:
    with tape:
        traj = trajectory(x, 6)
        for t in range(5):
            run("next_row", N, traj, t)
        return loss_of(traj[5])


@harmless
def a_trajectory_of_neighbours(x: Any, tape: kl.Tape) -> Any:
    with tape:
        traj = trajectory(x, 6)
        for t in range(5):
            run("next_row_of_neighbours", N, traj, t)
        return loss_of(traj[5])


@harmless
def a_trajectory_of_two_steps_back(x: Any, tape: kl.Tape) -> Any:
    with tape:
        traj = trajectory(x, 6)
        for t in range(5):
            run("verlet", N, traj, t)
        return loss_of(traj[5])


@harmless
def a_trajectory_in_one_launch(x: Any, tape: kl.Tape) -> Any:
    with tape:
        traj = trajectory(x, 6)
        run("all_rows", N, traj, 5)
        return loss_of(traj[5])


@harmless
def a_trajectory_towards_the_start(x: Any, tape: kl.Tape) -> Any:
    traj = result((6, N))
    with tape:
        kl.copy(traj[5], x)
        run("all_rows_backwards", N, traj, 5)
        return loss_of(traj[0])


@harmless
def a_flat_trajectory(x: Any, tape: kl.Tape) -> Any:
    traj = result(6 * N)
    with tape:
        kl.copy(traj, x, count=N)
        for t in range(5):
            run("next_flat", N, traj, t, N)
        return loss_of(traj[5 * N :])


@harmless
def a_trajectory_by_slices(x: Any, tape: kl.Tape) -> Any:
    with tape:
        traj = trajectory(x, 6)
        for t in range(5):
            run("square", N, traj[t], traj[t + 1])
        return loss_of(traj[5])


@harmless
def a_trajectory_of_columns(x: Any, tape: kl.Tape) -> Any:
    traj = result((N, 6))
    with tape:
        kl.copy(traj.transpose()[0], x)
        for t in range(5):
            run("next_row", N, traj.transpose(), t)
        return loss_of(traj.transpose()[5])


@harmless
def rows_named_by_the_launch(x: Any, tape: kl.Tape) -> Any:
    with tape:
        traj = trajectory(x, 6)
        for source, target in ((0, 3), (3, 1), (1, 5)):
            run("from_to", N, traj, source, target)
        return loss_of(traj[5])


@harmless
def losses_along_a_trajectory(x: Any, tape: kl.Tape) -> Any:
    loss = result(1)
    with tape:
        traj = trajectory(x, 4)
        for t in range(3):
            run("next_row", N, traj, t)
            run("total_of_row", N, traj, t + 1, loss)
    return loss


# ------------------------------------------------------------------------- parts of arrays


@harmless
def disjoint_slices(x: Any, tape: kl.Tape) -> Any:
    with tape:
        y = result(2 * N)
        run("square", N, x, y[:N])
        run("square", N, y[:N], y[N:])
        return loss_of(y[N:])


@harmless
def interleaved_slices(x: Any, tape: kl.Tape) -> Any:
    with tape:
        y = result(2 * N)
        run("square", N, x, y[::2])
        run("square", N, y[::2], y[1::2])
        return loss_of(y[1::2])


@harmless
def disjoint_columns_of_a_transpose(x: Any, tape: kl.Tape) -> Any:
    with tape:
        table = result((N, 3))
        columns = table.transpose()
        run("square", N, x, columns[0])
        run("square", N, columns[0], columns[1])
        run("square", N, columns[1], columns[2])
        return loss_of(columns[2])


@harmless
def odd_elements_that_make_even_ones(x: Any, tape: kl.Tape) -> Any:
    with tape:
        y = result(2 * N)
        kl.copy(y[1::2], x)
        run("even_from_odd", N, y)
        return loss_of(y[::2])


@harmless
def one_sweep_of_each_colour(x: Any, tape: kl.Tape) -> Any:
    with tape:
        y = kl.clone(x)
        run("relax", N // 2, y, 0)
        return loss_of(y)


@harmless
def an_upper_half_from_the_lower(x: Any, tape: kl.Tape) -> Any:
    with tape:
        y = result(2 * N)
        kl.copy(y, x, count=N)
        run("upper_from_lower", N, y, N)
        return loss_of(y[N:])


@harmless
def rows_below_the_first(x: Any, tape: kl.Tape) -> Any:
    with tape:
        y = trajectory(x, 3)
        run("below_the_first", (3, N), y)
        return loss_of(y.flatten())


@harmless
def other_fields_of_structs(x: Any, tape: kl.Tape) -> Any:
    bodies = kl.zeros(N, dtype=kernels["Body"], requires_grad=True)
    y = result()
    with tape:
        kl.copy(bodies["position"], x)
        run("drift", N, bodies, y)
        run("kick", N, bodies, 3.0)
        bodies["speed"].fill_(2.0)
        return loss_of(y)


@harmless
def elements_outside_of_what_was_read(x: Any, tape: kl.Tape) -> Any:
    with tape:
        y, z = result(2 * N), result()
        kl.copy(y, x, count=N)
        run("square", N, y, z)
        y[N:].fill_(4.0)
        y[N] = 5.0
        return loss_of(z)


# ------------------------------------------------------------------------- hosts, tapes, loops


@harmless
def numpy_that_only_looks(x: Any, tape: kl.Tape) -> Any:
    with tape:
        y = result()
        run("square", N, x, y)
        assert y.numpy().sum() == pytest.approx(x.numpy() @ x.numpy())
        return loss_of(y)


@harmless
def numpy_that_writes_elsewhere(x: Any, tape: kl.Tape) -> Any:
    with tape:
        y, z = result(2 * N), result()
        kl.copy(y, x, count=N)
        view = y.numpy()
        run("square", N, y, z)
        loss = loss_of(z)
    view[N:] = 3.0
    return loss


@harmless
def two_views_of_a_buffer(x: Any, tape: kl.Tape) -> Any:
    buffer = bytearray(16 * N)
    lower = kl.from_numpy(np.frombuffer(buffer, np.float64, N), requires_grad=True)
    upper = kl.from_numpy(np.frombuffer(buffer, np.float64, N, 8 * N), requires_grad=True)
    with tape:
        kl.copy(lower, x)
        run("square", N, lower, upper)
        loss = loss_of(upper)
    lower_again = kl.from_numpy(np.frombuffer(buffer, np.float64, N))
    assert lower_again.allocation is lower.allocation
    return loss


@harmless
def a_clone_before_the_change(x: Any, tape: kl.Tape) -> Any:
    with tape:
        work, y = result(), result()
        for _ in range(3):
            run("square", N, kl.clone(x), work)
            run("add", N, work, y)
        return loss_of(y)


@harmless
def arithmetic_of_arrays(x: Any, tape: kl.Tape) -> Any:
    with tape:
        y = 2.0 * x * x - x
        y += x
        y *= 0.5
        return loss_of(y)


@harmless
def an_index_that_is_made_once(x: Any, tape: kl.Tape) -> Any:
    index, y = kl.zeros(N, dtype=int), result()
    with tape:
        run("fill_index", N, index, 2)
        run("gather", N, x, index, y)
        return loss_of(y)


@harmless
def a_tape_that_is_reset(x: Any, tape: kl.Tape) -> Any:
    work = kl.clone(x)
    for _ in range(2):
        tape.reset()
        work.assign(x)
        with tape:
            y = result()
            run("square", N, x, y)
            run("square", N, work, result())
            loss = loss_of(y)
    return loss


@harmless
def another_tape_on_the_same_arrays(x: Any, tape: kl.Tape) -> Any:
    y = result()
    with kl.Tape(overwrite="error"):
        run("square", N, x, y)
    with tape:
        run("square", N, x, y)
        return loss_of(y)


@harmless
def a_cell_that_is_run_again(x: Any, tape: kl.Tape) -> Any:
    for _ in range(2):
        y, loss = result(), result(1)
        cell = kl.Tape(overwrite="error")
        with cell:
            run("square", N, x, y)
            run("total", N, y, loss)
        cell.backward(loss)
    y, loss = result(), result(1)
    cells = [kl.Tape(overwrite="error"), tape]
    for again in cells:
        loss.zero_()
        x.grad.zero_()
        with again:
            run("square", N, x, y)
            run("total", N, y, loss)
        if again is not tape:
            again.backward(loss)
    x.grad.zero_()
    return loss


@harmless
def a_training_loop(x: Any, tape: kl.Tape) -> Any:
    weights = kl.array([2.0], dtype=kl.float64, requires_grad=True)
    for _ in range(3):
        tape.reset()
        weights.assign(weights.numpy() * 0.9)
        with tape:
            y = result()
            run("scale", N, x, weights, y)
            loss = loss_of(y)
        tape.backward(loss)
        weights.assign(weights.numpy() - 0.0 * weights.grad.numpy())
        weights *= 1.0
    tape.reset()
    with tape:
        y = result()
        run("scale", N, x, weights, y)
        return loss_of(y)


@harmless
def a_parameter_that_moves_between_tapes(x: Any, tape: kl.Tape) -> Any:
    weights = kl.array([2.0], dtype=kl.float64, requires_grad=True)
    for _ in range(3):
        with kl.Tape(overwrite="error") as step:
            y = result()
            run("scale", N, x, weights, y)
            step_loss = loss_of(y)
        step.backward(step_loss)
        weights.assign(weights.numpy() - 0.01 * weights.grad.numpy())
        weights.grad.zero_()
        x.grad.zero_()
    weights.fill_(2.0)
    with tape:
        y = result()
        run("scale", N, x, weights, y)
        return loss_of(y)


# ------------------------------------------------------------------------- the test


@pytest.mark.parametrize("policy", ["save", "warn", "error"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_silent_saves_nothing_and_is_right(name: str, policy: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = kl.array(START, dtype=kl.float64, requires_grad=True)
        tape = kl.Tape(overwrite=policy)  # type: ignore[arg-type]
        loss = PROGRAMS[name](x, tape)
        tape.backward(loss)
    assert tape.saved_bytes == 0
    direction, step = np.cos(np.arange(N)), 1e-6
    slope = float(x.grad.numpy() @ direction)
    ahead, behind = (loss_at(name, START + sign * step * direction) for sign in (1, -1))
    assert slope == pytest.approx((ahead - behind) / (2 * step), rel=1e-6)


def loss_at(name: str, start: np.ndarray[Any, Any]) -> float:
    x = kl.array(start, dtype=kl.float64, requires_grad=True)
    return float(PROGRAMS[name](x, kl.Tape()).item())


def test_there_are_enough_of_them() -> None:
    assert len(PROGRAMS) >= 25
