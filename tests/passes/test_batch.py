"""Lanes and bits of every kernel of the zoo: valid programs, and as right as one run after another."""

from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.autodiff.jacobians.jacobian import Selection, jacobians
from kernelab.autodiff.jacobians.subject import of_kernel
from kernelab.lang.types import Array, scalar_of
from kernelab.lang.verify import verify
from tests.support.columns import columns
from tests.support.zoo import ZOO, Animal

NAMES = [animal.name for animal in ZOO]


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELAB_BACKEND", "interp")


def kernel_of(animal: Animal) -> Any:
    return kl.compile(animal.text)[animal.name]


def arguments(animal: Animal, kernel: Any, seed: int) -> list[Any]:
    drawn = animal.draw(np.random.default_rng(seed))
    made = []
    for value, param in zip(drawn.values(), kernel.primal.params, strict=True):
        if not isinstance(param.type, Array):
            made.append(value)
            continue
        elem = param.type.elem
        made.append(kl.array(value, dtype=elem, requires_grad=scalar_of(elem).is_float))
    return made


@pytest.mark.parametrize("animal", ZOO, ids=NAMES)
def test_programs_with_lanes_and_bits_obey_the_rules(animal: Animal) -> None:
    program = kernel_of(animal).program
    pullback = program.pullback(program.floats)
    made = [program, program.tangent(program.floats), pullback.primal, pullback.adjoint]
    for each in made:
        wide = tuple(sorted({*each.arrays[:1], *each.to_widen(each.arrays[:1])} & {*program.arrays}))
        for rank in {max(1, len(each.flat.threads)), 4}:
            verify(each.batched(wide, rank).function)
    verify(pullback.adjoint.by_thread(program.floats).function)
    assert program.dependencies is not None
    verify(program.dependencies.function)


@pytest.mark.parametrize("animal", ZOO, ids=NAMES)
def test_rows_columns_and_compressed_entries_agree(animal: Animal) -> None:
    kernel = kernel_of(animal)
    given = arguments(animal, kernel, 1)
    subject = of_kernel(kernel, animal.grid, given, [], "jacobian")
    rows, by_tangent = jacobians(subject), columns(subject)
    one_by_one = jacobians(subject, Selection(None, 1 << 30))
    sparse = kl.autograd.jacobian(kernel, animal.grid, given, sparse=True)
    assert list(rows) == list(by_tangent) == list(sparse)
    for key, value in rows.items():
        for other in (by_tangent, one_by_one, sparse):
            np.testing.assert_allclose(other[key].numpy(), value.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("animal", ZOO, ids=NAMES)
def test_lanes_of_a_kernel_are_its_runs(animal: Animal) -> None:
    kernel = kernel_of(animal)
    runs = [arguments(animal, kernel, seed) for seed in (1, 2, 3)]
    for run in runs[1:]:  # numbers are shared between lanes
        run[:] = [run[i] if isinstance(a, kl.array) else a for i, a in enumerate(runs[0])]
    places = [i for i, a in enumerate(runs[0]) if isinstance(a, kl.array)]

    def call(*arrays: Any) -> Any:
        given = list(runs[0])
        for i, a in zip(places, arrays, strict=True):
            given[i] = kl.clone(a)
        kernel[animal.grid](*given)
        return [given[i] for i in places]

    def stacked(i: int) -> Any:
        values = np.stack([run[i].numpy() for run in runs])
        return kl.array(values, dtype=runs[0][i].dtype)

    together = kl.func.vmap(call)(*(stacked(i) for i in places))
    for lane, run in enumerate(runs):
        for joined, alone in zip(together, call(*(run[i] for i in places)), strict=True):
            np.testing.assert_allclose(joined.numpy()[lane], alone.numpy(), rtol=1e-5, atol=1e-6)


def test_grids_with_all_coordinates_taken_are_folded() -> None:
    kernel = kl.compile("""
def four(a: array4d[float], b: array4d[float]):
    i, j, k, l = tid()
    b[l, k, j, i] = a[i, j, k, l] * a[0, 0, 0, l]
""")["four"]
    a = kl.array(np.random.default_rng(0).normal(size=(2, 3, 2, 2)), dtype=float, requires_grad=True)
    found = kl.autograd.jacobian(kernel, (2, 3, 2, 2), [a], [kl.zeros((2, 2, 3, 2))])[0, 0]
    subject = of_kernel(kernel, (2, 3, 2, 2), [a], [kl.zeros((2, 2, 3, 2))], "jacobian")
    np.testing.assert_allclose(found.numpy(), columns(subject)[0, 0].numpy(), rtol=1e-6)
    np.testing.assert_allclose(
        found.numpy(),
        kl.autograd.jacobian_fd(kernel, (2, 3, 2, 2), [a], [kl.zeros((2, 2, 3, 2))])[0, 0].numpy(),
        rtol=1e-4,
        atol=1e-5,
    )


def test_views_of_one_array_differ_between_lanes_together() -> None:
    kernel = kl.compile("""
def through(x: array[float], a: array[float], b: array[float], y: array[float]):
    i = tid()
    a[i] = x[i] * x[i]
    y[i] = b[i] + x[i]
""")["through"]

    def f(x: Any) -> Any:
        both, y = kl.zeros(4, float), kl.zeros_like(x)
        kernel[3](x, both[:3], both[:3], y)
        return y

    xs = kl.array(np.random.default_rng(1).normal(size=(2, 3)), dtype=float)
    np.testing.assert_allclose(kl.func.vmap(f)(xs).numpy(), xs.numpy() ** 2 + xs.numpy(), rtol=1e-6)
