"""Uniformity analysis: how values vary between neighbouring threads, which decides what stays a scalar.

    i: linear      the last thread index, and its sums with uniform integers: one more in each next thread
    n: uniform     constants, parameters, outer thread indices, loop indices, and what is computed of these
    x[i]: varying  all else

Expects a scalarised function whose threads are independent: a load at a uniform place then is uniform.
"""

from collections.abc import Iterable, Iterator, Sequence
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


def variations(function: ir.Function) -> dict[ir.Var, Variation]:
    """The variation of each value of a function; arrays are left out."""
    walker = _Variations()
    for var in function.params:
        walker.kinds[var] = UNIFORM
    for thread in function.threads:
        walker.kinds[thread] = UNIFORM
    walker.kinds[function.threads[-1]] = LINEAR
    if function.linear is not None:
        walker.kinds[function.linear] = VARYING
    walker.block(function.body)
    return walker.kinds


def met_in_place(function: ir.Function) -> Iterator[ir.Atomic]:
    """The additions of all threads to one element which is also read or stored: each is rounded there.

    Those in branches that the thread indices alone decide are left out: one thread may take them.
    """
    looked_at, kinds = arrays_looked_at(function), variations(function)
    tests = {stmt.out: stmt.args for stmt in ir.walk(function.body) if isinstance(stmt, ir.Let)}

    def is_uniform(atom: ir.Atom) -> bool:
        return isinstance(atom, ir.Const) or kinds[atom] == UNIFORM

    def of_places(atom: ir.Atom) -> bool:
        args = tests.get(atom, (atom,)) if isinstance(atom, ir.Var) else ()
        varying = [arg for arg in args if not is_uniform(arg)]
        return bool(varying) and all(isinstance(arg, ir.Var) and kinds[arg] == LINEAR for arg in varying)

    def within(block: ir.Block) -> Iterator[ir.Atomic]:
        for stmt in block.stmts:
            if isinstance(stmt, ir.Atomic):
                is_kept = stmt.array not in looked_at and not function.aliased
                if stmt.kind == "add" and not is_kept and all(map(is_uniform, stmt.indices)):
                    yield stmt
            elif not isinstance(stmt, ir.If) or not of_places(stmt.cond):
                for inner in ir.blocks(stmt):
                    yield from within(inner)

    return within(function.body)


class _Variations:
    def __init__(self) -> None:
        self.kinds: dict[ir.Var, Variation] = {}

    def of(self, atom: ir.Atom) -> Variation:
        return UNIFORM if isinstance(atom, ir.Const) else self.kinds[atom]

    def most(self, atoms: Iterable[ir.Atom]) -> Variation:
        return UNIFORM if all(self.of(atom) == UNIFORM for atom in atoms) else VARYING

    def define(self, outs: Sequence[ir.Var], variation: Variation) -> None:
        self.kinds |= dict.fromkeys(outs, variation)

    def block(self, block: ir.Block) -> None:
        for stmt in block.stmts:
            self.stmt(stmt)

    def stmt(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Let():
                self.kinds[stmt.out] = self.operation(stmt)
            case ir.Load(out, _, indices, held=held):
                self.kinds[out] = self.most(indices) if held is None else self.of(held)
            case ir.Atomic(out, held=held):
                self.kinds[out] = VARYING if held is None else self.of(held)
            case ir.If():
                self.choice(stmt)
            case ir.For() | ir.While():
                self.loop(stmt)
            case ir.Alloc() | ir.Native() | ir.Call() | ir.Custom() | ir.Restore():
                self.define(ir.defs(stmt), VARYING)
            case ir.Store() | ir.Assert() | ir.Print() | ir.Save() | ir.Append():
                pass
            case _:
                assert_never(stmt)

    def operation(self, stmt: ir.Let) -> Variation:
        if stmt.op is SHAPE:
            return UNIFORM
        operands = [self.of(arg) for arg in stmt.args]
        if stmt.out.type == int32 and sum(operands) == LINEAR:
            is_shift = stmt.op.name == "add" or (stmt.op.name == "sub" and operands[0] == LINEAR)
            return LINEAR if is_shift else VARYING
        return self.most(stmt.args)

    def choice(self, stmt: ir.If) -> None:
        self.block(stmt.then)
        self.block(stmt.orelse)
        for out, yes, no in zip(stmt.outs, stmt.then.yields, stmt.orelse.yields, strict=True):
            self.kinds[out] = self.most((stmt.cond, yes, no))

    def loop(self, stmt: ir.Loop) -> None:
        if isinstance(stmt, ir.For):
            self.kinds[stmt.index] = UNIFORM
        diverges = self.diverges(stmt)
        for carry, init in zip(stmt.carries, stmt.inits, strict=True):
            self.kinds[carry] = VARYING if diverges else self.most((init,))
        while True:
            self.block(stmt.body)
            pairs = zip(stmt.carries, stmt.body.yields, strict=True)
            changed = [c for c, y in pairs if self.most((c, y)) != self.kinds[c]]
            if not changed:
                break
            self.define(changed, VARYING)
        for out, carry in zip(stmt.outs, stmt.carries, strict=True):
            self.kinds[out] = self.kinds[carry]

    def diverges(self, stmt: ir.Loop) -> bool:
        """Whether threads of a group may leave a loop at different times."""
        return isinstance(stmt, ir.While) or stmt.stop is not None or self.of(stmt.count) != UNIFORM
