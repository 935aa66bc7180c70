"""Values of a long function that are read long after they are computed, as those that an adjoint replays.

A compiler takes time with the square of how many values wait for a register.  These wait in an array, which
is volatile: a compiler that looked through it would have them wait for registers again.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from kernelab.codegen.cpp import spelling
from kernelab.lang import ir
from kernelab.lang.types import Scalar

LONG = 2000
"""The statements from which this counts."""

LATE = 50
"""So many statements lie between a value and where it is read."""

MOST = 1 << 16
"""The most values that wait so."""


def late_values(block: ir.Block) -> Mapping[str, Sequence[ir.Var]]:
    """The variables of a block that stand in memory, by their type in C++."""
    if len(block.stmts) < LONG or any(isinstance(stmt, ir.Native) for stmt in ir.walk(block)):
        return {}
    made: dict[ir.Atom, int] = {}
    late: dict[ir.Var, None] = {}
    for number, stmt in enumerate(block.stmts):
        read = {*ir.atoms(stmt)}.union(*(ir.reads(inner) for inner in ir.blocks(stmt)))
        late |= dict.fromkeys(
            atom for atom in read if isinstance(atom, ir.Var) and number - made.get(atom, number) > LATE
        )
        if isinstance(stmt, ir.Let | ir.Load):
            made[stmt.out] = number
    by_type: dict[str, list[ir.Var]] = defaultdict(list)
    for var in sorted(late, key=made.__getitem__)[:MOST]:
        assert isinstance(var.type, Scalar)
        by_type[spelling.value_type(var.type)].append(var)
    return by_type
