"""One system under measurement on the first GPU, in a process of its own: reads a request a line, answers so.

    python gpu_worker.py kernelab|warp|torch|jax [--dry]

A request is JSON: {"measure": "work", "name": ..., "n": ..., "repeat": ...}, or "copy" or "banded" likewise,
"graphs", or what `worker.py` knows, "latency" and "overhead".  kernelab and Warp run the same lines, by the
names that they have in common; PyTorch and JAX know saxpy.  Work is timed by the device's own events.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from worker import Kernelab, N, System, Warp, latency, overhead

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
IN_A_ROW = 8
"""So many launches are timed together."""

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
    for _ in range(repeat + 1):
        dim, given = arguments(lib, name, n, rng)
        given[-1].grad.assign(rng.random(given[-1].numpy().shape, np.float32))
        bars = [None if isinstance(each, int | float) else each.grad for each in given]

        def forward(dim: int = dim, given: list[Any] = given) -> None:
            lib.launch(kernel, dim=dim, inputs=given)

        def backward(dim: int = dim, given: list[Any] = given, bars: list[Any] = bars) -> None:
            lib.launch(kernel, dim=dim, inputs=given, adj_inputs=bars, adj_outputs=[], adjoint=True)

        forward(), backward()
        means = _mean(given[-1]), _mean(given[0].grad)
        times = timed(lib, forward), timed(lib, backward)
        primal.append(times[0])
        adjoint.append(times[1])
    return _medians(primal, adjoint, means)


def _mean(found: Any) -> float:
    return float(np.abs(found.numpy()).mean())


def timed(lib: Any, action: Callable[[], None]) -> float:
    """Milliseconds of an action that launches, by events around several of them: the host runs ahead."""
    start, end = lib.Event(enable_timing=True), lib.Event(enable_timing=True)
    lib.record_event(start)
    for _ in range(IN_A_ROW):
        action()
    lib.record_event(end)
    return float(lib.get_event_elapsed_time(start, end)) / IN_A_ROW


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


def graphs(system: System) -> dict[str, float]:
    """Microseconds a launch of a graph of launches, and of a recorded launch with its adjoint in one."""
    lib, kernel = system.lib, system.compile(TEXTS["saxpy"].replace("saxpy", "step"), "step")
    x, y, z = (lib.ones(N, dtype=float, requires_grad=True) for _ in range(3))
    seed = lib.full(N, 1.0, dtype=float)

    def launch() -> None:
        lib.launch(kernel, dim=N, inputs=[x, y, 0.5, z])

    def sweep() -> None:
        with lib.Tape() as tape:
            launch()
        tape.backward(grads={z: seed})

    return {"launch": replayed(lib, launch), "launch and adjoint": replayed(lib, sweep)}


def replayed(lib: Any, action: Callable[[], None]) -> float:
    """Microseconds that an action takes in a graph of many, once it has run outside."""
    action(), action()
    with lib.ScopedCapture() as capture:
        for _ in range(CAPTURED):
            action()
    lib.capture_launch(capture.graph)
    lib.synchronize()
    start = time.perf_counter()
    for _ in range(REPLAYS):
        lib.capture_launch(capture.graph)
    lib.synchronize()
    return 1e6 * (time.perf_counter() - start) / (REPLAYS * CAPTURED)


def latency_of_the_first_build(system: System, **request: Any) -> dict[str, float]:
    """What a user waits for: of kernelab the build that is made first, before the better one."""
    config = getattr(system.lib, "config", None)
    if not isinstance(system, Kernelab) or config is None:
        return latency(system, **request)
    config.quick_builds = True
    try:
        return latency(system, **request)
    finally:
        config.quick_builds = False


class Torch:
    """PyTorch: saxpy in one kernel, and its gradient."""

    def __init__(self) -> None:
        import torch

        self.lib: Any = torch

    def work(self, name: str, n: int, repeat: int) -> dict[str, float]:
        torch, rng, primal, adjoint, means = self.lib, np.random.default_rng(7), [], [], (0.0, 0.0)
        assert name == "saxpy"
        for _ in range(repeat + 1):
            given = [torch.from_numpy(rng.random(n, np.float32)).cuda() for _ in range(3)]
            x, y = (values.requires_grad_() for values in given[:2])
            z = torch.add(y, x, alpha=0.5)
            z.backward(given[2], retain_graph=True)
            means = float(z.abs().mean()), float(x.grad.abs().mean())
            primal.append(self.timed(lambda x=x, y=y: torch.add(y, x, alpha=0.5)))
            adjoint.append(self.timed(lambda z=z, bar=given[2]: z.backward(bar, retain_graph=True)))
        return _medians(primal, adjoint, means)

    def timed(self, action: Callable[[], Any]) -> float:
        """Milliseconds, as of the others."""
        start, end = (self.lib.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(IN_A_ROW):
            action()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / IN_A_ROW


class Jax:
    """JAX: saxpy compiled, and its gradient; it has no events, so the host's clock times many at once."""

    def __init__(self) -> None:
        import jax

        self.lib: Any = jax

    def work(self, name: str, n: int, repeat: int) -> dict[str, float]:
        jax, rng, primal, adjoint, means = self.lib, np.random.default_rng(7), [], [], (0.0, 0.0)
        assert name == "saxpy"
        forward = jax.jit(lambda x, y: 0.5 * x + y)
        backward = jax.jit(lambda x, y, bar: jax.vjp(forward, x, y)[1](bar))
        for _ in range(repeat + 1):
            x, y, bar = (jax.numpy.asarray(rng.random(n, np.float32)) for _ in range(3))
            means = float(abs(forward(x, y)).mean()), float(abs(backward(x, y, bar)[0]).mean())
            primal.append(self.timed(lambda x=x, y=y: forward(x, y)))
            adjoint.append(self.timed(lambda x=x, y=y, bar=bar: backward(x, y, bar)))
        return _medians(primal, adjoint, means)

    def timed(self, action: Callable[[], Any]) -> float:
        """Milliseconds."""
        self.lib.block_until_ready(action())
        start = time.perf_counter()
        made = [action() for _ in range(IN_A_ROW)]
        self.lib.block_until_ready(made)
        return 1e3 * (time.perf_counter() - start) / IN_A_ROW


def _medians(primal: list[float], adjoint: list[float], means: tuple[float, float]) -> dict[str, float]:
    """Without the first turn, which warms up."""
    first, second = statistics.median(primal[1:]), statistics.median(adjoint[1:])
    return {"primal": first, "adjoint": second, "mean": means[0], "gradient": means[1]}


CAPTURED = 100
REPLAYS = 20

MEASURES: dict[str, Callable[..., dict[str, float]]] = {
    "work": work,
    "copy": copy,
    "banded": banded,
    "graphs": graphs,
    "latency": latency_of_the_first_build,
    "overhead": overhead,
}


def main() -> None:
    name, *options = sys.argv[1:]
    if name in OTHERS:
        other = OTHERS[name]()
        serve(other.lib.__version__, lambda measure, **request: getattr(other, measure)(**request))
        return
    if "--dry" in options:
        import_module("tests.support.fakecuda").install()
    system: System = Kernelab() if name == "kernelab" else Warp()
    if isinstance(system, Kernelab):
        system.lib.config.quick_builds = False  # what is measured is the build that stays
    system.lib.set_device("cuda:0")
    serve(system.lib.__version__, lambda measure, **request: MEASURES[measure](system, **request))


OTHERS: dict[str, Any] = {"torch": Torch, "jax": Jax}


def serve(version: str, answer: Callable[..., dict[str, float]]) -> None:
    """Say that all is ready, then answer a line for each."""
    print(json.dumps({"version": version}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(**json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
