"""The Taylor test: the order of the remainder, and the best step for differences.

Along one random direction, for steps h from large to small, in float64,

    |f(x + h v) - f(x)|              falls as h
    |f(x + h v) - f(x) - h (J v)|    falls as h^2 if J v is the derivative, else as h
    |(f(x + h v) - f(x - h v)) / 2h - J v|    falls as h^2, until rounding makes it grow as 1/h

where f is the sum of all outputs with random weights and J v comes from the adjoint.  The second quantity is
the larger one of h and -h: its terms of two orders can cancel at one of them.  Steps that leave the domain of
f are left out.  Must not know views.
"""

from collections.abc import Sequence

import numpy as np

from kernelab.autodiff.checks.screening import are_alike, directions, faults, require_chain, weights_of
from kernelab.autodiff.checks.tolerance import require_entries
from kernelab.autodiff.jacobians.differences import (
    STEADY,
    UNSTEADY,
    Floats,
    numbers,
    shifted,
    told_apart,
    unit_of,
)
from kernelab.autodiff.jacobians.jacobian import Selection, Trace
from kernelab.autodiff.jacobians.subject import Subject, outside_transforms
from kernelab.autodiff.transforms.base_level import BASE
from kernelab.autodiff.transforms.wide_level import Wide
from kernelab.data_classes import dataclass, replace
from kernelab.guidance.missing_names import ReportHints
from kernelab.hooks import ShownOnce

STEPS = 10.0 ** np.arange(-1.0, -8.5, -0.5)
"""The steps, relative to the size of each input element where that exceeds 1, or all are tiny."""

ROUNDING = 1e3 * float(np.finfo(np.float64).eps)
"""Below this share of the terms of f, a remainder is rounding."""

NOISE = 10.0
"""By how much a remainder exceeds those of the last steps where these may be rounding within the function."""

HIDDEN = 1e-3
"""The share of the change of the results that rounding may be where remainders below it pass."""

TOO_STEADY = "the results change too little beside their size to tell: use gradcheck"

LEAST_SLOPE = 1.8

LEAST_STEPS, LEAST_REMAINDERS = 3, 2
"""How many steps must stay inside the domain, and how many remainders above rounding tell a slope."""


@dataclass(frozen=True, slots=True, repr=False)
class TaylorReport(ReportHints, ShownOnce):
    """The result for each of `steps`; true if the adjoint is the derivative along the direction.

    It is false where `is_finite` is: the derivative, or the function at most steps, is infinite or NaN.

    `changes`, `remainders` and `errors` are the three quantities in the order of the module's formulas.
    `slope` is how fast the remainder falls, 2 for a right gradient and 1 for a wrong one; NaN where it is
    rounding from the first step on, as it is for a function that is linear.  `fault` says what is wrong that
    remainders need not show: with a rule that a user wrote, or with the function itself.
    """

    function: str
    steps: Floats
    changes: Floats
    remainders: Floats
    errors: Floats
    slope: float
    derivative: float
    shown_in: int | None = None
    fault: str = ""

    def __bool__(self) -> bool:
        return self.is_finite and not self.fault and bool(np.isnan(self.slope) or self.slope >= LEAST_SLOPE)

    def __repr__(self) -> str:
        return f"<Taylor test of {self.function}: slope {self.slope:.2f}>"

    @property
    def best_step(self) -> float:
        """The step at which central differences are nearest to the adjoint."""
        return float(self.steps[int(np.argmin(np.where(np.isfinite(self.errors), self.errors, np.inf)))])

    @property
    def is_finite(self) -> bool:
        """Whether the derivative is a finite number, and the function is at enough steps to judge it."""
        return bool(np.isfinite(self.derivative)) and int(np.isfinite(self.remainders).sum()) >= LEAST_STEPS


BY_HOST = "{} follows its inputs through values that the host computes: compute them with kernels"

Vectors = list[Floats]
"""A vector for each input, or each output."""


def taylor(subject: Subject) -> TaylorReport:
    """The Taylor test of a subject, all inputs moved together.

    Where outputs, or the shares of inputs in them, are of very different sizes, they are rescaled and tested
    again: a wrong entry would not show beside others in larger units.
    """
    rng = np.random.default_rng(len(subject.sources))
    with outside_transforms("taylor_test"):
        adjoint = Trace(subject, Wide(BASE))
        require_entries(subject.name, sum(target.count for target in adjoint.targets), "taylor")
        u = [directions(rng, t.count, t.count)[0] for t in adjoint.targets]
        starts = [numbers(source.elements) for source in subject.sources]
        v = [directions(rng, len(x), len(x))[0] * np.maximum(unit_of(x), np.abs(x)) for x in starts]
        report, sizes = _along(adjoint, u, v)
        scaled = _rescaled(adjoint, u, v, sizes) if report else None
        if scaled is not None:
            again, _ = _along(adjoint, *scaled, NOISE)
            report = report if again else again
        by_host, unsteady = told_apart(subject)
        reasons = [BY_HOST.format(subject.name)] if by_host else []
        reasons += [f"{UNSTEADY.format(subject.name)}: {STEADY}"] if unsteady else []
        reasons += [fault.explanation for fault in faults(adjoint, Selection()).values()]
        if not reasons:
            require_chain(subject, adjoint, "taylor")
    return replace(report, fault=reasons[0]) if reasons else report


def _along(adjoint: Trace, u: Vectors, v: Vectors, noise: float = 0.0) -> tuple[TaylorReport, Vectors]:
    """The test of the outputs weighted by `u` along `v`, and how far each number of the outputs moves.

    Remainders less than `noise` times those of the last steps count as rounding, too.
    """
    subject, shares = adjoint.subject, _shares(adjoint, u)
    starts = [numbers(source.elements) for source in subject.sources]
    terms = [share * move for share, move in zip(shares, v, strict=True)]
    derivative = float(sum(map(np.sum, terms)))
    values, size, sizes = _values(subject, v, u)
    ahead, behind = values[: len(STEPS)], values[len(STEPS) :]
    changes = np.abs(ahead)
    back = np.abs(behind + STEPS * derivative)
    remainders = np.maximum(np.abs(ahead - STEPS * derivative), np.where(np.isfinite(back), back, 0.0))
    errors = np.abs((ahead - behind) / (2.0 * STEPS) - derivative)
    inputs = _root_of_squares([share * x for share, x in zip(shares, starts, strict=True)])
    last = remainders[-LEAST_STEPS:]
    floor = noise * float(last.max(initial=0.0, where=np.isfinite(last)))
    rounding = ROUNDING * (size + inputs + STEPS * _root_of_squares(terms))
    slope = _slope(remainders, np.maximum(rounding, floor))
    change = float(changes.max(initial=0.0, where=np.isfinite(changes)))
    is_hidden = not noise and np.isnan(slope) and 0.0 < HIDDEN * change < rounding[0]
    fault = TOO_STEADY if is_hidden else ""
    return TaylorReport(
        subject.name, STEPS, changes, remainders, errors, slope, derivative, None, fault
    ), sizes


def _shares(adjoint: Trace, u: Vectors) -> Vectors:
    """The gradients of the outputs weighted by `u`."""
    seeds = {j: weights[np.newaxis] for j, weights in enumerate(u)}
    return [part[0] for part in adjoint.products_together(seeds)]


def _rescaled(adjoint: Trace, u: Vectors, v: Vectors, sizes: Vectors) -> tuple[Vectors, Vectors] | None:
    """The vectors with larger outputs and shares of inputs weighted less; None where all are alike."""
    weighted = [weights * weights_of(size) for weights, size in zip(u, sizes, strict=True)]
    shares = [np.abs(share * move) for share, move in zip(_shares(adjoint, weighted), v, strict=True)]
    if are_alike(np.concatenate(sizes)) and are_alike(np.concatenate(shares)):
        return None
    largest = max(float(weights_of(share).max(initial=0.0, where=share > 0)) for share in shares) or 1.0
    return weighted, [
        move * np.where(share > 0, weights_of(share) / largest, 1.0)
        for move, share in zip(v, shares, strict=True)
    ]


def _values(subject: Subject, v: Vectors, u: Vectors) -> tuple[Floats, float, Vectors]:
    """How far the weighted sum of the outputs moves at each step and each step back; the size of its terms.

    Also how far each number moves at most.  An output that no step moves has no share in the rest: it may be
    large, and would hide the others.  Roundings are of either sign: they add up as the root of their squares.
    """
    along = {i: move[np.newaxis] for i, move in enumerate(v)}
    _, looked = shifted(subject.start(), along, [0.0, *STEPS, *-STEPS])
    outputs = [y[:, 0] for y in looked]
    moves = [np.where(y == y[0], 0.0, y - y[0])[1:] for y in outputs]
    weighted = [move * weights for move, weights in zip(moves, u, strict=True)]
    terms = [y[0] * weights * move.any(0) for y, move, weights in zip(outputs, moves, u, strict=True)]
    sizes = [np.abs(move).max(axis=0, initial=0.0, where=np.isfinite(move)) for move in moves]
    size = _root_of_squares([each[np.isfinite(each)] for each in terms])
    return np.sum([each.sum(axis=1) for each in weighted], axis=0), size, sizes


def _root_of_squares(parts: Sequence[Floats]) -> float:
    return float(np.hypot.reduce(np.concatenate(parts)))  # squares of large numbers are infinite


def _slope(remainders: Floats, noise: Floats) -> float:
    """The slope where remainders are small but more than rounding, NaN where too few are."""
    finite = np.flatnonzero(np.isfinite(remainders))
    first = int(finite[0]) if len(finite) else len(remainders)
    usable = remainders[first:]
    ends = np.flatnonzero(~(usable > noise[first:]) | ~np.isfinite(usable))
    usable = usable[: int(ends[0])] if len(ends) else usable
    if len(usable) < LEAST_REMAINDERS:
        return float("nan")
    slopes = -np.diff(np.log(usable) / np.log(STEPS[0] / STEPS[1]))
    return float(np.median(slopes[len(slopes) // 2 :]))
