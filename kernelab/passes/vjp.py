"""Reverse mode: the adjoint program takes the cotangents of what a kernel wrote to those of what it read.

    before    f(x, y)                  y[i] = sin(x[i])
    after     f(x, y, x_bar, y_bar)    g = y_bar[i]; y_bar[i] = 0; x_bar[i] += g * cos(x[i])

The adjoint first *replays* the primal without its effects, and then *sweeps* its statements in reverse.  The
adjoint of an `If` is an `If`, that of a loop the reversed loop.  While the replay runs a loop, it saves at
the end of each iteration what the sweep of that iteration needs: the carried values, and the results and trip
counts of the loops inside, last in first out.  So nothing with a loop in it ever runs again, and the cost is
flat at any depth.  Statements without loops are recomputed where the sweep needs them.

Everything is written without regard to what is needed; `simplify` then removes what is not: saved values that
nobody reads, loops that only fed them, adjoints that stay zero.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from kernelab.lang.build import Builder, Expr, integer, type_of, zero
from kernelab.lang.ir import (
    Alloc,
    Append,
    Assert,
    Atom,
    Atomic,
    Block,
    Call,
    Const,
    Custom,
    For,
    Function,
    If,
    Let,
    Load,
    Loop,
    Native,
    Print,
    Restore,
    Save,
    Stack,
    Stmt,
    Store,
    Var,
    While,
    atoms,
    blocks,
    defs,
)
from kernelab.lang.ops import Bilinear, Expanded, Linear, Op, Partials, Rules, Undefined, Zero
from kernelab.lang.types import Array, Scalar, int32
from kernelab.passes.activity import active as find_active
from kernelab.passes.activity import masked
from kernelab.passes.atomics import EXTREMA, better, refused
from kernelab.passes.copying import Copier
from kernelab.passes.custom import any_nonzero, float_arrays, insert, is_float, refuse_lost_reads, touches
from kernelab.passes.effects import Groups, effects
from kernelab.passes.expand import expanded
from kernelab.passes.jvp import as_tuple, scaled
from kernelab.passes.native import refuse_native, refuse_unrepeatable
from kernelab.passes.record import Recorded, Residual, record
from kernelab.passes.simplify import simplify


@dataclass(frozen=True, slots=True)
class Vjp:
    """The primal to run under a tape, which keeps the residuals, and the adjoint that reads them."""

    primal: Function
    adjoint: Function
    residuals: tuple[Residual, ...]


def vjp(function: Function, active: Iterable[str], groups: Groups = ()) -> Vjp:
    """Differentiate a kernel in reverse with respect to the parameters named in `active`.

    The adjoint's parameters are the primal's, then ``<name>_bar`` for each active one in the order of the
    parameters (an array like the primal's; for a value, a 1-element array that is accumulated into), then
    each residual and its starts.  `groups` are sets of array parameters that may share memory.  Raises
    KernelTypeError where there is no derivative.
    """
    names = frozenset(active)
    refuse_lost_reads(function, groups)
    refuse_unrepeatable(function)
    function = expanded(function)
    every = record(function, groups)
    adjoint = _adjoint(every, names)
    needed = effects(adjoint).reads
    keep = [i for i, residual in enumerate(every.residuals) if residual.array in needed]
    if len(keep) == len(every.residuals):
        return Vjp(every.primal, adjoint, every.residuals)
    fewer = record(function, groups, keep)
    return Vjp(fewer.primal, _adjoint(fewer, names), fewer.residuals)


def _adjoint(recorded: Recorded, names: frozenset[str]) -> Function:
    primal = recorded.replayable
    own = recorded.primal.params[: len(recorded.primal.params) - len(recorded.residuals)]
    extra = primal.params[len(own) :]
    params = [param for param in own if param.hint in names]
    bars = {param: _bar(param) for param in params}
    writer = _Adjoint(find_active(primal, params), masked(primal), bars)
    writer.replay(primal.body, writer.env)
    writer.sweep(primal.body, writer.env, writer.cotangents)
    writer.publish(params)
    signature = (*own, *bars.values(), *extra)
    body = writer.builder.close()
    name, descending = f"{primal.name}_adjoint", not primal.descending
    adjoint = replace(primal, name=name, params=signature, body=body, descending=descending)
    return simplify(simplify(adjoint))


def _bar(param: Var) -> Var:
    type = param.type if isinstance(param.type, Array) else Array(param.type, 1)
    return Var(type, f"{param.hint}_bar", param.span)


Env = dict[Var, Atom]
Cotangents = dict[Var, Atom]


class _Adjoint:
    """Writes the adjoint.

    An `Env` says which atom holds a primal value where the builder stands; a `Cotangents` holds the cotangent
    of a primal Var so far, and lacks those that are still zero.
    """

    def __init__(self, active: frozenset[Var], masked: frozenset[Var], bars: dict[Var, Var]) -> None:
        self.builder = Builder()
        self.active = active
        self.masked = masked
        self.bars = dict(bars)
        self.locals: set[Var] = set()
        self.env: Env = {}
        self.cotangents: Cotangents = {}
        self.stacks: dict[Block, tuple[Stack, list[Var]]] = {}
        self.trips: dict[Loop, Var] = {}

    # Replay ------------------------------------------------------------------------------------------------

    def replay(self, block: Block, env: Env, loops: bool = True) -> None:
        """Compute a block's values again, without effects; saving in its loops, or leaving its loops out."""
        for stmt in block.stmts:
            if loops or not _has_loop(stmt):
                with self.builder.at(stmt.span):
                    self.replay_stmt(stmt, env)

    def replay_stmt(self, stmt: Stmt, env: Env) -> None:
        match stmt:
            case Let() | Alloc():
                Copier(self.builder, env).stmt(stmt)
            case Load(out) | Atomic(out):
                if stmt.held is not None:
                    env[out] = _value(stmt.held, env)
                elif isinstance(stmt, Load):
                    Copier(self.builder, env).stmt(stmt)
            case If():
                self.replay_if(stmt, env)
            case For() | While():
                self.replay_loop(stmt, env)
            case Custom():
                self.replay_custom(stmt, env)
            case Native(outs):
                if outs and not stmt.changed:
                    Copier(self.builder, env).stmt(stmt)
            case Store() | Assert() | Print():
                pass
            case Call() | Save() | Restore() | Append():
                raise AssertionError(f"{type(stmt).__name__} in a primal program")
            case _:
                assert_never(stmt)

    def replay_if(self, stmt: If, env: Env) -> None:
        then, orelse = self.replay_branch(stmt.then, env), self.replay_branch(stmt.orelse, env)
        outs = _fresh(stmt.outs, env)
        self.builder.emit(If(outs, _value(stmt.cond, env), then, orelse, stmt.span))

    def replay_branch(self, block: Block, env: Env) -> Block:
        inner = dict(env)
        with self.builder.block() as branch:
            self.replay(block, inner)
            if any(map(_has_loop, block.stmts)):
                self.save(block, inner, self.loop_results(block))
            yields = [_value(atom, inner) for atom in block.yields]
        return branch.close(*yields)

    def replay_custom(self, stmt: Custom, env: Env) -> None:
        args = tuple(_value(arg, env) for arg in stmt.args)
        body = self.replay_branch(stmt.body, env)
        outs = _fresh(stmt.outs, env)
        self.builder.emit(Custom(outs, args, stmt.rules, body, stmt.span))
        if stmt.rules.replay is None:
            return
        # The results come from the user's replay; whatever else the sweep needs, from the body above.
        with self.builder.block() as replay:
            yields = insert(self.builder, stmt.rules.replay, args)
        results = _fresh(stmt.outs[: len(yields)], env)
        self.builder.emit(Custom(results, args, stmt.rules, replay.close(*yields), stmt.span))

    def replay_loop(self, stmt: Loop, env: Env) -> None:
        inits = [_value(atom, env) for atom in stmt.inits]
        inner = dict(env)
        carries = _fresh(stmt.carries, inner)
        index = _fresh((stmt.index,), inner)[0] if isinstance(stmt, For) else None
        passed = Var(int32, "trips", stmt.span)
        with self.builder.block() as body:
            self.replay(stmt.body, inner)
            self.save(stmt.body, inner, [*stmt.carries, *self.loop_results(stmt.body)])
            yields = [_value(atom, inner) for atom in stmt.body.yields]
            more = self.builder.apply("add", passed, integer(1), hint="trips")
        outs = _fresh(stmt.outs, env)
        total = Var(int32, "trips", stmt.span)
        self.count_trips(stmt, total, env)
        copied = body.close(*yields, more)
        self.emit_loop(stmt, (*outs, total), index, env, (*carries, passed), (*inits, integer(0)), copied)

    def emit_loop(
        self,
        stmt: Loop,
        outs: tuple[Var, ...],
        index: Var | None,
        env: Env,
        carries: tuple[Var, ...],
        inits: tuple[Atom, ...],
        body: Block,
    ) -> None:
        if isinstance(stmt, While):
            self.builder.emit(While(outs, carries, inits, stmt.stop, body, stmt.span))
            return
        assert index is not None and not stmt.reverse
        count = _value(stmt.count, env)
        self.builder.emit(For(outs, index, count, carries, inits, body, stmt.span, False, stmt.stop))

    def count_trips(self, stmt: Loop, total: Var, env: Env) -> None:
        """Remember how often a loop ran, as a primal Var of its own: it is saved like the loop's outs."""
        counter = self.trips.setdefault(stmt, Var(int32, "trips", stmt.span))
        env[counter] = total

    def loop_results(self, block: Block) -> list[Var]:
        """What the statements with loops in them define, which the sweep cannot recompute."""
        results: list[Var] = []
        for stmt in block.stmts:
            if isinstance(stmt, If | Custom) and _has_loop(stmt):
                results += stmt.outs
            elif isinstance(stmt, For | While):
                results += stmt.outs
                if isinstance(stmt, While) or stmt.stop is not None:
                    results.append(self.trips[stmt])
        return results

    def save(self, block: Block, env: Env, vars: list[Var]) -> None:
        stack = Stack("saved")
        self.stacks[block] = stack, vars
        self.builder.emit(Save(stack, tuple(_value(var, env) for var in vars), self.builder.span))

    # Sweep -------------------------------------------------------------------------------------------------

    def sweep(self, block: Block, env: Env, cotangents: Cotangents) -> None:
        """Take cotangents backwards through a block whose values are in `env`."""
        self.allocate(block)
        for stmt in reversed(block.stmts):
            with self.builder.at(stmt.span):
                self.sweep_stmt(stmt, env, cotangents)

    def allocate(self, block: Block) -> None:
        """The adjoints of the local arrays that a block makes are zeros where its sweep begins."""
        for stmt in block.stmts:
            if isinstance(stmt, Alloc) and stmt.out in self.active:
                self.bars[stmt.out] = bar = _bar(stmt.out)
                self.locals.add(bar)
                self.builder.emit(Alloc(bar, stmt.shape, stmt.span))

    def sweep_stmt(self, stmt: Stmt, env: Env, cotangents: Cotangents) -> None:
        match stmt:
            case Let():
                self.sweep_let(stmt, env, cotangents)
            case Load(out, array, indices):
                g = cotangents.pop(out, None)
                if g is not None:
                    self.add_to(self.bars[array], [_value(i, env) for i in indices], g)
            case Store(array, indices, value):
                if array in self.bars:
                    share = self.read_bar(stmt, env)
                    self.builder.store(self.bars[array], [_value(i, env) for i in indices], zero(share.type))
                    self.accumulate(cotangents, value, share)
            case Atomic(out, _, array, indices, value):
                g = cotangents.pop(out, None)
                if array in self.bars:
                    self.accumulate(cotangents, value, self.atomic_share(stmt, env))
                if g is not None:
                    # The old value is what the thread before left: its adjoint runs after this one.
                    self.builder.atomic_add(self.bars[array], [_value(i, env) for i in indices], g)
            case If():
                self.sweep_if(stmt, env, cotangents)
            case Custom():
                self.sweep_custom(stmt, env, cotangents)
            case For() | While():
                self.sweep_loop(stmt, env, cotangents)
            case Assert() | Print() | Alloc():
                pass
            case Native(outs):
                if any(cotangents.pop(out, None) is not None for out in outs) or any(
                    array in self.bars for array in stmt.changed
                ):
                    refuse_native(stmt, "adj_snippet")
            case Call() | Save() | Restore() | Append():
                raise AssertionError(f"{type(stmt).__name__} in a primal program")
            case _:
                assert_never(stmt)

    def add_to(self, bar: Var, indices: list[Atom], g: Atom) -> None:
        """Accumulate into an adjoint; one of the thread's own needs no atomic."""
        if bar not in self.locals:
            self.builder.atomic_add(bar, indices, g)
            return
        before = self.builder.load(bar, indices)
        self.builder.store(bar, indices, self.builder.apply("add", before, g))

    def read_bar(self, stmt: Store | Atomic, env: Env) -> Expr:
        bar, hint = self.bars[stmt.array], f"{stmt.array.hint}_bar"
        return Expr(self.builder, self.builder.load(bar, [_value(i, env) for i in stmt.indices], hint))

    def atomic_share(self, stmt: Atomic, env: Env) -> Expr:
        """The cotangent of the value of an atomic: what an extremum gives to its winner, it takes away."""
        if stmt.kind == "add":
            return self.read_bar(stmt, env)
        if stmt.kind not in EXTREMA:
            raise refused(stmt)
        b, value, indices = self.builder, _value(stmt.value, env), [_value(i, env) for i in stmt.indices]
        won = better(b, stmt.kind, value, _value(stmt.out, env))

        def taken() -> tuple[Atom, ...]:
            share = self.read_bar(stmt, env)
            b.store(self.bars[stmt.array], indices, zero(share.type))
            return (share.atom,)

        (share,) = b.select(won, taken, lambda: (zero(type_of(stmt.value)),))
        return Expr(b, share)

    def accumulate(self, cotangents: Cotangents, target: Atom, g: Expr | None) -> None:
        """Add to the cotangent of a primal Var; constants and inactive values take none."""
        if g is None or not isinstance(target, Var) or target not in self.active:
            return
        before = cotangents.get(target)
        if before is None or before == zero(g.type):
            cotangents[target] = g.atom
            return
        hint = f"{target.hint}_bar" if target.hint else ""
        cotangents[target] = self.builder.apply("add", before, g.atom, hint=hint)

    def sweep_let(self, stmt: Let, env: Env, cotangents: Cotangents) -> None:
        g = cotangents.pop(stmt.out, None)
        if g is None:
            return
        y = Expr(self.builder, _value(stmt.out, env))
        xs = [Expr(self.builder, _value(arg, env)) for arg in stmt.args]
        pulled = pull(stmt.op, y, xs, Expr(self.builder, g), stmt.out in self.masked)
        for arg, share in zip(stmt.args, pulled, strict=True):
            self.accumulate(cotangents, arg, share)

    def sweep_if(self, stmt: If, env: Env, cotangents: Cotangents) -> None:
        given = [cotangents.pop(out, None) for out in stmt.outs]
        targets = self.targets(stmt.then, stmt.orelse)
        before = {v: cotangents[v] for v in targets if v in cotangents}
        then, then_own = self.sweep_branch(stmt.then, env, given, before)
        orelse, orelse_own = self.sweep_branch(stmt.orelse, env, given, before)
        grown = [v for v in targets if any(own.get(v) is not before.get(v) for own in (then_own, orelse_own))]
        then = Block(then.stmts, tuple(then_own.get(v, zero(type_of(v))) for v in grown))
        orelse = Block(orelse.stmts, tuple(orelse_own.get(v, zero(type_of(v))) for v in grown))
        outs = self.bar_vars(grown)
        self.builder.emit(If(outs, _value(stmt.cond, env), then, orelse, stmt.span))
        cotangents.update(zip(grown, outs, strict=True))

    def sweep_branch(
        self, block: Block, env: Env, given: Sequence[Atom | None], before: Cotangents
    ) -> tuple[Block, Cotangents]:
        inner, own = dict(env), dict(before)
        with self.builder.block() as branch:
            self.recompute(block, inner)
            self.sweep_block(block, inner, given, own)
        return branch.close(), own

    def sweep_custom(self, stmt: Custom, env: Env, cotangents: Cotangents) -> None:
        given = [cotangents.pop(out, None) for out in stmt.outs]
        if stmt.rules.grad is not None:
            self.sweep_grad(stmt, stmt.rules.grad, env, given, cotangents)
            return
        inner = dict(env)
        self.recompute(stmt.body, inner)
        self.sweep_block(stmt.body, inner, given, cotangents)

    def sweep_grad(
        self, stmt: Custom, grad: Function, env: Env, given: Sequence[Atom | None], cotangents: Cotangents
    ) -> None:
        """What the user's grad function makes of the cotangents of the results."""
        args, results = [_value(arg, env) for arg in stmt.args], stmt.rules.function.body.yields
        seeds = [zero(type_of(r)) if g is None else g for r, g in zip(results, given, strict=False)]
        arrays = [stmt.args[i] for i in float_arrays(stmt.rules)]
        bars = [self.bars.get(array, array) for array in arrays if isinstance(array, Var)]
        first = len(args) + len(seeds)
        absent = [first + k for k, array in enumerate(arrays) if array not in self.bars]
        is_linear = not touches(grad, range(first, first + len(bars)))
        if is_linear and all(g is None for g in given):
            return

        def shares() -> Sequence[Atom]:
            return insert(self.builder, grad, [*args, *seeds, *bars], absent)

        targets = [arg for arg in stmt.args if is_float(arg)]
        if is_linear and not self.masked.isdisjoint(stmt.outs):
            some = any_nonzero(self.builder, seeds)
            found = self.builder.select(some, shares, lambda: [zero(type_of(arg)) for arg in targets])
        else:
            found = tuple(shares())
        for target, share in zip(targets, found, strict=True):
            self.accumulate(cotangents, target, Expr(self.builder, share))

    def sweep_loop(self, stmt: Loop, env: Env, cotangents: Cotangents) -> None:
        moved = [i for i, carry in enumerate(stmt.carries) if carry in self.active]
        zeros = {i: zero(type_of(stmt.carries[i])) for i in moved}
        given = [cotangents.pop(stmt.outs[i], zeros[i]) for i in moved]
        bars = self.bar_vars([stmt.carries[i] for i in moved])
        targets = [v for v in self.targets(stmt.body) if v not in stmt.carries]
        sums = dict(zip(targets, self.bar_vars(targets), strict=True))
        incoming = dict(zip(moved, bars, strict=True))
        inner, own = dict(env), Cotangents(sums)
        index = _fresh((stmt.index,), inner)[0] if isinstance(stmt, For) else Var(int32, "", stmt.span)
        with self.builder.block() as body:
            self.recompute(stmt.body, inner)
            self.sweep_block(stmt.body, inner, [incoming.get(i) for i in range(len(stmt.carries))], own)
            yields = [own.pop(stmt.carries[i], zeros[i]) for i in moved]
        grown = [v for v in targets if own[v] is not sums[v]]
        copied = body.close(*yields, *(own[v] for v in grown))
        inits = (*given, *(cotangents.get(v, zero(type_of(v))) for v in grown))
        outs = self.bar_vars([*(stmt.carries[i] for i in moved), *grown])
        carries = (*bars, *(sums[v] for v in grown))
        self.builder.emit(
            For(outs, index, self.trip_count(stmt, env), carries, inits, copied, stmt.span, True)
        )
        cotangents.update(zip(grown, outs[len(moved) :], strict=True))
        for i, bar in zip(moved, outs, strict=False):
            self.accumulate(cotangents, stmt.inits[i], Expr(self.builder, bar))

    def trip_count(self, stmt: Loop, env: Env) -> Atom:
        if isinstance(stmt, For) and stmt.stop is None:
            return _value(stmt.count, env)
        return _value(self.trips[stmt], env)

    def sweep_block(
        self, block: Block, env: Env, given: Sequence[Atom | None], cotangents: Cotangents
    ) -> None:
        for target, g in zip(block.yields, given, strict=True):
            self.accumulate(cotangents, target, None if g is None else Expr(self.builder, g))
        self.sweep(block, env, cotangents)

    def recompute(self, block: Block, env: Env) -> None:
        """Bring a block's values into `env`: those that were saved, then those that follow from them."""
        if block in self.stacks:
            stack, vars = self.stacks[block]
            self.builder.emit(Restore(stack, _fresh(tuple(vars), env), self.builder.span))
        self.replay(block, env, loops=False)

    def targets(self, *inner: Block) -> list[Var]:
        """The active values from outside that blocks read: their cotangents grow inside."""
        found: dict[Var, None] = {}
        for block in inner:
            found.update(dict.fromkeys(_free(block)))
        return [v for v in found if v in self.active and not isinstance(v.type, Array)]

    def bar_vars(self, vars: Sequence[Var]) -> tuple[Var, ...]:
        span = self.builder.span
        return tuple(Var(v.type, f"{v.hint}_bar" if v.hint else "", span) for v in vars)

    def publish(self, params: Sequence[Var]) -> None:
        """Accumulate the cotangents of parameters that are values into their 1-element arrays."""
        for param in params:
            if param in self.cotangents:
                self.builder.atomic_add(self.bars[param], [integer(0)], self.cotangents[param])


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
            return _cotangents((left(g, *xs), right(g, *xs)))
        case Rules(_, rule):
            return _cotangents(rule(y, tuple(xs), g))
        case Zero() | Undefined():
            return (None,) * len(xs)
        case Expanded():
            raise AssertionError(f"{op.name} should have been expanded")


def _cotangents(value: object) -> tuple[Expr | None, ...]:
    return tuple(item if isinstance(item, Expr) else None for item in as_tuple(value))


def _value(atom: Atom, env: Env) -> Atom:
    return atom if isinstance(atom, Const) else env.get(atom, atom)


def _fresh(vars: tuple[Var, ...], env: Env) -> tuple[Var, ...]:
    copies = tuple(Var(var.type, var.hint, var.span) for var in vars)
    env.update(zip(vars, copies, strict=True))
    return copies


def _has_loop(stmt: Stmt) -> bool:
    return isinstance(stmt, For | While) or any(_has_loop(s) for block in blocks(stmt) for s in block.stmts)


def _free(block: Block) -> list[Var]:
    """The Vars that a block reads from outside, in order of use."""
    used: dict[Atom, None] = {}
    defined: set[Atom] = set()
    _collect(block, used, defined)
    return [atom for atom in used if isinstance(atom, Var) and atom not in defined]


def _collect(block: Block, used: dict[Atom, None], defined: set[Atom]) -> None:
    for stmt in block.stmts:
        used.update(dict.fromkeys(atoms(stmt)))
        defined.update(defs(stmt))
        if isinstance(stmt, For | While):
            defined.update(stmt.carries)
        for inner in blocks(stmt):
            _collect(inner, used, defined)
    used.update(dict.fromkeys(block.yields))
