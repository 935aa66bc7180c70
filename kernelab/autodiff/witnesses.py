"""What a gradient check asks: the adjoint, differences, and, where these disagree, the tangent.

Each gives the same entries of the same Jacobians: all of them, or where a pattern is known and few runs
suffice, those of the pattern.  That the adjoint has no others is then shown by its product with a random
vector.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kernelab.autodiff.differences import Floats, differences, differences_by_color
from kernelab.autodiff.jacobian import Jacobian, Selection, columns, jacobians
from kernelab.autodiff.sparse import ChangedError, Compressed, Problem, by_rows, by_tangents, compressed
from kernelab.autodiff.subject import Subject, Variable
from kernelab.errors import KernelError

SMALLER = 1e-4
"""How much smaller the step is where a first difference disagrees with the adjoint."""


class Pair:
    """The entries of one Jacobian by the adjoint and by differences; `known` says which both have.

    `places` are the rows and columns of the entries, None where they are those of the matrix.
    """

    def __init__(
        self,
        input: Variable,
        output: Variable,
        adjoint: Floats,
        numeric: Floats,
        known: Any,
        places: tuple[Any, Any] | None = None,
    ) -> None:
        self.input, self.output = input, output
        self.adjoint = adjoint.astype(np.float64)
        self.numeric = numeric
        self.known = known
        self.places = places

    @property
    def entries(self) -> int:
        """How many entries were compared; those that the pattern leaves out are zero in both."""
        return int(self.known.sum()) if self.places is None else self.input.count * self.output.count

    def place(self, k: int) -> tuple[int, int]:
        """The row and column of an entry."""
        if self.places is None:
            row, column = np.unravel_index(k, self.adjoint.shape)
            return int(row), int(column)
        return int(self.places[0][k]), int(self.places[1][k])

    def matrix(self, values: Floats) -> Jacobian:
        """Values of the entries as a Jacobian."""
        counts = self.output.count, self.input.count
        if self.places is not None:
            whole = np.zeros(counts)
            whole[self.places] = values
            return Jacobian(whole, self.input, self.output, *counts)
        shown = np.where(self.known, values, np.nan)
        rows, among = int(self.known.any(1).sum()), int(self.known.any(0).sum())
        return Jacobian(shown, self.input, self.output, rows, among)


class Witnesses(ABC):
    """Three ways to the same entries; `pairs` holds two of them."""

    pairs: list[Pair]

    @abstractmethod
    def closer(self, k: int, off: Any) -> Floats:
        """The differences of pair `k` with a much smaller step, at least of the entries that are `off`."""

    @abstractmethod
    def again(self) -> list[Floats]:
        """The adjoint's entries once more."""

    @abstractmethod
    def tangents(self) -> list[Floats] | None:
        """The tangent's entries, None where there is no tangent."""


def by_pattern(
    subject: Subject, selection: Selection, eps: float | None, labels: Sequence[str]
) -> Witnesses | None:
    """The entries of the patterns; None where that is not much less work than all entries."""
    if selection.max_inputs <= 0 and selection.max_outputs <= 0:
        try:
            problem = Problem(subject, labels)
            chosen = selection.pairs(subject.sources, problem.targets)
            parts = [compressed(problem, i, j) for i, j in chosen]
            known = [part for part in parts if part is not None]
            if len(known) == len(parts):
                return _Compressed(problem, chosen, known, eps)
        except ChangedError:
            pass  # the adjoint has entries that the pattern has not: then all are looked at
    return None


def of_all(
    subject: Subject,
    selection: Selection,
    eps: float | None,
    labels: Sequence[str],
    only: Mapping[int, Any] | None = None,
) -> Witnesses:
    """All entries; `only` those of some columns, by the position of the input."""
    return _Whole(subject, selection, eps, labels, only)


class _Whole(Witnesses):
    def __init__(
        self,
        subject: Subject,
        selection: Selection,
        eps: float | None,
        labels: Sequence[str],
        only: Mapping[int, Any] | None,
    ) -> None:
        self.arguments = subject, selection, labels
        self.only = only
        adjoint = jacobians(subject, selection, labels)
        if only is None:
            numeric: dict[Any, Jacobian] = differences(subject, selection, eps, labels=labels)
        else:
            some = [differences(subject, selection, eps, only=(i, w), labels=labels) for i, w in only.items()]
            numeric = {key: each for part in some for key, each in part.items()}
        self.keys = list(adjoint)
        self.pairs = []
        for key in self.keys:
            a, n = adjoint[key], numeric.get(key)
            known = a.evaluated.copy()
            if only is not None:
                i = subject.sources.index(a.input)
                known[:, np.setdiff1d(np.arange(known.shape[1]), only.get(i, ()))] = False
            values = np.full(a.shape, np.nan) if n is None else n.numpy()
            known = known if n is None else known & n.evaluated
            self.pairs.append(Pair(a.input, a.output, a.numpy(), values, known))

    def closer(self, k: int, off: Any) -> Floats:
        subject, selection, labels = self.arguments
        i = next(i for i, source in enumerate(subject.sources) if source is self.pairs[k].input)
        wanted = np.flatnonzero(off.any(axis=0)).tolist()
        found = differences(subject, selection, None, SMALLER, (i, wanted), labels)
        return found[self.keys[k]].numpy()

    def again(self) -> list[Floats]:
        found = jacobians(*self.arguments)
        return [found[key].numpy() for key in self.keys]

    def tangents(self) -> list[Floats] | None:
        try:
            found = columns(*self.arguments, self.only)
        except KernelError:  # what has an adjoint may have no tangent: then there is one witness less
            return None
        return [found[key].numpy().astype(np.float64) for key in self.keys]


class _Compressed(Witnesses):
    def __init__(
        self,
        problem: Problem,
        chosen: Sequence[tuple[int, int]],
        parts: Sequence[Compressed],
        eps: float | None,
    ) -> None:
        self.problem, self.chosen, self.parts = problem, list(zip(chosen, parts, strict=True)), parts
        numeric = [self._differences(k, eps, 1.0) for k in range(len(parts))]
        self.pairs = [
            Pair(
                problem.subject.sources[i],
                problem.targets[j],
                adjoint,
                n,
                np.ones(len(n), bool),
                (part.pattern.rows, part.pattern.columns),
            )
            for ((i, j), part), adjoint, n in zip(self.chosen, self.again(), numeric, strict=True)
        ]

    def _differences(self, k: int, eps: float | None, scale: float) -> Floats:
        (i, j), part = self.chosen[k]
        pattern = part.pattern
        problem = self.problem
        return differences_by_color(
            problem.subject, i, j, part.columns, (pattern.rows, pattern.columns), eps, scale, problem.labels
        )

    def closer(self, k: int, off: Any) -> Floats:
        return self._differences(k, None, SMALLER)

    def again(self) -> list[Floats]:
        return [by_rows(self.problem, i, j, part).data for (i, j), part in self.chosen]

    def tangents(self) -> list[Floats] | None:
        try:
            found = [by_tangents(self.problem, i, j, part, "columns").data for (i, j), part in self.chosen]
        except (KernelError, ChangedError):
            return None
        return [data.astype(np.float64) for data in found]
