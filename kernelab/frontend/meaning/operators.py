"""The operators of Python in kernels: the operation that each means, its symbol, and Python's own result."""

import ast
import operator
from collections.abc import Callable
from typing import Any, NamedTuple


class Operator(NamedTuple):
    """An operator: its node, the operation of the table, its symbol, and the function of Python's numbers."""

    node: type[ast.AST]
    name: str
    symbol: str
    compute: Callable[..., Any]


_OPERATORS = (
    Operator(ast.Add, "add", "+", operator.add),
    Operator(ast.Sub, "sub", "-", operator.sub),
    Operator(ast.Mult, "mul", "*", operator.mul),
    Operator(ast.MatMult, "matmul", "@", operator.matmul),
    Operator(ast.Div, "div", "/", operator.truediv),
    Operator(ast.FloorDiv, "floordiv", "//", operator.floordiv),
    Operator(ast.Mod, "mod", "%", operator.mod),
    Operator(ast.Pow, "pow", "**", operator.pow),
    Operator(ast.BitAnd, "bit_and", "&", operator.and_),
    Operator(ast.BitOr, "bit_or", "|", operator.or_),
    Operator(ast.BitXor, "bit_xor", "^", operator.xor),
    Operator(ast.LShift, "shl", "<<", operator.lshift),
    Operator(ast.RShift, "shr", ">>", operator.rshift),
    Operator(ast.Lt, "lt", "<", operator.lt),
    Operator(ast.LtE, "le", "<=", operator.le),
    Operator(ast.Gt, "gt", ">", operator.gt),
    Operator(ast.GtE, "ge", ">=", operator.ge),
    Operator(ast.Eq, "eq", "==", operator.eq),
    Operator(ast.NotEq, "ne", "!=", operator.ne),
)
_UNARY = (
    Operator(ast.USub, "neg", "-", operator.neg),
    Operator(ast.UAdd, "pos", "+", operator.pos),
    Operator(ast.Invert, "invert", "~", operator.invert),
    Operator(ast.Not, "not", "not", operator.not_),
)

NAMES = {entry.node: entry.name for entry in (*_OPERATORS, *_UNARY)}
"""The operations that operators mean, by their nodes."""

SYMBOLS = {entry.name: entry.symbol for entry in _OPERATORS}
"""How operators between two operands are written, by their operations."""

COMPUTED: dict[str, Callable[..., Any]] = {
    **{entry.name: entry.compute for entry in (*_OPERATORS, *_UNARY)},
    "abs": abs,
    "min": min,
    "max": max,
}
"""The operations that Python computes of its own numbers."""

OF_STRUCTS = ("add", "sub", "mul", "div", "mod", "neg", "pos")
"""The functions of users that operators between structs mean."""
