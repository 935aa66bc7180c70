"""Repeated backward passes: primal data stays, and a second pass adds each leaf's gradient once more.

And what `x.grad` means: the gradient with respect to the value that `x` held when the tape first read it; of
what the tape never read, with respect to the value at the end.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from tests.support.leaves import gradient

TEXT = """
def square(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]

def squared_in_place(x: array[float]):
    i = tid()
    x[i] = x[i] * x[i]

def total(x: array[float], l: array[float]):
    atomic_add(l, 0, x[tid()])

def weighted(x: array[float], w: array[float], l: array[float]):
    i = tid()
    atomic_add(l, 0, x[i] * w[i])

def scale(x: array[float], a: float, y: array[float]):
    i = tid()
    y[i] = a * x[i]

def scale_outside(x: array[float], a: float, low: int, high: int, y: array[float]):
    i = tid()
    if i < low or i >= high:
        y[i] = a * x[i]

def weighted_outside(x: array[float], w: array[float], low: int, high: int, l: array[float]):
    i = tid()
    if not (low <= i and i < high):
        atomic_add(l, 0, x[i] * w[i])

def copied_twice(x: array[float], y: array[float], z: array[float]):
    i = tid()
    y[i] = x[i] + 1.0
    z[i] = y[i] * y[i]
"""

kernels: dict[str, Any] = kl.compile(TEXT)
square, squared_in_place, total = kernels["square"], kernels["squared_in_place"], kernels["total"]
weighted, scale = kernels["weighted"], kernels["scale"]


def leaf(*values: float) -> kl.array:
    return kl.array(values or (1.0, 2.0, 3.0), dtype=float, requires_grad=True)


def result(count: int = 3) -> kl.array:
    return kl.zeros(count, dtype=float, requires_grad=True)


# ------------------------------------------------------------------------------------------ primal data


def test_backward_leaves_every_array_as_it_is() -> None:
    x, y, z, loss = leaf(), result(), result(), result(1)
    n = kl.array([1, 2, 3], dtype=int)
    with kl.Tape() as tape:
        square[3](x, y)
        squared_in_place[3](y)
        kl.copy(z, y)
        y.fill_(5.0)
        weighted[3](z, x, loss)
        total[3](y, loss)
    held = [x, y, z, loss, n]
    before = [a.list() for a in held]
    for _ in range(2):
        tape.backward(loss)
        assert [a.list() for a in held] == before


def test_cotangents_and_saved_values_are_not_changed() -> None:
    x, y = leaf(), result()
    with kl.Tape() as tape:
        square[3](x, y)
    seed = kl.array([1.0, 2.0, 3.0], dtype=float)
    x.zero_()
    for times in (1, 2):
        tape.backward(grads={y: seed})
        assert seed.list() == [1, 2, 3] and x.list() == [0, 0, 0]
        assert gradient(x) == [times * 2.0, times * 8.0, times * 18.0]


# ------------------------------------------------------------------------------------------ twice


def chain(x: kl.array) -> tuple[kl.Tape, list[kl.array], kl.array]:
    y, z, loss = result(), result(), result(1)
    with kl.Tape() as tape:
        square[3](x, y)
        square[3](y, z)
        total[3](z, loss)
    return tape, [y, z], loss


def test_a_second_backward_adds_to_leaves_and_replaces_all_else() -> None:
    x = leaf()
    tape, between, loss = chain(x)
    tape.backward(loss)
    once = gradient(x)
    first = [gradient(a) for a in (*between, loss)]
    tape.backward(loss)
    assert gradient(x) == [2 * g for g in once]
    assert [gradient(a) for a in (*between, loss)] == first


def test_what_a_leaf_held_before_stays_in_the_sum() -> None:
    x = leaf()
    tape, _, loss = chain(x)
    assert x.grad is not None
    x.grad.fill_(100.0)
    tape.backward(loss)
    assert gradient(x) == [100 + 4.0 * v**3 for v in (1, 2, 3)]


def test_zero_lets_a_second_backward_give_the_first_result_again() -> None:
    x = leaf()
    tape, between, loss = chain(x)
    tape.backward(loss)
    held = [gradient(a) for a in (x, *between, loss)]
    tape.zero()
    assert [gradient(a) for a in (x, *between, loss)] == [[0.0] * a.size for a in (x, *between, loss)]
    tape.backward(loss)
    assert [gradient(a) for a in (x, *between, loss)] == held


def test_in_place_arrays_count_as_leaves_and_add_too() -> None:
    x, loss = leaf(), result(1)
    with kl.Tape() as tape:
        squared_in_place[3](x)
        squared_in_place[3](x)
        total[3](x, loss)
    for times in (1, 2):
        tape.backward(loss)
        assert gradient(x) == [times * 4.0 * v**3 for v in (1, 2, 3)]


def test_a_leaf_on_two_tapes_gets_the_sum_of_both() -> None:
    x, first, second = leaf(), result(1), result(1)
    with kl.Tape() as one:
        total[3](x, first)
    with kl.Tape() as two:
        weighted[3](x, x, second)
    one.backward(first)
    two.backward(second)
    assert gradient(x) == [3, 5, 7]
    two.zero()
    one.backward(first)
    assert gradient(x) == [1, 1, 1]


def test_losses_taken_one_after_the_other_add_as_their_sum_would() -> None:
    x, y, first, second = leaf(), result(), result(1), result(1)
    with kl.Tape() as tape:
        square[3](x, y)
        total[3](y, first)
        weighted[3](y, x, second)
    tape.backward(first)
    tape.backward(second)
    one_by_one = gradient(x)
    tape.zero()
    tape.backward(grads={first: 1.0, second: 1.0})
    assert gradient(x) == one_by_one == [2 * v + 3 * v * v for v in (1, 2, 3)]


def test_a_loss_beside_cotangents_counts_once_each() -> None:
    x, y, loss = leaf(), result(), result(1)
    with kl.Tape() as tape:
        square[3](x, y)
        total[3](y, loss)
    tape.backward(loss, grads={y: [10, 10, 10]})
    assert gradient(x) == [22, 44, 66]


# ------------------------------------------------------------------------------------------ what x.grad means


def test_of_a_leaf_overwritten_later_it_is_the_gradient_of_its_first_value() -> None:
    x, y, loss = leaf(), result(), result(1)
    with kl.Tape() as tape:
        square[3](x, y)
        x.fill_(7.0)
        weighted[3](y, x, loss)
    tape.backward(loss)
    assert gradient(x) == [14, 28, 42]


def test_of_an_intermediate_it_is_the_gradient_of_what_was_read_first() -> None:
    x, y, loss = leaf(), result(), result(1)
    with kl.Tape() as tape:
        square[3](x, y)
        total[3](y, loss)
        square[3](x, y)
        scale[3](y, 10.0, y)
        total[3](y, loss)
    tape.backward(loss)
    assert gradient(y) == [1, 1, 1]
    assert gradient(x) == [22, 44, 66]


def test_of_what_was_written_before_it_was_read_it_is_no_leafs() -> None:
    x, y, loss = leaf(), leaf(), result(1)
    with kl.Tape() as tape:
        square[3](x, y)
        total[3](y, loss)
    for _ in range(2):
        tape.backward(loss)
    assert gradient(y) == [1, 1, 1]


def test_of_what_the_tape_never_reads_it_is_the_cotangent_at_the_end() -> None:
    x, y = leaf(), result()
    with kl.Tape() as tape:
        square[3](x, y)
        scale[3](x, 10.0, y)
    tape.backward(grads={y: [1, 2, 3]})
    assert gradient(y) == [1, 2, 3]
    assert gradient(x) == [10, 20, 30]


def test_of_a_loss_it_is_one() -> None:
    x = leaf()
    tape, _, loss = chain(x)
    tape.backward(loss)
    assert gradient(loss) == [1]


def test_an_array_read_and_written_by_one_launch_shows_the_gradient_before_it() -> None:
    x, y, z, loss = leaf(), result(), result(), result(1)
    with kl.Tape() as tape:
        kernels["copied_twice"][3](x, y, z)
        total[3](z, loss)
    tape.backward(loss)
    assert gradient(x) == [2 * (v + 1) for v in (1, 2, 3)]


def test_the_gradient_of_a_view_is_a_view_of_the_gradient() -> None:
    x, loss = leaf(1, 2, 3, 4), result(1)
    with kl.Tape() as tape:
        weighted[2](x[2:], x[:2], loss)
    tape.backward(loss)
    assert gradient(x) == [3, 4, 1, 2]
    assert gradient(x[1:3]) == [4, 1]


@pytest.mark.parametrize("seeded", ["y", "z", "both"])
def test_cotangents_may_enter_anywhere(seeded: str) -> None:
    x, y, z = leaf(), result(), result()
    with kl.Tape() as tape:
        square[3](x, y)
        square[3](y, z)
    seeds = {"y": {y: [1, 1, 1]}, "z": {z: [1, 1, 1]}, "both": {y: [1, 1, 1], z: [1, 1, 1]}}[seeded]
    tape.backward(grads=seeds)
    parts = {"y": lambda v: 2 * v, "z": lambda v: 4 * v**3, "both": lambda v: 2 * v + 4 * v**3}
    assert gradient(x) == [parts[seeded](v) for v in (1.0, 2.0, 3.0)]


def test_retain_grad_changes_nothing() -> None:
    x, y, loss = leaf(), result(), result(1)
    y.retain_grad = True
    with kl.Tape() as tape:
        square[3](x, y)
        total[3](y, loss)
    for _ in range(2):
        tape.backward(loss)
        assert gradient(y) == [1, 1, 1]


# ------------------------------------------------------------------------------------------ zero and reset


def test_reset_forgets_the_records_and_clears_the_gradients() -> None:
    x = leaf()
    tape, between, loss = chain(x)
    tape.backward(loss)
    kept = x.grad
    tape.reset()
    assert len(tape) == 0 and gradient(x) == [0, 0, 0] and x.grad is kept
    assert [gradient(a) for a in between] == [[0, 0, 0]] * 2
    with pytest.raises(kl.TapeError, match="it has recorded nothing since it was reset"):
        tape.backward(loss)


def test_a_tape_used_again_after_reset_is_as_new() -> None:
    x = leaf()
    y, loss, tape = result(), result(1), kl.Tape()
    for times in (1, 2):
        tape.reset()
        loss.zero_()
        with tape:
            square[3](x, y)
            scale[3](y, float(times), y)
            total[3](y, loss)
        tape.backward(loss)
        assert gradient(x) == [times * 2.0 * v for v in (1, 2, 3)]


def test_zero_leaves_arrays_of_other_tapes_alone() -> None:
    x, other = leaf(), leaf()
    tape, _, loss = chain(x)
    another, _, other_loss = chain(other)
    tape.backward(loss)
    another.backward(other_loss)
    held = gradient(other)
    tape.zero()
    assert gradient(x) == [0, 0, 0] and gradient(other) == held


# ------------------------------------------------------------------------------------------ at random


def launches(rng: np.random.Generator, arrays: list[kl.array], count: int) -> Callable[[], None]:
    """A program of launches over some arrays, in which everything is read and overwritten at random."""
    steps = []
    for _ in range(count):
        a, b = rng.choice(len(arrays), 2, replace=False)
        kind = rng.choice(["square", "scale", "in place", "copy", "clear"], p=[0.3, 0.3, 0.2, 0.15, 0.05])
        steps.append((kind, arrays[a], arrays[b], float(rng.uniform(0.2, 0.9))))

    def run() -> None:
        for kind, a, b, factor in steps:
            match kind:
                case "square":
                    square[3](a, b)
                case "scale":
                    scale[3](a, factor, b)
                case "in place":
                    squared_in_place[3](a)
                case "copy":
                    kl.copy(b, a)
                case _:
                    b.fill_(factor)

    return run


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_keep_both_promises(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start = rng.uniform(0.4, 0.95, (4, 3))
    arrays = [kl.array(values, dtype=float, requires_grad=True) for values in start]
    weights, loss = kl.array(rng.uniform(-1, 1, 3), dtype=float), result(1)
    run = launches(rng, arrays, 12)
    with kl.Tape() as tape:
        for a in arrays:
            total[3](a, loss)  # reads all first: they are leaves
        run()
        for a in arrays:
            weighted[3](a, weights, loss)
    held = [a.list() for a in arrays]
    tape.backward(loss)
    once = [np.array(gradient(a)) for a in arrays]
    tape.backward(loss)
    assert [a.list() for a in arrays] == held
    for a, g in zip(arrays, once, strict=True):
        np.testing.assert_allclose(gradient(a), 2 * g, rtol=1e-6)

    def value(moved: np.ndarray[Any, Any]) -> float:
        for a, values in zip(arrays, moved, strict=True):
            a.assign(values)
        ahead = sum(float(v) for a in arrays for v in a.list())
        run()
        return ahead + sum(float(np.dot(a.numpy().astype(np.float64), weights.numpy())) for a in arrays)

    direction = rng.normal(size=start.shape)
    slope = sum(float(np.sum(g * d)) for g, d in zip(once, direction, strict=True))
    numeric = (value(start + 1e-2 * direction) - value(start - 1e-2 * direction)) / 2e-2
    assert math.isclose(slope, numeric, rel_tol=2e-2, abs_tol=2e-2)


def a_part(rng: np.random.Generator) -> slice:
    begin, step = int(rng.integers(8)), int(rng.choice([1, 1, 2, 3]))
    return slice(begin, int(rng.integers(begin + 1, 9)), step)


KINDS = ["write", "write by box", "write outside", "read", "read by box", "read outside"]


def partly(
    seed: int, x: kl.array, c: kl.array, y: kl.array
) -> tuple[kl.Tape, np.ndarray[Any, np.dtype[np.object_]]]:
    """A tape that reads and writes parts of `x` at random, and what it did first with each element."""
    rng = np.random.default_rng(seed)
    first = np.full(8, "none", object)
    with kl.Tape() as tape:
        for step in range(5):
            part, kind = a_part(rng), str(rng.choice(KINDS))
            if step == 4:
                part, kind = slice(0, 8), "read"
            if kind.endswith("box"):
                part = slice(0, part.stop)
            low, high = part.start, part.stop
            if kind.endswith("outside"):
                part = np.array([k for k in range(8) if k < low or k >= high], int)
            view, count = x if kind.endswith("outside") else x[part], len(np.arange(8)[part])
            match kind:
                case "write outside":
                    kernels["scale_outside"][8](c, 3.0, low, high, x)
                case "read outside":
                    kernels["weighted_outside"][8](x, x, low, high, y)
                case "write":
                    scale[count](c[:count], 3.0, view)
                case "write by box":
                    scale[count](c, 3.0, x)
                case "read":
                    weighted[count](view, view, y)
                case _:
                    weighted[count](x, x, y)
            first[part] = np.where(first[part] == "none", kind.split()[0], first[part])
    return tape, first


@pytest.mark.parametrize("seed", range(40))
def test_elements_that_were_read_first_add_and_those_written_first_are_replaced(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start, other = rng.uniform(1.0, 2.0, (2, 8))
    x, c, y = leaf(*start), leaf(*other), result(1)
    tape, first = partly(seed, x, c, y)
    tape.backward(y)
    once = np.array(gradient(x))

    def total(k: int, move: float) -> float:
        moved = start.copy()
        moved[k] += move
        y = result(1)
        partly(seed, leaf(*moved), leaf(*other), y)
        return y.item()

    for k in np.flatnonzero(first == "read"):
        assert math.isclose(once[k], total(k, 0.5) - total(k, -0.5), rel_tol=1e-4)  # squares: it is exact
    for passes in (2, 3):
        tape.backward(y)
        expected = np.where(first == "write", once, passes * once)
        np.testing.assert_allclose(gradient(x), expected, rtol=1e-6)


def test_a_part_that_was_overwritten_first_counts_by_itself_in_contributions() -> None:
    x, c, y = leaf(1.0, 2.0, 3.0), leaf(4.0), result(3)
    with kl.Tape() as tape:
        scale[1](c, 2.0, x[1:2])
        square[3](x, y)
    tape.backward(grads={y: kl.ones(3)})
    assert gradient(x) == [2, 16, 6]
    for k, slope in enumerate([2, 16, 6]):
        assert kl.contributions(tape, x, k, grads={y: kl.ones(3)}).total == slope


def test_the_gradient_of_a_result_of_custom_vjp_is_replaced() -> None:
    square = kl.func.custom_vjp(lambda x: x.numpy() ** 2, lambda x, y, bar: 2 * x.numpy() * bar.numpy())
    x = kl.array([1.0, 2.0], dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        u = x * 3.0
        y = square(u)
        loss = (u + y).sum()
    for passes in (1, 2, 3):
        tape.backward(loss)
        assert np.array_equal(y.grad, [1.0, 1.0])
        assert np.array_equal(u.grad, [7.0, 13.0])
        assert np.array_equal(x.grad, np.multiply([21.0, 39.0], passes))


PUT: dict[str, Callable[[Any, Any], Any]] = {
    "by fill_": lambda gradient, _: gradient.fill_(7.0),
    "through a view": lambda gradient, _: gradient.numpy().fill(7.0),
    "through two views, one after the other": lambda gradient, _: [
        np.asarray(gradient).__setitem__(k, 7.0) for k in range(2)
    ],
    "through a view from before the pass": lambda _, view: view.fill(7.0),
}


@pytest.mark.parametrize("put", PUT.values(), ids=PUT)
@pytest.mark.parametrize("again", [False, True], ids=["the same tape", "another tape"])
def test_a_cotangent_that_somebody_puts_on_the_way_after_a_pass_counts(put: Any, again: bool) -> None:
    x, y, z = (kl.array([1.0, 2.0], requires_grad=True) for _ in range(3))

    def recorded() -> kl.Tape:
        with kl.Tape() as tape:
            kl.copy(y, x * x)
            kl.copy(z, 3.0 * y)
        return tape

    tape, view = recorded(), y.grad.numpy()
    z.grad.fill_(1.0)
    tape.backward()
    x.grad.zero_()
    tape = recorded() if again else tape
    put(y.grad, view)
    tape.backward()
    assert x.grad.list() == [20.0, 40.0]


def test_what_a_pass_leaves_on_the_way_is_no_cotangent_though_the_host_looks_at_it() -> None:
    x, y, z = (kl.array([1.0, 2.0], requires_grad=True) for _ in range(3))
    with kl.Tape() as tape:
        kl.copy(y, x * x)
        kl.copy(z, 3.0 * y)
    view = y.grad.numpy()
    for _ in range(2):
        z.grad.fill_(1.0)
        tape.backward()
        assert view.tolist() == y.grad.numpy().tolist() == [3.0, 3.0]
    assert x.grad.list() == [12.0, 24.0]


@pytest.mark.parametrize("is_cleared", [False, True])
def test_a_gradient_that_another_tape_has_left_on_the_way_is_told_of_where_it_is_left_out(
    is_cleared: bool,
) -> None:
    x = kl.array([1.0, 2.0], requires_grad=True)
    with kl.Tape() as first:
        y = x * x
        total = (y * y).sum()
    with kl.Tape() as second:
        loss = kl.sin(y).sum()
    second.backward(loss)
    if is_cleared:
        y.grad.zero_()
    total.grad.fill_(1.0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        first.backward()
    assert x.grad.list() == [4.0, 32.0]
    assert ["grads={y: y.grad}" in str(one.message) for one in told] == ([] if is_cleared else [True])
