"""Floats as integers, and how often a `range` runs: one rule in the interpreter, C++ and CUDA."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelab.backend.common.backends import pack
from kernelab.backend.cpu import interpreter
from kernelab.backend.cpu.cpu_backend import CpuBackend
from kernelab.backend.cuda.cuda_backend import CudaBackend
from kernelab.codegen.cpp.entry import layout_of
from kernelab.lang.ir import Function
from kernelab.lang.ops import TRIPS
from kernelab.lang.rounding import rounded
from kernelab.lang.types import SCALARS, Array, Scalar, int8, int32, int64
from tests.codegen.writer import Writer
from tests.support.hardware import open_device
from tests.support.simulated import launch

Numpy = np.ndarray[Any, Any]
FLOATS = [scalar for scalar in SCALARS if scalar.is_float]
INTS = [scalar for scalar in SCALARS if scalar.is_int]


@dataclass(frozen=True)
class Edge:
    """A kernel over one thread for each number of `out`, and what it has to leave there."""

    function: Function
    given: dict[str, Numpy]
    expected: list[int]


def agrees_everywhere(edges: Sequence[Edge]) -> None:
    """Run all on each target, and compare."""
    functions = [edge.function for edge in edges]
    machine, driver = CpuBackend().build(functions), open_device()
    device = CudaBackend(driver).build(functions)
    for edge in edges:
        function, grid = edge.function, (len(edge.expected),)
        name, layout = function.name, layout_of(function)
        first, second, third = ({key: value.copy() for key, value in edge.given.items()} for _ in range(3))
        interpreter.run(function, grid, first)
        machine[name](pack(layout, grid, second))
        launch(driver, device[name], function, grid, **third)
        for target, after in (("interpreter", first), ("machine code", second), ("device", third)):
            assert after["out"].tolist() == edge.expected, (name, target)


# ------------------------------------------------------------------------- floats as integers

POWERS = [2.0**k for k in (7, 8, 15, 16, 31, 32, 63, 64)]
NUMBERS = [0.0, 0.4, 0.9, 1.5, 254.7, 300.0, 65535.9, 1e20, 1e300, math.inf]
NUMBERS += [power + d for power in POWERS for d in (-1.0, -0.5, 0.0, 0.5, 1.0)]
NUMBERS += [*(-number for number in NUMBERS), math.nan]


def cast(given: Scalar, wanted: Scalar) -> Edge:
    w = Writer(f"{given}_as_{wanted}", x=Array(given, 1), out=Array(wanted, 1))
    (i,) = w.tid("i")
    w.store(w["out"], (i,), w.apply(str(wanted), w.load(w["x"], (i,))))
    with np.errstate(all="ignore"):
        x = rounded(np.array(NUMBERS), given.dtype)
    expected = [nearest(number, wanted) for number in x.astype(np.float64).tolist()]
    return Edge(w.function(), {"x": x, "out": np.zeros(len(x), wanted.dtype)}, expected)


def nearest(number: float, wanted: Scalar) -> int:
    least, most = int(np.iinfo(wanted.dtype).min), int(np.iinfo(wanted.dtype).max)
    if math.isnan(number):
        return 0
    return min(max(int(number), least), most) if math.isfinite(number) else most if number > 0 else least


def test_a_float_becomes_the_nearest_integer_towards_zero_and_nan_becomes_0() -> None:
    agrees_everywhere([cast(*pair) for pair in itertools.product(FLOATS, INTS)])


# ------------------------------------------------------------------------- how often a range runs


def trips(scalar: Scalar) -> Edge:
    """Every range between bounds at the edges of a type; the last steps are those of the edges too."""
    w = Writer(f"trips_{scalar}", **dict.fromkeys(("start", "stop", "step", "out"), Array(scalar, 1)))
    (i,) = w.tid("i")
    bounds = [w.load(w[name], (i,)) for name in ("start", "stop", "step")]
    w.store(w["out"], (i,), w.let(TRIPS, bounds, scalar))
    least, most = int(np.iinfo(scalar.dtype).min), int(np.iinfo(scalar.dtype).max)
    ends = [least, least + 1, least // 2, -3, -1, 0, 1, 2, 5, most // 2, most - 1, most]
    ranges = list(itertools.product(ends, ends, ends))
    counts = [count_of(bounds) for bounds in ranges]
    columns = np.array(ranges, scalar.dtype).T.copy()
    given = dict(zip(("start", "stop", "step"), columns, strict=True))
    expected = [count if count <= most else -1 for count in counts]
    return Edge(w.function(), {**given, "out": np.zeros(len(ranges), scalar.dtype)}, expected)


def count_of(bounds: tuple[int, int, int]) -> int:
    first, _, step = bounds
    whole = range(*bounds) if step else range(0)
    return (whole[-1] - first) // step + 1 if whole else 0  # len(...) does not go beyond 2**63


def test_a_range_has_as_many_items_as_in_python_or_minus_one_where_they_cannot_be_counted() -> None:
    agrees_everywhere([trips(scalar) for scalar in (int8, int32, int64)])
