"""What fails inside of a transform is told in the user's terms: lane, thread, kernel, and what to pass."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl

KERNELS = kl.compile(
    """
def asserting(x: array[float64], y: array[float64]):
    i = tid()
    assert x[i] > 0.0
    y[i] = x[i]

def dividing(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = x[i] + float64(6 // int(x[i]))

def indexing(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = x[int(x[i])]

def squares(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = x[i] * x[i]
"""
)
BAD = {"asserting": -1.0, "dividing": 0.0, "indexing": 7.0}


def applied(name: str) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        y = kl.zeros_like(x)
        KERNELS[name][3](x, y)
        return y

    return run


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize(("lane", "thread"), [(0, 0), (1, 2), (3, 1)])
def test_a_failure_in_a_lane_names_lane_thread_and_kernel(name: str, lane: int, thread: int) -> None:
    values = np.ones((4, 3))
    values[lane, thread] = BAD[name]
    with pytest.raises(kl.KernelError, match=f"in thread {thread} of `{name}`, in lane {lane}"):
        kl.func.vmap(applied(name))(kl.array(values, dtype=kl.float64))


def test_numpy_where_an_array_belongs_is_told_as_such() -> None:
    x = kl.ones(3, dtype=kl.float64)
    _, pull = kl.func.vjp(applied("squares"), x)
    for ask in (lambda: pull(np.ones(3)), lambda: kl.func.jvp(applied("squares"), (x,), (np.ones(3),))):
        with pytest.raises(kl.GradientError, match="is a NumPy array, not an array of kernelab") as caught:
            ask()
        assert "write kl.array(...) around it" in str(caught.value)


@pytest.mark.parametrize("transform", [kl.func.vmap, kl.func.jacrev, kl.func.jacfwd])
def test_a_tape_inside_of_a_transform_is_told_as_such(transform: Callable[..., Any]) -> None:
    def run(x: Any) -> Any:
        with kl.Tape():
            return applied("squares")(x)

    with pytest.raises(kl.TapeError, match="a transform runs this function") as caught:
        transform(run)(kl.ones((2, 3), dtype=kl.float64))
    assert "kl.func.grad" in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "hint"),
    [
        ("x += 1.0", "write x[:] += 1.0"),
        ("m -= 1.0", "write m[:, :] -= 1.0"),
        ("r = m[0]; r *= 2.0", "write r[:] *= 2.0"),
        ("r = x[0:2]; r /= x[2:4]", "write r[:] /= x[2:4]"),
    ],
)
def test_an_operator_on_a_whole_array_is_told_how_to_be_written(lines: str, hint: str) -> None:
    with pytest.raises(kl.KernelTypeError, match="its elements are changed through an index") as caught:
        kl.compile(f"def k(x: array[float64], m: array2d[float64]):\n    {lines}\n")
    assert hint in str(caught.value)


def squared_by(keep: Callable[[kl.array], None]) -> Callable[[kl.array], kl.array]:
    """A function that keeps what it computes."""

    def f(v: kl.array) -> kl.array:
        squared = v * v
        keep(squared)
        return squared

    return f


def test_what_a_function_under_vmap_has_kept_is_nan_or_refused_afterwards() -> None:
    kept: list[kl.array] = []
    lanes = kl.array([[1.0, 2.0], [3.0, 4.0]])
    assert kl.func.vmap(squared_by(kept.append))(lanes).tolist() == [[1.0, 4.0], [9.0, 16.0]]
    assert np.isnan((kept[0] * 2.0).list()).all()
    assert np.isnan(kl.func.jvp(lambda x: x * kept[0], (lanes[0],), (lanes[1],))[1].list()).all()
    with pytest.raises(kl.GradientError, match="under vmap, which has returned"):
        kept[0].numpy()
    with kl.Tape(), pytest.raises(kl.GradientError, match="under vmap, which has returned"):
        kept[0] * kl.ones(2, requires_grad=True)


def test_what_an_inner_vmap_has_kept_is_refused_by_the_transform_around_it() -> None:
    def outer(v: kl.array) -> kl.array:
        kept: list[kl.array] = []
        squares = kl.func.vmap(squared_by(kept.append))(v.reshape((2, 1)))
        return (squares.flatten() * kept[0]).sum()

    with pytest.raises(kl.GradientError, match="under vmap, which has returned"):
        kl.func.grad(outer)(kl.array([1.0, 2.0]))


def test_what_a_function_under_vmap_has_kept_and_no_lane_has_changed_stays() -> None:
    kept: list[kl.array] = []

    def f(v: kl.array) -> kl.array:
        kept.append(kl.ones(2) * 2.0)
        return v * kept[0]

    assert kl.func.vmap(f)(kl.array([[1.0, 2.0], [3.0, 4.0]])).tolist() == [[2.0, 4.0], [6.0, 8.0]]
    assert kept[0].list() == [2.0, 2.0]
