"""The running cell: its text, its number, and its lines in files and tracebacks.

Knows IPython's compiler and its cell registry; must not know kernels.
"""

import __future__

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from IPython.core.interactiveshell import InteractiveShell

from kernelab.errors import Source


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell's text as typed, the number of its prompt, and the file name that Python gives it."""

    raw: str
    number: int
    filename: str
    body: Source


def running(shell: InteractiveShell, line: str, body: str) -> Cell:
    """The cell whose magic is running, `line` its options and `body` the text below them.

    Afterwards tracebacks and `inspect` find the text as typed under the cell's file name.
    """
    raw = _as_typed(shell, line, body)
    above = raw[: len(raw) - len(body.rstrip("\n"))].count("\n") if body.strip() else 1
    number = _number(shell, raw)
    filename = shell.compile.cache(raw, number, raw_code=raw)
    return Cell(raw, number, filename, Source(body, f"Cell In[{number}]", above + 1))


def remember_python(cell: Cell, definitions: Mapping[str, Any]) -> None:
    """Register a cell's text, so that `inspect.getsource`, ``name??`` and signatures find it.

    They look for a Python function: one is made of the same text under the cell's file name, never called.
    """
    if not definitions:
        return
    tree = ast.increment_lineno(ast.parse(cell.body.text), cell.body.first_line - 1)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in definitions:
            definition = definitions[node.name]
            definition.__wrapped__ = _function(node, cell.filename)
            definition.__doc__ = ast.get_docstring(node)


def _function(node: ast.FunctionDef, filename: str) -> Any:
    """The function of a def, without its decorators and defaults: they may mean something to kernels only."""
    node.decorator_list = []
    node.args.defaults = [ast.Constant(...) for _ in node.args.defaults]
    node.args.kw_defaults = [default and ast.Constant(...) for default in node.args.kw_defaults]
    module = ast.fix_missing_locations(ast.Module([node], []))
    code = compile(module, filename, "exec", __future__.annotations.compiler_flag, dont_inherit=True)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(code, names)
    return names[node.name]


def _as_typed(shell: InteractiveShell, line: str, body: str) -> str:
    """The text that the front end sent: the magic sees neither its own line nor blank lines above it."""
    parent: dict[str, Any] = getattr(shell, "get_parent", dict)() or {}
    code = str(parent.get("content", {}).get("code", "")).rstrip("\n")
    if re.match(r"\s*%%", code) and code.endswith(body.rstrip("\n")):
        return code
    return f"%%kernel {line}".rstrip() + "\n" + body.rstrip("\n")


def _number(shell: InteractiveShell, raw: str) -> int:
    """The number of the running prompt.

    The counter itself may be one ahead: since IPython 9 it is raised before the cell runs.  What the cell was
    registered with when it began is right in every version.
    """
    registered: dict[str, int] = getattr(shell.compile, "_filename_map", {})
    name = shell.compile.get_code_name(raw, raw, shell.execution_count)
    return int(registered.get(name) or max(registered.values(), default=shell.execution_count))
