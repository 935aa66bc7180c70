"""The table of operations: one record each, with its type rule, spellings, derivative, domain and docs.

Importing this package fills the table.
"""

# The order is that of the families in docs/builtins.md.
from kernelab.builtins.scalars import arithmetic, convert, scalar, special, surrogate

# isort: split
from kernelab.builtins.vectors import matrix, selection, vector, vector_operators

# isort: split
from kernelab.builtins.composed import (
    decompositions,
    geometry,
    noise,
    norms,
    quaternion,
    random,
    renamed,
    rotations,
    transform,
)

__all__ = [
    "arithmetic",
    "convert",
    "decompositions",
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
    "vector_operators",
]
