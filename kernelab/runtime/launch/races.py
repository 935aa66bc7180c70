"""Data races: several threads of one launch access one element, and one of them stores to it.

What such an element holds, or what a thread reads there, depends on which thread comes first.  A checked
launch first runs a marked program (`passes.common.race_marks`) on copies of what the kernel writes, and
reads from the marks who came where.  Where the text proves that every thread has elements of its own,
nothing runs.  Knows programs and arrays; must not know launches' recorders or tapes.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple, Self

import numpy as np

from kernelab.backend.common.backends import Entry, thread_text
from kernelab.codegen.cpp.entry import GRID_SLOTS
from kernelab.data_classes import dataclass, replace
from kernelab.errors import Diagnostic, KernelRaceError, Related, Span, counted
from kernelab.lang.types import int64, scalar_of, with_scalar
from kernelab.passes.common.race_marks import (
    UNMARKED,
    USES,
    Marked,
    Use,
    contested,
    ends,
    marked,
    stored,
    unseen,
)
from kernelab.passes.common.scalarise import scalarise
from kernelab.runtime.array.array import array
from kernelab.runtime.context.conversion import HostArray
from kernelab.runtime.context.recorder import Place, warn_at
from kernelab.runtime.kernel.dispatch import place
from kernelab.runtime.kernel.facts import Groups
from kernelab.runtime.kernel.program import Program
from kernelab.runtime.memory.memory import Allocation, allocate, duplicate_of
from kernelab.runtime.memory.unwritten import Unwritten

_ITEM = 8
"""The size of a mark, in bytes."""


class Visit(NamedTuple):
    """A thread at an element: its number in the grid, the place of the text, and what it does there."""

    thread: int
    span: Span
    use: Use


@dataclass(frozen=True, slots=True)
class Race:
    """Two threads at one element of the parameter `array`; the first one stores to it.

    As text it is the message that a checked launch raises.
    """

    kernel: str
    array: str
    index: tuple[int, ...]
    first: Visit
    second: Visit
    threads: tuple[str, str]

    def __repr__(self) -> str:
        return f"<race of threads {' and '.join(self.threads)} of `{self.kernel}` at {self.element}>"

    def __str__(self) -> str:
        return self.describe().render()

    @property
    def element(self) -> str:
        """The element as the reader would write it."""
        return f"{self.array}[{', '.join(map(str, self.index))}]"

    def describe(self) -> Diagnostic:
        """The race at the line of the store."""
        first, second = self.threads
        elsewhere = self.second.span != self.first.span
        if self.second.use == "store":
            message = (
                f"threads {first} and {second} of `{self.kernel}` both store to {self.element}: which value "
                "stays there is not defined"
            )
            hint = "let each thread store to elements of its own, or add up with atomic_add"
        elif self.second.use == "load":
            message = (
                f"thread {first} of `{self.kernel}` stores to {self.element}, which thread {second} reads: "
                "whether it sees the old value or the new one is not defined"
            )
            hint = "store into another array, or make two launches of it"
        else:
            message = (
                f"thread {first} of `{self.kernel}` stores to {self.element}, which thread {second} changes "
                "by an atomic: which of them comes last is not defined"
            )
            hint = "store to it in a launch of its own, or use atomics alone"
        said = {"store": "stores", "load": "reads"}.get(self.second.use, "changes")
        related = (Related(f"thread {second} {said} it here:", self.second.span),) if elsewhere else ()
        return Diagnostic(message, self.first.span, "race", hint=hint, related=related)


class Races(tuple[Race, ...]):
    """The races of one launch of `kernel`, none where all is well; as text, all their messages."""

    kernel: str

    def __new__(cls, races: Iterable[Race], kernel: str) -> Self:
        """A tuple of the races that were found."""
        result = super().__new__(cls, races)
        result.kernel = kernel
        return result

    def __repr__(self) -> str:
        if not self:
            return f"no races in this launch of `{self.kernel}`"
        title = f"{counted(len(self), 'race')} in this launch of `{self.kernel}`"
        return "\n\n".join([title, *map(str, self)])


@dataclass(frozen=True, slots=True)
class MarkedRun:
    """What a launch would do, from a run on copies: where its threads came, and what it would leave.

    `copies` are the copies of the memory that it writes, by that memory.
    """

    program: Program
    name: str
    extents: Sequence[int]
    marked: Marked
    marks: "Marks"
    copies: dict[Allocation, Allocation]

    def races(self, but: frozenset[str] = frozenset()) -> tuple[Race, ...]:
        """The races of the launch at elements of all arrays, `but` some."""
        return tuple(_races(self, sorted(self.marks.elements.keys() & stored(self.program.flat) - but)))

    def visit(self, mark: int, use: Use) -> tuple[Visit, str]:
        """Who left a mark, and the thread as a reader finds it."""
        visit = Visit(*self.marked.read(mark), use)
        grid = (*self.extents, *(1,) * (GRID_SLOTS - len(self.extents)))
        coordinates = len(self.program.flat.threads)
        # Threads that the kernel takes for one differ in some of their coordinates.
        shown = coordinates if coordinates < 2 else max(coordinates, len(self.extents))
        return visit, thread_text(visit.thread, grid, shown)


def refuse(races: Sequence[Race]) -> None:
    if races:
        raise KernelRaceError(*(race.describe() for race in races))


def races_of(
    program: Program, name: str, extents: Sequence[int], arguments: Sequence[Any], parts: Sequence[bytes]
) -> tuple[Race, ...]:
    """The races of a launch that is bound but has not run: one for each array and pair of places.

    `name` is what messages call the program, `parts` are the packed slots, the grid's first.  Nothing is
    changed.  Raises what the launch would raise.
    """
    if not _watched(program, extents, program.sharing(arguments)):
        _warn_of_snippets(program, name)
        return ()
    return run_marked(program, name, extents, arguments, parts).races()


def run_marked(
    program: Program,
    name: str,
    extents: Sequence[int],
    arguments: Sequence[Any],
    parts: Sequence[bytes],
    unset: frozenset[str] = frozenset(),
) -> MarkedRun:
    """Run a launch on copies of what it writes, with marks, also of early reads of the arrays `unset`.

    Nothing is changed.  Raises what the launch would raise.
    """
    groups = program.sharing(arguments)
    watched = _watched(program, extents, groups)
    _warn_of_snippets(program, name)
    variant, entry = _program(program, watched, unset, bool(groups))
    copies = copies_of(program, arguments)
    marks = Marks(program, arguments, watched | unset)
    slots = with_copies(program, arguments, parts, copies)
    entry(b"".join([*slots, *(marks.packed(name, use) for name, use in variant.marks)]))
    return MarkedRun(program, name, extents, variant, marks, copies)


# ------------------------------------------------------------------------- before the run


def _watched(program: Program, extents: Sequence[int], groups: Groups) -> frozenset[str]:
    """The names of the arrays that may have races."""
    targets = stored(program.flat)
    coordinates = len(program.flat.threads)
    # Threads that differ in a coordinate which the kernel does not unpack do the same.
    alone = coordinates < 2 or math.prod(extents[coordinates:]) == 1
    watched = set(contested(program.flat) if alone else targets)
    for group in groups:
        names = program.names(group)
        if not targets.isdisjoint(names):
            watched |= set(names)
    return frozenset(watched)


def _warn_of_snippets(program: Program, kernel: str) -> None:
    def warn() -> None:
        for name, span in unseen(program.flat).items():
            message = f"`{kernel}` changes {name} in C++, which the check for races does not see"
            hint = "check by eye that no two threads change one element there"
            warn_at(message, "race", hint, Place(span.source.label, span.line), span)

    program.once("snippets among races", warn)


def _program(
    program: Program, watched: frozenset[str], unset: frozenset[str], aliased: bool
) -> tuple[Marked, Entry]:

    def make() -> tuple[Marked, Entry]:
        variant = marked(scalarise(replace(program.flat, aliased=aliased)), watched, unset)
        return variant, place(variant.function)

    return program.once(("races", watched, unset, aliased), make)


def copies_of(program: Program, arguments: Sequence[Any]) -> dict[Allocation, Allocation]:
    """Memory to write to in place of what the program writes; zeros where nobody has written."""
    written = {arguments[i].allocation for i in program.arrays if i in program.changed}
    copies = {memory: duplicate_of(memory) for memory in written}
    for memory, copy in copies.items():
        if isinstance(memory.unwritten, Unwritten):
            memory.unwritten.clear_in(copy)
    return copies


def with_copies(
    program: Program,
    arguments: Sequence[Any],
    parts: Sequence[bytes],
    copies: Mapping[Allocation, Allocation],
) -> list[bytes]:
    """The packed slots of a launch on copies; what shared memory shares it still."""
    slots = list(parts)
    for i in program.arrays:
        if arguments[i].allocation in copies:
            slots[1 + i] = arguments[i].twin(copies[arguments[i].allocation]).packed
    return slots


class Marks:
    """The marks of a launch: for each allocation and use the first and the last of every element."""

    def __init__(self, program: Program, arguments: Sequence[Any], watched: frozenset[str]) -> None:
        names = program.names(program.arrays)
        arrays = dict(zip(names, (arguments[i] for i in program.arrays), strict=True))
        self.elements: dict[str, array] = {name: arrays[name] for name in names if name in watched}
        self._granules: dict[Allocation, int] = {}
        for one in self.elements.values():
            bytes_apart = (one.offset, scalar_of(one.dtype).bits // 8, *one.strides)
            self._granules[one.allocation] = math.gcd(self._granules.get(one.allocation, 0), *bytes_apart)
        self._memory: dict[tuple[Allocation, Use], list[Allocation]] = {}

    def packed(self, name: str, use: Use) -> bytes:
        """The slots of the parameters that take the marks of a use."""
        return b"".join(one.packed for one in self._over(name, use))

    def known(self, name: str, use: Use) -> list[HostArray] | None:
        """The first and the last mark of each element, whichever array they were made through."""
        if (self.elements[name].allocation, use) not in self._memory:
            return None
        return [one.seen() for one in self._over(name, use)]

    def _over(self, name: str, use: Use) -> list[array]:
        elements = self.elements[name]
        key = elements.allocation, use
        if key not in self._memory:
            self._memory[key] = [self._fresh(elements.allocation, end) for end, _ in enumerate(ends(use))]
        return [self._view(elements, memory) for memory in self._memory[key]]

    def _fresh(self, memory: Allocation, end: int) -> Allocation:
        fresh = allocate(memory.nbytes // self._granules[memory] * _ITEM, cleared=False, beside=memory)
        np.frombuffer(fresh.blank(), np.int64)[:] = UNMARKED[end]
        return fresh

    def _view(self, elements: array, memory: Allocation) -> array:
        granule = self._granules[elements.allocation]
        strides = tuple(stride // granule * _ITEM for stride in elements.strides)
        offset, dtype = elements.offset // granule * _ITEM, with_scalar(elements.dtype, int64)
        return array.over(memory, offset, elements.shape, strides, dtype)


# ------------------------------------------------------------------------- after the run


def _races(run: MarkedRun, names: Sequence[str]) -> list[Race]:
    races: dict[tuple[str, Span, Use, Span], Race] = {}
    for name in names:
        ndim = run.marks.elements[name].ndim
        for index, store, other, use in _meetings(run.marks, name, run.marked.count):
            (first, thread), (second, another) = run.visit(store, "store"), run.visit(other, use)
            race = Race(run.name, name, index[:ndim], first, second, (thread, another))
            races.setdefault((name, first.span, use, second.span), race)
    return list(races.values())


Meeting = tuple[tuple[int, ...], int, int, Use]
"""The index of an element, the mark of a store to it, and the mark of another thread that came there."""


def _meetings(marks: Marks, name: str, sites: int) -> Iterator[Meeting]:
    """One meeting of two threads for each pair of places."""
    stores = marks.known(name, "store")
    if stores is None:
        return
    for use in USES:
        others = marks.known(name, use)
        if others is None:
            continue
        for store, other in product(stores, others) if use != "store" else [stores]:
            came = (store >= 0) & (other >= 0) & (store != UNMARKED[0]) & (other != UNMARKED[0])
            met = np.flatnonzero(came & (store // sites != other // sites))
            pairs = (store.flat[met] % sites) * sites + other.flat[met] % sites
            for k in np.unique(pairs, return_index=True)[1]:
                place = tuple(int(i) for i in np.unravel_index(met[k], store.shape))
                yield place, int(store[place]), int(other[place]), use
