"""Recording: what a kernel reads from arrays that it also changes is kept for the adjoint.

    before    v = a[i]; a[i] = w
    primal    v = a[i]; append residual v; a[i] = w
    replay    r = residual[start + 0]; v = a[i] held r; a[i] = w

A load from an array that the function changes, an atomic whose result is used, and an `atomic_min` or
`atomic_max` of floats is a *site*.  Each kept
site has a residual: a growing array to which the primal appends, thread after thread, `starts` holding where
a thread's values begin.  The replayable program reads them at a cursor, which is an affine expression of loop
indices where a loop makes a constant number of values, and an ordinary carried integer elsewhere.  So what is
recorded needs nothing special of loops, branches or exits, and `vjp` knows nothing of it but `held`.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from kernelab.lang.build import Builder, integer, type_of
from kernelab.lang.ir import (
    Append,
    Atom,
    Atomic,
    AtomicKind,
    Block,
    Const,
    Custom,
    For,
    Function,
    If,
    Load,
    Loop,
    Stmt,
    Var,
    While,
    blocks,
    reads,
    walk,
)
from kernelab.lang.types import (
    Array,
    Mat,
    Scalar,
    Value,
    Vec,
    int32,
    int64,
    is_differentiable,
    scalar_of,
    size_of,
)
from kernelab.passes.copying import Copier
from kernelab.passes.effects import Groups, aliases, block_effects
from kernelab.passes.forward import forward

Site = Load | Atomic


@dataclass(frozen=True, slots=True, eq=False)
class Residual:
    """What is kept of one site: the array that grows, and where each thread begins in it."""

    array: Var
    starts: Var
    type: Value


@dataclass(frozen=True, slots=True)
class Recorded:
    """The primal that appends, and the program that reads back, with the residuals that link them."""

    primal: Function
    replayable: Function
    residuals: tuple[Residual, ...]


def sites(function: Function, groups: Groups = (), intact: Collection[str] = ()) -> tuple[Site, ...]:
    """The loads and atomics whose values cannot be had again once the function has run.

    `intact` names arrays that still hold what was loaded (`passes.settled`).
    """
    shared = aliases(function, groups)
    changed = block_effects(function.body).changed
    used = frozenset(reads(function.body))
    found: list[Site] = []
    for stmt in walk(function.body):
        match stmt:
            case Load(_, array) if stmt.held is None and shared[array] & changed:
                if array.hint not in intact:
                    found.append(stmt)
            case Atomic(out, kind) if stmt.held is None and (out in used or _is_extremum(kind, out)):
                found.append(stmt)
            case _:
                pass
    return tuple(found)


def _is_extremum(kind: AtomicKind, out: Var) -> bool:
    """Whether the adjoint must know if the element changed: then this thread's value may have won."""
    return kind in ("min", "max") and is_differentiable(out.type)


def record(
    function: Function,
    groups: Groups = (),
    keep: Collection[int] | None = None,
    intact: Collection[str] = (),
) -> Recorded:
    """Record the sites of a function, by default all; `keep` lists the positions of those to keep.

    A site that is not kept is left as it is, for an adjoint that does not need its value.
    """
    function = forward(function, groups)
    chosen = [site for i, site in enumerate(sites(function, groups, intact)) if keep is None or i in keep]
    if not chosen:
        return Recorded(function, function, ())
    residuals = {site: _residual(site, number) for number, site in enumerate(chosen, 1)}
    primal = _Appender(residuals).function(function)
    arrays = tuple(r.array for r in residuals.values())
    primal = replace(primal, params=(*function.params, *arrays))
    return Recorded(primal, _replayable(function, residuals), tuple(residuals.values()))


def _residual(site: Site, number: int) -> Residual:
    type = type_of(site.out)
    array = Var(Array(scalar_of(type), 1), f"residual_{number}", site.span)
    return Residual(array, Var(Array(int64, 1), f"starts_{number}", site.span), type)


class _Appender(Copier):
    """Writes the primal: the same program, with an append after each kept site."""

    def __init__(self, residuals: dict[Site, Residual]) -> None:
        super().__init__()
        self.residuals = residuals

    def stmt(self, stmt: Stmt) -> None:
        super().stmt(stmt)
        if isinstance(stmt, Load | Atomic) and stmt in self.residuals:
            for component in components(self.builder, self.atom(stmt.out)):
                self.builder.emit(Append(self.residuals[stmt].array, component, stmt.span))


def components(builder: Builder, atom: Atom) -> Iterable[Atom]:
    """The scalars of a value, by rows."""
    match atom.type:
        case Scalar():
            return [atom]
        case Vec(_, n):
            return [builder.apply("extract", atom, integer(i)) for i in range(n)]
        case Mat(_, n, m):
            places = [(i, j) for i in range(n) for j in range(m)]
            return [builder.apply("extract", atom, integer(i), integer(j)) for i, j in places]
        case _:
            raise AssertionError(f"{atom} is no value")


def _replayable(function: Function, residuals: dict[Site, Residual]) -> Function:
    linear = function.linear or Var(int64, "thread", function.span)
    reader = _Reader(residuals, linear)
    copied = reader.function(function)
    extra = [var for residual in residuals.values() for var in (residual.array, residual.starts)]
    params = (*function.params, *extra)
    return replace(copied, params=params, linear=linear)


class _Reader(Copier):
    """Writes the replayable program; `cursor` counts, for each site, the values the thread has met so far."""

    def __init__(self, residuals: dict[Site, Residual], linear: Var) -> None:
        super().__init__()
        self.residuals = residuals
        self.linear = linear
        self.cursor: dict[Site, Atom] = dict.fromkeys(residuals, integer(0))

    def function(self, function: Function) -> Function:
        with self.builder.at(function.span):
            self.starts = {site: self._start(residual) for site, residual in self.residuals.items()}
        return super().function(function)

    def _start(self, residual: Residual) -> Var:
        return self.builder.load(residual.starts, [self.linear], "start")

    def load(self, stmt: Load) -> None:
        if stmt not in self.residuals:
            super().load(stmt)
            return
        held = self.read_back(stmt)
        array, indices = self.var(stmt.array), self.atoms(stmt.indices)
        self.builder.emit(Load(self.fresh(stmt.out), array, indices, stmt.span, held))

    def atomic(self, stmt: Atomic) -> None:
        if stmt not in self.residuals:
            super().atomic(stmt)
            return
        held = self.read_back(stmt)
        array, indices, value = self.var(stmt.array), self.atoms(stmt.indices), self.atom(stmt.value)
        compare = None if stmt.compare is None else self.atom(stmt.compare)
        out = self.fresh(stmt.out)
        self.builder.emit(Atomic(out, stmt.kind, array, indices, value, stmt.span, held, compare=compare))

    def read_back(self, site: Site) -> Atom:
        residual, b = self.residuals[site], self.builder
        size = size_of(residual.type)
        passed = b.apply("mul", self.cursor[site], integer(size))
        first = b.apply("add", self.starts[site], b.apply("int64", passed))
        places = [b.apply("add", first, Const(k, int64)) for k in range(size)]
        values = [b.load(residual.array, [place], site.out.hint) for place in places]
        self.cursor[site] = b.apply("add", self.cursor[site], integer(1))
        return values[0] if isinstance(residual.type, Scalar) else b.apply(str(residual.type), *values)

    def inside(self, *inner: Block) -> list[Site]:
        found = {stmt for block in inner for stmt in walk(block)}
        return [site for site in self.residuals if site in found]

    def if_(self, stmt: If) -> None:
        cond = self.atom(stmt.cond)
        moved = self.inside(stmt.then, stmt.orelse)
        if isinstance(cond, Const) or not moved:
            super().if_(stmt)
            return
        before = dict(self.cursor)
        then, orelse = self.branch(stmt.then, before, moved), self.branch(stmt.orelse, before, moved)
        outs = tuple(self.fresh(out) for out in stmt.outs)
        after = tuple(Var(int32, "cursor", stmt.span) for _ in moved)
        self.cursor = before | dict(zip(moved, after, strict=True))
        self.builder.emit(If((*outs, *after), cond, then, orelse, stmt.span))

    def branch(self, block: Block, cursor: dict[Site, Atom], moved: list[Site]) -> Block:
        self.cursor = dict(cursor)
        copied = self.block(block)
        return Block(copied.stmts, (*copied.yields, *(self.cursor[site] for site in moved)))

    def custom(self, stmt: Custom) -> None:
        moved = self.inside(stmt.body)
        if not moved:
            super().custom(stmt)
            return
        before, args = dict(self.cursor), self.atoms(stmt.args)
        body = self.branch(stmt.body, before, moved)
        outs = tuple(self.fresh(out) for out in stmt.outs)
        after = tuple(Var(int32, "cursor", stmt.span) for _ in moved)
        self.cursor = before | dict(zip(moved, after, strict=True))
        self.builder.emit(Custom((*outs, *after), args, stmt.rules, body, stmt.span))

    def loop(self, stmt: Loop) -> None:
        moved = self.inside(stmt.body)
        if not moved:
            super().loop(stmt)
            return
        affine = _affine_sites(stmt, moved)
        runs_through = isinstance(stmt, For) and stmt.stop is None
        self.counted_loop(stmt, affine, [site for site in moved if site not in affine or not runs_through])

    def counted_loop(self, stmt: Loop, affine: dict[Site, int], carried: list[Site]) -> None:
        """`affine` sites are met a constant number of times an iteration, `carried` ones count."""
        b, before = self.builder, dict(self.cursor)
        inits = (*self.atoms(stmt.inits), *(before[site] for site in carried))
        count = self.atom(stmt.count) if isinstance(stmt, For) else integer(0)
        index = self.fresh(stmt.index) if isinstance(stmt, For) else None
        carries = tuple(self.fresh(carry) for carry in stmt.carries)
        cursors = tuple(Var(int32, "cursor", stmt.span) for _ in carried)
        with b.block() as body:
            self.cursor |= dict(zip(carried, cursors, strict=True))
            for site, step in affine.items():
                assert index is not None
                self.cursor[site] = b.apply("add", before[site], b.apply("mul", index, integer(step)))
            self.stmts(stmt.body)
            yields = (*self.atoms(stmt.body.yields), *(self.cursor[site] for site in carried))
        outs = tuple(self.fresh(out) for out in stmt.outs)
        after = tuple(Var(int32, "cursor", stmt.span) for _ in carried)
        ends = {
            site: b.apply("add", before[site], b.apply("mul", count, integer(n)))
            for site, n in affine.items()
        }
        self.cursor = before | ends | dict(zip(carried, after, strict=True))
        self.emit_loop(stmt, (*outs, *after), index, count, (*carries, *cursors), inits, body.close(*yields))

    def emit_loop(
        self,
        stmt: Loop,
        outs: tuple[Var, ...],
        index: Var | None,
        count: Atom,
        carries: tuple[Var, ...],
        inits: tuple[Atom, ...],
        body: Block,
    ) -> None:
        if isinstance(stmt, While):
            self.builder.emit(While(outs, carries, inits, stmt.stop, body, stmt.span))
            return
        assert index is not None
        self.builder.emit(
            replace(stmt, outs=outs, index=index, count=count, carries=carries, inits=inits, body=body)
        )


def _affine_sites(stmt: Loop, moved: list[Site]) -> dict[Site, int]:
    """The sites whose cursor in iteration k is a constant times k, with the constant."""
    if not isinstance(stmt, For) or stmt.reverse or stmt.count.type != int32:
        return {}
    found = {site: _occurrences(stmt.body, site) for site in moved}
    return {site: number for site, number in found.items() if number is not None}


def _occurrences(block: Block, site: Site) -> int | None:
    """How often a block meets a site, if that is the same on every path and known now."""
    if site in block.stmts:
        return 1
    holder = next(stmt for stmt in block.stmts if any(site in set(walk(inner)) for inner in blocks(stmt)))
    if isinstance(holder, Custom):
        return _occurrences(holder.body, site)
    if not isinstance(holder, For) or holder.stop is not None or not isinstance(holder.count, Const):
        return None
    inner = _occurrences(holder.body, site)
    return None if inner is None else inner * int(holder.count.value)
