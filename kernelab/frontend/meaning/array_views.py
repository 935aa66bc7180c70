"""Views and local arrays: rows and slices of arrays while a def is lowered, and the memory of a thread.

    row = a[i]            a, with the index i on its first axis
    part = a[2:n:3, j]    a, with positions 2 + 3 * k along its first axis and the index j on its second

A view is its parameter with, for each axis, an index, a slice or nothing; an element of it is an element of
the parameter at computed indices.  So nothing below the frontend knows of views, and their gradients are
those of the parameter.
"""

import ast
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kernelab.errors import Diagnostic, Span, counted
from kernelab.frontend.meaning import unsupported
from kernelab.frontend.meaning.frame import Frame, Mistake
from kernelab.frontend.meaning.meanings import (
    Argument,
    Arguments,
    ArrayRef,
    Meaning,
    Pick,
    SliceRange,
    StructRef,
    TupleOf,
    Typed,
    TypeRef,
    ViewType,
    Weak,
    describe,
    is_number,
)
from kernelab.frontend.meaning.promote import cast, convert, integer_hint, nearest
from kernelab.lang.build import elem_of, integer, zero
from kernelab.lang.ir import Alloc, Atom, Block, Call, Const, Function, Var, changed_by, walk
from kernelab.lang.ops import SHAPE, TRIPS
from kernelab.lang.types import Array, Scalar, Value, bytes_of, float32, int32, int64


def index(frame: Frame, node: ast.expr) -> Atom:
    """The value of an index; raises Mistake for a slice, and for what is not an integer."""
    if isinstance(node, ast.Slice):
        raise frame.error(node, "a slice cannot stand here", hint="take one index after another")
    return index_of(frame, frame.value(node), node)


def index_of(frame: Frame, value: Meaning, node: ast.expr) -> Atom:
    """A value as an index; raises Mistake for what is not an integer."""
    match value:
        case Weak(int() as number) if not isinstance(number, bool):
            return convert(frame, Weak(number), int32, node, "an index is")
        case Typed(atom) if isinstance(value.type, Scalar) and value.type.is_int:
            return atom
        case _:
            text = frame.places.text(node)
            hint = (
                integer_hint(frame, node) if is_number(value) else unsupported.hint_of_uncalled(value, text)
            )
            raise frame.error(node, f"an index is an integer, not {describe(value)}", hint=hint)


# ----------------------------------------------------------------------------------------------- array views


AT_RUN_TIME = 0
"""The mark of an unknown step of a slice in its pattern: no step is 0."""


def _axes(array: ArrayRef) -> tuple[list[Pick], list[int]]:
    """What is picked along each axis of the parameter, and the axes that are left."""
    picks = [*array.picks, *[None] * (array.type.ndim - len(array.picks))]
    return picks, [axis for axis, pick in enumerate(picks) if pick is None or isinstance(pick, SliceRange)]


def viewed(var: Var, picks: Sequence[Pick]) -> ArrayRef:
    """The part of a parameter that is picked."""
    count = max((axis for axis, pick in enumerate(picks, 1) if pick is not None), default=0)
    return ArrayRef(var, tuple(picks[:count]))


def has_slice(group: Sequence[ast.expr]) -> bool:
    """Whether there is a slice among the indices."""
    return any(isinstance(part, ast.Slice) for part in group)


def enter(frame: Frame, array: ArrayRef, group: Sequence[ast.expr], node: ast.expr) -> ArrayRef:
    """The part of an array that indices and slices select; an element is a row without axes."""
    picks, free = _axes(array)
    if len(group) > len(free):
        raise _too_many(frame, array, group, node)
    for axis, part in zip(free, group, strict=False):
        if isinstance(part, ast.Slice):
            picks[axis] = _slice(frame, array.var, axis, picks[axis], part)
        else:
            picks[axis] = _place(frame, array.var, picks[axis], index(frame, part), node)
    return viewed(array.var, picks)


def _too_many(frame: Frame, array: ArrayRef, group: Sequence[ast.expr], node: ast.expr) -> Mistake:
    outer = ", ".join(frame.places.text(part) for part in group[: array.ndim])
    hint = f"write «{array.var.hint}[{outer}]»"
    if len(group) <= 4:
        hint += f", or annotate it as {replace(array.type, ndim=len(group))}"
    if not isinstance(array.elem, Scalar):
        inner = ", ".join(frame.places.text(part) for part in group[array.ndim :])
        hint = f"its elements are {array.elem}: write {array.var.hint}[{outer}][{inner}]"
    counts = f"{counted(array.ndim, 'index')}, not {len(group)}"
    return frame.error(node, f"{describe(array)} takes {counts}", hint=hint)


def _place(frame: Frame, var: Var, along: Pick, index: Atom, node: ast.expr) -> Atom:
    """The index along an axis of the parameter from the index in a slice of it."""
    if not isinstance(along, SliceRange):
        return index
    b, type = frame.builder, _signed(index)
    with b.at(frame.places(node)):
        k, extent = nearest(frame, index, type), cast(frame, along.count, type)
        inside = b.apply("lt", k, extent)
        if not isinstance(k, Const):
            b.check(b.apply("ge", k, zero(type)), "negative", var.hint)
        if not (isinstance(k, Const) and k.value >= 0):
            inside = b.apply("and", inside, b.apply("ge", k, b.apply("neg", extent)))
            k = b.apply("where", b.apply("lt", k, zero(type)), b.apply("add", k, extent), k)
        b.check(inside, "assertion", f"{frame.places.text(node)} is outside of the slice")
        return _affine(frame, cast(frame, along.start, type), along.step, k)


def _signed(index: Atom) -> Scalar:
    """The type in which an index is counted: one that holds what it may be."""
    return int32 if index.type == int32 else int64


def _affine(frame: Frame, start: Atom, step: int | Atom, k: Atom) -> Atom:
    return frame.builder.apply("add", start, _times(frame, step, k))


def _times(frame: Frame, step: int | Atom, k: Atom) -> Atom:
    assert isinstance(k.type, Scalar)
    factor = Const(step, k.type) if isinstance(step, int) else cast(frame, step, k.type)
    return frame.builder.apply("mul", k, factor)


def _slice(frame: Frame, var: Var, axis: int, along: Pick, node: ast.Slice) -> Pick:
    """A slice of an axis, or of a slice of it, with Python's meaning of what is left out or negative."""
    b, step = frame.builder, _step(frame, node)
    extent = along.count if isinstance(along, SliceRange) else b.let(SHAPE, (var, integer(axis)), int32)
    last, none = b.apply("sub", extent, integer(1)), integer(0)
    ends = [((none, extent), (none, extent)), ((integer(-1), last), (last, integer(-1)))]
    (low, high), (first, end) = _forward_or_back(frame, step, *ends)
    start = first if node.lower is None else _bound(frame, var, node.lower, extent, low, high)
    stop = end if node.upper is None else _bound(frame, var, node.upper, extent, low, high)
    if step == 1 and node.lower is None and node.upper is None:
        return along
    count = _counted(frame, start, stop, step)
    if not isinstance(along, SliceRange):
        return SliceRange(start, step, count)
    begin = _affine(frame, along.start, along.step, start)
    return SliceRange(begin, _product(frame, along.step, step), count)


Pairs = Sequence[tuple[Atom, Atom]]


def _forward_or_back(frame: Frame, step: int | Atom, forward: Pairs, back: Pairs) -> Pairs:
    """The value for a slice that counts up, or for one that counts down."""
    if isinstance(step, int):
        return forward if step > 0 else back
    b = frame.builder
    up = b.apply("gt", step, integer(0))
    sides = zip(forward, back, strict=True)
    return [(b.apply("where", up, x, y), b.apply("where", up, z, w)) for (x, z), (y, w) in sides]


def _counted(frame: Frame, start: Atom, stop: Atom, step: int | Atom) -> Atom:
    """The number of elements from a start to a stop, both of them inside of the axis or at its ends."""
    b = frame.builder
    if step not in (1, -1):
        return b.let(TRIPS, (start, stop, integer(step) if isinstance(step, int) else step), int32)
    return b.apply("max", b.apply("sub", *((stop, start) if step == 1 else (start, stop))), integer(0))


def _product(frame: Frame, a: int | Atom, b: int | Atom) -> int | Atom:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    return _times(frame, a, integer(b) if isinstance(b, int) else b)


def _step(frame: Frame, node: ast.Slice) -> int | Atom:
    if node.step is None:
        return 1
    match nearest(frame, index(frame, node.step), int32):
        case Const(step) if step == 0:
            hint = "leave it out to take every element"
            raise frame.error(node.step, "the slice step cannot be zero", "value", hint)
        case Const(step):
            return int(step)
        case step:
            text = f"the step of the slice, {frame.places.text(node.step)}, is not 0"
            with frame.builder.at(frame.places(node.step)):
                frame.builder.check(frame.builder.apply("ne", step, integer(0)), "assertion", text)
            return step


def _bound(frame: Frame, var: Var, node: ast.expr, extent: Atom, low: Atom, high: Atom) -> Atom:
    """A bound of a slice, counted from the start and inside the axis."""
    b, stated = frame.builder, index(frame, node)
    type = _signed(stated)
    bound = nearest(frame, stated, type)
    least, most, n = (cast(frame, atom, type) for atom in (low, high, extent))
    if not isinstance(bound, Const):
        b.check(b.apply("ge", bound, zero(type)), "negative", var.hint)
    if not (isinstance(bound, Const) and bound.value >= 0):
        negative = b.apply("lt", bound, zero(type))
        bound = b.apply("where", negative, b.apply("add", bound, n), bound)
    if bound == least:
        return low
    return cast(frame, b.apply("max", b.apply("min", bound, most), least), int32)


def at(frame: Frame, array: ArrayRef, indices: Sequence[Atom], node: ast.expr) -> ArrayRef:
    """The element of an array at indices that have been lowered, or its row there, where it has more axes."""
    picks, free = _axes(array)
    for axis, index in zip(free, indices, strict=False):
        picks[axis] = _place(frame, array.var, picks[axis], index, node)
    return viewed(array.var, picks)


def shape(frame: Frame, array: ArrayRef, axis: int) -> Typed:
    """The extent of an array, a row or a slice along an axis."""
    picks, free = _axes(array)
    pick = picks[free[axis]]
    if isinstance(pick, SliceRange):
        return Typed(pick.count)
    return Typed(frame.builder.let(SHAPE, (array.var, integer(free[axis])), int32))


# ------------------------------------------------------------------------- views as values


def alike(a: Meaning | None, b: Meaning | None) -> bool:
    """Whether two views are of one parameter and differ in their atoms only."""
    if not isinstance(a, ArrayRef) or not isinstance(b, ArrayRef):
        return False
    return a.var is b.var and _pattern(a) == _pattern(b)


def _pattern(array: ArrayRef) -> tuple[Scalar | int | None, ...]:
    return tuple(_kind(pick) for pick in array.picks)


def _kind(pick: Pick) -> Scalar | int | None:
    if isinstance(pick, SliceRange):
        return pick.step if isinstance(pick.step, int) else AT_RUN_TIME
    if pick is None:
        return None
    assert isinstance(pick.type, Scalar)
    return pick.type


# ------------------------------------------------------------------------- views as arguments


def passed(array: ArrayRef) -> tuple[ViewType, list[Atom]]:
    """A view as an argument of a function: what decides the instance, and the atoms handed over."""
    return ViewType(array.type, _pattern(array)), [array.var, *array.atoms]


def parameter(name: str, kind: ViewType, span: Span) -> ArrayRef:
    """A view as a parameter of a function."""
    picks: list[Pick] = []
    for k, part in enumerate(kind.pattern):
        match part:
            case None:
                picks.append(None)
            case int():
                step = Var(int32, f"{name}_step_{k}", span) if part == AT_RUN_TIME else part
                picks.append(
                    SliceRange(
                        Var(int32, f"{name}_start_{k}", span), step, Var(int32, f"{name}_count_{k}", span)
                    )
                )
            case _:
                picks.append(Var(part, f"{name}_index_{k}", span))
    return viewed(Var(kind.array, name, span), picks)


# ----------------------------------------------------------------------------------------------- local arrays


LARGEST_LOCAL = 1 << 14
"""The most bytes of a local array, which is on the stack of its thread."""

LARGEST_LOCALS = 1 << 18
"""The most bytes of all local arrays of a kernel; its adjoint has as many again."""


def local_zeros(frame: Frame, name: str, arguments: Arguments, node: ast.Call) -> ArrayRef:
    """A new local array of zeros."""
    named = dict(zip(("shape", "dtype"), (a for a in arguments if a.keyword is None), strict=False))
    named |= {a.keyword: a for a in arguments if a.keyword is not None}
    if len(arguments) != len(named) or not {"shape"} <= set(named) <= {"shape", "dtype"}:
        hint = "write zeros(8, dtype=float)"
        raise frame.error(node, "zeros in a kernel takes a shape and a dtype", hint=hint)
    shape = _local_shape(frame, named["shape"])
    elem = _local_elem(frame, named["dtype"]) if "dtype" in named else float32
    size = math.prod(shape) * bytes_of(elem)
    if size > LARGEST_LOCAL:
        message = f"a local array of {size:,} bytes is too large: at most {LARGEST_LOCAL:,} fit"
        raise frame.error(node, message, "value", "pass an array with an axis for the threads")
    var = Var(Array(elem, len(shape)), "", frame.builder.span)
    frame.builder.emit(Alloc(var, shape, frame.builder.span))
    frame.locals.add(var)
    return ArrayRef(var)


def too_many_locals(kernel: Function) -> Diagnostic | None:
    """The error at the local array with which those of a kernel, and of what it calls, exceed the stack."""
    size = 0
    for alloc in _allocations(kernel.body):
        size += math.prod(alloc.shape) * bytes_of(elem_of(alloc.out))
        if size > LARGEST_LOCALS:
            most = f"at most {LARGEST_LOCALS:,} bytes fit in all"
            message = f"the local arrays of {kernel.name} are too large: {most}"
            hint = "make fewer, or pass an array with an axis for the threads"
            return Diagnostic(message, alloc.span, "value", hint=hint)
    return None


def _allocations(body: Block) -> Iterator[Alloc]:
    for stmt in walk(body):
        if isinstance(stmt, Alloc):
            yield stmt
        elif isinstance(stmt, Call):
            yield from _allocations(stmt.function.body)


def _local_shape(frame: Frame, argument: Argument) -> tuple[int, ...]:
    items = argument.value.items if isinstance(argument.value, TupleOf) else (argument.value,)
    shape = []
    for item in items:
        match item:
            case Weak(int() as extent) | Typed(Const(int() as extent)) if extent > 0:
                shape.append(int(extent))
            case _:
                hint = "write a number, a constant of the notebook, or a tuple of up to four"
                message = "the shape of a local array has to be known when the kernel is compiled"
                raise frame.error(argument.node, message, hint=hint)
    if not 1 <= len(shape) <= 4:
        raise frame.error(argument.node, f"an array has 1 to 4 dimensions, not {len(shape)}", "value")
    return tuple(shape)


def _local_elem(frame: Frame, argument: Argument) -> Value:
    if isinstance(argument.value, TypeRef):
        return argument.value.type
    if isinstance(argument.value, StructRef):
        message = f"a local array holds numbers, vectors or matrices, not {describe(argument.value)}"
        raise frame.error(argument.node, message, hint="make a local array of each field")
    hint = "write dtype=float"
    if isinstance(argument.value, Weak):
        hint = f"{hint}; several dimensions are one argument: zeros((2, 3))"
    raise frame.error(argument.node, f"dtype is a type, not {describe(argument.value)}", hint=hint)


def refuse_alias(frame: Frame, value: Meaning, name: str, source: ast.expr) -> None:
    """Raise Mistake where a local array gets a second name: it would have to be copied."""
    if isinstance(value, ArrayRef) and value.var in frame.locals and value.var.hint and not value.picks:
        hint = "copy it element by element, or take a part of it, such as a[0:]"
        raise frame.error(source, f"{name} would be a second name of a local array", hint=hint)


def name_array(name: str, value: Meaning) -> None:
    """Name a new local array in the IR after its variable."""
    if isinstance(value, ArrayRef) and not value.var.hint:
        value.var.hint = name


def refuse_changes(frame: Frame, name: str, called: Function, atoms: Sequence[Atom], node: ast.Call) -> None:
    """Raise Mistake where a function changes a local array, which it is handed without a copy."""
    changed = changed_by(called)
    for param, atom in zip(called.params, atoms, strict=True):
        if atom in frame.locals and param in changed:
            hint = "change it in the kernel itself, or return the values"
            raise frame.error(node, f"{name} changes the local array that it is handed", hint=hint)
