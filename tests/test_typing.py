"""Plain modules under type checkers: annotations and words are understood, and misspelt ones are errors."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import kernelab as kl
from tests.support import stubs

ROOT = Path(__file__).resolve().parent.parent

RELAXED = "# mypy: " + ", ".join(
    f"{name}=False"
    for name in (
        "disallow-untyped-defs",
        "disallow-incomplete-defs",
        "warn-return-any",
    )
)
"""What a module that is not strict asks of mypy."""

RIGHT = f"""{RELAXED}
import kernelab as kl
from kernelab.func import grad

@kl.struct
class Ball:
    place: kl.vec3
    mass: float

@kl.func
def spring(x: float, k: kl.float32 = 2.0) -> float:
    return 0.5 * k * x * x

@kl.func(name="other")
def wave(x: float) -> float:
    return kl.sin(x) + kl.PI

@kl.func_grad(wave)
def adj_wave(x: float, adj_ret: float):
    kl.adjoint[x] += kl.cos(x) * adj_ret

@kl.kernel(name="moves")
def move(p: kl.array[kl.vec3], m: kl.array2d[float], i: kl.array[int], dt: kl.float64, out: kl.array[float]):
    k = kl.tid()
    v = kl.vec3(1.0, 2.0, 3.0)
    p[k] = p[k] + v * dt
    v.x = kl.length(p[k])
    out[k] = m[k, 0] * kl.clamp(v[0], 0.0, 1.0) + spring(v.x)
    kl.atomic_add(out, 0, kl.dot(v, v))

def loss(x: kl.array) -> kl.array[float]:
    y = kl.zeros(3, dtype=kl.float32, requires_grad=True)
    kl.launch(move, dim=3, inputs=[x], outputs=[y])
    return y

with kl.Tape() as tape:
    loss(kl.ones(3, dtype=kl.vec3))
made: kl.array = kl.array([1.0, 2.0], dtype=float)
matrix: kl.array2d[float] = kl.array2d([[1.0]], dtype=float)
value = kl.func.grad(spring)(2.0) + grad(wave)(1.0) + kl.config.loop_memory
ball = Ball()
kl.utils.array_sum(made)
kl.types.vector(6, float)
kl.optim.SGD([made])
kl.autograd.gradcheck(move, 3, inputs=[made], outputs=[made])
kl.synchronize_device()
"""

WRONG = """
kl.sinn(1.0)
kl.zeross(3)
kl.func.gradd(abs)
kl.sin(1.0, 2.0)
"""


def checker(name: str) -> list[str]:
    """The command of mypy, or of a pyright that is there: it needs node."""
    if name == "mypy":
        # The settings of the package: its modules are taken from the cache that `make lint` has filled.
        return [sys.executable, "-m", "mypy", "--no-error-summary"]
    found = shutil.which("pyright")
    if found is None:
        pytest.skip("NOT RUN: no pyright. Type: npm install --global pyright")
    return [found, "--pythonpath", sys.executable]


@pytest.mark.parametrize("name", ["mypy", "pyright"])
def test_a_checker_understands_kernels_arrays_and_words_and_finds_misspelt_ones(
    name: str, tmp_path: Path
) -> None:
    checked = tmp_path / "checked.py"
    checked.write_text(RIGHT + WRONG, encoding="utf-8")
    if name == "pyright":  # it looks beside a module, and has no variable for other places
        (tmp_path / "kernelab").symlink_to(ROOT / "kernelab")
    place = ROOT if name == "mypy" else tmp_path
    told = subprocess.run(
        [*checker(name), str(checked)], cwd=place, capture_output=True, text=True, check=False
    )
    found = {int(line) for line in re.findall(r"checked\.py:(\d+)\b.*error", told.stdout)}
    first = (RIGHT + WRONG).splitlines().index("kl.sinn(1.0)") + 1
    assert found == set(range(first, first + 4)), told.stdout + told.stderr


@pytest.mark.parametrize(("name", "text"), [("words", stubs.stub), ("__init__", stubs.package)])
def test_the_stubs_are_current(name: str, text: Callable[[], str]) -> None:
    stub = ROOT / "kernelab" / f"{name}.pyi"
    assert stub.read_text(encoding="utf-8") == text(), "python -m tests.support.stubs"


def test_the_stub_has_every_name_of_the_package() -> None:
    listed = re.findall(r"'(\w+)'", stubs.stub().partition("__all__: list[str] = ")[2])
    faces = {
        "autograd",
        "distributed",
        "func",
        "interop",
        "optim",
        "teach",
        "types",
        "utils",
        "config",
        "__version__",
    }
    assert set(dir(kl)) - set(listed) - set(kl.__all__) <= faces
