"""What must hold of the second derivatives of every generated program.

* `forward_over_reverse`: the tangents of its two reverse programs, with the residuals between them, say how
  its gradient moves along a direction.  So does the adjoint of its tangent, which keeps other values: the two
  agree in every element, as second derivatives do in either order.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelab.lang.ir import Function, Storage
from kernelab.lang.types import is_differentiable, scalar_of
from kernelab.lang.verify import verify
from kernelab.passes.jvp import jvp
from kernelab.passes.vjp import Vjp, vjp
from tests.strategies import GRID
from tests.support.evaluate import evaluate
from tests.support.lowering import lowered
from tests.support.programs import Disagreement, Floats, Point, active, reverse, run_primal


@dataclass(frozen=True)
class Moved:
    """How the gradient with respect to the arrays and to the number `g` moves."""

    arrays: Floats
    g: float


def suffixed(point: Point, values: Floats, suffix: str) -> dict[str, Any]:
    """The arrays over some values, under the names of tangents or adjoints."""
    return {f"{name}{suffix}": array for name, array in point.memory.arrays(values).items()}


def forward_over_reverse(text: str, layout: str = "apart", seed: int = 0) -> None:
    """Check how a program's gradient moves; raises Disagreement."""
    function, point = lowered(text, "program"), Point.drawn(layout, seed)
    storage: Storage = ("save", "recompute", "checkpoint")[seed % 3]
    found = by_tangents(reverse(function, point, storage=storage), point, active(function))
    expected = by_an_adjoint(function, point)
    scale = max(1.0, float(np.abs(expected.arrays).max()), abs(expected.g))
    apart = max(float(np.abs(found.arrays - expected.arrays).max()), abs(found.g - expected.g))
    if not apart <= 1e-9 * scale:
        told = f"{found.arrays} and {found.g}, not {expected.arrays} and {expected.g}"
        raise Disagreement(f"along a direction the gradient moves by {told}")


def by_tangents(program: Vjp, point: Point, names: list[str]) -> Moved:
    """The tangents of the primal that keeps residuals, then of the adjoint."""
    residuals = [r.array.hint for r in program.residuals if is_differentiable(scalar_of(r.type))]
    given = point.arguments(point.values.copy(), point.g)
    given |= suffixed(point, point.direction.copy(), "_dot") | {"g_dot": np.float64(point.g_dot)}
    kept = evaluate(verify(jvp(program.primal, [*names, *residuals])), GRID, given)
    for residual in program.residuals:
        name = residual.array.hint
        for key in (name, f"{name}_dot") if name in residuals else (name,):
            given[key] = np.array(kept[key], scalar_of(residual.type).dtype)
        given[residual.starts.hint] = np.array([start[name] for start in kept["starts"]], np.int64)
    moved, g_moved = np.zeros(point.memory.size), np.zeros(1)
    given |= suffixed(point, point.cotangent.copy(), "_bar") | {"g_bar": np.zeros(1)}
    given |= suffixed(point, moved, "_bar_dot") | {"g_bar_dot": g_moved}
    bars = [f"{name}_bar" for name in names]
    evaluate(verify(jvp(program.adjoint, [*names, *bars, *residuals])), GRID, given)
    return Moved(moved, float(g_moved[0]))


def by_an_adjoint(function: Function, point: Point) -> Moved:
    """The adjoint of the tangent along the direction, for cotangents of tangents alone."""
    names = active(function)
    tangent = jvp(function, names)
    groups = [[function.param(name) for name in group] for group in point.memory.groups]
    groups += [[tangent.param(f"{name}_dot") for name in group] for group in point.memory.groups]
    program = vjp(tangent, [*names, *(f"{name}_dot" for name in names)], groups)
    given = point.arguments(point.values.copy(), point.g) | {"g_dot": np.float64(point.g_dot)}
    given |= suffixed(point, point.direction.copy(), "_dot")
    residuals = run_primal(program, given, GRID)
    moved, g_moved = np.zeros(point.memory.size), np.zeros(1)
    given |= suffixed(point, moved, "_bar") | suffixed(point, point.cotangent.copy(), "_dot_bar")
    given |= {"g_bar": g_moved, "g_dot_bar": np.zeros(1)} | residuals
    evaluate(verify(program.adjoint), GRID, given)
    return Moved(moved, float(g_moved[0]))
