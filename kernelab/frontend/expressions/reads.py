"""Lowers reads of names and attributes, such as `x.shape`, `m.T` and `math.pi`, and tests of optional arrays.

An array that has no elements counts as none, and a launch hands one over for None.
"""

import ast
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

from kernelab.errors import Related
from kernelab.frontend.expressions import places, struct_values
from kernelab.frontend.expressions.control import truth
from kernelab.frontend.expressions.joins import WATCH
from kernelab.frontend.meaning import array_views, unsupported
from kernelab.frontend.meaning.frame import Frame, NotSet, Poisoned, evaluated
from kernelab.frontend.meaning.meanings import (
    ArrayRef,
    BuiltinRef,
    HostArray,
    Meaning,
    ModuleRef,
    NoArray,
    Poison,
    StructArrayRef,
    StructRef,
    TupleOf,
    Typed,
    TypeRef,
    Weak,
    describe,
    is_struct,
)
from kernelab.frontend.meaning.name_lookup import Unknown, meaning_of, soundly
from kernelab.lang.build import FALSE, TRUE, constant, zero
from kernelab.lang.ir import Atom, Const
from kernelab.lang.structs import Struct
from kernelab.lang.types import (
    Array,
    Mat,
    Scalar,
    Transform,
    Value,
    Vec,
    float32,
    int32,
    int64,
    scalar_of,
    shape_of,
)


def name(frame: Frame, node: ast.Name) -> Meaning:
    """The meaning of a name; raises Mistake where it is not known or may be unset."""
    match frame.facts.reads.get(node, "outer"):
        case "local":
            return unpoisoned(frame.env[node.id])
        case "unset":
            return _perhaps_unset(frame, node)
        case _:
            return outer(frame, node)


def unpoisoned(value: Meaning) -> Meaning:
    """The value itself; raises Poisoned where it depends on an earlier mistake."""
    if isinstance(value, Poison):
        raise Poisoned
    return value


def _perhaps_unset(frame: Frame, node: ast.Name) -> Meaning:
    is_set = truth(frame.env.get(WATCH + node.id))
    if is_set != FALSE:
        frame.builder.check(is_set, "assertion", f"{node.id} is unset: its loop ran zero times")
        return unpoisoned(frame.env[node.id])
    if isinstance(frame.env.get(node.id), Poison):
        raise Poisoned
    assigned = frame.facts.assignments[node.id]
    in_loop = assigned[0] in frame.facts.in_loop
    why = "the loop that sets it may run zero times" if in_loop else "it is set in one branch only"
    where = "the loop" if in_loop else "the if"
    related = tuple(Related(f"{node.id} is set here", frame.places(place)) for place in assigned[:1])
    message = f"{node.id} may be unset here: {why}"
    hint = f"set it before {where}, for example {node.id} = 0.0"
    frame.poison(node.id)
    raise frame.error(node, message, "unset", hint, related=related)


def outer(frame: Frame, node: ast.Name, called: bool = False) -> Meaning:
    """The meaning of a name outside of the def; a word of the language may be a number, unless called."""
    if isinstance(frame.env.get(node.id), Poison) or node.id in frame.unknown:
        raise Poisoned
    try:
        value = frame.scope.lookup(node.id, tuple(frame.facts.assignments))
    except Unknown as unknown:
        frame.unknown.add(node.id)
        if node.id in frame.facts.assignments:
            raise _too_early(frame, node) from None
        raise frame.error(node, unknown.message, "name", unknown.hint) from None
    if value == BuiltinRef("adjoint"):
        raise misplaced_adjoint(frame, node)
    if isinstance(value, BuiltinRef) and not called:
        value = frame.scope.number(node.id) or value
    if isinstance(value, HostArray):
        return places.vector_constant(frame, value)
    return unpoisoned(value)


def _too_early(frame: Frame, node: ast.Name) -> Exception:
    hint = f"set it before this line, for example {node.id} = 0.0"
    _, is_adjoint, of = node.id.partition("adj_")
    if is_adjoint and of in frame.facts.assignments:
        hint = f"where the adjoint of {of} is meant, write adjoint[{of}] += ..., in a grad function"
    return frame.error(
        node,
        f"{node.id} is used before it is set",
        "unset",
        hint,
        related=(Related(f"{node.id} is set here", frame.places(frame.facts.assignments[node.id][0])),),
    )


def misplaced_adjoint(frame: Frame, node: ast.expr) -> Exception:
    """The mistake of `adjoint[x]` where there is no adjoint."""
    hint = "write it in a def that is decorated with @func_grad(f), for an argument of f"
    return frame.error(node, "adjoint[...] has a meaning only in a grad function", "name", hint)


# ---------------------------------------------------------------------------------------------- attributes


def attribute(frame: Frame, node: ast.Attribute, base: Meaning) -> Meaning:
    """The attribute of a value; raises Mistake where it has none of this name."""
    if isinstance(base, StructArrayRef) and node.attr in ("shape", "ndim", "size") and base.ndim:
        base = struct_values.first(base)
    if is_struct(base):
        return struct_values.field(frame, base, node.attr, node)
    match base, node.attr:
        case ModuleRef(), _:
            return _of_module(frame, node, base)
        case (ArrayRef(), "shape"):
            return TupleOf(tuple(array_views.shape(frame, base, axis) for axis in range(base.ndim)))
        case (ArrayRef(), "ndim"):
            return Weak(base.ndim)
        case (ArrayRef(), "size"):
            return _size(frame, base, node)
        case Typed(atom), ("p" | "q" as part) if isinstance(base.type, Transform):
            operation = {"p": "transform_get_translation", "q": "transform_get_rotation"}[part]
            return Typed(frame.builder.apply(operation, atom))
        case Typed(atom), letters if isinstance(base.type, Vec) and set(letters) <= set(places.COMPONENTS):
            return places.swizzled(frame, node, base, letters)
        case Typed(atom), "T" if isinstance(base.type, Mat):
            return Typed(frame.builder.apply("transpose", atom))
        case _, "dtype" if (dtype := static_dtype(base)) is not None:
            return dtype
        case _, _ if (size := static_extent(base, node.attr)) is not None:
            return size
        case Weak(), "value" if isinstance(node.value, ast.Attribute):
            return base  # a member of an enumeration
        case _:
            text = frame.places.text(node.value)
            hint = unsupported.hint_of_value(base, node.attr, text) or _what_there_is(base)
            raise frame.error(node, f"{describe(base)} has no {node.attr}", "name", hint)


def extent(frame: Frame, array: ArrayRef, axis: Meaning, node: ast.expr) -> Meaning:
    """`x.shape[axis]`."""
    match axis:
        case Weak(int() as number) if -array.ndim <= number < array.ndim:
            return array_views.shape(frame, array, number % array.ndim)
        case Weak(int() as number):
            hint = f"its axes are 0 to {array.ndim - 1}" if array.ndim > 1 else "its only axis is 0"
            raise frame.error(node, f"{describe(array)} has no axis {number}", "value", hint)
        case _:
            hint = "write shape[0], shape[1], ..."
            raise frame.error(node, "the axis of a shape has to be a constant", hint=hint)


def _of_module(frame: Frame, node: ast.Attribute, base: ModuleRef) -> Meaning:
    try:
        value = frame.scope.attribute(base, node.attr)
    except Unknown as unknown:
        raise frame.error(node, unknown.message, "name", unknown.hint) from None
    if value == BuiltinRef("adjoint"):
        raise misplaced_adjoint(frame, node)
    return places.vector_constant(frame, value) if isinstance(value, HostArray) else value


def _size(frame: Frame, array: ArrayRef, node: ast.Attribute) -> Typed:
    """The number of elements, an int like the extents: one that is too large for it ends the launch."""
    b = frame.builder
    extents = [array_views.shape(frame, array, axis).atom for axis in range(array.ndim)]
    size: Atom = reduce(lambda x, y: b.apply("mul", x, y), extents)
    if len(extents) > 1:
        wide = reduce(lambda x, y: b.apply("mul", x, y), [b.apply("int64", x) for x in extents])
        with b.at(frame.places(node)):
            fits = b.apply("lt", wide, Const(2**31, int64))
            b.check(fits, "assertion", f"{frame.places.text(node)} < 2**31")
    return Typed(size)


def _what_there_is(base: Meaning) -> str:
    type = base.type if isinstance(base, Typed) else None
    match type:
        case Transform():
            return "it has p and q"
        case Vec(_, n) if n <= len(places.COMPONENTS):
            *first, last = places.COMPONENTS[:n]
            return f"it has {', '.join(first)} and {last}" if first else f"it has {last}"
        case Vec(_, n):
            return f"write v[0] to v[{n - 1}]"
        case Mat():
            return "it has T, shape and dtype; write m[i, j] for an entry"
        case Scalar():
            return "it is one number"
        case _:
            return "it has shape, ndim, size and dtype" if isinstance(base, ArrayRef) else ""


# ----------------------------------------------------------------------------------------- optional arrays


def optional_value(frame: Frame, node: ast.expr) -> Meaning:
    """The meaning of an expression, which may be an array field that is not set."""
    try:
        return frame.value(node)
    except NotSet as mistake:
        # `r.links` itself is asked about; what is done with one inside `node` stays a mistake.
        if mistake.diagnostic.span != frame.places(node):
            raise
        return NoArray(Array(float32, 1))


def has_elements(frame: Frame, value: Meaning) -> Atom | None:
    """Whether an array has elements; None for what is not an array."""
    if isinstance(value, NoArray):
        return FALSE
    array = struct_values.first(value) if isinstance(value, StructArrayRef) else value
    if not isinstance(array, ArrayRef) or not array.ndim:
        return None
    result: Atom = TRUE
    for axis in range(array.ndim):
        extent = array_views.shape(frame, array, axis).atom
        result = frame.builder.apply("and", result, frame.builder.apply("gt", extent, zero(int32)))
    return result


def is_none(frame: Frame, value: Meaning, node: ast.Compare) -> Atom:
    """`x is None`, or `x is not None`."""
    there = has_elements(frame, value)
    if there is None:
        message = f"{frame.places.text(node.left)} is {describe(value)}, which is never None"
        raise frame.error(node, message, hint="compare it with a number that stands for nothing, such as -1")
    return there if isinstance(node.ops[0], ast.IsNot) else frame.builder.apply("not", there)


# ------------------------------------------------------------------------------- values known at compile time


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
        message = f"static(...) gives {type(value).__name__}, which a kernel cannot use"
        hint = "give a number, a small NumPy vector, a struct, a tuple, a type or a function"
        raise frame.error(expression, message, hint=hint)
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
        value = _static_value(frame.env[part.id])
        if value is None:
            message = f"static(...) is computed before the kernel runs, and {part.id} is known only then"
            raise frame.error(part, message, "value", "leave static out, or use a constant")
        values[part.id] = value
    return values


def _static_value(meaning: Meaning) -> Any:
    match meaning:
        case Weak(number):
            return number
        case TypeRef(type):
            return type
        case TupleOf(items, None):
            values = tuple(_static_value(item) for item in items)
            return _Sized(len(items)) if None in values else values
        case Typed() if isinstance(meaning.type, Vec | Mat):
            return _Sized(meaning.type.n)
        case _:
            return None


def host_meaning(frame: Frame, text: str, value: Any) -> Meaning | None:
    """The meaning of a value of the host, structs and tuples included; None if it has none."""
    value = soundly(value)
    struct = getattr(type(value), "__kernelab_struct__", None)
    if isinstance(struct, Struct):
        parts = ((f"{text}.{entry.name}", getattr(value, entry.name), entry.type) for entry in struct.fields)
        fields = (_typed_attribute(host_meaning(frame, name, part), type) for name, part, type in parts)
        return _whole(fields, struct)
    if isinstance(value, tuple):
        return _whole(host_meaning(frame, f"{text}[{k}]", item) for k, item in enumerate(value))
    meaning = meaning_of(text, value)
    return places.vector_constant(frame, meaning) if isinstance(meaning, HostArray) else meaning


def _whole(parts: Iterable[Meaning | None], struct: Struct | None = None) -> Meaning | None:
    """A tuple or a struct of its parts; None where one of them has no meaning."""
    items = list(parts)
    known = tuple(item for item in items if item is not None)
    return TupleOf(known, struct) if len(known) == len(items) else None


def _typed_attribute(meaning: Meaning | None, type: Any) -> Meaning | None:
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


def static_dtype(meaning: Meaning) -> TypeRef | StructRef | None:
    """`x.dtype`: the type of an array's elements, or of the numbers in a vector; None if it has none."""
    match meaning:
        case ArrayRef():
            return TypeRef(meaning.elem)
        case StructArrayRef(struct=struct):
            return StructRef(struct)
        case Typed() | Weak() | TypeRef():
            return TypeRef(scalar_of(meaning.type))
        case _:
            return None


def static_extent(meaning: Meaning, name: str) -> Meaning | None:
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
        case [(Typed() | Weak()) as only]:
            return TypeRef(only.type)
        case [TupleOf(_, Struct() as struct)]:
            return StructRef(struct)
        case [ArrayRef() as array]:
            return array  # its dtype may be asked for
        case values:
            shown = ", ".join(describe(value) for value in values)
            raise frame.error(node, f"type takes one number, vector, matrix or struct, not ({shown})")
