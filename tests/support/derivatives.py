"""Three derivatives of one program, and how far apart they are.

The adjoint, the tangent and central differences of the same function over float64 are contracted with random
directions, which tests every entry of the Jacobian at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelab.lang.ir import Function
from kernelab.lang.types import Array, is_differentiable
from kernelab.lang.verify import verify
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.ad.vjp import Vjp, vjp
from tests.support.evaluate import evaluate

Arguments = dict[str, Any]
Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Derivatives:
    """``w . (J v)`` for one cotangent w and one direction v, three ways."""

    adjoint: float
    tangent: float
    differences: float

    def agree(self, exactly: float = 1e-10, roughly: float = 1e-5) -> bool:
        """Whether adjoint and tangent agree `exactly`, differences `roughly`, relative to size or 1."""
        scale = max(1.0, abs(self.tangent))
        same = abs(self.adjoint - self.tangent) <= exactly * scale
        return same and abs(self.tangent - self.differences) <= roughly * scale


def wide(function: Function, arguments: Mapping[str, Any]) -> Arguments:
    """Arguments for a widened function: floats as float64, everything copied."""
    result = {}
    for param in function.params:
        value = np.array(arguments[param.hint])
        scalar = value.astype(np.float64) if value.dtype.kind == "f" else value
        result[param.hint] = scalar if isinstance(param.type, Array) else scalar[()]
    return result


def active_names(function: Function) -> list[str]:
    """The parameters that are arrays of floats."""
    return [p.hint for p in function.params if isinstance(p.type, Array) and is_differentiable(p.type)]


def run(function: Function, grid: Sequence[int], arguments: Mapping[str, Any]) -> Arguments:
    """The arguments as they are after the function has run on copies of them."""
    after = {name: np.array(value) for name, value in arguments.items()}
    evaluate(verify(function), grid, after)
    return after


def gradients(
    program: Vjp, grid: Sequence[int], arguments: Mapping[str, Any], seeds: Mapping[str, Floats]
) -> Arguments:
    """What the adjoint makes of the seeds, by the name of the array they belong to."""
    after = {name: np.array(value) for name, value in arguments.items()}
    kept = evaluate(verify(program.primal), grid, after)
    bars = {f"{name}_bar": np.array(seed) for name, seed in seeds.items()}
    residuals: Arguments = {}
    for residual in program.residuals:
        name = residual.array.hint
        residuals[name] = np.array(kept[name])
        residuals[residual.starts.hint] = np.array([start[name] for start in kept["starts"]])
    evaluate(verify(program.adjoint), grid, {**after, **bars, **residuals})
    return {name: bars[f"{name}_bar"] for name in seeds}


def pushed(
    function: Function, grid: Sequence[int], arguments: Mapping[str, Any], directions: Mapping[str, Floats]
) -> Arguments:
    """The tangents of the arrays after the function has run, by name."""
    program = jvp(function, directions)
    after = {name: np.array(value) for name, value in arguments.items()}
    dots = {f"{name}_dot": np.array(direction) for name, direction in directions.items()}
    evaluate(verify(program), grid, {**after, **dots})
    return {name: dots[f"{name}_dot"] for name in directions}


def slopes(
    function: Function,
    grid: Sequence[int],
    arguments: Mapping[str, Any],
    directions: Mapping[str, Floats],
    step: float,
) -> Arguments:
    """Central differences of the arrays after a run, along a direction of the arrays before."""
    ends = []
    for sign in (1.0, -1.0):
        moved = dict(arguments)
        for name, direction in directions.items():
            moved[name] = arguments[name] + sign * step * direction
        ends.append(run(function, grid, moved))
    return {name: (ends[0][name] - ends[1][name]) / (2 * step) for name in directions}


def derivatives(
    function: Function,
    grid: Sequence[int],
    arguments: Mapping[str, Any],
    rng: np.random.Generator,
    step: float = 1e-5,
) -> Derivatives:
    """The three derivatives of a function over float64 in a random direction against a random cotangent."""
    names = active_names(function)
    directions = {name: rng.normal(size=np.shape(arguments[name])) for name in names}
    seeds = {name: rng.normal(size=np.shape(arguments[name])) for name in names}
    pulled = gradients(vjp(function, names), grid, arguments, seeds)
    moved = pushed(function, grid, arguments, directions)
    differences = slopes(function, grid, arguments, directions, step)
    return Derivatives(_dot(pulled, directions), _dot(seeds, moved), _dot(seeds, differences))


def _dot(a: Mapping[str, Floats], b: Mapping[str, Floats]) -> float:
    return float(sum(np.sum(a[name] * b[name]) for name in b))
