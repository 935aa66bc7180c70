"""Local arrays: `zeros(shape=(n,), dtype=float)` in a kernel is memory of the thread's own."""

import ast
import math
from collections.abc import Iterator, Sequence

from kernelab.errors import Diagnostic
from kernelab.frontend.meaning.frame import Frame
from kernelab.frontend.meaning.meanings import (
    Argument,
    Arguments,
    ArrayRef,
    Meaning,
    TupleOf,
    Typed,
    TypeRef,
    Weak,
    describe,
)
from kernelab.lang.build import elem_of
from kernelab.lang.ir import Alloc, Atom, Block, Call, Const, Function, Var, changed_by, walk
from kernelab.lang.types import Array, Value, bytes_of, float32

LARGEST = 1 << 14
"""The most bytes of a local array, which is on the stack of its thread."""

LARGEST_SUM = 1 << 18
"""The most bytes of all local arrays of a kernel; its adjoint has as many again."""


def zeros(frame: Frame, name: str, arguments: Arguments, node: ast.Call) -> ArrayRef:
    """A new local array of zeros."""
    named = dict(zip(("shape", "dtype"), (a for a in arguments if a.keyword is None), strict=False))
    named |= {a.keyword: a for a in arguments if a.keyword is not None}
    if len(arguments) != len(named) or not {"shape"} <= set(named) <= {"shape", "dtype"}:
        raise frame.error(
            node, "zeros in a kernel takes a shape and a dtype", hint="write zeros(8, dtype=float)"
        )
    shape = _shape(frame, named["shape"])
    elem = _elem(frame, named["dtype"]) if "dtype" in named else float32
    size = math.prod(shape) * bytes_of(elem)
    if size > LARGEST:
        message = f"a local array of {size:,} bytes is too large: at most {LARGEST:,} fit"
        raise frame.error(node, message, "value", "pass an array with an axis for the threads")
    var = Var(Array(elem, len(shape)), "", frame.builder.span)
    frame.builder.emit(Alloc(var, shape, frame.builder.span))
    frame.locals.add(var)
    return ArrayRef(var)


def too_many(kernel: Function) -> Diagnostic | None:
    """The error at the local array with which those of a kernel, and of what it calls, exceed the stack."""
    size = 0
    for alloc in _allocations(kernel.body):
        size += math.prod(alloc.shape) * bytes_of(elem_of(alloc.out))
        if size > LARGEST_SUM:
            message = (
                f"the local arrays of {kernel.name} are too large: at most {LARGEST_SUM:,} bytes fit in all"
            )
            hint = "make fewer, or pass an array with an axis for the threads"
            return Diagnostic(message, alloc.span, "value", hint=hint)
    return None


def _allocations(body: Block) -> Iterator[Alloc]:
    for stmt in walk(body):
        if isinstance(stmt, Alloc):
            yield stmt
        elif isinstance(stmt, Call):
            yield from _allocations(stmt.function.body)


def _shape(frame: Frame, argument: Argument) -> tuple[int, ...]:
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


def _elem(frame: Frame, argument: Argument) -> Value:
    if isinstance(argument.value, TypeRef):
        return argument.value.type
    raise frame.error(
        argument.node, f"dtype is a type, not {describe(argument.value)}", hint="write dtype=float"
    )


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
