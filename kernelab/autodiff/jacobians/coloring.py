"""Colouring: which columns of a sparse matrix can be computed together, because no row has two of them.

Greedy, at distance two, columns in order.  A symmetric matrix may do with fewer, by a star colouring: of two
columns of one colour that meet in a row, one entry is known from the row's own column.  The work is done by
kernels of kernelab's own.
"""

from functools import cache
from typing import Any

import numpy as np

from kernelab.errors import Source
from kernelab.runtime.host.create import from_numpy
from kernelab.runtime.kernel.kernel import Kernel, compile_source
from kernelab.runtime.launch.launch import launch
from kernelab.runtime.memory.device import CPU

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

def color_stars(row_starts: array[int], row_columns: array[int], taken: array[int], colors: array[int]):
    for v in range(colors.shape[0]):
        for a in range(row_starts[v], row_starts[v + 1]):
            w = row_columns[a]
            if w < v:
                taken[colors[w]] = v + 1
            if w != v:
                for b in range(row_starts[w], row_starts[w + 1]):
                    x = row_columns[b]
                    if x < v:
                        if w > v or colors[x] < colors[w]:
                            taken[colors[x]] = v + 1
        color = 0
        while taken[color] == v + 1:
            color += 1
        colors[v] = color
"""


@cache
def _kernel(name: str) -> Kernel:
    compiled = compile_source(Source(_TEXT, "kernelab coloring"))
    compiled.raise_errors()
    found = compiled.definitions[name]
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
    launch(
        _kernel("color_columns"), 1, [from_numpy(values, device=CPU) for values in given], record_tape=False
    )
    return colors


def color_stars(rows: Numbers, columns: Numbers, size: int) -> Numbers:
    """A colour for each column of a symmetric pattern, so that no path over four of them has only two.

    Neighbours differ, and every three in a row whose ends agree have a middle of a lower colour, which is
    what the kernel keeps to: so four in a row cannot alternate.  The columns with most entries come first.
    """
    order = np.argsort(-np.bincount(columns, minlength=size), kind="stable")
    rank = np.empty(size, np.int32)
    rank[order] = np.arange(size)
    moved = np.lexsort((rank[columns], rank[rows]))
    by_rank, colors = rank[rows][moved], np.zeros(size, np.int32)
    given = [starts(by_rank, size), rank[columns][moved], np.zeros(size + 1, np.int32), colors]
    launch(_kernel("color_stars"), 1, [from_numpy(values, device=CPU) for values in given], record_tape=False)
    return colors[rank]
