"""A plugin of pytest that gathers, as CUDA text, every program that the tests build or could build.

Of each kernel that a test makes these are the primal, what reverse mode and forward mode derive of it, and
the tangent of its adjoint; besides, whatever the C++ compiler builds.  Programs with C++ of a user's are only
those that it builds: the mistakes in the others are meant.  Each text is a file, named after its content,
in the folder that ``KERNELAB_HARVEST`` names.  Knows the emitter; must not compile.
"""

import hashlib
import os
import warnings
from collections.abc import Iterator, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from kernelab.backend.cpu.cpu_backend import CpuBackend
from kernelab.backend.cuda.cuda_backend import MOST_SLOTS
from kernelab.codegen.cpp.cuda_target import Cuda
from kernelab.codegen.cpp.emitter import emit
from kernelab.errors import KernelError
from kernelab.lang.ir import Function, Native, walk
from kernelab.lang.types import is_differentiable
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.ad.vjp import vjp
from kernelab.passes.common.scalarise import scalarise
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.program import Program

VARIABLE = "KERNELAB_HARVEST"


class Harvest:
    """Kernels made since the last test, and where the texts go."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.kernels: list[Kernel] = []

    def add(self, function: Function) -> None:
        """Write down the text of a scalarised function; one with too many arguments is only counted."""
        unit = emit([function], Cuda())
        end = ".refused" if unit.entries[0].layout.slots > MOST_SLOTS else ".cu"
        name = hashlib.sha256(unit.text.encode()).hexdigest()[:32]
        self._folder.joinpath(name + end).write_text(unit.text)

    def derive(self, unread: bool = False) -> None:
        """Write down the programs of the kernels that were made, as far as the language has them.

        Those whose text nobody has read yet may still have to warn a test; their turn comes with `unread`.
        """
        made, self.kernels = self.kernels, []
        for kernel in made:
            if not unread and "loaded" not in vars(kernel):
                self.kernels.append(kernel)
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for program in _programs(kernel):
                    if not any(isinstance(stmt, Native) for stmt in walk(program.body)):
                        self.add(scalarise(program))


def _programs(kernel: Kernel) -> Iterator[Function]:
    """The programs of a kernel; a mistake of the user's, or a missing derivative, ends the row."""
    try:
        if kernel.is_generic:
            return
        yield kernel.primal
        active = [param.hint for param in kernel.primal.params if is_differentiable(param.type)]
        if not active or not kernel.has_backward:
            return
        reverse = vjp(kernel.laid_out, active)
        yield Program(reverse.primal).flat
        yield Program(reverse.adjoint).flat
        yield Program(jvp(kernel.laid_out, active)).flat
        inputs = [param.hint for param in reverse.adjoint.params if is_differentiable(param.type)]
        yield Program(jvp(Program(reverse.adjoint).flat, inputs)).flat
    except KernelError:
        return


def pytest_configure(config: pytest.Config) -> None:
    folder = os.environ.get(VARIABLE)
    if not folder:
        raise pytest.UsageError(f"{VARIABLE} names the folder for the texts: run `make test-nvrtc`")
    harvest = Harvest(Path(folder))
    begin, build = Kernel._begin, CpuBackend.build

    @wraps(begin)
    def noted(self: Kernel, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        harvest.kernels.append(self)

    @wraps(build)
    def built(self: CpuBackend, functions: Sequence[Function], threads: int = 0) -> Any:
        made = build(self, functions, threads)
        for function in functions:
            harvest.add(function)
        return made

    setattr(Kernel, "_begin", noted)  # noqa: B010 (a method is replaced)
    setattr(CpuBackend, "build", built)  # noqa: B010
    config.pluginmanager.register(_Teardown(harvest))


class _Teardown:
    def __init__(self, harvest: Harvest) -> None:
        self._harvest = harvest

    def pytest_runtest_teardown(self) -> None:
        self._harvest.derive()

    def pytest_sessionfinish(self) -> None:
        self._harvest.derive(unread=True)
