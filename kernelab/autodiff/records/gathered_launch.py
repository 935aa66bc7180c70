"""Launches of adjoints that gather: which launches can run them, and with which arguments.

That is decided by the size, the shapes and the numbers of a launch alone, so that it gives the same in every
run.  Knows programs and packed arguments; must not know records.
"""

import struct
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from kernelab.backend.common.tiered import AHEAD
from kernelab.backend.cpu import vector_tier
from kernelab.codegen.cpp.entry import GRID_SLOTS
from kernelab.lang.types import Array
from kernelab.passes.access.access_regions import Situation
from kernelab.passes.access.independence import changed
from kernelab.passes.ad.gathered import Gathered, gathered
from kernelab.passes.ad.left_adjoints import cleared_once
from kernelab.runtime.array.array import array
from kernelab.runtime.kernel.dispatch import begin_vectors, has_vectors
from kernelab.runtime.kernel.program import Program
from kernelab.runtime.memory.spaces import Space

_HEAD = 8 * GRID_SLOTS
_REMEMBERED = 64


class Launches(NamedTuple):
    """Programs that run one after another in place of an adjoint, with their grids and last arguments.

    They add once to each element of the arrays at the positions `once`.  Behind the first `sums` there may be
    one that only clears adjoints.
    """

    programs: tuple[tuple[Program, bytes, bytes], ...]
    once: frozenset[int]
    sums: int | None

    def run(self, args: bytes, leaves: bool = False) -> None:
        """Run them with the packed arguments of the adjoint; with `leaves`, only the sums."""
        for program, head, tail in self.programs[: self.sums] if leaves else self.programs:
            program.run((head or args[:_HEAD]) + args[_HEAD:] + tail)


class GatheredAdjoint:
    """An adjoint with its sums gathered."""

    def __init__(self, adjoint: Program, form: Gathered) -> None:
        self._params = adjoint.flat.params
        self._count = len(adjoint.flat.threads)
        self._sums = [(each, Program(each.function)) for each in form.sums]
        self._rest = None if form.rest is None else Program(form.rest)
        self._clears = form.rest is None or cleared_once(adjoint.flat).issuperset(changed(form.rest))
        self._launches: dict[Any, Launches | None] = {}

    def build(self) -> None:
        """Build all that its launches run."""
        for _, program in self._sums:
            has_vectors(program.entry)
        if self._rest is not None:
            _ = self._rest.entry

    def launches(self, extents: tuple[int, ...], arguments: Sequence[Any]) -> Launches | None:
        """The launches for an adjoint with these arguments, primals first; None where it runs as it is."""
        grid = (*extents, *(1,) * (GRID_SLOTS - len(extents)))
        facts = tuple(
            [
                each.shape if isinstance(param.type, Array) else _number(each)
                for param, each in zip(self._params, arguments, strict=True)
            ]
        )
        key = grid, facts
        if key not in self._launches:
            if len(self._launches) == _REMEMBERED:
                self._launches.clear()
            self._launches[key] = self._make(grid, arguments, facts)
        launches = self._launches[key]
        return launches if launches and all(has_vectors(program.entry) for _, program in self._sums) else None

    def _make(self, grid: tuple[int, ...], arguments: Sequence[Any], facts: Sequence[Any]) -> Launches | None:
        if self._count > 1 and any(extent != 1 for extent in grid[self._count :]):
            return None
        values = [a if isinstance(a, array) else fact for a, fact in zip(arguments, facts, strict=True)]
        situation, programs = Situation(grid, dict(enumerate(values))), []
        for each, program in self._sums:
            part = each.part(situation)
            if part is None:
                return None
            head = struct.pack("=4q", *part.grid, *(1,) * (GRID_SLOTS - len(part.grid)))
            programs.append((program, head, struct.pack(f"={len(part.numbers)}q", *part.numbers)))
        sums = len(programs) if self._clears else None
        if self._rest is not None:
            programs.append((self._rest, b"", b""))
        positions = [each.position for each, _ in self._sums]
        return Launches(tuple(programs), frozenset(p for p in positions if positions.count(p) == 1), sums)


def _number(value: Any) -> int | None:
    """An integer among the arguments; None for any other value."""
    if isinstance(value, bytes):
        return int.from_bytes(value[:8], "little", signed=True)
    return int(value) if hasattr(value, "__index__") else None


def build_ahead(adjoint: Program, space: Space | None, threads: int) -> None:
    """Build an adjoint in the background; then what a launch of so many threads runs in place of it."""
    adjoint.build_ahead(space)
    if space is None and threads >= vector_tier.FEWEST_WITH_LOOPS:
        AHEAD.begin(partial(_build_for_many, adjoint, threads), was_told=True)


def _build_for_many(adjoint: Program, threads: int) -> None:
    form = gathered_adjoint(adjoint) if threads >= vector_tier.FEWEST else None
    if form is None:
        begin_vectors(adjoint.entry, threads)
    else:
        form.build()


def gathered_adjoint(adjoint: Program) -> GatheredAdjoint | None:
    """The adjoint with its sums gathered, if that can be and pays."""

    def make() -> GatheredAdjoint | None:
        form = gathered(adjoint.flat)
        return None if form is None else GatheredAdjoint(adjoint, form)

    return adjoint.once("gathered", make)
