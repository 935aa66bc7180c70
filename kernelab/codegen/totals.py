"""Which sums are worth a running total: those whose element stays the same from one addition to the next.

    energy[0] += e                        in every thread:      energy_total += e
    for k in range(n): s[i] += x[k]       in every iteration:   s_total += x[k]

A float32 that sums ones stops at 2**24, a float16 at 2**11, a bfloat16 at 2**8: each addition is lost
against the sum.  A running total is a float64 that reaches its element once, when another element's turn
comes or the launch ends.  That is only done where nothing in the function looks at the array in between.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from kernelab.codegen.names import Names
from kernelab.lang.ir import (
    Alloc,
    Atom,
    Atomic,
    Block,
    For,
    Function,
    If,
    Let,
    Load,
    Native,
    Store,
    Var,
    While,
    atoms,
    defs,
    reads,
    walk,
)
from kernelab.lang.types import Array, Scalar, bfloat16, float16, float32, scalar_of


def totals(function: Function) -> tuple[Atomic, ...]:
    """The additions that go to a running total, in order."""
    if function.aliased:
        return ()
    looked_at = _looked_at(function)
    threads = {*function.threads} | ({function.linear} if function.linear is not None else set())
    return tuple(stmt for stmt in _steady(function.body, set(threads)) if _is_sum(stmt, looked_at))


def _looked_at(function: Function) -> frozenset[Var]:
    """The arrays whose elements matter before the launch ends, and those that belong to a thread."""
    used = frozenset(reads(function.body))
    found = set()
    for stmt in walk(function.body):
        match stmt:
            case Load(_, array) | Store(array) | Alloc(array):
                found.add(array)
            case Native():
                found |= {array for _, array in stmt.arrays}
            case Atomic(out, kind, array, held=held) if kind != "add" or (held is None and out in used):
                found.add(array)
    return frozenset(found)


def _is_sum(stmt: Atomic, looked_at: frozenset[Var]) -> bool:
    assert isinstance(stmt.array.type, Array)
    return stmt.array not in looked_at and scalar_of(stmt.array.type.elem) in (float16, bfloat16, float32)


def _steady(block: Block, changing: set[Atom]) -> Iterator[Atomic]:
    """The atomics of one element while `changing` are what differs between one turn and the next."""
    for stmt in block.stmts:
        match stmt:
            case Atomic(indices=indices) if not changing.intersection(indices):
                yield stmt
            case If(then=then, orelse=orelse):
                yield from _steady(then, changing)
                yield from _steady(orelse, changing)
            case For(index=index, carries=carries, body=body):
                yield from _steady(body, {index, *carries})
            case While(carries=carries, body=body):
                yield from _steady(body, {*carries})
        if not isinstance(stmt, Let) or changing.intersection(atoms(stmt)):
            changing.update(defs(stmt))


@dataclass(frozen=True, slots=True)
class Total:
    """The locals of a running total: the float64, and the address that it belongs to, at first none."""

    name: str
    place: str
    scalar: Scalar

    @property
    def helper(self) -> str:
        """The function that brings it to its element."""
        return f"settle{self.scalar.flavor}{self.scalar.bits}"

    @property
    def declared(self) -> str:
        return f"double {self.name} = 0.0; char* {self.place} = 0;"

    def moved(self, pointer: str) -> str:
        """The statement that makes it the total of the element at `pointer`."""
        return f"if ({self.place} != {pointer}) {self.settled[:-1]}, {self.place} = {pointer};"

    @property
    def settled(self) -> str:
        return f"{self.helper}({self.place}, {self.name});"


def total_of(stmt: Atomic, names: Names) -> Total:
    """The running total of an addition, with fresh names."""
    assert isinstance(stmt.array.type, Array)
    array, scalar = names(stmt.array), scalar_of(stmt.array.type.elem)
    return Total(names.fresh(f"{array}_total"), names.fresh(f"{array}_place"), scalar)
