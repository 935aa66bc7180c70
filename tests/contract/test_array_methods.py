"""Methods of whole arrays that NumPy has, too: their values are NumPy's, and a tape differentiates them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import kernelab as kl

METHODS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(),
    "sum of rows": lambda x: x.sum(axis=0),
    "sum of columns": lambda x: x.sum(axis=-1),
    "sum of a part": lambda x: x[1:, ::2].sum(axis=1),
    "mean": lambda x: x.mean(),
    "mean of rows": lambda x: x.mean(axis=0),
    "copy": lambda x: x.copy(),
    "copy of a view": lambda x: x.T.copy(),
    "T": lambda x: x.T * 1.0,
    "new axis behind": lambda x: x[:, None] * 1.0,
    "new axis in front": lambda x: x[None] * 1.0,
    "new axis between": lambda x: x[:, None, 1:] * 1.0,
    "new axis behind the rest": lambda x: x[..., None] * 1.0,
    "new axis for a row": lambda x: x[1, None] * 1.0,
    "outer difference": lambda x: (x[:, None, 0] - x[None, :, 0]) ** 2,
    "matrix by matrix": lambda x: x @ x.T,
    "transposed by matrix": lambda x: x.T @ x,
    "matrix by vector": lambda x: x @ x[0],
    "vector by matrix": lambda x: x[1, ::2] @ x.T[::2],
    "vector by vector": lambda x: x[0] @ x[1],
    "stack by matrix": lambda x: x[:, None] @ x.T,
    "stack by stack": lambda x: x[:, :, None] @ x[:, None],
    "stack by vector": lambda x: x[None] @ x[0],
    "vector by stack": lambda x: x[0] @ x.T[None],
    "column by row": lambda x: x[:, None, 0] @ x[None, 1],
    "centred": lambda x: x - x.mean(axis=1)[:, None],
}
PRODUCTS = tuple(name for name in METHODS if " by " in name)
VALUES = np.array([[1.0, 2.0, 4.0], [0.5, -1.0, 3.0]])
DTYPES = {"float": (kl.float32, np.float32, 1e-4), "float64": (kl.float64, np.float64, 1e-9)}


def _weights(shape: tuple[int, ...]) -> Any:
    return np.cos(1.0 + np.arange(np.prod(shape, dtype=int))).reshape(shape)


def _numpy_loss(method: Callable[[Any], Any], values: Any) -> float:
    found = np.atleast_1d(method(values))
    return float((found * _weights(found.shape)).sum())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", METHODS)
def test_a_method_gives_what_numpy_gives_and_its_derivative(name: str, dtype: str) -> None:
    method, (kind, numpy_kind, tolerance) = METHODS[name], DTYPES[dtype]
    x = kl.array(VALUES, dtype=kind, requires_grad=True)
    with kl.Tape() as tape:
        found = method(x)
    wanted = np.atleast_1d(method(VALUES))
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found.numpy(), wanted, rtol=tolerance)
    tape.backward(grads={found: kl.array(_weights(wanted.shape).astype(numpy_kind), dtype=kind)})
    slopes = np.zeros_like(VALUES)
    for at in np.ndindex(VALUES.shape):
        step = np.zeros_like(VALUES)
        step[at] = 1e-5
        ends = [_numpy_loss(method, VALUES + step), _numpy_loss(method, VALUES - step)]
        slopes[at] = (ends[0] - ends[1]) / 2e-5
    np.testing.assert_allclose(x.grad.numpy(), slopes, atol=1e-4)


@pytest.mark.parametrize("name", ["sum", "mean", "outer difference", "centred", *PRODUCTS])
def test_transforms_differentiate_a_method(name: str) -> None:
    x = kl.array(VALUES, dtype=float)
    found = kl.func.grad(lambda v: (METHODS[name](v) ** 2).sum())(x)
    x.requires_grad = True
    with kl.Tape() as tape:
        loss = (METHODS[name](x) ** 2).sum()
    tape.backward(loss)
    np.testing.assert_allclose(found.numpy(), x.grad.numpy(), rtol=1e-5)


@pytest.mark.parametrize("name", PRODUCTS)
def test_every_transform_takes_a_product(name: str) -> None:
    x = kl.array(np.stack([VALUES, VALUES**2]), dtype=kl.float64)
    v = kl.array(np.cos(VALUES), dtype=kl.float64)

    def loss(a: Any) -> Any:
        return (METHODS[name](a) ** 2).sum()

    lanes = kl.func.vmap(METHODS[name])(x).numpy()
    for lane, values in zip(lanes, x.numpy(), strict=True):
        np.testing.assert_allclose(lane, np.atleast_1d(METHODS[name](values)))
    gradient, product = kl.func.hvp(loss, x[0].copy(), v)
    pushed = kl.func.jvp(loss, (x[0].copy(),), (v,))[1]
    np.testing.assert_allclose(pushed.numpy(), [(gradient.numpy() * v.numpy()).sum()])
    hessian = kl.func.hessian(loss)(x[0].copy()).numpy()
    np.testing.assert_allclose(np.einsum("ijkl,kl->ij", hessian, v.numpy()), product.numpy(), rtol=1e-9)


def test_numpy_arrays_are_factors_on_either_side_and_nothing_times_nothing_is_zero() -> None:
    x = kl.array(VALUES, dtype=kl.float64)
    np.testing.assert_allclose((VALUES.T @ x).numpy(), VALUES.T @ VALUES)
    np.testing.assert_allclose((x @ VALUES[0]).numpy(), VALUES @ VALUES[0])
    assert (kl.zeros((2, 0)) @ kl.zeros((0, 3))).numpy().tolist() == [[0.0] * 3] * 2
    assert (kl.zeros((0, 2)) @ kl.ones((2, 3))).shape == (0, 3)
    assert (kl.array([[1, 2]], dtype=int) @ kl.array([3, 4], dtype=int)).list() == [11]


def test_sums_and_means_are_written_to_an_array_that_is_given() -> None:
    x = kl.array(VALUES, dtype=float, requires_grad=True)
    total, means = kl.zeros(1, dtype=float, requires_grad=True), kl.zeros(3, dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        assert x.sum(out=total) is total
        assert x.mean(axis=0, out=means) is means
        loss = total * total + means.sum()
    np.testing.assert_allclose(means.numpy(), VALUES.mean(axis=0))
    tape.backward(loss)
    np.testing.assert_allclose(x.grad.numpy(), np.full((2, 3), 2 * VALUES.sum() + 0.5), rtol=1e-6)
    assert np.sum(x, out=total) is total
    with pytest.raises(kl.KernelTypeError, match=r"the result is float32 of shape \(3,\), and out is"):
        x.mean(axis=0, out=total)


@pytest.mark.parametrize("name", ["sum", "mean"])
@pytest.mark.parametrize("axis", [None, 0, 1, -1, 2])
@pytest.mark.parametrize("out", [False, True])
def test_sums_and_means_keep_axes_where_that_is_asked_for(name: str, axis: int | None, out: bool) -> None:
    values = np.stack([VALUES, VALUES**2]).astype(np.float32)
    x = kl.array(values, requires_grad=True)
    expected = getattr(values, name)(axis=axis, keepdims=True)
    into = {"out": kl.zeros(expected.shape, requires_grad=True)} if out else {}
    with kl.Tape() as tape:
        kept = getattr(x, name)(axis=axis, keepdims=True, **into)
        loss = (kept * kept * x).sum()
    np.testing.assert_allclose(kept.numpy(), expected, rtol=1e-5)
    tape.backward(loss)
    count = values.size // expected.size if name == "mean" else 1
    inner = (2 * expected * values).sum(axis=axis, keepdims=True) / count
    np.testing.assert_allclose(x.grad.numpy(), expected**2 + np.broadcast_to(inner, values.shape), rtol=1e-4)
    normalised = kl.func.jacrev(lambda x: x * x.sum(axis=axis, keepdims=True))(x).numpy()
    assert normalised.shape == values.shape * 2


@pytest.mark.parametrize("option", ["dtype", "where", "initial", "dim", "keepdim", "foo"])
def test_an_option_that_sums_do_not_have_is_refused(option: str) -> None:
    for name in ("sum", "mean"):
        with pytest.raises(kl.KernelTypeError, match=rf"{name}\(\) has no argument {option}"):
            getattr(kl.ones((2, 3)), name)(**{option: 1})


def test_numpys_functions_give_numpys_sums() -> None:
    x = kl.array(VALUES, dtype=float)
    for function in (np.sum, np.mean):
        kept = function(x, axis=1, keepdims=True, dtype=np.float64)
        assert isinstance(kept, np.ndarray)
        np.testing.assert_allclose(kept, function(VALUES, axis=1, keepdims=True))
        assert isinstance(function(a=x, axis=0), np.ndarray)


def test_a_conversion_between_floats_is_differentiated() -> None:
    x = kl.array([1.0, 2.0], dtype=kl.float64, requires_grad=True)
    with kl.Tape() as tape:
        loss = (x.astype(float) ** 2).sum()
    tape.backward(loss)
    assert x.grad.list() == [2.0, 4.0]


def test_no_gradient_passes_a_conversion_to_ints_in_silence() -> None:
    x = kl.array([1.5, 2.5], dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        loss = (x.astype(int) * 2.0).sum()
    assert loss.list() == [6.0]
    with pytest.raises(kl.TapeError):
        tape.backward(loss)


def test_new_axes_and_transposes_are_views() -> None:
    x = kl.array(VALUES, dtype=float)
    x[:, None, 1:][1, 0, 1] = 7.0
    x.T[0, 0] = 5.0
    assert x.tolist() == [[5.0, 2.0, 4.0], [0.5, -1.0, 7.0]]
    assert x[:, None].is_contiguous


def test_an_element_is_formatted_and_arrays_are_plotted() -> None:
    assert f"{kl.array([2.0]):.3f} {kl.array([1, 2])}" == "2.000 [1 2]"
    assert kl.array([1, 2]).mean().list() == [1.5]
    plotted = Figure().add_subplot().plot(kl.array([1.0, 4.0]))[0]
    assert plotted.get_ydata().tolist() == [1.0, 4.0]
