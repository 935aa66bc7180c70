"""Lowers the asserts `expect_eq(a, b)`, `expect_neq(a, b)` and `expect_near(a, b, tolerance)`.

Vectors are near where their largest difference is, matrices where its Frobenius norm is.
"""

import ast
from collections.abc import Callable
from functools import reduce

from kernelab.frontend.meaning.frame import Frame
from kernelab.frontend.meaning.meanings import Typed, Weak
from kernelab.frontend.meaning.promote import materialise, operate
from kernelab.lang.build import integer
from kernelab.lang.ir import Atom
from kernelab.lang.types import Mat, Vec

Number = Weak | Typed
Evaluate = Callable[[Frame, ast.expr], Number]

_TOLERANCE = 1e-6


def expect(frame: Frame, name: str, node: ast.Call, evaluate: Evaluate) -> None:
    """End the launch with an error where two values are not as expected."""
    names = ("a", "b", "tolerance") if name == "expect_near" else ("a", "b")
    given = dict(zip(names, node.args, strict=False)) | {word.arg or "": word.value for word in node.keywords}
    wanted = " and ".join(("two values", "a tolerance")[: len(names) - 1])
    if len(node.args) > len(names) or not {"a", "b"} <= set(given) <= set(names):
        raise frame.error(node, f"{name} takes {wanted}", hint=f"write {name}({', '.join(names)})")
    values = {part: evaluate(frame, value) for part, value in given.items()}
    parts = (given["a"], given["b"])
    if name == "expect_near":
        holds = _near(frame, values["a"], values["b"], values.get("tolerance", Weak(_TOLERANCE)), node, parts)
    else:
        equal = operate(frame, name[7:].replace("neq", "ne"), [values["a"], values["b"]], node, parts)
        holds = materialise(frame, equal, node)
    frame.builder.check(holds, "assertion", frame.places.text(node))


def _near(
    frame: Frame, a: Number, b: Number, tolerance: Number, node: ast.Call, parts: tuple[ast.expr, ast.expr]
) -> Atom:
    difference = operate(frame, "sub", [a, b], node, parts)
    if isinstance(difference, Typed) and isinstance(difference.type, Mat):
        square = operate(frame, "ddot", [difference, difference], node, (node, node))
        largest = operate(frame, "sqrt", [square], node, (node,))
    else:
        largest = operate(frame, "abs", [difference], node, (node,))
        if isinstance(largest, Typed) and isinstance(largest.type, Vec):
            # Not by `max`, which passes over a NaN that is not the first component.
            sizes = [frame.builder.apply("extract", largest.atom, integer(k)) for k in range(largest.type.n)]
            truths = [operate(frame, "le", [Typed(x), tolerance], node, (node, node)) for x in sizes]
            atoms = [materialise(frame, truth, node) for truth in truths]
            return reduce(lambda a, b: frame.builder.apply("and", a, b), atoms)
    return materialise(frame, operate(frame, "le", [largest, tolerance], node, (node, node)), node)
