"""Small kernels to make chains of."""

from typing import Any

import kernelab as kl

TEXT = """
def square(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]

def scale(x: array[float], a: float, y: array[float]):
    i = tid()
    y[i] = a * x[i]

def total(x: array[float], l: array[float]):
    atomic_add(l, 0, x[tid()])

def twice(x: array[float]):
    i = tid()
    x[i] = 2.0 * x[i]

def squared_in_place(x: array[float]):
    i = tid()
    x[i] = x[i] * x[i]

def step(before: array[float], after: array[float]):
    i = tid()
    after[i] = sin(before[i])

def gather(x: array[float], index: array[int], y: array[float]):
    i = tid()
    y[i] = x[index[i]]

def above(x: array[float], n: array[int]):
    i = tid()
    if x[i] > 0.0:
        n[i] = 1

def lengths(v: array[vec3], l: array[float]):
    atomic_add(l, 0, length(v[tid()]))

def old_value(x: array[float], y: array[float]):
    i = tid()
    y[i] = atomic_add(x, 0, x[i + 1])
"""

kernels: dict[str, Any] = kl.compile(TEXT)


@kl.kernel(enable_backward=False)
def forward_only(x: kl.array[float], y: kl.array[float]):  # type: ignore[no-untyped-def,valid-type]
    i = kl.tid()
    y[i] = x[i]


square, scale, total, twice, step = (kernels[name] for name in ("square", "scale", "total", "twice", "step"))
