"""The table of operations: one record each, with its type rule, spellings, derivative, domain and docs.

Importing this package fills the table.
"""

from kernelab.builtins import arithmetic, convert, matrix, scalar, selection, special, surrogate, vector

__all__ = ["arithmetic", "convert", "matrix", "scalar", "selection", "special", "surrogate", "vector"]
