"""Checks a whole tape: one product of its adjoint against differences of all its launches.

The sources are moved together along random directions, in float64, and everything that the tape wrote is
looked at along random cotangents.  The adjoint is taken twice: by a level in float64, which is compared with
the differences, and by `Tape.backward` itself on copies, which has to agree with the level.  Where products
differ, the tape is halved until the first record is found with which they do.  Must not know reports.
"""

import warnings
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np

from kernelab.autodiff.checks.gradcheck import dead_ends_of
from kernelab.autodiff.checks.screening import (
    ALIKE,
    DIRECTIONS,
    OWN_PRECISION,
    STEP_SCALES,
    Compared,
    are_alike,
    directions,
    is_linear,
    mixed,
    rules_in,
    same_up_to_rounding,
    weights_of,
)
from kernelab.autodiff.checks.tape_replay import Line, Run, touched
from kernelab.autodiff.checks.thread_order import Reordered, first_difference
from kernelab.autodiff.checks.witnesses import SCALES, STAYS, UNEVEN
from kernelab.autodiff.jacobians.differences import (
    OWN_SIZE,
    SHIFTS,
    Floats,
    extrapolated,
    is_tiny,
    shifted,
    sided,
    steps_of,
)
from kernelab.autodiff.records.adjoint_buffers import Adjoints, scalars
from kernelab.autodiff.records.moves import HostCallRecord
from kernelab.autodiff.tape.tape import Tape
from kernelab.autodiff.transforms.base_level import BASE
from kernelab.autodiff.transforms.batch_level import Batch
from kernelab.autodiff.transforms.levels import Level
from kernelab.autodiff.transforms.trees import number_count
from kernelab.autodiff.transforms.wide_level import Wide
from kernelab.data_classes import dataclass
from kernelab.errors import KernelWarning
from kernelab.passes.access.dead_ends import DeadEnd
from kernelab.runtime.array.array import array

ROUNDINGS = 8
"""How many roundings of its shortest floats a backward pass may be off by."""

LOST = 100.0
"""From how many roundings of a value on two slopes of it can be told apart."""

SMOOTH = 1e-4
"""How well differences at two steps have to agree before an adjoint that is ten times as far off is wrong."""

MOST_BANDS = 8
"""How many bands of sizes are told apart."""

ROOM = 1 << 28
"""How many bytes a tape may have touched to be run again in many lanes."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Products of so many entries agree; `worst` is how far two of them differ, relative to their terms.

    `zeros` are the lines through which values of the sources go on, and their derivatives do not; `note`
    says what was left out.
    """

    entries: int
    products: int
    worst: float
    zeros: tuple[DeadEnd, ...] = ()
    note: str = ""


def agreement(line: Line, ends: Collection[array] | None = None) -> Agreement | None:
    """Check the whole tape, or what it says of some of the arrays it wrote; None where it does not agree."""
    count = len(line.records)
    compared = _compared(line, count, ends)
    if compared is None:
        return None
    entries = _size(line.sources) * _size(_chosen(line.targets(count), ends))
    adjoint, numeric, scale = compared.worst()
    error, level = abs(adjoint - numeric) / scale if scale else 0.0, line.reversed_run(count, BASE)[1]
    return Agreement(entries, DIRECTIONS**2, error, tuple(dead_ends_of(level)))


def first_disagreeing(line: Line) -> int:
    """The first record with which the tape up to there does not agree; of one that does not as a whole."""
    return _first(line, lambda count: _compared(line, count) is None)


def first_racing(line: Line) -> int | None:
    """The first record whose result depends on the order of its threads, None if there is none."""

    def differs(count: int) -> bool:
        level = Reordered(BASE)
        turned = line.start_run(count).go(level)
        return level.has_met and any(map(first_difference, line.start_run(count).go(BASE), turned))

    return _first(line, differs) if line.meets and differs(len(line.records)) else None


def differs_in_sweep(line: Line, count: int) -> bool:
    """Whether `Tape.backward` and the level take adjoints back differently, in float64 and as they run."""
    targets = line.targets(count)
    u = directions(np.random.default_rng(count), _size(targets), _size(targets))
    swept = _swept(line, count, targets, u)
    return not any(_pulled(line, count, targets, u, base).agrees_with(swept) for base in (Wide(BASE), BASE))


def spoiled(line: Line, writer: int) -> tuple[int, array] | None:
    """An earlier record, and what its adjoint reads and `writer` overwrites, unless the tape saves that."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KernelWarning)
        earlier, (run, tape) = line.taped_run(writer)[1].overwrites, line.taped_run(writer + 1)
    lost = next((one for one in tape.overwrites[len(earlier) :] if one.outcome == "tainted"), None)
    if lost is None:
        return None
    k = next(k for k, record in enumerate(tape) if record is lost.reader.record())
    over = (a for a in touched(line.records[k]) if run.of(a).packed == lost.elements.packed)
    return k, next(over, lost.elements)


def first_bent(line: Line) -> int | None:
    """The first record, of a tape that agrees, at which slopes to the two sides differ; None if none is."""
    count = len(line.records)
    return _first(line, lambda count: bends(line, count)) if bends(line, count) else None


def bends(line: Line, count: int) -> bool:
    """Whether something that the first records wrote has a kink: slopes differ as much at a smaller step."""
    size = _size(line.sources)
    v = directions(np.random.default_rng(count), size, size)[:1]
    if not line.targets(count):
        return False
    (slope, wide), (_, close) = (_sides(line, count, v, scale) / scale for scale in SCALES[:2])
    bend = np.abs(wide)
    kinks = (bend > UNEVEN * (np.abs(slope) + bend)) & (np.abs(close - wide) <= STAYS * bend)
    return bool(kinks.any())


def _first(line: Line, is_bad: Callable[[int], bool]) -> int:
    """The first record with which a tape up to there is bad; of one that is as a whole."""
    return bisect_left(range(1, len(line.records)), True, key=is_bad)


def _size(arrays: Sequence[array]) -> int:
    return sum(number_count(a) for a in arrays)


def _chosen(targets: Sequence[array], ends: Collection[array] | None) -> list[array]:
    among = set(targets if ends is None else ends)
    return [target for target in targets if target in among]


def _compared(line: Line, count: int, ends: Collection[array] | None = None) -> Compared | None:
    """The products up to a record, None if they differ at every step that is tried.

    Those of steps of the size of tiny sources have to agree, and suffice where rounding does not hide them.
    Where sizes are very different they are compared again, rescaled: an entry would not show beside others.
    """
    scales: Sequence[float] = STEP_SCALES
    agreed = next((one for one in _tried(line, count, ends) if one[0].agrees), None)
    if any(is_tiny(line.start(source)) for source in line.sources):
        own = next(_tried(line, count, ends, scales=(OWN_SIZE,)), None)
        if own is None or not own[0].agrees:
            return None
        if agreed is None and own[0].are_sharp:
            agreed, scales = own, (OWN_SIZE,)
    if agreed is None or all(map(are_alike, agreed[1])):
        return None if agreed is None else agreed[0]
    rescaled = _tried(line, count, ends, weights_of(agreed[1][0]), scales)
    return agreed[0] if any(one.agrees for one, _ in rescaled) else None


Sizes = tuple[Floats, Floats]
"""Of the derivatives of each number that a tape wrote, and by each number of its sources."""


def _tried(
    line: Line,
    count: int,
    ends: Collection[array] | None = None,
    weights: Floats | None = None,
    scales: Sequence[float] = STEP_SCALES,
) -> Iterator[tuple[Compared, Sizes]]:
    """The products up to a record at each step, with their sizes; nothing where a backward pass differs.

    With `weights` of what the tape wrote, sources of very different sizes are moved one after the other.
    """
    targets, rng = line.targets(count), np.random.default_rng(count)
    selected_targets = set(_chosen(targets, ends))
    if not selected_targets:
        yield Compared(*(np.zeros((1, 1)),) * 4), (np.zeros(1), np.zeros(1))
        return
    u = directions(rng, _size(targets), _size(targets))
    selected = np.concatenate([np.full(_size([target]), target in selected_targets) for target in targets])
    u[:, ~selected] = 0.0
    u[:, selected] *= 1.0 if weights is None else weights
    v = directions(rng, _size(line.sources), _size(line.sources))
    pulled = _pulled(line, count, targets, u, Wide(BASE))
    columns = np.abs(pulled.sources * v).max(axis=0)
    if weights is not None:
        v = np.concatenate([v * band for band in _bands(columns)])
    elif not pulled.agrees_with(_swept(line, count, targets, u)):
        return
    for scale in scales:
        moves, y = _moved(line, count, v, scale)
        y = y[..., selected]
        slopes = extrapolated(y, np.ones(1))
        compared = Compared.of(u[:, selected], slopes, pulled.sources, moves, y[0])
        yield compared, (np.abs(slopes).max(axis=0), columns)


def _bands(sizes: Floats) -> list[Any]:
    """Masks of the numbers of about one size each; the smallest are in one band."""
    bands = np.frexp(sizes)[1] // int(np.log2(ALIKE))
    bands[sizes == 0] = bands.min() - 1
    largest = np.unique(bands)[-MOST_BANDS:]
    return [np.maximum(bands, largest[0]) == band for band in largest]


def is_off(line: Line, count: int) -> bool:
    """Whether the adjoint up to a record is off for sure: differences agree at two steps, and not with it."""
    tried = [compared for compared, _ in _tried(line, count)]
    if not tried:
        return False
    wide, close = (each.numeric / scale for each, scale in list(zip(tried, STEP_SCALES, strict=True))[-2:])
    adjoint, sizes = tried[-1].adjoint / STEP_SCALES[-1], tried[-1].scale / STEP_SCALES[-1]
    is_smooth = np.abs(wide - close) <= SMOOTH * sizes
    is_apart = np.abs(adjoint - close) > 10.0 * SMOOTH * sizes
    return bool(np.all(is_smooth) and np.any(is_apart))


@dataclass(frozen=True, slots=True)
class Pulled:
    """Adjoints of the sources, one row for each cotangent, and of what the tape made, by its position.

    `rounding` is how far those of a backward pass may be from them, relatively, and `smallest` absolutely.
    """

    sources: Floats
    between: dict[int, Floats]
    rounding: float = OWN_PRECISION
    smallest: float = 0.0
    is_linear: bool = True

    def agrees_with(self, swept: "Pulled") -> bool:
        """Whether a backward pass in the precision of the arrays gives the same, up to its rounding."""
        pairs = [(swept.sources, self.sources)]
        pairs += [(swept.between[k], exact) for k, exact in self.between.items()]
        return self.is_linear and all(
            same_up_to_rounding(*pair, self.rounding, self.smallest) for pair in pairs
        )


def _pulled(line: Line, count: int, targets: Sequence[array], u: Floats, base: Level) -> Pulled:
    """``J^T u`` for each row of `u`, by a level; of rules that users wrote mixtures as well."""
    asked = len(u)
    run, level, begins = line.reversed_run(count, base)
    rules = rules_in(level.entries)
    by_host = any(isinstance(rule, HostCallRecord) for rule in rules)
    u = mixed(u) if rules else u
    batch, bars, between = Batch(base, len(u)), Adjoints(), dict[int, Floats]()

    def adjoint(elements: array) -> Floats:
        twin = run.of(elements)
        if not bars.reach(twin):
            return np.zeros((len(u), _size([elements])))
        return batch.numbers(bars.of(twin)).copy()

    def note(record: int | None, entry: int) -> None:
        for k, (elements, reader) in enumerate(line.between):
            reads = reader if reader is not None and reader < count else None
            if reads == record and level.tracked.get(run.of(elements).allocation, entry + 1) <= entry:
                between[k] = adjoint(elements)

    for target, part in zip(targets, _split(u, targets), strict=True):
        bar = bars.of(run.of(target))
        batch.move(bar, batch.seeds(bar, part), add=True)
    note(None, len(level.entries))
    for k in range(count - 1, -1, -1):
        for i in range(begins[k + 1] - 1, begins[k] - 1, -1):  # without a plan: that is what is checked
            level.entries[i].pull(bars, batch)
        note(k, begins[k])
    sources = np.concatenate([adjoint(source) for source in line.sources], axis=1)
    is_right = len(u) == asked or is_linear(sources, asked, by_host)
    first = {k: rows[:asked] for k, rows in between.items()}
    rounding = max(OWN_PRECISION, ROUNDINGS * line.precision)
    return Pulled(sources[:asked], first, rounding, line.smallest, is_right)


def _swept(line: Line, count: int, targets: Sequence[array], u: Floats) -> Pulled:
    """The same by the backward pass of a tape, as its user gets it; the last time it adds to gradients."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KernelWarning)  # they were shown when the tape was recorded
        run, tape = line.taped_run(count)
        rows: list[Floats] = []
        between: dict[int, list[Floats]] = {k: [] for k in range(len(line.between))}
        for row in u:
            run.forget_gradients()
            _sweep(run, tape, targets, row)
            rows.append(np.concatenate([_gradient(run, source) for source in line.sources]))
            for k, (elements, _) in enumerate(line.between):
                between[k].append(_gradient(run, elements))
        run.forget_passes()  # the sum is meant: no message
        _sweep(run, tape, targets, u[-1])
        rows[-1] = np.concatenate([_gradient(run, source) for source in line.sources]) - rows[-1]
        return Pulled(np.stack(rows), {k: np.stack(gradients) for k, gradients in between.items()})


def _sweep(run: Run, tape: Tape, targets: Sequence[array], u: Floats) -> None:
    parts = zip(targets, _split(u[np.newaxis], targets), strict=True)
    tape.backward(grads={run.of(t): part.reshape(t.outline().shape) for t, part in parts})


def _gradient(run: Run, elements: array) -> Floats:
    gradient = run.of(elements).grad
    if gradient is None:
        return np.zeros(_size([elements]))
    return scalars(gradient).seen().astype(np.float64).ravel()


def _sides(line: Line, count: int, v: Floats, scale: float) -> Floats:
    """The derivatives of the targets, and by how much those to the two sides differ, if that can be seen."""
    _, y = _moved(line, count, v, scale)
    slopes = sided(y, np.ones(1))
    seen = np.abs(slopes[..., 1]) > LOST * np.finfo(np.float64).eps * np.abs(y).max(axis=0)
    seen &= np.isfinite(slopes).all(axis=-1)
    return np.moveaxis(np.where(seen[..., np.newaxis], slopes, 0.0), -1, 0)


def _moved(line: Line, count: int, v: Floats, scale: float) -> tuple[Floats, Floats]:
    """By how much the sources are moved, and the targets after each of the shifts."""
    moves = v * np.concatenate([steps_of(line.start(source), None, scale) for source in line.sources])
    by_source = dict(enumerate(_split(moves, line.sources)))
    return moves, np.concatenate(shifted(line.start_run(count), by_source, SHIFTS)[1], axis=2)


def _split(rows: Floats, arrays: Sequence[array]) -> list[Floats]:
    return np.split(rows, np.cumsum([_size([a]) for a in arrays])[:-1], axis=1)
