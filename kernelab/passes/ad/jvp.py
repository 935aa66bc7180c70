"""Forward mode: the tangent program computes a function and its directional derivative side by side.

    before    f(x, y)                  y[i] = sin(x[i])
    after     f(x, y, x_dot, y_dot)    y[i] = sin(x[i]); y_dot[i] = x_dot[i] * cos(x[i])

Each statement is copied and followed by its tangent.  A Var without a tangent has derivative zero.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kernelab.lang import ir
from kernelab.lang.build import Expr, type_of, zero
from kernelab.lang.ops import Bilinear, Expanded, Linear, Op, Partials, Rules, Undefined, Zero
from kernelab.passes.ad.activity import refuse_undefined, varied
from kernelab.passes.ad.atomic_rules import EXTREMA, better, is_one, refused, shared, winning
from kernelab.passes.ad.custom_rules import (
    has_tangent,
    insert,
    is_float,
    is_float_array,
    refuse_tangent,
    transposed,
)
from kernelab.passes.common.copying import Copier, like
from kernelab.passes.common.inline import expanded
from kernelab.passes.common.native_calls import refuse_native
from kernelab.passes.common.simplify import simplify


def jvp(function: ir.Function, active: Iterable[str]) -> ir.Function:
    """The tangent program: the function's parameters, then ``<name>_dot`` for each active one.

    Results are followed by their tangents.  Raises KernelTypeError where an operation has no derivative.
    """
    names = set(active)
    function = expanded(function)
    params = [param for param in function.params if param.hint in names]
    found = varied(function, frozenset(params), has_tangent)
    refuse_undefined(function, found)
    dots = {param: ir.Var(param.type, f"{param.hint}_dot", param.span) for param in params}
    tangent = _Tangent(found, dots)
    tangent.stmts(function.body)
    yields = function.body.yields
    body = tangent.builder.close(*tangent.atoms(yields), *tangent.tangents(yields))
    params_out = (*function.params, *dots.values())
    return simplify(replace(function, name=f"{function.name}_tangent", params=params_out, body=body))


class _Tangent(Copier):
    def __init__(self, varied: frozenset[ir.Var], dots: dict[ir.Var, ir.Var]) -> None:
        super().__init__()
        self.varied = varied
        self.dots = dict(dots)
        self.slots: dict[ir.Stack, list[int]] = {}
        self.dot: dict[ir.Var, ir.Atom | None] = dict(dots)

    def tangent(self, atom: ir.Atom) -> ir.Atom | None:
        return self.dot.get(atom) if isinstance(atom, ir.Var) else None

    def tangents(self, atoms: Sequence[ir.Atom]) -> tuple[ir.Atom, ...]:
        """The tangents of atoms, zeros where there is none."""
        found = [self.tangent(atom) for atom in atoms]
        return tuple(zero(type_of(a)) if t is None else t for a, t in zip(atoms, found, strict=True))

    def stmt(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Alloc(out, shape, span) if out in self.varied:
                super().stmt(stmt)
                self.dots[out] = ir.Var(out.type, f"{out.hint}_dot", out.span)
                self.builder.emit(ir.Alloc(self.dots[out], shape, span))
            case ir.Store(array, indices, value, span) if array in self.dots:
                super().stmt(stmt)
                (value_dot,) = self.tangents([value])
                self.builder.emit(ir.Store(self.dots[array], self.atoms(indices), value_dot, span))
            case ir.Save(stack, saved, span):
                extra = [i for i, atom in enumerate(saved) if atom in self.varied]
                self.slots[stack] = extra
                moved = self.tangents([saved[i] for i in extra])
                self.builder.emit(ir.Save(stack, (*self.atoms(saved), *moved), span))
            case ir.Restore(stack, outs, span):
                copies = [self.fresh(out) for out in outs]
                moved_vars = [self.fresh_dot(outs[i]) for i in self.slots[stack]]
                self.builder.emit(ir.Restore(stack, (*copies, *moved_vars), span))
            case ir.Native(_, _, args) if any(arg in self.varied for arg in args):
                refuse_native(stmt, "jvp")
            case ir.Append(array, value, span) if array in self.dots:
                super().stmt(stmt)
                (value_dot,) = self.tangents([value])
                self.builder.emit(ir.Append(self.dots[array], value_dot, span))
            case _:
                super().stmt(stmt)

    def fresh_dot(self, var: ir.Var) -> ir.Var:
        moved = ir.Var(var.type, f"{var.hint}_dot" if var.hint else "", var.span)
        self.dot[var] = moved
        return moved

    def let(self, stmt: ir.Let) -> None:
        super().let(stmt)
        if stmt.out not in self.varied:
            return
        y, xs = self.expr(stmt.out), [self.expr(arg) for arg in stmt.args]
        dots = [self.tangent(arg) for arg in stmt.args]
        moved = push(stmt.op, y, xs, [None if d is None else Expr(self.builder, d) for d in dots])
        self.dot[stmt.out] = None if moved is None else _named(moved.atom, stmt.out)

    def expr(self, atom: ir.Atom) -> Expr:
        return Expr(self.builder, self.atom(atom))

    def load(self, stmt: ir.Load) -> None:
        super().load(stmt)
        if stmt.array in self.dots:
            moved = self.fresh_dot(stmt.out)
            indices = self.atoms(stmt.indices)
            self.builder.emit(ir.Load(moved, self.dots[stmt.array], indices, stmt.span))

    def atomic(self, stmt: ir.Atomic) -> None:
        super().atomic(stmt)
        if stmt.array not in self.dots:
            return
        if stmt.kind in EXTREMA:
            self.extremum(stmt)
        elif stmt.kind != "add":
            raise refused(stmt)
        else:
            moved = self.fresh_dot(stmt.out)
            (value_dot,) = self.tangents([stmt.value])
            indices = self.atoms(stmt.indices)
            self.builder.emit(
                ir.Atomic(moved, stmt.kind, self.dots[stmt.array], indices, value_dot, stmt.span)
            )

    def extremum(self, stmt: ir.Atomic) -> None:
        """The tangent of an element becomes that of the value which replaces it."""
        dots, indices = self.dots[stmt.array], self.atoms(stmt.indices)
        (value_dot,) = self.tangents([stmt.value])
        old_dot, value, old = self.fresh_dot(stmt.out), self.atom(stmt.value), self.atom(stmt.out)
        self.builder.emit(ir.Load(old_dot, dots, indices, stmt.span))
        if not is_one(value):
            components = winning(self.builder, stmt.kind, value, old)
            self.builder.store(dots, indices, shared(self.builder, components, value_dot, old_dot))
            return
        wins = better(self.builder, stmt.kind, value, old)
        with self.builder.block() as then:
            self.builder.store(dots, indices, value_dot)
        self.builder.emit(ir.If((), wins, then.close(), ir.Block(()), stmt.span))

    def if_(self, stmt: ir.If) -> None:
        moved = [i for i, out in enumerate(stmt.outs) if out in self.varied]
        then, orelse = (self.branch(block, moved) for block in (stmt.then, stmt.orelse))
        outs = [self.fresh(out) for out in stmt.outs]
        dots = [self.fresh_dot(stmt.outs[i]) for i in moved]
        self.builder.emit(ir.If((*outs, *dots), self.atom(stmt.cond), then, orelse, stmt.span))

    def branch(self, block: ir.Block, moved: list[int]) -> ir.Block:
        with self.builder.block() as copied:
            self.stmts(block)
            yields = self.atoms(block.yields)
            dots = self.tangents([block.yields[i] for i in moved])
        return copied.close(*yields, *dots)

    def custom(self, stmt: ir.Custom) -> None:
        if not any(arg in self.varied for arg in stmt.args):
            super().custom(stmt)
        elif has_tangent(stmt):
            # The rule comes first: the body may change what it reads.  The body is copied without tangents.
            moved = self.rule(stmt)
            Copier(self.builder, self.env).custom(stmt)
            self.dot.update(zip(stmt.outs, moved, strict=False))
        else:
            self.lay_open(stmt)

    def rule(self, stmt: ir.Custom) -> Sequence[ir.Atom | None]:
        """The tangents of the results of a function with a rule."""
        rules, args = stmt.rules, self.atoms(stmt.args)
        if rules.jvp is None:
            return transposed(self.builder, rules, args, [self.tangent(arg) for arg in stmt.args])
        extra: list[ir.Atom] = []
        absent: list[int] = []
        for arg, copied in zip(stmt.args, args, strict=True):
            if is_float(arg):
                extra += self.tangents([arg])
            elif isinstance(arg, ir.Var) and is_float_array(arg):
                if arg not in self.dots:
                    absent.append(len(args) + len(extra))
                extra.append(self.dots.get(arg, copied))
        found = iter(insert(self.builder, rules.jvp, [*args, *extra], absent))
        return [next(found) if is_float(result) else None for result in rules.function.body.yields]

    def lay_open(self, stmt: ir.Custom) -> None:
        """The tangent of the statements inside; those of a surrogate would say something else."""
        if stmt.rules.grad is not None and "grad" not in stmt.rules.checked:
            refuse_tangent(stmt)
        self.stmts(stmt.body)
        for out, source in zip(stmt.outs, stmt.body.yields, strict=True):
            self.env[out], self.dot[out] = self.atom(source), self.tangent(source)

    def loop(self, stmt: ir.Loop) -> None:
        moved = [i for i, carry in enumerate(stmt.carries) if carry in self.varied]
        inits = (*self.atoms(stmt.inits), *self.tangents([stmt.inits[i] for i in moved]))
        carries = (*(self.fresh(c) for c in stmt.carries), *(self.fresh_dot(stmt.carries[i]) for i in moved))
        index = self.fresh(stmt.index) if isinstance(stmt, ir.For) else None
        body = self.branch(stmt.body, moved)
        outs = (*(self.fresh(o) for o in stmt.outs), *(self.fresh_dot(stmt.outs[i]) for i in moved))
        count = self.atom(stmt.count) if isinstance(stmt, ir.For) else None
        self.builder.emit(like(stmt, outs, index, count, carries, inits, body))


def _named(tangent: ir.Atom, primal: ir.Var) -> ir.Atom:
    if isinstance(tangent, ir.Var) and not tangent.hint and primal.hint:
        tangent.hint = f"{primal.hint}_dot"
    return tangent


def push(op: Op, y: Expr, xs: Sequence[Expr], dots: Sequence[Expr | None]) -> Expr | None:
    """The tangent of ``y = op(xs)`` from the tangents of the operands; None is zero."""
    if all(dot is None for dot in dots):
        return None
    match op.derivative:
        case Partials(fn, singular):
            partials = as_tuple(fn(y, *xs))
            return total(scaled(d, p, singular) for d, p in zip(dots, partials, strict=True) if d is not None)
        case Linear(_, signs) if signs:
            return total(d if sign > 0 else -d for sign, d in zip(signs, dots, strict=True) if d is not None)
        case Linear():
            return op_of(op, y, [zero_like(x) if d is None else d for x, d in zip(xs, dots, strict=True)])
        case Bilinear():
            (a, b), (a_dot, b_dot) = xs, dots
            left = None if a_dot is None else op_of(op, y, [a_dot, b])
            right = None if b_dot is None else op_of(op, y, [a, b_dot])
            return total([left, right])
        case Rules(rule):
            moved: Expr | None = rule(y, tuple(xs), tuple(dots))
            return moved
        case Zero() | Undefined():
            return None
        case Expanded():
            raise AssertionError(f"{op.name} should have been expanded")


def op_of(op: Op, y: Expr, operands: Sequence[Expr]) -> Expr:
    """The operation applied again, to other operands of the same types."""
    return Expr(y.builder, y.builder.let(op, [x.atom for x in operands], y.type))


def zero_like(x: Expr) -> Expr:
    """The zero of the type of an expression."""
    return Expr(x.builder, zero(x.type))


def scaled(d: Expr, partial: Expr | float | None, singular: bool) -> Expr | None:
    """A derivative times a partial; where the partial may be infinite, 0 if the derivative is 0."""
    if partial is None or (not isinstance(partial, Expr) and partial == 0):
        return None
    if not isinstance(partial, Expr) and partial == -1:
        return -d
    if singular and isinstance(partial, Expr):
        return d.apply("chain", partial)
    return d * partial


def total(terms: Iterable[Expr | None]) -> Expr | None:
    """The sum of the terms that are not None; None if there is none."""
    result: Expr | None = None
    for term in terms:
        if term is not None:
            result = term if result is None else result + term
    return result


def as_tuple(value: object) -> tuple[Expr | float | None, ...]:
    """The result of a rule as a tuple with one item for each operand."""
    return value if isinstance(value, tuple) else (value,)
