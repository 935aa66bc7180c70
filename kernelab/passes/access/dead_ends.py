"""Finds the arrays whose values reach a kernel's results only where derivatives are zero.

    before    k = round(x[i]); y[i] = k * w[i]
    after     DeadEnd(x -> y, "round", at the first line)

A value ends so in an integer, in a rounding, in a condition (a comparison that becomes a number, the `if` or
the loop around what is written), or in an index of an array.  A load from an array of integers counts as such
a value too, so that what was stored as an integer by one kernel can be followed into the next.
"""

from collections.abc import Iterable

from kernelab.data_classes import dataclass, replace
from kernelab.errors import Span
from kernelab.lang import ir
from kernelab.lang.build import type_of
from kernelab.lang.dependence import decided_by
from kernelab.lang.ops import SHAPE, Zero
from kernelab.lang.types import Array, scalar_of

INTEGER, CONDITION, INDEX = "int", "if", "index"
"""The words of dead ends that no rounding is named by."""


@dataclass(frozen=True, slots=True)
class DeadEnd:
    """Elements of the parameter `source` lose their derivative at `span`, and reach those of `target`.

    `word` says where: `INTEGER`, `CONDITION`, `INDEX`, or the name of the operation that rounds.
    """

    source: str
    target: str
    word: str
    span: Span

    @property
    def is_condition(self) -> bool:
        """Whether the value only decides which way is taken, which element, or whether something happens."""
        return self.word in (CONDITION, INDEX)


def dead_ends(function: ir.Function) -> tuple[DeadEnd, ...]:
    """The dead ends of a program without calls, one for each pair of arrays; conditions count least."""
    if not any(map(_loses_derivative, ir.walk(function.body))):
        return ()
    finder = _Finder()
    while finder.grew:
        finder.grew = False
        finder.block(function.body, ())
    return tuple(
        replace(end, source=source.hint, target=target.hint)
        for target in function.params
        for source, end in finder.origins.get(target, {}).items()
        if end is not None and source in function.params
    )


def _loses_derivative(stmt: ir.Stmt) -> bool:
    """Whether a float loses its derivative, an integer goes on, or something is decided."""
    match stmt:
        case ir.Let(out, op, args):
            whole = _is_whole(out)
            changes = any(isinstance(arg, ir.Var) and _is_whole(arg) != whole for arg in args)
            return op is not SHAPE and (changes or _end_of(stmt) is not None)
        case ir.Store(_, _, value) | ir.Atomic(_, _, _, _, value):
            return _is_whole(value)
        case ir.Load(out):
            return _is_whole(out)
        case _:
            return isinstance(stmt, ir.Native | ir.If | ir.For | ir.While)


def _is_whole(atom: ir.Atom) -> bool:
    return not isinstance(atom.type, Array) and scalar_of(type_of(atom)).is_int


def _end_of(stmt: ir.Let | ir.Load | ir.Atomic) -> DeadEnd | None:
    """The dead end that a value has in a statement, if its derivative ends there."""
    kind = scalar_of(type_of(stmt.out))
    if kind.kind == "bool":
        return DeadEnd("", "", CONDITION, stmt.span)
    if kind.is_int:
        return DeadEnd("", "", INTEGER, stmt.span)
    if isinstance(stmt, ir.Let) and isinstance(stmt.op.derivative, Zero):
        return DeadEnd("", "", stmt.op.name, stmt.span)
    return None


class _Finder:
    """Follows values forwards until nothing changes, since loops carry them around."""

    def __init__(self) -> None:
        self.origins: dict[ir.Atom, dict[ir.Var, DeadEnd | None]] = {}
        self.grew = True

    def block(self, block: ir.Block, conditions: tuple[ir.Atom, ...]) -> None:
        """Follow the statements of a block that runs where some conditions say so."""
        for stmt in block.stmts:
            self.stmt(stmt, conditions)

    def stmt(self, stmt: ir.Stmt, conditions: tuple[ir.Atom, ...]) -> None:
        if isinstance(stmt, ir.Let) and (stmt.op is SHAPE or "surrogate" in stmt.op.tags):
            return
        if isinstance(stmt, ir.Custom) and stmt.rules.grad is not None:
            self.by_rule(stmt)
            return
        end = _end_of(stmt) if isinstance(stmt, ir.Let) else None
        for source, target in ir.flows(stmt):
            self.flow(source, target, end)
        if isinstance(stmt, ir.Load | ir.Atomic):
            self.add(stmt.out, stmt.array, _end_of(stmt))
            self.decide(stmt.indices, (stmt.out,), INDEX)
        if isinstance(stmt, ir.Store | ir.Atomic):
            self.decide(stmt.indices, (stmt.array,), INDEX)
        decided = decided_by(stmt)
        self.decide((*conditions, *decided), ir.changed(stmt))
        self.decide(decided, getattr(stmt, "outs", ()) if decided else ())
        for inner in ir.blocks(stmt):
            self.block(inner, (*conditions, *decided))

    def by_rule(self, stmt: ir.Custom) -> None:
        """Follow a call whose derivative a user wrote: it has no dead end."""
        inside = [*ir.walk(stmt.body)]
        read = [load.array for load in inside if isinstance(load, ir.Load)]
        targets = [*stmt.outs, *(array for each in inside for array in ir.changed(each))]
        for target in targets:
            for source in (*stmt.args, *read):
                self.flow(source, target, None)
            for array in read:
                self.add(target, array, None)

    def decide(self, conditions: Iterable[ir.Atom], targets: Iterable[ir.Var], word: str = CONDITION) -> None:
        """Let what is written or chosen depend on conditions; of an integer, such as a count, as on these."""
        for target in targets:
            for condition in conditions:
                for array, end in tuple(self.origins.get(condition, {}).items()):
                    if end is not None:
                        self.add(target, array, replace(end, word=word))

    def flow(self, source: ir.Atom, target: ir.Var, end: DeadEnd | None) -> None:
        """Add the origins of a source to those of a target, behind a dead end if there is one."""
        for array, since in tuple(self.origins.get(source, {}).items()):
            self.add(target, array, since or end)

    def add(self, out: ir.Var, array: ir.Var, end: DeadEnd | None) -> None:
        ends = self.origins.setdefault(out, {})
        if array not in ends or _rank(end) > _rank(ends[array]):
            ends[array] = end
            self.grew = True


def _rank(end: DeadEnd | None) -> int:
    return 0 if end is None else 1 if end.is_condition else 2
