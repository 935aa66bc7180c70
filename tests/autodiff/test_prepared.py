"""Prepared launches of sparse Jacobians: the same entries as the levels find, or left to the levels."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.autodiff.jacobians.prepared import is_plain, prepared
from kernelab.autodiff.jacobians.subject import Subject, of_kernel
from kernelab.autodiff.transforms import base_level
from kernelab.backend.common.compiler import Compiler
from kernelab.codegen.cpp.entry import Unit
from kernelab.errors import KernelIndexError

CELL = """
def stencil(x: array[float], a: float, y: array[float]):
    i = tid()
    y[i] = a * sin(x[i])
    if i > 0:
        y[i] = y[i] + x[i - 1] * x[i]

def grows(x: array[float], y: array[float]):
    i = tid()
    y[i] = y[i] * y[i] * x[i] + x[i]

def adds(x: array[float], y: array[float], counts: array[int]):
    i = tid()
    atomic_add(y, i // 2, x[i] * x[i])
    atomic_add(counts, i // 2, 1)

def turns(p: array2d[vec2], q: array2d[vec2]):
    i, j = tid()
    q[i, j] = vec2(p[i, j][1] * p[i, j][0], cos(p[j, i][0]))

def outside(x: array[float], index: array[int], y: array[float]):
    i = tid()
    y[i] = x[index[i]] * 2.0

def inside(x: array[float]):
    i = tid()
    x[i] = sin(x[i])
"""

K = kl.compile(CELL)
RNG = np.random.default_rng(4)
N = 9


def reals(*shape: int, dtype: Any = float) -> Any:
    return kl.array(RNG.uniform(0.4, 1.6, shape), dtype=dtype, requires_grad=True)


def subject(name: str, dim: Any, inputs: list[Any], outputs: list[Any]) -> Subject:
    return of_kernel(K[name], dim, inputs, outputs, "jacobian")


def launch_of(found: Subject) -> Any:
    return prepared(found, 0, 0, np.ones((2, found.sources[0].count), np.float32))


CASES: dict[str, Any] = {
    "a stencil with a number": ("stencil", N, lambda: ([reals(N), 1.5], [kl.zeros(N)])),
    "an output that is read first": ("grows", N, lambda: ([reals(N)], [reals(N)])),
    "sums by atomics": ("adds", N, lambda: ([reals(N)], [reals(5), kl.zeros(5, dtype=int)])),
    "vectors on a grid": ("turns", (3, 3), lambda: ([reals(3, 3, 2, dtype=kl.vec2)], [vectors()])),
    "strided views": ("stencil", N, lambda: ([reals(2 * N)[::2], 0.5], [kl.zeros(3 * N)[::3]])),
}


def vectors() -> Any:
    return kl.zeros((3, 3), dtype=kl.vec2)


@pytest.mark.parametrize("case", CASES)
def test_a_prepared_launch_finds_the_dense_jacobian_and_leaves_all_as_it_was(case: str) -> None:
    name, dim, make = CASES[case]
    for _ in range(3):
        inputs, outputs = make()
        launched = subject(name, dim, inputs, outputs)
        assert is_plain(launched)
        assert launch_of(launched) is not None
        arrays = [a for a in (*inputs, *outputs) if isinstance(a, kl.array)]
        before = [(a.numpy().copy(), a.allocation.version) for a in arrays]
        dense = kl.autograd.jacobian(K[name], dim, inputs, outputs)
        found = kl.autograd.jacobian(K[name], dim, inputs, outputs, sparse=True)
        for key in dense:
            assert found[key].entries is not None
            np.testing.assert_allclose(found[key].numpy(), dense[key].numpy(), rtol=1e-5, atol=1e-6)
        for a, (values, version) in zip(arrays, before, strict=True):
            assert np.array_equal(a.numpy(), values)
            assert a.allocation.version == version


def test_arrays_over_one_memory_are_left_to_the_levels() -> None:
    whole = reals(2 * N)
    assert is_plain(subject("grows", N, [reals(N)], [reals(N)]))
    assert not is_plain(subject("grows", N, [whole[:N]], [whole[N:]]))
    for given in ([reals(N)], [reals(N)]), ([whole[:N]], [whole[N:]]), ([whole[:N]], [whole[:N]]):
        dense = kl.autograd.jacobian(K["grows"], N, *given)[0, 0].numpy()
        found = kl.autograd.jacobian(K["grows"], N, *given, sparse=True)[0, 0].numpy()
        np.testing.assert_allclose(found, dense, rtol=1e-5)


def test_an_input_that_the_kernel_changes_is_left_to_the_levels() -> None:
    x = reals(N)
    assert launch_of(subject("inside", N, [x], [])) is None
    found = kl.autograd.jacobian(K["inside"], N, [x], sparse=True)[0, 0].numpy()
    np.testing.assert_allclose(found, np.diag(np.cos(x.numpy())), rtol=1e-5)


def test_numbers_that_compare_equal_are_told_apart() -> None:
    x, y = reals(N), kl.zeros(N)
    for a in (2.0, 2, np.float32(2.0), 3.0):
        found = kl.autograd.jacobian(K["stencil"], N, [x, a], [y], sparse=True)[0, 0].numpy()
        diagonal = float(a) * np.cos(x.numpy()) + np.append(0.0, x.numpy()[:-1])
        np.testing.assert_allclose(np.diag(found), diagonal, rtol=1e-5)


def test_an_index_outside_is_told_as_without_preparation() -> None:
    x, y, index = reals(N), kl.zeros(N), kl.array(np.arange(N), dtype=int)
    kl.autograd.jacobian(K["outside"], N, [x, index], [y], sparse=True)
    index.assign(np.full(N, N))
    with pytest.raises(KernelIndexError, match="in lane 0"):
        kl.autograd.jacobian(K["outside"], N, [x, index], [y], sparse=True)
    assert not y.numpy().any()


def test_a_pattern_that_changed_is_found_again_though_the_launch_is_prepared() -> None:
    x, y = reals(N), kl.zeros(N)
    for shift in (0, 1, 3):
        index = kl.array((np.arange(N) + shift) % N, dtype=int)
        found = kl.autograd.jacobian(K["outside"], N, [x, index], [y], sparse=True)[0, 0].numpy()
        assert np.array_equal(found, 2 * np.eye(N, dtype=np.float32)[index.numpy()])


def test_a_function_that_returns_other_outputs_than_before_is_differentiated_anew() -> None:
    wanted = [N]

    def some(x: Any) -> Any:
        made = [kl.zeros(n) for n in wanted]
        for y in made:
            kl.launch(K["stencil"], y.size, [x, 1.0], [y])
        return made

    x = reals(N)
    for sizes in ([N], [N - 2], [N - 2, N], [N]):
        wanted[:] = sizes
        dense = kl.autograd.jacobian(some, inputs=[x])
        found = kl.autograd.jacobian(some, inputs=[x], sparse=True)
        assert list(found) == list(dense) == [(0, k) for k in range(len(sizes))]
        for key in dense:
            np.testing.assert_allclose(found[key].numpy(), dense[key].numpy(), rtol=1e-5)


def test_a_function_runs_once_where_its_pattern_is_known() -> None:
    runs = []

    def counted(x: Any) -> Any:
        runs.append(x)
        y = kl.zeros_like(x)
        kl.launch(K["stencil"], x.size, [x, 1.0], [y])
        return y

    kl.autograd.jacobian(counted, inputs=[reals(N)], sparse=True)
    runs.clear()
    kl.autograd.jacobian(counted, inputs=[reals(N)], sparse=True)
    assert len(runs) == 1


def test_tangents_are_built_while_the_pattern_is_looked_for(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "def bend(x: array[float], y: array[float]):\n    y[tid()] = x[tid()] * x[tid()]\n"
    kernel, n, begun, compile = kl.compile(text)["bend"], 300, threading.Event(), Compiler.compile
    looked_for: list[str] = []

    def compiled(compiler: Compiler, unit: Unit, path: Path, more: tuple[str, ...] = ()) -> None:
        (name,) = (info.name for info in unit.entries)
        if "tangent" in name:
            begun.set()
        compile(compiler, unit, path, more)
        if "dependencies" in name and not more:
            looked_for.append(name)
            assert begun.wait(60), "the tangents waited for the pattern"

    monkeypatch.setattr(Compiler, "compile", compiled)
    monkeypatch.setattr(base_level, "PATIENCE", 0)  # as for many threads, the pattern takes a build
    x, y = kl.ones(n, requires_grad=True), kl.zeros(n)
    (matrix,) = kl.autograd.jacobian(kernel, n, [x], [y], sparse=True).values()
    assert looked_for and matrix.nnz == n and (matrix.tocsr().data == 2.0).all()
