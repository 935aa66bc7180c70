"""The kernels of `kernels.py` and their adjoints by hand, for numba: one thread, plain loops."""

import math
from typing import Any

import numba
import numpy as np

f32 = np.float32


@numba.njit
def saxpy(a: Any, x: Any, y: Any, z: Any) -> None:
    for i in range(len(x)):
        z[i] = a[0] * x[i] + y[i]


@numba.njit
def saxpy_adjoint(a: Any, x: Any, y: Any, a_bar: Any, x_bar: Any, y_bar: Any, z_bar: Any) -> None:
    total = 0.0
    for i in range(len(x)):
        x_bar[i] += a[0] * z_bar[i]
        y_bar[i] += z_bar[i]
        total += x[i] * z_bar[i]
    a_bar[0] += f32(total)


@numba.njit
def chain(x: Any, z: Any) -> None:
    for i in range(len(x)):
        u = math.sin(x[i]) * math.exp(-x[i])
        z[i] = math.sin(u + f32(1)) * math.exp(-u * u)


@numba.njit
def chain_adjoint(x: Any, x_bar: Any, z_bar: Any) -> None:
    for i in range(len(x)):
        s, e = math.sin(x[i]), math.exp(-x[i])
        u = s * e
        slope = math.cos(u + f32(1)) - f32(2) * u * math.sin(u + f32(1))
        x_bar[i] += z_bar[i] * math.exp(-u * u) * slope * e * (math.cos(x[i]) - s)


@numba.njit
def stencil(x: Any, z: Any) -> None:
    n, m = x.shape
    for i in range(1, n - 1):
        for j in range(1, m - 1):
            around = x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1]
            z[i, j] = x[i, j] + f32(0.1) * (around - f32(4) * x[i, j])


@numba.njit
def stencil_adjoint(x: Any, x_bar: Any, z_bar: Any) -> None:
    n, m = x.shape
    for i in range(1, n - 1):
        for j in range(1, m - 1):
            g = f32(0.1) * z_bar[i, j]
            x_bar[i, j] += f32(6) * g
            x_bar[i - 1, j] += g
            x_bar[i + 1, j] += g
            x_bar[i, j - 1] += g
            x_bar[i, j + 1] += g


@numba.njit
def logistic(x: Any, r: Any, steps: int, z: Any) -> None:
    for i in range(len(x)):
        v = x[i]
        for _ in range(steps):
            v = r[i] * v * (f32(1) - v)
        z[i] = v


@numba.njit
def logistic_adjoint(x: Any, r: Any, steps: int, x_bar: Any, r_bar: Any, z_bar: Any) -> None:
    before = np.empty(steps, np.float32)
    for i in range(len(x)):
        v, g, total = x[i], z_bar[i], f32(0)
        for k in range(steps):
            before[k] = v
            v = r[i] * v * (f32(1) - v)
        for k in range(steps - 1, -1, -1):
            total += g * before[k] * (f32(1) - before[k])
            g *= r[i] * (f32(1) - f32(2) * before[k])
        x_bar[i] += g
        r_bar[i] += total


@numba.njit
def squares(x: Any, z: Any) -> None:
    total = 0.0
    for i in range(len(x)):
        total += x[i] * x[i]
    z[0] += f32(total)


@numba.njit
def squares_adjoint(x: Any, x_bar: Any, z_bar: Any) -> None:
    for i in range(len(x)):
        x_bar[i] += f32(2) * z_bar[0] * x[i]
