"""Residuals of a launch: where their values are stored, and where those of each thread begin.

Knows memory and arrays; must not know launches.
"""

import ctypes
import functools
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from kernelab.backend.common.packing import free
from kernelab.lang.types import bytes_of, int64
from kernelab.runtime.array.array import array
from kernelab.runtime.memory.memory import Allocation, allocate
from kernelab.runtime.memory.spaces import DeviceAllocation, Space

_WORTH_SHARING = 256
"""How many threads a launch has before it looks for a table of starts that others have made."""


class Residual:
    """Room for the values that a launch appends, which its entry allocates and this object frees.

    `space` is the memory of the device where the launch runs; None for the host's.
    """

    __slots__ = ("_space", "_starts", "_table", "_values", "elem")

    def __init__(self, elem: Any, threads: int, space: Space | None = None) -> None:
        self.elem = elem
        self._space = space
        self._table = (ctypes.c_longlong * 3)()
        self._values: DeviceAllocation | None = None
        nbytes = 8 * threads
        self._starts = (
            allocate(nbytes, cleared=True) if space is None else space.allocate(nbytes, cleared=True)
        )

    def __del__(self, free: Callable[[int], None] = free) -> None:
        if self._space is None:
            free(self._table[0])
        elif self._table[0] and self._values is None and self._space.takes_back:
            self._space.driver.free(self._table[0])

    @property
    def packed(self) -> bytes:
        return struct.pack("=3q", ctypes.addressof(self._table), self._starts.address, 0)

    def arrays(self) -> tuple[array, array]:
        """The values, and the position of each thread's first one."""
        address, length, _ = self._table
        itemsize = bytes_of(self.elem)
        if self._space is None:
            values = Allocation(address, length * itemsize, self)
            self._starts = _shared_if_even(self._starts, length)
        else:
            self._values = values = self._values or self._space.adopt(address, length * itemsize)
            if self._space.capture is not None:
                self._space.capture.touched[values] = None
        starts = self._starts.nbytes // 8
        return (
            array.over(values, 0, (length,), (itemsize,), self.elem),
            array.over(self._starts, 0, (starts,), (8,), int64),
        )


def _shared_if_even(starts: Allocation, length: int) -> Allocation:
    """Offsets of the threads in a residual, shared by all launches if each thread appends as many values."""
    threads = starts.nbytes // 8
    if threads < _WORTH_SHARING or length % threads:
        return starts
    even = _even_starts(threads, length // threads)
    found, expected = (np.frombuffer(memory.buffer(), np.int64) for memory in (starts, even))
    return even if np.array_equal(found, expected) else starts


@functools.lru_cache(maxsize=16)
def _even_starts(threads: int, step: int) -> Allocation:
    made = allocate(8 * threads, cleared=False)
    np.frombuffer(made.buffer(), np.int64)[:] = np.arange(0, threads * step, step) if step else 0
    return made
