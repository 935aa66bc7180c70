"""The table of operations: one record each, with its type rule, spellings, derivative, domain and docs.

Importing this package fills the table.
"""

from dataclasses import replace

# ruff: noqa: F401 (a module registers its records where it is imported)
# The order is that of the families in the reference.
from kernelab.builtins import arithmetic, convert, scalar

# isort: split
from kernelab.builtins import matrix, vector

# isort: split
from kernelab.builtins import rotations

# isort: split
from kernelab.builtins import decompositions, geometry, random, transform
from kernelab.builtins.table import define
from kernelab.lang import ops

_SAME = {"div_approx": "div", "inverse_approx": "inverse", "lshift": "shl", "rshift": "shr", "unot": "not"}
for _name, _same in _SAME.items():
    for _op in ops.overloads(_same):
        _doc = f"The same as `{_same}`: {_op.doc[0].lower()}{_op.doc[1:]}"
        define(replace(_op, name=_name, symbol="", doc=_doc), "Other names")
