"""Loops over `range(...)`: the canonical loop that counts from 0, and what the index is in it."""

import ast
from dataclasses import replace

import numpy as np

from kernelab.frontend.expressions.expressions import expr
from kernelab.frontend.meaning.frame import Frame
from kernelab.frontend.meaning.meanings import Meaning, Typed, Weak, describe
from kernelab.frontend.meaning.promote import cast, convert, spelled
from kernelab.frontend.regions.control import LoopHead
from kernelab.frontend.regions.loop_storage import chosen_storage
from kernelab.lang.ir import Atom, Const, Var
from kernelab.lang.ops import TRIPS
from kernelab.lang.types import Scalar, bool_, int32


def backwards(frame: Frame, head: LoopHead, start: Atom, step: Atom) -> tuple[LoopHead, Atom, Atom]:
    """The same indices, last first."""
    b = frame.builder
    last = b.apply("sub", head.count, like(head.count, 1))
    back = b.apply("neg", step)
    index = Var(head.index.type, "k", head.index.span)
    return replace(head, index=index), b.apply("add", start, b.apply("mul", last, step)), back


def index(frame: Frame, head: LoopHead, start: Atom, step: Atom, name: str) -> Atom:
    """What a body calls the index: `start + step * k`, k counted from 0."""
    if start == like(start, 0) and step == like(step, 1):
        return head.index
    moved = frame.builder.apply("mul", head.index, step)
    if start == like(start, 0):
        return moved
    return frame.builder.apply("add", start, moved, hint=name)


def like(atom: Atom, value: int) -> Const:
    """A constant of the type of an integer."""
    assert isinstance(atom.type, Scalar)
    return Const(value, atom.type)


def head(frame: Frame, call: ast.Call, name: str) -> tuple[LoopHead, Atom, Atom]:
    """The loop that counts a `range(...)`, and its start and step; raises Mistake where it is none."""
    start, stop, step = _bounds(frame, call)
    if isinstance(step, Const) and step.value == 0:
        raise frame.error(call, "the step of range is zero", "value")
    nonzero = frame.builder.apply("ne", step, like(step, 0))
    frame.builder.check(nonzero, "assertion", "the step of range is zero")
    plain = start == like(start, 0) and step == like(step, 1)
    count = stop if plain else _trips(frame, call, start, stop, step)
    index = Var(count.type, name if plain else "k", frame.places(call))
    if plain and isinstance(count, Const):
        frame.bounds[index] = int(count.value)
    return LoopHead(index, count, chosen_storage(frame, call)), start, step


def _trips(frame: Frame, call: ast.Call, start: Atom, stop: Atom, step: Atom) -> Atom:
    """The number of iterations, checked to be one that the type of the bounds holds."""
    scalar = start.type
    assert isinstance(scalar, Scalar)
    count = frame.builder.let(TRIPS, (start, stop, step), scalar)
    if isinstance(count, Const) and count.value < 0:
        bounds = (int(bound.value) for bound in (start, stop, step) if isinstance(bound, Const))
        message = f"this range has {len(range(*bounds))} items, and {spelled(scalar)} does not count so far"
        raise frame.error(call, message, "value", "write its bounds as int64(...)")
    if not _surely_fits(start, step):
        counted, most = frame.builder.apply("ge", count, like(count, 0)), np.iinfo(scalar.dtype).max
        frame.builder.check(counted, "assertion", f"the range has more than {most} items, too many to count")
    return count


def _surely_fits(start: Atom, step: Atom) -> bool:
    """Whether the number of items is in range, whatever the bound is that is not known."""
    match start, step:
        case Const(first), Const(by):
            return (by > 0 and first >= 0) or (by < 0 and first < 0) or abs(by) > 2
        case _, Const(by):
            return abs(by) > 2
        case _:
            return False


def _bounds(frame: Frame, call: ast.Call) -> tuple[Atom, Atom, Atom]:
    if not 1 <= len(call.args) <= 3:
        raise frame.error(call, f"range takes 1 to 3 integers, not {len(call.args)}")
    parts = [(_counted(frame, expr(frame, part)), part) for part in call.args]
    types = {
        value.type for value, part in parts if _is_bound(frame, value, part) and isinstance(value, Typed)
    }
    if len(types) > 1:
        raise frame.error(
            call, f"the bounds of range are {' and '.join(sorted(map(str, types)))}", hint="write int(...)"
        )
    type = types.pop() if types else int32
    bounds = [convert(frame, value, type, part, "a bound of range is") for value, part in parts]
    match bounds:
        case [stop]:
            return like(stop, 0), stop, like(stop, 1)
        case [start, stop]:
            return start, stop, like(stop, 1)
        case _:
            return bounds[0], bounds[1], bounds[2]


def _counted(frame: Frame, value: Meaning) -> Meaning:
    """A truth value as a bound: 1 or 0, as in Python."""
    match value:
        case Weak(bool() as truth):
            return Weak(int(truth))
        case Typed(atom) if atom.type == bool_:
            return Typed(cast(frame, atom, int32))
        case _:
            return value


def _is_bound(frame: Frame, value: Meaning, part: ast.expr) -> bool:
    if isinstance(value, Weak) and type(value.number) is int:
        return True
    if isinstance(value, Typed) and isinstance(value.type, Scalar) and value.type.kind == "int":
        return True
    raise frame.error(
        part,
        f"a bound of range is an int, not {describe(value)}",
        hint=f"write int({frame.places.text(part)})",
    )
