"""What thousands of calls through the bridges leave behind in the process."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch

import kernelab as kl
from kernelab.interop import jax as kj
from kernelab.interop import torch as kt

MADE = kl.compile("def wave(x: array[float], y: array[float]):\n    i = tid()\n    y[i] = sin(x[i]) * x[i]\n")


def by_torch() -> Callable[[], Any]:
    f, x = kt.function(MADE["wave"]), torch.ones(1000, requires_grad=True)

    def run() -> None:
        x.grad = None
        f(x).sum().backward()

    return run


def by_jax(prepare: Callable[[Any], Any]) -> Callable[[], Any]:
    f, x = kj.function(MADE["wave"]), jnp.ones(1000)
    slope = prepare(jax.grad(lambda x: f(x).sum()))
    return lambda: slope(x).block_until_ready()


def resident() -> int:
    """The bytes of this process that are in memory."""
    gc.collect()
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells what is in memory")
@pytest.mark.parametrize("make", [by_torch, lambda: by_jax(jax.jit), lambda: by_jax(lambda f: f)])
def test_thousands_of_calls_leave_no_memory_behind(make: Callable[[], Callable[[], Any]]) -> None:
    run = make()
    for _ in range(500):
        run()
    before = resident()
    for _ in range(3000):
        run()
    assert resident() - before < 4 << 20  # one gradient a call would be 12 MB
