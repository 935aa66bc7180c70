"""Facts about a function over arrays and numbers, each found once: what it reads, changes and may meet at.

Knows passes; must not know how functions are built, derived and run.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernelab.codegen.cpp.wide_accumulators import arrays_looked_at
from kernelab.data_classes.turns import cached_property
from kernelab.lang.ir import Atomic, Custom, Function, Load, Native, Store, defined, of_kind, walk
from kernelab.lang.rounding import epsilon
from kernelab.lang.types import Array, is_differentiable, scalar_of
from kernelab.passes.access.access_regions import Region, regions
from kernelab.passes.access.dead_ends import DeadEnd, dead_ends
from kernelab.passes.access.independence import Contest, contests, independent, may_meet
from kernelab.passes.ad.activity import leads
from kernelab.passes.ad.derivative_rules import EXTREMA
from kernelab.passes.common import batch
from kernelab.passes.common.copying import expanded, inline
from kernelab.passes.common.effects import Effects, effects, reads_of_old
from kernelab.passes.common.simplify import forward, simplify
from kernelab.runtime.array.array import array
from kernelab.runtime.array.layout import groups_sharing

Positions = tuple[int, ...]
Groups = tuple[Positions, ...]

_REMEMBERED = 64
"""For how many layouts of its arguments a program knows which of them share bytes."""


class Facts:
    """What a function does; its `text` is a user's, if with lanes, where `is_text` says so."""

    def __init__(self, function: Function, text: Callable[[], Function] | None, is_text: bool) -> None:
        self.function = function
        self._text = text
        self.is_text = is_text
        self._sharing: dict[tuple[bytes, ...], Groups] = {}

    def __repr__(self) -> str:
        return f"<program {self.function.name}>"

    @property
    def name(self) -> str:
        return self.function.name

    @cached_property
    def flat(self) -> Function:
        """The function with its custom derivatives inlined: all calls in it are written out."""
        if not any(of_kind(self.function.body, Custom)):
            return self.function
        return simplify(inline(self.function))

    @cached_property
    def unmerged(self) -> Function:
        """The function as it is written, before common subexpressions were merged."""
        return self.function if self._text is None else self._text()

    @cached_property
    def arrays(self) -> Positions:
        return tuple(i for i, param in enumerate(self.function.params) if isinstance(param.type, Array))

    @cached_property
    def floats(self) -> Positions:
        """The arrays whose elements have derivatives."""
        params = self.function.params
        return tuple(i for i in self.arrays if is_differentiable(params[i].type))

    @cached_property
    def epsilon(self) -> float:
        """The distance from 1 to the next float of the coarsest precision in it; 0 without floats."""
        values = (*self.flat.params, *defined(self.flat.body))
        types = {var.type.elem if isinstance(var.type, Array) else var.type for var in values}
        return max((epsilon(scalar_of(type).dtype) for type in types if is_differentiable(type)), default=0.0)

    @cached_property
    def effects(self) -> Effects:
        """The array parameters that it reads, writes and accumulates into."""
        return effects(self.flat)

    @cached_property
    def changed(self) -> frozenset[int]:
        """The arrays whose elements it changes."""
        return frozenset(i for i, param in enumerate(self.flat.params) if param in self.effects.changed)

    @cached_property
    def reads(self) -> frozenset[int]:
        """The arrays whose elements it loads."""
        return frozenset(i for i, param in enumerate(self.flat.params) if param in self.effects.reads)

    @cached_property
    def reads_of_old(self) -> frozenset[int]:
        """Those of which a thread may load elements that it has not stored before."""
        found = reads_of_old(self.flat)
        return frozenset(i for i in self.reads if self.flat.params[i] in found)

    @cached_property
    def regions_read(self) -> dict[int, Region]:
        """The elements of its arguments that it loads, by position."""
        return regions(self.flat, "read")

    @cached_property
    def regions_changed(self) -> dict[int, Region]:
        """The elements of its arguments that it changes, by position."""
        return regions(self.flat, "change")

    @cached_property
    def dead_ends(self) -> tuple[DeadEnd, ...]:
        """The arrays that reach its results only where derivatives are zero; of text that a user wrote."""
        return dead_ends(self.flat) if self.is_text else ()

    @cached_property
    def leads(self) -> tuple[frozenset[int], ...]:
        """For each parameter, the positions of the changed arrays that have a derivative by it."""
        places = {param: i for i, param in enumerate(self.function.params)}
        led = leads(self.function)
        return tuple(frozenset(places[array] for array in led[param] if array in places) for param in places)

    @cached_property
    def contests(self) -> Mapping[int, tuple[Contest, ...]]:
        """For arrays that it reads and changes, by position: whether it reads what it changes."""
        if self.reads.isdisjoint(self.changed):
            return {}
        return contests(forward(expanded(self.function)))

    @cached_property
    def draws(self) -> bool:
        """Whether it draws random numbers."""
        return batch.draws(self.flat)

    @cached_property
    def is_opaque(self) -> bool:
        """Whether its lanes cannot run together."""
        return batch.is_opaque(self.flat)

    @cached_property
    def has_rules_of_arrays(self) -> bool:
        """Whether its lanes cannot run together where they are differentiated."""
        return batch.has_rules_of_arrays(self.function)

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

    def stores_own(self, position: int) -> bool:
        """Whether each thread, whatever it computes, stores to the element that its indices name."""
        param, threads = self.flat.params[position], self.flat.threads
        stores = (stmt for stmt in self.flat.body.stmts if isinstance(stmt, Store) and stmt.array is param)
        return any(store.indices == threads for store in stores)

    @cached_property
    def taken_from(self) -> frozenset[str]:
        """The adjoints from which the winner of an atomic extremum takes: threads come there in turn."""
        atomics = of_kind(self.flat.body, Atomic)
        return frozenset(f"{stmt.array.hint}_bar" for stmt in atomics if stmt.kind in EXTREMA)

    def narrower(self, needed: Region) -> Region:
        """The region that an adjoint reads, or the program's own where that is tighter."""
        read = self.regions_read.get(needed.position, needed)
        if not needed.vague or read.vague:
            return needed
        # What users write as derivatives may read other elements than the kernel does.
        has_rules = any(isinstance(stmt, Custom | Native) for stmt in walk(self.function.body))
        return needed if has_rules else read

    def sharing(self, arguments: Sequence[Any]) -> Groups:
        """The arguments that are arrays with bytes in common which it changes, in disjoint groups.

        Arrays that are only added to share what they like: sums reach memory in any order.
        """
        arrays = {i: argument for i in self.arrays if isinstance(argument := arguments[i], array)}
        if not self.changed or len({argument.allocation for argument in arrays.values()}) == len(arrays):
            return ()
        layouts = tuple([argument.packed for argument in arrays.values()])
        groups = self._sharing.get(layouts)
        if groups is None:
            groups = groups_sharing(arrays, self.changed)
            groups = tuple(group for group in groups if not self._only_added_to.issuperset(group))
            self._sharing[layouts] = groups
            if len(self._sharing) > _REMEMBERED:
                del self._sharing[next(iter(self._sharing))]
        return groups

    @cached_property
    def _only_added_to(self) -> frozenset[int]:
        if any(of_kind(self.function.body, Custom)):  # a rule may do anything
            return frozenset()
        looked_at = arrays_looked_at(self.flat)
        return frozenset(i for i in self.arrays if self.flat.params[i] not in looked_at)
