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
