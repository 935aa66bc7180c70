"""A function of `custom_vjp` may leave something for its derivative: each call finds what is its own."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.autodiff.transforms import compared

X = np.array([0.3, 0.7, 1.1, -0.4])
D = 2 * np.cos(2 * X)

Layer = Callable[[Any], Any]


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compared, "_KNOWN", {})


def attribute_of_numpy() -> Layer:
    here = SimpleNamespace()

    def wave(a: Any) -> Any:
        here.slope = np.cos(a.numpy())
        return np.sin(a.numpy())

    return kl.func.custom_vjp(wave, lambda a, bar: bar.numpy() * here.slope)


def attribute_of_kernelab() -> Layer:
    here = SimpleNamespace()

    def wave(a: Any) -> Any:
        here.slope = kl.map(kl.cos, a)
        return kl.map(kl.sin, a)

    return kl.func.custom_vjp(wave, lambda a, bar: bar * here.slope)


def variable() -> Layer:
    slope = None

    def wave(a: Any) -> Any:
        nonlocal slope
        slope = np.cos(a.numpy())
        return np.sin(a.numpy())

    return kl.func.custom_vjp(wave, lambda a, bar: bar.numpy() * slope)


def array_that_is_kept() -> Layer:
    slope = kl.zeros(4)

    def wave(a: Any) -> Any:
        slope.assign(np.cos(a.numpy()).astype(np.float32))
        return np.sin(a.numpy())

    return kl.func.custom_vjp(wave, lambda a, bar: bar.numpy() * slope.numpy())


LAYERS = [attribute_of_numpy, attribute_of_kernelab, variable, array_that_is_kept]
layers = pytest.mark.parametrize("make", LAYERS)


def leaf() -> Any:
    return kl.array(X, dtype=kl.float32, requires_grad=True)


@layers
def test_a_second_pass_finds_it(make: Callable[[], Layer]) -> None:
    layer, x = make(), leaf()
    with kl.Tape() as tape:
        loss = layer(x * 2.0).sum()
    for _ in range(2):
        tape.backward(loss)
        np.testing.assert_allclose(x.grad.numpy(), D, rtol=1e-5)
        tape.zero()


@layers
def test_each_call_on_a_tape_finds_its_own(make: Callable[[], Layer]) -> None:
    layer, x = make(), leaf()
    with kl.Tape() as tape:
        loss = layer(layer(x)).sum() + layer(x * 2.0).sum()
    tape.backward(loss)
    np.testing.assert_allclose(x.grad.numpy(), np.cos(np.sin(X)) * np.cos(X) + D, rtol=1e-5)


@layers
def test_each_row_and_column_of_a_jacobian_finds_it(make: Callable[[], Layer]) -> None:
    for jacobian in (kl.func.jacrev, kl.func.jacfwd):
        layer = make()
        found = jacobian(lambda x, layer=layer: layer(x * 2.0))(leaf())
        np.testing.assert_allclose(found.numpy(), np.diag(D), rtol=1e-5)


@layers
def test_each_lane_finds_its_own(make: Callable[[], Layer]) -> None:
    layer, x = make(), kl.array([X, 2.0 * X], dtype=kl.float32)
    found = kl.func.vmap(kl.func.grad(lambda x: layer(x * 2.0).sum()))(x)
    np.testing.assert_allclose(found.numpy(), [D, 2 * np.cos(4 * X)], rtol=1e-5)


def test_a_second_derivative_follows_it() -> None:
    layer = attribute_of_kernelab()
    found = kl.func.hessian(lambda x: (layer(x) * x).sum())(leaf())
    np.testing.assert_allclose(found.numpy(), np.diag(2 * np.cos(X) - X * np.sin(X)), rtol=1e-4)


def test_it_may_come_from_an_argument_without_gradients() -> None:
    here = SimpleNamespace()

    def turned(a: Any, angle: Any) -> Any:
        here.slope = np.cos(angle.numpy())
        return a.numpy() * here.slope

    layer = kl.func.custom_vjp(turned, lambda a, angle, bar: (bar.numpy() * here.slope, None))
    x, angle = leaf(), kl.array(X, dtype=kl.float32)
    with kl.Tape() as tape:
        loss = layer(x, angle).sum() + layer(x, angle * 2.0).sum()
    tape.backward(loss)
    np.testing.assert_allclose(x.grad.numpy(), np.cos(X) + np.cos(2 * X), rtol=1e-5)


def sorting() -> Layer:
    here = SimpleNamespace()

    def ordered(a: Any) -> Any:
        here.order = np.argsort(a.numpy())
        return a.numpy()[here.order]

    def back(a: Any, bar: Any) -> Any:
        found = np.zeros(4, np.float32)
        found[here.order] = bar.numpy()
        return found

    return kl.func.custom_vjp(ordered, back)


RANKS, REVERSED = np.array([1.0, 2.0, 3.0, 0.0]), np.array([2.0, 1.0, 0.0, 3.0])


def test_integers_are_found_by_each_call_and_lane() -> None:
    weights = kl.array([0.0, 1.0, 2.0, 3.0])
    layer, x = sorting(), leaf()
    with kl.Tape() as tape:
        loss = (layer(x) * weights).sum() + (layer(x * -1.0) * weights).sum()
    tape.backward(loss)
    np.testing.assert_allclose(x.grad.numpy(), RANKS - REVERSED)
    layer = sorting()
    lanes = kl.func.vmap(kl.func.grad(lambda x: (layer(x) * weights).sum()))(kl.array([X, -X], kl.float32))
    np.testing.assert_allclose(lanes.numpy(), [RANKS, REVERSED])


def test_a_result_may_be_overwritten() -> None:
    layer, x = attribute_of_numpy(), leaf()
    with kl.Tape() as tape:
        y = layer(x)
        y *= 2.0
        z = layer(x * 2.0)
        z += y
        loss = z.sum()
    tape.backward(loss)
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.cos(X) + D, rtol=1e-5)


def test_what_cannot_be_found_again_is_told() -> None:
    here, scale = SimpleNamespace(), np.float32(2.0)

    def wave(a: Any) -> Any:
        here.slope = scale * np.cos(a.numpy())
        return scale * np.sin(a.numpy())

    layer, x = kl.func.custom_vjp(wave, lambda a, y, bar: bar.numpy() * here.slope), leaf()
    with kl.Tape() as tape:
        loss = layer(x).sum()
    tape.backward(loss)
    scale = np.float32(3.0)
    with pytest.warns(kl.KernelWarning, match="wave gives something else than when it was called"):
        tape.backward(loss)


def test_a_function_without_state_does_not_run_again() -> None:
    runs = 0

    def wave(a: Any) -> Any:
        nonlocal runs
        runs += 1
        return np.sin(a.numpy())

    layer, x = kl.func.custom_vjp(wave, lambda a, bar: bar.numpy() * np.cos(a.numpy())), leaf()
    with kl.Tape() as tape:
        loss = layer(x).sum()
    tape.backward(loss)
    before = runs
    tape.zero()
    tape.backward(loss)
    assert runs == before


def dropping() -> Layer:
    here, rng = SimpleNamespace(), np.random.default_rng(0)

    def dropped(a: Any) -> Any:
        here.mask = rng.random(4) > 0.5
        return a.numpy() * here.mask

    return kl.func.custom_vjp(dropped, lambda a, bar: bar.numpy() * here.mask)


def test_random_numbers_are_found_while_they_are_those_of_the_call() -> None:
    layer, x = dropping(), leaf()
    for _ in range(6):
        with kl.Tape() as tape:
            y = layer(x)
            loss = y.sum()
        tape.backward(loss)
        np.testing.assert_array_equal(x.grad.numpy() != 0, y.numpy() != 0)
        tape.zero()


def test_random_numbers_of_another_run_are_told() -> None:
    layer, x = dropping(), leaf()
    with kl.Tape() as tape:
        loss = layer(layer(x)).sum()
    with pytest.warns(kl.KernelWarning, match="dropped has run since it was called, and its derivative"):
        tape.backward(loss)
    layer = dropping()
    with kl.Tape() as tape:
        loss = layer(x).sum()
    tape.backward(loss)
    with pytest.warns(kl.KernelWarning, match="dropped has run since it was called, and its derivative"):
        tape.backward(loss)


def test_a_function_that_draws_but_leaves_nothing_may_be_called_again() -> None:
    rng, x = np.random.default_rng(0), leaf()
    layer = kl.func.custom_vjp(lambda a: a.numpy() + rng.random(4), lambda a, y, bar: bar)
    with kl.Tape() as tape:
        loss = layer(layer(x)).sum() + layer(x).sum()
    for _ in range(2):
        tape.backward(loss)
        np.testing.assert_array_equal(x.grad.numpy(), 2.0)
        tape.zero()


def test_a_solver_may_begin_where_it_has_ended() -> None:
    here, x = SimpleNamespace(y=np.full(4, 1.2)), leaf()

    def root(a: Any) -> Any:
        while np.abs(here.y**2 - a.numpy() ** 2 - 1.0).max() > 1e-3:
            here.y = 0.5 * (here.y + (a.numpy() ** 2 + 1.0) / here.y)
        return here.y

    rooted = kl.func.custom_vjp(root, lambda a, y, bar: bar.numpy() * a.numpy() / y.numpy())
    with kl.Tape() as tape:
        loss = rooted(rooted(x)).sum()
    for _ in range(2):
        tape.backward(loss)
        np.testing.assert_allclose(x.grad.numpy(), X / np.sqrt(X * X + 2.0), rtol=1e-3)
        tape.zero()


def test_results_that_are_not_finite_are_the_same_again() -> None:
    layer = kl.func.custom_vjp(
        lambda a: np.array([np.nan, np.inf, 1.0, 2.0]) * a.numpy(), lambda a, y, bar: bar
    )
    x = leaf()
    with kl.Tape() as tape:
        loss = (layer(x) + layer(x))[2:].sum()
    tape.backward(loss)
    np.testing.assert_array_equal(x.grad.numpy(), [0.0, 0.0, 2.0, 2.0])


def test_a_comparison_leaves_arrays_around_a_function_as_they_are() -> None:
    state, runs = kl.zeros(1), kl.zeros(1)

    def smoothed(x: kl.array) -> kl.array:
        state.assign(0.5 * state + x)
        runs.assign(runs + 1.0)
        return 2.0 * state

    rule = kl.func.custom_vjp(smoothed, lambda x, bar: 2.0 * bar)
    x = kl.array([1.0], requires_grad=True)
    for expected in (2.0, 3.0, 3.5):
        with kl.Tape() as tape:
            y = rule(x)
        tape.backward(y)
        assert y.list() == [expected]
        tape.zero()
    assert runs.list() == [3]


def test_nor_does_one_add_to_what_a_derivative_adds_up() -> None:
    weights, total = kl.array([3.0]), kl.zeros(1)

    def back(x: kl.array, bar: kl.array) -> kl.array:
        total.assign(total + x * bar)
        return weights * bar

    rule = kl.func.custom_vjp(lambda x: weights * x, back)
    x = kl.array([2.0], requires_grad=True)
    for expected in (2.0, 4.0):
        with kl.Tape() as tape:
            y = rule(x)
        tape.backward(y)
        assert total.list() == [expected]
        tape.zero()
