"""The witnesses of a gradient check: adjoint, differences, and, where these disagree, the tangent.

Each gives the same entries of the same Jacobians: all of them, or where a pattern is known and few runs
suffice, those of the pattern.  That the adjoint has no others is then shown by its product with a random
vector.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np

from kernelab.autodiff.checks.screening import Numbers, worst_rows
from kernelab.autodiff.jacobians.differences import (
    OWN_SIZE,
    SCATTERED,
    SIDED,
    SIZES,
    Floats,
    Quotient,
    differences_by_color,
    differences_of_columns,
    is_tiny,
)
from kernelab.autodiff.jacobians.jacobian import Jacobian, Selection, Trace, tangents_of_columns
from kernelab.autodiff.jacobians.sparse import (
    ChangedError,
    Compressed,
    Problem,
    by_rows,
    by_tangents,
    compressed,
    dtype_of,
)
from kernelab.autodiff.jacobians.subject import Subject, Variable
from kernelab.autodiff.rule_checks.interpreted import Noisy
from kernelab.autodiff.transforms.base_level import BASE
from kernelab.autodiff.transforms.levels import Level
from kernelab.autodiff.transforms.wide_level import Wide
from kernelab.data_classes import dataclass
from kernelab.errors import GradientError, KernelError
from kernelab.runtime.context.recorder import refusal

DOUBLE = float(np.finfo(np.float64).eps)

SCALES = (1.0, 1e-2, 1e-4)
"""Which steps are tried where a first difference disagrees with the adjoint, relative to the first."""

FINEST = 1e-10
"""The scale of steps at which a function still has a slope that turns within larger ones, as sin(1e9 x)."""

UNEVEN, STAYS = 1e-3, 0.1
"""By how much the slopes of the two sides differ at a kink, relative to their size, and by what share of that
they may change with a smaller step."""

SCATTER = 0.1
"""By how much differences around a step scatter at most where they show a slope."""

SAME = 0.01
"""How far apart differences at two steps are at most, relative to their distance from the adjoint."""

MOST_ENTRIES = 1 << 25
"""The entries of the largest matrix: with it and its like, a check takes 2 GB."""

_NO_NUMBERS = np.zeros(0, np.int64)

NOISES, DRAWS = (1e-10, 1e-7), 3
"""By how much intermediate values are changed to see what they are terms of, and how often."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Differences at a step, and over which range they scatter around that step."""

    numeric: Floats
    lowest: Floats
    highest: Floats

    @property
    def is_slope(self) -> Any:
        """Where differences hardly scatter, and are not 0."""
        return self.highest - self.lowest < SCATTER * np.minimum(np.abs(self.lowest), np.abs(self.highest))


class Pair:
    """Some entries of one Jacobian by the adjoint and by differences, at `rows` and `columns`.

    `adjoint` is as the kernel computes it, to a precision of which 1 and the next float differ by `epsilon`;
    `exact` is the adjoint in float64.  The entries are all those of a pattern, or `is_part` of the matrix, of
    which the first rows and columns were looked at that `block` counts.  `bend` is the slope to the right of
    an input less that to the left.  `undecided` are entries that differences cannot decide, and `terms` is
    the size of what the adjoint adds up, where it has been looked at.
    """

    def __init__(
        self,
        input: Variable,
        output: Variable,
        adjoint: Floats,
        exact: Floats,
        epsilon: float,
        slopes: Floats,
        places: Any,
        is_part: bool = False,
        block: tuple[int, int] | None = None,
    ) -> None:
        self.input, self.output = input, output
        self.adjoint = adjoint.astype(np.float64)
        self.exact = exact.astype(np.float64)
        self.epsilon = epsilon
        self.numeric, self.bend = slopes
        self.rows, self.columns = places
        self.is_part, self.block = is_part, block or (output.count, input.count)
        self.undecided = np.zeros(self.adjoint.shape, np.bool_)
        self.terms = np.zeros(self.adjoint.shape)

    @property
    def entries(self) -> int:
        """The number of compared entries; those outside of the pattern are zero in both."""
        return len(self.rows) if self.is_part else self.input.count * self.output.count

    def place(self, k: int) -> tuple[int, int]:
        """The row and column of an entry."""
        return int(self.rows[k]), int(self.columns[k])

    def matrix(self, values: Floats) -> Jacobian:
        """Values of the entries as a Jacobian."""
        block = np.zeros(self.block)
        block[self.rows, self.columns] = values
        return Jacobian(block, self.input, self.output)


class Witnesses(ABC):
    """Three ways to the same entries; `pairs` holds two of them."""

    pairs: list[Pair]

    def estimates(self, k: int, mask: Any) -> list[Estimate]:
        """The differences of pair `k` at several steps, at least of the entries in `mask`."""
        scales = (*SCALES, OWN_SIZE) if is_tiny(self.pairs[k].input.elements) else SCALES
        return [self.estimate(k, mask, scale) for scale in scales]

    def estimate(self, k: int, mask: Any, scale: float) -> Estimate:
        """The differences of pair `k` at a step, at least of the entries in `mask`."""
        return Estimate(*self.quotients(k, mask, scale, SCATTERED))

    def correct_step(self, k: int, agreed: Any, eps: float) -> None:
        """Give entries of pair `k` that `agreed` at a step that says nothing the slope that others show.

        It is too large where two smaller steps show one slope, and the adjoint is another; or so small that
        the outputs' last digits hide that slope.
        """
        pair = self.pairs[k]
        if not agreed.any():
            return
        slopes = [self.quotients(k, agreed, scale, SIDED)[0] for scale in SCALES]
        steps, sizes = self.quotients(k, agreed, SCALES[0], SIZES)
        for scale, (wide, close) in zip(SCALES, pairwise(slopes), strict=False):
            mask = agreed & (np.abs(wide - close) <= SAME * np.abs(close - pair.exact))
            mask &= (eps > scale * steps) | (DOUBLE * sizes / eps > SAME * np.abs(close))
            if mask.any() and (mask := mask & self.estimate(k, mask, scale).is_slope).any():
                pair.numeric = np.where(mask, close, pair.numeric)

    def correct_tiny(self, k: int, agreed: Any) -> None:
        """Give entries of tiny inputs that `agreed` at far larger steps the slope at steps of their size."""
        pair = self.pairs[k]
        if is_tiny(pair.input.elements) and agreed.any():
            estimate = self.estimate(k, agreed, OWN_SIZE)
            mask = (
                agreed
                & estimate.is_slope
                & (np.abs(estimate.numeric - pair.exact) > SAME * np.abs(estimate.numeric))
            )
            pair.numeric = np.where(mask, estimate.numeric, pair.numeric)

    def sharpest_kink(self, k: int) -> int | None:
        """The entry of pair `k` with the sharpest kink: the slopes of its two sides differ at any step."""
        pair = self.pairs[k]
        bend = np.where(np.isfinite(pair.bend), pair.bend, 0.0)
        mask = np.abs(bend) > UNEVEN * (np.abs(pair.numeric) + np.abs(bend))
        if not mask.any():
            return None
        _, closer = self.quotients(k, mask, SCALES[1], SIDED)
        mask &= np.abs(closer - bend) <= STAYS * np.abs(bend)
        pair.bend = np.where(mask, closer, bend)
        return int(np.argmax(np.where(mask, np.abs(bend), 0.0))) if mask.any() else None

    def terms(self, indices: Sequence[int]) -> list[Floats]:
        """The size of the terms that each entry of the adjoint of some pairs is a sum of.

        All intermediate values are changed in their last digits, by more and by less: an entry that moves by
        more and by less is a sum of large terms, one that moves by the same is at a jump.
        """
        draws = [[self._movements(indices, noise, seed) for noise in NOISES] for seed in range(DRAWS)]
        by_pair = zip(*(map(np.minimum, *both) for both in draws), strict=True)
        return [np.max(sizes, axis=0) for sizes in by_pair]

    def _movements(self, indices: Sequence[int], noise: float, seed: int) -> list[Floats]:
        """By how much the entries of some pairs move under noise, relative to it.

        Where the noise takes the adjoint another way than its primal went, to values that were not kept, none
        of them is known to be such a sum.
        """
        try:
            perturbed = self.adjoints(Noisy(noise, seed), indices)
        except KernelError:
            return [np.zeros_like(self.pairs[k].exact) for k in indices]
        pairs = zip(perturbed, indices, strict=True)
        return [np.abs(one - self.pairs[k].exact) / noise for one, k in pairs]

    @abstractmethod
    def adjoints(self, base: Level, indices: Sequence[int]) -> list[Floats]:
        """The adjoint's entries of some pairs over a level, which says in which precision."""

    @abstractmethod
    def quotients(self, k: int, mask: Any, scale: float, quotient: Quotient) -> Floats:
        """The quotients of pair `k` at another step, a row each, at least of the entries in `mask`."""

    def tangents(self) -> list[Floats] | None:
        """The tangent's entries, None where there is no tangent: then there is one witness less."""
        try:
            return self.by_tangents()
        except (KernelError, ChangedError):  # what has an adjoint may have no tangent
            return None

    @abstractmethod
    def by_tangents(self) -> list[Floats]:
        """The tangent's entries; raises an error where there is no tangent."""


def by_pattern(subject: Subject, selection: Selection, eps: float | None) -> Witnesses | None:
    """The entries of the patterns; None where that is not much less work than all entries."""
    if selection.max_inputs <= 0 and selection.max_outputs <= 0:
        try:
            problem = Problem(subject)
            positions = selection.pairs(subject.sources, problem.targets)
            parts = [compressed(problem, i, j) for i, j in positions]
            sparse = [part for part in parts if part is not None]
            if len(sparse) == len(parts):
                return _Compressed(problem, positions, sparse, eps)
        except ChangedError:
            pass  # the adjoint has entries that the pattern has not: then all are looked at
    return None


def _require_room(subject: Subject, targets: Sequence[Variable]) -> None:
    """Raise GradientError where a Jacobian has more entries than matrices of them should have."""
    for source, target in product(subject.sources, targets):
        if source.count * target.count > MOST_ENTRIES:
            count = f"{source.count * target.count:.1e} entries"
            message = f"d {target.label} / d {source.label} has {count}: too many to compare each"
            hint = 'check a launch of fewer threads, or leave it at fast="auto"'
            raise refusal(GradientError, message, "gradcheck", hint)


def _worst_rows(traces: Sequence[Trace], i: int, j: int, some: Numbers, slopes: Floats) -> Numbers:
    """The rows in which the adjoint of one of some columns is farthest from its slopes."""
    by_column = zip(some.tolist(), slopes, strict=True)
    found = [worst_rows(trace, i, j, *each) for each in by_column for trace in dict.fromkeys(traces)]
    return np.unique(np.concatenate(found))


Entries = tuple[int, int, Numbers, Numbers]
"""Input and output, by their positions, and the rows and columns that are looked at."""


class Listed(Witnesses):
    """All entries, or those of suspect columns in the rows where the adjoint is farthest from differences.

    Raises GradientError where all are too many.
    """

    def __init__(
        self,
        subject: Subject,
        selection: Selection,
        eps: float | None,
        suspects: Mapping[int, Numbers] | None = None,
    ) -> None:
        self.subject, own = subject, Trace(subject)
        exact = Trace(subject, Wide(BASE)) if own.epsilon > DOUBLE else own
        positions, is_all = selection.pairs(subject.sources, own.targets), suspects is None
        if suspects is None:
            _require_room(subject, own.targets)
            suspects = {i: np.arange(selection.columns(subject.sources[i])) for i, _ in positions}
        slopes = {
            i: differences_of_columns(subject, i, some, eps, 1.0, SIDED)[1] for i, some in suspects.items()
        }
        self.entries: list[Entries] = []
        for i, j in positions:
            rows, some = np.arange(selection.rows(own.targets[j])), suspects.get(i, _NO_NUMBERS)
            if not is_all and i not in suspects:
                rows = _NO_NUMBERS
            elif not is_all:
                rows = _worst_rows((exact, own), i, j, some, slopes[i][j][:, rows, 0])
            self.entries.append((i, j, rows, some))
        adjoints = (self._adjoints(trace, self.entries) for trace in (own, exact))
        self.pairs = []
        for (i, j, rows, some), adjoint, wide in zip(self.entries, *adjoints, strict=True):
            sided = slopes[i][j][:, rows].T.reshape(2, -1) if len(rows) else np.zeros((2, 0))
            places = np.repeat(rows, len(some)), np.tile(some, len(rows))
            block = (len(rows), len(some)) if is_all else None
            ends = subject.sources[i], own.targets[j]
            self.pairs.append(Pair(*ends, adjoint, wide, own.epsilon, sided, places, True, block))

    def _adjoints(self, trace: Trace, entries: Sequence[Entries]) -> list[Floats]:
        return [trace.rows(j, [i], rows)[i][:, some].ravel() for i, j, rows, some in entries]

    def adjoints(self, base: Level, indices: Sequence[int]) -> list[Floats]:
        return self._adjoints(Trace(self.subject, base), [self.entries[k] for k in indices])

    def quotients(self, k: int, mask: Any, scale: float, quotient: Quotient) -> Floats:
        i, j, rows, some = self.entries[k]
        wanted = mask.reshape(len(rows), len(some)).any(axis=0)
        slopes = differences_of_columns(self.subject, i, some[wanted], None, scale, quotient)[1][j]
        found = np.full((slopes.shape[-1], len(rows), len(some)), np.nan)
        found[..., wanted] = slopes[:, rows].T
        return found.reshape(len(found), -1)

    def by_tangents(self) -> list[Floats]:
        columns = {i: some for i, _, _, some in self.entries if len(some)}
        tangents = {i: tangents_of_columns(self.subject, i, some)[1] for i, some in columns.items()}
        return [
            tangents[i][j][:, rows].T.ravel().astype(np.float64) if len(rows) else np.zeros(0)
            for i, j, rows, _ in self.entries
        ]


class _Compressed(Witnesses):
    def __init__(
        self,
        problem: Problem,
        positions: Sequence[tuple[int, int]],
        parts: Sequence[Compressed],
        eps: float | None,
    ) -> None:
        self.problem, self.positions, self.parts = problem, list(zip(positions, parts, strict=True)), parts
        numeric = [self._differences(k, eps, 1.0, SIDED) for k in range(len(parts))]
        epsilon = problem.trace.epsilon
        own = exact = [by_rows(problem, i, j, part).data for (i, j), part in self.positions]
        if epsilon > DOUBLE:
            exact = self.adjoints(Wide(BASE), range(len(parts)))
        self.pairs = []
        for ((i, j), part), adjoint, values, slope in zip(self.positions, own, exact, numeric, strict=True):
            source, target = problem.subject.sources[i], problem.targets[j]
            places = part.pattern.rows, part.pattern.columns
            self.pairs.append(Pair(source, target, adjoint, values, epsilon, slope, places))

    def _differences(self, k: int, eps: float | None, scale: float, quotient: Quotient) -> Floats:
        (i, j), part = self.positions[k]
        places, problem = (part.pattern.rows, part.pattern.columns), self.problem
        return differences_by_color(problem.subject, i, j, part.columns, places, eps, scale, quotient).T

    def adjoints(self, base: Level, indices: Sequence[int]) -> list[Floats]:
        trace = Trace(self.problem.subject, base)
        entries = []
        for (i, j), part in [self.positions[k] for k in indices]:
            reading = part.reading("rows", dtype_of(trace.targets[j]))
            entries += [reading.read(values) for values in trace.products(j, reading.seeds, [i])]
        return entries

    def quotients(self, k: int, mask: Any, scale: float, quotient: Quotient) -> Floats:
        return self._differences(k, None, scale, quotient)

    def by_tangents(self) -> list[Floats]:
        entries = (by_tangents(self.problem, i, j, part, "columns").data for (i, j), part in self.positions)
        return [data.astype(np.float64) for data in entries]
