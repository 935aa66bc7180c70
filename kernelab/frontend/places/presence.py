"""Tests for optional arrays: `if x:`, `bool(x)`, `x is None`.

An array that has no elements counts as none, and a launch hands one over for None.
"""

import ast

from kernelab.frontend.meaning.frame import Frame, NotSet
from kernelab.frontend.meaning.meanings import ArrayRef, Meaning, NoArray, StructArrayRef, View, describe
from kernelab.frontend.places import places, struct_values
from kernelab.lang.build import FALSE, TRUE, zero
from kernelab.lang.ir import Atom
from kernelab.lang.types import Array, float32, int32


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
    if not isinstance(array, ArrayRef | View) or not array.ndim:
        return None
    found: Atom = TRUE
    for axis in range(array.ndim):
        extent = places.shape(frame, array, axis).atom
        found = frame.builder.apply("and", found, frame.builder.apply("gt", extent, zero(int32)))
    return found


def is_none(frame: Frame, value: Meaning, node: ast.Compare) -> Atom:
    """`x is None`, or `x is not None`."""
    there = has_elements(frame, value)
    if there is None:
        message = f"{frame.places.text(node.left)} is {describe(value)}, which is never None"
        raise frame.error(node, message, hint="compare it with a number that stands for nothing, such as -1")
    return there if isinstance(node.ops[0], ast.IsNot) else frame.builder.apply("not", there)
