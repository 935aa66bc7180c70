"""Elements that a launch has picked from another array, and that go back there if it writes them."""

from typing import Any

from kernelab.runtime.array.array import array


class Gathered(array):
    """Picked elements in memory of their own; `source` takes them back by `assign`, unless it `repeats`."""

    __slots__ = ("source",)

    source: Any
