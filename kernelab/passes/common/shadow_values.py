"""Programs that carry a second value with each: the place where it turned NaN, or the inputs it depends on.

    before    t = log(x[i]); y[i] = t * 2
    after     t = log(x[i]); t_from = where(isfinite(t), 0, <here, or from x[i]>)
              u = t * 2;     u_from = where(isfinite(u), 0, <from t, or here>)
              y[i] = u;      if u_from != 0 and culprits[thread] == 0: culprits[thread] = u_from

A value that is finite again has no mark, so nothing that a branch or a selection leaves out is blamed.
With `data`, infinities that come from memory or stand in the text are data: blamed is what the program
computes of finite numbers, a NaN that it computes of numbers, and a NaN that it reads and passes on.
Works on scalarised programs without calls, primals and adjoints alike; the result has one parameter more, an
array of one int32 a thread.  `where_it_began` reads what it holds afterwards.

    before    f(x, y)                  y[i] = x[i] * x[i + 1]
    after     f(x, y, x_dep, y_dep)    y[i] = x[i] * x[i + 1]; y_dep[i, 0] = x_dep[i, 0] | x_dep[i + 1, 0]

A bit stands for one of 64 inputs, or of 64 groups of them.  Bits flow where derivatives do: not through an
operation whose derivative is zero, nor through integers.  They are exact for the branches that are taken; a
selection (`where`, `min`) counts as depending on both sides.  Expects a scalarised function without calls.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Literal

from kernelab.data_classes import dataclass, replace
from kernelab.errors import Span
from kernelab.lang import ir
from kernelab.lang.build import TRUE, elem_of, integer, is_float, ndim_of, type_of
from kernelab.lang.ops import Zero
from kernelab.lang.types import Array, int32, int64, is_differentiable, size_of, uint64, with_scalar
from kernelab.passes.common.copying import Accompanying
from kernelab.passes.common.simplify import simplify

# --------------------------------------------------------------------------------------------- NaN provenance


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
    poisoner = _Poisoner(thread, culprits, data)
    program = replace(poisoner.function(function), params=(*function.params, culprits), linear=thread)
    return Poisoned(program, tuple(poisoner.sites))


class _Poisoner(Accompanying):
    """Gives each float, for a companion, the mark of the place at which it turned."""

    def __init__(self, thread: ir.Var, culprits: ir.Var, data: bool) -> None:
        super().__init__()
        self.data = data
        self.thread = thread
        self.culprits = culprits
        self.sites: list[Site] = []
        self.locals: dict[ir.Var, ir.Var] = {}

    def function(self, function: ir.Function) -> ir.Function:
        with self.builder.at(function.span):
            for param in function.params:
                if is_float(param):
                    mark = self.begins(Site(param.span, value=param.hint), param)
                    self.companions[param] = self.brought(param, mark)
        return super().function(function)

    # -------------------------------------------------------------------------------------- marks

    def is_accompanied(self, atom: ir.Atom) -> bool:
        return is_float(atom)

    def companion(self, atom: ir.Atom) -> ir.Atom:
        return CLEAN if isinstance(atom, ir.Const) else self.companions[atom]

    def new_companion(self, var: ir.Var) -> ir.Var:
        mark = self.companions[var] = ir.Var(int32, f"{var.hint}_from", var.span)
        return mark

    def mark_all(self, atoms: Iterable[ir.Atom]) -> tuple[ir.Atom, ...]:
        return tuple(self.companion(atom) for atom in atoms if is_float(atom))

    def begins(self, site: Site, value: ir.Atom) -> ir.Atom:
        """The number that says that `value` turned at this site."""
        b = self.builder
        self.sites.append(site)
        above = b.apply("gt", value, ir.Const(0.0, type_of(value)))
        infinite = b.apply("where", above, integer(2), integer(3))
        word = b.apply("where", b.apply("isnan", value), integer(1), infinite)
        return b.apply("add", integer(len(self.sites) * _KINDS), word)

    def turned(self, value: ir.Atom, mark: ir.Atom) -> ir.Atom:
        """The mark of a value that has one only where it is not finite."""
        if isinstance(value, ir.Const):
            return CLEAN if math.isfinite(value.value) else mark
        return self.builder.apply("where", self.builder.apply("isfinite", value), CLEAN, mark)

    def brought(self, value: ir.Atom, mark: ir.Atom) -> ir.Atom:
        """The mark of a value that comes into the program, which did not make it."""
        if not self.data:
            return self.turned(value, mark)
        return self.builder.apply("where", self.builder.apply("isnan", value), mark, CLEAN)

    def born(self, value: ir.Atom, operands: Iterable[ir.Atom], here: ir.Atom) -> ir.Atom:
        """The mark of a value whose operands have none: `here`, unless it is infinite as they are."""
        if not self.data:
            return here
        b, makes = self.builder, self.builder.apply("isnan", value)
        finite: ir.Atom = TRUE
        for operand in filter(is_float, operands):
            finite = b.apply("and", finite, b.apply("isfinite", self.atom(operand)))
        return b.apply("where", b.apply("or", makes, finite), here, CLEAN)

    def first(self, marks: Sequence[ir.Atom], otherwise: ir.Atom) -> ir.Atom:
        """The first mark that is one."""
        for mark in reversed(marks):
            if mark != CLEAN:
                marked = self.builder.apply("ne", mark, CLEAN)
                otherwise = self.builder.apply("where", marked, mark, otherwise)
        return otherwise

    # -------------------------------------------------------------------------------------- statements

    def stmt(self, stmt: ir.Stmt) -> None:
        super().stmt(stmt)
        match stmt:
            case ir.Let(out, op, args, span) if is_float(out):
                value, marks = self.atom(out), self.mark_all(args)
                here = self.begins(Site(span), value)
                if op.name == "where":
                    came = self.builder.apply("where", self.atom(args[0]), *marks)
                    mark = came if self.data else self.first([came], here)
                else:
                    mark = self.first(marks, self.born(value, args, here))
                self.companions[out] = self.turned(value, mark)
            case ir.Alloc(out, shape, span) if is_differentiable(out.type):
                accompanied = Array(with_scalar(elem_of(out), int32), ndim_of(out))
                self.locals[out] = ir.Var(accompanied, f"{out.hint}_from", span)
                self.builder.emit(ir.Alloc(self.locals[out], shape, span))
            case ir.Native(outs, _, args, span):
                before = self.mark_all(args)
                for out in filter(is_float, outs):
                    value = self.atom(out)
                    here = self.born(value, args, self.begins(Site(span), value))
                    self.companions[out] = self.turned(value, self.first(before, here))
            case ir.Load(out) if is_float(out):
                # What is held of a parameter was read from it, wherever it is kept now.
                is_own = stmt.held is not None and stmt.array in self.locals
                held = self.mark_all([stmt.held]) if is_own and stmt.held is not None else ()
                self.companions[out] = self.turned(self.atom(out), self.first(held, self.load_mark(stmt)))
            case ir.Store(_, _, value) if is_float(value):
                copied = self.atom(value)
                here = CLEAN if self.data else self.begins(Site(stmt.span), copied)
                self.store_mark(stmt, self.turned(copied, self.first(self.mark_all([value]), here)))
            case ir.Atomic(out) if is_float(out):
                self.mark_atomic(stmt)

    def load_mark(self, stmt: ir.Load | ir.Atomic) -> ir.Atom:
        if stmt.array not in self.locals:
            out = self.atom(stmt.out)
            return self.brought(out, self.begins(Site(stmt.span, array=stmt.array.hint), out))
        mark, marks = ir.Var(int32, f"{stmt.out.hint}_from", stmt.span), self.locals[stmt.array]
        self.builder.emit(ir.Load(mark, marks, self.atoms(stmt.indices), stmt.span, None, stmt.component))
        return mark

    def mark_atomic(self, stmt: ir.Atomic) -> None:
        b, out, value = self.builder, self.atom(stmt.out), self.atom(stmt.value)
        self.companions[stmt.out] = self.turned(out, self.load_mark(stmt))
        result = b.apply("add", out, value) if stmt.kind == "add" else value
        here = self.born(result, (stmt.out, stmt.value), self.begins(Site(stmt.span), result))
        mark = self.turned(result, self.first(self.mark_all([stmt.value]), here))
        if stmt.kind == "add":
            # An element that was not finite before is none of this thread's doing.
            mark = b.apply("where", b.apply("isfinite", out), mark, CLEAN)
        self.store_mark(stmt, mark)

    def store_mark(self, stmt: ir.Store | ir.Atomic, mark: ir.Atom) -> None:
        """Leave the mark of an element beside it, or with the thread, unless that has an earlier one."""
        b = self.builder
        if stmt.array in self.locals:
            marks, indices = self.locals[stmt.array], self.atoms(stmt.indices)
            b.emit(ir.Store(marks, indices, mark, stmt.span, stmt.component))
        elif mark != CLEAN:
            with b.block() as reported:
                earlier = b.load(self.culprits, [self.thread])
                first = b.apply("where", b.apply("eq", earlier, CLEAN), mark, earlier)
                b.store(self.culprits, [self.thread], first)
            b.emit(ir.If((), b.apply("ne", mark, CLEAN), reported.close(), ir.Block(()), stmt.span))


# ----------------------------------------------------------------------------------------------- dependencies


NONE = ir.Const(0, uint64)


def traceable(function: ir.Function) -> bool:
    """Whether bits can follow a function: its derivatives are those of its statements."""
    return not any(
        isinstance(stmt, ir.Custom | ir.Native)
        or (isinstance(stmt, ir.Atomic) and stmt.kind in ("exch", "cas"))
        for stmt in ir.walk(function.body)
    )


def dependencies(function: ir.Function) -> ir.Function:
    """The function with, for each array of floats, an array of bits: an axis more, of its components."""
    writer = _Dependencies()
    arrays = [p for p in function.params if isinstance(p.type, Array) and is_differentiable(p.type)]
    writer.beside = {param: _bits_of(param) for param in arrays}
    params = (*function.params, *(writer.beside[array] for array in arrays))
    program = writer.function(function)
    return simplify(replace(program, name=f"{function.name}_dependencies", params=params))


def _bits_of(array: ir.Var) -> ir.Var:
    return ir.Var(Array(uint64, ndim_of(array) + 1), f"{array.hint}_dep", array.span)


class _Dependencies(Accompanying):
    """Gives each float its bits for a companion."""

    def is_accompanied(self, atom: ir.Atom) -> bool:
        return is_differentiable(atom.type)

    def companion(self, atom: ir.Atom) -> ir.Atom:
        return self.companions.get(atom, NONE)

    def new_companion(self, var: ir.Var) -> ir.Var:
        bits = self.companions[var] = ir.Var(uint64)
        return bits

    def united(self, atoms: Sequence[ir.Atom]) -> ir.Atom:
        union: ir.Atom = NONE
        for bits in dict.fromkeys(map(self.companion, atoms)):
            if bits != NONE:
                union = bits if union == NONE else self.builder.apply("bit_or", union, bits)
        return union

    def place(self, stmt: ir.ArrayAccess) -> tuple[ir.Atom, ...]:
        return (*self.atoms(stmt.indices), ir.Const(stmt.component or 0, int32))

    def companion_array(self, stmt: ir.Alloc) -> ir.Alloc:
        return ir.Alloc(_bits_of(stmt.out), (*stmt.shape, size_of(elem_of(stmt.out))), stmt.span)

    def stmt(self, stmt: ir.Stmt) -> None:
        if not isinstance(stmt, ir.Print):
            super().stmt(stmt)

    def let(self, stmt: ir.Let) -> None:
        super().let(stmt)
        if not isinstance(stmt.op.derivative, Zero) and is_differentiable(stmt.out.type):
            self.companions[stmt.out] = self.united(stmt.args)

    def atomic(self, stmt: ir.Atomic) -> None:
        if stmt.array not in self.beside:
            super().atomic(stmt)
            return
        super().atomic(stmt)
        before, more = self.new_companion(stmt.out), self.companion(stmt.value)
        bits, place = self.beside[stmt.array], self.place(stmt)
        # Threads that meet here may do so in any order.
        self.builder.emit(ir.Atomic(before, "or", bits, place, more, stmt.span))
