"""Atomics over NumPy arrays: many lanes change elements, one after another where they touch the same one."""

from typing import Any, assert_never

import numpy as np

from kernelab.backend.interpreter.lanes import Numpy
from kernelab.lang.ir import AtomicKind


def in_turn(
    kind: AtomicKind, array: Numpy, places: tuple[Any, ...], values: Numpy, compare: Numpy | None
) -> Numpy:
    """Change elements, lane after lane; what each lane found there."""
    old = np.empty_like(values)
    for turn in _turns(array, places, len(values)):
        at = tuple(i[turn] if isinstance(i, np.ndarray) else i for i in places)
        old[turn] = array[at]
        array[at] = _changed(kind, old[turn], values[turn], None if compare is None else compare[turn])
    return old


def _changed(kind: AtomicKind, old: Numpy, value: Numpy, compare: Numpy | None) -> Numpy:
    """What elements hold after an atomic."""
    match kind:
        case "add":
            return old + value
        case "min":
            return np.where(value < old, value, old)
        case "max":
            return np.where(value > old, value, old)
        case "and":
            return old & value
        case "or":
            return old | value
        case "xor":
            return old ^ value
        case "exch":
            return value
        case "cas":
            return np.where(old == compare, value, old)
        case _:
            assert_never(kind)


def _turns(array: Numpy, places: tuple[Any, ...], lanes: int) -> list[Numpy]:
    """The lanes in groups that touch no element twice: first those that come first to theirs, and so on."""
    address = np.zeros(lanes, np.int64)
    for index, stride in zip(places, array.strides, strict=False):
        address = address + index * stride
    order = np.argsort(address, kind="stable")
    starts = np.flatnonzero(np.diff(address[order], prepend=address[order][:1] - 1))
    lengths = np.diff(starts, append=lanes)
    turn = np.empty(lanes, np.int64)
    turn[order] = np.arange(lanes) - np.repeat(starts, lengths)
    by_turn = np.argsort(turn, kind="stable")
    return np.split(by_turn, np.cumsum(np.bincount(turn))[:-1]) if lanes else []
