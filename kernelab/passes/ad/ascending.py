"""Loops that count down count up instead, as reverse mode takes them.

    before    for k in reversed(n): B(k)
    after     for j in n: k = n - 1 - j; B(k)

Adjoints hold such loops; what a frontend lowers holds none.
"""

from dataclasses import replace

from kernelab.lang.build import constant, type_of
from kernelab.lang.ir import For, Function, Loop, Var, walk
from kernelab.passes.common.copying import Copier


def ascending(function: Function) -> Function:
    """The function with every reversed loop written as an ascending one."""
    if not any(isinstance(stmt, For) and stmt.reverse for stmt in walk(function.body)):
        return function
    return _Ascending().function(function)


class _Ascending(Copier):
    def loop(self, stmt: Loop) -> None:
        if not isinstance(stmt, For) or not stmt.reverse:
            super().loop(stmt)
            return
        b, count, inits = self.builder, self.atom(stmt.count), self.atoms(stmt.inits)
        carries = tuple(self.fresh(carry) for carry in stmt.carries)
        number = Var(stmt.index.type, stmt.index.hint, stmt.index.span)
        with b.block() as body:
            last = b.apply("sub", count, constant(1, type_of(count)))
            self.env[stmt.index] = b.apply("sub", last, number)
            self.stmts(stmt.body)
            yields = self.atoms(stmt.body.yields)
        outs = tuple(self.fresh(out) for out in stmt.outs)
        copied = body.close(*yields)
        b.emit(
            replace(
                stmt,
                outs=outs,
                index=number,
                count=count,
                carries=carries,
                inits=inits,
                body=copied,
                reverse=False,
            )
        )
