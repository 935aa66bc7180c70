"""Widening: the same program in float64, which differences are taken of.

    before    y: float32 = sin(x)
    after     y: float64 = sin(x)

Every float becomes a float64, in values, arrays and constants; integers and truth values stay.  A constant
keeps its digits: it was rounded to float32 when it was lowered.
"""

from dataclasses import replace

from kernelab.lang import ops
from kernelab.lang.build import type_of
from kernelab.lang.ir import Atom, Const, Function, Let, Print, Stmt, Var
from kernelab.lang.types import SCALARS, Array, Type, Value, float64, named_types, scalar_of, with_scalar
from kernelab.passes.copying import Copier


def widen(function: Function) -> Function:
    """The function over float64, with parameters of its own."""
    widener = _Widener()
    params = tuple(widener.fresh(param) for param in function.params)
    widener.stmts(function.body)
    body = widener.builder.close(*widener.atoms(function.body.yields))
    return replace(function, name=f"{function.name}_float64", params=params, body=body)


def widened(type: Type) -> Type:
    """The type over float64 where it was over another float."""
    if isinstance(type, Array):
        return Array(_wide(type.elem), type.ndim)
    return _wide(type)


def _wide(type: Value) -> Value:
    return with_scalar(type, float64) if scalar_of(type).is_float else type


class _Widener(Copier):
    def fresh(self, var: Var) -> Var:
        copied = Var(widened(var.type), var.hint, var.span)
        self.env[var] = copied
        return copied

    def atom(self, atom: Atom) -> Atom:
        if not isinstance(atom, Const):
            return super().atom(atom)
        type = _wide(atom.type)
        return Const(float(atom.value), type) if type != atom.type else atom

    def stmt(self, stmt: Stmt) -> None:
        # A widened kernel serves to check another, whose output the reader has seen.
        if not isinstance(stmt, Print):
            super().stmt(stmt)

    def let(self, stmt: Let) -> None:
        args = self.atoms(stmt.args)
        type = _wide(type_of(stmt.out))
        found = ops.resolve(_renamed(stmt.op.name), [arg.type for arg in args])
        op = stmt.op if stmt.op is ops.SHAPE or found is None else found[0]
        self.env[stmt.out] = self.builder.let(op, args, type, stmt.out.hint)


def _renamed(name: str) -> str:
    """The name of a cast or constructor of the wide type: ``vec3`` becomes ``vec3d``."""
    named: dict[str, Value] = {str(scalar): scalar for scalar in SCALARS} | named_types()
    return str(_wide(named[name])) if name in named else name
