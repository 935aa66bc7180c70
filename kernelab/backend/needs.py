"""What a thread of a launch keeps at most, known before it runs: from the extents and whole numbers given.

    for k < n                           at most n times
      save stack t_1: float32           4 n bytes of the arena
      append residual_1 t_2             n values

Numbers that a kernel computes of such are followed as intervals.  What it reads of arrays may be anything
that its type holds, so ``min(count[i], 64)`` is 64 at most, and an int8 127.  Where nothing bounds how often
a loop keeps something, nothing is known.  A fact of a function and the packed slots of a launch.
"""

import itertools
import struct
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kernelab.codegen.entry import GRID_SLOTS, Layout, layout_of
from kernelab.codegen.saving import record, widest_saved
from kernelab.lang.build import type_of
from kernelab.lang.ir import (
    Append,
    Atom,
    Block,
    Const,
    For,
    Function,
    If,
    Let,
    Restore,
    Save,
    Stmt,
    Var,
    While,
    blocks,
    walk,
)
from kernelab.lang.ops import SHAPE
from kernelab.lang.types import Array, Scalar, scalar_of

Interval = tuple[int, int]
"""The least and the largest value that a whole number may have."""

REMEMBERED = 64
"""So many launches of different sizes are remembered."""

ENDLESS = 2**31 - 1
"""A loop that may run so often is not bounded: that is what an int32 of which nothing is known says."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Bytes of the arena and values of each residual, a thread; `exact` if no thread can do with less."""

    arena: int
    residuals: dict[str, int]
    exact: bool


class Foresight:
    """What the launches of a function need, one after another."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._layout = layout_of(function)
        self._deciding = _deciding(function, self._layout)
        self._known: dict[tuple[int, ...], Needs | None] = {}

    def of(self, slots: Sequence[int]) -> Needs | None:
        """What a thread needs; None where that is not known."""
        key = tuple([slots[slot] for slot in self._deciding])
        if key not in self._known:
            if len(self._known) >= REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[key] = needs(self._function, self._layout, slots)
        return self._known[key]


def _deciding(function: Function, layout: Layout) -> list[int]:
    """The slots that hold extents and whole numbers."""
    found = list(range(GRID_SLOTS))
    for param in layout.params:
        match param.type:
            case Array(_, ndim) if not param.residual:
                found += range(param.slot + 1, param.slot + 1 + ndim)
            case Scalar() as scalar if scalar.is_int:
                found.append(param.slot)
    return found


def needs(function: Function, layout: Layout, slots: Sequence[int]) -> Needs | None:
    """What a thread of a launch needs; None where that is not known."""
    try:
        amount = _Counting(function, layout, slots).block(function.body)
    except _UnknownError:
        return None
    names = {stmt.array.hint for stmt in walk(function.body) if isinstance(stmt, Append)}
    return Needs(amount.peak, {name: amount.appended[name] for name in names}, amount.exact)


class _UnknownError(Exception):
    """How much is kept depends on values that only the launch will see."""


@dataclass(frozen=True, slots=True)
class _Amount:
    """By how many bytes the arena grows at most, and how far it does meanwhile; what is appended at most."""

    net: int = 0
    peak: int = 0
    appended: Counter[str] = field(default_factory=Counter)
    exact: bool = True

    @property
    def keeps(self) -> bool:
        return self.peak > 0 or bool(self.appended)

    def then(self, other: "_Amount") -> "_Amount":
        peak = max(self.peak, self.net + other.peak)
        appended = self.appended + other.appended
        return _Amount(self.net + other.net, peak, appended, self.exact and other.exact)

    def either(self, other: "_Amount") -> "_Amount":
        exact = self == other and self.exact
        net, peak = max(self.net, other.net), max(self.peak, other.peak)
        return _Amount(net, peak, self.appended | other.appended, exact)

    def times(self, least: int, most: int) -> "_Amount":
        """As often as that, one after another."""
        if most == 0:
            return _Amount()
        appended = Counter({name: most * count for name, count in self.appended.items()})
        exact = self.exact and (least == most or self == _Amount())
        if self.net > 0:
            return _Amount(most * self.net, (most - 1) * self.net + self.peak, appended, exact)
        return _Amount(least * self.net, self.peak, appended, exact)


class _Counting:
    """Walks a function; `known` are the intervals of whole numbers."""

    def __init__(self, function: Function, layout: Layout, slots: Sequence[int]) -> None:
        self._widest = widest_saved(function.body)
        self._extents: dict[Var, list[int]] = {}
        self.known: dict[Var, Interval] = {}
        for var, param in zip(function.params, layout.params, strict=True):
            if isinstance(var.type, Array):
                self._extents[var] = list(slots[param.slot + 1 : param.slot + 1 + var.type.ndim])
            elif isinstance(var.type, Scalar) and var.type.is_int:
                low = struct.pack("=q", slots[param.slot])[: var.type.bits // 8]
                value = int.from_bytes(low, sys.byteorder, signed=var.type.kind == "int")
                self.known[var] = (value, value)
        extents = list(slots[:GRID_SLOTS])
        total = extents[0] * extents[1] * extents[2] * extents[3]
        for var, extent in zip(function.threads, extents, strict=False):
            self.known[var] = (0, max((extent if len(function.threads) > 1 else total) - 1, 0))
        if function.linear is not None:
            self.known[function.linear] = (0, max(total - 1, 0))

    def block(self, block: Block) -> _Amount:
        amount = _Amount()
        for stmt in block.stmts:
            amount = amount.then(self.stmt(stmt))
        return amount

    def stmt(self, stmt: Stmt) -> _Amount:
        match stmt:
            case Let():
                self.let(stmt)
            case Save(_, atoms):
                size = self.size(atoms)
                return _Amount(size, size)
            case Restore(_, outs):
                return _Amount(-self.size(outs))
            case Append(array):
                return _Amount(appended=Counter([array.hint]))
            case If(outs, _, then, orelse):
                amount = self.block(then).either(self.block(orelse))
                for out, yes, no in zip(outs, then.yields, orelse.yields, strict=True):
                    self.learn(out, _union(self.value(yes), self.value(no)))
                return amount
            case For():
                return self.loop(stmt)
            case While(body=body):
                return self.repeated(self.block(body), None)
            case _:
                return self.inside(stmt)
        return _Amount()

    def inside(self, stmt: Stmt) -> _Amount:
        """Of what else has blocks, nothing may be kept."""
        if any(self.block(block).keeps for block in blocks(stmt)):
            raise _UnknownError
        return _Amount()

    def size(self, atoms: Sequence[Atom]) -> int:
        types = [type_of(atom) for atom in atoms]
        return record([type for type in types if isinstance(type, Scalar)], self._widest)[1]

    def loop(self, stmt: For) -> _Amount:
        count = self.value(stmt.count)
        if count is not None:
            count = (0 if stmt.stop is not None else max(count[0], 0), max(count[1], 0))
            self.known[stmt.index] = (0, max(count[1] - 1, 0))
        return self.repeated(self.block(stmt.body), count)

    def repeated(self, amount: _Amount, count: Interval | None) -> _Amount:
        """An unknown number of times, what only takes from the arena may be done."""
        if count is not None and count[1] < ENDLESS:
            return amount.times(*count)
        if amount.keeps:
            raise _UnknownError
        return _Amount()

    # ---------------------------------------------------------------------------------------- numbers

    def value(self, atom: Atom) -> Interval | None:
        if not _is_whole(atom):
            return None
        if isinstance(atom, Const):
            return int(atom.value), int(atom.value)
        return self.known.get(atom) or _held(atom)

    def learn(self, out: Var, found: Interval | None) -> None:
        """Note what a number may be, if no value of it wraps around."""
        if found is None or not _is_whole(out):
            return
        least, most = _held(out)
        if least <= found[0] <= found[1] <= most:
            self.known[out] = found

    def let(self, stmt: Let) -> None:
        if stmt.op is SHAPE:
            array, axis = stmt.args
            if isinstance(array, Var) and array in self._extents and isinstance(axis, Const):
                extent = self._extents[array][int(axis.value)]
                self.learn(stmt.out, (extent, extent))
            return
        if _is_whole(stmt.out):
            self.learn(stmt.out, _applied(stmt.op.name, [self.value(arg) for arg in stmt.args]))


def _is_whole(atom: Atom) -> bool:
    return isinstance(atom.type, Scalar) and atom.type.is_int


def _held(atom: Atom) -> Interval:
    """The least and the largest number of a type."""
    held = np.iinfo(scalar_of(type_of(atom)).dtype)
    return int(held.min), int(held.max)


def _union(a: Interval | None, b: Interval | None) -> Interval | None:
    return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))


def _applied(name: str, values: Sequence[Interval | None]) -> Interval | None:
    """What an operation makes of intervals; None where it may be anything."""
    match name, values:
        case "where", (_, yes, no):
            return _union(yes, no)
        case "add", ((a, b), (c, d)):
            return a + c, b + d
        case "sub", ((a, b), (c, d)):
            return a - d, b - c
        case "mul", ((a, b), (c, d)):
            products = [x * y for x, y in itertools.product((a, b), (c, d))]
            return min(products), max(products)
        case "neg", ((a, b),):
            return -b, -a
        case "min", ((a, b), (c, d)):
            return min(a, c), min(b, d)
        case "max", ((a, b), (c, d)):
            return max(a, c), max(b, d)
        case "floordiv", ((a, b), (c, d)) if c > 0:
            quotients = [x // y for x, y in itertools.product((a, b), (c, d))]
            return min(quotients), max(quotients)
        case "mod", ((a, b), (c, d)) if c > 0:
            if a // c == b // c and c == d:
                return a % c, b % c
            return 0, d - 1
        case (("int8" | "int16" | "int32" | "int64" | "uint8" | "uint16" | "uint32" | "uint64"), ((a, b),)):
            return a, b
        case _:
            return None
