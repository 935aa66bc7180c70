"""Grids: the number of threads of a launch along each dimension; must not know kernels."""

import functools
import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kernelab.errors import Diagnostic, LaunchError
from kernelab.runtime.array.array import array
from kernelab.runtime.array.viewing import is_integer

MAX_THREADS = 2**31 - 1
"""Thread indices are int32."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The number of threads of a launch along each dimension, with the packed slots."""

    extents: tuple[int, ...]
    threads: int
    packed: bytes


def grid_of(dim: int | Sequence[int]) -> Grid:
    """The grid that `dim` stands for; raises LaunchError where it is none."""
    if dim.__class__ is int:
        return _grid(dim)
    if isinstance(dim, array):
        message = f"a grid cannot have an array of shape {dim.shape} for its dimensions"
        raise LaunchError(Diagnostic(message, code="dim", hint="pass len(x), x.size or x.shape"))
    given: Any = dim
    try:
        extents = given if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)
        hash(extents)
    except (TypeError, ValueError):  # an array without axes, a tuple with a list in it
        raise _no_grid(dim) from None
    return _grid(extents)


@functools.lru_cache(maxsize=4096, typed=True)
def _grid(dim: Any) -> Grid:
    extents = dim if isinstance(dim, tuple) else (dim,)
    if not all(map(is_integer, extents)) or not 1 <= len(extents) <= 4:
        raise _no_grid(dim)
    extents = tuple(int(n) for n in extents)
    threads = math.prod(extents)
    if min(extents) < 0 or threads > MAX_THREADS:
        hint = f"every dimension is 0 or more, and there are at most {MAX_THREADS:,} threads"
        raise _no_grid(extents, hint)
    return Grid(extents, threads, struct.pack("=4q", *extents, *(1,) * (4 - len(extents))))


def _no_grid(dim: Any, hint: str = "pass an int, or a tuple of 1 to 4 ints") -> LaunchError:
    try:
        found = repr(dim)
    except ValueError:  # Python writes no int of thousands of digits
        found = "of an int of so many digits"
    return LaunchError(Diagnostic(f"a grid cannot have the dimensions {found}", code="dim", hint=hint))
