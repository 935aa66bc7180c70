"""Parses Python text, by one thread at a time."""

import ast
from threading import RLock

_PARSING = RLock()
"""Python 3.11 counts the depth of the trees that it builds for all threads together: where two build at
once, one of them ends with a SystemError."""


def module_of(text: str) -> ast.Module:
    """The syntax tree of statements; raises SyntaxError."""
    with _PARSING:
        return ast.parse(text)


def expression_of(text: str) -> ast.expr:
    """The syntax tree of an expression; raises SyntaxError."""
    with _PARSING:
        return ast.parse(text, mode="eval").body
