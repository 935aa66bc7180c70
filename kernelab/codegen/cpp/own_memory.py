"""Per-thread memory in generated code: on the stack, or from malloc where it is large.

The stack is that of the thread that launches, which a user may have given a few hundred kilobytes; and the
derivatives of a kernel have its local arrays twice, and twice again.

In a long function, values that are read long after they are computed, as those that an adjoint replays, are
there too.  A compiler takes time with the square of how many values wait for a register.  These wait in an
array, which is volatile: a compiler that looked through it would have them wait for registers again.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain

from kernelab.codegen.cpp import spelling
from kernelab.lang import ir
from kernelab.lang.build import elem_of
from kernelab.lang.types import Scalar, scalar_of, size_of

ON_STACK = 1 << 14
"""The most bytes that lie on the stack."""


class OwnMemory:
    """Where the local arrays of a function and its late values lie; `size` bytes come from malloc."""

    def __init__(self, function: ir.Function, late: Mapping[str, Sequence[ir.Var]], largest: float) -> None:
        sizes = [size_of_local(stmt) for stmt in ir.of_kind(function.body, ir.Alloc)]
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
        return [f"char* const {name} = {self._place(size)};", f"__builtin_memset({name}, 0, {size});"]

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


# ------------------------------------------------------------------------------------------------ late values


LONG = 2000
"""The statements from which a function is long."""

LATE = 50
"""So many statements lie between a value and where it is read."""

MOST = 1 << 16
"""The most values that wait so."""


def late_values(block: ir.Block) -> Mapping[str, Sequence[ir.Var]]:
    """The variables of a block that stand in memory, by their type in C++."""
    if len(block.stmts) < LONG or any(ir.of_kind(block, ir.Native)):
        return {}
    made: dict[ir.Atom, int] = {}
    late: dict[ir.Var, None] = {}
    for number, stmt in enumerate(block.stmts):
        for atom in chain(ir.atoms(stmt), *map(ir.reads, ir.blocks(stmt))):
            if isinstance(atom, ir.Var) and number - made.get(atom, number) > LATE:
                late[atom] = None
        if isinstance(stmt, ir.Let | ir.Load):
            made[stmt.out] = number
    by_type: dict[str, list[ir.Var]] = defaultdict(list)
    for var in sorted(late, key=made.__getitem__)[:MOST]:
        assert isinstance(var.type, Scalar)
        by_type[spelling.value_type(var.type)].append(var)
    return by_type
