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
from kernelab.lang.ops import Zero
from kernelab.lang.types import Array, int32, is_differentiable, size_of, uint64
from kernelab.passes.common.copying import Accompanying
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


class _Dependencies(Accompanying):
    """Gives each float its bits for a companion; `bits` are the arrays of bits."""

    def __init__(self) -> None:
        super().__init__()
        self.bits: dict[ir.Var, ir.Var] = {}

    def is_accompanied(self, atom: ir.Atom) -> bool:
        return is_differentiable(atom.type)

    def companion(self, atom: ir.Atom) -> ir.Atom:
        return self.companions.get(atom, NONE)

    def new_companion(self, var: ir.Var) -> ir.Var:
        bits = self.companions[var] = ir.Var(uint64)
        return bits

    def united(self, atoms: Sequence[ir.Atom]) -> ir.Atom:
        found: ir.Atom = NONE
        for bits in dict.fromkeys(map(self.companion, atoms)):
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
                self.builder.emit(ir.Store(self.bits[array], self.place(stmt), self.companion(value), span))
            case _:
                super().stmt(stmt)

    def let(self, stmt: ir.Let) -> None:
        super().let(stmt)
        if not isinstance(stmt.op.derivative, Zero) and is_differentiable(stmt.out.type):
            self.companions[stmt.out] = self.united(stmt.args)

    def load(self, stmt: ir.Load) -> None:
        super().load(stmt)
        if stmt.array in self.bits:
            found = self.new_companion(stmt.out)
            self.builder.emit(ir.Load(found, self.bits[stmt.array], self.place(stmt), stmt.span))

    def atomic(self, stmt: ir.Atomic) -> None:
        if stmt.array not in self.bits:
            super().atomic(stmt)
            return
        found = self.new_companion(stmt.out)
        bits, place = self.bits[stmt.array], self.place(stmt)
        self.builder.emit(ir.Load(found, bits, place, stmt.span))
        super().atomic(stmt)
        united = self.builder.apply("bit_or", found, self.companion(stmt.value))
        self.builder.emit(ir.Store(bits, place, united, stmt.span))
