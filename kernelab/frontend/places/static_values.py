"""Compile-time values: `static(expression)`, `type(x)`, `x.dtype`, and structs of the host.

An expression of `static` is Python's, in the names of the notebook and those variables of the def that are
numbers, types or tuples already; of a vector, its length is known.
"""

import ast
from collections.abc import Mapping
from typing import Any

from kernelab.frontend.meaning.frame import Frame, evaluated
from kernelab.frontend.meaning.meanings import (
    ArrayRef,
    HostArray,
    Meaning,
    StructArrayRef,
    StructRef,
    TupleOf,
    Typed,
    TypeRef,
    Weak,
    describe,
)
from kernelab.frontend.meaning.name_lookup import meaning_of
from kernelab.frontend.meaning.promote import default_scalar
from kernelab.frontend.places import places
from kernelab.lang.build import constant
from kernelab.lang.structs import Struct
from kernelab.lang.types import Mat, Scalar, Value, Vec, scalar_of, shape_of


class _Sized:
    """A value of which nothing but its length is known yet."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length


def static(frame: Frame, node: ast.Call) -> Meaning:
    """`static(expression)`, evaluated by Python when the kernel is compiled."""
    if len(node.args) != 1 or node.keywords:
        raise frame.error(node, "static(...) takes one expression")
    expression = node.args[0]
    text = frame.places.text(expression)
    names = {**frame.scope.namespace, **frame.scope.assigned, **_variables(frame, expression)}
    value = evaluated(expression, frame.places, names, "static(...)")
    meaning = host_meaning(frame, text, value)
    if meaning is None:
        raise frame.error(
            expression,
            f"static(...) gives {type(value).__name__}, which a kernel cannot use",
            hint="give a number, a small NumPy vector, a struct, a tuple, a type or a function",
        )
    frame.scope.captured[f"static({text})"] = value
    for part in ast.walk(expression):
        if isinstance(part, ast.Name) and part.id in frame.scope.namespace and part.id not in frame.env:
            frame.scope.note(part.id, frame.scope.namespace[part.id])
    return meaning


def _variables(frame: Frame, expression: ast.expr) -> Mapping[str, Any]:
    """The variables of the def that an expression names, as far as they are known; raises Mistake."""
    values: dict[str, Any] = {}
    own = {
        argument.arg
        for part in ast.walk(expression)
        if isinstance(part, ast.arguments)
        for argument in part.args
    }
    for part in ast.walk(expression):
        if not isinstance(part, ast.Name) or part.id in own or part.id not in frame.env:
            continue
        value = _value(frame.env[part.id])
        if value is None:
            message = f"static(...) is computed before the kernel runs, and {part.id} is known only then"
            raise frame.error(part, message, "value", "leave static out, or use a constant")
        values[part.id] = value
    return values


def _value(meaning: Meaning) -> Any:
    match meaning:
        case Weak(number):
            return number
        case TypeRef(type):
            return type
        case TupleOf(items, None):
            values = tuple(_value(item) for item in items)
            return _Sized(len(items)) if None in values else values
        case Typed() if isinstance(meaning.type, Vec | Mat):
            return _Sized(meaning.type.n)
        case _:
            return None


def host_meaning(frame: Frame, text: str, value: Any) -> Meaning | None:
    """The meaning of a value of the host, structs and tuples included; None if it has none."""
    struct = getattr(type(value), "__kernelab_struct__", None)
    if isinstance(struct, Struct):
        fields = [
            host_meaning(frame, f"{text}.{entry.name}", getattr(value, entry.name)) for entry in struct.fields
        ]
        typed = [_typed(field, entry.type) for field, entry in zip(fields, struct.fields, strict=True)]
        return (
            None if None in typed else TupleOf(tuple(field for field in typed if field is not None), struct)
        )
    if isinstance(value, tuple):
        items = [host_meaning(frame, f"{text}[{k}]", item) for k, item in enumerate(value)]
        return None if None in items else TupleOf(tuple(item for item in items if item is not None))
    meaning = meaning_of(text, value)
    return places.vector_constant(frame, meaning) if isinstance(meaning, HostArray) else meaning


def _typed(meaning: Meaning | None, type: Any) -> Meaning | None:
    match meaning:
        case Weak(number) if isinstance(type, Scalar):
            return Typed(constant(number, type))
        case Typed() if isinstance(type, Value) and shape_of(meaning.type) == shape_of(type):
            return meaning if meaning.type == type else None
        case TupleOf():
            return meaning
        case _:
            return None


# ------------------------------------------------------------------------- types of values


def dtype(meaning: Meaning) -> TypeRef | StructRef | None:
    """`x.dtype`: the type of an array's elements, or of the numbers in a vector; None if it has none."""
    match meaning:
        case ArrayRef():
            return TypeRef(meaning.elem)
        case StructArrayRef(struct=struct):
            return StructRef(struct)
        case Typed() | TypeRef():
            return TypeRef(scalar_of(meaning.type))
        case Weak(number):
            return TypeRef(default_scalar(number))
        case _:
            return None


def extent(meaning: Meaning, name: str) -> Meaning | None:
    """`v.length` and `m.shape` of a vector, a matrix, or the type of one; None for anything else."""
    type = meaning.type if isinstance(meaning, Typed | TypeRef) else None
    match type, name:
        case Vec(_, n), "length":
            return Weak(n)
        case Vec() | Mat(), "shape":
            return TupleOf(tuple(Weak(n) for n in type.shape))
        case _:
            return None


def type_of(frame: Frame, node: ast.Call) -> Meaning:
    """`type(x)`, which converts: ``type(x)(1)`` is 1 of the type of x."""
    match [frame.value(part) for part in node.args]:
        case [Typed() as only]:
            return TypeRef(only.type)
        case [Weak(number)]:
            return TypeRef(default_scalar(number))
        case [TupleOf(_, Struct() as struct)]:
            return StructRef(struct)
        case [ArrayRef() as array]:
            return array  # its dtype may be asked for
        case values:
            shown = ", ".join(describe(value) for value in values)
            raise frame.error(node, f"type takes one number, vector, matrix or struct, not ({shown})")
