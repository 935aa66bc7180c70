"""Checks interpret their float64 programs where that is faster than to build them."""

from collections.abc import Sequence
from typing import Any

import pytest

import kernelab as kl
from kernelab.autodiff.transforms import base_level
from kernelab.backend.common.backends import Entry
from kernelab.backend.common.tiered import AHEAD
from kernelab.backend.cpu.cpu_backend import CpuBackend
from kernelab.lang.ir import Function

TEXT = """
def waves(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i] + sin(x[i])

def total(y: array[float], l: array[float]):
    atomic_add(l, 0, y[tid()])

def cube(x: float):
    return x * x * x

@func_grad(cube)
def adj_cube(x: float, adj_ret: float):
    adjoint[x] += 3.0 * x * x * adj_ret

def ruled(x: array[float], y: array[float]):
    i = tid()
    y[i] = cube(x[i])

def repeated(x: array[float], times: int, y: array[float]):
    i = tid()
    s = x[i]
    for k in range(times):
        s = 0.5 * s * s
    y[i] = s
"""


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the functions that are built."""
    AHEAD.wait()  # what earlier tests have begun
    names: list[str] = []
    build = CpuBackend.build

    def noted(self: CpuBackend, functions: Sequence[Function], threads: int = 0) -> dict[str, Entry]:
        names.extend(function.name for function in functions)
        return build(self, functions, threads)

    monkeypatch.setattr(CpuBackend, "build", noted)
    return names


def pair(n: int = 3) -> tuple[Any, Any]:
    return kl.full(n, 0.7, dtype=float, requires_grad=True), kl.zeros(n, dtype=float, requires_grad=True)


def in_float64(names: list[str]) -> list[str]:
    return [name for name in names if "float64" in name]


def test_a_check_of_a_tape_builds_nothing_but_what_the_tape_runs(built: list[str]) -> None:
    kernels = kl.compile(TEXT)
    (x, y), loss = pair(), kl.zeros(1, dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernels["waves"], 3, [x], [y])
        kl.launch(kernels["total"], 3, [y], [loss])
    assert kl.autograd.gradcheck_tape(tape, show_summary=False)
    assert {*built} <= {"waves", "waves_adjoint", "total", "total_adjoint"}


@pytest.mark.parametrize("name", ["waves", "ruled"])
def test_gradcheck_and_the_taylor_test_build_what_they_check_alone(name: str, built: list[str]) -> None:
    kernel = kl.compile(TEXT)[name]
    x, y = pair()
    assert kl.autograd.taylor_test(kernel, 3, [x], [y], show_summary=False)
    assert built == []
    assert kl.autograd.gradcheck(kernel, 3, [x], [y], show_summary=False)
    assert len(built) == 2
    assert in_float64(built) == []


def test_a_pattern_of_a_small_jacobian_is_found_without_a_build(built: list[str]) -> None:
    x, y = pair(50)
    found = kl.autograd.jacobian(kl.compile(TEXT)["waves"], 50, [x], [y], sparse=True)[0, 0]
    assert found.nnz == 50
    assert len(built) == 1


def test_a_loop_of_unknown_length_and_many_threads_are_built_for(
    built: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_level, "PATIENCE", 300)
    kernels = kl.compile(TEXT)
    x, y = pair()
    assert kl.autograd.taylor_test(kernels["repeated"], 3, [x, 4], [y], show_summary=False)
    assert len(in_float64(built)) > 0
    built.clear()
    x, y = pair(50_000)
    assert kl.autograd.taylor_test(kernels["waves"], x.size, [x], [y], show_summary=False)
    assert len(in_float64(built)) > 0


def test_what_has_been_interpreted_for_as_long_as_a_build_takes_is_built(
    built: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_level, "PATIENCE", 300)
    kernel = kl.compile(TEXT)["waves"]
    x, y = pair()
    runs = 0
    while not in_float64(built):
        assert kl.autograd.taylor_test(kernel, 3, [x], [y], show_summary=False)
        runs += 1
        assert runs < 100
    assert runs > 2


def test_the_pattern_of_a_sum_is_found_without_a_build(built: list[str]) -> None:
    kernels = kl.compile(TEXT)

    def energy(x: Any) -> Any:
        y, loss = kl.zeros_like(x), kl.zeros(1, dtype=float)
        kernels["waves"][x.shape[0]](x, y)
        kernels["total"][x.shape[0]](y, loss)
        return loss

    x = kl.full(300, 0.7, dtype=float, requires_grad=True)
    assert kl.autograd.jacobian(kl.func.grad(energy), inputs=[x], sparse=True)[0, 0].shape == (300, 300)
    assert built and not [name for name in built if "dependencies" in name]
