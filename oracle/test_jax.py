"""Derivatives beside those of JAX, of the same mathematics; `make oracle` installs JAX and runs these."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kernelab as kl

CELL = """
def elementwise(x: array[float], y: array[float]):
    i = tid()
    y[i] = sin(x[i]) * exp(-x[i]) + x[i] ** 3.0

def diffuse(u: array2d[float], v: array2d[float]):
    i, j = tid()
    n, m = u.shape[0], u.shape[1]
    around = u[(i + 1) % n, j] + u[i - 1, j] + u[i, (j + 1) % m] + u[i, j - 1]
    v[i, j] = u[i, j] + 0.1 * (around - 4.0 * u[i, j]) + 0.05 * u[i, j] * u[i, j]

def gather_scatter(x: array[float], source: array[int], target: array[int], y: array[float]):
    i = tid()
    atomic_add(y, target[i], x[source[i]] * x[i])

def forces(x: array[vec3], f: array[vec3]):
    i = tid()
    total = vec3(0.0, 0.0, 0.0)
    for j in range(x.shape[0]):
        d = x[j] - x[i]
        r2 = dot(d, d) + 0.1
        total += d / (r2 * sqrt(r2))
    f[i] = total

def chain(a: array2d[float], x: array[float], y: array[float]):
    i = tid()
    s = 0.0
    for k in range(x.shape[0]):
        s += a[i, k] * x[k]
    y[i] = tanh(s)

def step(q: array[float], v: array[float], q1: array[float], v1: array[float]):
    i = tid()
    moved = v[i] - 0.02 * sin(q[i])
    v1[i] = moved
    q1[i] = q[i] + 0.02 * moved

def root(x: array[float], y: array[float]):
    i = tid()
    v = 1.0
    n = 0
    while True:
        v = 0.5 * (v + x[i] / v)
        n += 1
        if n >= 12 or abs(v * v - x[i]) < 0.01:
            break
    y[i] = v

def relax(b: array[float], x: array[float], y: array[float]):
    i = tid()
    n = b.shape[0]
    y[i] = (b[i] + x[(i + 1) % n] + x[(i + n - 1) % n]) / (3.0 + x[i] * x[i])

def bins(x: array[float], y: array[float]):
    i = tid()
    atomic_add(y, i % 2, x[i] * x[i] * x[(i + 1) % x.shape[0]])
    atomic_add(y, 0, sin(x[i]))

def square(y: array[float]):
    i = tid()
    y[i] = y[i] * y[i]

def add_squares(x: array[float], s: array[float]):
    i = tid()
    atomic_add(s, 0, x[i] * x[i])

def add_lengths(x: array[vec3], s: array[float]):
    i = tid()
    atomic_add(s, 0, dot(x[i], x[i]))
"""

K = kl.compile(CELL)
RNG = np.random.default_rng(4)
SOURCE, TARGET = (RNG.integers(0, n, 9) for n in (9, 5))
A = RNG.normal(size=(6, 6)).astype(np.float32)
F = Callable[[Any], Any]


def elementwise(x: Any) -> Any:
    y = kl.zeros_like(x)
    K["elementwise"][x.shape[0]](x, y)
    return y


def diffuse(u: Any) -> Any:
    for _ in range(3):
        v = kl.zeros_like(u)
        K["diffuse"][u.shape](u, v)
        u = v
    return u


def jax_diffuse(u: Any) -> Any:
    for _ in range(3):
        around = sum(jnp.roll(u, shift, axis) for shift in (1, -1) for axis in (0, 1))
        u = u + 0.1 * (around - 4.0 * u) + 0.05 * u * u
    return u


def gather_scatter(x: Any) -> Any:
    y = kl.zeros(5)
    K["gather_scatter"][9](x, kl.array(SOURCE, dtype=int), kl.array(TARGET, dtype=int), y)
    return y


def forces(x: Any) -> Any:
    f = kl.zeros_like(x)
    K["forces"][x.shape[0]](x, f)
    return f


def jax_forces(x: Any) -> Any:
    d = x[None, :, :] - x[:, None, :]
    r2 = (d * d).sum(-1, keepdims=True) + 0.1
    return (d / (r2 * jnp.sqrt(r2))).sum(1)


def chain(x: Any) -> Any:
    a = kl.array(A, dtype=float)
    for _ in range(4):
        y = kl.zeros_like(x)
        K["chain"][6](a, x, y)
        x = y
    return x


def jax_chain(x: Any) -> Any:
    for _ in range(4):
        x = jnp.tanh(A @ x)
    return x


def rollout(q: Any) -> Any:
    v = kl.zeros_like(q)
    for _ in range(50):
        q1, v1 = kl.zeros_like(q), kl.zeros_like(q)
        K["step"][q.shape[0]](q, v, q1, v1)
        q, v = q1, v1
    return q


def jax_rollout(q: Any) -> Any:
    v = jnp.zeros_like(q)
    for _ in range(50):
        v = v - 0.02 * jnp.sin(q)
        q = q + 0.02 * v
    return q


def roots(x: Any) -> Any:
    y = kl.zeros_like(x)
    K["root"][x.shape[0]](x, y)
    return y


def jax_roots(x: Any) -> Any:
    v, done = jnp.ones_like(x), jnp.zeros_like(x, bool)
    for _ in range(12):
        v = jnp.where(done, v, 0.5 * (v + x / v))
        done = done | (abs(v * v - x) < 0.01)
    return v


def solver(b: Any) -> Any:
    x, y = kl.zeros_like(b), kl.zeros_like(b)
    for _ in range(8):
        K["relax"][b.shape[0]](b, x, y)
        kl.copy(x, y)
    return x


def jax_solver(b: Any) -> Any:
    x = jnp.zeros_like(b)
    for _ in range(8):
        x = (b + jnp.roll(x, -1) + jnp.roll(x, 1)) / (3.0 + x * x)
    return x


def collisions(x: Any) -> Any:
    y = kl.zeros(2)
    K["bins"][x.shape[0]](x, y)
    K["square"][2](y)
    return y


def jax_collisions(x: Any) -> Any:
    y = jnp.zeros(2).at[jnp.arange(x.shape[0]) % 2].add(x * x * jnp.roll(x, -1))
    return y.at[0].add(jnp.sin(x).sum()) ** 2


@dataclass(frozen=True)
class Case:
    """The same mathematics twice, at a point."""

    mine: F
    theirs: F
    point: Any
    dtype: Any = float


def reals(*shape: int) -> Any:
    return RNG.uniform(0.3, 1.2, shape).astype(np.float32)


CASES = {
    "elementwise": Case(elementwise, lambda x: jnp.sin(x) * jnp.exp(-x) + x**3, reals(7)),
    "stencil": Case(diffuse, jax_diffuse, reals(4, 5)),
    "gather and scatter": Case(
        gather_scatter, lambda x: jnp.zeros(5).at[TARGET].add(x[SOURCE] * x), reals(9)
    ),
    "n bodies": Case(forces, jax_forces, reals(5, 3), kl.vec3),
    "matrix chain": Case(chain, jax_chain, reals(6)),
    "rollout of 50 steps": Case(rollout, jax_rollout, reals(4)),
    "loop with a break": Case(roots, jax_roots, reals(5)),
    "steps of a solver": Case(solver, jax_solver, reals(6)),
    "collisions, then in place": Case(collisions, jax_collisions, reals(7)),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def close(found: Any, expected: Any) -> None:
    expected = np.asarray(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * max(1.0, np.abs(expected).max()))


def test_jacobians_of_both_modes(case: Case) -> None:
    x = kl.array(case.point, dtype=case.dtype)
    expected = jax.jacfwd(case.theirs)(case.point)
    close(kl.func.jacfwd(case.mine)(x).numpy(), expected)
    close(kl.func.jacrev(case.mine)(x).numpy(), expected)


def test_dense_and_sparse_jacobians_of_autograd(case: Case) -> None:
    x = kl.array(case.point, dtype=case.dtype, requires_grad=True)
    expected = np.asarray(jax.jacfwd(case.theirs)(case.point)).reshape(-1, case.point.size)
    close(kl.autograd.jacobian(case.mine, inputs=[x])[0, 0].numpy(), expected)
    close(kl.autograd.jacobian(case.mine, inputs=[x], sparse=True)[0, 0].numpy(), expected)
    close(kl.autograd.jacobian_fd(case.mine, inputs=[x])[0, 0].numpy(), expected)


def test_hessians_of_the_sum_of_squares(case: Case) -> None:
    def energy(x: Any) -> Any:
        y, s = case.mine(x), kl.zeros(1)
        K["add_lengths" if case.dtype == kl.vec3 else "add_squares"][y.size](y.flatten(), s)
        return s

    x = kl.array(case.point, dtype=case.dtype)
    expected = jax.hessian(lambda x: (case.theirs(x) ** 2).sum())(case.point)
    close(kl.func.hessian(energy)(x).numpy(), expected)


def test_lanes(case: Case) -> None:
    points = np.stack([case.point * s for s in (0.8, 1.0, 1.1)])
    xs = kl.array(points, dtype=case.dtype)
    close(kl.func.vmap(case.mine)(xs).numpy(), jax.vmap(case.theirs)(points))
    close(kl.func.vmap(kl.func.jacfwd(case.mine))(xs).numpy(), jax.vmap(jax.jacfwd(case.theirs))(points))
