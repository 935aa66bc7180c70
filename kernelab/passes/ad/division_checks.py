"""Checks the divisors of integers in an adjoint, which may have changed since the primal checked them.

    before    n: int32 = n[0]
              k: int32 = floordiv(6, n)
    after     n: int32 = n[0]
              assert ne(n, 0)
              k: int32 = floordiv(6, n)

On a CPU an integer division by zero ends the whole process, so no program may run one.
"""

from kernelab.lang.build import type_of, zero
from kernelab.lang.ir import Function, Let, Stmt, Var, walk
from kernelab.lang.types import Scalar
from kernelab.passes.common.copying import Copier


def divisions_checked(function: Function) -> Function:
    """The function with an assertion before each integer division whose divisor is not a constant."""
    return _Checker().function(function) if any(map(_divides, walk(function.body))) else function


def _divides(stmt: Stmt) -> bool:
    if not isinstance(stmt, Let) or stmt.op.name not in ("floordiv", "mod"):
        return False
    return isinstance(stmt.out.type, Scalar) and stmt.out.type.is_int and isinstance(stmt.args[1], Var)


class _Checker(Copier):
    def let(self, stmt: Let) -> None:
        if _divides(stmt):
            divisor = self.atom(stmt.args[1])
            nonzero = self.builder.apply("ne", divisor, zero(type_of(divisor)))
            self.builder.check(nonzero, "division", "integer division by zero")
        super().let(stmt)
