"""Surrogates.

Operations whose derivative is not that of their value: what they are for is the difference, so a gradient
check of a kernel that uses them finds it.
"""

import numpy as np

from kernelab.builtins.records.table import Float, builtin
from kernelab.lang.ops import Zero

SURROGATE = ("surrogate",)


@builtin(
    cpp="({x})",
    numpy=np.copy,
    derivative=Zero(),
    exact=True,
    tags=SURROGATE,
    by_component="``x`` itself, as a constant to derivatives: they are 0.",
)
def stop_gradient(x: Float) -> Float:
    """``x`` itself, as a constant to derivatives: they are 0."""
