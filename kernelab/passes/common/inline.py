"""Inlining: a call becomes the statements of the function called.

    before    y: float32 = call square(x)
    after     y: float32 = mul(x, x)

Recursion is refused before a call is made, so this ends.  Calls for a gradient are expanded before
(`expand_gradients`).  A call of a function whose derivative a user wrote
stays together until it has been differentiated:

    before    y: float32 = call safe_sqrt(x)
    laid out  y: float32 = custom safe_sqrt(x)
                r: float32 = sqrt(x)
                yield r
    after     y: float32 = sqrt(x)
"""

from collections.abc import Sequence

from kernelab.lang.ir import Atom, Call, Custom, Function, Stmt
from kernelab.passes.common.copying import Copier


def inline(function: Function) -> Function:
    """The function with every call replaced by what it does, to any depth."""
    return _Inliner().function(function)


def lay_out(function: Function) -> Function:
    """The function with its calls inlined, those with derivatives that users wrote as `Custom` statements."""
    return _LayingOut().function(function)


class _Inliner(Copier):
    def stmt(self, stmt: Stmt) -> None:
        match stmt:
            case Call():
                assert not stmt.gradient, "expand_gradients comes first"
                self.call(stmt)
            case Custom():
                self.stmts(stmt.body)
                self.env.update(zip(stmt.outs, self.atoms(stmt.body.yields), strict=True))
            case _:
                super().stmt(stmt)

    def call(self, stmt: Call) -> None:
        self.env.update(zip(stmt.outs, self.entered(stmt.function, self.atoms(stmt.args)), strict=True))

    def entered(self, function: Function, args: Sequence[Atom]) -> tuple[Atom, ...]:
        """The results of a function, its statements written out."""
        callee = type(self)(self.builder, dict(zip(function.params, args, strict=True)))
        callee.stmts(function.body)
        return callee.atoms(function.body.yields)


class _LayingOut(_Inliner):
    def stmt(self, stmt: Stmt) -> None:
        if isinstance(stmt, Custom):
            self.custom(stmt)
        else:
            super().stmt(stmt)

    def call(self, stmt: Call) -> None:
        rules = stmt.function.custom
        if rules is None:
            super().call(stmt)
            return
        args = self.atoms(stmt.args)
        callee = _LayingOut(self.builder, dict(zip(stmt.function.params, args, strict=True)))
        body = callee.block(stmt.function.body)
        outs = tuple(self.fresh(out) for out in stmt.outs)
        self.builder.emit(Custom(outs, args, rules, body, stmt.span))
