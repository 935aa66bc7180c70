"""NaN provenance: computes, with each float, the place at which it first turned NaN or infinite.

    before    t = log(x[i]); y[i] = t * 2
    after     t = log(x[i]); t_from = where(isfinite(t), 0, <here, or from x[i]>)
              u = t * 2;     u_from = where(isfinite(u), 0, <from t, or here>)
              y[i] = u;      if u_from != 0 and culprits[thread] == 0: culprits[thread] = u_from

A value that is finite again takes nothing on, so what a branch or a selection leaves out is not blamed.
With `data`, infinities that come from memory or stand in the text are data: blamed is what the program
computes of finite numbers, a NaN that it computes of numbers, and a NaN that it reads and passes on.
Works on scalarised programs without calls, primals and adjoints alike; the result has one parameter more, an
array of one int32 a thread.  `where_it_began` reads what it holds afterwards.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kernelab.errors import Span
from kernelab.lang import ir
from kernelab.lang.build import Builder, integer, type_of
from kernelab.lang.types import Array, bool_, int32, int64, is_differentiable, with_scalar

Word = Literal["nan", "inf", "-inf"]
_WORDS: tuple[Word, ...] = ("nan", "inf", "-inf")
_KINDS = 4
"""A culprit is the number of its site, counted from 1, times this, plus the number of its word, from 1."""

CLEAN = integer(0)


@dataclass(frozen=True, slots=True)
class Site:
    """A place where a value can turn; `array` is what it was read from, `value` a parameter, if either."""

    span: Span
    array: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True)
class Poisoned:
    """A program that finds culprits, and what their numbers mean."""

    function: ir.Function
    sites: tuple[Site, ...]

    def where_it_began(self, culprit: int) -> tuple[Site, Word]:
        """The place that a number in the array of culprits stands for, and what the value turned into."""
        site, word = divmod(culprit, _KINDS)
        return self.sites[site - 1], _WORDS[word - 1]


def poison(function: ir.Function, data: bool = False) -> Poisoned:
    """The program with every float accompanied."""
    thread = function.linear or ir.Var(int64, "thread", function.span)
    culprits = ir.Var(Array(int32, 1), "culprits", function.span)
    poisoner = _Poisoner(function, thread, culprits, data)
    body = poisoner.whole(function)
    made = replace(
        function,
        params=(*function.params, culprits),
        body=body,
        linear=thread,
    )
    return Poisoned(made, tuple(poisoner.sites))


class _Poisoner(Builder):
    """Copies statements as they are and adds what accompanies them."""

    def __init__(self, function: ir.Function, thread: ir.Var, culprits: ir.Var, data: bool) -> None:
        super().__init__(function.span)
        self.data = data
        self.thread = thread
        self.culprits = culprits
        self.sites: list[Site] = []
        self.marks: dict[ir.Var, ir.Atom] = {}
        self.locals: dict[ir.Var, ir.Var] = {}

    def whole(self, function: ir.Function) -> ir.Block:
        for param in function.params:
            if not isinstance(param.type, Array) and _is_float(param):
                mark = self.begins(Site(param.span, value=param.hint), param)
                self.marks[param] = self.brought(param, mark)
        self.stmts(function.body)
        return self.close(*function.body.yields)

    # -------------------------------------------------------------------------------------- marks

    def mark(self, atom: ir.Atom) -> ir.Atom:
        """The mark of a float."""
        return CLEAN if isinstance(atom, ir.Const) else self.marks[atom]

    def mark_all(self, atoms: Iterable[ir.Atom]) -> tuple[ir.Atom, ...]:
        return tuple(self.mark(atom) for atom in atoms if _is_float(atom))

    def fresh(self, vars: Iterable[ir.Var]) -> tuple[ir.Var, ...]:
        """Vars to accompany the floats among those that a statement defines."""
        made = {var: ir.Var(int32, f"{var.hint}_from", var.span) for var in vars if _is_float(var)}
        self.marks.update(made)
        return tuple(made.values())

    def begins(self, site: Site, value: ir.Atom) -> ir.Atom:
        """The number that says that `value` turned at this site."""
        self.sites.append(site)
        above = self.apply("gt", value, ir.Const(0.0, type_of(value)))
        infinite = self.apply("where", above, integer(2), integer(3))
        word = self.apply("where", self.apply("isnan", value), integer(1), infinite)
        return self.apply("add", integer(len(self.sites) * _KINDS), word)

    def turned(self, value: ir.Atom, mark: ir.Atom) -> ir.Atom:
        """The mark of a value that has one only where it is not finite."""
        if isinstance(value, ir.Const):
            return CLEAN if math.isfinite(value.value) else mark
        return self.apply("where", self.apply("isfinite", value), CLEAN, mark)

    def brought(self, value: ir.Atom, mark: ir.Atom) -> ir.Atom:
        """The mark of a value that comes into the program, which did not make it."""
        if not self.data:
            return self.turned(value, mark)
        return self.apply("where", self.apply("isnan", value), mark, CLEAN)

    def born(self, value: ir.Atom, operands: Iterable[ir.Atom], here: ir.Atom) -> ir.Atom:
        """The mark of a value whose operands have none: `here`, unless it is infinite as they are."""
        if not self.data:
            return here
        makes = self.apply("isnan", value)
        finite: ir.Atom = ir.Const(True, bool_)
        for operand in operands:
            if _is_float(operand):
                finite = self.apply("and", finite, self.apply("isfinite", operand))
        return self.apply("where", self.apply("or", makes, finite), here, CLEAN)

    def first(self, marks: Sequence[ir.Atom], otherwise: ir.Atom) -> ir.Atom:
        """The first mark that is one."""
        for mark in reversed(marks):
            if mark != CLEAN:
                marked = self.apply("ne", mark, CLEAN)
                otherwise = self.apply("where", marked, mark, otherwise)
        return otherwise

    # -------------------------------------------------------------------------------------- statements

    def stmts(self, block: ir.Block) -> None:
        for stmt in block.stmts:
            with self.at(stmt.span):
                self.stmt(stmt)

    def stmt(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.If():
                self.choice(stmt)
            case ir.For() | ir.While():
                self.loop(stmt)
            case ir.Save(stack, saved, span):
                self.emit(ir.Save(stack, (*saved, *self.mark_all(saved)), span))
            case ir.Restore(stack, outs, span):
                self.emit(ir.Restore(stack, (*outs, *self.fresh(outs)), span))
            case _:
                self.emit(stmt)
                self.accompany(stmt)

    def accompany(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Let(out, op, args, span) if _is_float(out):
                here = self.begins(Site(span), out)
                if op.name == "where":
                    came = self.apply("where", args[0], self.mark(args[1]), self.mark(args[2]))
                    mark = came if self.data else self.first([came], here)
                else:
                    mark = self.first(self.mark_all(args), self.born(out, args, here))
                self.marks[out] = self.turned(out, mark)
            case ir.Alloc(out, shape, span) if is_differentiable(out.type):
                assert isinstance(out.type, Array)
                accompanied = Array(with_scalar(out.type.elem, int32), out.type.ndim)
                self.locals[out] = ir.Var(accompanied, f"{out.hint}_from", span)
                self.emit(ir.Alloc(self.locals[out], shape, span))
            case ir.Native(outs, _, args, span):
                before = self.mark_all(args)
                for out in (out for out in outs if _is_float(out)):
                    here = self.born(out, args, self.begins(Site(span), out))
                    self.marks[out] = self.turned(out, self.first(before, here))
            case ir.Load(out) if _is_float(out):
                self.loaded(stmt)
            case ir.Store(array, _, value) if _is_float(value):
                self.store_of(stmt, array, value)
            case ir.Atomic(out, _, array, _, value) if _is_float(out):
                self.atomic_of(stmt, out, array, value)
            case _:
                pass

    def load_mark(self, stmt: ir.Load | ir.Store | ir.Atomic, out: ir.Var) -> ir.Atom:
        if stmt.array not in self.locals:
            return self.brought(out, self.begins(Site(stmt.span, array=stmt.array.hint), out))
        mark = ir.Var(int32, f"{out.hint}_from", stmt.span)
        self.emit(ir.Load(mark, self.locals[stmt.array], stmt.indices, stmt.span, None, stmt.component))
        return mark

    def loaded(self, stmt: ir.Load) -> None:
        # What is held of a parameter was read from it, wherever it is kept now.
        held = self.mark_all([stmt.held]) if stmt.held is not None and stmt.array in self.locals else ()
        own = self.load_mark(stmt, stmt.out)
        self.marks[stmt.out] = self.turned(stmt.out, self.first(held, own))

    def store_of(self, stmt: ir.Store, array: ir.Var, value: ir.Atom) -> None:
        here = CLEAN if self.data else self.begins(Site(stmt.span), value)
        mark = self.turned(value, self.first(self.mark_all([value]), here))
        if array in self.locals:
            self.emit(ir.Store(self.locals[array], stmt.indices, mark, stmt.span, stmt.component))
        else:
            self.report(mark)

    def atomic_of(self, stmt: ir.Atomic, out: ir.Var, array: ir.Var, value: ir.Atom) -> None:
        old = self.load_mark(stmt, out)
        self.marks[out] = self.turned(out, old)
        result = self.apply("add", out, value) if stmt.kind == "add" else value
        here = self.born(result, (out, value), self.begins(Site(stmt.span), result))
        mark = self.turned(result, self.first(self.mark_all([value]), here))
        if stmt.kind == "add":
            # An element that was not finite before is none of this thread's doing.
            mark = self.apply("where", self.apply("isfinite", out), mark, CLEAN)
        if array in self.locals:
            self.emit(ir.Store(self.locals[array], stmt.indices, mark, stmt.span, stmt.component))
        else:
            self.report(mark)

    def report(self, mark: ir.Atom) -> None:
        """Leave the mark with the thread, unless it has an earlier one."""
        if mark == CLEAN:
            return
        with self.block() as reported:
            held = self.load(self.culprits, [self.thread])
            first = self.apply("where", self.apply("eq", held, CLEAN), mark, held)
            self.store(self.culprits, [self.thread], first)
        with self.block() as nothing:
            pass
        self.emit(ir.If((), self.apply("ne", mark, CLEAN), reported.close(), nothing.close(), self.span))

    # -------------------------------------------------------------------------------------- regions

    def nested(self, block: ir.Block) -> ir.Block:
        with self.block() as inner:
            self.stmts(block)
        return inner.close(*block.yields, *self.mark_all(block.yields))

    def choice(self, stmt: ir.If) -> None:
        then, orelse = self.nested(stmt.then), self.nested(stmt.orelse)
        outs = (*stmt.outs, *self.fresh(stmt.outs))
        self.emit(ir.If(outs, stmt.cond, then, orelse, stmt.span))

    def loop(self, stmt: ir.Loop) -> None:
        inits = (*stmt.inits, *self.mark_all(stmt.inits))
        carries = (*stmt.carries, *self.fresh(stmt.carries))
        body = self.nested(stmt.body)
        outs = (*stmt.outs, *self.fresh(stmt.outs))
        if isinstance(stmt, ir.For):
            made = ir.For(
                outs, stmt.index, stmt.count, carries, inits, body, stmt.span, stmt.reverse, stmt.stop
            )
            self.emit(made)
        else:
            self.emit(ir.While(outs, carries, inits, stmt.stop, body, stmt.span, stmt.ends))


def _is_float(atom: ir.Atom) -> bool:
    return not isinstance(atom.type, Array) and is_differentiable(atom.type)
