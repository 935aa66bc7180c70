"""Scalarisation: replaces vectors and matrices by their components, so that targets need scalars only.

    before    v: vec2 = x[i]; y[i] = dot(v, v)
    after     v_x: float32 = x[i].0; v_y: float32 = x[i].1; t = v_x * v_x + v_y * v_y; y[i] = t

Operations over vectors are replaced by their `expand`; constructors, `extract`, `insert` and `row` only move
components, and an index known at run time becomes a chain of selections.  Scalar Vars keep their identity
where they can.  Expects no `Call`.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache
from itertools import product
from typing import Any, assert_never

from kernelab.lang import ir
from kernelab.lang.build import Builder, Expr, constant, elem_of, type_of
from kernelab.lang.ops import COPY, SHAPE, Op
from kernelab.lang.types import Array, Scalar, Value, Vec, scalar_of, shape_of, size_of

Components = tuple[ir.Atom, ...]


@lru_cache(16)
def scalarise(function: ir.Function) -> ir.Function:
    """The same function over scalars: parameters, yields and everything carried are flattened in order."""
    scalariser = _Scalariser()
    params = scalariser.parameters(function.params)
    scalariser.stmts(function.body.stmts)
    return replace(function, params=params, body=scalariser.close(*scalariser.flat(function.body.yields)))


class _Scalariser(Builder):
    """A builder that holds vectors as environments, from their Var to their components."""

    def __init__(self) -> None:
        super().__init__()
        self.env: dict[ir.Var, Components] = {}

    # -------------------------------------------------------------------------------------- values

    def parameters(self, params: Sequence[ir.Var]) -> tuple[ir.Var, ...]:
        flat: list[ir.Var] = []
        for var in params:
            flat.extend([var] if isinstance(var.type, Array) else self.define(var))
        return tuple(flat)

    def define(self, var: ir.Var) -> tuple[ir.Var, ...]:
        """Vars for the components of one that a statement defines; a scalar stands for itself."""
        type = type_of(var)
        if isinstance(type, Scalar):
            return (var,)
        parts = tuple(ir.Var(type.scalar, _hint(var.hint, suffix), var.span) for suffix in _suffixes(type))
        self.env[var] = parts
        return parts

    def define_all(self, vars: Sequence[ir.Var]) -> tuple[ir.Var, ...]:
        return tuple(part for var in vars for part in self.define(var))

    def parts(self, atom: ir.Atom) -> Components:
        """The components of an atom, one for a scalar."""
        if isinstance(atom, ir.Var):
            return self.env.get(atom, (atom,))
        if isinstance(atom.type, Scalar):
            return (atom,)
        return (constant(atom.value, scalar_of(atom.type)),) * size_of(atom.type)

    def scalar(self, atom: ir.Atom) -> ir.Atom:
        (part,) = self.parts(atom)
        return part

    def flat(self, atoms: Sequence[ir.Atom]) -> Components:
        return tuple(part for atom in atoms for part in self.parts(atom))

    def vector(self, type: Value, parts: Sequence[ir.Atom]) -> ir.Atom:
        """An atom that stands for components; only this builder knows it."""
        if isinstance(type, Scalar):
            (part,) = parts
            return part
        var = ir.Var(type, "", self.span)
        self.env[var] = tuple(parts)
        return var

    # -------------------------------------------------------------------------------------- operations

    def apply(self, name: str, *args: ir.Atom, hint: str = "") -> ir.Atom:
        """As of any builder; expansions ask for components all the time."""
        if name == "extract" and (place := self.place(args[0], args[1:])) is not None:
            return self.parts(args[0])[place][0]
        return super().apply(name, *args, hint=hint)

    def components(self, atom: ir.Atom) -> list[ir.Atom]:
        """As of any builder, without a statement."""
        return [*self.parts(atom)]

    def let(self, op: Op, args: Sequence[ir.Atom], type: Value, hint: str = "") -> ir.Atom:
        """Apply an operation; one over vectors becomes what it means for their components."""
        if op is COPY and not isinstance(type, Scalar):
            return self.vector(type, self.parts(args[0]))
        if op is SHAPE or op.cpp is not None:
            return super().let(op, [self.operand(arg) for arg in args], type, hint)
        match op.name, args:
            case (("extract" | "row"), (vector, *indices)):
                place = self.place(vector, indices)
                if place is not None:
                    return self.vector(type, self.parts(vector)[place])
            case "insert", (vector, *indices, value):
                place, components = self.place(vector, indices), [*self.parts(vector)]
                if place is not None:
                    components[place] = self.parts(value)
                    return self.vector(type, components)
            case name, _ if name == str(type) and [a.type for a in args] == [scalar_of(type)] * size_of(type):
                return self.vector(type, [self.scalar(arg) for arg in args])
        assert op.expand is not None, f"{op.name} has neither a spelling nor an expansion"
        result = op.expand(*(Expr(self, arg) for arg in args))
        assert isinstance(result, Expr), f"{op.name} expands to no expression"
        return result.atom

    def operand(self, atom: ir.Atom) -> ir.Atom:
        return atom if isinstance(atom, ir.Const) else self.env.get(atom, (atom,))[0]

    def place(self, vector: ir.Atom, indices: Sequence[ir.Atom]) -> slice | None:
        """The components that constant indices select; None where one is known at run time only."""
        start, size = 0, len(self.parts(vector))
        for extent, index in zip(shape_of(type_of(vector)), map(self.scalar, indices), strict=False):
            if not isinstance(index, ir.Const) or not -extent <= index.value < extent:
                return None
            size //= extent
            start += int(index.value) % extent * size
        return slice(start, start + size)

    # -------------------------------------------------------------------------------------- statements

    def stmts(self, stmts: Sequence[ir.Stmt]) -> None:
        for stmt in stmts:
            with self.at(stmt.span):
                self.stmt(stmt)

    def stmt(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Let(out, op, args):
                self.bind(out, self.let(op, args, type_of(out), out.hint))
            case ir.Alloc():
                self.emit(stmt)
            case ir.Load(out, array, indices, span, held):
                where = self.flat(indices)
                for part, old, k in zip(
                    self.define(out), self.known(held, out), _components(stmt), strict=True
                ):
                    self.emit(ir.Load(part, array, where, span, old, k))
            case ir.Store(array, indices, value, span):
                where = self.flat(indices)
                for x, k in zip(self.parts(value), _components(stmt), strict=True):
                    self.emit(ir.Store(array, where, x, span, k))
            case ir.Atomic(out, kind, array, indices, value, span, held):
                where = self.flat(indices)
                news, values, olds = self.define(out), self.parts(value), self.known(held, out)
                for new, x, old, k in zip(news, values, olds, _components(stmt), strict=True):
                    compare = None if stmt.compare is None else self.scalar(stmt.compare)
                    self.emit(ir.Atomic(new, kind, array, where, x, span, old, k, compare))
            case ir.If(outs, cond, then, orelse, span):
                yes, no = self.nested(then), self.nested(orelse)
                self.emit(ir.If(self.define_all(outs), self.scalar(cond), yes, no, span))
            case ir.For() | ir.While():
                self.loop(stmt)
            case ir.Assert(cond, kind, message):
                self.check(self.scalar(cond), kind, message)
            case ir.Print(texts, specs, values, span):
                self.emit(ir.Print(texts, specs, tuple(map(self.scalar, values)), span))
            case ir.Native(outs, snippet, args, span):
                self.emit(ir.Native(self.define_all(outs), snippet, self.flat(args), span))
            case ir.Save(stack, atoms, span):
                self.emit(ir.Save(stack, self.flat(atoms), span))
            case ir.Restore(stack, outs, span):
                self.emit(ir.Restore(stack, self.define_all(outs), span))
            case ir.Append(array, value, span):
                self.emit(ir.Append(array, self.scalar(value), span))
            case ir.Call(_, called) | ir.Custom(_, _, ir.CustomRules(called)):
                raise AssertionError(f"the call of {called.name} should have been inlined")
            case _:
                assert_never(stmt)

    def known(self, held: ir.Atom | None, out: ir.Var) -> Sequence[ir.Atom | None]:
        return (None,) * size_of(type_of(out)) if held is None else self.parts(held)

    def bind(self, out: ir.Var, value: ir.Atom) -> None:
        parts = self.parts(value)
        for part, suffix in zip(parts, _suffixes(type_of(out)), strict=True):
            if isinstance(part, ir.Var) and not part.hint:
                part.hint = _hint(out.hint, suffix)
        self.env[out] = parts

    def nested(self, block: ir.Block) -> ir.Block:
        with self.block() as inner:
            self.stmts(block.stmts)
        return inner.close(*self.flat(block.yields))

    def loop(self, stmt: ir.Loop) -> None:
        inits = self.flat(stmt.inits)
        stop = None if stmt.stop is None else sum(size_of(type_of(var)) for var in stmt.carries[: stmt.stop])
        carries = self.define_all(stmt.carries)
        body = self.nested(stmt.body)
        outs = self.define_all(stmt.outs)
        head: dict[str, Any] = {"stop": stop}
        if isinstance(stmt, ir.For):
            head["count"] = self.scalar(stmt.count)
        self.emit(replace(stmt, outs=outs, carries=carries, inits=inits, body=body, **head))


def _components(stmt: ir.ArrayAccess) -> tuple[int | None, ...]:
    """The components that an access touches, each on its own; what is scalar already stays as it is."""
    type = elem_of(stmt.array)
    if stmt.component is not None or isinstance(type, Scalar):
        return (stmt.component,)
    return tuple(range(size_of(type)))


@cache
def _suffixes(type: Value) -> tuple[str, ...]:
    if isinstance(type, Vec) and type.n <= 4:
        return tuple("xyzw"[: type.n])
    return tuple("".join(map(str, position)) for position in product(*map(range, shape_of(type))))


def _hint(hint: str, suffix: str) -> str:
    return f"{hint}_{suffix}" if hint and suffix else hint
