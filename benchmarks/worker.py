"""One system under measurement, in a process of its own: reads a request a line, answers a line.

    python worker.py kernelab|warp

A request is JSON: {"measure": "latency", "text": ..., "name": ..., "size": ...} or {"measure": "overhead"}.
The two classes below do the same work with each system's own names.
"""

import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

N = 32
LAUNCHES = 2000


class Kernelab:
    """kernelab: a cell is text."""

    def __init__(self) -> None:
        import kernelab

        self.lib: Any = kernelab

    def compile(self, text: str, name: str) -> Any:
        return self.lib.compile(text)[name]


class Warp:
    """Warp: a kernel is a function of a module on disk."""

    def __init__(self) -> None:
        import warp

        warp.config.quiet = True
        warp.config.kernel_cache_dir = tempfile.mkdtemp()
        warp.init()
        self.lib: Any = warp
        self.folder = Path(tempfile.mkdtemp())

    def compile(self, text: str, name: str) -> Any:
        path = self.folder / f"{name}.py"
        path.write_text("import warp as wp\n\n@wp.kernel\n" + text)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return getattr(module, name)


System = Kernelab | Warp


def arrays(lib: Any, size: str) -> list[Any]:
    """The arguments of a kernel of `programs`, of which `N` threads run."""
    rng = np.random.default_rng(1)
    y = lib.zeros(N, dtype=float, requires_grad=True)
    if size == "4 operations":
        return [lib.array(rng.random(N, np.float32), dtype=float, requires_grad=True), y]
    p = lib.array(rng.random((N + 1, 3), np.float32), dtype=lib.vec3, requires_grad=True)
    q = lib.array(rng.random((N, 3, 3), np.float32), dtype=lib.mat33, requires_grad=True)
    return [p, q, y]


def latency(system: System, text: str, name: str, size: str) -> dict[str, float]:
    """Milliseconds from the text of a new kernel to its first launch, and to its first gradient."""
    lib, arguments = system.lib, arrays(system.lib, size)
    seed = lib.full(N, 1.0, dtype=float)
    start = time.perf_counter()
    kernel = system.compile(text, name)
    with lib.Tape() as tape:
        lib.launch(kernel, dim=N, inputs=arguments)
    launched = time.perf_counter()
    tape.backward(grads={arguments[-1]: seed})
    end = time.perf_counter()
    return {"first launch": 1e3 * (launched - start), "with adjoint": 1e3 * (end - start)}


def overhead(system: System) -> dict[str, float]:
    """Microseconds a launch: alone, recorded, and in backward, for a kernel that does next to nothing."""
    lib = system.lib
    name = "overhead_kernel"
    arguments = ", ".join(f"{argument}: wp.array[float]" for argument in "abc")
    text = f"def {name}({arguments}, s: float):\n    i = wp.tid()\n    c[i] = a[i] * s + b[i]\n"
    kernel = system.compile(text, name)
    a, b, c = (lib.ones(N, dtype=float, requires_grad=True) for _ in range(3))
    seed = lib.full(N, 1.0, dtype=float)

    def launch() -> None:
        lib.launch(kernel, dim=N, inputs=[a, b, c, 2.0])

    _repeat(launch, 100)
    alone = _repeat(launch, LAUNCHES)
    tape = lib.Tape()
    with tape:
        recorded = _repeat(launch, LAUNCHES)
    start = time.perf_counter()
    tape.backward(grads={c: seed})
    backward = (time.perf_counter() - start) / LAUNCHES
    return {"launch": 1e6 * alone, "record": 1e6 * recorded, "backward": 1e6 * backward}


def _repeat(action: Callable[[], None], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        action()
    return (time.perf_counter() - start) / times


def main() -> None:
    system: System = Kernelab() if sys.argv[1] == "kernelab" else Warp()
    print(json.dumps({"version": system.lib.__version__}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        measure = request.pop("measure")
        result = latency(system, **request) if measure == "latency" else overhead(system)
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
