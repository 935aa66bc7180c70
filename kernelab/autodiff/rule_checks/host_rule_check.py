"""Compares the rule of a Python function, which `custom_vjp` was given, with differences of the function.

That is done at the first adjoints that go through it, at the arguments of that call, in float64 if both run
with that, along random directions of each argument that has a gradient.  What differences cannot tell is
left alone: a kink, a function that gives something else each time, one that fails beside its arguments, a
derivative that is 0.
"""

import inspect
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from functools import cache, cached_property
from typing import Any

import numpy as np

from kernelab import hooks
from kernelab.autodiff.records.adjoint_buffers import plain_copy, scalars
from kernelab.autodiff.transforms.compared import MOST_TRIES, code_of
from kernelab.autodiff.transforms.host_calls import HostCall
from kernelab.autodiff.transforms.trees import argument_name
from kernelab.data_classes import dataclass
from kernelab.errors import Diagnostic, Related, name_of, told_apart
from kernelab.lang.rounding import epsilon
from kernelab.lang.types import HALVES, float64, is_differentiable, scalar_of, with_scalar
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import Place, caller, unrecorded, warn
from kernelab.runtime.host.create import array as make
from kernelab.runtime.host.create import zeros_like

STEPS = (1e-3, 2.5e-4, 6e-5, 1.5e-5)
"""Of differences, relative to the values; two in a row have to agree before a rule is called wrong.

The function may compute in float32, though it takes float64.
"""

OWN_STEPS = (5e-3, 1.2e-3, 3e-4)
"""The same in float32."""

COARSE, ROUGH = 16.0, 0.1
"""By how much a step is larger that shows whether values have any digits, and how far it may be off."""

LOST = 1e-2
"""What share of the terms a slope in float32 has to be: where all digits are lost, it is nearly 0."""

CLOSE, APART = 0.001, 0.005
"""How far two differences may be apart, and how far a derivative has to be to be called wrong."""

OWN_FACTOR = 4.0
"""By how much more they may be in float32."""

ROUNDINGS = 8
"""How many roundings of the results are allowed besides."""

LEAST = 0.03
"""How far a number is moved at least, relative to the largest of its array."""

DRAWN = (16, 1)
"""From how many directions each one is taken along which an argument moves: that whose terms cancel least.

Such directions are alike, so what is wrong with a rule may cancel along all of them: the second is any.
"""

SAME = 1e3
"""How many roundings the adjoints may be apart where a rule gives the same once more."""

LARGE = 1024.0
"""What cotangents are multiplied by: a rule that clips them shows."""

TURNED = -32.0 * LARGE
"""What these are divided by for comparison: a rule that adds to them, or takes their size, shows."""

Floats = np.ndarray[Any, np.dtype[np.float64]]

_Runs = Callable[[float], tuple[Floats, list[Floats]]]
"""The numbers of an argument that has moved by a step, and the results there; each step runs once."""


@hooks.compare_host_rule.provide
def compare(rule_of: tuple[HostCall, Sequence[int]], arguments: Sequence[array]) -> None:
    """Warn, once, where the rule of a call is wrong for one of its active arguments.

    `arguments` are those of the rule, the arrays of floats of the call first.
    """
    call, active = rule_of
    if call.has_stale_derivative():
        return  # that is warned of where it is read
    arrays = arguments[: len(call.places)]
    assert call.compared is not None
    compared, tries = call.compared, call.compared.tried
    pending = [n for n in active if n not in compared.places and tries[n] < MOST_TRIES]
    tries.update(pending)
    faults = _faults(call, arrays, pending)
    compared.places.update(n for n in active if n in faults or tries[n] >= MOST_TRIES)
    results = arguments[len(arrays) : (len(arguments) + len(arrays)) // 2]
    if pending and _runs_otherwise(call, arrays, results):
        call.warn_of_change()
    if compared.known.is_nondeterministic:
        compared.known.latest = ()  # what the function has left is not that of the call
    fault = next(filter(None, faults.values()), None)
    if fault is not None:
        tries.update(dict.fromkeys(range(len(arrays)), MOST_TRIES))
        _warn(call, fault)


def mistake(call: HostCall, arrays: Sequence[array]) -> str | None:
    """What is wrong with the rule of a call at some arguments; None if nothing is, or can be told."""
    return next(filter(None, _faults(call, arrays, range(len(arrays))).values()), None)


def place_of(function: Any) -> Place | None:
    """The line at which a Python function is defined."""
    code = code_of(function)
    return Place(code.co_filename, code.co_firstlineno) if hasattr(code, "co_filename") else None


def _warn(call: HostCall, fault: str) -> None:
    place = place_of(call.back) or place_of(call.func) or caller()
    defined = place_of(call.func)
    related = () if defined is None else (Related(f"{name_of(call.func)} is defined here", defined.span),)
    hint = "correct the formula, or write check=False if it is meant to differ"
    warn(Diagnostic(fault, place.span, "derivative", "warning", hint=hint, related=related), place)


def _faults(call: HostCall, arrays: Sequence[array], pending: Sequence[int]) -> dict[int, str]:
    """By argument what is wrong, "" for what has been compared; nothing for what could not be."""
    faults: dict[int, str] = {}
    pending = [n for n in pending if is_differentiable(arrays[n].dtype)]
    if not pending:
        return faults
    # The user's function may raise anything beside its arguments.
    with unrecorded(), _undisturbed(call.func, call.back), suppress(Exception):
        comparison = _begun(call, arrays)
        with suppress(Exception):
            comparison.find_state()
        for n in pending:
            with suppress(Exception):
                fault = comparison.fault(n)
                if fault is not None:
                    faults[n] = fault
    return faults


def _runs_otherwise(call: HostCall, arrays: Sequence[array], results: Sequence[array]) -> bool:
    """Run the function as before the comparison, so that it leaves outside what it had left there.

    Whether it gives other results than those.
    """
    with unrecorded(), _undisturbed(call.func, call.back), suppress(Exception):
        return call.gives_other(results, arrays)
    return False


@contextmanager
def _undisturbed(*functions: Any) -> Iterator[None]:
    """A context in which functions may run once more: unheard, and random numbers go on as they were."""
    generators = [each for function in functions for each in _generators(function)]
    states = [generator.bit_generator.state for generator in generators]
    own, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002 (for those who use it)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            yield
    finally:
        random.setstate(own)
        np.random.set_state(legacy)  # noqa: NPY002
        for generator, state in zip(generators, states, strict=True):
            generator.bit_generator.state = state


def _generators(function: Any) -> Iterator[np.random.Generator]:
    """The generators of random numbers that a function finds outside of itself."""
    try:
        outside = inspect.getclosurevars(inspect.unwrap(function))
    except TypeError:  # not a function of Python
        return
    for value in (*outside.nonlocals.values(), *outside.globals.values()):
        if isinstance(value, np.random.Generator):
            yield value


# ------------------------------------------------------------------------------------------ comparisons


@dataclass(frozen=True, slots=True)
class _Slope:
    """How fast the results, times the cotangents, change: as a rule has it, and as they do.

    `size` is that of the terms of both, `noise` that of rounding; `ahead` and `behind` are the results.
    """

    step: float
    by_rule: float
    by_differences: float
    size: float
    noise: float
    ahead: list[Floats]
    behind: list[Floats]

    @property
    def is_known(self) -> bool:
        """Whether there is anything to compare: a derivative of 0 agrees with many wrong rules."""
        return self.size > self.noise


class _UnknownError(Exception):
    """A comparison tells nothing."""


class _Comparison:
    """A call whose rule is compared, for random cotangents, with differences of some steps.

    `other` has other cotangents for the same runs, for which other errors cancel.
    """

    def __init__(self, call: HostCall, arrays: Sequence[array], steps: Sequence[float]) -> None:
        self.call, self.arrays, self.steps = call, arrays, steps
        self.is_exact, self.rng = steps is STEPS, np.random.default_rng(0)
        self.is_nondeterministic = False
        factor = 1.0 if self.is_exact else OWN_FACTOR
        self.close, self.apart = factor * CLOSE, factor * APART
        self.results = call.run_alone(arrays)
        self.here = [_numbers(result) for result in self.results]
        floats = [one.dtype for one in (*arrays, *self.results) if is_differentiable(one.dtype)]
        self.epsilon = max(epsilon(scalar_of(dtype).dtype) for dtype in floats)
        if self.is_exact and self.epsilon > epsilon(float64.dtype):
            raise _UnknownError
        self._draw()

    def _draw(self) -> None:
        self.seeds = [self._seed(result) for result in self.results]
        self.bars = self._pulled(self.seeds)

    @cached_property
    def other(self) -> "_Comparison":
        """The same call with other cotangents."""
        other = copy(self)
        for name in ("spread", "small_bars"):
            other.__dict__.pop(name, None)
        other._draw()
        return other

    @cached_property
    def spread(self) -> float:
        """How far the results, times the cotangents, are apart where the function runs twice."""
        return abs(self._weighted(self._run(self.arrays), self.here))

    @cached_property
    def small_bars(self) -> list[Floats]:
        """What the rule makes of the cotangents, far smaller and with the other sign."""
        return self._pulled([seed / TURNED for seed in self.seeds])

    def fault(self, n: int) -> str | None:
        """What is wrong with the adjoint of an argument, "" if nothing is; None where that is not known."""
        known: str | None = None
        for drawn in DRAWN:
            fault = self._fault_among(n, drawn)
            if fault:
                return fault
            known = known if fault is None else fault
        return self._not_linear(n) or known

    def _fault_among(self, n: int, drawn: int) -> str | None:
        """The same along one of so many directions."""
        sizes = np.abs(values := _numbers(self.arrays[n]))
        sizes = np.maximum(sizes, LEAST * sizes.max(initial=0.0) or 1.0)
        directions = (sizes * self._drawn(values.shape) for _ in range(drawn))
        along = max(directions, key=lambda along: abs(float((self.bars[n] * along).sum())))
        fault = self._fault_along(n, along)
        is_symmetric = values.ndim > 1 and np.array_equal(values, np.swapaxes(values, -1, -2))
        if fault and is_symmetric and self._reads_half(n, along):
            # Of what stands twice it reads one; the rule may share the derivative between both.
            fault = self._fault_along(n, along + np.swapaxes(along, -1, -2))
        return fault

    def _fault_along(self, n: int, along: Floats) -> str | None:
        runs = cache(lambda step: self._moved(n, step * along))
        fault = self._compared(n, along, runs)
        return fault or self.other._compared(n, along, runs) or fault

    def _compared(self, n: int, along: Floats, runs: _Runs) -> str | None:
        wide: _Slope | None = None
        for step in self.steps:
            close = self._slope(n, step, runs)
            if not np.isfinite([close.by_rule, close.by_differences]).all():
                continue
            if abs(close.by_rule - close.by_differences) <= self.apart * close.size + close.noise:
                return "" if close.is_known else None
            if self.spread / step > self.close * close.size:
                return ""  # it is never known
            if wide is not None and self._are_one(wide, close) and self._has_digits(n, close, runs):
                return self._description(n, close, along)
            wide = close
        return None

    def _slope(self, n: int, step: float, runs: _Runs) -> _Slope:
        (right, ahead), (left, behind) = runs(step), runs(-step)
        terms, by_differences = self.bars[n] * (right - left), self._weighted(ahead, behind)
        size = max(float(np.linalg.norm(terms)), abs(by_differences))
        noise = ROUNDINGS * self.epsilon * float(np.linalg.norm(self._products(ahead)))
        by_rule, by_differences, size, noise = (
            each / (2.0 * step) for each in (float(terms.sum()), by_differences, size, noise)
        )
        return _Slope(step, by_rule, by_differences, size, noise, ahead, behind)

    def _are_one(self, wide: _Slope, close: _Slope) -> bool:
        """Whether differences agree at two steps, and at the smaller one on both sides: there is no kink."""
        allowed = self.close * close.size + close.noise
        is_even = self._bend(close) <= max(allowed, 0.5 * self._bend(wide))
        return abs(close.by_differences - wide.by_differences) <= allowed and is_even

    def _has_digits(self, n: int, slope: _Slope, runs: _Runs) -> bool:
        """Whether values are fine enough for differences: else a far larger step shows another slope."""
        coarse = self._slope(n, COARSE * slope.step, runs).by_differences
        is_seen = self.is_exact or abs(slope.by_differences) > LOST * slope.size
        return is_seen and abs(coarse - slope.by_differences) <= ROUGH * slope.size

    def _bend(self, slope: _Slope) -> float:
        """How much faster the results change on one side than on the other."""
        right, left = self._weighted(slope.ahead, self.here), self._weighted(self.here, slope.behind)
        return abs(right - left) / slope.step

    def _reads_half(self, n: int, along: Floats) -> bool:
        """Whether the function reads one half of a matrix only, as a Cholesky decomposition does."""
        halves = (np.triu(along, 1), np.tril(along, -1))
        return any(not self._weighted(self._moved(n, self.steps[0] * half)[1], self.here) for half in halves)

    def _not_linear(self, n: int) -> str:
        """What is wrong with an adjoint that does not turn round with the cotangents, "" if nothing is."""
        straight = self.bars[n]
        error = np.linalg.norm(straight - TURNED * self.small_bars[n])
        differs = error > self.apart * np.linalg.norm(straight)
        return self._not_in_proportion(n) if differs and not self.is_nondeterministic else ""

    def find_state(self) -> None:
        """Find out whether the rule needs what the function leaves outside, by a run at other arguments.

        A rule that `is_nondeterministic` gives something else in each run.
        """
        self._run([self._beside(elements) for elements in self.arrays])
        if not self._are_bars(self._pulled(self.seeds)):
            self._run(self.arrays)
            self.is_nondeterministic = not self._are_bars(self._pulled(self.seeds))
            if self.call.compared is not None:
                known = self.call.compared.known
                known.is_nondeterministic = self.is_nondeterministic
                known.uses_state = not self.is_nondeterministic

    def _beside(self, elements: array) -> array:
        """An array of about the same numbers."""
        if not is_differentiable(elements.dtype):
            return elements
        numbers = _numbers(elements)
        return self._with(elements, numbers * (1.0 + self.steps[0] * self._drawn(numbers.shape)))

    def _are_bars(self, others: Sequence[Floats]) -> bool:
        """Whether these are the adjoints of before, but for rounding."""
        allowed = SAME * self.epsilon
        pairs = zip(self.bars, others, strict=True)
        return all(
            np.linalg.norm(a - b) <= allowed * np.linalg.norm(a) or np.array_equal(a, b) for a, b in pairs
        )

    # ---- values

    def _drawn(self, shape: Sequence[int]) -> Floats:
        """Random numbers of either sign, none near zero."""
        return self.rng.choice((-1.0, 1.0), shape) * self.rng.uniform(0.25, 1.75, shape)

    def _seed(self, result: array) -> Floats:
        """A random cotangent, 0 for integers."""
        drawn = self._drawn(_numbers(result).shape)
        return LARGE * drawn if is_differentiable(result.dtype) else 0.0 * drawn

    def _pulled(self, seeds: Sequence[Floats]) -> list[Floats]:
        """What the rule makes of cotangents."""
        bars = [zeros_like(result, requires_grad=False) for result in self.results]
        for bar, seed in zip(bars, seeds, strict=True):
            scalars(bar).host()[...] = seed
        pulled = self.call.reversed(len(bars)).run_alone([*self.arrays, *self.results, *bars])
        return [_numbers(bar) for bar in pulled[: len(self.arrays)]]

    def _moved(self, n: int, moves: Floats) -> tuple[Floats, list[Floats]]:
        """The numbers of an argument that moves, and the results there."""
        arrays = list(self.arrays)
        arrays[n] = self._with(arrays[n], _numbers(arrays[n]) + moves)
        return _numbers(arrays[n]), self._run(arrays)

    def _with(self, elements: array, numbers: Floats) -> array:
        """A copy of an array with other numbers."""
        copy = plain_copy(elements)
        scalars(copy).host()[...] = numbers
        return copy

    def _run(self, arrays: Sequence[array]) -> list[Floats]:
        return [_numbers(result) for result in self.call.run_alone(arrays)]

    def _products(self, results: Sequence[Floats]) -> Floats:
        return np.concatenate([(s * y).reshape(-1) for s, y in zip(self.seeds, results, strict=True)])

    def _weighted(self, results: Sequence[Floats], others: Sequence[Floats]) -> float:
        if [a.shape for a in results] != [b.shape for b in others]:
            raise _UnknownError
        return float(self._products([a - b for a, b in zip(results, others, strict=True)]).sum())

    def _description(self, n: int, slope: _Slope, along: Floats) -> str:
        """What is wrong with an adjoint."""
        func, back = name_of(self.call.func), name_of(self.call.back)
        name = argument_name(self.call.func, self.call.places[n])
        small = TURNED / LARGE * float((self.small_bars[n] * along).sum())
        by_rule, by_differences = (each / LARGE for each in (slope.by_rule, slope.by_differences))
        if abs(small - by_rule) > self.apart * max(abs(small), abs(by_rule)):
            return self._not_in_proportion(n)
        given, wanted = told_apart(by_rule, by_differences)
        fault = f"{back} gives {given} for {name} along a direction where differences of {func} give {wanted}"
        for at, line in self.call.overwrites(self.arrays).items():
            where = Place(self.call.func.__code__.co_filename, line)
            fault += f"; {func} changes its copy of {argument_name(self.call.func, at)} in {where}, "
            fault += f"and {back} gets what it was before"
        return fault

    def _not_in_proportion(self, n: int) -> str:
        name = argument_name(self.call.func, self.call.places[n])
        return f"what {name_of(self.call.back)} returns for {name} is not in proportion to its cotangents"


def _begun(call: HostCall, arrays: Sequence[array]) -> _Comparison:
    """A comparison in float64, or where a function does not run with that in float32, but not in halves."""
    with suppress(Exception):
        wide = [
            make(_numbers(one), dtype=with_scalar(one.dtype, float64), device=one.device)
            if is_differentiable(one.dtype)
            else one
            for one in arrays
        ]
        return _Comparison(call, wide, STEPS)
    if any(scalar_of(elements.dtype) in HALVES for elements in arrays):
        raise _UnknownError
    return _Comparison(call, arrays, OWN_STEPS)


def _numbers(elements: array) -> Floats:
    return scalars(elements).seen().astype(np.float64)
