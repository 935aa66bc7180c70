"""The tolerances of a gradient check: how far an entry may be from differences, and from float64.

Knows pairs of matrices; must not know where these come from.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from kernelab.autodiff.checks.witnesses import DOUBLE, SCALES, Estimate, Pair
from kernelab.autodiff.jacobians.differences import Floats
from kernelab.data_classes import dataclass
from kernelab.errors import GradientError, KernelValueError
from kernelab.runtime.context.recorder import refusal

RELATIVE = 1e-3
"""The default tolerance of an adjoint in fewer digits than float64, relative to the entry of the Jacobian."""

EXACT = 1e-5
"""The same of the adjoint in float64."""

UNRESOLVED = 1e-9
"""What differences of an entry may be off besides, relative to the entries of its row and column."""

NOISE = 1e-5
"""What an entry in float32 may be off besides, relative to the largest entry of its Jacobian."""

ROUNDING = 16
"""By how many units in the last place of its terms a sum may be off."""

SHRINKS = 30.0
"""By how much the error falls at least with a step a hundred times smaller, if differences approach it."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The tolerance of an entry; with `atol` or `rtol` it is ``|ad - fd| <= atol + rtol |fd|``."""

    eps: float | None = None
    atol: float | None = None
    rtol: float | None = None

    def __post_init__(self) -> None:
        if self.eps is not None:
            require_step(self.eps)
        for name, value in (("atol", self.atol), ("rtol", self.rtol)):
            if value is not None and not (_is_number(value) and value >= 0):
                message = f"{name}={value!r} is not a tolerance"
                raise refusal(KernelValueError, message, "gradcheck", "pass 0 or more, or leave it away")

    def excess(self, pair: Pair) -> Floats:
        """The error of each entry relative to what is allowed: above 1 it fails."""
        adjoint, exact, numeric = pair.adjoint, pair.exact, pair.numeric
        if self.atol is None and self.rtol is None:
            sizes = np.minimum(_sizes(pair, exact), _sizes(pair, numeric))
            by_differences = _ratio(exact, numeric, EXACT * np.abs(numeric) + UNRESOLVED * sizes)
            by_precision = _ratio(adjoint, exact, _rounding(pair, adjoint, exact))
            return np.maximum(np.where(pair.undecided, 0.0, by_differences), by_precision)
        atol = NOISE * min(_largest(adjoint), _largest(numeric)) if self.atol is None else self.atol
        rtol = RELATIVE if self.rtol is None else self.rtol
        return _ratio(adjoint, numeric, atol + rtol * np.abs(numeric))


def errors(adjoint: Floats, numeric: Floats) -> Floats:
    """The absolute errors; an infinite or undefined entry is right only where both say the same."""
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(adjoint - numeric)
    return np.asarray(np.where(adjoint == numeric, 0.0, np.where(np.isfinite(error), error, np.inf)))


def relative(error: float, numeric: float) -> float:
    """An error relative to the difference quotient."""
    scale = abs(numeric)
    return error / scale if 0.0 < scale < np.inf else (np.inf if error > 0 else 0.0)


def settle(
    pair: Pair,
    mask: Any,
    estimates: Sequence[Estimate],
    terms: Floats | float,
    finest: Callable[[Any], Estimate],
) -> None:
    """Decide entries in `mask`, whose first differences disagree, by differences over ever smaller steps.

    The nearest of these is compared.  An entry is excused where they approach the adjoint as the step falls,
    unless there is another slope over steps as tiny as the input, and where at every step it lies within the
    range over which they scatter, up to the rounding of the `terms` that it is a sum of: then both are
    rounding, unless at the `finest` step there is another slope.
    """
    pair.terms = np.where(mask & np.isfinite(terms), terms, 0.0)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = [np.abs(estimate.numeric - pair.exact) for estimate in estimates]
        for estimate, error in zip(estimates, apart, strict=True):
            before = np.abs(pair.numeric - pair.exact)
            before = np.where(np.isnan(before), np.inf, before)
            nearer = mask & (error < before) & (estimate.highest - estimate.lowest <= before)
            pair.numeric = np.where(nearer, estimate.numeric, pair.numeric)
        falling = pairwise(apart[: len(SCALES)])
        approached = np.all([np.isfinite(a) & (b <= a / SHRINKS) for a, b in falling], axis=0)
        for estimate in estimates[len(SCALES) :]:  # steps of the size of a tiny input itself
            approached &= ~estimate.is_slope | _scatters(estimate, pair)
        scattered = mask & np.all([_scatters(estimate, pair) for estimate in estimates], axis=0)
        if scattered.any():
            last = finest(scattered)
            scattered &= ~last.is_slope | _scatters(last, pair)
        pair.undecided |= mask & (approached | scattered)


def _scatters(estimate: Estimate, pair: Pair) -> Any:
    margin = (estimate.highest - estimate.lowest) / 2 + ROUNDING * DOUBLE * pair.terms
    return (estimate.lowest - margin <= pair.exact) & (pair.exact <= estimate.highest + margin)


def _rounding(pair: Pair, adjoint: Floats, exact: Floats) -> Floats:
    """Bound on the adjoint's distance to float64, where `pair.epsilon` is the spacing of floats at 1."""
    eps, largest, terms = pair.epsilon, min(_largest(adjoint), _largest(exact)), pair.terms
    # What is zero in float64, up to rounding, may be so in fewer digits: nothing else is a matter of terms.
    scattered = np.where(np.abs(exact) <= ROUNDING * DOUBLE * terms, ROUNDING * eps * terms, 0.0)
    least = float(np.finfo(np.float32).tiny) if eps > DOUBLE else 0.0
    proportional = max(RELATIVE, 16 * eps) * np.abs(exact)
    return np.asarray(proportional + max(NOISE, 4 * eps) * largest + scattered + least)


def _sizes(pair: Pair, values: Floats) -> Floats:
    """The scale of each entry: its row, its column, and both if rows and columns were rescaled."""
    sizes = np.where(np.isfinite(values), np.abs(values), 0.0)
    rows, columns = pair.rows, pair.columns
    by_row, by_column = _largest_by(rows, sizes), _largest_by(columns, sizes)
    with np.errstate(over="ignore", under="ignore"):
        scaled = sizes / np.where(by_row > 0, by_row, 1.0)[rows]
        both = by_row[rows] * _largest_by(columns, scaled)[columns]
    return np.asarray(np.minimum(np.minimum(by_row[rows], by_column[columns]), both))


def _largest_by(groups: Any, sizes: Floats) -> Floats:
    largest = np.zeros(int(groups.max(initial=-1)) + 1)
    np.maximum.at(largest, groups, sizes)
    return largest


def _ratio(values: Floats, others: Floats, allowed: Floats) -> Floats:
    error = errors(values, others)
    with np.errstate(invalid="ignore", over="ignore"):
        ratio = error / np.maximum(allowed, np.finfo(np.float64).tiny)
    return np.asarray(np.where(np.isfinite(error), ratio, error))


def _largest(values: Floats) -> float:
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def require_entries(name: str, entries: int, code: str) -> None:
    """Raise GradientError where there is nothing to compare: the outputs of a function have no elements."""
    if not entries:
        message = f"0 pairs checked: what {name} returns has no elements"
        raise refusal(GradientError, message, code, "return what it computes, or give the outputs to check")


def require_step(eps: Any) -> None:
    """Raise KernelValueError unless a step of differences is a number above zero."""
    if not (_is_number(eps) and eps > 0):
        message = f"eps={eps!r} is not a step for differences"
        raise refusal(KernelValueError, message, "differences", "pass a small number above 0, such as 1e-4")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and bool(np.isfinite(value))
