"""Matrices.

``*`` and ``@`` are the matrix product, also with vectors; `cw_mul` and `cw_div` work entry by entry.  Sums
run from the first term to the last.
"""

from collections.abc import Callable, Sequence
from itertools import chain, combinations
from typing import Any

import numpy as np

from kernelab.builtins.arithmetic import COMMUTATIVE, and_, where
from kernelab.builtins.composite import composite
from kernelab.builtins.table import (
    Float,
    MatNN,
    Number,
    NumMat33,
    NumMatMK,
    NumMatMN,
    NumMatNK,
    NumMatNM,
    NumMatNN,
    NumVec3,
    NumVecM,
    NumVecN,
    added,
    builtin,
    components_of,
    matrix,
    parts,
    rows,
    stacked_rows,
    vector,
    zero_of,
)
from kernelab.builtins.vector import dotted, outer
from kernelab.lang.build import Expr
from kernelab.lang.ops import Bilinear, Linear, Rules


def _product(
    left: Callable[..., Any], right: Callable[..., Any], numpy: Callable[..., Any], expand: Callable[..., Any]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A matrix product, written ``*`` and ``@``."""

    def decorate(template: Callable[..., Any]) -> Callable[..., Any]:
        for name, symbol in (("matmul", "@"), ("mul", "*")):
            operation = builtin(
                expand=expand,
                numpy=numpy,
                derivative=Bilinear(left, right),
                exact=True,
                symbol=symbol,
                name=name,
            )(template)
        return operation

    return decorate


def _columns(m: Expr) -> list[tuple[Expr, ...]]:
    return list(zip(*rows(m), strict=True))


@_product(
    lambda w, m, v: outer(w, v),
    lambda w, m, v: w * m,
    lambda m, v: added([m[..., :, k] * v[..., None, k] for k in range(v.shape[-1])]),
    lambda m, v: vector([dotted(row, parts(v)) for row in rows(m)]),
)
def matrix_times_vector(a: NumMatNM, b: NumVecM) -> NumVecN:
    """The matrix applied to a column vector."""


@_product(
    lambda w, v, m: m * w,
    lambda w, v, m: outer(v, w),
    lambda v, m: added([v[..., k, None] * m[..., k, :] for k in range(v.shape[-1])]),
    lambda v, m: vector([dotted(parts(v), column) for column in _columns(m)]),
)
def vector_times_matrix(a: NumVecN, b: NumMatNM) -> NumVecM:
    """A row vector times the matrix."""


@_product(
    lambda w, a, b: w * transpose(b),
    lambda w, a, b: transpose(a) * w,
    lambda a, b: added([a[..., :, k, None] * b[..., None, k, :] for k in range(b.shape[-2])]),
    lambda a, b: matrix([[dotted(row, column) for column in _columns(b)] for row in rows(a)]),
)
def matrix_product(a: NumMatNM, b: NumMatMK) -> NumMatNK:
    """The matrix product."""


@builtin(
    expand=lambda m: matrix(_columns(m)),
    numpy=lambda m: np.swapaxes(m, -1, -2),
    exact=True,
    derivative=Linear(lambda w, m: (transpose(w),)),
)
def transpose(a: NumMatNM) -> NumMatMN:
    """The matrix with rows and columns exchanged."""


@builtin(
    expand=lambda m: added([m.at(i, i) for i in range(m.type.n)]),
    exact=True,
    numpy=lambda m: added([m[..., i, i] for i in range(m.shape[-1])]),
    derivative=Linear(lambda w, m: (diag(vector([w] * m.type.n)),)),
)
def trace(a: NumMatNN) -> Number:
    """The sum of the diagonal."""


def _diag_expand(v: Expr) -> Expr:
    zero, values = v.wrap(0), parts(v)
    return matrix([[x if i == j else zero for j in range(len(values))] for i, x in enumerate(values)])


@builtin(
    expand=_diag_expand,
    numpy=lambda v: np.where(np.eye(v.shape[-1], dtype=bool), v[..., None], v.dtype.type(0)),
    exact=True,
    derivative=Linear(lambda w, v: (get_diag(w),)),
)
def diag(vec: NumVecN) -> NumMatNN:
    """The matrix with ``vec`` as its diagonal and 0 elsewhere."""


@builtin(
    expand=lambda m: vector([m.at(i, i) for i in range(m.type.n)]),
    exact=True,
    numpy=lambda m: np.diagonal(m, axis1=-2, axis2=-1),
    derivative=Linear(lambda w, m: (diag(w),)),
)
def get_diag(mat: NumMatNN) -> NumVecN:
    """The diagonal as a vector."""


@composite(derivative=Bilinear(lambda w, a, b: w * b, lambda w, a, b: w * a), exact=True, tags=COMMUTATIVE)
def ddot(m: Any, a: NumMatNM, b: NumMatNM) -> Number:
    """The inner product of matrices: the sum of the products of the entries."""
    return dotted([*chain(*a)], [*chain(*b)])


def skew_rows(v: Sequence[Any], zero: Any) -> list[list[Any]]:
    """The rows of the matrix that does what the cross product with a vector does."""
    x, y, z = v
    return [[zero, -z, y], [z, zero, -x], [-y, x, zero]]


def _unskew(w: Expr) -> Expr:
    return vector([w.at(2, 1) - w.at(1, 2), w.at(0, 2) - w.at(2, 0), w.at(1, 0) - w.at(0, 1)])


@builtin(
    expand=lambda v: matrix(skew_rows(parts(v), v.wrap(0))),
    numpy=lambda v: stacked_rows(skew_rows(components_of(v), np.zeros_like(v[..., 0]))),
    exact=True,
    derivative=Linear(lambda w, v: (_unskew(w),)),
)
def skew(vec: NumVec3) -> NumMat33:
    """The matrix that does what the cross product does: ``skew(vec) * x`` is ``cross(vec, x)``."""


def _without(items: Sequence[Any], k: int) -> list[Any]:
    return [*items[:k], *items[k + 1 :]]


def _minor(m: Sequence[Sequence[Any]], i: int, j: int) -> list[list[Any]]:
    return [_without(row, j) for row in _without(m, i)]


def _pairs(upper: Sequence[Any], lower: Sequence[Any]) -> dict[tuple[int, int], Any]:
    """The determinants of two rows' pairs of columns."""
    return {(i, j): upper[i] * lower[j] - lower[i] * upper[j] for i, j in combinations(range(len(upper)), 2)}


def _determinant(m: Sequence[Sequence[Any]]) -> Any:
    """The expansion along the first row, or the first two of four, of expressions or NumPy arrays."""
    if len(m) == 1:
        return m[0][0]
    if len(m) == 4:
        upper, lower = _pairs(m[0], m[1]), _pairs(m[2], m[3])
        first = upper[0, 1] * lower[2, 3] - upper[0, 2] * lower[1, 3] + upper[0, 3] * lower[1, 2]
        return first + upper[1, 2] * lower[0, 3] - upper[1, 3] * lower[0, 2] + upper[2, 3] * lower[0, 1]
    total = m[0][0] * _determinant(_minor(m, 0, 0))
    for j in range(1, len(m)):
        term = m[0][j] * _determinant(_minor(m, 0, j))
        total = total + term if j % 2 == 0 else total - term
    return total


def _minors_of_four(m: Sequence[Sequence[Any]]) -> Callable[[int, int], Any]:
    """The determinants of the minors of a 4 by 4 matrix; what two rows give is computed once for all."""
    upper, lower = _pairs(m[0], m[1]), _pairs(m[2], m[3])

    def minor(i: int, j: int) -> Any:
        row, pairs = m[i ^ 1], lower if i < 2 else upper
        a, b, c = _without(range(4), j)
        return row[a] * pairs[b, c] - row[b] * pairs[a, c] + row[c] * pairs[a, b]

    return minor


def _cofactors(m: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """The signed determinants of the minors: the partials of the determinant."""
    if len(m) == 1:
        return [[m[0][0] * 0 + 1]]
    minor = _minors_of_four(m) if len(m) == 4 else lambda i, j: _determinant(_minor(m, i, j))

    def cofactor(i: int, j: int) -> Any:
        value = minor(i, j)
        return value if (i + j) % 2 == 0 else -value

    return [[cofactor(i, j) for j in range(len(m))] for i in range(len(m))]


def _inverse(m: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """The adjugate over the determinant, of expressions or NumPy arrays."""
    cofactors = _cofactors(m)
    determinant = dotted(m[0], cofactors[0])
    determinant = determinant + (determinant - determinant)  # NaN, not 0, where it overflows
    return [[cofactors[j][i] / determinant for j in range(len(m))] for i in range(len(m))]


_MOST_EXPANDED = 6
"""The rows up to which a determinant is expanded: its cofactors are exact where it is 0."""


def _triangle(m: Any, left: Sequence[Sequence[Any]], right: Sequence[Sequence[Any]] = ()) -> tuple[Any, Any]:
    """An upper triangle that row operations make of a matrix, beside what they make of `right`, and a sign.

    Gaussian elimination with partial pivoting (Golub and Van Loan, Matrix Computations, 3.4): the sign is
    that of the exchanges of rows.
    """
    lines = [[*row, *more] for row, more in zip(left, right or [()] * len(left), strict=True)]
    zero, one = m.const(left[0][0], 0), m.const(left[0][0], 1)
    sign = one
    for k in range(len(lines)):
        for i in range(k + 1, len(lines)):
            stays = m.le(m.magnitude(lines[i][k]), m.magnitude(lines[k][k]))
            pairs = [*zip(lines[k], lines[i], strict=True)]
            lines[k] = [m.where(stays, upper, lower) for upper, lower in pairs]
            lines[i] = [m.where(stays, lower, upper) for upper, lower in pairs]
            sign = m.where(stays, sign, -sign)
        divisor = m.where(m.equal(lines[k][k], zero), one, lines[k][k])
        for i in range(k + 1, len(lines)):
            factor = lines[i][k] / divisor
            lines[i] = [x - factor * y for x, y in zip(lines[i], lines[k], strict=True)]
    return lines, sign


def _eliminated_determinant(m: Any, a: Sequence[Sequence[Any]]) -> Any:
    lines, product = _triangle(m, a)
    for k, line in enumerate(lines):
        product = product * line[k]
    return product


def _eliminated_inverse(m: Any, a: Sequence[Sequence[Any]]) -> list[list[Any]]:
    n = len(a)
    unit = [[m.const(a[0][0], int(i == j)) for j in range(n)] for i in range(n)]
    lines, _ = _triangle(m, a, unit)
    solved: list[list[Any]] = []
    for k in reversed(range(n)):
        line, rest = lines[k], lines[k][n:]
        for factor, known in zip(line[k + 1 : n], solved, strict=True):
            rest = [x - factor * y for x, y in zip(rest, known, strict=True)]
        solved.insert(0, [x / line[k] for x in rest])
    return solved


def _partials(determinant: Expr, m: Expr) -> Expr:
    """The partials of the determinant: the cofactors, by the inverse where there are many."""
    entries = rows(m)
    if len(entries) <= _MOST_EXPANDED:
        return matrix(_cofactors(entries))
    return determinant * transpose(inverse(m))


@composite(
    derivative=Rules(
        lambda y, x, dots: ddot(_partials(y, x[0]), dots[0]),
        lambda y, x, w: (w * _partials(y, x[0]),),
    ),
    exact=True,
    tags=("product",),
)
def determinant(m: Any, a: MatNN) -> Float:
    """The determinant; its derivative is the matrix of cofactors, NaN at 0 beyond 6 rows."""
    return _determinant(a) if len(a) <= _MOST_EXPANDED else _eliminated_determinant(m, a)


def masked(incoming: Expr, value: Expr) -> Expr:
    """The value, but 0 where the incoming derivative is 0 and the inverse of a singular matrix makes it NaN.

    Elsewhere it keeps its slope: a residual of 0 has a second derivative.
    """
    lost = and_(incoming.eq(zero_of(incoming)), value.apply("isnan"))
    return where(lost, zero_of(value), value)


def _inverse_vjp(y: Expr, operands: Any, w: Expr) -> tuple[Expr]:
    turned = transpose(y)
    return (masked(w, -(turned * w * turned)),)


@composite(
    derivative=Rules(lambda y, x, dots: masked(dots[0], -(y * dots[0] * y)), _inverse_vjp),
    exact=True,
    tags=("unbounded",),
)
def inverse(m: Any, a: MatNN) -> MatNN:
    """The inverse matrix; infinities and NaN where the determinant is 0, or of up to 4 rows overflows."""
    return _inverse(a) if len(a) <= 4 else _eliminated_inverse(m, a)
