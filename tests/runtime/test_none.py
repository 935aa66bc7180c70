"""None for an array: the kernel finds an array without elements, and asks for it."""

import numpy as np
import pytest

import kernelab as kl

TEXT = """
def weighted(x: array[float], w: array2d[float], y: array[float], v: array[vec3]):
    i = tid()
    y[i] = 2.0 * x[i]
    if w:
        y[i] = w[0, i] * x[i]
    if v is not None:
        y[i] += v[i].x
"""


@pytest.fixture(scope="module")
def weighted() -> kl.Kernel:
    return kl.compile(TEXT)["weighted"]


def _gradient(weighted: kl.Kernel, w: object, v: object) -> tuple[list[float], list[float]]:
    x = kl.array([1.0, 2.0], dtype=float, requires_grad=True)
    y = kl.zeros(2, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(weighted, 2, inputs=[x, w, y, v])
    tape.backward(grads={y: kl.ones(2)})
    return list(y.numpy()), list(x.grad.numpy())


def test_none_stands_for_an_array_that_is_not_given(weighted: kl.Kernel) -> None:
    assert _gradient(weighted, None, None) == ([2.0, 4.0], [2.0, 2.0])


def test_an_array_that_is_given_is_used(weighted: kl.Kernel) -> None:
    w = kl.array(np.array([[3.0, 4.0]], np.float32))
    v = kl.array(np.ones((2, 3), np.float32), dtype=kl.vec3)
    assert _gradient(weighted, w, v) == ([4.0, 9.0], [3.0, 4.0])


def test_an_array_without_elements_counts_as_none(weighted: kl.Kernel) -> None:
    assert _gradient(weighted, kl.zeros((0, 2)), None) == ([2.0, 4.0], [2.0, 2.0])


def test_an_element_of_what_is_not_given_is_an_error() -> None:
    copied = kl.compile("def copied(x: array[float], y: array[float]):\n    y[0] = x[0]")["copied"]
    with pytest.raises(kl.KernelIndexError, match="x"):
        kl.launch(copied, 1, inputs=[None, kl.zeros(1)])
