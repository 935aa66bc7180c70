"""Compares each derivative rule that a user wrote, once, with differences of its function.

A kernel of float64 calls the function at random points, a point a thread.  `vjp` and `jvp` differentiate it
as they would any other, so that a grad function and a jvp function are compared with differences where they
will stand; a replay is compared with the results.  A function that takes arrays is called by one thread.  One
that overwrites what it has read needs what only a launch can keep: its grad function is left to `gradcheck`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from weakref import WeakSet

import numpy as np

from kernelab import hooks
from kernelab.autodiff.rule_checks.interpreted import noisy
from kernelab.autodiff.rule_checks.rule_samples import (
    NOISE,
    ROUNDINGS,
    Caller,
    Point,
    calling,
    far_samples,
    is_coarse,
    joined,
    one_by_one,
    samples,
    slopes,
    tried_integers,
    with_results,
)
from kernelab.backend.cpu.lanes import Numpy
from kernelab.data_classes.turns import cached_property
from kernelab.errors import Diagnostic, KernelError, Related, told_apart
from kernelab.lang.build import type_of
from kernelab.lang.ir import Const, Custom, CustomRules, Function, Loop, RuleName, of_kind, walk
from kernelab.lang.types import Array, is_differentiable, shape_of
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.ad.vjp import vjp
from kernelab.passes.common.copying import inline, widen_rules
from kernelab.passes.common.effects import effects

MOST_NAMED = 4
"""From how many cotangents on they are not named."""

RUNS = 6
"""How often a function that takes arrays is compared."""

TOLERANCE = 1e-5
"""Relative to the derivative."""

LOOSE = 3e-2
"""The same for a function that ends a loop where a result is close enough: its slope is no better."""

ROUGH = 1e-3
"""The same for one that has another loop, or is C++, which may compute in floats, or takes their bits."""

FACTORS = (-1.0, 2.0**-20, 2.0**20)
SUMS = (*((factor, 0.0) for factor in FACTORS), (1.0, 1.0))
"""How two cotangents are added up; powers of two do not round."""

LINEAR = 1e-7
"""How far a sum may be off, relative to its largest component."""

_seen: "WeakSet[CustomRules]" = WeakSet()


@hooks.check_rules.provide
def check_rules(function: Function) -> None:
    """Warn, with KernelWarning at its line, of each derivative rule in a program that is wrong."""
    for stmt in of_kind(function.body, Custom):
        if stmt.rules not in _seen:
            _seen.add(stmt.rules)
            for diagnostic in mistakes(stmt.rules):
                if diagnostic.span is not None:
                    diagnostic.warn()


def leave_unchecked(function: Function) -> None:
    """Count the derivative rules in a program as compared."""
    _seen.update(stmt.rules for stmt in of_kind(function.body, Custom))


def mistakes(rules: CustomRules) -> list[Diagnostic]:
    """What is wrong with the rules that claim to be right, at most one mistake for each."""
    kinds = {kind for kind in rules.checked if getattr(rules, kind) is not None}
    if rules.grad is not None and "grad" not in kinds:
        kinds -= {"jvp"}  # the tangent of a surrogate
    if not kinds:
        return []
    check = RuleCheck(rules)
    by_kind = _sampled(check, kinds)
    diagnostics = [by_kind[kind] if kind in by_kind else check.never_compared(kind) for kind in sorted(kinds)]
    return [each for each in diagnostics if each is not None]


def _sampled(check: "RuleCheck", kinds: set[RuleName]) -> dict[RuleName, Diagnostic]:
    """The first mistake in each of some rules at samples, unusual ones where it runs at no usual one."""
    texts = [inline(text) for text in (check.function, *check.rule_of.values())]
    points = samples(check.function, not check.is_rough, tried_integers(texts))
    by_kind = _compared(check, kinds, points, RUNS)
    left = kinds - check.compared
    return by_kind | _compared(check, left, _inside(check), 1) if left else by_kind


@np.errstate(all="ignore")  # samples overflow, and leave the domain
def _compared(
    check: "RuleCheck", kinds: set[RuleName], points: Iterator[Point], most: int
) -> dict[RuleName, Diagnostic]:
    """The first mistake in each of some rules, compared so often with samples."""
    by_kind: dict[RuleName, Diagnostic] = {}
    runs = Counter[RuleName]()
    for each in points:
        for kind in sorted(kinds - by_kind.keys()):
            if runs[kind] == most:
                continue
            try:
                wrong = check.of[kind](each)
            except KernelError:
                # An index or an assertion fails at one of these points; or the kernel has no derivative, an
                # error where the user differentiates it.
                continue
            runs[kind] += kind in check.compared
            if wrong is not None:
                by_kind[kind] = wrong
    return by_kind


def _inside(check: "RuleCheck") -> Iterator[Point]:
    """Points at which a function is defined, where it is not at the usual ones."""
    for points in far_samples(check.function):
        if check.arrays or check.runs(points):
            yield points
            continue
        some = [point for point in one_by_one(points) if check.runs(point)]
        if some:
            yield joined(some)


def mistake_at(rules: CustomRules, points: Sequence[Numpy]) -> Diagnostic | None:
    """What is wrong with a grad function or a replay at some points, even if it does not claim to be right.

    Each of `points` holds the values of one parameter, a point a row; without them, for a function that takes
    arrays, the usual samples are taken.
    """
    check = RuleCheck(rules)
    kinds = check.rule_of.keys() - {"jvp"}
    if not points:
        by_kind = _sampled(check, kinds)
    else:
        named = {p.hint: x for p, x in zip(rules.function.params, points, strict=True)}
        by_kind = _compared(check, kinds, iter([named]), 1)
    return by_kind.get("grad", by_kind.get("replay"))


# ------------------------------------------------------------------------------------------ comparisons


class RuleCheck:
    """The programs that compare the rules of a function; the weights of what it changes are random.

    The weight is 1 where there is one result only, a number.
    """

    def __init__(self, rules: CustomRules) -> None:
        self.rules, self.wide = rules, widen_rules(rules)
        self.function = self.wide.function
        kinds: Sequence[RuleName] = ("grad", "jvp", "replay")
        written: dict[RuleName, Function | None] = {kind: getattr(rules, kind) for kind in kinds}
        self.rule_of = {kind: rule for kind, rule in written.items() if rule is not None}
        self.of: Mapping[RuleName, Callable[[Point], Diagnostic | None]] = {
            "grad": self.grad,
            "replay": self.replay,
            "jvp": self.jvp,
        }
        self.kernel = calling(replace(self.function, custom=replace(self.wide, replay=None)))
        self.primal = Caller(self.kernel)
        self.arrays = [param.hint for param in self.function.params if isinstance(param.type, Array)]
        self.floats = [param.hint for param in self.function.params if is_differentiable(param.type)]
        self.active = [param.hint for param in self.kernel.params if is_differentiable(param.type)]
        flat = inline(self.kernel)
        self.changed = [var.hint for var in effects(flat).changed if var.hint in self.active]
        loops = [stmt for stmt in walk(flat.body) if isinstance(stmt, Loop)]
        self.is_rough = bool(loops) or any(map(is_coarse, walk(flat.body)))
        ends_early = any(loop.stop is not None for loop in loops)
        self.tolerance = LOOSE if ends_early else ROUGH if self.is_rough else TOLERANCE
        self.compared: set[RuleName] = set()
        results = [type_of(atom) for atom in self.function.body.yields]
        self.is_number = not self.arrays and [shape_of(type) for type in results] == [()]
        self.rng = np.random.default_rng(1)
        self.endless = np.zeros(1, np.bool_)

    @cached_property
    def adjoint(self) -> tuple[Caller, list[str]] | None:
        """The adjoint and the names of the adjoints there; None for what a launch would have to keep."""
        program = vjp(self.kernel, self.active)
        bars = [bar.hint for bar in program.adjoint.params[len(self.kernel.params) :]]
        return None if program.residuals else (Caller(program.adjoint), bars)

    @cached_property
    def noisy(self) -> Caller:
        return Caller(self.kernel, is_noisy=True)

    @cached_property
    def tangent(self) -> Caller:
        return Caller(jvp(self.kernel, self.active))

    @cached_property
    def replayed(self) -> Function:
        assert self.wide.replay is not None
        return calling(self.wide.replay)

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
            wrong = self.wrong("grad", points, weights, name, direction, claimed)
            if wrong is not None:
                along = adjoint_of(name) + " along a direction" * (not is_plain)
                at, _, slope = wrong
                return self.never(name, at, slope, points) or self.told("grad", along, *wrong, points)
        return self.not_linear(points, weights, adjoints)

    def jvp(self, points: Point) -> Diagnostic | None:
        """What is wrong with the jvp function at some points."""
        rule, weights = self.rule_of["jvp"], self.started(points)
        for k, name in enumerate(self.floats):
            direction, dot = self.drawn(points[name]), rule.params[len(points) + k].hint
            claimed = self.pushed(points, weights, name, direction)
            wrong = self.wrong("jvp", points, weights, name, direction, claimed)
            if wrong is not None:
                is_plain = self.is_number and direction.ndim == 1
                along = f"{dot} = {shown(direction[wrong[0]])}" if is_plain else f"{dot} along a direction"
                return self.told("jvp", along, *wrong, points)
            for factor in FACTORS:
                scaled = self.pushed(points, weights, name, factor * direction)
                if self.differs_from(factor * claimed, 0.0, scaled):
                    return self.no_factor("jvp", f"what {rule.name} returns", [dot])
        return None

    def replay(self, points: Point) -> Diagnostic | None:
        """What is wrong with the replay at some points; it finds the arrays as the function has left them."""
        self.started(points)
        left = self.run(self.primal, self.arguments(points))
        parameters = zip(self.replayed.params, points, strict=False)
        named = [(param.hint, left[name]) for param, name in parameters]
        again = with_results(self.replayed, named, self.threads)
        self.run(Caller(self.replayed), again)
        for own, other in zip(
            self.kernel.params[len(points) :], self.replayed.params[len(points) :], strict=True
        ):
            result, value = left[own.hint], again[other.hint]
            allowed = self.tolerance * np.abs(result) + ROUNDINGS * self.terms[own.hint]
            off = np.abs(np.subtract(value, result, dtype=np.float64))
            wrong = np.isfinite(result) & ~(off <= allowed)
            usable = ~self.endless.reshape(-1, *(1,) * (result.ndim - 1))
            self.note("replay", usable & np.isfinite(result))
            wrong &= usable
            if wrong.any():
                at = int(np.argwhere(wrong)[0][0])
                return self.differs(shown(value[at]), shown(result[at]), at, points)
        return None

    # ---- values and derivatives

    def started(self, points: Point) -> Point:
        """The weights for a comparison at some points."""
        self.threads = 1 if self.arrays else len(next(iter(points.values()), (0,)))
        self.endless = np.zeros(self.threads, np.bool_)
        left = self.run(self.primal, self.arguments(points))
        self.terms = self.terms_of(points, left)
        if self.is_number:
            return {name: np.ones(self.threads) for name in self.changed}
        return {name: self.drawn(left[name]) for name in self.changed}

    def drawn(self, like: Numpy) -> Numpy:
        return np.asarray(self.rng.normal(size=like.shape))

    def arguments(self, points: Point) -> dict[str, Numpy]:
        return with_results(self.kernel, list(points.items()), self.threads)

    def run(self, program: Caller, arguments: dict[str, Numpy]) -> dict[str, Numpy]:
        if not self.endless.all():
            self.endless |= program.run(self.threads, arguments)
        return arguments

    def inner(self, a: Numpy, b: Numpy, threads: int = 0) -> Numpy:
        products: Numpy = np.sum((a * b).reshape(threads or self.threads, -1), axis=1)
        return products

    def weighted(self, values: Point, weights: Point, suffix: str = "", threads: int = 0) -> Numpy:
        """The sum over all that the function changes and returns, a point a row."""
        parts = [self.inner(weight, values[name + suffix], threads) for name, weight in weights.items()]
        return np.sum(parts, axis=0) if parts else np.zeros(threads or self.threads)

    def runs(self, points: Point) -> bool:
        """Whether no index and no assertion of the function fails at some points."""
        try:
            self.started(points)
        except KernelError:
            return False
        return True

    def moved(self, points: Point, weights: Point, name: str, direction: Numpy) -> Callable[[Numpy], Numpy]:
        """The weighted sum of what the function changes and returns, as it moves along a direction."""

        def moved_by(shift: float) -> Numpy:
            shifted = {**points, name: points[name] + shift * direction}
            try:
                return self.weighted(self.run(self.primal, self.arguments(shifted)), weights)
            except KernelError:  # a step out of the domain
                return np.full(self.threads, np.nan)

        def look(shifts: Numpy) -> Numpy:
            many, threads = len(shifts), self.threads * len(shifts)
            repeated = {other: np.concatenate([values] * many) for other, values in points.items()}
            repeated[name] = repeated[name] + np.concatenate([shift * direction for shift in shifts])
            arguments = with_results(self.kernel, list(repeated.items()), threads)
            try:
                self.endless |= self.primal.run(threads, arguments).reshape(many, -1).any(axis=0)
            except KernelError:
                return np.stack([moved_by(shift) for shift in shifts])
            tiled = {each: np.concatenate([weight] * many) for each, weight in weights.items()}
            return self.weighted(arguments, tiled, threads=threads).reshape(many, -1)

        return (lambda shifts: np.stack([moved_by(s) for s in shifts])) if self.arrays else look

    def terms_of(self, points: Point, left: Point) -> Point:
        """The size of the terms that each value of what the function changes and returns is a sum of."""
        near = {
            name: noisy(values, NOISE, self.rng) if name in self.floats else values
            for name, values in points.items()
        }
        results = self.run(self.noisy, self.arguments(near))
        moves = {name: np.subtract(results[name], left[name], dtype=np.float64) for name in left}
        return {name: np.abs(moves[name]) / NOISE + np.abs(left[name]) for name in left}

    def size_of_terms(self, weights: Point) -> Numpy:
        """The same of the weighted sum, at the points where a comparison has started."""
        return self.weighted(self.terms, {name: np.abs(weight) for name, weight in weights.items()})

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
        self, kind: RuleName, points: Point, weights: Point, name: str, direction: Numpy, claimed: Numpy
    ) -> tuple[int, float, float] | None:
        """The first point where a derivative along a direction is not that of differences, and both."""
        look = self.moved(points, weights, name, direction)
        slope = slopes(look, self.size_of_terms(weights), self.tolerance, self.is_rough)
        allowed = self.tolerance * np.maximum(np.abs(slope.values), np.abs(claimed)) + slope.errors
        is_right = np.isfinite(claimed) & (np.abs(slope.values - claimed) <= allowed)
        usable = slope.known & ~self.endless
        self.note(kind, usable)
        wrong = usable & ~is_right
        at = int(np.argmax(wrong))
        return (at, float(claimed[at]), float(slope.values[at])) if wrong.any() else None

    def note(self, kind: RuleName, usable: Numpy) -> None:
        """Remember that a rule has been compared, if it was at any point."""
        if usable.any():
            self.compared.add(kind)

    def not_linear(self, points: Point, weights: Point, adjoints: Point) -> Diagnostic | None:
        """The diagnostic for adjoints that are not linear in their cotangents, which were about 1 so far."""
        second = {name: self.drawn(weight) for name, weight in weights.items()}
        beside = self.adjoints(points, second)
        for a, b in SUMS[: len(FACTORS) if self.is_number else None]:
            mixed = {name: a * weight + b * second[name] for name, weight in weights.items()}
            combined = self.adjoints(points, mixed)
            for name in self.floats:
                if self.differs_from(a * adjoints[name], b * beside[name], combined[name]):
                    rule = self.rule_of["grad"]
                    cotangents = [param.hint for param in rule.params[len(points) :]]
                    return self.no_factor("grad", f"{adjoint_of(name)} of {rule.name}", cotangents)
        return None

    def differs_from(self, first: Numpy, second: Numpy | float, combined: Numpy) -> bool:
        """Whether a derivative is not the sum of two, in any thread."""
        size = (np.abs(first) + np.abs(second)).reshape(self.threads, -1)
        off = np.abs(first + second - combined).reshape(size.shape)
        wrong = np.isfinite(size) & ~(off <= LINEAR * size.max(axis=1, keepdims=True, initial=0.0))
        return bool(wrong[~self.endless].any())

    # ---- messages

    def no_factor(self, kind: RuleName, what: str, factors: Sequence[str]) -> Diagnostic:
        """The diagnostic for a rule that is not linear."""
        names = " and ".join(factors) if len(factors) < MOST_NAMED else "what it is given"
        hint = f"multiply what is added by {names}, or write check=False"
        return self.diagnostic(kind, f"{what} is not in proportion to {names}", hint)

    def never_compared(self, kind: RuleName) -> Diagnostic | None:
        """The diagnostic for a rule that was compared at no point, unless no rule can be compared."""
        if kind in self.compared or not self.can_compare(kind):
            return None
        name = self.rules.function.name
        message = f"{self.rule_of[kind].name} was not compared with {name}: "
        message += f"no arguments were found at which {name} "
        message += "runs, ends, and has a derivative" if kind != "replay" else "runs, ends, and is a number"
        hint = "check it at your own arguments, with kl.autograd.gradcheck, and write check=False"
        return self.diagnostic(kind, message, hint)

    def can_compare(self, kind: RuleName) -> bool:
        """Whether there is something to compare; a kernel without adjoint or tangent says so by itself."""
        try:
            match kind:
                case "grad":
                    return bool(self.floats) and self.adjoint is not None
                case "jvp":
                    return bool(self.floats) and self.tangent is not None
                case "replay":
                    return len(self.kernel.params) > len(self.function.params)
        except KernelError:
            return False

    def told(
        self, kind: RuleName, along: str, at: int, claimed: float, slope: float, points: Point
    ) -> Diagnostic:
        name, where = self.rules.function.name, self.where(points, at)
        given, wanted = told_apart(claimed, slope)
        gives = f"{self.rule_of[kind].name} gives {given} for {along}"
        message = f"{gives} where differences of {name} give {wanted}{where}"
        hint = "correct the formula, or write check=False if it is meant to differ"
        return self.diagnostic(kind, message, hint)

    def never(self, name: str, at: int, slope: float, points: Point) -> Diagnostic | None:
        """The diagnostic for an argument that the grad function leaves out, if it does."""
        wide, function = self.wide.grad, self.rules.function
        assert wide is not None
        numbers = [hint for hint in self.floats if hint not in self.arrays]
        share = dict(zip(numbers, inline(wide).body.yields, strict=True)).get(name)
        if not isinstance(share, Const) or share.value:
            return None
        bar, depends = adjoint_of(name), f"{function.name} depends on {name}"
        differences = f"differences give {slope:.4g}{self.where(points, at)}"
        message = f"{self.rule_of['grad'].name} never adds to {bar}, though {depends}: {differences}"
        hint = f"add its share: {bar} += ..., or write check=False if it is meant to be left out"
        return self.diagnostic("grad", message, hint)

    def differs(self, value: str, result: str, at: int, points: Point) -> Diagnostic:
        name, where = self.rules.function.name, self.where(points, at)
        message = f"{self.rule_of['replay'].name} returns {value} where {name} returns {result}{where}"
        hint = f"return what {name} returns, or write check=False if it is meant to differ"
        return self.diagnostic("replay", message, hint)

    def where(self, points: Point, at: int) -> str:
        numbers = (item for item in points.items() if item[0] not in self.arrays)
        arguments = ", ".join(f"{name} = {shown(values[at])}" for name, values in numbers)
        return f", at {arguments}" if arguments else ""

    def diagnostic(self, kind: RuleName, message: str, hint: str) -> Diagnostic:
        function, span = self.rules.function, self.rule_of[kind].span
        related = (Related(f"{function.name} is defined here", function.span),)
        return Diagnostic(message, span, "derivative", "warning", hint=hint, related=related)


def shown(value: Numpy) -> str:
    """A number, or the numbers of a vector or a matrix, as a message gives them."""
    return f"{value:.4g}" if value.ndim == 0 else np.array2string(value, precision=4)


def adjoint_of(name: str) -> str:
    """How a grad function names the adjoint of a parameter, also of a leaf of a struct: `adjoint[b].mass`."""
    whole, dot, leaf = name.partition(".")
    return f"adjoint[{whole}]{dot}{leaf}"
