"""Derivatives of derivatives: both orders of composition agree with differences of the tangent."""

from typing import Any

import numpy as np
import pytest

from kernelab.passes.ad.jvp import jvp
from kernelab.passes.ad.vjp import vjp
from kernelab.passes.common.copying import widen
from kernelab.passes.common.simplify import simplify
from tests.support.derivatives import Arguments, active_names, gradients, pushed, run, wide
from tests.support.lowering import lowered
from tests.support.zoo import ZOO, Animal

STEP = 1e-5


class Problem:
    """``w . d/du (J v)`` of an animal: the cotangent w, and the directions u and v."""

    def __init__(self, animal: Animal) -> None:
        rng = np.random.default_rng(5)
        self.function = simplify(widen(lowered(animal.text, animal.name)))
        self.arguments = wide(self.function, animal.draw(rng))
        self.names = active_names(self.function)
        self.grid = animal.grid
        self.u, self.v, self.w = (
            {n: rng.normal(size=self.arguments[n].shape) for n in self.names} for _ in "uvw"
        )

    def differences(self) -> float:
        ahead, behind = (self.pushed(sign * STEP) for sign in (1.0, -1.0))
        return (ahead - behind) / (2 * STEP)

    def pushed(self, shift: float) -> float:
        moved = {n: x + shift * self.u[n] if n in self.u else x for n, x in self.arguments.items()}
        return self.dot(self.w, pushed(self.function, self.grid, moved, self.v))

    def zeros(self) -> Arguments:
        return {name: np.zeros(self.arguments[name].shape) for name in self.names}

    def dot(self, a: Arguments, b: Arguments) -> float:
        return float(sum(np.sum(a[name] * b[name]) for name in self.names))


def suffixed(values: Arguments, suffix: str) -> Arguments:
    return {name + suffix: np.array(value) for name, value in values.items()}


@pytest.fixture(params=ZOO, ids=lambda animal: animal.name)
def problem(request: Any) -> Problem:
    return Problem(request.param)


# A kernel that overwrites what it read keeps residuals; it is differentiated twice in the other order.
RESIDUAL_FREE = [animal for animal in ZOO if animal.name not in ("in_place", "compaction", "local_array")]


def test_reverse_over_forward(problem: Problem) -> None:
    tangent = jvp(problem.function, problem.names)
    arguments = {**problem.arguments, **suffixed(problem.v, "_dot")}
    seeds = {**problem.zeros(), **suffixed(problem.w, "_dot")}
    pulled = gradients(vjp(tangent, active_names(tangent)), problem.grid, arguments, seeds)
    assert problem.dot(pulled, problem.u) == pytest.approx(problem.differences(), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("problem", RESIDUAL_FREE, ids=lambda animal: animal.name, indirect=True)
def test_forward_over_reverse(problem: Problem) -> None:
    reverse = vjp(problem.function, problem.names)
    assert not reverse.residuals
    hessian = jvp(reverse.adjoint, [*problem.names, *(f"{name}_bar" for name in problem.names)])
    after = run(
        hessian,
        problem.grid,
        {
            **problem.arguments,
            **suffixed(problem.w, "_bar"),
            **suffixed(problem.u, "_dot"),
            **suffixed(problem.zeros(), "_bar_dot"),
        },
    )
    found = problem.dot({n: after[f"{n}_bar_dot"] for n in problem.names}, problem.v)
    assert found == pytest.approx(problem.differences(), rel=1e-5, abs=1e-5)
