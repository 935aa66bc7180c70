"""Slopes of a function at many points at once, by central differences over ever smaller steps.

At each point the step is taken at which the slope changes least, relative to itself, from one step to the
next: over wide steps the function bends, over narrow ones its rounding shows.  How much it changes there is
the error that is left.
Where the slopes to the two sides stay apart however small the step is, there is a kink, and no slope.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from kernelab.data_classes import dataclass

Numpy = np.ndarray[Any, Any]

STEPS = 10.0 ** -np.arange(2, 13)
SHIFTS = np.concatenate([[0.0], STEPS, -STEPS])
"""The steps at which a function is evaluated; steep ones bend over all but the last."""

WIDE = 3
"""How many of the steps are wide enough for a function that moves in small jumps, such as a bisection."""

FALLS = 30.0
"""By how much the error falls at least with a step a tenth as wide, where a function is smooth."""

LEVEL = 0.3
"""From which share of the difference between the two sides that is left with such a step there is a kink."""

FOUND = 1e4
"""A slope is zero below so many roundings over the widest step."""

SURE = 0.1
"""How far slopes over neighbouring steps may be apart, relative to the slope that they are taken for."""

ROUNDINGS = 8 * float(np.finfo(np.float64).eps)
"""By how much the values of a function are off, relative to the terms that they are sums of."""

SMALLEST = 1e-300
"""What may be lost where a value underflows."""


@dataclass(frozen=True, slots=True)
class Slopes:
    """A slope at each point, how far it may be off, and where the function has one that could be found."""

    values: Numpy
    errors: Numpy
    known: Numpy


def slopes(look: Callable[[Numpy], Numpy], terms: Numpy, tolerance: float, is_rough: bool) -> Slopes:
    """The slopes along a direction; `look` gives the values at each of some shifts, a point a column.

    `terms` is the size of what the values are sums of.  A function that `is_rough` may move in small jumps:
    where the slope does not converge as that of a smooth one, it may be off by what wider steps give.
    """
    values = look(SHIFTS)
    with np.errstate(all="ignore"):
        here, ahead, behind = values[0], values[1 : 1 + len(STEPS)], values[1 + len(STEPS) :]
        steps = STEPS[:, np.newaxis]
        noise = (ROUNDINGS * np.where(np.isfinite(terms), terms, 0.0) + SMALLEST) / steps
        central = (ahead - behind) / (2.0 * steps)
        apart = np.abs(np.diff(central, axis=0)) + noise[1:]
        apart = np.where(np.isfinite(apart), apart, np.inf)
        least = FOUND * noise[0]
        sizes = np.maximum(np.maximum(np.abs(central[1:]), np.abs(central[:-1])), least)
        best = np.argmin(np.where(apart < np.inf, apart / sizes, np.inf), axis=0)[np.newaxis]
        slope, error = _at(central, best + 1), 2.0 * _at(apart, best)
        bends = np.abs(ahead - 2.0 * here + behind) / steps
        left = LEVEL * _at(bends, best) + tolerance * np.abs(slope) + 4.0 * _at(noise, best + 1)
        has_kink = _at(bends, best + 1) > left
        if is_rough:
            jumps = 2.0 * np.nanmax(np.abs(slope - central[:WIDE]), axis=0, initial=0.0)
            error = np.where(_converges(apart, best), error, np.maximum(error, jumps))
        size = np.maximum(np.abs(slope), least)
        beside = np.where(best < len(apart) - 1, best + 1, best - 1)
        is_found = (error <= SURE * size) & (_at(apart, beside) <= SURE * size + 4.0 * _at(noise, beside + 1))
        is_found |= is_rough  # the error says how far it is found
    return Slopes(slope, error, np.isfinite(slope) & np.isfinite(error) & is_found & ~has_kink)


def _converges(apart: Numpy, best: Numpy) -> Numpy:
    """Where the error falls as that of a smooth function does, twice."""
    first, second, third = (_at(apart, np.maximum(best - k, 0)) for k in (2, 1, 0))
    return np.asarray((best[0] >= 2) & (second <= first / FALLS) & (third <= second / FALLS))


def _at(values: Numpy, rows: Numpy) -> Numpy:
    return np.asarray(np.take_along_axis(values, rows, axis=0)[0])
