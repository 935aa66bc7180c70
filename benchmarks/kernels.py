"""The kernels whose throughput is measured: their text for kernelab and Warp, and the data they run on.

`handwritten.cpp`, `by_numba.py` and `by_jax.py` compute the same.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

TEXT = """
def saxpy(a: wp.array[float], x: wp.array[float], y: wp.array[float], z: wp.array[float]):
    i = wp.tid()
    z[i] = a[0] * x[i] + y[i]

def chain(x: wp.array[float], z: wp.array[float]):
    i = wp.tid()
    u = wp.sin(x[i]) * wp.exp(-x[i])
    z[i] = wp.sin(u + 1.0) * wp.exp(-u * u)

def bodies(x: wp.array[wp.vec3], z: wp.array[wp.vec3]):
    i = wp.tid()
    force = wp.vec3(0.0, 0.0, 0.0)
    for j in range(x.shape[0]):
        d = x[j] - x[i]
        r = wp.dot(d, d) + 0.01
        force += d * (1.0 / (r * wp.sqrt(r)))
    z[i] = force

def stencil(x: wp.array2d[float], z: wp.array2d[float]):
    i, j = wp.tid()
    if i > 0 and j > 0 and i < x.shape[0] - 1 and j < x.shape[1] - 1:
        around = x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1]
        z[i, j] = x[i, j] + 0.1 * (around - 4.0 * x[i, j])

def springs(x: wp.array[wp.vec3], a: wp.array[int], b: wp.array[int], z: wp.array[wp.vec3]):
    s = wp.tid()
    d = x[b[s]] - x[a[s]]
    length = wp.length(d) + 1.0e-6
    force = d * ((length - 1.0) / length)
    wp.atomic_add(z, a[s], force)
    wp.atomic_sub(z, b[s], force)

def logistic(x: wp.array[float], r: wp.array[float], steps: int, z: wp.array[float]):
    i = wp.tid()
    v = x[i]
    for k in range(steps):
        v = r[i] * v * (1.0 - v)
    z[i] = v

def squares(x: wp.array[float], z: wp.array[float]):
    i = wp.tid()
    wp.atomic_add(z, 0, x[i] * x[i])
"""

STEPS = 32


def texts() -> dict[str, str]:
    """The text of each kernel, by name."""
    parts = TEXT.strip().split("\n\n")
    return {part.removeprefix("def ").partition("(")[0]: part + "\n" for part in parts}


@dataclass(frozen=True)
class Work:
    """One kernel with its arguments in order; `z`, the last, is the result, `seed` its cotangent.

    Arrays of float32 are active; those of three columns are arrays of vec3, but for the stencil's.
    """

    name: str
    dim: tuple[int, ...]
    arguments: dict[str, Any]
    seed: Any

    @property
    def active(self) -> list[str]:
        """The names of the arguments that gradients are computed for."""
        return [
            name
            for name, given in self.arguments.items()
            if name != "z" and isinstance(given, np.ndarray) and given.dtype == np.float32
        ]


TITLES = {
    "saxpy": "saxpy 1e7",
    "chain": "sin, exp chain 1e6",
    "bodies": "n-body 1024",
    "stencil": "stencil 1000 x 1000",
    "springs": "springs 1e6 on 3e5 points",
    "logistic": "logistic map, 32 steps, 1e6",
    "squares": "sum of squares 1e6",
}


def work(name: str, shrink: int = 1) -> Work:
    """The data of a kernel, the same in every process; `shrink` divides the size."""
    rng = np.random.default_rng(5)
    n = {"saxpy": 10**7, "bodies": 1024}.get(name, 10**6) // shrink

    def real(*shape: int) -> Any:
        return rng.random(shape, np.float32)

    arguments: dict[str, Any]
    match name:
        case "saxpy":
            arguments = {"a": real(1), "x": real(n), "y": real(n), "z": real(n)}
        case "bodies":
            arguments = {"x": real(n, 3), "z": real(n, 3)}
        case "stencil":
            n = round(n**0.5)
            arguments = {"x": real(n, n), "z": real(n, n)}
        case "springs":
            points = 3 * n // 10
            a, apart = (rng.integers(0, points - 1, n, dtype=np.int32) for _ in range(2))
            b = (a + 1 + apart) % np.int32(points)  # no spring has both ends at one point
            arguments = {"x": real(points, 3), "a": a, "b": b, "z": real(points, 3)}
        case "logistic":
            arguments = {"x": real(n), "r": 3.2 + 0.3 * real(n), "steps": STEPS, "z": real(n)}
        case "squares":
            arguments = {"x": real(n), "z": real(1)}
        case _:
            arguments = {"x": real(n), "z": real(n)}
    arguments["z"][...] = 0
    seed = real(*arguments["z"].shape) - np.float32(0.5)
    return Work(name, (n, n) if name == "stencil" else (n,), arguments, seed)
