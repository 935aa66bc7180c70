"""The table of operations: one record each, with its type rule, spellings, derivative, domain and docs.

Importing this package fills the table.
"""

# ruff: noqa: F401 (a module registers its records where it is imported)
# The order is that of the families in docs/builtins.md.
from kernelab.builtins.scalars import arithmetic, convert, scalar, special, surrogate

# isort: split
from kernelab.builtins.vectors import componentwise, matrix, vector

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
