"""Simplification: constants fold, equal expressions are computed once, constant carries go away.

    before    a = mul(x, y); b = mul(x, y); c = add(a, b)
    after     a = mul(x, y); c = add(a, a)

Only what is exact: the program means the same to the last bit.
"""

from dataclasses import replace
from typing import TypeVar

from kernelab.lang.build import integer, type_of
from kernelab.lang.ir import Atom, Block, Const, For, Function, If, Let, Loop, While
from kernelab.passes.common.copying import Copier
from kernelab.passes.common.eliminate import eliminate

_Key = tuple[object, ...]
_T = TypeVar("_T")


def simplify(function: Function) -> Function:
    """The function simplified, without dead code."""
    return eliminate(_Simplifier().function(function))


class _Simplifier(Copier):
    """`_known` holds, a dictionary an open block, the pure expressions computed so far."""

    def function(self, function: Function) -> Function:
        self._known: list[dict[_Key, Atom]] = [{}]
        return super().function(function)

    def block(self, block: Block) -> Block:
        self._known.append({})
        try:
            return super().block(block)
        finally:
            self._known.pop()

    def let(self, stmt: Let) -> None:
        args = self.atoms(stmt.args)
        key = (stmt.op, stmt.out.type, *map(_identity, args))
        for known in reversed(self._known):
            if key in known:
                self.env[stmt.out] = known[key]
                return
        value = self.builder.let(stmt.op, args, type_of(stmt.out), stmt.out.hint)
        self._known[-1][key] = value
        self.env[stmt.out] = value

    def if_(self, stmt: If) -> None:
        if isinstance(self.atom(stmt.cond), Const):
            super().if_(stmt)
            return
        then, orelse = self.block(stmt.then), self.block(stmt.orelse)
        # A Var that both branches yield stands outside of both.
        pairs = list(zip(stmt.outs, then.yields, orelse.yields, strict=True))
        differ = [i for i, (_, a, b) in enumerate(pairs) if _identity(a) != _identity(b)]
        self.env.update((out, a) for i, (out, a, _) in enumerate(pairs) if i not in differ)
        outs = tuple(self.fresh(stmt.outs[i]) for i in differ)
        then = Block(then.stmts, _pick(differ, then.yields))
        orelse = Block(orelse.stmts, _pick(differ, orelse.yields))
        self.builder.emit(If(outs, self.atom(stmt.cond), then, orelse, stmt.span))

    def loop(self, stmt: Loop) -> None:
        if isinstance(stmt, For) and self.atom(stmt.count) == integer(0):
            self.env.update(zip(stmt.outs, self.atoms(stmt.inits), strict=True))
            return
        fixed = {i for i in range(len(stmt.carries)) if i != stmt.stop and self._never_changes(stmt, i)}
        for i in fixed:
            self.env[stmt.carries[i]] = self.env[stmt.outs[i]] = self.atom(stmt.inits[i])
        super().loop(_without(stmt, fixed) if fixed else stmt)

    def _never_changes(self, stmt: Loop, i: int) -> bool:
        yielded = stmt.body.yields[i]
        if yielded is stmt.carries[i]:
            return True
        return isinstance(yielded, Const) and _identity(yielded) == _identity(self.atom(stmt.inits[i]))


def _identity(atom: Atom) -> object:
    # Constants that compare equal may still differ: 0.0 and -0.0, 1 and True.
    return (repr(atom.value), atom.type) if isinstance(atom, Const) else atom


def _without(stmt: Loop, dropped: set[int]) -> Loop:
    kept = [i for i in range(len(stmt.carries)) if i not in dropped]
    outs, carries, inits = _pick(kept, stmt.outs), _pick(kept, stmt.carries), _pick(kept, stmt.inits)
    body = Block(stmt.body.stmts, _pick(kept, stmt.body.yields))
    stop = None if stmt.stop is None else kept.index(stmt.stop)
    if isinstance(stmt, For):
        return replace(stmt, outs=outs, carries=carries, inits=inits, body=body, stop=stop)
    assert stop is not None
    return While(outs, carries, inits, stop, body, stmt.span, stmt.ends)


def _pick(kept: list[int], items: tuple[_T, ...]) -> tuple[_T, ...]:
    return tuple(items[i] for i in kept)
