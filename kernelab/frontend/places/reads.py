"""Lowers reads of names and attributes, such as `x.shape`, `m.T` and `math.pi`, and tests of optional arrays.

An array that has no elements counts as none, and a launch hands one over for None.
"""

import ast
from functools import reduce

from kernelab.errors import Related
from kernelab.frontend.meaning import array_views, habit_hints
from kernelab.frontend.meaning.frame import Frame, NotSet, Poisoned
from kernelab.frontend.meaning.meanings import (
    ArrayRef,
    BuiltinRef,
    HostArray,
    Meaning,
    ModuleRef,
    NoArray,
    Poison,
    StructArrayRef,
    TupleOf,
    Typed,
    Weak,
    describe,
    is_struct,
)
from kernelab.frontend.meaning.name_lookup import Unknown
from kernelab.frontend.places import places, static_values, struct_values
from kernelab.frontend.regions.control import truth
from kernelab.frontend.regions.joins import WATCH
from kernelab.lang.build import FALSE, TRUE, zero
from kernelab.lang.ir import Atom, Const
from kernelab.lang.types import Array, Mat, Scalar, Transform, Vec, float32, int32, int64


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
    place = frame.facts.assignments[node.id][0]
    return frame.error(
        node,
        f"{node.id} is used before it is set",
        "unset",
        f"set it before this line, for example {node.id} = 0.0",
        related=(Related(f"{node.id} is set here", frame.places(place)),),
    )


def misplaced_adjoint(frame: Frame, node: ast.expr) -> Exception:
    """The mistake of `adjoint[x]` where there is no adjoint."""
    return frame.error(
        node,
        "adjoint[...] has a meaning only in a grad function",
        "name",
        "write it in a def that is decorated with @func_grad(f), for an argument of f",
    )


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
        case _, "dtype" if (dtype := static_values.dtype(base)) is not None:
            return dtype
        case _, _ if (size := static_values.extent(base, node.attr)) is not None:
            return size
        case Weak(), "value" if isinstance(node.value, ast.Attribute):
            return base  # a member of an enumeration
        case _:
            text = frame.places.text(node.value)
            hint = habit_hints.of_value(base, node.attr, text) or _what_there_is(base)
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
            raise frame.error(
                node, "the axis of a shape has to be a constant", hint="write shape[0], shape[1], ..."
            )


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


def evaluated(frame: Frame, node: ast.expr) -> Meaning:
    """The meaning of an expression, which may be an array field that is not set."""
    try:
        return frame.value(node)
    except NotSet as mistake:
        # `r.links` itself is asked about; what is done with one inside `node` stays a mistake.
        if mistake.diagnostic.span != frame.places(node):
            raise
        return NoArray(Array(float32, 1))


def has_elements(frame: Frame, value: Meaning) -> Atom | None:
    """Whether an array has elements; None for what is no array."""
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
