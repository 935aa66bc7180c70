"""Harmless programs: a tape saves nothing for them, warns of nothing, and raises nothing.

A false alarm is a failure.  Every program is run with each policy; its gradient is checked against central
differences of the same program.
"""

import copy
import io
import json
import logging
import math
import pickle
import time
import warnings
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import kernelab as kl
import tests.contract.harmless_arrays  # noqa: F401 (adds its programs)
from tests.contract.harmless import PROGRAMS, START, N, harmless, loss_of, result, run

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


# ------------------------------------------------------------------------- what hosts do with results


@harmless
def printing_and_formatting(x: Any, tape: kl.Tape) -> Any:
    shown = io.StringIO()
    with tape:
        y = result()
        run("square", N, x, y)
        print(
            y, y.numpy(), y[0], f"{y.numpy().mean():.3e} {y[1]:8.3f}", repr(y.numpy()), y.list(), file=shown
        )
        loss = loss_of(y)
        print(f"{loss.item():.4f} {float(loss):.2e} {math.sqrt(loss.item() / N):.3f}", loss, file=shown)
        return loss


@harmless
def logging_a_history(x: Any, tape: kl.Tape) -> Any:
    history, best = [], float("inf")
    with tape:
        y = result()
        run("square", N, x, y)
        loss = loss_of(y)
        for step in range(3):
            best = min(best, loss.item())
            history.append(
                {"step": step, "loss": loss.item(), "best": best, "largest": float(y.numpy().max())}
            )
            logging.getLogger("harmless").info("%d %g", step, loss.item())
        json.dumps(history)
        return loss


@harmless
def plotting(x: Any, tape: kl.Tape) -> Any:
    axes = Figure().subplots()
    with tape:
        y = result()
        run("square", N, x, y)
        axes.plot(x.numpy(), y.numpy())
        axes.scatter(x.numpy(), np.sqrt(y.numpy()))
        axes.set_title(f"{y.numpy().mean():.2f}")
        axes.set_ylim(0.0, 1.1 * y.numpy().max())
        axes.figure.canvas.draw()
        return loss_of(y)


@harmless
def saving(x: Any, tape: kl.Tape) -> Any:
    with tape:
        y = result()
        run("square", N, x, y)
        np.save(io.BytesIO(), y.numpy())
        np.savez(io.BytesIO(), x=x.numpy(), y=y.numpy())
        np.savetxt(io.StringIO(), y.numpy())
        pickle.dumps((y.numpy(), y.list(), y[0], copy.deepcopy(y.numpy())))
        return loss_of(y)


@harmless
def a_test_of_convergence(x: Any, tape: kl.Tape) -> Any:
    with tape:
        y = kl.clone(x)
        for _ in range(10):
            z = result()
            run("double", N, y, z)
            change = np.linalg.norm(z.numpy() - y.numpy())
            y = z
            if change < 1e-3 or not np.isfinite(change) or np.abs(y.numpy()).max() > 1e2:
                break
        return loss_of(y)


@harmless
def checks_between_launches(x: Any, tape: kl.Tape) -> Any:
    with tape:
        y = result()
        run("square", N, x, y)
        np.testing.assert_allclose(y.numpy(), x.numpy() ** 2)
        assert np.all(np.isfinite(y.numpy())) and y.numpy().shape == (N,)
        assert y.numpy().argmax() == N - 1 and not math.isnan(y[0])
        return loss_of(y)


@harmless
def steps_that_data_without_gradients_decide(x: Any, tape: kl.Tape) -> Any:
    speeds = kl.array([0.3, 0.7], dtype=kl.float64)
    with tape:
        y = kl.array(START, dtype=kl.float64) * (0.1 / speeds.numpy().max())
        z = result()
        run("square", N, x, z)
        z += math.sqrt(speeds[0]) * y
        return loss_of(z)


@harmless
def an_index_sorted_by_results(x: Any, tape: kl.Tape) -> Any:
    with tape:
        y, z = result(), result()
        run("square", N, x, y)
        order = kl.array(np.argsort(y.numpy()).astype(np.int32))
        run("gather", N, y, order, z)
        return loss_of(z)


@harmless
def a_mask_of_results(x: Any, tape: kl.Tape) -> Any:
    with tape:
        y = result()
        run("square", N, x, y)
        mask = kl.array((y.numpy() > 0.5).astype(np.float64))
        return loss_of(y * mask)


@harmless
def noise_drawn_after_a_look(x: Any, tape: kl.Tape) -> Any:
    drawn = np.random.default_rng(1)
    with tape:
        y = result()
        run("square", N, x, y)
        assert y.numpy().min() > 0.0
        noise = kl.array(drawn.normal(size=N), dtype=kl.float64, requires_grad=True)
        return loss_of(y + noise)


@harmless
def progress_of_the_host(x: Any, tape: kl.Tape) -> Any:
    started, seen = time.perf_counter(), 0.0
    with tape:
        y = kl.clone(x)
        for step in range(3):
            z = result()
            run("double", N, y, z)
            seen += z.numpy().sum()
            rate = (step + 1) / (time.perf_counter() - started)
            assert f"{rate:.1f} steps a second, {seen / (step + 1):.3f}"
            y = z
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
