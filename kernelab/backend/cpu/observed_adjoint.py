"""Runs an adjoint and observes its cotangents: why one is zero, and how large those are that loops carry.

A cotangent becomes zero at one line: there, some cotangent that goes in is not zero, and what comes out
is.  Other reasons are branches that miss the element.  The norms of cotangents that a loop carries are
measured iteration by iteration.  Knows programs and packed arguments; must not know tapes.
"""

from collections.abc import Iterator, Sequence, Set
from functools import lru_cache, partial
from typing import Any

import numpy as np

from kernelab.backend.common.backends import Args
from kernelab.backend.cpu.chunk import Chunk, Trip, component_of
from kernelab.backend.cpu.interpreter import Change, Pointed, can_interpret, entry, run_thread
from kernelab.backend.cpu.lanes import Frame, Numpy
from kernelab.data_classes import dataclass, field
from kernelab.errors import Span
from kernelab.lang import ir
from kernelab.lang.dependence import reached
from kernelab.lang.ops import Linear
from kernelab.lang.types import is_differentiable

UNUSED = "the result does not use it"
"""Why a use of other components is zero: no reason, where there is another one."""

OTHER_TAKEN = "the other value is taken here"
"""Why a `clamp`, a `max` or a `where` has derivative 0."""


@dataclass(frozen=True, slots=True, eq=False)
class Skip:
    """A branch that ran at `span` in a thread leaves the element as it is, the other one would change it."""

    span: Span
    thread: int


class Skipping(Pointed):
    """A chunk that notes, too, what would change the element in the branches that do not run."""

    def __init__(self, element: range, changes: list[Change], skips: list[Skip], *rest: Any) -> None:
        super().__init__(element, changes, {}, *rest)
        self.skips = skips

    def choice(self, stmt: ir.If, frame: Frame) -> None:
        """Run the branches, and look at what each lane leaves out."""
        cond = frame.values(stmt.cond)
        for lanes, block in ((np.flatnonzero(cond), stmt.orelse), (np.flatnonzero(~cond), stmt.then)):
            if len(lanes):
                self.left_out(block, frame.choose(lanes).inner(), stmt.span)
        super().choice(stmt, frame)

    def left_out(self, block: ir.Block, frame: Frame, span: Span) -> None:
        """Note the lanes that would change the element in a block that does not run, where that is known."""
        for stmt in block.stmts:
            match stmt:
                case ir.Let() if all(map(frame.knows, stmt.args)):
                    self.let(stmt, frame)
                case ir.If():
                    self.left_out(stmt.then, frame, span)
                    self.left_out(stmt.orelse, frame, span)
                case ir.Store() | ir.Atomic() if all(map(frame.knows, stmt.indices)):
                    if stmt.array not in self.locals:
                        places = [frame.places(index) for index in stmt.indices]
                        hits = self.hits(stmt, [*places, *component_of(stmt)])
                        self.skips += [Skip(span, int(frame.threads[k])) for k in hits.tolist()]
                case _:
                    pass


def changes_and_skips(function: ir.Function, args: Args, element: range) -> tuple[list[Change], list[Skip]]:
    """Run a program on packed arguments, whose memory it changes; what it did, or not, to the `element`."""
    changes: list[Change] = []
    skips: list[Skip] = []
    entry(function, chunk=partial(Skipping, element, changes, skips))(args)
    return changes, skips


# --------------------------------------------------------------------------------------------- one thread


@dataclass(slots=True, eq=False)
class Cotangent:
    """A cotangent in a run: its value, the line that computes it, and the cotangents and factors that go in.

    `read` is the address of the element that it was read from, of an array of the launch.
    """

    span: Span
    value: Numpy
    inputs: list["Cotangent"] = field(default_factory=list)
    factors: list[Numpy] = field(default_factory=list)
    statement: ir.Stmt | None = None
    read: tuple[ir.Var, int] | None = None

    @property
    def is_zero(self) -> bool:
        """Whether all of its components are."""
        return not np.any(self.value)


class Tracing(Chunk):
    """A chunk of one thread that keeps, for each cotangent, where it comes from."""

    def __init__(self, bars: Set[ir.Atom], zeros: list[Cotangent], element: range, *rest: Any) -> None:
        super().__init__(*rest)
        self.bars, self.zeros, self.element = bars, zeros, element
        self.known: dict[ir.Atom, Cotangent] = {}
        self.stored: dict[tuple[ir.Var, int], list[Cotangent]] = {}

    def stmt(self, stmt: ir.Stmt, frame: Frame) -> None:
        """Run a statement, and keep what becomes of cotangents."""
        place = self.place(stmt, frame) if isinstance(stmt, ir.ArrayAccess) else 0
        super().stmt(stmt, frame)
        match stmt:
            case ir.Let(out, _, args) if out in self.bars:
                factors = [frame.values(arg)[0] for arg in args if arg not in self.bars]
                self.keep(out, stmt, frame, [self.known[arg] for arg in args if arg in self.known], factors)
            case ir.Load(out, array) if out in self.bars:
                earlier = self.stored.get((array, place))
                self.keep(out, stmt, frame, earlier or [])
                if earlier is None and array not in self.locals:
                    self.known[out].read = array, place
            case ir.Store(array, _, value) | ir.Atomic(_, _, array, _, value):
                self.write(stmt, array, place, value, frame)
            case ir.If(outs, cond):
                ran = stmt.then if frame.values(cond)[0] else stmt.orelse
                for out, atom in zip(outs, ran.yields, strict=True):
                    self.keep(out, stmt, frame, [self.known[atom]] if atom in self.known else [])
            case ir.For(outs) | ir.While(outs):
                for out, carry, init in zip(outs, stmt.carries, stmt.inits, strict=True):
                    last = self.known.get(carry) or self.known.get(init)
                    self.keep(out, stmt, frame, [last] if last else [])
            case _:
                pass

    def iteration(self, trip: Trip) -> list[Numpy]:
        """Run an iteration; what it yields is what the next one carries."""
        loop = trip.loop
        if not trip.before:
            self.carry(loop.carries, loop.inits)
        yields = super().iteration(trip)
        self.carry(loop.carries, loop.body.yields)
        return yields

    def carry(self, carries: Sequence[ir.Var], atoms: Sequence[ir.Atom]) -> None:
        cotangents = [self.known.get(atom) for atom in atoms]
        for carry, one in zip(carries, cotangents, strict=True):
            self.known.pop(carry, None)
            if one is not None:
                self.known[carry] = one

    def keep(
        self, out: ir.Var, stmt: ir.Stmt, frame: Frame, inputs: list[Cotangent], factors: Sequence[Numpy] = ()
    ) -> None:
        if out in self.bars:
            self.known[out] = Cotangent(stmt.span, frame.values(out)[0].copy(), inputs, list(factors), stmt)

    def write(
        self, stmt: ir.Store | ir.Atomic, array: ir.Var, place: int, value: ir.Atom, frame: Frame
    ) -> None:
        """Keep what an element of an adjoint gets."""
        if array not in self.bars:
            return
        one = self.known.get(value) or Cotangent(stmt.span, frame.values(value)[0].copy(), [], [], stmt)
        if isinstance(stmt, ir.Store):
            self.stored[array, place] = [one]
        else:
            self.stored.setdefault((array, place), []).append(one)
        if array not in self.locals and place in self.element and isinstance(stmt, ir.Atomic):
            self.zeros.append(one)

    def place(self, stmt: ir.ArrayAccess, frame: Frame) -> int:
        """The address of the element that a statement touches."""
        return int(self.addresses(stmt.array, self.places(stmt, frame)[0])[0])


def trace_zeros(function: ir.Function, args: Args, thread: int, element: range) -> list[Cotangent]:
    """The zeros that one thread of an adjoint adds to the element, with where they come from."""
    zeros: list[Cotangent] = []
    run_thread(function, args, thread, partial(Tracing, cotangents_in(function), zeros, element))
    return zeros


@lru_cache(16)
def cotangents_in(function: ir.Function) -> frozenset[ir.Var]:
    """The cotangents of an adjoint, and the arrays that hold them."""
    names = {param.hint for param in function.params}
    bars = [p for p in function.params if p.hint.endswith("_bar") and p.hint.removesuffix("_bar") in names]
    pairs = (pair for stmt in ir.walk(function.body) for pair in ir.flows(stmt))
    return reached(pairs, bars, lambda node: isinstance(node, ir.Var) and is_differentiable(node.type))


def births(cotangent: Cotangent, seen: set[int] | None = None) -> Iterator[tuple[Cotangent, str]]:
    """The cotangents in which a zero began, each with the reason; those that were read as zeros have none."""
    seen = set() if seen is None else seen
    if id(cotangent) in seen:
        return
    seen.add(id(cotangent))
    if cotangent.read is not None and not cotangent.inputs:
        yield cotangent, ""
    elif not cotangent.inputs:
        is_way = isinstance(cotangent.statement, ir.If | ir.Loop)
        yield cotangent, "the way that was taken does not use it" if is_way else UNUSED
    elif any(not one.is_zero for one in cotangent.inputs):
        yield cotangent, _reason(cotangent)
    else:
        for one in cotangent.inputs:
            yield from births(one, seen)


def _reason(cotangent: Cotangent) -> str:
    stmt = cotangent.statement
    if isinstance(stmt, ir.Let) and "selects" in stmt.op.tags:
        return OTHER_TAKEN
    if isinstance(stmt, ir.Let) and isinstance(stmt.op.derivative, Linear) and len(cotangent.inputs) > 1:
        return "what is added up cancels"
    if cotangent.factors and all(map(np.any, cotangent.factors)):
        return "the product is too small for its type"
    return "the derivative is 0 here"


# ----------------------------------------------------------------------------------------------------- loops


Squares = dict[tuple[Span, int], float]
"""The sum of the squares of what a loop carries after an iteration, over all threads."""


class Measuring(Chunk):
    """A chunk that adds up the squares of the cotangents after each iteration.

    Those of a loop inside belong to the iteration around them.  Of a loop that ended by one of `ends`, that
    is no iteration which only tested and passes all on.
    """

    def __init__(self, bars: Set[ir.Atom], ends: Set[ir.Atom], squares: Squares, *rest: Any) -> None:
        super().__init__(*rest)
        self.bars, self.ends, self.squares = bars, ends, squares
        self.frames: dict[ir.Block, Frame] = {}
        self.inside = 0

    def block(self, block: ir.Block, frame: Frame) -> list[Numpy]:
        self.frames[block] = frame
        return super().block(block, frame)

    def iteration(self, trip: Trip) -> list[Numpy]:
        """Run an iteration, and measure what it yields."""
        stmt, numbers, lanes = trip.loop, trip.number, len(trip.around)
        is_measured = not self.inside and _carries_cotangents(stmt, self.bars)
        self.inside += is_measured
        yields = super().iteration(trip)
        self.inside -= is_measured
        if not is_measured:
            return yields
        is_iteration = np.ones(lanes, bool)
        is_last = trip.before == 0 and isinstance(stmt, ir.For) and stmt.count in self.ends
        if is_last and (test := _test_in(stmt, self.bars)) is not None:
            is_iteration = self.frames[stmt.body].values(test[0].cond) != test[1]
        for carry, value in zip(stmt.carries, yields, strict=True):
            if carry in self.bars:
                squares = np.square(value.reshape(lanes, -1).astype(np.float64)).sum(axis=1)
                for number in np.unique(numbers[is_iteration]):
                    key = stmt.span, int(number)
                    self.squares[key] = self.squares.get(key, 0.0) + float(squares[numbers == number].sum())
        return yields


def has_measurable_loops(function: ir.Function) -> bool:
    """Whether an adjoint has loops that carry cotangents, and the interpreter can run it."""
    bars = cotangents_in(function)
    loops = any(_carries_cotangents(stmt, bars) for stmt in ir.walk(function.body))
    return loops and can_interpret(function)


def loop_norms(function: ir.Function, args: Args) -> dict[tuple[Span, int], float]:
    """The norm of the cotangents by loop and iteration, those next to the loss first; changes the memory."""
    squares: Squares = {}
    ends = {
        stmt.outs[-1] for stmt in ir.walk(function.body) if isinstance(stmt, ir.For | ir.While) and stmt.outs
    }
    entry(function, chunk=partial(Measuring, cotangents_in(function), ends, squares))(args)
    return {key: float(np.sqrt(total)) for key, total in sorted(squares.items(), key=lambda one: -one[0][1])}


def _test_in(stmt: ir.Loop, bars: Set[ir.Atom]) -> tuple[ir.If, bool] | None:
    """The condition by which an iteration passes on what it carries, and does nothing else; None without."""
    pairs = zip(stmt.carries, stmt.body.yields, strict=True)
    changed = {after for before, after in pairs if before in bars and after is not before}
    for one in stmt.body.stmts:
        if isinstance(one, ir.If) and changed.issubset(one.outs):
            for way, branch in ((True, one.then), (False, one.orelse)):
                if not branch.stmts and set(branch.yields).issubset(stmt.carries):
                    return one, way
    return None


def _carries_cotangents(stmt: ir.Stmt, bars: Set[ir.Atom]) -> bool:
    if not isinstance(stmt, ir.For) or not stmt.reverse:
        return False
    return any(carry in bars and is_differentiable(carry.type) for carry in stmt.carries)
