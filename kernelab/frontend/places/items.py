"""The items that a loop or an unpacking goes over: of tuples, vectors, matrices and arrays."""

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernelab.frontend.meaning import array_views
from kernelab.frontend.meaning.frame import Frame, counted
from kernelab.frontend.meaning.meanings import (
    ArrayRef,
    Meaning,
    StructArrayRef,
    TupleOf,
    Typed,
    describe,
)
from kernelab.frontend.places import places, struct_values
from kernelab.lang.build import integer
from kernelab.lang.ir import Atom
from kernelab.lang.types import Mat, Vec


@dataclass(frozen=True, slots=True)
class ArrayItems:
    """As many items as an array has: their number, and the one at an index."""

    count: Atom
    at: Callable[[Atom], Meaning]


Items = Sequence[Meaning] | ArrayItems


def items_of(frame: Frame, value: Meaning, node: ast.expr) -> Items | None:
    """The items of a value; None for what has none."""
    match value:
        case TupleOf(items, None):
            return items
        case Typed(atom) if isinstance(value.type, Vec | Mat):
            return [Typed(item) for item in frame.builder.items(atom)]
        case ArrayRef():
            count = array_views.shape(frame, value, 0).atom
            return ArrayItems(
                count, lambda k: places.element(frame, array_views.at(frame, value, (k,), node))
            )
        case StructArrayRef(name, struct, vars, indices) if value.ndim == 1:
            count = array_views.shape(frame, struct_values.first(value), 0).atom
            return ArrayItems(
                count,
                lambda k: struct_values.loaded(frame, StructArrayRef(name, struct, vars, (*indices, k))),
            )
        case _:
            return None


def unpacked(
    frame: Frame, value: Meaning, count: int, target: ast.expr, source: ast.expr
) -> Sequence[Meaning]:
    """The items for `count` names; an array or a slice has to have as many elements when the kernel runs."""
    items = value.items if isinstance(value, TupleOf) else items_of(frame, value, source)
    if items is None:
        raise frame.error(source, f"{describe(value)} cannot be unpacked into {count} names")
    if isinstance(items, ArrayItems):
        same = frame.builder.apply("eq", items.count, integer(count))
        text = frame.places.text(source)
        frame.builder.check(same, "assertion", f"{text} has another number of elements than {count}")
        return [items.at(integer(k)) for k in range(count)]
    if len(items) != count:
        raise frame.error(
            target,
            f"{counted(len(items), 'value')} cannot be unpacked into {count} names",
            "value",
            "write one name for each value",
        )
    return items
