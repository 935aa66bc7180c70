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
from kernelab.lang.build import Expr, elem_of, is_float, type_of, zero
from kernelab.lang.ops import Op
from kernelab.lang.types import Array, Value, is_differentiable, wide
from kernelab.passes.ad.activity import refuse_lost_bits, refuse_undefined, unbounded, varied
from kernelab.passes.ad.derivative_rules import (
    EXTREMA,
    better,
    converted,
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
    widened,
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
    given = frozenset(arg for stmt in ir.of_kind(function.body, ir.Custom) for arg in stmt.args)
    tangent = _Tangent(variables, unbounded(function, has_tangent), dots, given)
    tangent.stmts(function.body)
    yields = function.body.yields
    body = tangent.builder.close(*tangent.atoms(yields), *map(tangent.as_given, yields))
    params_out = (*function.params, *dots.values())
    return replace(function, name=f"{function.name}_tangent", params=params_out, body=body)


class _Tangent(Accompanying):
    """Gives each value that varies its tangent for a companion: of a half a float32, but in memory.

    `handed` are the arrays that rules which users wrote take: their tangents are of the same type.
    """

    def __init__(
        self,
        varied: frozenset[ir.Var],
        unbounded: frozenset[ir.Var],
        dots: dict[ir.Var, ir.Var],
        handed: frozenset[ir.Atom],
    ) -> None:
        super().__init__()
        self.varied = varied
        self.unbounded = unbounded
        self.handed = handed
        self.beside.update(dots)
        self.companions.update(dots.items())

    def is_accompanied(self, atom: ir.Atom) -> bool:
        return atom in self.varied

    def companion(self, atom: ir.Atom) -> ir.Atom:
        tangent, type = self.companions.get(atom), wide(type_of(atom))
        return zero(type) if tangent is None else converted(self.builder, tangent, type)

    def new_companion(self, var: ir.Var) -> ir.Var:
        return self.moved(var, wide(type_of(var)))

    def moved(self, var: ir.Var, type: Value) -> ir.Var:
        """A Var of a type that becomes the tangent of a value."""
        moved = ir.Var(type, f"{var.hint}_dot" if var.hint else "", var.span)
        self.companions[var] = moved
        return moved

    def taken(self, var: ir.Var, beside: ir.Var) -> ir.Var:
        return self.moved(var, elem_of(beside))

    def held(self, value: ir.Atom, beside: ir.Var) -> ir.Atom:
        return converted(self.builder, self.companion(value), elem_of(beside))

    def companion_array(self, stmt: ir.Alloc) -> ir.Alloc:
        type = stmt.out.type
        if isinstance(type, Array) and stmt.out not in self.handed:
            type = Array(wide(type.elem), type.ndim)
        return replace(stmt, out=ir.Var(type, f"{stmt.out.hint}_dot", stmt.out.span))

    def stmt(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Native(_, _, args) if any(arg in self.varied for arg in args):
                refuse_native(stmt, "jvp")
            case ir.Append(array, value, span) if array in self.beside:
                super().stmt(stmt)
                beside = self.beside[array]
                self.builder.emit(ir.Append(beside, self.held(value, beside), span))
            case _:
                super().stmt(stmt)

    def let(self, stmt: ir.Let) -> None:
        super().let(stmt)
        if stmt.out not in self.varied:
            return
        op, values = stmt.op, self.atoms((stmt.out, *stmt.args))
        dots = [self.companion(arg) if arg in self.companions else None for arg in stmt.args]
        if any(wide(type_of(v)) != type_of(v) for v in values):
            op, values, dots = self.in_float32(op, values, dots)
        y, *xs = (Expr(self.builder, v) for v in values)
        tangents = [None if d is None else Expr(self.builder, d) for d in dots]
        moved = push(op, y, xs, tangents, stmt.out in self.unbounded)
        if moved is not None:
            self.companions[stmt.out] = _named(moved.atom, stmt.out)

    def in_float32(
        self, op: Op, values: Sequence[ir.Atom], dots: Sequence[ir.Atom | None]
    ) -> tuple[Op, tuple[ir.Atom, ...], list[ir.Atom | None]]:
        """An operation on halves, its result, operands and tangents in float32, where there is such a one."""
        b, types = self.builder, [wide(type_of(v)) for v in values]
        other = widened(op, types[1:])
        if other is not None:
            return other, tuple(converted(b, v, t) for v, t in zip(values, types, strict=True)), [*dots]
        pairs = zip(dots, values[1:], strict=True)
        return op, tuple(values), [None if d is None else converted(b, d, type_of(v)) for d, v in pairs]

    def atomic(self, stmt: ir.Atomic) -> None:
        super().atomic(stmt)
        if stmt.array not in self.beside:
            return
        if stmt.kind in EXTREMA:
            self.extremum(stmt)
        elif stmt.kind != "add":
            raise refused(stmt)
        else:
            beside, indices = self.beside[stmt.array], self.atoms(stmt.indices)
            moved, value_dot = self.taken(stmt.out, beside), self.held(stmt.value, beside)
            self.builder.emit(ir.Atomic(moved, stmt.kind, beside, indices, value_dot, stmt.span))

    def extremum(self, stmt: ir.Atomic) -> None:
        """The tangent of an element becomes that of the value which replaces it."""
        dots, indices = self.beside[stmt.array], self.atoms(stmt.indices)
        value_dot, old_dot = self.held(stmt.value, dots), self.taken(stmt.out, dots)
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
            dots = [self.as_given(a) if a in self.companions else None for a in stmt.args]
            return transposed(self.builder, rules, args, dots)
        extra: list[ir.Atom] = []
        absent: list[int] = []
        for arg, copied in zip(stmt.args, args, strict=True):
            if is_float(arg):
                extra.append(self.as_given(arg))
            elif isinstance(arg, ir.Var) and is_float_array(arg):
                if arg not in self.beside:
                    absent.append(len(args) + len(extra))
                extra.append(self.beside.get(arg, copied))
        tangents = iter(insert(self.builder, rules.jvp, [*args, *extra], absent))
        return [next(tangents) if is_float(result) else None for result in rules.function.body.yields]

    def as_given(self, atom: ir.Atom) -> ir.Atom:
        """The tangent of a value in the value's own type."""
        return converted(self.builder, self.companion(atom), type_of(atom))

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
    calls = [*ir.of_kind(function.body, ir.Call)]
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
