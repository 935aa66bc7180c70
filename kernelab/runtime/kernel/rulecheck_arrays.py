"""Grad functions over arrays, compared with differences: at a few random points, in float64, by one thread.

The function is called by a kernel of its own, which `vjp` differentiates as it would any other, so the rule
is checked where it will stand.  A function that overwrites what it has read needs what only a launch can
keep, and is left to a gradient check of the kernel.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernelab.backend.common import packing
from kernelab.backend.common.backends import Entry
from kernelab.backend.interpreter import interpreter
from kernelab.backend.interpreter.interpreter import Strict
from kernelab.errors import Diagnostic, KernelError, Related
from kernelab.lang.build import Builder, integer, type_of
from kernelab.lang.ir import Call, CustomRules, For, Function, Native, Var, While, walk
from kernelab.lang.types import Array, is_differentiable, scalar_of, shape_of
from kernelab.passes.ad.vjp import vjp
from kernelab.passes.common.effects import effects
from kernelab.passes.common.inline import inline, lay_out
from kernelab.passes.common.scalarise import scalarise
from kernelab.passes.common.simplify import simplify
from kernelab.passes.common.widen import widen_rules
from kernelab.runtime.memory.device import CPU

Numpy = np.ndarray[Any, Any]
Point = dict[str, Numpy]

POINTS = 6
"""How many points are sampled: every other one between -2 and 2, the rest between 0.1 and 3."""

EXTENT = 5
"""The extent of every axis; integers are below 4, so that they are indices."""

STEP = 1e-5
WIDER = (3e-4, 1e-2)
"""Steps over which a function that moves in small jumps, such as a bisection, has another slope."""

TOLERANCE = 1e-3
"""Relative; where the differences to both sides disagree by more there is a kink, and nothing to compare."""

LOOSE = 3e-2
"""The same for a function that ends a loop where a result is close enough: its slope is no better."""


def shown(value: Numpy) -> str:
    """A number, or the numbers of a vector or a matrix, as a message gives them."""
    return f"{value:.4g}" if value.ndim == 0 else np.array2string(value, precision=4)


def adjoint_of(name: str) -> str:
    """How a grad function names the adjoint of a parameter, also of a leaf of a struct: `adjoint[b].mass`."""
    whole, dot, leaf = name.partition(".")
    return f"adjoint[{whole}]{dot}{leaf}"


def tolerance(function: Function) -> float:
    """By how much a derivative may differ from differences, relatively."""
    loops = [stmt for stmt in walk(function.body) if isinstance(stmt, For | While)]
    return LOOSE if any(loop.stop is not None for loop in loops) else TOLERANCE


def mistake_over_arrays(rules: CustomRules) -> Diagnostic | None:
    """What is wrong with the grad function of a function that takes arrays; None if nothing was found."""
    try:
        check = _Check.of(rules)
    except KernelError:
        return None  # whoever differentiates the kernel is told
    if check is None:
        return None
    rng = np.random.default_rng(0)
    for k in range(POINTS):
        try:
            wrong = check.at(check.point(rng, positive=k % 2 == 1), rng)
        except KernelError:
            # An index or an assertion of the function does not hold at this point, or it does not end there.
            continue
        if wrong is not None:
            return wrong
    return None


@dataclass(frozen=True, slots=True, eq=False)
class _Check:
    """The kernel that calls the function, and its adjoint; `bars` names the adjoint of each parameter."""

    rules: CustomRules
    kernel: Function
    primal: Entry
    adjoint: Entry
    bars: Mapping[str, str]
    changed: frozenset[str]
    tolerance: float

    @staticmethod
    def of(rules: CustomRules) -> "_Check | None":
        kernel = _calling(widen_rules(rules))
        names = [param.hint for param in kernel.params if is_differentiable(param.type)]
        program = vjp(kernel, names)
        if program.residuals:
            return None
        own = len(kernel.params)
        bars = {name: bar.hint for name, bar in zip(names, program.adjoint.params[own:], strict=True)}
        primal = inline(kernel)
        changed = frozenset(var.hint for var in effects(primal).changed)
        entries = _entry(kernel), _entry(program.adjoint)
        return _Check(rules, kernel, *entries, bars, changed, tolerance(primal))

    def point(self, rng: "np.random.Generator", positive: bool) -> Point:
        """Arguments: numbers as they are, arrays of `EXTENT` along each axis."""
        drawn: Point = {}
        for param in self.kernel.params:
            ndim = param.type.ndim if isinstance(param.type, Array) else 0
            elem = param.type.elem if isinstance(param.type, Array) else type_of(param)
            shape = (*(EXTENT,) * ndim, *shape_of(elem))
            scalar = scalar_of(elem)
            if not scalar.is_float:
                drawn[param.hint] = rng.integers(0, 2 if scalar.kind == "bool" else 4, shape).astype(
                    scalar.dtype
                )
            else:
                drawn[param.hint] = rng.uniform(*((0.1, 3.0) if positive else (-2.0, 2.0)), shape)
        return drawn

    def at(self, point: Point, rng: "np.random.Generator") -> Diagnostic | None:
        """What is wrong at a point."""
        weights: Point = {
            name: np.asarray(rng.normal(size=point[name].shape)) for name in self.bars if name in self.changed
        }
        adjoints = self.adjoints(point, weights)
        here = self.value(point, weights)
        own = {param.hint for param in self.rules.function.params}
        for name in (name for name in self.bars if name in own):
            direction = np.asarray(rng.normal(size=point[name].shape))
            ahead, behind = (
                self.value({**point, name: point[name] + step * direction}, weights) for step in (STEP, -STEP)
            )
            slope = (ahead - behind) / (2 * STEP)
            claimed = float(np.sum(adjoints[name] * direction))
            bend = abs(ahead - 2 * here + behind) / STEP
            if not np.isfinite(slope) or bend > TOLERANCE * max(1.0, abs(slope)):
                continue
            if abs(slope - claimed) <= self.tolerance * max(abs(slope), abs(claimed)) + 1e-6:
                continue
            if not abs(slope - claimed) <= self.roughness(name, direction, slope, point, weights):
                return self.told(name, claimed, slope, point)
        return None

    def roughness(
        self, name: str, direction: Numpy, slope: float, point: Point, weights: Mapping[str, Numpy]
    ) -> float:
        """By how much a slope may be off, as those over wider steps tell."""
        found = 0.0
        for wide in WIDER:
            ahead, behind = (
                self.value({**point, name: point[name] + step * direction}, weights) for step in (wide, -wide)
            )
            apart = abs(slope - (ahead - behind) / (2 * wide))
            found = max(found, apart if np.isfinite(apart) else 0.0)
        return 2.0 * found

    def value(self, point: Point, weights: Mapping[str, Numpy]) -> float:
        """The sum of what the kernel leaves in its arrays, weighted."""
        arguments = {name: value.copy() for name, value in point.items()}
        self.run(self.primal, arguments)
        return float(sum(np.sum(weight * arguments[name]) for name, weight in weights.items()))

    def adjoints(self, point: Point, weights: Mapping[str, Numpy]) -> dict[str, Numpy]:
        """What the adjoint makes of the weights."""
        arguments = {name: value.copy() for name, value in point.items()}
        for param in self.kernel.params:
            if param.hint in self.bars:
                is_array = isinstance(param.type, Array)
                shape = point[param.hint].shape if is_array else (1, *point[param.hint].shape)
                bar = np.zeros(shape)
                bar += weights.get(param.hint, 0.0)
                arguments[self.bars[param.hint]] = bar
        self.run(self.adjoint, arguments)
        return {name: arguments[bar] for name, bar in self.bars.items()}

    def run(self, entry: Entry, arguments: Mapping[str, Any]) -> None:
        with np.errstate(all="ignore"):
            entry(packing.pack(entry.info.layout, (1,), arguments))

    def told(self, name: str, claimed: float, slope: float, point: Point) -> Diagnostic:
        rules = self.rules
        grad, function = rules.grad, rules.function
        assert grad is not None
        numbers = (param.hint for param in function.params if not isinstance(param.type, Array))
        where = ", ".join(f"{n} = {shown(point[n])}" for n in numbers)
        return Diagnostic(
            f"{grad.name} gives {claimed:.4g} for {adjoint_of(name)} along a direction where differences of "
            f"{function.name} give {slope:.4g}{', at ' * bool(where)}{where}",
            grad.span,
            "derivative",
            "warning",
            hint="correct the formula, or write check=False if it is meant to differ",
            related=(Related(f"{function.name} is defined here", function.span),),
        )


def _calling(rules: CustomRules) -> Function:
    """The kernel with the parameters of the function that calls it and stores its results."""
    function = replace(rules.function, custom=rules)
    params = tuple(Var(param.type, param.hint, param.span) for param in function.params)
    types = [type_of(atom) for atom in function.body.yields]
    results = tuple(Var(Array(type, 1), f"{function.name}_result_{k}") for k, type in enumerate(types))
    outs, builder = tuple(Var(type) for type in types), Builder(function.span)
    builder.emit(Call(outs, function, params, function.span))
    for result, out in zip(results, outs, strict=True):
        builder.store(result, [integer(0)], out)
    made = Function(f"{function.name}_checked", (*params, *results), builder.close(), (), function.span)
    return simplify(lay_out(made))


def _entry(function: Function) -> Entry:
    flat = simplify(inline(function))
    if any(isinstance(stmt, Native) for stmt in walk(flat.body)):
        return CPU.backend.build([scalarise(flat)])[flat.name]
    return interpreter.entry(flat, chunk=Strict)
