"""Other names.

Operations by a second name, also by that of an approximation, which is exact here.  And the bits of a number,
read as a number of another type.
"""

from dataclasses import replace

import numpy as np

from kernelab.builtins.records.table import define, title_of
from kernelab.builtins.vectors import componentwise, matrix  # whose operations get other names
from kernelab.lang import ops
from kernelab.lang.ops import Op, Parameter, Zero
from kernelab.lang.types import Scalar, float32, float64, int32, int64, uint32, uint64

assert componentwise
assert matrix

FAMILY = title_of(__name__)
_SAME = {"div_approx": "div", "inverse_approx": "inverse", "unot": "not"}


def _alias(name: str, of: str) -> None:
    for op in ops.overloads(of):
        define(
            replace(op, name=name, symbol="", doc=f"The same as `{of}`: {op.doc[0].lower()}{op.doc[1:]}"),
            FAMILY,
        )


for _name, _of in _SAME.items():
    _alias(_name, _of)


def _cast(own: Scalar, wanted: Scalar) -> Op:
    return Op(
        f"cast_{wanted}",
        (Parameter("x", own),),
        wanted,
        lambda x: np.asarray(x).view(wanted.dtype),
        Zero(),
        cpp="__builtin_bit_cast({T}, {x})",
        domain=((-9.0, 9.0),),
        exact=True,
        doc=f"The bits of an {own} read as {wanted}; in a kernel also ``cast(x, {wanted})``.",
    )


for _float, _ints in ((float32, (int32, uint32)), (float64, (int64, uint64))):
    for _int in _ints:
        define(_cast(_float, _int), FAMILY)
        define(_cast(_int, _float), FAMILY)
