"""Jacobians by central differences, in float64, extrapolated: many columns at once, as lanes.

Knows how to run a subject on moved inputs; must not know derivatives.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelab.autodiff.jacobian import Jacobian, Jacobians, Selection
from kernelab.autodiff.lanes import Batch
from kernelab.autodiff.levels import BASE
from kernelab.autodiff.progress import steps
from kernelab.autodiff.subject import Subject, Variable
from kernelab.autodiff.transforms import chunks
from kernelab.autodiff.trees import scalars
from kernelab.autodiff.wide import Wide

STEP = 1e-3
"""The larger step of the differences, relative to the size of the input element where that exceeds 1."""

SHIFTS = (1.0, -1.0, 0.5, -0.5)
"""Where a difference looks, in steps."""

Floats = np.ndarray[Any, np.dtype[np.float64]]


def differences(
    subject: Subject,
    selection: Selection,
    eps: float | None = None,
    scale: float = 1.0,
    only: tuple[int, Sequence[int]] | None = None,
    labels: Sequence[str] = (),
) -> Jacobians:
    """The Jacobians at the step `eps`, or `scale` times the default; `only` some columns of one input."""
    made: dict[tuple[int, int], Floats] = {}
    targets: Sequence[Variable] = ()
    for i, source in enumerate(subject.sources):
        if only is not None and only[0] != i:
            continue
        wanted = np.arange(selection.columns(source)) if only is None else np.asarray(only[1])
        parts = chunks(len(wanted), None, 16 * _bytes(subject))
        for chunk in steps(f"differences of {subject.name}", parts):
            some = wanted[chunk.start : chunk.stop]
            targets, found = _slopes(subject, i, some, eps, scale, labels)
            for j, target in enumerate(targets):
                values = made.setdefault((i, j), np.full((target.count, source.count), np.nan))
                values[:, some] = found[j].T
    pairs = [pair for pair in selection.pairs(subject.sources, targets) if pair in made]
    return Jacobians(
        subject.name,
        [
            Jacobian(made[i, j], s, targets[j], targets[j].count, selection.columns(s))
            for i, j in pairs
            for s in [subject.sources[i]]
        ],
    )


def _bytes(subject: Subject) -> int:
    return sum(v.elements.allocation.nbytes for v in (*subject.sources, *(subject.outputs or ())))


def _slopes(
    subject: Subject,
    i: int,
    wanted: np.ndarray[Any, Any],
    eps: float | None,
    scale: float,
    labels: Sequence[str],
) -> tuple[Sequence[Variable], list[Floats]]:
    """The derivatives of all outputs along some elements of an input, by Richardson extrapolation."""
    steps = _steps(subject, i, eps, scale)[wanted]
    targets, looked = _moved(subject, i, np.arange(len(wanted)), wanted, steps, labels)
    with np.errstate(invalid="ignore", over="ignore"):
        return targets, [extrapolated(y, steps[:, None]) for y in looked]


def differences_by_color(
    subject: Subject,
    i: int,
    j: int,
    colors: np.ndarray[Any, Any],
    places: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]],
    eps: float | None,
    scale: float,
    labels: Sequence[str],
) -> Floats:
    """The entries of one Jacobian at some rows and columns, where columns of one colour share no row."""
    (row, column), steps = places, _steps(subject, i, eps, scale)
    _, looked = _moved(subject, i, colors, np.arange(len(colors)), steps, labels)
    with np.errstate(invalid="ignore", over="ignore"):
        return extrapolated(looked[j][:, colors[column], row], steps[column])


def along(
    subject: Subject, i: int, v: Floats, eps: float | None, scale: float, labels: Sequence[str]
) -> tuple[Floats, list[Floats], list[Floats]]:
    """The steps for one input, all outputs, and their derivatives along each row of `v` times the steps."""
    steps = _steps(subject, i, eps, scale)
    _, looked = _shifted(subject, i, v * steps, labels)
    with np.errstate(invalid="ignore", over="ignore"):
        return steps, [y[0] for y in looked], [extrapolated(y, np.ones(1)) for y in looked]


def _steps(subject: Subject, i: int, eps: float | None, scale: float) -> Floats:
    """The larger step for each number of an input."""
    values = scalars(subject.sources[i].elements).host().astype(np.float64).reshape(-1)
    return np.full(len(values), eps) if eps is not None else scale * STEP * np.maximum(1.0, np.abs(values))


def _moved(
    subject: Subject,
    i: int,
    lane: np.ndarray[Any, Any],
    wanted: np.ndarray[Any, Any],
    steps: Floats,
    labels: Sequence[str],
) -> tuple[Sequence[Variable], list[Floats]]:
    """All outputs for each shift and lane, where some numbers of an input are moved, each in its lane."""
    moves = np.zeros((int(lane.max(initial=0)) + 1, subject.sources[i].count))
    moves[lane, wanted] = steps
    return _shifted(subject, i, moves, labels)


def _shifted(
    subject: Subject, i: int, moves: Floats, labels: Sequence[str]
) -> tuple[Sequence[Variable], list[Floats]]:
    """All outputs for each shift and lane, where an input is moved by a row of `moves` in each lane."""
    lanes = len(moves)
    started, batch = subject.start(), Batch(BASE, len(SHIFTS) * lanes)
    level = Wide(batch)
    start = scalars(started.inputs[i]).host().astype(np.float64).reshape(-1)
    with np.errstate(invalid="ignore", over="ignore"):
        values = start + np.multiply.outer(np.asarray(SHIFTS), moves)
    moved = level.wide(started.inputs[i])
    with batch.active():
        batch.move(moved, batch.seeds(moved, values.reshape(batch.lanes, -1)))
        found = started.go(level)
    looked = [scalars(batch.view(level.wide(out))).host().reshape(len(SHIFTS), lanes, -1) for out in found]
    return subject.targets(found, labels), looked


def extrapolated(y: Floats, steps: Floats) -> Floats:
    """Central differences, extrapolated by Richardson: `y` holds values at +step, -step and half of these."""
    coarse, fine = (y[0] - y[1]) / (2.0 * steps), (y[2] - y[3]) / steps
    return np.asarray((4.0 * fine - coarse) / 3.0)
