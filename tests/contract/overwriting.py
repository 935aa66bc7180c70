"""Launches and host writes that overwrite what others read."""

from typing import Any

import numpy as np

import kernelab as kl

TEXT = """
def square(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]

def square_table(x: array2d[float], y: array2d[float]):
    i, j = tid()
    y[i, j] = x[i, j] * x[i, j]

def move(z: array[float], x: array[float]):
    i = tid()
    x[i] = z[i]

def move_to(z: array[float], x: array[float], first: int, step: int):
    i = tid()
    x[first + step * i] = z[i]

def scatter(z: array[float], index: array[int], x: array[float]):
    i = tid()
    x[index[i]] = z[i]

def three(x: array[float], y: array[float], first: int, step: int):
    i = tid()
    y[i] = x[first + step * i] * x[first + step * i]

def last_ones(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[-1 - i] * x[-1 - i]

def inner(x: array[float], y: array[float]):
    i = tid()
    n = x.shape[0]
    if i != 0 and not (i >= n - 1):
        y[i] = x[i - 1] * x[i + 1]

def relax(x: array[float], colour: int):
    i = tid()
    x[2 * i + colour] = 0.5 * x[2 * i + 1 - colour] * x[2 * i + 1 - colour]

def step(a: array[float], b: array[float]):
    i = tid()
    b[i] = sin(a[i])

def column(x: array2d[float], j: int, y: array[float]):
    i = tid()
    y[i] = x[i, j] * x[i, j]

def next_row(traj: array2d[float], t: int):
    i = tid()
    traj[t + 1, i] = sin(traj[t, i])

def next_wrapped(traj: array2d[float], t: int):
    i = tid()
    traj[(t + 1) % 3, i] = sin(traj[t % 3, i])

def windows(x: array2d[float], y: array2d[float]):
    i, j = tid()
    y[i, j] = x[i, j] * x[i, j]

@func_native("out[0] = x[0] * x[3];", "adj_x[0] += x[3] * adj_out[0]; adj_x[3] += x[0] * adj_out[0];")
def product(x: array[float], out: array[float]): ...

def native(x: array[float], y: array[float]):
    i = tid()
    if i == 0:
        product(x, y)

class Body:
    position: vec3
    mass: float

def energy(bodies: array[Body], e: array[float]):
    i = tid()
    e[i] = bodies[i].mass * dot(bodies[i].position, bodies[i].position)
"""

kernels: dict[str, Any] = kl.compile(TEXT)
ONES = kl.full(4, 1.0)


def run(name: str, grid: Any, *arguments: Any, **options: Any) -> None:
    kl.launch(kernels[name], grid, list(arguments), **options)


def leaf(values: Any) -> Any:
    return kl.array(np.array(values, np.float32), dtype=float, requires_grad=True)


def result(shape: Any) -> Any:
    return kl.zeros(shape, dtype=float, requires_grad=True)


def gradient(x: Any) -> list[float]:
    return [float(value) for value in x.grad.numpy().reshape(-1)]
