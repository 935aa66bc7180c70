"""Mathematical constants by the names that programs use for them."""

import math

_NUMBERS = {
    "pi": math.pi,
    "tau": math.tau,
    "half_pi": math.pi / 2.0,
    "inf": math.inf,
    "nan": math.nan,
    "e": math.e,
    "phi": (1.0 + math.sqrt(5.0)) / 2.0,
    "ln2": math.log(2.0),
    "ln10": math.log(10.0),
    "log2e": math.log2(math.e),
    "log10e": math.log10(math.e),
}

CONSTANTS: dict[str, float] = _NUMBERS | {name.upper(): value for name, value in _NUMBERS.items()}
"""What ``kl.pi``, ``kl.PI``, ``kl.inf`` and their kin are."""

BARE = ("pi", "tau", "inf", "nan", "PI", "TAU", "INF", "NAN")
"""Those that need no prefix in a cell: `e` and `phi` alone are more likely a variable that is missing."""
