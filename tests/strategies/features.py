"""Which features of the language a program uses: of its text, its IR and its derivatives.

A generator that never draws a feature tests nothing of it; the counts say what it drew.
"""

import ast
from collections import Counter

from kernelab.lang.ir import For, Function, Let, walk


def features(text: str) -> Counter[str]:
    """How often a text uses each feature, by a name that a reader understands."""
    tree, found = ast.parse(text), Counter[str]()
    for node in ast.walk(tree):
        found.update(_of_node(node))
    for function in tree.body:
        if isinstance(function, ast.FunctionDef):
            found.update(_of_function(function))
    return found


def statements(function: Function) -> Counter[str]:
    """How often a function has each kind of statement, and each operation."""
    found = Counter[str]()
    for stmt in walk(function.body):
        found[type(stmt).__name__] += 1
        if isinstance(stmt, Let):
            found[stmt.op.name] += 1
        if isinstance(stmt, For) and stmt.stop is not None:
            found["For with an exit"] += 1
    return found


def _of_node(node: ast.AST) -> list[str]:
    match node:
        case ast.For(iter=ast.Call(args=args)):
            return [_of_range(args)]
        case ast.While(test=ast.Constant()):
            return ["while", "while that is left at its end"]
        case ast.While(test=ast.Compare(ops=[ast.GtE()])):
            return ["while", "while that counts down"]
        case ast.While():
            return ["while"]
        case ast.Break() | ast.Continue():
            return [type(node).__name__.lower()]
        case ast.If(orelse=[_, *_]):
            return ["else"]
        case ast.If():
            return ["if"]
        case ast.IfExp():
            return ["ternary"]
        case ast.BoolOp():
            return ["short circuit"]
        case ast.Compare(ops=[ast.In()]):
            return ["membership"]
        case ast.Compare(ops=[_, _, *_]):
            return ["chained comparison"]
        case ast.Call(func=ast.Name(name)):
            return [f"{name}()"]
        case ast.Assign(targets=[target]) | ast.AugAssign(target=target):
            return _of_target(target, isinstance(node, ast.AugAssign))
        case ast.Expr(value=ast.Call(func=ast.Name(name))) if name.startswith("atomic"):
            return ["atomic whose old value is not used"]
    return []


def _of_range(args: list[ast.expr]) -> str:
    if any(isinstance(arg, ast.Constant) and int(arg.value) > 2**30 for arg in args):
        return "for that goes far"
    if any(not isinstance(arg, ast.Constant | ast.UnaryOp) for arg in args):
        return "for with run-time bounds"
    return "for with constant bounds"


def _of_target(target: ast.expr, in_place: bool) -> list[str]:
    match target:
        case ast.Tuple():
            return ["assignment of several values"]
        case ast.Attribute(ast.Attribute(), _):
            return ["write to a component inside a struct"]
        case ast.Attribute(ast.Name("z"), _):
            return ["write to a field"]
        case ast.Attribute():
            return ["write to a component"]
        case ast.Subscript(ast.Name(name)):
            kind = {"p": "a vector", "q": "a matrix", "r": "a copied vector", "c": "a local array"}
            return (
                [f"write to {kind[name]}"] if name in kind else [f"write to {name}", *["in place"] * in_place]
            )
        case ast.Subscript(ast.Subscript()):
            return ["write to a component of an element"]
        case ast.Name("b"):
            return ["assignment to a bool"]
        case ast.Name("m"):
            return ["assignment to an int"]
    return []


def _of_function(function: ast.FunctionDef) -> list[str]:
    inside = [node for stmt in function.body[:-1] for node in ast.walk(stmt)]
    found = [f"early return from {function.name}" for node in inside if isinstance(node, ast.Return)]
    loops = [node for node in inside if isinstance(node, ast.For | ast.While)]
    for loop in loops:
        within = [node for stmt in loop.body for node in ast.walk(stmt)]
        found += ["loop in a loop"] * any(isinstance(node, ast.For | ast.While) for node in within)
        found += ["return out of a loop"] * any(isinstance(node, ast.Return) for node in within)
        if isinstance(loop, ast.For) and isinstance(loop.target, ast.Name):
            name = loop.target.id
            stored = [n for n in within if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
            found += ["assignment to a loop's index"] * any(n.id == name for n in stored)
    return found


EXPECTED = (
    *("while that is left at its end", "while that counts down"),
    *("while", "break", "continue", "if", "else", "ternary", "short circuit", "chained comparison"),
    *("for with run-time bounds", "for with constant bounds", "loop in a loop", "return out of a loop"),
    *(
        "early return from program",
        "early return from helper",
        "early return from both",
        "helper()",
        "both()",
    ),
    *("assignment of several values", "assignment to a bool", "assignment to an int"),
    *("assignment to a loop's index", "write to a vector", "write to a matrix", "write to a local array"),
    *("write to a field", "write to a component", "write to a component inside a struct"),
    *(
        "write to a component of an element",
        "write to a copied vector",
        "write to a",
        "write to row",
        "write to s",
    ),
    *("write to d", "in place", "atomic whose old value is not used", "atomic_add()", "atomic_sub()"),
    *("atomic_min()", "atomic_max()", "atomic_exch()", "where()", "dot()", "cross()", "Pair()", "vec3d()"),
    *("mat22d()", "zeros()", "membership", "moved()", "int()", "for that goes far"),
)
"""The features of the text that a run must have drawn."""

EXPECTED_IR = (
    *("Let", "Load", "Store", "Alloc", "Atomic", "If", "For", "While", "For with an exit", "Assert"),
    *("sin", "cos", "tanh", "exp", "sqrt", "atan", "abs", "min", "max", "where", "div", "neg", "sub"),
    *("extract", "insert", "dot", "cross", "length", "not", "and"),
)
"""The statements and operations of the IR that a run must have drawn."""
