"""Derivatives that users write for functions of arrays, called with slices and rows of them."""

from typing import Any

import numpy as np
import pytest

import kernelab as kl

TEXT = """
def cubed(a: array[float64], i: int):
    return a[i] * a[i] * a[i]

@func_grad(cubed)
def adj_cubed(a: array[float64], i: int, adj_ret: float64):
    adjoint[a][i] += FACTOR * a[i] * a[i] * adj_ret

@func_jvp(cubed)
def cubed_dot(a: array[float64], i: int, a_dot: array[float64]):
    return FACTOR * a[i] * a[i] * a_dot[i]

def doubled(a: array[float64], i: int):
    a[i] = 2.0 * a[i]

@func_grad(doubled)
def adj_doubled(a: array[float64], i: int):
    adjoint[a][i] += adjoint[a][i]

def reading(x: array2d[float64], y: array[float64]):
    i = tid()
    y[i] = cubed(VIEW, i)

def writing(x: array2d[float64], y: array[float64]):
    i = tid()
    z = y[1:]
    z[i] = x[i, 0]
    doubled(z, i)
"""
VIEWS = ("x[i]", "x[i][1:]", "x[i, ::-1]", "x[:, 1]", "x[::-1, 1]", "x[0:3:1, i]", "x[i:i + 3, 2]")
Numpy = np.ndarray[Any, Any]
X = np.arange(1.0, 26.0).reshape(5, 5)


def jacobians(view: str, factor: str) -> tuple[Numpy, Numpy]:
    made = kl.compile(TEXT.replace("VIEW", view).replace("FACTOR", factor))["reading"]

    def f(x: kl.array) -> kl.array:
        y = kl.zeros(4, dtype=kl.float64)
        made[3](x, y)
        return y

    x = kl.array(X, dtype=kl.float64)
    return kl.func.jacrev(f)(x).numpy(), kl.func.jacfwd(f)(x).numpy()


@pytest.mark.parametrize("view", VIEWS)
def test_a_rule_holds_for_a_part_of_an_array(view: str) -> None:
    without = TEXT[: TEXT.index("@func_grad")] + TEXT[TEXT.index("def reading") : TEXT.index("def writing")]
    plain = kl.compile(without.replace("VIEW", view))["reading"]

    def f(x: kl.array) -> kl.array:
        y = kl.zeros(4, dtype=kl.float64)
        plain[3](x, y)
        return y

    expected = kl.func.jacrev(f)(kl.array(X, dtype=kl.float64)).numpy()
    assert np.abs(expected).sum() > 0.0
    for found in jacobians(view, "3.0"):
        np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize("view", VIEWS)
def test_a_wrong_rule_is_told_for_a_part_of_an_array_too(view: str) -> None:
    with pytest.warns(kl.KernelWarning, match=r"(adj_cubed|cubed_dot) gives") as told:
        jacobians(view, "2.0")
    assert len(told) == 2


def test_a_rule_of_a_function_that_writes_a_slice_is_followed() -> None:
    made = kl.compile(TEXT.replace("VIEW", "x[i]").replace("FACTOR", "3.0"))["writing"]
    x, y = (
        kl.array(X, dtype=kl.float64, requires_grad=True),
        kl.zeros(4, dtype=kl.float64, requires_grad=True),
    )
    with kl.Tape() as tape:
        made[3](x, y)
    tape.backward(grads={y: kl.ones_like(y)})
    assert x.grad.numpy()[:3, 0].tolist() == [2.0, 2.0, 2.0]
