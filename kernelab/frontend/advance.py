"""Calls that change a variable they are given, as the syntax shows them: `randf(state)` advances `state`.

Knows which operations draw; must not know types or variables.
"""

import ast
from collections.abc import Iterator, Sequence
from functools import cache

from kernelab.lang import ops

_DRAWS = "draws "


@cache
def draws(name: str) -> int:
    """How many numbers an operation draws from its state."""
    tags = [tag for op in ops.overloads(name) for tag in op.tags if tag.startswith(_DRAWS)]
    return int(tags[0].removeprefix(_DRAWS)) if tags else 0


def advanced(parts: Sequence[ast.AST]) -> Iterator[str]:
    """The names that calls within the syntax advance."""
    for part in parts:
        for node in ast.walk(part):
            match node:
                case ast.Call(func=ast.Name(name) | ast.Attribute(attr=name)) if draws(name):
                    state = state_of(node)
                    if isinstance(state, ast.Name):
                        yield state.id


def state_of(node: ast.Call) -> ast.expr | None:
    """The argument of a call that stands for the state."""
    named = [word.value for word in node.keywords if word.arg == "state"]
    return next(iter((*node.args[:1], *named)), None)
