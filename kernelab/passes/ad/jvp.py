"""Forward mode: the tangent program computes a function and its directional derivative side by side.

    before    f(x, y)                  y[i] = sin(x[i])
    after     f(x, y, x_dot, y_dot)    y[i] = sin(x[i]); y_dot[i] = x_dot[i] * cos(x[i])

Each statement is copied and followed by its tangent.  A Var without a tangent has derivative zero.

    before    g: float32 = gradient square(x)
    after     g: float32 = add(mul(x, 1), mul(1, x))       the tangent of square for the tangent 1 of x

So `grad(f)(x)` in a kernel becomes the tangents of the function along each component of an argument, before
inlining.  The result is IR like any other, and is differentiated again like any other.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from kernelab.lang import ir
from kernelab.lang.build import Expr, is_float, type_of, zero
from kernelab.lang.types import Value, is_differentiable
from kernelab.passes.ad.activity import refuse_lost_bits, refuse_undefined, varied
from kernelab.passes.ad.derivative_rules import (
    EXTREMA,
    better,
    has_tangent,
    insert,
    is_float_array,
    is_one,
    push,
    refuse_native,
    refuse_shared_arguments,
    refuse_tangent,
    refused,
    shared,
    transposed,
    winning,
)
from kernelab.passes.common.copying import Accompanying, Copier, expanded, lay_out
from kernelab.passes.common.simplify import simplify


def jvp(function: ir.Function, active: Iterable[str]) -> ir.Function:
    """The tangent program: the function's parameters, then ``<name>_dot`` for each active one.

    Results are followed by their tangents.  Raises KernelTypeError where an operation has no derivative.
    """
    refuse_shared_arguments(function, (), "jvp")
    return simplify(tangent_of(expanded(function), active))


def tangent_of(function: ir.Function, active: Iterable[str]) -> ir.Function:
    """The same of a function without composed operations, not simplified."""
    names = set(active)
    params = [param for param in function.params if param.hint in names]
    variables = varied(function, frozenset(params), has_tangent)
    refuse_undefined(function, variables)
    refuse_lost_bits(function, variables, None, has_tangent)
    dots = {param: ir.Var(param.type, f"{param.hint}_dot", param.span) for param in params}
    tangent = _Tangent(variables, dots)
    tangent.stmts(function.body)
    yields = function.body.yields
    body = tangent.builder.close(*tangent.atoms(yields), *map(tangent.companion, yields))
    params_out = (*function.params, *dots.values())
    return replace(function, name=f"{function.name}_tangent", params=params_out, body=body)


class _Tangent(Accompanying):
    """Gives each value that varies its tangent for a companion."""

    def __init__(self, varied: frozenset[ir.Var], dots: dict[ir.Var, ir.Var]) -> None:
        super().__init__()
        self.varied = varied
        self.beside.update(dots)
        self.companions.update(dots.items())

    def is_accompanied(self, atom: ir.Atom) -> bool:
        return atom in self.varied

    def companion(self, atom: ir.Atom) -> ir.Atom:
        tangent = self.companions.get(atom)
        return zero(type_of(atom)) if tangent is None else tangent

    def new_companion(self, var: ir.Var) -> ir.Var:
        moved = ir.Var(var.type, f"{var.hint}_dot" if var.hint else "", var.span)
        self.companions[var] = moved
        return moved

    def companion_array(self, stmt: ir.Alloc) -> ir.Alloc:
        return replace(stmt, out=ir.Var(stmt.out.type, f"{stmt.out.hint}_dot", stmt.out.span))

    def stmt(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Native(_, _, args) if any(arg in self.varied for arg in args):
                refuse_native(stmt, "jvp")
            case ir.Append(array, value, span) if array in self.beside:
                super().stmt(stmt)
                self.builder.emit(ir.Append(self.beside[array], self.companion(value), span))
            case _:
                super().stmt(stmt)

    def let(self, stmt: ir.Let) -> None:
        super().let(stmt)
        if stmt.out not in self.varied:
            return
        y, xs = self.expr(stmt.out), [self.expr(arg) for arg in stmt.args]
        dots = [self.companions.get(arg) for arg in stmt.args]
        moved = push(stmt.op, y, xs, [None if d is None else Expr(self.builder, d) for d in dots])
        if moved is not None:
            self.companions[stmt.out] = _named(moved.atom, stmt.out)

    def expr(self, atom: ir.Atom) -> Expr:
        return Expr(self.builder, self.atom(atom))

    def atomic(self, stmt: ir.Atomic) -> None:
        super().atomic(stmt)
        if stmt.array not in self.beside:
            return
        if stmt.kind in EXTREMA:
            self.extremum(stmt)
        elif stmt.kind != "add":
            raise refused(stmt)
        else:
            moved, value_dot = self.new_companion(stmt.out), self.companion(stmt.value)
            beside, indices = self.beside[stmt.array], self.atoms(stmt.indices)
            self.builder.emit(ir.Atomic(moved, stmt.kind, beside, indices, value_dot, stmt.span))

    def extremum(self, stmt: ir.Atomic) -> None:
        """The tangent of an element becomes that of the value which replaces it."""
        dots, indices = self.beside[stmt.array], self.atoms(stmt.indices)
        value_dot, old_dot = self.companion(stmt.value), self.new_companion(stmt.out)
        value, old = self.atom(stmt.value), self.atom(stmt.out)
        self.builder.emit(ir.Load(old_dot, dots, indices, stmt.span))
        if not is_one(value):
            components = winning(self.builder, stmt.kind, value, old)
            self.builder.store(dots, indices, shared(self.builder, components, value_dot, old_dot))
            return
        wins = better(self.builder, stmt.kind, value, old)
        with self.builder.block() as then:
            self.builder.store(dots, indices, value_dot)
        self.builder.emit(ir.If((), wins, then.close(), ir.Block(()), stmt.span))

    def custom(self, stmt: ir.Custom) -> None:
        if not any(arg in self.varied for arg in stmt.args):
            super().custom(stmt)
        elif has_tangent(stmt):
            # The rule comes first: the body may change what it reads.  The body is copied without tangents.
            moved = self.rule(stmt)
            Copier(self.builder, self.env).custom(stmt)
            self.companions |= {
                out: dot for out, dot in zip(stmt.outs, moved, strict=False) if dot is not None
            }
        else:
            self.lay_open(stmt)

    def rule(self, stmt: ir.Custom) -> Sequence[ir.Atom | None]:
        """The tangents of the results of a function with a rule."""
        rules, args = stmt.rules, self.atoms(stmt.args)
        if rules.jvp is None:
            return transposed(self.builder, rules, args, [self.companions.get(a) for a in stmt.args])
        extra: list[ir.Atom] = []
        absent: list[int] = []
        for arg, copied in zip(stmt.args, args, strict=True):
            if is_float(arg):
                extra.append(self.companion(arg))
            elif isinstance(arg, ir.Var) and is_float_array(arg):
                if arg not in self.beside:
                    absent.append(len(args) + len(extra))
                extra.append(self.beside.get(arg, copied))
        tangents = iter(insert(self.builder, rules.jvp, [*args, *extra], absent))
        return [next(tangents) if is_float(result) else None for result in rules.function.body.yields]

    def lay_open(self, stmt: ir.Custom) -> None:
        """The tangent of the statements inside; those of a surrogate would say something else."""
        if stmt.rules.grad is not None and "grad" not in stmt.rules.checked:
            refuse_tangent(stmt)
        self.stmts(stmt.body)
        for out, source in zip(stmt.outs, stmt.body.yields, strict=True):
            self.env[out] = self.atom(source)
            if source in self.companions:
                self.companions[out] = self.companions[source]


def _named(tangent: ir.Atom, primal: ir.Var) -> ir.Atom:
    if isinstance(tangent, ir.Var) and not tangent.hint and primal.hint:
        tangent.hint = f"{primal.hint}_dot"
    return tangent


# ------------------------------------------------------------------------------------------------- grad calls


@lru_cache(256)
def expand_gradients(function: ir.Function) -> ir.Function:
    """The function without `gradient` calls, also in what it calls; itself where there is none."""
    return _Expander().whole(function) if _asks_for_gradients(function) else function


@lru_cache(256)
def _asks_for_gradients(function: ir.Function) -> bool:
    calls = [stmt for stmt in ir.walk(function.body) if isinstance(stmt, ir.Call)]
    called = [stmt.function for stmt in calls]
    called += [] if function.custom is None else function.custom.functions.values()
    return any(stmt.gradient for stmt in calls) or any(map(_asks_for_gradients, called))


class _Expander(Copier):
    def whole(self, function: ir.Function) -> ir.Function:
        rules = None if function.custom is None else _expand_rules(function.custom)
        return replace(self.function(function), custom=rules)

    def stmt(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Call(gradient=True):
                self.gradient(stmt)
            case ir.Call():
                super().stmt(replace(stmt, function=expand_gradients(stmt.function)))
            case _:
                super().stmt(stmt)

    def gradient(self, stmt: ir.Call) -> None:
        args = self.atoms(stmt.args)
        programs = _tangents(expand_gradients(stmt.function))
        for out, (param, program) in zip(stmt.outs, programs, strict=True):
            assert isinstance(param.type, Value)
            slopes = [self.entered(program, (*args, seed))[-1] for seed in self.builder.units(param.type)]
            self.env[out] = self.builder.joined(param.type, slopes)


@lru_cache(256)
def _expand_rules(rules: ir.CustomRules) -> ir.CustomRules:
    return rules.mapped(expand_gradients)


def _tangents(function: ir.Function) -> Iterator[tuple[ir.Var, ir.Function]]:
    """For each argument that is a float, vector or matrix, the program with its tangent as last argument."""
    laid_out = lay_out(_calling(function))
    for param in function.params:
        if isinstance(param.type, Value) and is_differentiable(param.type):
            yield param, jvp(laid_out, [param.hint])


def _calling(function: ir.Function) -> ir.Function:
    """A function that does nothing but call another, whose own derivative then counts."""
    params = tuple(ir.Var(param.type, param.hint, param.span) for param in function.params)
    outs = tuple(ir.Var(type_of(atom), "", function.span) for atom in function.body.yields)
    body = ir.Block((ir.Call(outs, function, params, function.span),), outs)
    return ir.Function(function.name, params, body, (), function.span)
