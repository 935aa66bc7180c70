"""Poison: the program that says where values turn computes what the program computes, and blames no other."""

from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import KernelTypeError
from kernelab.lang.types import is_differentiable
from kernelab.lang.verify import verify
from kernelab.passes.common.scalarise import scalarise
from kernelab.passes.common.shadow_values import poison
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.launch.call import Call, bind
from kernelab.runtime.launch.footprint import grid_of
from tests.support.zoo import ZOO, Animal


def kernel_of(animal: Animal) -> Kernel:
    kernel: Kernel = kl.compile(animal.text)[animal.name]
    return kernel


@pytest.mark.parametrize("animal", ZOO, ids=lambda animal: animal.name)
def test_primals_and_adjoints_stay_well_formed(animal: Animal) -> None:
    kernel = kernel_of(animal)
    verify(poison(scalarise(kernel.primal)).function)
    floats = [param.hint for param in kernel.primal.params if is_differentiable(param.type)]
    try:
        adjoint = kernel.vjp(floats).adjoint
    except KernelTypeError:
        return
    verify(poison(scalarise(adjoint)).function)


@pytest.mark.parametrize("name", ["saxpy", "spring"])
def test_finite_values_leave_no_marks_and_come_out_the_same(name: str) -> None:
    animal = next(animal for animal in ZOO if animal.name == name)
    kernel = kernel_of(animal)
    given = animal.draw(np.random.default_rng(1))
    plain, traced = ([_copied(value) for value in given.values()] for _ in range(2))
    kernel[animal.grid](*plain)
    parts = [grid_of(animal.grid).packed]
    bind(kernel, traced, parts)
    call = Call(kernel, grid_of(animal.grid), tuple(traced), tuple(parts))
    assert call.trace_by(kernel.program.tracing(), {}) is None
    for one, other in zip(plain, traced, strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-6)


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value
