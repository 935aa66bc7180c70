"""Read-only facts about a tape for views: its records, its overwrites, the result of `backward`.

Reads a recording; must not know who looks, nor how a tape sweeps.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelab.autodiff.overwrites.hazards import Overwrite
from kernelab.autodiff.records.adjoint_buffers import Adjoints
from kernelab.autodiff.records.recording import Recording
from kernelab.autodiff.records.records import Record
from kernelab.autodiff.tape.seeds import Seeds, values_of
from kernelab.autodiff.tape.sweep import Puller, Pulling
from kernelab.errors import Diagnostic, NotFiniteError
from kernelab.lang.rounding import widened
from kernelab.runtime.array.array import array


@dataclass(frozen=True, slots=True, eq=False)
class Magnitude:
    """The adjoints that the sweep through one record changed, each with its Euclidean norm after it."""

    record: int
    norms: tuple[tuple[array, float], ...]


class Measured:
    """Takes adjoints through records as another way does, and notes the norms."""

    def __init__(self, records: Sequence[Record], inner: Puller, found: list[Magnitude]) -> None:
        self._records = records
        self._inner = inner
        self._found = found

    def pull(self, i: int, adjoints: Adjoints) -> None:
        """Take the adjoints through record `i`, then measure what it reached."""
        self._inner.pull(i, adjoints)
        reached = [primal for primal in dict.fromkeys(self._records[i].reached) if primal.requires_grad]
        bars = [(primal, adjoints.known(primal)) for primal in reached]
        norms = tuple((primal, norm(bar)) for primal, bar in bars if bar is not None)
        self._found.append(Magnitude(i, norms))


def measuring(pulling: Pulling, found: list[Magnitude]) -> Pulling:
    """The same way of pulling, which notes what it finds."""
    return lambda records: Measured(records, pulling(records), found)


def norm(bar: array) -> float:
    """The Euclidean norm of an array of floats, in float64: it neither overflows nor vanishes too early."""
    values = widened(bar.host()).reshape(-1).astype(np.float64)
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0.0 or not np.isfinite(largest):
        return largest
    return float(np.linalg.norm(values / largest)) * largest


# -------------------------------------------------------------------------------------------------- observed


Values = np.ndarray[Any, Any]

MOST_KEPT = 65_536
"""Up to how many numbers of the cotangents of a sweep are copied where nobody watches."""


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

    def _begin_sweep(self, seeds: Seeds) -> list[Magnitude] | None:
        """Start a list of the norms of a sweep; None if the tape is not observed."""
        self._sweeps += 1
        is_watched = self._magnitudes is not None
        distinct = len({target.allocation for target in seeds}) == len(seeds)
        on_host = not any(isinstance(cotangent, array) for cotangent in seeds.values())
        few = sum(target.size for target in seeds) <= MOST_KEPT
        self._cotangents = None
        if distinct and on_host and (few or is_watched):
            self._cotangents = {
                target: np.array(np.broadcast_to(values_of(cotangent), target.outline().shape))
                for target, cotangent in seeds.items()
            }
        if is_watched:
            self._magnitudes = []
        return self._magnitudes

    @contextmanager
    def _noting_what_is_not_finite(self) -> Iterator[None]:
        try:
            yield
        except NotFiniteError as error:
            self._findings = (*self._findings, *error.diagnostics)
            raise

    def _forget_findings(self) -> None:
        self._findings = ()
        self._cotangents = None
        self._sweeps += 1
        if self._magnitudes is not None:
            self._magnitudes = []
