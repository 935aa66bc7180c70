"""Whether two arrays have bytes in common: slices, transposes, fields of structs, whatever their strides.

Knows extents and strides; must not know where arrays come from.
"""

import math
from collections.abc import Container, Mapping

import numpy as np

from kernelab.runtime.array.layout import Strided
from kernelab.runtime.memory.interop import itemsize

_WORK = 10_000
"""How long to look for a common byte of two views, in NumPy's units, before assuming that there is one."""


def share_bytes(one: Strided, other: Strided) -> bool:
    """Whether two arrays have bytes in common."""
    (low, high), (other_low, other_high) = one.extent, other.extent
    if high <= other_low or other_high <= low or low == high or other_low == other_high:
        return False
    if _interleave(one, other):
        return False
    try:
        return np.shares_memory(one.outline(), other.outline(), max_work=_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def groups_sharing(arrays: Mapping[int, Strided], changed: Container[int]) -> tuple[tuple[int, ...], ...]:
    """The positions of arrays that have bytes in common of which one array is changed, in disjoint groups."""
    groups: list[set[int]] = []
    for i, one in arrays.items():
        partners = {
            j
            for j, other in arrays.items()
            if i != j
            and (i in changed or j in changed)
            and one.allocation is other.allocation
            and share_bytes(one, other)
        }
        if partners:
            touching = [group for group in groups if group & partners]
            groups = [group for group in groups if not group & partners]
            groups.append({i}.union(partners, *touching))
    return tuple(tuple(sorted(group)) for group in groups)


def _interleave(one: Strided, other: Strided) -> bool:
    """Whether the two are apart in every period of their strides, as the fields of structs are."""
    axes = [*zip(one.shape, one.strides, strict=True), *zip(other.shape, other.strides, strict=True)]
    period = math.gcd(*(stride for extent, stride in axes if extent > 1))
    distance = (other.ptr - one.ptr) % period if period else 0
    return distance >= itemsize(one.dtype) and distance + itemsize(other.dtype) <= period
