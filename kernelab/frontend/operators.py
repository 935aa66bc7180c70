"""Python's arithmetic operators between values: division of ints, powers, `@`, and all the others.

`/` of ints gives a float, `//` and `%` follow Python, and an integer divisor is checked before it is used.
"""

import ast
from itertools import product

from kernelab.errors import Diagnostic
from kernelab.frontend import calls
from kernelab.frontend.frame import Frame
from kernelab.frontend.promote import cast, operate
from kernelab.frontend.values import Typed, Weak, describe
from kernelab.lang.build import integer, zero
from kernelab.lang.ir import Atom, Var
from kernelab.lang.types import Mat, Scalar, Vec, float32, float64

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.BitAnd: "bit_and",
    ast.BitOr: "bit_or",
    ast.BitXor: "bit_xor",
    ast.LShift: "shl",
    ast.RShift: "shr",
}


def binary(
    frame: Frame,
    operator: ast.operator,
    left: Weak | Typed,
    right: Weak | Typed,
    node: ast.expr,
    parts: tuple[ast.expr, ast.expr],
) -> Weak | Typed:
    """`left operator right`, as Python means it."""
    name = _BINARY[type(operator)]
    if name in _WARP and _ints(left, right):
        return _int_division(frame, name, left, right, node, parts)
    if name in _WARP and (extents := _extents_of_ints(name, left, right)):
        return _by_component(frame, name, left, right, extents, node, parts)
    if name == "pow":
        return calls.power(frame, [left, right], node, parts)
    if name == "matmul" and (_is_number(left) or _is_number(right)):
        raise frame.error(
            node,
            f"@ multiplies matrices and vectors, not {describe(left)} and {describe(right)}",
            hint="write *",
        )
    return operate(frame, name, [left, right], node, parts)


def _ints(left: Weak | Typed, right: Weak | Typed) -> bool:
    return not (isinstance(left, Weak) and isinstance(right, Weak)) and _is_int(left) and _is_int(right)


def _extents_of_ints(name: str, left: Weak | Typed, right: Weak | Typed) -> tuple[int, ...]:
    """The shape of a division of vectors or matrices of ints, component by component; () if it is none."""
    shapes = []
    for value in (left, right):
        if isinstance(value, Typed) and isinstance(value.type, Vec | Mat) and value.type.scalar.is_int:
            shapes.append(value.type.shape)
        elif not _is_int(value):
            return ()
    if len(shapes) == 2 and (name == "mod" or shapes[0] != shapes[1]):
        return ()
    return shapes[0] if shapes else ()


def _by_component(
    frame: Frame,
    name: str,
    left: Weak | Typed,
    right: Weak | Typed,
    extents: tuple[int, ...],
    node: ast.expr,
    parts: tuple[ast.expr, ast.expr],
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
    if _is_number(value):
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
    parts: tuple[ast.expr, ast.expr],
) -> Weak | Typed:
    if isinstance(right, Weak) and right.number == 0:
        raise frame.error(node, "division by zero", "value")
    types = [value.type for value in (left, right) if isinstance(value, Typed)]
    _note_warp(frame, name, node, any(isinstance(t, Scalar) and t.kind == "int" for t in types))
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


_WARP = {
    "div": "in Warp / of two ints is an integer division; here it gives a float, as in Python",
    "floordiv": "in Warp // of negative ints rounds towards zero; here it rounds down, as in Python",
    "mod": "in Warp % of negative ints has the sign of the left operand; here of the right one, as in Python",
}


def _note_warp(frame: Frame, name: str, node: ast.expr, signed: bool) -> None:
    if frame.uses_warp and (signed or name == "div"):
        frame.notes.append(Diagnostic(_WARP[name], frame.places(node), "warp", "information"))


def _is_number(value: Weak | Typed) -> bool:
    return isinstance(value, Weak) or isinstance(value.type, Scalar)


def _remember_bound(frame: Frame, name: str, divisor: Weak | Typed, result: Weak | Typed) -> None:
    """`i % 3` is 0, 1 or 2, and so needs no check as the index of a component."""
    match divisor, result:
        case Weak(int() as number), Typed(Var() as var) if name == "mod" and number > 0:
            frame.bounds[var] = number
