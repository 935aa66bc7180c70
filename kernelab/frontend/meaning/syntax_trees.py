"""Parses, walks and rewrites syntax trees: jumps, and assignments inside of expressions, take the one form
that lowering knows.
"""

import ast
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Literal

from kernelab.data_classes.turns import Turn

_PARSING = Turn()
"""Python 3.11 counts the depth of the trees that it builds for all threads together: where two build at
once, one of them ends with a SystemError."""


_NO_FILE = "<kernelab>"
_QUIET = ("ignore", None, Warning, re.compile(_NO_FILE), 0)
"""How `warnings` keeps the filter for what Python says of a text beside refusing it."""


def module_of(text: str) -> ast.Module:
    """The syntax tree of statements; raises SyntaxError."""
    _hush()
    with _PARSING.lock:
        return ast.parse(text, _NO_FILE)


def refuse_module(tree: ast.Module) -> None:
    """Raise SyntaxError where Python would not compile a tree."""
    _hush()
    with _PARSING.lock:
        compile(tree, _NO_FILE, "exec")


def _hush() -> None:
    # Not `catch_warnings`, which sets the filters of all threads: a text is also checked while a cell runs.
    if _QUIET not in warnings.filters:
        warnings.filterwarnings("ignore", module=_NO_FILE)


def expression_of(text: str) -> ast.expr:
    """The syntax tree of an expression; raises SyntaxError."""
    with _PARSING.lock:
        return ast.parse(text, mode="eval").body


# ---------------------------------------------------------------------------------------------------- walking


def nodes(tree: ast.AST) -> list[ast.AST]:
    """A node and all inside it, outer before inner; of names and constants only themselves."""
    tree_nodes = [tree]
    for node in tree_nodes:
        cls = node.__class__
        if cls in _LEAVES:
            continue
        if cls in _INNER:
            tree_nodes += _INNER[cls](node)
            continue
        for name in cls._fields:
            value = getattr(node, name, None)
            if value.__class__ is list:
                tree_nodes += [item for item in value if isinstance(item, ast.AST)]
            elif isinstance(value, ast.AST):
                tree_nodes.append(value)
    return tree_nodes


_LEAVES = frozenset({ast.Name, ast.Constant, ast.Load, ast.Store, *ast.operator.__subclasses__()})

_INNER: dict[type[ast.AST], Callable[[Any], Iterable[ast.AST]]] = {
    ast.BinOp: attrgetter("left", "right"),
    ast.Subscript: attrgetter("value", "slice"),
    ast.Attribute: lambda node: (node.value,),
    ast.Assign: lambda node: (*node.targets, node.value),
    ast.Call: lambda node: (node.func, *node.args, *node.keywords),
}
"""What frequent nodes hold beside an operator, or whether a name is read or assigned."""


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


def root_of(node: ast.expr) -> ast.expr:
    """The expression that subscripts and attributes follow: ``a`` of ``a[i].x``."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node


def is_none(node: ast.expr | None) -> bool:
    """Whether an expression is left out, or is `None`."""
    return node is None or (isinstance(node, ast.Constant) and node.value is None)


# -------------------------------------------------------------------------- assignments inside of expressions


def on_own_lines(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements of a block, each behind the assignments that were inside of its expressions."""
    return [statement for stmt in body for statement in _statement(stmt)]


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


# ----------------------------------------------------------------------------------------------------- jumps


Jump = Literal["break", "continue", "return"]


LEFT = "%left "
"""Before a number: the variable that says whether that loop was left by a break, where it has an else."""


class LoopEnd(ast.Break):
    """The break by which a loop ends whose condition no longer holds."""


class LoopElse(ast.If):
    """The code after a loop with an else: a branch, one side of which follows a loop that ran to its end."""

    loop: ast.For | ast.While


class _PlainLoops(ast.NodeTransformer):
    def __init__(self) -> None:
        self._elses = 0

    def visit(self, node: ast.AST) -> Any:
        return node if isinstance(node, ast.expr) else super().visit(node)  # no statement is in there

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
    statements: list[ast.stmt] = []
    for stmt in body:
        match stmt:
            case ast.Break():
                statements += [_set(name, True, stmt), stmt]
            case ast.If():
                stmt.body, stmt.orelse = _noting_breaks(stmt.body, name), _noting_breaks(stmt.orelse, name)
                statements.append(stmt)
            case _:
                statements.append(stmt)
    return statements


def _set(name: str, value: bool, node: ast.stmt) -> ast.stmt:
    assignment = ast.Assign([ast.Name(name, ast.Store())], ast.Constant(value))
    return ast.fix_missing_locations(ast.copy_location(assignment, node))


def plain_loops(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements with every `while` as an endless loop that is left by `break`, and no loop with an else.

    Loops that are plain already stay the nodes that they are.
    """
    module = _PlainLoops().visit(ast.Module(list(body), []))
    assert isinstance(module, ast.Module)
    return module.body


def escaping(stmts: Sequence[ast.stmt]) -> frozenset[Jump]:
    """The kinds of jump by which the statements may be left."""
    jumps: frozenset[Jump] = frozenset()
    for stmt in stmts:
        match stmt:
            case ast.Break():
                jumps |= {"break"}
            case ast.Continue():
                jumps |= {"continue"}
            case ast.Return():
                jumps |= {"return"}
            case ast.If(body=body, orelse=orelse):
                jumps |= escaping(body) | escaping(orelse)
            case ast.For(body=body) | ast.While(body=body):
                jumps |= escaping(body) & {"return"}
    return jumps


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


def returns_of(body: Sequence[ast.stmt], *, valued: bool) -> list[ast.Return]:
    """The `return` statements of a def with a value, or those without."""
    found = (stmt for stmt in statements(body) if isinstance(stmt, ast.Return))
    return [stmt for stmt in found if is_none(stmt.value) != valued]


def returns_value(body: Sequence[ast.stmt]) -> bool:
    """Whether a def has a `return` with a value."""
    return bool(returns_of(body, valued=True))


def returning(names: Iterable[str], place: ast.stmt, value: ast.expr | None = None) -> ast.Return:
    """A statement that returns variables, behind a value if there is one; it stands where `place` does."""
    items = [*([] if value is None else [value]), *(ast.Name(name, ast.Load()) for name in names)]
    whole = ast.Tuple(items, ast.Load()) if items else None
    return ast.fix_missing_locations(ast.copy_location(ast.Return(whole), place))


def states_result(node: ast.FunctionDef) -> bool:
    """Whether a def says that it returns something."""
    return not is_none(node.returns)
