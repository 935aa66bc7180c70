"""Threads that have blocks of an array to themselves do not meet, and their sums are plain additions."""

import itertools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.passes.access.blocks import threads_are_disjoint
from kernelab.passes.access.independence import own_atomics, uses


def function_of(body: str, params: str = "x: array[float], n: int", space: str = "t") -> Any:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return kl.compile(f"def k({params}):\n    {space} = tid()\n{lines}")["k"].program.flat


def is_apart(body: str, params: str = "x: array[float], n: int", space: str = "t") -> bool:
    function = function_of(body, params, space)
    return threads_are_disjoint(function, uses(function)[function.params[0]].accesses)


SUM = "for k in range({}):\n    atomic_add(x, {}, 1.0)"


@pytest.mark.parametrize(
    "body",
    [
        SUM.format("8", "8 * t + k"),
        SUM.format("8 * t, min(8 * t + 8, n)", "k"),
        SUM.format("8 * t, min(n, min(8 * t + 8, 100))", "k"),
        SUM.format("min(n, 4)", "2 * k + 8 * t + 1"),
        SUM.format("3", "t * 9 + 3 + k * 3"),
        "for i in range(4):\n    for j in range(4):\n        atomic_add(x, 16 * t + 4 * i + j, 1.0)",
        "x[3 * t] = 1.0\nx[3 * t + 1] = 2.0\nx[3 * t + 2] = x[3 * t]",
        "k = 0\nwhile k < 8:\n    atomic_add(x, 8 * t, 1.0)\n    k += 1",
    ],
)
def test_blocks_that_are_apart_are_proved_to_be(body: str) -> None:
    assert is_apart(body)


@pytest.mark.parametrize(
    "body",
    [
        SUM.format("9", "8 * t + k"),
        SUM.format("8 * t, min(8 * t + 9, n)", "k"),
        SUM.format("8 * t, max(8 * t + 8, n)", "k"),
        SUM.format("n", "8 * t + k"),
        SUM.format("8", "8 * t + k - 1"),
        SUM.format("8", "8 * t + k + n"),
        SUM.format("8", "t + k"),
        SUM.format("4", "8 * t - k + 3"),
        SUM.format("3", "t * n + k"),
        "x[3 * t] = 1.0\nx[3 * t + 3] = 2.0",
        "x[3 * t] = 1.0\nx[2 * t + 1] = 2.0",
        "x[3 * t] = 1.0\nx[int(x[t])] = 2.0",
        "x[0] = 1.0",
    ],
)
def test_others_are_not(body: str) -> None:
    assert not is_apart(body)


def test_each_thread_index_needs_an_axis_of_its_own() -> None:
    params = "x: array2d[float], n: int"
    body = "for k in range(4):\n    x[{}, {}] = 1.0"
    assert is_apart(body.format("i", "4 * j + k"), params, "i, j")
    assert is_apart(body.format("4 * j + k", "2 * i + 1"), params, "i, j")
    assert not is_apart(body.format("i", "4 * i + k"), params, "i, j")
    assert not is_apart(body.format("i + j", "4 * j + k"), params, "i, j")


@pytest.mark.parametrize(
    ("body", "apart"),
    [
        ("x[t // 8, t % 8] = 1.0", True),
        ("x[t // 8, (t % 8) // 2] = 1.0", False),
        ("x[t // 8 + 1, 2 * (t % 8)] = 1.0", True),
        ("x[t // 8, t % 9] = 1.0", False),
        ("x[t // n, t % n] = 1.0", False),
        ("m = max(n, 1)\nx[t // m, t % m] = 1.0", True),
        ("x[t // 8, ((t % 8) // 2) * 4 + t % 8] = 1.0", False),
        ("if t == 0:\n    x[0, 0] = 1.0", True),
        ("if t == 0:\n    x[0, 0] = 1.0\nif t == 1:\n    x[0, 0] = 2.0", False),
        ("if t == 0:\n    x[0, 0] = 1.0\nelse:\n    x[0, 1] = 2.0", False),
        ("if n == 0:\n    x[0, 0] = 1.0", False),
        ("x[0, t - 1] = 1.0", False),
        ("x[0, t + n] = 1.0", False),
    ],
)
def test_quotients_with_remainders_and_single_threads(body: str, apart: bool) -> None:
    assert is_apart(body, "x: array2d[float], n: int") is apart


def _part_of_index(rng: random.Random) -> str:
    return rng.choice(
        ["t", "t + 1", "3 * t", "t // 4", "t % 4", "t // 4 % 2", "2 * (t % 4) + 1", "0", "k", "2 * t + k"]
    )


@pytest.mark.parametrize("seed", range(60))
def test_no_proof_of_several_accesses_is_wrong(seed: int) -> None:
    rng = random.Random(seed)
    places = [(_part_of_index(rng), _part_of_index(rng)) for _ in range(rng.choice((1, 1, 2)))]
    lines = [f"    x[{a}, {b}] = 1.0" for a, b in places]
    apart = is_apart("\n".join(["for k in range(2):", *lines]), "x: array2d[float], n: int")
    touched = [
        {(eval(a, {"t": t, "k": k}), eval(b, {"t": t, "k": k})) for a, b in places for k in range(2)}
        for t in range(24)
    ]
    assert not (apart and any(one & other for one, other in itertools.combinations(touched, 2)))


def indices(step: int, first: int, count: int, stride: int, t: int) -> Iterator[int]:
    return (step * t + first + stride * k for k in range(count))


@pytest.mark.parametrize("seed", range(40))
def test_no_proof_is_wrong(seed: int) -> None:
    rng = random.Random(seed)
    step, first, count, stride = rng.randint(1, 9), rng.randint(0, 5), rng.randint(1, 5), rng.randint(1, 4)
    most = rng.choice([f"min(n, {count})", str(count)])
    apart = is_apart(SUM.format(most, f"{step} * t + {first} + {stride} * k"))
    elements = [set(indices(step, first, count, stride, t)) for t in range(30)]
    meet = any(one & other for one, other in itertools.combinations(elements, 2))
    assert not (apart and meet)
    assert apart or stride * (count - 1) >= step


def test_the_adjoint_of_a_sum_by_blocks_adds_to_elements_of_its_own() -> None:
    text = """
    def blocks(x: array[float], s: array[float]):
        b = tid()
        total = x[16 * b]
        for k in range(16 * b + 1, min(16 * b + 16, x.shape[0])):
            total += x[k] * x[k]
        s[b] = total
    """
    kernel = kl.compile(text)["blocks"]
    values = np.arange(100, dtype=np.float32)
    x, s = kl.array(values, requires_grad=True), kl.zeros(7, requires_grad=True)
    with kl.Tape() as tape:
        kernel[7](x, s)
    tape.backward(grads={s: kl.ones(7)})
    expected = 2.0 * values
    expected[::16] = 1.0
    np.testing.assert_array_equal(x.grad.numpy(), expected)
    (pullback,) = kernel.program.pullbacks
    atomics = own_atomics(pullback.adjoint.flat)
    assert {stmt.array.hint for stmt in atomics} == {"x_bar"}
