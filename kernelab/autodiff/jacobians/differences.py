"""Jacobians by extrapolated central differences in float64, and outputs that follow inputs through the host.

The differences of many columns are taken at once, as lanes.  Differences take what the host computes for
constants.  So a function is also run twice with its inputs moved a little: as it is, and with the host's
values left as they were; where the outputs then differ, the derivative is not that of the function.  Knows
how to run a subject on moved inputs; must not know derivatives.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kernelab.autodiff.jacobians.jacobian import Jacobian, Jacobians, Selection, Slopes, in_chunks
from kernelab.autodiff.jacobians.subject import Started, Subject, Variable
from kernelab.autodiff.records.adjoint_buffers import scalars
from kernelab.autodiff.transforms.base_level import BASE
from kernelab.autodiff.transforms.batch_level import Batch
from kernelab.autodiff.transforms.wide_level import Wide
from kernelab.data_classes import dataclass
from kernelab.errors import KernelValueError
from kernelab.lang.rounding import alike, epsilon
from kernelab.lang.types import float32, scalar_of
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import refusal

STEP = 1e-3
"""The larger step of the differences, relative to the size of the input element where that exceeds 1."""

TINY = 1e-5
"""If all numbers of an input are below it, steps of the default size lead far away from where that is."""

OWN_SIZE = 0.0
"""The scale of steps that are relative to the input element itself, where all elements are tiny."""

SHIFTS = (1.0, -1.0, 0.5, -0.5)
"""Where a difference looks, in steps."""

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Quotient:
    """Difference quotients, along a last axis: `read` takes values at `shifts`, in steps, and the steps."""

    shifts: tuple[float, ...]
    read: Callable[[Floats, Floats], Floats]


def differences(subject: Subject, selection: Selection, scale: float) -> Jacobians:
    """The Jacobians at `scale` times the default step."""
    matrices: dict[tuple[int, int], Jacobian] = {}
    targets: Sequence[Variable] = ()
    for i, source in enumerate(subject.sources):
        some = np.arange(selection.columns(source))
        targets, slopes = differences_of_columns(subject, i, some, None, scale, SIDED)
        for j in [j for k, j in selection.pairs(subject.sources, targets) if k == i]:
            matrices[i, j] = Jacobian(slopes[j][..., 0].T.copy(), source, targets[j])
    chosen = selection.pairs(subject.sources, targets)
    return Jacobians(subject.name, [matrices[pair] for pair in chosen])


def differences_of_columns(
    subject: Subject, i: int, some: np.ndarray[Any, Any], eps: float | None, scale: float, quotient: Quotient
) -> Slopes:
    """The outputs, and their quotients by some numbers of one input, which come first."""
    every = steps_of(subject.sources[i].elements, eps, scale)

    def look(some: np.ndarray[Any, Any]) -> Slopes:
        steps = every[some]
        outputs, looked = _moved(subject, i, np.arange(len(some)), some, steps, quotient.shifts)
        return subject.targets(outputs), [quotient.read(y, steps[:, None]) for y in looked]

    return in_chunks(subject, some, "differences", 4 * len(quotient.shifts) * subject.nbytes, look)


def differences_by_color(
    subject: Subject,
    i: int,
    j: int,
    colors: np.ndarray[Any, Any],
    places: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]],
    eps: float | None,
    scale: float,
    quotient: Quotient,
) -> Floats:
    """The entries of one Jacobian at some rows and columns, where columns of one colour share no row."""
    (row, column), steps = places, steps_of(subject.sources[i].elements, eps, scale)
    looked = _moved(subject, i, colors, np.arange(len(colors)), steps, quotient.shifts)[1]
    return quotient.read(looked[j][:, colors[column], row], steps[column])


def along(
    subject: Subject, i: int, v: Floats, eps: float | None, scale: float
) -> tuple[Floats, list[Floats], list[Floats]]:
    """The steps for one input, all outputs, and their derivatives along each row of `v` times the steps."""
    steps = steps_of(subject.sources[i].elements, eps, scale)
    looked = shifted(subject.start(), {i: v * steps}, SHIFTS)[1]
    return steps, [y[0] for y in looked], [extrapolated(y, np.ones(1)) for y in looked]


def steps_of(elements: array, eps: float | None, scale: float) -> Floats:
    """The larger step for each number of an input: `eps`, or `scale` times the default, or `OWN_SIZE`."""
    sizes = np.abs(numbers(elements))
    if eps is None and scale == OWN_SIZE:
        return STEP * np.where(sizes > 0.0, sizes, unit_of(sizes))
    steps = scale * STEP * np.maximum(1.0, sizes) if eps is None else np.full(len(sizes), eps)
    lost = np.isfinite(sizes) & (sizes + steps / 2 == sizes)
    if lost.any():
        k = int(np.argmax(lost))
        message = f"a step of {steps[k]:.1g} is lost beside an element of size {sizes[k]:.6g}"
        raise refusal(KernelValueError, message, "differences", "pass a larger eps, or leave it away")
    return steps


def is_tiny(elements: array) -> bool:
    """Whether steps of the default size lead far away from where an input is."""
    return unit_of(numbers(elements)) < 1.0


def unit_of(x: Floats) -> float:
    """1, or the largest of some numbers where all are tiny."""
    largest = float(np.abs(x).max(initial=0.0))
    return largest if 0.0 < largest < TINY else 1.0


def _moved(
    subject: Subject,
    i: int,
    lane: np.ndarray[Any, Any],
    wanted: np.ndarray[Any, Any],
    steps: Floats,
    shifts: Sequence[float],
) -> tuple[list[array], list[Floats]]:
    """What `shifted` gives where some numbers of an input are moved, each in its lane."""
    moves = np.zeros((int(lane.max(initial=0)) + 1, subject.sources[i].count))
    moves[lane, wanted] = steps
    return shifted(subject.start(), {i: moves}, shifts)


def shifted(
    started: Started, moves: Mapping[int, Floats], shifts: Sequence[float]
) -> tuple[list[array], list[Floats]]:
    """The outputs, and their numbers for each shift and lane, which moves some inputs by a row of `moves`.

    The host sees what is computed where nothing is moved: one more lane, the first.
    """
    lanes = len(next(iter(moves.values())))
    batch = Batch(BASE, 1 + len(shifts) * lanes)
    level = Wide(batch)
    with batch.active():
        for i, rows in moves.items():
            moved = level.wide(started.inputs[i])
            shares = np.multiply.outer((0.0, *shifts), rows).reshape(-1, rows.shape[1])[lanes - 1 :]
            batch.move(moved, batch.seeds(moved, shares), add=True)
        outputs = started.go(level)
    looked = [batch.numbers(level.wide(out))[1:] for out in outputs]
    return outputs, [each.reshape(len(shifts), lanes, -1) for each in looked]


def extrapolated(y: Floats, steps: Floats) -> Floats:
    """Central differences, extrapolated by Richardson: `y` holds values at +step, -step and half of these."""
    coarse, fine = (y[0] - y[1]) / (2.0 * steps), (y[2] - y[3]) / steps
    return np.asarray((4.0 * fine - coarse) / 3.0)


def sided(y: Floats, steps: Floats) -> Floats:
    """The same, and the slope to the right less that to the left, along a last axis."""
    return np.stack([extrapolated(y, steps), 2.0 * (y[0] + y[1] - y[2] - y[3]) / steps], axis=-1)


SPREAD = tuple(sign * size for size in (1.0, 0.93, 0.86, 0.79, 0.71, 0.64, 0.57, 0.5) for sign in (1.0, -1.0))
"""The shifts of the differences whose range is computed."""


def scattered(y: Floats, steps: Floats) -> Floats:
    """The same, and the least and the largest of central differences over steps from a half to a whole one.

    These are moved apart by the derivative that moves a value by a unit in its last place.
    """
    sizes = np.asarray(SPREAD[::2]).reshape(-1, *(1,) * (y.ndim - 1))
    central = (y[0::2] - y[1::2]) / (2.0 * sizes * steps)
    unit = np.finfo(np.float64).eps * np.abs(y).max(axis=0) / steps
    numeric = extrapolated(y[[0, 1, -2, -1]], steps)
    return np.stack([numeric, central.min(axis=0) - unit, central.max(axis=0) + unit], axis=-1)


def _sizes(y: Floats, steps: Floats) -> Floats:
    return np.stack([np.broadcast_to(steps, y[0].shape), np.abs(y[0])], axis=-1)


SIDED = Quotient(SHIFTS, sided)
SCATTERED = Quotient(SPREAD, scattered)

SIZES = Quotient((0.0,), _sizes)
"""The steps, and the sizes of the values that they lead away from."""


# ------------------------------------------------------------------------------------------- through the host


ROUNDING = 64
"""The units in the last place by which outputs may also differ."""

SHARE = 0.01
"""The share of its change by which an output may differ."""


def told_apart(subject: Subject) -> tuple[set[tuple[str, str]], frozenset[str]]:
    """The inputs and outputs of a function that the host stands between, by label, and the unsteady outputs.

    These differ from run to run; where there is one, it is not known which follow the host.
    """
    unsteady = unsteady_outputs(subject)
    if subject.kernel is not None or unsteady:
        return set(), unsteady
    passed = [float32, *(scalar_of(source.elements.dtype) for source in subject.sources)]  # may be on its way
    eps = max(epsilon(scalar.dtype) for scalar in passed)
    rng = np.random.default_rng(len(subject.sources))
    starts = [numbers(source.elements) for source in subject.sources]
    moves = [4 * np.sqrt(eps) * rng.uniform(0.5, 1.5, len(x)) * np.maximum(1.0, np.abs(x)) for x in starts]
    following = _following(subject, moves)
    pairs = set[tuple[str, str]]()
    for i, source in enumerate(subject.sources if following else ()):
        alone = [move if k == i else 0.0 * move for k, move in enumerate(moves)]
        pairs |= {(source.label, label) for label in _following(subject, alone)}
    together = following.difference(label for _, label in pairs)  # only where several are moved at once
    return pairs | {(source.label, label) for source in subject.sources for label in together}, unsteady


def unsteady_outputs(subject: Subject) -> frozenset[str]:
    """The labels of the outputs of a function that differ from run to run at the same inputs."""
    if subject.kernel is not None:
        return frozenset()
    (outputs, here), (_, again) = _run(subject), _run(subject)
    several = zip(subject.targets(outputs), outputs, here, again, strict=False)
    return frozenset(
        target.label
        for target, output, y, after in several
        if not same_again(y, after, epsilon(scalar_of(output.dtype).dtype))
    )


def _following(subject: Subject, moves: Sequence[Floats]) -> frozenset[str]:
    """The labels of the outputs that follow the inputs through the host, where these are moved."""
    # Where the inputs are moved at a level, what the host has seen of them stays as it was.  All of it is in
    # float64: digits that float32 loses are not taken for the host's doing.
    outputs, frozen = shifted(subject.start(), _by_input(moves), (0.0, 1.0))
    _, seen = shifted(_started_at(subject, moves), _by_input([0.0 * move for move in moves]), (0.0,))
    pairs = zip(subject.targets(outputs), outputs, frozen, seen, strict=True)
    return frozenset(
        target.label for target, output, y, there in pairs if _differ(output, y[0, 0], y[1, 0], there[0, 0])
    )


def same_again(here: Floats, again: Floats, unit: float) -> bool:
    """Whether what two runs at the same inputs gave is the same, up to the order of sums."""
    return here.shape == again.shape and bool(alike(here, again, ROUNDING * unit).all())


UNSTEADY = "{} gives something else each time that it runs at the same inputs"
STEADY = "pass as arguments what it draws, counts and changes, or make that anew in it"


def _by_input(moves: Sequence[Floats]) -> dict[int, Floats]:
    return {i: move[np.newaxis] for i, move in enumerate(moves)}


def _run(subject: Subject) -> tuple[list[array], list[Floats]]:
    """The outputs, and their numbers."""
    outputs = subject.start().go(BASE)
    return outputs, [numbers(output) for output in outputs]


def _started_at(subject: Subject, moves: Sequence[Floats]) -> Started:
    started = subject.start()
    for elements, move in zip(started.inputs, moves, strict=True):
        values = scalars(elements).host()
        values[...] = (values + move.reshape(values.shape)).astype(values.dtype)
    return started


def numbers(elements: array) -> Floats:
    """The numbers of an array, in float64."""
    return scalars(elements).host().astype(np.float64).reshape(-1)


def _differ(output: array, here: Floats, frozen: Floats, there: Floats) -> bool:
    if here.shape != there.shape:
        return True
    change, expected = there - here, frozen - here
    sizes = np.maximum(np.abs(here), np.abs(there)).max(initial=0.0)
    rounding = ROUNDING * epsilon(scalar_of(output.dtype).dtype) * sizes
    largest = np.maximum(np.abs(change), np.abs(expected)).max(initial=0.0)
    off = np.abs(change - expected) > SHARE * largest + rounding
    return bool((off & np.isfinite(change) & np.isfinite(expected)).any())
