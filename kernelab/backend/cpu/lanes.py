"""Lanes: the threads that run one block together, and the values of their variables.

A frame belongs to a block: its lanes are the threads that entered it, in ascending order.  A value is a
NumPy array with one item a lane.  A frame finds an outer variable in the frame around it, and keeps the items
of its own lanes.  Must not know what any statement does.
"""

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from kernelab.lang.build import type_of
from kernelab.lang.ir import Atom, Atomic, AtomicKind, Const, Var
from kernelab.lang.rounding import rounded, widened
from kernelab.lang.types import scalar_of, shape_of

Numpy = np.ndarray[Any, Any]


class Frame:
    """The lanes of a block: `threads` are their numbers, `chosen` their places in the frame around."""

    __slots__ = ("_around", "_chosen", "_values", "threads")

    def __init__(self, threads: Numpy, around: "Frame | None" = None, chosen: Numpy | None = None) -> None:
        self.threads = threads
        self._around = around
        self._chosen = chosen
        self._values: dict[Var, Numpy] = {}

    def __len__(self) -> int:
        return len(self.threads)

    def inner(self) -> "Frame":
        """A frame for a block that all lanes enter."""
        return Frame(self.threads, self)

    def choose(self, places: Numpy) -> "Frame":
        """A frame for a block that only the lanes at some places enter."""
        return self.inner() if len(places) == len(self) else Frame(self.threads[places], self, places)

    def define(self, var: Var, value: Numpy) -> None:
        """Give a variable its values, broadcast to one a lane."""
        dtype = scalar_of(type_of(var)).dtype
        self._values[var] = self._spread(np.asarray(value).astype(dtype, copy=False), var)

    def operand(self, atom: Atom) -> Numpy:
        """The values of an atom; a constant has no axis for the lanes, but broadcasts over it."""
        if isinstance(atom, Const):
            return np.full(shape_of(atom.type), atom.value, scalar_of(atom.type).dtype)
        return self._lookup(atom)

    def values(self, atom: Atom) -> Numpy:
        """The values of an atom, one a lane."""
        return self._spread(self.operand(atom), atom)

    def _spread(self, value: Numpy, atom: Atom) -> Numpy:
        shape = (len(self), *shape_of(type_of(atom)))
        return value if value.shape == shape else np.broadcast_to(value, shape)

    def knows(self, atom: Atom) -> bool:
        """Whether an atom has values here."""
        frame: Frame | None = self
        while frame is not None and atom not in frame._values:
            frame = frame._around
        return frame is not None or isinstance(atom, Const)

    def places(self, atom: Atom) -> Numpy:
        """The values of an integer atom as int64, one a lane."""
        return self.values(atom).astype(np.int64)

    def _lookup(self, var: Var) -> Numpy:
        values = self._values.get(var)
        if values is None:
            assert self._around is not None, f"{var} has no value"
            outer = self._around._lookup(var)
            values = self._values[var] = outer if self._chosen is None else outer[self._chosen]
        return values


class LaneStack:
    """The stack of a `Save` and its `Restore`: one for each thread, as arrays whose first axis is depth."""

    def __init__(self, threads: int) -> None:
        self._depth = np.zeros(threads, np.int64)
        self._levels: list[Numpy] = []

    def push(self, threads: Numpy, values: list[Numpy]) -> None:
        """Put values, one a thread, on top of the stacks of these threads."""
        depth = self._depth[threads]
        needed = int(depth.max(initial=-1)) + 1
        if not self._levels:
            self._levels = [np.empty((0, len(self._depth), *v.shape[1:]), v.dtype) for v in values]
        if self._levels and needed > len(self._levels[0]):
            more = 2 * needed - len(self._levels[0])
            rooms = (np.empty((more, *level.shape[1:]), level.dtype) for level in self._levels)
            self._levels = [np.concatenate(pair) for pair in zip(self._levels, rooms, strict=True)]
        for level, value in zip(self._levels, values, strict=True):
            level[depth, threads] = value
        self._depth[threads] = depth + 1

    @property
    def nbytes(self) -> int:
        """The bytes in use."""
        return sum(level.nbytes for level in self._levels)

    def pop(self, threads: Numpy) -> list[Numpy]:
        """Take the values that are on top of the stacks of these threads."""
        depth = self._depth[threads] - 1
        assert (depth >= 0).all(), "a restore without a save"
        self._depth[threads] = depth
        return [level[depth, threads] for level in self._levels]


# ----------------------------------------------------------------------------------------------------- turns


_CHANGED: dict[AtomicKind, Callable[[Numpy, Numpy], Numpy]] = {
    "add": operator.add,
    "min": lambda old, value: np.where(value < old, value, old),
    "max": lambda old, value: np.where(value > old, value, old),
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "exch": lambda old, value: value,
}
"""The values of elements after an atomic, but for that of ``cas``, which compares them first."""


def in_turn(
    kind: AtomicKind, array: Numpy, places: tuple[Any, ...], values: Numpy, compare: Numpy | None
) -> Numpy:
    """Change elements, lane after lane; returns the value that each lane read there."""
    old = np.empty_like(values)
    for turn in _turns(array, places, len(values)):
        at = tuple(i[turn] if isinstance(i, np.ndarray) else i for i in places)
        old[turn] = array[at]
        before, value = old[turn], values[turn]
        if compare is None:
            array[at] = _CHANGED[kind](before, value)
        else:
            array[at] = np.where(before == compare[turn], value, before)
    return old


def _turns(array: Numpy, places: tuple[Any, ...], lanes: int) -> list[Numpy]:
    """The lanes in groups that touch no element twice: first those that come first to theirs, and so on."""
    address = np.zeros(lanes, np.int64)
    for index, stride in zip(places, array.strides, strict=False):
        address = address + index * stride
    order = np.argsort(address, kind="stable")
    starts = np.flatnonzero(np.diff(address[order], prepend=address[order][:1] - 1))
    lengths = np.diff(starts, append=lanes)
    turn = np.empty(lanes, np.int64)
    turn[order] = np.arange(lanes) - np.repeat(starts, lengths)
    by_turn = np.argsort(turn, kind="stable")
    return np.split(by_turn, np.cumsum(np.bincount(turn))[:-1]) if lanes else []


# ------------------------------------------------------------------------------------------------------ sums


class Sums:
    """Float64 accumulators of the elements that some additions go to, made when first needed.

    `arrays` are those of the launch that share no memory with others.
    """

    def __init__(self, additions: Iterable[Atomic], arrays: Mapping[Var, Numpy]) -> None:
        self._late = frozenset(stmt.array for stmt in additions if stmt.array in arrays)
        self._arrays = arrays
        self._sums: dict[Var, Numpy] = {}

    def add(self, stmt: Atomic, array: Numpy, places: tuple[Any, ...], values: Numpy) -> None:
        """Add values, one a lane, to elements of an array or to their accumulators."""
        if stmt.array not in self._late:
            np.add.at(array, places, values)
            return
        if stmt.array not in self._sums:
            self._sums[stmt.array] = np.zeros(self._arrays[stmt.array].shape)
        np.add.at(self._sums[stmt.array], places, values)

    def pending(self, array: Var, places: tuple[Any, ...]) -> Numpy | float:
        """What is still to be added to some elements of an array."""
        return self._sums[array][places] if array in self._sums else 0.0

    def settle(self) -> None:
        """Bring the sums to their elements."""
        with np.errstate(all="ignore"):
            for var, sums in self._sums.items():
                reached = sums != 0
                array = self._arrays[var]
                array[reached] = rounded(widened(array[reached]) + sums[reached], array.dtype)
