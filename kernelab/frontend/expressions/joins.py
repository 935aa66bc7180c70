"""Joins the values of a variable after an `if` and around a loop.

Literals that meet become a weak variable; a literal that meets a typed value takes its type; two types that
differ are a mistake that names both lines.  A variable that one side leaves unset gets a zero there, which
nothing reads: definite assignment has been checked on the syntax tree.
"""

import ast
from collections.abc import Callable, Sequence

from kernelab.data_classes import dataclass
from kernelab.errors import Diagnostic, Related, Span
from kernelab.frontend.expressions.struct_values import computed_atoms, with_atoms
from kernelab.frontend.meaning import array_views
from kernelab.frontend.meaning.frame import Frame, Mistake, WeakType
from kernelab.frontend.meaning.meanings import (
    ArrayRef,
    Meaning,
    Origin,
    Poison,
    StructArrayRef,
    TupleOf,
    Typed,
    Weak,
    describe,
)
from kernelab.frontend.meaning.promote import cast, weak_constant
from kernelab.frontend.meaning.syntax_trees import LEFT, Jump
from kernelab.lang.build import zero
from kernelab.lang.ir import Atom, Var
from kernelab.lang.types import Scalar, Value, bool_, float32, spelled

RETURNED = "%value"
"""The name under which the value of a return statement is kept."""
WATCH = "%set "
"""Before the name of a loop's index: the variable that says whether the index is set."""
BREAK, CONTINUE, RETURN = "%break", "%continue", "%return"
THE_VALUE = "the value"
"""The name under which the two sides of a ternary meet, as a message says it."""
FLAGS: dict[Jump, str] = {"break": BREAK, "continue": CONTINUE, "return": RETURN}
_HINTS = {BREAK: "stop", CONTINUE: "skip", RETURN: "done", RETURNED: "result", THE_VALUE: ""}


def hint_of(name: str) -> str:
    """The name that the IR shows for a variable."""
    if name.startswith(LEFT):
        return "left"
    return f"{name.removeprefix(WATCH)}_set" if name.startswith(WATCH) else _HINTS.get(name, name)


@dataclass(frozen=True, slots=True)
class Side:
    """A variable at the end of one way to a point: its value, if it has one, and where it was set."""

    value: Meaning | None
    span: Span | None

    def item(self, k: int) -> "Side":
        """The side of one item of a tuple; unset where the tuple is."""
        return Side(self.value.items[k] if isinstance(self.value, TupleOf) else None, self.span)


@dataclass(frozen=True, slots=True)
class Slot:
    """A value that exists at run time after the meeting; `weak` if only literals went into it."""

    name: str
    type: Value
    origin: Origin
    weak: bool

    def filled(self, atom: Atom) -> Typed:
        return Typed(atom, frozenset({self.origin}) if self.weak else frozenset())


@dataclass(frozen=True, slots=True)
class Meeting:
    """A value that exists at run time after a join: its slot, its variable, and the sides that it has."""

    slot: Slot
    out: Var
    sides: Sequence[Side]


Change = Callable[[Weak | Typed, Origin, str], Weak | Typed]
"""The new value of a number, from its origin and the name of what it is a part of."""


def mapped(value: Meaning, origin: Origin, name: str, change: Change) -> Meaning:
    """A value with its numbers changed: its own, those of items and fields, the indices of a view."""
    match value:
        case TupleOf(items) as whole:
            labelled = ((item, (*origin, k), whole.label(name, k)) for k, item in enumerate(items))
            return whole.of([mapped(*part, change) for part in labelled])
        case ArrayRef():
            atoms = enumerate(value.atoms)
            return _with_parts(value, [change(Typed(atom), (*origin, k), name) for k, atom in atoms])
        case Weak() | Typed():
            return change(value, origin, name)
        case _:
            return value


def _with_parts(view: ArrayRef, parts: Sequence[Meaning]) -> Meaning:
    left = iter([part.atom for part in parts if isinstance(part, Typed)])
    return with_atoms(view, lambda atom: atom if atom is view.var else next(left))


def join(frame: Frame, origin: Origin, name: str, sides: Sequence[Side], meetings: list[Meeting]) -> Meaning:
    """Join the values of a variable from several sides; raises Mistake where they do not fit.

    What exists at run time is a new variable, added to `meetings`.
    """
    present = [side for side in sides if side.value is not None]
    values = [side.value for side in present if side.value is not None]
    first = values[0]
    if any(isinstance(value, Poison) for value in values):
        return Poison()
    complete = len(present) == len(sides)
    is_computed = any(isinstance(atom, Var) for atom in computed_atoms(first))
    if all(value == first for value in values) and (complete or not is_computed):
        return first
    forms = {(len(value.items), value.struct) for value in values if isinstance(value, TupleOf)}
    if isinstance(first, TupleOf) and all(isinstance(value, TupleOf) for value in values) and len(forms) == 1:
        return first.of(
            [
                join(frame, (*origin, k), first.label(name, k), [side.item(k) for side in sides], meetings)
                for k in range(len(first.items))
            ]
        )
    if isinstance(first, ArrayRef) and all(array_views.alike(value, first) for value in values):
        columns = zip(*(view_sides(side, len(first.atoms)) for side in sides), strict=True)
        parts = [join(frame, (*origin, k), name, part, meetings) for k, part in enumerate(columns)]
        return _with_parts(first, parts)
    if all(isinstance(value, Weak | Typed) for value in values):
        slot = _slot(frame, origin, name, present)
        out = Var(slot.type, hint_of(name), frame.builder.span)
        meetings.append(Meeting(slot, out, sides))
        return slot.filled(out)
    raise mixed(name, present)


def view_sides(side: Side, count: int) -> list[Side]:
    """The indices of a view as sides of their own."""
    if not isinstance(side.value, ArrayRef):
        return [Side(None, side.span)] * count
    return [Side(Typed(atom), side.span) for atom in side.value.atoms]


def _slot(frame: Frame, origin: Origin, name: str, present: Sequence[Side]) -> Slot:
    weak_type = frame.weak_types.by_origin.get(origin)
    strong = [side for side in present if isinstance(side.value, Typed) and not side.value.is_weak]
    types = {side.value.type for side in strong if isinstance(side.value, Typed)}
    if len(types) > 1:
        raise mixed(name, strong)
    if types:
        return Slot(name, types.pop(), origin, False)
    if weak_type is not None:
        return Slot(name, weak_type.scalar, origin, weak_type.weak)
    scalars = [_weak_type(side.value) for side in present]
    if len({scalar == bool_ for scalar in scalars}) > 1:
        raise mixed(name, present)
    floats = [scalar for scalar in scalars if scalar.is_float]
    widest = max(floats or scalars, key=lambda scalar: scalar.bits)
    return Slot(name, widest, origin, widest != bool_)


def _weak_type(value: Meaning | None) -> Scalar:
    type = value.type if isinstance(value, Weak | Typed) else float32
    return type if isinstance(type, Scalar) else float32


def mixed(name: str, sides: Sequence[Side]) -> Mistake:
    """The mistake of a variable that has two types, with the lines of both."""
    first, *others = sides
    other = next((side for side in others if _describe(first) != _describe(side)), others[0])
    what = "the returned value" if name == RETURNED else name
    one, another = _array_name(first.value), _array_name(other.value)
    shown, is_other = f"{what} is {_describe(first)} here", f"{what} is {_describe(other)}"
    arrays = [side.value.var for side in (first, other) if isinstance(side.value, ArrayRef)]
    if len(arrays) == 2 and arrays[0] is arrays[1]:
        message = f"{is_other} here and {_describe(first)} elsewhere: the two have different forms"
        hint = "use two names, or index and slice in the same way, for example a[0:] and a[1:]"
    elif one and another:
        message = f"{what} is the array {another} here and {one} elsewhere: a variable stands for one array"
        hint = "index each array where it is meant, and choose between the numbers"
        shown = f"{what} is the array {one} here"
    else:
        line = first.span.line if first.span else "?"
        message = f"{is_other} here and {_describe(first)} in line {line}: a variable keeps one type"
        hint = _how_to_agree(first, other)
    related = (Related(shown, first.span),) if first.span is not None else ()
    return Mistake(Diagnostic(message, other.span or first.span, "type", hint=hint, related=related))


def _array_name(value: Meaning | None) -> str:
    match value:
        case ArrayRef(var):
            return var.hint
        case StructArrayRef(name):
            return name
        case _:
            return ""


def _describe(side: Side) -> str:
    return "unset" if side.value is None else describe(side.value)


def _how_to_agree(first: Side, other: Side) -> str:
    if isinstance(first.value, ArrayRef) or isinstance(other.value, ArrayRef):
        return "index each array where it is meant, and choose between the numbers"
    types = [side.value.type for side in (first, other) if isinstance(side.value, Typed)]
    wide = next((t for t in types if not isinstance(t, Scalar)), None) or next(
        (t for t in types if isinstance(t, Scalar) and t.is_float), None
    )
    if wide is None:
        return "use two names"
    return f"write {spelled(wide)}(...) around the other value, or use two names"


def fill(frame: Frame, slot: Slot, side: Side, against: Side | None = None) -> Atom:
    """The converted values of one side for a slot; raises Mistake, which names the side `against` too."""
    value, type = side.value, slot.type
    match value:
        case None:
            return zero(type)
        case Typed(atom) if atom.type == type:
            return atom
        case Weak(number) if isinstance(type, Scalar) and _literal_fits(value.type, type):
            return weak_constant(frame, number, type, ast.Constant(number, lineno=1, col_offset=0))
        case Typed(atom, origins) if origins and isinstance(type, Scalar) and isinstance(atom.type, Scalar):
            if atom.type.is_int and type.is_float:
                return cast(frame, atom, type)
            if atom.type.kind == type.kind:
                frame.weak_types.require(origins, WeakType(type, False))
                return cast(frame, atom, type)
    raise mixed(slot.name, [against or Side(Typed(zero(type)), None), side])


def _literal_fits(literal: Scalar, type: Scalar) -> bool:
    return literal == type if bool_ in (literal, type) else type.is_float or literal.is_int
