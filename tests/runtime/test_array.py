"""Arrays: their making, their views, their values, and the memory and gradients that views share."""

import copy
import itertools
import math
import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import KernelError, KernelIndexError, KernelTypeError, KernelValueError, KernelWarning
from kernelab.lang.types import Array, Mat, Vec, float32, float64, int32
from kernelab.runtime.context import conversion
from kernelab.runtime.host import create as make
from kernelab.runtime.host.create import array
from kernelab.runtime.memory.memory import HUGE_PAGE

vec3, mat22 = Vec(float32, 3), Mat(float32, 2, 2)


def test_an_axis_is_no_longer_than_kernels_can_count() -> None:
    long = np.lib.stride_tricks.as_strided(np.ones(1, np.int8), (2**31,), (0,))
    makers = [
        lambda: kl.zeros(2**31, dtype=kl.int8),
        lambda: kl.empty((1, 2**32), dtype=kl.int8),
        lambda: kl.array(long),
        lambda: kl.from_numpy(long),
        lambda: kl.array(ptr=kl.ones(1).ptr, shape=2**31, strides=(0,)),
    ]
    for made in makers:
        with pytest.raises(kl.KernelValueError, match=r"at most 2,147,483,647 elements, not \d,"):
            made()


def test_a_list_of_python_floats_becomes_float32() -> None:
    x = array([1.0, 2.0, 3.0])
    assert (x.dtype, x.shape, x.ndim, x.size) == (float32, (3,), 1, 3)
    assert x.list() == [1.0, 2.0, 3.0]


def test_a_list_of_python_ints_becomes_int32_unless_they_need_more() -> None:
    assert array([1, 2]).dtype == int32
    assert array([1, 2**40]).dtype.bits == 64


@pytest.mark.parametrize("numbers", [[2**63 + 5, 3], [[2**64 - 1], [0]], [2**53 + 1, np.uint64(7)]])
def test_large_ints_stay_what_they_are_beside_small_ones(numbers: Any) -> None:
    """NumPy makes float64 of int64 beside uint64."""
    wanted = np.array(numbers, dtype=object).astype(np.uint64)
    x = kl.zeros(wanted.shape, dtype=kl.uint64)
    x[:] = numbers
    for made in (x, array(numbers), array(numbers, dtype=kl.uint64), x.assign(numbers)):
        assert made.numpy().tolist() == wanted.tolist()
    given = kl.zeros(2, dtype=kl.uint64)
    text = "def k(v: vec2ul, y: array[uint64]):\n    y[0], y[1] = v[0], v[1]"
    kl.compile(text)["k"][1](tuple(wanted.ravel().tolist()), given)
    assert given.list() == wanted.ravel().tolist()


def test_a_list_of_arrays_or_vectors_keeps_their_dtype() -> None:
    doubles, longs = array([1.0, 2.0], dtype=float64), array([1, 2], dtype=np.int64)
    for several in ([doubles, doubles], (doubles[:1], doubles[1:]), [[doubles], [doubles]]):
        assert array(several).dtype == float64
    assert array([doubles, array([1.0, 2.0])]).dtype == float64
    assert array([longs, longs]).dtype.bits == 64
    assert array([kl.vec2d(1.0, 2.0), kl.vec2d(3.0, 4.0)]).dtype == float64
    assert array([array([1.0]), array([2.0])]).dtype == float32


def test_numpy_data_keep_their_dtype() -> None:
    assert array(np.arange(3.0)).dtype == float64


@pytest.mark.parametrize("dtype", [float, float32, np.float32, "float32", np.dtype("f4")])
def test_a_dtype_goes_by_every_name_it_has(dtype: object) -> None:
    assert array(np.arange(3), dtype=dtype).dtype == float32


def test_the_last_axis_of_the_data_holds_the_components_of_vectors() -> None:
    x = array(np.arange(6).reshape(2, 3), dtype=vec3)
    assert (x.shape, x.strides, x.numpy().shape) == ((2,), (12,), (2, 3))


def test_a_flat_row_becomes_a_matrix() -> None:
    x = array([[1, 2, 3, 4]], dtype=mat22)
    assert x.numpy().tolist() == [[[1.0, 2.0], [3.0, 4.0]]]


def test_data_that_do_not_fit_a_vector_are_refused_with_both_shapes() -> None:
    with pytest.raises(KernelTypeError, match=r"array of vec3 from data of shape \(4, 2\)"):
        array(np.zeros((4, 2)), dtype=vec3)


def test_text_is_no_number() -> None:
    with pytest.raises(KernelTypeError, match="from a list that holds the text 'one'"):
        array(["one"], dtype=float)


def test_five_dimensions_are_too_many() -> None:
    with pytest.raises(KernelTypeError, match="1 to 4 dimensions, not 5"):
        make.zeros((1, 1, 1, 1, 1))


def test_without_data_array_is_an_annotation() -> None:
    assert array(dtype=float) == Array(float32, 1)
    assert array(dtype=vec3, ndim=2) == Array(vec3, 2)
    assert array[int] == Array(int32, 1)
    assert make.array3d(dtype=float64) == Array(float64, 3)


def test_array2d_refuses_data_of_one_dimension() -> None:
    with pytest.raises(KernelTypeError, match="1 dimensions, not 2"):
        make.array2d([1.0, 2.0])


@pytest.mark.parametrize(
    ("made", "value"),
    [
        (make.zeros(3), 0.0),
        (make.ones((3, 2)), 1.0),
        (make.full(3, 2.5), 2.5),
        (make.full((2, 2), 7, dtype=int), 7),
    ],
)
def test_created_arrays_hold_one_value(made: array, value: float) -> None:
    assert np.all(made.numpy() == value)


def test_like_functions_keep_shape_dtype_and_requires_grad() -> None:
    x = make.zeros((2, 3), dtype=float64, requires_grad=True)
    for like in (make.zeros_like(x), make.ones_like(x), make.empty_like(x), make.full_like(x, 3)):
        assert (like.shape, like.dtype, like.requires_grad) == ((2, 3), float64, True)
    assert not make.zeros_like(x, requires_grad=False).requires_grad


def test_full_takes_vectors() -> None:
    assert make.full(2, (1, 2, 3), dtype=vec3).numpy().tolist() == [[1, 2, 3], [1, 2, 3]]


def test_arrays_are_keys_by_identity() -> None:
    x, y = make.zeros(2), make.zeros(2)
    assert {x: 1, y: 2}[x] == 1
    assert hash(x) != hash(y)


def test_numpy_is_a_writable_view() -> None:
    x = make.zeros(3)
    x.numpy()[1] = 5
    assert x.list() == [0, 5, 0]


def test_asarray_shares_the_memory() -> None:
    x = make.zeros((2, 2))
    np.asarray(x[1])[0] = 4
    assert x.numpy().tolist() == [[0, 0], [4, 0]]


def test_a_numpy_view_keeps_the_memory_alive() -> None:
    view = make.full(1000, 3.0).numpy()[10:]
    make.zeros(1000)
    assert np.all(view == 3)


def test_an_array_is_a_copy_unless_told_otherwise() -> None:
    data = np.zeros(3, np.float32)
    copied, shared = array(data), array(data, copy=False)
    data[0] = 1
    assert (copied.list(), shared.list()) == ([0, 0, 0], [1, 0, 0])


def test_arrays_over_one_numpy_buffer_share_their_allocation() -> None:
    data = np.zeros((4, 4), np.float32)
    rows, block = make.from_numpy(data), make.from_numpy(data[1:, ::2])
    assert rows.allocation is block.allocation
    assert rows.overlaps(block)


@pytest.mark.parametrize(("dtype", "given"), [(">f8", None), ("f8", np.float32)])
def test_numbers_of_another_byte_order_or_type_are_copied(dtype: str, given: Any) -> None:
    data = np.ones(3, dtype)
    x = make.from_numpy(data, given)
    data[0] = 2
    assert x.list() == [1, 1, 1]


def test_the_numpy_view_of_an_array_leads_back_to_its_allocation() -> None:
    x = make.zeros(8)
    assert make.from_numpy(x.numpy()[2:]).allocation is x.allocation


def test_negative_strides_of_numpy_are_kept() -> None:
    data = np.arange(4, dtype=np.float32)[::-1]
    x = make.from_numpy(data)
    assert x.strides == (-4,)
    assert x.list() == [3, 2, 1, 0]


def test_a_read_only_numpy_array_cannot_be_written() -> None:
    data = np.zeros(3, np.float32)
    data.flags.writeable = False
    with pytest.raises(KernelValueError, match="read-only"):
        make.from_numpy(data).fill_(1)


GRID = np.arange(24, dtype=np.float32).reshape(4, 6)


@pytest.mark.parametrize(
    "key",
    [
        1,
        -1,
        slice(1, 3),
        (slice(None), 2),
        (slice(None, None, 2), slice(5, 0, -2)),
        (..., 1),
        (2, ...),
        slice(9, 9),
    ],
    ids=str,
)
def test_slicing_gives_the_view_that_numpy_gives(key: object) -> None:
    x = array(GRID)
    view = x[key]  # type: ignore[index]
    assert view.allocation is x.allocation
    np.testing.assert_array_equal(view.numpy(), GRID[key])  # type: ignore[index]


def test_an_element_is_a_value() -> None:
    assert array(GRID)[1, 2] == 8
    np.testing.assert_array_equal(array([[1, 2, 3]], dtype=vec3)[0], [1, 2, 3])


def test_an_index_outside_names_the_shape() -> None:
    with pytest.raises(KernelIndexError, match=r"shape is \(3,\)"):
        make.zeros(3)[3]


def test_too_many_indices_are_counted() -> None:
    with pytest.raises(KernelIndexError, match=r"2 indices for an array of shape \(3,\)"):
        make.zeros(3)[1, 2]


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        (np.ones((1, 3), bool), "mask has one axis"),
        ([[0, 1], [1, 2]], "index the NumPy view"),
        (1.5, "write int"),
        ("mass", "arrays of structs"),
        ((0, None), r"x\[:, None\]"),
    ],
    ids=str,
)
def test_no_indices_are_refused_with_the_way_out(key: Any, hint: str) -> None:
    with pytest.raises(KernelTypeError, match=hint):
        make.zeros(3)[key]


@pytest.mark.parametrize(
    ("key", "value"), [(1, 5), (slice(0, 2), 7), (-1, 2), (slice(None), [1, 2, 3])], ids=str
)
def test_items_can_be_assigned(key: int | slice, value: object) -> None:
    x, expected = make.zeros(3), np.zeros(3)
    x[key] = value
    expected[key] = value
    np.testing.assert_array_equal(x.numpy(), expected)


def test_reshape_flatten_and_transpose_are_views() -> None:
    x = array(GRID)
    assert x.reshape((2, 12)).shape == x.reshape(2, -1).shape == (2, 12)
    assert x.flatten().shape == (24,)
    np.testing.assert_array_equal(x.transpose().numpy(), GRID.T)
    assert all(view.allocation is x.allocation for view in (x.flatten(), x.transpose(), x.reshape(24)))


def test_a_transposed_array_reshapes_only_after_a_copy() -> None:
    x = array(GRID).transpose()
    with pytest.raises(KernelValueError, match="contiguous"):
        x.flatten()
    np.testing.assert_array_equal(x.contiguous().flatten().numpy(), GRID.T.ravel())


def test_a_shape_that_does_not_fit_is_refused() -> None:
    with pytest.raises(KernelValueError, match=r"\(24,\) cannot be reshaped to \(5, 5\)"):
        array(GRID).flatten().reshape(5, 5)


def test_contiguous_knows_its_own() -> None:
    x = array(GRID)
    assert x.is_contiguous
    assert x.contiguous() is x
    assert not x[:, 1].is_contiguous


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        (slice(0, 2), slice(2, 4), False),
        (slice(0, 3), slice(2, 4), True),
        (slice(0, 4, 2), slice(1, 4, 2), False),
        (slice(0, 4, 2), slice(2, 3), True),
        (slice(1, 1), slice(0, 4), False),
    ],
)
def test_views_overlap_where_they_share_bytes(first: slice, second: slice, shared: bool) -> None:
    x = make.zeros(4)
    assert x[first].overlaps(x[second]) is shared


def test_columns_of_a_matrix_do_not_overlap() -> None:
    x = array(GRID)
    assert not x[:, 0].overlaps(x[:, 1])
    assert x[:, 0].overlaps(x[1])


def test_assign_takes_arrays_and_host_data() -> None:
    x = make.zeros(3)
    assert x.assign([1, 2, 3]).list() == [1, 2, 3]
    assert x.assign(make.ones(3)).list() == [1, 1, 1]
    with pytest.raises(KernelValueError, match=r"shape \(3,\), the data have shape \(2,\)"):
        x.assign([1, 2])


def test_copy_moves_a_stretch() -> None:
    dest, src = make.zeros(5), array([1.0, 2.0, 3.0])
    make.copy(dest, src, dest_offset=2, src_offset=1, count=2)
    assert dest.list() == [0, 0, 2, 3, 0]
    with pytest.raises(KernelValueError, match="`dest` has 5 elements"):
        make.copy(dest, src, dest_offset=4, count=3)


def test_a_copy_between_overlapping_views_takes_the_old_elements() -> None:
    x = array(np.arange(7.0), dtype=float)
    make.copy(x[0:5:2], x[0:3])
    assert x.list() == [0, 1, 1, 3, 2, 5, 6]
    x.assign(x.numpy()[::-1])
    assert x.list() == [6, 5, 2, 3, 1, 1, 0]


def test_copy_refuses_another_dtype() -> None:
    with pytest.raises(KernelTypeError, match="cannot copy float64 elements into an array of float32"):
        make.copy(make.zeros(2), make.zeros(2, dtype=float64))


def test_clone_is_contiguous_and_of_its_own() -> None:
    x = array(GRID)[:, ::2]
    y = make.clone(x)
    assert y.is_contiguous
    assert y.allocation is not x.allocation
    np.testing.assert_array_equal(y.numpy(), x.numpy())


def test_every_write_counts_a_version() -> None:
    x = make.zeros(3)
    before = x.allocation.version
    x.fill_(1)
    x[0:1].zero_()
    x.assign([1, 2, 3])
    x[1] = 4
    assert x.allocation.version == before + 4


def test_grad_is_zero_at_first_and_one_object() -> None:
    x = make.ones(3, requires_grad=True)
    assert x.grad is not None
    assert x.grad.list() == [0, 0, 0]
    assert x.grad is x.grad
    assert make.ones(3).grad is None


def test_the_grad_of_a_view_is_a_view_of_the_grad() -> None:
    x = make.zeros(4, requires_grad=True)
    view = x[1:3]
    assert view.requires_grad
    view.grad.fill_(2)
    assert x.grad is not None
    assert x.grad.list() == [0, 2, 2, 0]


def test_grad_can_be_set_and_cleared() -> None:
    x, g = make.zeros(2), array([1.0, 2.0])
    x.grad = g
    assert x.grad is g
    assert x.requires_grad
    x.grad = None
    assert x.grad is not None
    assert x.grad.list() == [0, 0]
    with pytest.raises(KernelTypeError, match="gradient of float32"):
        x.grad = make.zeros(3)


def test_integers_have_no_gradients_and_asking_for_them_is_warned_of() -> None:
    with pytest.warns(KernelWarning, match="an array of int32 has no gradient") as warned:
        x = make.zeros(3, dtype=int, requires_grad=True)
    assert (x.requires_grad, x.grad, warned[0].filename) == (False, None, __file__)
    with pytest.warns(KernelWarning, match="an array of vec2i has no gradient"):
        make.zeros(2, dtype=kl.vec2i).requires_grad = True


def test_item_and_float_take_the_only_element() -> None:
    assert float(array([2.5])) == array([2.5]).item() == 2.5
    assert int(array([3])) == 3
    with pytest.raises(KernelValueError, match="this one has 2"):
        make.zeros(2).item()


def test_iteration_gives_elements_or_rows() -> None:
    assert list(array([1.0, 2.0])) == [1.0, 2.0]
    assert [row.shape for row in array(GRID)] == [(6,)] * 4


def test_arrays_print_like_numpy_and_say_what_they_are() -> None:
    x = array([1.0, 2.0], requires_grad=True)
    assert str(x) == "[1. 2.]"
    assert repr(x) == "array([1., 2.], shape=(2,), dtype=float32, device=cpu, requires_grad=True)"


def test_an_empty_array_is_fine() -> None:
    x = make.zeros((0, 3))
    assert (x.size, x.list(), x.is_contiguous) == (0, [], True)
    assert x.numpy().shape == (0, 3)


@pytest.mark.parametrize("name", ["cuda:99", "tpu"])
def test_a_device_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(KernelError, match=f"no device '{name}'"):
        make.zeros(3, device=name)


def test_memory_is_exposed_while_a_numpy_view_lives() -> None:
    x = make.zeros(3)
    assert not x.allocation.is_exposed
    view = x.numpy()[1:]
    assert x.allocation.is_exposed
    del view
    assert not x.allocation.is_exposed
    np.asarray(x)
    assert not x.allocation.is_exposed


def test_rows_of_different_lengths_are_refused() -> None:
    with pytest.raises(KernelTypeError, match="its rows have different lengths"):
        array([[1, 2], [3]])


@pytest.mark.parametrize(("name", "dtype"), [("float", float32), ("int", int32), ("float64", float64)])
def test_a_dtype_by_name_means_what_it_means_in_a_kernel(name: str, dtype: object) -> None:
    assert make.zeros(1, dtype=name).dtype == dtype


def test_a_copied_or_pickled_array_is_an_array_of_its_own() -> None:
    a = array([[1.0, 2.0]], dtype=float32, requires_grad=True)
    for twin in (copy.copy(a), copy.deepcopy(a), pickle.loads(pickle.dumps(a))):
        assert isinstance(twin, array)
        assert (twin.list(), twin.dtype, twin.requires_grad) == (a.list(), a.dtype, True)
        twin.fill_(0.0)
    assert a.numpy().tolist() == [[1.0, 2.0]]


def test_data_of_several_elements_in_a_row_are_taken_apart() -> None:
    assert make.array(range(12), dtype=vec3).shape == (4,)
    assert make.array(np.zeros((4, 6)), dtype=vec3).shape == (4, 2)
    assert make.array([1.5, 2.5], dtype=Any).dtype == make.array([1.5]).dtype


def test_parts_of_rows_with_strides_can_be_copied() -> None:
    x, y = make.array([1.0, 2, 3, 4, 5, 6]), make.zeros(6)
    make.copy(y[::2], x[::2], dest_offset=1, src_offset=0, count=2)
    assert y.list() == [0, 0, 1, 0, 3, 0]


def test_arrays_can_be_made_like_picked_elements() -> None:
    x = make.ones((3, 2), requires_grad=True)
    like = make.zeros_like(x[[0, 2]])
    assert (like.shape, like.requires_grad) == ((2, 2), True)


def test_new_arrays_may_have_strides_of_their_own() -> None:
    for create in (kl.zeros, kl.empty, kl.ones):
        made = create((2, 3), dtype=int, strides=(4, 8))
        assert made.strides == (4, 8) and not made.is_contiguous
    by_columns = kl.full((2, 3), 7, strides=(4, 8))
    by_columns[0, 2] = 1
    assert by_columns.numpy().tolist() == [[7, 7, 1], [7, 7, 7]]
    assert kl.array(shape=(2, 3), dtype=kl.vec3, strides=[48, 16]).strides == (48, 16)
    one_row = kl.full((3, 2), 5.0, strides=(0, 4))
    with pytest.raises(kl.KernelValueError, match="share bytes with each other"):
        one_row.fill_(1.0)


@pytest.mark.parametrize("strides", [(4,), (-4, 4), (4.0, 4), "ab"])
def test_strides_that_fit_no_array_are_refused(strides: Any) -> None:
    with pytest.raises(kl.KernelValueError, match="cannot have the strides"):
        kl.zeros((2, 3), strides=strides)


@pytest.mark.parametrize(
    "ptr", [-1, 1.5, math.nan, "x", [1], True, 2**63, 2**70, -(2**70), np.int64(-5), 1j, 0]
)
def test_what_is_no_address_is_refused(ptr: Any) -> None:
    with pytest.raises((kl.KernelTypeError, kl.KernelValueError), match=r"address|there is no memory"):
        kl.array(ptr=ptr, shape=4, dtype=float)


def test_an_array_at_an_address_needs_a_shape_and_strides_within_memory() -> None:
    values = np.zeros(4, np.float32)
    assert kl.array(ptr=np.uint64(values.ctypes.data), shape=4, dtype=float).ptr == values.ctypes.data
    with pytest.raises(kl.KernelTypeError, match="needs a shape"):
        kl.array(ptr=values.ctypes.data, dtype=float)
    with pytest.raises(kl.KernelValueError, match="there is no memory for"):
        kl.array(ptr=values.ctypes.data, shape=4, strides=(2**64,), dtype=float)


def test_strides_beside_data_are_refused() -> None:
    with pytest.raises(kl.KernelTypeError, match="data bring their own layout"):
        kl.array([1, 2], strides=(8,))


def test_a_new_array_needs_a_shape_by_whatever_name() -> None:
    assert kl.zeros(n=3, dtype=kl.vec3).shape == kl.ones(n=3).shape == (3,)
    with pytest.raises(kl.KernelTypeError, match=r"a new array needs a shape\n.*kl\.zeros\(10\)"):
        kl.empty(dtype=int)


@pytest.mark.parametrize("dtype", [None, float, kl.float32, kl.float64, kl.vec3, kl.mat22])
def test_a_row_is_made_as_an_array_of_any_shape(dtype: object) -> None:
    for maker in (kl.zeros, kl.empty):
        row, usual = (maker(shape, dtype=dtype, requires_grad=True) for shape in (4, (4,)))
        assert (row.shape, row.strides, row.dtype, row.requires_grad) == (
            usual.shape,
            usual.strides,
            usual.dtype,
            usual.requires_grad,
        )
    with pytest.raises(kl.KernelValueError):
        kl.zeros(-1, dtype=dtype)


def test_a_row_of_integers_warns_of_the_gradient_that_it_cannot_have() -> None:
    with pytest.warns(kl.KernelWarning):
        assert not kl.zeros(4, dtype=kl.int32, requires_grad=True).requires_grad


@pytest.mark.parametrize("shape", [(1000,), (1, 1000), (10, 100), (2, 3, 50), (7, 11)])
def test_large_arrays_are_copied_in_parts(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]) -> None:
    monkeypatch.setattr(conversion, "PART_BYTES", 64)
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    assert kl.array(values).numpy().tolist() == values.tolist()
    assert kl.array(values.T).numpy().tolist() == values.T.tolist()
    assert kl.array(values.astype(np.float64), dtype=kl.float32).numpy().tolist() == values.tolist()
    assert kl.empty(shape).assign(values).numpy().tolist() == values.tolist()
    turned = kl.array(values).T
    copied = kl.empty(turned.shape)
    kl.copy(copied, turned)
    assert copied.numpy().tolist() == values.T.tolist()


def test_an_interrupt_arrives_within_a_large_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = []

    class Interrupting(np.ndarray[Any, Any]):
        def __getitem__(self, key: Any) -> Any:
            parts.append(key)
            if len(parts) == 3:
                raise KeyboardInterrupt
            return super().__getitem__(key)

    monkeypatch.setattr(conversion, "PART_BYTES", 64)
    with pytest.raises(KeyboardInterrupt):
        conversion.copy_elements(np.empty(1000), np.zeros(1000).view(Interrupting))
    assert len(parts) == 3


def test_arrays_of_several_megabytes_begin_on_huge_pages() -> None:
    for made in (kl.zeros, kl.empty):
        several = [made(1_000_000 + 100_000 * k, dtype=float) for k in range(4)]
        assert all(each.ptr % HUGE_PAGE < HUGE_PAGE // 16 and each.ptr % 64 == 0 for each in several)
        assert len({each.ptr % HUGE_PAGE for each in several}) == len(several)


@pytest.mark.parametrize("n", [1 << 15, 1 << 18, 1 << 20, 1 << 23])
def test_elements_of_arrays_at_one_index_are_apart_within_a_page(n: int) -> None:
    several = [kl.zeros(n) for _ in range(8)]
    places = [each.ptr % 4096 for each in several]
    assert all(min((a - b) % 4096, (b - a) % 4096) >= 512 for a, b in itertools.combinations(places, 2))
    assert all(min((a - b) % 4096, (b - a) % 4096) >= 1024 for a, b in itertools.pairwise(places))
    assert not kl.zeros(1_000_000, dtype=float).numpy().any()


@pytest.mark.parametrize("key", [slice(None, None, 0), (slice(None, None, 0), 1), (0, slice(2, 0, 0))])
def test_a_slice_with_a_step_of_zero_is_an_error_of_the_value_as_in_numpy_and_in_kernels(key: Any) -> None:
    for matrix in (kl.ones((2, 2)), kl.ones((2, 2))[[0, 1]]):
        with pytest.raises(kl.KernelValueError, match="the slice step cannot be zero"):
            matrix[key]
        with pytest.raises(kl.KernelValueError, match="the slice step cannot be zero"):
            matrix[key] = 0.0


@pytest.mark.parametrize("key", [slice(0, 2.0), slice("a", None), (slice(None, None, 1.5), 1)])
def test_the_parts_of_a_slice_are_integers(key: Any) -> None:
    with pytest.raises(kl.KernelTypeError, match=r"an array is indexed by integers.*not the (float|text)"):
        kl.ones((2, 2))[key]
    with pytest.raises(kl.KernelTypeError, match=r"an array is indexed by integers.*not the (float|text)"):
        kl.ones((2, 2))[key] = 0.0


@pytest.mark.parametrize("step", [2**31, 2**62, 10**30])
def test_the_step_of_a_slice_that_takes_one_element_may_be_of_any_size(step: int) -> None:
    x = kl.array([1.0, 2.0, 3.0])
    x[1::step] = 5.0
    assert x[::step].list() == [1.0] and x[::-step].list() == [3.0] and x.list() == [1.0, 5.0, 3.0]


@pytest.mark.parametrize(
    "read",
    [
        np.shape,
        np.ndim,
        np.size,
        np.zeros_like,
        np.ones_like,
        np.empty_like,
        partial(np.full_like, fill_value=2.0),
    ],
)
def test_what_numpy_asks_of_the_shape_alone_may_differ_between_lanes(read: Any) -> None:
    data = np.ones((2, 3), np.float32)
    found = []
    kl.func.vmap(lambda x: (found.append(read(x)), 2.0 * x)[1])(kl.array(np.stack([data] * 4)))
    assert np.shape(found[0]) == np.shape(read(data))
    assert np.asarray(found[0]).dtype == np.asarray(read(data)).dtype
    vectors = read(kl.zeros(5, dtype=kl.vec3))
    assert np.shape(vectors) == np.shape(read(np.zeros((5, 3), np.float32)))
