"""Whether vector code of a function is faster than scalar code: an estimate from its text.

Arithmetic takes one instruction for all lanes.  Elements that do not lie side by side are moved one by one,
as in scalar code, and more slowly: each costs as much as the arithmetic of some operations saves.  Sums made
lane by lane take as long in either.
"""

from kernelab.codegen.vectors.variation import LINEAR, UNIFORM, VARYING, Variation, variations
from kernelab.codegen.vectors.vector_helpers import Lanes
from kernelab.lang import ir
from kernelab.lang.build import elem_of
from kernelab.lang.types import Scalar, size_of

ITERATIONS = 8
"""The number of times that a loop is taken to run."""

_SLOW = {"div": 4, "sqrt": 4}
_CALL = 16
"""The operations that a mathematical function counts for."""


def operations_an_element(function: ir.Function, lanes: Lanes) -> float:
    """The operations of a scalarised function for each element that its lanes access one by one."""
    estimate = _Estimate(function, lanes)
    estimate.block(function.body, 0, False)
    return estimate.operations / max(estimate.elements, 1e-3)


class _Estimate:
    def __init__(self, function: ir.Function, lanes: Lanes) -> None:
        self.lanes = lanes
        self.variation = variations(function)
        self.depth: dict[ir.Atom, int] = {}
        self.operations = self.elements = 0.0

    def of(self, atom: ir.Atom) -> Variation:
        return UNIFORM if isinstance(atom, ir.Const) else self.variation[atom]

    def block(self, block: ir.Block, depth: int, in_branch: bool) -> None:
        for stmt in block.stmts:
            self.depth |= dict.fromkeys(ir.defs(stmt), depth)
            match stmt:
                case ir.Let(out) if self.of(out) == VARYING:
                    self.operations += self.weight(stmt) * ITERATIONS**depth
                case ir.Load(held=None) | ir.Store() | ir.Atomic():
                    self.access(stmt, depth, in_branch)
                case ir.If(then=then, orelse=orelse):
                    self.block(then, depth, True)
                    self.block(orelse, depth, True)
                case ir.For(body=body) | ir.While(body=body):
                    self.depth |= dict.fromkeys(ir.entering(stmt), depth + 1)
                    self.block(body, depth + 1, False)

    def weight(self, stmt: ir.Let) -> int:
        types = [arg.type for arg in stmt.args if isinstance(arg.type, Scalar)]
        assert isinstance(stmt.out.type, Scalar)
        if len(types) < len(stmt.args):
            return 0
        text = self.lanes.operation(stmt.op, ["x"] * len(types), types, stmt.out.type)
        if text is None:  # a loop over lanes
            return 0
        return _CALL if "_ZGV" in text else _SLOW.get(stmt.op.name, 1)

    def access(self, stmt: ir.Load | ir.Store | ir.Atomic, depth: int, in_branch: bool) -> None:
        kinds = [self.of(index) for index in stmt.indices]
        side_by_side = VARYING not in kinds and kinds[-1] == LINEAR and size_of(elem_of(stmt.array)) == 1
        is_sum = isinstance(stmt, ir.Atomic) and VARYING in kinds
        if is_sum or side_by_side or all(each == UNIFORM for each in kinds):
            return
        # What does not change in a loop is moved before it.
        own = depth if in_branch else max(self.depth.get(index, 0) for index in stmt.indices)
        self.elements += float(ITERATIONS**own)
