"""Sparse Jacobians: columns or rows that share no entry are computed in one run.

The pattern is found once for a kernel or function, by the shapes of its arguments, and remembered.  One lane
more takes a random vector: its product must be that of the matrix found, in each row to the rounding of the
terms of that row, or the pattern is found again; of halves it is found each time.  Where no pattern can be
found, the Jacobian is computed whole.  That of a gradient is symmetric, and may need fewer columns still.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from kernelab.autodiff.jacobians.jacobian import (
    Entries,
    Jacobian,
    Jacobians,
    Selection,
    Trace,
    Values,
    jacobians,
    tangents,
)
from kernelab.autodiff.jacobians.pattern import (
    NotTraceableError,
    Numbers,
    Pattern,
    color_columns,
    color_stars,
    patterns,
    starts,
)
from kernelab.autodiff.jacobians.prepared import PreparedTangents, build_ahead, is_plain, prepared
from kernelab.autodiff.jacobians.subject import Subject, Variable
from kernelab.autodiff.transforms.base_level import BASE
from kernelab.autodiff.transforms.batch_level import Batch
from kernelab.data_classes import dataclass
from kernelab.data_classes.turns import cached_property
from kernelab.lang.rounding import epsilon
from kernelab.lang.types import scalar_of
from kernelab.runtime.array.array import array

Way = Literal["columns", "rows", "stars"]
"""What is computed together: columns, rows, or columns of a symmetric matrix."""

REMEMBERED = 64
"""For how many shapes of arguments a kernel keeps its patterns."""

SMALL = 1 << 16
"""How many entries a matrix has at least for which sparse="auto" looks for zeros."""

REVERSE_COST = 2.0
"""What a lane of adjoints costs, in lanes of tangents."""

ROUNDING = 64
"""The largest error of a product that is allowed, in units in the last place of its terms."""


class Compressed:
    """A pattern with its colours by columns and by rows; `symmetric` says that the matrix is."""

    def __init__(self, pattern: Pattern, symmetric: bool = False) -> None:
        self.pattern = pattern
        self.symmetric = symmetric
        self._readings: dict[Any, Reading] = {}
        self._launches: dict[Any, PreparedTangents | None] = {}

    @cached_property
    def stars(self) -> "Stars | None":
        """A colouring that takes fewer runs because the matrix is symmetric, None where none does."""
        pattern = self.pattern
        if not self.symmetric or not _is_symmetric(pattern):
            return None
        colors = color_stars(pattern.rows, pattern.columns, pattern.shape[0])
        return Stars.of(pattern, colors) if _colors(colors) < self.lanes else None

    @cached_property
    def columns(self) -> Numbers:
        return color_columns(self.pattern.rows, self.pattern.columns, self.pattern.shape)

    @cached_property
    def rows(self) -> Numbers:
        order = np.argsort(self.pattern.columns, kind="stable")
        pattern = self.pattern
        return color_columns(pattern.columns[order], pattern.rows[order], pattern.shape[::-1])

    @cached_property
    def is_by_columns(self) -> bool:
        """Whether tangents take fewer runs; no colours are looked for where they cannot be few enough."""
        both = self.pattern.rows, self.pattern.columns
        wide, high = (int(np.bincount(numbers).max(initial=0)) for numbers in both)
        if wide > REVERSE_COST * high and wide > REVERSE_COST * _colors(self.rows):
            return False
        colors = _colors(self.columns)
        return colors <= REVERSE_COST * high or colors <= REVERSE_COST * _colors(self.rows)

    @property
    def way(self) -> Way:
        """The mode that takes the fewest runs."""
        return "stars" if self.stars else "columns" if self.is_by_columns else "rows"

    @cached_property
    def lanes(self) -> int:
        """The number of runs that the matrix takes."""
        return _colors(self.columns if self.is_by_columns else self.rows)

    @property
    def runs(self) -> int:
        """The same, if the matrix is symmetric."""
        return self.lanes if self.stars is None else _colors(self.stars.colors)

    def reading(self, way: Way, dtype: Any) -> "Reading":
        """The plan that reads the matrix off runs along vectors of a dtype."""
        if (way, dtype) not in self._readings:
            self._readings[way, dtype] = self._read(way, dtype)
        return self._readings[way, dtype]

    def _read(self, way: Way, dtype: Any) -> "Reading":
        (height, width), rows, columns = self.pattern.shape, self.pattern.rows, self.pattern.columns
        match way:
            case "columns":
                where = _flat(self.columns[columns], height, rows)
                return Reading.of(self.columns, dtype, where, rows, columns)
            case "rows":
                where = _flat(self.rows[rows], width, columns)
                return Reading.of(self.rows, dtype, where, columns, rows)
            case "stars":
                assert self.stars is not None
                where = _flat(self.stars.lanes, height, self.stars.rows)
                return Reading.of(self.stars.colors, dtype, where, rows, columns)

    def launch(
        self, subject: Subject, i: int, j: int, way: Way, reading: "Reading"
    ) -> PreparedTangents | None:
        """The launch that makes the runs of a kernel, where it can be prepared."""
        if not is_plain(subject):
            return None
        key = way, subject.kernel
        if key not in self._launches:
            self._launches[key] = prepared(subject, i, j, reading.seeds)
        return self._launches[key]

    @cached_property
    def row_starts(self) -> Numbers:
        return starts(self.pattern.rows, self.pattern.shape[0])


def _is_symmetric(pattern: Pattern) -> bool:
    rows, columns = pattern.rows, pattern.columns
    order = np.lexsort((rows, columns))
    same = pattern.shape[0] == pattern.shape[1] and np.array_equal(columns[order], rows)
    return same and np.array_equal(rows[order], columns)


@dataclass(frozen=True, slots=True)
class Stars:
    """Colours of the columns of a symmetric matrix, and where in the runs each entry is found alone."""

    colors: Numbers
    lanes: Numbers
    rows: Numbers

    @staticmethod
    def of(pattern: Pattern, colors: Numbers) -> "Stars":
        rows, columns = pattern.rows, pattern.columns
        key = rows.astype(np.int64) * (_colors(colors) or 1) + colors[columns]
        _, which, counts = np.unique(key, return_inverse=True, return_counts=True)
        alone = counts[which] == 1
        return Stars(colors, np.where(alone, colors[columns], colors[rows]), np.where(alone, rows, columns))


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """The vectors of the runs that a matrix takes, and where in their results its entries stand.

    The last vector is a random one, whose result is a product with the matrix: `places` says to which element
    of it an entry adds, `factors` how often.
    """

    colors: Numbers
    seeds: Values
    where: Any
    places: Numbers
    factors: Values

    @staticmethod
    def of(colors: Numbers, dtype: Any, where: Any, places: Numbers, across: Numbers) -> "Reading":
        """One run for each colour; an entry is multiplied by what the random vector has at `across`."""
        seeds = seeds_of(colors, np.arange(_colors(colors) + 1, dtype=np.int32), dtype)
        return Reading(colors, seeds, where, places, seeds[-1][across].astype(np.float64))

    def entries(self, results: Values, is_proven: bool) -> Values:
        """The entries in the results of the runs; ChangedError if they do not make the product.

        `is_proven` says that the pattern was found for these very arguments: entries that are sums of larger
        terms may then differ from the product by the rounding of these, of which nobody knows the size.
        """
        data, product = self.read(results), results.reshape(len(self.seeds), -1)[-1]
        terms = data.astype(np.float64) * self.factors
        if not (_agree_by_matrix if is_proven else _agree_by_row)(self.places, terms, product):
            raise ChangedError
        return data

    def read(self, results: Values) -> Values:
        """The entries in the results of the runs."""
        data: Values = results.reshape(-1).take(self.where)
        return data


def seeds_of(colors: Numbers, runs: Numbers, dtype: Any) -> Values:
    """The vectors of some runs: a run for each colour, and a last one, whose vector is random."""
    seeds: Values = (colors == runs[:, None]).astype(dtype)
    seeds[runs == _colors(colors)] = np.random.default_rng(len(colors)).uniform(0.5, 1.5, len(colors))
    return seeds


def _flat(lanes: Numbers, width: int, at: Numbers) -> Any:
    """Indices of elements of some lanes among those of all lanes, which are `width` long."""
    return lanes.astype(np.intp) * width + at


def _colors(colors: Numbers) -> int:
    return int(colors.max(initial=-1)) + 1


class ChangedError(Exception):
    """The entries are not those of the pattern."""


def sparse_jacobians(subject: Subject, selection: Selection, always: bool = True) -> Jacobians:
    """The Jacobians in compressed rows; unless `always`, whole where that takes no more work."""
    whole: Jacobians | None = None
    problem = Problem(subject)
    problem.run_ahead()
    matrices: list[Jacobian] = []
    for i, j in selection.pairs(subject.sources, problem.targets):
        matrix = sparse_jacobian(problem, i, j, always)
        if matrix is None:
            whole = whole or jacobians(subject, selection)
            matrix = whole[subject.sources[i].key, problem.targets[j].key]
        matrices.append(matrix)
    return Jacobians(subject.name, matrices)


Parts = tuple[Compressed, ...]
"""The patterns by one input, for the outputs in order."""


class Problem:
    """A subject, which runs in reverse mode only where that is needed."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.proven: dict[int, Parts] = {}
        self._ahead: dict[Reading, list[Values]] = {}

    @cached_property
    def trace(self) -> Trace:
        return Trace(self.subject)

    @cached_property
    def targets(self) -> Sequence[Variable]:
        return self.trace.targets if self.subject.outputs is None else self.subject.outputs

    def run_ahead(self) -> None:
        """Run the tangents of a known pattern: the run shows the outputs of a function, too."""
        if self.subject.outputs is not None:
            return
        for i, (part, *_) in _kept(self.subject).items():
            if part.way != "rows":
                reading = part.reading(part.way, dtype_of(self.subject.sources[i]))
                self.targets, self._ahead[reading] = self._run(i, reading)
                return

    def patterns(self, i: int, anew: bool) -> Parts:
        """The patterns by input `i`: those remembered if the outputs are as many and as large, unless `anew`.

        Raises NotTraceableError where there are none; `proven` says which were found for these arguments.
        """
        if i in self.proven:
            return self.proven[i]
        kept, sizes = _kept(self.subject), [target.count for target in self.targets]
        if anew or i not in kept or [part.pattern.shape[0] for part in kept[i]] != sizes:
            targets, parts = patterns(self.subject, i)
            alone = self.subject.is_gradient and len(targets) == 1
            self.proven[i] = tuple(Compressed(part, alone) for part in parts)
            if self._is_coarse(i):
                return self.proven[i]
            kept[i] = self.proven[i]
        return kept[i]

    def _is_coarse(self, i: int) -> bool:
        """Whether there are halves, whose rounding hides from a product that a pattern has changed."""
        return any(dtype_of(variable).itemsize < 4 for variable in (self.subject.sources[i], *self.targets))

    def tangents(self, i: int, reading: "Reading") -> list[Values]:
        """The tangents of all outputs along the vectors of a reading."""
        ahead = self._ahead.pop(reading, None)
        return self._run(i, reading)[1] if ahead is None else ahead

    def adjoints(self, i: int, j: int, reading: "Reading") -> Values:
        """The adjoints of an input for the cotangents of an output in a reading."""
        (products,) = self.trace.products(j, reading.seeds, [i])
        return products

    def _run(self, i: int, reading: "Reading") -> tuple[Sequence[Variable], list[Values]]:
        return tangents(self.subject, Batch(BASE, len(reading.seeds)), i, reading.seeds)


def dtype_of(variable: Variable) -> np.dtype[Any]:
    """The dtype of the numbers in an input or output."""
    return scalar_of(variable.elements.dtype).dtype


def sparse_jacobian(problem: Problem, i: int, j: int, always: bool = True) -> Jacobian | None:
    """The Jacobian of output `j` with respect to input `i` in compressed rows; None without a pattern."""
    source, target = problem.subject.sources[i], problem.targets[j]
    if not always and source.count * target.count < SMALL:
        return None
    if is_plain(problem.subject) and i not in _kept(problem.subject) and source.count <= target.count:
        build_ahead(problem.subject, i, j)  # while the pattern is looked for
    anew = False
    while True:
        try:
            part = problem.patterns(i, anew)[j]
            if not always and 4 * part.runs > min(source.count, target.count):
                return None
            way = part.way
            asked = problem, i, j, part
            entries = by_rows(*asked) if way == "rows" else by_tangents(*asked, way)
            return Jacobian(entries, source, target)
        except NotTraceableError:
            return None
        except ChangedError:
            if i in problem.proven and not part.stars:
                return None
            if i in problem.proven:  # meant as a gradient, without a symmetric Jacobian: a surrogate, perhaps
                part.symmetric, part.stars = False, None
            anew = True


def compressed(problem: Problem, i: int, j: int) -> Compressed | None:
    """The pattern of a pair, None where there is none, or where the matrix takes no more work without."""
    source, target = problem.subject.sources[i], problem.targets[j]
    if source.count * target.count < SMALL:
        return None
    try:
        part = problem.patterns(i, anew=True)[j]
    except NotTraceableError:
        return None
    lanes = max(_colors(part.columns), _colors(part.rows))
    return part if 4 * lanes <= min(source.count, target.count) else None


def _kept(subject: Subject) -> dict[int, Parts]:
    """The patterns by position of the input that are known for arguments of these shapes."""
    stored: dict[Any, dict[int, Parts]] = subject.beside.setdefault("patterns", {})
    shapes = tuple(
        (a.shape, a.dtype, a.requires_grad) if isinstance(a, array) else a for a in subject.arguments
    )
    key = subject.grid, shapes, tuple(v.label for v in subject.outputs or ())
    try:
        by_input = stored.setdefault(key, {})
    except TypeError:  # a number given as a list or NumPy vector cannot be a key
        return {}
    if len(stored) > REMEMBERED:
        del stored[next(iter(stored))]
    return by_input


# ------------------------------------------------------------------------------------------ both ways


def by_tangents(problem: Problem, i: int, j: int, part: Compressed, way: Way) -> Entries:
    """The entries of output j by input i from tangents: a run along one vector for each group of columns."""
    dtype = dtype_of(problem.subject.sources[i])
    reading = part.reading(way, dtype)
    launch = part.launch(problem.subject, i, j, way, reading)
    products = None if launch is None else launch.run(problem.subject)
    if products is None:
        products = problem.tangents(i, reading)[j]
    # A proven pattern says nothing of symmetry.
    data = reading.entries(products, is_proven=way != "stars" and i in problem.proven)
    return Entries(part.row_starts, part.pattern.columns, data.astype(dtype, copy=False))


def by_rows(problem: Problem, i: int, j: int, part: Compressed) -> Entries:
    """The same from adjoints: a run with one cotangent for each group of rows."""
    reading = part.reading("rows", dtype_of(problem.targets[j]))
    data = reading.entries(problem.adjoints(i, j, reading), i in problem.proven)
    return Entries(part.row_starts, part.pattern.columns, data)


def _agree_by_row(places: Numbers, terms: Values, product: Values) -> bool:
    """Whether the terms of each row make its product, to their own rounding; never where one is infinite."""
    error, _ = _errors(places, terms, product)
    rounding = ROUNDING * epsilon(product.dtype)
    with np.errstate(invalid="ignore"):
        if (error <= rounding * np.abs(product)).all():  # as it nearly always is
            return bool(np.isfinite(product).all())
        return bool((error <= rounding * np.bincount(places, np.abs(terms), len(product))).all())


def _agree_by_matrix(places: Numbers, terms: Values, product: Values) -> bool:
    """Whether they do to the rounding of the largest of all rows, and are infinite in the same places."""
    error, sums = _errors(places, terms, product)
    finite = np.isfinite(sums)
    if not np.array_equal(finite, np.isfinite(product)):
        return False
    largest = np.bincount(places, np.abs(terms), len(product))[finite].max(initial=0.0)
    least = float(np.finfo(np.float64 if product.dtype == np.float64 else np.float32).tiny)
    return bool((error[finite] <= 2 * ROUNDING * epsilon(product.dtype) * largest + least).all())


def _errors(places: Numbers, terms: Values, product: Values) -> tuple[Values, Values]:
    sums = np.bincount(places, terms, len(product))
    with np.errstate(invalid="ignore", over="ignore"):
        return np.abs(sums - product.astype(np.float64)), sums
