"""Masked arrays of NumPy: what is masked never becomes a number."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl

TEXT = """
def copied(x: array[float], y: array[float]):
    y[tid()] = x[tid()]

def first(v: vec3, y: array[float]):
    y[0] = v[0]
"""
VALUES = np.ma.array(np.arange(3, dtype=np.float32), mask=[0, 1, 0])
KERNELS = kl.compile(TEXT)


def written(index: Any, value: Any) -> None:
    kl.zeros(3, dtype=float)[index] = value


WAYS: dict[str, Callable[[Any], Any]] = {
    "array": lambda x: kl.array(x),
    "array of a type": lambda x: kl.array(x, dtype=kl.float64),
    "array without a copy": lambda x: kl.array(x, copy=False),
    "array of several": lambda x: kl.array([x, x]),
    "from_numpy": lambda x: kl.from_numpy(x),
    "argument": lambda x: KERNELS["copied"][3](x, kl.zeros(3, dtype=float)),
    "output": lambda x: KERNELS["copied"][3](kl.zeros(3, dtype=float), x),
    "vector argument": lambda x: KERNELS["first"][1](x, kl.zeros(1, dtype=float)),
    "vector": lambda x: kl.vec3(x),
    "assign": lambda x: kl.zeros(3, dtype=float).assign(x),
    "operator": lambda x: kl.zeros(3, dtype=float) + x,
    "slice": lambda x: written(slice(None), x),
    "map": lambda x: kl.map(lambda a: a * 2.0, x),
    "constant": lambda x: kl.compile("def k(y: array[float]):\n    y[0] = axis[1]", {"axis": x}),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_masked_element_is_an_error(way: Callable[[Any], Any]) -> None:
    with pytest.raises(kl.KernelError, match="masked"):
        way(VALUES)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_an_array_that_masks_nothing_is_an_array(way: Callable[[Any], Any]) -> None:
    way(np.ma.array(np.arange(3, dtype=np.float32)))
