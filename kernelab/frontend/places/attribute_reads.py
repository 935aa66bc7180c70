"""Lowers attributes: `x.shape`, `m.T`, `t.p`, `v.xz`, `math.pi`, and fields of structs."""

import ast
from functools import reduce

from kernelab.frontend.meaning import habit_hints
from kernelab.frontend.meaning.frame import Frame
from kernelab.frontend.meaning.meanings import (
    ArrayRef,
    BuiltinRef,
    HostArray,
    Meaning,
    ModuleRef,
    StructArrayRef,
    TupleOf,
    Typed,
    View,
    Weak,
    describe,
    is_struct,
)
from kernelab.frontend.meaning.name_lookup import Unknown
from kernelab.frontend.places import known, places, several, struct_values
from kernelab.frontend.places.variables import misplaced_adjoint
from kernelab.lang.ir import Atom, Const
from kernelab.lang.types import Mat, Scalar, Transform, Vec, int64


def attribute(frame: Frame, node: ast.Attribute, base: Meaning) -> Meaning:
    """The attribute of a value; raises Mistake where it has none of this name."""
    if isinstance(base, StructArrayRef) and node.attr in ("shape", "ndim", "size") and base.ndim:
        base = struct_values.first(base)
    if is_struct(base):
        return struct_values.field(frame, base, node.attr, node)
    match base, node.attr:
        case ModuleRef(), _:
            return _of_module(frame, node, base)
        case (ArrayRef() | View(), "shape"):
            return TupleOf(tuple(places.shape(frame, base, axis) for axis in range(base.ndim)))
        case (ArrayRef() | View(), "ndim"):
            return Weak(base.ndim)
        case (ArrayRef() | View(), "size"):
            return _size(frame, base, node)
        case Typed(atom), ("p" | "q") if isinstance(base.type, Transform):
            return Typed(frame.builder.apply(several.PARTS[node.attr][0], atom))
        case Typed(atom), letters if isinstance(base.type, Vec) and set(letters) <= set(places.COMPONENTS):
            return places.swizzled(frame, node, base, letters)
        case Typed(atom), "T" if isinstance(base.type, Mat):
            return Typed(frame.builder.apply("transpose", atom))
        case _, "dtype" if (found := known.dtype(base)) is not None:
            return found
        case _, _ if (told := known.extent(base, node.attr)) is not None:
            return told
        case Weak(), "value" if isinstance(node.value, ast.Attribute):
            return base  # a member of an enumeration
        case _:
            text = frame.places.text(node.value)
            hint = habit_hints.of_value(base, node.attr, text) or _what_there_is(base)
            raise frame.error(node, f"{describe(base)} has no {node.attr}", "name", hint)


def extent(frame: Frame, array: ArrayRef | View, axis: Meaning, node: ast.expr) -> Meaning:
    """`x.shape[axis]`."""
    match axis:
        case Weak(int() as number) if -array.ndim <= number < array.ndim:
            return places.shape(frame, array, number % array.ndim)
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


def _size(frame: Frame, array: ArrayRef | View, node: ast.Attribute) -> Typed:
    """The number of elements, an int like the extents: one that is too large for it ends the launch."""
    b = frame.builder
    extents = [places.shape(frame, array, axis).atom for axis in range(array.ndim)]
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
            return "it has shape, ndim, size and dtype" if isinstance(base, ArrayRef | View) else ""
