"""Copying IR: every statement again, with fresh Vars, through a folding builder.

Most passes are a `Copier` that treats a few kinds of statement differently.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, assert_never

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

    def fresh_all(self, vars: Sequence[ir.Var]) -> tuple[ir.Var, ...]:
        return tuple([self.fresh(var) for var in vars])

    def entered(self, function: ir.Function, args: Sequence[ir.Atom]) -> tuple[ir.Atom, ...]:
        """Write out the statements of another function; what it yields."""
        inside = type(self)(self.builder, dict(zip(function.params, args, strict=True)))
        inside.stmts(function.body)
        return inside.atoms(function.body.yields)

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
                self.builder.emit(ir.Native(self.fresh_all(outs), snippet, args, span))
            case ir.Call(outs, function, args, span):
                args = self.atoms(args)
                self.builder.emit(ir.Call(self.fresh_all(outs), function, args, span, stmt.gradient))
            case ir.Custom():
                self.custom(stmt)
            case ir.Save(stack, atoms, span):
                self.builder.emit(ir.Save(stack, self.atoms(atoms), span))
            case ir.Restore(stack, outs, span):
                self.builder.emit(ir.Restore(stack, self.fresh_all(outs), span))
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
        self.builder.emit(ir.If(self.fresh_all(stmt.outs), cond, then, orelse, stmt.span))

    def custom(self, stmt: ir.Custom) -> None:
        args, body = self.atoms(stmt.args), self.block(stmt.body)
        self.builder.emit(ir.Custom(self.fresh_all(stmt.outs), args, stmt.rules, body, stmt.span))

    def loop(self, stmt: ir.Loop) -> None:
        inits, carries, head = self.atoms(stmt.inits), self.fresh_all(stmt.carries), self.head(stmt)
        body = self.block(stmt.body)
        outs = self.fresh_all(stmt.outs)
        self.builder.emit(replace(stmt, outs=outs, carries=carries, inits=inits, body=body, **head))

    def head(self, stmt: ir.Loop) -> dict[str, Any]:
        """The copied index and count of a `For`, as its fields; a `While` has neither."""
        if isinstance(stmt, ir.While):
            return {}
        return {"count": self.atom(stmt.count), "index": self.fresh(stmt.index)}


class Accompanying(Copier):
    """A `Copier` that gives some values a companion, such as a tangent, through branches, loops and stacks.

    `companions` are those of the values of the original.
    """

    def __init__(self) -> None:
        super().__init__()
        self.companions: dict[ir.Atom, ir.Atom] = {}
        self._pushed: dict[ir.Stack, list[int]] = {}

    def is_accompanied(self, atom: ir.Atom) -> bool:
        """Whether a value that goes into a region, or comes out of one, has a companion."""
        raise NotImplementedError

    def companion(self, atom: ir.Atom) -> ir.Atom:
        """The companion of a value, or what stands for it where there is none."""
        raise NotImplementedError

    def new_companion(self, var: ir.Var) -> ir.Var:
        """A Var that becomes the companion of a value."""
        raise NotImplementedError

    def stmt(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Save(stack, atoms, span):
                moved = self._pushed[stack] = self._accompanied(atoms)
                self.builder.emit(ir.Save(stack, self._both(atoms, moved), span))
            case ir.Restore(stack, outs, span):
                self.builder.emit(ir.Restore(stack, self._fresh_both(outs, self._pushed[stack]), span))
            case _:
                super().stmt(stmt)

    def if_(self, stmt: ir.If) -> None:
        moved = self._accompanied(stmt.outs)
        then, orelse = self._region(stmt.then, moved), self._region(stmt.orelse, moved)
        outs = self._fresh_both(stmt.outs, moved)
        self.builder.emit(ir.If(outs, self.atom(stmt.cond), then, orelse, stmt.span))

    def loop(self, stmt: ir.Loop) -> None:
        moved = self._accompanied(stmt.carries)
        inits, carries = self._both(stmt.inits, moved), self._fresh_both(stmt.carries, moved)
        head, body = self.head(stmt), self._region(stmt.body, moved)
        outs = self._fresh_both(stmt.outs, moved)
        self.builder.emit(replace(stmt, outs=outs, carries=carries, inits=inits, body=body, **head))

    def _accompanied(self, atoms: Sequence[ir.Atom]) -> list[int]:
        return [i for i, atom in enumerate(atoms) if self.is_accompanied(atom)]

    def _both(self, atoms: Sequence[ir.Atom], moved: list[int]) -> tuple[ir.Atom, ...]:
        """The copies of atoms, and then the companions of those at some positions."""
        return (*self.atoms(atoms), *(self.companion(atoms[i]) for i in moved))

    def _fresh_both(self, vars: Sequence[ir.Var], moved: list[int]) -> tuple[ir.Var, ...]:
        return (*self.fresh_all(vars), *(self.new_companion(vars[i]) for i in moved))

    def _region(self, block: ir.Block, moved: list[int]) -> ir.Block:
        with self.builder.block() as copied:
            self.stmts(block)
            yields = self._both(block.yields, moved)
        return copied.close(*yields)
