"""Sorting pairs of keys and values, and counting runs: on the host, in place, without derivatives.

To a tape the arrays are overwritten by values that come from no array.
"""

from typing import Any

import numpy as np

from kernelab.errors import Diagnostic, KernelTypeError, KernelValueError
from kernelab.lang.types import Scalar, int32
from kernelab.runtime.conversion import described
from kernelab.runtime.strided import array, require_array

HostArray = np.ndarray[Any, Any]


def radix_sort_pairs(
    keys: array, values: array, count: int, begin_bit: int = 0, end_bit: int | None = None
) -> None:
    """Sort the first `count` keys in ascending order, stably, and their values along with them.

    Keys are ints or floats of 32 or 64 bits; with `begin_bit` and `end_bit` only these bits of them decide.
    Raises KernelTypeError for other keys, KernelValueError where there are fewer than `count`.
    """
    _require_row(keys, "the array of keys is")
    _require_row(values, "the array of values is")
    count = _counted(count, min(keys.size, values.size), "count")
    bits = _ordered_bits(keys)
    width = 8 * bits.itemsize
    end_bit = width if end_bit is None else end_bit
    if not 0 <= begin_bit <= end_bit <= width:
        message = f"bits {begin_bit} to {end_bit} are no range of the {width} bits of a key"
        raise KernelValueError(Diagnostic(message, code="range"))
    _permute(keys, values, _order(bits[:count], begin_bit, end_bit), slice(0, count))


def segmented_sort_pairs(
    keys: array,
    values: array,
    count: int,
    segment_start_indices: array,
    segment_end_indices: array | None = None,
) -> None:
    """Sort keys in ascending order, stably, and their values along with them, within each segment.

    A segment goes from its start to its end, which is the next start unless ends are given; all of them lie
    within the first `count` elements.  Raises KernelValueError for a segment that does not, KernelTypeError
    for keys that are not ints or floats of 32 or 64 bits.
    """
    _require_row(keys, "the array of keys is")
    _require_row(values, "the array of values is")
    count = _counted(count, min(keys.size, values.size), "count")
    bits = _ordered_bits(keys)
    starts, ends = _segments(segment_start_indices, segment_end_indices)
    for start, end in zip(starts, ends, strict=True):
        if not 0 <= start <= end <= count:
            message = f"the segment from {start} to {end} is none of the first {count} elements"
            raise KernelValueError(Diagnostic(message, code="range"))
    for start, end in zip(starts, ends, strict=True):
        if end - start > 1:
            part = slice(start, end)
            _permute(keys, values, _order(bits[part], 0, 8 * bits.itemsize), part)


def runlength_encode(
    values: array,
    run_values: array,
    run_lengths: array,
    run_count: array | None = None,
    value_count: int | None = None,
) -> Any:
    """Write each value that differs from the one before it, and how often it stands in a row.

    The number of such runs comes back, or goes into `run_count`, an array of one int32.  `value_count` takes
    the first values only.  Raises KernelTypeError for arrays of other types, KernelValueError where they are
    too short.
    """
    _require_row(values, "the array of values is")
    _require_row(run_values, "run_values is")
    _require_row(run_lengths, "run_lengths is")
    count = values.size if value_count is None else _counted(value_count, values.size, "value_count")
    if run_values.dtype != values.dtype or run_lengths.dtype != int32:
        message = (
            f"run_values and run_lengths of values of {values.dtype} are arrays of {values.dtype} and int32, "
            f"not of {run_values.dtype} and {run_lengths.dtype}"
        )
        raise KernelTypeError(Diagnostic(message, code="dtype"))
    if min(run_values.size, run_lengths.size) < count:
        message = f"run_values and run_lengths need room for {count} elements"
        raise KernelValueError(Diagnostic(message, code="size"))
    given = values.host()[:count].copy()
    changes = (given[1:] != given[:-1]).any(axis=tuple(range(1, given.ndim)))
    starts = np.flatnonzero(np.concatenate([np.ones(min(count, 1), np.bool_), changes]))
    runs = len(starts)
    if runs:
        run_values[:runs]._overwrite(given[starts], "runlength_encode")
        run_lengths[:runs]._overwrite(np.diff(np.append(starts, count)), "runlength_encode")
    if run_count is None:
        return runs
    require_array(run_count, "run_count is")
    if run_count.dtype != int32 or run_count.size != 1:
        message = f"run_count is an array of one int32, not of {run_count.size} {run_count.dtype}"
        raise KernelTypeError(Diagnostic(message, code="dtype"))
    return run_count.fill_(runs)


def _segments(starts: array, ends: array | None) -> tuple[list[int], list[int]]:
    _require_row(starts, "segment_start_indices is")
    first: list[int] = starts.list()
    if ends is None:
        return first[:-1], first[1:]
    _require_row(ends, "segment_end_indices is")
    if ends.size != starts.size:
        message = f"there are {starts.size} starts of segments and {ends.size} ends"
        raise KernelValueError(Diagnostic(message, code="size"))
    return first, ends.list()


def _order(bits: HostArray, begin: int, end: int) -> HostArray:
    kept = (bits >> bits.dtype.type(begin)) if begin < 8 * bits.itemsize else np.zeros_like(bits)
    if end - begin < 8 * bits.itemsize:
        kept = kept & bits.dtype.type((1 << (end - begin)) - 1)
    order: HostArray = np.argsort(kept, kind="stable")
    return order


def _ordered_bits(keys: array) -> HostArray:
    """The keys as unsigned ints that sort as the keys do."""
    dtype = keys.dtype
    if not isinstance(dtype, Scalar) or dtype.bits not in (32, 64) or dtype.kind == "bool":
        message = f"keys are ints or floats of 32 or 64 bits, not {dtype}"
        raise KernelTypeError(Diagnostic(message, code="dtype", hint="convert them: kl.utils.array_cast"))
    unsigned = np.dtype(f"u{dtype.bits // 8}")
    bits: HostArray = np.ascontiguousarray(keys.host()).view(unsigned)
    sign = unsigned.type(1 << (dtype.bits - 1))
    ordered: HostArray = bits.copy()
    if dtype.kind == "int":
        ordered = bits ^ sign
    elif dtype.kind == "float":
        ordered = np.where(bits & sign, ~bits, bits | sign)
    return ordered


def _permute(keys: array, values: array, order: HostArray, part: slice) -> None:
    for row in (keys[part], values[part]):
        if len(order):
            row._overwrite(row.host()[order], "sort")


def _require_row(given: Any, wants: str) -> None:
    require_array(given, wants)
    if given.ndim != 1:
        message = f"{wants} an array of 1 dimension, not of {given.ndim}"
        raise KernelTypeError(Diagnostic(message, code="ndim", hint="write x.flatten()"))


def _counted(count: Any, size: int, name: str) -> int:
    if isinstance(count, bool) or not hasattr(count, "__index__"):
        message = f"{name} is a whole number of elements, not {described(count)}"
        raise KernelTypeError(Diagnostic(message, code="count"))
    if not 0 <= count <= size:
        message = f"the arrays have {size} elements: {name} cannot be {count}"
        raise KernelValueError(Diagnostic(message, code="count"))
    return int(count)


__all__ = ["radix_sort_pairs", "runlength_encode", "segmented_sort_pairs"]
