"""The index in `a[i]`: any integer, which what is indexed then takes as it is."""

import ast

from kernelab.frontend.meaning import habit_hints
from kernelab.frontend.meaning.frame import Evaluate, Frame
from kernelab.frontend.meaning.meanings import Typed, Weak, describe, is_number
from kernelab.frontend.meaning.promote import convert
from kernelab.lang.ir import Atom
from kernelab.lang.types import Scalar, int32


def index(frame: Frame, node: ast.expr, evaluate: Evaluate) -> Atom:
    """The value of an index; raises Mistake for a slice, and for what is no integer."""
    if isinstance(node, ast.Slice):
        raise frame.error(node, "a slice cannot stand here", hint="take one index after another")
    match evaluate(frame, node):
        case Weak(int() as number) if not isinstance(number, bool):
            return convert(frame, Weak(number), int32, node, "an index is")
        case Typed(atom) as value if isinstance(value.type, Scalar) and value.type.is_int:
            return atom
        case value:
            text = frame.places.text(node)
            hint = f"write int({text})" if is_number(value) else habit_hints.of_uncalled(value, text)
            raise frame.error(node, f"an index is an integer, not {describe(value)}", hint=hint)
