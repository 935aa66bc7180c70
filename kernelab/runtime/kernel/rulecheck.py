"""Rules that users wrote, compared with the function itself, once each.

Grad and jvp functions are compared with its differences, replay functions with its results.

Both run over float64 at random points, on the interpreter or, where they are C++, on the CPU.  Knows
functions of numbers, vectors and matrices; those that take arrays are the matter of `rulecheck_arrays`.
"""

import warnings
from collections.abc import Iterator, Sequence
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
    """Warn, with KernelWarning at its line, of each rule in a program that is wrong."""
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
    """What is wrong with the rules of a function; None if nothing was found, or if it is a surrogate."""
    if any(isinstance(param.type, Array) for param in rules.function.params):
        return mistake_over_arrays(rules) if rules.grad is not None and rules.checked else None
    wide = widen_rules(rules)
    for samples in (_points(wide.function), _points(wide.function, positive=True)):
        try:
            return next(filter(None, _mistakes(rules, wide, samples)), None)
        except KernelError:
            # An assertion of the function does not hold at some of these points.
            continue
    return None


def _mistakes(rules: CustomRules, wide: CustomRules, points: list[Numpy]) -> Iterator[Diagnostic | None]:
    """What is wrong with each rule; the tangent of a surrogate is left to its user, as its adjoint is."""
    if rules.replay is not None:
        yield _replay_mistake(rules, wide, points)
    if rules.grad is not None and rules.checked:
        yield _Check(rules, wide, points).mistake()
    if rules.jvp is not None and rules.checked:
        yield _TangentCheck(rules, wide, points).mistake()


def _replay_mistake(rules: CustomRules, wide: CustomRules, points: list[Numpy]) -> Diagnostic | None:
    """Where a replay function does not return what the function returns."""
    assert rules.replay is not None and wide.replay is not None
    primal, replay, given_up = inline(wide.function), inline(wide.replay), np.zeros(POINTS, np.bool_)
    results, repeated = (_evaluated(function, points, given_up) for function in (primal, replay))
    for result, again in zip(results, repeated, strict=True):
        values, other = (np.asarray(y, np.float64).reshape(POINTS, -1) for y in (result, again))
        with np.errstate(all="ignore"):
            apart = ~(np.abs(other - values) <= TOLERANCE * np.abs(values)) & (other != values)
        wrong = (apart & np.isfinite(values)).any(axis=1) & ~given_up
        if wrong.any():
            k = int(np.argmax(wrong))
            return Diagnostic(
                f"{rules.replay.name} returns {shown(again[k])} where {rules.function.name} returns "
                f"{shown(result[k])}, at {_where(rules, points, k)}",
                rules.replay.span,
                "derivative",
                "warning",
                hint=f"return what {rules.function.name} returns: the backward pass goes on with it",
                related=(Related(f"{rules.function.name} is defined here", rules.function.span),),
            )
    return None


def _evaluated(function: Function, points: Sequence[Numpy], given_up: Numpy) -> list[Numpy]:
    """The results of a function; remembers the points at which it does not end."""
    with np.errstate(all="ignore"):
        if is_native(function):
            return pointwise.evaluate(function, *points)
        results, endless = interpreter.evaluate_patiently(function, *points)
    given_up |= endless
    return results


def _where(rules: CustomRules, points: Sequence[Numpy], point: int) -> str:
    named = zip(rules.function.params, points, strict=True)
    return ", ".join(f"{param.hint} = {shown(x[point])}" for param, x in named)


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
        self.rules, self.rule = rules, self.rule_of(rules)
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
        self.derivative = inline(self.rule_of(wide))
        self.given_up = np.zeros(POINTS, np.bool_)
        self.tolerance = tolerance(self.primal)
        self.floats = [i for i, p in enumerate(wide.function.params) if is_differentiable(p.type)]
        self.directions = [_direction(rng, points[i].shape) for i in self.floats]
        self.claimed = self.gradients(1.0)

    def rule_of(self, rules: CustomRules) -> Function:
        """The rule that is compared."""
        assert rules.grad is not None
        return rules.grad

    def gradients(self, factor: float) -> list[Numpy]:
        """What the grad function yields for cotangents a factor larger."""
        cotangents = ((factor * w).astype(w.dtype) for w in self.seeds)
        return self.evaluated(self.derivative, *self.points, *cotangents)

    def evaluated(self, function: Function, *points: Numpy) -> list[Numpy]:
        """The results of a function; remembers the points at which it does not end."""
        return _evaluated(function, points, self.given_up)

    def slope(self, k: int) -> Numpy:
        """What the rule says about the slope along the direction of parameter `floats[k]`."""
        return _inner(self.claimed[k], self.directions[k])

    def value(self, points: Sequence[Numpy]) -> Numpy:
        with np.errstate(all="ignore"):
            results = self.evaluated(self.primal, *points)
            return sum(
                (_inner(w, y) for w, y in zip(self.seeds, results, strict=True) if w.dtype.kind == "f"),
                np.zeros(POINTS),
            )

    def mistake(self) -> Diagnostic | None:
        here = self.value(self.points)
        for k, (i, direction) in enumerate(zip(self.floats, self.directions, strict=True)):
            with np.errstate(all="ignore"):
                ahead, behind = (self.value(self.moved(i, s * direction)) for s in (STEP, -STEP))
                slope, claimed = (ahead - behind) / (2 * STEP), self.slope(k)
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
        return self.out_of_proportion()

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
        if not self.only:
            return None
        for i, one, other in zip(self.floats, self.claimed, self.gradients(FACTOR), strict=False):
            with np.errstate(all="ignore"):
                wrong = np.isfinite(one) & ~(np.abs(other - FACTOR * one) <= TOLERANCE * np.abs(one) + 1e-6)
            if wrong[~self.given_up].any():
                return self.forgotten(self.rules.function.params[i].hint)
        return None

    def forgotten(self, name: str) -> Diagnostic:
        grad, function = self.rule, self.rules.function
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
        grad, function, where = self.rule, self.rules.function, _where(self.rules, self.points, point)
        name = function.params[i].hint
        share = self.derivative.body.yields[self.floats.index(i)]
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


class _TangentCheck(_Check):
    """The same for a jvp function, with one parameter moved at a time."""

    def rule_of(self, rules: CustomRules) -> Function:
        assert rules.jvp is not None
        return rules.jvp

    def gradients(self, factor: float) -> list[Numpy]:
        """The weighted sums of the tangents that the rule yields, for each parameter that moves."""
        return [self.along(k, factor) for k in range(len(self.floats))]

    def along(self, k: int, factor: float) -> Numpy:
        tangents = [factor * v if j == k else np.zeros_like(v) for j, v in enumerate(self.directions)]
        found = self.evaluated(self.derivative, *self.points, *tangents)
        weights = (w for w in self.seeds if w.dtype.kind == "f")
        with np.errstate(all="ignore"):
            return sum((_inner(w, y) for w, y in zip(weights, found, strict=True)), np.zeros(POINTS))

    def slope(self, k: int) -> Numpy:
        return self.claimed[k]

    def out_of_proportion(self) -> Diagnostic | None:
        """The tangents were 1 so far for numbers, which a jvp function can forget without being found out."""
        for k, (one, other) in enumerate(zip(self.claimed, self.gradients(FACTOR), strict=True)):
            with np.errstate(all="ignore"):
                wrong = np.isfinite(one) & ~(np.abs(other - FACTOR * one) <= TOLERANCE * np.abs(one) + 1e-6)
            if wrong[~self.given_up].any():
                tangent = self.rule.params[len(self.rules.function.params) + k].hint
                return self.warned(
                    f"what {self.rule.name} returns is not in proportion to {tangent}",
                    f"multiply the share of {self.rules.function.params[self.floats[k]].hint} by {tangent}",
                )
        return None

    def told(self, i: int, point: int, claimed: Numpy, slope: Numpy) -> Diagnostic:
        function, where = self.rules.function, _where(self.rules, self.points, point)
        return self.warned(
            f"{self.rule.name} gives {claimed[point]:.4g} along {function.params[i].hint} where differences "
            f"of {function.name} give {slope[point]:.4g}, at {where}",
            "correct the formula, or write a grad function with check=False if it is meant to differ",
        )

    def warned(self, message: str, hint: str) -> Diagnostic:
        function = self.rules.function
        related = (Related(f"{function.name} is defined here", function.span),)
        return Diagnostic(message, self.rule.span, "derivative", "warning", hint=hint, related=related)


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
