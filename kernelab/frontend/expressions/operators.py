"""Python's arithmetic operators between values: divisions, powers, `@`, and all the others."""

import ast

from kernelab.frontend.expressions import calls, division
from kernelab.frontend.meaning.frame import Frame
from kernelab.frontend.meaning.meanings import Typed, Weak, describe
from kernelab.frontend.meaning.promote import operate

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
    if name in division.NAMES:
        return division.divided(frame, name, left, right, node, parts)
    if name == "pow":
        return calls.power(frame, [left, right], node, parts)
    if name == "matmul" and (division.is_number(left) or division.is_number(right)):
        raise frame.error(
            node,
            f"@ multiplies matrices and vectors, not {describe(left)} and {describe(right)}",
            hint="write *",
        )
    return operate(frame, name, [left, right], node, parts)
