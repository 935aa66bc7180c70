"""The compiler: which one is called, and what becomes of its complaints."""

import fcntl
import os
import signal
import subprocess
import sys
import warnings
from itertools import chain
from pathlib import Path

import pytest

from kernelab.backend.common import backends, compiler
from kernelab.backend.common.compiler import (
    CompilerError,
    NoCompilerError,
    find_compiler,
    open_compiler,
)
from kernelab.backend.common.tiered import Pending
from kernelab.backend.cpu.cpu_backend import CpuBackend
from kernelab.codegen.cpp.entry import Line, Unit
from kernelab.errors import BuildError, KernelError, KernelWarning
from tests.codegen import kernels
from tests.codegen.writer import LINE


def test_the_compiler_is_the_one_that_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "my-c++ --fast")
    assert find_compiler() == "my-c++ --fast"
    monkeypatch.setenv("KERNELAB_CXX", "other-c++")
    assert find_compiler() == "other-c++"


def test_an_empty_variable_names_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("KERNELAB_CXX", "")
    assert find_compiler() not in (None, "")


@pytest.mark.parametrize("variable", ["KERNELAB_CXX", "CXX"])
def test_a_named_compiler_that_does_not_exist_is_an_error_that_names_the_variable(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KERNELAB_CXX", raising=False)
    monkeypatch.setenv(variable, "no-such-compiler")
    with pytest.raises(BuildError, match=f"{variable} is set to `no-such-compiler`.*No such file"):
        CpuBackend().build([kernels.saxpy().function])


def test_a_named_compiler_that_fails_is_an_error_that_names_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KERNELAB_CXX", "false")
    with pytest.raises(BuildError, match="KERNELAB_CXX is set to `false`, which does not work"):
        CpuBackend().build([kernels.saxpy().function])


def test_without_a_compiler_the_interpreter_serves_after_one_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for variable in ("KERNELAB_CXX", "CXX"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    backends._warn_that_there_is_no_compiler.cache_clear()
    with pytest.raises(NoCompilerError, match="no C\\+\\+ compiler"):
        CpuBackend().build([kernels.saxpy().function])
    with pytest.warns(KernelWarning, match="apt-get install g\\+\\+"):
        assert backends.default() == "interp"
    assert backends.default() == "interp"


def test_the_default_is_the_compiler_where_there_is_one() -> None:
    assert backends.default() == "cpu"
    assert backends.get("cpu").name == "cpu"


def test_an_unknown_backend_is_an_error_that_names_those_there_are() -> None:
    with pytest.raises(BuildError, match=r"no backend 'gpu'(.|\n)*cpu, interp"):
        backends.get("gpu")


def test_a_complaint_of_the_compiler_names_the_line_of_the_cell(tmp_path: Path) -> None:
    unit = Unit((Line("int a;"), Line("  float b = nonsense;", LINE)), ())
    with pytest.raises(CompilerError) as caught:
        open_compiler().compile(unit, tmp_path / "x.so")
    text = str(caught.value)
    assert "was not declared" in text
    assert "Cell In[3], line 3" in text
    assert "float b = nonsense;" in text


def test_a_variable_that_another_thread_removes_meanwhile_fails_no_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = type(os.environ).__iter__
    monkeypatch.setattr(type(os.environ), "__iter__", lambda self: chain(names(self), ["REMOVED_MEANWHILE"]))
    open_compiler().compile(Unit((Line("int a;"),), ()), tmp_path / "x.so")
    assert (tmp_path / "x.so").exists()


def test_every_failure_of_a_build_is_a_kernel_error() -> None:
    assert issubclass(NoCompilerError, BuildError)
    assert issubclass(CompilerError, KernelError)


@pytest.mark.parametrize(("version", "is_gcc"), [("g++ 12.2.0", True), ("clang version 15", False)])
def test_gcc_keeps_registers_over_the_calls_of_loops(
    version: str, is_gcc: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = tmp_path / "cxx"
    command.write_text(f'#!/bin/sh\necho "{version}"\n')
    command.chmod(0o755)
    monkeypatch.setenv("KERNELAB_CXX", str(command))
    flags = open_compiler().flags
    assert ("-Og" in flags) == ("-fcaller-saves" in flags) == is_gcc
    assert ("-O2" in flags) != is_gcc


def compiler_script(folder: Path, body: str) -> str:
    """The path of a compiler that says its version, does what `body` says, and then compiles."""
    path = folder / "c++"
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec g++ --version\n{body}\nexec g++ "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_a_compiler_that_a_signal_ended_is_named_as_that_and_asked_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, empty_cache: Path
) -> None:
    mark = tmp_path / "mark"
    body = f"[ -e {mark} ] || {{ touch {mark}; kill -9 $$; }}"
    monkeypatch.setenv("KERNELAB_CXX", compiler_script(tmp_path, body))
    pending = Pending(lambda: CpuBackend().build([kernels.saxpy().function]))
    pending.run()
    with pytest.raises(BuildError, match="ended by a signal \\(SIGKILL\\)") as caught:
        pending.result()
    assert not isinstance(caught.value, CompilerError)
    assert "fault of kernelab" not in str(caught.value)
    assert "saxpy" in pending.result()


def test_a_compiler_that_hangs_is_stopped_with_all_that_it_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, empty_cache: Path
) -> None:
    lock = tmp_path / "lock"
    body = f"exec 9>{lock}; flock 9; sleep 600 & wait; exit 1"
    monkeypatch.setenv("KERNELAB_CXX", compiler_script(tmp_path, body))
    monkeypatch.setattr(compiler, "MOST_SECONDS", 0.2)
    with pytest.raises(BuildError, match=r"was stopped: it had not ended after 0.2 s") as caught:
        CpuBackend().build([kernels.saxpy().function])
    assert not isinstance(caught.value, CompilerError)
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


def test_a_compiler_that_does_not_say_its_version_is_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "c++"
    path.write_text("#!/bin/sh\nexec sleep 600\n")
    path.chmod(0o755)
    monkeypatch.setenv("KERNELAB_CXX", str(path))
    monkeypatch.setattr(compiler, "ANSWER_SECONDS", 0.2)
    with pytest.raises(BuildError, match=r"was stopped: it had not ended after 0.2 s"):
        open_compiler()


@pytest.mark.parametrize(
    ("body", "wrote"),
    [
        ("exit 0", "nothing"),
        ('while [ "$1" != -o ]; do shift; done; : > "$2"; exit 0', "nothing"),
        ('while [ "$1" != -o ]; do shift; done; echo text > "$2"; exit 0', "something that is not a library"),
    ],
)
def test_a_compiler_that_lies_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, empty_cache: Path, body: str, wrote: str
) -> None:
    monkeypatch.setenv("KERNELAB_CXX", compiler_script(tmp_path, body))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the cache is not to blame
        with pytest.raises(BuildError, match=f"reported success, and wrote {wrote}"):
            CpuBackend().build([kernels.saxpy().function])
    assert not [*empty_cache.glob("*.so")]


INTERRUPTED = """
import os, signal
os.setpgid(0, 0)
import kernelab as kl

kernel = kl.compile("def k(x: array[float], y: array[float]):\\n    y[tid()] = sin(x[tid()])\\n")["k"]
signal.signal(signal.SIGINT, lambda *_: print("interrupted", flush=True))
y = kl.zeros(1)
kl.launch(kernel, dim=1, inputs=[kl.ones(1)], outputs=[y])
print(y)
"""


def test_an_interrupt_of_the_terminal_does_not_reach_the_compiler(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, empty_cache: Path
) -> None:
    # The compiler interrupts the process group of the program, as Ctrl-C does, and then compiles.
    monkeypatch.setenv("KERNELAB_CXX", compiler_script(tmp_path, "kill -INT -$PPID"))
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("interrupted\n")
    assert "[0.84147" in done.stdout


def test_an_interrupted_build_leaves_no_compiler_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, empty_cache: Path
) -> None:
    # The compiler's own child inherits the file: it is unlocked when both have ended.  Once it has read the
    # text, whoever started the compiler waits for it.
    lock = tmp_path / "lock"
    body = f"cat >/dev/null; exec 9>{lock}; flock 9; kill -INT $PPID; sleep 600 & wait; exit 1"
    monkeypatch.setenv("KERNELAB_CXX", compiler_script(tmp_path, body))
    # A process in the background ignores interrupts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            CpuBackend().build([kernels.saxpy().function])
    finally:
        signal.signal(signal.SIGINT, before)
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
