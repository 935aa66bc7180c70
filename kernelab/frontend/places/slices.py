"""Slices of vectors and matrices, such as `v[1:3]` and `m[:, ::2]`, read and written by components.

The bounds are constants, so the type of a slice is known.
"""

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

from kernelab.frontend.meaning.frame import Frame
from kernelab.frontend.meaning.meanings import ArrayRef, Meaning, Typed, Weak
from kernelab.lang.build import integer
from kernelab.lang.ir import Atom, Const
from kernelab.lang.types import Mat, Quat, Transform, Value, Vec

Index = Callable[[ast.expr, int], Atom]


@dataclass(frozen=True, slots=True)
class Part:
    """Some components of a vector or matrix: the type that they make up, and the place of each, by rows."""

    type: Vec | Mat
    places: tuple[tuple[Atom, ...], ...]


def part(frame: Frame, type: Vec | Mat, group: Sequence[ast.expr], index: Index) -> Part:
    """The part of a vector or matrix that indices and slices select."""
    axes: list[list[Atom]] = []
    lengths: list[int] = []
    for axis, extent in enumerate(type.shape):
        node = group[axis] if axis < len(group) else None
        if node is None or isinstance(node, ast.Slice):
            chosen = range(extent) if node is None else positions(frame, node, extent, type)
            axes.append([integer(k) for k in chosen])
            lengths.append(len(chosen))
        else:
            axes.append([index(node, extent)])
    shape: Vec | Mat = Vec(type.scalar, lengths[0])
    if len(lengths) == 2:
        shape = Mat(type.scalar, *lengths)
    elif isinstance(group[0], Swizzle) and group[0].letters == "q":
        shape = Quat(type.scalar)
    return Part(shape, tuple(product(*axes)))


PARTS = {"p": range(3), "q": range(3, 7)}
"""The components of a transform that its attributes stand for."""


class Swizzle(ast.Slice):
    """Letters that stand for several components: the `zx` of `v.zx = vec2()`, the `p` of a transform."""

    def __init__(self, letters: str) -> None:
        super().__init__()
        self.letters = letters


def positions(frame: Frame, node: ast.Slice, extent: int, type: Value) -> Sequence[int]:
    """The positions of a slice, of which there may be none."""
    if isinstance(node, Swizzle):
        return _lettered(frame, node, extent, type)
    bounds = _bounds(frame, node)
    if bounds is None:
        hint = "pick the components one by one"
        raise frame.error(node, f"the bounds of a slice of {type} have to be constants", hint=hint)
    if bounds[2] == 0:
        raise frame.error(node, "the step of a slice cannot be zero", "value")
    return range(extent)[slice(*bounds)]


def _lettered(frame: Frame, node: Swizzle, extent: int, type: Value) -> Sequence[int]:
    if isinstance(type, Transform) and node.letters in PARTS:
        return PARTS[node.letters]
    chosen = ["xyzw".find(letter) for letter in node.letters]
    if max(chosen) >= extent or min(chosen) < 0 or not isinstance(type, Vec):
        raise frame.error(node, f"{type} has no {node.letters}", "name", f"it has {extent} components")
    if len(set(chosen)) < len(chosen):
        raise frame.error(node, f"{node.letters} names a component twice", "value", "assign it once")
    return chosen


def _bounds(frame: Frame, node: ast.Slice) -> list[int | None] | None:
    bounds: list[int | None] = []
    for bound in (node.lower, node.upper, node.step):
        match None if bound is None else frame.value(bound):
            case None:
                bounds.append(None)
            case Weak(int() as number) | Typed(Const(int() as number)):
                bounds.append(int(number))
            case _:
                return None
    return bounds


def read(frame: Frame, whole: Atom, chosen: Part) -> Atom:
    """The components as a vector or matrix of their own."""
    parts = [frame.builder.apply("extract", whole, *place) for place in chosen.places]
    return frame.builder.joined(chosen.type, parts)


def written(frame: Frame, whole: Atom, chosen: Part, value: Atom) -> Atom:
    """The vector or matrix with these components replaced by those of a value."""
    for entry, place in zip(frame.builder.components(value), chosen.places, strict=True):
        whole = frame.builder.apply("insert", whole, *place, entry)
    return whole


def few(frame: Frame, array: Meaning, node: ast.Slice) -> list[Meaning] | None:
    """The elements that a slice with constant bounds from the start of a whole array has; None for others."""
    bounds = _bounds(frame, node)
    if not isinstance(array, ArrayRef) or bounds is None or bounds[1] is None:
        return None
    if not array.is_row or array.ndim != 1 or any(bound is not None and bound < 0 for bound in bounds):
        return None
    chosen = range(bounds[1])[slice(*bounds)]
    return [Typed(frame.builder.load(array.var, (*array.indices, integer(k)))) for k in chosen]
