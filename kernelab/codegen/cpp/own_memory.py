"""Places what a thread of a kernel has for itself: on the stack, or in memory from malloc where it is large.

The stack is that of the thread that launches, which a user may have given a few hundred kilobytes; and the
derivatives of a kernel have its local arrays twice, and twice again.
"""

import math
from collections.abc import Mapping, Sequence

from kernelab.codegen.cpp import spelling
from kernelab.lang import ir
from kernelab.lang.build import elem_of
from kernelab.lang.types import scalar_of, size_of

ON_STACK = 1 << 14
"""The most bytes that lie on the stack."""


class OwnMemory:
    """Where the local arrays of a function and its late values lie; `size` bytes come from malloc."""

    def __init__(self, function: ir.Function, late: Mapping[str, Sequence[ir.Var]], largest: float) -> None:
        sizes = [size_of_local(stmt) for stmt in ir.walk(function.body) if isinstance(stmt, ir.Alloc)]
        whole = sum(map(_aligned, [*sizes, *(8 * len(values) for values in late.values())]))
        self.late = late
        self.size = whole if whole > largest else 0
        self._taken = 0

    def late_array(self, type: str, name: str) -> str:
        """The statement that declares the array of the late values of a type."""
        count = len(self.late[type])
        if not self.size:
            return f"volatile {type} {name}[{count}];"
        return f"volatile {type}* const {name} = (volatile {type}*)({self._place(8 * count)});"

    def zeros(self, name: str, stmt: ir.Alloc) -> list[str]:
        """The statements that declare a local array, as a char*, and clear it."""
        size, scalar = size_of_local(stmt), scalar_of(elem_of(stmt.out))
        if not self.size:
            count = size // spelling.size(scalar)
            type = spelling.memory_type(scalar)
            return [f"{type} {name}_data[{count}] = {{}};", f"char* const {name} = (char*){name}_data;"]
        place = self._place(size)
        return [f"char* const {name} = {place};", f"__builtin_memset({name}, 0, {size});"]

    def _place(self, size: int) -> str:
        first, self._taken = self._taken, self._taken + _aligned(size)
        assert self._taken <= self.size, "each array has its place, once"
        return f"own + {first}"


def size_of_local(stmt: ir.Alloc) -> int:
    """The bytes of a local array."""
    elem = elem_of(stmt.out)
    return math.prod(stmt.shape) * size_of(elem) * spelling.size(scalar_of(elem))


def _aligned(size: int) -> int:
    return -(-size // 16) * 16
