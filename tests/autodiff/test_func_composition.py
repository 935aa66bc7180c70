"""Transforms of transforms: any order of modes, lanes within lanes, random numbers in lanes."""

from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import GradientError, KernelError, KernelValueError
from tests.support.functions import K, close, product, reals, sine, stencil, sum_of_sines, total


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


def test_a_hessian_has_the_numbers_that_the_function_draws() -> None:
    def f(x: Any) -> Any:
        y, total = kl.zeros_like(x), kl.zeros(1)
        K["noisy"][2](x, y)
        kl.utils.array_inner(y, x * y, out=total)
        return total

    x, step = np.array([0.5, 1.5], np.float32), 2.0**-6
    gradient = kl.func.grad(f)
    ends = [
        [gradient(kl.array(x + s * e)).numpy() for e in np.eye(2, dtype=np.float32)] for s in (step, -step)
    ]
    np.testing.assert_allclose(
        kl.func.hessian(f)(kl.array(x)).numpy(), (np.array(ends[0]) - ends[1]) / (2 * step), rtol=1e-3
    )


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


def test_all_columns_of_a_jacobian_draw_the_same_numbers() -> None:
    x = kl.ones(2)
    expected = kl.func.jacrev(noisy)(x).numpy()
    for size in (None, 1):
        np.testing.assert_array_equal(kl.func.jacfwd(noisy, chunk_size=size)(x).numpy(), expected)
    with pytest.raises(KernelValueError, match="other numbers for each column"):
        kl.func.jacfwd(noisy, randomness="different")
    with pytest.raises(GradientError, match="draws random numbers inside jacfwd"):
        kl.func.jacfwd(noisy, randomness="error")(x)


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


# --------------------------------------------------------------------------------------- several results


class Pair(NamedTuple):
    first: Any
    second: Any


class Exchanged(NamedTuple):
    second: Any
    first: Any


ZEROS, V = kl.zeros(3), kl.array([1.0, 2.0, 3.0], dtype=float)


def named(x: Any) -> Any:
    return {"b": x * x, "a": x * 3.0}


def within(x: Any) -> Any:
    return x * 5.0, {"n": named(x)}


@pytest.mark.parametrize(
    ("function", "cotangents"),
    [
        (named, {"a": ZEROS, "b": V}),
        (named, {"b": V, "a": None}),
        (within, (None, {"n": {"a": ZEROS, "b": V}})),
        (within, [ZEROS, {"n": {"b": V, "a": ZEROS}}]),
        (lambda x: Pair(x * x, x * 3.0), Pair(V, ZEROS)),
        (lambda x: Pair(x * x, x * 3.0), (V, None)),
    ],
)
def test_cotangents_go_by_the_names_of_the_results(function: Callable[..., Any], cotangents: Any) -> None:
    close(kl.func.vjp(function, V)[1](cotangents)[0], 2.0 * V.numpy() ** 2)


@pytest.mark.parametrize(
    ("function", "cotangents", "said"),
    [
        (named, {"a": V}, "a dict of a for a result that is a dict of b, a"),
        (named, {"a": V, "c": V}, "a dict of a, c for a result that is a dict of b, a"),
        (named, (V, V), "a tuple for a result that is a dict of b, a"),
        (lambda x: (x * x, x * 3.0), {"a": V, "b": V}, "a dict of a, b for a result that is a tuple"),
        (within, (V, {"n": (V, V)}), "a tuple for a result that is a dict of b, a"),
        (within, (V, V, {"a": V}), "are an array for a result that is a dict of n"),
        (lambda x: Pair(x, x), Exchanged(V, V), "of second, first for a result that is a Pair of first, sec"),
    ],
)
def test_cotangents_by_other_names_are_an_error(function: Any, cotangents: Any, said: str) -> None:
    pull = kl.func.vjp(function, V)[1]
    with pytest.raises(GradientError, match=said):
        pull(cotangents)


def test_results_with_names_come_back_as_such() -> None:
    def function(x: Any) -> Any:
        return Pair(x * x, {"third": x * 3.0})

    for found in (kl.func.jacrev(function)(V), kl.func.jacfwd(function)(V)):
        assert type(found) is Pair
        close(found.first, np.diag(2.0 * V.numpy()))
        close(found.second["third"], 3.0 * np.eye(3))
    value, moved = kl.func.jvp(function, (V,), (V,))
    close(value.first, V.numpy() ** 2)
    close(moved.first, 2.0 * V.numpy() ** 2)
    close(kl.func.vmap(function)(kl.ones((2, 3))).second["third"], np.full((2, 3), 3.0))


STRUCTS = """
class Both:
    a: float64
    v: vec2d

def both(x: float64, w: float64):
    return Both(x * x, vec2d(w, x * w))
"""


@pytest.mark.parametrize("as_struct", [True, False])
def test_cotangents_of_a_struct_are_a_struct_or_a_dict_by_its_fields(as_struct: bool) -> None:
    made = kl.compile(STRUCTS)
    x, w = np.float64(2.0), np.float64(3.0)
    v = kl.array([kl.vec2d(0.0, 1.0)], dtype=kl.vec2d)
    bars = {"v": v, "a": kl.array([1.0], dtype=kl.float64)}
    cotangents = made["Both"](1.0, kl.vec2d(0.0, 1.0)) if as_struct else bars
    assert kl.func.vjp(made["both"], x, w)[1](cotangents) == (7.0, 2.0)
    pull = kl.func.vjp(lambda x, w: (made["both"](x, w), made["both"](w, x)), x, w)[1]
    assert pull((None, cotangents)) == (3.0, 8.0)


def test_the_structs_of_all_lanes_are_a_dict_by_their_fields() -> None:
    x = kl.array([1.0, 2.0, 3.0], dtype=kl.float64)
    found = kl.func.vmap(kl.compile(STRUCTS)["both"], in_dims=(0, None))(x, 2.0)
    assert found["a"].list() == [1.0, 4.0, 9.0]
    assert found["v"].numpy().tolist() == [[2.0, 2.0], [2.0, 4.0], [2.0, 6.0]]


# ------------------------------------------------------------------- functions that are not what they were


def columns_apart(f: Any) -> Any:
    return kl.func.jacfwd(f, chunk_size=1)(V)


def columns_of_two_arguments(f: Any) -> Any:
    return kl.func.jacfwd(lambda x, y: f(x) * y, (0, 1))(V, V)


def hessian_of_two_arguments(f: Any) -> Any:
    return kl.func.hessian(lambda x, y: total(f(x) * y * y), (0, 1))(V, V)


def columns_in_lanes(f: Any) -> Any:
    return kl.func.vmap(kl.func.jacfwd(f, chunk_size=2))(kl.ones((2, 3)))


def columns_of_a_gradient(f: Any) -> Any:
    return kl.func.jacfwd(kl.func.grad(lambda x: total(f(x * x))), chunk_size=2)(V)


SEVERAL_RUNS = [
    columns_apart,
    columns_of_two_arguments,
    hessian_of_two_arguments,
    columns_in_lanes,
    columns_of_a_gradient,
]


CHANGING: dict[str, Callable[[Any, int], Any]] = {
    "by a number": lambda x, run: x * float(run),
    "by an array": lambda x, run: x * kl.array(np.full(x.shape, run), dtype=x.dtype),
    "by a write": lambda x, run: x * kl.ones_like(x).assign(np.full(x.shape, run)),
    "to the same values": lambda x, run: x * 0.0 * float(run),
    "to the same values, by an array": lambda x, run: (
        x * 0.0 * kl.array(np.full(x.shape, run), dtype=x.dtype)
    ),
}


@pytest.mark.parametrize("change", CHANGING)
@pytest.mark.parametrize("transform", SEVERAL_RUNS)
def test_a_function_that_is_another_one_for_other_columns_is_an_error(transform: Any, change: str) -> None:
    """A minibatch that is drawn in the function would be another one for each block."""
    runs = count(1)
    with pytest.raises(GradientError, match="ran once more for other columns, and did something else"):
        transform(lambda x: CHANGING[change](x, next(runs)))


@pytest.mark.parametrize("transform", SEVERAL_RUNS)
def test_one_that_is_the_same_is_none(transform: Any) -> None:
    transform(lambda x: x * float("nan"))
    transform(lambda x: sine(x) + float("inf"))


def test_an_argument_whose_memory_the_function_shares_is_no_data_of_the_host() -> None:
    x, y = kl.array([1.0, 2.0], dtype=kl.float64), kl.array([3.0, 4.0], dtype=kl.float64)
    by_x, by_y = kl.func.jacfwd(lambda x, y: kl.array(x, copy=False) * y, (0, 1))(x, y)
    assert by_x.numpy().tolist() == [[3.0, 0.0], [0.0, 4.0]]
    assert by_y.numpy().tolist() == [[1.0, 0.0], [0.0, 2.0]]
