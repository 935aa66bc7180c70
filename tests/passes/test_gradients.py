"""Adjoint, tangent and differences of the zoo agree, over float64."""

import numpy as np
import pytest

from kernelab.passes.common.copying import widen
from kernelab.passes.common.simplify import simplify
from tests.support.derivatives import derivatives, wide
from tests.support.lowering import lowered
from tests.support.zoo import ZOO, Animal


@pytest.mark.parametrize("animal", ZOO, ids=lambda animal: animal.name)
@pytest.mark.parametrize("seed", range(3))
def test_the_three_derivatives_agree(animal: Animal, seed: int) -> None:
    rng = np.random.default_rng(seed)
    function = simplify(widen(lowered(animal.text, animal.name)))
    found = derivatives(function, animal.grid, wide(function, animal.draw(rng)), rng)
    assert found.agree(), found
