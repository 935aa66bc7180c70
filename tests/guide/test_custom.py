"""What users of Warp know to write for custom gradients, under ``import kernelab as wp``."""

from typing import Any

import numpy as np
import pytest

import kernelab as wp
from kernelab.backend.cpu import interpreter
from tests.guide.close import gradient

# mypy: disable-error-code="no-untyped-def, valid-type"


def floats(values: object) -> wp.array:
    return wp.array(np.asarray(values), dtype=wp.float32, requires_grad=True)


# ------------------------------------------------------------------------- a gradient that stays finite


@wp.func
def root(x: float):
    return wp.sqrt(x)


@wp.func
def safe_root(x: float):
    return wp.sqrt(x)


@wp.func_grad(safe_root)
def adj_safe_root(x: float, adj_ret: float):
    if x > 0.0:
        wp.adjoint[x] += adj_ret / (2.0 * wp.sqrt(x))


@wp.kernel
def roots(xs: wp.array(dtype=float), ys: wp.array(dtype=float)):
    i = wp.tid()
    ys[i] = root(xs[i])


@wp.kernel
def safe_roots(xs: wp.array(dtype=float), ys: wp.array(dtype=float)):
    i = wp.tid()
    ys[i] = safe_root(xs[i])


def pulled(kernel: Any) -> np.ndarray[Any, Any]:
    xs = floats([1.0, 4.0, 0.0])
    ys = wp.zeros_like(xs)
    with wp.Tape() as tape:
        wp.launch(kernel, dim=3, inputs=[xs], outputs=[ys])
    tape.backward(grads={ys: wp.ones(3, dtype=float)})
    np.testing.assert_allclose(ys.numpy(), [1.0, 2.0, 0.0])
    return gradient(xs)


def test_a_custom_grad_replaces_an_infinite_gradient() -> None:
    np.testing.assert_allclose(pulled(roots), [0.5, 0.25, np.inf])
    np.testing.assert_allclose(pulled(safe_roots), [0.5, 0.25, 0.0])


# ------------------------------------------------------------------------- a counter, replayed


@wp.func
def take_place(counter: wp.array(dtype=int), slot: int, step: int, places: wp.array(dtype=int), thread: int):
    place = wp.atomic_add(counter, slot, step)
    places[thread] = place
    return place


@wp.func_replay(take_place)
def replay_take_place(
    counter: wp.array(dtype=int), slot: int, step: int, places: wp.array(dtype=int), thread: int
):
    return places[thread]


@wp.kernel
def scatter(
    counter: wp.array(dtype=int),
    places: wp.array(dtype=int),
    x: wp.array(dtype=float),
    y: wp.array(dtype=float),
):
    thread = wp.tid()
    place = take_place(counter, 0, 1, places, thread)
    y[place] = wp.sqrt(x[place])


def test_a_custom_replay_reads_back_what_each_thread_took() -> None:
    dim = 8
    values = np.arange(1.0, dim + 1.0)
    x, y = floats(values), wp.zeros(dim, dtype=float, requires_grad=True)
    counter, places = wp.zeros(1, dtype=wp.int32), wp.zeros(dim, dtype=wp.int32)
    with wp.Tape() as tape:
        wp.launch(scatter, dim, inputs=[counter, places, x], outputs=[y])
    tape.backward(grads={y: wp.ones(dim, dtype=float)})
    assert counter.list() == [dim]
    np.testing.assert_array_equal(np.sort(places.numpy()), np.arange(dim))
    np.testing.assert_allclose(gradient(x), 0.5 / np.sqrt(values), rtol=1e-6)


def test_what_a_replay_reads_is_kept_when_it_is_overwritten_before_the_backward_pass() -> None:
    x, y = floats([1.0, 4.0]), wp.zeros(2, dtype=float, requires_grad=True)
    counter, places = wp.zeros(1, dtype=wp.int32), wp.zeros(2, dtype=wp.int32)
    with wp.Tape() as tape:
        wp.launch(scatter, 2, inputs=[counter, places, x], outputs=[y])
    places.fill_(0)
    tape.backward(grads={y: wp.ones(2, dtype=float)})
    np.testing.assert_allclose(gradient(x), [0.5, 0.25])


# ------------------------------------------------------------------------- more that rules can say


@wp.func
def rounded(x: float, v: wp.vec3):
    return wp.round(x) * v


@wp.func_grad(rounded, check=False)
def adj_rounded(x: float, v: wp.vec3, adj_ret: wp.vec3):
    wp.adjoint[x] += wp.dot(v, adj_ret)
    wp.adjoint[v] += wp.round(x) * adj_ret


@wp.kernel
def quantise(x: wp.array(dtype=float), v: wp.array(dtype=wp.vec3), y: wp.array(dtype=wp.vec3)):
    i = wp.tid()
    y[i] = rounded(x[i], v[i])


def test_a_surrogate_passes_its_gradient_straight_through() -> None:
    x = floats([1.3, 2.7])
    v = wp.array(np.ones((2, 3)), dtype=wp.vec3, requires_grad=True)
    y = wp.zeros(2, dtype=wp.vec3, requires_grad=True)
    with wp.Tape() as tape:
        wp.launch(quantise, 2, inputs=[x, v], outputs=[y])
    tape.backward(grads={y: wp.ones(2, dtype=wp.vec3)})
    np.testing.assert_allclose(gradient(x), [3.0, 3.0])
    np.testing.assert_allclose(gradient(v), [[1, 1, 1], [3, 3, 3]])


@wp.func
def product(a: wp.array(dtype=float), i: int):
    return a[i] * a[i + 1]


@wp.func_grad(product)
def adj_product(a: wp.array(dtype=float), i: int, adj_ret: float):
    wp.adjoint[a][i] += a[i + 1] * adj_ret
    wp.atomic_add(wp.adjoint[a], i + 1, a[i] * adj_ret)


@wp.kernel
def products(a: wp.array(dtype=float), total: wp.array(dtype=float)):
    wp.atomic_add(total, 0, product(a, wp.tid()))


def test_a_custom_grad_adds_to_the_adjoint_of_an_array() -> None:
    a, total = floats([1.0, 2.0, 3.0]), wp.zeros(1, dtype=float, requires_grad=True)
    with wp.Tape() as tape:
        wp.launch(products, 2, inputs=[a], outputs=[total])
    tape.backward(total)
    np.testing.assert_allclose(gradient(a), [2.0, 4.0, 2.0])
    assert wp.autograd.gradcheck(products, 2, [a], [total], show_summary=False)


def test_stop_gradient_is_the_identity_without_a_derivative() -> None:
    held = wp.compile("""
def held(x: array[float], v: array[vec3], y: array[float]):
    i = tid()
    y[i] = x[i] * stop_gradient(x[i]) + dot(v[i], stop_gradient(v[i]))
""")["held"]
    x, v = floats([3.0]), wp.array(np.full((1, 3), 2.0), dtype=wp.vec3, requires_grad=True)
    y = wp.zeros(1, dtype=float, requires_grad=True)
    with wp.Tape() as tape:
        wp.launch(held, 1, inputs=[x, v], outputs=[y])
    tape.backward(grads={y: wp.ones(1, dtype=float)})
    assert y.list() == [21.0]
    np.testing.assert_allclose(gradient(x), [3.0])
    np.testing.assert_allclose(gradient(v), [[2.0, 2.0, 2.0]])


@wp.func
def doubled(x: float):
    return 2.0 * x


@wp.func_jvp(doubled, check=False)
def doubled_jvp(x: float, x_dot: float):
    return 3.0 * x_dot


@wp.kernel
def doubles(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = doubled(x[i])


def test_a_tangent_that_is_written_is_the_one_that_runs() -> None:
    arrays = {name: np.zeros(1, np.float32) for name in ("x", "y", "y_dot")}
    interpreter.run(doubles.jvp(["x", "y"]), [1], {**arrays, "x_dot": np.full(1, 5.0, np.float32)})
    assert arrays["y_dot"][0] == 15.0


def test_words_of_rules_are_answered_outside_of_them() -> None:
    with pytest.raises(wp.KernelTypeError, match="only in a grad function"):
        wp.adjoint[0]
    with pytest.raises(wp.KernelTypeError, match="3 is not a function for kernels"):
        wp.func_grad(3)
    with pytest.raises(wp.KernelTypeError, match="roots is not a function for kernels"):
        wp.func_jvp(roots)
