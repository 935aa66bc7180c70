"""Whole programs as people write them, which a tape must run without a word and without a copy.

Optimisation loops with a tape for each step, minibatches, simulations with structs, loops whose index moves,
logs and counters beside them.  Each is checked against the same computation in NumPy.
"""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kernelab as kl

pytestmark = pytest.mark.slow

TEXT = """
class Body:
    place: float64
    speed: float64

def residual(w: array[float64], x: array2d[float64], y: array[float64], loss: array[float64]):
    i = tid()
    s = -y[i]
    for k in range(w.shape[0]):
        s += x[i, k] * w[k]
    atomic_add(loss, 0, s * s)

def picked(w: array[float64], x: array2d[float64], y: array[float64], of: array[int], loss: array[float64]):
    i = of[tid()]
    s = -y[i]
    for k in range(w.shape[0]):
        s += x[i, k] * w[k]
    atomic_add(loss, 0, s * s)

def every_other(x: array[float64], w: array[float64], y: array[float64]):
    i = tid()
    t = int(0)
    s = float64(0.0)
    while t < w.shape[0]:
        s += sin(w[t] * x[i])
        t += 2
    y[i] = s

def root(traj: array2d[float64], t: int):
    i = tid()
    r = float64(1.0)
    while abs(r * r - traj[t, i]) > 1.0e-12:
        r = 0.5 * (r + traj[t, i] / r)
    traj[t + 1, i] = r

def step(before: array[Body], after: array[Body], dt: float64):
    i = tid()
    after[i].speed = before[i].speed - dt * before[i].place
    after[i].place = before[i].place + dt * after[i].speed

def start(x: array[float64], bodies: array[Body]):
    i = tid()
    bodies[i].place = x[i]
    bodies[i].speed = 0.0

def places(bodies: array[Body], loss: array[float64]):
    atomic_add(loss, 0, bodies[tid()].place)

def note(x: array[float64], log: array[float64], count: array[int]):
    i = tid()
    log[i] = x[i]
    count[0] += 1

def shrink(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = 0.5 * sin(x[i])

def total(x: array[float64], loss: array[float64]):
    atomic_add(loss, 0, x[tid()])
"""
RNG = np.random.default_rng(7)
X, Y, W = RNG.normal(size=(12, 3)), RNG.normal(size=12), RNG.normal(size=3)


@pytest.fixture(scope="module")
def kernels() -> dict[str, Any]:
    return kl.compile(TEXT)


@pytest.fixture(autouse=True)
def _a_word_is_an_error() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def result(shape: Any = 1) -> Any:
    return kl.zeros(shape, dtype=kl.float64, requires_grad=True)


def fitted(steps: int, rows: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """What gradient descent on some rows at a time makes of the weights."""
    w = W.copy()
    for step in range(steps):
        chosen = rows[step % len(rows)]
        x, y = X[chosen], Y[chosen]
        w -= 0.01 * 2.0 * x.T @ (x @ w - y)
    return w


def test_a_tape_for_each_step_of_an_optimiser(kernels: dict[str, Any]) -> None:
    w, x, y = kl.array(W, requires_grad=True), kl.array(X), kl.array(Y)
    optimiser = kl.optim.SGD([w], lr=0.01)
    for _ in range(5):
        loss = result()
        with kl.Tape(overwrite="error") as tape:
            kernels["residual"][12](w, x, y, loss)
        tape.backward(loss)
        optimiser.step([w.grad])
        tape.zero()
        assert tape.saved_bytes == 0
    np.testing.assert_allclose(w.numpy(), fitted(5, [np.arange(12)]))


def test_one_tape_that_is_reset(kernels: dict[str, Any]) -> None:
    w, x, y, loss = kl.array(W, requires_grad=True), kl.array(X), kl.array(Y), result()
    tape = kl.Tape(overwrite="error")
    for _ in range(5):
        loss.zero_()
        with tape:
            kernels["residual"][12](w, x, y, loss)
        tape.backward(loss)
        w.assign(w.numpy() - 0.01 * w.grad.numpy())
        assert tape.saved_bytes == 0
        tape.reset()
    np.testing.assert_allclose(w.numpy(), fitted(5, [np.arange(12)]))


def test_minibatches_as_views(kernels: dict[str, Any]) -> None:
    w, x, y = kl.array(W, requires_grad=True), kl.array(X), kl.array(Y)
    for step in range(6):
        part, loss = slice(4 * (step % 3), 4 * (step % 3) + 4), result()
        with kl.Tape(overwrite="error") as tape:
            kernels["residual"][4](w, x[part], y[part], loss)
        tape.backward(loss)
        w.assign(w.numpy() - 0.01 * w.grad.numpy())
        w.grad.zero_()
    np.testing.assert_allclose(w.numpy(), fitted(6, np.split(np.arange(12), 3)))


def test_minibatches_by_indices_in_a_buffer_that_is_filled_again(kernels: dict[str, Any]) -> None:
    w, x, y = kl.array(W, requires_grad=True), kl.array(X), kl.array(Y)
    of, rows = kl.zeros(4, dtype=int), np.split(RNG.permutation(12), 3)
    for step in range(6):
        of.assign(rows[step % 3])
        loss = result()
        with kl.Tape(overwrite="error") as tape:
            kernels["picked"][4](w, x, y, of, loss)
        tape.backward(loss)
        w.assign(w.numpy() - 0.01 * w.grad.numpy())
        w.grad.zero_()
    np.testing.assert_allclose(w.numpy(), fitted(6, rows))


def test_a_loop_whose_index_moves(kernels: dict[str, Any]) -> None:
    x, w, y, loss = kl.array(Y, requires_grad=True), kl.array(W), result(12), result()
    with kl.Tape(overwrite="error") as tape:
        kernels["every_other"][12](x, w, y)
        kernels["total"][12](y, loss)
    tape.backward(loss)
    np.testing.assert_allclose(x.grad.numpy(), sum(w * np.cos(w * Y) for w in W[::2]))


def test_a_search_within_each_step_of_a_trajectory(kernels: dict[str, Any]) -> None:
    x, traj, loss = kl.array(np.abs(Y) + 1.0, requires_grad=True), result((4, 12)), result()
    with kl.Tape(overwrite="error") as tape:
        kl.copy(traj[0], x)
        for t in range(3):
            kernels["root"][12](traj, t)
        kernels["total"][12](traj[3], loss)
    tape.backward(loss)
    assert tape.saved_bytes == 0
    np.testing.assert_allclose(x.grad.numpy(), 0.125 * (np.abs(Y) + 1.0) ** -0.875, rtol=1e-6)


def test_structs_that_swap_places_in_a_linear_simulation(kernels: dict[str, Any]) -> None:
    x, loss, dt = kl.array(Y, requires_grad=True), result(), 0.1
    now, then = (kl.zeros(12, dtype=kernels["Body"], requires_grad=True) for _ in range(2))
    with kl.Tape(overwrite="error") as tape:
        kernels["start"][12](x, now)
        for _ in range(5):
            kernels["step"][12](now, then, dt)
            now, then = then, now
        kernels["places"][12](now, loss)
    tape.backward(loss)
    matrix = np.array([[1.0 - dt * dt, dt], [-dt, 1.0]])
    expected = np.linalg.matrix_power(matrix, 5)[0, 0]
    np.testing.assert_allclose(x.grad.numpy(), np.full(12, expected))


def test_logs_and_counters_beside_it(kernels: dict[str, Any]) -> None:
    x, loss = kl.array(Y, requires_grad=True), result()
    log, count = kl.zeros(12, dtype=kl.float64), kl.zeros(1, dtype=int)
    seen = []
    with kl.Tape(overwrite="error") as tape:
        y = x
        for _ in range(4):
            fresh = result(12)
            kernels["shrink"][12](y, fresh)
            kernels["note"][1](fresh, log, count)
            seen.append(float(log.numpy()[0]))
            y = fresh
        kernels["total"][12](y, loss)
    tape.backward(loss)
    assert tape.saved_bytes == 0
    assert count.list() == [4]
    value, slope = Y.copy(), np.ones(12)
    for k in range(4):
        slope *= 0.5 * np.cos(value)
        value = 0.5 * np.sin(value)
        assert seen[k] == pytest.approx(value[0])
    np.testing.assert_allclose(x.grad.numpy(), slope)


def test_what_is_looked_at_between_launches(kernels: dict[str, Any]) -> None:
    x, loss = kl.array(Y, requires_grad=True), result()
    with kl.Tape(overwrite="error") as tape:
        a, b = result(12), result(12)
        kernels["shrink"][12](x, a)
        largest = float(np.abs(a.numpy()).max())
        kernels["shrink"][12](a, b)
        kernels["total"][12](b, loss)
    assert largest <= 0.5
    tape.backward(loss)
    np.testing.assert_allclose(x.grad.numpy(), 0.25 * np.cos(Y) * np.cos(0.5 * np.sin(Y)))
