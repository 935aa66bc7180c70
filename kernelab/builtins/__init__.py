"""The table of operations: one record each, with its type rule, spellings, derivative, domain and docs.

Importing this package fills the table.
"""

from kernelab.builtins import (
    arithmetic,
    convert,
    decompositions,
    elementwise,
    geometry,
    matrix,
    noise,
    norms,
    quaternion,
    random,
    renamed,
    rotations,
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
    "decompositions",
    "elementwise",
    "geometry",
    "matrix",
    "noise",
    "norms",
    "quaternion",
    "random",
    "renamed",
    "rotations",
    "scalar",
    "selection",
    "special",
    "surrogate",
    "transform",
    "vector",
]
