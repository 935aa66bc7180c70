"""The derivative of a function in `vmap` is that of its rules, as outside of it, in every mode and order."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl

KERNELS: dict[str, Any] = kl.compile("""
def of_number(t: float64):
    return t * t

@func_grad(of_number, check=False)
def adj_of_number(t: float64, adj_ret: float64):
    adjoint[t] += float64(50.0) * t * t * adj_ret

def of_vector(v: vec3d):
    return dot(v, v)

@func_grad(of_vector, check=False)
def adj_of_vector(v: vec3d, adj_ret: float64):
    adjoint[v] += float64(7.0) * v * adj_ret

def by_tangent(t: float64):
    return t * t

@func_jvp(by_tangent, check=False)
def dot_by_tangent(t: float64, t_dot: float64):
    return float64(30.0) * t * t_dot

def of_array(x: array[float64], i: int):
    return x[i] * x[i]

@func_grad(of_array, check=False)
def adj_of_array(x: array[float64], i: int, adj_ret: float64):
    adjoint[x][i] += float64(40.0) * x[i] * adj_ret

def number(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = of_number(x[i]) * x[i]

def vector(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = of_vector(vec3d(x[i], float64(1.0), x[0]))

def tangent(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = by_tangent(x[i])

def whole(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = of_array(x, i)
""")
X = np.array([[0.5, -1.5], [2.0, 3.0], [0.25, 1.0]])


def rows() -> kl.array:
    return kl.array(X, dtype=kl.float64)


def launched(name: str) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        y = kl.zeros(2, dtype=kl.float64)
        kl.launch(KERNELS[name], 2, [x, y])
        return y

    return function


def require_one(function: Callable[[Any], Any], transform: Any) -> None:
    """The derivative around a vmap, that in a vmap and that without lanes are the same."""
    inside = kl.func.vmap(transform(function))(rows()).numpy()
    around = transform(kl.func.vmap(function))(rows()).numpy()
    for lane in range(len(X)):
        alone = transform(function)(kl.array(X[lane], dtype=kl.float64)).numpy()
        np.testing.assert_allclose(inside[lane], alone)
        np.testing.assert_allclose(around[lane, :, lane], alone)
    assert not np.any([around[i, :, j] for i in range(3) for j in range(3) if i != j])


@pytest.mark.parametrize("name", ["number", "vector", "whole"])
def test_adjoints_around_lanes_are_those_of_the_rules(name: str) -> None:
    require_one(launched(name), kl.func.jacrev)


@pytest.mark.parametrize("name", ["number", "vector", "tangent"])
def test_tangents_around_lanes_are_those_of_the_rules(name: str) -> None:
    require_one(launched(name), kl.func.jacfwd)


@pytest.mark.parametrize("name", ["number", "vector"])
def test_second_derivatives_around_lanes_are_those_of_the_rules(name: str) -> None:
    require_one(kl.func.grad(lambda x: launched(name)(x).sum()), kl.func.jacrev)


def test_lanes_within_lanes_keep_the_rules() -> None:
    function = launched("number")
    twice = kl.func.vmap(kl.func.vmap(function))
    values = kl.array(np.stack([X, 2.0 * X]), dtype=kl.float64)
    around = kl.func.grad(lambda x: twice(x).sum())(values).numpy()
    np.testing.assert_allclose(around, values.numpy() ** 2 * (1.0 + 50.0 * values.numpy()))


def test_a_check_of_a_vmap_finds_a_wrong_rule() -> None:
    x = kl.array(X, dtype=kl.float64, requires_grad=True)
    for name in ("number", "vector", "tangent", "whole"):
        report = kl.autograd.gradcheck(
            kl.func.vmap(launched(name)), inputs=[x], show_summary=False, raise_exception=False
        )
        assert not report, name
