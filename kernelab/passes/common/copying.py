"""Copying IR: every statement again, with fresh Vars, through a folding builder.

Most passes are a `Copier` that treats a few kinds of statement differently.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from kernelab.lang.build import Builder, type_of
from kernelab.lang.ir import (
    Alloc,
    Append,
    Assert,
    Atom,
    Atomic,
    Block,
    Call,
    Const,
    Custom,
    For,
    Function,
    If,
    Let,
    Load,
    Loop,
    Native,
    Print,
    Restore,
    Save,
    Stmt,
    Store,
    Var,
    While,
)


class Copier:
    """Copies into `builder`; `env` says what stands for a Var of the original, itself where it is missing."""

    def __init__(self, builder: Builder | None = None, env: dict[Var, Atom] | None = None) -> None:
        self.builder = Builder() if builder is None else builder
        self.env: dict[Var, Atom] = {} if env is None else env

    def function(self, function: Function) -> Function:
        """The whole function again; parameters and thread indices keep their Vars."""
        self.stmts(function.body)
        body = self.builder.close(*self.atoms(function.body.yields))
        return replace(function, body=body)

    def atom(self, atom: Atom) -> Atom:
        return atom if isinstance(atom, Const) else self.env.get(atom, atom)

    def var(self, var: Var) -> Var:
        copied = self.atom(var)
        assert isinstance(copied, Var), f"{var} became a constant"
        return copied

    def atoms(self, atoms: Sequence[Atom]) -> tuple[Atom, ...]:
        return tuple(self.atom(atom) for atom in atoms)

    def fresh(self, var: Var) -> Var:
        """A new Var for the copy of the one that defines `var`."""
        copied = Var(var.type, var.hint, var.span)
        self.env[var] = copied
        return copied

    def stmts(self, block: Block) -> None:
        """Copy the statements of a block into the open block."""
        for stmt in block.stmts:
            with self.builder.at(stmt.span):
                self.stmt(stmt)

    def block(self, block: Block) -> Block:
        """A copy of a block as a block of its own."""
        with self.builder.block() as copied:
            self.stmts(block)
        return copied.close(*self.atoms(block.yields))

    def stmt(self, stmt: Stmt) -> None:
        match stmt:
            case Let():
                self.let(stmt)
            case Alloc(out, shape, span):
                self.builder.emit(Alloc(self.fresh(out), shape, span))
            case Load():
                self.load(stmt)
            case Store(array, indices, value, span, component):
                copied = Store(self.var(array), self.atoms(indices), self.atom(value), span, component)
                self.builder.emit(copied)
            case Atomic():
                self.atomic(stmt)
            case If():
                self.if_(stmt)
            case For() | While():
                self.loop(stmt)
            case Assert(cond, kind, message):
                self.builder.check(self.atom(cond), kind, message)
            case Print(texts, specs, values, span):
                self.builder.emit(Print(texts, specs, self.atoms(values), span))
            case Native(outs, snippet, args, span):
                args = self.atoms(args)
                self.builder.emit(Native(tuple(self.fresh(out) for out in outs), snippet, args, span))
            case Call(outs, function, args, span):
                args = self.atoms(args)
                fresh = tuple(self.fresh(out) for out in outs)
                self.builder.emit(Call(fresh, function, args, span, stmt.gradient))
            case Custom():
                self.custom(stmt)
            case Save(stack, atoms, span):
                self.builder.emit(Save(stack, self.atoms(atoms), span))
            case Restore(stack, outs, span):
                self.builder.emit(Restore(stack, tuple(self.fresh(out) for out in outs), span))
            case Append(array, value, span):
                self.builder.emit(Append(self.var(array), self.atom(value), span))
            case _:
                assert_never(stmt)

    def let(self, stmt: Let) -> None:
        out = stmt.out
        self.env[out] = self.builder.let(stmt.op, self.atoms(stmt.args), type_of(out), out.hint)

    def load(self, stmt: Load) -> None:
        held = None if stmt.held is None else self.atom(stmt.held)
        array, indices = self.var(stmt.array), self.atoms(stmt.indices)
        self.builder.emit(Load(self.fresh(stmt.out), array, indices, stmt.span, held, stmt.component))

    def atomic(self, stmt: Atomic) -> None:
        held = None if stmt.held is None else self.atom(stmt.held)
        array, indices, value = self.var(stmt.array), self.atoms(stmt.indices), self.atom(stmt.value)
        compare = None if stmt.compare is None else self.atom(stmt.compare)
        out = self.fresh(stmt.out)
        self.builder.emit(
            Atomic(out, stmt.kind, array, indices, value, stmt.span, held, stmt.component, compare)
        )

    def if_(self, stmt: If) -> None:
        cond = self.atom(stmt.cond)
        if isinstance(cond, Const):
            taken = stmt.then if cond.value else stmt.orelse
            self.stmts(taken)
            self.env.update(zip(stmt.outs, self.atoms(taken.yields), strict=True))
            return
        then, orelse = self.block(stmt.then), self.block(stmt.orelse)
        outs = tuple(self.fresh(out) for out in stmt.outs)
        self.builder.emit(If(outs, cond, then, orelse, stmt.span))

    def custom(self, stmt: Custom) -> None:
        args, body = self.atoms(stmt.args), self.block(stmt.body)
        outs = tuple(self.fresh(out) for out in stmt.outs)
        self.builder.emit(Custom(outs, args, stmt.rules, body, stmt.span))

    def loop(self, stmt: Loop) -> None:
        inits = self.atoms(stmt.inits)
        carries = tuple(self.fresh(carry) for carry in stmt.carries)
        count = self.atom(stmt.count) if isinstance(stmt, For) else None
        index = self.fresh(stmt.index) if isinstance(stmt, For) else None
        body = self.block(stmt.body)
        outs = tuple(self.fresh(out) for out in stmt.outs)
        self.builder.emit(like(stmt, outs, index, count, carries, inits, body))


def like(
    stmt: Loop,
    outs: tuple[Var, ...],
    index: Var | None,
    count: Atom | None,
    carries: tuple[Var, ...],
    inits: tuple[Atom, ...],
    body: Block,
) -> Loop:
    """A loop that ends and goes on as `stmt` does; only a `For` has an index and a count."""
    if isinstance(stmt, While):
        return While(outs, carries, inits, stmt.stop, body, stmt.span, stmt.ends)
    assert index is not None and count is not None
    return replace(stmt, outs=outs, index=index, count=count, carries=carries, inits=inits, body=body)
