"""The messages that the frontend can give, read from its text: constant words, with gaps for what differs.

A message stands first in `Diagnostic(...)`, `KernelTypeError.of(...)` and their kin, written out or under a
name of the same function, or in the table of constructs that a kernel cannot contain.  Must not know what the
messages mean.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernelab.guidance.hint_tables import SYNTAX

FRONTEND = Path(__file__).resolve().parents[2] / "kernelab" / "frontend"
POSITION = {"Diagnostic": 0, "Unknown": 0, "error": 1, "Unshaped": 1}
"""Which argument of a call is a message."""


@dataclass(frozen=True, slots=True)
class Template:
    """A message with gaps, and where it stands."""

    place: str
    text: str

    def fits(self, message: str) -> bool:
        """Whether a message is one of this template."""
        parts = (re.escape(part) for part in self.text.split("\0"))
        return re.fullmatch(".*?".join(parts), message, re.DOTALL) is not None


def templates() -> list[Template]:
    """Every message of the frontend, in the order of its files and lines."""
    refusals = [Template(f"SYNTAX: {names}", text.partition(" => ")[0]) for names, text in SYNTAX.entries]
    return refusals + [found for file in sorted(FRONTEND.rglob("*.py")) for found in _of_file(file)]


def _of_file(file: Path) -> Iterator[Template]:
    tree = ast.parse(file.read_text())
    scopes = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    inner = {part: scope for scope in scopes for part in ast.walk(scope)}
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=function) if (name := _name(function)) in POSITION:
                position = POSITION[name]
                if len(node.args) > position:
                    for text in _texts(node.args[position], inner.get(node)):
                        if text.replace("\0", "").strip():
                            yield Template(f"{file.name}:{node.lineno}", text)


def _name(function: ast.expr) -> str:
    """The name under which `POSITION` has a function."""
    match function:
        case ast.Attribute(value=ast.Name(error), attr="of") if error.endswith(("Error", "Mistake")):
            return "Diagnostic"
        case ast.Name(name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _texts(node: ast.expr, scope: ast.FunctionDef | None) -> Iterator[str]:
    """What an expression of a message can be; a gap for what is not written out."""
    match node:
        case ast.Constant(value=str() as text):
            yield re.sub(r"\{\d?\}", "\0", text)
        case ast.JoinedStr(values=parts):
            yield "".join(str(p.value) if isinstance(p, ast.Constant) else "\0" for p in parts)
        case ast.IfExp(body=body, orelse=orelse):
            yield from (*_texts(body, scope), *_texts(orelse, scope))
        case ast.Name(name) if scope is not None:
            for part in ast.walk(scope):
                match part:
                    case ast.Assign(targets=[ast.Name(id)], value=value) if id == name:
                        yield from _texts(value, scope)
        case _:
            yield "\0"
