"""What `static(...)` says in a decorated function, evaluated where the function is defined.

A function is lowered when it is first needed, and names may mean something else by then: of kernels that a
loop defines, each has the index of its own.  What names a variable of the function, or what is not there yet,
is evaluated when the function is lowered.  Must not know what kernels make of the values.
"""

import ast
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelab.errors import KernelSyntaxError, Source
from kernelab.frontend import source_of
from kernelab.runtime.host.closure_names import closure, maps_of
from kernelab.runtime.host.host_words import static

_WORD = "__static"


@dataclass(frozen=True, slots=True)
class Parsed:
    """A function's text and tree, in which the names of `values` stand for what was evaluated."""

    source: Source
    tree: ast.Module
    values: Mapping[str, Any]


def parsed(function: Callable[..., Any], names: Mapping[str, Any]) -> Parsed | None:
    """The function with its `static(...)` evaluated; None where it has none, or its text is not kept."""
    code = getattr(function, "__code__", None)
    around = ChainMap(closure(function), *maps_of(names))
    if code is None or not any(
        word == "static" or around.get(word) is static for word in (*code.co_names, *code.co_freevars)
    ):
        return None
    try:
        source, tree = source_of(function)
    except KernelSyntaxError:
        return None  # it is told when the function is needed
    replacing = _Replacing(dict(around), {*code.co_varnames, *code.co_cellvars})
    return Parsed(source, replacing.visit(tree), replacing.values)


@dataclass(slots=True)
class _Replacing(ast.NodeTransformer):
    around: dict[str, Any]
    own: set[str]
    values: dict[str, Any] = field(default_factory=dict)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if len(node.args) == 1 and not node.keywords and self._is_static(node.func):
            return self._evaluated(node)
        return self.generic_visit(node)

    def _is_static(self, callee: ast.expr) -> bool:
        match callee:
            case ast.Name(name):
                return name not in self.own and self.around.get(name) is static
            case ast.Attribute(ast.Name(module), "static"):
                return module not in self.own and getattr(self.around.get(module), "static", None) is static
            case _:
                return False

    def _evaluated(self, node: ast.Call) -> ast.AST:
        expression = node.args[0]
        if any(isinstance(part, ast.Name) and part.id in self.own for part in ast.walk(expression)):
            return node
        try:
            value = eval(compile(ast.Expression(expression), "static", "eval"), self.around)
        except Exception:  # noqa: BLE001 (it is evaluated again, and told at its place, when it is needed)
            return node
        name = f"{_WORD}_{len(self.values)}"
        self.values |= {_WORD: static, name: value}
        node.func = ast.copy_location(ast.Name(_WORD, ast.Load()), node.func)
        node.args = [ast.copy_location(ast.Name(name, ast.Load()), expression)]
        return node
