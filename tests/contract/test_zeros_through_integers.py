"""Transforms say which derivative is zero because values go on as integers, also from launch to launch."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import kernelab as kl

kernels = kl.compile("""
def counted(x: array[float], n: array[int]):
    i = tid()
    n[i] = int(x[i] * 10.0)

def halved(n: array[int], y: array[float]):
    i = tid()
    y[i] = float(n[i]) * 0.5

def weighted(n: array[int], w: array[float], y: array[float]):
    i = tid()
    y[i] = w[i] * float(n[i])

def picked(n: array[int], x: array[float], y: array[float]):
    i = tid()
    y[i] = x[n[i] % 3]

def square(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]
""")
X = kl.array([1.1, 2.3, 3.7])
Function = Callable[[Any], Any]


def made(kernel: str, *arguments: Any, dtype: Any = float) -> Any:
    result = kl.zeros(3, dtype=dtype)
    kernels[kernel][3](*arguments, result)
    return result


def counts(x: Any) -> Any:
    return made("counted", x, dtype=int)


def copied(values: Any) -> Any:
    result = kl.zeros_like(values)
    kl.copy(result, values)
    return result


ZEROS: dict[str, Function] = {
    "a kernel": lambda x: made("halved", counts(x)),
    "beside other arrays": lambda x: made("weighted", counts(x), kl.ones(3)),
    "and on": lambda x: made("square", made("halved", counts(x))),
    "copies": lambda x: copied(made("halved", copied(counts(x)))),
    "an operator": lambda x: counts(x) * 0.5,
    "a map": lambda x: kl.map(lambda n: 0.5 * kl.float32(n), counts(x)),
    "astype": lambda x: x.astype(int).astype(float),
}
OTHERS: dict[str, Function] = {
    "an index": lambda x: made("picked", counts(x), x),
    "other values": lambda x: x * made("halved", counts(kl.ones(3))),
    "a factor": lambda x: x * made("halved", counts(x)),
}
TRANSFORMS: dict[str, Callable[[Function], Any]] = {
    "vjp": lambda f: kl.func.vjp(f, X)[1](X),
    "jvp": lambda f: kl.func.jvp(f, (X,), (X,)),
    "jacfwd": lambda f: kl.func.jacfwd(f)(X),
    "jacrev": lambda f: kl.func.jacrev(f)(X),
    "hessian": lambda f: kl.func.hessian(lambda x: f(x)[:1])(X),
}


def told(transform: str, function: Function) -> list[str]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        TRANSFORMS[transform](function)
    return [str(warning.message) for warning in seen]


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("way", ZEROS)
def test_a_derivative_that_ends_in_integers_is_explained(way: str, transform: str) -> None:
    (text,) = told(transform, ZEROS[way])
    assert "with respect to `x` is 0: its values go on as integers only" in text


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("way", OTHERS)
def test_integers_beside_another_way_are_silent(way: str, transform: str) -> None:
    assert told(transform, OTHERS[way]) == []
