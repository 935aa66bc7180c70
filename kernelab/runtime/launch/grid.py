"""Grids: the number of threads of a launch along each dimension; must not know kernels."""

import functools
import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelab.errors import Diagnostic, LaunchError
from kernelab.runtime.array.array import array

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
    return _grid(dim if isinstance(dim, int | str) or not isinstance(dim, Iterable) else tuple(dim))


@functools.lru_cache(maxsize=4096, typed=True)
def _grid(dim: Any) -> Grid:
    extents = dim if isinstance(dim, tuple) else (dim,)
    are_ints = all(isinstance(n, int | np.integer) and not isinstance(n, bool) for n in extents)
    if not are_ints or not 1 <= len(extents) <= 4:
        hint = "pass an int, or a tuple of 1 to 4 ints"
        raise LaunchError(Diagnostic(f"a grid cannot have the dimensions {dim!r}", code="dim", hint=hint))
    extents = tuple(int(n) for n in extents)
    threads = math.prod(extents)
    if min(extents) < 0 or threads > MAX_THREADS:
        hint = f"every dimension is 0 or more, and there are at most {MAX_THREADS:,} threads"
        raise LaunchError(Diagnostic(f"a grid cannot have the dimensions {extents}", code="dim", hint=hint))
    return Grid(extents, threads, struct.pack("=4q", *extents, *(1,) * (4 - len(extents))))
