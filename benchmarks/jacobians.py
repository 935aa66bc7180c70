"""Measure Jacobians and gradient checks: kernelab beside Warp and, where its environment is given, JAX.

    python benchmarks/jacobians.py --warp-python PATH [--jax-python PATH] [--repeat N] [--write FILE]

Each system runs in a process of its own; all compute the same mathematics of fresh inputs, and every Jacobian
is compared with that of NumPy.  The first call builds everything with a cold cache; the second number
is the best of the calls after it, which may keep a sparsity pattern.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
SIZES = {"band": 4096, "diagonal": 4096, "dense": 1024, "check": 1024, "tape": 256, "hessian": 1000}

KERNELS = """
def band(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    s = wp.sin(x[i])
    if i > 0:
        s = s + x[i - 1] * x[i]
    if i < x.shape[0] - 1:
        s = s - x[i + 1] * x[i]
    y[i] = s

def diagonal(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = wp.sin(x[i]) * x[i]

def dense(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    s = float(0.0)
    for k in range(x.shape[0]):
        s = s + x[k] * x[k] / (1.0 + float(i + k))
    y[i] = s

def rosenbrock(x: wp.array(dtype=float), s: wp.array(dtype=float)):
    i = wp.tid()
    a = x[i + 1] - x[i] * x[i]
    b = 1.0 - x[i]
    wp.atomic_add(s, 0, 100.0 * a * a + b * b)
"""


def inputs(n: int) -> Any:
    return np.random.default_rng().uniform(0.5, 1.5, n).astype(np.float32)


def expected(name: str, x: Any) -> Any:
    """The Jacobian, or Hessian, by NumPy in float64."""
    x, n = x.astype(np.float64), len(x)
    if name == "diagonal":
        return np.diag(np.cos(x) * x + np.sin(x))
    if name == "dense":
        return 2 * x[None, :] / (1.0 + np.arange(n)[:, None] + np.arange(n)[None, :])
    J = np.zeros((n, n))
    k = np.arange(n - 1)
    if name == "band":
        J[np.arange(n), np.arange(n)] = np.cos(x)
        J[k + 1, k + 1] += x[k]
        J[k + 1, k] += x[k + 1]
        J[k, k] -= x[k + 1]
        J[k, k + 1] -= x[k]
        return J
    J[k, k] += 1200 * x[k] ** 2 - 400 * x[k + 1] + 2
    J[k + 1, k + 1] += 200
    J[k, k + 1] -= 400 * x[k]
    J[k + 1, k] -= 400 * x[k]
    return J


def verify(name: str, found: Any, x: Any) -> None:
    right = expected(name, x)
    if not np.allclose(found, right, rtol=1e-3, atol=1e-3 * np.abs(right).max()):
        raise SystemExit(f"{name} is wrong by {np.abs(found - right).max()}")


# ------------------------------------------------------------------------------------------ systems


class Kernelab:
    """What each row is for kernelab: ``call(x)`` gives the matrix, or the truth of a check."""

    def __init__(self) -> None:
        import kernelab

        self.kl: Any = kernelab
        self.kernels = kernelab.compile(KERNELS, {"wp": kernelab})

    def rows(self) -> dict[str, tuple[str, Callable[[Any], Any]]]:
        return {
            "3-banded, n = 4096, sparse": ("band", lambda x: self.jacobian("band", x, True).tocsr()),
            "3-banded, n = 4096, dense": ("band", lambda x: self.jacobian("band", x, False).numpy()),
            "diagonal, n = 4096, sparse": ("diagonal", lambda x: self.jacobian("diagonal", x, True).tocsr()),
            "diagonal, n = 4096, dense": ("diagonal", lambda x: self.jacobian("diagonal", x, False).numpy()),
            "dense, n = 1024": ("dense", lambda x: self.jacobian("dense", x, False).numpy()),
            "gradcheck, 3-banded, n = 1024": ("check", self.check),
            "gradcheck, dense, n = 1024": ("check", lambda x: self.check(x, "dense")),
            "gradcheck_tape, two launches, n = 256": ("tape", self.check_tape),
            "Hessian of Rosenbrock, n = 1000": ("hessian", self.hessian),
        }

    def array(self, x: Any) -> Any:
        return self.kl.array(x, dtype=float, requires_grad=True)

    def jacobian(self, name: str, x: Any, sparse: bool) -> Any:
        n = len(x)
        outputs = [self.kl.zeros(n)]
        return self.kl.autograd.jacobian(self.kernels[name], n, [self.array(x)], outputs, sparse=sparse)[0, 0]

    def check(self, x: Any, name: str = "band") -> Any:
        given, outputs = [self.array(x)], [self.kl.zeros(len(x))]
        return self.kl.autograd.gradcheck(self.kernels[name], len(x), given, outputs, show_summary=False)

    def check_tape(self, x: Any) -> Any:
        n, given = len(x), self.array(x)
        y, z = self.kl.zeros(n, requires_grad=True), self.kl.zeros(n, requires_grad=True)
        with self.kl.Tape() as tape:
            self.kl.launch(self.kernels["band"], dim=n, inputs=[given], outputs=[y])
            self.kl.launch(self.kernels["diagonal"], dim=n, inputs=[y], outputs=[z])
        return self.kl.autograd.gradcheck_tape(tape, show_summary=False)

    def hessian(self, x: Any) -> Any:
        if not hasattr(self, "gradient"):
            self.gradient = self.kl.func.grad(self.energy)
        return self.kl.autograd.jacobian(self.gradient, inputs=[self.array(x)], sparse=True)[0, 0].tocsr()

    def energy(self, x: Any) -> Any:
        s = self.kl.zeros(1)
        self.kernels["rosenbrock"][x.shape[0] - 1](x, s)
        return s


class Warp:
    def __init__(self) -> None:
        import importlib.util

        import warp

        warp.config.quiet = True
        warp.config.kernel_cache_dir = tempfile.mkdtemp()
        warp.init()
        path = Path(tempfile.mkdtemp()) / "kernels.py"
        path.write_text("import warp as wp\n" + KERNELS.replace("\ndef ", "\n@wp.kernel\ndef "))
        spec = importlib.util.spec_from_file_location("kernels", path)
        assert spec is not None and spec.loader is not None
        self.kernels: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.kernels)
        self.wp: Any = warp
        self.wp_autograd: Any = __import__("warp.autograd").autograd

    def rows(self) -> dict[str, tuple[str, Callable[[Any], Any]]]:
        return {
            "3-banded, n = 4096, dense": ("band", lambda x: self.jacobian("band", x)),
            "diagonal, n = 4096, dense": ("diagonal", lambda x: self.jacobian("diagonal", x)),
            "dense, n = 1024": ("dense", lambda x: self.jacobian("dense", x)),
            "gradcheck, 3-banded, n = 1024": ("check", self.check),
            "gradcheck_tape, two launches, n = 256": ("tape", self.check_tape),
        }

    def arrays(self, x: Any) -> tuple[Any, Any]:
        given = self.wp.array(x, dtype=float, requires_grad=True)
        return given, self.wp.zeros(len(x), dtype=float, requires_grad=True)

    def jacobian(self, name: str, x: Any) -> Any:
        given, y = self.arrays(x)
        kernel = getattr(self.kernels, name)
        found = self.wp_autograd.jacobian(kernel, dim=len(x), inputs=[given], outputs=[y])
        return found[0, 0].numpy()

    def check(self, x: Any) -> Any:
        given, y = self.arrays(x)
        options = {"raise_exception": False, "show_summary": False}
        return self.wp_autograd.gradcheck(
            self.kernels.band, dim=len(x), inputs=[given], outputs=[y], **options
        )

    def check_tape(self, x: Any) -> Any:
        given, y = self.arrays(x)
        z = self.wp.zeros_like(y)
        tape = self.wp.Tape()
        with tape:
            self.wp.launch(self.kernels.band, dim=len(x), inputs=[given], outputs=[y])
            self.wp.launch(self.kernels.diagonal, dim=len(x), inputs=[y], outputs=[z])
        return self.wp_autograd.gradcheck_tape(tape, raise_exception=False, show_summary=False)


class Jax:
    def __init__(self) -> None:
        import jax
        import jax.numpy as jnp

        self.jax: Any = jax
        self.jnp: Any = jnp

    def rows(self) -> dict[str, tuple[str, Callable[[Any], Any]]]:
        jnp = self.jnp

        def band(x: Any) -> Any:
            inner = x[:-1] * x[1:]
            return jnp.sin(x) + jnp.pad(inner, (1, 0)) - jnp.pad(inner, (0, 1))

        def dense(x: Any) -> Any:
            k = jnp.arange(len(x))
            return (x[None, :] ** 2 / (1.0 + k[:, None] + k[None, :])).sum(1)

        def rosenbrock(x: Any) -> Any:
            return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()

        return {
            "3-banded, n = 4096, dense": ("band", self.compiled(self.jax.jacfwd(band))),
            "diagonal, n = 4096, dense": (
                "diagonal",
                self.compiled(self.jax.jacfwd(lambda x: jnp.sin(x) * x)),
            ),
            "dense, n = 1024": ("dense", self.compiled(self.jax.jacfwd(dense))),
            "Hessian of Rosenbrock, n = 1000": ("hessian", self.compiled(self.jax.hessian(rosenbrock))),
        }

    def compiled(self, f: Any) -> Callable[[Any], Any]:
        made = self.jax.jit(f)
        return lambda x: np.asarray(made(self.jnp.asarray(x)))


SYSTEMS: dict[str, Callable[[], Any]] = {"kernelab": Kernelab, "warp": Warp, "jax": Jax}


# ------------------------------------------------------------------------------------------ measuring


def measure(system: str, repeat: int) -> dict[str, Any]:
    """The first call and the best of the others, in milliseconds, and whether a check passed."""
    answers: dict[str, Any] = {}
    for row, (name, call) in SYSTEMS[system]().rows().items():
        times, verdict = [], True
        for _ in range(1 + repeat):
            x = inputs(SIZES[name])
            start = time.perf_counter()
            found = call(x)
            times.append(1e3 * (time.perf_counter() - start))
            if name in ("check", "tape"):
                verdict = verdict and bool(found)
            else:
                verify(name, found.toarray() if hasattr(found, "toarray") else found, x)
        answers[row] = {"first": times[0], "again": min(times[1:]), "passed": verdict}
    return answers


def ask(system: str, python: str, repeat: int) -> dict[str, Any]:
    environment = {**os.environ, "KERNELAB_CACHE_DIR": tempfile.mkdtemp(), "PYTHONPATH": str(HERE.parent)}
    command = [python, str(HERE / "jacobians.py"), "--worker", system, "--repeat", str(repeat)]
    text = subprocess.run(command, env=environment, check=True, text=True, stdout=subprocess.PIPE).stdout
    answer: dict[str, Any] = json.loads(text.splitlines()[-1])
    return answer


def markdown(answers: dict[str, dict[str, Any]]) -> str:
    systems = list(answers)
    lines = [
        "## Jacobians and gradient checks, first call and repeated call, ms",
        "",
        "Fresh inputs each time, results compared with NumPy's; the best of the repeated calls, on cores",
        "that had other work to do. Made by `python benchmarks/jacobians.py`.",
        "",
        "| | " + " | ".join(systems) + " |",
        "|---" * (1 + len(systems)) + "|",
    ]
    lines += [
        f"| {row} | " + " | ".join(_cell(answers[system].get(row)) for system in systems) + " |"
        for row in answers["kernelab"]
    ]
    return "\n".join(lines) + "\n"


def replaced(whole: str, section: str) -> str:
    """A text with its section on Jacobians replaced; what stands before and behind it stays."""
    before, _, rest = whole.partition("## Jacobians")
    behind = re.search(r"^##? ", rest, re.MULTILINE)
    parts = before.rstrip(), section.rstrip(), rest[behind.start() :].rstrip() if behind else ""
    return "\n\n".join(part for part in parts if part) + "\n"


def _cell(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    return f"{found['first']:.3g}, {found['again']:.3g}" + ("" if found["passed"] else ", a false FAIL")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--warp-python")
    parser.add_argument("--jax-python")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--write", type=Path, help="a file whose section on Jacobians is to be replaced")
    parser.add_argument("--worker", choices=SYSTEMS)
    given = parser.parse_args()
    if given.worker:
        print(json.dumps(measure(given.worker, given.repeat)))
        return
    pythons = {"kernelab": sys.executable, "warp": given.warp_python, "jax": given.jax_python}
    answers = {name: ask(name, python, given.repeat) for name, python in pythons.items() if python}
    text = markdown(answers)
    print(text)
    if given.write:
        given.write.write_text(replaced(given.write.read_text(), text))


if __name__ == "__main__":
    main()
