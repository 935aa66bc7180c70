"""Grad functions that users wrote, compared with differences of the function itself, once each.

Both run over float64 at random points, on the interpreter or, where they are C++, on the CPU.  Knows
functions of numbers, vectors and matrices; those that take arrays are the matter of `rulecheck_arrays`.
"""

import warnings
from collections.abc import Sequence
from typing import Any
from weakref import WeakSet

import numpy as np

from kernelab.backend.interpreter import interpreter
from kernelab.errors import Diagnostic, KernelError, KernelWarning, Related
from kernelab.lang.build import type_of
from kernelab.lang.ir import Const, Custom, CustomRules, Function, Native, Var, walk
from kernelab.lang.types import Array, is_differentiable, scalar_of, shape_of
from kernelab.passes.common.inline import inline
from kernelab.passes.common.widen import widen_rules
from kernelab.runtime.kernel import pointwise
from kernelab.runtime.kernel.rulecheck_arrays import (
    TOLERANCE,
    WIDER,
    adjoint_of,
    mistake_over_arrays,
    shown,
    tolerance,
)

Numpy = np.ndarray[Any, Any]

POINTS = 64
"""How many points are sampled: half of them between -2 and 2, half between 0.1 and 3."""

STEP = 1e-5
FACTOR = -2.5

_seen: "WeakSet[CustomRules]" = WeakSet()


def check_rules(function: Function) -> None:
    """Warn, with KernelWarning at its line, of each grad function in a program that is wrong."""
    for stmt in walk(function.body):
        if isinstance(stmt, Custom) and stmt.rules not in _seen:
            _seen.add(stmt.rules)
            found = mistake(stmt.rules)
            if found is not None and found.span is not None:
                warnings.warn_explicit(
                    found.render(), KernelWarning, found.span.source.label, found.span.line
                )


def leave_unchecked(function: Function) -> None:
    """Take the grad functions in a program for compared."""
    _seen.update(stmt.rules for stmt in walk(function.body) if isinstance(stmt, Custom))


def mistake(rules: CustomRules) -> Diagnostic | None:
    """What is wrong with a grad function; None if nothing was found, or if it does not claim to be right."""
    if rules.grad is None or not rules.checked:
        return None
    if any(isinstance(param.type, Array) for param in rules.function.params):
        return mistake_over_arrays(rules)
    wide = widen_rules(rules)
    for samples in (_points(wide.function), _points(wide.function, positive=True)):
        try:
            return _Check(rules, wide, samples).mistake()
        except KernelError:
            # An assertion of the function does not hold at some of these points.
            continue
    return None


def mistake_at(rules: CustomRules, points: Sequence[Numpy]) -> Diagnostic | None:
    """What is wrong with a grad function at some points, even one that does not claim to be the derivative.

    Each of `points` holds the values of one parameter, a point a row.
    """
    if rules.grad is None or any(isinstance(param.type, Array) for param in rules.function.params):
        return None
    wide, count = widen_rules(rules), len(points[0])
    for start in range(0, count, POINTS):
        rows = np.minimum(np.arange(start, start + POINTS), count - 1)
        found = _Check(rules, wide, [given[rows] for given in points]).mistake()
        if found is not None:
            return found
    return None


def _never(rules: CustomRules, grad: Function, name: str, found: str = "") -> Diagnostic:
    depends = f"{rules.function.name} depends on {name}{found}"
    return Diagnostic(
        f"{grad.name} never adds to {adjoint_of(name)}, though {depends}",
        grad.span,
        "derivative",
        "warning",
        hint=f"add its share: {adjoint_of(name)} += ..., or write check=False if it is meant to be left out",
        related=(Related(f"{rules.function.name} is defined here", rules.function.span),),
    )


def _points(function: Function, positive: bool = False) -> list[Numpy]:
    rng = np.random.default_rng(0)
    return [_draw(rng, param, positive) for param in function.params]


def _draw(rng: "np.random.Generator", param: Var, positive: bool) -> Numpy:
    scalar, shape = scalar_of(type_of(param)), (POINTS, *shape_of(type_of(param)))
    if not scalar.is_float:
        return rng.integers(0, 2 if scalar.kind == "bool" else 4, shape).astype(scalar.dtype)
    drawn = rng.uniform(0.1, 3.0, shape)
    if not positive:
        drawn[: POINTS // 2] = rng.uniform(-2.0, 2.0, drawn[: POINTS // 2].shape)
    return drawn


class _Check:
    """One comparison: the cotangents of the results are random, 1 where there is one number only."""

    def __init__(self, rules: CustomRules, wide: CustomRules, points: list[Numpy]) -> None:
        assert wide.grad is not None
        self.rules = rules
        self.primal = inline(wide.function)
        self.points = points
        rng = np.random.default_rng(1)
        results = [type_of(atom) for atom in wide.function.body.yields]
        shapes = [(POINTS, *shape_of(type)) for type in results]
        self.only = len(results) == 1 and shapes[0] == (POINTS,)
        self.seeds = [
            (np.ones(shape) if self.only else rng.normal(size=shape)).astype(scalar_of(type).dtype)
            for shape, type in zip(shapes, results, strict=True)
        ]
        self.grad = inline(wide.grad)
        self.given_up = np.zeros(POINTS, np.bool_)
        self.tolerance = tolerance(self.primal)
        self.adjoints = self.gradients(1.0)
        self.floats = [i for i, p in enumerate(wide.function.params) if is_differentiable(p.type)]
        self.directions = [_direction(rng, points[i].shape) for i in self.floats]

    def gradients(self, factor: float) -> list[Numpy]:
        """What the grad function yields for cotangents a factor larger."""
        with np.errstate(all="ignore"):
            return self.evaluated(
                self.grad, *self.points, *((factor * w).astype(w.dtype) for w in self.seeds)
            )

    def evaluated(self, function: Function, *points: Numpy) -> list[Numpy]:
        """The results of a function; remembers the points at which it does not end."""
        if is_native(function):
            return pointwise.evaluate(function, *points)
        results, given_up = interpreter.evaluate_patiently(function, *points)
        self.given_up |= given_up
        return results

    def value(self, points: Sequence[Numpy]) -> Numpy:
        with np.errstate(all="ignore"):
            results = self.evaluated(self.primal, *points)
            return sum(
                (_inner(w, y) for w, y in zip(self.seeds, results, strict=True) if w.dtype.kind == "f"),
                np.zeros(POINTS),
            )

    def mistake(self) -> Diagnostic | None:
        here = self.value(self.points)
        for i, adjoint, direction in zip(self.floats, self.adjoints, self.directions, strict=True):
            with np.errstate(all="ignore"):
                ahead, behind = (self.value(self.moved(i, s * direction)) for s in (STEP, -STEP))
                slope, claimed = (ahead - behind) / (2 * STEP), _inner(adjoint, direction)
                bend = np.abs(ahead - 2 * here + behind) / STEP
                size = np.maximum(np.abs(slope), np.abs(claimed))
                smooth = np.isfinite(slope) & ~(bend > TOLERANCE * np.maximum(1.0, np.abs(slope)))
                wrong = smooth & ~(np.abs(slope - claimed) <= self.tolerance * size + 1e-6)
                if wrong.any():
                    wrong &= (
                        ~(np.abs(slope - claimed) <= self.roughness(i, direction, slope)) & ~self.given_up
                    )
            if wrong.any():
                return self.told(i, int(np.argmax(wrong)), claimed, slope)
        return self.out_of_proportion() if self.only else None

    def roughness(self, i: int, direction: Numpy, slope: Numpy) -> Numpy:
        """By how much a slope may be off, as those over wider steps tell."""
        found = np.zeros(POINTS)
        for wide in WIDER:
            ahead, behind = (self.value(self.moved(i, s * direction)) for s in (wide, -wide))
            apart = np.abs(slope - (ahead - behind) / (2 * wide))
            found = np.maximum(found, np.where(np.isfinite(apart), apart, 0.0))
        return 2.0 * found

    def out_of_proportion(self) -> Diagnostic | None:
        """A single cotangent was 1 so far, which a grad function can forget without being found out."""
        for i, one, other in zip(self.floats, self.adjoints, self.gradients(FACTOR), strict=False):
            with np.errstate(all="ignore"):
                wrong = np.isfinite(one) & ~(np.abs(other - FACTOR * one) <= TOLERANCE * np.abs(one) + 1e-6)
            if wrong[~self.given_up].any():
                return self.forgotten(self.rules.function.params[i].hint)
        return None

    def forgotten(self, name: str) -> Diagnostic:
        grad, function = self.rules.grad, self.rules.function
        assert grad is not None
        cotangent = grad.params[len(function.params)].hint
        return Diagnostic(
            f"{adjoint_of(name)} of {grad.name} is not in proportion to {cotangent}",
            grad.span,
            "derivative",
            "warning",
            hint=f"multiply what is added to {adjoint_of(name)} by {cotangent}, or write check=False",
            related=(Related(f"{function.name} is defined here", function.span),),
        )

    def moved(self, i: int, change: Numpy) -> list[Numpy]:
        return [x + change if k == i else x for k, x in enumerate(self.points)]

    def told(self, i: int, point: int, claimed: Numpy, slope: Numpy) -> Diagnostic:
        grad, function = self.rules.grad, self.rules.function
        assert grad is not None
        where = ", ".join(
            f"{param.hint} = {shown(x[point])}" for param, x in zip(function.params, self.points, strict=True)
        )
        name = function.params[i].hint
        share = self.grad.body.yields[self.floats.index(i)]
        if isinstance(share, Const) and not share.value:
            return _never(self.rules, grad, name, f": differences give {slope[point]:.4g} at {where}")
        along = adjoint_of(name) + " along a direction" * (self.points[i].ndim > 1)
        return Diagnostic(
            f"{grad.name} gives {claimed[point]:.4g} for {along} where differences of {function.name} give "
            f"{slope[point]:.4g}, at {where}",
            grad.span,
            "derivative",
            "warning",
            hint="correct the formula, or write check=False if it is meant to differ",
            related=(Related(f"{function.name} is defined here", function.span),),
        )


def evaluate(function: Function, *points: Numpy) -> list[Numpy]:
    """The results of a function without calls, at points along the first axis."""
    return (
        pointwise.evaluate(function, *points)
        if is_native(function)
        else interpreter.evaluate(function, *points)
    )


def is_native(function: Function) -> bool:
    """Whether a part of a function without calls is C++."""
    return any(isinstance(stmt, Native) for stmt in walk(function.body))


def _direction(rng: "np.random.Generator", shape: tuple[int, ...]) -> Numpy:
    return rng.normal(size=shape) if len(shape) > 1 else np.ones(shape)


def _inner(a: Numpy, b: Numpy) -> Numpy:
    found: Numpy = np.sum((a * b).reshape(POINTS, -1), axis=1)
    return found
