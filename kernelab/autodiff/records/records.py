"""The records of a tape: one frozen record for each launch; `moves` has the others, `recording` makes them.

A record can say which differentiable arrays it read and wrote, and take adjoints backwards through itself.
`Outline` is what launches of one kernel share, `LaunchEntry` what the record of a launch shares with the
entry of a level (`transforms.forward_and_reverse`).
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

from kernelab.autodiff.records.adjoint_buffers import Adjoints, Level, by_memory, lie_apart
from kernelab.autodiff.records.gathered_launch import Launches, build_ahead, gathered_adjoint
from kernelab.autodiff.records.half_sums import in_float32
from kernelab.autodiff.records.hazards import SavedWhole, Watch
from kernelab.autodiff.records.moves import Flowing, cleared
from kernelab.autodiff.records.snapshots import Copied, Snapshot
from kernelab.backend.common.tiered import beside
from kernelab.backend.cpu import vector_tier
from kernelab.backend.cuda.launch_config import DEFAULT_CONFIG
from kernelab.data_classes import dataclass, replace
from kernelab.errors import Diagnostic, KernelTypeError, Related
from kernelab.passes.access.dead_ends import DeadEnd
from kernelab.runtime.array.array import array
from kernelab.runtime.array.layout import packed_in
from kernelab.runtime.context.recorder import Place
from kernelab.runtime.kernel.arguments import Reference, array_of, row_of_one
from kernelab.runtime.kernel.dispatch import Culprit
from kernelab.runtime.kernel.facts import Groups, Positions
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.program import Program, Pullback
from kernelab.runtime.launch.call import Call
from kernelab.runtime.memory.memory import Allocation
from kernelab.runtime.memory.streams import configured
from kernelab.settings import Settings, settings

Arrays = Sequence[array]


MANY = 1 << 16
"""The threads from which an adjoint has a program of its own where it need not clear what it has read."""


class Record(Protocol):
    """The protocol of a record in a sweep."""

    @property
    def place(self) -> Place: ...

    @property
    def title(self) -> str:
        """The name of the record in messages."""

    @property
    def read(self) -> Sequence[array]:
        """The arrays of floats that it read, used or not."""

    @property
    def reached(self) -> Sequence[array]:
        """Those of them that adjoints flow to, whether they require gradients or not."""

    def would_reach(self, primal: array) -> bool:
        """Whether adjoints would flow to an array that it read, if the array required gradients."""

    @property
    def written(self) -> Sequence[array]:
        """The arrays of floats that it changed."""

    @property
    def may_begin(self) -> bool:
        """Whether it may add to adjoints though no adjoint arrives at what it wrote."""

    def flow(self) -> tuple[Arrays, Arrays, Arrays]:
        """What it read, reached and wrote."""

    def pull(self, adjoints: Adjoints, level: Level) -> None:
        """Take the adjoints of what it wrote to those of what it read, at a level; a tape's is the base."""


class Step(NamedTuple):
    """A record, and what it read, reached and wrote."""

    record: Record
    read: Arrays
    reached: Arrays
    written: Arrays


# ------------------------------------------------------------------------------------------ outlines


Pick = Callable[[Sequence[Any]], Sequence[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Outline:
    """The facts that launches of a kernel with the same active parameters share: positions of arguments.

    `read` are arrays whose elements its text reads, used or not: what a gradient means must not depend on
    what was optimised away.  `references` says that arrays stand for some of the numbers, `passive` are
    arrays read and used that did not require gradients.  The functions take what stands at some of the
    positions out of the arguments.
    `pullback` is the KernelTypeError where there is no adjoint, None where nothing could be differentiated;
    `switched_off` says that there is none as the user wants none.  In a launch that `is_plain` no chain ends.
    """

    pullback: Pullback | KernelTypeError | None
    read: tuple[int, ...]
    reached: tuple[int, ...]
    written: tuple[int, ...]
    references: bool
    passive: tuple[int, ...]
    switched_off: bool
    is_plain: bool
    pick_active: Pick
    pick_read: Pick
    pick_reached: Pick
    pick_written: Pick


def _pick(positions: tuple[int, ...]) -> Pick:
    """A function that selects the values at some positions of a tuple."""
    if len(positions) > 1:
        return itemgetter(*positions)
    first = positions[0] if positions else 0
    return itemgetter(slice(first, first + len(positions)))


def pullback_of(
    program: Program, active: Collection[int], groups: Groups, settled: Positions = ()
) -> Pullback | KernelTypeError:
    """Reverse mode with respect to the parameters at some positions, or why there is none."""
    try:
        return program.pullback(tuple(sorted(active)), groups, settled)
    except KernelTypeError as error:
        # Raised where a gradient has to pass.  It outlives the caller, whose frames it must not keep.
        return error.with_traceback(None)


def would_reach(call: Call, positions: Collection[int], active: Collection[int]) -> bool:
    """Whether adjoints would flow to one of some arguments, if these were active, too."""
    pullback = pullback_of(call.kernel.program, {*active, *positions}, call.groups())
    return not isinstance(pullback, Pullback) or any(i in pullback.reached for i in positions)


def known_outline(call: Call, key: Hashable, groups: Groups, settled: Positions) -> Outline:
    """The outline of a launch, which all tapes share; `key` says all that it depends on, but for options."""
    known, key = call.kernel.outlines, (key, call.kernel.has_backward, bool(call.structs))
    if key not in known:
        known[key] = outline_of(call, groups, settled)
    outline: Outline = known[key]
    return outline


def outline_of(call: Call, groups: Groups, settled: Positions) -> Outline:
    """The shared facts of a launch, by which arguments share memory and which of them are saved."""
    plan, arguments, floats = call.kernel.plan, call.arguments, call.kernel.program.floats
    references = {i for i in plan.numbers if arguments[i].__class__ is Reference}
    # In what shares memory with an array that it changes, a launch reads what it has written.
    together = {i for i in floats if any(i in group for group in groups)}
    changed = together.union(plan.written)
    active = {i for i in floats if arguments[i].requires_grad or i in changed} | references
    used = references.union(i for i in plan.read if i in floats)
    read = references.union(i for i in plan.read_in_text if i in floats)
    pullback = pullback_of(call.kernel.program, active, groups, settled) if active else None
    if isinstance(pullback, Pullback):
        with beside(partial(build_ahead, pullback.adjoint, call.space, call.grid.threads)):
            call.build(pullback)
    off = isinstance(pullback, KernelTypeError) and not call.kernel.has_backward
    reached = (
        used.intersection(pullback.reached) if isinstance(pullback, Pullback) else used if not off else ()
    )
    written = tuple(i for i in plan.written if i in floats)
    first = tuple(sorted(read))
    positions = first, first if read == set(reached) else tuple(sorted(reached)), written
    picks = [_pick(several) for several in (getattr(pullback, "active", ()), *positions)]
    passive = tuple(sorted(used - active))
    is_plain = not (off or passive or call.structs or _may_end(call, read & set(reached), written))
    return Outline(pullback, *positions, bool(references), passive, off, is_plain, *picks)


def _may_end(call: Call, reached: Collection[int], written: Collection[int]) -> bool:
    """Whether a gradient may end in the text of a kernel.

    What a condition depends on is mostly reached beside it, and integers matter where a float becomes one.
    """
    plan, program = call.kernel.plan, call.kernel.program
    floats = set(program.names(program.floats))
    reached_names = {plan.parameters[i].name for i in reached} if len(written) == 1 else set()
    return any(not end.is_condition or end.source in floats - reached_names for end in program.dead_ends)


def not_kept(kernel: Kernel) -> Diagnostic:
    """The error for a launch that was recorded too late to save what its adjoint needs."""
    message = f"`{kernel.name}` overwrites values that its adjoint needs: too late to record its launch"
    return Diagnostic(message, kernel.span, "residual", hint="launch it inside `with tape:`")


# ------------------------------------------------------------------------------------------ launches


class LaunchEntry(Flowing):
    """A launch whose adjoint can run: its line, and snapshots of what the adjoint reads of its arguments.

    Each snapshot stands with the position of the argument.
    """

    __slots__ = ()

    place: Place
    snapshots: tuple[tuple[int, Snapshot | Copied], ...]

    @property
    def title(self) -> str:
        """The name of the launch in messages."""
        raise NotImplementedError

    @property
    def dead_ends(self: Any) -> Sequence[tuple[DeadEnd, array, array]]:
        """Where derivatives end in the text, each with the arrays on both sides, if these are kept."""
        ends, params = self.program.dead_ends, self.program.function.params
        given = {param.hint: one for param, one in zip(params, self.arguments, strict=True)} if ends else {}
        pairs = [(end, given[end.source], given[end.target]) for end in ends]
        return [(end, a, b) for end, a, b in pairs if a is not None and b is not None]

    def saved(self) -> dict[int, array]:
        """By position, arrays with the old elements of arguments that the adjoint reads and that changed."""
        return {i: saved for i, snapshot in self._checked() if (saved := snapshot.saved) is not None}

    def sources(self) -> dict[int, array | Copied]:
        """The same for a launch that reads them while the result lives."""
        return {i: source for i, snapshot in self._checked() if (source := snapshot.source) is not None}

    def _checked(self) -> tuple[tuple[int, Snapshot | Copied], ...]:
        for _, snapshot in self.snapshots:
            snapshot.check()
        return self.snapshots

    def refused(self, error: KernelTypeError) -> KernelTypeError:
        """The error for a missing adjoint, with the launch that would need it."""
        launched = Related("a gradient has to pass this launch:", self.place.span)
        first, *others = error.diagnostics
        return type(error)(replace(first, related=(*first.related, launched)), *others)


class LaunchRecord(Call, LaunchEntry):
    """A call that has run: with what it kept for the adjoint, and where it was made.

    `versions` holds, for each array argument, how often its memory had been written after the launch;
    `snapshots` are of arguments that its adjoint reads and that have changed since, or may do so unseen.
    `known_gathered` is what `gathered` has found, and under which settings.  The recording sets these once
    the call has run: one object for both leaves the collector less to visit.
    """

    __slots__ = ("__weakref__", "known_gathered", "outline", "place", "residuals", "snapshots", "versions")

    outline: Outline
    residuals: tuple[array, ...]
    versions: tuple[int, ...]
    place: Place
    snapshots: tuple[tuple[int, Watch | SavedWhole], ...]
    known_gathered: "tuple[Settings, Launches | None] | None"

    def __repr__(self) -> str:
        return f"<{self.title} at {self.place}>"

    def alone(self) -> Call:
        """The launch in an object of its own: a snapshot that held the record would make a circle."""
        return Call(self.kernel, self.grid, self.arguments, self.parts, self.structs, self.config)

    @property
    def program(self) -> Program:
        return self.kernel.program

    @property
    def pullback(self) -> Pullback | KernelTypeError | None:
        """Reverse mode of the kernel, or why there is none."""
        return self.outline.pullback

    @property
    def named(self) -> Mapping[str, Any]:
        """The arguments by the names of the parameters."""
        names = (parameter.name for parameter in self.kernel.plan.parameters)
        return dict(zip(names, self.arguments, strict=True))

    @property
    def versions_written(self) -> Mapping[str, int]:
        """The versions of the arrays that the launch changed, after it, by parameter."""
        return self._versions(self.kernel.plan.written, 0)

    @property
    def versions_read(self) -> Mapping[str, int]:
        """The versions of the arrays that the launch read, before it, by parameter."""
        return self._versions(self.kernel.plan.read_in_text, 1)

    def reads_old(self, memory: Allocation) -> bool:
        """Whether the launch read elements of some memory that its threads had not stored before."""
        kernel, given = self.kernel, self.arguments
        arrays = (array_of(given[i]) for i in (*kernel.program.reads_of_old, *kernel.plan.numbers))
        return any(isinstance(one, array) and one.allocation is memory for one in arrays)

    def version_of(self, primal: array) -> int | None:
        """The version of an array that the launch read, before it."""
        names = (name for name, argument in self.named.items() if argument is primal)
        return next((self.versions_read[name] for name in names if name in self.versions_read), None)

    def _versions(self, positions: tuple[int, ...], back: int) -> dict[str, int]:
        plan = self.kernel.plan
        after = dict(zip(self.program.arrays, self.versions, strict=True))
        return {plan.parameters[i].name: after[i] - back * (i in plan.written) for i in positions}

    @property
    def title(self) -> str:
        return f"the launch of `{self.kernel.name}`"

    @property
    def read(self) -> Sequence[array]:
        return self._picked(self.outline.pick_read)

    @property
    def reached(self) -> Sequence[array]:
        return self._picked(self.outline.pick_reached)

    @property
    def active(self) -> Arrays:
        """The arrays whose adjoints are arguments of the adjoint program."""
        return self._picked(self.outline.pick_active)

    @property
    def added_once(self) -> Arrays:
        """The arrays whose adjoints each thread adds to once, at its own indices, and no other thread does.

        None where an error may end the adjoint half way.
        """
        outline, pullback = self.outline, self.outline.pullback
        if outline.references or not isinstance(pullback, Pullback):
            return ()
        if self.snapshots or pullback.adjoint.keeps:  # it may fail, and what was there before has to stay
            return ()
        active, places = outline.pick_active(self.arguments), pullback.added_once
        launches = self.gathered(pullback) if self.grid.threads >= vector_tier.FEWEST else None
        if launches is not None:
            first = len(self.arguments)
            places = tuple([k for k in range(len(active)) if k in places or first + k in launches.once])
        memories = [elements.allocation for elements in active]
        alone = [active[k] for k in places if memories.count(memories[k]) == 1]
        if self.grid.threads < MANY:
            return alone
        once, shared = {active[k] for k in places}, by_memory(self.reached).values()
        fields = (some for some in shared if len(some) > 1 and once.issuperset(some) and lie_apart(some))
        return [*alone, *chain.from_iterable(fields)]

    def gathered(self, pullback: Pullback) -> "Launches | None":
        """The launches over elements that run in place of the adjoint; None where it runs as it is."""
        known, chosen = self.known_gathered, settings()
        if known is None or known[0] is not chosen:
            known = self.known_gathered = chosen, self._find_gathered(pullback)
        return known[1]

    def _find_gathered(self, pullback: Pullback) -> "Launches | None":
        form = gathered_adjoint(pullback.adjoint)
        if form is None or self.residuals or self.outline.references:
            return None
        if self.config is not DEFAULT_CONFIG or self.space is not None:
            return None
        active = self.active
        memories = {elements.allocation for elements in active}
        if len(memories) < len(active) or not all(one.is_contiguous for one in active):
            return None
        return form.launches(self.grid.extents, (*self.arguments, *active))

    def would_reach(self, primal: array) -> bool:
        plan, active = self.kernel.plan, getattr(self.pullback, "active", ())
        reading = {i: self.arguments[i] for i in (*plan.read, *plan.numbers)}
        memories = {i: getattr(array_of(argument), "allocation", None) for i, argument in reading.items()}
        return would_reach(self, [i for i in reading if memories[i] is primal.allocation], active)

    def would_reach_number(self, position: int) -> bool:
        """Whether adjoints would flow to a number among the arguments, if an array stood for it."""
        return would_reach(self, (position,), getattr(self.pullback, "active", ()))

    def leads(self, sources: Sequence[array], target: array) -> bool:
        """Whether an array that it changed has a derivative by some that it read; yes where some overlap."""
        if self.groups():
            return True
        memories = {source.allocation for source in sources}
        given = [getattr(array_of(argument), "allocation", None) for argument in self.arguments]
        led = (self.program.leads[i] for i, memory in enumerate(given) if memory in memories)
        return any(given[position] is target.allocation for positions in led for position in positions)

    @property
    def written(self) -> Sequence[array]:
        return self._picked(self.outline.pick_written)

    @property
    def late(self) -> Sequence[array]:
        """The arrays that it read and that were set to require gradients only afterwards."""
        if not self.outline.passive:
            return ()
        arguments = [self.arguments[i] for i in self.outline.passive]
        return [argument for argument in arguments if argument.requires_grad and self.would_reach(argument)]

    def flow(self) -> tuple[Arrays, Arrays, Arrays]:
        outline, arguments = self.outline, self.arguments
        if outline.references:
            return self.read, self.reached, self.written
        read = outline.pick_read(arguments)
        reached = read if outline.reached is outline.read else outline.pick_reached(arguments)
        return read, reached, outline.pick_written(arguments)

    def _picked(self, pick: Pick) -> Arrays:
        picked = pick(self.arguments)
        if not self.outline.references:
            return picked
        return [array_of(argument) for argument in picked]

    def left(self) -> Arrays:
        """The arrays whose adjoints `pull` does not change where it is one of `leaving`, and clears else.

        Empty for small launches, and until the program for it is built.
        """
        pullback = self.outline.pullback
        if self.grid.threads < MANY or not isinstance(pullback, Pullback) or not pullback.cleared:
            return ()
        if self.outline.references or self.snapshots or self.residuals or pullback.wide_bars:
            return ()
        if self.config is not DEFAULT_CONFIG or self.space is not None or pullback.adjoint.keeps:
            return ()
        if 1 < len(pullback.adjoint.flat.threads) < len(self.grid.extents):  # threads share an element
            return ()
        memories = self.memories()
        left = [self.arguments[i] for i in pullback.cleared]
        if any(memories.count(elements.allocation) > 1 for elements in left):
            return ()
        launches = self.gathered(pullback)
        is_ready = pullback.leaving.is_ready() if launches is None else launches.sums is not None
        return left if is_ready else ()

    def pull(self, adjoints: Adjoints, level: Level) -> None:
        outline = self.outline
        pullback = outline.pullback
        if outline.switched_off:
            self._end_here(adjoints)
        elif isinstance(pullback, Pullback):
            threads, leaves = self.grid.threads, self in adjoints.leaving
            if threads > pullback.exact_additions:
                pullback.warn_of_rounded_sums(threads)
            sources = self.sources() if self.snapshots else {}  # alive until the launch is over
            if pullback.wide_bars:
                self._pull_in_float32(pullback, adjoints, level, sources)
                return
            args = b"".join(self.adjoint_parts(adjoints, sources))
            launches = self.gathered(pullback) if threads >= vector_tier.FEWEST else None
            if launches is not None:
                launches.run(args, leaves)
                return
            if self.config is DEFAULT_CONFIG:
                (pullback.leaving if leaves else pullback.adjoint).run(args)
                return
            with configured(self.config):
                pullback.adjoint.run(args)
        elif pullback is not None:
            raise self.refused(pullback)

    def _pull_in_float32(
        self, pullback: Pullback, adjoints: Adjoints, level: Level, saved: Mapping[int, array | Copied]
    ) -> None:
        """Run the adjoint with float32 in place of the adjoints of halves to which it adds often."""
        bars = self.bars(adjoints)
        with in_float32(level, bars, pullback.wide_bars), configured(self.config):
            parts = self.parts_with(saved) if saved else self.parts
            args = [*parts, *(one.packed for one in (*bars, *self.residuals))]
            pullback.wide_adjoint.run(b"".join(args))

    def check(self, adjoints: Adjoints) -> None:
        """Raise an error where the adjoint has races or reads what nobody has written, in checked mode."""
        if self.kernel.check is None or not isinstance(self.pullback, Pullback):
            return
        from kernelab.runtime.launch.checked import run_on_copies

        saved, adjoint = self.saved(), self.pullback.adjoint
        arguments = [saved.get(i, argument) for i, argument in enumerate(self.arguments)]
        parts = self.adjoint_parts(adjoints, saved)
        arguments += [*self.bars(adjoints), *self.residuals]
        taken_from = self.program.taken_from
        run_on_copies(adjoint, adjoint.name, self.grid, arguments, parts, taken_from)

    def trace(self, adjoints: Adjoints) -> Culprit | None:
        """Run the adjoint again, to find where a value turned NaN or infinite; it adds to the adjoints."""
        from kernelab.runtime.launch.checked import trace

        assert isinstance(self.pullback, Pullback)
        parts = self.adjoint_parts(adjoints, self.saved())
        return trace(self.pullback.adjoint.tracing(), parts, self.grid.threads, self.device)

    def adjoint_parts(self, adjoints: Adjoints, saved: Mapping[int, array | Copied]) -> list[bytes]:
        """The packed arguments of the adjoint: those of the launch as they were, adjoints, residuals."""
        parts = self.parts_with(saved) if saved else self.parts
        if self.outline.references:
            bars = [bar.packed for bar in self.bars(adjoints)]
        else:
            bars = packed_in(adjoints.memory, self.outline.pick_active(self.arguments))
        if self.residuals:
            bars += [residual.packed for residual in self.residuals]
        return [*parts, *bars]

    def bars(self, adjoints: Adjoints) -> list[array]:
        """The adjoints of the arguments that have some."""
        active = self.outline.pick_active(self.arguments)
        bars = [(argument, adjoints.of(array_of(argument))) for argument in active]
        return [row_of_one(bar) if isinstance(argument, Reference) else bar for argument, bar in bars]

    def _end_here(self, adjoints: Adjoints) -> None:
        """Clear the adjoints of the arrays that the launch stored to: gradients end here."""
        kernel = self.kernel
        for i in self.outline.written:
            bar = adjoints.known(self.arguments[i])
            if bar is not None and kernel.primal.params[i] in kernel.effects.writes:
                cleared(bar)


@dataclass(frozen=True, slots=True)
class Scope:
    """A named stretch of a tape: the records from `begin` up to `end`, counted from 0."""

    name: str
    metadata: Any
    begin: int
    end: int
