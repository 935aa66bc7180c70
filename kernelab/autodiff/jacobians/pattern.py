"""The sparsity pattern of a Jacobian, found by propagating bits through programs.

One lane distinguishes 64 inputs, or blocks of them.  Where there are more than one pass can distinguish,
blocks are found first; then every block is split in 64, blocks that share no output together.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelab.autodiff.jacobians.subject import Subject, Variable
from kernelab.autodiff.records.adjoint_buffers import Argument, Extents
from kernelab.autodiff.transforms.base_level import BASE
from kernelab.autodiff.transforms.batch_level import Batch
from kernelab.autodiff.transforms.host_calls import HostCall
from kernelab.autodiff.transforms.levels import Level, within
from kernelab.data_classes import dataclass
from kernelab.lang.types import Scalar, bytes_of, is_differentiable, scalar_of, size_of, uint64
from kernelab.runtime.array.array import array
from kernelab.runtime.host.create import from_numpy
from kernelab.runtime.kernel.decorators import kernel
from kernelab.runtime.kernel.program import Program
from kernelab.runtime.kernel.texts import kernels_of
from kernelab.runtime.launch.launch import launch
from kernelab.runtime.memory.device import CPU
from kernelab.runtime.memory.memory import Allocation, allocate

Numbers = np.ndarray[Any, np.dtype[np.int32]]

if TYPE_CHECKING:
    Ints = Any
else:
    Ints = array[int]  # for the kernels; small patterns are coloured by the same text, over lists

FEW = 1 << 13
"""The number of entries up to which Python colours them before a kernel for it would be built."""

_kernel_of = cache(kernel)


def _columns_in_turn(
    row_starts: Ints, row_columns: Ints, column_starts: Ints, column_rows: Ints, taken: Ints, colors: Ints
) -> None:
    for column in range(len(colors)):
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


def _stars_in_turn(row_starts: Ints, row_columns: Ints, taken: Ints, colors: Ints) -> None:
    for v in range(len(colors)):
        for a in range(row_starts[v], row_starts[v + 1]):
            w = row_columns[a]
            if w < v:
                taken[colors[w]] = v + 1
            if w != v:
                for b in range(row_starts[w], row_starts[w + 1]):
                    x = row_columns[b]
                    if x < v and (w > v or colors[x] < colors[w]):
                        taken[colors[x]] = v + 1
        color = 0
        while taken[color] == v + 1:
            color += 1
        colors[v] = color


def _in_turn(function: Callable[..., None], *arguments: Numbers) -> Numbers:
    """Give colours one after another, each the least that is free, in one thread, to the last array."""
    if len(arguments[1]) <= FEW:
        lists = [numbers.tolist() for numbers in arguments]
        function(*lists)
        return np.array(lists[-1], np.int32)
    arrays = [from_numpy(numbers.astype(np.int32), device=CPU) for numbers in arguments]
    launch(_kernel_of(function), 1, arrays, record_tape=False)
    return arrays[-1].numpy()


def starts(sorted_keys: Numbers, count: int) -> Numbers:
    """The first entry of each of `count` sorted keys, and one past the last."""
    first = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(sorted_keys, minlength=count), out=first[1:])
    return first


def color_columns(rows: Numbers, columns: Numbers, shape: tuple[int, int]) -> Numbers:
    """A colour for each column of the pattern with entries at (rows, columns), sorted by row, from 0 up."""
    most = int(np.bincount(rows).max(initial=0))
    if most == 0:
        return np.zeros(shape[1], np.int32)
    # In a band every `most`-th column has the same colour.
    in_turns = np.arange(shape[1], dtype=np.int32) % most
    keys = rows.astype(np.int64) * most + columns % most
    if np.bincount(keys, minlength=1).max() == 1:
        return in_turns
    order = np.argsort(columns, kind="stable")
    return _in_turn(
        _columns_in_turn,
        starts(rows, shape[0]),
        columns,
        starts(columns, shape[1]),
        rows[order],
        np.zeros(shape[1] + 1, np.int32),
        np.zeros(shape[1], np.int32),
    )


def color_stars(rows: Numbers, columns: Numbers, size: int) -> Numbers:
    """A colour for each column of a symmetric pattern, so that no path over four of them has only two.

    Neighbours differ, and every three in a row whose ends agree have a middle of a lower colour, which is
    what the kernel keeps to: so four in a row cannot alternate.  The columns with most entries come first.
    """
    order = np.argsort(-np.bincount(columns, minlength=size), kind="stable")
    rank = np.empty(size, np.int32)
    rank[order] = np.arange(size)
    moved = np.lexsort((rank[columns], rank[rows]))
    taken, colors = np.zeros(size + 1, np.int32), np.zeros(size, np.int32)
    return _in_turn(_stars_in_turn, starts(rank[rows], size), rank[columns][moved], taken, colors)[rank]


# --------------------------------------------------------------------------------------------------- pattern


BITS = 64
MOST_LANES = 16
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


_UNITE = """
def unite(bits: array[uint64], more: array[uint64]):
    i = tid()
    bits[i] |= more[i]
"""


@cache
def _uniting() -> Program:
    return kernels_of(_UNITE, "<unite>")["unite"].program


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
        if not within(arguments, program.floats, self.seeded):
            self.parent.run(program, grid, arguments)
            return
        traced = program.dependencies
        floats = [elements for i in program.floats if isinstance(elements := arguments[i], array)]
        # What a program keeps for its adjoint is no array, and has no bits.
        if traced is None or len(floats) < len(program.floats):
            raise NotTraceableError
        changed = [elements for i in program.changed if isinstance(elements := arguments[i], array)]
        self.seeded.update(elements.allocation for elements in changed)
        self.parent.run(traced, grid, [*_scalars(arguments), *map(self.bits, floats)])

    def call_host(self, call: HostCall, arguments: Sequence[array]) -> list[array]:
        if any(elements.allocation in self.seeded for elements in arguments):
            raise NotTraceableError
        return self.parent.call_host(call, arguments)

    def move(self, dest: array, src: array, add: bool = False) -> None:
        self.parent.move(dest, src, add)
        if is_differentiable(dest.dtype) and not self.seeded.isdisjoint({dest.allocation, src.allocation}):
            bits, more = self.bits(dest), self.bits(src)
            self.parent.move(bits, self._united(bits, more) if add else more)
            self.seeded.add(dest.allocation)

    def _united(self, bits: array, more: array) -> array:
        """The bits that are set in one of two arrays, in memory of their own."""
        if any(stride == 0 < extent - 1 for stride, extent in zip(bits.strides, bits.shape, strict=True)):
            raise NotTraceableError  # an element that stands for several would need the bits of all of them
        united, more = self.parent.copy(bits), self.parent.copy(more)
        flat = [each.reshape(each.size) for each in (united, more)]
        self.parent.run(_uniting(), (united.size,), flat)
        return united


def _scalars(arguments: Sequence[Argument]) -> list[Argument]:
    """The arguments of a scalarised program: the components of a vector each on their own."""
    scalars: list[Argument] = []
    for arg in arguments:
        scalars += [arg[k : k + 8] for k in range(0, len(arg), 8)] if isinstance(arg, bytes) else [arg]
    return scalars


def patterns(subject: Subject, i: int) -> tuple[Sequence[Variable], list[Pattern]]:
    """The patterns of all outputs by one input; NotTraceableError where they cannot be found."""
    count, lanes = subject.sources[i].count, max(1, min(MOST_LANES, ROOM // max(2 * subject.nbytes, 1)))
    column, top = np.arange(count, dtype=np.int32), 0
    while (count - 1) >> 6 * top >= BITS * lanes:  # there are blocks of 64 to the power of `top`
        top += 1
    block = column >> 6 * top
    targets, words = _words(subject, i, block >> 6, block)
    lane, row, bit = _unpacked(words)
    row, blocks = _by_row(row, lane << 6 | bit)
    for level in reversed(range(top)):
        colors = color_columns(row, blocks, (words.shape[1], int(block[-1]) + 1))
        by_color = np.zeros((words.shape[1], int(colors.max()) + 1), np.int32)
        by_color[row, colors[blocks]] = blocks
        lane, block = colors[block], column >> 6 * level
        targets, words = _words(subject, i, lane, block)
        lane, row, bit = _unpacked(words)
        row, blocks = _by_row(row, by_color[row, lane] << 6 | bit)
    return targets, _by_output(row, blocks, targets, count)


def _by_row(row: Numbers, column: Numbers) -> tuple[Numbers, Numbers]:
    """Entries of a matrix, sorted by row and then by column."""
    place = row.astype(np.int64) << 32 | column
    place.sort(kind="stable")  # they come in a few runs that are sorted by row already
    return (place >> 32).astype(np.int32), place.astype(np.int32)


def _by_output(row: Any, column: Any, targets: Sequence[Variable], count: int) -> list[Pattern]:
    parts, first = [], 0
    for target in targets:
        start, stop = np.searchsorted(row, (first, first + target.count))
        parts.append(Pattern(row[start:stop] - first, column[start:stop], (target.count, count)))
        first += target.count
    return parts


def _words(subject: Subject, i: int, lane: Any, bit: Any) -> tuple[Sequence[Variable], Any]:
    """The bits of all outputs, lanes first; each number of an input has one bit, modulo 64, in one lane."""
    started, batch = subject.start(), Batch(BASE, int(lane.max()) + 1)
    level = Dependence(batch)
    seeds = np.zeros(batch.lanes * len(lane), np.uint64)
    seeds[lane * len(lane) + np.arange(len(lane))] = np.uint64(1) << (bit & BITS - 1).astype(np.uint64)
    source = started.inputs[i]
    level.seeded.add(source.allocation)
    with batch.active():
        batch.fill(level.bits(source), seeds)
        outputs = started.go(level)
    return subject.targets(outputs), np.concatenate([batch.numbers(level.bits(out)) for out in outputs], 1)


def _unpacked(words: Any) -> tuple[Numbers, Numbers, Numbers]:
    """The lane, row and number of every bit that is set."""
    at, pieces = np.flatnonzero(words), list[tuple[Any, Any, Any]]()
    left = words.ravel()[at]
    lane = (at // words.shape[1]).astype(np.int32)
    row = (at - np.multiply(lane, words.shape[1], dtype=np.int64)).astype(np.int32)
    while len(left):
        lowest = left & -left
        bit = np.frexp(lowest.astype(np.float64))[1] - 1
        pieces.append((lane, row, bit))
        left ^= lowest
        more = left != 0
        lane, row, left = lane[more], row[more], left[more]
    lanes, rows, bits = zip(*pieces, strict=True) if pieces else ([lane], [row], [lane])
    return np.concatenate(lanes), np.concatenate(rows), np.concatenate(bits)
