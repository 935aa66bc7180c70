"""Explains why a host operator rejects its operands, and what to write instead.

Knows types; must not know host values.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelab.errors import Diagnostic, KernelTypeError, type_name
from kernelab.lang.types import Mat, Transform, Type, Vec

SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
}  # fmt: skip
_SUMS = ("add", "sub")

Known = Sequence[Vec | Mat | None]
"""The type of each operand; None for what is a number."""


def no_overload(name: str, operands: Sequence[Any], types: Sequence[Type], known: Known) -> KernelTypeError:
    """No operation takes operands of these types."""
    shown = [
        str(x) if kind is None else str(type) for x, type, kind in zip(operands, types, known, strict=True)
    ]
    if len(shown) == 1:
        return KernelTypeError(Diagnostic(f"{name} takes no {shown[0]}", code="overload"))
    message = f"{SYMBOLS[name]} does not take {' and '.join(shown)}"
    return KernelTypeError(Diagnostic(message, hint=_hint(name, operands, types, known), code="overload"))


def _hint(name: str, operands: Sequence[Any], types: Sequence[Type], known: Known) -> str:
    whole = next(type for type in known if type is not None)
    if None in known:
        number = operands[known.index(None)]
        return f"write kl.{whole}({number}) for the same number in every component" if name in _SUMS else ""
    if len({type.scalar for type in known if type is not None}) > 1:
        return "write kl.vec3d(v), or the like, to give both the same numbers"
    vectors = all(type.__class__ is Vec for type in types)
    if vectors and name in ("mul", "div"):
        return f"write kl.dot(a, b), or kl.cw_{name}(a, b) for component by component"
    if name == "matmul":
        return "write kl.dot(a, b)" if vectors else "write *"
    return "kl.transform_point(t, v) moves a point" if isinstance(types[0], Transform) else ""


def unknown(name: str, type: Type | None, other: object) -> KernelTypeError:
    """The other operand is no value at all."""
    kind = "None" if other is None else f"a {type_name(other)}"
    message = f"{SYMBOLS[name]} does not take {type} and {kind}"
    hint = f"make a value of it: kl.{type}(...)" if isinstance(other, list | tuple) else ""
    return KernelTypeError(Diagnostic(message, hint=hint, code="overload"))


def ambiguous(name: str, type: Type | None) -> KernelTypeError:
    """The other operand is an array of NumPy, which multiplies by components."""
    message = f"{SYMBOLS[name]} of a {type} and a NumPy array could mean two things"
    hint = f"write kl.{type}(...) for the language's, np.asarray(v) for component by component"
    return KernelTypeError(Diagnostic(message, hint=hint, code="overload"))


def refuse_mask(data: Any) -> None:
    """Raise KernelTypeError for a masked array, or a list of them, of which something is masked."""
    several = isinstance(data, list | tuple) and data and isinstance(data[0], np.ndarray)
    for part in data if several else [data]:
        if isinstance(part, np.ma.MaskedArray) and np.ma.is_masked(part):
            count = np.count_nonzero(part.mask)
            message = f"{count} of {part.size} elements are masked, and arrays of kernelab have no masks"
            hint = "fill them in: x.filled(0.0); where the mask matters pass it along: kl.array(x.mask)"
            raise KernelTypeError(Diagnostic(message, code="data", hint=hint))
