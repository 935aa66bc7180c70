"""Joins the values of a variable after an `if` and around a loop.

Literals that meet become a weak variable; a literal that meets a typed value takes its type; two types that
differ are a mistake that names both lines.  A variable that one side leaves unset gets a zero there, which
nothing reads: definite assignment has been checked on the syntax tree.
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from kernelab.errors import Diagnostic, Related, Span
from kernelab.frontend.meaning import array_views
from kernelab.frontend.meaning.frame import Frame, Mistake, Wish
from kernelab.frontend.meaning.meanings import (
    ArrayRef,
    Meaning,
    Origin,
    Poison,
    StructArrayRef,
    TupleOf,
    Typed,
    View,
    Weak,
    describe,
)
from kernelab.frontend.meaning.promote import cast, default_scalar, spelled, weak_constant
from kernelab.lang.build import zero
from kernelab.lang.ir import Atom, Const
from kernelab.lang.types import Scalar, Value, bool_, float32

RETURNED = "%value"
"""The name under which the value of a return statement is kept."""


@dataclass(frozen=True, slots=True)
class Side:
    """A variable at the end of one way to a point: its value, if it has one, and where it was set."""

    value: Meaning | None
    span: Span | None


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
class Slots:
    """The items of a tuple, or the fields of a struct."""

    items: tuple["Joined", ...]
    form: TupleOf


@dataclass(frozen=True, slots=True)
class ViewSlots:
    """The slots of the values that differ between two views of one array: indices, starts and lengths."""

    view: ArrayRef | View
    items: tuple["Joined", ...]


Joined = Slot | Slots | ViewSlots | Meaning
"""The result of a join: a slot, or one compile-time meaning."""


def join(frame: Frame, origin: Origin, name: str, sides: Sequence[Side]) -> Joined:
    """Join the values of a variable from several sides; raises Mistake where they do not fit."""
    present = [side for side in sides if side.value is not None]
    values = [side.value for side in present if side.value is not None]
    if any(isinstance(value, Poison) for value in values):
        return Poison()
    complete = len(present) == len(sides)
    if all(same(value, values[0]) for value in values) and (complete or not _at_run_time(values[0])):
        return values[0]
    if all(isinstance(value, TupleOf) for value in values):
        return _join_tuples(frame, origin, name, sides, present)
    if all(array_views.alike(value, values[0]) for value in values):
        return _join_views(frame, origin, name, sides, values[0])
    if all(isinstance(value, Weak | Typed) for value in values):
        return _join_numbers(frame, origin, name, present)
    raise mixed(name, present)


def same(a: Meaning | None, b: Meaning | None) -> bool:
    """Whether two meanings are one and the same, literals compared with their type."""
    if isinstance(a, Weak) and isinstance(b, Weak):
        return type(a.number) is type(b.number) and repr(a.number) == repr(b.number)
    return a is b or a == b


def _at_run_time(value: Meaning) -> bool:
    match value:
        case Typed(atom):
            return not isinstance(atom, Const)
        case TupleOf(items):
            return any(_at_run_time(item) for item in items)
        case StructArrayRef(indices=indices):
            return bool(indices)
        case ArrayRef() | View():
            return array_views.is_view(value)
        case _:
            return False


def _join_tuples(
    frame: Frame, origin: Origin, name: str, sides: Sequence[Side], present: Sequence[Side]
) -> Joined:
    forms = [side.value for side in present if isinstance(side.value, TupleOf)]
    form = forms[0]
    if len({(len(found.items), found.struct) for found in forms}) > 1:
        raise mixed(name, present)
    items = (
        join(frame, (*origin, k), form.label(name, k), item_sides(sides, k)) for k in range(len(form.items))
    )
    return Slots(tuple(items), form)


def item_sides(sides: Sequence[Side], k: int) -> list[Side]:
    """The sides of one item of a tuple; unset where the tuple is."""
    return [
        Side(side.value.items[k] if isinstance(side.value, TupleOf) else None, side.span) for side in sides
    ]


def _join_views(
    frame: Frame, origin: Origin, name: str, sides: Sequence[Side], view: Meaning | None
) -> Joined:
    assert isinstance(view, ArrayRef | View)
    parts = [view_sides(side, len(array_views.atoms(view))) for side in sides]
    items = [join(frame, (*origin, k), name, part) for k, part in enumerate(zip(*parts, strict=True))]
    return ViewSlots(view, tuple(items))


def view_sides(side: Side, count: int) -> list[Side]:
    """The indices of a view as sides of their own."""
    if not isinstance(side.value, ArrayRef | View):
        return [Side(None, side.span)] * count
    return [Side(Typed(atom), side.span) for atom in array_views.atoms(side.value)]


def _join_numbers(frame: Frame, origin: Origin, name: str, present: Sequence[Side]) -> Joined:
    wish = frame.wishes.granted.get(origin)
    strong = [side for side in present if isinstance(side.value, Typed) and not side.value.is_weak]
    types = {side.value.type for side in strong if isinstance(side.value, Typed)}
    if len(types) > 1:
        raise mixed(name, strong)
    if types:
        return Slot(name, types.pop(), origin, False)
    if wish is not None:
        return Slot(name, wish.scalar, origin, wish.weak)
    found = [_weak_type(side.value) for side in present]
    if len({_kind(scalar) for scalar in found} & {"bool", "number"}) > 1:
        raise mixed(name, present)
    floats = [scalar for scalar in found if scalar.is_float]
    widest = max(floats or found, key=lambda scalar: scalar.bits)
    return Slot(name, widest, origin, widest != bool_)


def _kind(scalar: Scalar) -> str:
    return "bool" if scalar == bool_ else "number"


def _weak_type(value: Meaning | None) -> Scalar:
    match value:
        case Weak(number):
            return default_scalar(number)
        case Typed() if isinstance(value.type, Scalar):
            return value.type
        case _:
            return float32


def mixed(name: str, sides: Sequence[Side]) -> Mistake:
    """The mistake of a variable that has two types, with the lines of both."""
    first, *others = sides
    other = next((side for side in others if _describe(first) != _describe(side)), others[0])
    what = "the returned value" if name == RETURNED else name
    if array_views.same_array(first.value, other.value):
        return _two_views(what, first, other)
    one, another = _array_name(first.value), _array_name(other.value)
    if one and another:
        return _two_arrays(what, one, another, first.span, other.span)
    message = (
        f"{what} is {_describe(other)} here and {_describe(first)} in line "
        f"{first.span.line if first.span else '?'}: a variable keeps one type"
    )
    hint = _how_to_agree(first, other)
    related = (Related(f"{what} is {_describe(first)} here", first.span),) if first.span is not None else ()
    return Mistake(Diagnostic(message, other.span or first.span, "type", hint=hint, related=related))


def _two_views(what: str, first: Side, other: Side) -> Mistake:
    shown = [describe(side.value) for side in (other, first) if side.value is not None]
    message = f"{what} is {shown[0]} here and {shown[1]} elsewhere: the two have different forms"
    related = (Related(f"{what} is {shown[1]} here", first.span),) if first.span is not None else ()
    hint = "use two names, or index and slice in the same way, for example a[0:] and a[1:]"
    return Mistake(Diagnostic(message, other.span or first.span, "type", hint=hint, related=related))


def _two_arrays(what: str, one: str, other: str, span: Span | None, other_span: Span | None) -> Mistake:
    related = (Related(f"{what} is the array {one} here", span),) if span is not None else ()
    message = f"{what} is the array {other} here and {one} elsewhere: a variable stands for one array"
    hint = "index each array where it is meant, and choose between the numbers"
    return Mistake(Diagnostic(message, other_span or span, "type", hint=hint, related=related))


def _array_name(value: Meaning | None) -> str:
    match value:
        case ArrayRef(var) | View(var):
            return var.hint
        case StructArrayRef(name):
            return name
        case _:
            return ""


def _describe(side: Side) -> str:
    return "unset" if side.value is None else describe(side.value)


def _how_to_agree(first: Side, other: Side) -> str:
    if isinstance(first.value, ArrayRef | View) or isinstance(other.value, ArrayRef | View):
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
        case Weak(number) if isinstance(type, Scalar) and _literal_fits(number, type):
            return weak_constant(frame, number, type, ast.Constant(number, lineno=1, col_offset=0))
        case Typed(atom, origins) if origins and isinstance(type, Scalar) and isinstance(atom.type, Scalar):
            if atom.type.is_int and type.is_float:
                return cast(frame, atom, type)
            if atom.type.kind == type.kind:
                frame.wishes.ask(origins, Wish(type, False))
                return cast(frame, atom, type)
    raise mixed(slot.name, [against or Side(Typed(zero(type)), None), side])


def _literal_fits(number: bool | int | float, type: Scalar) -> bool:
    if isinstance(number, bool) or type == bool_:
        return isinstance(number, bool) and type == bool_
    return type.is_float or isinstance(number, int)
