"""Data races: several threads of one launch access one element, and one of them stores to it.

What such an element holds, or what a thread reads there, depends on which thread comes first.  A checked
launch first runs a marked program (`passes.programs.race_marks`) on copies of what the kernel writes, and
reads from the marks who came where.  Where the text proves that every thread has elements of its own,
nothing runs. Knows kernels and arrays; must not know launches' recorders or tapes.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple, Self

import numpy as np

from kernelab.backend.common.backends import Entry, thread_text
from kernelab.codegen.common.entry import GRID_SLOTS
from kernelab.errors import Diagnostic, Related, Span
from kernelab.lang.types import int64, scalar_of, with_scalar
from kernelab.passes.common.scalarise import scalarise
from kernelab.passes.programs.race_marks import UNMARKED, USES, Marked, Use, contested, marked, stored, unseen
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import Place, warn_at
from kernelab.runtime.kernel.dispatch import place
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.program import Groups
from kernelab.runtime.memory.interop import HostArray
from kernelab.runtime.memory.memory import Allocation, allocate, duplicate_of

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
        said = {"store": "stores", "load": "reads", "atomic": "changes"}[self.second.use]
        related = (Related(f"thread {second} {said} it here:", self.second.span),) if elsewhere else ()
        return Diagnostic(message, self.first.span, "race", hint=hint, related=related)


class Races(tuple[Race, ...]):
    """The races of one launch of `kernel`, none where all is well; as text, all their messages."""

    kernel: str

    def __new__(cls, found: Iterable[Race], kernel: str) -> Self:
        """A tuple of the races that were found."""
        made = super().__new__(cls, found)
        made.kernel = kernel
        return made

    def __repr__(self) -> str:
        if not self:
            return f"no races in this launch of `{self.kernel}`"
        count = "1 race" if len(self) == 1 else f"{len(self)} races"
        return "\n\n".join([f"{count} in this launch of `{self.kernel}`", *map(str, self)])


def races_of(
    kernel: Kernel, extents: Sequence[int], arguments: Sequence[Any], parts: Sequence[bytes]
) -> tuple[Race, ...]:
    """The races of a launch that is bound but has not run: one for each array and pair of places.

    `parts` are the packed slots, the grid's first.  Nothing is changed.  Raises what the launch would raise.
    """
    groups = kernel.program.sharing(arguments)
    watched = _watched(kernel, extents, groups)
    kernel.program.once("snippets among races", lambda: _warn_of_snippets(kernel))
    if not watched:
        return ()
    program, entry = _program(kernel, watched, bool(groups))
    copies = _copies(kernel, arguments)
    slots = list(parts)
    for i in kernel.plan.arrays:
        if arguments[i].allocation in copies:
            slots[1 + i] = arguments[i].twin(copies[arguments[i].allocation]).packed
    marks = _Marks(kernel, arguments, watched)
    entry(b"".join([*slots, *(marks.packed(name, use) for name, use in program.marks)]))
    return tuple(_races(kernel, program, marks, extents, sorted(watched & stored(kernel.primal))))


# ------------------------------------------------------------------------- before the run


def _watched(kernel: Kernel, extents: Sequence[int], groups: Groups) -> frozenset[str]:
    """The names of the arrays that may have races."""
    targets = stored(kernel.primal)
    coordinates = kernel.plan.coordinates
    # Threads that differ in a coordinate which the kernel does not unpack do the same.
    alone = coordinates < 2 or math.prod(extents[coordinates:]) == 1
    found = set(contested(kernel.primal) if alone else targets)
    for group in groups:
        names = kernel.program.names(group)
        if not targets.isdisjoint(names):
            found |= set(names)
    return frozenset(found)


def _warn_of_snippets(kernel: Kernel) -> None:
    for name, span in unseen(kernel.primal).items():
        message = f"`{kernel.name}` changes {name} in C++, which the check for races does not see"
        hint = "check by eye that no two threads change one element there"
        warn_at(message, "race", hint, Place(span.source.label, span.line), span)


def _program(kernel: Kernel, watched: frozenset[str], aliased: bool) -> tuple[Marked, Entry]:

    def make() -> tuple[Marked, Entry]:
        program = marked(scalarise(replace(kernel.primal, aliased=aliased)), watched)
        return program, place(program.function)

    return kernel.program.once(("races", watched, aliased), make)


def _copies(kernel: Kernel, arguments: Sequence[Any]) -> dict[Allocation, Allocation]:
    """Memory to write to in place of what the kernel writes; what shared memory shares it still."""
    copies: dict[Allocation, Allocation] = {}
    for i in kernel.plan.written:
        memory = arguments[i].allocation
        if memory not in copies:
            copies[memory] = duplicate_of(memory)
    return copies


class _Marks:
    """The marks of a launch: for each allocation and use the first and the last of every element."""

    def __init__(self, kernel: Kernel, arguments: Sequence[Any], watched: frozenset[str]) -> None:
        names = [kernel.plan.parameters[i].name for i in kernel.plan.arrays]
        given = dict(zip(names, (arguments[i] for i in kernel.plan.arrays), strict=True))
        self.elements: dict[str, array] = {name: given[name] for name in names if name in watched}
        self._granules: dict[Allocation, int] = {}
        for one in self.elements.values():
            bytes_apart = (one.offset, scalar_of(one.dtype).bits // 8, *one.strides)
            self._granules[one.allocation] = math.gcd(self._granules.get(one.allocation, 0), *bytes_apart)
        self._memory: dict[tuple[Allocation, Use], tuple[Allocation, Allocation]] = {}

    def packed(self, name: str, use: Use) -> bytes:
        """The slots of the two parameters that take the marks of a use."""
        return b"".join(one.packed for one in self._over(name, use))

    def known(self, name: str, use: Use) -> tuple[HostArray, HostArray] | None:
        """The first and the last mark of each element, whichever array they were made through."""
        if (self.elements[name].allocation, use) not in self._memory:
            return None
        first, last = self._over(name, use)
        return first.seen(), last.seen()

    def _over(self, name: str, use: Use) -> tuple[array, array]:
        elements = self.elements[name]
        key = elements.allocation, use
        if key not in self._memory:
            self._memory[key] = self._fresh(elements.allocation, 0), self._fresh(elements.allocation, 1)
        first, last = (self._view(elements, memory) for memory in self._memory[key])
        return first, last

    def _fresh(self, memory: Allocation, end: int) -> Allocation:
        made = allocate(memory.nbytes // self._granules[memory] * _ITEM, cleared=False, beside=memory)
        np.frombuffer(made.blank(), np.int64)[:] = UNMARKED[end]
        return made

    def _view(self, elements: array, memory: Allocation) -> array:
        granule = self._granules[elements.allocation]
        strides = tuple(stride // granule * _ITEM for stride in elements.strides)
        offset, dtype = elements.offset // granule * _ITEM, with_scalar(elements.dtype, int64)
        return array.over(memory, offset, elements.shape, strides, dtype)


# ------------------------------------------------------------------------- after the run


def _races(
    kernel: Kernel, program: Marked, marks: _Marks, extents: Sequence[int], names: Sequence[str]
) -> list[Race]:
    found: dict[tuple[str, Span, Use, Span], Race] = {}
    for name in names:
        ndim = marks.elements[name].ndim
        for index, store, other, use in _meetings(marks, name, len(program.sites)):
            first, second = Visit(*program.read(store), "store"), Visit(*program.read(other), use)
            threads = _thread(kernel, first, extents), _thread(kernel, second, extents)
            race = Race(kernel.name, name, index[:ndim], first, second, threads)
            found.setdefault((name, first.span, use, second.span), race)
    return list(found.values())


def _thread(kernel: Kernel, visit: Visit, extents: Sequence[int]) -> str:
    grid, coordinates = (*extents, *(1,) * (GRID_SLOTS - len(extents))), kernel.plan.coordinates
    # Threads that the kernel takes for one are told apart by all their coordinates.
    return thread_text(visit.thread, grid, coordinates if coordinates < 2 else max(coordinates, len(extents)))


Meeting = tuple[tuple[int, ...], int, int, Use]
"""The index of an element, the mark of a store to it, and the mark of another thread that came there."""


def _meetings(marks: _Marks, name: str, sites: int) -> Iterator[Meeting]:
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
                index = np.unravel_index(met[k], store.shape)
                place = tuple(int(i) for i in index)
                yield place, int(store[place]), int(other[place]), use
