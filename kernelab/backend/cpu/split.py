"""Partition of large launches into parts that cores may share; the same parts on any number of cores.

A part is a box of the grid, and parts follow one another in the order of the threads.  A launch is cut if its
threads are proven to touch no element that another one changes (`passes/access/independence.py`), its arrays
share no memory, and it is large.  Since its parts are the same wherever they run, so is each bit.

Sums that all threads share do not keep a launch whole: each part has its own, and they are added up in the
order of the parts.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, product
from math import prod

from kernelab.backend.common.backends import Args, Part, slots_of
from kernelab.backend.common.reach import overlapping, repeated
from kernelab.codegen.cpp.entry import GRID_SLOTS, EntryInfo
from kernelab.codegen.cpp.wide_accumulators import shared_totals, wide
from kernelab.codegen.vectors.vector_emitter import CALL, SLOW
from kernelab.data_classes import dataclass
from kernelab.data_classes.turns import cached_property
from kernelab.lang import ir
from kernelab.lang.build import is_float
from kernelab.lang.ops import SHAPE
from kernelab.lang.types import int32
from kernelab.passes.access.independence import changed, separate

ENOUGH = 1 << 16
"""The statements of a part, at least: about 50 microseconds of scalar code."""

LONG = 4
"""By how much the parts of long launches are longer: to begin one takes some microseconds."""

FEWEST = 8
"""The parts of a launch, at least: fewer are done before another thread has woken."""

MOST = 256
"""The parts of a launch, about: enough for all cores to end together, few enough to cost nothing."""

ITERATIONS = 16
"""The number of times that a loop is taken to run where that depends on values."""

ROUND = 64
"""A part of a row has a multiple of so many threads, for vector code."""

MOST_THREADS = 1 << 31
"""With as many threads two of them have the same index."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The statements that a thread runs: its own, and those of loops, by the slot that says how often."""

    own: int
    loops: "tuple[tuple[int, Cost], ...]" = ()

    def at(self, slots: Sequence[int]) -> int:
        """How many they are in a launch."""
        return self.own + sum(_count(slots[slot]) * loop.at(slots) for slot, loop in self.loops)

    def times(self, n: int) -> "Cost":
        return Cost(n * self.own, tuple((slot, loop.times(n)) for slot, loop in self.loops))


def _count(slot: int) -> int:
    """The iterations that an int32 stands for."""
    low = slot & 0xFFFFFFFF
    return low if low < 1 << 31 else 0


def cost(function: ir.Function, info: EntryInfo) -> Cost:
    """What a thread of a function costs."""
    params = dict(zip(function.params, info.layout.params, strict=True))
    slots = {var: param.slot for var, param in params.items() if var.type == int32}
    for stmt in ir.walk(function.body):
        match stmt:
            case ir.Let(out, op, (ir.Var() as array, ir.Const(axis))) if op is SHAPE and array in params:
                slots[out] = params[array].slot + 1 + int(axis)
    return _cost(function.body, slots)


def _cost(block: ir.Block, slots: Mapping[ir.Var, int]) -> Cost:
    own, loops = 1, list[tuple[int, Cost]]()
    for stmt in block.stmts:
        inner = [_cost(inside, slots) for inside in ir.blocks(stmt)]
        match stmt:
            case ir.For(count=ir.Const(value)):
                inner = [inner[0].times(max(int(value), 0))]
            case ir.For(count=ir.Var() as count) if count in slots:
                loops.append((slots[count], inner.pop()))
            case ir.For() | ir.While():
                inner = [one.times(ITERATIONS) for one in inner]
        own += _weight(stmt) + sum(one.own for one in inner)
        loops += [loop for one in inner for loop in one.loops]
    return Cost(own, tuple(loops))


def _weight(stmt: ir.Stmt) -> int:
    """How many statements one counts for: none where it computes indices, several for a call."""
    if not isinstance(stmt, ir.Let):
        return 1
    if not is_float(stmt.out):
        return 0
    return CALL if "{m}" in (stmt.op.cpp or "") else SLOW.get(stmt.op.name, 1)


class Cut(tuple[Part, ...]):
    """The parts into which a launch is cut, in the order of its threads."""

    def boxes(self, sums: int) -> bytes:
        """Their boxes as entries read them (`entry.BOX`), each with so many sums that are zero."""
        if sums not in self._boxes:
            more = (int(sums > 0), *(0,) * (2 * sums))
            self._boxes[sums] = array("q", [slot for part in self for slot in (*part.box, *more)]).tobytes()
        return self._boxes[sums]

    @cached_property
    def _boxes(self) -> dict[int, bytes]:
        return {}

    def behind(self, done: int) -> "Cut":
        """What is left when so many threads have run: the part that these have begun, and those behind it."""
        first = bisect_right(self, done, key=lambda part: part.done) - 1
        return Cut((Part(self[first].box, done, True), *self[first + 1 :])) if self else self


class Split:
    """How launches of a function are cut.  Those of fewer than `fewest` threads never are."""

    def __init__(self, function: ir.Function, info: EntryInfo) -> None:
        self._function = function
        self._info = info
        self._cost = cost(function, info)
        self.fewest = self.fewest_of(1)
        self._known = b"", 1, Cut()

    def fewest_of(self, lanes: int) -> int:
        """The number of threads from which a launch may be cut."""
        least = FEWEST * ENOUGH * lanes
        return ROUND if self._cost.loops else least // self._cost.own

    def parts(self, args: Args, lanes: int) -> Cut:
        """The parts of a launch in the order of its threads, none if it is not cut.

        With vector code as many threads as it has lanes count about as one.
        """
        packed = bytes(args)
        if self._known[:2] != (packed, lanes):
            self._known = packed, lanes, self._parts(slots_of(args), lanes)
        return self._known[2]

    def _parts(self, slots: Sequence[int], lanes: int) -> Cut:
        threads = prod(slots[:GRID_SLOTS])
        count = threads * self._cost.at(slots) // (ENOUGH * lanes)
        if count < FEWEST or threads >= MOST_THREADS or not self.is_separate:
            return Cut()
        count = min(FEWEST + count // LONG, MOST)
        if repeated(self._info, slots) or overlapping(self._info.layout, self._changed, slots):
            return Cut()
        grid = slots[: self._info.coordinates] if self._info.coordinates > 1 else [threads]
        return parts_of(tuple(grid), count, self._info.descending)

    @cached_property
    def _changed(self) -> frozenset[str]:
        return frozenset(array.hint for array in changed(self._function))

    @cached_property
    def sums(self) -> int:
        """The number of sums that each part has."""
        return len(shared_totals(self._function))

    @cached_property
    def is_separate(self) -> bool:
        """Whether its threads may run at once."""
        function = self._function
        # What is added wide takes memory for whole arrays, in each part.
        if function.aliased or not function.threads or wide(function):
            return False
        summed = {stmt.array for stmt in shared_totals(function)}
        kinds = {type(stmt) for stmt in ir.walk(function.body)}
        return kinds.isdisjoint((ir.Native, ir.Print, ir.Append)) and separate(function, summed)


@lru_cache(32)
def parts_of(grid: tuple[int, ...], count: int, descending: bool) -> Cut:
    """About so many parts of a grid, in the order of its threads."""
    rows, axis = 1, 0
    while axis < len(grid) - 1 and rows * grid[axis] < count:
        rows, axis = rows * grid[axis], axis + 1
    step = -(-grid[axis] * rows // count)
    if axis == len(grid) - 1:
        step = -(-step // ROUND) * ROUND
    boxes = [*_boxes(grid, axis, max(step, 1))]
    sizes = [prod(behind - first for first, behind in zip(box[::2], box[1::2], strict=True)) for box in boxes]
    if descending:
        boxes, sizes = boxes[::-1], sizes[::-1]
    before = [0, *accumulate(sizes)]
    return Cut(Part(box, done) for box, done in zip(boxes, before, strict=False))


def _boxes(grid: tuple[int, ...], axis: int, step: int) -> Iterator[tuple[int, ...]]:
    """The boxes of single coordinates along the axes before one, and of `step` coordinates along that."""
    rest = [bound for extent in grid[axis + 1 :] for bound in (0, extent)]
    beyond = [0, 1] * (GRID_SLOTS - len(grid))
    for place in product(*map(range, grid[:axis])):
        before = [bound for at in place for bound in (at, at + 1)]
        for first in range(0, grid[axis], step):
            yield (*before, first, min(first + step, grid[axis]), *rest, *beyond)
