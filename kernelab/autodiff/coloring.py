"""Colouring: which columns of a sparse matrix can be computed together, because no row has two of them.

Greedy, at distance two, columns in order; the work is done by a kernel of kernelab's own.
"""

from functools import cache
from typing import Any

import numpy as np

from kernelab.errors import Source
from kernelab.runtime.array import from_numpy
from kernelab.runtime.kernel import Kernel, compile_source
from kernelab.runtime.launch import launch

Numbers = np.ndarray[Any, np.dtype[np.int32]]

_TEXT = """
def color_columns(row_starts: array[int], row_columns: array[int], column_starts: array[int],
                  column_rows: array[int], taken: array[int], colors: array[int]):
    for column in range(colors.shape[0]):
        for a in range(column_starts[column], column_starts[column + 1]):
            row = column_rows[a]
            for b in range(row_starts[row], row_starts[row + 1]):
                other = row_columns[b]
                if other < column:
                    taken[colors[other]] = column + 1
        color = 0
        while taken[color] == column + 1:
            color += 1
        colors[column] = color
"""


@cache
def _kernel() -> Kernel:
    compiled = compile_source(Source(_TEXT, "kernelab coloring"))
    compiled.raise_errors()
    found = compiled.definitions["color_columns"]
    assert isinstance(found, Kernel)
    return found


def starts(sorted_keys: Numbers, count: int) -> Numbers:
    """Where the entries of each of `count` keys begin, and one past the last."""
    return np.searchsorted(sorted_keys, np.arange(count + 1)).astype(np.int32)


def color_columns(rows: Numbers, columns: Numbers, shape: tuple[int, int]) -> Numbers:
    """A colour for each column of the pattern with entries at (rows, columns), sorted by row, from 0 up."""
    colors = np.zeros(shape[1], np.int32)
    if len(rows) == 0:
        return colors
    order = np.argsort(columns, kind="stable")
    given = [
        starts(rows, shape[0]),
        columns.astype(np.int32),
        starts(columns[order], shape[1]),
        rows[order].astype(np.int32),
        np.zeros(shape[1] + 1, np.int32),
        colors,
    ]
    launch(_kernel(), 1, [from_numpy(values) for values in given], record_tape=False)
    return colors
