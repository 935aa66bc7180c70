"""How statements are left: break, continue and return, and loops in the one form that lowering knows.

`while c: B` becomes `while True: if c: B; else: break`, so a condition is evaluated inside the loop.
Works on the syntax tree alone.
"""

import ast
from collections.abc import Sequence
from typing import Literal

Jump = Literal["break", "continue", "return"]


class _PlainLoops(ast.NodeTransformer):
    def visit_While(self, node: ast.While) -> ast.While:
        self.generic_visit(node)
        if isinstance(node.test, ast.Constant) and node.test.value:
            return node
        leave = ast.copy_location(ast.Break(), node.test)
        test = ast.copy_location(ast.If(node.test, node.body, [leave]), node.test)
        always = ast.copy_location(ast.Constant(True), node.test)
        return ast.copy_location(ast.While(always, [test], node.orelse), node)


def plain_loops(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements with every `while` as an endless loop that is left by `break`."""
    module = _PlainLoops().visit(ast.Module(list(body), []))
    assert isinstance(module, ast.Module)
    return module.body


def escaping(stmts: Sequence[ast.stmt]) -> frozenset[Jump]:
    """The kinds of jump by which the statements may be left."""
    found: frozenset[Jump] = frozenset()
    for stmt in stmts:
        match stmt:
            case ast.Break():
                found |= {"break"}
            case ast.Continue():
                found |= {"continue"}
            case ast.Return():
                found |= {"return"}
            case ast.If(body=body, orelse=orelse):
                found |= escaping(body) | escaping(orelse)
            case ast.For(body=body) | ast.While(body=body):
                found |= escaping(body) & {"return"}
    return found


def leaves(stmts: Sequence[ast.stmt]) -> bool:
    """Whether control never reaches the end of the statements."""
    return any(_leaves(stmt) for stmt in stmts)


def _leaves(stmt: ast.stmt) -> bool:
    match stmt:
        case ast.Break() | ast.Continue() | ast.Return():
            return True
        case ast.If(body=body, orelse=orelse):
            return leaves(body) and leaves(orelse)
        case ast.While(body=body):
            return "break" not in escaping(body)
        case _:
            return False


def returns_value(body: Sequence[ast.stmt]) -> bool:
    """Whether a def has a `return` with a value."""
    return any(ret.value is not None and not _is_none(ret.value) for ret in returns(body))


def states_result(node: ast.FunctionDef) -> bool:
    """Whether a def says that it returns something."""
    return node.returns is not None and not _is_none(node.returns)


def returns(body: Sequence[ast.stmt]) -> list[ast.Return]:
    """The return statements of a def."""
    found: list[ast.Return] = []
    for stmt in body:
        match stmt:
            case ast.Return():
                found.append(stmt)
            case ast.If(body=inner, orelse=orelse):
                found += [*returns(inner), *returns(orelse)]
            case ast.For(body=inner) | ast.While(body=inner):
                found += returns(inner)
    return found


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
