"""Widening: converts a program to float64, for finite differences.

    before    y: float32 = sin(x)
    after     y: float64 = sin(x)

Every float becomes a float64, in values, arrays and constants; integers and truth values stay.  A constant
keeps its digits: it was rounded to float32 when it was lowered.
"""

from dataclasses import replace
from functools import lru_cache

from kernelab.lang import ops
from kernelab.lang.build import type_of
from kernelab.lang.ir import Atom, Const, Custom, CustomRules, Function, Let, Native, Print, Stmt, Var
from kernelab.lang.native import Snippet
from kernelab.lang.types import Array, Type, Value, float64, scalar_of, type_named, with_scalar
from kernelab.passes.common.copying import Copier
from kernelab.passes.common.inline import lay_out


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
        match stmt:
            case Print():
                pass
            case Native(_, snippet):
                super().stmt(replace(stmt, snippet=_wide_snippet(snippet)))
            case _:
                super().stmt(stmt)

    def let(self, stmt: Let) -> None:
        args = self.atoms(stmt.args)
        type = _wide(type_of(stmt.out))
        if stmt.op in (ops.SHAPE, ops.COPY):
            self.env[stmt.out] = self.builder.let(stmt.op, args, type, stmt.out.hint)
            return
        resolved = ops.resolve(_renamed(stmt.op.name), [arg.type for arg in args])
        # An operation of float32 alone, such as `randf`, stays one.
        op, own = (stmt.op, type_of(stmt.out)) if resolved is None else resolved
        if resolved is None:
            pairs = zip(args, stmt.args, strict=True)
            args = tuple(self.converted(arg, type_of(old)) for arg, old in pairs)
        self.env[stmt.out] = self.converted(self.builder.let(op, args, own, stmt.out.hint), type)

    def converted(self, atom: Atom, type: Value) -> Atom:
        return atom if atom.type == type else self.builder.apply(str(type), atom)

    def custom(self, stmt: Custom) -> None:
        super().custom(replace(stmt, rules=widen_rules(stmt.rules)))


@lru_cache(256)
def widen_rules(rules: CustomRules) -> CustomRules:
    """The rules of a function, over float64."""
    return rules.mapped(lambda rule: replace(widen(lay_out(rule)), name=rule.name))


@lru_cache(256)
def _wide_snippet(snippet: Snippet) -> Snippet:
    params = tuple(replace(param, type=widened(param.type)) for param in snippet.params)
    result = None if snippet.result is None else _wide(snippet.result)
    return replace(snippet, params=params, result=result, is_wide=True)


def _renamed(name: str) -> str:
    """The name of a cast or constructor of the wide type: ``vec3`` becomes ``vec3d``."""
    type = type_named(name)
    return name if type is None else str(_wide(type))
