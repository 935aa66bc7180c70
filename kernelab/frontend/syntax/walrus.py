"""Assignments inside of expressions, written on lines of their own.

    while (d := distance(p)) > eps:         while True:
        p += d * n                              d = distance(p)
                                                if not d > eps: break
                                                p += d * n

Where the assignment may be skipped, or what stands to its left would see it, it stays, and the fence refuses
it.  Expects the loops of `jumps.plain_loops`.  Works on the syntax tree, before anything is known of names.
"""

import ast
from collections.abc import Iterator, Sequence

from kernelab.frontend.syntax.walking import nodes


def on_own_lines(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements of a block, each behind the assignments that were inside of its expressions."""
    return [made for stmt in body for made in _statement(stmt)]


def _statement(stmt: ast.stmt) -> Iterator[ast.stmt]:
    match stmt:
        case ast.If() | ast.For() | ast.While():
            stmt.body, stmt.orelse = on_own_lines(stmt.body), on_own_lines(stmt.orelse)
    if not any(isinstance(node, ast.NamedExpr) for field in _evaluated(stmt) for node in _parts(stmt, field)):
        yield stmt
        return
    taking = _Taking()
    for field in _evaluated(stmt):
        part = getattr(stmt, field)
        if isinstance(part, ast.expr):
            setattr(stmt, field, taking.visit(part))
    yield from taking.made
    yield stmt


def _evaluated(stmt: ast.stmt) -> tuple[str, ...]:
    """The fields of a statement that are evaluated once before it does anything, in this order."""
    match stmt:
        case ast.AugAssign():
            return "target", "value"
        case ast.Assign() | ast.AnnAssign() | ast.Expr() | ast.Return():
            return ("value",)
        case ast.If() | ast.Assert():
            return ("test",)
        case ast.For():
            return ("iter",)
        case _:
            return ()


def _parts(stmt: ast.stmt, field: str) -> list[ast.AST]:
    part = getattr(stmt, field)
    return nodes(part) if isinstance(part, ast.expr) else []


class _Taking(ast.NodeTransformer):
    """Takes assignments out of an expression, as long as nothing is evaluated in another order for it."""

    def __init__(self) -> None:
        self.made: list[ast.stmt] = []
        self._read: set[str] = set()
        self._looked = self._called = self._skippable = False

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.expr:
        before = set(self._read), self._looked, self._called
        node.value = self.visit(node.value)
        acts = any(isinstance(part, ast.Call) for part in nodes(node.value))
        read, looked, called = before
        if self._skippable or called or (looked and acts) or node.target.id in read:
            return node
        self._read, self._looked, self._called = before
        self.made.append(ast.copy_location(ast.Assign([node.target], node.value), node))
        return ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        self._read.add(node.id)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        self._looked = True
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        self._called = True
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        first, *rest = node.values
        node.values = [self.visit(first), *self._perhaps(rest)]
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        node.test = self.visit(node.test)
        node.body, node.orelse = self._perhaps([node.body, node.orelse])
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        first, *rest = node.comparators
        node.left = self.visit(node.left)
        node.comparators = [self.visit(first), *self._perhaps(rest)]
        return node

    def _perhaps(self, parts: Sequence[ast.expr]) -> list[ast.expr]:
        outside, self._skippable = self._skippable, True
        visited = [self.visit(part) for part in parts]
        self._skippable = outside
        return visited
