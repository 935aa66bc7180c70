"""Loops whose length is known at run time, under ``import kernelab as wp``."""

import numpy as np
import pytest

import kernelab as wp
from tests.guide.close import close, gradient

# mypy: disable-error-code="no-untyped-def, valid-type"


def launched(kernel: wp.Kernel, *arrays: wp.array, iters: int) -> wp.array:
    loss = wp.zeros(1, dtype=float, requires_grad=True)
    with wp.Tape() as tape:
        wp.launch(kernel, dim=1, inputs=[*arrays, loss, iters])
    tape.backward(loss)
    return loss


@wp.kernel
def dynamic_loop_sum(x: wp.array(dtype=float), loss: wp.array(dtype=float), iters: int):
    sum = 0.0
    for i in range(iters):
        sum += x[i]
    wp.atomic_add(loss, 0, sum)


@wp.kernel
def dynamic_loop_mult(x: wp.array(dtype=float), loss: wp.array(dtype=float), iters: int):
    prod = 1.0
    for i in range(iters):
        prod *= x[i]
    wp.atomic_add(loss, 0, prod)


def test_a_sum_in_a_loop_has_gradient_one() -> None:
    x = wp.full(shape=3, value=1.0, dtype=float, requires_grad=True)
    launched(dynamic_loop_sum, x, iters=3)
    close(gradient(x), [1, 1, 1])


def test_a_product_in_a_loop_has_the_right_gradient() -> None:
    x = wp.full(shape=3, value=2.0, dtype=float, requires_grad=True)
    launched(dynamic_loop_mult, x, iters=3)
    close(gradient(x), [4, 4, 4])


@pytest.mark.parametrize("iters", [0, 1, 2, 5, 17])
def test_a_product_of_random_values_has_the_right_gradient_at_any_trip_count(iters: int) -> None:
    values = np.random.default_rng(iters).uniform(0.5, 1.5, 17) * np.where(np.arange(17) % 3, 1, -1)
    x = wp.array(values, dtype=float, requires_grad=True)
    loss = launched(dynamic_loop_mult, x, iters=iters)
    product = float(np.prod(values[:iters]))
    close(loss, [product], rtol=1e-4)
    close(gradient(x), np.where(np.arange(17) < iters, product / values, 0), rtol=1e-4)


def test_a_product_with_a_zero_factor_has_the_right_gradient() -> None:
    x = wp.array([2.0, 0.0, 3.0], dtype=float, requires_grad=True)
    launched(dynamic_loop_mult, x, iters=3)
    close(gradient(x), [0, 6, 0])


@wp.kernel
def product_until(x: wp.array(dtype=float), limit: float, loss: wp.array(dtype=float), iters: int):
    prod = 1.0
    for i in range(iters):
        if x[i] < 0.0:
            continue
        if prod > limit:
            break
        prod *= x[i]
    wp.atomic_add(loss, 0, prod)


@pytest.mark.parametrize("limit", [0.5, 3.0, 20.0, 1e6])
def test_a_product_with_early_exits_has_the_right_gradient(limit: float) -> None:
    values = np.array([2.0, -1.0, 3.0, 1.5, -2.0, 4.0, 1.25])
    used, product = np.zeros(7, bool), 1.0
    for i, value in enumerate(values):
        if value < 0:
            continue
        if product > limit:
            break
        product *= value
        used[i] = True
    x, loss = wp.array(values, dtype=float, requires_grad=True), wp.zeros(1, dtype=float, requires_grad=True)
    with wp.Tape() as tape:
        wp.launch(product_until, dim=1, inputs=[x, limit, loss, 7])
    tape.backward(loss)
    close(loss, [product])
    close(gradient(x), np.where(used, product / values, 0))


@wp.kernel
def stored_products(
    x: wp.array(dtype=float), prods: wp.array(dtype=float), loss: wp.array(dtype=float), iters: int
):
    for i in range(iters):
        prods[i + 1] = x[i] * prods[i]
    wp.atomic_add(loss, 0, prods[iters])


def test_the_products_stored_in_an_array_have_the_right_gradient() -> None:
    x = wp.full(shape=3, value=2.0, dtype=float, requires_grad=True)
    prods = wp.full(shape=4, value=1.0, dtype=float, requires_grad=True)
    launched(stored_products, x, prods, iters=3)
    close(gradient(x), [4, 4, 4])
    assert gradient(prods)[0] == 8


@wp.kernel
def weighted_mean(
    x: wp.array(dtype=float), weights: wp.array(dtype=float), loss: wp.array(dtype=float), iters: int
):
    sum = 0.0
    norm = 0.0
    for i in range(iters):
        w = weights[i]
        norm += w
        sum += x[i] * w
    l = sum / norm  # noqa: E741
    wp.atomic_add(loss, 0, l)


@wp.func
def loop(x: wp.array(dtype=float), weights: wp.array(dtype=float), iters: int):
    sum = 0.0
    norm = 0.0
    for i in range(iters):
        w = weights[i]
        norm += w
        sum += x[i] * w
    return sum, norm


@wp.kernel
def weighted_mean_of_a_function(
    x: wp.array(dtype=float), weights: wp.array(dtype=float), loss: wp.array(dtype=float), iters: int
):
    sum, norm = loop(x, weights, iters)
    l = sum / norm  # noqa: E741
    wp.atomic_add(loss, 0, l)


@pytest.mark.parametrize(
    "kernel", [weighted_mean, weighted_mean_of_a_function], ids=lambda kernel: kernel.name
)
@pytest.mark.parametrize("iters", [1, 3, 12])
def test_a_weighted_mean_has_the_right_gradient(kernel: wp.Kernel, iters: int) -> None:
    values, weights = np.random.default_rng(iters).uniform(0.5, 1.5, size=(2, 12))
    x = wp.array(values, dtype=float, requires_grad=True)
    w = wp.array(weights, dtype=float, requires_grad=True)
    loss = launched(kernel, x, w, iters=iters)
    used = np.arange(12) < iters
    norm = weights[:iters].sum()
    mean = (values * weights)[:iters].sum() / norm
    close(loss, [mean])
    close(gradient(x), np.where(used, weights / norm, 0))
    close(gradient(w), np.where(used, (values - mean) / norm, 0), rtol=1e-4)
