"""One system under measurement on the first GPU, in a process of its own: reads a request a line, answers so.

    python gpu_worker.py kernelab|warp

A request is JSON: {"measure": "work", "name": ..., "n": ..., "repeat": ...}, or "copy" or "banded" likewise,
or what `worker.py` knows, "latency" and "overhead".  Both systems run the same lines, by the names that they
have in common.  Work is timed by the device's own events.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from worker import Kernelab, System, Warp, latency, overhead

TEXTS = {
    "saxpy": """def saxpy(x: wp.array[float], y: wp.array[float], a: float, z: wp.array[float]):
    i = wp.tid()
    z[i] = a * x[i] + y[i]
""",
    "stencil": """def stencil(x: wp.array[float], z: wp.array[float]):
    i = wp.tid()
    z[i] = 0.25 * x[i] + 0.5 * x[i + 1] + 0.25 * x[i + 2]
""",
    "springs": """def springs(p: wp.array[wp.vec3], ends: wp.array[int], f: wp.array[wp.vec3]):
    i = wp.tid()
    a = ends[2 * i]
    b = ends[2 * i + 1]
    d = p[b] - p[a]
    l = wp.length(d) + 0.001
    g = d * (10.0 * (l - 0.5) / l)
    wp.atomic_add(f, a, g)
    wp.atomic_sub(f, b, g)
""",
    "bodies": """def bodies(p: wp.array[wp.vec3], n: int, f: wp.array[wp.vec3]):
    i = wp.tid()
    here = p[i]
    g = wp.vec3(0.0, 0.0, 0.0)
    for k in range(n):
        d = p[k] - here
        s = wp.dot(d, d) + 0.01
        g += d / (s * wp.sqrt(s))
    f[i] = g
""",
    "loop": """def loop(x: wp.array[float], n: int, z: wp.array[float]):
    i = wp.tid()
    v = x[i]
    for k in range(n):
        v = wp.sin(v) + 0.1 * v
    z[i] = v
""",
}
STEPS = 64
"""Iterations of the run-time loop."""


def arguments(lib: Any, name: str, n: int, rng: Any) -> tuple[int, list[Any]]:
    """How many threads, and fresh random arguments; the last is what is computed."""

    def reals(count: int) -> Any:
        return lib.array(rng.random(count, np.float32), dtype=float, requires_grad=True)

    def points(count: int) -> Any:
        return lib.array(rng.random((count, 3), np.float32), dtype=lib.vec3, requires_grad=True)

    def forces(count: int) -> Any:
        return lib.zeros(count, dtype=lib.vec3, requires_grad=True)

    zeros = lib.zeros(n, dtype=float, requires_grad=True)
    match name:
        case "saxpy":
            return n, [reals(n), reals(n), 0.5, zeros]
        case "stencil":
            return n, [reals(n + 2), zeros]
        case "springs":
            ends = lib.array(rng.integers(0, n, 2 * n, np.int32), dtype=int)
            return n, [points(n), ends, forces(n)]
        case "bodies":
            return n, [points(n), n, forces(n)]
        case _:
            return n, [reals(n), STEPS, zeros]


def work(system: System, name: str, n: int, repeat: int) -> dict[str, float]:
    """Milliseconds of a kernel and of its adjoint, and the mean size of what either computes."""
    lib, kernel = system.lib, system.compile(TEXTS[name], name)
    rng, primal, adjoint, means = np.random.default_rng(7), [], [], (0.0, 0.0)
    for turn in range(repeat + 1):
        dim, given = arguments(lib, name, n, rng)
        given[-1].grad.assign(rng.random(given[-1].numpy().shape, np.float32))
        bars = [None if isinstance(each, int | float) else each.grad for each in given]

        def forward(dim: int = dim, given: list[Any] = given) -> None:
            lib.launch(kernel, dim=dim, inputs=given)

        def backward(dim: int = dim, given: list[Any] = given, bars: list[Any] = bars) -> None:
            lib.launch(kernel, dim=dim, inputs=given, adj_inputs=bars, adj_outputs=[], adjoint=True)

        times = timed(lib, forward), timed(lib, backward)
        means = _mean(given[-1]), _mean(given[0].grad)
        if turn > 0:
            primal.append(times[0])
            adjoint.append(times[1])
    return {
        "primal": statistics.median(primal),
        "adjoint": statistics.median(adjoint),
        "mean": means[0],
        "gradient": means[1],
    }


def _mean(found: Any) -> float:
    return float(np.abs(found.numpy()).mean())


def timed(lib: Any, action: Callable[[], None]) -> float:
    """Milliseconds between two events around an action."""
    start, end = lib.Event(enable_timing=True), lib.Event(enable_timing=True)
    lib.record_event(start)
    action()
    lib.record_event(end)
    return float(lib.get_event_elapsed_time(start, end))


def copy(system: System, n: int, repeat: int) -> dict[str, float]:
    """Milliseconds of a copy of `n` float32 within the device."""
    lib = system.lib
    source, target = lib.ones(n, dtype=float), lib.zeros(n, dtype=float)
    times = [timed(lib, lambda: lib.copy(target, source)) for _ in range(repeat + 1)]
    return {"copy": statistics.median(times[1:])}


def banded(system: System, n: int, repeat: int) -> dict[str, float]:
    """Milliseconds of the sparse Jacobian of the stencil, once its pattern is known; kernelab's alone."""
    lib, kernel = system.lib, system.compile(TEXTS["stencil"], "stencil")
    times = []
    for _ in range(repeat + 1):
        dim, given = arguments(lib, "stencil", n, np.random.default_rng(len(times)))
        began = time.perf_counter()
        lib.autograd.jacobian(kernel, dim, given[:1], given[1:], sparse=True)
        lib.synchronize()
        times.append(1e3 * (time.perf_counter() - began))
    return {"banded": statistics.median(times[1:])}


MEASURES: dict[str, Callable[..., dict[str, float]]] = {
    "work": work,
    "copy": copy,
    "banded": banded,
    "latency": latency,
    "overhead": overhead,
}


def main() -> None:
    system: System = Kernelab() if sys.argv[1] == "kernelab" else Warp()
    if isinstance(system, Kernelab):
        system.lib.config.quick_builds = False  # what is measured is the build that stays
    system.lib.set_device("cuda:0")
    print(json.dumps({"version": system.lib.__version__}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(MEASURES[request.pop("measure")](system, **request)), flush=True)


if __name__ == "__main__":
    main()
