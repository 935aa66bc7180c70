"""A small zoo of kernels, one for each thing that a compiler of derivatives can get wrong.

Each animal is the text of a cell, and what it takes to run it: a grid and arguments drawn at random.  The
texts run as plain Python too (`tests.support.python_oracle`).  Knows NumPy only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Rng = np.random.Generator
Arguments = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Animal:
    """A cell whose kernel has the name `name`, a grid, and `draw(rng)` for its arguments in order."""

    name: str
    text: str
    grid: tuple[int, ...]
    draw: Callable[[Rng], Arguments]

    @property
    def differentiable(self) -> tuple[str, ...]:
        """The parameters that carry derivatives: float arrays and float values."""
        drawn = self.draw(np.random.default_rng(0))
        return tuple(name for name, value in drawn.items() if np.asarray(value).dtype.kind == "f")


def _reals(rng: Rng, *shape: int, low: float = -1.0, high: float = 1.0) -> np.ndarray[Any, Any]:
    return rng.uniform(low, high, shape).astype(np.float32)


def _zeros(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.float32)


SAXPY = Animal(
    "saxpy",
    """
def saxpy(a: float, x: array[float], y: array[float], out: array[float]):
    i = tid()
    out[i] = a * x[i] + y[i]
""",
    (7,),
    lambda rng: {"a": 1.5, "x": _reals(rng, 7), "y": _reals(rng, 7), "out": _zeros(7)},
)

SPRING = Animal(
    "spring",
    """
def spring(x: array[vec3], rest: float, energy: array[float]):
    i = tid()
    d = length(x[i] - x[i + 1]) - rest
    atomic_add(energy, 0, 0.5 * d * d)
""",
    (5,),
    lambda rng: {"x": _reals(rng, 6, 3), "rest": 0.25, "energy": _zeros(1)},
)

RUNNING_MAX = Animal(
    "running_max",
    """
def running_max(x: array2d[float], limit: float, best: array[float]):
    i = tid()
    most = x[i, 0]
    for j in range(1, x.shape[1]):
        if x[i, j] > most:
            most = x[i, j]
        if most > limit:
            break
    best[i] = most * most
""",
    (6,),
    lambda rng: {"x": _reals(rng, 6, 9), "limit": 0.75, "best": _zeros(6)},
)

PRODUCT = Animal(
    "product",
    """
def product(x: array[float], counts: array[int], out: array[float]):
    i = tid()
    p = 1.0
    for j in range(counts[i]):
        p *= x[j]
    out[i] = p
""",
    (5,),
    lambda rng: {
        "x": _reals(rng, 6, low=0.5, high=1.5),
        "counts": np.array([0, 1, 3, 6, 2], np.int32),
        "out": _zeros(5),
    },
)

WEIGHTED_MEAN = Animal(
    "weighted_mean",
    """
def weighted_mean(x: array2d[float], w: array[float], mean: array[float]):
    i = tid()
    total = 0
    weight = 0
    for j in range(len(w)):
        if w[j] <= 0.0:
            continue
        total += w[j] * x[i, j]
        weight += w[j]
    if weight > 0:
        mean[i] = total / weight
""",
    (4,),
    lambda rng: {"x": _reals(rng, 4, 8), "w": _reals(rng, 8), "mean": _zeros(4)},
)

SEARCH = Animal(
    "search",
    """
def search(a: array2d[float], b: array[float], found: array[float]):
    t = tid()
    total = 0.0
    for i in range(a.shape[0]):
        for j in range(a.shape[1] - 1, -1, -1):
            total += a[i, j] * b[j]
            if total > 0.5 + 0.25 * float(t):
                found[t] = total * total + b[i]
                return
        total = total * 0.9 + 0.01 * float(i + j)
    found[t] = -total
""",
    (6,),
    lambda rng: {"a": _reals(rng, 5, 5), "b": _reals(rng, 5), "found": _zeros(6)},
)

NEWTON = Animal(
    "newton",
    """
def newton(a: array[float], root: array[float]):
    i = tid()
    y = a[i]
    while abs(y * y - a[i]) > 1e-4 * a[i]:
        y = 0.5 * (y + a[i] / y)
    root[i] = y
""",
    (6,),
    lambda rng: {"a": _reals(rng, 6, low=0.5, high=20.0), "root": _zeros(6)},
)

MATRIX_CHAIN = Animal(
    "matrix_chain",
    """
def matrix_chain(m: array[mat22], v: array[vec2], out: array[float]):
    i = tid()
    a = mat22(1.0, 0.0, 0.0, 1.0)
    for k in range(3):
        a = a * m[i + k] + 0.5 * a
        a[0, 1] += v[i].x
    u = a @ v[i]
    u[0] = u[1] * u[0]
    out[i] = dot(u, v[i]) + a[1][0]
""",
    (4,),
    lambda rng: {"m": _reals(rng, 6, 2, 2), "v": _reals(rng, 4, 2), "out": _zeros(4)},
)

IN_PLACE = Animal(
    "in_place",
    """
def in_place(a: array[float], gain: float, steps: int):
    i = tid()
    for k in range(steps):
        a[i] = sin(a[i]) * gain + a[i]
    a[i] *= a[i]
""",
    (6,),
    lambda rng: {"a": _reals(rng, 6), "gain": 0.75, "steps": 4},
)

HISTOGRAM = Animal(
    "histogram",
    """
def histogram(x: array[float], w: array[float], bins: array[float]):
    i = tid()
    b = int(floor((x[i] + 1.0) * 2.0))
    b = min(max(b, 0), bins.shape[0] - 1)
    bins[b] += w[i] * x[i]
    atomic_add(bins, -1, w[i])
""",
    (12,),
    lambda rng: {"x": _reals(rng, 12), "w": _reals(rng, 12), "bins": _zeros(4)},
)

STENCIL = Animal(
    "stencil",
    """
def stencil(u: array2d[float], dt: float, out: array2d[float]):
    i, j = tid()
    n, m = u.shape[0], u.shape[1]
    if i == 0 or j == 0 or i == n - 1 or j == m - 1:
        out[i, j] = u[i, j]
        return
    laplacian = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - 4.0 * u[i, j]
    out[i, j] = u[i, j] + dt * laplacian
""",
    (4, 5),
    lambda rng: {"u": _reals(rng, 4, 5), "dt": 0.1, "out": _zeros(4, 5)},
)

CALLS = Animal(
    "calls",
    """
def soft(x, limit=0.5):
    if x > limit:
        return limit + log(1.0 + x - limit)
    if x < -limit:
        return -soft_tail(-x, limit)
    return x

def soft_tail(x: float, limit: float) -> float:
    return limit + log(1.0 + x - limit)

def polar(p: vec2):
    r = length(p) + 0.1
    return r, p / r

def calls(p: array[vec2], x: array[float], out: array[float]):
    i = tid()
    r, unit = polar(p[i])
    out[i] = soft(2.0 * x[i]) * r + soft(unit.y, limit=0.25) * unit[0]
""",
    (6,),
    lambda rng: {"p": _reals(rng, 6, 2), "x": _reals(rng, 6), "out": _zeros(6)},
)

COMPACTION = Animal(
    "compaction",
    """
def compaction(x: array[float], used: array[int], kept: array[float]):
    i = tid()
    if x[i] > 0.0 and (i % 3 != 1 or x[i] > 0.5):
        slot = atomic_add(used, 0, 1)
        kept[slot] = x[i] * x[i] if slot > 0 else x[i]
""",
    (8,),
    lambda rng: {"x": _reals(rng, 8), "used": np.zeros(1, np.int32), "kept": _zeros(8)},
)

LOCAL_ARRAY = Animal(
    "local_array",
    """
def local_array(x: array2d[float], y: array[float]):
    i = tid()
    row = x[i, 1:]
    a = zeros(4, dtype=float)
    for k in range(2 * len(row)):
        a[k % 4] = sin(a[(k + 1) % 4]) + row[k % len(row)] * a[k % 4] + x[i, 0]
    a[0] += a[1] * a[2]
    y[i] = a[0] + a[-1]
""",
    (3,),
    lambda rng: {"x": _reals(rng, 3, 4), "y": _zeros(3)},
)

ZOO = (
    SAXPY,
    SPRING,
    RUNNING_MAX,
    PRODUCT,
    WEIGHTED_MEAN,
    SEARCH,
    NEWTON,
    MATRIX_CHAIN,
    IN_PLACE,
    HISTOGRAM,
    STENCIL,
    CALLS,
    COMPACTION,
    LOCAL_ARRAY,
)


def animal(name: str) -> Animal:
    """The animal of that name."""
    return next(found for found in ZOO if found.name == name)
