"""Overwrites on random tapes: launches with offsets and strides, overlapping views, copies, fills.

Every program's gradient is checked against central differences of the program itself.
"""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl

pytestmark = pytest.mark.slow

TEXT = """
def blend(a: array[float64], source: int, target: int, step: int, other_step: int):
    i = tid()
    a[target + other_step * i] = sin(a[source + step * i]) + 0.5 * a[target + other_step * i]

def square(a: array[float64], source: int, target: int, step: int, other_step: int):
    i = tid()
    a[target + other_step * i] = a[source + step * i] * a[source + step * i]

def multiply(a: array[float64], b: array[float64]):
    i = tid()
    b[i] = a[i] * b[i]

def shift(a: array[float64], count: int, source: int, target: int):
    for k in range(count):
        a[target + k] = cos(a[source + k]) * a[source + k]
"""

kernels: dict[str, Any] = kl.compile(TEXT)
N = 12
PROGRAMS = 150

Action = Callable[[Any], object]


def draw_action(rng: random.Random) -> Action:
    """Something that reads and changes an array of N elements."""
    count, first, second = rng.randint(1, 5), rng.randint(0, 3), rng.randint(0, 3)
    match rng.randint(0, 5):
        case 0 | 1:
            kernel = kernels[rng.choice(["blend", "square"])]
            steps = rng.choice([1, 2]), rng.choice([1, 2])
            return lambda x: kl.launch(kernel, count, [x, first, second, *steps])
        case 2:
            one, other = rng.randint(0, 7), rng.randint(0, 7)
            return lambda x: kl.launch(kernels["multiply"], count, [x[one:], x[other:]])
        case 3:
            return lambda x: kl.launch(kernels["shift"], 1, [x, count, 2 * first, 2 * second])
        case 4:
            return lambda x: kl.copy(x, x, dest_offset=2 * first, src_offset=2 * second, count=count)
        case _:
            value, start = rng.random(), rng.randint(0, 11)
            return lambda x: x[start : start + 2].fill_(value)


def test_random_tapes_over_one_array_have_the_gradient_of_what_ran() -> None:
    kept = 0
    for seed in range(PROGRAMS):
        rng, draws = random.Random(seed), np.random.default_rng(seed)
        actions = [draw_action(rng) for _ in range(rng.randint(3, 9))]
        start, direction, cotangent = draws.uniform(0.3, 1.2, N), draws.normal(size=N), draws.normal(size=N)
        leaf = kl.array(start, dtype=kl.float64, requires_grad=True)
        with kl.Tape() as tape:
            x = kl.clone(leaf)
            for action in actions:
                action(x)
        tape.backward(grads={x: cotangent})
        kept += tape.saved_bytes
        ends = [final(actions, start + sign * 1e-6 * direction) @ cotangent for sign in (1, -1)]
        slope, differences = leaf.grad.numpy() @ direction, (ends[0] - ends[1]) / 2e-6
        assert abs(slope - differences) <= 1e-5 * max(1, abs(differences)), seed
    assert kept > 0


def final(actions: list[Action], start: Any) -> Any:
    x = kl.array(start, dtype=kl.float64)
    for action in actions:
        action(x)
    return x.numpy()
