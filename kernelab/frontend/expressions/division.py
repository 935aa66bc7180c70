"""Lowers `/`, `//` and `%` of numbers and of vectors of ints, as operators and by their names.

`/` of ints gives a float, `//` and `%` follow Python, and an integer divisor is checked before it is used.
"""

import ast
from collections.abc import Sequence
from itertools import product

from kernelab.errors import Diagnostic, Severity
from kernelab.frontend.meaning.frame import Frame
from kernelab.frontend.meaning.meanings import Typed, Weak
from kernelab.frontend.meaning.operators import SYMBOLS
from kernelab.frontend.meaning.promote import cast, operate
from kernelab.guidance.kernel_text import OF_WARP
from kernelab.lang.build import integer, zero
from kernelab.lang.ir import Atom, Var
from kernelab.lang.types import Mat, Scalar, Vec, float32, float64, scalar_of

NAMES = ("div", "floordiv", "mod")
"""The operations that divide."""
Parts = Sequence[ast.expr]


def divided(
    frame: Frame, name: str, left: Weak | Typed, right: Weak | Typed, node: ast.expr, parts: Parts
) -> Weak | Typed:
    """One of `NAMES` of two values, as Python means it."""
    if _ints(left, right):
        return _int_division(frame, name, left, right, node, parts)
    if extents := _extents_of_ints(left, right):
        return _by_component(frame, name, left, right, extents, node, parts)
    result = operate(frame, name, [left, right], node, parts)
    if name == "mod":
        _note_warp(frame, name, node, (left, right))
    return result


def _ints(left: Weak | Typed, right: Weak | Typed) -> bool:
    return not (isinstance(left, Weak) and isinstance(right, Weak)) and _is_int(left) and _is_int(right)


def _extents_of_ints(left: Weak | Typed, right: Weak | Typed) -> tuple[int, ...]:
    """The shape of a division of vectors or matrices of ints, component by component; () if it is none."""
    shapes = []
    for value in (left, right):
        if isinstance(value, Typed) and isinstance(value.type, Vec | Mat) and value.type.scalar.is_int:
            shapes.append(value.type.shape)
        elif not _is_int(value):
            return ()
    if len(shapes) == 2 and shapes[0] != shapes[1]:
        return ()
    return shapes[0] if shapes else ()


def _by_component(
    frame: Frame,
    name: str,
    left: Weak | Typed,
    right: Weak | Typed,
    extents: tuple[int, ...],
    node: ast.expr,
    parts: Parts,
) -> Typed:
    """Vectors or matrices of ints divided as their components are; a number goes with each of them."""
    noted = len(frame.notes)
    atoms: list[Atom] = []
    for index in product(*map(range, extents)):
        a, b = (_component(frame, value, index) for value in (left, right))
        quotient = _int_division(frame, name, a, b, node, parts)
        assert isinstance(quotient, Typed)
        atoms.append(quotient.atom)
    del frame.notes[noted + 1 :]
    scalar = atoms[0].type
    assert isinstance(scalar, Scalar)
    shaped = Vec(scalar, *extents) if len(extents) == 1 else Mat(scalar, *extents)
    return Typed(frame.builder.apply(str(shaped), *atoms))


def _component(frame: Frame, value: Weak | Typed, index: tuple[int, ...]) -> Weak | Typed:
    if is_number(value):
        return value
    assert isinstance(value, Typed)
    return Typed(frame.builder.apply("extract", value.atom, *map(integer, index)))


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
        _remember_bound(frame, name, right, result)
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


def _remember_bound(frame: Frame, name: str, divisor: Weak | Typed, result: Weak | Typed) -> None:
    """`i % 3` is 0, 1 or 2, and so needs no check as the index of a component."""
    match divisor, result:
        case Weak(int() as number), Typed(Var() as var) if name == "mod" and number > 0:
            frame.bounds[var] = number
