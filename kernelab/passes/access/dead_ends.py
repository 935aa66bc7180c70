"""Finds the arrays whose values reach a kernel's results through an integer, where derivatives end.

    before    k = int32(x[i]); y[i] = float32(k) * w[i]
    after     Cast(x -> y, at the first line)

Only values count: an index, a comparison or a branch that hangs on a float is no chain that somebody could
have meant to differentiate.  A load from an array of integers counts as such a value too, so that what was
stored as an integer by one kernel can be followed into the next.
"""

from dataclasses import dataclass

from kernelab.errors import Span
from kernelab.lang import ir
from kernelab.lang.build import type_of
from kernelab.lang.ops import SHAPE
from kernelab.lang.types import Array, scalar_of


@dataclass(frozen=True, slots=True)
class Cast:
    """Elements of the parameter `source` become an integer at `span`, and reach those of `target`."""

    source: str
    target: str
    span: Span


def casts(function: ir.Function) -> tuple[Cast, ...]:
    """The casts of a program without calls, one for each pair of arrays."""
    if not any(map(_concerns_integers, ir.walk(function.body))):
        return ()
    finder = _Finder()
    while finder.grew:
        finder.grew = False
        for stmt in ir.walk(function.body):
            finder.stmt(stmt)
    return tuple(
        Cast(source.hint, target.hint, span)
        for target in function.params
        for source, span in finder.origins.get(target, {}).items()
        if span is not None and source in function.params
    )


def _concerns_integers(stmt: ir.Stmt) -> bool:
    """Whether a value turns from a float to an integer or back, or an integer goes into an array."""
    match stmt:
        case ir.Let(out, op, args):
            whole = _is_whole(out)
            return op is not SHAPE and any(
                isinstance(arg, ir.Var) and _is_whole(arg) != whole for arg in args
            )
        case ir.Store(_, _, value) | ir.Atomic(_, _, _, _, value):
            return _is_whole(value)
        case _:
            return isinstance(stmt, ir.Native)


def _is_whole(atom: ir.Atom) -> bool:
    return not isinstance(atom.type, Array) and scalar_of(type_of(atom)).is_int


class _Finder:
    """Follows values forwards until nothing changes, since loops carry them around."""

    def __init__(self) -> None:
        self.origins: dict[ir.Atom, dict[ir.Var, Span | None]] = {}
        self.grew = True

    def stmt(self, stmt: ir.Stmt) -> None:
        if isinstance(stmt, ir.Let) and stmt.op is SHAPE:
            return
        for source, target in ir.flows(stmt):
            self.flow(source, target, stmt.span)
        if isinstance(stmt, ir.Load | ir.Atomic):
            kind = scalar_of(type_of(stmt.out))
            if kind.kind != "bool":
                self.add(stmt.out, stmt.array, stmt.span if kind.is_int else None)

    def flow(self, source: ir.Atom, target: ir.Var, span: Span) -> None:
        """Add the origins of a source to those of a target, as integers from here on if it is one."""
        kind = scalar_of(target.type.elem if isinstance(target.type, Array) else target.type)
        if kind.kind == "bool":
            return
        for array, since in tuple(self.origins.get(source, {}).items()):
            self.add(target, array, since or (span if kind.is_int else None))

    def add(self, out: ir.Var, array: ir.Var, since: Span | None) -> None:
        known = self.origins.setdefault(out, {})
        if array not in known or (known[array] is None and since is not None):
            known[array] = since
            self.grew = True
