"""How large adjoints are on their way through a sweep: who watches a tape sees where they vanish or explode.

Looks at the adjoints after every record; must not change them, nor cost anything where nobody watches.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernelab.autodiff.records.adjoint_buffers import Adjoints
from kernelab.autodiff.records.records import Record
from kernelab.autodiff.tape.sweep import Puller, Pulling
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
