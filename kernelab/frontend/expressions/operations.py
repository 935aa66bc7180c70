"""Operations whose lowering is more than an application: division, several results, states of random numbers.

`/` of ints gives a float, `//` and `%` follow Python, and an integer divisor is checked before it is used.

    u, sigma, v = svd3(a)       svd3(a, u, sigma, v)

Below the frontend an operation has one result: the components of all of them, in one vector.
"""

import ast
from collections.abc import Sequence
from itertools import accumulate

from kernelab.errors import Diagnostic, Severity
from kernelab.frontend.meaning.frame import Frame
from kernelab.frontend.meaning.meanings import TupleOf, Typed, Weak, describe
from kernelab.frontend.meaning.name_lookup import SYMBOLS
from kernelab.frontend.meaning.promote import cast, operate
from kernelab.frontend.meaning.scope import draws, filled, state_of
from kernelab.guidance.hint_tables import OF_WARP
from kernelab.lang import ops
from kernelab.lang.build import integer, type_of, zero
from kernelab.lang.ir import Atom, Var
from kernelab.lang.types import (
    Mat,
    Scalar,
    Value,
    Vec,
    bool_,
    float32,
    float64,
    scalar_of,
    size_of,
    uint32,
    with_scalar,
)

DIVISIONS = ("div", "floordiv", "mod")
"""The operations that divide."""
Parts = Sequence[ast.expr]


def divided(
    frame: Frame, name: str, left: Weak | Typed, right: Weak | Typed, node: ast.expr, parts: Parts
) -> Weak | Typed:
    """One of `DIVISIONS` of two values, as Python means it."""
    if _ints(left, right):
        return _int_division(frame, name, left, right, node, parts)
    if (shaped := _shaped_ints(left, right)) is not None:
        return _by_component(frame, name, (left, right), shaped, node, parts)
    result = operate(frame, name, [left, right], node, parts)
    if name == "mod":
        _note_warp(frame, name, node, (left, right))
    return result


def _ints(left: Weak | Typed, right: Weak | Typed) -> bool:
    return not (isinstance(left, Weak) and isinstance(right, Weak)) and _is_int(left) and _is_int(right)


def _shaped_ints(left: Weak | Typed, right: Weak | Typed) -> Vec | Mat | None:
    """The type of the vectors or matrices of ints that are divided component by component, if they are."""
    types: list[Vec | Mat] = []
    for value in (left, right):
        if isinstance(value, Typed) and isinstance(value.type, Vec | Mat) and value.type.scalar.is_int:
            types.append(value.type)
        elif not _is_int(value):
            return None
    return types[0] if types and types[0].shape == types[-1].shape else None


def _by_component(
    frame: Frame, name: str, values: Sequence[Weak | Typed], type: Vec | Mat, node: ast.expr, parts: Parts
) -> Typed:
    """Vectors or matrices of ints divided as their components are; a number goes with each of them."""
    noted = len(frame.notes)
    atoms: list[Atom] = []
    columns = [
        [value] * size_of(type)
        if isinstance(value, Weak) or is_number(value)
        else [Typed(x) for x in frame.builder.components(value.atom)]
        for value in values
    ]
    for left, right in zip(*columns, strict=True):
        quotient = _int_division(frame, name, left, right, node, parts)
        assert isinstance(quotient, Typed)
        atoms.append(quotient.atom)
    del frame.notes[noted + 1 :]
    return Typed(frame.builder.joined(with_scalar(type, scalar_of(type_of(atoms[0]))), atoms))


def _is_int(value: Weak | Typed) -> bool:
    if isinstance(value, Weak):
        return isinstance(value.number, int) and not isinstance(value.number, bool)
    return isinstance(value.type, Scalar) and value.type.is_int


def _int_division(
    frame: Frame,
    name: str,
    left: Weak | Typed,
    right: Weak | Typed,
    node: ast.expr,
    parts: Parts,
) -> Weak | Typed:
    if isinstance(right, Weak) and right.number == 0:
        raise frame.error(node, "division by zero", "value")
    types = [value.type for value in (left, right) if isinstance(value, Typed)]
    _note_warp(frame, name, node, (left, right))
    if isinstance(right, Typed):
        nonzero = frame.builder.apply("ne", right.atom, zero(right.type))
        frame.builder.check(nonzero, "division", "integer division by zero")
    weak = all(value.is_weak for value in (left, right) if isinstance(value, Typed))
    if name != "div" or weak:
        result = operate(frame, name, [left, right], node, parts)
        match right, result:
            case Weak(int() as number), Typed(Var() as var) if name == "mod" and number > 0:
                frame.bounds[var] = number  # `i % 3` is 0, 1 or 2: no check as the index of a component
        return result
    wide = float64 if any(isinstance(t, Scalar) and t.bits == 64 for t in types) else float32
    a, b = (
        Typed(cast(frame, value.atom, wide)) if isinstance(value, Typed) else Weak(float(value.number))
        for value in (left, right)
    )
    return operate(frame, "div", [a, b], node, parts)


def _note_warp(frame: Frame, name: str, node: ast.expr, values: Sequence[Weak | Typed]) -> None:
    """Note an operation that gives another number elsewhere: a warning where it is called by its name."""
    guidance = OF_WARP.find(name) if frame.uses_warp else None
    if guidance is None:
        return
    types = [scalar_of(value.type) for value in values if isinstance(value, Typed)]
    if name == "mod" and any(type.kind == "uint" for type in types):
        return
    is_call = isinstance(node, ast.Call)
    message = guidance.reason.format(name if is_call else SYMBOLS[name])
    severity: Severity = "warning" if is_call else "information"
    hint = guidance.hint if is_call else ""
    frame.notes.append(Diagnostic(message, frame.places(node), "warp", severity, hint=hint))


def is_number(value: Weak | Typed) -> bool:
    """Whether a value is one number."""
    return isinstance(value, Weak) or isinstance(value.type, Scalar)


# ----------------------------------------------------------------------------------- states of random numbers


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


def changes_variables(name: str, count: int) -> bool:
    """Whether a call with so many arguments changes variables that are named by some of them."""
    where = filled(name, count)
    return bool(where.stop > where.start)


def change_variables(
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
