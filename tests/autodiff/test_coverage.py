"""Boxes that have been read or written so far: they merge where that is exact, and never cover too much."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kernelab.autodiff.records.coverage import MOST, Coverage
from kernelab.passes.access.access_regions import Box

AXES = st.tuples(st.integers(0, 5), st.integers(1, 4), st.integers(1, 3))
BOXES = st.lists(st.tuples(AXES, AXES), max_size=8)


def elements(box: Box) -> set[tuple[int, ...]]:
    return set(itertools.product(*(range(first, first + n * step, step) for first, n, step in box)))


def test_rows_one_after_another_are_one_box() -> None:
    rows = Coverage()
    for t in (0, 1, 2, 3, 2, 5, 4):
        rows.add(((t, 1, 1), (0, 7, 1)))
    assert list(rows) == [((0, 6, 1), (0, 7, 1))]


def test_a_stride_goes_on() -> None:
    rows = Coverage()
    for t in (2, 4, 6):
        rows.add(((t, 1, 1),))
    assert list(rows) == [((2, 3, 2),)]


@given(BOXES, st.tuples(AXES, AXES))
def test_what_is_covered_was_added(added: list[Box], asked: Box) -> None:
    coverage, everything = Coverage(), set[tuple[int, ...]]()
    for box in added:
        coverage.add(box)
        everything |= elements(box)
        assert coverage.covers(box)
    assert set().union(*map(elements, coverage)) == everything
    if coverage.covers(asked):
        assert elements(asked) <= everything


def test_too_many_boxes_are_left_out() -> None:
    coverage = Coverage()
    for t in np.random.default_rng(0).permutation(1000):
        coverage.add(((int(t * t * 1000), 3, int(t) + 2),))
    assert coverage.is_full
    assert len(list(coverage)) == MOST
