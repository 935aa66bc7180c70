"""What must hold of every generated program, wherever its arrays lie in memory.

* It does what its text does as plain Python.
* Its adjoint and its tangent agree by the inner product, over float64, to 1e-10.
* Both agree with central differences of the text run as Python, where differences can be trusted.
* Its adjoint is that of the same text with its loops written out, and the same for each storage of loops.
* Arrays that need no gradient change nothing of the gradients of the others.
* `second_order`: its tangent program, differentiated forwards and in reverse, agrees by the inner product.
* Neither of them changes a primal value that the primal does not.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from kernelab.lang.ir import For, Function, Storage, While, walk
from kernelab.lang.types import scalar_of
from kernelab.lang.verify import verify
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.ad.vjp import Vjp, vjp
from kernelab.passes.common.copying import lay_out
from kernelab.passes.common.simplify import simplify
from tests.strategies import GRID, NDIMS, Memory, draw_arguments
from tests.support import python_oracle
from tests.support.evaluate import evaluate
from tests.support.lowering import lowered, raw
from tests.support.unroll import unrolled

Floats = np.ndarray[Any, np.dtype[np.float64]]
STEP = 1e-6
ATTEMPTS = 3


class Disagreement(AssertionError):
    """Two of the witnesses of a program say different things."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether differences could be trusted, and whether there were loops that could be written out."""

    trusted: bool
    unrolled: bool


@dataclass(frozen=True)
class Point:
    """Values of all arguments, a direction of the floats among them, and a cotangent of the arrays."""

    memory: Memory
    values: Floats
    ints: Mapping[str, Any]
    g: float
    direction: Floats
    g_dot: float
    cotangent: Floats

    @classmethod
    def drawn(cls, layout: str, seed: int) -> "Point":
        rng, memory = np.random.default_rng(seed), Memory(layout)
        drawn = draw_arguments(seed)
        ints = {name: drawn[name] for name in ("n", "hits")}
        values, direction, cotangent = rng.normal(size=(3, memory.size))
        return cls(memory, values, ints, drawn["g"], direction, float(rng.normal()), cotangent)

    def ran(self, function: Function) -> Floats:
        """What a primal leaves in memory."""
        values = self.values.copy()
        evaluate(function, GRID, self.arguments(values, self.g))
        return values

    def arguments(self, values: Floats, g: float) -> dict[str, Any]:
        found = self.memory.arrays(values) | {name: array.copy() for name, array in self.ints.items()}
        return {name: found[name] for name in NDIMS} | {"g": np.float64(g)}


def check(text: str, layout: str = "apart", seed: int = 0) -> Outcome:
    """Check a program; raises Disagreement."""
    function = lowered(text, "program")
    code = python_oracle.compiled(text)
    trusted = False
    for attempt in range(ATTEMPTS):
        point = Point.drawn(layout, seed + 1000 * attempt)
        slope = differences(code, point)
        trusted = slope is not None
        if trusted:
            break
    values_agree(function, code, point)
    adjoint, tangent = pulled(function, point), pushed(function, point)
    by_adjoint = adjoint.bars @ point.direction + adjoint.g_bar * point.g_dot
    by_tangent = tangent @ point.cotangent
    scale = max(1.0, abs(by_tangent))
    if not abs(by_adjoint - by_tangent) <= 1e-10 * max(scale, float(np.abs(adjoint.bars).max())):
        raise Disagreement(f"adjoint {by_adjoint} and tangent {by_tangent} (differences: {slope})")
    if slope is not None and not abs(slope - by_tangent) <= 1e-5 * scale:
        # Of a chaotic program differences may agree from three sides and still be far from the slope.
        finer = differences(code, point, STEP / 10_000)
        if finer is None or abs(finer - slope) <= 1e-3 * scale:
            raise Disagreement(f"tangent {by_tangent} and differences {slope}")
        trusted = False
    same_for_fewer(function, point, adjoint)
    if any(isinstance(stmt, For | While) for stmt in walk(function.body)):
        storage: Storage = "checkpoint" if seed % 2 else "recompute"
        same(adjoint, pulled(function, point, storage=storage), f"with the storage {storage}")
    if seed % 4 == 0:  # it takes as long as all the rest
        same_unmerged(text, function, point, adjoint)
    straight = unrolled(text)
    if straight is not None:
        same_without_loops(straight, point, adjoint)
    return Outcome(trusted, straight is not None)


def after_python(code: Any, point: Point, values: Floats, g: float) -> Floats:
    moved = values.copy()
    python_oracle.run_in_place(code, "program", GRID, point.arguments(moved, g), NDIMS)
    return moved


def differences(code: Any, point: Point, step: float = STEP) -> float | None:
    """``w . (J v)`` by central differences, None where differences from both sides say different things."""
    at = [
        after_python(code, point, point.values + h * point.direction, point.g + h * point.g_dot)
        for h in (-step, 0.0, step, 2 * step)
    ]
    behind, here, ahead, further = (float(point.cotangent @ moved) for moved in at)
    central = (ahead - behind) / (2 * step)
    sides = ((here - behind) / step, (ahead - here) / step, (further - ahead) / step)
    scale = max(1.0, abs(central))
    return central if max(abs(side - central) for side in sides) <= 1e-3 * scale else None


def values_agree(function: Function, code: Any, point: Point) -> None:
    expected, found = after_python(code, point, point.values, point.g), point.ran(function)
    if not np.allclose(found, expected, rtol=1e-11, atol=1e-11):
        raise Disagreement(f"as Python the program leaves\n{expected}\nand as a kernel\n{found}")


@dataclass(frozen=True)
class Pulled:
    """What the adjoint leaves: the adjoints of the arrays, and that of the number `g`."""

    bars: Floats
    g_bar: float


def active(function: Function) -> list[str]:
    names = (param.hint for param in function.params)
    return [name for name in names if name not in ("n", "hits")]


def reverse(
    function: Function,
    point: Point,
    without: tuple[str, ...] = (),
    storage: Storage = "save",
    merged: bool = True,
) -> Vjp:
    own = [[name for name in group if name in active(function)] for group in point.memory.groups]
    groups = [[function.param(name) for name in group] for group in own if len(group) > 1]
    names = [name for name in active(function) if name not in without]
    return vjp(function, names, groups, storage, merged=merged)


def run_primal(program: Vjp, arguments: dict[str, Any], grid: tuple[int, ...]) -> dict[str, Any]:
    """Run the primal that keeps residuals; those, by the names of the adjoint's parameters."""
    kept, found = evaluate(verify(program.primal), grid, arguments), {}
    for residual in program.residuals:
        name = residual.array.hint
        found[name] = np.array(kept[name], scalar_of(residual.type).dtype)
        found[residual.starts.hint] = np.array([start[name] for start in kept["starts"]], np.int64)
    return found


def pulled(
    function: Function,
    point: Point,
    without: tuple[str, ...] = (),
    storage: Storage = "save",
    merged: bool = True,
) -> Pulled:
    """Run the primal that keeps residuals and then the adjoint, on the cotangent of all arrays."""
    program = reverse(function, point, without, storage, merged)
    values = point.values.copy()
    arguments = point.arguments(values, point.g)
    residuals = run_primal(program, arguments, GRID)
    left = values.copy()
    bars, g_bar = point.cotangent.copy(), np.zeros(1)
    suffixed = {f"{name}_bar": bar for name, bar in point.memory.arrays(bars).items()}
    evaluate(verify(program.adjoint), GRID, {**arguments, **suffixed, "g_bar": g_bar, **residuals})
    if not np.array_equal(values, left):
        raise Disagreement("the adjoint changes primal values")
    if not np.array_equal(point.ran(function), left):
        raise Disagreement("the primal that keeps residuals computes something else")
    return Pulled(bars, float(g_bar[0]))


def overflows(function: Function, point: Point) -> bool:
    """Whether a value on the way is too large for a float64: derivatives may be NaN in one mode alone."""
    try:
        evaluate(function, GRID, point.arguments(point.values.copy(), point.g), overflow="raise")
    except FloatingPointError:
        return True
    return False


def pushed(function: Function, point: Point) -> Floats:
    """The tangents of the arrays after the program has run."""
    dots = point.direction.copy()
    suffixed = {f"{name}_dot": dot for name, dot in point.memory.arrays(dots).items()}
    arguments = point.arguments(point.values.copy(), point.g)
    evaluate(
        verify(jvp(function, active(function))),
        GRID,
        {**arguments, **suffixed, "g_dot": np.float64(point.g_dot)},
    )
    return dots


def same_for_fewer(function: Function, point: Point, expected: Pulled) -> None:
    """Without the gradients of what is only read, those of the rest are the same."""
    if "x" in {name for group in point.memory.groups for name in group}:
        return
    found = pulled(function, point, without=("x", "g"))
    scale = 1e-9 * max(1.0, float(np.abs(expected.bars).max()))
    for name, bar in point.memory.arrays(found.bars).items():
        before = point.memory.arrays(point.cotangent if name == "x" else expected.bars)[name]
        if not np.allclose(bar, before, rtol=0.0, atol=scale):
            raise Disagreement(f"the adjoint of {name} is another one if x needs none")


def second_order(text: str, layout: str = "apart", seed: int = 0) -> None:
    """Check the derivatives of a program's tangent; raises Disagreement."""
    function, point = lowered(text, "program"), Point.drawn(layout, seed)
    names = active(function)
    tangent = jvp(function, names)
    for name in names:
        tangent.param(f"{name}_dot").hint = f"{name}_v"  # the second tangents are called x_dot, too
    rng, size = np.random.default_rng(seed + 1), point.memory.size
    values, velocities = point.values, point.direction
    moved, moved_v, seeds = rng.normal(size=(3, size))

    def arguments(first: Floats, second: Floats) -> dict[str, Any]:
        found = {f"{name}_v": array for name, array in point.memory.arrays(second).items()}
        return point.arguments(first, point.g) | found | {"g_v": np.float64(point.g_dot)}

    def derived(first: Floats, second: Floats, suffix: str) -> dict[str, Any]:
        found = {f"{name}_{suffix}": array for name, array in point.memory.arrays(first).items()}
        return found | {f"{name}_v_{suffix}": array for name, array in point.memory.arrays(second).items()}

    everything = [*names, *(f"{name}_v" for name in names)]
    second = verify(jvp(tangent, everything))

    def pushed_again(overflow: Literal["ignore", "raise"] = "ignore") -> Floats:
        dots, dots_v = moved.copy(), moved_v.copy()
        given = arguments(values.copy(), velocities.copy()) | derived(dots, dots_v, "dot")
        numbers = {"g_dot": np.float64(0.5), "g_v_dot": np.float64(-0.25)}
        evaluate(second, GRID, given | numbers, overflow)
        return dots_v

    dots_v = pushed_again()
    groups = [[function.param(name) for name in group] for group in point.memory.groups]
    groups += [[tangent.param(f"{name}_v") for name in group] for group in point.memory.groups]
    program = vjp(tangent, everything, groups)
    given = arguments(values.copy(), velocities.copy())
    residuals = run_primal(program, given, GRID)
    bars, bars_v, numbers = np.zeros(size), seeds.copy(), {"g_bar": np.zeros(1), "g_v_bar": np.zeros(1)}
    evaluate(verify(program.adjoint), GRID, given | derived(bars, bars_v, "bar") | numbers | residuals)
    forward = float(dots_v @ seeds)
    backward = float(bars @ moved + bars_v @ moved_v)
    backward += 0.5 * float(numbers["g_bar"][0]) - 0.25 * float(numbers["g_v_bar"][0])
    scale = max(1.0, abs(forward), float(np.abs(bars).max()))
    if not abs(forward - backward) <= 1e-9 * scale and not overflows(function, point):
        with contextlib.suppress(FloatingPointError):  # a derivative is too large for a float64
            pushed_again("raise")
            raise Disagreement(f"at second order the adjoint says {backward} and the tangent {forward}")


def same_without_loops(text: str, point: Point, expected: Pulled) -> None:
    same(expected, pulled(lowered(text, "program"), point), "with its loops written out")


def same_unmerged(text: str, function: Function, point: Point, expected: Pulled) -> None:
    """Before common subexpressions are merged the adjoint is the same, and so is what it keeps."""
    unmerged = simplify(lay_out(raw(text, "program"), merged=False), merged=False)
    same(expected, pulled(unmerged, point, merged=False), "before merging")
    merged = reverse(function, point)
    groups = [[unmerged.param(name) for name in group] for group in point.memory.groups]
    kept = vjp(unmerged, active(function), groups, merged=False, keep=merged.sites)
    if [param.type for param in kept.adjoint.params] != [param.type for param in merged.adjoint.params]:
        raise Disagreement("before merging, other values are kept")


def same(expected: Pulled, found: Pulled, how: str) -> None:
    scale = 1e-9 * max(1.0, float(np.abs(expected.bars).max()))
    apart = max(float(np.abs(found.bars - expected.bars).max()), abs(found.g_bar - expected.g_bar))
    if not apart <= scale:
        raise Disagreement(f"{how} the adjoint differs by {apart}")


def complete(
    function: Function, program: Function, point: Point, grid: tuple[int, ...], pulled: Vjp | None = None
) -> dict[str, Any]:
    """Arguments for a program derived from `function`: the point's, and what the primal keeps.

    An adjoint may bring the Vjp that it is part of, instead of being derived again.
    """
    found = point.arguments(point.values.copy(), point.g)
    if any(param.hint.endswith("_bar") for param in program.params):
        found |= run_primal(pulled or reverse(function, point), found, grid)
    bars, dots = point.memory.arrays(point.cotangent.copy()), point.memory.arrays(point.direction.copy())
    found |= {f"{name}_bar": bar for name, bar in bars.items()} | {"g_bar": np.zeros(1)}
    found |= {f"{name}_dot": dot for name, dot in dots.items()} | {"g_dot": np.float64(point.g_dot)}
    return {param.hint: found[param.hint] for param in program.params}


def same_memory(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Copies of arguments that share memory where these do."""
    copies: dict[int, Any] = {}
    found = {}
    for name, value in arguments.items():
        if not isinstance(value, np.ndarray) or value.base is None:
            found[name] = np.array(value)
            continue
        whole = copies.setdefault(id(value.base), value.base.copy())
        offset = (value.ctypes.data - value.base.ctypes.data) // value.itemsize
        found[name] = whole[offset : offset + value.size].reshape(value.shape)
    return found
