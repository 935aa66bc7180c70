"""Reading back: the program that `vjp` differentiates in the place of one that is recorded.

    recorded    v = a[i]                        s -> stack            stack -> s            append r v
    replayable  v = a[i] held residual[c]       memory[d] = s         s = memory[d - 1]     r[c] = v
                                                                          held residual[c]

What is kept is read at a cursor, which counts how often the thread has come there: an affine expression of
loop indices where a loop comes there a constant number of times, and an ordinary carried integer elsewhere.

A stack becomes an array of which each thread has a part, at the depth that it has reached: `held` says what
it holds, so that the array exists for cotangents alone.  What the function appends becomes a store, since
after it has run, the residual is an array like any other.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kernelab.lang.build import integer, type_of, zero
from kernelab.lang.ir import (
    Append,
    Atom,
    Atomic,
    Block,
    Const,
    Custom,
    For,
    Function,
    If,
    Load,
    Loop,
    Restore,
    Save,
    Stack,
    Stmt,
    Var,
    blocks,
    walk,
)
from kernelab.lang.ops import ALONG
from kernelab.lang.types import Array, Scalar, Value, int32, int64, scalar_of, size_of
from kernelab.passes.ad.save_points import Popped, Residual, Site, components, sources
from kernelab.passes.common.copying import Copier, like


@dataclass(frozen=True, slots=True)
class Count:
    """How many records a thread has taken from a stack, or how many stand in it."""

    stack: Stack
    of: Literal["taken", "depth"]


Key = Load | Atomic | Count | Var
"""What a cursor counts: how often a site was met, what a stack has seen, what was appended to a residual."""


def replayable(function: Function, residuals: dict[Site, Residual], reopened: Sequence[Var]) -> Function:
    """The program that reads `residuals` back; `reopened` are parameters that it appends to.

    Its last parameters are the residuals, each with its starts, and then the starts of what is reopened.
    """
    linear = function.linear or Var(int64, "thread", function.span)
    starts = [Var(Array(int64, 1), f"{array.hint}_starts", array.span) for array in reopened]
    reader = _Reader(residuals, linear)
    copied = reader.read(function, dict(zip(reopened, starts, strict=True)))
    extra = [var for residual in residuals.values() for var in (residual.array, residual.starts)]
    params = (*function.params, *extra, *starts)
    return replace(copied, params=params, linear=linear)


NOBODY = Var(int32)
"""No value in particular, of a site that is looked up by its stack."""


class _Reader(Copier):
    """Writes the replayable program; `cursor` holds every count so far."""

    def __init__(self, residuals: dict[Site, Residual], linear: Var) -> None:
        super().__init__()
        self.residuals = residuals
        self.linear = linear
        self.stacks = {site.stack for site in residuals if isinstance(site, Popped)}
        self.cursor: dict[Key, Atom] = {}
        self.starts: dict[Var, Atom] = {}

    def read(self, function: Function, reopened: dict[Var, Var]) -> Function:
        """The function again; `reopened` gives the starts of arrays that it appends to."""
        keys = [key for stmt in walk(function.body) for key in self.keys(stmt)]
        self.cursor = dict.fromkeys(keys, integer(0))
        known = {residual.array: residual.starts for residual in self.residuals.values()} | reopened
        with self.builder.at(function.span):
            self.starts = {
                array: self.builder.load(starts, [self.linear], "start") for array, starts in known.items()
            }
        return super().function(function)

    def keys(self, stmt: Stmt) -> tuple[Key, ...]:
        """The counts that a statement moves on."""
        match stmt:
            case Load() | Atomic() if stmt in self.residuals:
                return (stmt,)
            case Restore(stack) if stack in self.stacks:
                return (Count(stack, "taken"), Count(stack, "depth"))
            case Save(stack) if stack in self.stacks:
                return (Count(stack, "depth"),)
            case Append(array):
                return (array,)
            case _:
                return ()

    def stmt(self, stmt: Stmt) -> None:
        match stmt:
            case Save():
                self.save(stmt)
            case Restore():
                self.restore(stmt)
            case Append(array, value):
                (place,) = self.places(array, self.cursor[array], 1)
                self.builder.store(array, [place], self.atom(value))
                self.advance(array, 1)
            case _:
                super().stmt(stmt)

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

    def read_back(self, site: Load | Atomic) -> Atom:
        residual = self.residuals[site]
        values = self.kept(residual, self.cursor[site], site.out.hint)
        self.advance(site, 1)
        return self.joined(residual.type, values)

    def save(self, stmt: Save) -> None:
        """What is pushed onto a stack is stored where its cotangent will be found."""
        if stmt.stack not in self.stacks:
            return
        depth = Count(stmt.stack, "depth")
        for i, atom in enumerate(stmt.atoms):
            residual = self.residuals.get(Popped(stmt.stack, i, NOBODY, stmt.span))
            if residual is None or residual.memory is None:
                continue
            places = self.places(residual.array, self.cursor[depth], size_of(residual.type))
            for place, value in zip(places, components(self.builder, self.atom(atom)), strict=True):
                self.builder.store(residual.memory, [place], value)
        self.advance(depth, 1)

    def restore(self, stmt: Restore) -> None:
        taken, depth = Count(stmt.stack, "taken"), Count(stmt.stack, "depth")
        if stmt.stack in self.stacks:
            self.advance(depth, -1)
        for site, out in sources(stmt):
            residual = self.residuals.get(site)
            self.env[out] = (
                zero(type_of(out))  # nobody needs it
                if residual is None
                else self.joined(residual.type, self.popped(residual, taken, depth, out.hint))
            )
        if stmt.stack in self.stacks:
            self.advance(taken, 1)

    def popped(self, residual: Residual, taken: Count, depth: Count, hint: str) -> list[Atom]:
        kept = self.kept(residual, self.cursor[taken], hint)
        if residual.memory is None:
            return kept
        found: list[Atom] = []
        places = self.places(residual.array, self.cursor[depth], size_of(residual.type))
        for place, value in zip(places, kept, strict=True):
            out = Var(scalar_of(residual.type), hint, self.builder.span)
            self.builder.emit(Load(out, residual.memory, (place,), self.builder.span, value))
            found.append(out)
        return found

    def kept(self, residual: Residual, cursor: Atom, hint: str) -> list[Atom]:
        """The scalars that a residual holds at a cursor."""
        places = self.places(residual.array, cursor, size_of(residual.type))
        return [self.builder.load(residual.array, [place], hint) for place in places]

    def places(self, array: Var, cursor: Atom, size: int) -> list[Atom]:
        """Where the scalars stand that belong to a cursor, in the part that the thread has of an array."""
        b, start = self.builder, self.starts[array]
        first = b.apply("int64", b.apply("mul", cursor, integer(size)))
        counts = [b.apply("add", first, Const(k, int64)) for k in range(size)]
        none = Const(0, int64)
        return [start if count == none else b.let(ALONG, (start, count), int64) for count in counts]

    def joined(self, type: Value, scalars: list[Atom]) -> Atom:
        return scalars[0] if isinstance(type, Scalar) else self.builder.apply(str(type), *scalars)

    def advance(self, key: Key, by: int) -> None:
        self.cursor[key] = self.builder.apply("add", self.cursor[key], integer(by))

    def inside(self, *inner: Block) -> list[Key]:
        """The counts that move on in some blocks."""
        found = {key for block in inner for stmt in walk(block) for key in self.keys(stmt)}
        return [key for key in self.cursor if key in found]

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

    def branch(self, block: Block, cursor: dict[Key, Atom], moved: list[Key]) -> Block:
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

    def counted_loop(self, stmt: Loop, affine: dict[Key, int], carried: list[Key]) -> None:
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
        cursored = body.close(*yields)
        b.emit(like(stmt, (*outs, *after), index, count, (*carries, *cursors), inits, cursored))


def _affine_sites(stmt: Loop, moved: list[Key]) -> dict[Key, int]:
    """The sites whose cursor in iteration k is a constant times k, with the constant."""
    if not isinstance(stmt, For) or stmt.reverse or stmt.count.type != int32:
        return {}
    found = {site: _occurrences(stmt.body, site) for site in moved if isinstance(site, Load | Atomic)}
    return {site: number for site, number in found.items() if number is not None}


def _occurrences(block: Block, site: Load | Atomic) -> int | None:
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
