"""Gradients that are set to arrays of the user's: shared, not copied, and by several arrays if need be."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import KernelTypeError, KernelValueError, TapeError

TEXT = """
def product(x: array[float64], y: array[float64], o: array[float64]):
    i = tid()
    atomic_add(o, 0, x[i] * y[i])

def square(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = x[i] * x[i]
"""


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return kl.compile(TEXT)


def leaf(*values: float) -> kl.array:
    return kl.array(values, dtype=kl.float64, requires_grad=True)


@pytest.mark.parametrize("sweeps", [1, 2])
@pytest.mark.parametrize("swapped", [False, True])
def test_the_gradients_of_leaves_that_share_an_array_add_up(
    made: dict[str, Any], sweeps: int, swapped: bool
) -> None:
    x, y, z, o = leaf(1, 2), leaf(3, 4), leaf(5, 6), leaf(0)
    shared = kl.array([100.0, 200.0], dtype=kl.float64)
    x.grad = y.grad = z.grad = shared
    with kl.Tape() as tape:
        pairs = [(x, y), (z, z), (y, z)]
        for pair in reversed(pairs) if swapped else pairs:
            made["product"][2](*pair, o)
    for _ in range(sweeps):
        tape.backward(o)
    each = np.array([3 + 1 + 10 + 5 + 3, 4 + 2 + 12 + 6 + 4])
    assert x.grad is shared
    np.testing.assert_array_equal(shared.numpy(), [100, 200] + sweeps * each)


def test_overlapping_pieces_of_a_leaf_count_once_beside_one_that_shares_its_gradient(
    made: dict[str, Any],
) -> None:
    y, x, o = leaf(1, 1, 1, 1), leaf(2, 2, 2, 2), leaf(0)
    y.grad = x.grad = kl.zeros(4, kl.float64)
    with kl.Tape() as tape:
        made["product"][4](y, y, o)
        made["product"][3](x[:3], x[1:], o)
    tape.backward(o)
    assert x.grad.list() == [2 + 2, 2 + 4, 2 + 4, 2 + 2]


def test_an_input_and_a_result_cannot_share_a_gradient(made: dict[str, Any]) -> None:
    x, y, o = leaf(1, 2), leaf(0, 0), leaf(0)
    x.grad = y.grad = kl.zeros(2, kl.float64)
    with kl.Tape() as tape:
        made["square"][2](x, y)
        made["product"][2](y, y, o)
    with pytest.raises(TapeError, match=r"`x` and `y` share one gradient array|`y` and `x` share one"):
        tape.backward(o)
    y.grad = None
    tape.backward(o)
    assert x.grad.list() == [4, 32]


def test_results_may_start_from_one_gradient(made: dict[str, Any]) -> None:
    x, y, z = leaf(1, 2), leaf(0, 0), leaf(0, 0)
    with kl.Tape() as tape:
        made["square"][2](x, y)
        made["square"][2](x, z)
    y.grad = z.grad = kl.ones(2, kl.float64)
    tape.backward()
    assert x.grad.list() == [4, 8]


VIEWS: dict[str, Callable[[kl.array], kl.array]] = {
    "every second": lambda big: big[::2],
    "the first": lambda big: big[:2],
    "reversed": lambda big: big[:2][::-1],
    "a row": lambda big: big.reshape(2, 2)[1],
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_refused_as_a_gradient_and_not_copied_in_silence(view: str) -> None:
    big, x = kl.ones(4, kl.float64), leaf(1, 2)
    with pytest.raises(KernelTypeError, match=r"part of a larger array[^$]*write x\.grad\.assign\(g\)"):
        x.grad = VIEWS[view](big)
    x.grad.assign(VIEWS[view](big))
    assert x.grad.list() == [1, 1]


def test_the_gradient_of_a_view_is_assigned_to_and_not_replaced() -> None:
    x = leaf(1, 2, 3)
    with pytest.raises(KernelTypeError, match="laid out in another way"):
        x[1:].grad = kl.ones(2, kl.float64)
    x[1:].grad.assign([1, 1])
    assert x.grad.list() == [0, 1, 1]


@pytest.mark.parametrize(
    "of", [lambda x: x, lambda x: x.reshape(2), lambda x: kl.array(x.numpy(), copy=False)]
)
def test_an_array_is_not_its_own_gradient(of: Callable[[kl.array], kl.array]) -> None:
    x = leaf(1, 2)
    with pytest.raises(KernelTypeError, match="cannot be its own gradient"):
        x.grad = of(x)
    assert x.list() == [1, 2] and x.grad.list() == [0, 0]


def given(memory: np.ndarray[Any, Any]) -> tuple[kl.array, kl.array]:
    """An array over some memory, made with a gradient of its own, and that gradient."""
    gradient = kl.zeros(len(memory), kl.float64)
    return kl.array(memory, copy=False, grad=gradient), gradient


def test_each_tape_adds_to_the_gradient_that_its_array_was_made_with(made: dict[str, Any]) -> None:
    memory = np.array([1.0, -2.0, 3.0])
    (x, of_x), (again, of_again) = given(memory), given(memory)
    tapes = []
    for array in (x, again):
        y = kl.zeros(3, kl.float64, requires_grad=True)
        with kl.Tape() as tape:
            made["square"][3](array, y)
        tapes.append((tape, y))
    for scale, (tape, y) in enumerate(tapes, 1):
        tape.backward(grads={y: kl.full(3, float(scale), dtype=kl.float64)})
    np.testing.assert_array_equal(of_x.numpy(), 2 * memory)
    np.testing.assert_array_equal(of_again.numpy(), 4 * memory)
    assert x.grad is of_x and again.grad is of_again
    tapes[0][0].zero()
    assert not of_x.numpy().any() and of_again.numpy().all()


def test_arrays_made_with_several_gradients_over_one_memory_are_not_of_one_tape(made: dict[str, Any]) -> None:
    (x, _), (again, _), o = *map(given, [np.ones(2)] * 2), leaf(0)
    with kl.Tape() as tape:
        made["product"][2](x, again, o)
    with pytest.raises(KernelValueError, match="several gradients"):
        tape.backward(o)


def test_a_gradient_that_is_set_replaces_the_one_that_an_array_was_made_with(made: dict[str, Any]) -> None:
    memory = np.ones(2)
    (x, of_x), (_, of_other), o = given(memory), given(memory), leaf(0)
    x.grad = mine = kl.zeros(2, kl.float64)
    with kl.Tape() as tape:
        made["product"][2](x, x, o)
    tape.backward(o)
    assert [g.list() for g in (of_x, of_other, mine)] == [[0, 0], [0, 0], [2, 2]]
