"""The examples in the docstrings of the main names print what they say."""

import doctest
from typing import Any

import numpy as np
import pytest

import kernelab as kl

NAMES = [
    *("zeros", "ones", "full", "zeros_like", "ones_like", "clone", "copy", "from_numpy", "launch"),
    *("func.grad", "func.value_and_grad", "func.jvp", "func.hessian"),
]
"""The names whose docstrings have an example."""


@pytest.mark.parametrize("name", NAMES)
def test_the_example_of_a_name_prints_what_it_says(name: str) -> None:
    shown: Any = kl
    for part in name.split("."):
        shown = getattr(shown, part)
    (test,) = doctest.DocTestFinder(recurse=False).find(shown, name, globs={"kl": kl, "np": np})
    assert test.examples
    told: list[str] = []
    assert doctest.DocTestRunner().run(test, out=told.append).failed == 0, "".join(told)
