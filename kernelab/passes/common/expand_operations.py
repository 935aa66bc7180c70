"""Expanding: operations that are differentiated as what they are composed of become just that.

    before    y: vec3 = quat_rotate(q, v)
    after     the products and sums of components that `quat_rotate` stands for

What is put together and taken apart again within an expansion leaves no trace.
"""

from collections.abc import Sequence

from kernelab.lang.build import Builder, Expr
from kernelab.lang.ir import Atom, Const, Function, Let, Var, walk
from kernelab.lang.ops import Expanded, Op
from kernelab.lang.types import Mat, Value
from kernelab.passes.common.copying import Copier


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
