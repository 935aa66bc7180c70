"""Copying IR: every statement again, with fresh Vars, through a folding builder.

Most passes are a `Copier` that treats a few kinds of statement differently.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from kernelab.lang import ir
from kernelab.lang.build import Builder, type_of


class Copier:
    """Copies into `builder`; `env` says what stands for a Var of the original, itself where it is missing."""

    def __init__(self, builder: Builder | None = None, env: dict[ir.Var, ir.Atom] | None = None) -> None:
        self.builder = Builder() if builder is None else builder
        self.env: dict[ir.Var, ir.Atom] = {} if env is None else env

    def function(self, function: ir.Function) -> ir.Function:
        """The whole function again; parameters and thread indices keep their Vars."""
        self.stmts(function.body)
        body = self.builder.close(*self.atoms(function.body.yields))
        return replace(function, body=body)

    def atom(self, atom: ir.Atom) -> ir.Atom:
        return self.env.get(atom, atom) if isinstance(atom, ir.Var) else atom

    def var(self, var: ir.Var) -> ir.Var:
        copied = self.atom(var)
        assert isinstance(copied, ir.Var), f"{var} became a constant"
        return copied

    def atoms(self, atoms: Sequence[ir.Atom]) -> tuple[ir.Atom, ...]:
        return tuple([self.atom(atom) for atom in atoms])

    def fresh(self, var: ir.Var) -> ir.Var:
        """A new Var for the copy of the one that defines `var`."""
        copied = ir.Var(var.type, var.hint, var.span)
        self.env[var] = copied
        return copied

    def stmts(self, block: ir.Block) -> None:
        """Copy the statements of a block into the open block."""
        builder = self.builder
        with builder.at(builder.span):
            for stmt in block.stmts:
                builder.span = stmt.span
                self.stmt(stmt)

    def block(self, block: ir.Block) -> ir.Block:
        """A copy of a block as a block of its own."""
        with self.builder.block() as copied:
            self.stmts(block)
        return copied.close(*self.atoms(block.yields))

    def stmt(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Let():
                self.let(stmt)
            case ir.Alloc(out, shape, span):
                self.builder.emit(ir.Alloc(self.fresh(out), shape, span))
            case ir.Load():
                self.load(stmt)
            case ir.Store(array, indices, value, span, component):
                copied = ir.Store(self.var(array), self.atoms(indices), self.atom(value), span, component)
                self.builder.emit(copied)
            case ir.Atomic():
                self.atomic(stmt)
            case ir.If():
                self.if_(stmt)
            case ir.For() | ir.While():
                self.loop(stmt)
            case ir.Assert(cond, kind, message):
                self.builder.check(self.atom(cond), kind, message)
            case ir.Print(texts, specs, values, span):
                self.builder.emit(ir.Print(texts, specs, self.atoms(values), span))
            case ir.Native(outs, snippet, args, span):
                args = self.atoms(args)
                self.builder.emit(ir.Native(tuple(self.fresh(out) for out in outs), snippet, args, span))
            case ir.Call(outs, function, args, span):
                args = self.atoms(args)
                fresh = tuple(self.fresh(out) for out in outs)
                self.builder.emit(ir.Call(fresh, function, args, span, stmt.gradient))
            case ir.Custom():
                self.custom(stmt)
            case ir.Save(stack, atoms, span):
                self.builder.emit(ir.Save(stack, self.atoms(atoms), span))
            case ir.Restore(stack, outs, span):
                self.builder.emit(ir.Restore(stack, tuple(self.fresh(out) for out in outs), span))
            case ir.Append(array, value, span):
                self.builder.emit(ir.Append(self.var(array), self.atom(value), span))
            case _:
                assert_never(stmt)

    def let(self, stmt: ir.Let) -> None:
        out = stmt.out
        self.env[out] = self.builder.let(stmt.op, self.atoms(stmt.args), type_of(out), out.hint)

    def load(self, stmt: ir.Load) -> None:
        held = None if stmt.held is None else self.atom(stmt.held)
        array, indices = self.var(stmt.array), self.atoms(stmt.indices)
        self.builder.emit(ir.Load(self.fresh(stmt.out), array, indices, stmt.span, held, stmt.component))

    def atomic(self, stmt: ir.Atomic) -> None:
        held = None if stmt.held is None else self.atom(stmt.held)
        array, indices, value = self.var(stmt.array), self.atoms(stmt.indices), self.atom(stmt.value)
        compare = None if stmt.compare is None else self.atom(stmt.compare)
        out = self.fresh(stmt.out)
        self.builder.emit(
            ir.Atomic(out, stmt.kind, array, indices, value, stmt.span, held, stmt.component, compare)
        )

    def if_(self, stmt: ir.If) -> None:
        cond = self.atom(stmt.cond)
        if isinstance(cond, ir.Const):
            taken = stmt.then if cond.value else stmt.orelse
            self.stmts(taken)
            self.env.update(zip(stmt.outs, self.atoms(taken.yields), strict=True))
            return
        then, orelse = self.block(stmt.then), self.block(stmt.orelse)
        outs = tuple(self.fresh(out) for out in stmt.outs)
        self.builder.emit(ir.If(outs, cond, then, orelse, stmt.span))

    def custom(self, stmt: ir.Custom) -> None:
        args, body = self.atoms(stmt.args), self.block(stmt.body)
        outs = tuple(self.fresh(out) for out in stmt.outs)
        self.builder.emit(ir.Custom(outs, args, stmt.rules, body, stmt.span))

    def loop(self, stmt: ir.Loop) -> None:
        inits = self.atoms(stmt.inits)
        carries = tuple(self.fresh(carry) for carry in stmt.carries)
        count = self.atom(stmt.count) if isinstance(stmt, ir.For) else None
        index = self.fresh(stmt.index) if isinstance(stmt, ir.For) else None
        body = self.block(stmt.body)
        outs = tuple(self.fresh(out) for out in stmt.outs)
        self.builder.emit(like(stmt, outs, index, count, carries, inits, body))


def like(
    stmt: ir.Loop,
    outs: tuple[ir.Var, ...],
    index: ir.Var | None,
    count: ir.Atom | None,
    carries: tuple[ir.Var, ...],
    inits: tuple[ir.Atom, ...],
    body: ir.Block,
) -> ir.Loop:
    """A loop that ends and goes on as `stmt` does; only a `For` has an index and a count."""
    if isinstance(stmt, ir.While):
        return ir.While(outs, carries, inits, stmt.stop, body, stmt.span, stmt.ends)
    assert index is not None and count is not None
    return replace(stmt, outs=outs, index=index, count=count, carries=carries, inits=inits, body=body)
