"""Arguments for generated programs: in arrays of their own, or in memory that several of them share."""

from typing import Any

import numpy as np

from tests.strategies.expressions import COLUMNS

ROWS = 3
"""Threads, and rows of `a` and `out`."""

GRID = (ROWS,)
NDIMS = {"x": 1, "n": 1, "a": 2, "out": 2, "s": 1, "d": 1, "hits": 1}
SHAPES = {"x": (ROWS + COLUMNS,), "a": (ROWS, COLUMNS), "out": (ROWS, COLUMNS), "s": (3,), "d": (ROWS, 3)}
Arguments = dict[str, Any]


def draw_arguments(seed: int) -> Arguments:
    """Arguments in arrays of their own."""
    rng = np.random.default_rng(seed)
    floats = {name: rng.normal(size=shape) for name, shape in SHAPES.items()}
    ints = {"n": rng.integers(0, 4, ROWS).astype(np.int32), "hits": np.zeros(3, np.int32)}
    return floats | ints | {"g": float(rng.uniform(0.5, 1.5))}


LAYOUTS: dict[str, dict[str, str]] = {
    "apart": {},
    "out is a": {"out": "a"},
    "x begins in a": {"x": "a"},
    "s inside a": {"s": "a"},
    "s inside x": {"s": "x"},
    "x, s and out on a": {"x": "a", "s": "a", "out": "a"},
    "d on out": {"d": "out"},
    "a on x, shifted": {"a": "x"},
}
"""Ways in which arguments overlap: which array lies on which other one; the rest lie apart."""


class Memory:
    """Where the float arrays lie: offsets into one stretch of float64, by name."""

    def __init__(self, layout: str) -> None:
        on = LAYOUTS[layout]
        self.groups = _groups(on)
        self.offsets: dict[str, int] = {}
        self.size = 0
        for name, shape in SHAPES.items():
            if name not in on:
                self.offsets[name] = self.size
                self.size += int(np.prod(shape)) + 8
        shift = {"a on x, shifted": 3, "s inside a": 5}.get(layout, 0)
        for name, base in on.items():
            self.offsets[name] = self.offsets[base] + shift

    def arrays(self, memory: np.ndarray[Any, np.dtype[np.float64]]) -> Arguments:
        """The arrays as views of memory."""
        return {
            name: memory[start : start + int(np.prod(SHAPES[name]))].reshape(SHAPES[name])
            for name, start in self.offsets.items()
        }


def _groups(on: dict[str, str]) -> tuple[tuple[str, ...], ...]:
    bases = dict.fromkeys(on.values())
    return tuple((base, *(name for name, b in on.items() if b == base)) for base in bases)
