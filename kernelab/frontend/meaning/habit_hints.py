"""Hints that depend on a value's type, an operator or the text of a line: what to write instead of a habit.

Each stands below a message; where there is none, the message stands alone.
"""

import builtins
from collections.abc import Sequence

from kernelab.frontend.meaning.meanings import ArrayRef, BuiltinRef, Meaning, Typed
from kernelab.guidance.kernel_text import NAMES, NEAR_THE_ERROR, OF_ARRAYS, OF_LINES, OF_PARSER
from kernelab.lang import ops
from kernelab.lang.ops import ScalarPattern
from kernelab.lang.types import Mat, Scalar, Transform, Vec

_METHODS_OF_VECTORS = {
    "norm": "length",
    "magnitude": "length",
    "mag": "length",
    "normalized": "normalize",
    "sqrmagnitude": "length_sq",
    "det": "determinant",
    "inv": "inverse",
}
_COLOURS = dict(zip("rgba", "xyzw", strict=True))


def of_name(name: str) -> str:
    """The hint for a name that means nothing in a kernel; empty where nothing is known."""
    is_pythons = not name.startswith("_") and callable(getattr(builtins, name, None))
    return NAMES.hint(name) or ("it is Python's, and has no meaning in a kernel" if is_pythons else "")


def of_value(base: Meaning, attribute: str, text: str) -> str:
    """The hint for `text.attribute`; empty where nothing is known."""
    if isinstance(base, ArrayRef):
        hint = OF_ARRAYS.hint(attribute.rstrip("_"))
        return hint or _as_call(attribute, f"{text}[i]", 1)
    match base.type if isinstance(base, Typed) else None:
        case Transform():
            return ""
        case Vec(_, n) if set(attribute) <= set(_COLOURS) and n <= 4:
            return f"write {text}.{''.join(_COLOURS[letter] for letter in attribute)}"
        case Vec() | Mat():
            return _as_call(_METHODS_OF_VECTORS.get(attribute.lower(), attribute), text)
        case Scalar():
            return "it is one number already" if attribute in ("item", "value") else _as_call(attribute, text)
        case _:
            return ""


def of_array(text: str) -> str:
    """The hint where an array stands for a number."""
    return f"index it to take one element, such as {text}[i], where i = tid()"


def of_uncalled(value: Meaning, text: str) -> str:
    """The hint where `tid` itself stands for the index; empty for any other value."""
    return f"write {text}()" if value == BuiltinRef("tid") else ""


def of_method(name: str, text: str) -> str:
    """The hint where a property is called like a method."""
    return _as_call(name, text) or f"write {text}.{name} without brackets"


def _as_call(attribute: str, text: str, most: int = 2) -> str:
    """`v.dot(w)` is `dot(v, w)`."""
    counts = [len(op.params) for op in ops.overloads(attribute)]
    if not counts or min(counts) > most:
        return ""
    return f"write {attribute}({text}{', ...' if min(counts) > 1 else ''})"


def of_operator(name: str, operands: tuple[str, str], kinds: tuple[object, object]) -> str:
    """The hint for an operator between two vectors, or for one of C's; empty where nothing is known."""
    left, right = operands
    vectors = [type(kind) is Vec for kind in kinds]
    match name:
        case "mul" if all(vectors):
            return f"write cw_mul({left}, {right}) for each component, or dot({left}, {right}) for their sum"
        case "matmul" if all(vectors):
            return f"write dot({left}, {right})"
        case "div" if all(isinstance(kind, Vec | Mat) for kind in kinds):
            return f"write cw_div({left}, {right})"
        case "pow" if vectors[0]:
            return f"write cw_mul({left}, {left}) for the square of each component, or dot({left}, {left})"
        case "mul" if vectors[0] and isinstance(kinds[1], Mat):
            return f"write {left} @ {right}, or {right} * {left}"
        case "bit_xor" if _any_float(kinds):
            return f"^ is a bit operation of ints: write {left} ** {right} for a power"
        case "bit_and" | "bit_or" if _any_float(kinds):
            word = "and" if name == "bit_and" else "or"
            return f"it is a bit operation of ints: write {word} between conditions"
        case "shl" | "shr" if _any_float(kinds):
            return "it shifts the bits of ints: write int(...), or multiply by a power of two"
        case "lt" | "le" | "gt" | "ge" if any(vectors):
            return "compare one component, or length(...), at a time"
        case _:
            return ""


def of_each_component(name: str, text: str, kind: Vec | Mat) -> str:
    """The hint for a function of numbers that is given a vector or a matrix."""
    if not any(
        len(op.params) == 1 and isinstance(op.params[0].pattern, ScalarPattern) for op in ops.overloads(name)
    ):
        return ""
    if isinstance(kind, Mat) or kind.n > 4:
        return f"it takes one number: write a loop over the components of {text}"
    parts = ", ".join(f"{name}({text}[{k}])" for k in range(kind.n))
    return f"it takes one number: write {kind}({parts})"


def of_call(name: str, arguments: Sequence[str]) -> str:
    """The hint for a call with too few or too many arguments; empty where nothing is known."""
    if any(tag.startswith("draws ") for op in ops.overloads(name) for tag in op.tags) and len(arguments) != 1:
        return f"write state = rand_init(seed, i) first, then {name}(state)"
    if name in ("round", "rint") and len(arguments) == 2:
        return "it rounds to a whole number: write round(x * 100.0) / 100.0 for two places"
    return ""


def _any_float(kinds: tuple[object, object]) -> bool:
    return any(isinstance(kind, Scalar) and kind.is_float for kind in kinds)


def of_syntax(line: str, column: int, message: str) -> str:
    """The hint for a syntax error of Python in a line; empty where nothing is known."""
    if line.rstrip().endswith(("++", "--")):
        return f"write {line.strip()[:-2].strip()} {line.rstrip()[-1]}= 1"
    near = line[max(0, column - 2) : column + 3]
    return NEAR_THE_ERROR.hint(near) or OF_LINES.hint(line.strip()) or OF_PARSER.hint(message)
