"""One system under measurement, in a process of its own: reads a request a line, answers a line.

    python worker.py kernelab|"kernelab, all cores"|warp|numba|jax|c++

A request is JSON: {"measure": "kernel", "name": ...}, or the name of another function of `MEASURES` with its
arguments; an answer is JSON too, of numbers by row.  Every system does the same work by its own names.
"""

import contextlib
import ctypes
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kernels
import numpy as np
import simulations
from kernels import Work

N = 32
MANY = 10_000
LAUNCHES = 2000


class Kernelab:
    """kernelab: a cell is text.  On one core, as what it is compared with."""

    cores: int | None = 1

    def __init__(self) -> None:
        import kernelab

        self.lib: Any = kernelab
        self.lib.config.threads = self.cores

    def compile(self, text: str, name: str) -> Any:
        return self.lib.compile(text)[name]

    def compile_all(self, text: str) -> Any:
        return self.lib.compile(text)


class AllCores(Kernelab):
    """kernelab on all cores of the process."""

    cores = None


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
        return self.compile_all("@wp.kernel\n" + text, name)[name]

    def compile_all(self, text: str, name: str = "") -> Any:
        """All that a text defines, as a module of its own."""
        name = name or f"program_{len([*self.folder.iterdir()])}"
        path = self.folder / f"{name}.py"
        path.write_text("import warp as wp\n\n" + text)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # where annotations are looked up
        spec.loader.exec_module(module)
        return vars(module)


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
    """Microseconds a launch, alone, of many threads, recorded, and in backward, and of two operators."""
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
    tape.zero()
    large = [lib.ones(MANY, dtype=float, requires_grad=True) for _ in range(3)]

    def launch_many() -> None:
        lib.launch(kernel, dim=MANY, inputs=[*large, 2.0])

    _repeat(launch_many, 100)
    time.sleep(1)  # the while in which better code is built
    _repeat(launch_many, 100)
    many = _repeat(launch_many, LAUNCHES)

    def step() -> None:
        with lib.Tape() as own:
            launch()
        own.backward(grads={c: seed})
        own.zero()

    _repeat(step, 100)
    steps = _repeat(step, LAUNCHES)
    _repeat(lambda: a * 2.0 + b, 100)
    operators = _repeat(lambda: a * 2.0 + b, LAUNCHES)
    found = {"launch": alone, "many": many, "record": recorded, "backward": backward, "step": steps}
    found["operators"] = operators
    return {what: 1e6 * seconds for what, seconds in found.items()}


def _repeat(action: Callable[[], object], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        action()
    return (time.perf_counter() - start) / times


# ------------------------------------------------------------------------------------- throughput of kernels


class Runs:
    """A kernel ready to run: `primal` and `adjoint` are timed, `clear` sets gradients to zero before."""

    def __init__(
        self,
        primal: Callable[[], Any],
        adjoint: Callable[[], Any],
        clear: Callable[[], Any],
        gradients: Callable[[], dict[str, Any]],
    ) -> None:
        self.primal, self.adjoint, self.clear, self.gradients = primal, adjoint, clear, gradients


def of_arrays(system: System, work: Work) -> Runs:
    """A kernel of kernelab or Warp, recorded once; its backward pass is what is timed."""
    lib, given = system.lib, work.arguments
    kernel = system.compile(kernels.texts()[work.name], work.name)
    arrays = {name: _array(lib, value) for name, value in given.items() if isinstance(value, np.ndarray)}
    inputs = [arrays.get(name, value) for name, value in given.items()]
    seed = _array(lib, work.seed)

    def primal() -> None:
        lib.launch(kernel, dim=work.dim, inputs=inputs)

    with lib.Tape() as tape:
        primal()

    def clear() -> None:
        for name in work.active:
            if arrays[name].grad is not None:
                arrays[name].grad.zero_()

    def adjoint() -> None:
        tape.backward(grads={arrays["z"]: seed})

    return Runs(primal, adjoint, clear, lambda: {name: arrays[name].grad.numpy() for name in work.active})


def of_program(system: System, title: str, shrink: int) -> Runs:
    """A program of `simulations`, recorded once."""
    lib, work = system.lib, simulations.ready(system, title, shrink)
    rng, tape, seeds = np.random.default_rng(1), lib.Tape(), {}
    for result in work.made:
        like = result.numpy()
        seeds[result] = lib.array(rng.random(like.shape).astype(like.dtype), dtype=result.dtype)
    with tape:
        work.primal()

    def gradients() -> dict[str, Any]:
        arrays = {f"{k}": one for k, one in enumerate(work.given) if getattr(one, "grad", None) is not None}
        found = {name: one.grad.numpy() for name, one in arrays.items()}
        return {name: one.view(np.float32) if one.dtype.names else one for name, one in found.items()}

    return Runs(work.primal, lambda: tape.backward(grads=seeds), tape.zero, gradients)


def _array(lib: Any, value: Any) -> Any:
    if value.dtype == np.int32:
        return lib.array(value, dtype=int)
    dtype = lib.vec3 if value.ndim == 2 and value.shape[1] == 3 else float
    return lib.array(value, dtype=dtype, requires_grad=True)


class ByHand:
    """What computes a kernel and its adjoint by hand, on NumPy's arrays."""

    def runs(self, work: Work) -> Runs | None:
        """The kernel ready to run; None where nobody wrote it."""
        primal, adjoint = self.functions(work)
        if primal is None:
            return None
        given = [*work.arguments.values()]
        bars = {name: np.zeros_like(work.arguments[name]) for name in work.active}

        def clear() -> None:
            for bar in bars.values():
                bar.fill(0)

        return Runs(
            lambda: primal(*given),
            lambda: adjoint(*given[:-1], *bars.values(), work.seed),
            clear,
            lambda: bars,
        )

    def functions(self, work: Work) -> tuple[Any, Any]:
        """The two functions."""
        raise NotImplementedError


class Cxx(ByHand):
    """C++ by hand, one thread."""

    def __init__(self) -> None:
        source, self.path = (
            Path(__file__).with_name("handwritten.cpp"),
            Path(tempfile.mkdtemp()) / "by_hand.so",
        )
        options = ["-O3", "-march=native", "-shared", "-fPIC", "-o", str(self.path), str(source)]
        subprocess.run([os.environ.get("CXX", "g++"), *options], check=True)
        self.library = ctypes.CDLL(str(self.path))
        lines = subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True).stdout
        self.version = lines.splitlines()[0].split()[-1]

    def functions(self, work: Work) -> tuple[Any, Any]:
        return tuple(self._function(name, work.dim) for name in (work.name, f"{work.name}_adjoint"))

    def _function(self, name: str, dim: tuple[int, ...]) -> Callable[..., None]:
        run, extents = self.library[name], [ctypes.c_long(extent) for extent in dim]
        return lambda *given: run(*extents, *map(_pointer, given))


def _pointer(given: Any) -> Any:
    return given if isinstance(given, int) else ctypes.c_void_p(given.ctypes.data)


class Numba(ByHand):
    """numba, one thread."""

    def __init__(self) -> None:
        import by_numba
        import numba

        self.module, self.version = by_numba, numba.__version__

    def functions(self, work: Work) -> tuple[Any, Any]:
        return tuple(getattr(self.module, name, None) for name in (work.name, f"{work.name}_adjoint"))


class Jax:
    """JAX on the CPU, compiled; its adjoint computes the primal again, as `jax.vjp` does."""

    def __init__(self) -> None:
        import by_jax
        import jax

        self.jax, self.module, self.version = jax, by_jax, jax.__version__

    def runs(self, work: Work) -> Runs:
        """The kernel ready to run."""
        jax, function = self.jax, getattr(self.module, work.name)
        given = {name: value for name, value in work.arguments.items() if name != "z"}
        fixed = {name: value for name, value in given.items() if isinstance(value, int)}
        arrays = {name: jax.numpy.asarray(value) for name, value in given.items() if name not in fixed}
        active = {name: arrays.pop(name) for name in work.active}
        seed = jax.numpy.asarray(work.seed)
        found: dict[str, Any] = {}

        @jax.jit
        def primal(active: Any, others: Any) -> Any:
            return function(**active, **others, **fixed)

        @jax.jit
        def adjoint(active: Any, others: Any, seed: Any) -> Any:
            return jax.vjp(lambda some: function(**some, **others, **fixed), active)[1](seed)[0]

        def pull() -> None:
            found.update(jax.block_until_ready(adjoint(active, arrays, seed)))

        return Runs(
            lambda: jax.block_until_ready(primal(active, arrays)), pull, lambda: None, lambda: dict(found)
        )


class Throughput:
    """The kernel that is measured now; another one takes its place."""

    def __init__(self, system: Any) -> None:
        self.system = system
        self.name = ""
        self.runs: Runs | None = None

    def __call__(self, name: str, shrink: int = 1) -> dict[str, Any]:
        """Milliseconds of the primal and the adjoint; at first some of the gradients of a kernel instead."""
        first = name != self.name
        if first:
            self.name, self.runs = name, None
            if name in simulations.TEXTS:
                self.runs = of_program(self.system, name, shrink)
            else:
                work = kernels.work(name, shrink)
                by_hand = not isinstance(self.system, Kernelab | Warp)
                self.runs = self.system.runs(work) if by_hand else of_arrays(self.system, work)
        if self.runs is None:
            return {}
        if first:
            for _ in range(3):
                self.runs.primal()
                self.runs.clear()
                self.runs.adjoint()
            gradients = self.runs.gradients()
            return {"gradients": {key: _some(np.asarray(value)) for key, value in gradients.items()}}
        primal, adjoint = _settled(self.runs.primal), _settled(self.runs.adjoint, self.runs.clear)
        return {"primal": 1e3 * primal, "adjoint": 1e3 * adjoint}


def _settled(action: Callable[[], None], before: Callable[[], None] = lambda: None) -> float:
    """The median seconds of the calls that 30 ms leave time for: the first one alone meets cold caches."""
    times, start = [], time.perf_counter()
    while not times or time.perf_counter() - start < 0.03:
        before()
        times.append(_repeat(action, 1))
    return statistics.median(times)


def _some(values: Any) -> list[float]:
    flat = values.reshape(-1)
    return [float(value) for value in flat[:: max(1, len(flat) // 50)]]


# ------------------------------------------------------------------------------------------------- tapes

STEP = """
def step(x: wp.array[float], y: wp.array[float]):
    i = wp.tid()
    y[i] = wp.sin(x[i]) + 0.5 * x[i]
"""


def chain(system: System, launches: int, kind: str) -> dict[str, Any]:
    """Microseconds a launch to record and to go back through a chain, and the kilobytes that it keeps.

    With `kind` "new" every array is made in the loop, "made" beforehand; "two" goes to and fro between two.
    """
    lib, kernel = system.lib, system.compile(STEP, "step")

    def made() -> Any:
        return lib.zeros(16, dtype=float, requires_grad=True)

    with lib.Tape() as warm:
        x, y = made(), made()
        lib.launch(kernel, dim=16, inputs=[x, y])
    warm.backward(grads={y: lib.full(16, 1.0, dtype=float)})
    before = _resident()
    arrays = [made() for _ in range({"new": 0, "made": launches + 1, "two": 2}[kind])]
    x = arrays[0] if arrays else made()
    start = time.perf_counter()
    with lib.Tape() as tape:
        for k in range(launches):
            y = arrays[(k + 1) % len(arrays)] if arrays else made()
            lib.launch(kernel, dim=16, inputs=[x, y])
            x = y
    recorded = time.perf_counter()
    tape.backward(grads={x: lib.full(16, 1.0, dtype=float)})
    end = time.perf_counter()
    record, backward = (1e6 * seconds / launches for seconds in (recorded - start, end - recorded))
    return {"record": record, "backward": backward, "memory": (_resident() - before) / launches}


def _resident() -> float:
    """The memory of the process in kilobytes."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1000


# ------------------------------------------------------------------------------------- first calls of tools

TOOLS = """
def band(x: wp.array[float], y: wp.array[float]):
    i = wp.tid()
    s = 2.0 * wp.sin(x[i])
    if i > 0:
        s = s + x[i - 1] * x[i]
    if i < x.shape[0] - 1:
        s = s - x[i + 1] * x[i]
    y[i] = s

def total(x: wp.array[float], y: wp.array[float]):
    wp.atomic_add(y, 0, x[wp.tid()])

def cube(x: float):
    return x * x * x

@wp.func_grad(cube)
def adjoint_cube(x: float, adj_ret: float):
    wp.adjoint[x] += 3.0 * x * x * adj_ret

def ruled(x: wp.array[float], y: wp.array[float]):
    i = wp.tid()
    y[i] = cube(x[i])
"""


def jacobian(system: Kernelab, n: int) -> dict[str, Any]:
    """Milliseconds of the first and of a repeated sparse Jacobian of three bands."""
    lib, band = system.lib, system.lib.compile(TOOLS)["band"]
    find = lib.autograd.jacobian
    x = lib.array(np.random.default_rng(1).random(n, np.float32), dtype=float, requires_grad=True)
    y = lib.zeros(n, dtype=float, requires_grad=True)

    def run() -> None:
        (found,) = find(band, dim=n, inputs=[x], outputs=[y], sparse=True).values()
        assert found.nnz == 3 * n - 2

    return {"first": 1e3 * _repeat(run, 1), "repeated": 1e3 * min(_repeat(run, 1) for _ in range(3))}


def checks(system: System) -> dict[str, Any]:
    """Milliseconds of the first checks of small launches."""
    lib, found = system.lib, dict[str, Any]()
    step, more = (system.compile(STEP.replace("step", name), name) for name in ("first_step", "more_steps"))
    total = TOOLS.split("\n\n")[1] + "\n"
    x, y, z, one = (lib.full(size, 0.5, dtype=float, requires_grad=True) for size in (8, 8, 8, 1))
    with lib.Tape() as tape:
        lib.launch(step, dim=8, inputs=[x], outputs=[y])
        lib.launch(more, dim=8, inputs=[y], outputs=[z])
        lib.launch(system.compile(total, "total"), dim=8, inputs=[z], outputs=[one])
    quiet = {"show_summary": False}
    if isinstance(system, Warp):
        from warp import autograd
    else:
        autograd = lib.autograd
    start = time.perf_counter()
    with contextlib.suppress(ValueError):  # Warp raises where its differences are too coarse
        autograd.gradcheck_tape(tape, **quiet)
    found["gradcheck_tape of three launches"] = 1e3 * (time.perf_counter() - start)
    if isinstance(system, Kernelab):
        ruled = lib.compile(TOOLS)["ruled"]
        found["taylor_test"] = 1e3 * _repeat(lambda: autograd.taylor_test(step, 8, [x], [y], **quiet), 1)
        found["gradcheck with a rule"] = 1e3 * _repeat(
            lambda: autograd.gradcheck(ruled, 8, [x], [y], **quiet), 1
        )
    return found


def statements(system: System, count: int) -> dict[str, Any]:
    """Milliseconds of the front end, first launch and first backward of a kernel of so many statements."""
    lines = [
        "def many(x: wp.array[float], y: wp.array[float]):",
        "    i = wp.tid()",
        "    a = x[i]",
        "    b = 0.5 * a",
    ]
    forms = [
        "a = a * 0.99 + b * 0.01",
        "b = wp.sin(a) + b * 0.5",
        "a = a - b * a * 0.1",
        "b = b + wp.cos(a * b)",
    ]
    lines += [f"    {forms[k % len(forms)]}" for k in range(count - 5)]
    lines += [f"    y[i] = a + {np.random.default_rng().random()} * b", ""]
    lib = system.lib
    x, y = (lib.full(N, 0.5, dtype=float, requires_grad=True) for _ in range(2))
    start = time.perf_counter()
    kernel = system.compile("\n".join(lines), "many")
    lowered = time.perf_counter()
    with lib.Tape() as tape:
        lib.launch(kernel, dim=N, inputs=[x, y])
    launched = time.perf_counter()
    tape.backward(grads={y: lib.full(N, 1.0, dtype=float)})
    end = time.perf_counter()
    return {
        "front end": 1e3 * (lowered - start),
        "first launch": 1e3 * (launched - lowered),
        "backward": 1e3 * (end - launched),
    }


SYSTEMS = {
    "kernelab": Kernelab,
    "kernelab, all cores": AllCores,
    "warp": Warp,
    "numba": Numba,
    "jax": Jax,
    "c++": Cxx,
}
MEASURES: dict[str, Callable[..., dict[str, Any]]] = {
    measure.__name__: measure for measure in (latency, overhead, chain, jacobian, checks, statements)
}


def main() -> None:
    system = SYSTEMS[sys.argv[1]]()
    throughput = Throughput(system)
    print(json.dumps({"version": getattr(system, "version", None) or system.lib.__version__}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        measure = request.pop("measure")
        with contextlib.redirect_stdout(sys.stderr):
            result = throughput(**request) if measure == "kernel" else MEASURES[measure](system, **request)
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
