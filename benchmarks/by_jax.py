"""The kernels of `kernels.py` as functions of JAX, which differentiates them."""

from typing import Any

import jax
import jax.numpy as jnp


def saxpy(a: Any, x: Any, y: Any) -> Any:
    return a[0] * x + y


def chain(x: Any) -> Any:
    u = jnp.sin(x) * jnp.exp(-x)
    return jnp.sin(u + 1.0) * jnp.exp(-u * u)


def bodies(x: Any) -> Any:
    d = x[None, :, :] - x[:, None, :]
    r = jnp.sum(d * d, 2) + 0.01
    return jnp.sum(d * (1.0 / (r * jnp.sqrt(r)))[:, :, None], 1)


def stencil(x: Any) -> Any:
    around = x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]
    inner = x[1:-1, 1:-1] + 0.1 * (around - 4.0 * x[1:-1, 1:-1])
    return jnp.zeros_like(x).at[1:-1, 1:-1].set(inner)


def springs(x: Any, a: Any, b: Any) -> Any:
    d = x[b] - x[a]
    length = jnp.sqrt(jnp.sum(d * d, 1)) + 1.0e-6
    force = d * ((length - 1.0) / length)[:, None]
    return jnp.zeros_like(x).at[a].add(force).at[b].add(-force)


def logistic(x: Any, r: Any, steps: int) -> Any:
    return jax.lax.scan(lambda v, _: (r * v * (1.0 - v), None), x, None, length=steps)[0]


def squares(x: Any) -> Any:
    return jnp.sum(x * x)[None]
