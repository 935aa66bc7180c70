"""Dependencies: computes, with each value of the primal, 64 bits for the inputs that it depends on.

    before    f(x, y)                  y[i] = x[i] * x[i + 1]
    after     f(x, y, x_dep, y_dep)    y[i] = x[i] * x[i + 1]; y_dep[i, 0] = x_dep[i, 0] | x_dep[i + 1, 0]

A bit stands for some of the inputs, whoever seeds it.  Bits flow where derivatives do: not through an
operation whose derivative is zero, nor through integers.  They are exact for the branches that are taken; a
selection (`where`, `min`) counts as depending on both sides.  Expects a scalarised function without calls.
"""

from collections.abc import Sequence
from dataclasses import replace

from kernelab.lang import ir
from kernelab.lang.build import type_of
from kernelab.lang.ops import Zero
from kernelab.lang.types import Array, int32, is_differentiable, size_of, uint64
from kernelab.passes.common.copying import Copier
from kernelab.passes.common.simplify import simplify

NONE = ir.Const(0, uint64)


def traceable(function: ir.Function) -> bool:
    """Whether bits can follow a function: its derivatives are those of its statements."""
    return not any(
        isinstance(stmt, ir.Custom | ir.Native)
        or (isinstance(stmt, ir.Atomic) and stmt.kind in ("exch", "cas"))
        for stmt in ir.walk(function.body)
    )


def dependencies(function: ir.Function) -> ir.Function:
    """The function with, for each array of floats, an array of bits: an axis more, of its components."""
    writer = _Dependencies()
    arrays = [p for p in function.params if isinstance(p.type, Array) and is_differentiable(p.type)]
    writer.bits = {param: _bits_of(param) for param in arrays}
    writer.stmts(function.body)
    params = (*function.params, *(writer.bits[array] for array in arrays))
    body = writer.builder.close()
    return simplify(replace(function, name=f"{function.name}_dependencies", params=params, body=body))


def _bits_of(array: ir.Var) -> ir.Var:
    assert isinstance(array.type, Array)
    return ir.Var(Array(uint64, array.type.ndim + 1), f"{array.hint}_dep", array.span)


class _Dependencies(Copier):
    """`bits` are the arrays of bits, `known` the bits of the values that have any."""

    def __init__(self) -> None:
        super().__init__()
        self.bits: dict[ir.Var, ir.Var] = {}
        self.known: dict[ir.Atom, ir.Atom] = {}

    def of(self, atom: ir.Atom) -> ir.Atom:
        return NONE if isinstance(atom, ir.Const) else self.known.get(atom, NONE)

    def united(self, atoms: Sequence[ir.Atom]) -> ir.Atom:
        found: ir.Atom = NONE
        for bits in dict.fromkeys(self.of(atom) for atom in atoms):
            if bits != NONE:
                found = bits if found == NONE else self.builder.apply("bit_or", found, bits)
        return found

    def place(self, stmt: ir.Load | ir.Store | ir.Atomic) -> tuple[ir.Atom, ...]:
        return (*self.atoms(stmt.indices), ir.Const(stmt.component or 0, int32))

    def stmt(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Print():
                pass
            case ir.Alloc(out, shape, span) if is_differentiable(out.type):
                super().stmt(stmt)
                assert isinstance(out.type, Array)
                self.bits[out] = _bits_of(out)
                self.builder.emit(ir.Alloc(self.bits[out], (*shape, size_of(out.type.elem)), span))
            case ir.Store(array, _, value, span) if array in self.bits:
                super().stmt(stmt)
                self.builder.emit(ir.Store(self.bits[array], self.place(stmt), self.of(value), span))
            case _:
                super().stmt(stmt)

    def let(self, stmt: ir.Let) -> None:
        super().let(stmt)
        if not isinstance(stmt.op.derivative, Zero) and is_differentiable(stmt.out.type):
            self.known[stmt.out] = self.united(stmt.args)

    def load(self, stmt: ir.Load) -> None:
        super().load(stmt)
        if stmt.array in self.bits:
            found = ir.Var(uint64, "", stmt.span)
            self.builder.emit(ir.Load(found, self.bits[stmt.array], self.place(stmt), stmt.span))
            self.known[stmt.out] = found

    def atomic(self, stmt: ir.Atomic) -> None:
        if stmt.array not in self.bits:
            super().atomic(stmt)
            return
        found = ir.Var(uint64, "", stmt.span)
        bits, place = self.bits[stmt.array], self.place(stmt)
        self.builder.emit(ir.Load(found, bits, place, stmt.span))
        super().atomic(stmt)
        self.builder.emit(
            ir.Store(bits, place, self.builder.apply("bit_or", found, self.of(stmt.value)), stmt.span)
        )
        self.known[stmt.out] = found

    # -------------------------------------------------------------------------------------- regions

    def branch(self, block: ir.Block, carried: Sequence[int]) -> ir.Block:
        with self.builder.block() as copied:
            self.stmts(block)
            yields = self.atoms(block.yields)
            bits = tuple(self.of(block.yields[i]) for i in carried)
        return copied.close(*yields, *bits)

    def with_bits(self, vars: Sequence[ir.Var], carried: Sequence[int]) -> tuple[ir.Var, ...]:
        """New Vars for some, and Vars for the bits of those that carry any."""
        copies, extra = [self.fresh(var) for var in vars], [ir.Var(uint64, "") for _ in carried]
        self.known.update(zip((vars[i] for i in carried), extra, strict=True))
        return (*copies, *extra)

    def if_(self, stmt: ir.If) -> None:
        carried = _floats(stmt.outs)
        then, orelse = self.branch(stmt.then, carried), self.branch(stmt.orelse, carried)
        outs = self.with_bits(stmt.outs, carried)
        self.builder.emit(ir.If(outs, self.atom(stmt.cond), then, orelse, stmt.span))

    def loop(self, stmt: ir.Loop) -> None:
        carried = _floats(stmt.carries)
        inits = (*self.atoms(stmt.inits), *(self.of(stmt.inits[i]) for i in carried))
        carries = self.with_bits(stmt.carries, carried)
        index = self.fresh(stmt.index) if isinstance(stmt, ir.For) else None
        body = self.branch(stmt.body, carried)
        outs = self.with_bits(stmt.outs, carried)
        if isinstance(stmt, ir.While):
            self.builder.emit(ir.While(outs, carries, inits, stmt.stop, body, stmt.span, stmt.ends))
            return
        assert index is not None
        count = self.atom(stmt.count)
        self.builder.emit(
            ir.For(outs, index, count, carries, inits, body, stmt.span, stmt.reverse, stmt.stop)
        )


def _floats(vars: Sequence[ir.Var]) -> list[int]:
    return [i for i, var in enumerate(vars) if is_differentiable(type_of(var))]
