"""What x.grad means for an array whose elements are first read at different times.

An array that the tape reads before it writes it is an input: the gradient is that with respect to all that it
held then, whether what was read is used or not.  Of an array that the tape has made, each element counts by
itself: the gradient is that with respect to the value that it held before the launch which first read it, and
to the value at the end if none did.  Compared with differences of just these values.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import kernelab as kl

TEXT = """
def next_row(x: array2d[float64], source: int, to: int):
    i = tid()
    x[to, i] = sin(x[source, i]) + 0.5 * x[source, i]

def add_row(x: array2d[float64], source: int, to: int):
    i = tid()
    x[to, i] += x[source, i] * x[source, i]

def one_element(x: array2d[float64], source: int, to: int):
    x[to, 0] = 2.0 * x[source, 1]

def clear_row(x: array2d[float64], source: int, to: int):
    x[to, tid()] = 0.5

def peek_row(x: array2d[float64], source: int, to: int):
    i = tid()
    seen = x[source, i] * 2.0
    x[to, i] = 0.25

def take_row(x: array2d[float64], source: int, to: int):
    i = tid()
    x[to, i] = atomic_add(x, source, i, 0.5)

def put(x: array[float64], traj: array2d[float64]):
    i = tid()
    traj[0, i] = 2.0 * x[i]

def total(x: array2d[float64], first: int, loss: array[float64]):
    i, j = tid()
    atomic_add(loss, 0, x[first + i, j])
"""
Numpy = np.ndarray[Any, Any]
Move = tuple[str, int, int]
ROWS, COLUMNS = 5, 2
GRIDS = {"next_row": COLUMNS, "add_row": COLUMNS, "one_element": 1, "clear_row": COLUMNS}
GRIDS |= {"peek_row": COLUMNS, "take_row": COLUMNS}


@pytest.fixture(scope="module")
def kernels() -> dict[str, Any]:
    return kl.compile(TEXT)


def played(moves: Sequence[Move], x: Numpy, before: int, change: Numpy) -> Numpy:
    """The array after the moves, with `change` added to it before one of them."""
    x = x.copy()
    for k, (name, source, to) in enumerate(moves):
        x += change * (k == before)
        if name == "next_row":
            x[to] = np.sin(x[source]) + 0.5 * x[source]
        elif name == "add_row":
            x[to] += x[source] * x[source]
        elif name == "one_element":
            x[to, 0] = 2.0 * x[source, 1]
        elif name == "peek_row":
            x[to] = 0.25
        elif name == "take_row":
            x[to] = x[source]
            x[source] += 0.5
        else:
            x[to] = 0.5
    return x + change * (before == len(moves))


def first_read(moves: Sequence[Move], row: int, column: int) -> int:
    """Before which move an element is first read; how many moves there are if none reads it."""
    for k, (name, source, _) in enumerate(moves):
        if source == row and name != "clear_row" and (name != "one_element" or column == 1):
            return k
    return len(moves)


@pytest.mark.parametrize("is_input", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_the_gradient_is_that_of_what_was_first_read(
    kernels: dict[str, Any], seed: int, is_input: bool
) -> None:
    rng = np.random.default_rng(seed)
    rows = [rng.choice(ROWS, 2, replace=False).tolist() for _ in range(rng.integers(2, 9))]
    moves = [(str(rng.choice(list(GRIDS))), source, to) for source, to in rows]
    if is_input and moves[0][0] == "clear_row":
        moves = [("next_row", *rows[0]), *moves]
    start, weights = rng.uniform(0.2, 0.9, (ROWS, COLUMNS)), rng.normal(size=(ROWS, COLUMNS))
    source = kl.array(start, requires_grad=True)
    x = kl.array(start, requires_grad=True)
    with kl.Tape() as tape:
        if not is_input:
            kl.copy(x, source)
        for name, row, to in moves:
            kernels[name][GRIDS[name]](x, row, to)
    tape.backward(grads={x: weights})
    for row, column in np.ndindex(ROWS, COLUMNS):
        change = np.zeros((ROWS, COLUMNS))
        change[row, column] = 1e-6
        k = 0 if is_input else first_read(moves, row, column)
        ahead, behind = (played(moves, start, k, sign * change) for sign in (1, -1))
        slope = np.sum(weights * (ahead - behind)) / 2e-6
        assert x.grad.numpy()[row, column] == pytest.approx(slope, rel=1e-6, abs=1e-8), (moves, row, column)


def test_a_trajectory_in_one_array_shows_the_gradient_of_every_row(kernels: dict[str, Any]) -> None:
    x = kl.ones(COLUMNS, dtype=kl.float64, requires_grad=True)
    traj = kl.zeros((ROWS, COLUMNS), dtype=kl.float64, requires_grad=True)
    loss = kl.zeros(1, dtype=kl.float64, requires_grad=True)
    with kl.Tape() as tape:
        kernels["put"][COLUMNS](x, traj)
        for t in range(ROWS - 1):
            kernels["add_row"][COLUMNS](traj, t, t + 1)
        kernels["total"][1, COLUMNS](traj, ROWS - 1, loss)
    tape.backward(loss)
    states = [2.0]
    for _ in range(ROWS - 1):
        states.append(states[-1] ** 2)
    expected = [np.prod([2.0 * s for s in states[t:-1]]) for t in range(ROWS)]
    np.testing.assert_allclose(traj.grad.numpy(), np.repeat([expected], COLUMNS, 0).T)
    np.testing.assert_allclose(x.grad.numpy(), 2.0 * expected[0])


def test_a_second_sweep_adds_to_rows_that_nothing_wrote_and_replaces_the_rest(
    kernels: dict[str, Any],
) -> None:
    x = kl.ones((3, COLUMNS), dtype=kl.float64, requires_grad=True)
    with kl.Tape() as tape:
        kernels["clear_row"][COLUMNS](x, 0, 1)
        kernels["add_row"][COLUMNS](x, 0, 1)
        kernels["add_row"][COLUMNS](x, 1, 2)
    for sweep in (1, 2):
        tape.backward(grads={x: [[0, 0], [0, 0], [1, 1]]})
        assert x.grad.list() == [6.0 * sweep] * 2 + [3.0] * 2 + [1.0] * 2


def test_what_no_launch_reads_keeps_its_cotangent(kernels: dict[str, Any]) -> None:
    x = kl.ones((2, COLUMNS), dtype=kl.float64, requires_grad=True)
    with kl.Tape() as tape:
        kernels["clear_row"][COLUMNS](x, 0, 1)
        kernels["one_element"][1](x, 0, 1)
    tape.backward(grads={x: [[1, 2], [3, 4]]})
    # x[0, 1] is read by the last launch, x[0, 0] by none; what is written ends as it is.
    assert x.grad.numpy()[:, 1].tolist() == [8.0, 4.0]
    assert x.grad.numpy()[1, 0] == 3.0


UNUSED = {
    "assigned": "s = x[i]",
    "computed": "s = sin(x[i]) * x[i]",
    "in a loop": "for k in range(2):\n        s = x[(i + k) % 2]",
    "in a loop that never runs": "s = float64(0.0)\n    for k in range(0):\n        s += x[i]",
    "in a branch": "s = x[i] if i > 0 else x[0]",
    "by a function": "s = twice(x, i)",
    "through a view": "row = x[0:2]\n    s = row[i]",
    "old value": "s = 2.0 * atomic_add(x, i, 0.0)",
}


@pytest.mark.parametrize("inside", ["tape", "checkpoint"])
@pytest.mark.parametrize("unused", UNUSED)
def test_what_a_launch_reads_and_does_not_use_it_has_read(unused: str, inside: str) -> None:
    made = kl.compile(f"""
def twice(x: array[float64], i: int):
    return 2.0 * x[i]
def peek(x: array[float64], n: array[int]):
    i = tid()
    {UNUSED[unused]}
    n[i] = i
def overwrite(x: array[float64]):
    x[tid()] = 3.0
def square(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = x[i] * x[i]
""")
    x, y = (kl.ones(2, kl.float64, requires_grad=True) for _ in range(2))

    def steps() -> None:
        made["peek"][2](x, kl.zeros(2, dtype=int))
        made["overwrite"][2](x)
        made["square"][2](x, y)

    with kl.Tape() as tape:
        steps() if inside == "tape" else kl.checkpoint(steps)
    tape.backward(grads={y: np.ones(2)})
    assert x.grad.list() == [0.0, 0.0]


def test_a_view_of_an_input_is_one_piece_which_counts_from_its_first_read() -> None:
    text = """
def add_squares(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = y[i] + x[i] * x[i]

def put_behind(x: array[float64], c: array[float64]):
    i = tid()
    x[i + 1] = c[i]
"""
    kernels = kl.compile(text)
    x, c = (
        kl.array(values, dtype=kl.float64, requires_grad=True) for values in (np.arange(1.0, 7.0), [7.0, 8.0])
    )
    y = kl.zeros(3, dtype=kl.float64, requires_grad=True)
    with kl.Tape() as tape:
        kernels["add_squares"][1](x[5:6], y)
        kernels["add_squares"][1](x[2:5], y)  # its other elements are input, too
        kernels["put_behind"][2](x[1:4], c)
        kernels["add_squares"][3](x[3:6], y)
    tape.backward(grads={y: np.ones(3)})
    assert x.grad is not None and x.grad.list() == [0, 0, 6, 0, 10, 24]
    assert c.grad is not None and c.grad.list() == [0, 16]
