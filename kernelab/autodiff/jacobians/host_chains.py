"""Detects results that depend on the inputs through the host: NumPy, numbers, anything but launches.

Derivatives and differences take what the host computes for constants.  So a function is run twice with its
inputs moved a little: as it is, and with the host's values left as they were.  Where the outputs then differ,
the derivative is not that of the function.
"""

from collections.abc import Sequence

import numpy as np

from kernelab.autodiff.jacobians.differences import Floats, moved
from kernelab.autodiff.jacobians.subject import Subject
from kernelab.autodiff.transforms.levels import BASE
from kernelab.autodiff.transforms.trees import scalars
from kernelab.lang.rounding import epsilon
from kernelab.lang.types import scalar_of
from kernelab.runtime.array.array import array

ROUNDING = 64
"""By how many units in the last place outputs may differ besides."""

SHARE = 0.01
"""Which share of its change an output may differ by."""


def through_host(subject: Subject, labels: Sequence[str] = ()) -> frozenset[str]:
    """The labels of the outputs of a function that follow its inputs through the host."""
    if subject.kernel is not None:
        return frozenset()
    eps = max(epsilon(scalar_of(source.elements.dtype).dtype) for source in subject.sources)
    rng = np.random.default_rng(len(subject.sources))
    starts = [_numbers(source.elements) for source in subject.sources]
    moves = [4 * np.sqrt(eps) * rng.uniform(0.5, 1.5, len(x)) * np.maximum(1.0, np.abs(x)) for x in starts]
    outputs, here = _run(subject, [0.0 * move for move in moves])
    if not all(map(_same, here, _run(subject, [0.0 * move for move in moves])[1])):
        return frozenset()  # it changes from run to run, which is told as such
    there = _run(subject, moves)[1]
    frozen_here, frozen_there = (moved(subject, [scale * move for move in moves]) for scale in (0.0, 1.0))
    targets = subject.targets(outputs, labels)
    found = zip(targets, outputs, here, there, frozen_here, frozen_there, strict=True)
    return frozenset(target.label for target, output, *values in found if _differ(output, *values))


def _run(subject: Subject, moves: Sequence[Floats]) -> tuple[list[array], list[Floats]]:
    """The outputs with the inputs moved, and their numbers."""
    started = subject.start()
    for elements, move in zip(started.inputs, moves, strict=True):
        values = scalars(elements).host()
        values[...] = (values + move.reshape(values.shape)).astype(values.dtype)
    outputs = started.go(BASE)
    return outputs, [_numbers(output) for output in outputs]


def _numbers(elements: array) -> Floats:
    return scalars(elements).host().astype(np.float64).reshape(-1)


def _same(a: Floats, b: Floats) -> bool:
    return a.shape == b.shape and np.array_equal(a, b, equal_nan=True)


def _differ(output: array, here: Floats, there: Floats, frozen_here: Floats, frozen_there: Floats) -> bool:
    if here.shape != there.shape:
        return True
    with np.errstate(invalid="ignore", over="ignore"):
        change, frozen = there - here, frozen_there - frozen_here
        sizes = np.maximum(np.abs(here), np.abs(there)).max(initial=0.0)
        rounding = ROUNDING * epsilon(scalar_of(output.dtype).dtype) * sizes
        largest = np.maximum(np.abs(change), np.abs(frozen)).max(initial=0.0)
        off = np.abs(change - frozen) > SHARE * largest + rounding
    return bool((off & np.isfinite(change) & np.isfinite(frozen)).any())
