"""Records of operations: type rule, spellings, derivative, domain and documentation of each.

This module knows the shape of the record and the overload sets by name; the records themselves stand in
`kernelab.builtins`.  A derivative is one of a closed set of kinds:

    Partials      scalar function: local partial derivatives, both modes follow from one formula
    Linear        linear in all its operands: the JVP is the operation itself, the VJP its transpose
    Bilinear      linear in each of two operands: one transpose for each
    Rules         anything else: a JVP and a VJP, written as IR
    Expanded      composed of other operations: differentiated as these are
    Zero          derivative zero wherever it exists (floor, comparisons, integer results)
    Undefined     no derivative: differentiating is an error that gives the reason
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, assert_never

import numpy as np

from kernelab.data_classes import dataclass, field
from kernelab.lang.types import (
    LARGEST,
    Array,
    Kind,
    Mat,
    Quat,
    Scalar,
    Transform,
    Type,
    Value,
    Vec,
    int32,
    int64,
    scalar_of,
    size_of,
)

Dims = dict[str, Any]
"""The values bound to the variables of a signature: scalars by pattern name, lengths by letter."""


@dataclass(frozen=True, slots=True)
class ScalarPattern:
    """A scalar of one of some kinds; equal names within a signature mean the same scalar."""

    name: str
    kinds: tuple[Kind, ...]


@dataclass(frozen=True, slots=True)
class VecPattern:
    """A vector of `n` scalars, `n` a length or the name of one."""

    scalar: ScalarPattern | Scalar
    n: int | str


@dataclass(frozen=True, slots=True)
class MatPattern:
    """A matrix of `n` rows and `m` columns, each a length or the name of one."""

    scalar: ScalarPattern | Scalar
    n: int | str
    m: int | str


@dataclass(frozen=True, slots=True)
class KindPattern:
    """A quaternion or a transform, over a scalar."""

    kind: type[Quat] | type[Transform]
    scalar: ScalarPattern


Pattern = ScalarPattern | VecPattern | MatPattern | KindPattern | Scalar | Vec | Mat


def matches(pattern: Pattern, type: Type, dims: Dims) -> bool:
    """Whether `type` fits `pattern`; binds the pattern's variables in `dims`."""
    match pattern:
        case Scalar() | Vec() | Mat():
            return pattern == type
        case ScalarPattern(name, kinds):
            return isinstance(type, Scalar) and type.kind in kinds and dims.setdefault(name, type) == type
        case VecPattern(scalar, n):
            fits = isinstance(type, Vec) and matches(scalar, type.scalar, dims)
            return isinstance(type, Vec) and fits and _binds(n, type.n, dims) and _is_kind(n, type, dims)
        case KindPattern(kind, scalar):
            return isinstance(type, kind) and matches(scalar, type.scalar, dims)
        case MatPattern(scalar, n, m):
            fits = isinstance(type, Mat) and matches(scalar, type.scalar, dims)
            return isinstance(type, Mat) and fits and _binds(n, type.n, dims) and _binds(m, type.m, dims)
        case _:
            assert_never(pattern)


def instantiate(pattern: Pattern, dims: Dims) -> Value:
    """The type that a pattern stands for once its variables are bound."""
    match pattern:
        case Scalar() | Vec() | Mat():
            return pattern
        case ScalarPattern(name):
            bound: Scalar = dims[name]
            return bound
        case VecPattern(scalar, n):
            kind: type[Vec] = dims.get(f"kind of {n}", Vec)
            return kind(_scalar(scalar, dims), _length(n, dims))
        case KindPattern(kind_of, scalar):
            return kind_of(_scalar(scalar, dims))
        case MatPattern(scalar, n, m):
            return Mat(_scalar(scalar, dims), _length(n, dims), _length(m, dims))
        case _:
            assert_never(pattern)


def _binds(length: int | str, size: int, dims: Dims) -> bool:
    return length == size if isinstance(length, int) else dims.setdefault(length, size) == size


def _is_kind(length: int | str, type: Vec, dims: Dims) -> bool:
    """Vectors of one length variable are all vectors, all quaternions or all transforms."""
    if isinstance(length, int):
        return type.__class__ is Vec
    return bool(dims.setdefault(f"kind of {length}", type.__class__) is type.__class__)


def _length(length: int | str, dims: Dims) -> int:
    return length if isinstance(length, int) else dims[length]


def _scalar(scalar: ScalarPattern | Scalar, dims: Dims) -> Scalar:
    return scalar if isinstance(scalar, Scalar) else dims[scalar.name]


def scalar_pattern(pattern: Pattern) -> ScalarPattern:
    """The pattern of the numbers that a pattern is made of."""
    inner = pattern.scalar if isinstance(pattern, VecPattern | KindPattern | MatPattern) else pattern
    assert isinstance(inner, ScalarPattern)
    return inner


@dataclass(frozen=True, slots=True)
class Partials:
    """`fn(y, *operands)` gives dy/dx for each operand: an `Expr`, a number, or None where it is zero.

    `singular` says that a partial can be infinite or not a number inside the operation's domain or on its
    edge; it is then applied only where the incoming derivative is not zero.
    """

    fn: Callable[..., Any]
    singular: bool = False


@dataclass(frozen=True, slots=True)
class Linear:
    """`transpose(y_bar, *operands)` gives the cotangent of each operand, or None.

    `signs` says that the operation is a sum of its operands with these signs.
    """

    transpose: Callable[..., Any]
    signs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Bilinear:
    """`left(y_bar, a, b)` and `right(y_bar, a, b)` give the cotangents of the two operands."""

    left: Callable[..., Any]
    right: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Rules:
    """`jvp(y, operands, tangents)` gives the tangent, `vjp(y, operands, y_bar)` the cotangents.

    A tangent of None is zero; a cotangent of None adds nothing.
    """

    jvp: Callable[..., Any]
    vjp: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Zero:
    """The derivative is zero wherever it exists."""


@dataclass(frozen=True, slots=True)
class Expanded:
    """The derivative is that of the operations in `expand`, which stand for this one before it is taken."""


@dataclass(frozen=True, slots=True)
class Undefined:
    """The operation has no derivative; `reason` tells the user why."""

    reason: str


Derivative = Partials | Linear | Bilinear | Rules | Expanded | Zero | Undefined


@dataclass(frozen=True, slots=True)
class Parameter:
    """An operand of an operation."""

    name: str
    pattern: Pattern


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """One operation: everything that any part of kernelab knows about it.

    `cpp` is the C++ expression over scalars: operands by name in braces, ``{T}`` the result's C++ type,
    ``{m}`` and ``{f}`` the prefix and suffix that make ``{m}sin{f}({x})`` the target's function for the
    width. An operation over vectors has none; it has `expand`, its meaning in terms of scalar operations.
    `numpy` computes it on arrays whose leading axes are threads and whose trailing axes are components.
    `domain` holds, for each operand, the interval that tests sample.  `exact` says that NumPy and every
    target agree to the last bit.  `symbol` is the infix or prefix operator a reader expects. `tags` are facts
    that passes may ask for, such as "commutative", or "unbounded" where the result of finite operands may be
    infinite.  `parts` are the patterns of the several results of a call, where the vector that the operation
    gives holds the components of all of them in turn.
    """

    name: str
    params: tuple[Parameter, ...]
    result: Pattern
    numpy: Callable[..., Any]
    derivative: Derivative
    cpp: str | None = None
    expand: Callable[..., Any] | None = None
    domain: tuple[tuple[float, float], ...] = ()
    exact: bool = False
    symbol: str = ""
    doc: str = ""
    tags: frozenset[str] = field(default_factory=frozenset)
    parts: tuple[Pattern, ...] = ()

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def results(self, result: Value) -> tuple[Value, ...]:
        """The types of the several results of a call, () if it has one; `result` is that of all together."""
        scalar = scalar_of(result)
        bound: Dims = {scalar_pattern(part).name: scalar for part in self.parts}
        return tuple(instantiate(part, bound) for part in self.parts)

    @property
    def _has_matrix(self) -> bool:
        """Whether a vector operand is a row or column of a matrix, which no quaternion is."""
        patterns = (self.result, *(param.pattern for param in self.params))
        return any(isinstance(pattern, MatPattern) for pattern in patterns)

    def infer(self, types: Sequence[Type]) -> Value | None:
        """The result type for operands of these types, None where they do not fit."""
        if len(types) != len(self.params):
            return None
        dims: Dims = {}
        for param, type in zip(self.params, types, strict=True):
            if not matches(param.pattern, type, dims):
                return None
        if any(value in (Quat, Transform) for value in dims.values()) and self._has_matrix:
            return None
        result = instantiate(self.result, dims)
        return result if size_of(result) <= LARGEST else None


class _ShapeOf(Op):
    """The extent of an array along an axis: the one operation on an array itself."""

    def infer(self, types: Sequence[Type]) -> Value | None:
        match types:
            case [Array(), Scalar() as axis] if axis.is_int:
                return int32
            case _:
                return None


def _no_numpy(*_: Any) -> Any:
    raise NotImplementedError("the interpreter reads the shape of an array itself")


SHAPE = _ShapeOf("shape", (), int32, _no_numpy, Zero(), doc="The extent of an array along an axis.")
"""``shape(array, axis)``: int32; every backend reads it from the launch's arguments."""

ALONG = Op(
    "along",
    (Parameter("start", int64), Parameter("count", int64)),
    int64,
    lambda start, count: start + count,
    Zero(),
    cpp="({start} + {count})",
    exact=True,
    symbol="+",
    doc="Where a value of a thread's stands in a residual, so many behind its first one.",
)
"""``along(start, count)``: int64; a device puts what threads keep at the same time side by side, so it goes
further there than the sum that it is elsewhere."""


class _Copy(Op):
    """The same value once more, of any type."""

    def infer(self, types: Sequence[Type]) -> Value | None:
        return None if len(types) != 1 or isinstance(types[0], Array) else types[0]


COPY = _Copy(
    "copy",
    (),
    int32,
    lambda value: value,
    Linear(lambda g, _: g),
    cpp="{value}",
    exact=True,
    doc="The same value under another name: an argument of a function, or its result.",
)
"""``copy(value)``, of any type: a name of the text where calls are written out, and nothing is merged."""


def _trips(start: Any, stop: Any, step: Any) -> Any:
    dtype = np.asarray(start).dtype
    a, b, by = (np.asarray(value).astype(np.int64) for value in (start, stop, step))
    up = by > 0
    far, size = (np.where(up, x, y).astype(np.uint64) for x, y in ((b - a, a - b), (by, -by)))
    more = (far - np.uint64(1)) // np.maximum(size, np.uint64(1))
    fits = more < np.uint64(np.iinfo(dtype).max)
    count = np.where(fits, np.where(fits, more, np.uint64(0)).astype(np.int64) + 1, -1)
    return np.where(np.where(up, a >= b, (a <= b) | (by == 0)), 0, count).astype(dtype)


_BOUND = ScalarPattern("Bound", ("int",))

TRIPS = Op(
    "trips",
    tuple(Parameter(name, _BOUND) for name in ("start", "stop", "step")),
    _BOUND,
    _trips,
    Zero(),
    cpp="trips<{T}, {U}>({start}, {stop}, {step})",
    exact=True,
    doc="How many items ``range(start, stop, step)`` has.",
)
"""``trips(start, stop, step)``: 0 for a step of 0, and -1 where the type does not hold the number."""

_OVERLOADS: dict[str, list[Op]] = {}
_MADE: dict[str, tuple[Op, ...]] = {}
_MAKERS: list[Callable[[str], tuple[Op, ...]]] = []


def register(op: Op) -> None:
    """Add an operation to the overloads of its name; the first that fits wins."""
    _resolve.cache_clear()
    _OVERLOADS.setdefault(op.name, []).append(op)


def register_maker(maker: Callable[[str], tuple[Op, ...]]) -> None:
    """Add what makes operations on demand, by name: there are too many types to list all constructors."""
    _MAKERS.append(maker)


def overloads(name: str) -> tuple[Op, ...]:
    """The operations of that name, () if there is none."""
    listed = _OVERLOADS.get(name)
    if listed is not None:
        return tuple(listed)
    if name not in _MADE:
        _MADE[name] = tuple(op for maker in _MAKERS for op in maker(name))
    return _MADE[name]


def names() -> tuple[str, ...]:
    """The names of the operations that are listed, in the order of the table."""
    return tuple(_OVERLOADS)


def listed() -> int:
    """How many names are listed; their number only grows."""
    return len(_OVERLOADS)


def resolve(name: str, types: Sequence[Type]) -> tuple[Op, Value] | None:
    """The overload of `name` that takes operands of these types, and its result type."""
    return _resolve(name, tuple(types))


@lru_cache(4096)
def _resolve(name: str, types: tuple[Type, ...]) -> tuple[Op, Value] | None:
    for op in _OVERLOADS.get(name) or overloads(name):
        result = op.infer(types)
        if result is not None:
            return op, result
    return None
