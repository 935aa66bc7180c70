"""Lowers casts and constructors: `float(x)`, `vec3(x, y, z)`, `matrix(..., shape=(2, 3))`, `identity(n)`."""

import ast
from collections.abc import Mapping, Sequence

from kernelab.frontend.expressions.passing import beside_type
from kernelab.frontend.meaning import annotations
from kernelab.frontend.meaning.frame import Frame
from kernelab.frontend.meaning.meanings import (
    Argument,
    Arguments,
    ArrayRef,
    Meaning,
    TupleOf,
    Typed,
    Weak,
    describe,
    is_number,
)
from kernelab.frontend.meaning.promote import cast, convert, default_scalar, weak_constant
from kernelab.lang.build import constant, zero
from kernelab.lang.ir import Atom
from kernelab.lang.types import Mat, Quat, Scalar, Transform, Value, Vec, bool_, scalar_of, size_of


def number(frame: Frame, name: str, argument: Argument) -> Weak | Typed:
    """An argument as a number, vector or matrix."""
    if isinstance(argument.value, Weak | Typed):
        return argument.value
    hint = "index the array to take one element" if isinstance(argument.value, ArrayRef) else ""
    raise frame.error(argument.node, f"{name} takes numbers, not {describe(argument.value)}", hint=hint)


def shaped_value(frame: Frame, name: str, arguments: Arguments, node: ast.Call) -> Meaning:
    """`vector(...)`, `matrix(...)` and `identity(...)`, whose keywords say which type is meant."""
    if name in annotations.ROTATIONS:
        arguments = beside_type(frame, name, arguments, node)
    named = {a.keyword: a.value for a in arguments if a.keyword is not None}
    named |= _extent_of(name, named, arguments)
    is_identity = name in annotations.IDENTITIES
    plain = [] if is_identity else [a for a in arguments if a.keyword is None]
    operands = [number(frame, name, argument) for argument in plain]
    first = [a.value for a in arguments if a.keyword is None and is_identity]
    kinds = [default_scalar(o.number) if isinstance(o, Weak) else o.type for o in operands]
    kinds.sort(key=lambda kind: not scalar_of(kind).is_float)
    try:
        type = annotations.shaped_type(name, annotations.type_words(name, first, named), kinds)
    except annotations.Unshaped as error:
        raise frame.error(node, error.message, hint=error.hint) from None
    if is_identity:
        return _built(frame, type, [constant(one, type.scalar) for one in annotations.identity_pattern(type)])
    match operands:
        case [Typed() as p] if name == "transformation" and p.type == Vec(type.scalar, 3):
            return _shifted(frame, type, p)
        case _:
            return construct(frame, type, plain, node)


def _extent_of(name: str, named: Mapping[str, Meaning], arguments: Arguments) -> dict[str, Meaning]:
    """The length or shape that `vector(v, dtype=...)` takes over from a vector or matrix of another type."""
    match name, [argument.value for argument in arguments if argument.keyword is None]:
        case "vector", [Typed() as only] if isinstance(only.type, Vec) and "length" not in named:
            return {"length": Weak(only.type.n)}
        case "matrix", [Typed() as only] if isinstance(only.type, Mat) and "shape" not in named:
            return {"shape": TupleOf((Weak(only.type.n), Weak(only.type.m)))}
        case _:
            return {}


def construct(frame: Frame, type: Value, arguments: Arguments, node: ast.Call) -> Meaning:
    """`float(x)`, `vec3(x, y, z)`, `vec3(0.0)`, `vec3()`, `mat22(...)` by rows, or one from another."""
    operands = [number(frame, str(type), argument) for argument in arguments]
    if isinstance(type, Scalar):
        return _scalar_cast(frame, type, operands, arguments, node)
    match operands:
        case []:
            return Typed(zero(type))
        case [Weak(value)]:
            return Typed(weak_constant(frame, value, type, node))
        case [Typed() as only] if isinstance(only.type, Scalar):
            return _built(frame, type, [_entry(frame, only, type, arguments[0])] * size_of(type))
        case [Typed() as only] if isinstance(only.type, Vec | Mat) and only.type.shape == type.shape:
            return only if only.type == type else _built(frame, type, _cast_entries(frame, only, type))
        case _ if (
            isinstance(type, Mat) and len(operands) == type.n and all(_is_row(o, type) for o in operands)
        ):
            rows = [frame.builder.components(o.atom) for o in operands if isinstance(o, Typed)]
            return _built(frame, type, [entry for row in rows for entry in row])
        case _ if isinstance(type, Vec) and _join(operands, type):
            written = zip(operands, arguments, strict=True)
            parts = [part for o, a in written for part in _entries(frame, o, type, a)]
            return _built(frame, type, parts)
        case _ if len(operands) == size_of(type) and all(map(is_number, operands)):
            return _built(
                frame, type, [_entry(frame, o, type, a) for o, a in zip(operands, arguments, strict=True)]
            )
        case [Typed() as p] if isinstance(type, Transform) and p.type == Vec(type.scalar, 3):
            return _shifted(frame, type, p)
        case _:
            shown = ", ".join(describe(operand) for operand in operands)
            hint = f"give all {size_of(type)}, or one number for every component"
            raise frame.error(node, f"{type} takes 0, 1 or {size_of(type)} numbers, not ({shown})", hint=hint)


def _is_row(operand: Weak | Typed, type: Mat) -> bool:
    return isinstance(operand, Typed) and operand.type == Vec(type.scalar, type.m)


def _join(operands: Sequence[Weak | Typed], type: Vec) -> bool:
    """Whether vectors, and numbers of their type, make up a longer vector, as in `vec6(v, w)`."""
    types = [o.type for o in operands if isinstance(o, Typed)]
    alike = all(not isinstance(t, Mat) and scalar_of(t) == type.scalar for t in types)
    literals = len(operands) - len(types)
    any_vector = any(isinstance(t, Vec) for t in types)
    return alike and any_vector and sum(size_of(t) for t in types) + literals == type.n


def _entries(frame: Frame, operand: Weak | Typed, type: Vec, argument: Argument) -> list[Atom]:
    if isinstance(operand, Weak):
        return [_entry(frame, operand, type, argument)]
    return [operand.atom] if isinstance(operand.type, Scalar) else _cast_entries(frame, operand, type)


def _entry(frame: Frame, operand: Weak | Typed, type: Vec | Mat, argument: Argument) -> Atom:
    return convert(frame, operand, type.scalar, argument.node, f"a component of {type} is")


def _shifted(frame: Frame, type: Vec | Mat, p: Typed) -> Typed:
    """The rigid motion that only shifts."""
    turned = [constant(one, type.scalar) for one in annotations.identity_pattern(Quat(type.scalar))]
    return _built(frame, type, [*_cast_entries(frame, p, type), *turned])


def _cast_entries(frame: Frame, value: Typed, type: Vec | Mat) -> list[Atom]:
    return [cast(frame, entry, type.scalar) for entry in frame.builder.components(value.atom)]


def _built(frame: Frame, type: Value, entries: Sequence[Atom]) -> Typed:
    return Typed(frame.builder.joined(type, entries))


def _scalar_cast(
    frame: Frame, type: Scalar, operands: Sequence[Weak | Typed], arguments: Arguments, node: ast.Call
) -> Meaning:
    match operands:
        case []:
            return Typed(zero(type))
        case [Weak(value)]:
            return _cast_literal(frame, type, value, node)
        case [Typed() as only] if isinstance(only.type, Scalar):
            return Typed(cast(frame, only.atom, type))
        case [Typed() as only]:
            raise frame.error(
                node,
                f"{type} takes one number, not {only.type}",
                hint=f"take one component, such as {frame.places.text(arguments[0].node)}[0]",
            )
        case _:
            raise frame.error(node, f"{type} takes one number, not {len(operands)}")


def _cast_literal(frame: Frame, type: Scalar, value: bool | int | float, node: ast.Call) -> Meaning:
    """`float(3)` stays a literal; `float32(3)` is a constant of that type."""
    try:
        converted: bool | int | float = (
            bool(value) if type == bool_ else int(value) if type.is_int else float(value)
        )
    except (OverflowError, ValueError) as error:
        raise frame.error(node, f"this cannot be computed: {error}", "value") from None
    match node.func:
        case ast.Name("float" | "int" | "bool"):
            return Weak(converted)
        case _:
            return Typed(weak_constant(frame, converted, type, node))
