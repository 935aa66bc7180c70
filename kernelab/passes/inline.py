"""Inlining: a call becomes the statements of the function called.

    before    y: float32 = call square(x)
    after     y: float32 = mul(x, x)

Recursion is refused before a call is made, so this ends.
"""

from kernelab.lang.ir import Call, Function, Stmt
from kernelab.passes.copying import Copier


def inline(function: Function) -> Function:
    """The function with every call replaced by what it does, to any depth."""
    return _Inliner().function(function)


class _Inliner(Copier):
    def stmt(self, stmt: Stmt) -> None:
        if not isinstance(stmt, Call):
            super().stmt(stmt)
            return
        callee = _Inliner(self.builder, dict(zip(stmt.function.params, self.atoms(stmt.args), strict=True)))
        callee.stmts(stmt.function.body)
        self.env.update(zip(stmt.outs, callee.atoms(stmt.function.body.yields), strict=True))
