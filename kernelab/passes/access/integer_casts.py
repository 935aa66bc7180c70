"""Finds the arrays whose values reach a kernel's results through an integer, where derivatives end.

    before    k = int32(x[i]); y[i] = float32(k) * w[i]
    after     Cast(x -> y, at the first line)

Only values count: an index, a comparison or a branch that hangs on a float is no chain that somebody could
have meant to differentiate.  A load from an array of integers counts as such a value too, so that what was
stored as an integer by one kernel can be followed into the next.
"""

from collections.abc import Iterable
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
        finder.block(function.body)
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
        self.origins: dict[ir.Var, dict[ir.Var, Span | None]] = {}
        self.grew = True

    def block(self, block: ir.Block) -> None:
        for stmt in block.stmts:
            self.stmt(stmt)

    def stmt(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Let(out, op, args, span):
                if op is not SHAPE:
                    self.flow(out, args, span)
            case ir.Native(outs, _, args, span):
                for out in outs:
                    self.flow(out, args, span)
            case ir.Load(out, array, _, span):
                self.load(out, array, span)
            case ir.Atomic(out, _, array, _, value, span):
                self.load(out, array, span)
                self.flow(array, [value], span)
            case ir.Store(array, _, value, span):
                self.flow(array, [value], span)
            case ir.If(outs, _, then, orelse):
                self.block(then)
                self.block(orelse)
                self.pairs(outs, then.yields, stmt.span)
                self.pairs(outs, orelse.yields, stmt.span)
            case ir.For() | ir.While():
                self.pairs(stmt.carries, stmt.inits, stmt.span)
                self.block(stmt.body)
                self.pairs(stmt.carries, stmt.body.yields, stmt.span)
                self.pairs(stmt.outs, stmt.carries, stmt.span)
            case ir.Custom(outs):
                self.block(stmt.body)
                self.pairs(outs, stmt.body.yields, stmt.span)
            case _:
                for inner in ir.blocks(stmt):
                    self.block(inner)

    def load(self, out: ir.Var, array: ir.Var, span: Span) -> None:
        self.flow(out, [array], span)
        kind = scalar_of(type_of(out))
        if kind.kind != "bool":
            self.add(out, array, span if kind.is_int else None)

    def pairs(self, outs: Iterable[ir.Var], values: Iterable[ir.Atom], span: Span) -> None:
        for out, value in zip(outs, values, strict=False):
            self.flow(out, [value], span)

    def flow(self, out: ir.Var, sources: Iterable[ir.Atom], span: Span) -> None:
        """Add the origins of `sources` to those of `out`, as integers from here on if it is one."""
        elem = out.type.elem if isinstance(out.type, Array) else type_of(out)
        if scalar_of(elem).kind == "bool":
            return
        whole = scalar_of(elem).is_int
        for source in sources:
            known = self.origins.get(source, {}) if isinstance(source, ir.Var) else {}
            for array, since in tuple(known.items()):
                self.add(out, array, since or (span if whole else None))

    def add(self, out: ir.Var, array: ir.Var, since: Span | None) -> None:
        known = self.origins.setdefault(out, {})
        if array not in known or (known[array] is None and since is not None):
            known[array] = since
            self.grew = True
