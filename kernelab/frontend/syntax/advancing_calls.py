"""Calls that change a variable they are given, as the syntax shows them: `randf(state)` advances `state`.

Knows which operations draw; must not know types or variables.
"""

import ast
from collections.abc import Iterator, Sequence
from functools import cache

from kernelab.builtins.records.library import DRAWS
from kernelab.lang import ops

_DRAWS = "draws "


@cache
def draws(name: str) -> int:
    """How many numbers an operation draws from its state."""
    tags = [tag for op in ops.overloads(name) for tag in op.tags if tag.startswith(_DRAWS)]
    return int(tags[0].removeprefix(_DRAWS)) if tags else DRAWS.get(name, 0)


def advanced(parts: Sequence[ast.AST]) -> Iterator[str]:
    """The names that calls within the syntax advance."""
    for part in parts:
        for node in ast.walk(part):
            match node:
                case ast.Call(func=ast.Name(name) | ast.Attribute(attr=name), args=args):
                    state = [state_of(node)] if draws(name) else []
                    for variable in (*state, *args[filled(name, len(args))]):
                        if isinstance(variable, ast.Name):
                            yield variable.id


@cache
def filled(name: str, count: int) -> slice:
    """Which of so many arguments a call fills: `transform_set_translation(t, p)`, `svd3(a, u, sigma, v)`."""
    if name in ("transform_set_translation", "transform_set_rotation"):
        return slice(0, 1)
    parts = next((op.parts for op in ops.overloads(name)), ())
    return slice(count - len(parts), count) if parts and count > len(parts) else slice(0, 0)


def state_of(node: ast.Call) -> ast.expr | None:
    """The argument of a call that stands for the state."""
    named = [word.value for word in node.keywords if word.arg == "state"]
    return next(iter((*node.args[:1], *named)), None)
