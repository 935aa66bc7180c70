"""What users of Warp know to write, under ``import kernelab as wp``.

One program for each thing that its guide to differentiability explains, with the gradients of mathematics.
"""

from typing import Any

import numpy as np
import pytest

import kernelab as wp
from tests.guide.close import close, gradient

# ------------------------------------------------------------------------------------------ a tape


@wp.kernel
def compute1(a: wp.array(dtype=wp.vec3), b: wp.array(dtype=wp.vec3)):
    i = wp.tid()
    b[i] = a[i] * wp.length(a[i])


@wp.kernel
def compute2(b: wp.array(dtype=wp.vec3), c: wp.array(dtype=float)):
    i = wp.tid()
    c[i] = wp.dot(b[i], wp.vec3(1.0, 2.0, 3.0))


@wp.kernel
def sum_loss(c: wp.array(dtype=float), loss: wp.array(dtype=float)):
    i = wp.tid()
    wp.atomic_add(loss, 0, c[i])


def test_a_tape_takes_the_gradient_of_a_loss_through_several_kernels() -> None:
    values = np.random.default_rng(1).normal(size=(8, 3))
    a = wp.array(values, dtype=wp.vec3, requires_grad=True)
    b, c = wp.zeros_like(a), wp.zeros(8, dtype=float, requires_grad=True)
    loss = wp.zeros(1, dtype=float, requires_grad=True)

    tape = wp.Tape()
    with tape:
        wp.launch(kernel=compute1, dim=8, inputs=[a, b], device="cpu")
        wp.launch(kernel=compute2, dim=8, inputs=[b, c], device="cpu")
        wp.launch(kernel=sum_loss, dim=8, inputs=[c, loss], device="cpu")
    tape.backward(loss)

    norm = np.linalg.norm(values, axis=1, keepdims=True)
    w = np.arange(1.0, 4.0)
    close(gradient(a), w * norm + (values @ w)[:, None] * values / norm)
    close(tape.gradients[a].numpy(), gradient(a))


def test_gradients_accumulate_until_they_are_zeroed() -> None:
    a = wp.ones(2, dtype=wp.vec3, requires_grad=True)
    b = wp.zeros_like(a)
    tape = wp.Tape()
    with tape:
        wp.launch(compute1, dim=2, inputs=[a], outputs=[b])
    seed = {b: wp.ones_like(b)}
    tape.backward(grads=seed)
    once = gradient(a).copy()
    tape.backward(grads=seed)
    close(gradient(a), 2 * once)
    tape.zero()
    tape.backward(grads=seed)
    close(gradient(a), once)


# ------------------------------------------------------------------------------------------ copies


@wp.kernel
def double(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    tid = wp.tid()
    y[tid] = x[tid] * 2.0


def test_copy_is_differentiable() -> None:
    x = wp.array(np.arange(3), dtype=float, requires_grad=True)
    y, z = wp.zeros_like(x), wp.zeros_like(x)
    tape = wp.Tape()
    with tape:
        wp.launch(double, dim=3, inputs=[x, y])
        wp.copy(z, y)
    tape.backward(grads={z: wp.ones_like(x)})
    close(gradient(x), [2, 2, 2])


def test_clone_is_differentiable() -> None:
    x = wp.array(np.arange(3), dtype=float, requires_grad=True)
    y = wp.zeros_like(x)
    tape = wp.Tape()
    with tape:
        wp.launch(double, dim=3, inputs=[x, y])
        z = wp.clone(y, requires_grad=True)
    tape.backward(grads={z: wp.ones_like(x)})
    close(gradient(x), [2, 2, 2])


def test_assign_is_differentiable() -> None:
    x = wp.array(np.arange(3), dtype=float, requires_grad=True)
    y, z = wp.zeros_like(x), wp.zeros_like(x)
    tape = wp.Tape()
    with tape:
        wp.launch(double, dim=3, inputs=[x], outputs=[y])
        z.assign(y)
    tape.backward(grads={z: wp.ones_like(x)})
    close(gradient(x), [2, 2, 2])


# ------------------------------------------------------------------------------------------ Jacobians


@wp.kernel
def neighbours(q: wp.array(dtype=float), out: wp.array(dtype=float)):
    i = wp.tid()
    out[i] = q[i] * q[i] * q[i + 1]


def test_a_jacobian_row_by_row() -> None:
    q = wp.array([1.0, 2.0, 3.0, 4.0], dtype=float, requires_grad=True)
    out = wp.zeros(3, dtype=float, requires_grad=True)
    jacobian = np.empty((3, 4), np.float32)
    tape = wp.Tape()
    with tape:
        wp.launch(neighbours, dim=3, inputs=[q], outputs=[out])
    for row in range(3):
        select = np.zeros(3)
        select[row] = 1.0
        tape.backward(grads={out: wp.array(select, dtype=wp.float32)})
        jacobian[row] = tape.gradients[q].numpy()
        tape.zero()
    values = q.numpy()
    expected = np.zeros((3, 4))
    for i in range(3):
        expected[i, i], expected[i, i + 1] = 2 * values[i] * values[i + 1], values[i] ** 2
    close(jacobian, expected)


def test_many_environments_have_their_jacobian_rows_at_once() -> None:
    count = 5
    values = np.random.default_rng(2).uniform(1, 2, size=(count, 3))
    q = wp.array(values.reshape(-1), dtype=float, requires_grad=True)
    out = wp.zeros(2 * count, dtype=float, requires_grad=True)
    tape = wp.Tape()
    with tape:
        wp.launch(environments, dim=count, inputs=[q], outputs=[out])
    rows = []
    for row in range(2):
        select = np.zeros(2)
        select[row] = 1.0
        tape.backward(grads={out: wp.array(np.tile(select, count), dtype=wp.float32)})
        rows.append(tape.gradients[q].numpy().reshape(count, 3).copy())
        tape.zero()
    a, b, c = values.T
    close(rows[0], np.stack([b, a, np.zeros(count)], 1))
    close(rows[1], np.stack([np.zeros(count), c, b], 1))


@wp.kernel
def environments(q: wp.array(dtype=float), out: wp.array(dtype=float)):
    e = wp.tid()
    out[2 * e] = q[3 * e] * q[3 * e + 1]
    out[2 * e + 1] = q[3 * e + 1] * q[3 * e + 2]


# ------------------------------------------------------------------------------------------ functions


@wp.func
def safe_sqrt(x: float):
    return wp.sqrt(x)


@wp.kernel
def run_safe_sqrt(xs: wp.array(dtype=float), output: wp.array(dtype=float)):
    i = wp.tid()
    output[i] = safe_sqrt(xs[i])


def test_the_derivative_of_sqrt_at_zero_is_infinite() -> None:
    xs = wp.array([1.0, 2.0, 0.0], dtype=wp.float32, requires_grad=True)
    ys = wp.zeros_like(xs)
    tape = wp.Tape()
    with tape:
        wp.launch(run_safe_sqrt, dim=len(xs), inputs=[xs], outputs=[ys])
    tape.backward(grads={ys: wp.array(np.ones(len(xs)), dtype=wp.float32)})
    close(ys, [1.0, 1.4142135, 0.0])
    close(gradient(xs), [0.5, 0.35355338, np.inf])


@wp.kernel
def compact(counter: wp.array(dtype=int), input: wp.array(dtype=float), output: wp.array(dtype=float)):
    idx = wp.atomic_add(counter, 0, 1)
    output[idx] = wp.sqrt(input[idx])


def test_an_index_from_an_atomic_counter_is_remembered_without_a_replay_function() -> None:
    dim = 8
    input = wp.array(np.arange(1, dim + 1), dtype=wp.float32, requires_grad=True)
    counter, output = wp.zeros(1, dtype=wp.int32), wp.zeros(dim, dtype=wp.float32, requires_grad=True)
    tape = wp.Tape()
    with tape:
        wp.launch(compact, dim, inputs=[counter, input], outputs=[output])
    tape.backward(grads={output: wp.array(np.ones(dim), dtype=wp.float32)})
    close(counter, [8])
    close(output, np.sqrt(np.arange(1, 9)))
    close(gradient(input), 0.5 / np.sqrt(np.arange(1, 9)))


# ----------------------------------------------------------------------------------- overwritten arrays


@wp.kernel
def compute_forces(pos: wp.array(dtype=float), vel: wp.array(dtype=float), force: wp.array(dtype=float)):
    i = wp.tid()
    force[i] = -pos[i] * pos[i] - 0.5 * vel[i]


@wp.kernel
def simulate(
    pos: wp.array(dtype=float),
    vel: wp.array(dtype=float),
    force: wp.array(dtype=float),
    new_pos: wp.array(dtype=float),
    new_vel: wp.array(dtype=float),
):
    i = wp.tid()
    new_vel[i] = vel[i] + 0.1 * force[i] * force[i]
    new_pos[i] = pos[i] + 0.1 * new_vel[i]


def simulated(pos: np.ndarray[Any, Any], vel: np.ndarray[Any, Any]) -> float:
    for _ in range(2):
        force = -pos * pos - 0.5 * vel
        vel = vel + 0.1 * force * force
        pos = pos + 0.1 * vel
    return float(pos.sum())


def differences(function: Any, *arguments: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    found = []
    for which, argument in enumerate(arguments):
        slope = np.zeros_like(argument)
        for i in range(argument.size):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [a.copy() for a in arguments]
                moved[which][i] += step
                ends.append(function(*moved))
            slope[i] = (ends[0] - ends[1]) / 2e-6
        found.append(slope)
    return found


def test_a_force_array_may_be_used_again_in_the_next_step() -> None:
    n = 4
    start = np.random.default_rng(3).uniform(0.5, 1.5, size=(2, n))
    pos0, vel0 = (wp.array(values, dtype=float, requires_grad=True) for values in start)
    force, pos1, vel1, pos2, vel2 = (wp.zeros(n, dtype=float, requires_grad=True) for _ in range(5))
    loss = wp.zeros(1, dtype=float, requires_grad=True)
    with wp.Tape() as tape:
        wp.launch(compute_forces, dim=n, inputs=[pos0, vel0], outputs=[force])
        wp.launch(simulate, dim=n, inputs=[pos0, vel0, force], outputs=[pos1, vel1])
        wp.launch(compute_forces, dim=n, inputs=[pos1, vel1], outputs=[force])
        wp.launch(simulate, dim=n, inputs=[pos1, vel1, force], outputs=[pos2, vel2])
        wp.launch(sum_loss, dim=n, inputs=[pos2, loss])
    tape.backward(loss)
    by_pos, by_vel = differences(simulated, *start)
    close(gradient(pos0), by_pos, rtol=1e-4)
    close(gradient(vel0), by_vel, rtol=1e-4)
    assert tape.saved_bytes == 4 * n


@wp.kernel
def square_kernel(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    tid = wp.tid()
    y[tid] = x[tid] * x[tid]


@wp.kernel
def overwrite_kernel(z: wp.array(dtype=float), x: wp.array(dtype=float)):
    tid = wp.tid()
    x[tid] = z[tid]


def overwritten(policy: Any, read: str) -> tuple[wp.Tape, wp.array, wp.array, wp.array]:
    a = wp.array(np.array([1.0, 2.0, 3.0]), dtype=float, requires_grad=True)
    b = wp.zeros_like(a)
    c = wp.array(np.array([-1.0, -2.0, -3.0]), dtype=float, requires_grad=True)
    loss = wp.zeros(1, dtype=float, requires_grad=True)
    tape = wp.Tape(overwrite=policy)
    with tape:
        wp.launch(square_kernel, a.shape, inputs=[a], outputs=[b])
        wp.launch(overwrite_kernel, c.shape, inputs=[c], outputs=[a])
        wp.launch(sum_loss, a.shape, inputs=[{"a": a, "b": b}[read], loss])
    tape.backward(loss)
    return tape, a, b, c


def test_an_array_overwritten_between_kernels_keeps_its_gradient() -> None:
    _, a, b, c = overwritten("save", "b")
    close(gradient(a), [2, 4, 6])
    close(gradient(b), [1, 1, 1])
    close(gradient(c), [0, 0, 0])
    close(a, c)


def test_the_new_values_of_an_overwritten_array_belong_to_what_they_came_from() -> None:
    _, a, _, c = overwritten("save", "a")
    close(gradient(c), [1, 1, 1])
    close(gradient(a), [0, 0, 0])


def test_the_classic_behaviour_comes_with_a_warning() -> None:
    with pytest.warns(wp.KernelWarning, match="`a` is overwritten here"):
        _, a, _, _ = overwritten("warn", "b")
    close(gradient(a), [-2, -4, -6])


@wp.kernel
def readwrite_kernel(a: wp.array(dtype=float), b: wp.array(dtype=float)):
    tid = wp.tid()
    b[tid] = a[tid] * a[tid]
    a[tid] = 1.0


def test_an_array_overwritten_inside_a_kernel_keeps_its_gradient() -> None:
    a = wp.array(np.array([1.0, 2.0, 3.0]), dtype=float, requires_grad=True)
    b, loss = wp.zeros_like(a), wp.zeros(1, dtype=float, requires_grad=True)
    tape = wp.Tape()
    with tape:
        wp.launch(readwrite_kernel, dim=a.shape, inputs=[a, b])
        wp.launch(sum_loss, a.shape, inputs=[b, loss])
    tape.backward(loss)
    close(gradient(a), [2, 4, 6])


@wp.kernel
def increment_kernel(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    tid = wp.tid()
    y[tid] += wp.sin(x[tid])


def test_accumulating_in_place_is_no_overwrite() -> None:
    x = wp.array([0.5, 1.0], dtype=float, requires_grad=True)
    y = wp.array([1.0, 1.0], dtype=float, requires_grad=True)
    with wp.Tape(overwrite="error") as tape:
        wp.launch(increment_kernel, dim=2, inputs=[x, y])
        wp.launch(increment_kernel, dim=2, inputs=[x, y])
    tape.backward(grads={y: wp.ones_like(y)})
    close(gradient(x), 2 * np.cos([0.5, 1.0]))
    close(gradient(y), [1, 1])
