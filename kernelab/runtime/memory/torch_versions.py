"""Versions of PyTorch's tensors: a write by kernelab counts in those of the tensors over the same bytes.

PyTorch's backward raises where a tensor that it needs has another version by then.  Knows memory and the
methods of tensors; must not import PyTorch, for who has a tensor has done so.
"""

import sys
import weakref
from typing import Any

from kernelab.runtime.memory.memory import Allocation, Elements


class _Versions:
    """Counts writes to memory in the versions of the tensors over it that live (a `Watcher`)."""

    def __init__(self, extent: tuple[int, int]) -> None:
        self.extent = extent
        self.tensors: dict[int, tuple[int, int, weakref.ref[Any]]] = {}
        """The addresses that each reaches over, by its id."""
        self.room = 8

    def add(self, tensor: Any, low: int, high: int) -> None:
        """Count for a tensor, too: for a view the one that it is a view of, whose versions are its own."""
        counted = tensor if tensor._base is None else tensor._base
        known = self.tensors.get(id(counted))
        if known is not None and known[2]() is counted:
            low, high = min(low, known[0]), max(high, known[1])
        self.tensors[id(counted)] = low, high, weakref.ref(counted)
        if len(self.tensors) > self.room:
            for key, (*_, ref) in [*self.tensors.items()]:
                if ref() is None:
                    self.tensors.pop(key, None)
            self.room = 2 * len(self.tensors) + 8

    def before_write(self, target: Elements) -> None:
        first, last = target.extent
        for low, high, tensor in [*self.tensors.values()]:  # another thread may share the memory meanwhile
            if low < last and first < high and (alive := tensor()) is not None:
                tell_torch(alive)

    def exposed(self) -> None:
        """PyTorch does not count what NumPy writes either."""


_VERSIONS = weakref.WeakKeyDictionary[Allocation, _Versions]()


def count_writes(elements: Elements, *tensors: Any) -> None:
    """Let PyTorch know of each later write to the elements, as long as one of the tensors over them lives.

    What is no tensor of PyTorch among `tensors` does not count.
    """
    counted = [one for one in tensors if hasattr(one, "is_inference")]
    if not counted:
        return
    memory, (low, high) = elements.allocation, elements.extent
    versions = _VERSIONS.get(memory)
    if versions is None:
        made = _Versions((low, high))
        versions = _VERSIONS.setdefault(memory, made)
        if versions is made:
            memory.watch(made, made.extent)
    first, last = versions.extent
    if low < first or last < high:
        memory.unwatch(versions, versions.extent)
        versions.extent = min(low, first), max(high, last)
        memory.watch(versions, versions.extent)
    for tensor in counted:
        versions.add(tensor, low, high)


def tell_torch(t: Any) -> None:
    """Count a write to a tensor: where PyTorch's backward needs what was there, PyTorch raises."""
    if not t.is_inference():
        sys.modules["torch"].autograd.graph.increment_version(t)
