"""The zoo's kernels mean what their text means in Python, and lower to the IR of the golden files."""

from collections.abc import Callable

import numpy as np
import pytest

from kernelab.lang.show import show
from tests.frontend.helpers import agrees_with_python, cell, kernel
from tests.support.zoo import ZOO, Animal

animals = pytest.mark.parametrize("animal", ZOO, ids=lambda animal: animal.name)


@animals
@pytest.mark.parametrize("seed", [1, 2])
def test_a_kernel_computes_what_python_computes(animal: Animal, seed: int) -> None:
    arguments = animal.draw(np.random.default_rng(seed))
    agrees_with_python(animal.text, animal.grid, name=animal.name, **arguments)


@animals
def test_a_kernel_lowers_to_its_golden_ir(animal: Animal, golden: Callable[[str, str], None]) -> None:
    golden(f"ir_{animal.name}", show(kernel(animal.text, animal.name).function))


@animals
def test_lowering_says_nothing_about_a_kernel_that_is_right(animal: Animal) -> None:
    lowered = cell(animal.text)
    assert (lowered.errors, lowered.diagnostics) == ((), ())
