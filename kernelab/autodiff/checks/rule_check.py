"""Derivative rules that users wrote, compared with the function that they are for, once each.

A kernel of float64 calls the function at random points, a point a thread.  `vjp` and `jvp` differentiate it
as they would any other, so that a grad function and a jvp function are compared with differences where they
will stand; a replay is compared with the results.  A function that takes arrays is called by one thread.  One
that overwrites what it has read needs what only a launch can keep: its grad function is left to `gradcheck`.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any
from weakref import WeakSet

import numpy as np

from kernelab import hooks
from kernelab.backend.common import packing
from kernelab.backend.common.backends import Entry
from kernelab.backend.interpreter import interpreter
from kernelab.errors import Diagnostic, KernelError, KernelWarning, Related
from kernelab.lang.build import Builder, elem_of, type_of
from kernelab.lang.ir import (
    Call,
    Const,
    Custom,
    CustomRules,
    For,
    Function,
    Native,
    RuleName,
    Var,
    While,
    walk,
)
from kernelab.lang.types import Array, int32, is_differentiable, scalar_of, shape_of
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.ad.vjp import vjp
from kernelab.passes.common.effects import effects
from kernelab.passes.common.inline import inline, lay_out
from kernelab.passes.common.scalarise import scalarise
from kernelab.passes.common.simplify import simplify
from kernelab.passes.common.widen import widen_rules
from kernelab.runtime.memory.device import CPU

Numpy = np.ndarray[Any, Any]
Point = Mapping[str, Numpy]

POINTS, RUNS, ATTEMPTS = 32, 6, 60
"""The points sampled at once; comparisons of a function that takes arrays, and arguments drawn for these.

Indices and extents of slices that are drawn at random seldom fit each other.
"""

EXTENT = 5
"""The extent of every axis; integers are below 4, so that they are indices."""

STEP = 1e-5
WIDER = (3e-4, 1e-2)
"""Steps over which a function that moves in small jumps, such as a bisection, has another slope."""

TOLERANCE = 1e-3
"""Relative; where the differences to both sides disagree by more there is a kink, and nothing to compare."""

LOOSE = 3e-2
"""The same for a function that ends a loop where a result is close enough: its slope is no better."""

FACTOR = -2.5

_seen: "WeakSet[CustomRules]" = WeakSet()


@hooks.check_rules.provide
def check_rules(function: Function) -> None:
    """Warn, with KernelWarning at its line, of each derivative rule in a program that is wrong."""
    for stmt in walk(function.body):
        if isinstance(stmt, Custom) and stmt.rules not in _seen:
            _seen.add(stmt.rules)
            for found in mistakes(stmt.rules):
                if found.span is not None:
                    warnings.warn_explicit(
                        found.render(), KernelWarning, found.span.source.label, found.span.line
                    )


def leave_unchecked(function: Function) -> None:
    """Take the derivative rules in a program for compared."""
    _seen.update(stmt.rules for stmt in walk(function.body) if isinstance(stmt, Custom))


def mistakes(rules: CustomRules) -> list[Diagnostic]:
    """What is wrong with the rules that claim to be right, at most one mistake for each."""
    found: dict[RuleName, Diagnostic] = {}
    kinds = {kind for kind in rules.checked if getattr(rules, kind) is not None}
    if rules.grad is not None and "grad" not in kinds:
        kinds -= {"jvp"}  # the tangent of a surrogate
    check = _Check(rules) if kinds else None
    if check is None:
        return []
    compared = Counter[RuleName]()
    for points in _samples(check.function):
        for kind in sorted(kinds - found.keys()):
            if compared[kind] == RUNS:
                continue
            try:
                wrong = check.of[kind](points)
            except KernelError:
                # An index or an assertion of the function does not hold at one of these points; or the kernel
                # cannot be differentiated, which whoever differentiates the user's own is told.
                continue
            compared[kind] += 1
            if wrong is not None:
                found[kind] = wrong
    return list(found.values())


def mistake_at(rules: CustomRules, points: Sequence[Numpy]) -> Diagnostic | None:
    """What is wrong with a grad function at some points, even one that does not claim to be the derivative.

    Each of `points` holds the values of one parameter, a point a row.
    """
    if rules.grad is None or any(isinstance(param.type, Array) for param in rules.function.params):
        return None
    return _Check(rules).grad({p.hint: x for p, x in zip(rules.function.params, points, strict=True)})


def evaluate(function: Function, *points: Numpy) -> list[Numpy]:
    """The results of a function of numbers; each argument holds a point a row.

    Raises BuildError where it is C++ and there is no compiler, and the function's own errors.
    """
    kernel = _calling(function)
    given = [(param.hint, x) for param, x in zip(function.params, points, strict=True)]
    arguments = _with_results(kernel, given, len(points[0]))
    _Program(kernel).run(len(points[0]), arguments)
    return [arguments[param.hint] for param in kernel.params[len(points) :]]


# ------------------------------------------------------------------------------------------ points


def _samples(function: Function) -> Iterator[Point]:
    """Random arguments, every other time between -2 and 2, else between 0.1 and 3."""
    rng, is_single = np.random.default_rng(0), _takes_arrays(function)
    for k in range(ATTEMPTS if is_single else 2):
        yield {
            param.hint: _drawn(rng, param, 1 if is_single else POINTS, k % 2 == 1)
            for param in function.params
        }


def _drawn(rng: "np.random.Generator", param: Var, count: int, positive: bool) -> Numpy:
    """An array of `EXTENT` along each axis, or some numbers, vectors or matrices."""
    is_array = isinstance(param.type, Array)
    elem = elem_of(param) if is_array else type_of(param)
    outer = (EXTENT,) * param.type.ndim if isinstance(param.type, Array) else (count,)
    scalar, shape = scalar_of(elem), (*outer, *shape_of(elem))
    if not scalar.is_float:
        return rng.integers(0, 2 if scalar.kind == "bool" else 4, shape).astype(scalar.dtype)
    return rng.uniform(*((0.1, 3.0) if positive else (-2.0, 2.0)), shape)


def _takes_arrays(function: Function) -> bool:
    return any(isinstance(param.type, Array) for param in function.params)


# ------------------------------------------------------------------------------------------ programs


class _Program:
    """A kernel as it is run here: on the interpreter, or on the CPU where a part of it is C++."""

    def __init__(self, kernel: Function) -> None:
        flat = simplify(inline(kernel))
        self._parts: list[interpreter.Patient] = []
        self._entry: Entry = (
            CPU.backend.build([scalarise(flat)])[flat.name]
            if any(isinstance(stmt, Native) for stmt in walk(flat.body))
            else interpreter.entry(flat, chunk=self._part)
        )

    def _part(self, *given: Any) -> interpreter.Patient:
        self._parts.append(interpreter.Patient(*given))
        return self._parts[-1]

    def run(self, threads: int, arguments: Mapping[str, Any]) -> Numpy:
        """Run some threads; which of them did not end."""
        self._parts.clear()
        with np.errstate(all="ignore"):
            self._entry(packing.pack(self._entry.info.layout, (threads,), arguments))
        endless = np.zeros(threads, np.bool_)
        for part in self._parts:
            endless[part.threads.start : part.threads.stop] = part.given_up
        return endless


def _calling(function: Function) -> Function:
    """The kernel whose thread i calls the function for element i of its numbers and stores results there."""
    thread, builder = Var(int32, "i", function.span), Builder(function.span)
    params = tuple(
        Var(param.type if isinstance(param.type, Array) else Array(type_of(param), 1), param.hint, param.span)
        for param in function.params
    )
    types = [type_of(atom) for atom in function.body.yields]
    results = tuple(Var(Array(type, 1), f"{function.name}_result_{k}") for k, type in enumerate(types))
    args = tuple(
        own if isinstance(param.type, Array) else builder.load(own, [thread], own.hint)
        for param, own in zip(function.params, params, strict=True)
    )
    outs = tuple(Var(type) for type in types)
    builder.emit(Call(outs, function, args, function.span))
    for result, out in zip(results, outs, strict=True):
        builder.store(result, [thread], out)
    name = f"{function.name}_checked"
    return simplify(lay_out(Function(name, (*params, *results), builder.close(), (thread,), function.span)))


def _with_results(kernel: Function, points: Sequence[tuple[str, Numpy]], threads: int) -> dict[str, Numpy]:
    """The arguments of a kernel that calls a function: copies of some points, and zeros for the results."""
    arguments = {name: np.array(value, order="C") for name, value in points}
    for param in kernel.params[len(points) :]:
        elem = elem_of(param)
        arguments[param.hint] = np.zeros((threads, *shape_of(elem)), scalar_of(elem).dtype)
    return arguments


# ------------------------------------------------------------------------------------------ comparisons


class _Check:
    """The programs that compare the rules of a function; the weights of what it changes are random.

    The weight is 1 where there is one result only, a number.
    """

    def __init__(self, rules: CustomRules) -> None:
        self.rules, self.wide = rules, widen_rules(rules)
        self.function = self.wide.function
        self.of: Mapping[RuleName, Callable[[Point], Diagnostic | None]] = {
            "grad": self.grad,
            "replay": self.replay,
            "jvp": self.jvp,
        }
        self.kernel = _calling(replace(self.function, custom=replace(self.wide, replay=None)))
        self.primal = _Program(self.kernel)
        self.arrays = [param.hint for param in self.function.params if isinstance(param.type, Array)]
        self.floats = [param.hint for param in self.function.params if is_differentiable(param.type)]
        self.active = [param.hint for param in self.kernel.params if is_differentiable(param.type)]
        flat = inline(self.kernel)
        self.changed = [var.hint for var in effects(flat).changed if var.hint in self.active]
        loops = [stmt for stmt in walk(flat.body) if isinstance(stmt, For | While)]
        self.tolerance = LOOSE if any(loop.stop is not None for loop in loops) else TOLERANCE
        results = [type_of(atom) for atom in self.function.body.yields]
        self.is_number = not self.arrays and [shape_of(type) for type in results] == [()]
        self.rng = np.random.default_rng(1)
        self.endless = np.zeros(1, np.bool_)

    @cached_property
    def adjoint(self) -> tuple[_Program, list[str]] | None:
        """The adjoint and the names of the adjoints there; None for what a launch would have to keep."""
        program = vjp(self.kernel, self.active)
        bars = [bar.hint for bar in program.adjoint.params[len(self.kernel.params) :]]
        return None if program.residuals else (_Program(program.adjoint), bars)

    @cached_property
    def tangent(self) -> _Program:
        return _Program(jvp(self.kernel, self.active))

    @cached_property
    def replayed(self) -> Function:
        assert self.wide.replay is not None
        return _calling(self.wide.replay)

    # ---- the three kinds

    def grad(self, points: Point) -> Diagnostic | None:
        """What is wrong with the grad function at some points."""
        if self.adjoint is None:
            return None
        weights = self.started(points)
        adjoints = self.adjoints(points, weights)
        for name in self.floats:
            is_plain = not self.arrays and points[name].ndim == 1
            direction = np.ones(points[name].shape) if is_plain else self.drawn(points[name])
            claimed = self.inner(adjoints[name], direction)
            found = self.wrong(points, weights, name, direction, claimed)
            if found is not None:
                along = adjoint_of(name) + " along a direction" * (not is_plain)
                at, _, slope = found
                never = self.never(name, at, slope, points)
                return never or self.told(self.rules.grad, along, *found, points)
        return self.out_of_proportion(points, weights, adjoints) if self.is_number else None

    def jvp(self, points: Point) -> Diagnostic | None:
        """What is wrong with the jvp function at some points."""
        rule, weights = self.rules.jvp, self.started(points)
        assert rule is not None
        for k, name in enumerate(self.floats):
            direction = self.drawn(points[name])
            claimed = self.pushed(points, weights, name, direction)
            found = self.wrong(points, weights, name, direction, claimed)
            if found is not None:
                dot, is_plain = rule.params[len(points) + k].hint, self.is_number and direction.ndim == 1
                along = f"{dot} = {shown(direction[found[0]])}" if is_plain else f"{dot} along a direction"
                return self.told(rule, along, *found, points)
        return None

    def replay(self, points: Point) -> Diagnostic | None:
        """What is wrong with the replay at some points; it finds the arrays as the function has left them."""
        self.started(points)
        left = self.run(self.primal, self.arguments(points))
        parameters = zip(self.replayed.params, points, strict=False)
        given = [(param.hint, left[name]) for param, name in parameters]
        again = _with_results(self.replayed, given, self.threads)
        self.run(_Program(self.replayed), again)
        for own, other in zip(
            self.kernel.params[len(points) :], self.replayed.params[len(points) :], strict=True
        ):
            result, value = left[own.hint], again[other.hint]
            with np.errstate(all="ignore"):
                size = np.maximum(
                    np.abs(result), np.nanmax(np.abs(result), initial=0.0, where=np.isfinite(result))
                )
                wrong = np.isfinite(result) & ~(np.abs(value - result) <= self.tolerance * size)
            wrong &= ~self.endless.reshape(-1, *(1,) * (result.ndim - 1))
            if wrong.any():
                at = int(np.argwhere(wrong)[0][0])
                return self.differs(shown(value[at]), shown(result[at]), at, points)
        return None

    # ---- values and derivatives

    def started(self, points: Point) -> Point:
        """The weights for a comparison at some points."""
        self.threads = 1 if self.arrays else len(next(iter(points.values()), (0,)))
        self.endless = np.zeros(self.threads, np.bool_)
        arguments = self.arguments(points)
        if self.is_number:
            return {name: np.ones(self.threads) for name in self.changed}
        return {name: self.drawn(arguments[name]) for name in self.changed}

    def drawn(self, like: Numpy) -> Numpy:
        return np.asarray(self.rng.normal(size=like.shape))

    def arguments(self, points: Point) -> dict[str, Numpy]:
        return _with_results(self.kernel, list(points.items()), self.threads)

    def run(self, program: _Program, arguments: dict[str, Numpy]) -> dict[str, Numpy]:
        self.endless |= program.run(self.threads, arguments)
        return arguments

    def inner(self, a: Numpy, b: Numpy) -> Numpy:
        found: Numpy = np.sum((a * b).reshape(self.threads, -1), axis=1)
        return found

    def weighted(self, values: Point, weights: Point, suffix: str = "") -> Numpy:
        with np.errstate(all="ignore"):
            return sum(
                (self.inner(w, values[name + suffix]) for name, w in weights.items()), np.zeros(self.threads)
            )

    def value(self, points: Point, weights: Point, name: str = "", move: Numpy | float = 0.0) -> Numpy:
        """The weighted sum of what the function changes and returns, with one argument moved."""
        moved = {**points, name: points[name] + move} if name else points
        return self.weighted(self.run(self.primal, self.arguments(moved)), weights)

    def adjoints(self, points: Point, weights: Point) -> Point:
        """What the adjoint makes of the weights, where the function has left its arrays."""
        assert self.adjoint is not None
        program, bars = self.adjoint
        left = self.run(self.primal, self.arguments(points))
        for name, bar in zip(self.active, bars, strict=True):
            left[bar] = np.zeros(left[name].shape) + weights.get(name, 0.0)
        self.run(program, left)
        return {name: left[bar] for name, bar in zip(self.active, bars, strict=True)}

    def pushed(self, points: Point, weights: Point, name: str, direction: Numpy) -> Numpy:
        """The weighted tangents, along a direction of one argument."""
        arguments = self.arguments(points)
        dots = {f"{other}_dot": np.zeros(arguments[other].shape) for other in self.active}
        dots[f"{name}_dot"] += direction
        return self.weighted(self.run(self.tangent, arguments | dots), weights, "_dot")

    # ---- against differences

    def wrong(
        self, points: Point, weights: Point, name: str, direction: Numpy, claimed: Numpy
    ) -> tuple[int, float, float] | None:
        """The first point where a derivative along a direction is not that of differences, and both."""
        here = self.value(points, weights)
        ahead, behind = (self.value(points, weights, name, s * direction) for s in (STEP, -STEP))
        with np.errstate(all="ignore"):
            slope = (ahead - behind) / (2 * STEP)
            bend = np.abs(ahead - 2 * here + behind) / STEP
            size = np.maximum(np.abs(slope), np.abs(claimed))
            smooth = np.isfinite(slope) & ~(bend > TOLERANCE * np.maximum(1.0, np.abs(slope)))
            wrong = smooth & ~(np.abs(slope - claimed) <= self.tolerance * size + 1e-6)
            if wrong.any():
                wrong &= ~(np.abs(slope - claimed) <= self.roughness(points, weights, name, direction, slope))
        wrong &= ~self.endless
        at = int(np.argmax(wrong))
        return (at, float(claimed[at]), float(slope[at])) if wrong.any() else None

    def roughness(self, points: Point, weights: Point, name: str, direction: Numpy, slope: Numpy) -> Numpy:
        """By how much a slope may be off, as those over wider steps tell."""
        found = np.zeros(self.threads)
        for wide in WIDER:
            ahead, behind = (self.value(points, weights, name, s * direction) for s in (wide, -wide))
            apart = np.abs(slope - (ahead - behind) / (2 * wide))
            found = np.maximum(found, np.where(np.isfinite(apart), apart, 0.0))
        return 2.0 * found

    def out_of_proportion(self, points: Point, weights: Point, adjoints: Point) -> Diagnostic | None:
        """The cotangent was 1 so far, which a grad function can forget without being found out."""
        scaled = self.adjoints(points, {name: FACTOR * weight for name, weight in weights.items()})
        for name in self.floats:
            one, other = adjoints[name], scaled[name]
            with np.errstate(all="ignore"):
                wrong = np.isfinite(one) & ~(np.abs(other - FACTOR * one) <= TOLERANCE * np.abs(one) + 1e-6)
            if wrong[~self.endless].any():
                assert self.rules.grad is not None
                cotangent, bar = self.rules.grad.params[len(points)].hint, adjoint_of(name)
                message = f"{bar} of {self.rules.grad.name} is not in proportion to {cotangent}"
                hint = f"multiply what is added to {bar} by {cotangent}, or write check=False"
                return self.diagnostic(self.rules.grad, message, hint)
        return None

    # ---- messages

    def told(
        self, rule: Function | None, along: str, at: int, claimed: float, slope: float, points: Point
    ) -> Diagnostic:
        assert rule is not None
        name, where = self.rules.function.name, self.where(points, at)
        gives = f"{rule.name} gives {claimed:.4g} for {along}"
        message = f"{gives} where differences of {name} give {slope:.4g}{where}"
        return self.diagnostic(
            rule, message, "correct the formula, or write check=False if it is meant to differ"
        )

    def never(self, name: str, at: int, slope: float, points: Point) -> Diagnostic | None:
        """What to say of an argument that the grad function leaves out, if it does."""
        rule, wide, function = self.rules.grad, self.wide.grad, self.rules.function
        assert rule is not None
        assert wide is not None
        numbers = [hint for hint in self.floats if hint not in self.arrays]
        share = dict(zip(numbers, inline(wide).body.yields, strict=True)).get(name)
        if not isinstance(share, Const) or share.value:
            return None
        bar, depends = adjoint_of(name), f"{function.name} depends on {name}"
        found = f"differences give {slope:.4g}{self.where(points, at)}"
        message = f"{rule.name} never adds to {bar}, though {depends}: {found}"
        hint = f"add its share: {bar} += ..., or write check=False if it is meant to be left out"
        return self.diagnostic(rule, message, hint)

    def differs(self, value: str, result: str, at: int, points: Point) -> Diagnostic:
        name, rule = self.rules.function.name, self.rules.replay
        assert rule is not None
        message = f"{rule.name} returns {value} where {name} returns {result}{self.where(points, at)}"
        return self.diagnostic(
            rule, message, f"return what {name} returns, or write check=False if it is meant to differ"
        )

    def where(self, points: Point, at: int) -> str:
        numbers = (item for item in points.items() if item[0] not in self.arrays)
        found = ", ".join(f"{name} = {shown(values[at])}" for name, values in numbers)
        return f", at {found}" if found else ""

    def diagnostic(self, rule: Function, message: str, hint: str) -> Diagnostic:
        function = self.rules.function
        related = (Related(f"{function.name} is defined here", function.span),)
        return Diagnostic(message, rule.span, "derivative", "warning", hint=hint, related=related)


def shown(value: Numpy) -> str:
    """A number, or the numbers of a vector or a matrix, as a message gives them."""
    return f"{value:.4g}" if value.ndim == 0 else np.array2string(value, precision=4)


def adjoint_of(name: str) -> str:
    """How a grad function names the adjoint of a parameter, also of a leaf of a struct: `adjoint[b].mass`."""
    whole, dot, leaf = name.partition(".")
    return f"adjoint[{whole}]{dot}{leaf}"
