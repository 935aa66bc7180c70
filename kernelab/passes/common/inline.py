"""Inlining: replaces calls by the statements of the function, and composed operations by their parts."""

from collections.abc import Sequence
from dataclasses import replace

from kernelab.lang.build import Builder, Expr, type_of
from kernelab.lang.ir import Atom, Call, Const, Custom, Function, Let, Stmt, Var, walk
from kernelab.lang.ops import COPY, Expanded, Op
from kernelab.lang.types import Array, Mat, Value, is_differentiable
from kernelab.passes.common.copying import Copier


def inline(function: Function) -> Function:
    """The function with every call replaced by what it does, to any depth."""
    return _Inliner().function(function)


def lay_out(function: Function, merged: bool = True) -> Function:
    """The function with its calls inlined, those with derivatives that users wrote as `Custom` statements.

    With `merged=False`, the arguments and results of a call are copies that stand at its line.
    """
    return (LayingOut() if merged else _Naming()).function(function)


class _Inliner(Copier):
    def stmt(self, stmt: Stmt) -> None:
        match stmt:
            case Call():
                assert not stmt.gradient, "expand_gradients comes first"
                self.call(stmt)
            case Custom():
                self.stmts(stmt.body)
                self.env.update(zip(stmt.outs, self.atoms(stmt.body.yields), strict=True))
            case _:
                super().stmt(stmt)

    def call(self, stmt: Call) -> None:
        self.env.update(zip(stmt.outs, self.entered(stmt.function, self.atoms(stmt.args)), strict=True))


class LayingOut(_Inliner):
    """Inlines calls, but for those whose derivative a user wrote."""

    def stmt(self, stmt: Stmt) -> None:
        if isinstance(stmt, Custom):
            self.custom(stmt)
        else:
            super().stmt(stmt)

    def call(self, stmt: Call) -> None:
        rules = stmt.function.custom
        if rules is None:
            super().call(stmt)
            return
        args = self.atoms(stmt.args)
        callee = type(self)(self.builder, dict(zip(stmt.function.params, args, strict=True)))
        body = callee.block(stmt.function.body)
        self.builder.emit(Custom(self.fresh_all(stmt.outs), args, rules, body, stmt.span))


class _Naming(LayingOut):
    def call(self, stmt: Call) -> None:
        params, args = stmt.function.params, self.atoms(stmt.args)
        with self.builder.at(stmt.span):
            args = tuple(self.named(param, arg) for param, arg in zip(params, args, strict=True))
        super().call(replace(stmt, args=args))
        if stmt.function.custom is None:
            with self.builder.at(stmt.span):
                self.env.update({out: self.named(out, self.env[out]) for out in stmt.outs})

    def named(self, name: Var, value: Atom) -> Atom:
        """A copy of a float, under a name."""
        if not is_differentiable(name.type) or isinstance(name.type, Array):
            return value
        return self.builder.let(COPY, (value,), type_of(name), name.hint)


# ----------------------------------------------------------------------------------------- expand operations


def expanded(function: Function) -> Function:
    """The function without operations whose derivative is that of their expansion."""
    if not any(isinstance(stmt, Let) and _is_composed(stmt.op) for stmt in walk(function.body)):
        return function
    return Copier(Expander()).function(function)


def _is_composed(op: Op) -> bool:
    return isinstance(op.derivative, Expanded)


class Expander(Builder):
    """Writes composed operations as their parts; remembers what vectors and matrices were made of."""

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[Atom, Sequence[Atom]] = {}

    def let(self, op: Op, args: Sequence[Atom], type: Value, hint: str = "") -> Atom:
        if _is_composed(op):
            assert op.expand is not None
            result: Expr = op.expand(*(Expr(self, arg) for arg in args))
            if hint and isinstance(result.atom, Var) and not result.atom.hint:
                result.atom.hint = hint
            return result.atom
        component = self._component(args) if op.name == "extract" else None
        if component is not None:
            return component
        out = super().let(op, args, type, hint)
        if "make" in op.tags:
            self.made[out] = tuple(args)
        return out

    def _component(self, args: Sequence[Atom]) -> Atom | None:
        whole, *indices = args
        parts = self.made.get(whole)
        if parts is None or not all(isinstance(i, Const) and i.value >= 0 for i in indices):
            return None
        places = [int(i.value) for i in indices if isinstance(i, Const)]
        at = places[0] * whole.type.m + places[1] if isinstance(whole.type, Mat) else places[0]
        return parts[at]
