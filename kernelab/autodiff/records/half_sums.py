"""Moves between adjoints of halves and float32 arrays that stand for them while there is much to add.

They are programs, run at the level of the backward pass, so lanes and derivatives of it are those of any
other program.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from kernelab.autodiff.records.adjoint_buffers import Level, fresh, scalars
from kernelab.lang.types import Array, Scalar, float32, scalar_of, with_scalar
from kernelab.runtime.array.array import array
from kernelab.runtime.array.transfers import INDICES
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.texts import kernels_of
from kernelab.runtime.launch.footprint import lane_of

TEXT = """
def take_share({arrays}):
    {at} = tid()
    total[{at}] += float32(bar[{at}])
    bar[{at}] = {half}(0.0)

def give_sum({arrays}):
    {at} = tid()
    bar[{at}] = {half}(total[{at}] + float32(bar[{at}]))
"""


def take_share(level: Level, bar: array, total: array) -> None:
    """Move what a program has added from an adjoint of numbers to its sum."""
    _run("take_share", level, bar, total)


def give_sum(level: Level, bar: array, total: array) -> None:
    """Round a sum into its adjoint, once."""
    _run("give_sum", level, bar, total)
    level.forget(total.allocation)


@contextmanager
def in_float32(level: Level, arguments: list[Any], places: Sequence[int]) -> Iterator[None]:
    """Put arrays of float32 in the places of adjoints of halves, which are rounded once, at the end."""
    bars: dict[int, array] = {k: arguments[k] for k in places}
    for k, bar in bars.items():
        arguments[k] = fresh(bar.shape, with_scalar(bar.dtype, float32), bar)
        take_share(level, scalars(bar), scalars(arguments[k]))
    yield
    for k, bar in bars.items():
        give_sum(level, scalars(bar), scalars(arguments[k]))


def _run(name: str, level: Level, bar: array, total: array) -> None:
    if bar.ndim > len(INDICES):
        for k in range(bar.shape[-1]):
            _run(name, level, lane_of(bar, k, -1), lane_of(total, k, -1))
        return
    level.run(_kernels(scalar_of(bar.dtype), bar.ndim)[name].program, bar.shape, [bar, total])


@cache
def _kernels(half: Scalar, ndim: int) -> dict[str, Kernel]:
    arrays, at = f"bar: {Array(half, ndim)}, total: {Array(float32, ndim)}", ", ".join(INDICES[:ndim])
    return kernels_of(TEXT.format(arrays=arrays, at=at, half=half), "kernelab sums")
