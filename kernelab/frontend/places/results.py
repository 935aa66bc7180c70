"""Operations with several results, and operations that fill the variables they are given.

    u, sigma, v = svd3(a)       svd3(a, u, sigma, v)
    p = t.p                     t.p = p, which is transform_set_translation(t, p)

Below the frontend an operation has one result: the components of all of them, in one vector.
"""

import ast
from collections.abc import Sequence
from itertools import accumulate

from kernelab.frontend.meaning.frame import Frame
from kernelab.frontend.meaning.meanings import Evaluated, Meaning, TupleOf, Typed, Weak, describe
from kernelab.frontend.meaning.promote import convert, operate
from kernelab.frontend.places import places, struct_values
from kernelab.frontend.syntax.scope import draws, filled, state_of
from kernelab.frontend.syntax.walking import nodes
from kernelab.lang import ops
from kernelab.lang.build import integer
from kernelab.lang.types import Scalar, Transform, Value, bool_, size_of, uint32


def advance(frame: Frame, name: str, node: ast.Call) -> None:
    """Leave the state after the draws of `name` in the variable that the call names."""
    count = draws(name)
    if not count:
        return
    state = state_of(node)
    value = frame.env.get(state.id) if isinstance(state, ast.Name) else None
    if not isinstance(state, ast.Name) or not isinstance(value, Typed) or value.type != uint32:
        raise frame.error(
            state or node,
            f"{name} advances its state, which must be a variable",
            hint=f"write state = {frame.places.text(state or node)} first, then {name}(state)",
        )
    atom = value.atom
    for _ in range(count):
        atom = frame.builder.apply("rand_next", atom, hint=state.id)
    frame.env[state.id] = Typed(atom)
    frame.set_at[state.id] = frame.places(state)


# --------------------------------------------------------------------------------------------------- several


PARTS = {
    "p": ("transform_get_translation", "transform_set_translation"),
    "q": ("transform_get_rotation", "transform_set_rotation"),
}
"""The operations that read and replace the attributes of a transform."""


def split_results(frame: Frame, name: str, whole: Weak | Typed) -> Weak | Typed | TupleOf:
    """The several results of an operation; `whole` itself where it has one."""
    several = [op for op in ops.overloads(name) if op.parts]
    if not several or isinstance(whole, Weak):
        return whole
    size = size_of(whole.type)
    types = next(results for op in several if sum(map(size_of, results := op.results(whole.type))) == size)
    starts = accumulate((size_of(type) for type in types), initial=0)
    return TupleOf(tuple(_part(frame, whole, k, type) for k, type in zip(starts, types, strict=False)))


def _part(frame: Frame, whole: Typed, start: int, type: Value) -> Typed:
    indices = range(start, start + size_of(type))
    numbers = [frame.builder.apply("extract", whole.atom, integer(k)) for k in indices]
    return Typed(numbers[0] if isinstance(type, Scalar) else frame.builder.apply(str(type), *numbers))


def changes(name: str, count: int) -> bool:
    """Whether a call with so many arguments changes variables that are named by some of them."""
    where = filled(name, count)
    return bool(where.stop > where.start)


def change(
    frame: Frame, name: str, values: Sequence[Weak | Typed], parts: Sequence[ast.expr], node: ast.Call
) -> None:
    """Give the variables that a call names the results of the operation."""
    targets = parts[filled(name, len(values))]
    in_place = targets == parts[:1]
    operands = values if in_place else values[: -len(targets)]
    result = operate(frame, name, operands, node, parts[: len(operands)])
    results = split_results(frame, name, result)
    items = results.items if isinstance(results, TupleOf) else (results,)
    for target, item, before in zip(
        targets, items, values if in_place else values[-len(targets) :], strict=False
    ):
        assert isinstance(item, Typed)
        if not isinstance(target, ast.Name) or target.id not in frame.env:
            raise frame.error(
                target,
                f"{name} changes a variable, and {frame.places.text(target)} is none",
                hint="give the element to a variable, change that, and write it back",
            )
        if not _holds(before, item.type):
            raise frame.error(target, f"{name} fills a variable of type {item.type}, not {describe(before)}")
        frame.env[target.id] = item
        frame.set_at[target.id] = frame.places(target)


def _holds(before: Weak | Typed, type: Value) -> bool:
    """Whether a variable can be given a value of a type: one of a literal alone becomes any number."""
    if isinstance(before, Typed):
        return before.type == type
    return isinstance(type, Scalar) and type != bool_ and not isinstance(before.number, bool)


def is_part(frame: Frame, node: ast.Attribute) -> bool:
    """Whether `node` is `p` or `q` of a transform; what it takes to find out is not kept."""
    if node.attr not in PARTS:
        return False
    before, notes = dict(frame.env), len(frame.notes)
    with frame.builder.block():
        value = frame.any_value(node.value)
    frame.env.clear()
    frame.env.update(before)
    del frame.notes[notes:]
    return isinstance(value, Typed) and isinstance(value.type, Transform)


def assign_part(frame: Frame, whole: ast.expr, part: str, value: Meaning, source: ast.expr) -> None:
    """Replace the translation or the rotation of a transform, which is a variable, an element or a field."""
    if isinstance(whole, ast.Name):
        before = frame.value(whole)
        assert isinstance(before, Typed)
        frame.env[whole.id] = _with_part(frame, before, part, value, source)
        frame.set_at[whole.id] = frame.places(whole)
        return
    place = struct_values.place(frame, whole)
    assert isinstance(place, places.Place)
    new = _with_part(frame, places.load(frame, place), part, value, source)
    places.store(frame, place, new.atom)


def part_around(frame: Frame, target: ast.expr) -> ast.Attribute | None:
    """The `t.p` in `t.p.x` or `t.p[0]`, where `t` is a transform; None in any other target."""
    inner = target
    while isinstance(inner, ast.Attribute | ast.Subscript):
        inner = inner.value
        if isinstance(inner, ast.Attribute) and is_part(frame, inner):
            return inner
    return None


def assign_within(
    frame: Frame, target: ast.expr, part: ast.Attribute, value: Meaning, source: ast.expr
) -> None:
    """Replace components of the translation or the rotation of a transform: `t.p.x = 1.0`."""
    before = frame.value(part)
    root = ast.copy_location(Evaluated(_HELD, before), part)
    frame.env[_HELD] = before
    place = places.place(frame, replaced(target, part, root))
    places.store(frame, place, convert(frame, value, place.type, source, "this component is"))
    assign_part(frame, part.value, part.attr, frame.env.pop(_HELD), source)


def with_known_indices(frame: Frame, target: ast.expr) -> ast.expr:
    """The same target with its indices evaluated once: it is lowered twice, to be read and to be written."""
    match target:
        case ast.Attribute(value=whole, attr=attr, ctx=ctx):
            copy: ast.expr = ast.Attribute(with_known_indices(frame, whole), attr, ctx)
        case ast.Subscript(value=whole, slice=ast.Tuple(elts=parts), ctx=ctx):
            whole = with_known_indices(frame, whole)
            indices: ast.expr = ast.Tuple([_known(frame, part) for part in parts], ast.Load())
            copy = ast.Subscript(whole, ast.copy_location(indices, target.slice), ctx)
        case ast.Subscript(value=whole, slice=part, ctx=ctx):
            whole = with_known_indices(frame, whole)
            copy = ast.Subscript(whole, _known(frame, part), ctx)
        case _:
            return target
    return ast.copy_location(copy, target)


def _known(frame: Frame, part: ast.expr) -> ast.expr:
    if isinstance(part, ast.Slice) or not any(isinstance(node, ast.Call) for node in nodes(part)):
        return part
    evaluated = Evaluated(frame.places.text(part), frame.value(part))
    return ast.copy_location(evaluated, part)


_HELD = "%part"
"""The variable that holds a part while its components are assigned."""


def replaced(target: ast.expr, old: ast.expr, new: ast.expr) -> ast.expr:
    """The same target with another expression inside."""
    match target:
        case _ if target is old:
            return new
        case ast.Attribute(value=value, attr=attr, ctx=ctx):
            copy: ast.expr = ast.Attribute(replaced(value, old, new), attr, ctx)
        case ast.Subscript(value=value, slice=slice, ctx=ctx):
            copy = ast.Subscript(replaced(value, old, new), slice, ctx)
        case _:
            raise AssertionError(target)
    return ast.copy_location(copy, target)


def _with_part(frame: Frame, before: Typed, part: str, value: Meaning, source: ast.expr) -> Typed:
    read, write = PARTS[part]
    overload = ops.resolve(read, [before.type])
    assert overload is not None
    new = convert(frame, value, overload[1], source, f"the {part} of a transform is")
    return Typed(frame.builder.apply(write, before.atom, new))
