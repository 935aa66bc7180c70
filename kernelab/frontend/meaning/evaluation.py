"""Evaluation: expressions that Python computes while a cell is compiled.

Defaults of parameters and fields, options and arguments of decorators, and what stands in `static(...)`.
Knows syntax and the user's names; must not know kernels.
"""

import ast
from collections.abc import Mapping
from typing import Any

from kernelab.errors import Diagnostic
from kernelab.frontend.meaning.frame import Mistake
from kernelab.frontend.meaning.source import Places


def evaluated(node: ast.expr, places: Places, names: Mapping[str, Any], what: str = "this") -> Any:
    """The value of an expression among some names; raises Mistake, which calls the expression `what`."""
    tree = ast.fix_missing_locations(ast.Expression(node))
    try:
        return eval(compile(tree, places.source.label, "eval"), {**names})
    except Exception as error:  # noqa: BLE001 (whatever the user's expression raises is told at its place)
        said = error.msg if isinstance(error, SyntaxError) else error
        message = f"{what} raised {type(error).__name__}: {said}"
        raise Mistake(Diagnostic(message, places(node), "value")) from None
