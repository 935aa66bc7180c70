"""The host and values that a transform differentiates: looks are silent, what is put back is not."""

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl

TEXT = """
def squares(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]

def scaled(x: array[float], factor: float, total: array[float]):
    atomic_add(total, 0, x[tid()] * factor)

def above(x: array[float], least: float, total: array[float]):
    i = tid()
    if x[i] > least:
        atomic_add(total, 0, x[i])
"""

kernels: dict[str, Any] = kl.compile(TEXT)


def squared(x: Any) -> Any:
    y = kl.zeros_like(x)
    kl.launch(kernels["squares"], x.shape, [x], [y])
    return y


def total_of(kernel: str, x: Any, number: float) -> Any:
    total = kl.zeros(1)
    kl.launch(kernels[kernel], x.shape, [x, number], [total])
    return total


def printed(y: Any) -> Any:
    sys.stdout.write(f"{y.numpy().mean():.3f} {y.numpy()} {float(y[0])}")
    return total_of("scaled", y, 2.0)


def stopped(y: Any) -> Any:
    return total_of("scaled", y, 2.0 if y.numpy().max() > 3.0 else 1.0)


def counted(y: Any) -> Any:
    return total_of("scaled", y, 1.0 / len(y.numpy()))


def thresholded(y: Any) -> Any:
    return total_of("above", y, float(y.numpy().mean()))


def scaled_by_a_sum(y: Any) -> Any:
    return total_of("scaled", y, 1.0 / y.numpy().sum())


def scaled_by_a_root(y: Any) -> Any:
    return total_of("scaled", y, np.sqrt(y[1]))


def made_by_numpy(y: Any) -> Any:
    return total_of("scaled", y + kl.array(np.sin(y.numpy())), 1.0)


def made_by_order(y: Any) -> Any:
    roots = np.zeros(len(y), np.float32)
    for i, value in enumerate(y.numpy()):
        roots[i] = value**0.5
    return total_of("scaled", y * kl.array(roots), 1.0)


def drawn_before(y: Any) -> Any:
    drawn = kl.array(np.array([0.3, 0.1, 0.7], np.float32))
    sys.stdout.write(f"{y.numpy().mean():.3f}")
    return total_of("scaled", y * drawn, 1.0)


def filled(y: Any) -> Any:
    y.fill_(0.1 * y[1])
    return total_of("scaled", y, 1.0)


TRANSFORMS: list[Callable[[Any, Any], Any]] = [
    lambda f, x: kl.func.grad(f)(x),
    lambda f, x: kl.func.jacrev(f)(x),
    lambda f, x: kl.func.jvp(f, (x,), (x,)),
]


@pytest.mark.parametrize("transform", TRANSFORMS, ids=["grad", "jacrev", "jvp"])
@pytest.mark.parametrize("use", [printed, stopped, counted, thresholded, drawn_before])
def test_a_look_that_changes_no_derivative_is_silent(use: Any, transform: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        transform(lambda x: use(squared(x)), kl.array([1.0, 1.7, 3.2]))


@pytest.mark.parametrize("transform", TRANSFORMS, ids=["grad", "jacrev", "jvp"])
@pytest.mark.parametrize(
    ("use", "message"),
    [
        (scaled_by_a_sum, "^no gradient flows from the launch of `scaled` back to `x`"),
        (scaled_by_a_root, "^no gradient flows from the launch of `scaled` back to `x`"),
        (made_by_numpy, "^no gradient flows from an array back to `y`"),
        (made_by_order, "^no gradient flows through an array: the host made its values after"),
        (filled, "^no gradient flows through `y` here"),
    ],
)
def test_numbers_that_come_back_are_reported(use: Any, message: str, transform: Any) -> None:
    with pytest.warns(kl.KernelWarning, match=message) as found:
        transform(lambda x: use(squared(x)), kl.array([1.0, 1.7, 3.2]))
    assert "the host took `" in str(found[0].message)


def test_it_is_said_once_for_a_line() -> None:
    def repeated(x: Any) -> Any:
        y = squared(x)
        for _ in range(5):
            total = total_of("scaled", y, 1.0 / y.numpy().sum())
        return total

    with pytest.warns(kl.KernelWarning, match="no gradient") as found:
        kl.func.grad(repeated)(kl.array([1.0, 1.7, 3.2]))
    assert len(found) == 1
