"""Simplification: constant folding, common subexpressions, dead code, and loads of what is known.

    before    y[i] = v; u = y[i]; w = mul(u, x[j]); z = add(w, x[j])
    after     y[i] = v; t = x[j]; w = mul(v, t); z = add(w, t)

A load of an element that the thread has just read or written is replaced by that value: what stood in memory
between is not kept, and its derivative takes the short way.  A write to an array forgets what is known of it,
and of the arrays that may share its memory.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from kernelab.lang import ir
from kernelab.lang.build import integer, type_of
from kernelab.lang.dependence import decided_by
from kernelab.lang.types import is_differentiable
from kernelab.passes.common.copying import Copier
from kernelab.passes.common.effects import Groups, aliases, block_effects


def eliminate(function: ir.Function) -> ir.Function:
    """The function without dead code."""
    needs: dict[_Node, list[_Node]] = {}
    _find_needs(function.body, [], needs)
    effects = (stmt for stmt in ir.walk(function.body) if _has_effect(stmt))
    needed: set[_Node] = set()
    waiting: list[_Node] = [*effects, *function.body.yields]
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting += needs.get(node, ())
    return replace(function, body=_Sweeper(needed).block(function.body))


_Node = ir.Atom | ir.Stmt | tuple[ir.Stack, int]
"""A value, a statement or a position of what a stack holds."""


def _find_needs(block: ir.Block, around: list[_Node], needs: dict[_Node, list[_Node]]) -> None:
    """Note what each value and statement of a block needs; its statements need what is `around`."""
    for stmt in block.stmts:
        own = needs[stmt] = [*around, *decided_by(stmt)]
        match stmt:
            case ir.If(outs, _, then, orelse):
                for out, yes, no in zip(outs, then.yields, orelse.yields, strict=True):
                    needs[out] = [stmt, yes, no]
            case ir.For() | ir.While():
                if isinstance(stmt, ir.For):
                    needs[stmt.index] = [stmt]
                for out, carry, *values in zip(
                    stmt.outs, stmt.carries, stmt.inits, stmt.body.yields, strict=True
                ):
                    needs[out], needs[carry] = [carry], [stmt, *values]
            case ir.Save(stack, atoms):
                for i, atom in enumerate(atoms):
                    needs.setdefault((stack, i), []).extend((stmt, atom))
            case ir.Restore(stack, outs):
                needs.update((out, [stmt, (stack, i)]) for i, out in enumerate(outs))
            case ir.Custom(outs, args, _, body):
                own += (*args, *body.yields)
                needs.update((out, [stmt]) for out in outs)
            case _:
                own += ir.atoms(stmt)
                for out in ir.defs(stmt):
                    needs[out] = [stmt]
        for inner in ir.blocks(stmt):
            _find_needs(inner, [stmt], needs)


class _Sweeper:
    def __init__(self, needed: set[_Node]) -> None:
        self.needed = needed

    def block(self, block: ir.Block, kept: list[int] | None = None) -> ir.Block:
        stmts = tuple(self.stmt(stmt) for stmt in block.stmts if stmt in self.needed)
        yields = block.yields if kept is None else tuple(block.yields[i] for i in kept)
        return ir.Block(stmts, yields)

    def stmt(self, stmt: ir.Stmt) -> ir.Stmt:
        match stmt:
            case ir.If(outs, cond, then, orelse, span):
                kept = [i for i, out in enumerate(outs) if out in self.needed]
                live = tuple(outs[i] for i in kept)
                return ir.If(live, cond, self.block(then, kept), self.block(orelse, kept), span)
            case ir.For() | ir.While():
                return self.loop(stmt)
            case ir.Custom(outs, args, rules, body, span):
                return ir.Custom(outs, args, rules, self.block(body), span)
            case ir.Save(stack, saved, span):
                values = tuple(a for i, a in enumerate(saved) if (stack, i) in self.needed)
                return ir.Save(stack, values, span)
            case ir.Restore(stack, outs, span):
                vars = tuple(v for i, v in enumerate(outs) if (stack, i) in self.needed)
                return ir.Restore(stack, vars, span)
            case _:
                return stmt

    def loop(self, stmt: ir.Loop) -> ir.Stmt:
        kept = [i for i, carry in enumerate(stmt.carries) if carry in self.needed]
        return _carrying(replace(stmt, body=self.block(stmt.body)), kept)


def _has_effect(stmt: ir.Stmt) -> bool:
    """Whether a statement does more than to compute values: a loop that may run forever does."""
    match stmt:
        case ir.Store() | ir.Atomic() | ir.Assert() | ir.Print() | ir.Append() | ir.Call():
            return True
        case ir.Native():
            return not stmt.outs or bool(stmt.changed)
        case ir.While():
            return not stmt.ends
        case _:
            return False


# -------------------------------------------------------------------------------------------------- simplify


_Key = tuple[object, ...]
_T = TypeVar("_T")


def simplify(function: ir.Function, merged: bool = True) -> ir.Function:
    """The function simplified, without dead code.

    With `merged=False`, floats that are computed twice stay apart: each has the line of its own text.
    """
    return eliminate(_Simplifier(merged).function(function))


class _Simplifier(Copier):
    """`_computed` holds, a dictionary an open block, the pure expressions computed so far.

    `_same` has the first Var with the value of one that stays apart from it.
    """

    def __init__(self, merged: bool) -> None:
        super().__init__()
        self.merged = merged
        self._same: dict[ir.Atom, ir.Atom] = {}

    def function(self, function: ir.Function) -> ir.Function:
        self._computed: list[dict[_Key, ir.Atom]] = [{}]
        return super().function(function)

    def block(self, block: ir.Block) -> ir.Block:
        self._computed.append({})
        try:
            return super().block(block)
        finally:
            self._computed.pop()

    def let(self, stmt: ir.Let) -> None:
        args = self.atoms(stmt.args)
        key = (stmt.op, stmt.out.type, *[self._same.get(arg, arg) for arg in args])
        earlier = next((scope[key] for scope in reversed(self._computed) if key in scope), None)
        if earlier is not None and (self.merged or not is_differentiable(stmt.out.type)):
            self.env[stmt.out] = earlier
            return
        value = self.builder.let(stmt.op, args, type_of(stmt.out), stmt.out.hint)
        self.env[stmt.out] = value
        if earlier is None:
            self._computed[-1][key] = value
        else:
            self._same[value] = earlier

    def if_(self, stmt: ir.If) -> None:
        if isinstance(self.atom(stmt.cond), ir.Const):
            super().if_(stmt)
            return
        then, orelse = self.block(stmt.then), self.block(stmt.orelse)
        # A Var that both branches yield stands outside of both.
        pairs = list(zip(stmt.outs, then.yields, orelse.yields, strict=True))
        differ = [i for i, (_, a, b) in enumerate(pairs) if a != b]
        self.env.update((out, a) for i, (out, a, _) in enumerate(pairs) if i not in differ)
        outs = tuple(self.fresh(stmt.outs[i]) for i in differ)
        then = ir.Block(then.stmts, _pick(differ, then.yields))
        orelse = ir.Block(orelse.stmts, _pick(differ, orelse.yields))
        self.builder.emit(ir.If(outs, self.atom(stmt.cond), then, orelse, stmt.span))

    def loop(self, stmt: ir.Loop) -> None:
        if isinstance(stmt, ir.For) and self.atom(stmt.count) == integer(0):
            self.env.update(zip(stmt.outs, self.atoms(stmt.inits), strict=True))
            return
        kept = [i for i in range(len(stmt.carries)) if i == stmt.stop or not self._never_changes(stmt, i)]
        for i in set(range(len(stmt.carries))).difference(kept):
            self.env[stmt.carries[i]] = self.env[stmt.outs[i]] = self.atom(stmt.inits[i])
        super().loop(_carrying(stmt, kept) if len(kept) < len(stmt.carries) else stmt)
        count = self.atom(stmt.count) if isinstance(stmt, ir.For) else None
        if isinstance(count, ir.Const) and count.value > 0:
            last = zip(stmt.outs, stmt.body.yields, strict=True)
            self.env.update((out, value) for out, value in last if isinstance(value, ir.Const))

    def _never_changes(self, stmt: ir.Loop, i: int) -> bool:
        yielded = stmt.body.yields[i]
        if yielded is stmt.carries[i]:
            return True
        return isinstance(yielded, ir.Const) and yielded == self.atom(stmt.inits[i])


def _carrying(stmt: ir.Loop, kept: list[int]) -> ir.Loop:
    """A loop that carries no more than the values at some positions."""
    fields: dict[str, Any] = {
        "outs": _pick(kept, stmt.outs),
        "carries": _pick(kept, stmt.carries),
        "inits": _pick(kept, stmt.inits),
        "body": ir.Block(stmt.body.stmts, _pick(kept, stmt.body.yields)),
        "stop": None if stmt.stop is None else kept.index(stmt.stop),
    }
    return replace(stmt, **fields)


def _pick(kept: list[int], items: tuple[_T, ...]) -> tuple[_T, ...]:
    return tuple(items[i] for i in kept)


def without_zeros(adjoint: ir.Function) -> ir.Function:
    """An adjoint without its additions of zero: it is not to seem to reach what it does not change."""
    used = frozenset(ir.reads(adjoint.body))
    return without_atomics(adjoint, lambda stmt: adds_nothing(stmt) and stmt.out not in used)


def adds_nothing(stmt: ir.Stmt) -> bool:
    """Whether a statement adds zero to an element."""
    if not isinstance(stmt, ir.Atomic) or stmt.kind != "add":
        return False
    return isinstance(stmt.value, ir.Const) and stmt.value.value == 0


def without_atomics(function: ir.Function, are_left_out: Callable[[ir.Atomic], bool]) -> ir.Function:
    """A function without some of its atomics, whose results nobody reads."""
    return _WithoutAtomics(are_left_out).function(function)


class _WithoutAtomics(Copier):
    def __init__(self, are_left_out: Callable[[ir.Atomic], bool]) -> None:
        super().__init__()
        self.are_left_out = are_left_out

    def atomic(self, stmt: ir.Atomic) -> None:
        if not self.are_left_out(stmt):
            super().atomic(stmt)


# ------------------------------------------------------------------------------------- loads of what is known


_Element = tuple[object, ...]


def forward(function: ir.Function, groups: Groups = (), merged: bool = True) -> ir.Function:
    """The function without the loads whose value is known.

    With `merged=False`, loads of floats that follow other loads stay where they stand, and hold that value.
    """
    return _Forwarder(function, groups, merged).function(function)


class _Forwarder(Copier):
    def __init__(self, function: ir.Function, groups: Groups, merged: bool) -> None:
        super().__init__()
        self.shared = aliases(function, groups)
        self.merged = merged
        self.elements: dict[_Element, ir.Atom] = {}
        self.loaded: set[ir.Atom] = set()

    def stmt(self, stmt: ir.Stmt) -> None:
        super().stmt(stmt)
        for array in ir.changed(stmt):
            self.forget(array)
        for block in ir.blocks(stmt):
            self.forget_changed(block)
        if isinstance(stmt, ir.Store):
            self.elements[self.element(stmt.array, stmt.indices)] = self.atom(stmt.value)

    def block(self, block: ir.Block) -> ir.Block:
        before = dict(self.elements)
        copied = super().block(block)
        self.elements = before
        return copied

    def loop(self, stmt: ir.For | ir.While) -> None:
        self.forget_changed(stmt.body)
        super().loop(stmt)

    def load(self, stmt: ir.Load) -> None:
        element = self.element(stmt.array, stmt.indices)
        value = self.elements.get(element)
        is_apart = not self.merged and value in self.loaded and is_differentiable(stmt.out.type)
        if value is not None and not is_apart:
            self.env[stmt.out] = value
            self._share_name(value, stmt)
            return
        super().load(replace(stmt, held=value) if value is not None else stmt)
        self.elements[element] = self.atom(stmt.out)
        self.loaded.add(self.atom(stmt.out))

    def _share_name(self, value: ir.Atom, stmt: ir.Load) -> None:
        """A loaded value that stands for several of the user's names is named after its element."""
        if isinstance(value, ir.Var) and value in self.loaded and value.hint != stmt.out.hint:
            places = (i.hint if isinstance(i, ir.Var) else str(i.value) for i in stmt.indices)
            value.hint = "_".join([stmt.array.hint, *places]).replace("-", "")

    def element(self, array: ir.Var, indices: tuple[ir.Atom, ...]) -> _Element:
        keys = [atom.value if isinstance(atom, ir.Const) else atom for atom in self.atoms(indices)]
        return (array, *keys)

    def forget(self, array: ir.Var) -> None:
        lost = self.shared[array]
        self.elements = {element: value for element, value in self.elements.items() if element[0] not in lost}

    def forget_changed(self, block: ir.Block) -> None:
        for array in block_effects(block).changed:
            self.forget(array)
