"""Sorting pairs and counting runs, beside NumPy."""

from typing import Any

import numpy as np
import pytest

import kernelab as kl

VALUES = [3, -1, 2, -1, 0, 7, 2, -8]


@pytest.mark.parametrize("dtype", [kl.int32, kl.int64, kl.float32, kl.float64, kl.uint32])
def test_keys_are_sorted_stably_and_values_follow(dtype: Any) -> None:
    given = np.abs(VALUES) if dtype == kl.uint32 else np.array(VALUES)
    keys, values = kl.array(given, dtype=dtype), kl.array(range(8))
    kl.utils.radix_sort_pairs(keys, values, 6)
    order = np.argsort(given[:6], kind="stable")
    assert keys.numpy().tolist() == [*given[:6][order], *given[6:]]
    assert values.list() == [*order, 6, 7]


def test_some_bits_of_the_keys_may_decide_alone() -> None:
    keys, values = kl.array([0b111, 0b001, 0b110, 0b010]), kl.array([0, 1, 2, 3])
    kl.utils.radix_sort_pairs(keys, values, 4, begin_bit=0, end_bit=2)
    assert values.list() == [1, 2, 3, 0]
    kl.utils.radix_sort_pairs(keys, values, 4, begin_bit=2, end_bit=32)
    assert keys.list() == [1, 2, 6, 7]


def test_segments_are_sorted_apart() -> None:
    keys, values = kl.array([3.0, 1, 4, 2, 9, 5]), kl.array(range(6))
    kl.utils.segmented_sort_pairs(keys, values, 6, kl.array([0, 2, 4]))
    assert (keys.list(), values.list()) == ([1, 3, 2, 4, 9, 5], [1, 0, 3, 2, 4, 5])
    kl.utils.segmented_sort_pairs(keys, values, 6, kl.array([4]), kl.array([6]))
    assert keys.list() == [1, 3, 2, 4, 5, 9]


def test_runs_are_counted() -> None:
    values = kl.array([1, 1, 1, 2, 2, 3])
    found, lengths, count = kl.zeros(6, dtype=int), kl.zeros(6, dtype=int), kl.zeros(1, dtype=int)
    assert kl.utils.runlength_encode(values, found, lengths) == 3
    assert (found.list()[:3], lengths.list()[:3]) == ([1, 2, 3], [3, 2, 1])
    assert kl.utils.runlength_encode(values, found, lengths, count, value_count=4) is count
    assert (count.item(), lengths.list()[:2]) == (2, [3, 1])
    assert kl.utils.runlength_encode(kl.zeros(0, dtype=int), found, lengths) == 0


INTS = kl.array([1, 2])
CASES = [
    (lambda: kl.utils.radix_sort_pairs(INTS, INTS, 3), r"have 2 elements: count cannot be 3"),
    (lambda: kl.utils.radix_sort_pairs(INTS, INTS, 1.5), r"count is a whole number .*, not the float"),
    (lambda: kl.utils.radix_sort_pairs(kl.zeros(2, dtype=kl.int8), INTS, 2), r"32 or 64 bits, not int8"),
    (lambda: kl.utils.radix_sort_pairs(kl.zeros((2, 2)), INTS, 2), r"of 1 dimension, not of 2"),
    (lambda: kl.utils.radix_sort_pairs(INTS, INTS, 2, 8, 4), r"bits 8 to 4 are not a range of the 32"),
    (lambda: kl.utils.segmented_sort_pairs(INTS, INTS, 2, kl.array([0, 3])), r"segment from 0 to 3"),
    (lambda: kl.utils.segmented_sort_pairs(INTS, INTS, 2, INTS, INTS[:1]), r"2 starts .* 1 ends"),
    (lambda: kl.utils.runlength_encode(INTS, kl.zeros(2), INTS), r"not of float32 and int32"),
    (lambda: kl.utils.runlength_encode(INTS, INTS[:1], INTS), r"need room for 2 elements"),
    (lambda: kl.utils.runlength_encode(INTS, INTS, INTS, kl.zeros(1)), r"one int32, not of 1 float32"),
    (lambda: kl.utils.runlength_encode([1], INTS, INTS), r"values is an array of kernelab, not a list"),
]  # fmt: skip


@pytest.mark.parametrize(("do", "message"), CASES, ids=[message for _, message in CASES])
def test_it_is_said_what_does_not_fit(do: Any, message: str) -> None:
    with pytest.raises(kl.KernelError, match=message):
        do()
