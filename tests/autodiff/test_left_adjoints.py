"""Adjoints of large launches leave those of what they stored as they are, where nobody asks for them."""

import ctypes
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.autodiff.records import records
from kernelab.autodiff.records.backward import BackwardPlan
from kernelab.autodiff.tape import seeds
from kernelab.backend.common.tiered import BETTER
from kernelab.backend.cpu import split
from kernelab.codegen.cpp.emitter import emit
from kernelab.codegen.cpp.targets import Cpu
from kernelab.lang.verify import verify
from kernelab.passes.ad.left_adjoints import cleared_once, without_clears
from kernelab.passes.common.scalarise import scalarise
from kernelab.runtime.kernel.program import Program

TEXTS = """
def scaled(a: array[float], x: array[float], z: array[float]):
    i = tid()
    z[i] = a[0] * sin(x[i])

def positive(a: array[float], x: array[float], z: array[float]):
    i = tid()
    if x[i] > 0.5:
        z[i] = a[0] * x[i] * x[i]

def added(a: array[float], x: array[float], z: array[float]):
    i = tid()
    z[i] += a[0] * x[i]

def twice(a: array[float], x: array[float], z: array[float]):
    i = tid()
    z[i] = x[i]
    z[i] = z[i] * a[0]

def smooth(a: array[float], x: array[float], z: array[float]):
    i = tid()
    if i > 0 and i < x.shape[0] - 1:
        z[i] = a[0] * x[i] + 0.1 * (x[i - 1] + x[i + 1])

def blur(x: array[float], z: array[float]):
    i = tid()
    if i > 0 and i < x.shape[0] - 1:
        z[i] = x[i] + 0.1 * (x[i - 1] + x[i + 1])

def plane(x: array2d[float], z: array2d[float]):
    i, j = tid()
    z[i, j] = x[i, j] * x[i, j]

def turned(x: array2d[float], z: array2d[float]):
    i, j = tid()
    z[j, i] = x[i, j] * x[i, j]

def column(x: array[float], z: array2d[float]):
    i = tid()
    z[i, 1] = x[i] * x[i]

def lines(x: array2d[float], z: array[float]):
    i, j = tid()
    z[j] = x[i, j] * x[i, j]

def split_in_two(x: array[float], y: array[float], z: array[float]):
    i = tid()
    y[i] = x[i] * x[i]
    z[i] = 3.0 * x[i]

def double(x: array[float]):
    i = tid()
    x[i] = 2.0 * x[i]

def looped(x: array[float], z: array[float]):
    i = tid()
    for k in range(3):
        z[i] = x[i] * float(k)
"""

N = 5000


@pytest.fixture(scope="module")
def kernels() -> dict[str, kl.Kernel]:
    return kl.compile(TEXTS)


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How much memory was settled in each backward pass; the programs are built at once."""
    seen: list[int] = []
    leave = BackwardPlan.leave

    def noted(self: BackwardPlan) -> None:
        leave(self)
        seen.append(len(self.settled))

    monkeypatch.setattr(BackwardPlan, "leave", noted)
    monkeypatch.setattr(Program, "is_ready", lambda self: bool(self.entry))
    monkeypatch.setattr(split, "ENOUGH", 64)
    return seen


def leaf(*shape: int, seed: int = 0) -> Any:
    values = np.random.default_rng(seed).random(shape, np.float32)
    return kl.array(values, dtype=float, requires_grad=True)


def seed_of(like: Any, seed: int = 7) -> Any:
    return kl.array(np.random.default_rng(seed).normal(size=like.shape).astype(np.float32), dtype=float)


def one(name: str) -> Callable[[Any], list[Any]]:
    def run(k: Any) -> list[Any]:
        a, x, z = leaf(1), leaf(N, seed=1), leaf(N, seed=2)
        with kl.Tape() as tape:
            kl.launch(k[name], N, [a, x], [z])
        tape.backward(grads={z: seed_of(z)})
        return [a, x, z]

    return run


def chain(k: Any) -> list[Any]:
    a, arrays = leaf(1), [leaf(N, seed=s) for s in range(5)]
    with kl.Tape() as tape:
        for number, (x, z) in enumerate(pairwise(arrays)):
            kl.launch(k["positive" if number % 2 else "scaled"], N, [a, x], [z])
        kl.launch(k["added"], N, [a, arrays[1]], [arrays[-1]])
    for _ in range(2):
        tape.backward(grads={arrays[-1]: seed_of(arrays[-1])})
    return [a, *arrays]


def to_and_fro(k: Any) -> list[Any]:
    a, x, y = leaf(1), leaf(N, seed=1), leaf(N, seed=2)
    first = x
    with kl.Tape() as tape:
        for _ in range(5):
            kl.launch(k["scaled"], N, [a, x], [y])
            x, y = y, x
    tape.backward(grads={x: seed_of(x)})
    return [a, first, x]


def overwritten_in_part(k: Any) -> list[Any]:
    a, x, z = leaf(1), leaf(N, seed=1), leaf(N, seed=2)
    with kl.Tape() as tape:
        kl.launch(k["scaled"], N, [a, x], [z])
        kl.launch(k["positive"], N, [a, x], [z])
    tape.backward(grads={z: seed_of(z)})
    return [a, x, z]


def gathered(k: Any) -> list[Any]:
    x, y, z = (leaf(N, seed=s) for s in range(3))
    with kl.Tape() as tape:
        kl.launch(k["blur"], N, [x], [y])
        kl.launch(k["blur"], N, [y], [z])
    tape.backward(grads={z: seed_of(z)})
    return [x, y, z]


def more_dimensions(k: Any) -> list[Any]:
    x, z = leaf(70, 70), kl.zeros((70, 70), requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(k["plane"], (70, 70, 3), [x], [z])
    tape.backward(grads={z: seed_of(z)})
    return [x, z]


def other_places(k: Any) -> list[Any]:
    x, y, z = leaf(70, 60), kl.zeros((60, 70), requires_grad=True), kl.zeros((60, 70), requires_grad=True)
    v, w = leaf(N), kl.zeros((N, 2), requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(k["turned"], (70, 60), [x], [y])
        kl.launch(k["plane"], (60, 70), [y], [z])
        kl.launch(k["column"], N, [v], [w])
    tape.backward(grads={z: seed_of(z), w: seed_of(w)})
    return [x, y, z, v, w]


def two_results(k: Any) -> list[Any]:
    x, y, z, w = leaf(N), leaf(N, seed=1), leaf(N, seed=2), leaf(N, seed=3)
    a = leaf(1)
    with kl.Tape() as tape:
        kl.launch(k["scaled"], N, [a, x], [y])
        kl.launch(k["split_in_two"], N, [x], [y, z])
        kl.launch(k["added"], N, [a, y], [w])
    tape.backward(grads={z: seed_of(z), w: seed_of(w, 8)})
    return [a, x, y, z, w]


def in_place(k: Any) -> list[Any]:
    a, x, z = leaf(1), leaf(N, seed=1), leaf(N, seed=2)
    with kl.Tape() as tape:
        kl.launch(k["scaled"], N, [a, x], [z])
        kl.launch(k["double"], N, [z])
    tape.backward(grads={z: seed_of(z)})
    return [a, x, z]


def cotangents_that_are_gradients(k: Any) -> list[Any]:
    a, x, y, z = leaf(1), leaf(N, seed=1), leaf(N, seed=2), leaf(N, seed=3)
    with kl.Tape() as tape:
        kl.launch(k["scaled"], N, [a, x], [y])
        kl.launch(k["positive"], N, [a, x], [z])
    tape.backward(grads={y: seed_of(y), z: seed_of(z, 8)})
    tape.backward(grads={y: z.grad, z: y.grad})
    tape.backward(grads={y: y.grad, z: x.grad})
    tape.backward()
    return [a, x, y, z]


def two_of_one_memory(k: Any) -> list[Any]:
    a, x, z = leaf(1), leaf(N, seed=1), leaf(N, seed=2)
    with kl.Tape() as tape:
        kl.launch(k["scaled"], N, [a, x], [z])
    for _ in range(2):
        tape.backward(grads={z: seed_of(z), z[:10]: seed_of(z[:10], 8)})
    return [a, x, z]


CASES: dict[str, Callable[[Any], list[Any]]] = {
    **{name: one(name) for name in ("scaled", "positive", "added", "twice", "smooth")},
    **{
        f.__name__: f
        for f in (
            *(chain, to_and_fro, overwritten_in_part, gathered, more_dimensions, two_results, in_place),
            other_places,
            *(cotangents_that_are_gradients, two_of_one_memory),
        )
    },
}
NONE = ("added", "twice", "smooth", "to_and_fro", "overwritten_in_part", "more_dimensions", "two_results")
SETTLED = {name: [0] for name in (*NONE, "in_place")} | {
    "scaled": [1],
    "positive": [1],
    "chain": [3, 3],
    "other_places": [3],
    "gathered": [1],  # of y, the elements at the border are an input
    "cotangents_that_are_gradients": [2] * 4,
    "two_of_one_memory": [1, 1],
}


@pytest.mark.filterwarnings("ignore:.*unpacks 2 thread indices")
@pytest.mark.parametrize("name", CASES)
def test_gradients_have_the_same_bits_where_adjoints_are_left(
    name: str, kernels: Any, settled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = [elements.grad.numpy() for elements in CASES[name](kernels)]
    assert settled == []
    monkeypatch.setattr(records, "MANY", 1)
    left = [elements.grad.numpy() for elements in CASES[name](kernels)]
    assert [each.tobytes() for each in left] == [each.tobytes() for each in usual]
    assert settled == SETTLED[name]


def test_the_gradient_of_a_result_is_not_its_cotangent(kernels: Any, settled: list[int]) -> None:
    a, x, z = leaf(1), leaf(1 << 16, seed=1), leaf(1 << 16, seed=2)
    with kl.Tape() as tape:
        kl.launch(kernels["scaled"], 1 << 16, [a, x], [z])
    given = seed_of(z)
    for expected in (given.numpy().copy(), given.numpy() + 1):
        given.assign(expected)
        tape.backward(grads={z: given})
        shown = z.grad
        given.fill_(0.0)
        np.testing.assert_array_equal(shown.numpy(), expected)
    assert settled == [1, 1]


CHANGES: dict[str, Callable[[Any, Any], object]] = {
    "nothing": lambda seed, z: None,
    "the cotangent": lambda seed, z: seed.fill_(2.0),
    "a part of the cotangent": lambda seed, z: seed[:10].fill_(2.0),
    "the gradient": lambda seed, z: z.grad.zero_(),
    "a part of the gradient": lambda seed, z: z.grad[:10].fill_(3.0),
    "the cotangent, through NumPy": lambda seed, z: seed.numpy().fill(2.0),
    "the gradient, through NumPy": lambda seed, z: z.grad.numpy().fill(3.0),
    "the cotangent, by its address": lambda seed, z: ctypes.memset(seed.ptr, 0, 40),
    "the gradient, by its address": lambda seed, z: ctypes.memset(z.grad.ptr, 0, 40),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("parts", [0, 10])
def test_a_cotangent_is_copied_again_only_where_something_has_changed(
    change: str, parts: int, kernels: Any, settled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MANY", 1)
    copied: list[int] = []
    copy = seeds.copy_bytes
    monkeypatch.setattr(seeds, "copy_bytes", lambda *given: copied.append(1) or copy(*given))
    a, x, z, other = leaf(1), leaf(N, seed=1), leaf(N, seed=2), leaf(N, seed=3)
    with kl.Tape() as tape:
        kl.launch(kernels["scaled"], N, [a, x], [z])
    given, more = seed_of(z), seed_of(z[:10], 8)
    cotangents = {z: given, z[:10]: more} if parts else {z: given}
    for turn in range(4):
        if turn == 3:
            CHANGES[change](given, z)
        x.grad.zero_()
        tape.backward(grads=cotangents)
        expected = given.numpy().copy() if turn == 3 else None
    if parts:
        expected[:10] += more.numpy()
    np.testing.assert_array_equal(z.grad.numpy(), expected)
    np.testing.assert_allclose(x.grad.numpy(), a.numpy() * np.cos(x.numpy()) * expected, 1e-5, 1e-6)
    assert settled == [1] * 4
    if not parts:  # the first pass has no gradient to copy to
        assert len(copied) == 2 + (change != "nothing")
    with kl.Tape() as tape:
        kl.launch(kernels["scaled"], N, [a, x], [z])
    tape.backward(grads={z: other})
    np.testing.assert_array_equal(z.grad.numpy(), other.numpy())


def test_the_program_is_built_while_nobody_waits(kernels: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[bool] = []
    left = records.LaunchRecord.left
    monkeypatch.setattr(records, "MANY", 1)
    monkeypatch.setattr(records.LaunchRecord, "left", lambda self: found.append(bool(x := left(self))) or x)
    kernel = kl.compile("def own(x: array[float], z: array[float]):\n    z[tid()] = x[tid()] * x[tid()]")[
        "own"
    ]
    x, z = leaf(N), leaf(N, seed=1)
    with kl.Tape() as tape:
        kl.launch(kernel, N, [x], [z])
    for _ in range(2):
        tape.backward(grads={z: seed_of(z)})
        BETTER.wait()
    assert found == [False, True]


def adjoint_of(kernels: Any, name: str) -> Any:
    program = kernels[name].program
    return program.pullback(tuple(sorted(program.floats))).adjoint.flat


def test_what_each_thread_reads_once_and_clears_is_left(kernels: Any) -> None:
    cleared = {name: {each.hint for each in cleared_once(adjoint_of(kernels, name))} for name in kernels}
    once = {name: {"z_bar"} for name in ("scaled", "positive", "smooth", "blur", "plane", "turned", "column")}
    never: dict[str, set[str]] = {name: set() for name in ("added", "twice", "double", "looped", "lines")}
    assert cleared == {**once, **never, "split_in_two": {"y_bar", "z_bar"}}


def test_a_program_without_clears_has_as_many_statements(kernels: Any) -> None:
    for name in kernels:
        usual = adjoint_of(kernels, name)
        other = without_clears(usual)
        verify(other)
        costs = []
        for function in map(scalarise, (usual, other)):
            (info,) = emit([function], Cpu()).entries
            costs.append(split.cost(function, info))
        assert costs[0] == costs[1], name
