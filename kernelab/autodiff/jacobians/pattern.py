"""The sparsity pattern of a Jacobian, found by propagating bits through programs.

Sixty-four inputs, or blocks of them, are told apart in one lane.  Where there are more than one pass can
tell, blocks are found first; then every block is split in 64, blocks that share no output together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from kernelab.autodiff.jacobians.subject import Subject, Variable
from kernelab.autodiff.records.programs import Argument, Extents, Program
from kernelab.autodiff.transforms.batch_level import Batch
from kernelab.autodiff.transforms.levels import BASE, Level, known
from kernelab.errors import Source
from kernelab.lang.types import Scalar, bytes_of, is_differentiable, scalar_of, size_of, uint64
from kernelab.runtime.array.array import array
from kernelab.runtime.host.create import from_numpy
from kernelab.runtime.kernel.kernel import Kernel, compile_source
from kernelab.runtime.launch.launch import launch
from kernelab.runtime.memory.device import CPU
from kernelab.runtime.memory.memory import Allocation, allocate

Numbers = np.ndarray[Any, np.dtype[np.int32]]

_TEXT = """
def color_columns(row_starts: array[int], row_columns: array[int], column_starts: array[int],
                  column_rows: array[int], taken: array[int], colors: array[int]):
    for column in range(colors.shape[0]):
        for a in range(column_starts[column], column_starts[column + 1]):
            row = column_rows[a]
            for b in range(row_starts[row], row_starts[row + 1]):
                other = row_columns[b]
                if other < column:
                    taken[colors[other]] = column + 1
        color = 0
        while taken[color] == column + 1:
            color += 1
        colors[column] = color

def color_stars(row_starts: array[int], row_columns: array[int], taken: array[int], colors: array[int]):
    for v in range(colors.shape[0]):
        for a in range(row_starts[v], row_starts[v + 1]):
            w = row_columns[a]
            if w < v:
                taken[colors[w]] = v + 1
            if w != v:
                for b in range(row_starts[w], row_starts[w + 1]):
                    x = row_columns[b]
                    if x < v:
                        if w > v or colors[x] < colors[w]:
                            taken[colors[x]] = v + 1
        color = 0
        while taken[color] == v + 1:
            color += 1
        colors[v] = color
"""


@cache
def _kernel(name: str) -> Kernel:
    compiled = compile_source(Source(_TEXT, "kernelab coloring"))
    compiled.raise_errors()
    found = compiled.definitions[name]
    assert isinstance(found, Kernel)
    return found


def starts(sorted_keys: Numbers, count: int) -> Numbers:
    """The first entry of each of `count` sorted keys, and one past the last."""
    return np.searchsorted(sorted_keys, np.arange(count + 1)).astype(np.int32)


def color_columns(rows: Numbers, columns: Numbers, shape: tuple[int, int]) -> Numbers:
    """A colour for each column of the pattern with entries at (rows, columns), sorted by row, from 0 up."""
    colors = np.zeros(shape[1], np.int32)
    if len(rows) == 0:
        return colors
    order = np.argsort(columns, kind="stable")
    given = [
        starts(rows, shape[0]),
        columns.astype(np.int32),
        starts(columns[order], shape[1]),
        rows[order].astype(np.int32),
        np.zeros(shape[1] + 1, np.int32),
        colors,
    ]
    launch(
        _kernel("color_columns"), 1, [from_numpy(values, device=CPU) for values in given], record_tape=False
    )
    return colors


def color_stars(rows: Numbers, columns: Numbers, size: int) -> Numbers:
    """A colour for each column of a symmetric pattern, so that no path over four of them has only two.

    Neighbours differ, and every three in a row whose ends agree have a middle of a lower colour, which is
    what the kernel keeps to: so four in a row cannot alternate.  The columns with most entries come first.
    """
    order = np.argsort(-np.bincount(columns, minlength=size), kind="stable")
    rank = np.empty(size, np.int32)
    rank[order] = np.arange(size)
    moved = np.lexsort((rank[columns], rank[rows]))
    by_rank, colors = rank[rows][moved], np.zeros(size, np.int32)
    given = [starts(by_rank, size), rank[columns][moved], np.zeros(size + 1, np.int32), colors]
    launch(_kernel("color_stars"), 1, [from_numpy(values, device=CPU) for values in given], record_tape=False)
    return colors[rank]


# --------------------------------------------------------------------------------------------------- pattern


BITS = 64
MOST_LANES = 64
ROOM = 1 << 27
"""How many bytes the bits of all lanes may take."""


class NotTraceableError(Exception):
    """A program whose dependencies cannot be followed: the Jacobian is then computed whole."""


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """The possible entries of a Jacobian, sorted by row."""

    rows: Numbers
    columns: Numbers
    shape: tuple[int, int]


class Dependence(Level):
    """Runs programs with the bits of the arrays that they touch."""

    def __init__(self, parent: Level) -> None:
        super().__init__(parent)
        self.memories: dict[tuple[Allocation, Scalar], Allocation] = {}
        self.seeded: set[Allocation] = set()

    def bits(self, elements: array) -> array:
        """The bits of an array: the components of its elements are the last axis."""
        scalar = scalar_of(elements.dtype)
        times = bytes_of(uint64) // bytes_of(scalar)
        key = elements.allocation, scalar
        if key not in self.memories:
            self.memories[key] = allocate(
                times * elements.allocation.nbytes, cleared=True, beside=elements.allocation
            )
        strides = (*(times * stride for stride in elements.strides), bytes_of(uint64))
        shape = (*elements.shape, size_of(elements.dtype))
        return array.over(self.memories[key], times * elements.offset, shape, strides, uint64)

    def run(self, program: Program, grid: Extents, arguments: Sequence[Argument]) -> None:
        if not known(arguments, program.floats, self.seeded):
            self.parent.run(program, grid, arguments)
            return
        traced = program.dependencies
        if traced is None:
            raise NotTraceableError
        given = [elements for i in program.floats if isinstance(elements := arguments[i], array)]
        changed = [elements for i in program.changed if isinstance(elements := arguments[i], array)]
        self.seeded.update(elements.allocation for elements in changed)
        self.parent.run(traced, grid, [*_scalars(arguments), *map(self.bits, given)])

    def move(self, dest: array, src: array, add: bool = False) -> None:
        self.parent.move(dest, src, add)
        if is_differentiable(dest.dtype) and not self.seeded.isdisjoint({dest.allocation, src.allocation}):
            self.parent.move(self.bits(dest), self.bits(src))
            self.seeded.add(dest.allocation)


def _scalars(arguments: Sequence[Argument]) -> list[Argument]:
    """The arguments of a scalarised program: the components of a vector each on their own."""
    found: list[Argument] = []
    for given in arguments:
        found += [given[k : k + 8] for k in range(0, len(given), 8)] if isinstance(given, bytes) else [given]
    return found


def patterns(
    subject: Subject, i: int, labels: Sequence[str] = ()
) -> tuple[Sequence[Variable], list[Pattern]]:
    """The patterns of all outputs by one input; NotTraceableError where they cannot be found."""
    count, lanes = subject.sources[i].count, _most_lanes(subject)
    size = 1
    while -(-count // size) > BITS * lanes:
        size *= BITS
    column = np.arange(count)
    block = column // size
    targets, words = _words(subject, i, block // BITS, block % BITS, labels)
    row, lane, bit = _unpacked(words)
    found, blocks = lane * BITS + bit, -(-count // size)
    while size > 1:
        colors = color_columns(row.astype(np.int32), found.astype(np.int32), (words.shape[1], blocks))
        by_color = np.zeros((words.shape[1], int(colors.max()) + 1), np.int64)
        by_color[row, colors[found]] = found
        finer = size // BITS
        targets, words = _words(subject, i, colors[column // size], column % size // finer, labels)
        row, lane, bit = _unpacked(words)
        found, size = by_color[row, lane] * BITS + bit, finer
        blocks = -(-count // size)
    return targets, _by_output(row, found, targets, count)


def _by_output(row: Any, column: Any, targets: Sequence[Variable], count: int) -> list[Pattern]:
    order = np.lexsort((column, row))
    row, column = row[order], column[order]
    made, first = [], 0
    for target in targets:
        start, stop = np.searchsorted(row, (first, first + target.count))
        rows = (row[start:stop] - first).astype(np.int32)
        made.append(Pattern(rows, column[start:stop].astype(np.int32), (target.count, count)))
        first += target.count
    return made


def _most_lanes(subject: Subject) -> int:
    nbytes = 2 * sum(v.elements.allocation.nbytes for v in (*subject.sources, *(subject.outputs or ())))
    return max(1, min(MOST_LANES, ROOM // max(nbytes, 1)))


def _words(
    subject: Subject, i: int, lane: Any, bit: Any, labels: Sequence[str]
) -> tuple[Sequence[Variable], Any]:
    """The bits of all outputs, lanes first, where each number of an input has one bit in one lane."""
    started, batch = subject.start(), Batch(BASE, int(lane.max()) + 1)
    level = Dependence(batch)
    seeds = np.zeros((batch.lanes, len(lane)), np.uint64)
    seeds[lane, np.arange(len(lane))] = np.uint64(1) << bit.astype(np.uint64)
    source = started.inputs[i]
    level.seeded.add(source.allocation)
    with batch.active():
        batch.move(level.bits(source), batch.seeds(level.bits(source), seeds))
        found = started.go(level)
    parts = [batch.view(level.bits(out)).host().reshape(batch.lanes, -1) for out in found]
    return subject.targets(found, labels), np.concatenate(parts, 1)


def _unpacked(words: Any) -> tuple[Any, Any, Any]:
    """The row, lane and number of every bit that is set."""
    lane, row = np.nonzero(words)
    little = words[lane, row].astype("<u8")[:, None].view(np.uint8)
    entry, bit = np.nonzero(np.unpackbits(little, axis=1, bitorder="little"))
    return row[entry], lane[entry], bit
