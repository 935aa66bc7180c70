"""Structs as arguments and results of transforms: an array for each field of floats, and back.

A number or vector of a struct is an array of one element, an array in it itself; an array of structs is one
array a field.  Knows structs and how levels move values; must not know what a transform does with the arrays.
"""

from collections.abc import Iterator
from typing import Any

from kernelab.autodiff.transforms.levels import current
from kernelab.lang.structs import placed
from kernelab.lang.types import Mat, Scalar, Vec, is_differentiable
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import unrecorded
from kernelab.runtime.host.create import zeros
from kernelab.runtime.host.struct_instances import Instance, cleared, held_in
from kernelab.runtime.host.structarray import structarray


def is_struct(value: object) -> bool:
    """Whether a value is a struct, or an array of structs."""
    return isinstance(value, Instance | structarray)


def fields(value: Any) -> Iterator[tuple[str, Any, Any]]:
    """The name, type and value of each field of floats in a struct or an array of structs, in order."""
    if isinstance(value, structarray):
        for leaf, part in zip(placed(value.dtype), value.leaves, strict=True):
            if is_differentiable(leaf.type):
                yield leaf.name, leaf.type, part
        return
    for entry in value.__kernelab_struct__.fields:
        held = held_in(value, entry.name)
        if is_struct(held):
            yield from ((f"{entry.name}.{name}", type, inner) for name, type, inner in fields(held))
        elif _has_floats(entry.type, held):
            yield entry.name, entry.type, held


def _has_floats(type: Any, held: Any) -> bool:
    if isinstance(held, array):
        return bool(held.size) and is_differentiable(held.dtype)
    return isinstance(type, Scalar | Vec | Mat) and is_differentiable(type)


def parts(value: Any) -> list[array]:
    """An array for each field of floats."""
    return [held if isinstance(held, array) else array([held], type, (1,)) for _, type, held in fields(value)]


def assembled(value: Any, found: Iterator[array], made: Any = None) -> Any:
    """A struct like another whose fields of floats are the given arrays; `made` is what has the rest."""
    if isinstance(value, structarray):
        return _filled(value, found)
    made = value.copy() if made is None else made
    for entry in value.__kernelab_struct__.fields:
        held = getattr(value, entry.name)
        if is_struct(held):
            setattr(made, entry.name, assembled(held, found, getattr(made, entry.name)))
        elif _has_floats(entry.type, held):
            setattr(made, entry.name, next(found))
    return made


def _filled(value: structarray, found: Iterator[array]) -> Any:
    """An array of structs with memory of its own, into which the given arrays are moved."""
    with unrecorded():
        made = zeros(value.shape, value.dtype, value.device)
    assert isinstance(made, structarray)
    for target, source in zip(made.leaves, value.leaves, strict=True):
        is_float = is_differentiable(target.dtype)
        current().move(target, next(found) if is_float else source)
    return made


def together(value: Any, found: Iterator[Any]) -> Any:
    """What belongs to the fields of floats: a struct if it is like them, else a dict by their names."""
    by_name = {name: (type, held, next(found)) for name, type, held in fields(value)}
    given = [part for _, _, part in by_name.values()]
    if not all(_is_like(type, held, part) for type, held, part in by_name.values()):
        return dict(zip(by_name, given, strict=True))
    return assembled(value, iter(given), None if isinstance(value, structarray) else cleared(value))


def _is_like(type: Any, held: Any, part: Any) -> bool:
    shape, dtype = (held.shape, held.dtype) if isinstance(held, array) else ((1,), type)
    return isinstance(part, array) and (part.shape, part.dtype) == (shape, dtype)
