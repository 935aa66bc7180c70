"""Kernels that call functions with custom derivatives, built and launched.

Every one passes the gradient check.
"""

from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.backend.cuda.nvrtc import compile_to_ptx
from kernelab.codegen.cpp.cuda_target import Cuda
from kernelab.codegen.cpp.emitter import emit
from kernelab.lang.ir import Function
from kernelab.passes.common.scalarise import scalarise
from kernelab.runtime.kernel.kernel import Kernel
from tests.passes.test_custom import KERNELS, SURROGATE


def kernel_of(text: str) -> Kernel:
    kernel = kl.compile(text)["k"]
    assert isinstance(kernel, Kernel)
    return kernel


def arguments(kernel: Kernel) -> list[Any]:
    rng = np.random.default_rng(2)
    made: list[Any] = []
    for parameter in kernel.plan.parameters:
        if parameter.name == "c":
            made.append(kl.array([1, 0, 2, 1], dtype=int))
        elif parameter.name in ("v", "w"):
            made.append(kl.array(rng.uniform(0.1, 1.0, (4, 3)), dtype=kl.vec3, requires_grad=True))
        else:
            made.append(kl.array(rng.uniform(0.1, 1.0, 4), dtype=float, requires_grad=True))
    return made


@pytest.mark.parametrize("text", KERNELS.values(), ids=KERNELS.keys())
def test_a_kernel_passes_the_gradient_check(text: str) -> None:
    kernel = kernel_of(text)
    assert kl.autograd.gradcheck(kernel, 4, arguments(kernel), [], show_summary=False)


def test_a_surrogate_fails_the_gradient_check_of_its_kernel() -> None:
    kernel = kernel_of(SURROGATE)
    with pytest.raises(kl.GradientError):
        kl.autograd.gradcheck(kernel, 4, arguments(kernel), [], show_summary=False)


def programs(text: str) -> list[Function]:
    kernel = kernel_of(text)
    names = [p.hint for p in kernel.primal.params if p.hint != "c"]
    reverse = kernel.vjp(names)
    return [kernel.primal, reverse.primal, reverse.adjoint, kernel.jvp(names)]


@pytest.mark.long
@pytest.mark.nvrtc
def test_every_program_compiles_for_cuda() -> None:
    for text in KERNELS.values():
        primal, augmented, *derived = map(scalarise, programs(text))
        for functions in ([primal, *derived], [augmented]):
            assert compile_to_ptx(emit(functions, Cuda()).text).count(".visible .entry") == len(functions)
