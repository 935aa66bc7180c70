"""The compiler: which one is called, and what becomes of its complaints."""

from pathlib import Path

import pytest

from kernelab.backend.common import backends
from kernelab.backend.common.compiler import (
    CompilerError,
    NoCompilerError,
    find_compiler,
    open_compiler,
)
from kernelab.backend.cpu.cpu_backend import CpuBackend
from kernelab.codegen.common.entry import Line, Unit
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
