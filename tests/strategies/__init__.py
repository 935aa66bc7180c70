"""Random well-typed kernels, as text, and the arguments to run them on.

A program works on rows: thread `i` owns row `i` of `a`, which it reads and overwrites, row `i` of `out`,
which it accumulates into, and the vector `d[i]`.  `x` is read only, `n` holds trip counts, `g` is a number.
`s` and `hits` belong to all threads, which read, overwrite and accumulate into them in turn.  Loops are
nested, leave early, and run zero times; scalars, vectors, matrices, structs, local arrays, integers and bools
are carried, re-assigned, written in parts and assigned in branches; functions return early; indices are found
at run time.
Values stay small, so that differences of the same text run as plain Python mean something.
"""

from tests.strategies.arguments import COLUMNS, GRID, LAYOUTS, NDIMS, ROWS, Memory, draw_arguments
from tests.strategies.kernels import exact, plain_programs, programs

__all__ = [
    "COLUMNS",
    "GRID",
    "LAYOUTS",
    "NDIMS",
    "ROWS",
    "Memory",
    "draw_arguments",
    "exact",
    "plain_programs",
    "programs",
]
