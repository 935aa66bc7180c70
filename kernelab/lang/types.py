"""The types of kernel values, compared by structure.

A type object is also what a user writes: `float32`, `vec3` and `mat33` annotate parameters and name the
dtype of an array.  That they can be called, tested for and inherited from is the matter of `kernelab.host`.
"""

import math
import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from kernelab.data_classes import dataclass, field
from kernelab.lang.rounding import BFLOAT16

Kind = Literal["bool", "int", "uint", "float"]


@cache
def _numpy_dtype(kind: Kind, bits: int) -> np.dtype[Any]:
    return np.dtype("bool" if kind == "bool" else f"{kind}{bits}")


@dataclass(frozen=True, slots=True, eq=False)
class Scalar:
    """One number: a truth value, an integer or a float of a given width in bits, "b" for a brain float.

    There is one object for each, so they compare and hash by identity, which every pass does all the time.
    """

    kind: Kind
    bits: int
    flavor: Literal["", "b"] = ""
    name: str = field(init=False)
    __call__: ClassVar[Callable[..., Any]]

    def __new__(cls, kind: Kind, bits: int, flavor: Literal["", "b"] = "") -> "Scalar":
        return _KNOWN.setdefault((kind, bits, flavor), object.__new__(cls))

    def __post_init__(self) -> None:
        name = "bool" if self.kind == "bool" else f"{self.flavor}{self.kind}{self.bits}"
        object.__setattr__(self, "name", name)

    def __reduce__(self) -> tuple[Any, ...]:
        return Scalar, (self.kind, self.bits, self.flavor)

    @property
    def __name__(self) -> str:
        return self.name

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of the same name."""
        return BFLOAT16 if self.flavor else _numpy_dtype(self.kind, self.bits)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_int(self) -> bool:
        return self.kind in ("int", "uint")

    def holds(self, number: float) -> bool:
        """Whether a type of ints has a number."""
        limits = np.iinfo(self.dtype)
        return int(limits.min) <= number <= int(limits.max)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name

    @property
    def _type_(self) -> Any:
        """The type that ctypes has for such a number, for programs for Warp; of halves that of their bits."""
        is_half = self.kind == "float" and self.bits == 16
        return np.ctypeslib.as_ctypes_type(np.dtype(np.uint16) if is_half else self.dtype)

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, np.generic) and value.dtype == self.dtype


_KNOWN: "dict[tuple[str, int, str], Scalar]" = {}

bool_ = Scalar("bool", 8)
int8, int16, int32, int64 = (Scalar("int", bits) for bits in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (Scalar("uint", bits) for bits in (8, 16, 32, 64))
float16, float32, float64 = (Scalar("float", bits) for bits in (16, 32, 64))
bfloat16 = Scalar("float", 16, "b")

_INTS = (int8, int16, int32, int64, uint8, uint16, uint32, uint64)
SCALARS = (bool_, *_INTS, float16, bfloat16, float32, float64)
BY_DTYPE = {scalar.dtype: scalar for scalar in SCALARS}
"""The types of numbers by their NumPy dtypes."""

HALVES = (float16, bfloat16)
"""The floats of 16 bits, which are computed in float32."""


class _Shaped:
    """A base of the types of vectors and matrices: host code calls them, and they have a name."""

    __slots__ = ()
    scalar: "Scalar"
    __call__: ClassVar[Callable[..., Any]]

    @property
    def shape(self) -> tuple[int, ...]:
        raise NotImplementedError

    def __repr__(self) -> str:
        return str(self)

    # What programs for Warp read of a type.
    _shape_ = property(lambda self: self.shape)
    _length_ = property(lambda self: math.prod(self.shape))
    _wp_scalar_type_ = property(lambda self: self.scalar)
    _type_ = property(lambda self: self.scalar._type_)

    if not TYPE_CHECKING:  # for a checker `type(x).__name__` would be this property

        @property
        def __name__(self) -> str:
            return str(self)


@dataclass(frozen=True, slots=True, repr=False)
class Vec(_Shaped):
    """A vector of `n` scalars, a value like a number."""

    scalar: Scalar
    n: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.n,)

    def __str__(self) -> str:
        return f"vec{self.n}{_suffix(self.scalar)}"


@dataclass(frozen=True, slots=True, repr=False)
class Quat(Vec):
    """A quaternion: a vector x, y, z, w whose product ``*`` is the quaternion product."""

    n: int = 4

    def __str__(self) -> str:
        return f"quat{_suffix(self.scalar)}"


@dataclass(frozen=True, slots=True, repr=False)
class Transform(Vec):
    """A rigid motion: three numbers of a translation, then the four of the quaternion of a rotation."""

    n: int = 7

    def __str__(self) -> str:
        return f"transform{_suffix(self.scalar)}"


@dataclass(frozen=True, slots=True, repr=False)
class Mat(_Shaped):
    """A matrix of `n` rows and `m` columns, a value like a number."""

    scalar: Scalar
    n: int
    m: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.n, self.m)

    def __str__(self) -> str:
        between = "x" if max(self.n, self.m) > 9 else ""
        return f"mat{self.n}{between}{self.m}{_suffix(self.scalar)}"


@dataclass(frozen=True, slots=True)
class Array:
    """An array parameter: elements of one value type, in 1 to 4 dimensions, with any strides."""

    elem: "Value"
    ndim: int

    @property
    def dtype(self) -> "Value":
        """The type of the elements, as arrays call it."""
        return self.elem

    def __str__(self) -> str:
        return f"array[{self.elem}]" if self.ndim == 1 else f"array{self.ndim}d[{self.elem}]"

    def __repr__(self) -> str:
        return str(self)


Value = Scalar | Vec | Mat
Type = Value | Array


LARGEST = 144
"""The largest number of scalars in a value, that of a 12 by 12 matrix: each is a variable of the C++."""

_SUFFIXES = {
    float32: "", float64: "d", float16: "h", bfloat16: "bf",
    int32: "i", int64: "l", uint32: "ui", uint64: "ul", int8: "b", uint8: "ub", int16: "s", uint16: "us",
    bool_: "bool",
}  # fmt: skip
_BY_SUFFIX = {suffix: scalar for scalar, suffix in _SUFFIXES.items()} | {"f": float32, "u": uint32}
_SHAPED = re.compile(r"(?:vec(\d+)|mat(\d)(\d)|mat(\d+)x(\d+))([a-z]*)")


def _suffix(scalar: Scalar) -> str:
    return _SUFFIXES[scalar]


def shape_of(type: Value) -> tuple[int, ...]:
    """The component shape of a value type: () for a scalar, (n,) for a vector, (n, m) for a matrix."""
    return () if isinstance(type, Scalar) else type.shape


def size_of(type: Value) -> int:
    """The number of scalars in a value."""
    return math.prod(shape_of(type))


def scalar_of(type: Value) -> Scalar:
    """The scalar type of a value or of its components."""
    return type if isinstance(type, Scalar) else type.scalar


def with_scalar(type: Value, scalar: Scalar) -> Value:
    """The value type of the same shape over another scalar."""
    match type:
        case Scalar():
            return scalar
        case Vec(_, n):
            return type.__class__(scalar, n)
        case Mat(_, n, m):
            return Mat(scalar, n, m)


def wide(type: Value) -> Value:
    """The type of sums and derivatives of a value: a half stops growing after some hundreds of ones."""
    return with_scalar(type, float32) if scalar_of(type) in HALVES else type


def spelled(type: object) -> str:
    """A type, or the name of one, as users write it: ``float`` and ``int`` are 32 bits wide."""
    return re.sub(r"\b(float|int)32\b", r"\1", str(type))


def bytes_of(type: Value) -> int:
    """The size of a value in memory, in bytes."""
    return size_of(type) * scalar_of(type).bits // 8


def is_differentiable(type: Type) -> bool:
    """Whether values of this type carry derivatives: floats, and vectors, matrices and arrays of them."""
    return scalar_of(type.elem if isinstance(type, Array) else type).is_float


def _spatial(scalar: Scalar, suffix: str) -> dict[str, Value]:
    return {"spatial_vector" + suffix: Vec(scalar, 6), "spatial_matrix" + suffix: Mat(scalar, 6, 6)}


@cache
def _named() -> dict[str, Value]:
    names: dict[str, Value] = {scalar.name: scalar for scalar in SCALARS}
    for scalar in SCALARS:
        shaped: list[Value] = [Vec(scalar, n) for n in (2, 3, 4)]
        if scalar.is_float:
            shaped += [Mat(scalar, n, m) for n in (2, 3, 4) for m in (2, 3, 4)]
            shaped += [Quat(scalar), Transform(scalar)]
            names |= _spatial(scalar, _suffix(scalar))
        names |= {str(type): type for type in shaped}
        if scalar == float32:
            names |= {f"{type}f": type for type in shaped} | _spatial(scalar, "f")
    return names


def named_types() -> dict[str, Value]:
    """The value types that have a name of their own, by that name (``float32``, ``vec3``, ``mat44d``)."""
    return dict(_named())


@cache
def type_named(name: str) -> Value | None:
    """The value type of a name, of any size up to 144 scalars: ``vec5``, ``mat23d``, ``mat1x12i``."""
    type = _named().get(name)
    shaped = _SHAPED.fullmatch(name)
    if type is not None or shaped is None or shaped[6] not in _BY_SUFFIX:
        return type
    n, *m = (int(extent) for extent in shaped.groups()[:5] if extent)
    if not 1 <= math.prod((n, *m)) <= LARGEST:
        return None
    scalar = _BY_SUFFIX[shaped[6]]
    return Mat(scalar, n, m[0]) if m else Vec(scalar, n)
