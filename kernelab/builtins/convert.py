"""Conversions, constructors and components.

Every type's name is an operation: ``int32(x)`` converts a number, ``vec3(x, y, z)`` and ``mat22(...)`` join
components, by rows, ``vec3(s)`` repeats one, and ``vec3d(v)`` converts a vector of another scalar type.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from kernelab.builtins.composite import composite
from kernelab.builtins.table import (
    ANYWHERE,
    AnyMatNM,
    AnyVecM,
    AnyVecN,
    Element,
    Float,
    Index,
    Interval,
    VecM,
    Whole,
    added,
    define,
    each,
    matrix,
    or_zero,
    parts,
    rows,
    stacked,
    title_of,
    vector,
    zero_of,
)
from kernelab.lang.build import Expr
from kernelab.lang.ops import (
    Derivative,
    KindPattern,
    Linear,
    MatPattern,
    Op,
    Parameter,
    Pattern,
    Rules,
    VecPattern,
    Zero,
    register_maker,
)
from kernelab.lang.rounding import Numpy, converted
from kernelab.lang.types import (
    SCALARS,
    Mat,
    Quat,
    Scalar,
    Transform,
    Value,
    Vec,
    bool_,
    float32,
    float64,
    int32,
    int64,
    shape_of,
    size_of,
    type_named,
    uint32,
    uint64,
)

FAMILY = title_of(__name__)
VECTORS = tuple(Vec(scalar, n) for scalar in SCALARS for n in (2, 3, 4))
MATRICES = tuple(Mat(s, n, m) for s in SCALARS if s.is_float for n in (2, 3, 4) for m in (2, 3, 4))
KINDS: tuple[Quat | Transform, ...] = tuple(
    kind(s) for kind in (Quat, Transform) for s in SCALARS if s.is_float
)


def _record(
    name: str,
    params: Sequence[tuple[str, Pattern]],
    result: Pattern,
    numpy: Callable[..., Any],
    derivative: Derivative,
    doc: str,
    domain: Interval = ANYWHERE,
    **form: Any,
) -> Op:
    """The record of an operation that is computed exactly; `form` has its `cpp` or `expand`."""
    operands = tuple(Parameter(name, pattern) for name, pattern in params)
    domains = (domain,) * len(operands)
    return Op(name, operands, result, numpy, derivative, domain=domains, exact=True, doc=doc, **form)


def _as_type(dtype: np.dtype[Any]) -> Callable[..., Numpy]:
    return lambda x: converted(x, dtype)


_BACK = Linear(lambda w, x: (w.apply(str(x.type)),))
"""The cotangent of a conversion between floats is converted back."""


def _casts(to: Scalar) -> list[Op]:
    plain = "({a} != 0)" if to == bool_ else "(({T}){a})"

    def cast(operand: Pattern, derivative: Derivative, doc: str, cpp: str = plain) -> Op:
        return _record(str(to), [("a", operand)], to, _as_type(to.dtype), derivative, doc, cpp=cpp)

    if to.is_float:
        doc = f"``a`` as {to}, rounded to the nearest."
        return [cast(Float, _BACK, doc), cast(Whole, Zero(), doc)]
    if to == bool_:
        return [cast(Element, Zero(), "Whether ``a`` is not 0.")]
    doc = (
        f"``a`` as {to}: an integer wraps around; a float is rounded towards 0, what is out of range becomes "
        f"the nearest {to}, and NaN 0."
    )
    return [cast(Float, Zero(), doc, f"to_{to}({{a}})"), cast(Whole, Zero(), doc)]


def _rule(type: Value, transpose: Callable[..., Any]) -> Derivative:
    scalar = type if isinstance(type, Scalar) else type.scalar
    return Linear(transpose) if scalar.is_float else Zero()


def _names(type: Vec | Mat) -> list[str]:
    if isinstance(type, Vec):
        return list("xyzw"[: type.n]) if type.n <= 4 else [f"v{i}" for i in range(type.n)]
    return [f"m{i}_{j}" if max(type.shape) > 9 else f"m{i}{j}" for i in range(type.n) for j in range(type.m)]


def _constructors(type: Vec | Mat) -> Iterator[Op]:
    kind = (
        type.__class__.__name__.lower() if type in KINDS else "vector" if isinstance(type, Vec) else "matrix"
    )
    joined = [(name, type.scalar) for name in _names(type)]
    order = " of these components." if isinstance(type, Vec) else " of these entries, row by row."
    yield _record(
        str(type),
        joined,
        type,
        lambda *xs: _shaped(type, xs),
        _rule(type, lambda w, *xs: tuple(parts(w))),
        f"The {kind}{order}",
        expand=lambda *xs: xs[0].make(type, *xs),
        tags=frozenset({"make"}),
    )
    if size_of(type) > 1 and not isinstance(type, Quat | Transform):
        yield _record(
            str(type),
            [("s", type.scalar)],
            type,
            lambda s: _shaped(type, [s] * size_of(type)),
            _rule(type, lambda w, s: (added(parts(w)),)),
            f"The {kind} with ``s`` everywhere.",
            expand=lambda s: s.make(type, *[s] * size_of(type)),
        )
    for pattern, derivative in _convertible(type):
        yield _record(
            str(type),
            [("v", pattern)],
            type,
            _as_type(type.scalar.dtype),
            derivative,
            f"The {kind} ``v`` with each component as {type.scalar}.",
            expand=lambda v: each(lambda x: x.apply(str(type.scalar)), v),
        )


def _convertible(type: Vec | Mat) -> list[tuple[Pattern, Derivative]]:
    """The types from which a vector or matrix can be made by converting each component."""
    match type:
        case Quat() | Transform():
            return [(KindPattern(type.__class__, Float), _BACK)]
        case Vec(scalar, n) if scalar.is_float:
            return [(VecPattern(Float, n), _BACK), (VecPattern(Whole, n), Zero())]
        case Vec(_, n):
            return [(VecPattern(Element, n), Zero())]
        case Mat(scalar, n, m) if scalar.is_float:
            return [(MatPattern(Float, n, m), _BACK), (MatPattern(Whole, n, m), Zero())]
        case Mat(_, n, m):
            return [(MatPattern(Element, n, m), Zero())]


def _shaped(type: Vec | Mat, components: Sequence[Any]) -> Numpy:
    joined = stacked(components)
    return joined.reshape(*joined.shape[:-1], *shape_of(type))


def _constructors_named(name: str) -> tuple[Op, ...]:
    """The constructors of a type that is not listed, such as ``vec5`` or ``mat23i``."""
    type = type_named(name)
    return tuple(_constructors(type)) if isinstance(type, Vec | Mat) and str(type) == name else ()


for _scalar in SCALARS:
    for _op in _casts(_scalar):
        define(_op, FAMILY)
_LISTED: tuple[Vec | Mat, ...] = (*VECTORS, *MATRICES, *KINDS)
for _type in _LISTED:
    for _op in _constructors(_type):
        define(_op, FAMILY)
register_maker(_constructors_named)


def _from_end(f: Any, i: Any, length: int) -> Any:
    """An index as Python counts it: from the end where it is negative."""
    return f.where(i < 0, i + length, i)


def _chosen(f: Any, items: Sequence[Any], i: Any) -> Any:
    place, result = _from_end(f, i, len(items)), items[-1]
    for k in reversed(range(len(items) - 1)):
        result = f.where(f.equal(place, k), items[k], result)
    return result


def _replaced(f: Any, items: Sequence[Any], i: Any, x: Any) -> list[Any]:
    place = _from_end(f, i, len(items))
    return [f.where(f.equal(place, k), x, item) for k, item in enumerate(items)]


def _of_parts(write: Callable[..., Expr], read: Callable[..., Expr]) -> tuple[Rules, Rules]:
    """The derivatives of reading a part, and of replacing it: both linear in the whole and in the part."""
    reads = Rules(
        lambda y, operands, dots: None if dots[0] is None else read(dots[0], *operands[1:]),
        lambda y, operands, w: (write(zero_of(operands[0]), *operands[1:], w), *[None] * (len(operands) - 1)),
    )

    def jvp(y: Expr, operands: Any, dots: Any) -> Expr:
        whole, *indices, part = operands
        return write(or_zero(dots[0], whole), *indices, or_zero(dots[-1], part))

    def vjp(y: Expr, operands: Any, w: Expr) -> tuple[Expr | None, ...]:
        _, *indices, part = operands
        return write(w, *indices, zero_of(part)), *[None] * len(indices), read(w, *indices)

    return reads, Rules(jvp, vjp)


PART, CHANGE = _of_parts(lambda *operands: insert(*operands), lambda *operands: extract(*operands))
ROW, ROW_CHANGE = _of_parts(lambda *operands: insert_row(*operands), lambda *operands: row(*operands))
WITHIN_TWO = (-2.0, 1.0)


@composite(derivative=PART, exact=True, tags=("extract",), domain=(ANYWHERE, WITHIN_TWO))
def extract(f: Any, a: AnyVecN, i: Index) -> Element:
    """The component ``a[i]``; a negative index counts from the end, one outside gives the last."""
    return _chosen(f, a, i)


@composite(
    name="extract", derivative=PART, exact=True, tags=("extract",), domain=(ANYWHERE, WITHIN_TWO, WITHIN_TWO)
)
def extract_entry(f: Any, a: AnyMatNM, i: Index, j: Index) -> Element:
    """The entry ``a[i, j]``; negative indices count from the end, one outside gives the last."""
    return _chosen(f, [_chosen(f, entries, j) for entries in a], i)


@composite(derivative=CHANGE, exact=True, domain=(ANYWHERE, WITHIN_TWO, ANYWHERE))
def insert(f: Any, v: AnyVecN, i: Index, x: Element) -> AnyVecN:
    """``v`` with ``x`` as component ``i``; a negative index counts from the end; outside, nothing changes."""
    return _replaced(f, v, i, x)


@composite(name="insert", derivative=CHANGE, exact=True, domain=(ANYWHERE, WITHIN_TWO, WITHIN_TWO, ANYWHERE))
def insert_entry(f: Any, m: AnyMatNM, i: Index, j: Index, x: Element) -> AnyMatNM:
    """``m`` with ``x`` as entry ``[i, j]``; negative indices count from the end."""
    new = [_replaced(f, entries, j, x) for entries in m]
    place = _from_end(f, i, len(m))
    here = [f.equal(place, k) for k in range(len(m))]
    pairs = [zip(*lines, strict=True) for lines in zip(new, m, strict=True)]
    return [[f.where(chosen, a, b) for a, b in line] for chosen, line in zip(here, pairs, strict=True)]


@composite(derivative=ROW, exact=True, domain=(ANYWHERE, WITHIN_TWO))
def row(f: Any, m: AnyMatNM, i: Index) -> AnyVecM:
    """The row ``m[i]``; a negative index counts from the end, one outside gives the last."""
    return [_chosen(f, column, i) for column in zip(*m, strict=True)]


@composite(derivative=ROW_CHANGE, exact=True, domain=(ANYWHERE, WITHIN_TWO, ANYWHERE))
def insert_row(f: Any, m: AnyMatNM, i: Index, v: AnyVecM) -> AnyMatNM:
    """``m`` with ``v`` as row ``i``; a negative index counts from the end; outside, nothing changes."""
    changed = [_replaced(f, column, i, x) for column, x in zip(zip(*m, strict=True), v, strict=True)]
    return list(zip(*changed, strict=True))


def _define_from_vectors(name: str, count: int, by_rows: bool) -> None:
    """`matrix_from_rows` or `matrix_from_cols` of `count` vectors."""
    result = MatPattern(Float, count, "m") if by_rows else MatPattern(Float, "m", count)

    def expand(*vectors: Expr) -> Expr:
        lines = [parts(v) for v in vectors]
        return matrix(lines if by_rows else list(zip(*lines, strict=True)))

    def transpose(w: Expr, *vectors: Expr) -> tuple[Expr, ...]:
        lines = rows(w) if by_rows else list(zip(*rows(w), strict=True))
        return tuple(vector(line) for line in lines)

    doc = f"The matrix with these vectors as {'rows' if by_rows else 'columns'}."
    axis = -2 if by_rows else -1
    params = [(f"v{k}", VecM) for k in range(count)]
    rule = Linear(transpose)
    op = _record(name, params, result, lambda *vectors: stacked(vectors, axis), rule, doc, expand=expand)
    define(op, FAMILY)


for _count in (2, 3, 4, 1):
    _define_from_vectors("matrix_from_rows", _count, True)
    _define_from_vectors("matrix_from_cols", _count, False)


# ---------------------------------------------------------------------- bits of a number read as another type


def _cast(own: Scalar, wanted: Scalar) -> Op:
    def read(x: Numpy) -> Numpy:
        return np.asarray(x).view(wanted.dtype)

    doc = f"The bits of an {own} read as {wanted}; in a kernel also ``cast(x, {wanted})``."
    if wanted.is_float:
        doc += " An error where a gradient has to pass from a float whose bits they were."
    cpp = "__builtin_bit_cast({T}, {x})"
    return _record(
        f"cast_{wanted}",
        [("x", own)],
        wanted,
        read,
        Zero(),
        doc,
        (-9.0, 9.0),
        cpp=cpp,
        tags=frozenset({"bits"}),
    )


for _float, _ints in ((float32, (int32, uint32)), (float64, (int64, uint64))):
    for _int in _ints:
        define(_cast(_float, _int), FAMILY)
        define(_cast(_int, _float), FAMILY)
