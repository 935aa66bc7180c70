"""Programs of the IR and the programs derived from them, each derived and built once.

A program's parameters are told by position, so that programs can be derived of derived ones: the tangent of
an adjoint, and many lanes of both.  Knows passes and how to build; must not know what runs where.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from kernelab import hooks
from kernelab.backend.common.backends import Entry
from kernelab.codegen.cpp.wide_accumulators import is_deferred
from kernelab.lang.build import elem_of
from kernelab.lang.ir import Block, Const, Function, Load, Storage, Store, Var, defs, walk
from kernelab.lang.rounding import epsilon
from kernelab.lang.types import Array, Value, int32, is_differentiable, scalar_of
from kernelab.passes.access.access_regions import Box, Region, regions
from kernelab.passes.access.independence import independent, may_meet
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.ad.vjp import Vjp, vjp
from kernelab.passes.common.effects import effects
from kernelab.passes.common.scalarise import scalarise
from kernelab.passes.common.widen import widen
from kernelab.passes.programs import batch
from kernelab.passes.programs.dependence_bits import dependencies, traceable
from kernelab.runtime.array.array import array
from kernelab.runtime.kernel.derived import build, flat
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.launch.residual import Residual
from kernelab.runtime.launch.touched import box_of

Positions = tuple[int, ...]
Made = TypeVar("Made")


class Kept:
    """The residual that a program appends to while it runs, one for each lane where lanes differ.

    `extents` counts the lanes of the levels through which the program came, the outermost first.
    """

    def __init__(self, elem: Value) -> None:
        self.elem = elem
        self.residual: Residual | None = None
        self.levels: list[object] = []
        self.extents: list[int] = []

    def arrays(self, inner: int = 0) -> tuple[array, array]:
        """The values, and where those of each thread of each lane begin.

        To a program that came through the `inner` innermost levels already, their lanes are threads.
        """
        assert self.residual is not None
        values, starts = self.residual.arrays()
        return values, starts.reshape(*self.extents[: len(self.extents) - inner], -1)


@dataclass(frozen=True, slots=True)
class KeptValues:
    kept: Kept


@dataclass(frozen=True, slots=True)
class KeptStarts:
    kept: Kept
    inner: int = 0


Argument = array | bytes | Kept | KeptValues | KeptStarts
"""An array, a number packed as a launch wants it, or what another program has kept."""

Extents = tuple[int, ...]


def box_among(region: Region, grid: Extents, arguments: Sequence[Argument]) -> Box | None:
    """The box of a region in a run of a program: None if it touches nothing, everything if unknown."""
    given: dict[int, Any] = {i: arguments[i] for i in (region.position, *region.uses) if i < len(arguments)}
    for i, argument in given.items():
        if isinstance(argument, bytes):
            given[i] = int.from_bytes(argument, "little", signed=True)
    if len(given) <= len(region.uses) or not all(isinstance(known, array | int) for known in given.values()):
        return tuple((0, extent, 1) for extent in given[region.position].shape)
    return box_of(region, grid, given)


@dataclass(frozen=True, slots=True, eq=False)
class Pullback:
    """Reverse mode of a program: what runs forwards and keeps the residuals, and what takes adjoints back.

    `active` are the positions whose adjoints the second takes, `needed` the arrays whose elements it reads.
    Where the program is itself one of reverse mode, `reopened` are the positions of residuals that it appends
    to, and `memories` those of residuals of its own that stand for its stacks (`kernelab.passes.ad.vjp`).
    """

    primal: "Program"
    adjoint: "Program"
    active: Positions
    needed: Positions
    residuals: tuple[Value, ...]
    reopened: Positions
    memories: Positions


class Program:
    """A function over arrays and numbers, compared by identity.

    `frugal` makes the same program with checkpoints in its loops, if it is an adjoint.
    """

    def __init__(self, function: Function, frugal: "Callable[[], Program] | None" = None) -> None:
        self.function = function
        self._frugal = frugal
        self._made: dict[Hashable, Any] = {}

    def __repr__(self) -> str:
        return f"<program {self.function.name}>"

    @staticmethod
    def of(kernel: Kernel, references: Positions = ()) -> "Program":
        """The program of a kernel whose numbers at some positions are read from arrays of one element."""
        found: dict[Positions, Program] = kernel.beside.setdefault("programs", {})
        if references not in found:
            found[references] = _KernelProgram(kernel, references)
        return found[references]

    @property
    def name(self) -> str:
        return self.function.name

    # -------------------------------------------------------------------------------------- what it does

    @cached_property
    def flat(self) -> Function:
        """The function with all calls in it written out."""
        return flat(self.function)

    @cached_property
    def arrays(self) -> Positions:
        return self._where(lambda var: isinstance(var.type, Array))

    @cached_property
    def floats(self) -> Positions:
        """The arrays whose elements have derivatives."""
        params = self.function.params
        return tuple(i for i in self.arrays if is_differentiable(params[i].type))

    @cached_property
    def epsilon(self) -> float:
        """The distance from 1 to the next float of the coarsest precision in it; 0 without floats."""
        values = (*self.flat.params, *(var for stmt in walk(self.flat.body) for var in defs(stmt)))
        types = {var.type.elem if isinstance(var.type, Array) else var.type for var in values}
        return max((epsilon(scalar_of(type).dtype) for type in types if is_differentiable(type)), default=0.0)

    @cached_property
    def changed(self) -> frozenset[int]:
        """The arrays whose elements it changes."""
        found = effects(self.flat).changed
        return frozenset(self._where(lambda var: var in found))

    @cached_property
    def reads(self) -> frozenset[int]:
        """The arrays whose elements it loads."""
        found = effects(self.flat).reads
        return frozenset(self._where(lambda var: var in found))

    @cached_property
    def regions_read(self) -> dict[int, Region]:
        """The elements of its arguments that it loads, by position."""
        return regions(self.flat, "read")

    @cached_property
    def regions_changed(self) -> dict[int, Region]:
        """The elements of its arguments that it changes, by position."""
        return regions(self.flat, "change")

    def _where(self, holds: Any) -> Positions:
        return tuple(i for i, var in enumerate(self.function.params) if holds(var))

    @cached_property
    def draws(self) -> bool:
        """Whether it draws random numbers."""
        return batch.draws(self.flat)

    @cached_property
    def is_opaque(self) -> bool:
        """Whether its lanes cannot run together."""
        return batch.is_opaque(self.flat)

    @cached_property
    def meets(self) -> bool:
        """Whether its threads may meet, so that their order may matter."""
        return may_meet(self.flat)

    def writes_own(self, position: int) -> bool:
        """Whether each thread writes the element of an array that its indices name, and no other does.

        No thread may see what another one wrote.
        """
        param, threads = self.flat.params[position], self.flat.threads
        accesses = [stmt for stmt in walk(self.flat.body) if getattr(stmt, "array", None) is param]
        own = all(isinstance(stmt, Store | Load) and stmt.indices == threads for stmt in accesses)
        is_written = position in self.changed
        return bool(threads) and is_written and own and not self.is_opaque and independent(self.flat)

    # -------------------------------------------------------------------------------------- what is derived

    @cached_property
    def entry(self) -> Entry:
        return build(self.flat)

    @cached_property
    def totals(self) -> bool:
        """Whether its sums reach memory late, which arrays that share memory must not see."""
        return is_deferred(self.flat)

    @cached_property
    def aliased_entry(self) -> Entry:
        """The entry for arrays that share memory."""
        return build(replace(self.flat, aliased=True))

    def entry_for(self, shares: bool) -> Entry:
        """The entry for arrays that share memory, or do not."""
        return self.aliased_entry if shares else self.entry

    def frugal_entry(self, shares: bool) -> Entry:
        """The entry to go on with where the usual one would save too much; itself if there is no other."""
        return (self if self._frugal is None else self._frugal()).entry_for(shares)

    def _derived(self, function: Function, again: "Callable[[Program], Program]") -> "Program":
        """A program derived from this one; `again` derives it from another."""
        frugal = self._frugal
        return Program(function, None if frugal is None else lambda: again(frugal()))

    def _once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """The result of `make`, which runs on first use."""
        if key not in self._made:
            self._made[key] = make()
        found: Made = self._made[key]
        return found

    def tangent(self, active: Positions) -> "Program":
        """The tangent program; its last parameters are the tangents of the active ones."""

        def make() -> Program:
            function = self._unlike(jvp(self.function, self._names(active)))
            return self._derived(function, lambda other: other.tangent(active))

        return self._once(("tangent", active), make)

    def pullback(self, active: Positions, groups: Sequence[Positions] = ()) -> Pullback:
        """Reverse mode; the adjoint's last parameters are the adjoints, then what `Run.pull` hands to it."""
        return self._once(("pullback", active, tuple(groups)), lambda: self._pullback(active, groups))

    def _pullback(self, active: Positions, groups: Sequence[Positions]) -> Pullback:
        made = self._vjp(active, groups)

        def frugal() -> Program:
            other = self._vjp(active, groups, "checkpoint")
            return Program(self._unlike(other.adjoint)) if other.sites == made.sites else adjoint

        primal, adjoint = Program(made.primal), Program(self._unlike(made.adjoint), frugal)
        needed = tuple(i for i in range(len(self.function.params)) if i in adjoint.reads)
        residuals = tuple(elem_of(residual.array) for residual in made.residuals)
        return Pullback(primal, adjoint, active, needed, residuals, made.reopened, made.memories)

    @cached_property
    def widened(self) -> "Program":
        """The same program over float64."""
        return Program(widen(self.function))

    @cached_property
    def turned(self) -> "Program":
        """The same program, the last thread of which runs first."""
        flat = self.flat
        return Program(replace(flat, name=f"{flat.name}_turned", descending=not flat.descending))

    @cached_property
    def dependencies(self) -> "Program | None":
        """The program that propagates bits, for each array of floats; None where they cannot be followed."""
        # The derivative of a `Custom` is not that of its body.
        if not traceable(self.function) or not traceable(self.flat):
            return None
        return Program(dependencies(scalarise(self.flat)))

    def batched(self, wide: Positions, rank: int, distinct: bool = False) -> "Program":
        """The program for many lanes; `wide` are the arrays with an axis for them."""

        def make() -> Program:
            function = batch.batched(self.flat, wide, rank, distinct)
            return self._derived(function, lambda other: other.batched(wide, rank, distinct))

        return self._once(("batched", wide, rank, distinct), make)

    def to_widen(self, wide: Positions, groups: Sequence[Positions] = ()) -> frozenset[int]:
        """The changed arrays that differ between lanes, if those of `wide` do."""
        shared = [[self.flat.params[i] for i in group] for group in groups]
        key = "to widen", wide, tuple(groups)
        return self._once(key, lambda: batch.to_widen(self.flat, wide, shared))

    def by_thread(self, wide: Positions) -> "Program":
        """The program in which each thread has its own copy of some arrays, along a new first axis."""

        def make() -> Program:
            function = batch.by_thread(self.flat, wide)
            return self._derived(function, lambda other: other.by_thread(wide))

        return self._once(("by thread", wide), make)

    def _vjp(self, active: Positions, groups: Sequence[Positions], storage: Storage = "save") -> Vjp:
        shared = [[self.function.params[i] for i in group] for group in groups]
        return vjp(replace(self.function, aliased=bool(groups)), self._names(active), shared, storage)

    def _names(self, positions: Positions) -> tuple[str, ...]:
        return tuple(self.function.params[i].hint for i in positions)

    def _unlike(self, derived: Function) -> Function:
        """A derived function whose new parameters have distinct names."""
        known = {param.hint for param in self.function.params}
        for param in derived.params[len(self.function.params) :]:
            while param.hint in known:
                param.hint += "_"
            known.add(param.hint)
        return derived


class _KernelProgram(Program):
    """The program of a kernel, which has its own adjoint, or says why it has none."""

    def __init__(self, kernel: Kernel, references: Positions) -> None:
        super().__init__(_referenced(kernel.laid_out, references))
        self._kernel = kernel
        self._references = references

    def _vjp(self, active: Positions, groups: Sequence[Positions], storage: Storage = "save") -> Vjp:
        names = self._names(active)
        made = self._kernel.reverse(names, tuple(self._names(group) for group in groups))
        if self._references:
            return super()._vjp(active, groups, storage)
        return made.program if storage == "save" else made.frugal

    def tangent(self, active: Positions) -> Program:
        if ("tangent", active) not in self._made:
            hooks.check_rules(self.function)
        return super().tangent(active)


def _referenced(function: Function, positions: Positions) -> Function:
    """The function with some numbers read from arrays of one element."""
    if not positions:
        return function
    params, loads = list(function.params), []
    for i in positions:
        number = params[i]
        assert not isinstance(number.type, Array)
        params[i] = Var(Array(number.type, 1), number.hint, number.span)
        loads.append(Load(number, params[i], (Const(0, int32),), number.span))
    body = Block((*loads, *function.body.stmts), function.body.yields)
    return replace(function, params=tuple(params), body=body)
