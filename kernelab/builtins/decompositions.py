"""Decompositions of matrices.

They give several matrices and vectors at once: ``u, sigma, v = svd3(a)``, or into variables that
exist: ``svd3(a, u, sigma, v)``.  Where the parts are not determined by the matrix, because two values are
equal up to rounding, they have no derivative: what a gradient would need of it is NaN, what it does not need
does no harm.  The closest rotation of a matrix, which stays smooth there, is a part of `polar`.  Jacobi's
method; the derivatives are those of Townsend, Differentiating the singular value decomposition (2016), and of
Giles, Collected matrix derivative results (2008).
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from kernelab.builtins.arithmetic import and_, chain, le, where
from kernelab.builtins.composite import composite
from kernelab.builtins.matrix import masked, skew_rows, transpose
from kernelab.builtins.scalar import abs_
from kernelab.builtins.table import (
    Mat22,
    Mat33,
    Vec2,
    Vec3,
    Vec8,
    Vec10,
    Vec12,
    Vec18,
    Vec21,
    added,
    matrix,
    parts,
    rows,
    vector,
)
from kernelab.builtins.vector import crossed, dotted, scaled
from kernelab.lang.build import Expr
from kernelab.lang.ops import Rules
from kernelab.lang.rounding import epsilon
from kernelab.lang.types import Mat, Vec, scalar_of

SWEEPS = 8
"""Rounds of rotations: the error is squared in each, and five reach the precision of float64."""

SEPARATE = 16.0
"""How many units in the last place of the greatest value two values must be apart to count as different."""

Rows = Sequence[Sequence[Any]]


# ------------------------------------------------------------------------- how they are computed


def _in_range(m: Any, a: Rows) -> tuple[list[list[Any]], Any]:
    """The matrix times a power of two with which squares are in range, and its inverse."""
    n = len(a)
    numbers, back = scaled(m, [x for row in a for x in row])
    return [numbers[k : k + n] for k in range(0, n * n, n)], back


def _narrowed(m: Any, a: Rows, *parts: Sequence[Any]) -> list[Any]:
    """Numbers of the type of a matrix: those of 16 bits are computed as float32."""
    return [m.to(x, m.type_of(a[0][0])) for part in parts for x in part]


def _times(numbers: Sequence[Any], factor: Any) -> list[Any]:
    return [x * factor for x in numbers]


def _rotation(m: Any, low: Any, high: Any, between: Any) -> tuple[Any, Any]:
    """Cosine and sine of the rotation that makes the entry `between` two diagonal entries 0 (Rutishauser)."""
    one = 1.0 + 0.0 * between
    there = m.equal(between, 0.0)
    slope = (high - low) * 0.5 / m.where(there, one, between)
    size = m.magnitude(slope)
    tangent = m.where(slope < 0.0, -one, one) / (size + m.sqrt(slope * slope + 1.0))
    tangent = m.where(there, 0.0 * one, tangent)
    cosine = one / m.sqrt(tangent * tangent + 1.0)
    return cosine, cosine * tangent


def _turned(cosine: Any, sine: Any, a: Sequence[Any], b: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    first = [cosine * x - sine * y for x, y in zip(a, b, strict=True)]
    second = [sine * x + cosine * y for x, y in zip(a, b, strict=True)]
    return first, second


def _columns(m: Rows) -> list[list[Any]]:
    return [list(column) for column in zip(*m, strict=True)]


def _unit_columns(sample: Any, n: int) -> list[list[Any]]:
    one, none = 1.0 + 0.0 * sample, 0.0 * sample
    return [[one if i == j else none for i in range(n)] for j in range(n)]


def _orthogonal(m: Any, a: Rows) -> tuple[list[list[Any]], list[list[Any]]]:
    """The columns of ``a v`` and of a rotation ``v`` that makes them orthogonal, longest first (Hestenes)."""
    n = len(a)

    def sweep(values: Sequence[Any]) -> list[Any]:
        columns = [list(values[k : k + n]) for k in range(0, len(values), n)]
        moved, basis = columns[:n], columns[n:]
        for p, q in combinations(range(n), 2):
            low, high = dotted(moved[p], moved[p]), dotted(moved[q], moved[q])
            cosine, sine = _rotation(m, low, high, dotted(moved[p], moved[q]))
            moved[p], moved[q] = _turned(cosine, sine, moved[p], moved[q])
            basis[p], basis[q] = _turned(cosine, sine, basis[p], basis[q])
        return [x for column in (*moved, *basis) for x in column]

    start = [x for column in (*_columns(a), *_unit_columns(a[0][0], n)) for x in column]
    rotated = m.repeated(SWEEPS, sweep, start)
    columns = [list(rotated[k : k + n]) for k in range(0, len(rotated), n)]
    return _sorted(m, columns[:n], columns[n:])


def _sorted(
    m: Any, moved: list[list[Any]], basis: list[list[Any]]
) -> tuple[list[list[Any]], list[list[Any]]]:
    """The longest first; two columns that change places are a rotation: one of them changes its sign."""
    last = len(moved) - 1
    for p, q in [(k, k + 1) for end in range(last, 0, -1) for k in range(end)]:
        wrong = dotted(moved[p], moved[p]) < dotted(moved[q], moved[q])
        for columns in (moved, basis):
            columns[p], columns[q] = (
                [m.where(wrong, y, x) for x, y in zip(columns[p], columns[q], strict=True)],
                [m.where(wrong, -x, y) for x, y in zip(columns[p], columns[q], strict=True)],
            )
    return moved, basis


def _unit(m: Any, v: Sequence[Any], instead: Sequence[Any]) -> list[Any]:
    """`v` with length 1, or another vector where it is 0."""
    size = m.norm(v)
    one = 1.0 + 0.0 * size
    safe = m.where(size > 0.0, size, one)
    return [m.where(size > 0.0, x / safe, y) for x, y in zip(v, instead, strict=True)]


def _perpendicular(m: Any, v: Sequence[Any]) -> list[Any]:
    """A unit vector at a right angle to a unit vector in space."""
    x, y, z = v
    none = 0.0 * x
    flat = m.magnitude(x) > m.magnitude(z)
    across = [m.where(flat, -y, none), m.where(flat, x, -z), m.where(flat, none, y)]
    aside = [none, 0.0 * x + 1.0, none]
    return _unit(m, across, [m.where(flat, a, b) for a, b in zip(aside, _axis(none), strict=True)])


def _axis(none: Any) -> list[Any]:
    return [none + 1.0, none, none]


def _svd3(m: Any, a: Rows, back: Any) -> list[Any]:
    (first, second, third), basis = _orthogonal(m, a)
    left = _unit(m, first, _axis(0.0 * first[0]))
    middle = _unit(m, second, _perpendicular(m, left))
    right = crossed(left, middle)
    sigma = [m.norm(first), m.norm(second), dotted(right, third)]
    return [*_by_rows([left, middle, right]), *_times(sigma, back), *_by_rows(basis)]


def _by_rows(columns: Rows) -> list[Any]:
    return [x for row in zip(*columns, strict=True) for x in row]


def _with_stretch(rotation: Rows, a: Rows, back: Any) -> list[Any]:
    """A rotation, and the symmetric part of what it leaves of a matrix, times a factor."""
    stretch = [[dotted(x, y) for y in _columns(a)] for x in _columns(rotation)]
    n = len(a)
    symmetric = [[(stretch[i][j] + stretch[j][i]) * 0.5 for j in range(n)] for i in range(n)]
    return [x for row in (*rotation, *(_times(row, back) for row in symmetric)) for x in row]


# ------------------------------------------------------------------------- their derivatives


def _split(whole: Expr, *types: Vec | Mat) -> list[Expr]:
    """The results of a decomposition, of the vector that holds them all."""
    return [Expr(whole.builder, atom) for atom in whole.builder.split(whole.atom, types)]


def _joined(*results: Expr) -> Expr:
    return vector([x for result in results for x in parts(result)])


def _greatest(values: Sequence[Expr]) -> Expr:
    """The greatest absolute value."""
    greatest: Expr = abs_(values[0])
    for value in values[1:]:
        size = abs_(value)
        greatest = where(size > greatest, size, greatest)
    return greatest


def _tolerance(values: Sequence[Expr]) -> Expr:
    """The least difference at which two values count as different."""
    greatest = _greatest(values)
    return greatest * (SEPARATE * epsilon(scalar_of(greatest.type).dtype))


def _over(change: Expr, gap: Expr, bound: Expr) -> Expr:
    """A change divided by the distance of two values: 0 if it is 0 itself, NaN where they are equal."""
    nothing = gap.const(0)
    inverted: Expr = 1.0 / where(le(abs_(gap), bound), nothing, gap)
    return chain(change, where(le(abs_(gap), bound), nothing * inverted, inverted))


def _skewed(n: int, entries: dict[tuple[int, int], Expr], nothing: Expr) -> Expr:
    """The antisymmetric matrix with these entries above the diagonal."""

    def entry(i: int, j: int) -> Expr:
        if i == j:
            return nothing
        return entries[i, j] if i < j else -entries[j, i]

    return matrix([[entry(i, j) for j in range(n)] for i in range(n)])


def _eig3_jvp(y: Expr, operands: Any, dots: Any) -> Expr:
    mat = operands[0].type
    q, d = _split(y, mat, Vec(mat.scalar, 3))
    p = rows(transpose(q) * (dots[0] + transpose(dots[0])) * q * 0.5)
    values = parts(d)
    bound = _tolerance(values)
    turns = {(i, j): _over(p[i][j], values[j] - values[i], bound) for i, j in combinations(range(3), 2)}
    return _joined(q * _skewed(3, turns, values[0].const(0)), vector([p[k][k] for k in range(3)]))


def _eig3_vjp(y: Expr, operands: Any, w: Expr) -> tuple[Expr]:
    mat = operands[0].type
    kinds = mat, Vec(mat.scalar, 3)
    (q, d), (q_bar, d_bar) = _split(y, *kinds), _split(w, *kinds)
    x, values, weights = rows(transpose(q) * q_bar), parts(d), parts(d_bar)
    bound = _tolerance(values)
    p = [[weights[i] if i == j else weights[i].const(0) for j in range(3)] for i in range(3)]
    for i, j in combinations(range(3), 2):
        # A loss that looks at these two vectors of equal values has no derivative here.
        needed = abs_(x[i][j]) + abs_(x[j][i])
        gap = values[j] - values[i]
        share = _over(x[i][j] - x[j][i], gap, bound) + _only_nan(needed, gap, bound)
        p[i][j] = p[j][i] = share * 0.5
    return (q * matrix(p) * transpose(q),)


def _only_nan(needed: Expr, gap: Expr, bound: Expr) -> Expr:
    """NaN where something is needed of two equal values, else 0."""
    nothing = gap.const(0)
    undefined = and_(le(abs_(gap), bound), needed > 0.0)
    return nothing / where(undefined, nothing, gap.const(1))


def _svd_jvp(y: Expr, operands: Any, dots: Any) -> Expr:
    mat, n = operands[0].type, operands[0].type.n
    u, sigma, v = _split(y, mat, Vec(mat.scalar, n), mat)
    p = rows(transpose(u) * dots[0] * v)
    values = parts(sigma)
    bound, nothing = _tolerance(values), values[0].const(0)
    left, right = {}, {}
    for i, j in combinations(range(n), 2):
        together = _over(p[i][j] + p[j][i], values[j] - values[i], bound)
        apart = _over(p[i][j] - p[j][i], values[j] + values[i], bound)
        left[i, j], right[i, j] = (together + apart) * 0.5, (together - apart) * 0.5
    moved = vector([p[k][k] for k in range(n)])
    return _joined(u * _skewed(n, left, nothing), moved, v * _skewed(n, right, nothing))


# The rotation of a polar decomposition turns at a rate that the part of a change across the stretch decides:
# of A = R S, with M = transpose(R) dA, it is dR = R [w], where [w] S + S [w] = M - transpose(M).  In space
# that is (tr(S) I - S) w = the axis of M - transpose(M), in the plane tr(S) w.


def _axis_of(m: Expr) -> list[Expr]:
    """The axis of the antisymmetric matrix ``m - transpose(m)``, one number in the plane."""
    e = rows(m)
    if len(e) == 2:
        return [e[1][0] - e[0][1]]
    return [e[2][1] - e[1][2], e[0][2] - e[2][0], e[1][0] - e[0][1]]


def _spin(axis: Sequence[Expr]) -> Expr:
    """The antisymmetric matrix of an axis."""
    nothing = axis[0].const(0)
    if len(axis) == 1:
        return matrix([[nothing, -axis[0]], [axis[0], nothing]])
    return matrix(skew_rows(axis, nothing))


def _rate(stretch: Expr, axis: Sequence[Expr], derivative: Expr) -> list[Expr]:
    """The rate of turning; NaN where several rotations are equally close, unless the `derivative` is 0."""
    size = _greatest(parts(stretch))
    size = where(size > 0.0, size, size.const(1))
    s, along = rows(stretch / size), [x / size for x in axis]
    total, needed = added([s[k][k] for k in range(len(s))]), added([abs_(x) for x in parts(derivative)])
    bound = _tolerance(parts(stretch / size))
    if len(s) == 2:
        return [_over(along[0], total, bound) + _only_nan(needed, total, bound)]
    sums = [[total - s[i][i] if i == j else -s[i][j] for j in range(3)] for i in range(3)]
    cofactors = [crossed(sums[1], sums[2]), crossed(sums[2], sums[0]), crossed(sums[0], sums[1])]
    product = dotted(sums[0], cofactors[0])
    undefined = _only_nan(needed, product, bound)
    return [_over(dotted(row, along), product, bound) + undefined for row in cofactors]


def _polar_jvp(y: Expr, operands: Any, dots: Any) -> Expr:
    mat = operands[0].type
    rotation, stretch = _split(y, mat, mat)
    change = transpose(rotation) * dots[0]
    spin = _spin(_rate(stretch, _axis_of(change), dots[0]))
    return _joined(rotation * spin, change - spin * stretch)


def _polar_vjp(y: Expr, operands: Any, w: Expr) -> tuple[Expr]:
    mat = operands[0].type
    (rotation, stretch), (rotation_bar, stretch_bar) = _split(y, mat, mat), _split(w, mat, mat)
    across = _axis_of(transpose(rotation) * rotation_bar - stretch_bar * stretch)
    return (rotation * (stretch_bar + _spin(_rate(stretch, across, w))),)


def _svd_vjp(y: Expr, operands: Any, w: Expr) -> tuple[Expr]:
    mat, n = operands[0].type, operands[0].type.n
    vec = Vec(mat.scalar, n)
    (u, sigma, v), (u_bar, sigma_bar, v_bar) = _split(y, mat, vec, mat), _split(w, mat, vec, mat)
    left, right = rows(transpose(u) * u_bar), rows(transpose(v) * v_bar)
    values, weights = parts(sigma), parts(sigma_bar)
    bound = _tolerance(values)
    p = [[weights[i] if i == j else weights[i].const(0) for j in range(n)] for i in range(n)]
    for i, j in combinations(range(n), 2):
        x, z = left[i][j] - left[j][i], right[i][j] - right[j][i]
        gap, total = values[j] - values[i], values[j] + values[i]
        # Cotangents of u transpose(v) and of u diag(f(sigma)) transpose(v) look the same at equal values,
        # where their derivatives differ: whatever a loss needs of these vectors is NaN.
        needed = abs_(left[i][j]) + abs_(left[j][i]) + abs_(right[i][j]) + abs_(right[j][i])
        together = _over(x + z, gap, bound) + _only_nan(needed, gap, bound)
        apart = _over(x - z, total, bound) + _only_nan(needed, total, bound)
        p[i][j], p[j][i] = (together + apart) * 0.5, (together - apart) * 0.5
    return (u * matrix(p) * transpose(v),)


def _inverse_triangle(r: Expr) -> Expr:
    """The inverse of an upper triangle, without products that overflow where its entries are large."""
    (a, b, c), (none, d, e), (_, _, f) = rows(r)
    first, second, third = 1.0 / a, 1.0 / d, 1.0 / f
    beside, below = -(b * first) * second, -(e * second) * third
    corner = -(b * below + c * third) * first
    return matrix([[first, beside, corner], [none, second, below], [none, none, third]])


def _qr3_jvp(y: Expr, operands: Any, dots: Any) -> Expr:
    q, r = _split(y, *[operands[0].type] * 2)
    change = masked(dots[0], transpose(q) * dots[0] * _inverse_triangle(r))
    entries = rows(change)
    turns = {(j, i): -entries[i][j] for i in range(3) for j in range(i)}
    turn = _skewed(3, turns, entries[0][0].const(0))
    return _joined(q * turn, (change - turn) * r)


def _qr3_vjp(y: Expr, operands: Any, w: Expr) -> tuple[Expr]:
    mat = operands[0].type
    (q, r), (q_bar, r_bar) = _split(y, mat, mat), _split(w, mat, mat)
    x, z = rows(transpose(q) * q_bar), rows(r_bar * transpose(r))

    def entry(i: int, j: int) -> Expr:
        return z[i][j] if i <= j else x[i][j] - x[j][i] + z[j][i]

    moved = matrix([[entry(i, j) for j in range(3)] for i in range(3)])
    return (masked(w, q * moved * transpose(_inverse_triangle(r))),)


# ------------------------------------------------------------------------- the records


SVD, POLAR = Rules(_svd_jvp, _svd_vjp), Rules(_polar_jvp, _polar_vjp)


@composite(derivative=Rules(_eig3_jvp, _eig3_vjp), parts=(Mat33, Vec3), exact=True)
def eig3(m: Any, A: Mat33) -> Vec12:
    """Eigenvectors and eigenvalues: ``q, d = eig3(A)`` with ``A = q * diag(d) * transpose(q)``.

    ``A`` is symmetric; of any other matrix the symmetric part is taken.  The columns of ``q`` are a
    right-handed basis; the values are in no order.  The derivative of two vectors whose values are equal up
    to rounding is NaN where it is needed; the values themselves, and sums of functions of them, have theirs.
    """
    a, back = _in_range(m, A)
    symmetric = [[(a[i][j] + a[j][i]) * 0.5 for j in range(3)] for i in range(3)]

    def sweep(values: Sequence[Any]) -> list[Any]:
        entries = [list(values[k : k + 3]) for k in range(0, 9, 3)]
        basis = [list(values[k : k + 3]) for k in range(9, 18, 3)]
        for p, q in combinations(range(3), 2):
            cosine, sine = _rotation(m, entries[p][p], entries[q][q], entries[p][q])
            entries[p], entries[q] = _turned(cosine, sine, entries[p], entries[q])
            columns = _columns(entries)
            columns[p], columns[q] = _turned(cosine, sine, columns[p], columns[q])
            entries = _columns(columns)
            basis[p], basis[q] = _turned(cosine, sine, basis[p], basis[q])
        return [x for line in (*entries, *basis) for x in line]

    start = [x for line in (*symmetric, *_unit_columns(a[0][0], 3)) for x in line]
    numbers = m.repeated(SWEEPS, sweep, start)
    basis = _by_rows([numbers[9:12], numbers[12:15], numbers[15:18]])
    return _narrowed(m, A, basis, _times(numbers[0:9:4], back))


@composite(derivative=SVD, parts=(Mat22, Vec2, Mat22), exact=True)
def svd2(m: Any, A: Mat22) -> Vec10:
    """Singular values: ``u, sigma, v = svd2(A)`` with ``A = u * diag(sigma) * transpose(v)``.

    The columns of ``u`` and ``v`` are orthonormal; the values are not negative, the greater first.  Where
    they are equal up to rounding, a gradient may need ``sigma``; what it needs of ``u`` and ``v`` is NaN, and
    so are their tangents.  The closest rotation has its derivative there, too: `polar`.
    """
    a, back = _in_range(m, A)
    (first, second), (v, w) = _orthogonal(m, a)
    none = 0.0 * first[0]
    left = _unit(m, first, [none + 1.0, none])
    right = _unit(m, second, [-left[1], left[0]])
    sigma = _times([m.norm(first), m.norm(second)], back)
    return _narrowed(m, A, _by_rows([left, right]), sigma, _by_rows([v, w]))


@composite(derivative=SVD, parts=(Mat33, Vec3, Mat33), exact=True)
def svd3(m: Any, A: Mat33) -> Vec21:
    """Singular values: ``u, sigma, v = svd3(A)`` with ``A = u * diag(sigma) * transpose(v)``.

    ``u`` and ``v`` are rotations; the values are ordered by size, the last has the sign of the determinant.
    Where two are equal up to rounding, or opposite, a gradient may need ``sigma``; what it needs of their
    columns in ``u`` and ``v`` is NaN, and so are the tangents of these.  The closest rotation,
    ``u * transpose(v)``, has its derivative there, too: `polar`.
    """
    return _narrowed(m, A, _svd3(m, *_in_range(m, A)))


@composite(derivative=POLAR, parts=(Mat22, Mat22), exact=True, name="polar")
def polar2(m: Any, A: Mat22) -> Vec8:
    """``r, s = polar(A)`` with ``A = r * s``, the closest rotation times a symmetric matrix.

    The eigenvalues of ``s`` are the singular values of ``A``.  Of a matrix with a negative determinant ``r``
    is still a rotation, never a reflection, and the smallest eigenvalue of ``s`` is negative.  The derivative
    is exact also where singular values are equal, as those of a rotation are.  Where eigenvalues of ``s``
    cancel (the zero matrix, a reflection), several rotations are equally close: ``r`` is one of them, and
    what a derivative needs of it is NaN.
    """
    a, back = _in_range(m, A)
    (p, q), (r, s) = a
    turn = [p + s, r - q]
    turns, one = m.norm(turn) > 0.0, 1.0 + 0.0 * p
    cosine, sine = m.unit([m.where(turns, turn[0], one), turn[1]])
    return _narrowed(m, A, _with_stretch([[cosine, -sine], [sine, cosine]], a, back))


@composite(derivative=POLAR, parts=(Mat33, Mat33), exact=True, name="polar")
def polar3(m: Any, A: Mat33) -> Vec18:
    """The same in space.

    Where the two smallest eigenvalues of ``s`` cancel (a matrix of rank one, a mirrored one whose two
    smallest singular values are equal), several rotations are equally close.
    """
    a, back = _in_range(m, A)
    numbers = _svd3(m, a, back)
    u, v = ([numbers[k : k + 3] for k in range(start, start + 9, 3)] for start in (0, 12))
    return _narrowed(m, A, _with_stretch([[dotted(x, y) for y in v] for x in u], a, back))


@composite(derivative=Rules(_qr3_jvp, _qr3_vjp), parts=(Mat33, Mat33), exact=True)
def qr3(m: Any, A: Mat33) -> Vec18:
    """``q, r = qr3(A)`` with ``A = q * r``, ``q`` a rotation and ``r`` an upper triangle.

    The first two entries on the diagonal of ``r`` are not negative, the last has the sign of the determinant.
    Of a singular matrix ``q`` is one of several; there is no derivative.
    """
    a, back = _in_range(m, A)
    first, second, third = _columns(a)
    left = _unit(m, first, _axis(0.0 * first[0]))
    middle, instead = second, _perpendicular(m, left)
    # Once is not enough where the columns are nearly parallel, nor twice where the rest is rounding alone.
    for _ in range(3):
        along = dotted(left, middle)
        middle = _unit(m, [y - along * x for x, y in zip(left, middle, strict=True)], instead)
    right = crossed(left, middle)
    none = 0.0 * first[0]
    r = [
        [dotted(left, first), dotted(left, second), dotted(left, third)],
        [none, dotted(middle, second), dotted(middle, third)],
        [none, none, dotted(right, third)],
    ]
    return _narrowed(m, A, _by_rows([left, middle, right]), *(_times(row, back) for row in r))
