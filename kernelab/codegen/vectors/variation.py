"""Uniformity analysis: how values vary between neighbouring threads, which decides what stays a scalar.

    i: linear      the last thread index, and its sums with uniform integers: one more in each next thread
    n: uniform     constants, parameters, outer thread indices, loop indices, and what is computed of these
    x[i]: varying  all else

Expects a scalarised function whose threads are independent: a load at a uniform place then is uniform.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import assert_never

from kernelab.codegen.cpp.wide_accumulators import arrays_looked_at
from kernelab.lang import ir
from kernelab.lang.ops import SHAPE
from kernelab.lang.types import int32


class Variation(IntEnum):
    """How a value differs between the threads of a group, in ascending order of what that takes."""

    UNIFORM = 0
    LINEAR = 1
    VARYING = 2


UNIFORM, LINEAR, VARYING = Variation

MOSTLY_LINEAR = frozenset({"add", "sub", "mod", "min", "max", "where"})
"""The operations on indices that keep neighbours beside each other, but at borders and on rings."""


Lets = Mapping[ir.Atom, ir.Let]


def lets_of(function: ir.Function) -> Lets:
    """The operations of a function, by their results."""
    return {let.out: let for let in ir.of_kind(function.body, ir.Let)}


def met_in_place(function: ir.Function) -> Iterator[ir.Atomic]:
    """The additions of all threads to one element which is also read or stored: each is rounded there.

    Those in branches that the thread indices alone decide are left out: one thread may take them.
    """
    looked_at, variations = arrays_looked_at(function), Variations(function)

    def of_places(atom: ir.Atom) -> bool:
        test = variations.lets.get(atom)
        kinds = {variations.of(arg) for arg in ((atom,) if test is None else test.args)}
        return kinds - {UNIFORM} == {LINEAR}

    def entered(stmt: ir.Stmt) -> tuple[ir.Block, ...]:
        return () if isinstance(stmt, ir.If) and of_places(stmt.cond) else ir.blocks(stmt)

    for stmt in ir.walk(function.body, entered):
        if isinstance(stmt, ir.Atomic) and stmt.kind == "add":
            is_kept = stmt.array not in looked_at and not function.aliased
            if not is_kept and variations.most(stmt.indices) == UNIFORM:
                yield stmt


class Variations:
    """How the values of a function vary; arrays are left out."""

    def __init__(self, function: ir.Function) -> None:
        self.lets = lets_of(function)
        self.kinds = dict.fromkeys((*function.params, *function.threads), UNIFORM)
        self.kinds[function.threads[-1]] = LINEAR
        if function.linear is not None:
            self.kinds[function.linear] = VARYING
        self._block(function.body)

    def of(self, atom: ir.Atom) -> Variation:
        """The variation of a value."""
        return UNIFORM if isinstance(atom, ir.Const) else self.kinds[atom]

    def is_mostly_linear(self, index: ir.Atom) -> bool:
        """Whether an index is likely to be one more in each next thread, but at borders and on rings."""
        let = self.lets.get(index)
        if let is None or let.op.name not in MOSTLY_LINEAR:
            return False
        varying = [arg for arg in let.args[let.op.name == "where" :] if self.of(arg) != UNIFORM]
        return bool(varying) and all(self.of(arg) == LINEAR or self.is_mostly_linear(arg) for arg in varying)

    def is_spaced(self, index: ir.Atom) -> bool:
        """Whether an index grows by the same number in each next thread, as ``2 * i + 1``."""
        let = self.lets.get(index)
        if let is None or let.op.name not in ("add", "sub", "mul"):
            return False
        varying = [arg for arg in let.args if self.of(arg) != UNIFORM]
        return len(varying) == 1 and (self.of(varying[0]) == LINEAR or self.is_spaced(varying[0]))

    def most(self, atoms: Iterable[ir.Atom]) -> Variation:
        """The variation of what is computed of values, but for sums."""
        return UNIFORM if all(self.of(atom) == UNIFORM for atom in atoms) else VARYING

    def _block(self, block: ir.Block) -> None:
        for stmt in block.stmts:
            self._stmt(stmt)

    def _stmt(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Let():
                self.kinds[stmt.out] = self._operation(stmt)
            case ir.Load(out, _, indices, held=held):
                self.kinds[out] = self.most(indices) if held is None else self.of(held)
            case ir.Atomic(out, held=held):
                self.kinds[out] = VARYING if held is None else self.of(held)
            case ir.If():
                self._choice(stmt)
            case ir.For() | ir.While():
                self._loop(stmt)
            case ir.Alloc() | ir.Native() | ir.Call() | ir.Custom() | ir.Restore():
                self.kinds |= dict.fromkeys(ir.defs(stmt), VARYING)
            case ir.Store() | ir.Assert() | ir.Print() | ir.Save() | ir.Append():
                pass
            case _:
                assert_never(stmt)

    def _operation(self, stmt: ir.Let) -> Variation:
        if stmt.op is SHAPE:
            return UNIFORM
        operands = [self.of(arg) for arg in stmt.args]
        if stmt.out.type == int32 and sum(operands) == LINEAR:
            is_shift = stmt.op.name == "add" or (stmt.op.name == "sub" and operands[0] == LINEAR)
            return LINEAR if is_shift else VARYING
        return self.most(stmt.args)

    def _choice(self, stmt: ir.If) -> None:
        self._block(stmt.then)
        self._block(stmt.orelse)
        for out, yes, no in zip(stmt.outs, stmt.then.yields, stmt.orelse.yields, strict=True):
            self.kinds[out] = self.most((stmt.cond, yes, no))

    def _loop(self, stmt: ir.Loop) -> None:
        if isinstance(stmt, ir.For):
            self.kinds[stmt.index] = UNIFORM
        diverges = self._diverges(stmt)
        for carry, init in zip(stmt.carries, stmt.inits, strict=True):
            self.kinds[carry] = VARYING if diverges else self.most((init,))
        while True:
            self._block(stmt.body)
            pairs = zip(stmt.carries, stmt.body.yields, strict=True)
            changed = [c for c, y in pairs if self.most((c, y)) != self.kinds[c]]
            if not changed:
                break
            self.kinds |= dict.fromkeys(changed, VARYING)
        for out, carry in zip(stmt.outs, stmt.carries, strict=True):
            self.kinds[out] = self.kinds[carry]

    def _diverges(self, stmt: ir.Loop) -> bool:
        """Whether threads of a group may leave a loop at different times."""
        return isinstance(stmt, ir.While) or stmt.stop is not None or self.of(stmt.count) != UNIFORM
