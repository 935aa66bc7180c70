"""Boxes that have been read or written so far: they merge where that is exact, and never cover too much."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import kernelab as kl
from kernelab.autodiff.records.coverage import MOST, Coverage, may_touch
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


STEP = """
def step(x: array2d[float], t: int):
    i = tid()
    x[t + 1, i] = 0.5 * x[t, i]

def chosen(x: array2d[float], rows: array[int], y: array[float]):
    i = tid()
    y[i] = x[rows[i], i]
"""


def test_a_launch_may_touch_the_rows_that_its_text_names_and_any_that_data_choose() -> None:
    made, x = kl.compile(STEP), kl.zeros((6, 3), requires_grad=True)
    with kl.Tape() as tape:
        made["step"][3](x, 2)
        made["chosen"][3](x, kl.array([0, 1, 5]), kl.zeros(3, requires_grad=True))
    stepped, picked = tape
    first = [range(12 * row, 12 * row + 4) for row in range(6)]
    assert [may_touch(stepped, x.allocation, one) for one in first] == [row in (2, 3) for row in range(6)]
    assert all(may_touch(picked, x.allocation, one) for one in first)
    assert not may_touch(stepped, kl.zeros(3).allocation, range(4))
