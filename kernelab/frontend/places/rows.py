"""Assignment to rows and slices of arrays at once, written as loops over their elements.

x[1:4] = 0.0        for k in range(3): x[1 + k] = 0.0
a[i] = b[j]         for k in range(a.shape[1]): a[i, k] = b[j, k]
x[i:i + 3] += v     the components of a vector, one after another
a[0, 1:] *= 2.0     for k in range(a.shape[1] - 1): a[0, 1 + k] *= 2.0
"""

import ast
from collections.abc import Callable, Sequence

from kernelab.frontend.meaning import array_views
from kernelab.frontend.meaning.frame import Frame
from kernelab.frontend.meaning.meanings import ArrayRef, Evaluated, Meaning, TupleOf, Typed, describe
from kernelab.frontend.meaning.promote import convert
from kernelab.frontend.places import places
from kernelab.lang.build import integer
from kernelab.lang.ir import Atom, For, Var
from kernelab.lang.types import Array, Vec, int32

Combine = Callable[[Typed, Meaning], Meaning]


def target(frame: Frame, node: ast.expr, value: Meaning | None) -> ArrayRef | None:
    """The row or slice of an array that an assignment names; None where it names something else.

    A row without a slice takes a row only: a number there is an index that was forgotten.
    """
    root, groups = _subscripts(node)
    parts = [part for group in groups for part in group]
    has_slice = any(isinstance(part, ast.Slice) for part in parts)
    if not has_slice and not isinstance(value, ArrayRef):
        return None
    if not isinstance(_variable(frame, root), ArrayRef | TupleOf):
        return None
    base = frame.value(root)
    if not isinstance(base, ArrayRef):
        return None
    if base.ndim <= sum(not isinstance(part, ast.Slice) for part in parts):
        return None
    for group in groups:
        if not base.ndim:
            return None
        base = array_views.enter(frame, base, group, node)
    return base


def _subscripts(node: ast.expr) -> tuple[ast.expr, places.Groups]:
    groups: places.Groups = []
    while isinstance(node, ast.Subscript):
        groups.append(node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice])
        node = node.value
    return node, groups[::-1]


def _variable(frame: Frame, root: ast.expr) -> Meaning | None:
    """The variable that is an array, or the struct that holds one in a field."""
    if isinstance(root, Evaluated):
        return root.meaning
    if isinstance(root, ast.Name):
        return frame.env.get(root.id)
    while isinstance(root, ast.Attribute):
        root = root.value
    variable = frame.env.get(root.id) if isinstance(root, ast.Name) else None
    return variable if isinstance(variable, TupleOf) else None


def store(frame: Frame, into: ArrayRef, value: Meaning, node: ast.expr, source: ast.expr) -> None:
    """Write a number into every element, an array of the same shape, or the components of a vector."""
    _each(frame, into, value, node, source, lambda array, at, new: frame.builder.store(array, at, new))


def add(frame: Frame, into: ArrayRef, value: Meaning, negate: bool, node: ast.expr, source: ast.expr) -> None:
    """Add to every element, or subtract, atomically."""

    def accumulate(array: Var, at: Sequence[Atom], new: Atom) -> None:
        frame.builder.atomic_add(array, at, frame.builder.apply("neg", new) if negate else new)

    _each(frame, into, value, node, source, accumulate)


def change(
    frame: Frame, into: ArrayRef, value: Meaning, combine: Combine, node: ast.expr, source: ast.expr
) -> None:
    """Give every element what an operator makes of it and of a number, or of what stands there in a row."""
    extents = _extents(frame, into)
    take = _elements(frame, into, value, extents, source)

    def body(indices: list[Atom]) -> None:
        where = array_views.at(frame, into, indices, node)
        before = Typed(frame.builder.load(where.var, where.indices))
        changed = combine(before, value if take is None else Typed(take(indices)))
        frame.builder.store(
            where.var, where.indices, convert(frame, changed, into.elem, source, _holds(into))
        )

    _loops(frame, extents, [], body)


Write = Callable[[Var, Sequence[Atom], Atom], object]
Take = Callable[[list[Atom]], Atom]
"""The value for the element at some indices."""


def _each(
    frame: Frame, into: ArrayRef, value: Meaning, node: ast.expr, source: ast.expr, write: Write
) -> None:
    extents = _extents(frame, into)
    take = _taken(frame, into, value, extents, source)

    def body(indices: list[Atom]) -> None:
        where = array_views.at(frame, into, indices, node)
        write(where.var, where.indices, take(indices))

    _loops(frame, extents, [], body)


def _extents(frame: Frame, into: ArrayRef) -> list[Atom]:
    return [array_views.shape(frame, into, axis).atom for axis in range(into.ndim)]


def _holds(into: ArrayRef) -> str:
    return f"{into.var.hint} holds"


def _taken(frame: Frame, into: ArrayRef, value: Meaning, extents: Sequence[Atom], source: ast.expr) -> Take:
    take = _elements(frame, into, value, extents, source)
    if take is not None:
        return take
    atom = convert(frame, value, into.elem, source, _holds(into))
    return lambda _: atom


def _elements(
    frame: Frame, into: ArrayRef, value: Meaning, extents: Sequence[Atom], source: ast.expr
) -> Take | None:
    """The elements of an array or the components of a vector; None for what goes into every element."""
    if isinstance(value, ArrayRef):
        return _of_array(frame, into, value, extents, source)
    if isinstance(value, Typed) and isinstance(value.type, Vec) and value.type.scalar == into.elem:
        if into.ndim != 1:
            raise frame.error(source, f"{describe(value)} does not fit {describe(into)}")
        _require(frame, extents[0], integer(value.type.n), source)
        return lambda indices: frame.builder.apply("extract", value.atom, *indices)
    return None


def _of_array(
    frame: Frame, into: ArrayRef, value: ArrayRef, extents: Sequence[Atom], source: ast.expr
) -> Take:
    if value.ndim != into.ndim or value.elem != into.elem:
        wanted = Array(into.elem, into.ndim)
        hint = "both sides have the same number of axes and the same elements"
        raise frame.error(source, f"what is assigned here is {wanted}, not {describe(value)}", hint=hint)
    # Two rows of an array are the same or have nothing in common; slices may overlap.
    if value.var is into.var and not (value.is_row and into.is_row):
        hint = "write a loop, in the order that is meant"
        raise frame.error(source, f"{into.var.hint} is assigned a part of itself at once", hint=hint)
    for axis, extent in enumerate(extents):
        _require(frame, extent, array_views.shape(frame, value, axis).atom, source)

    def take(indices: list[Atom]) -> Atom:
        where = array_views.at(frame, value, indices, source)
        return frame.builder.load(where.var, where.indices)

    return take


def _require(frame: Frame, extent: Atom, length: Atom, source: ast.expr) -> None:
    with frame.builder.at(frame.places(source)):
        same = frame.builder.apply("eq", extent, length)
        frame.builder.check(same, "assertion", "what is assigned has another length than what it goes into")


def _loops(
    frame: Frame, extents: Sequence[Atom], indices: list[Atom], body: Callable[[list[Atom]], None]
) -> None:
    if not extents:
        body(indices)
        return
    b, index = frame.builder, Var(int32, "k", frame.builder.span)
    with b.block() as inner:
        _loops(frame, extents[1:], [*indices, index], body)
    b.emit(For((), index, extents[0], (), (), inner.close(), b.span))
