"""Measures the norms of adjoints in a backward pass, and the times of launches, on copies.

Nothing that the user has changes.  Knows records and sweeps; must not know the tape, nor how this is shown.
"""

from collections.abc import Iterator, Sequence
from time import perf_counter_ns

import numpy as np

from kernelab.autodiff.records.adjoint_buffers import Adjoints
from kernelab.autodiff.records.backward import BackwardPlan, Puller, refuse_late, sweep
from kernelab.autodiff.records.records import LaunchRecord, Record
from kernelab.autodiff.tape.finite import pull_finite
from kernelab.autodiff.tape.seeds import Seeds, seeded
from kernelab.autodiff.transforms.base_level import BASE
from kernelab.backend.cpu.observed_adjoint import has_measurable_loops, loop_norms
from kernelab.data_classes import dataclass
from kernelab.errors import NotFiniteError, Span
from kernelab.hooks import Printed
from kernelab.lang.rounding import widened
from kernelab.lang.types import bytes_of
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import Place, unrecorded
from kernelab.runtime.kernel.program import Pullback
from kernelab.runtime.launch.races import copies_of, with_copies
from kernelab.runtime.launch.scoped import synchronize

FAR = 1e6
"""The factor by which a gradient may differ from the one next to the loss before it is reported."""

MOST_THREADS = 65_536
"""The number of threads up to which loops of a launch are measured: the interpreter runs them."""


@dataclass(frozen=True, slots=True, eq=False)
class Magnitude:
    """The adjoints that the sweep through one record changed, each with its Euclidean norm after it.

    After an iteration of a loop, `where` names the iteration, and the norm is that of the carried values.
    `record` is the number of the record on the tape, from 1.
    """

    record: int
    norms: tuple[tuple[array | None, float], ...]
    where: str = ""


def measuring(puller: Puller | None, magnitudes: list[Magnitude]) -> Puller:
    """A puller that also notes the norms of the adjoints which each record reaches."""

    def measured(records: Sequence[Record], i: int, adjoints: Adjoints) -> None:
        if puller is None:
            records[i].pull(adjoints, BASE)
        else:
            puller(records, i, adjoints)
        magnitudes.append(_magnitude(i, records[i], adjoints))

    return measured


def _magnitude(i: int, record: Record, adjoints: Adjoints) -> Magnitude:
    reached = [primal for primal in dict.fromkeys(record.reached) if primal.requires_grad]
    bars = [(primal, adjoints.known(primal)) for primal in reached]
    return Magnitude(i + 1, tuple((primal, norm_of(bar)) for primal, bar in bars if bar is not None))


@dataclass(frozen=True, slots=True, eq=False)
class NormStep:
    """The norm of the adjoints after a record, or an iteration of a loop in it, in a backward pass.

    `record` is its number on the tape, from 1.  `norm` is the largest Euclidean norm of the adjoints that it
    reached; `trend` is "vanishes", "explodes", "zero", "not finite" or "".  `line` is that of the loop, or
    where a value turned NaN or infinite.
    """

    record: int
    title: str
    place: Place
    norm: float
    trend: str
    line: Span | None = None
    iteration: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Norms(Printed):
    """The norms of the adjoints in a backward pass, from the loss on."""

    steps: tuple[NormStep, ...]

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True, slots=True, eq=False)
class KernelTime:
    """What the launches of one kernel take: seconds forward and backward, None where nothing went back.

    `nbytes` are those of the arrays that they read and change, each counted once for each of the two.
    """

    name: str
    launches: int
    forward: float
    backward: float | None
    nbytes: int

    @property
    def rate(self) -> float:
        """The bytes of a second, forward, in GB/s."""
        return self.nbytes / max(self.forward, 1e-12) / 1e9


@dataclass(frozen=True, slots=True, eq=False)
class Profile(Printed):
    """The kernels of a tape by the time that they take, the longest first; how many records are others."""

    kernels: tuple[KernelTime, ...]
    others: int = 0


# ---------------------------------------------------------------------------------------------------- sweeps


def sweep_on_copies(
    records: Sequence[Record], seeds: Seeds, puller: Puller | None = None, end: int = 0
) -> Adjoints:
    """Take adjoints back through records, down to record `end`, and publish none; what they are then."""
    adjoints, plan = seeded(seeds, Adjoints()), BackwardPlan(records, seeds, shared=())
    refuse_late(plan)
    with unrecorded():
        sweep(plan, adjoints, BASE, puller, end)
    return adjoints


class Measurement:
    """Takes adjoints through records by `pull`, and notes how large they are, in loops too."""

    def __init__(self) -> None:
        self.steps: list[NormStep] = []
        self.magnitudes: list[Magnitude] = []
        self._first = 0.0
        self._is_finite = True

    def pull(self, records: Sequence[Record], i: int, adjoints: Adjoints) -> None:
        """Take the adjoints through a record, and name the line where one turns NaN or infinite first."""
        record, line = records[i], None
        for (span, iteration), norm in self._loops(record, adjoints):
            self._note(i, record, norm, span, iteration)
            self.magnitudes.append(Magnitude(i + 1, ((None, norm),), f"{span}, iteration {iteration}"))
        if self._is_finite:
            try:
                pull_finite(records, i, adjoints)
            except NotFiniteError as error:
                line, self._is_finite = error.diagnostics[0].span, False
                record.pull(adjoints, BASE)
        else:
            record.pull(adjoints, BASE)
        magnitude = _magnitude(i, record, adjoints)
        self.magnitudes.append(magnitude)
        if magnitude.norms:
            norms = [norm for _, norm in magnitude.norms]
            self._note(i, record, max(norms, key=lambda one: np.inf if np.isnan(one) else one), line)

    def _loops(self, record: Record, adjoints: Adjoints) -> Iterator[tuple[tuple[Span, int], float]]:
        if not isinstance(record, LaunchRecord) or not isinstance(record.pullback, Pullback):
            return
        if record.space is not None or record.grid.threads > MOST_THREADS:
            return
        adjoint = record.pullback.adjoint.flat
        if not has_measurable_loops(adjoint):
            return
        saved = record.saved()  # alive until the run is over
        with adjoints.unchanged(one.allocation for one in record.active):
            yield from loop_norms(adjoint, b"".join(record.adjoint_parts(adjoints, saved))).items()

    def _note(
        self, i: int, record: Record, norm: float, line: Span | None, iteration: int | None = None
    ) -> None:
        if not self._first and np.isfinite(norm):
            self._first = norm
        trend = self._trend(norm)
        self.steps.append(NormStep(i + 1, record.title, record.place, norm, trend, line, iteration))

    def _trend(self, norm: float) -> str:
        if not np.isfinite(norm):
            return "not finite"
        if norm == 0:
            return "zero"
        return "explodes" if norm > self._first * FAR else "vanishes" if norm < self._first / FAR else ""


def norm_of(bar: array) -> float:
    """The Euclidean norm of an array of floats, in float64: it neither overflows nor vanishes too early."""
    values = widened(bar.host()).reshape(-1).astype(np.float64)
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0.0 or not np.isfinite(largest):
        return largest
    return float(np.linalg.norm(values / largest)) * largest


# ---------------------------------------------------------------------------------------------------- times


def profile_of(records: Sequence[Record], seeds: Seeds) -> Profile:
    """The times of launches, run again on copies of what they write, and of their adjoints."""
    backward: dict[str, float] = {}
    sweep_on_copies(records, seeds, _timing({}))  # builds what is not built
    sweep_on_copies(records, seeds, _timing(backward))
    cache: dict[object, float] = {}
    rows: dict[str, list[float]] = {}
    for record in records:
        if isinstance(record, LaunchRecord):
            row = rows.setdefault(record.kernel.name, [0, 0.0, 0])
            row[0] += 1
            row[1] += _forward(record, cache)
            row[2] += sum(one.size * bytes_of(one.dtype) for one in _arrays(record))
    times = [
        KernelTime(name, int(count), seconds, backward.get(name), int(nbytes))
        for name, (count, seconds, nbytes) in rows.items()
    ]
    times.sort(key=lambda one: -(one.forward + (one.backward or 0.0)))
    return Profile(tuple(times), len(records) - sum(one.launches for one in times))


def _arrays(record: LaunchRecord) -> Iterator[array]:
    plan, arguments = record.kernel.plan, record.arguments
    yield from (arguments[i] for i in (*plan.read, *plan.written))


def _timing(seconds: dict[str, float]) -> Puller:
    def pull(records: Sequence[Record], i: int, adjoints: Adjoints) -> None:
        synchronize()
        began = perf_counter_ns()
        records[i].pull(adjoints, BASE)
        synchronize()
        record = records[i]
        if isinstance(record, LaunchRecord):
            name = record.kernel.name
            seconds[name] = seconds.get(name, 0.0) + (perf_counter_ns() - began) / 1e9

    return pull


def _forward(record: LaunchRecord, cache: dict[object, float]) -> float:
    """The seconds of a launch, the best of three; measured once for launches on arrays of the same shapes."""
    shapes = tuple((one.shape, str(one.dtype)) for one in _arrays(record))
    key = record.kernel, record.grid.packed, shapes
    if key not in cache:
        program = record.kernel.program
        copies = copies_of(program, record.arguments)
        slots = b"".join(with_copies(program, record.arguments, record.parts, copies))
        run = program.entry_for(record.arguments)
        times = []
        for _ in range(3):
            synchronize()
            began = perf_counter_ns()
            run(slots)
            synchronize()
            times.append((perf_counter_ns() - began) / 1e9)
        cache[key] = min(times)
    return cache[key]
