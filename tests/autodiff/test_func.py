"""Transforms of functions that launch kernels: right alone, and composed."""

import weakref
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.autodiff import reverse
from kernelab.errors import GradientError, KernelError, KernelTypeError, TapeError
from kernelab.runtime import memory

CELL = """
def sine(x: array[float], y: array[float]):
    i = tid()
    y[i] = sin(x[i])

def add_up(x: array[float], s: array[float]):
    i = tid()
    atomic_add(s, 0, x[i])

def add_squares(x: array[float], y: array[float], z: array[float]):
    i = tid()
    z[i] = x[i] + y[i] * y[i]

def stencil(x: array[float], y: array[float]):
    i = tid()
    n = x.shape[0]
    y[i] = x[i] * x[(i + 1) % n] - 2.0 * x[i - 1]

def in_place(x: array[float]):
    i = tid()
    x[i] = x[i] * x[i] + x[i]

def product(x: array[float], y: array[float]):
    i = tid()
    p = 1.0
    for k in range(x.shape[0]):
        p = p * (x[k] + 0.5 * float(i))
    y[i] = p

def turn(p: array[vec2], m: array2d[float], q: array[vec2]):
    i = tid()
    q[i] = vec2(m[0, 0] * p[i][0] + m[0, 1] * p[i][1], m[1, 0] * p[i][0] * p[i][0])

def running(x: array[float], y: array[float]):
    i = tid()
    s = 0.0
    for k in range(i + 1):
        s += x[k] * x[k]
    y[i] = s * x[i]

def transposed(a: array2d[float], b: array2d[float]):
    i, j = tid()
    b[j, i] = a[i, j] * a[i, 0]

def scaled(x: array[float], by: float, y: array[float]):
    i = tid()
    y[i] = by * x[i]

def gather(x: array[float], by: float, s: array[float]):
    i = tid()
    atomic_add(s, 0, by * x[i])

def noisy(x: array[float], y: array[float]):
    i = tid()
    state = rand_init(7, i)
    y[i] = x[i] * randf(state)
"""

K = kl.compile(CELL)
RNG = np.random.default_rng(5)


def reals(*shape: int) -> Any:
    return kl.array(RNG.uniform(0.3, 1.5, shape), dtype=float)


def sine(x: Any) -> Any:
    y = kl.zeros_like(x)
    K["sine"][x.shape[0]](x, y)
    return y


def total(x: Any) -> Any:
    s = kl.zeros(1)
    K["add_up"][x.shape[0]](x, s)
    return s


def stencil(x: Any) -> Any:
    y = kl.zeros_like(x)
    K["stencil"][x.shape[0]](x, y)
    return y


def product(x: Any) -> Any:
    y = kl.zeros(4)
    K["product"][4](x, y)
    return y


def sum_of_sines(x: Any) -> Any:
    return total(sine(x))


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found.numpy(), expected, rtol=2e-5, atol=2e-6)


def stencil_jacobian(x: Any) -> Any:
    n, v = x.shape[0], x.numpy()
    J = np.zeros((n, n))
    for i in range(n):
        J[i, i] += v[(i + 1) % n]
        J[i, (i + 1) % n] += v[i]
        J[i, i - 1] -= 2.0
    return J


def product_jacobian(x: Any) -> Any:
    factors = x.numpy()[None, :] + 0.5 * np.arange(4)[:, None]
    return np.prod(factors, 1, keepdims=True) / factors


# ------------------------------------------------------------------------------------------ Jacobians


@pytest.mark.parametrize("jacobian", [kl.func.jacfwd, kl.func.jacrev])
def test_a_pointwise_function_has_a_diagonal_jacobian(jacobian: Any) -> None:
    x = reals(5)
    close(jacobian(sine)(x), np.diag(np.cos(x.numpy())))


@pytest.mark.parametrize("jacobian", [kl.func.jacfwd, kl.func.jacrev])
def test_stencils_loops_and_chains_of_launches(jacobian: Any) -> None:
    x = reals(6)
    close(jacobian(stencil)(x), stencil_jacobian(x))
    close(jacobian(product)(x), product_jacobian(x))
    chained = jacobian(lambda x: stencil(sine(x)))(x)
    close(chained, stencil_jacobian(sine(x)) @ np.diag(np.cos(x.numpy())))


@pytest.mark.parametrize("jacobian", [kl.func.jacfwd, kl.func.jacrev])
@pytest.mark.parametrize("chunk_size", [1, 2, 100])
def test_chunks_change_nothing(jacobian: Any, chunk_size: int) -> None:
    x = reals(5)
    close(jacobian(stencil, chunk_size=chunk_size)(x), stencil_jacobian(x))


@pytest.mark.parametrize("jacobian", [kl.func.jacfwd, kl.func.jacrev])
def test_argnums_choose_the_arguments(jacobian: Any) -> None:
    def f(x: Any, y: Any) -> Any:
        z = kl.zeros_like(x)
        K["add_squares"][x.shape[0]](x, y, z)
        return z

    x, y = reals(5), reals(5)
    close(jacobian(f, argnums=1)(x, y), np.diag(2 * y.numpy()))
    by_x, by_y = jacobian(f, argnums=(0, 1))(x, y)
    close(by_x, np.eye(5))
    close(by_y, np.diag(2 * y.numpy()))


@pytest.mark.parametrize("jacobian", [kl.func.jacfwd, kl.func.jacrev])
def test_has_aux_returns_the_output_too(jacobian: Any) -> None:
    x = reals(5)

    def g(x: Any) -> Any:
        result = sine(x)
        return result, result

    found, value = jacobian(g, has_aux=True)(x)
    close(found, np.diag(np.cos(x.numpy())))
    close(value, np.sin(x.numpy()))


@pytest.mark.parametrize("jacobian", [kl.func.jacfwd, kl.func.jacrev])
def test_components_of_vectors_are_axes(jacobian: Any) -> None:
    p, m = kl.array(RNG.normal(size=(3, 2)), dtype=kl.vec2), reals(2, 2)

    def turn(p: Any, m: Any) -> Any:
        q = kl.zeros_like(p)
        K["turn"][3](p, m, q)
        return {"q": q}

    by_p, by_m = jacobian(turn, argnums=(0, 1))(p, m)["q"]
    assert by_p.shape == (3, 2, 3, 2)
    assert by_m.shape == (3, 2, 2, 2)
    P, M = p.numpy(), m.numpy()
    for i in range(3):
        close(by_p[i, :, i], [[M[0, 0], M[0, 1]], [2 * M[1, 0] * P[i, 0], 0]])
        close(by_m[i], [[P[i], [0, 0]], [[0, 0], [P[i, 0] ** 2, 0]]])


@pytest.mark.parametrize("jacobian", [kl.func.jacfwd, kl.func.jacrev])
def test_grids_of_several_dimensions(jacobian: Any) -> None:
    a = reals(2, 3)

    def f(a: Any) -> Any:
        b = kl.zeros((3, 2))
        K["transposed"][2, 3](a, b)
        return b

    A, expected = a.numpy(), np.zeros((3, 2, 2, 3))
    for i in range(2):
        for j in range(3):
            expected[j, i, i, j] += A[i, 0]
            expected[j, i, i, 0] += A[i, j]
    close(jacobian(f)(a), expected)
    hessian = kl.func.jacfwd(jacobian(f))(a)
    assert hessian.shape == (3, 2, 2, 3, 2, 3)
    np.testing.assert_allclose(hessian.numpy()[1, 0, 0, 1, 0, 0], 1)


@pytest.mark.parametrize("jacobian", [kl.func.jacfwd, kl.func.jacrev])
def test_arrays_changed_in_place_inside_the_function(jacobian: Any) -> None:
    def f(x: Any) -> Any:
        y = kl.clone(x)
        K["in_place"][x.shape[0]](y)
        z = sine(y)
        K["in_place"][x.shape[0]](y)
        return stencil(z), y

    x = reals(4)
    v = x.numpy().astype(float)
    w = v * v + v
    by_z, by_y = jacobian(f)(x)
    close(by_y, np.diag((2 * w + 1) * (2 * v + 1)))
    inner = kl.array(np.sin(w), dtype=float)
    close(by_z, stencil_jacobian(inner) @ np.diag(np.cos(w) * (2 * v + 1)))


def test_host_writes_and_array_arithmetic_are_followed() -> None:
    def f(x: Any) -> Any:
        y = sine(x)
        y.fill_(3.0)
        z = x * x + y
        z[0:2] = x[2:4]
        return z

    x = reals(4)
    expected = np.diag([0, 0, 2 * x.numpy()[2], 2 * x.numpy()[3]])
    expected[0, 2] = expected[1, 3] = 1
    close(kl.func.jacrev(f)(x), expected)
    close(kl.func.jacfwd(f)(x), expected)


def test_a_one_element_array_passed_for_a_number_has_a_derivative() -> None:
    x, by = reals(3), kl.array([2.0], dtype=float)

    def f(by: Any) -> Any:
        y = kl.zeros(3)
        K["scaled"][3](x, by, y)
        return y

    close(kl.func.jacrev(f)(by), x.numpy()[:, None])
    close(kl.func.jacfwd(f)(by), x.numpy()[:, None])


# ------------------------------------------------------------------------------------------ products


def test_jvp_and_vjp_are_products_with_the_jacobian() -> None:
    x, v = reals(6), reals(6)
    J = stencil_jacobian(x)
    value, moved = kl.func.jvp(stencil, (x,), (v,))
    close(value, stencil(x).numpy())
    close(moved, J @ v.numpy())
    value, pull = kl.func.vjp(stencil, x)
    for _ in range(2):
        (found,) = pull(v)
        close(found, J.T @ v.numpy())


def test_grad_and_value_and_grad() -> None:
    x = reals(4)
    close(kl.func.grad(sum_of_sines)(x), np.cos(x.numpy()))
    value, gradient = kl.func.value_and_grad(sum_of_sines)(x)
    close(value, [np.sin(x.numpy()).sum()])
    close(gradient, np.cos(x.numpy()))
    assert x.grad is None


# ------------------------------------------------------------------------------------------ composition


def cubic(x: Any) -> Any:
    return total(stencil(sine(x)))


def test_hessians_by_every_order_of_modes_agree() -> None:
    x = reals(4)
    expected = kl.func.hessian(cubic)(x).numpy()
    np.testing.assert_allclose(expected, expected.T, rtol=1e-5, atol=1e-6)
    close(kl.func.hessian(sum_of_sines)(x), np.diag(-np.sin(x.numpy())))
    close(kl.func.jacfwd(kl.func.grad(cubic))(x), expected)
    close(kl.func.jacrev(kl.func.grad(cubic))(x), expected)
    close(kl.func.jacrev(kl.func.jacfwd(cubic))(x), expected[None])
    close(kl.func.jacfwd(kl.func.jacfwd(cubic))(x), expected[None])
    v = reals(4)
    gradient, moved = kl.func.hvp(cubic, (x,), (v,))
    assert np.array_equal(kl.func.hvp(cubic, x, v)[1].numpy(), moved.numpy())
    close(gradient, kl.func.grad(cubic)(x).numpy())
    close(moved, expected @ v.numpy())


def test_the_hessian_of_a_loop_by_every_order_of_modes() -> None:
    x = reals(3)

    def f(x: Any) -> Any:
        return total(product(x))

    H = np.zeros((3, 3))
    factors = x.numpy()[None, :] + 0.5 * np.arange(4)[:, None]
    for a in range(3):
        for b in range(3):
            if a != b:
                H[a, b] = factors[:, 3 - a - b].sum()
    close(kl.func.hessian(f)(x), H)
    close(kl.func.jacrev(kl.func.jacrev(f))(x), H[None])
    close(kl.func.jacrev(kl.func.grad(f))(x), H)


def test_an_array_that_stands_for_a_number_may_be_what_the_launch_changes() -> None:
    x, s = (kl.array(values, dtype=float, requires_grad=True) for values in ([1.0, 2.0, 3.0], [0.5]))

    def f(x: Any, s: Any) -> Any:
        by = kl.clone(s)
        kl.launch(K["gather"], dim=3, inputs=[x, by], outputs=[by])
        return by

    close(f(x, s), [0.5 + 0.5 * 6.0])
    with kl.Tape() as tape:
        loss = f(x, s)
    tape.backward(loss)
    close(x.grad, [0.5, 0.5, 0.5])
    close(s.grad, [7.0])
    for jacobian in (kl.func.jacfwd, kl.func.jacrev):
        dx, ds = jacobian(f, argnums=(0, 1))(x, s)
        close(dx, [[0.5, 0.5, 0.5]])
        close(ds, [[7.0]])


def test_a_sum_in_a_loop_is_differentiated_twice_in_reverse() -> None:
    x = kl.array([1.0, 2.0, 3.0], dtype=float)

    def f(x: Any) -> Any:
        y = kl.zeros_like(x)
        kl.launch(K["running"], dim=3, inputs=[x], outputs=[y])
        return total(y)

    expected = np.array([[16.0, 2.0, 2.0], [2.0, 18.0, 4.0], [2.0, 4.0, 18.0]])
    close(kl.func.jacrev(kl.func.jacrev(f))(x), expected[None])


def test_vmap_of_every_transform() -> None:
    xs = reals(3, 4)
    rows = [kl.array(row, dtype=float) for row in xs.numpy()]
    close(kl.func.vmap(stencil)(xs), [stencil(row).numpy() for row in rows])
    for f in (kl.func.jacfwd(stencil), kl.func.jacrev(stencil), kl.func.grad(cubic), kl.func.hessian(cubic)):
        close(kl.func.vmap(f)(xs), [f(row).numpy() for row in rows])
    close(kl.func.vmap(product, chunk_size=2)(xs), [product(row).numpy() for row in rows])


def test_transforms_of_vmap() -> None:
    xs = reals(3, 4)
    rows = [kl.array(row, dtype=float) for row in xs.numpy()]

    def f(xs: Any) -> Any:
        return total(kl.func.vmap(sum_of_sines)(xs).flatten())

    close(kl.func.grad(f)(xs), np.cos(xs.numpy()))
    found = kl.func.jacrev(kl.func.vmap(stencil))(xs).numpy()
    for i, row in enumerate(rows):
        np.testing.assert_allclose(found[i, :, i], kl.func.jacrev(stencil)(row).numpy(), rtol=1e-5)
    close(kl.func.jacfwd(kl.func.vmap(stencil))(xs), found)


def test_vmap_of_arrays_changed_in_place() -> None:
    def f(x: Any) -> Any:
        y = kl.clone(x)
        K["in_place"][4](y)
        K["in_place"][4](y)
        return y

    xs = reals(3, 4)
    rows = [kl.array(row, dtype=float) for row in xs.numpy()]
    close(kl.func.vmap(f)(xs), [f(row).numpy() for row in rows])
    close(kl.func.vmap(kl.func.jacrev(f))(xs), [kl.func.jacrev(f)(row).numpy() for row in rows])


def test_axes_in_and_out() -> None:
    xs, y = reals(4, 3), reals(4)

    def f(x: Any, y: Any) -> Any:
        z = kl.zeros_like(y)
        K["add_squares"][4](x, y, z)
        return z

    expected = xs.numpy() + y.numpy()[:, None] ** 2
    close(kl.func.vmap(f, in_dims=(1, None))(xs, y), expected.T)
    close(kl.func.vmap(f, in_dims=(1, None), out_dims=1)(xs, y), expected)


def test_randomness_is_an_error_the_same_or_different() -> None:
    def f(x: Any) -> Any:
        y = kl.zeros_like(x)
        K["noisy"][2](x, y)
        return y

    ones = kl.ones((3, 2))
    with pytest.raises(GradientError, match="draws random numbers inside a vmap"):
        kl.func.vmap(f)(ones)
    same = kl.func.vmap(f, randomness="same")(ones).numpy()
    np.testing.assert_array_equal(same, np.tile(f(kl.ones(2)).numpy(), (3, 1)))
    different = kl.func.vmap(f, randomness="different")(ones).numpy()
    assert len(np.unique(different)) == 6
    with pytest.raises(KernelError, match="randomness='some' says nothing"):
        kl.func.vmap(f, randomness="some")  # type: ignore[arg-type]


def noisy(x: Any) -> Any:
    y = kl.zeros_like(x)
    K["noisy"][2](x, y)
    return y


def test_lanes_that_run_in_chunks_draw_what_they_draw_together() -> None:
    ones = kl.ones((5, 2))
    together = kl.func.vmap(noisy, randomness="different")(ones).numpy()
    for size in (1, 2):
        chunks = kl.func.vmap(noisy, randomness="different", chunk_size=size)(ones).numpy()
        np.testing.assert_array_equal(chunks, together)
    tangents = [
        kl.func.jacfwd(noisy, randomness="different", chunk_size=size)(ones[0]).numpy() for size in (1, 2)
    ]
    np.testing.assert_array_equal(*tangents)


def test_lanes_within_lanes_all_draw_different_numbers() -> None:
    inner = kl.func.vmap(noisy, randomness="different")
    found = kl.func.vmap(inner, randomness="different")(kl.ones((4, 4, 2))).numpy()
    assert len(np.unique(found)) == found.size


def test_a_kernel_that_draws_is_looked_at_though_nothing_else_differs() -> None:
    def f(x: Any) -> Any:
        return noisy(kl.ones(2))

    with pytest.raises(GradientError, match="draws random numbers inside a vmap"):
        kl.func.vmap(f)(kl.ones((3, 2)))
    assert len(np.unique(kl.func.vmap(f, randomness="different")(kl.ones((3, 2))).numpy())) == 6


def test_an_adjoint_draws_what_was_drawn_where_its_function_ran() -> None:
    y, pull = kl.func.vjp(noisy, kl.ones(2))
    for randomness in ("error", "same", "different"):
        bars = kl.func.vmap(lambda c: pull(c)[0], randomness=randomness)(kl.ones((3, 2)))
        close(bars, np.tile(y.numpy(), (3, 1)))

    def value_and_adjoint(c: Any) -> Any:
        y, pull = kl.func.vjp(noisy, kl.ones(2))
        return y, pull(c)[0]

    values, bars = kl.func.vmap(value_and_adjoint, randomness="different")(kl.ones((3, 2)))
    close(bars, values.numpy())


def test_the_jacobian_of_a_loss_is_mapped_over_lanes() -> None:
    xs = reals(3, 4)
    close(kl.func.vmap(kl.func.jacrev(sum_of_sines))(xs), np.cos(xs.numpy())[:, None, :])
    second = kl.func.vmap(kl.func.jacrev(kl.func.jacrev(sum_of_sines)))(xs)
    close(second, [[np.diag(-np.sin(x))] for x in xs.numpy()])


def test_the_hessian_by_several_arguments_is_a_tuple_of_tuples() -> None:
    def energy(x: Any, y: Any) -> Any:
        z = kl.zeros_like(x)
        K["add_squares"][3](sine(x), y, z)
        return total(z)

    x, y = reals(3), reals(3)
    (xx, xy), (yx, yy) = kl.func.hessian(energy, argnums=(0, 1))(x, y)
    close(xx, np.diag(-np.sin(x.numpy())))
    close(yy, 2 * np.eye(3))
    close(xy, np.zeros((3, 3)))
    close(yx, np.zeros((3, 3)))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"out_dims": 2}, "out_dims says 2 for a result that has 2 axes"),
        ({"out_dims": -3}, "out_dims says -3"),
        ({"out_dims": None}, "out_dims says None"),
        ({"out_dims": (0, 1)}, "out_dims has 2 entries for the 1 arrays that sine returns"),
        ({"in_dims": "a"}, "in_dims says 'a' for argument `x`"),
        ({"in_dims": 0.5}, "in_dims says 0.5 for argument `x`"),
        ({"chunk_size": 2.5}, "chunk_size=2.5 is no number of lanes"),
        ({"chunk_size": "2"}, "chunk_size='2' is no number of lanes"),
    ],
)
def test_axes_and_chunks_that_mean_nothing_are_named(options: Any, told: str) -> None:
    with pytest.raises(KernelError, match=told):
        kl.func.vmap(sine, **options)(reals(3, 4))


def test_what_a_jacobian_cannot_be_of_is_named() -> None:
    x = reals(3)
    for argnums in ("x", (), 0.5):
        with pytest.raises(KernelTypeError, match="chooses no argument of sine"):
            kl.func.jacfwd(sine, argnums=argnums)(x)  # type: ignore[arg-type]
    with pytest.raises(KernelTypeError, match="transforms take a Python function, not an int"):
        kl.func.jacrev(3)(x)  # type: ignore[arg-type]
    for transform in (kl.func.jacrev, kl.func.jacfwd):
        with pytest.raises(GradientError, match="output 1 of <lambda> is an array of int32"):
            transform(lambda x: (sine(x), kl.zeros(3, dtype=int)))(x)


@kl.func_native(
    "y[i] = x[i] * x[n - 1 - i];",
    "adj_x[i] += adj_y[i] * x[n - 1 - i];\nadj_x[n - 1 - i] += adj_y[i] * x[i];",
)
def mirrored(x: kl.array(dtype=float), i: int, n: int, y: kl.array(dtype=float)):  # type: ignore[valid-type]
    ...


@kl.kernel
def mirror(x: kl.array(dtype=float), y: kl.array(dtype=float)):  # type: ignore[valid-type]
    i = kl.tid()
    mirrored(x, i, x.shape[0], y)


def test_lanes_of_native_code_over_arrays_run_one_by_one() -> None:
    def f(x: Any) -> Any:
        y = kl.zeros_like(x)
        mirror[4](x, y)
        return y

    x, xs = reals(4), reals(3, 4)
    v = x.numpy()
    close(kl.func.jacrev(f)(x), np.diag(v[::-1]) + np.diag(v)[:, ::-1])
    close(kl.func.vmap(f)(xs), xs.numpy() * xs.numpy()[:, ::-1])
    x.requires_grad = True
    assert kl.autograd.gradcheck(mirror, 4, [x], [kl.zeros(4)], show_summary=False)


# ------------------------------------------------------------------------------------------ refusals


def test_arguments_are_left_alone_and_may_not_be_changed() -> None:
    x = reals(3)
    before = x.numpy().copy()

    def f(x: Any) -> Any:
        K["in_place"][x.shape[0]](x)
        return x

    for transform in (kl.func.jacfwd(f), kl.func.jacrev(f), kl.func.vmap(f)):
        with pytest.raises(GradientError, match="f changes its argument `x`"):
            transform(x)
    np.testing.assert_array_equal(x.numpy(), before)


def test_host_data_is_refused() -> None:
    x = reals(3)
    for transform in (kl.func.jacrev, kl.func.jacfwd):
        with (
            pytest.warns(kl.KernelWarning, match="NumPy sees values that are being differentiated"),
            pytest.raises(KernelTypeError, match=r"f returned a numpy.ndarray.*no derivative"),
        ):
            transform(_named_f(lambda x: sine(x).numpy()))(x)
    with pytest.raises(KernelTypeError, match="f returned nothing"):
        kl.func.jacrev(_named_f(lambda x: None))(x)
    with pytest.raises(KernelTypeError, match="argument `x` of f is a float"):
        kl.func.grad(_named_f(lambda x: x))(1.0)
    for look in (lambda y: y.numpy(), lambda y: y.list(), float, lambda y: y[0]):
        with pytest.raises(GradientError, match="differ between the lanes of a vmap"):
            kl.func.vmap(lambda x, look=look: kl.array(look(sine(x))))(x)
    with pytest.raises(KernelTypeError, match="argument `x` of f has no elements"):
        kl.func.jacfwd(_named_f(lambda x: x))(kl.zeros(0))
    with (
        pytest.warns(kl.KernelWarning, match="NumPy sees values"),
        pytest.raises(GradientError, match="was not computed from the arguments"),
    ):
        kl.func.grad(_named_f(lambda x: kl.array([x.numpy().sum()], dtype=float)))(x)


def _named_f(f: Any) -> Any:
    f.__name__ = "f"
    return f


def test_gradients_are_of_one_number() -> None:
    with pytest.raises(GradientError, match="sine returned 3 elements"):
        kl.func.grad(sine)(reals(3))


def test_lanes_have_to_fit() -> None:
    with pytest.raises(GradientError, match=r"same number of lanes everywhere: `x` has 3, `y` has 2"):
        kl.func.vmap(lambda x, y: x)(reals(3), reals(2))
    with pytest.raises(GradientError, match=r"argument `y` of <lambda> is a float.*no lanes"):
        kl.func.vmap(lambda x, y: x)(reals(3), 2.0)


def test_an_index_outside_is_told_by_the_axis_of_the_kernel_and_its_lane() -> None:
    def f(x: Any) -> Any:
        y = kl.zeros(2)
        kl.launch(K["in_place"], 3, [y])
        return kl.map(kl.sin, x)

    def g(x: Any) -> Any:
        kl.launch(K["in_place"], 4, [y := kl.clone(x)])
        return y

    with pytest.raises(kl.KernelIndexError, match="for axis 0 of array"):
        kl.func.vmap(f)(reals(2, 3))
    with pytest.raises(
        kl.KernelIndexError, match=r"for axis 0 of array `\w+` with size 3; in thread 3 of .*, in lane 0"
    ):
        kl.func.vmap(g)(reals(2, 3))


def test_a_tape_does_not_see_through_a_transform() -> None:
    with kl.Tape(), pytest.raises(TapeError, match="outside of the tape"):
        kl.func.grad(sum_of_sines)(reals(3))


@pytest.mark.parametrize("lanes", [False, True])
def test_adjoints_on_the_way_are_let_go_of(lanes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    counts = []

    def counted(beside: memory.Allocation) -> Any:
        made = memory.zeros_beside(beside)
        alive.add(made)
        counts.append(len(alive))
        return made

    def f(x: Any) -> Any:
        for _ in range(20):
            x = sine(x)
        return x

    monkeypatch.setattr(reverse, "zeros_beside", counted)
    jacobian = kl.func.jacrev(f)
    found = kl.func.vmap(jacobian)(reals(1, 2)) if lanes else jacobian(reals(2))
    assert np.isfinite(found.numpy()).all()
    assert len(counts) >= 20 and max(counts) <= 4


def overwriting(x: Any) -> Any:
    """The sine of x squared plus x, by kernels and copies that destroy what adjoints need."""
    y, z = kl.clone(x), kl.zeros_like(x)
    K["in_place"][x.shape[0]](y)
    K["sine"][x.shape[0]](y, z)
    kl.copy(y, z)
    return y


def test_a_copy_that_overwrites_what_an_adjoint_needs_is_noticed_in_every_lane() -> None:
    xs = reals(2, 3)
    slopes = np.cos(xs.numpy() ** 2 + xs.numpy()) * (2 * xs.numpy() + 1)
    close(kl.func.vmap(kl.func.jacrev(overwriting))(xs), [np.diag(row) for row in slopes])


@pytest.mark.parametrize("modes", ["frf", "rfr"])
def test_third_derivatives_of_kernels_that_overwrite_are_right_in_mixed_modes(modes: str) -> None:
    x, f = reals(2), overwriting
    for mode in modes:
        f = {"f": kl.func.jacfwd, "r": kl.func.jacrev}[mode](f)
    inner, slope = x.numpy() ** 2 + x.numpy(), 2 * x.numpy() + 1
    expected = np.zeros((2, 2, 2, 2))
    expected[[0, 1], [0, 1], [0, 1], [0, 1]] = -np.cos(inner) * slope**3 - 6 * np.sin(inner) * slope
    np.testing.assert_allclose(f(x).numpy(), expected, rtol=2e-4, atol=2e-5)


def test_a_copy_into_an_argument_is_a_change_in_lanes_too() -> None:
    def f(x: Any) -> Any:
        kl.copy(x, kl.ones_like(x))
        return x

    with pytest.raises(GradientError, match="f changes its argument `x`"):
        kl.func.vmap(f)(reals(2, 3))
