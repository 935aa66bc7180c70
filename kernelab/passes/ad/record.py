"""Augmented primal: saves the values that a kernel reads from arrays it also changes, for its adjoint.

    before    v = a[i]; a[i] = w
    primal    v = a[i]; append residual v; a[i] = w
    replay    r = residual[start + 0]; v = a[i] held r; a[i] = w

A load from an array that the function changes, an atomic whose result is used, and an `atomic_min` or
`atomic_max` of floats is a *site*.  Each saved site has a residual: a growing array to which the primal
appends, thread after thread; `starts` holds the position of each thread's first value.  The replayable
program (`passes.ad.record`) reads them back, so that loops, branches and exits need no special treatment, and
`vjp` only needs to know `held`.

The programs of reverse mode are differentiated in reverse, too.  Each value that a `Restore` gives back is a
site then: a stack cannot be taken from while it is replayed for a sweep that has stacks of its own.
"""

import itertools
from collections.abc import Collection, Sequence
from typing import Literal

from kernelab.data_classes import dataclass, field, replace
from kernelab.errors import Span
from kernelab.lang import ir
from kernelab.lang.build import integer, type_of, zero
from kernelab.lang.ops import ALONG
from kernelab.lang.types import Array, Value, int32, int64, is_differentiable, scalar_of, size_of
from kernelab.passes.ad.derivative_rules import EXTREMA
from kernelab.passes.common.copying import Copier
from kernelab.passes.common.effects import Groups, aliases, block_effects
from kernelab.passes.common.simplify import forward


@dataclass(frozen=True, slots=True)
class Popped:
    """A value that the `Restore`s of a stack give back, by its position among them."""

    stack: ir.Stack
    position: int
    out: ir.Var = field(compare=False)
    span: Span = field(compare=False)


Site = ir.Load | ir.Atomic | Popped


@dataclass(frozen=True, slots=True, eq=False)
class Residual:
    """The saved values of one site: the array that grows, and the first position of each thread in it.

    `memory` stands for the stack that floats were restored from, an array of which each thread has the part
    that it has in the residual.
    """

    array: ir.Var
    starts: ir.Var
    type: Value
    memory: ir.Var | None = None


def sites(function: ir.Function, groups: Groups = (), intact: Collection[str] = ()) -> tuple[Site, ...]:
    """The sites whose values are lost once the function has run: loads, atomics and stacks.

    `intact` names arrays that still hold what was loaded (`passes.access.independence`).
    """
    shared = aliases(function, groups)
    changed = block_effects(function.body).changed
    used = frozenset(ir.reads(function.body))
    lost: list[Site] = []
    for stmt in ir.walk(function.body):
        match stmt:
            case ir.Load(_, array) if stmt.held is None and shared[array] & changed:
                if array.hint not in intact:
                    lost.append(stmt)
            case ir.Atomic(out, kind) if stmt.held is None:
                # The adjoint must know if the element changed: then this thread's value may have won.
                if out in used or (kind in EXTREMA and is_differentiable(out.type)):
                    lost.append(stmt)
            case ir.Restore():
                lost += [site for site, _ in sources(stmt) if site not in lost]
            case _:
                pass
    return tuple(lost)


def sources(stmt: ir.Stmt) -> list[tuple[Site, ir.Var]]:
    """The sites that a statement could be, and the Vars that have their values."""
    match stmt:
        case ir.Load(out) | ir.Atomic(out):
            return [(stmt, out)]
        case ir.Restore(stack, outs, span):
            return [(Popped(stack, i, out, span), out) for i, out in enumerate(outs)]
        case _:
            return []


def residual_of(site: Site, number: int) -> Residual:
    """The residual that keeps a site, named after its number; one of a stack of floats has a memory too."""
    type = type_of(site.out)
    array = ir.Var(Array(scalar_of(type), 1), f"residual_{number}", site.span)
    starts = ir.Var(Array(int64, 1), f"starts_{number}", site.span)
    if not isinstance(site, Popped) or not is_differentiable(type):
        return Residual(array, starts, type)
    return Residual(array, starts, type, ir.Var(array.type, f"memory_{number}", site.span))


# -------------------------------------------------------------------------------------------------- readback


@dataclass(frozen=True, slots=True)
class Count:
    """The number of records that a thread has popped from a stack, or that are left on it."""

    stack: ir.Stack
    of: Literal["taken", "depth"]


Key = ir.Load | ir.Atomic | Count | ir.Var
"""The key of a cursor: visits of a site, records of a stack, or elements appended to a residual."""


def replayable(
    function: ir.Function, residuals: dict[Site, Residual], reopened: Sequence[ir.Var]
) -> ir.Function:
    """The program that reads `residuals` back; `reopened` are parameters that it appends to.

    Its last parameters are the residuals, each with its starts, and then the starts of what is reopened.
    """
    linear = function.linear or ir.Var(int64, "thread", function.span)
    starts = [ir.Var(Array(int64, 1), f"{array.hint}_starts", array.span) for array in reopened]
    copied = _Reader(residuals, linear).read(function, dict(zip(reopened, starts, strict=True)))
    extra = [var for residual in residuals.values() for var in (residual.array, residual.starts)]
    return replace(copied, params=(*function.params, *extra, *starts), linear=linear)


NOBODY = ir.Var(int32)
"""No value in particular, of a site that is looked up by its stack."""


class _Reader(Copier):
    """Writes the replayable program; `cursor` holds every count so far."""

    def __init__(self, residuals: dict[Site, Residual], linear: ir.Var) -> None:
        super().__init__()
        self.residuals = residuals
        self.linear = linear
        self.stacks = {site.stack for site in residuals if isinstance(site, Popped)}
        self.cursor: dict[Key, ir.Atom] = {}
        self.starts: dict[ir.Var, ir.Atom] = {}

    def read(self, function: ir.Function, reopened: dict[ir.Var, ir.Var]) -> ir.Function:
        """The function again; `reopened` gives the starts of arrays that it appends to."""
        keys = [key for stmt in ir.walk(function.body) for key in self.keys(stmt)]
        self.cursor = dict.fromkeys(keys, integer(0))
        begins = {residual.array: residual.starts for residual in self.residuals.values()} | reopened
        with self.builder.at(function.span):
            self.starts = {
                array: self.builder.load(starts, [self.linear], "start") for array, starts in begins.items()
            }
        return super().function(function)

    def keys(self, stmt: ir.Stmt) -> tuple[Key, ...]:
        """The counts that a statement moves on."""
        match stmt:
            case ir.Load() | ir.Atomic() if stmt in self.residuals:
                return (stmt,)
            case ir.Restore(stack) if stack in self.stacks:
                return (Count(stack, "taken"), Count(stack, "depth"))
            case ir.Save(stack) if stack in self.stacks:
                return (Count(stack, "depth"),)
            case ir.Append(array):
                return (array,)
            case _:
                return ()

    def stmt(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Save():
                self.save(stmt)
            case ir.Restore():
                self.restore(stmt)
            case ir.Append(array, value):
                (place,) = self.places(array, self.cursor[array], 1)
                self.builder.store(array, [place], self.atom(value))
                self.advance(array, 1)
            case ir.Load() | ir.Atomic() if stmt in self.residuals:
                super().stmt(replace(stmt, held=self.read_back(stmt)))
            case _:
                super().stmt(stmt)

    def read_back(self, site: ir.Load | ir.Atomic) -> ir.Atom:
        residual = self.residuals[site]
        values = self.kept(residual, self.cursor[site], site.out.hint)
        self.advance(site, 1)
        return self.builder.joined(residual.type, values)

    def save(self, stmt: ir.Save) -> None:
        """Store the values pushed onto a stack at the positions of their cotangents."""
        if stmt.stack not in self.stacks:
            return
        depth = Count(stmt.stack, "depth")
        for i, atom in enumerate(stmt.atoms):
            residual = self.residuals.get(Popped(stmt.stack, i, NOBODY, stmt.span))
            if residual is None or residual.memory is None:
                continue
            places = self.places(residual.array, self.cursor[depth], size_of(residual.type))
            for place, value in zip(places, self.builder.components(self.atom(atom)), strict=True):
                self.builder.store(residual.memory, [place], value)
        self.advance(depth, 1)

    def restore(self, stmt: ir.Restore) -> None:
        taken, depth = Count(stmt.stack, "taken"), Count(stmt.stack, "depth")
        if stmt.stack in self.stacks:
            self.advance(depth, -1)
        for site, out in sources(stmt):
            residual = self.residuals.get(site)
            self.env[out] = zero(type_of(out))  # where nobody needs it
            if residual is not None:
                values = self.popped(residual, taken, depth, out.hint)
                self.env[out] = self.builder.joined(residual.type, values)
        if stmt.stack in self.stacks:
            self.advance(taken, 1)

    def popped(self, residual: Residual, taken: Count, depth: Count, hint: str) -> list[ir.Atom]:
        kept = self.kept(residual, self.cursor[taken], hint)
        if residual.memory is None:
            return kept
        outs: list[ir.Atom] = []
        places = self.places(residual.array, self.cursor[depth], size_of(residual.type))
        for place, value in zip(places, kept, strict=True):
            out = ir.Var(scalar_of(residual.type), hint, self.builder.span)
            self.builder.emit(ir.Load(out, residual.memory, (place,), self.builder.span, value))
            outs.append(out)
        return outs

    def kept(self, residual: Residual, cursor: ir.Atom, hint: str) -> list[ir.Atom]:
        """The scalars that a residual holds at a cursor."""
        places = self.places(residual.array, cursor, size_of(residual.type))
        return [self.builder.load(residual.array, [place], hint) for place in places]

    def places(self, array: ir.Var, cursor: ir.Atom, size: int) -> list[ir.Atom]:
        """The positions of the scalars that belong to a cursor, in the thread's part of an array."""
        b, start = self.builder, self.starts[array]
        first = b.apply("int64", b.apply("mul", cursor, integer(size)))
        counts = [b.apply("add", first, ir.Const(k, int64)) for k in range(size)]
        none = ir.Const(0, int64)
        return [start if count == none else b.let(ALONG, (start, count), int64) for count in counts]

    def advance(self, key: Key, by: int) -> None:
        self.cursor[key] = self.builder.apply("add", self.cursor[key], integer(by))

    def inside(self, *inner: ir.Block) -> list[Key]:
        """The counts that move on in some blocks."""
        counted = {key for block in inner for stmt in ir.walk(block) for key in self.keys(stmt)}
        return [key for key in self.cursor if key in counted]

    def if_(self, stmt: ir.If) -> None:
        cond = self.atom(stmt.cond)
        moved = self.inside(stmt.then, stmt.orelse)
        if isinstance(cond, ir.Const) or not moved:
            super().if_(stmt)
            return
        before = dict(self.cursor)
        then, orelse = self.branch(stmt.then, before, moved), self.branch(stmt.orelse, before, moved)
        outs = (*self.fresh_all(stmt.outs), *self.cursors(moved, before))
        self.builder.emit(ir.If(outs, cond, then, orelse, stmt.span))

    def cursors(self, moved: list[Key], before: dict[Key, ir.Atom]) -> tuple[ir.Var, ...]:
        """New Vars for the counts that a region moves on; the others are what they were."""
        after = tuple(ir.Var(int32, "cursor", self.builder.span) for _ in moved)
        self.cursor = before | dict(zip(moved, after, strict=True))
        return after

    def branch(self, block: ir.Block, cursor: dict[Key, ir.Atom], moved: list[Key]) -> ir.Block:
        self.cursor = dict(cursor)
        copied = self.block(block)
        return ir.Block(copied.stmts, (*copied.yields, *(self.cursor[site] for site in moved)))

    def custom(self, stmt: ir.Custom) -> None:
        moved = self.inside(stmt.body)
        if not moved:
            super().custom(stmt)
            return
        before, args = dict(self.cursor), self.atoms(stmt.args)
        body = self.branch(stmt.body, before, moved)
        outs = (*self.fresh_all(stmt.outs), *self.cursors(moved, before))
        self.builder.emit(ir.Custom(outs, args, stmt.rules, body, stmt.span))

    def loop(self, stmt: ir.Loop) -> None:
        moved = self.inside(stmt.body)
        if not moved:
            super().loop(stmt)
            return
        affine = _affine_sites(stmt, moved)
        runs_through = isinstance(stmt, ir.For) and stmt.stop is None
        self.counted_loop(stmt, affine, [site for site in moved if site not in affine or not runs_through])

    def counted_loop(self, stmt: ir.Loop, affine: dict[Key, int], carried: list[Key]) -> None:
        """`affine` sites are met a constant number of times an iteration, `carried` ones count."""
        b, before = self.builder, dict(self.cursor)
        inits = (*self.atoms(stmt.inits), *(before[site] for site in carried))
        head = self.head(stmt)
        carries = (*self.fresh_all(stmt.carries), *self.cursors(carried, before))
        with b.block() as body:
            for site, step in affine.items():
                self.cursor[site] = b.apply("add", before[site], b.apply("mul", head["index"], integer(step)))
            self.stmts(stmt.body)
            yields = (*self.atoms(stmt.body.yields), *(self.cursor[site] for site in carried))
        ends = {
            site: b.apply("add", before[site], b.apply("mul", head["count"], integer(n)))
            for site, n in affine.items()
        }
        outs = (*self.fresh_all(stmt.outs), *self.cursors(carried, before | ends))
        cursored = body.close(*yields)
        b.emit(replace(stmt, outs=outs, carries=carries, inits=inits, body=cursored, **head))


def _affine_sites(stmt: ir.Loop, moved: list[Key]) -> dict[Key, int]:
    """The sites whose cursor in iteration k is a constant times k, with the constant."""
    if not isinstance(stmt, ir.For) or stmt.reverse or stmt.count.type != int32:
        return {}
    counts = {site: _occurrences(stmt.body, site) for site in moved if isinstance(site, ir.Load | ir.Atomic)}
    return {site: number for site, number in counts.items() if number is not None}


def _occurrences(block: ir.Block, site: ir.Load | ir.Atomic) -> int | None:
    """The number of visits of a block to a site, if it is constant and the same on every path."""
    if site in block.stmts:
        return 1
    holder = next(stmt for stmt in block.stmts if site in set(ir.within(stmt)))
    if isinstance(holder, ir.Custom):
        return _occurrences(holder.body, site)
    if not isinstance(holder, ir.For) or holder.stop is not None or not isinstance(holder.count, ir.Const):
        return None
    inner = _occurrences(holder.body, site)
    return None if inner is None else inner * int(holder.count.value)


# ---------------------------------------------------------------------------------------------------- record


@dataclass(frozen=True, slots=True)
class Recorded:
    """The primal that appends, and the program that reads back, with the residuals that link them.

    `reopened` are the positions of parameters that the function itself appends to.  The replayable program
    stores to them; its last parameters are where each thread begins in them.
    """

    primal: ir.Function
    replayable: ir.Function
    residuals: tuple[Residual, ...]
    reopened: tuple[int, ...] = ()


def record(
    function: ir.Function,
    groups: Groups = (),
    keep: Collection[int] | None = None,
    intact: Collection[str] = (),
    merged: bool = True,
) -> Recorded:
    """Record the sites of a function, by default all; `keep` lists the positions of those to keep.

    A site that is not kept is left as it is, for an adjoint that does not need its value.  `merged` is that
    of `forward`.
    """
    function = forward(function, groups, merged)
    chosen = [site for i, site in enumerate(sites(function, groups, intact)) if keep is None or i in keep]
    appended = {stmt.array for stmt in ir.of_kind(function.body, ir.Append)}
    if not chosen and not appended and not any(ir.of_kind(function.body, ir.Save)):
        return Recorded(function, function, ())
    taken = {param.hint for param in function.params}
    numbers = (number for number in itertools.count(1) if f"residual_{number}" not in taken)
    residuals = {site: residual_of(site, number) for site, number in zip(chosen, numbers, strict=False)}
    primal = _Appender(residuals).function(function)
    primal = replace(primal, params=(*function.params, *(r.array for r in residuals.values())))
    reopened = tuple(i for i, param in enumerate(function.params) if param in appended)
    again = replayable(function, residuals, [function.params[i] for i in reopened])
    return Recorded(primal, again, tuple(residuals.values()), reopened)


class _Appender(Copier):
    """Writes the primal: the same program, with an append after each kept site."""

    def __init__(self, residuals: dict[Site, Residual]) -> None:
        super().__init__()
        self.residuals = residuals

    def stmt(self, stmt: ir.Stmt) -> None:
        super().stmt(stmt)
        for site, out in sources(stmt):
            if site in self.residuals:
                for component in self.builder.components(self.atom(out)):
                    self.builder.emit(ir.Append(self.residuals[site].array, component, stmt.span))
