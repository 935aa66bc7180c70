"""What a tape tells those who show it: what it recorded, what was overwritten, what `backward` found.

Reads a recording; must not know who looks, nor how a tape sweeps.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from kernelab.autodiff.hazards import Overwrite
from kernelab.autodiff.magnitudes import Magnitude
from kernelab.autodiff.records import Record, Recording
from kernelab.errors import Diagnostic, NotFiniteError


class Observed:
    """A tape as it is looked at."""

    _recording: Recording

    def __init__(self) -> None:
        self._findings: tuple[Diagnostic, ...] = ()
        self._magnitudes: list[Magnitude] | None = None

    def since(self, number: int) -> Sequence[Record]:
        """The records from a number on."""
        return tuple(self._recording.records[number:])

    @property
    def epoch(self) -> int:
        """How often it has been reset."""
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
        """How many nanoseconds launches took since the tape is observed, by the number of the record."""
        return self._recording.times or {}

    @property
    def overwrites(self) -> Sequence[Overwrite]:
        """What was overwritten, in order, while a recorded launch needed it for its adjoint."""
        return self._recording.guard.overwrites

    @property
    def findings(self) -> Sequence[Diagnostic]:
        """What the last `backward` warned of or failed by: chains that end, values that are not finite."""
        return self._findings

    @property
    def magnitudes(self) -> Sequence[Magnitude]:
        """The norms of adjoints in the order of the last `backward`, if the tape was observed then."""
        return self._magnitudes or ()

    @contextmanager
    def _noting_what_is_not_finite(self) -> Iterator[None]:
        try:
            yield
        except NotFiniteError as error:
            self._findings = (*self._findings, *error.diagnostics)
            raise

    def _forget_findings(self) -> None:
        self._findings = ()
        if self._magnitudes is not None:
            self._magnitudes = []
