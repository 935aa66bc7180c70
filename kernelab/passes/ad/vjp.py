"""Reverse mode: derives the program that turns cotangents of a kernel's outputs into those of its inputs.

    before    f(x, y)                  y[i] = sin(x[i])
    after     f(x, y, x_bar, y_bar)    g = y_bar[i]; y_bar[i] = 0; x_bar[i] += g * cos(x[i])

The adjoint first *replays* the primal without its effects (`kernelab.passes.ad.primal_replay`), and then
*sweeps* its statements in reverse.  The adjoint of an `If` is an `If`, that of a loop the reversed loop,
which takes back what the replay saved.  Statements without loops are recomputed where the sweep needs them.

Everything is written without regard to what is needed; `simplify` then removes what is not: saved values that
nobody reads, loops that only fed them, adjoints that stay zero.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import assert_never

from kernelab.data_classes import dataclass, replace
from kernelab.hooks import Displayed
from kernelab.lang import ir
from kernelab.lang.build import Expr, elem_of, integer, is_float, type_of, zero
from kernelab.lang.types import Array, Value, int32, wide
from kernelab.passes.ad.activity import active as find_active
from kernelab.passes.ad.activity import masked, masked_products
from kernelab.passes.ad.derivative_rules import (
    EXTREMA,
    any_nonzero,
    better,
    converted,
    float_arrays,
    insert,
    is_one,
    pull,
    refuse_lost_reads,
    refuse_native,
    refuse_shared_arguments,
    refuse_unrepeatable,
    refused,
    shared,
    touches,
    winning,
)
from kernelab.passes.ad.primal_replay import Env, Replay, ascending, divisions_checked, value_of
from kernelab.passes.ad.record import Recorded, Residual, record
from kernelab.passes.common.copying import expanded
from kernelab.passes.common.effects import Groups, effects
from kernelab.passes.common.simplify import simplify, without_zeros


@dataclass(frozen=True, slots=True)
class Vjp(Displayed):
    """The primal to run under a tape, which keeps the residuals, and the adjoint that reads them.

    `sites` are the positions of the residuals among all that the function could keep.  Of a function that is
    an adjoint itself, or its primal, the adjoint has more parameters at the end: where threads begin in the
    parameters at the positions `reopened`, to which the function appends, and then an array of zeros like
    each residual at the positions `memories`, for the cotangents of what its stacks held.

    `again` is the function with its effects, reading the residuals, which are its last parameters; None
    unless they are all that it cannot read again.
    """

    primal: ir.Function
    adjoint: ir.Function
    residuals: tuple[Residual, ...]
    sites: tuple[int, ...] = ()
    reopened: tuple[int, ...] = ()
    memories: tuple[int, ...] = ()
    again: ir.Function | None = None


def vjp(
    function: ir.Function,
    active: Iterable[str],
    groups: Groups = (),
    storage: ir.Storage = "save",
    intact: Collection[str] = (),
    merged: bool = True,
    keep: Collection[int] | None = None,
    widened: Collection[str] = (),
) -> Vjp:
    """Differentiate a kernel in reverse with respect to the parameters named in `active`.

    The adjoint's parameters are the primal's, then ``<name>_bar`` for each active one in the order of the
    parameters (an array like the primal's; for a value, a 1-element array that is accumulated into), then
    each residual and its starts.  `groups` are sets of array parameters that may share memory, `storage` is
    that of loops whose user did not choose, `intact` names arrays of which nothing that was read is changed
    afterwards.  With `merged=False`, of a function that has not been simplified, the adjoint adds what each
    use of a value contributes in a statement of its own, ``x_bar = add(x_bar, share)``, at the line of that
    use and in the order of the chain rule.  `keep` lists the positions of the sites to keep, where those of
    the merged form are known.  `widened` names arrays of halves whose adjoints are arrays of float32.
    Raises KernelTypeError where there is no derivative.
    """
    names = frozenset(active)
    refuse_lost_reads(function, groups)
    refuse_shared_arguments(function, groups, "grad")
    refuse_unrepeatable(function)
    function = ascending(expanded(function, masked_products(function)))
    every = record(function, groups, keep, intact, merged)
    result = _pair(every, names, storage, merged, widened)
    if keep is not None:
        return replace(result, sites=tuple(keep))
    needed = effects(result.adjoint).reads
    used = {every.residuals[k] for k in result.memories}
    keep = tuple(i for i, each in enumerate(every.residuals) if each.array in needed or each in used)
    if len(keep) < len(every.residuals):
        every_kept = record(function, groups, keep, intact, merged)
        result = _pair(every_kept, names, storage, merged, widened)
        return replace(result, sites=keep)
    is_plain = not every.reopened and all(residual.memory is None for residual in every.residuals)
    return replace(result, sites=keep, again=every.replayable if is_plain else None)


def _pair(
    recorded: Recorded, names: frozenset[str], storage: ir.Storage, merged: bool, widened: Collection[str]
) -> Vjp:
    primal = recorded.replayable
    own = recorded.primal.params[: len(recorded.primal.params) - len(recorded.residuals)]
    extra = primal.params[len(own) :]
    params = [param for param in own if param.hint in names]
    bars = {param: bar_of(param, param.hint in widened) for param in params}
    memories = {r.memory: k for k, r in enumerate(recorded.residuals) if r.memory is not None}
    active = find_active(primal, params, frozenset(memories))
    writer = Adjoint(active, masked(primal, frozenset(memories)), bars, storage, merged)
    stacks = writer.reserve([memory for memory in memories if memory in active])
    writer.replay(primal.body, writer.env, "record")
    writer.sweep(primal.body, writer.env, writer.cotangents)
    writer.publish(params)
    signature = (*own, *bars.values(), *extra, *stacks.values())
    body = writer.builder.close()
    name, descending = f"{primal.name}_adjoint", not primal.descending
    adjoint = replace(primal, name=name, params=signature, body=body, descending=descending)
    adjoint = divisions_checked(simplify(without_zeros(simplify(adjoint, merged)), merged))
    positions = tuple(memories[memory] for memory in stacks)
    return Vjp(recorded.primal, adjoint, recorded.residuals, (), recorded.reopened, positions)


def bar_of(param: ir.Var, widened: bool = False) -> ir.Var:
    type = param.type if isinstance(param.type, Array) else Array(param.type, 1)
    if widened:
        type = Array(wide(type.elem), type.ndim)
    return ir.Var(type, f"{param.hint}_bar", param.span)


Cotangents = dict[ir.Var, ir.Atom]


class Adjoint(Replay):
    """Writes the adjoint; a `Cotangents` holds the cotangent of a primal Var so far, if it is not zero."""

    def __init__(
        self,
        active: frozenset[ir.Var],
        masked: frozenset[ir.Var],
        bars: dict[ir.Var, ir.Var],
        storage: ir.Storage,
        merged: bool,
    ) -> None:
        super().__init__(storage)
        self.merged = merged
        self.active = active
        self.masked = masked
        self.bars = dict(bars)
        self.locals: set[ir.Var] = set()
        self.env: Env = {}
        self.cotangents: Cotangents = {}

    def reserve(self, memories: Sequence[ir.Var]) -> dict[ir.Var, ir.Var]:
        """The arrays for the cotangents of what stacks held: each thread has a part of its own."""
        bars = {memory: bar_of(memory) for memory in memories}
        self.bars |= bars
        self.locals.update(bars.values())
        return bars

    # Sweep -------------------------------------------------------------------------------------------------

    def sweep(self, block: ir.Block, env: Env, cotangents: Cotangents) -> None:
        """Take cotangents backwards through a block whose values are in `env`."""
        self.allocate(block)
        for stmt in reversed(block.stmts):
            with self.builder.at(stmt.span):
                self.sweep_stmt(stmt, env, cotangents)

    def allocate(self, block: ir.Block) -> None:
        """The adjoints of the local arrays that a block makes are zeros where its sweep begins."""
        for stmt in block.stmts:
            if isinstance(stmt, ir.Alloc) and stmt.out in self.active:
                self.bars[stmt.out] = bar = bar_of(stmt.out, widened=True)
                self.locals.add(bar)
                self.builder.emit(ir.Alloc(bar, stmt.shape, stmt.span))

    def sweep_stmt(self, stmt: ir.Stmt, env: Env, cotangents: Cotangents) -> None:
        match stmt:
            case ir.Let():
                self.sweep_let(stmt, env, cotangents)
            case ir.Load(out, array, indices):
                g = cotangents.pop(out, None)
                if g is not None:
                    self.add_to(self.bars[array], [value_of(i, env) for i in indices], g)
            case ir.Store(array, indices, value):
                if array in self.bars:
                    share, place = self.read_bar(stmt, env), [value_of(i, env) for i in indices]
                    self.builder.store(self.bars[array], place, zero(share.type))
                    self.accumulate(cotangents, value, share)
            case ir.Atomic(out, _, array, indices, value):
                g = cotangents.pop(out, None)
                if array in self.bars:
                    self.accumulate(cotangents, value, self.atomic_share(stmt, env))
                if g is not None:
                    # The old value is what the thread before left: its adjoint runs after this one.
                    self.add_to(self.bars[array], [value_of(i, env) for i in indices], g)
            case ir.If():
                self.sweep_if(stmt, env, cotangents)
            case ir.Custom():
                self.sweep_custom(stmt, env, cotangents)
            case ir.For() | ir.While():
                self.sweep_loop(stmt, env, cotangents)
            case ir.Assert() | ir.Print() | ir.Alloc():
                pass
            case ir.Native(outs):
                if any(cotangents.pop(out, None) is not None for out in outs) or any(
                    array in self.bars for array in stmt.changed
                ):
                    refuse_native(stmt, "adj_snippet")
            case ir.Call() | ir.Save() | ir.Restore() | ir.Append():
                raise AssertionError(f"{type(stmt).__name__} in a primal program")
            case _:
                assert_never(stmt)

    def add_to(self, bar: ir.Var, indices: list[ir.Atom], g: ir.Atom) -> None:
        """Accumulate into an adjoint; one of the thread's own needs no atomic."""
        g = self.converted(g, elem_of(bar))
        if bar not in self.locals:
            self.builder.atomic_add(bar, indices, g)
            return
        self.builder.store(bar, indices, self.builder.apply("add", self.builder.load(bar, indices), g))

    def read_bar(self, stmt: ir.Store | ir.Atomic, env: Env) -> Expr:
        bar, hint = self.bars[stmt.array], f"{stmt.array.hint}_bar"
        return Expr(self.builder, self.builder.load(bar, [value_of(i, env) for i in stmt.indices], hint))

    def atomic_share(self, stmt: ir.Atomic, env: Env) -> Expr:
        """The cotangent of the value of an atomic: what an extremum gives to its winner, it takes away."""
        if stmt.kind == "add":
            return self.read_bar(stmt, env)
        if stmt.kind not in EXTREMA:
            raise refused(stmt)
        b, value, indices = self.builder, value_of(stmt.value, env), [value_of(i, env) for i in stmt.indices]
        if not is_one(value):
            wins, bar = winning(b, stmt.kind, value, value_of(stmt.out, env)), self.read_bar(stmt, env)
            none = zero(bar.type)
            b.store(self.bars[stmt.array], indices, shared(b, wins, none, bar.atom))
            return Expr(b, shared(b, wins, bar.atom, none))
        won = better(b, stmt.kind, value, value_of(stmt.out, env))

        def taken() -> tuple[ir.Atom, ...]:
            share = self.read_bar(stmt, env)
            b.store(self.bars[stmt.array], indices, zero(share.type))
            return (share.atom,)

        (share,) = b.select(won, taken, lambda: (zero(type_of(stmt.value)),))
        return Expr(b, share)

    def accumulate(
        self, cotangents: Cotangents, target: ir.Atom, g: Expr | None, handed_on: bool = False
    ) -> None:
        """Add to the cotangent of a primal Var; constants and inactive values take none.

        What a region hands on is no use of the value: the first cotangent of that kind is added to nothing.
        """
        if g is None or not isinstance(target, ir.Var) or target not in self.active:
            return
        share = self.converted(g.atom, wide(g.type))
        before = cotangents.get(target, zero(wide(g.type)))
        if before == zero(wide(g.type)) and (self.merged or handed_on):
            cotangents[target] = share
            return
        hint = f"{target.hint}_bar" if target.hint else ""
        cotangents[target] = self.builder.apply("add", before, share, hint=hint)

    def sweep_let(self, stmt: ir.Let, env: Env, cotangents: Cotangents) -> None:
        g = cotangents.pop(stmt.out, None)
        if g is None:
            return
        values = [value_of(v, env) for v in (stmt.out, *stmt.args)]
        y, *xs = (Expr(self.builder, self.converted(v, wide(type_of(v)))) for v in values)
        pulled = pull(stmt.op, y, xs, Expr(self.builder, g), stmt.out in self.masked)
        for arg, share in zip(stmt.args, pulled, strict=True):
            self.accumulate(cotangents, arg, share)

    def sweep_if(self, stmt: ir.If, env: Env, cotangents: Cotangents) -> None:
        bars = [cotangents.pop(out, None) for out in stmt.outs]
        targets = self.targets(stmt.then, stmt.orelse)
        before = {v: cotangents[v] for v in targets if v in cotangents}
        then, then_own = self.sweep_branch(stmt.then, env, bars, before)
        orelse, orelse_own = self.sweep_branch(stmt.orelse, env, bars, before)
        grown = [v for v in targets if any(own.get(v) is not before.get(v) for own in (then_own, orelse_own))]
        then = ir.Block(then.stmts, tuple(then_own.get(v, zero(wide(type_of(v)))) for v in grown))
        orelse = ir.Block(orelse.stmts, tuple(orelse_own.get(v, zero(wide(type_of(v)))) for v in grown))
        outs = self.bar_vars(grown)
        self.builder.emit(ir.If(outs, value_of(stmt.cond, env), then, orelse, stmt.span))
        cotangents.update(zip(grown, outs, strict=True))

    def sweep_branch(
        self, block: ir.Block, env: Env, bars: Sequence[ir.Atom | None], before: Cotangents
    ) -> tuple[ir.Block, Cotangents]:
        inner, own = dict(env), dict(before)
        with self.builder.block() as branch:
            self.recompute(block, inner)
            self.sweep_block(block, inner, bars, own)
        return branch.close(), own

    def sweep_custom(self, stmt: ir.Custom, env: Env, cotangents: Cotangents) -> None:
        bars = [cotangents.pop(out, None) for out in stmt.outs]
        if stmt.rules.grad is not None:
            self.sweep_grad(stmt, stmt.rules.grad, env, bars, cotangents)
            return
        inner = dict(env)
        self.recompute(stmt.body, inner)
        self.sweep_block(stmt.body, inner, bars, cotangents)

    def sweep_grad(
        self,
        stmt: ir.Custom,
        grad: ir.Function,
        env: Env,
        incoming: Sequence[ir.Atom | None],
        cotangents: Cotangents,
    ) -> None:
        """Call the user's grad function with the cotangents of the results."""
        args, results = [value_of(arg, env) for arg in stmt.args], stmt.rules.function.body.yields
        seeds = [
            zero(type_of(r)) if g is None else self.converted(g, type_of(r))
            for r, g in zip(results, incoming, strict=False)
        ]
        arrays = [stmt.args[i] for i in float_arrays(stmt.rules)]
        bars = [self.bars.get(array, array) for array in arrays if isinstance(array, ir.Var)]
        first = len(args) + len(seeds)
        absent = [first + k for k, array in enumerate(arrays) if array not in self.bars]
        is_linear = not touches(grad, range(first, first + len(bars)))
        if is_linear and all(g is None for g in incoming):
            return

        def shares() -> Sequence[ir.Atom]:
            return insert(self.builder, grad, [*args, *seeds, *bars], absent)

        targets = [arg for arg in stmt.args if is_float(arg)]
        if is_linear and not self.masked.isdisjoint(stmt.outs):
            some = any_nonzero(self.builder, seeds)
            parts = self.builder.select(some, shares, lambda: [zero(type_of(arg)) for arg in targets])
        else:
            parts = tuple(shares())
        for target, share in zip(targets, parts, strict=True):
            self.accumulate(cotangents, target, Expr(self.builder, share))

    # Loops -------------------------------------------------------------------------------------------------

    def sweep_loop(self, stmt: ir.Loop, env: Env, cotangents: Cotangents) -> None:
        moved = self.moved(stmt)
        final = [cotangents.pop(stmt.outs[i], zero(wide(type_of(stmt.outs[i])))) for i in moved]
        trips, inner = self.trip_count(stmt, env), dict(env)
        match self.storage(stmt):
            case "save":
                swept = self.sweep_stretch(stmt, inner, None, trips, final, cotangents)
            case "recompute":
                self.record_stretch(stmt, inner, None, trips, [value_of(init, env) for init in stmt.inits])
                swept = self.sweep_stretch(stmt, inner, None, trips, final, cotangents)
            case "checkpoint":
                swept = self.sweep_segments(stmt, inner, trips, final, cotangents)
        for i, bar in zip(moved, swept, strict=True):
            self.accumulate(cotangents, stmt.inits[i], Expr(self.builder, bar), handed_on=True)

    def moved(self, stmt: ir.Loop) -> list[int]:
        """The carries that have cotangents."""
        return [i for i, carry in enumerate(stmt.carries) if carry in self.active]

    def sweep_segments(
        self, stmt: ir.Loop, env: Env, trips: ir.Atom, final: list[ir.Atom], cotangents: Cotangents
    ) -> tuple[ir.Var, ...]:
        """From one checkpoint back to the one before: the iterations between run again, then are swept."""
        b = self.builder

        def sweep_segment(segment: ir.Var, bars: list[ir.Atom], own: Cotangents) -> list[ir.Atom]:
            inner = dict(env)
            self.pop(stmt, inner)
            first = b.apply("mul", segment, segment, hint="first")
            rest = b.apply("sub", trips if trips.type == int32 else b.apply("int32", trips), first)
            length = b.apply("min", self.between(segment), rest, hint="length")
            self.set_counters(stmt, inner, first)
            starts = [value_of(carry, inner) for carry in stmt.carries]
            self.record_stretch(stmt, inner, first, length, starts)
            return list(self.sweep_stretch(stmt, dict(env), first, length, bars, own))

        segment = ir.Var(int32, "segment", stmt.span)
        count = value_of(self.segments[stmt], env)
        return self.reversed_loop(stmt, segment, count, final, cotangents, sweep_segment)

    def sweep_stretch(
        self,
        stmt: ir.Loop,
        env: Env,
        first: ir.Atom | None,
        length: ir.Atom,
        final: list[ir.Atom],
        cotangents: Cotangents,
    ) -> tuple[ir.Var, ...]:
        """Sweep iterations that were saved: `length` of them from number `first` on, all of them if None."""

        def sweep_iteration(index: ir.Var, bars: list[ir.Atom], own: Cotangents) -> list[ir.Atom]:
            inner = dict(env)
            self.set_counters(stmt, inner, self.set_index(stmt, inner, first, index))
            self.recompute(stmt.body, inner)
            incoming = dict(zip(self.moved(stmt), bars, strict=True))
            self.sweep_block(stmt.body, inner, [incoming.get(i) for i in range(len(stmt.carries))], own)
            carries = [stmt.carries[i] for i in self.moved(stmt)]
            return [own.pop(carry, zero(wide(type_of(carry)))) for carry in carries]

        hint = stmt.index.hint if isinstance(stmt, ir.For) else ""
        index = ir.Var(type_of(length), hint, stmt.span)
        return self.reversed_loop(stmt, index, length, final, cotangents, sweep_iteration)

    def reversed_loop(
        self,
        stmt: ir.Loop,
        index: ir.Var,
        count: ir.Atom,
        final: list[ir.Atom],
        cotangents: Cotangents,
        sweep_once: Callable[[ir.Var, list[ir.Atom], Cotangents], list[ir.Atom]],
    ) -> tuple[ir.Var, ...]:
        """A loop that takes the cotangents of the carried values from its end (`final`) to its start.

        Those of other values that the loop reads are accumulated in `cotangents`.
        """
        bars = self.bar_vars([stmt.carries[i] for i in self.moved(stmt)])
        targets = [v for v in self.targets(stmt.body) if v not in stmt.carries]
        sums = dict(zip(targets, self.bar_vars(targets), strict=True))
        own = Cotangents(sums)
        with self.builder.block() as body:
            yields = sweep_once(index, list(bars), own)
            grown = [v for v in targets if own.get(v) not in (None, sums[v])]
        copied = body.close(*yields, *(own[v] for v in grown))
        inits = (*final, *(cotangents.get(v, zero(wide(type_of(v)))) for v in grown))
        moved = self.bar_vars([stmt.carries[i] for i in self.moved(stmt)])
        outs = self.bar_vars(grown)
        carries = (*bars, *(sums[v] for v in grown))
        self.builder.emit(ir.For((*moved, *outs), index, count, carries, inits, copied, stmt.span, True))
        cotangents.update(zip(grown, outs, strict=True))
        return moved

    def trip_count(self, stmt: ir.Loop, env: Env) -> ir.Atom:
        if isinstance(stmt, ir.For) and stmt.stop is None:
            return value_of(stmt.count, env)
        return value_of(self.trips[stmt], env)

    def sweep_block(
        self, block: ir.Block, env: Env, bars: Sequence[ir.Atom | None], cotangents: Cotangents
    ) -> None:
        for target, g in zip(block.yields, bars, strict=True):
            self.accumulate(cotangents, target, None if g is None else Expr(self.builder, g), handed_on=True)
        self.sweep(block, env, cotangents)

    def targets(self, *inner: ir.Block) -> list[ir.Var]:
        """The active values from outside that blocks read: their cotangents grow inside."""
        used = dict.fromkeys(atom for block in inner for atom in ir.reads(block))
        defined = {var for block in inner for var in ir.defined(block)}
        outside = (v for v in used if isinstance(v, ir.Var) and v not in defined)
        return [v for v in outside if v in self.active and not isinstance(v.type, Array)]

    def bar_vars(self, vars: Sequence[ir.Var]) -> tuple[ir.Var, ...]:
        """Vars for the cotangents of Vars."""
        span = self.builder.span
        return tuple(ir.Var(wide(type_of(v)), f"{v.hint}_bar" if v.hint else "", span) for v in vars)

    def converted(self, atom: ir.Atom, type: Value) -> ir.Atom:
        """A value with the scalars of another type."""
        return converted(self.builder, atom, type)

    def publish(self, params: Sequence[ir.Var]) -> None:
        """Accumulate the cotangents of parameters that are values into their 1-element arrays."""
        for param in params:
            if param in self.cotangents:
                self.builder.span = param.span
                self.add_to(self.bars[param], [integer(0)], self.cotangents[param])
