"""The table of operations: one record each, with its type rule, spellings, derivative, domain and docs.

Importing this package fills the table.
"""

from kernelab.builtins import (
    arithmetic,
    convert,
    matrix,
    noise,
    quaternion,
    random,
    scalar,
    selection,
    special,
    surrogate,
    transform,
    vector,
)

__all__ = [
    "arithmetic",
    "convert",
    "matrix",
    "noise",
    "quaternion",
    "random",
    "scalar",
    "selection",
    "special",
    "surrogate",
    "transform",
    "vector",
]
