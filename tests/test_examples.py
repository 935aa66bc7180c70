"""The examples in the docstrings of the main names print what they say."""

import doctest
from typing import Any

import numpy as np
import pytest

import kernelab as kl

NAMES = [
    *("array", "zeros", "ones", "full", "empty", "zeros_like", "ones_like", "full_like", "empty_like"),
    *("clone", "copy", "from_numpy", "from_dlpack", "to_dlpack", "indexedarray", "map", "launch", "Launch"),
    *("kernel", "compile", "struct", "overload", "func_grad", "func_jvp", "func_native"),
    *("Tape", "Tape.backward", "checkpoint", "contributions", "precision", "graph", "find_races"),
    *("autograd.gradcheck", "autograd.gradcheck_tape", "autograd.jacobian"),
    *("func.grad", "func.value_and_grad", "func.jvp", "func.vjp", "func.jacfwd", "func.jacrev"),
    *("func.hessian", "func.vmap", "optim.SGD", "optim.Adam", "teach.check"),
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
