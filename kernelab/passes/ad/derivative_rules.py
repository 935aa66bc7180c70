"""Derivative rules: of the operations of the table, and those that users wrote for functions.

    y = sin(x)      from x_dot, that of x:    x_dot * cos(x)      from g, that of y:    g * cos(x)
    y = a * b                                 a_dot * b + a * b_dot                     g * b, g * a
    y = a - b                                 a_dot - b_dot                             g, -g
    y = floor(x)                              none                                      none

`push` takes tangents forward and `pull` cotangents back; None stands for a derivative of zero.

    before    y: float32 = custom safe_sqrt(x)
    adjoint   the statements of the grad function, with the cotangent of y for its adj_ret
    tangent   the statements of the jvp function; without one, the transpose of the grad function:
              its adjoint of x for the cotangent 1, times the tangent of x

The transpose makes both modes agree also where a rule is a surrogate.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, reduce
from itertools import permutations
from typing import Literal, NoReturn

from kernelab.errors import Diagnostic, KernelTypeError, Related
from kernelab.lang import ir
from kernelab.lang.build import FALSE, Builder, Expr, is_float, type_of, zero
from kernelab.lang.native import Snippet
from kernelab.lang.ops import COPY, Bilinear, Expanded, Linear, Op, Partials, Rules, Undefined, Zero, resolve
from kernelab.lang.types import Array, Scalar, Type, Value, is_differentiable, scalar_of, type_named, wide
from kernelab.passes.common.copying import Copier, lay_out
from kernelab.passes.common.effects import Groups, aliases, block_effects, effects

# ----------------------------------------------------------------------------------------------------- halves


def converted(builder: Builder, atom: ir.Atom, type: Value) -> ir.Atom:
    """A value with the scalars of another type."""
    if type_of(atom) == type:
        return atom
    parts = [builder.apply(str(scalar_of(type)), part) for part in builder.components(atom)]
    return builder.joined(type, parts)


def widened(op: Op, types: Sequence[Type]) -> Op | None:
    """The operation on other types that one is on halves; None where there is none."""
    named = type_named(op.name)
    resolved = resolve(op.name if named is None else str(wide(named)), types)
    return op if op is COPY else None if resolved is None else resolved[0]


# ------------------------------------------------------------------------------------------------- operations


def push(
    op: Op, y: Expr, xs: Sequence[Expr], dots: Sequence[Expr | None], masked: bool = False
) -> Expr | None:
    """The tangent of ``y = op(xs)`` from the tangents of the operands; None is zero.

    Where `masked`, zeros among these stay zeros whatever they are multiplied by.
    """
    if all(dot is None for dot in dots):
        return None
    match op.derivative:
        case Partials(fn, singular):
            partials = as_tuple(fn(y, *xs))
            pairs = [(d, p) for d, p in zip(dots, partials, strict=True) if d is not None]
            return total(scaled(d, p, singular or masked) for d, p in pairs)
        case Linear(_, signs) if signs:
            return total(d if sign > 0 else -d for sign, d in zip(signs, dots, strict=True) if d is not None)
        case Linear():
            return op_of(op, y, [x.const(0) if d is None else d for x, d in zip(xs, dots, strict=True)])
        case Bilinear():
            (a, b), (a_dot, b_dot) = xs, dots
            if masked and isinstance(y.type, Scalar) and a.type == b.type == y.type:
                return total(scaled(d, x, True) for d, x in ((a_dot, b), (b_dot, a)) if d is not None)
            left = None if a_dot is None else kept_zero(a_dot, op_of(op, y, [a_dot, b]), masked)
            right = None if b_dot is None else kept_zero(b_dot, op_of(op, y, [a, b_dot]), masked)
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


def kept_zero(d: Expr, product: Expr, masked: bool) -> Expr:
    """A product with a derivative, 0 where that is 0 and the other factor has made it NaN.

    Elsewhere it keeps its slope: a derivative of 0 has one, too.
    """
    if not masked:
        return product
    builder = product.builder
    parts = (builder.apply("isnan", part) for part in builder.components(product.atom))
    is_nan = reduce(lambda one, other: builder.apply("or", one, other), parts)
    is_zero = builder.apply("not", any_nonzero(builder, [d.atom]))
    lost = Expr(builder, builder.apply("and", is_zero, is_nan))
    return lost.apply("where", product.const(0), product)


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


def pull(op: Op, y: Expr, xs: Sequence[Expr], g: Expr, masked: bool = False) -> tuple[Expr | None, ...]:
    """The cotangents of the operands of ``y = op(xs)`` from the cotangent `g` of its result.

    Where `g` may be a zero that masks a branch, it is multiplied so that it stays zero.
    """
    match op.derivative:
        case Partials(fn, singular):
            return tuple(scaled(g, partial, singular or masked) for partial in as_tuple(fn(y, *xs)))
        case Bilinear() if masked and all(isinstance(x.type, Scalar) for x in xs):
            a, b = xs
            return scaled(g, b, True), scaled(g, a, True)
        case Linear(transpose):
            return _cotangents(transpose(g, *xs))
        case Bilinear(left, right):
            return tuple(kept_zero(g, share, masked) for share in (left(g, *xs), right(g, *xs)))
        case Rules(_, rule):
            shares = _cotangents(rule(y, tuple(xs), g))
            is_product = masked and "product" in op.tags  # other rules keep zeros themselves
            return tuple(None if share is None else kept_zero(g, share, is_product) for share in shares)
        case Zero() | Undefined():
            return (None,) * len(xs)
        case Expanded():
            raise AssertionError(f"{op.name} should have been expanded")


def _cotangents(value: object) -> tuple[Expr | None, ...]:
    return tuple(item if isinstance(item, Expr) else None for item in as_tuple(value))


# --------------------------------------------------------------------------------------------------- atomics
#
# The cotangent of an element goes to the one value that it holds in the end: that of the thread which was the
# first to reach it, or the value from before the launch if no thread did better.  Threads that ran one after
# another are swept in reverse, so that each time the element changed hands it does so again, backwards; that
# it changed is known from what the thread found there, which `record` keeps.  Of a vector or matrix each
# component goes its own way.


EXTREMA: tuple[ir.AtomicKind, ...] = ("min", "max")


def better(builder: Builder, kind: ir.AtomicKind, value: ir.Atom, old: ir.Atom) -> ir.Atom:
    """Whether a value replaces what an element held."""
    return builder.apply("lt" if kind == "min" else "gt", value, old)


def shared(builder: Builder, wins: Sequence[ir.Atom], winner: ir.Atom, other: ir.Atom) -> ir.Atom:
    """A vector or matrix with the components of one where it wins, of the other elsewhere."""
    pairs = zip(wins, builder.components(winner), builder.components(other), strict=True)
    return builder.apply(str(type_of(winner)), *(builder.apply("where", *parts) for parts in pairs))


def winning(builder: Builder, kind: ir.AtomicKind, value: ir.Atom, old: ir.Atom) -> list[ir.Atom]:
    """Whether each component of a value replaces what the element held there."""
    pairs = zip(builder.components(value), builder.components(old), strict=True)
    return [better(builder, kind, new, before) for new, before in pairs]


def is_one(value: ir.Atom) -> bool:
    """Whether a value wins or loses as a whole."""
    return isinstance(type_of(value), Scalar)


def refused(stmt: ir.Atomic) -> KernelTypeError:
    """The error of an atomic that is differentiated and has no derivative."""
    name = stmt.array.hint
    message = f"atomic_{stmt.kind} of {name} has no derivative"
    note = "whose value stays depends on the order in which threads run"
    hint = f"use atomic_add, atomic_min or atomic_max, or leave out the gradient of {name}"
    return KernelTypeError(Diagnostic(message, stmt.span, "derivative", note=note, hint=hint))


# ------------------------------------------------------------------------------------- rules that users wrote


def has_grad(stmt: ir.Custom) -> bool:
    """Whether reverse mode follows a rule of the user's, not the statements inside."""
    return stmt.rules.grad is not None


def has_tangent(stmt: ir.Custom) -> bool:
    """Whether forward mode follows a rule of the user's, not the statements inside.

    That is also the transpose of a grad function about numbers alone, which follows from its values.
    """
    is_transposable = has_grad(stmt) and not any(map(is_float_array, stmt.rules.function.params))
    return stmt.rules.jvp is not None or is_transposable


def is_float_array(param: ir.Var) -> bool:
    """Whether it is an array of floats, or of vectors or matrices of them."""
    return isinstance(param.type, Array) and is_differentiable(param.type)


def float_arrays(rules: ir.CustomRules) -> list[int]:
    """The positions of the parameters that are arrays of floats."""
    return [i for i, param in enumerate(rules.function.params) if is_float_array(param)]


# ------------------------------------------------------------------------- writing rules out


def insert(
    builder: Builder, rule: ir.Function, args: Sequence[ir.Atom], absent: Collection[int] = ()
) -> tuple[ir.Atom, ...]:
    """Write the statements of a rule; what it yields.

    The arrays at the positions `absent` have no derivative: they read as zeros, and what is added is lost.
    """
    laid_out = _laid_out(rule)
    env = dict(zip(laid_out.params, args, strict=True))
    inserter = _Inserter(builder, env, frozenset(laid_out.params[i] for i in absent))
    inserter.stmts(laid_out.body)
    return inserter.atoms(laid_out.body.yields)


@lru_cache(256)
def _laid_out(rule: ir.Function) -> ir.Function:
    return lay_out(rule)


class _Inserter(Copier):
    def __init__(self, builder: Builder, env: dict[ir.Var, ir.Atom], absent: frozenset[ir.Var]) -> None:
        super().__init__(builder, env)
        self.absent = absent

    def let(self, stmt: ir.Let) -> None:
        # What an adjoint starts from: the sign of a zero adjoint means nothing.
        if stmt.op.name == "add" and self.atom(stmt.args[0]) == zero(type_of(stmt.out)):
            self.env[stmt.out] = self.atom(stmt.args[1])
        else:
            super().let(stmt)

    def stmt(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Store(array) if array in self.absent:
                pass
            case ir.Load(out, array) | ir.Atomic(out, _, array) if array in self.absent:
                self.env[out] = zero(type_of(out))
            case ir.Native(_, snippet, args) if not self.absent.isdisjoint(args):
                gone = [arg in self.absent for arg in args]
                super().stmt(replace(stmt, snippet=_without(snippet, gone)))
            case _:
                super().stmt(stmt)


def _without(snippet: Snippet, absent: Sequence[bool]) -> Snippet:
    """The snippet with some of its arguments absent: arrays that read as zeros."""
    gone = {param.name for param, is_gone in zip(snippet.arguments, absent, strict=True) if is_gone}
    params = tuple(replace(p, access="absent") if p.name in gone else p for p in snippet.params)
    return replace(snippet, params=params)


def touches(rule: ir.Function, params: Collection[int]) -> bool:
    """Whether a rule reads or overwrites, rather than adds to, one of the arrays at these positions."""
    laid_out = _laid_out(rule)
    arrays = {laid_out.params[i] for i in params}
    touched = effects(laid_out)
    return not arrays.isdisjoint(touched.reads | touched.writes)


def transposed(
    builder: Builder, rules: ir.CustomRules, args: Sequence[ir.Atom], dots: Sequence[ir.Atom | None]
) -> list[ir.Atom | None]:
    """The tangents of the results from those of the arguments, by the grad function; None is zero."""
    assert rules.grad is not None
    types = [type_of(atom) for atom in rules.function.body.yields]
    moved = [dot for dot, param in zip(dots, rules.function.params, strict=True) if is_float(param)]
    tangents: list[ir.Atom | None] = []
    for k, type in enumerate(types):
        parts = []
        for unit in builder.units(type) if is_differentiable(type) else ():
            seeds = [unit if i == k else zero(t) for i, t in enumerate(types)]
            shares = insert(builder, rules.grad, [*args, *seeds])
            parts.append(_contracted(builder, shares, moved, scalar_of(type)))
        tangents.append(builder.joined(type, parts) if parts else None)
    return tangents


def _contracted(
    builder: Builder, shares: Sequence[ir.Atom], dots: Sequence[ir.Atom | None], scalar: Scalar
) -> ir.Atom:
    total: ir.Atom = zero(scalar)
    for share, dot in zip(shares, dots, strict=True):
        if dot is None:
            continue
        for partial, d in zip(builder.components(share), builder.components(dot), strict=True):
            term = builder.apply("chain", d, partial)
            term = term if term.type == scalar else builder.apply(str(scalar), term)
            total = term if total == zero(scalar) else builder.apply("add", total, term)
    return total


def any_nonzero(builder: Builder, atoms: Sequence[ir.Atom]) -> ir.Atom:
    """Whether a component of a float among the atoms is not zero."""
    result: ir.Atom | None = None
    for atom in atoms:
        for part in builder.components(atom) if is_float(atom) else ():
            nonzero = builder.apply("ne", part, zero(type_of(part)))
            result = nonzero if result is None else builder.apply("or", result, nonzero)
    return FALSE if result is None else result


# ------------------------------------------------------------------------- what is refused


def refuse_lost_reads(function: ir.Function, groups: Groups) -> None:
    """Raise KernelTypeError where a rule reads an array that the kernel changes outside of its function.

    The adjoint would find there what the launch has left, not what stood there.  What the function itself
    stores for its rules is theirs to manage.
    """
    shared = aliases(function, groups)
    customs = [*ir.of_kind(function.body, ir.Custom)]
    for stmt in customs:
        own = (one for one in customs if one.rules is stmt.rules)
        inside = {inner for one in own for inner in ir.walk(one.body)}
        changed = {a for each in ir.walk(function.body) if each not in inside for a in ir.changed(each)}
        for array in _read_by_rule(stmt):
            if shared.get(array, frozenset({array})) & changed:
                _refuse(stmt, array)


def read_by_rules(function: ir.Function) -> frozenset[ir.Var]:
    """The arrays that an adjoint reads because rules in the function do."""
    return frozenset(array for stmt in ir.of_kind(function.body, ir.Custom) for array in _read_by_rule(stmt))


def _read_by_rule(stmt: ir.Custom) -> Iterator[ir.Var]:
    for rule in (stmt.rules.grad, stmt.rules.replay):
        if rule is None:
            continue
        laid_out = _laid_out(rule)
        read = effects(laid_out).reads
        for param, arg in zip(laid_out.params, stmt.args, strict=False):
            if param in read and isinstance(arg, ir.Var):
                yield arg


def refuse_shared_arguments(function: ir.Function, groups: Groups, mode: Literal["grad", "jvp"]) -> None:
    """Raise KernelTypeError where a function with a rule over arrays changes one that it gets twice.

    The rule is written for arrays apart: what it reads of the one is what the function left in the other.
    """
    shared = aliases(function, groups)
    for stmt in ir.walk(function.body):
        if not isinstance(stmt, ir.Custom) or mode not in stmt.rules.functions:
            continue
        rules, laid_out = stmt.rules, _laid_out(stmt.rules.function)
        changed = effects(laid_out).changed
        for i, j in permutations(float_arrays(rules), 2):
            one, other = stmt.args[i], stmt.args[j]
            assert isinstance(one, ir.Var)
            if laid_out.params[i] in changed and other in shared.get(one, (one,)):
                name, first, second = rules.function.name, *(rules.function.params[k].hint for k in (i, j))
                message = f"{name} has a derivative of its own, and changes {first}, "
                message += f"which shares memory with {second} here: that derivative does not hold"
                hint = f"let {name} write to another array, and copy that"
                raise KernelTypeError.of(message, "derivative", hint, stmt.span)


def _refuse(stmt: ir.Custom, array: ir.Var) -> NoReturn:
    rules = stmt.rules
    rule = rules.grad or rules.replay
    related = () if rule is None else (Related("the rule is here", rule.span),)
    message = f"the custom derivative of {rules.function.name} reads {array.hint}, which this kernel changes"
    hint = f"compute from the arguments of {rules.function.name}, or write to another array"
    raise KernelTypeError(Diagnostic(message, stmt.span, "derivative", hint=hint, related=related))


def refuse_tangent(stmt: ir.Custom) -> None:
    """Raise KernelTypeError for a surrogate gradient of arrays, which forward mode cannot follow."""
    name = stmt.rules.function.name
    message = f"{name} has a surrogate gradient, and no tangent"
    hint = f"write its tangent too, in a function decorated with @func_jvp({name})"
    raise KernelTypeError.of(message, "derivative", hint, stmt.span)


def refuse_native(stmt: ir.Native, missing: Literal["adj_snippet", "jvp"]) -> NoReturn:
    """Raise KernelTypeError where a derivative would have to pass through a snippet."""
    name = stmt.snippet.name
    if missing == "adj_snippet":
        message = f"no gradient passes through {name}: it is native C++ without an adjoint"
        hint = f"give @func_native an adj_snippet for {name}"
    else:
        message = f"no tangent passes through {name}: it is native C++"
        hint = f"write its tangent in a function decorated with @func_jvp({name})"
    raise KernelTypeError.of(message, "derivative", hint, stmt.span)


def refuse_unrepeatable(function: ir.Function) -> None:
    """Raise KernelTypeError where the backward pass would have to run a snippet again and cannot.

    One that returns a value is run again for it; that must change nothing, and find what it found.
    """
    changed, stmts = block_effects(function.body).changed, [*ir.walk(function.body)]
    replayed = (stmt for stmt in stmts if isinstance(stmt, ir.Custom) and stmt.rules.replay is not None)
    apart = {inner for stmt in replayed for inner in ir.walk(stmt.body)}
    for stmt in stmts:
        if not isinstance(stmt, ir.Native) or not stmt.outs or stmt in apart:
            continue
        lost = [array for _, array in stmt.arrays if array in changed]
        if lost:
            name = stmt.snippet.name
            message = f"the backward pass cannot call {name} again: the kernel changes {lost[0].hint}"
            hint = f"give @func_native a replay_snippet that returns what {name} returned"
            raise KernelTypeError.of(message, "derivative", hint, stmt.span)
