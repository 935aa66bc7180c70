"""The core: what works with NumPy alone, without a compiler or threads, and what is said of what does not."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kernelab as kl
from kernelab.backend.common import build_cache, compiler

ROOT = Path(__file__).resolve().parent.parent

ALONE = """
import subprocess, sys, threading, warnings
import numpy
sys.platform = "SYSTEM"
notebook = "IPython ipywidgets anywidget traitlets comm ipykernel"
for name in (notebook + " matplotlib ml_dtypes scipy cuda PIL platformdirs").split():
    sys.modules[name] = None  # from here on, importing it raises ImportError

def refuse(self):
    raise RuntimeError("can't start new thread")

def start_nothing(*command, **options):
    raise OSError("no processes here")

threading.Thread.start = refuse
subprocess.Popen = start_nothing
warnings.simplefilter("error")
warnings.filterwarnings("ignore", message="there is no C")
import kernelab as kl

def told(act):
    try:
        act()
    except kl.KernelError as problem:
        print(type(problem).__name__, str(problem).replace(chr(10), ";"))

kernels = kl.compile('''
def square(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]

def growing(x: array[float], y: array[float]):
    i = tid()
    s = x[i]
    while s < 100.0:
        s = s * s
    y[i] = s
''')
x = kl.array([2.0, 3.0], dtype=float, requires_grad=True)
y = kl.zeros(2, requires_grad=True)
"""
"""The beginning of a program that has nothing but NumPy, and where no process and no thread starts."""


def alone(text: str, system: str = sys.platform) -> list[str]:
    """The lines that the rest of that program prints, without a compiler."""
    command = [sys.executable, "-c", ALONE.replace("SYSTEM", system) + text]
    environment = {"PATH": "", "PYTHONPATH": str(ROOT), "HOME": os.environ.get("HOME", "/")}
    if "SYSTEMROOT" in os.environ:  # Python does not start on Windows without it
        environment["SYSTEMROOT"] = os.environ["SYSTEMROOT"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


@pytest.mark.parametrize("system", [sys.platform, "emscripten"], ids=["here", "in a browser"])
def test_kernels_tapes_and_their_pictures_need_numpy_alone(system: str) -> None:
    text = """
for kernel in kernels.values():
    with kl.Tape() as tape:
        kl.launch(kernel, dim=2, inputs=[x], outputs=[y])
    tape.backward(grads={y: kl.ones_like(y)})
    print(x.grad.list())
    x.grad.zero_()
print(sorted(tape._repr_mimebundle_()))
print(bool(kl.autograd.gradcheck(kernels["square"], 2, inputs=[x], outputs=[y])))
print(kl.func.grad(lambda t: t * t * t)(2.0))
"""
    found = alone(text, system)
    assert found[:3] == [
        "[4.0, 6.0]",
        "[1024.0, 17496.0]",
        "['image/svg+xml', 'text/html', 'text/plain']",
    ]
    assert found[-2:] == ["True", "12.0"]


def test_what_needs_another_package_names_it_and_how_to_get_it() -> None:
    found = alone("""
jacobian = kl.autograd.jacobian(kernels["square"], 2, inputs=[x], outputs=[y])
print("here")
told(lambda: kl.zeros(2, dtype=kl.bfloat16))
told(lambda: kl.bfloat16(1.0))
told(lambda: kl.compile("def k(x: array[bfloat16]):\\n    x[0] = bfloat16(1.5)"))
told(lambda: next(iter(jacobian.values())).tocsr())
told(lambda: kl.autograd.jacobian_plot(jacobian))
""")
    brain = "MissingPackageError bfloat16 needs the package ml_dtypes, which is not installed"
    *brains, matrix, plot = found[found.index("here") + 1 :]
    assert [line.partition(";")[0] for line in brains] == [brain] * 3
    assert all("pip install 'kernelab[bfloat16]'" in line for line in brains)
    assert "needs the package scipy" in matrix
    assert "pip install 'kernelab[sparse]'" in matrix
    assert "a plot needs the package matplotlib" in plot
    assert "pip install 'kernelab[jupyter]'" in plot


# ------------------------------------------------------------------------------------------ other systems


@pytest.mark.parametrize(
    ("system", "variables", "folder"),
    [
        ("linux", {"XDG_CACHE_HOME": "/caches"}, "/caches/kernelab"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "/home/ada/.cache/kernelab"),
        ("linux", {}, "/home/ada/.cache/kernelab"),
        ("darwin", {"XDG_CACHE_HOME": "/caches"}, "/home/ada/Library/Caches/kernelab"),
        ("win32", {"LOCALAPPDATA": "/ada/AppData/Local"}, "/ada/AppData/Local/kernelab/Cache"),
    ],
)
def test_the_cache_is_where_a_system_keeps_caches(
    system: str, variables: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KERNELAB_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"HOME": "/home/ada"} | variables).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", system)
    assert build_cache.cache_dir() == Path(folder)


@pytest.mark.parametrize(
    ("program", "typed"),
    [("dnf", "sudo dnf install gcc-c++"), ("apk", "sudo apk add g++"), ("brew", "brew install gcc")],
)
def test_advice_on_a_compiler_names_the_package_manager_that_is_there(
    program: str, typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / program).touch(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    assert compiler.advice().endswith(typed)


def test_in_an_environment_of_conda_it_is_conda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for program in ("apt-get", "conda"):
        (tmp_path / program).touch(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path))
    assert compiler.advice().endswith("conda install -c conda-forge cxx-compiler")


@pytest.mark.parametrize(("system", "said"), [("win32", "WSL"), ("emscripten", "outside of it")])
def test_on_windows_and_in_a_browser_kernels_run_on_the_interpreter(
    system: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setenv("CXX", "g++")
    assert compiler.find_compiler() is None
    with pytest.raises(compiler.NoCompilerError, match=said):
        compiler.open_compiler()


def test_a_report_is_printed_where_standard_output_has_no_mark_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="cp1252", write_through=True))
    kl.teach.check(0.5, 0.5)
    assert written.getvalue().split() == b"+ the answer is right".split()


def test_the_interpreter_loads_where_a_system_has_no_fork() -> None:
    text = """
import ctypes, os, signal, subprocess, sys, tempfile
import numpy

del os.register_at_fork
load = ctypes.CDLL

def library(name, *rest):
    if name is None:
        raise TypeError("bad argument type for built-in operation")
    assert name in ("ucrtbase", "kernel32"), name
    return load(None, *rest)

ctypes.CDLL = library
sys.platform = "win32"
import kernelab as kl
y = kl.zeros(2)
kl.launch(kl.compile("def two(y: array[float]):\\n    y[tid()] = 2.0")["two"], dim=2, inputs=[y])
print(y.list(), kl.get_device())
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "KERNELAB_CACHE_DIR": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-c", text]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("[2.0, 2.0]")
