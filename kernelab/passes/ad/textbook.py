"""Derivatives as textbooks write them: each value has a name, each use adds its share to a cotangent.

    before     f(x, y)                  y[i] = x[i] * sin(x[i])
    tangent    f(x, y, x_dot, y_dot)    v1 = x[i];  v1_dot = x_dot[i];  v2 = x[i];  v2_dot = x_dot[i];  ...
    adjoint    f(x, y, x_bar, y_bar)    v1 = x[i];  v2 = x[i];  v3 = sin(v2);  v4 = v1 * v3;  y[i] = v4
                                        v4_bar = 0.0;  v4_bar += y_bar[i];  y_bar[i] = 0.0
                                        v1_bar = v3_bar = 0.0;  v1_bar += v4_bar * v3;  v3_bar += v1 * v4_bar
                                        ...

Both are written by the passes that write the programs that run, and nothing is merged afterwards: equal
expressions are not shared, constants not folded, shares not added up before they reach their cotangent.  The
adjoint runs the primal with its effects, keeps on stacks what the reverse pass cannot compute again, and
then goes backwards.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from kernelab.data_classes import dataclass, replace
from kernelab.lang import ir
from kernelab.lang.build import Expr, Place, elem_of, integer, type_of, zero
from kernelab.lang.ops import COPY, Op, resolve
from kernelab.lang.show import Names
from kernelab.lang.types import Array, Value, is_differentiable, wide
from kernelab.passes.ad.activity import active as find_active
from kernelab.passes.ad.activity import masked
from kernelab.passes.ad.derivative_rules import refuse_shared_arguments
from kernelab.passes.ad.jvp import tangent_of
from kernelab.passes.ad.primal_replay import Env, Mode, ascending, has_loop, value_of
from kernelab.passes.ad.record import sites
from kernelab.passes.ad.vjp import Adjoint, Cotangents, bar_of
from kernelab.passes.common.copying import Copier, Expander, LayingOut, inline
from kernelab.passes.common.effects import Groups
from kernelab.passes.common.simplify import eliminate

CallPath = tuple[ir.Call, ...]
"""The calls that lead to a statement, the outermost first."""


@dataclass(frozen=True, slots=True)
class Share:
    """A use of a value: what the statement `source` of the primal adds to the cotangent of `target`."""

    target: ir.Var
    source: ir.Stmt


@dataclass(frozen=True, slots=True, eq=False)
class Textbook:
    """The adjoint as textbooks write it: the primal with its effects, and from `reverse` the backward pass.

    `named` is the primal in which each value has a name, `calls` the calls that each name stems from.  Of the
    program, `shares` are the statements that add one, and `origins` the statements of `named` that those with
    effects stand for.
    """

    function: ir.Function
    reverse: int
    named: ir.Function
    calls: Mapping[str, CallPath]
    shares: Mapping[ir.Stmt, Share]
    origins: Mapping[ir.Stmt, ir.Stmt]


def textbook_adjoint(function: ir.Function, active: Iterable[str], groups: Groups = ()) -> Textbook:
    """The adjoint of a kernel, or of a function that yields numbers, with respect to those in `active`.

    The parameters of that of a kernel are the primal's, then ``<name>_bar`` for each active one; that of a
    function has a ``seed`` for each float result instead, and yields the results and then the cotangents of
    its active parameters.  `groups` are sets of array parameters that share memory.  Calls need not be
    inlined.  Raises KernelTypeError where there is no derivative.
    """
    refuse_shared_arguments(function, groups, "grad")
    named, calls = _named(function, active)
    params = [param for param in named.params if param.hint in set(active)]
    yields = named.body.yields
    arrays = params if not yields else [param for param in params if isinstance(param.type, Array)]
    bars = {param: bar_of(param) for param in arrays}
    lost = {*sites(named, groups)}
    kept = (stmt for stmt in ir.walk(named.body) if not lost.isdisjoint(ir.within(stmt)))
    writer = _Writer(find_active(named, params), masked(named), bars, frozenset(kept))
    writer.replay(named.body, writer.env, "record")
    first = writer.builder.here().index
    seeds = [ir.Var(type_of(a), "seed") for a in yields if is_differentiable(a.type)]
    with writer.marked():
        writer.start(params, yields, seeds)
        writer.sweep(named.body, writer.env, writer.cotangents)
    results = [writer.cotangents.get(param, zero(type_of(param))) for param in params if param not in bars]
    block = writer.builder.close(*(value_of(atom, writer.env) for atom in yields), *results)
    backwards = {stmt for stmt in ir.walk(ir.Block(block.stmts[first:])) if not ir.blocks(stmt)}
    signature = (*named.params, *bars.values(), *seeds)
    program = eliminate(replace(named, name=f"{named.name}_adjoint", params=signature, body=block))
    stmts = enumerate(program.body.stmts)
    reverse = (i for i, stmt in stmts if not backwards.isdisjoint(ir.within(stmt)))
    first_reverse = next(reverse, len(program.body.stmts))
    return Textbook(program, first_reverse, named, calls, writer.shares, writer.origins)


def textbook_tangent(function: ir.Function, active: Iterable[str]) -> ir.Function:
    """The tangent program in which each value has a name, and is followed by its tangent."""
    named, _ = _named(function, active)
    return eliminate(inline(tangent_of(named, active)))


# ----------------------------------------------------------------------------------------------------- names


def _named(function: ir.Function, active: Iterable[str]) -> tuple[ir.Function, Mapping[str, CallPath]]:
    """The function with its calls inlined and a name for each float, and the calls by these names."""
    taken = [param.hint for param in (*function.params, *function.threads)]
    taken += [f"{name}_{kind}" for name in active for kind in ("bar", "dot")]
    builder = _Naming([name.replace(".", "_") for name in taken])
    return ascending(_Entering(builder).function(function)), builder.calls


class _Naming(Expander):
    """Gives each float a name of its own: the user's, numbered where it repeats, or ``v1``, ``v2`` ..."""

    def __init__(self, taken: Sequence[str]) -> None:
        super().__init__()
        self.names = Names(frozenset(taken))
        self.path: CallPath = ()
        self.calls: dict[str, CallPath] = {}
        self.numbered: dict[str, None] = {}
        self.free: set[str] = set()

    def emit(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.For() | ir.While():
                for carry, out in zip(stmt.carries, stmt.outs, strict=True):
                    self.name(carry)
                    out.hint = carry.hint
                if isinstance(stmt, ir.For):
                    self.name(stmt.index)
            case ir.Alloc(out):
                self.name(out)
            case ir.Load(out, array) if out.hint == array.hint:
                out.hint = ""
                self.name(out)
            case _:
                for out in ir.defs(stmt):
                    self.name(out)
        super().emit(stmt)

    def let(self, op: Op, args: Sequence[ir.Atom], type: Value, hint: str = "") -> ir.Atom:
        out = super().let(op, args, type, hint)
        self.rename(out, hint)
        return out

    def rename(self, atom: ir.Atom, hint: str) -> None:
        """Give the result of a composed operation, or of a call, the name that it has there."""
        if hint and isinstance(atom, ir.Var) and atom.hint in self.numbered:
            path = self.calls[atom.hint]
            if atom.hint == next(reversed(self.numbered)):
                self.free.add(self.numbered.popitem()[0])
            atom.hint = self.names.fresh(hint)
            self.calls[atom.hint] = path

    def name(self, var: ir.Var) -> None:
        """Name a Var; integers and truth values without a name stand where they are used."""
        hint = var.hint.replace(".", "_")
        if hint.isidentifier():
            var.hint = self.names.fresh(hint)
        elif is_differentiable(var.type) or isinstance(var.type, Array):
            hint = f"v{len(self.numbered) + 1}"
            var.hint = hint if hint in self.free else self.names.fresh(hint)
            self.free.discard(hint)
            self.numbered[var.hint] = None
        self.calls[var.hint] = self.path


class _Entering(LayingOut):
    """Inlines calls, and sets the call that the builder is in."""

    builder: _Naming

    def call(self, stmt: ir.Call) -> None:
        before, self.builder.path = self.builder.path, (*self.builder.path, stmt)
        super().call(stmt)
        self.builder.path = before
        for out in stmt.outs:
            self.builder.rename(self.atom(out), out.hint)


# ---------------------------------------------------------------------------------------------------- writer


class _Writer(Adjoint):
    """Writes the adjoint; `kept` are statements of the primal that the reverse pass cannot run again."""

    def __init__(
        self,
        active: frozenset[ir.Var],
        masked: frozenset[ir.Var],
        bars: dict[ir.Var, ir.Var],
        kept: frozenset[ir.Stmt],
    ) -> None:
        super().__init__(active, masked, bars, "save", merged=False)
        self.kept = kept
        self.shares: dict[ir.Stmt, Share] = {}
        self.origins: dict[ir.Stmt, ir.Stmt] = {}
        self.source: ir.Stmt | None = None
        self.begins: Place = self.builder.here()

    # Primal ------------------------------------------------------------------------------------------------

    def storage(self, loop: ir.Loop) -> ir.Storage:
        return "save"

    def is_kept(self, stmt: ir.Stmt) -> bool:
        return stmt in self.kept or has_loop(stmt)

    def replay_stmt(self, stmt: ir.Stmt, env: Env, mode: Mode) -> None:
        match stmt:
            case ir.Store() | ir.Atomic() | ir.Native() | ir.Assert() | ir.Print() if mode == "record":
                at = self.builder.here()
                Copier(self.builder, env).stmt(stmt)
                self.origins |= dict.fromkeys(at.stmts[at.index :], stmt)
            case _:
                super().replay_stmt(stmt, env, mode)

    def replay_custom(self, stmt: ir.Custom, env: Env, mode: Mode) -> None:
        self.replay(stmt.body, env, mode)
        if mode == "record" and any(map(self.is_kept, stmt.body.stmts)):
            self.push(stmt.body, "saved", env, self.loop_results(stmt.body))
        for out, atom in zip(stmt.outs, stmt.body.yields, strict=True):
            env[out] = value_of(atom, env)

    # Cotangents --------------------------------------------------------------------------------------------

    def start(self, params: Sequence[ir.Var], yields: Sequence[ir.Atom], seeds: Sequence[ir.Var]) -> None:
        """Give the results of a function their seeds, and its parameters cotangents of zero."""
        floats = (atom for atom in yields if is_differentiable(atom.type))
        self.begin([param for param in params if param not in self.bars], self.cotangents)
        for atom, seed in zip(floats, seeds, strict=True):
            self.accumulate(self.cotangents, atom, Expr(self.builder, seed))

    def accumulate(
        self, cotangents: Cotangents, target: ir.Atom, g: Expr | None, handed_on: bool = False
    ) -> None:
        if g is None or not isinstance(target, ir.Var) or target not in self.active:
            return
        added: ir.Stmt
        if target in self.bars:
            share = self.converted(g.atom, elem_of(self.bars[target]))
            added = ir.Atomic(ir.Var(type_of(share)), "add", self.bars[target], (integer(0),), share)
        else:
            if target not in cotangents:
                self.begin([target], cotangents)
            share = self.converted(g.atom, wide(g.type))
            added = _sum(ir.Var(type_of(share), f"{target.hint}_bar"), cotangents[target], share)
            cotangents[target] = added.out
        added = replace(added, span=self.builder.span)
        self.builder.emit(added)
        if self.source is not None and not handed_on:
            self.shares[added] = Share(target, self.source)

    def begin(self, targets: Iterable[ir.Var], cotangents: Cotangents) -> Cotangents:
        """Let cotangents be zero where the block that is swept begins; which these are."""
        begun: Cotangents = {}
        for target in targets:
            begun[target] = bar = ir.Var(wide(type_of(target)), f"{target.hint}_bar")
            self.begins.emit(ir.Let(bar, COPY, (zero(type_of(bar)),)))
        cotangents |= begun
        return begun

    @contextmanager
    def around(self, cotangents: Cotangents, *blocks: ir.Block, but: Sequence[ir.Var] = ()) -> Iterator[None]:
        """Begin the cotangents that grow in some blocks before these are swept."""
        inner = (v for v in self.targets(*blocks) if v not in but)
        begun = self.begin([v for v in inner if v not in cotangents and v not in self.bars], cotangents)
        yield
        for target, atom in begun.items():
            if cotangents[target] is atom:
                del cotangents[target]

    @contextmanager
    def marked(self) -> Iterator[None]:
        """A context in which cotangents begin at this place."""
        before, self.begins = self.begins, self.builder.here()
        yield
        self.begins = before

    # Sweep -------------------------------------------------------------------------------------------------

    def sweep(self, block: ir.Block, env: Env, cotangents: Cotangents) -> None:
        with self.marked():
            super().sweep(block, env, cotangents)

    def sweep_block(
        self, block: ir.Block, env: Env, bars: Sequence[ir.Atom | None], cotangents: Cotangents
    ) -> None:
        with self.marked():
            super().sweep_block(block, env, bars, cotangents)

    def sweep_stmt(self, stmt: ir.Stmt, env: Env, cotangents: Cotangents) -> None:
        before, self.source = self.source, stmt
        if isinstance(stmt, ir.Store) and stmt.array in self.bars:
            share = self.read_bar(stmt, env)
            self.accumulate(cotangents, stmt.value, share)
            indices = [value_of(index, env) for index in stmt.indices]
            self.builder.store(self.bars[stmt.array], indices, zero(share.type))
        else:
            super().sweep_stmt(stmt, env, cotangents)
        self.source = before

    def sweep_if(self, stmt: ir.If, env: Env, cotangents: Cotangents) -> None:
        with self.around(cotangents, stmt.then, stmt.orelse):
            super().sweep_if(stmt, env, cotangents)

    def sweep_loop(self, stmt: ir.Loop, env: Env, cotangents: Cotangents) -> None:
        with self.around(cotangents, stmt.body, but=stmt.carries):
            super().sweep_loop(stmt, env, cotangents)


def _sum(out: ir.Var, a: ir.Atom, b: ir.Atom) -> ir.Let:
    """A sum as a statement that no builder has folded."""
    overload = resolve("add", (out.type, out.type))
    assert overload is not None
    return ir.Let(out, overload[0], (a, b))
