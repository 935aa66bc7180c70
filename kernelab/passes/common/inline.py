"""Inlining: replaces calls by the statements of the function, and composed operations by their parts."""

from collections.abc import Sequence

from kernelab.lang.build import Builder, Expr
from kernelab.lang.ir import Atom, Call, Const, Custom, Function, Let, Stmt, Var, walk
from kernelab.lang.ops import Expanded, Op
from kernelab.lang.types import Mat, Value
from kernelab.passes.common.copying import Copier


def inline(function: Function) -> Function:
    """The function with every call replaced by what it does, to any depth."""
    return _Inliner().function(function)


def lay_out(function: Function) -> Function:
    """The function with its calls inlined, those with derivatives that users wrote as `Custom` statements."""
    return _LayingOut().function(function)


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


class _LayingOut(_Inliner):
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
        callee = _LayingOut(self.builder, dict(zip(stmt.function.params, args, strict=True)))
        body = callee.block(stmt.function.body)
        self.builder.emit(Custom(self.fresh_all(stmt.outs), args, rules, body, stmt.span))


# ----------------------------------------------------------------------------------------- expand operations


def expanded(function: Function) -> Function:
    """The function without operations whose derivative is that of their expansion."""
    if not any(isinstance(stmt, Let) and _is_composed(stmt.op) for stmt in walk(function.body)):
        return function
    return Copier(_Expander()).function(function)


def _is_composed(op: Op) -> bool:
    return isinstance(op.derivative, Expanded)


class _Expander(Builder):
    """Remembers of which components a vector or matrix was made."""

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
