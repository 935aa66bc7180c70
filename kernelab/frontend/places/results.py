"""Operations with several results, and operations that fill the variables they are given.

    u, sigma, v = svd3(a)       svd3(a, u, sigma, v)

Below the frontend an operation has one result: the components of all of them, in one vector.
"""

import ast
from collections.abc import Sequence
from itertools import accumulate

from kernelab.frontend.meaning.frame import Frame
from kernelab.frontend.meaning.meanings import TupleOf, Typed, Weak, describe
from kernelab.frontend.meaning.promote import operate
from kernelab.frontend.syntax.scope import draws, filled, state_of
from kernelab.lang import ops
from kernelab.lang.build import integer
from kernelab.lang.types import Scalar, Value, bool_, size_of, uint32


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
    return Typed(frame.builder.joined(type, numbers))


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
