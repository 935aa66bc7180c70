"""Functions that launch kernels, to be transformed, and what their Jacobians are."""

from typing import Any

import numpy as np

import kernelab as kl

CELL = """
def sine(x: array[float], y: array[float]):
    i = tid()
    y[i] = sin(x[i])

def add_up(x: array[float], s: array[float]):
    i = tid()
    atomic_add(s, 0, x[i])

def add_squares(x: array[float], y: array[float], z: array[float]):
    i = tid()
    z[i] = x[i] + y[i] * y[i]

def stencil(x: array[float], y: array[float]):
    i = tid()
    n = x.shape[0]
    y[i] = x[i] * x[(i + 1) % n] - 2.0 * x[(i - 1) % n]

def in_place(x: array[float]):
    i = tid()
    x[i] = x[i] * x[i] + x[i]

def product(x: array[float], y: array[float]):
    i = tid()
    p = 1.0
    for k in range(x.shape[0]):
        p = p * (x[k] + 0.5 * float(i))
    y[i] = p

def turn(p: array[vec2], m: array2d[float], q: array[vec2]):
    i = tid()
    q[i] = vec2(m[0, 0] * p[i][0] + m[0, 1] * p[i][1], m[1, 0] * p[i][0] * p[i][0])

def running(x: array[float], y: array[float]):
    i = tid()
    s = 0.0
    for k in range(i + 1):
        s += x[k] * x[k]
    y[i] = s * x[i]

def transposed(a: array2d[float], b: array2d[float]):
    i, j = tid()
    b[j, i] = a[i, j] * a[i, 0]

def scaled(x: array[float], by: float, y: array[float]):
    i = tid()
    y[i] = by * x[i]

def gather(x: array[float], by: float, s: array[float]):
    i = tid()
    atomic_add(s, 0, by * x[i])

def noisy(x: array[float], y: array[float]):
    i = tid()
    state = rand_init(7, i)
    y[i] = x[i] * randf(state)
"""

K = kl.compile(CELL)
RNG = np.random.default_rng(5)


def reals(*shape: int) -> Any:
    return kl.array(RNG.uniform(0.3, 1.5, shape), dtype=float)


def sine(x: Any) -> Any:
    y = kl.zeros_like(x)
    K["sine"][x.shape[0]](x, y)
    return y


def total(x: Any) -> Any:
    s = kl.zeros(1)
    K["add_up"][x.shape[0]](x, s)
    return s


def stencil(x: Any) -> Any:
    y = kl.zeros_like(x)
    K["stencil"][x.shape[0]](x, y)
    return y


def product(x: Any) -> Any:
    y = kl.zeros(4)
    K["product"][4](x, y)
    return y


def sum_of_sines(x: Any) -> Any:
    return total(sine(x))


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found.numpy(), expected, rtol=2e-5, atol=2e-6)


def stencil_jacobian(x: Any) -> Any:
    n, v = x.shape[0], x.numpy()
    J = np.zeros((n, n))
    for i in range(n):
        J[i, i] += v[(i + 1) % n]
        J[i, (i + 1) % n] += v[i]
        J[i, i - 1] -= 2.0
    return J


def product_jacobian(x: Any) -> Any:
    factors = x.numpy()[None, :] + 0.5 * np.arange(4)[:, None]
    return np.prod(factors, 1, keepdims=True) / factors
