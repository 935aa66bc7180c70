"""Read-only facts about a tape for views: its records, its overwrites, the result of `backward`.

Reads a recording; must not know who looks, nor how a tape sweeps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelab.autodiff.overwrites.hazards import Overwrite
from kernelab.autodiff.records.adjoint_buffers import Adjoints
from kernelab.autodiff.records.recording import Recording
from kernelab.autodiff.records.records import Record
from kernelab.autodiff.tape.backward import Puller
from kernelab.errors import Diagnostic
from kernelab.lang.rounding import widened
from kernelab.runtime.array.array import array


@dataclass(frozen=True, slots=True, eq=False)
class Magnitude:
    """The adjoints that the sweep through one record changed, each with its Euclidean norm after it."""

    record: int
    norms: tuple[tuple[array, float], ...]


def measuring(puller: Puller | None, found: list[Magnitude]) -> Puller:
    """The same way of taking adjoints through records, which notes the norms of what they reach."""

    def measured(records: Sequence[Record], i: int, adjoints: Adjoints) -> None:
        if puller is None:
            records[i].pull(adjoints)
        else:
            puller(records, i, adjoints)
        reached = [primal for primal in dict.fromkeys(records[i].reached) if primal.requires_grad]
        bars = [(primal, adjoints.known(primal)) for primal in reached]
        found.append(Magnitude(i, tuple((primal, norm(bar)) for primal, bar in bars if bar is not None)))

    return measured


def norm(bar: array) -> float:
    """The Euclidean norm of an array of floats, in float64: it neither overflows nor vanishes too early."""
    values = widened(bar.host()).reshape(-1).astype(np.float64)
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0.0 or not np.isfinite(largest):
        return largest
    return float(np.linalg.norm(values / largest)) * largest


# -------------------------------------------------------------------------------------------------- observed


Values = np.ndarray[Any, Any]


class Observed:
    """A tape as it is looked at."""

    _recording: Recording

    def __init__(self) -> None:
        self._findings: tuple[Diagnostic, ...] = ()
        self._magnitudes: list[Magnitude] | None = None
        self._sweeps = 0
        self._cotangents: Mapping[array, Values] | None = None

    def since(self, number: int) -> Sequence[Record]:
        """The records from a number on."""
        return tuple(self._recording.records[number:])

    @property
    def epoch(self) -> int:
        """The number of resets so far."""
        return self._recording.epoch

    def observe(self) -> None:
        """Measure from here on how long launches take, and how large adjoints are in each backward pass.

        What shows a tape asks for it; a launch then takes a tenth of a microsecond more.
        """
        if self._recording.times is None:
            self._recording.times = {}
            self._magnitudes = []

    @property
    def times(self) -> Mapping[int, int]:
        """The time of launches in nanoseconds since the tape is observed, by the number of the record."""
        return self._recording.times or {}

    @property
    def overwrites(self) -> Sequence[Overwrite]:
        """The overwrites of elements that an adjoint needs, in order."""
        return self._recording.guard.overwrites

    @property
    def findings(self) -> Sequence[Diagnostic]:
        """The warnings and errors of the last `backward`: chains that end, values that are not finite."""
        return self._findings

    @property
    def magnitudes(self) -> Sequence[Magnitude]:
        """The norms of adjoints in the order of the last `backward`, if the tape was observed then."""
        return self._magnitudes or ()

    @property
    def sweeps(self) -> int:
        """The number of times `backward` began or was reset; `magnitudes` grow while it stays the same."""
        return self._sweeps

    @property
    def last_cotangents(self) -> Mapping[array, Values] | None:
        """The seeds of the last `backward`, as `backward(grads=...)` takes them.

        None where there was none, where it stayed on a device, or where they are many numbers and the tape
        was not observed then.
        """
        return self._cotangents

    def _forget_findings(self) -> None:
        self._findings = ()
        self._cotangents = None
        self._sweeps += 1
        if self._magnitudes is not None:
            self._magnitudes = []
