"""Transforms of functions that launch kernels: Jacobians, products, and what is refused."""

import warnings
import weakref
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.autodiff.records import adjoint_buffers
from kernelab.errors import GradientError, KernelError, KernelTypeError, KernelValueError, TapeError
from kernelab.runtime.memory import memory
from tests.support.functions import (
    RNG,
    K,
    close,
    product,
    product_jacobian,
    reals,
    sine,
    stencil,
    stencil_jacobian,
    sum_of_sines,
)

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
        with pytest.raises(KernelTypeError, match=r"f returned a numpy.ndarray.*no derivative"):
            transform(_named_f(lambda x: sine(x).numpy()))(x)
    with pytest.raises(KernelTypeError, match="f returned nothing"):
        kl.func.jacrev(_named_f(lambda x: None))(x)
    with pytest.raises(KernelTypeError, match="argument `x` of f is an int"):
        kl.func.grad(_named_f(lambda x: x))(1)
    assert kl.func.grad(_named_f(lambda x: x))(1.0) == 1.0
    for look in (lambda y: y.numpy(), lambda y: y.list(), float, lambda y: y[0]):
        with pytest.raises(GradientError, match="differ between the lanes of a vmap"):
            kl.func.vmap(lambda x, look=look: kl.array(look(sine(x))))(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for transform in (kl.func.jacfwd, kl.func.hessian):
            with pytest.raises(GradientError, match=f"{transform.__name__} runs the function along several"):
                transform(lambda x: x * kl.utils.array_sum(sine(x)))(x)
    with pytest.raises(KernelTypeError, match="argument `x` of f has no elements"):
        kl.func.jacfwd(_named_f(lambda x: x))(kl.zeros(0))
    with pytest.raises(KernelValueError, match="the vector for f is empty: there is no derivative"):
        kl.func.as_numpy(_named_f(lambda x: (x * x).sum()))(np.zeros(0))
    with (
        pytest.warns(kl.KernelWarning, match="no gradient flows from an array back to `x`"),
        pytest.raises(GradientError, match="was not computed from the arguments"),
    ):
        kl.func.grad(_named_f(lambda x: kl.array([x.numpy().sum()], dtype=float)))(x)
    with pytest.raises(GradientError, match=r"what goes through NumPy, or is compared, has no derivative"):
        kl.func.grad(lambda x: kl.where(x > 0.0, 1.0, -1.0).sum())(x)
    assert kl.func.grad(lambda x: kl.where(x > 9.0, x, 0.0).sum())(x).list() == [0.0] * len(x)


@pytest.mark.parametrize("place", [0, 1])
def test_one_of_two_arguments_may_be_empty(place: int) -> None:
    x, empty, k = reals(3), kl.zeros((0, 2)), 1 - place
    args = (empty, x) if place == 0 else (x, empty)

    def f(*args: kl.array) -> kl.array:
        return args[k] * args[k]

    one, two = kl.func.jacrev(f, (0, 1))(*args), kl.func.jacfwd(f, (0, 1))(*args)
    np.testing.assert_allclose(one[k].numpy(), np.diag(2 * x.numpy()), rtol=1e-6)
    np.testing.assert_array_equal(one[k].numpy(), two[k].numpy())
    assert one[place].shape == two[place].shape == (3, 0, 2)

    def loss(*args: kl.array) -> kl.array:
        return kl.utils.array_sum(f(*args), out=kl.zeros(1))

    blocks = kl.func.hessian(loss, (0, 1))(*args)
    np.testing.assert_allclose(blocks[k][k].numpy(), 2 * np.eye(3), rtol=1e-6)
    assert blocks[place][place].shape == (0, 2, 0, 2)
    assert blocks[k][place].shape == (3, 0, 2)
    assert kl.func.grad(loss, (0, 1))(*args)[place].shape == (0, 2)


@pytest.mark.parametrize(
    "last",
    [
        lambda y, w: kl.map(kl.sin, y),  # the end
        lambda y, w: w.assign(y),  # the end
        lambda y, w: w.__setitem__(slice(1, 3), y[1:]),  # the end
        lambda y, w: kl.copy(w, y),  # the end
        lambda y, w: kl.clone(y),  # the end
        lambda y, w: y[::2].contiguous(),  # the end
    ],
)
def test_a_result_that_does_not_follow_names_where_the_values_end(last: Any) -> None:
    outside = kl.zeros(3)

    def f(x: Any) -> Any:
        y = kl.map(kl.sin, x)
        last(y, outside)
        return kl.ones(1)

    with pytest.raises(GradientError) as refused:
        kl.func.grad(f)(reals(3))
    (related,) = refused.value.diagnostics[0].related
    assert related.span.line_text.endswith("# the end")


def test_arrays_in_a_dict_are_passed_one_by_one() -> None:
    with pytest.raises(KernelTypeError, match=r"(?s)is a dict.*pass each array as an argument, with argnums"):
        kl.func.grad(lambda p: p["w"].sum())({"w": reals(3)})
    w, b = kl.func.grad(lambda w, b: (w * b).sum(), argnums=(0, 1))(kl.ones(2), kl.ones(2))
    assert w.list() == b.list() == [1.0, 1.0]


def _named_f(f: Any) -> Any:
    f.__name__ = "f"
    return f


def test_gradients_are_of_one_number() -> None:
    with pytest.raises(GradientError, match="sine returned 3 elements"):
        kl.func.grad(sine)(reals(3))
    with pytest.raises(GradientError, match=r"returned 2 results(.|\n)*has_aux=True"):
        kl.func.grad(lambda x: (x.sum(), x.mean()))(reals(3))


def test_lanes_have_to_fit() -> None:
    with pytest.raises(GradientError, match="argument `x` of <lambda> has no lanes: the axis"):
        kl.func.vmap(lambda x: x)(kl.ones((0, 2)))
    with pytest.raises(GradientError, match=r"`x` of <lambda> is a NumPy array(.|\n)*: kl\.array\("):
        kl.func.vmap(lambda x: x)(np.ones((3, 2)))
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
        made = memory.zeros_like_memory(beside)
        alive.add(made)
        counts.append(len(alive))
        return made

    def f(x: Any) -> Any:
        for _ in range(20):
            x = sine(x)
        return x

    monkeypatch.setattr(adjoint_buffers, "zeros_like_memory", counted)
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


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"out_dims": 2}, "out_dims says 2 for a result that has 2 axes"),
        ({"out_dims": -3}, "out_dims says -3"),
        ({"out_dims": None}, "out_dims says None"),
        ({"out_dims": (0, 1)}, "out_dims has 2 entries for the 1 arrays that sine returns"),
        ({"in_dims": "a"}, "in_dims says 'a' for argument `x`"),
        ({"in_dims": 0.5}, "in_dims says 0.5 for argument `x`"),
        ({"chunk_size": 2.5}, "chunk_size=2.5 is not a number of lanes"),
        ({"chunk_size": "2"}, "chunk_size='2' is not a number of lanes"),
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
    for twice in ((0, 0), (0, -2)):
        with pytest.raises(KernelTypeError, match="chooses argument `a` of <lambda> twice"):
            kl.func.jacrev(lambda a, b: a * b, argnums=twice)(x, x)
    with pytest.raises(KernelTypeError, match="transforms take a Python function, not an int"):
        kl.func.jacrev(3)(x)  # type: ignore[arg-type]
    for transform in (kl.func.jacrev, kl.func.jacfwd):
        with pytest.raises(GradientError, match="output 1 of <lambda> is an array of int32"):
            transform(lambda x: (sine(x), kl.zeros(3, dtype=int)))(x)


def test_copies_between_overlapping_views_are_differentiated() -> None:
    def shifted(x: Any) -> Any:
        y = kl.clone(x)
        kl.copy(y[1:], y[:2])
        kl.copy(y, y[::-1])
        return y

    x = kl.array([1.0, 2.0, 3.0])
    expected = [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    assert kl.func.jacfwd(shifted)(x).numpy().tolist() == expected
    assert kl.func.jacrev(shifted)(x).numpy().tolist() == expected
    lanes = kl.func.vmap(shifted)(kl.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])).numpy().tolist()
    assert lanes == [[2.0, 1.0, 1.0], [5.0, 4.0, 4.0]]
