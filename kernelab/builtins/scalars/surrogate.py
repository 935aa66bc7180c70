"""Surrogates.

Operations whose derivative is not that of their value: what they are for is the difference, so a gradient
check of a kernel that uses them finds it.
"""

from typing import Any

import numpy as np

from kernelab.builtins.records.table import Float, MatNM, VecN, builtin
from kernelab.lang.ops import Zero

SURROGATE = ("surrogate",)
_RULE: dict[str, Any] = {"derivative": Zero(), "exact": True, "name": "stop_gradient", "tags": SURROGATE}


@builtin(cpp="({x})", numpy=np.copy, **_RULE)
def stop_gradient(x: Float) -> Float:
    """``x`` itself, as a constant to derivatives: they are 0."""


@builtin(expand=lambda v: v, numpy=np.copy, **_RULE)
def stop_gradient_vector(v: VecN) -> VecN:
    """``v`` itself, as a constant to derivatives: they are 0."""


@builtin(expand=lambda m: m, numpy=np.copy, **_RULE)
def stop_gradient_matrix(m: MatNM) -> MatNM:
    """``m`` itself, as a constant to derivatives: they are 0."""
