"""What must hold of the second derivatives of every generated program.

* `forward_over_reverse`: the tangents of its two reverse programs, with the residuals between them, say how
  its gradient moves along a direction.  So does the adjoint of its tangent, which keeps other values: the two
  agree in every element, as second derivatives do in either order.
* `reverse_over_reverse`: the adjoints of the two reverse programs agree with their tangents by the inner
  product.

The adjoint's own cotangents, ``x_bar``, are called ``x_c`` here: its adjoint has an ``x_bar``, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from kernelab.lang.ir import Function, Storage
from kernelab.lang.types import is_differentiable, scalar_of
from kernelab.lang.verify import verify
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.ad.vjp import Vjp, vjp
from tests.strategies import GRID
from tests.support.evaluate import evaluate
from tests.support.lowering import lowered
from tests.support.programs import Disagreement, Floats, Point, active, overflows, reverse, run_primal


@dataclass(frozen=True)
class Moved:
    """How the gradient with respect to the arrays and to the number `g` moves."""

    arrays: Floats
    g: float


def suffixed(point: Point, values: Floats, suffix: str) -> dict[str, Any]:
    """The arrays over some values, under the names of tangents or adjoints."""
    return {f"{name}{suffix}": array for name, array in point.memory.arrays(values).items()}


def paired(function: Function, point: Point, seed: int) -> Vjp:
    """The reverse programs, with a storage that depends on the seed."""
    storages: tuple[Storage, ...] = ("save", "recompute", "checkpoint")
    program = reverse(function, point, storage=storages[seed % 3])
    for name in active(function):
        program.adjoint.param(f"{name}_bar").hint = f"{name}_c"
    return program


@dataclass(frozen=True)
class Derived:
    """A program, its reverse programs, and the tangents of these two."""

    function: Function
    point: Point
    program: Vjp
    primal_tangent: Function
    adjoint_tangent: Function


@lru_cache(1)
def derived(text: str, layout: str, seed: int) -> Derived:
    """Kept, because a random program is checked in several ways, one after another."""
    function, point = lowered(text, "program"), Point.drawn(layout, seed)
    program, names = paired(function, point, seed), active(function)
    residuals = float_residuals(program)
    bars = [f"{name}_c" for name in names]
    primal_tangent = verify(jvp(program.primal, [*names, *residuals]))
    adjoint_tangent = verify(jvp(program.adjoint, [*names, *bars, *residuals]))
    return Derived(function, point, program, primal_tangent, adjoint_tangent)


def float_residuals(program: Vjp) -> list[str]:
    return [r.array.hint for r in program.residuals if is_differentiable(scalar_of(r.type))]


def kept_arrays(program: Vjp, kept: dict[str, list[Any]]) -> dict[str, Any]:
    """What a primal has kept, by the names of the adjoint's parameters."""
    found = {}
    for residual in program.residuals:
        name = residual.array.hint
        found[name] = np.array(kept[name], scalar_of(residual.type).dtype)
        starts = [start[name] for start in kept["starts"]]
        in_order = starts[::-1] if program.primal.descending else starts
        found[residual.starts.hint] = np.array(in_order, np.int64)
    return found


def forward_over_reverse(text: str, layout: str = "apart", seed: int = 0) -> None:
    """Check how a program's gradient moves; raises Disagreement."""
    both = derived(text, layout, seed)
    found = by_tangents(both, np.zeros(both.point.memory.size))
    expected = by_an_adjoint(both.function, both.point)
    scale = max(1.0, float(np.abs(expected.arrays).max()), abs(expected.g))
    apart = max(float(np.abs(found.arrays - expected.arrays).max()), abs(found.g - expected.g))
    if not apart <= 1e-9 * scale and not overflows(both.function, both.point):
        told = f"{found.arrays} and {found.g}, not {expected.arrays} and {expected.g}"
        raise Disagreement(f"along a direction the gradient moves by {told}")


def by_tangents(both: Derived, along: Floats) -> Moved:
    """The tangents of the primal that keeps residuals, then of the adjoint; `along` moves the cotangents."""
    program, point, residuals = both.program, both.point, float_residuals(both.program)
    given = point.arguments(point.values.copy(), point.g)
    given |= suffixed(point, point.direction.copy(), "_dot") | {"g_dot": np.float64(point.g_dot)}
    kept = evaluate(both.primal_tangent, GRID, given)
    given |= kept_arrays(program, kept) | {f"{name}_dot": np.array(kept[f"{name}_dot"]) for name in residuals}
    moved, g_moved = along.copy(), np.zeros(1)
    given |= suffixed(point, point.cotangent.copy(), "_c") | {"g_c": np.zeros(1)}
    given |= suffixed(point, moved, "_c_dot") | {"g_c_dot": g_moved}
    evaluate(both.adjoint_tangent, GRID, given)
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


def reverse_over_reverse(text: str, layout: str = "apart", seed: int = 0) -> None:
    """Check the adjoints of a program's reverse programs; raises Disagreement."""
    both = derived(text, layout, seed)
    point, rng = both.point, np.random.default_rng(seed + 2)
    seeds, along = rng.normal(size=(2, point.memory.size))
    moved = by_tangents(both, along)
    forward = float(seeds @ moved.arrays) + 0.5 * moved.g
    bars, bars_c, g_bar = by_adjoints(both.program, point, active(both.function), seeds)
    backward = float(bars @ point.direction + bars_c @ along) + g_bar * point.g_dot
    scale = max(1.0, abs(forward), float(np.abs(bars).max()))
    if not abs(forward - backward) <= 1e-9 * scale and not overflows(both.function, point):
        raise Disagreement(f"in reverse twice the adjoint says {backward}, and the tangent {forward}")


def by_adjoints(
    program: Vjp, point: Point, names: Sequence[str], seeds: Floats
) -> tuple[Floats, Floats, float]:
    """The adjoint of the adjoint, then of the primal: cotangents of the arrays, of theirs, and of `g`."""
    residuals, size = float_residuals(program), point.memory.size
    first = vjp(program.primal, [*names, *residuals], groups(program.primal, point, ("",)))
    cotangents = [f"{name}_c" for name in names]
    second = vjp(
        program.adjoint, [*names, *cotangents, *residuals], groups(program.adjoint, point, ("", "_c"))
    )
    given = point.arguments(point.values.copy(), point.g)
    kept = evaluate(verify(first.primal), GRID, given)
    given |= kept_arrays(program, kept)
    bars, bars_c, g_bar = np.zeros(size), seeds.copy(), np.zeros(1)
    adjoints = suffixed(point, bars, "_bar") | {"g_bar": g_bar}
    adjoints |= {f"{name}_bar": np.zeros(len(given[name])) for name in residuals}
    cotangents_now = suffixed(point, point.cotangent.copy(), "_c") | {"g_c": np.zeros(1)}
    again = kept_arrays(second, evaluate(verify(second.primal), GRID, given | cotangents_now))
    memories = [second.residuals[k] for k in second.memories]
    zeros = {f"{each.memory.hint}_bar": np.zeros(len(again[each.array.hint])) for each in memories}
    about = suffixed(point, bars_c, "_c_bar") | {"g_c_bar": np.full(1, 0.5)}
    evaluate(verify(second.adjoint), GRID, given | cotangents_now | adjoints | about | again | zeros)
    starts = {f"{r.array.hint}_starts": given[r.starts.hint] for r in program.residuals}
    evaluate(verify(first.adjoint), GRID, given | adjoints | kept_arrays(first, kept) | starts)
    return bars, bars_c, float(g_bar[0])


def groups(function: Function, point: Point, suffixes: Sequence[str]) -> list[list[Any]]:
    """The parameters that share memory."""
    return [[function.param(f"{n}{s}") for n in group] for s in suffixes for group in point.memory.groups]
