"""`indexedarray`: elements picked by indices, for kernels, copies and gradients."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import kernelab as kl

TEXT = """
def squares(x: indexedarray[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]

def doubled(x: kl.indexedarray2d(dtype=vec3)):
    i, j = tid()
    x[i, j] = 2.0 * x[i, j]
"""


@pytest.fixture(params=["cpu", "interp"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "interp":
        monkeypatch.setenv("KERNELAB_BACKEND", "interp")
    return kl.compile(TEXT)


def grid() -> Any:
    return kl.array(np.arange(36.0).reshape(3, 4, 3), dtype=kl.vec3, requires_grad=True)


def test_a_kernel_reads_picked_elements_and_gradients_reach_the_array_behind(kernels: Any) -> None:
    x, y = kl.array([0.0, 1, 2, 3, 4], requires_grad=True), kl.zeros(3, requires_grad=True)
    picked = kl.indexedarray(x, [kl.array([4, 1, 4])])
    with kl.Tape() as tape:
        kl.launch(kernels["squares"], 3, inputs=[picked], outputs=[y])
    assert y.list() == [16, 1, 16]
    tape.backward(grads={y: kl.ones(3)})
    assert x.grad.list() == [0, 2, 0, 0, 16]
    assert picked.grad.list() == [16, 2, 16]


def test_what_a_kernel_writes_goes_back_also_on_a_tape(kernels: Any) -> None:
    x = grid()
    before = x.numpy().copy()
    rows = kl.array([2, 0])
    kl.launch(kernels["doubled"], (2, 4), inputs=[x[rows]])
    with kl.Tape() as tape:
        kl.launch(kernels["doubled"], (2, 1), inputs=[kl.indexedarray2d(x, [rows, kl.array([-1])])])
    expected = np.ones((3, 4, 1))
    expected[[0, 2]] *= 2
    assert (x.numpy()[:, :3] == (before * expected)[:, :3]).all()
    assert (x.numpy()[:, 3] == (before * expected**2)[:, 3]).all()
    tape.backward(grads={x: kl.ones_like(x)})
    assert x.grad.numpy()[:, :, 0].tolist() == [[1, 1, 1, 2], [1, 1, 1, 1], [1, 1, 1, 2]]


def test_indices_are_arrays_numpys_arrays_or_lists_with_slices_and_integers_beside_them() -> None:
    x = grid()
    values = x.numpy()
    for rows in ([0, 2], np.array([0, 2]), kl.array([0, 2])):
        assert (x[rows].numpy() == values[[0, 2]]).all()
    assert (x[1:, [0, 3]].numpy() == values[1:, [0, 3]]).all()
    assert (x[2, [0, 3]].numpy() == values[2, [0, 3]]).all()
    rows, columns = kl.array([0, 2]), kl.array([1, 3])
    for picked in (x[rows, columns], x[[0, 2]][:, [1, 3]]):
        assert (picked.numpy() == values[np.ix_([0, 2], [1, 3])]).all()


@pytest.mark.parametrize("rows", [[0, 2], np.array([0, 2]), [True, False, True]])
@pytest.mark.parametrize("columns", [[1, 3], np.array([1, 3]), kl.array([1, 3])])
def test_two_lists_of_indices_which_numpy_would_pair_are_refused(rows: Any, columns: Any) -> None:
    x = kl.array(np.arange(12.0).reshape(3, 4))
    with pytest.raises(kl.KernelIndexError, match="NumPy makes pairs of them"):
        x[rows, columns]
    with pytest.raises(kl.KernelIndexError, match="can mean two things"):
        x[rows, columns] = 0.0
    pairs = np.array([0, 2]) * x.shape[1] + np.array([1, 3])
    assert x.flatten()[pairs].list() == [1, 11]  # what the hint says


def test_copies_and_assignment_go_both_ways() -> None:
    x, y = kl.array([0.0, 1, 2, 3]), kl.zeros(2)
    kl.copy(y, x[[3, 1]])
    assert y.list() == [3, 1]
    kl.copy(x[[0, 2]], y)
    assert x.list() == [3, 1, 1, 3]
    x[[0, 1]] = [8.0, 9.0]
    x[[2, 3]].fill_(5)
    assert x.list() == [8, 9, 5, 5] and kl.clone(x[[1]]).list() == [9]


def test_picked_elements_are_a_view_and_contiguous_ones_a_copy() -> None:
    x = kl.array([1.0, 2.0, 3.0])
    view, copied = x[[0, 2]], x[[0, 2]].contiguous()
    x.fill_(9.0)
    view[0] = 5.0
    assert (x.list(), view.list(), copied.list()) == ([5.0, 9.0, 9.0], [5.0, 9.0], [1.0, 3.0])


def test_a_copy_of_picked_elements_is_differentiated() -> None:
    x = kl.array([1.0, 2, 3], requires_grad=True)
    with kl.Tape() as tape:
        y = x[[2, 2, 0]].contiguous()
    tape.backward(grads={y: kl.array([1.0, 10, 100])})
    assert x.grad.list() == [100, 0, 11]


def test_it_says_what_it_is() -> None:
    x = grid()[[0, 2]]
    assert (x.shape, x.ndim, x.size, len(x), x.dtype, x.is_contiguous) == ((2, 4), 2, 8, 2, kl.vec3, False)
    assert "indexedarray" in repr(x)
    assert str(kl.array([1.0, 3.0, 4.0])[[0, 2]]) == "[1. 4.]"
    assert kl.indexedarray[float] == kl.array[float] and kl.indexedarray2d[float] == kl.array2d[float]
    assert kl.indexedarray(dtype=kl.vec3, ndim=2) == kl.array(dtype=kl.vec3, ndim=2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: kl.indexedarray([1.0], [None]), "what is picked from is an array of kernelab, not a list"),
        (lambda: kl.indexedarray(kl.ones(3), [kl.ones(2)]), "indices are an array of int32 of 1 dimension"),
        (lambda: kl.indexedarray(kl.ones(3), [[0, 1]]), "indices are an array of kernelab, not a list"),
        (lambda: kl.indexedarray(kl.ones(3), [None, None]), "indices for 2 axes of an array of 1"),
        (lambda: kl.indexedarray2d(kl.ones(3), [None]), "the array has 1 dimensions, not 2"),
        (lambda: kl.ones(3)[[3]].numpy(), "index 3 is out of bounds for axis 0 with size 3"),
        (lambda: kl.copy(kl.ones(3)[[0]], kl.ones(1), count=1), "copied all together"),
        (lambda: kl.ones(3)[[0, 1]].assign(kl.ones(3)), r"float32 \(2,\), the data float32 \(3,\)"),
    ],
)
def test_what_cannot_be_picked_is_refused(make: Any, message: str) -> None:
    with pytest.raises(kl.KernelError, match=message):
        make()


def test_a_launch_refuses_what_would_have_no_defined_result(kernels: Any) -> None:
    with pytest.raises(kl.LaunchError, match="picks an element twice, since the kernel writes it"):
        kl.launch(kernels["doubled"], (2, 4), inputs=[grid()[[0, 0]]])
    with pytest.raises(kl.LaunchError, match=r"not picked elements of an array2d\[vec3\]"):
        kl.launch(kernels["squares"], 1, inputs=[grid()[[0]], kl.zeros(1)])
    with pytest.raises(kl.LaunchError, match="an adjoint on a tape only"):
        kl.launch(kernels["squares"], 1, inputs=[kl.ones(2)[[0]], kl.zeros(1)], adjoint=True)


def test_elements_and_parts_of_picked_elements_are_reached_by_index() -> None:
    x = kl.array(np.arange(12.0).reshape(3, 4), requires_grad=True)
    picked, expected = x[[2, 0]][:, [3, 1]], x.numpy()[np.ix_([2, 0], [3, 1])]
    assert picked[0, 1] == expected[0, 1] and picked[-1, -1] == expected[1, 1]
    assert (picked[1].numpy() == expected[1]).all() and (picked[:, ::-1].numpy() == expected[:, ::-1]).all()
    assert [row.list() for row in picked] == expected.tolist()
    picked[0, 1] = -1.0
    picked[1] = kl.array([-2, -3])
    assert (x.numpy()[[2, 0, 0], [1, 3, 1]] == [-1, -2, -3]).all()
    picked[:, 0] = 7.0
    assert (x.numpy()[[2, 0], [3, 3]] == 7).all()
    with pytest.raises(kl.KernelIndexError, match="index 2 is out of bounds for axis 0 with size 2"):
        picked[2]


def test_a_part_of_picked_elements_is_differentiated() -> None:
    x = kl.array([1.0, 2.0, 3.0], requires_grad=True)
    with kl.Tape() as tape:
        y = x[[2, 1, 0]][1:] * 2.0
    tape.backward(grads={y: kl.array([1.0, 10.0])})
    assert x.grad.list() == [20, 2, 0]


def test_picked_elements_are_copied_pickled_and_answer_for_what_they_have_not() -> None:
    picked = kl.array([1.0, 2.0, 3.0])[[2, 0]]
    assert copy.deepcopy(picked).list() == pickle.loads(pickle.dumps(picked)).list() == [3, 1]
    picked.requires_grad = True
    assert picked.data.requires_grad
    with pytest.raises(AttributeError, match="the shape of an array cannot be assigned"):
        picked.shape = (2, 1)
    with pytest.raises(AttributeError, match="an array has no tolist"):
        picked.tolist()


def test_picked_elements_are_laid_out_anew_in_an_array_of_their_own() -> None:
    x = kl.array(np.arange(6.0).reshape(2, 3), dtype=float, requires_grad=True)
    picked, values = x[:, [2, 0]], x.numpy()[:, [2, 0]]
    assert (picked.T.numpy() == values.T).all() and (picked.transpose((1, 0)).numpy() == values.T).all()
    assert (picked.reshape(4, 1).numpy() == values.reshape(4, 1)).all()
    with kl.Tape() as tape:
        loss = (picked.T @ x[[1, 1]].reshape(2, 3)).sum()
    tape.backward(loss)
    assert x.grad.numpy().tolist() == [[12, 0, 12], [22, 10, 22]]


def test_a_generic_kernel_takes_picked_elements() -> None:
    made: Any = kl.compile("def negated(x: array[Any], y: array[Any]):\n    y[tid()] = -x[tid()]")
    y = kl.zeros(2)
    kl.launch(made["negated"], 2, inputs=[kl.array([1.0, 2.0, 3.0])[[2, 0]], y])
    assert y.list() == [-3, -1]


STRUCT = """
class Part:
    x: indexedarray[float]
    k: float

def scaled(part: Part, y: array[float]):
    i = tid()
    y[i] = part.k * part.x[i]

def cleared(part: Part):
    part.x[tid()] = 0.0
"""


@pytest.mark.parametrize("backend", ["cpu", "interp"])
def test_a_struct_holds_picked_elements(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELAB_BACKEND", backend)
    made: Any = kl.compile(STRUCT)
    x, y = kl.array([1.0, 2.0, 3.0], requires_grad=True), kl.zeros(2, requires_grad=True)
    part = made["Part"](x=x[[2, 0]], k=2.0)
    with kl.Tape() as tape:
        kl.launch(made["scaled"], 2, inputs=[part, y])
    tape.backward(grads={y: kl.array([1.0, 10.0])})
    assert y.list() == [6, 2] and x.grad.list() == [20, 0, 2] and part.grad.x.list() == [2, 20]
    kl.launch(made["cleared"], 2, inputs=[part.copy()])
    assert x.list() == [0, 2, 0]
    with pytest.raises(kl.KernelTypeError, match=r"the field x of Part is array\[float32\], not picked"):
        part.x = kl.ones((2, 2))[[0]]


@pytest.mark.parametrize("form", [lambda mask: mask, lambda mask: mask.numpy(), lambda mask: mask.list()])
def test_a_mask_picks_where_it_is_true(form: Any) -> None:
    x = kl.array([3.0, -1.0, 2.0], requires_grad=True)
    mask = form(x > 0.0)
    assert x[mask].list() == [3, 2] and x[form(x > 9.0)].size == 0
    with kl.Tape() as tape:
        loss = (x[mask] ** 2).sum()
    tape.backward(loss)
    assert x.grad.list() == [6, 0, 4]
    y = x.copy()
    y[mask] = 7.0
    y[mask] += 1.0
    assert y.list() == [8, -1, 8]


def test_a_mask_chooses_along_its_axis() -> None:
    table = kl.array(np.arange(6.0).reshape(3, 2))
    assert table[[True, False, True], 1].list() == [1, 5]
    assert table[:, table[0] > 0.0].numpy().tolist() == [[1], [3], [5]]
    assert table.flatten()[(table > 3.0).flatten()].list() == [4, 5]
    assert table[[2, 0]][[False, True]].numpy().tolist() == [[0, 1]]


def test_transforms_take_masks_and_refuse_those_that_differ_between_lanes() -> None:
    x = kl.array([3.0, -1.0, 2.0])
    assert kl.func.grad(lambda a: (a[a > 0.0] ** 2).sum())(x).list() == [6, 0, 4]
    with pytest.raises(kl.KernelError, match=r"differ between the lanes(.|\n)*0\.0\) for x\[x > 0\.0\]"):
        kl.func.vmap(lambda a: a[a > 0.0].sum())(kl.ones((2, 3)))


def test_picked_elements_are_reduced_and_converted_as_arrays_are() -> None:
    x = kl.array([3.0, -1.0, 2.0], requires_grad=True)
    with kl.Tape() as tape:
        loss = x[x > 0.0].sum() + 2.0 * x[[0, 1]].mean() + x[[2, 1]].max() - x[[1, 2]].min()
    tape.backward(loss)
    assert loss.list() == [10] and x.grad.list() == [2, 0, 2]
    assert x[[1, 0]].astype(int).list() == [-1, 3] and isinstance(x[[0]].copy(), kl.array)


def test_checks_take_functions_with_masks() -> None:
    def masked(x: Any) -> Any:
        y = x * x
        y[x > 2.0] = 1.0
        y[x < 0.0] *= 3.0
        return y[x != 9.0].contiguous()

    x = kl.array([3.0, -1.0, 1.25], requires_grad=True)
    assert kl.autograd.gradcheck(masked, inputs=[x])
    assert kl.autograd.taylor_test(masked, inputs=[x])
    assert np.allclose(kl.autograd.jacobian_fd(masked, inputs=[x])[0, 0].numpy(), np.diag([0.0, -6.0, 2.5]))
    wrong = kl.func.custom_vjp(masked, lambda x, bar: 3.0 * bar, check=False)
    assert not kl.autograd.gradcheck(wrong, inputs=[x], raise_exception=False)


def test_functions_of_numpy_take_picked_elements() -> None:
    x = kl.array([3.0, -1.0, 2.0])
    picked = x[[0, 2]]
    assert (np.sum(picked), np.mean(picked), np.max(picked), np.min(picked), np.std(picked)) == (
        5,
        2.5,
        3,
        2,
        0.5,
    )
    assert np.concatenate([picked, x]).tolist() == [3, 2, 3, -1, 2] and np.max(x, axis=0) == 3
    with pytest.raises(kl.KernelTypeError, match="does not write to picked elements"):
        np.cumsum(picked, out=picked)
