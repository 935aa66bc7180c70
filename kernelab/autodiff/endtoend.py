"""A tape checked end to end: one product of its whole adjoint against differences of all its launches.

The sources are moved together along random directions, in float64, and everything that the tape wrote is
looked at along random cotangents; where the products differ, the tape is halved until the first record is
found with which they do.  Must not know reports.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelab.autodiff.differences import SHIFTS, STEP, Floats, extrapolated
from kernelab.autodiff.lanes import Batch
from kernelab.autodiff.levels import BASE, Level
from kernelab.autodiff.order import Reordered, first_difference
from kernelab.autodiff.replay import Line, Run, touched
from kernelab.autodiff.reverse import Bars
from kernelab.autodiff.screening import AGAIN, DIRECTIONS, Compared, directions, same_up_to_rounding
from kernelab.autodiff.trees import scalar_shape, scalars
from kernelab.autodiff.wide import Wide
from kernelab.runtime.strided import array

ROOM = 1 << 28
"""How many bytes a tape may have touched to be run again in many lanes."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Products of so many entries agree; `worst` is how far two of them differ, relative to their terms."""

    entries: int
    products: int
    worst: float
    is_exact: bool


@dataclass(frozen=True, slots=True)
class Spoiled:
    """Record `writer` overwrote elements that the adjoint of record `reader` reads."""

    reader: int
    elements: array
    writer: int


def agreement(line: Line) -> Agreement | None:
    """How the whole tape agrees; None where it does not."""
    count = len(line.records)
    found = _compared(line, count)
    if found is None:
        return None
    entries = _size(line.sources) * _size(line.targets(count))
    adjoint, numeric, scale = found.worst()
    return Agreement(entries, DIRECTIONS**2, abs(adjoint - numeric) / scale if scale else 0.0, line.is_exact)


def first_disagreeing(line: Line) -> int:
    """The first record with which the tape up to there does not agree; of one that does not as a whole."""
    return _first(line, lambda count: _compared(line, count) is None)


def first_racing(line: Line) -> int | None:
    """The first record whose result depends on the order of its threads, None if there is none."""

    def differs(count: int) -> bool:
        level = Reordered(BASE)
        turned = line.run(count, level)
        if not level.found:
            return False
        usual = line.run(count)
        return any(first_difference(usual.of(a), turned.of(a)) for a in line.targets(count))

    return _first(line, differs) if line.meets and differs(len(line.records)) else None


def spoiled(line: Line, writer: int) -> Spoiled | None:
    """What an earlier adjoint reads of what a record overwrites, if the tape does not save that."""
    run, level = line.reversed_run(writer + 1, BASE)
    found = next(((k, elements) for k, elements, by in level.spoiled if by == writer), None)
    if found is None:
        return None
    k, elements = found
    over = (a for a in touched(line.records[k]) if run.of(a).packed == elements.packed)
    return Spoiled(k, next(over, elements), writer)


def _first(line: Line, is_bad: Any) -> int:
    good, bad = 0, len(line.records)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (good, middle) if is_bad(middle) else (middle, bad)
    return bad - 1


def _size(arrays: Sequence[array]) -> int:
    return sum(int(np.prod(scalar_shape(a), dtype=np.int64)) for a in arrays)


def _compared(line: Line, count: int) -> Compared | None:
    """The products up to a record, None if they differ at every step that is tried."""
    targets, rng = line.targets(count), np.random.default_rng(count)
    if not targets:
        return Compared(*(np.zeros((1, 1)),) * 4)
    u = directions(rng, _size(targets), _size(targets))
    v = directions(rng, _size(line.sources), _size(line.sources))
    pulled = _pulled(line, count, targets, u, Wide(BASE))
    if not same_up_to_rounding(_pulled(line, count, targets, u, BASE), pulled):
        return None
    for scale in AGAIN:
        moves, values, slopes = _along(line, count, targets, v, scale)
        found = Compared.of(u, slopes, pulled, moves, values)
        if np.all(found.excess <= 0):
            return found
    return None


def _pulled(line: Line, count: int, targets: Sequence[array], u: Floats, base: Level) -> Floats:
    """``J^T u`` for each row of `u`, in the precision of a level."""
    run, level = line.reversed_run(count, base)
    batch, bars = Batch(base, len(u)), Bars()
    for target, part in zip(targets, _split(u, targets), strict=True):
        bar = bars.of(run.of(target))
        batch.move(bar, batch.seeds(bar, part), add=True)
    level.pull(batch, bars)
    return np.concatenate([_host(batch, bars.of(run.of(s)), base) for s in line.sources], axis=1)


def _host(batch: Batch, bar: array, base: Level) -> Floats:
    view = batch.view(bar)
    if isinstance(base, Wide):
        view = base.wide(view)
    return scalars(view).host().astype(np.float64).reshape(batch.lanes, -1)


def _along(
    line: Line, count: int, targets: Sequence[array], v: Floats, scale: float
) -> tuple[Floats, Floats, Floats]:
    """By how much the sources are moved, the targets, and their derivatives along the moves."""
    start = np.concatenate([scalars(line.start(s)).host().astype(np.float64).ravel() for s in line.sources])
    moves = v * (scale * STEP * np.maximum(1.0, np.abs(start)))
    shifted = np.multiply.outer(np.asarray(SHIFTS), moves).reshape(-1, len(start))
    batch = Batch(BASE, len(shifted))
    level = Wide(batch)

    def move(run: Run) -> None:
        for source, part in zip(line.sources, _split(shifted, line.sources), strict=True):
            moved = level.wide(run.of(source))
            batch.move(moved, batch.seeds(moved, part), add=True)

    run = line.moved_run(count, level, move)
    found = [scalars(batch.view(level.wide(run.of(t)))).host() for t in targets]
    y = np.concatenate([each.reshape(len(SHIFTS), len(v), -1) for each in found], axis=2)
    with np.errstate(invalid="ignore", over="ignore"):
        return moves, y[0, 0], extrapolated(y, np.ones(1))


def _split(rows: Floats, arrays: Sequence[array]) -> list[Floats]:
    ends = np.cumsum([_size([a]) for a in arrays])
    return np.split(rows, ends[:-1], axis=1)
