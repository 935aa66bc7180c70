"""Walks a Python syntax tree by nodes, faster than `ast.walk`, or by statements; the names of nodes."""

import ast
from collections.abc import Iterator, Sequence


def nodes(tree: ast.AST) -> list[ast.AST]:
    """A node and all inside it, outer before inner; of names and constants only themselves."""
    found = [tree]
    for node in found:
        cls = node.__class__
        if cls in _LEAVES:
            continue
        for name in _INNER.get(cls, cls._fields):
            value = getattr(node, name, None)
            if value.__class__ is list:
                found += [item for item in value if isinstance(item, ast.AST)]
            elif isinstance(value, ast.AST):
                found.append(value)
    return found


_LEAVES = frozenset({ast.Name, ast.Constant, ast.Load, ast.Store, *ast.operator.__subclasses__()})

_INNER = {ast.BinOp: ("left", "right"), ast.Attribute: ("value",), ast.Subscript: ("value", "slice")}
"""The fields of frequent nodes that hold more than an operator, or whether a name is read or assigned."""


def blocks(stmt: ast.stmt) -> tuple[list[ast.stmt], ...]:
    """The blocks of a branch or a loop; of other statements none."""
    match stmt:
        case ast.If() | ast.For() | ast.While():
            return (stmt.body, stmt.orelse)
        case _:
            return ()


def statements(block: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a block and of the blocks inside it, outer before inner."""
    for stmt in block:
        yield stmt
        for inner in blocks(stmt):
            yield from statements(inner)


def parameters(arguments: ast.arguments) -> list[ast.arg]:
    """The parameters of a def, but for those with a star."""
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def word(node: ast.expr) -> str:
    """The last name of an expression such as `func`, `kl.func` or `kl.func(...)`; empty for any other."""
    match node.func if isinstance(node, ast.Call) else node:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def is_none(node: ast.expr | None) -> bool:
    """Whether an expression is left out, or is `None`."""
    return node is None or (isinstance(node, ast.Constant) and node.value is None)
