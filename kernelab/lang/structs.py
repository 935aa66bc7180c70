"""Structs: types with named fields, flattened into one variable for each leaf before any IR exists.

A leaf is a number, vector, matrix or array; an array of structs is one array a leaf, each over the same
memory with the struct's size as stride.  Structs compare by name and fields: when a definition changes, what
was compiled with the old one keeps it.  Knows types and their layout in memory; must not know the IR.
"""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from kernelab.data_classes import dataclass, field
from kernelab.lang.types import Array, Mat, Scalar, Value, Vec, is_differentiable, scalar_of, shape_of


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct; `default` is a number or NumPy array, None for zeros, and no part of the type."""

    name: str
    type: "FieldType"
    default: Any = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct: a value that is copied on assignment, whose arrays stay the arrays they are."""

    name: str
    fields: tuple[Field, ...]
    doc: str = field(default="", compare=False)

    @property
    def __kernelab_struct__(self) -> "Struct":
        return self

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name

    def index(self, name: str) -> int | None:
        """The position of a field, None if there is none of that name."""
        return next((k for k, entry in enumerate(self.fields) if entry.name == name), None)


@dataclass(frozen=True, slots=True)
class StructArray:
    """The type of an array of structs, in 1 to 4 dimensions."""

    elem: Struct
    ndim: int

    @property
    def dtype(self) -> Struct:
        """The struct, as arrays call the type of their elements."""
        return self.elem

    def __str__(self) -> str:
        return f"array[{self.elem}]" if self.ndim == 1 else f"array{self.ndim}d[{self.elem}]"

    def __repr__(self) -> str:
        return str(self)


FieldType = Value | Array | Struct | StructArray
AnyType = FieldType
"""The type that an annotation stands for."""


class Leaf(NamedTuple):
    """A part of a parameter that exists at run time: ``p.mass``, ``p.spring.length``."""

    name: str
    type: Value | Array


def leaves(type: AnyType, name: str) -> Iterator[Leaf]:
    """The leaves of a parameter, in order; of a plain one, itself."""
    match type:
        case Struct(_, fields):
            for entry in fields:
                yield from leaves(entry.type, f"{name}.{entry.name}")
        case StructArray(elem, ndim):
            for leaf in leaves(elem, name):
                assert isinstance(leaf.type, Scalar | Vec | Mat)
                yield Leaf(leaf.name, Array(leaf.type, ndim))
        case _:
            yield Leaf(name, type)


def unfit_for_arrays(struct: Struct) -> tuple[str, str] | None:
    """Why an array cannot hold structs, and what to do instead; None where it can."""
    empty = _empty_inside(struct)
    if empty is not None:
        message = f"an array cannot hold {struct}: {empty} has no fields"
        return message, f"give {empty} a field, or pass an array of numbers"
    names = (leaf.name for leaf in leaves(struct, "") if isinstance(leaf.type, Array))
    inside = next((name.removeprefix(".") for name in names), None)
    if inside is None:
        return None
    hint = "keep the structs in a Python list, or pass the field's array as an argument of its own"
    return f"an array cannot hold {struct}: its field {inside} is an array", hint


def _empty_inside(struct: Struct) -> Struct | None:
    if not struct.fields:
        return struct
    inner = (_empty_inside(entry.type) for entry in struct.fields if isinstance(entry.type, Struct))
    return next((empty for empty in inner if empty is not None), None)


@functools.cache
def layout(struct: Struct) -> np.dtype[Any]:
    """The memory layout of a struct of values: fields in order, each at a multiple of its own alignment."""
    return np.dtype([(entry.name, _stored(entry.type)) for entry in struct.fields], align=True)


def _stored(type: AnyType) -> Any:
    match type:
        case Struct():
            return layout(type)
        case Scalar() | Vec() | Mat():
            return (scalar_of(type).dtype, shape_of(type))
        case _:
            raise TypeError(f"{type} does not stand inside of a struct")


class Placed(NamedTuple):
    """A leaf of a struct in memory: its name within the struct, its type, and its distance in bytes."""

    name: str
    type: Value
    offset: int


@functools.cache
def placed(struct: Struct) -> tuple[Placed, ...]:
    """The leaves of a struct of values, in order."""
    entries: list[Placed] = []
    kept = layout(struct).fields
    assert kept is not None
    for entry in struct.fields:
        offset = int(kept[entry.name][1])
        if isinstance(entry.type, Struct):
            inner = placed(entry.type)
            entries += [
                Placed(f"{entry.name}.{part.name}", part.type, offset + part.offset) for part in inner
            ]
        else:
            assert isinstance(entry.type, Scalar | Vec | Mat)
            entries.append(Placed(entry.name, entry.type, offset))
    return tuple(entries)


def has_derivative(type: AnyType) -> bool:
    """Whether any leaf carries derivatives."""
    return any(is_differentiable(leaf.type) for leaf in leaves(type, ""))


def difference(one: Struct, other: Struct) -> str:
    """The first difference between the fields of two structs of one name, as the text of a message."""
    mine, theirs = ({entry.name: entry.type for entry in struct.fields} for struct in (one, other))
    for name, type in mine.items():
        if name not in theirs:
            return f"the other one has no field {name}"
        if theirs[name] != type:
            return f"{name} is {type} in one and {theirs[name]} in the other"
    extra = [name for name in theirs if name not in mine]
    return f"the other one has a field {extra[0]} too" if extra else "their fields stand in another order"
