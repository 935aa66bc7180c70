"""Replay: recomputes the primal inside its adjoint, without effects, and saves the values the sweep needs.

    primal      for k: s = s * x[k]
    save        for k: t = s; s = s * x[k]; save t
    recompute   for k: s = s * x[k]                         later: for k: t = s; s = s * x[k]; save t
    checkpoint  for k: if k == due: save s; due = next      later: for k between two: t = s; ...; save t
                       s = s * x[k]

What a loop keeps is its *storage*.  `save` keeps the values of every iteration while the replay runs it, with
the results and trip counts of the loops inside, last in first out: nothing with a loop in it ever runs again,
and the cost is flat at any depth.  `recompute` keeps nothing: when the sweep reaches the loop, the loop runs
again, saving.  So loops around it do not multiply what is kept.  `checkpoint` keeps the carried values before
each iteration whose number is a square, and when the sweep comes runs the iterations between two of them
again, saving: n iterations need room for 3 * sqrt(n), whether or not n is known when the loop begins.

Everything is written without regard to what is needed; `simplify` removes saved values that nobody reads.
"""

from collections.abc import Sequence
from typing import Any, Literal, assert_never

from kernelab.data_classes import dataclass, replace
from kernelab.errors import Span
from kernelab.lang import ir
from kernelab.lang.build import Builder, constant, integer, type_of, zero
from kernelab.lang.ops import TRIPS
from kernelab.lang.types import Scalar, bytes_of, int32
from kernelab.passes.access.affine_forms import Step, counters, value_after
from kernelab.passes.ad.derivative_rules import insert
from kernelab.passes.common.copying import Copier


def ascending(function: ir.Function) -> ir.Function:
    """The function with every reversed loop written as an ascending one."""
    if not any(stmt.reverse for stmt in ir.of_kind(function.body, ir.For)):
        return function
    return _Ascending().function(function)


class _Ascending(Copier):
    def loop(self, stmt: ir.Loop) -> None:
        if not isinstance(stmt, ir.For) or not stmt.reverse:
            super().loop(stmt)
            return
        b, count, inits = self.builder, self.atom(stmt.count), self.atoms(stmt.inits)
        carries = self.fresh_all(stmt.carries)
        number = ir.Var(stmt.index.type, stmt.index.hint, stmt.index.span)
        with b.block() as body:
            last = b.apply("sub", count, constant(1, type_of(count)))
            self.env[stmt.index] = b.apply("sub", last, number)
            self.stmts(stmt.body)
            yields = self.atoms(stmt.body.yields)
        loop = replace(stmt, outs=self.fresh_all(stmt.outs), carries=carries, inits=inits)
        b.emit(replace(loop, index=number, count=count, body=body.close(*yields), reverse=False))


# ---------------------------------------------------------------------------------------- division checks


def divisions_checked(function: ir.Function) -> ir.Function:
    """The function with an assertion before each integer division whose divisor is not a constant.

    What the adjoint divides by may have changed since the primal checked it, or no primal ran, and on a CPU
    an integer division by zero ends the whole process.  The step of a range is such a divisor, too.
    """
    is_divisor = any(_divisor(stmt) is not None for stmt in ir.walk(function.body))
    return _Checker().function(function) if is_divisor else function


def _divisor(stmt: ir.Stmt) -> ir.Var | None:
    """What a statement divides by, if that is an integer that is known only when it runs."""
    if not isinstance(stmt, ir.Let) or not (stmt.op is TRIPS or stmt.op.name in ("floordiv", "mod")):
        return None
    is_int = isinstance(stmt.out.type, Scalar) and stmt.out.type.is_int
    return stmt.args[-1] if is_int and isinstance(stmt.args[-1], ir.Var) else None


class _Checker(Copier):
    def let(self, stmt: ir.Let) -> None:
        divisor = _divisor(stmt)
        if divisor is not None:
            by = self.atom(divisor)
            nonzero = self.builder.apply("ne", by, zero(type_of(by)))
            if stmt.op is TRIPS:
                self.builder.check(nonzero, "assertion", "the step is zero")
            else:
                self.builder.check(nonzero, "division", "integer division by zero")
        super().let(stmt)


# --------------------------------------------------------------------------------------------- primal replay


Env = dict[ir.Var, ir.Atom]
"""The atom that holds a primal value at the builder's position."""

Mode = Literal["record", "run", "straight"]
"""The treatment of loops: run and save what the sweep needs, run and save nothing, or leave out."""

SAVED, CHECKPOINT, SEGMENT = "saved", "checkpoint", "segment"
"""The hints of stacks."""

FEW = 16
"""Where memory matters, a loop of so few trips still saves: another run would cost more than it spares."""


class Replay:
    """Writes replays; `storage` is that of loops whose user did not choose.

    `trips` and `segments` are primal Vars for how often a loop ran and how many checkpoints it left.
    """

    def __init__(self, storage: ir.Storage) -> None:
        self.builder = Builder()
        self.default = storage
        self.stacks: dict[ir.Block | ir.Loop, tuple[ir.Stack, list[ir.Var]]] = {}
        self.trips: dict[ir.Loop, ir.Var] = {}
        self.segments: dict[ir.Loop, ir.Var] = {}
        self._counters: dict[ir.Loop, dict[int, Step]] = {}

    def storage(self, loop: ir.Loop) -> ir.Storage:
        if isinstance(loop, ir.For) and loop.storage is not None:
            return loop.storage
        is_short = isinstance(loop, ir.For) and isinstance(loop.count, ir.Const) and loop.count.value <= FEW
        return "save" if is_short else self.default

    def is_kept(self, stmt: ir.Stmt) -> bool:
        """Whether the sweep gets what a statement defines from a stack: it never runs again."""
        return has_loop(stmt)

    def replay(self, block: ir.Block, env: Env, mode: Mode) -> None:
        """Compute a block's values again, without effects."""
        for stmt in block.stmts:
            if mode != "straight" or not self.is_kept(stmt):
                with self.builder.at(stmt.span):
                    self.replay_stmt(stmt, env, mode)

    def replay_stmt(self, stmt: ir.Stmt, env: Env, mode: Mode) -> None:
        match stmt:
            case ir.Let() | ir.Alloc():
                Copier(self.builder, env).stmt(stmt)
            case ir.Load(out) | ir.Atomic(out):
                if stmt.held is not None:
                    env[out] = value_of(stmt.held, env)
                elif isinstance(stmt, ir.Load):
                    Copier(self.builder, env).stmt(stmt)
            case ir.If(cond=cond, span=span):
                then, orelse = (self.replay_branch(block, env, mode) for block in ir.blocks(stmt))
                outs = fresh(stmt.outs, env)
                self.builder.emit(ir.If(outs, value_of(cond, env), then, orelse, span))
            case ir.For() | ir.While():
                self.replay_loop(stmt, env, mode)
            case ir.Custom():
                self.replay_custom(stmt, env, mode)
            case ir.Native(outs):
                if outs and not stmt.changed:
                    Copier(self.builder, env).stmt(stmt)
            case ir.Store() | ir.Assert() | ir.Print():
                pass
            case ir.Call() | ir.Save() | ir.Restore() | ir.Append():
                raise AssertionError(f"{type(stmt).__name__} in a primal program")
            case _:
                assert_never(stmt)

    def replay_branch(self, block: ir.Block, env: Env, mode: Mode) -> ir.Block:
        inner = dict(env)
        with self.builder.block() as branch:
            self.replay(block, inner, mode)
            if mode == "record" and any(map(self.is_kept, block.stmts)):
                self.push(block, SAVED, inner, self.loop_results(block))
            yields = [value_of(atom, inner) for atom in block.yields]
        return branch.close(*yields)

    def replay_custom(self, stmt: ir.Custom, env: Env, mode: Mode) -> None:
        args = tuple(value_of(arg, env) for arg in stmt.args)
        body = self.replay_branch(stmt.body, env, mode)
        self.builder.emit(ir.Custom(fresh(stmt.outs, env), args, stmt.rules, body, stmt.span))
        if stmt.rules.replay is None:
            return
        # The results come from the user's replay; whatever else the sweep needs, from the body above.
        with self.builder.block() as replay:
            yields = insert(self.builder, stmt.rules.replay, args)
        results = fresh(stmt.outs[: len(yields)], env)
        self.builder.emit(ir.Custom(results, args, stmt.rules, replay.close(*yields), stmt.span))

    # Loops -------------------------------------------------------------------------------------------------

    def replay_loop(self, stmt: ir.Loop, env: Env, mode: Mode) -> None:
        storage = self.storage(stmt) if mode == "record" else None
        inits = [value_of(atom, env) for atom in stmt.inits]
        inner = dict(env)
        carries, head = fresh(stmt.carries, inner), dict[str, Any](ends=True)
        if isinstance(stmt, ir.For):
            assert not stmt.reverse
            (index,) = fresh((stmt.index,), inner)
            head = {"index": index, "count": value_of(stmt.count, env), "storage": None}
        counts = self.new_counts(stmt, storage)
        with self.builder.block() as body:
            marked = self.mark(stmt, counts, inner) if storage == "checkpoint" else []
            self.replay(stmt.body, inner, "record" if storage == "save" else "run")
            if storage == "save":
                self.save_iteration(stmt, inner)
            yields = [value_of(atom, inner) for atom in stmt.body.yields]
            more = [self.builder.apply("add", passed, integer(1), hint="trips") for passed in counts[:1]]
        outs = fresh(stmt.outs, env)
        totals = tuple(ir.Var(int32, count.hint, stmt.span) for count in counts)
        self.count(stmt, totals, env)
        head |= {"outs": (*outs, *totals), "carries": (*carries, *counts)}
        head |= {"inits": (*inits, *[integer(0)] * len(counts)), "body": body.close(*yields, *more, *marked)}
        self.builder.emit(replace(stmt, **head))

    def new_counts(self, stmt: ir.Loop, storage: ir.Storage | None) -> tuple[ir.Var, ...]:
        """The counts that a replay carries besides the loop's values: trips, and for checkpoints two more."""
        hints = ["trips", *(["segments", "due"] if storage == "checkpoint" else [])]
        return tuple(ir.Var(int32, hint, stmt.span) for hint in hints) if storage else ()

    def count(self, stmt: ir.Loop, totals: Sequence[ir.Var], env: Env) -> None:
        """Remember the counts of a loop as primal Vars of its own: they are saved like the loop's outs."""
        for totals_of, total in zip((self.trips, self.segments), totals, strict=False):
            env[totals_of.setdefault(stmt, ir.Var(int32, total.hint, stmt.span))] = total

    def mark(self, stmt: ir.Loop, counts: Sequence[ir.Var], env: Env) -> list[ir.Atom]:
        """Save the carried values if the number of the iteration is the next square; the counts after it."""
        b, (passed, segments, due) = self.builder, counts
        number = env[stmt.index] if isinstance(stmt, ir.For) and stmt.index.type == int32 else passed

        def keep() -> Sequence[ir.Atom]:
            self.push(stmt, CHECKPOINT, env, self.uncounted(stmt))
            return b.apply("add", segments, integer(1)), b.apply("add", due, self.between(segments))

        return list(b.select(b.apply("eq", number, due), keep, lambda: (segments, due), ("segments", "due")))

    def between(self, segment: ir.Atom) -> ir.Atom:
        """The number of iterations between the square of `segment` and the next."""
        b = self.builder
        return b.apply("add", b.apply("mul", integer(2), segment), integer(1))

    def record_stretch(
        self, stmt: ir.Loop, env: Env, first: ir.Atom | None, length: ir.Atom, starts: Sequence[ir.Atom]
    ) -> None:
        """Run `length` iterations of a loop again, saving: from number `first`, begun with `starts`."""
        inner = dict(env)
        carries = fresh(stmt.carries, inner)
        number = ir.Var(length.type, stmt.index.hint if isinstance(stmt, ir.For) else "", stmt.span)
        with self.builder.block() as body:
            self.set_index(stmt, inner, first, number)
            self.replay(stmt.body, inner, "record")
            self.save_iteration(stmt, inner, SAVED if first is None else SEGMENT)
            yields = [value_of(atom, inner) for atom in stmt.body.yields]
        outs = tuple(ir.Var(out.type, out.hint, stmt.span) for out in stmt.outs)
        copied = body.close(*yields)
        self.builder.emit(ir.For(outs, number, length, carries, tuple(starts), copied, stmt.span))

    def set_index(self, stmt: ir.Loop, env: Env, first: ir.Atom | None, number: ir.Atom) -> ir.Atom:
        """The number of an iteration that is `number` of its stretch; the index of a `For` takes it."""
        b = self.builder
        number = number if first is None else b.apply("add", first, number)
        if isinstance(stmt, ir.For):
            index = stmt.index.type
            env[stmt.index] = number if number.type == index else b.apply(str(index), number)
        return number

    # What is kept ------------------------------------------------------------------------------------------

    def counters(self, stmt: ir.Loop) -> dict[int, Step]:
        """The carries that are recomputed from the number of the iteration."""
        if stmt not in self._counters:
            self._counters[stmt] = counters(stmt)
        return self._counters[stmt]

    def uncounted(self, stmt: ir.Loop) -> list[ir.Var]:
        counted = self.counters(stmt)
        return [carry for i, carry in enumerate(stmt.carries) if i not in counted]

    def set_counters(self, stmt: ir.Loop, env: Env, number: ir.Atom) -> None:
        """Bring the counters of a loop into `env`, as they are when iteration `number` starts."""
        for i, step in self.counters(stmt).items():
            moved = tuple(type(term)(term.sign, value_of(term.amount, env)) for term in step)
            start, carry = value_of(stmt.inits[i], env), stmt.carries[i]
            env[carry] = value_after(self.builder, start, moved, number, carry.hint)

    def loop_results(self, block: ir.Block) -> list[ir.Var]:
        """The values that a block defines and the sweep cannot recompute."""
        results: list[ir.Var] = []
        for stmt in filter(self.is_kept, block.stmts):
            results += ir.defs(stmt)
            if isinstance(stmt, ir.While) or (isinstance(stmt, ir.For) and stmt.stop is not None):
                results.append(self.trips[stmt])
            if isinstance(stmt, ir.For | ir.While) and stmt in self.segments:
                results.append(self.segments[stmt])
        return results

    def save_iteration(self, stmt: ir.Loop, env: Env, hint: str = SAVED) -> None:
        self.push(stmt.body, hint, env, [*self.uncounted(stmt), *self.loop_results(stmt.body)])

    def push(self, key: ir.Block | ir.Loop, hint: str, env: Env, vars: list[ir.Var]) -> None:
        stack = ir.Stack(hint)
        self.stacks[key] = stack, vars
        self.builder.emit(ir.Save(stack, tuple(value_of(var, env) for var in vars), self.builder.span))

    def pop(self, key: ir.Block | ir.Loop, env: Env) -> None:
        """Bring what was saved last into `env`."""
        stack, vars = self.stacks[key]
        self.builder.emit(ir.Restore(stack, fresh(vars, env), self.builder.span))

    def recompute(self, block: ir.Block, env: Env) -> None:
        """Bring a block's values into `env`: those that were saved, then those that follow from them."""
        if block in self.stacks:
            self.pop(block, env)
        self.replay(block, env, "straight")


def value_of(atom: ir.Atom, env: Env) -> ir.Atom:
    """The atom that holds a primal atom at the builder's position."""
    return atom if isinstance(atom, ir.Const) else env.get(atom, atom)


def fresh(vars: Sequence[ir.Var], env: Env) -> tuple[ir.Var, ...]:
    """New Vars that hold primal Vars from here on."""
    copies = tuple(ir.Var(var.type, var.hint, var.span) for var in vars)
    env.update(zip(vars, copies, strict=True))
    return copies


def has_loop(stmt: ir.Stmt) -> bool:
    """Whether a statement is a loop or has one inside."""
    return any(isinstance(inner, ir.For | ir.While) for inner in ir.within(stmt))


# --------------------------------------------------------------------------------------------- what is saved


@dataclass(frozen=True, slots=True)
class LoopStorage:
    """The storage of a loop, and the bytes of each saved iteration: none if its sweep needs none."""

    span: Span
    storage: ir.Storage | Literal["nothing"]
    bytes: int

    def __repr__(self) -> str:
        each = "a checkpoint" if self.storage == "checkpoint" else "an iteration"
        size = f", {self.bytes} bytes {each}" if self.bytes else ""
        return f"<loop of line {self.line}: {self.storage}{size}>"

    @property
    def line(self) -> int:
        return self.span.line


def loop_storage(primal: ir.Function, adjoint: ir.Function) -> tuple[LoopStorage, ...]:
    """The loops of a kernel in the order of its text, and what its adjoint saves of each."""
    kept: dict[Span, int] = {}
    _collect(adjoint.body, kept)
    by_span: dict[Span, LoopStorage] = {}
    for stmt in ir.walk(primal.body):
        if isinstance(stmt, ir.For | ir.While) and stmt.span not in by_span:
            size, chosen = kept.get(stmt.span, 0), stmt.storage if isinstance(stmt, ir.For) else None
            by_span[stmt.span] = LoopStorage(stmt.span, (chosen or "save") if size else "nothing", size)
    return tuple(sorted(by_span.values(), key=lambda loop: (loop.span.line, loop.span.column)))


def _collect(block: ir.Block, kept: dict[Span, int]) -> int:
    """The bytes that a block saves outside of its loops; those of a loop inlined twice count once."""
    saved = 0
    for stmt in block.stmts:
        if isinstance(stmt, ir.Save):
            saved += sum(bytes_of(type_of(atom)) for atom in stmt.atoms)
        inside = sum(_collect(inner, kept) for inner in ir.blocks(stmt))
        if isinstance(stmt, ir.For | ir.While):
            kept[stmt.span] = max(kept.get(stmt.span, 0), inside)
        else:
            saved += inside
    return saved
