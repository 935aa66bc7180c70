"""Helpers of expansions that split vectors and matrices into components and join them again.

Knows `Expr` and the shapes of values; must not know any operation but `extract` and the constructors.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from kernelab.lang.build import Expr
from kernelab.lang.types import Mat, Scalar, Vec, scalar_of, size_of, with_scalar

Numpy = np.ndarray[Any, Any]


def parts(x: Expr) -> list[Expr]:
    """The scalars of a value, by rows."""
    return [Expr(x.builder, component) for component in x.builder.components(x.atom)]


def rows(m: Expr) -> list[list[Expr]]:
    """The entries of a matrix, a list a row."""
    assert isinstance(m.type, Mat)
    return [[m.at(i, j) for j in range(m.type.m)] for i in range(m.type.n)]


def vector(components: Sequence[Expr]) -> Expr:
    """The vector of these components."""
    first = components[0]
    return first.make(Vec(scalar_of(first.type), len(components)), *components)


def matrix(entries: Sequence[Sequence[Expr]]) -> Expr:
    """The matrix of these rows."""
    first = entries[0][0]
    flat = [entry for row in entries for entry in row]
    return first.make(Mat(scalar_of(first.type), len(entries), len(entries[0])), *flat)


def each(operation: Callable[..., Expr], *operands: Expr) -> Expr:
    """An operation on every component of vectors or matrices of one shape; a scalar goes with each."""
    shaped = next((x for x in operands if not isinstance(x.type, Scalar)), None)
    if shaped is None:
        return operation(*operands)
    size = size_of(shaped.type)
    columns = [[x] * size if isinstance(x.type, Scalar) else parts(x) for x in operands]
    results = [operation(*components) for components in zip(*columns, strict=True)]
    return results[0].make(with_scalar(shaped.type, scalar_of(results[0].type)), *results)


def zero_of(x: Expr) -> Expr:
    """The zero of the type of `x`."""
    return x.const(0)


def or_zero(tangent: Expr | None, x: Expr) -> Expr:
    """A tangent of `x`, where None stands for zero."""
    return zero_of(x) if tangent is None else tangent


def added(terms: Sequence[Any]) -> Any:
    """The sum of expressions or NumPy arrays, from the first to the last."""
    return reduce(add, terms)


def stacked(components: Sequence[Any], axis: int = -1) -> Numpy:
    """Arrays of one component each, joined along a new trailing axis."""
    return np.stack(np.broadcast_arrays(*components), axis)


def stacked_rows(entries: Sequence[Sequence[Any]]) -> Numpy:
    """Arrays of one matrix entry each, joined along two new trailing axes."""
    shape = (len(entries), len(entries[0]))
    flat = stacked([entry for row in entries for entry in row])
    return flat.reshape(*flat.shape[:-1], *shape)


def entries_of(m: Numpy) -> list[list[Numpy]]:
    """A NumPy array of matrices as one array for each entry."""
    return [[m[..., i, j] for j in range(m.shape[-1])] for i in range(m.shape[-2])]
