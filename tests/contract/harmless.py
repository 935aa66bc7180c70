"""What harmless programs are made of: kernels, leaves, losses, and the list that they stand in."""

from collections.abc import Callable
from typing import Any

import numpy as np

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

def sums_and_counts(x: array[float64], y: array[float64], count: array[float64]):
    i = tid()
    atomic_add(y, i // 2, x[i] * x[i])
    if x[i] > 0.6:
        atomic_add(count, i // 2, 1.0)

def means(y: array[float64], count: array[float64], z: array[float64]):
    i = tid()
    z[i] = y[i] / max(count[i], 1.0)

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
