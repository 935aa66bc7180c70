"""Rounding of NumPy data to a type: floats to bfloat16, and floats to integers.

NumPy has no brain floats of its own; `ml_dtypes` registers a dtype.  Its conversion of a float64 goes by way
of float32 and so rounds twice, and its dtype is of no kind that NumPy calls a float: both are mended here.
The package is optional: without it brain floats are an error that says so.  Must not know the types of
kernels.
"""

import math
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from kernelab.errors import MissingPackageError, missing

try:
    _brain: Any = import_module("ml_dtypes")
except ImportError:
    _brain = None

Numpy = np.ndarray[Any, Any]

BFLOAT16: np.dtype[Any] = np.dtype(_brain.bfloat16 if _brain else [("bfloat16", np.uint16)])
"""One sign, eight bits of exponent as in a float32, seven of fraction; a stand-in without `ml_dtypes`."""

_info: Any = _brain.finfo if _brain else np.finfo


def require(dtype: np.dtype[Any]) -> None:
    """Raise MissingPackageError for brain floats where `ml_dtypes` is not installed."""
    if _brain is None and dtype == BFLOAT16:
        raise MissingPackageError(missing("bfloat16", "ml_dtypes", "bfloat16"))


_EXACT = 2**40
"""Whole numbers below it are exact in a float64, with room to spare."""


def is_float_dtype(dtype: np.dtype[Any]) -> bool:
    """Whether NumPy data of this dtype are floats."""
    return dtype.kind == "f" or dtype == BFLOAT16


def epsilon(dtype: np.dtype[Any]) -> float:
    """The distance from 1 to the next float of a dtype."""
    require(dtype)
    return float(_info(dtype).eps)


def largest(dtype: np.dtype[Any]) -> float:
    """The largest finite float of a dtype."""
    require(dtype)
    return float(_info(dtype).max)


def overflows(number: float, dtype: np.dtype[Any]) -> bool:
    """Whether a finite number is too large for the floats of a dtype."""
    try:
        with np.errstate(over="ignore"):
            return math.isfinite(number) and not np.isfinite(rounded(np.float64(number), dtype))
    except OverflowError:  # an int that no float holds
        return True


def widened(values: Any) -> Any:
    """Brain floats as float32, which computes with them; other NumPy values as they are."""
    return np.asarray(values).astype(np.float32) if getattr(values, "dtype", None) == BFLOAT16 else values


def rounded(values: Any, dtype: np.dtype[Any]) -> Numpy:
    """The values as numbers of a dtype; as brain floats they are rounded once, to nearest even.

    Otherwise as NumPy does: an array by ``astype``, anything else by ``asarray``, which may raise.
    """
    if dtype != BFLOAT16:
        # A value of the language is an array with operators of its own, which NumPy is to compute without.
        is_array = isinstance(values, np.ndarray)
        return np.asarray(values).astype(dtype) if is_array else np.asarray(values, dtype)
    require(dtype)
    array = np.asarray(values)
    if array.dtype.kind == "O":
        array = array.astype(np.float64)
    with np.errstate(all="ignore"):
        if array.dtype.kind in "iu" and array.dtype.itemsize == 8:
            array = _odd_whole(array)
        if array.dtype.kind in "iuf" and array.dtype.itemsize > 2 and array.dtype != np.float32:
            array = _odd(array.astype(np.float64))
        return array.astype(np.float32).astype(dtype)


def fits(values: Numpy, dtype: np.dtype[Any]) -> Numpy:
    """Which of some numbers a dtype of integers has, once their fractions are cut off."""
    limits = np.iinfo(dtype)
    if values.dtype.kind != "f":
        return np.asarray((values >= limits.min) & (values <= limits.max))
    whole = np.trunc(values.astype(np.float64))  # the largest integers of 64 bits are none of float64
    return np.asarray((whole >= float(limits.min)) & (whole < float(limits.max) + 1.0))


def cut(values: Any, dtype: np.dtype[Any]) -> Numpy:
    """Floats as integers of a dtype, rounded towards 0: the nearest integer that there is, and 0 for NaN."""
    array, limits = np.asarray(widened(values)), np.iinfo(dtype)
    above = array >= 2.0 ** (limits.bits - (dtype.kind == "i"))
    inside = (array > float(limits.min)) & ~above
    least = np.where(array <= float(limits.min), limits.min, dtype.type(0))
    whole = np.where(inside, array, array.dtype.type(0)).astype(dtype)
    return np.where(inside, whole, np.where(above, limits.max, least).astype(dtype))


def converted(values: Any, dtype: np.dtype[Any]) -> Numpy:
    """Numbers of any type as those of a dtype: floats to integers by `cut`, all others by `rounded`."""
    array = np.asarray(values)
    is_cut = dtype.kind in "iu" and array.dtype.kind not in "iub"
    return cut(array, dtype) if is_cut else rounded(array, dtype)


def computed(function: Callable[..., Any], operands: Sequence[Any], dtype: np.dtype[Any]) -> Numpy:
    """A NumPy function of operands as numbers of a dtype; brain floats are computed in float32."""
    return rounded(np.asarray(function(*(widened(operand) for operand in operands))), dtype)


def alike(values: Any, others: Any, share: float) -> Numpy:
    """Where two arrays of one shape are the same, up to a share of the largest finite number of the first."""
    first, second = np.asarray(values, np.float64), np.asarray(others, np.float64)
    with np.errstate(all="ignore"):
        near = np.abs(first - second) <= share * np.abs(first).max(initial=0.0, where=np.isfinite(first))
    return np.asarray(near | (first == second) | (np.isnan(first) & np.isnan(second)))


def _odd(values: Numpy) -> Numpy:
    """As float32 towards zero, the last bit set if anything was lost: rounding once more is then exact."""
    nearest = values.astype(np.float32)
    lost = (nearest != values) & ~np.isnan(values)
    bits = nearest.view(np.uint32)
    cut = (bits - (np.abs(nearest.astype(np.float64)) > np.abs(values)).astype(np.uint32)) | np.uint32(1)
    odd: Numpy = np.where(lost, cut, bits).view(np.float32)
    return odd


def _odd_whole(values: Numpy) -> Numpy:
    """Whole numbers of 64 bits with their low bits folded into one, so that a float64 holds them exactly."""
    low = values & values.dtype.type(0xFFFF)
    folded = (values - low) | np.where(low != 0, 0x10000, 0).astype(values.dtype)
    small = (values < _EXACT) & (values > -_EXACT) if values.dtype.kind == "i" else values < _EXACT
    exact: Numpy = np.where(small, values, folded)
    return exact
