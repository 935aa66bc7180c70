"""Types of any shape, and values made by shape: `vector`, `matrix`, `identity` and their kin.

As types, `types.vector(length=5, dtype=float)`; in a kernel, `vector(1.0, 2.0, 3.0)`, `vector(length=5)`,
`matrix(0.0, shape=(2, 3))`, `identity(n=3, dtype=float)`.
"""

import re
from collections.abc import Mapping, Sequence

from kernelab.frontend.meaning.meanings import Meaning, TupleOf, TypeRef, Weak
from kernelab.lang.types import LARGEST, Mat, Quat, Scalar, Transform, Value, Vec, float32, size_of

IDENTITIES = ("identity", "quat_identity", "transform_identity")
ROTATIONS = ("quaternion", "transformation")
WORDS = ("vector", "matrix", *ROTATIONS, *IDENTITIES)
_EXAMPLES = {
    "quaternion": "x, y, z, w, dtype=float",
    "transformation": "p, q, dtype=float",
    "quat_identity": "dtype=float",
    "transform_identity": "dtype=float",
    "vector": "length=5, dtype=float",
    "matrix": "shape=(2, 3), dtype=float",
    "identity": "n=3, dtype=float",
}
_KEYWORDS = {name: tuple(re.findall(r"(\w+)=", example)) for name, example in _EXAMPLES.items()}


class Unshaped(Exception):
    """The words do not say which type; the message says what is missing, `hint` what to write."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = f"write {name}({_EXAMPLES[name]})"


def bound(name: str, plain: Sequence[Meaning], named: Mapping[str, Meaning]) -> Mapping[str, Meaning]:
    """The words of a type by name; raises Unshaped."""
    words = dict(zip(_KEYWORDS[name], plain, strict=False)) | dict(named)
    if len(plain) > len(_KEYWORDS[name]) or set(words) - set(_KEYWORDS[name]):
        raise Unshaped(name, f"{name} takes {' and '.join(_KEYWORDS[name])}")
    return words


def shaped_type(name: str, words: Mapping[str, Meaning], components: Sequence[Value] = ()) -> Vec | Mat:
    """The type that the words of `vector`, `matrix` or `identity` name.

    What they leave out, components say; raises Unshaped where neither does.
    """
    scalar = _scalar(name, words.get("dtype"), components)
    match name, words.get(_KEYWORDS[name][0]):
        case (("quat_identity" | "transform_identity" | "quaternion" | "transformation"), _) if (
            not scalar.is_float
        ):
            raise Unshaped(name, f"{name} holds floats, not {scalar}")
        case "quat_identity" | "quaternion", _:
            return Quat(scalar)
        case "transform_identity" | "transformation", _:
            return Transform(scalar)
        case "vector", Weak(int() as n):
            type: Vec | Mat = Vec(scalar, n)
        case "vector", None if len(components) > 1:
            type = Vec(scalar, sum(size_of(part) for part in components))
        case "matrix", TupleOf((Weak(int() as n), Weak(int() as m))):
            type = Mat(scalar, n, m)
        case "identity", Weak(int() as n):
            type = Mat(scalar, n, n)
        case _, None:
            raise Unshaped(name, f"{name} does not say its {_KEYWORDS[name][0]}")
        case _:
            raise Unshaped(
                name, f"the {_KEYWORDS[name][0]} of {name} has to be known when the kernel is compiled"
            )
    if min(type.shape) < 0 or size_of(type) > LARGEST:
        raise Unshaped(name, f"a kernel value holds at most {LARGEST} numbers, not {size_of(type)}")
    return type


def is_one(type: Vec | Mat) -> Sequence[bool]:
    """The components of an identity that are 1, the others being 0."""
    if isinstance(type, Mat):
        return [i == j for i in range(type.n) for j in range(type.m)]
    return [i == type.n - 1 for i in range(type.n)]


def _scalar(name: str, dtype: Meaning | None, components: Sequence[Value]) -> Scalar:
    match dtype:
        case TypeRef(Scalar() as scalar):
            return scalar
        case None:
            scalars = [part if isinstance(part, Scalar) else part.scalar for part in components]
            return scalars[0] if scalars else float32
        case _:
            raise Unshaped(name, f"the dtype of {name} has to be a type of numbers")
