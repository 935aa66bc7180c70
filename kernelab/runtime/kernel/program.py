"""Programs of the IR and the programs derived from them, each derived and built once.

A program's parameters are known by position, so that programs can be derived of derived ones: the tangent of
an adjoint, and many lanes of both.  Knows passes and how to build; must not know what runs where.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, TypeVar

from kernelab.backend.common.backends import Args, Entry, grid_in
from kernelab.backend.common.tiered import AHEAD, BETTER, Pending
from kernelab.backend.cpu.split import MOST_THREADS
from kernelab.codegen.cpp.wide_accumulators import rounded_often, totals, wide
from kernelab.codegen.vectors.variation import met_in_place
from kernelab.data_classes.turns import cached_property
from kernelab.errors import Diagnostic
from kernelab.lang.build import elem_of
from kernelab.lang.ir import Function, Storage
from kernelab.lang.types import HALVES, Array, bfloat16, float16, float32, scalar_of
from kernelab.passes.access.independence import adds_once
from kernelab.passes.ad.derivative_rules import refuse_shared_arguments
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.ad.left_adjoints import cleared_once, without_clears
from kernelab.passes.ad.vjp import Vjp, vjp
from kernelab.passes.common import batch
from kernelab.passes.common.copying import widen
from kernelab.passes.common.scalarise import scalarise
from kernelab.runtime.context.garbage import put_off
from kernelab.runtime.kernel import dispatch
from kernelab.runtime.kernel.dispatch import Placed, Tracing, run_within_budget
from kernelab.runtime.kernel.facts import Facts, Groups, Positions
from kernelab.runtime.memory.spaces import Space

Made = TypeVar("Made")

GROWS_TO = {bfloat16: 1 << 8, float16: 1 << 11, float32: 1 << 24}
"""The sum of ones at which another one is lost."""


class Program(Facts):
    """A function over arrays and numbers, compared by identity.

    `frugal` makes the same program with checkpoints in its loops, if it is an adjoint.  `check` is called
    before a tangent or, with True, an adjoint is derived; it raises KernelError where there is to be none.
    Programs with `is_check`, and those derived of them, check others and run only a few times.
    `text` gives the function as it is written, before common subexpressions were merged.
    """

    def __init__(
        self,
        function: Function,
        frugal: "Callable[[], Program] | None" = None,
        check: Callable[[bool], None] | None = None,
        is_check: bool = False,
        text: Callable[[], Function] | None = None,
    ) -> None:
        super().__init__(function, text, is_text=check is not None)
        self.is_check = is_check
        self.spilled = 0
        self._frugal = frugal
        self._check = check
        self._made: dict[Hashable, Any] = {}
        self._ahead: Pending[Placed] | None = None
        self._threads = 0

    # -------------------------------------------------------------------------------------- how it runs

    @cached_property
    def entry(self) -> Entry:
        return dispatch.build(self.flat, self._threads) if self._ahead is None else self._ahead.result()

    @cached_property
    def aliased_entry(self) -> Entry:
        """The entry for arrays that share memory: every sum is in memory at once."""
        return dispatch.build(replace(self.flat, aliased=True))

    @cached_property
    def totals(self) -> bool:
        """Whether its sums reach memory late, which arrays that share memory must not see."""
        return bool(totals(self.flat) or wide(self.flat))

    def shares(self, arguments: Sequence[Any]) -> bool:
        """Whether these arguments share memory so that they need an entry of their own."""
        return self.totals and bool(self.sharing(arguments))

    def entry_for(self, arguments: Sequence[Any], threads: int = 0) -> Entry:
        """The entry for these arguments, which may share memory; `threads` are those of its launch."""
        if self.totals and self.shares(arguments):
            return self.aliased_entry
        return self.__dict__.get("entry") or self.built_for(threads)

    def built_for(self, threads: int) -> Entry:
        """The entry; if it is built now, so is what else a launch of so many threads would wait for."""
        self._threads = threads
        return self.entry

    def run(self, args: Args, shares: bool = False, kept: int = 0) -> None:
        """Run the entry within the memory that it may keep, or, with `shares`, that for shared memory.

        Its caller holds the bytes `kept` already.  `spilled` counts the runs that went on with checkpoints.
        Raises KernelMemoryError.
        """
        usual = self.aliased_entry if shares else self.__dict__.get("entry")
        if usual is None:
            usual = self.built_for(prod(grid_in(args)))
        if self.keeps:
            self.spilled += run_within_budget(usual, lambda: self._frugal_entry(shares), args, kept)
        else:
            usual(args)

    @cached_property
    def keeps(self) -> bool:
        """Whether its threads save values, or append to residuals."""
        return self.entry.info.saves or self.entry.info.keeps

    def _frugal_entry(self, shares: bool) -> Entry:
        """The entry to go on with where the usual one would save too much; itself if there is no other."""
        program = self if self._frugal is None else self._frugal()
        return program.aliased_entry if shares else program.entry

    def build_ahead(self, space: Space | None, threads: int = 0) -> Pending[Placed] | None:
        """Start to build it in the background for where it will run, None for the CPU, unless it is built.

        What else a launch of so many threads would wait for is built, too.
        """
        if not self.is_begun:
            self._ahead = AHEAD.begin(partial(dispatch.ready, self.flat, space, threads), was_told=True)
        return self._ahead

    @property
    def is_begun(self) -> bool:
        """Whether it is built, or is being built in the background."""
        return self._ahead is not None or "entry" in self.__dict__

    def is_ready(self) -> bool:
        """Whether it is built, for large launches too: that begins when nobody waits for a build."""
        if self._ahead is None:
            self._ahead = BETTER.begin(partial(dispatch.ready_for_many, self.flat), was_told=True)
        return self._ahead.is_done and self._ahead.problem is None

    def tracing(self, *, data: bool = False) -> Tracing:
        """The program, built to find where values turn NaN or infinite; those that are `data` may be."""
        from kernelab.passes.common.shadow_values import poison  # which few programs need, as below

        return self.once(("tracing", data), lambda: dispatch.tracing(poison(scalarise(self.flat), data=data)))

    # -------------------------------------------------------------------------------------- what is derived

    def _derived(self, function: Function, again: "Callable[[Program], Program]") -> "Program":
        """A program derived from this one; `again` derives it from another."""
        frugal = self._frugal
        return Program(function, None if frugal is None else lambda: again(frugal()), None, self.is_check)

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """The result of `make`, which runs on first use."""
        if key not in self._made:
            self._made.setdefault(key, make())  # threads that ask at the same time get one object
        result: Made = self._made[key]
        return result

    def tangent(self, active: Positions, groups: Groups = ()) -> "Program":
        """The tangent program; its last parameters are the tangents of the active ones.

        Raises KernelTypeError for a rule that does not hold where the arguments in `groups` share memory.
        """
        if groups:
            shared = [[self.function.params[i] for i in group] for group in groups]
            self.once(("shared", groups), lambda: refuse_shared_arguments(self.function, shared, "jvp"))

        def make() -> Program:
            if self._check is not None:
                self._check(False)
            function = self.unlike(jvp(self.function, self.names(active)))
            return self._derived(function, lambda other: other.tangent(active))

        return self.once(("tangent", active), make)

    def pullback(self, active: Positions, groups: Groups = (), intact: Positions = ()) -> "Pullback":
        """Reverse mode with respect to the arguments `active`, where those in `groups` share memory.

        `intact` are arrays that still hold what the program has read of them when it is done.
        """

        def make() -> Pullback:
            if self._check is not None:
                self._check(True)
            return Pullback(self, active, groups, intact)

        return self.once(("pullback", active, groups, intact), make)

    @property
    def pullbacks(self) -> "list[Pullback]":
        """The pullbacks derived so far."""
        return [derived for derived in self._made.values() if isinstance(derived, Pullback)]

    @cached_property
    def widened(self) -> "Program":
        """The same program over float64."""
        return Program(widen(self.function), is_check=True, text=lambda: widen(self.unmerged))

    @cached_property
    def turned(self) -> "Program":
        """The same program, the last thread of which runs first."""
        flat = self.flat
        return Program(replace(flat, name=f"{flat.name}_turned", descending=not flat.descending))

    @cached_property
    def dependencies(self) -> "Program | None":
        """The program that propagates bits, for each array of floats; None where they cannot be followed."""
        from kernelab.passes.common.shadow_values import dependencies, traceable

        # The derivative of a `Custom` is not that of its body.
        if not traceable(self.function) or not traceable(self.flat):
            return None
        return Program(dependencies(scalarise(self.flat)), is_check=True)

    def reading(self, numbers: Positions) -> "Program":
        """The program that reads some of its numbers from arrays of one element."""
        if not numbers:
            return self
        return self.once(
            ("reading", numbers), lambda: Program(batch.reading(self.function, numbers), None, self._check)
        )

    def batched(self, wide: Positions, rank: int, distinct: bool = False) -> "Program":
        """The program for many lanes; `wide` are the arrays with an axis for them."""

        def make() -> Program:
            text = self.flat if self.has_rules_of_arrays else self.function
            function = batch.batched(text, wide, rank, distinct)
            laned = self._derived(function, lambda other: other.batched(wide, rank, distinct))
            laned.is_text = self.is_text
            return laned

        return self.once(("batched", wide, rank, distinct), make)

    def to_widen(self, wide: Positions, groups: Sequence[Positions] = ()) -> frozenset[int]:
        """The changed arrays that differ between lanes, if those of `wide` do."""
        shared = [[self.flat.params[i] for i in group] for group in groups]
        return self.once(("to widen", wide, tuple(groups)), lambda: batch.to_widen(self.flat, wide, shared))

    def by_thread(self, wide: Positions) -> "Program":
        """The program in which each thread has its own copy of some arrays, along a new first axis."""

        def make() -> Program:
            return self._derived(batch.by_thread(self.flat, wide), lambda other: other.by_thread(wide))

        return self.once(("by thread", wide), make)

    def names(self, positions: Positions) -> tuple[str, ...]:
        """The names of the parameters at some positions."""
        return tuple(self.function.params[i].hint for i in positions)

    def unlike(self, derived: Function) -> Function:
        """A derived function whose new parameters have distinct names."""
        names = {param.hint for param in self.function.params}
        for param in derived.params[len(self.function.params) :]:
            while param.hint in names:
                param.hint += "_"
            names.add(param.hint)
        return derived


class Pullback:
    """Reverse mode of a program: what runs forwards and keeps the residuals, and what takes adjoints back.

    `active` are the positions whose adjoints the second takes, `reached` those of them that it changes,
    `needed` the arrays whose elements it reads, with their regions; `residuals` are the element types of what
    the first keeps.  Where the program is itself one of reverse mode, `reopened` are the positions of
    residuals that it appends to, and `memories` those of residuals of its own that stand for its stacks
    (`kernelab.passes.ad.vjp`).
    """

    def __init__(self, program: Program, active: Positions, groups: Groups, intact: Positions) -> None:
        self._program = program
        self._groups = groups
        self._intact = intact
        self.active = active
        self._derived = derived = self._derive(program.function, "save")
        self.primal = Program(derived.primal, text=lambda: self.unmerged.primal)
        adjoint = program.unlike(derived.adjoint)
        self.adjoint = Program(adjoint, lambda: self._frugal, text=lambda: self.unmerged.adjoint)
        self._count = count = len(program.function.params)
        read = self.adjoint.regions_read
        self.needed = tuple((i, program.narrower(read[i])) for i in range(count) if i in self.adjoint.reads)
        self.reached = tuple(i for k, i in enumerate(active) if count + k in self.adjoint.changed)
        self.residuals = tuple(elem_of(residual.array) for residual in derived.residuals)
        self.reopened = derived.reopened
        self.memories = derived.memories

    @put_off()
    def _derive(self, function: Function, storage: Storage, **form: Any) -> Vjp:
        shared = [[function.params[i] for i in group] for group in self._groups]
        names = self._program.names
        function = replace(function, aliased=bool(shared))
        derived: Vjp = vjp(function, names(self.active), shared, storage, names(self._intact), **form)
        return derived

    def warn_of_rounded_sums(self, threads: int) -> None:
        """Warn, once, where so many threads add to one element that its gradient stops growing."""
        self.exact_additions = MOST_THREADS
        if warning := _rounded_sum(scalarise(self.wide_adjoint.flat), threads):
            warning.warn()

    @cached_property
    def exact_additions(self) -> int:
        """The threads that may add to one element of a gradient without loss."""
        added_to = self.wide_adjoint.function.params[self._count :]
        scalars = (scalar_of(elem_of(one)) for one in added_to if isinstance(one.type, Array))
        most = (GROWS_TO.get(scalar, MOST_THREADS) for scalar in scalars)
        return min(most, default=MOST_THREADS)

    @cached_property
    def wide_bars(self) -> Positions:
        """The places among `active` of halves whose adjoints would be rounded at each of many additions."""
        params = self.adjoint.function.params[self._count :][: len(self.active)]
        if self._groups or not any(scalar_of(elem_of(bar)) in HALVES for bar in params):
            return ()
        rounded, flat = rounded_often(self.adjoint.flat), self.adjoint.flat
        return tuple(k for k in range(len(params)) if flat.params[self._count + k] in rounded)

    @cached_property
    def wide_adjoint(self) -> Program:
        """The adjoint that takes adjoints of float32 for those of `wide_bars`."""
        if not self.wide_bars:
            return self.adjoint
        names = self._program.names(tuple(self.active[k] for k in self.wide_bars))

        def derived(storage: Storage) -> Function:
            form = self._derive(self._program.function, storage, keep=self._derived.sites, widened=names)
            return self._program.unlike(form.adjoint)

        return Program(derived("save"), lambda: Program(derived("checkpoint")))

    @cached_property
    def vjp(self) -> Vjp:
        """The two functions, with all calls in them written out."""
        derived: Vjp = self._derived
        return replace(derived, primal=self.primal.flat, adjoint=self.adjoint.flat)

    @cached_property
    def cleared(self) -> Positions:
        """The arguments whose adjoints the adjoint only reads, each thread its own element, and clears."""
        arrays, flat = cleared_once(self.adjoint.flat), self.adjoint.flat
        return tuple(i for k, i in enumerate(self.active) if flat.params[self._count + k] in arrays)

    @cached_property
    def added_once(self) -> Positions:
        """The places among `active` whose adjoints each thread adds to once, at its own indices."""
        flat, first = self.adjoint.flat, self._count
        return tuple(k for k in range(len(self.active)) if adds_once(flat, flat.params[first + k]))

    @cached_property
    def leaving(self) -> Program:
        """The adjoint that leaves the adjoints of `cleared` arguments, with the same bits in all others."""
        return Program(without_clears(self.adjoint.flat))

    @cached_property
    def _frugal(self) -> Program:
        """The adjoint whose loops keep checkpoints, or the usual one if that needs more residuals."""
        other = self._derive(self._program.function, "checkpoint")
        same = other.sites == self._derived.sites
        return Program(self._program.unlike(other.adjoint)) if same else self.adjoint

    @cached_property
    def unmerged(self) -> Vjp:
        """The same two functions of the text as it is written, before common subexpressions are merged.

        Every use of a value, and every read of an element, is differentiated at its own line: in the adjoint,
        a share is added by a statement ``x_bar = add(x_bar, share)``.  The residuals are those of the merged
        form, so that it takes what a launch has kept.
        """
        return self._derive(self._program.unmerged, "save", merged=False, keep=self._derived.sites)

    @cached_property
    def again(self) -> Program | None:
        """The primal, reading residuals; None where these do not hold all that it would need."""
        return None if self._derived.again is None else Program(self._derived.again)


def _rounded_sum(adjoint: Function, threads: int) -> Diagnostic | None:
    """The warning where too many threads add to one element of a gradient; None where none do."""
    for stmt in met_in_place(adjoint):
        scalar = scalar_of(elem_of(stmt.array))
        if stmt.array in adjoint.params and threads > GROWS_TO.get(scalar, MOST_THREADS):
            name = stmt.array.hint.removesuffix("_bar")
            message = (
                f"in {scalar} the gradient of `{name}` stops growing after some {GROWS_TO[scalar]:,} "
                f"additions: {threads:,} threads read one element of it, and `{name}` is written, too"
            )
            wider = "float64" if scalar == float32 else "float32"
            hint = f"use {wider}, or write to another array than `{name}`"
            return Diagnostic(message, stmt.span, "sums", "warning", hint=hint)
    return None
