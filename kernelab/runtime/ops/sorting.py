"""Sorts and run-length counts of arrays.

The host computes indices, and the elements are gathered by these, as by ``x[indices]``: gradients follow the
elements, and each lane of `vmap` is sorted by itself.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from kernelab.errors import KernelTypeError, KernelValueError
from kernelab.lang.types import Scalar, int32, scalar_of
from kernelab.runtime.array.array import array, require_array
from kernelab.runtime.array.origins import note_copied
from kernelab.runtime.array.transfers import readable, tabulate
from kernelab.runtime.context.conversion import HostArray, described, is_whole
from kernelab.runtime.context.recorder import RECORDER
from kernelab.runtime.host.create import unfilled
from kernelab.runtime.host.structarray import leaves_of
from kernelab.runtime.ops.indexed import indexedarray
from kernelab.settings import settings


def radix_sort_pairs(
    keys: array, values: array, count: int, begin_bit: int = 0, end_bit: int | None = None
) -> None:
    """Sort the first `count` keys in ascending order, stably, and their values along with them.

    Keys are ints or floats of 32 or 64 bits; with `begin_bit` and `end_bit` only these bits of them decide.
    The derivative is that of the permutation: each gradient goes to where its element came from.  Raises
    KernelTypeError for other keys, KernelValueError where there are fewer than `count`.
    """
    count, width = _sortable(keys, values, count)
    end_bit = width if end_bit is None else end_bit
    if not 0 <= begin_bit <= end_bit <= width:
        message = f"bits {begin_bit} to {end_bit} are not a range of the {width} bits of a key"
        raise KernelValueError.of(message, "range")
    _permute(keys, values, slice(0, count), partial(_order, begin=begin_bit, end=end_bit))


def segmented_sort_pairs(
    keys: array,
    values: array,
    count: int,
    segment_start_indices: array,
    segment_end_indices: array | None = None,
) -> None:
    """Sort keys in ascending order, stably, and their values along with them, within each segment.

    A segment goes from its start to its end, which is the next start unless ends are given; all of them lie
    within the first `count` elements.  The derivative is that of the permutation.  Raises KernelValueError
    for a segment that does not, KernelTypeError for keys that are not ints or floats of 32 or 64 bits.
    """
    count, width = _sortable(keys, values, count)
    starts, ends = _segments(segment_start_indices, segment_end_indices)
    for start, end in zip(starts, ends, strict=True):
        if not 0 <= start <= end <= count:
            message = f"the segment from {start} to {end} is none of the first {count} elements"
            raise KernelValueError.of(message, "range")
    segments = [slice(start, end) for start, end in zip(starts, ends, strict=True)]
    _permute(keys, values, slice(0, count), partial(_order_within, segments=segments, width=width))


def runlength_encode(
    values: array,
    run_values: array,
    run_lengths: array,
    run_count: array | None = None,
    value_count: int | None = None,
) -> Any:
    """Write each value that differs from the one before it, and how often it stands in a row.

    The number of such runs comes back, or goes into `run_count`, an array of one int32.  `value_count` takes
    the first values only.  The derivative of a run's value is that of its first element.  Raises
    KernelTypeError for arrays of other types, KernelValueError where they are too short, GradientError where
    the values differ between the lanes of `vmap`, which may have different numbers of runs.
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
        raise KernelTypeError.of(message, "dtype")
    if min(run_values.size, run_lengths.size) < count:
        raise KernelValueError.of(f"run_values and run_lengths need room for {count} elements", "size")
    prefix = readable(values)[:count]
    changes = np.ones(count, np.bool_)
    changes[1:] = (prefix[1:] != prefix[:-1]).any(axis=tuple(range(1, prefix.ndim)))
    starts = np.flatnonzero(changes).astype(np.int32)
    runs = len(starts)
    if runs:
        lengths = np.diff(starts, append=np.int32(count))
        run_values[:runs].assign(prefix[starts] if _is_unwatched() else _picked(values, starts))
        run_lengths[:runs]._overwrite(lengths, "runlength_encode")
    if run_count is None:
        return runs
    require_array(run_count, "run_count is")
    if run_count.dtype != int32 or run_count.size != 1:
        message = f"run_count is an array of one int32, not of {run_count.size} {run_count.dtype}"
        raise KernelTypeError.of(message, "dtype")
    return run_count.fill_(runs)


def _segments(starts: array, ends: array | None) -> tuple[list[int], list[int]]:
    _require_places(starts, "segment_start_indices")
    first: list[int] = starts.list()
    if ends is None:
        return first[:-1], first[1:]
    _require_places(ends, "segment_end_indices")
    if ends.size != starts.size:
        raise KernelValueError.of(f"there are {starts.size} starts of segments and {ends.size} ends", "size")
    return first, ends.list()


def _require_places(value: Any, name: str) -> None:
    _require_row(value, f"{name} is")
    if not isinstance(value.dtype, Scalar) or not value.dtype.is_int:
        raise KernelTypeError.of(f"{name} is an array of ints, not of {value.dtype}", "dtype")


def _permute(keys: array, values: array, part: slice, order: Callable[[HostArray], HostArray]) -> None:
    """Put the elements of a part in the order that a function of the keys gives."""
    keys = keys[part]
    if not keys.size:
        return
    rows = (keys, *leaves_of(values[part]))
    if _is_unwatched():
        found = order(_ordered_bits(readable(keys)))
        for row, sorted_row in [(row, np.take(readable(row), found, 0)) for row in rows]:
            row.assign(sorted_row)
            note_copied("sort", row, row)
        return
    places = unfilled(keys.shape, int32, keys.device, requires_grad=False)
    dtype = scalar_of(keys.dtype).dtype  # a check may hold keys in float64
    tabulate(places, [keys], lambda values: order(_ordered_bits(values.astype(dtype))))
    for row, picked in [(row, indexedarray(row, places).contiguous()) for row in rows]:
        row.assign(picked)


def _is_unwatched() -> bool:
    """Whether nobody follows elements, so that NumPy may move them."""
    return RECORDER.get() is None and settings().check is None


def _picked(values: array, places: HostArray) -> array:
    return indexedarray(values, array(places, int32, device=values.device)).contiguous()


def _order(bits: HostArray, begin: int, end: int) -> HostArray:
    kept = (bits >> bits.dtype.type(begin)) if begin < 8 * bits.itemsize else np.zeros_like(bits)
    if end - begin < 8 * bits.itemsize:
        kept = kept & bits.dtype.type((1 << (end - begin)) - 1)
    if kept.itemsize == 4:
        return _order_of_words(kept)
    lower = _order_of_words(kept.astype(np.uint32))
    return lower[_order_of_words((kept[lower] >> np.uint64(32)).astype(np.uint32))]


def _order_of_words(words: HostArray) -> HostArray:
    """The places of words of 32 bits in ascending order, equal ones as they come.

    One sort of words of 64 bits, each with its place in the lower half, takes a tenth of NumPy's stable sort.
    """
    pairs = words.astype(np.uint64) << np.uint64(32)
    pairs |= np.arange(len(words), dtype=np.uint64)
    pairs.sort()
    pairs &= np.uint64(0xFFFFFFFF)
    return pairs.view(np.int64)


def _order_within(bits: HostArray, segments: Sequence[slice], width: int) -> HostArray:
    places = np.arange(len(bits))
    for part in segments:
        places[part] = places[part][_order(bits[places[part]], 0, width)]
    return places


def _sortable(keys: array, values: array, count: int) -> tuple[int, int]:
    """How many pairs are to be sorted, and the number of bits of a key."""
    _require_row(keys, "the array of keys is")
    _require_row(values, "the array of values is")
    count, dtype = _counted(count, min(keys.size, values.size), "count"), keys.dtype
    if not isinstance(dtype, Scalar) or dtype.bits not in (32, 64) or dtype.kind == "bool":
        message = f"keys are ints or floats of 32 or 64 bits, not {dtype}"
        raise KernelTypeError.of(message, "dtype", "convert them: kl.utils.array_cast")
    return count, dtype.bits


def _ordered_bits(keys: HostArray) -> HostArray:
    """The keys as unsigned ints that sort as the keys do."""
    unsigned = np.dtype(f"u{keys.itemsize}")
    bits: HostArray = keys.view(unsigned)
    sign = unsigned.type(1 << (8 * keys.itemsize - 1))
    if keys.dtype.kind == "i":
        bits = bits ^ sign
    elif keys.dtype.kind == "f":
        bits = np.where(bits & sign, ~bits, bits | sign)
    return bits


def _require_row(value: Any, wants: str) -> None:
    require_array(value, wants)
    if value.ndim != 1:
        message = f"{wants} an array of 1 dimension, not of {value.ndim}"
        raise KernelTypeError.of(message, "ndim", "write x.flatten()")


def _counted(count: Any, size: int, name: str) -> int:
    if not is_whole(count):
        raise KernelTypeError.of(f"{name} is a whole number of elements, not {described(count)}", "count")
    if not 0 <= count <= size:
        raise KernelValueError.of(f"the arrays have {size} elements: {name} cannot be {count}", "count")
    return int(count)
