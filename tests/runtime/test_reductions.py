"""Sums, inner products, casts and scans: their values, where they go, and their derivatives."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl

random = np.random.default_rng(7)


def test_the_sum_of_all_elements_is_a_number() -> None:
    assert kl.utils.array_sum(kl.array([1.0, 2.0, 3.5])) == 6.5
    assert kl.utils.array_sum(kl.array([[1, 2], [3, 4]])) == 10
    assert kl.utils.array_sum(kl.zeros(0)) == 0
    assert kl.utils.array_sum(kl.array([1.0, 2.0, 3.5])[::2]) == 4.5
    assert kl.utils.array_sum(kl.array([1.0, 2.0, 3.5]), value_count=2) == 3


def test_the_sum_of_vectors_is_a_vector() -> None:
    v = kl.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=kl.vec3)
    assert kl.utils.array_sum(v).tolist() == [5, 7, 9]


def test_a_long_float32_sum_keeps_its_digits() -> None:
    assert kl.utils.array_sum(kl.full(2**25 + 5, 1.0)) == 2**25 + 4


@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 4), (1030, 2)])
def test_sums_along_an_axis_leave_an_extent_of_one(shape: tuple[int, ...]) -> None:
    data = random.standard_normal(shape)
    x = kl.array(data)
    for axis in range(-1, len(shape)):
        found = kl.utils.array_sum(x, axis=axis)
        assert np.allclose(found.numpy(), data.sum(axis=axis, keepdims=True))
        product = kl.utils.array_inner(x, x, axis=axis)
        assert np.allclose(product.numpy(), (data * data).sum(axis=axis, keepdims=True))


def test_inner_products_of_numbers_vectors_and_matrices() -> None:
    data = random.standard_normal((1500, 4))
    x = kl.array(data)
    assert np.isclose(kl.utils.array_inner(x, x), (data * data).sum())
    for dtype in (kl.vec4d, kl.mat22d):
        v = kl.array(data, dtype=dtype)
        assert np.isclose(kl.utils.array_inner(v, v), (data * data).sum())
        assert np.isclose(kl.utils.array_inner(v, v, count=3), (data[:3] * data[:3]).sum())


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("shape", [(5,), (3000,), (3, 4), (2, 3000), (2, 3, 4)])
def test_extrema_are_those_of_numpy(shape: tuple[int, ...], name: str) -> None:
    data = random.standard_normal(shape)
    x = kl.array(data)
    for axis in (None, *range(-1, len(shape))):
        for keepdims in (False, True):
            expected = np.atleast_1d(getattr(np, name)(data, axis=axis, keepdims=keepdims))
            found = getattr(x, name)(axis, keepdims=keepdims)
            assert found.shape == expected.shape and (found.numpy() == expected).all()


def test_extrema_of_other_elements() -> None:
    points = kl.array([[1.0, 2.0, 3.0], [3.0, 1.0, 5.0]], dtype=kl.vec3)
    assert points.max().numpy().tolist() == [[3, 2, 5]] and points.min(axis=0).numpy().tolist() == [[1, 1, 3]]
    assert kl.array([1, 5, 2], dtype=kl.uint8).max().list() == [5]
    assert np.isnan([kl.array([1.0, np.nan, 2.0]).max().item(), kl.array([np.nan, 2.0]).min().item()]).all()
    with pytest.raises(kl.KernelValueError, match="without elements has no max"):
        kl.zeros(0).max()
    with pytest.raises(kl.KernelTypeError, match="truth values have no min"):
        (points.view(kl.float32) > 1.0).min()


def test_the_first_of_equal_extrema_has_the_gradient() -> None:
    x = kl.array([1.0, 3.0, 3.0, 1.0], requires_grad=True)
    with kl.Tape() as tape:
        loss = 2.0 * x.max() - x.min()
    tape.backward(loss)
    assert x.grad.list() == [-1, 2, 0, 0]


def test_gradients_of_extrema_reach_one_element_of_each_row() -> None:
    data = random.standard_normal((3, 2500))
    slopes = kl.func.grad(lambda x: (x.max(axis=1) ** 2).sum())(kl.array(data)).numpy()
    expected = np.zeros_like(data)
    places = np.arange(3), data.argmax(axis=1)
    expected[places] = 2.0 * data[places]
    assert np.allclose(slopes, expected)
    assert kl.autograd.gradcheck(lambda x: x.min(axis=0), inputs=[kl.array(data[:, :4], requires_grad=True)])


@pytest.mark.parametrize("dtype", [kl.float16, kl.bfloat16])
def test_the_mean_of_halves_is_right_where_their_sum_or_number_overflows(dtype: Any) -> None:
    x = kl.full((2, 70_000), 2.0, dtype=dtype, requires_grad=True)
    with kl.Tape() as tape:
        mean = (x * x).mean()
    tape.backward(mean)
    assert mean.dtype == dtype and mean.list() == [4.0]
    assert np.allclose(x.grad.numpy().astype(float) * x.size, 4.0, rtol=0.02)
    assert x.mean(axis=1).list() == [2.0, 2.0]
    assert kl.func.jvp(lambda v: v.mean(), (x,), (kl.ones_like(x),))[1].list() == [1.0]


@pytest.mark.parametrize("dtype", [kl.int8, kl.uint8, kl.int16, kl.int32, kl.int64, kl.uint64])
def test_sums_and_means_of_integers_do_not_overflow(dtype: Any) -> None:
    numbers = np.full((3, 1000), min(np.iinfo(kl.dtype_to_numpy(dtype)).max, 2**50))
    x = kl.array(numbers, dtype=dtype)
    assert kl.utils.array_sum(x) == int(x.sum()) == int(numbers.sum())
    assert x.sum(axis=0).list() == numbers.sum(axis=0).tolist()
    assert np.allclose(x.mean(axis=1).numpy(), numbers.mean(axis=1))
    assert x.mean().dtype == (kl.float64 if dtype in (kl.int64, kl.uint64) else kl.float32)
    small = kl.full(300, 11, dtype=dtype)
    assert kl.utils.array_inner(small, small) == 300 * 121


def test_a_result_may_go_into_an_array_that_is_overwritten() -> None:
    out = kl.full(1, 100.0)
    assert kl.utils.array_sum(kl.ones(4), out=out) is out
    assert out.list() == [4]


def test_running_sums() -> None:
    x, out = kl.array([1.0, 2.0, 3.0]), kl.zeros(3)
    kl.utils.array_scan(x, out)
    assert out.list() == [1, 3, 6]
    kl.utils.array_scan(x, out, inclusive=False)
    assert out.list() == [0, 1, 3]
    kl.utils.array_scan(x, x)
    assert x.list() == [1, 3, 6]


def test_casts_convert_numbers_and_components() -> None:
    whole, v = kl.zeros(2, dtype=int), kl.zeros(1, dtype=kl.vec3d)
    kl.utils.array_cast(kl.array([1.7, -2.7]), whole)
    kl.utils.array_cast(kl.array([[1.0, 2.0, 3.0]], dtype=kl.vec3), v)
    assert whole.list() == [1, -2]
    assert v.numpy().tolist() == [[1, 2, 3]]


def test_casts_between_shapes_go_number_by_number() -> None:
    v = kl.array([[1.0, 2.0], [3.0, 4.0]], dtype=kl.vec2, requires_grad=True)
    rows, ends = kl.zeros((2, 2), dtype=kl.float64, requires_grad=True), kl.zeros(2)
    with kl.Tape() as tape:
        kl.utils.array_cast(v, rows)
    tape.backward(grads={rows: kl.array([[1.0, 2.0], [3.0, 4.0]], dtype=kl.float64)})
    kl.utils.array_cast(v, ends, count=1)
    assert rows.numpy().tolist() == v.grad.numpy().tolist() == [[1, 2], [3, 4]]
    assert ends.list() == [1, 2]


def spread(x: kl.array) -> kl.array:
    out = kl.zeros_like(x)
    kl.utils.array_scan(x * x, out)
    return out


def behind(x: kl.array) -> kl.array:
    out = kl.zeros_like(x)
    kl.utils.array_scan(x, out, inclusive=False)
    return out * x


def narrowed(x: kl.array) -> kl.array:
    out = kl.zeros(3, requires_grad=True)
    kl.utils.array_cast(x * x, out)
    return out


def one(x: kl.array) -> kl.array:
    return kl.zeros(1, dtype=x.dtype, requires_grad=x.requires_grad)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: kl.utils.array_sum(x * x, out=one(x)),
        lambda x: kl.utils.array_inner(x, x, out=one(x)),
        lambda x: kl.utils.array_inner(x, kl.map(kl.sin, x), axis=0),
        lambda x: x / kl.utils.array_sum(x, axis=0),
        spread,
        behind,
    ],
)
def test_gradients_agree_with_differences(function: Callable[[kl.array], kl.array]) -> None:
    at, step = np.array([0.5, 1.5, -0.8]), 1e-6
    weights = random.standard_normal(3)

    def weighted(y: np.ndarray[Any, Any]) -> float:
        return float((weights[: y.size] * y).sum())

    x = kl.array(at, requires_grad=True)
    with kl.Tape() as tape:
        y = function(x)
    tape.backward(grads={y: weights[: y.size]})
    moved = [[weighted(function(kl.array(at + s * e)).numpy()) for s in (step, -step)] for e in np.eye(3)]
    assert x.grad is not None
    assert np.allclose(x.grad.numpy(), [(a - b) / (2 * step) for a, b in moved], atol=1e-7)
    assert tape.gradients[x] is x.grad


def test_a_cast_has_a_gradient() -> None:
    x = kl.array(np.array([0.5, 1.5, -2.0]), requires_grad=True)
    with kl.Tape() as tape:
        y = narrowed(x)
    tape.backward(grads={y: kl.ones_like(y)})
    assert x.grad is not None
    assert x.grad.list() == [1, 3, -4]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x: kl.utils.array_sum(x, out=kl.zeros(2)),
            r"shape \(1,\), and out is float32 of shape \(2,\)",
        ),
        (lambda x: kl.utils.array_sum(x, axis=1), "no axis 1"),
        (lambda x: kl.utils.array_sum(x, value_count=4), "no first 4 elements"),
        (lambda x: kl.utils.array_inner(x, kl.zeros(2)), "do not go together"),
        (
            lambda x: kl.utils.array_scan(kl.zeros((2, 2)), kl.zeros((2, 2))),
            "one dimension, and the array has 2",
        ),
        (
            lambda x: kl.utils.array_cast(x, kl.zeros(3, dtype=kl.vec3)),
            "3 numbers cannot be cast into an array that has room for 9",
        ),
        (lambda x: kl.utils.array_cast(x, kl.zeros((2, 4))[:, ::2], 2), "only a contiguous array"),
    ],
)
def test_what_does_not_fit_is_refused(call: Callable[[kl.array], Any], message: str) -> None:
    with pytest.raises(kl.KernelError, match=message):
        call(kl.ones(3))


def test_structs_are_refused_and_the_field_is_named() -> None:
    bodies = kl.zeros(3, dtype=kl.compile("class Body:\n    m: float")["Body"])
    with pytest.raises(kl.KernelTypeError, match=r"elements of Body have no sums(.|\n)*x\['m'\]"):
        kl.utils.array_scan(bodies, bodies)


def test_products_of_elements_are_named_where_a_matrix_product_is_refused() -> None:
    vectors = kl.zeros(3, dtype=kl.vec3)
    with pytest.raises(kl.KernelTypeError, match=r"kl.dot\(a, b\) for vectors"):
        vectors @ vectors
    with pytest.raises(kl.KernelTypeError, match=r"write a \* b for matrices"):
        kl.zeros(3, dtype=kl.mat33) @ vectors


def test_pythons_round_of_several_numbers_names_that_of_arrays() -> None:
    assert round(kl.array([2.4])) == 2
    with pytest.raises(kl.KernelTypeError, match=r"kl.round\(x\)"):
        round(kl.ones(2))


def test_the_first_elements_may_be_those_along_an_axis_or_in_a_row() -> None:
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    x = kl.array(values)
    for axis in (0, 1, 2, -1):
        found = kl.utils.array_sum(x, value_count=1, axis=axis).numpy()
        assert (found == np.take(values, [0], axis)).all()
        assert kl.utils.array_inner(x, x, count=0, axis=axis).numpy().sum() == 0
    assert kl.utils.array_sum(x, value_count=5) == 10
    with pytest.raises(kl.KernelValueError, match="no first 4 elements along axis 1"):
        kl.utils.array_sum(x, value_count=4, axis=1)
    with pytest.raises(kl.KernelValueError, match="no axis 3"):
        kl.utils.array_sum(x, value_count=0, axis=3)


@pytest.mark.parametrize("to", [kl.bool, kl.int32, kl.uint8, kl.float16, kl.float64])
@pytest.mark.parametrize("values", [[True, False, True], [0.0, -0.0, 2.5], [3, 0, 1]])
def test_truth_values_are_cast_as_numpy_casts_them(values: list[Any], to: Any) -> None:
    x = kl.array(values)
    wanted = x.numpy().astype(kl.dtype_to_numpy(to))
    out = kl.zeros(3, dtype=to)
    kl.utils.array_cast(x, out)
    for found in (x.astype(to), out):
        assert found.dtype == to
        np.testing.assert_array_equal(found.numpy(), wanted)


def test_a_mask_as_numbers_is_a_constant_of_a_tape() -> None:
    x = kl.array([1.0, -2.0, 3.0], requires_grad=True)
    with kl.Tape() as tape:
        total = (x * x * (x > 0.0).astype(float)).sum()
    tape.backward(total)
    assert x.grad.list() == [2.0, 0.0, 6.0]


@pytest.mark.parametrize(("length", "columns"), [(1 << 22, 2), (1 << 11, 1 << 12)])
def test_a_long_product_of_float32_keeps_its_digits(length: int, columns: int) -> None:
    product = kl.full((1, length), 1.0) @ kl.full((length, columns), 1.0 / 3.0)
    exact = np.float32(length * float(np.float32(1.0 / 3.0)))
    np.testing.assert_array_equal(product.numpy(), np.full((1, columns), exact))


@pytest.mark.parametrize("inclusive", [True, False])
@pytest.mark.parametrize("dtype", [kl.float32, kl.vec2])
def test_running_sums_of_float32_keep_their_digits(dtype: Any, inclusive: bool) -> None:
    """Added up one by one in float32, a million thirds would be 1 % off, and 2^24 ones would stop growing."""
    count, third = 1 << 20, np.float32(1.0 / 3.0)
    x, out = (
        kl.full(count, third, dtype=dtype, requires_grad=True),
        kl.zeros(count, dtype, requires_grad=True),
    )
    with kl.Tape() as tape:
        kl.utils.array_scan(x, out, inclusive)
    tape.backward(grads={out: kl.full(count, third, dtype=dtype)})
    sums = (float(third) * np.arange(count + 1)).astype(np.float32)
    np.testing.assert_array_equal(out.numpy().reshape(count, -1)[:, -1], sums[1:] if inclusive else sums[:-1])
    np.testing.assert_array_equal(
        x.grad.numpy().reshape(count, -1)[:, 0], sums[:0:-1] if inclusive else sums[-2::-1]
    )


@pytest.mark.parametrize("first", [float("inf"), float("nan"), 2.0])
def test_an_exclusive_scan_starts_at_zero(first: float) -> None:
    out = kl.zeros(2)
    kl.utils.array_scan(kl.array([first, 1.0]), out, inclusive=False)
    np.testing.assert_array_equal(out.numpy(), np.float32([0.0, first]))
    pairs = kl.zeros(2, dtype=kl.quat)
    kl.utils.array_scan(kl.full(2, [first, 1.0, 1.0, 1.0], dtype=kl.quat), pairs, inclusive=False)
    np.testing.assert_array_equal(pairs.numpy()[1], np.float32([first, 1.0, 1.0, 1.0]))


def test_segments_are_counted_in_ints() -> None:
    with pytest.raises(kl.KernelTypeError, match="segment_start_indices is an array of ints"):
        kl.utils.segmented_sort_pairs(kl.ones(2), kl.ones(2), 2, kl.array([0.0, 2.0]))


NO_ELEMENTS: dict[str, Callable[[kl.array], kl.array]] = {
    "picked by a mask": lambda x: x[x > 5.0].sum(),
    "picked, then computed with": lambda x: (kl.sin(x[x > 5.0]) * 2.0).sum(),
    "a slice": lambda x: x[0:0].sum(),
    "a product": lambda x: x[0:0] @ x[0:0],
    "in a checkpoint": lambda x: kl.checkpoint(lambda v: v[v > 5.0].sum(), x),
}


@pytest.mark.parametrize("name", NO_ELEMENTS)
def test_the_sum_of_no_elements_has_the_gradient_zero(name: str) -> None:
    x = kl.array([1.0, 2.0, 3.0], dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        total = NO_ELEMENTS[name](x)
    tape.backward(total)
    assert (total.list(), x.grad.list()) == ([0.0], [0.0] * 3)
    assert kl.func.grad(NO_ELEMENTS[name])(x).list() == [0.0] * 3
    assert kl.func.jacrev(kl.func.grad(NO_ELEMENTS[name]))(x).numpy().tolist() == [[0.0] * 3] * 3


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
@pytest.mark.parametrize("axis", [0, 1])
def test_sums_along_axes_of_no_elements_are_those_of_numpy(shape: tuple[int, int], axis: int) -> None:
    sums = kl.zeros(shape).sum(axis=axis)
    assert sums.numpy().tolist() == np.zeros(shape).sum(axis=axis).tolist()
