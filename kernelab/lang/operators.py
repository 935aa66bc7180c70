"""The operators of Python: their nodes, the operations of the table, their symbols, and what computes them.

The frontend, values on the host, and arrays read them here, so that an operator means the same everywhere.
"""

import ast
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Operator(NamedTuple):
    """An operator: node, operation, symbol, the function of Python's numbers and that of NumPy's arrays."""

    node: type[ast.AST]
    name: str
    symbol: str
    compute: Callable[..., Any]
    ufunc: np.ufunc


ARITHMETIC = (
    Operator(ast.Add, "add", "+", operator.add, np.add),
    Operator(ast.Sub, "sub", "-", operator.sub, np.subtract),
    Operator(ast.Mult, "mul", "*", operator.mul, np.multiply),
    Operator(ast.MatMult, "matmul", "@", operator.matmul, np.matmul),
    Operator(ast.Div, "div", "/", operator.truediv, np.divide),
    Operator(ast.FloorDiv, "floordiv", "//", operator.floordiv, np.floor_divide),
    Operator(ast.Mod, "mod", "%", operator.mod, np.remainder),
    Operator(ast.Pow, "pow", "**", operator.pow, np.power),
)
BINARY = (
    *ARITHMETIC,
    Operator(ast.BitAnd, "bit_and", "&", operator.and_, np.bitwise_and),
    Operator(ast.BitOr, "bit_or", "|", operator.or_, np.bitwise_or),
    Operator(ast.BitXor, "bit_xor", "^", operator.xor, np.bitwise_xor),
    Operator(ast.LShift, "shl", "<<", operator.lshift, np.left_shift),
    Operator(ast.RShift, "shr", ">>", operator.rshift, np.right_shift),
    Operator(ast.Lt, "lt", "<", operator.lt, np.less),
    Operator(ast.LtE, "le", "<=", operator.le, np.less_equal),
    Operator(ast.Gt, "gt", ">", operator.gt, np.greater),
    Operator(ast.GtE, "ge", ">=", operator.ge, np.greater_equal),
    Operator(ast.Eq, "eq", "==", operator.eq, np.equal),
    Operator(ast.NotEq, "ne", "!=", operator.ne, np.not_equal),
)
UNARY = (
    Operator(ast.USub, "neg", "-", operator.neg, np.negative),
    Operator(ast.UAdd, "pos", "+", operator.pos, np.positive),
    Operator(ast.Invert, "invert", "~", operator.invert, np.invert),
    Operator(ast.Not, "not", "not", operator.not_, np.logical_not),
)

OPERATIONS = {entry.node: entry.name for entry in (*BINARY, *UNARY)}
"""The operations that operators mean, by their nodes."""

SYMBOLS = {entry.name: entry.symbol for entry in BINARY}
"""How operators between two operands are written, by their operations."""

OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}
"""The comparisons, each with the one that holds of integers where it does not."""

MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
"""The comparisons of order, each with the one that says the same of its operands the other way round."""

COMPUTED: dict[str, Callable[..., Any]] = {
    **{entry.name: entry.compute for entry in (*BINARY, *UNARY)},
    "abs": abs,
    "min": min,
    "max": max,
}
"""The operations that Python computes of its own numbers."""
