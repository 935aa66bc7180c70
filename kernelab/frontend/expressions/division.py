"""Lowers `/`, `//` and `%` of numbers and of vectors of ints, as operators and by their names.

`/` of ints gives a float, `//` and `%` follow Python, and an integer divisor is checked before it is used.
"""

import ast
from collections.abc import Sequence

from kernelab.errors import Diagnostic, Severity
from kernelab.frontend.meaning.frame import Frame
from kernelab.frontend.meaning.meanings import Typed, Weak
from kernelab.frontend.meaning.operators import SYMBOLS
from kernelab.frontend.meaning.promote import cast, operate
from kernelab.guidance.kernel_text import OF_WARP
from kernelab.lang.build import type_of, zero
from kernelab.lang.ir import Atom, Var
from kernelab.lang.types import Mat, Scalar, Vec, float32, float64, scalar_of, size_of, with_scalar

NAMES = ("div", "floordiv", "mod")
"""The operations that divide."""
Parts = Sequence[ast.expr]


def divided(
    frame: Frame, name: str, left: Weak | Typed, right: Weak | Typed, node: ast.expr, parts: Parts
) -> Weak | Typed:
    """One of `NAMES` of two values, as Python means it."""
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
