"""Numbers of every width for `python_oracle`, as NumPy's scalars: they round and wrap where kernels do.

Knows what the language says of conversions; nothing of kernelab.
"""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tests.support import python_oracle

FLOATS = {"float16": np.float16, "float32": np.float32, "float64": np.float64}
INTS = {
    "int8": np.int8,
    "uint8": np.uint8,
    "int16": np.int16,
    "int32": np.int32,
    "uint32": np.uint32,
    "int64": np.int64,
}


def _as_float(kind: Any) -> Callable[..., Any]:
    return lambda number=0.0: kind(number)


def _as_int(kind: Any) -> Callable[..., Any]:
    """A float is cut off at the point and at the ends of the type, NaN is 0; an int keeps its low bits."""
    ends = np.iinfo(kind)

    def make(number: Any = 0) -> Any:
        if isinstance(number, float | np.floating):
            if np.isnan(number):
                return kind(0)
            if np.isinf(number):
                return kind(ends.max if number > 0 else ends.min)
            return kind(min(max(int(number), int(ends.min)), int(ends.max)))
        bits = int(number) & (2**ends.bits - 1)
        return kind(bits - 2**ends.bits if bits > ends.max else bits)

    return make


def _least(a: Any, b: Any) -> Any:
    return b if b < a else a


def _greatest(a: Any, b: Any) -> Any:
    return b if b > a else a


WORDS: dict[str, Any] = {
    **{name: _as_float(kind) for name, kind in FLOATS.items()},
    **{name: _as_int(kind) for name, kind in INTS.items()},
    "bool": lambda number=False: bool(number != 0),
    "min": _least,
    "max": _greatest,
    "clamp": lambda x, low, high: _least(_greatest(x, low), high),
    "abs": np.abs,
    "floor": np.floor,
    "sign": lambda x: type(x)(-1 if x < 0 else 1),
    "isnan": lambda x: bool(np.isnan(x)),
    "range": lambda *bounds: map(np.int32, range(*bounds)),
    "static": lambda value: value,
}


def run(text: str, name: str, grid: tuple[int, ...], arguments: Mapping[str, Any], **namespace: Any) -> None:
    """Run a kernel of arrays of one axis as Python, changing the arrays that it is given."""
    ndims = {key: value.ndim for key, value in arguments.items() if isinstance(value, np.ndarray)}
    code = python_oracle.compiled(text)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        python_oracle.run_in_place(code, name, grid, arguments, ndims, **WORDS, **namespace)
