"""Reads the source of a plain Python function, a def without decorators or a lambda, as kernel text.

A lambda is found among the lambdas of its file by where its code stands, and becomes a def that returns its
body.  Defaults become the values that Python gave them when the function was made.
"""

import ast
import inspect
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

from kernelab.errors import Diagnostic, KernelSyntaxError, Source
from kernelab.frontend.definitions.cell import lower_tree
from kernelab.frontend.definitions.functions import UserFunction
from kernelab.frontend.meaning.source import Places, no_text, refuse_other_text, source_of
from kernelab.frontend.syntax.jumps import returns_value
from kernelab.frontend.syntax.parsing import module_of
from kernelab.frontend.syntax.walking import parameters

Position = tuple[int, int]


def lower_python(function: Callable[..., Any], namespace: Mapping[str, Any], label: str) -> UserFunction:
    """A Python function as one that kernels can call; raises KernelError where its text says too much.

    `label` is what messages call the file or cell of a lambda.

    A def that returns nothing, and text that Python does not keep, are errors too.
    """
    name = function.__name__
    source, tree = _lambda(function, label) if name == "<lambda>" else source_of(function)
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        raise no_text(name)
    if not returns_value(definition.body):
        message = f"`{name}` returns nothing"
        hint = "return the value of one element"
        raise KernelSyntaxError(Diagnostic(message, Places(source).head(definition), "func", hint=hint))
    # A default is evaluated when Python makes the function, not when kernelab lowers it.
    pairs = zip(definition.args.defaults, function.__defaults__ or (), strict=True)
    definition.args.defaults = [_fixed(default, value) for default, value in pairs]
    _drop_annotations(definition)
    lowered = lower_tree(source, tree, namespace)
    lowered.raise_errors()
    user_function = lowered.definitions[definition.name]
    assert isinstance(user_function, UserFunction)
    return user_function


def _lambda(function: Callable[..., Any], label: str) -> tuple[Source, ast.Module]:
    code = function.__code__
    try:
        refuse_other_text(function)
        lines, _ = inspect.findsource(function)
        tree = module_of("".join(lines))
    except (OSError, SyntaxError):
        raise no_text("this lambda") from None
    source = Source("".join(lines), label)
    lambdas = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda) and _is_of(node, code)]
    if not lambdas:
        raise no_text("this lambda")
    inner = min(lambdas, key=lambda node: (_end(node.body)[0] - node.body.lineno, _length(node.body)))
    body = ast.copy_location(ast.Return(inner.body), inner.body)
    definition = ast.FunctionDef("lambda", inner.args, [body], [])
    return source, ast.Module([ast.copy_location(definition, inner)], [])


def _is_of(node: ast.Lambda, code: CodeType) -> bool:
    """Whether all of the code was made from the lambda's body."""
    names = [argument.arg for argument in parameters(node.args)]
    if names != list(code.co_varnames[: len(names)]) or node.lineno != code.co_firstlineno:
        return False
    first, last = (node.body.lineno, node.body.col_offset), _end(node.body)
    return all(
        first <= (line, column) and (end_line, end_column) <= last
        for line, end_line, column, end_column in code.co_positions()
        if line is not None and end_line is not None and column is not None and end_column
    )


def _end(node: ast.expr) -> Position:
    return node.end_lineno or node.lineno, node.end_col_offset or 0


def _length(node: ast.expr) -> int:
    return _end(node)[1] - node.col_offset


def _drop_annotations(node: ast.FunctionDef) -> None:
    """In plain Python they bind nothing: `x: float` is called with float64 too."""
    node.returns = None
    for argument in parameters(node.args):
        if not (isinstance(argument.annotation, ast.Name) and argument.annotation.id in ("int", "bool")):
            argument.annotation = None


def _fixed(node: ast.expr, value: Any) -> ast.expr:
    if isinstance(value, bool | int | float):
        plain = value if isinstance(value, bool | int) else float(value)
        return ast.copy_location(ast.Constant(plain), node)
    return node
