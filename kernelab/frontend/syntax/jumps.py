"""How statements are left: break, continue and return, and loops in the one form that lowering knows.

    while c: B                  while True: if c: B; else: break
    for ...: B; else: E         left = False; for ...: B with left = True before each break; if not left: E

So a condition is evaluated inside its loop, and no loop has an else.  Works on the syntax tree alone.
"""

import ast
from collections.abc import Callable, Sequence
from typing import Literal

Jump = Literal["break", "continue", "return"]


LEFT = "%left "
"""Before a number: the variable that says whether that loop was left by a break, where it has an else."""


class LoopEnd(ast.Break):
    """The break by which a loop ends whose condition no longer holds."""


class LoopElse(ast.If):
    """What stands behind a loop with an else: a branch of which one side is where the loop ran to its end."""

    loop: ast.For | ast.While


class _PlainLoops(ast.NodeTransformer):
    def __init__(self) -> None:
        self._elses = 0

    def visit_While(self, node: ast.While) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
        if endless and not node.orelse:
            return node
        if endless:
            return self._without_else(node, lambda body: ast.While(node.test, body, []))
        leave = ast.copy_location(LoopEnd(), node.test)

        def tested(body: list[ast.stmt]) -> ast.While:
            test = ast.copy_location(ast.If(node.test, body, [leave]), node.test)
            return ast.While(ast.copy_location(ast.Constant(True), node.test), [test], [])

        return self._without_else(node, tested)

    def visit_For(self, node: ast.For) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        if not node.orelse:
            return node
        return self._without_else(node, lambda body: ast.For(node.target, node.iter, body, []))

    def _without_else(
        self, node: ast.For | ast.While, plain: Callable[[list[ast.stmt]], ast.For | ast.While]
    ) -> ast.AST | list[ast.stmt]:
        if not node.orelse:
            return ast.copy_location(plain(node.body), node)
        if "break" not in escaping(node.body):
            return [ast.copy_location(plain(node.body), node), *node.orelse]
        name, self._elses = f"{LEFT}{self._elses}", self._elses + 1
        loop = ast.copy_location(plain(_noting_breaks(node.body, name)), node)
        behind = LoopElse(ast.Name(name, ast.Load()), [], node.orelse)
        behind.loop = loop
        located = ast.fix_missing_locations(ast.copy_location(behind, node.orelse[0]))
        return [_set(name, False, node), loop, located]


def _noting_breaks(body: Sequence[ast.stmt], name: str) -> list[ast.stmt]:
    """The body of a loop, with a variable set before each of its own breaks."""
    found: list[ast.stmt] = []
    for stmt in body:
        match stmt:
            case ast.Break():
                found += [_set(name, True, stmt), stmt]
            case ast.If():
                stmt.body, stmt.orelse = _noting_breaks(stmt.body, name), _noting_breaks(stmt.orelse, name)
                found.append(stmt)
            case _:
                found.append(stmt)
    return found


def _set(name: str, value: bool, node: ast.stmt) -> ast.stmt:
    made = ast.Assign([ast.Name(name, ast.Store())], ast.Constant(value))
    return ast.fix_missing_locations(ast.copy_location(made, node))


def plain_loops(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements with every `while` as an endless loop that is left by `break`, and no loop with an else.

    Loops that are plain already stay the nodes that they are.
    """
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
            case ast.For(body=inner, orelse=orelse) | ast.While(body=inner, orelse=orelse):
                found += [*returns(inner), *returns(orelse)]
    return found


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
