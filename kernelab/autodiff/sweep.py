"""The sweep: adjoints taken from the seeds through all records in reverse, and published as gradients.

A sweep works on private adjoints, one buffer for each allocation.  What `x.grad` shows afterwards is the
gradient with respect to the value that `x` held when the tape first read it, or at the end if it never did;
of what the tape made, such as the rows of a trajectory, each element counts by itself.
Where nothing was written before that first read, `x` is a leaf and its gradient grows with every sweep; the
gradient of anything else is replaced.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from kernelab.autodiff.coverage import Coverage
from kernelab.autodiff.cuts import Cut, rounded, suspects, switched_off
from kernelab.autodiff.narrow import NarrowSums
from kernelab.autodiff.pieces import WHOLE, Written, box_in
from kernelab.autodiff.records import LaunchRecord, Record
from kernelab.runtime.interop import HostArray, itemsize
from kernelab.runtime.memory import Allocation, allocate, copy_bytes
from kernelab.runtime.strided import array, duplicate
from kernelab.runtime.touched import part
from kernelab.runtime.transfers import transfer

Region = tuple[Allocation, int, tuple[int, ...], tuple[int, ...]]


def region(elements: array) -> Region:
    """The stretch of memory that an array looks at; equal for arrays that look at the same."""
    return elements.allocation, elements.offset, elements.shape, elements.strides


class _Bars(dict[array, array]):
    """Adjoints by array, made when they are first asked for."""

    def __init__(self, made: Callable[[array], array]) -> None:
        self._made = made

    def __missing__(self, primal: array) -> array:
        bar = self[primal] = self._made(primal)
        return bar


class Buffers:
    """The private adjoints of one sweep."""

    def __init__(self) -> None:
        self._memory: dict[Allocation, Allocation] = {}
        self._arrays = _Bars(self._made)
        self._over: dict[Allocation, list[array]] = {}

    def of(self, primal: array) -> array:
        """The adjoint of an array: the same elements of a buffer that starts as zeros."""
        return self._arrays[primal]

    def of_all(self, primals: Iterable[array]) -> list[array]:
        """The adjoints of several."""
        return list(map(self._arrays.__getitem__, primals))

    def _made(self, primal: array) -> array:
        held = primal.allocation
        memory = self._memory.get(held)
        if memory is None:
            memory = self._memory[held] = allocate(held.nbytes, cleared=True, beside=held)
        self._over.setdefault(held, []).append(primal)
        return primal.twin(memory)

    def share(self, primal: Allocation, bar: Allocation) -> None:
        """Let `bar` be the adjoint of some memory."""
        self._memory[primal] = bar

    def drop(self, primal: Allocation) -> None:
        """Let go of an adjoint that nobody will ask for any more."""
        self._memory.pop(primal, None)
        for elements in self._over.pop(primal, ()):
            del self._arrays[elements]

    def known(self, primal: array) -> array | None:
        """The same, None while it is zero everywhere."""
        return self.of(primal) if primal.allocation in self._memory else None


class Step(NamedTuple):
    """A record, and what it read, reached and wrote."""

    record: Record
    read: Sequence[array]
    reached: Sequence[array]
    written: Sequence[array]


def steps_of(records: Iterable[Record]) -> list[Step]:
    """The steps of a tape."""
    return [
        Step(record, *record.flow())
        if isinstance(record, LaunchRecord)
        else Step(record, record.read, record.reached, record.written)
        for record in records
    ]


@dataclass(frozen=True, slots=True)
class Flow:
    """Through which records adjoints pass on their way from the seeds, and what they meet."""

    live: frozenset[int]
    reached: tuple[array, ...]
    cuts: tuple[Cut, ...]

    def on_the_way(self, seeds: Iterable[array]) -> dict[Allocation, array]:
        """The memory that adjoints pass, with an array over each."""
        return {elements.allocation: elements for elements in (*self.reached, *seeds)}


def flow(steps: Sequence[Step], seeds: Collection[array]) -> Flow:
    """Follow the adjoints of the seeds backwards, without computing any."""
    needed = {seed.allocation for seed in seeds}
    passive = suspects(steps)
    live: set[int] = set()
    reached: list[array] = []
    cuts: list[Cut] = []
    for i in range(len(steps) - 1, -1, -1):
        step = steps[i]
        for target in step.written:
            if target.allocation in needed:
                break
        else:
            continue
        live.add(i)
        for source in step.reached:
            memory = source.allocation
            if memory.requires_grad:
                needed.add(memory)
                reached.append(source)
        if i in passive:
            cuts += [cut for cut in passive[i] if step.record.would_reach(cut.elements)]
    cuts += switched_off(steps, live)
    cuts += rounded(steps, live, needed)
    return Flow(frozenset(live), tuple(reached), tuple(cuts))


@dataclass(frozen=True, slots=True, eq=False)
class Publication:
    """Elements of `source` whose gradient is to be published, and whether it adds to what was there."""

    elements: array
    leaf: bool
    source: array


@dataclass(slots=True)
class Publications:
    """What is published when: before the sweep, and after the adjoint of each record."""

    before: list[array] = field(default_factory=list)
    after: dict[int, list[Publication]] = field(default_factory=dict)

    def leaves(self) -> Iterator[tuple[int, array]]:
        """The leaves, each with the step that reads it first."""
        return ((i, p.source) for i, group in self.after.items() for p in group if p.leaf)

    def all(self) -> Iterator[Publication]:
        for elements in self.before:
            yield Publication(elements, False, elements)
        for group in self.after.values():
            yield from group


def publications(steps: Sequence[Step]) -> Publications:
    """Find where each array with gradients is first read, and which are never read.

    Memory that the tape reads before it writes it holds inputs: an array over it is one piece, which counts
    from its first read on.  Of memory that the tape has made, each box of indices that a launch reads counts
    by itself.
    """
    plan = Publications()
    read: set[Region | Allocation] = set()
    pieces: dict[Region, Coverage] = {}
    given: set[Allocation] = set()
    written: dict[Allocation, dict[Region, Written]] = {}
    seen: set[array] = set()
    changed: dict[array, Written] = {}
    for i, step in enumerate(steps):
        for k, source in enumerate(step.read):
            if source in seen:
                continue
            memory = source.allocation
            if not memory.requires_grad:
                continue
            key = region(source)
            if key in read or memory in read:
                seen.add(source)
                continue
            earlier = written.get(memory, {})
            if not earlier:
                given.add(memory)
            box = WHOLE if memory in given else box_in(step.record, "read", k)
            if box is WHOLE:
                seen.add(source)
                read |= {key, memory} if _is_whole(source) else {key}
                leaf = key not in earlier and not any(w.target.overlaps(source) for w in earlier.values())
                plan.after.setdefault(i, []).append(Publication(source, leaf, source))
                continue
            known = pieces.setdefault(key, Coverage())
            if box is None or known.covers(box):
                continue
            known.add(box)
            elements = part(source, box)
            leaf = not any(elements.overlaps(one) for several in earlier.values() for one in several.parts())
            plan.after.setdefault(i, []).append(Publication(elements, leaf, source))
        for k, target in enumerate(step.written):
            found = changed.get(target)
            if found is None:
                if not target.allocation.requires_grad:
                    continue
                here = written.setdefault(target.allocation, {})
                found = changed[target] = here.setdefault(region(target), Written(target))
            found.add(step.record, k)
    for memory, targets in written.items():
        if memory not in read:
            never = (found.unread(pieces.get(key)) for key, found in targets.items() if key not in read)
            plan.before += [elements for several in never for elements in several]
    return plan


def retirements(steps: Sequence[Step], kept: Collection[Allocation]) -> dict[int, list[Allocation]]:
    """After the adjoint of which step the adjoints of what memory are done with, but for those to be kept."""
    first: dict[array, int] = {}
    for i in range(len(steps) - 1, -1, -1):
        step = steps[i]
        for elements in step.read:
            first[elements] = i
        if step.reached is not step.read:
            for elements in step.reached:
                first[elements] = i
        for elements in step.written:
            first[elements] = i
    earliest: dict[Allocation, int] = {}
    for elements, i in first.items():
        earliest[elements.allocation] = min(i, earliest.get(elements.allocation, i))
    found: dict[int, list[Allocation]] = {}
    for memory, i in earliest.items():
        if memory not in kept:
            found.setdefault(i, []).append(memory)
    return found


def _is_whole(elements: array) -> bool:
    return elements.is_contiguous and elements.size * itemsize(elements.dtype) == elements.allocation.nbytes


class Puller(Protocol):
    """Takes the adjoints through one record after another."""

    def pull(self, i: int, adjoints: Buffers) -> None: ...


Pulling = Callable[[Sequence[Record]], Puller]
"""What makes a puller of the records."""


class Pulls:
    """The plain way."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records

    def pull(self, i: int, adjoints: Buffers) -> None:
        """Take the adjoints through record `i`."""
        self._records[i].pull(adjoints)


def sweep(
    records: Sequence[Record],
    live: Collection[int],
    adjoints: Buffers,
    plan: Publications,
    replaced: Collection[Allocation] = (),
    pulling: Pulling | None = None,
    retired: Mapping[int, Sequence[Allocation]] | None = None,
    narrow: NarrowSums | None = None,
) -> None:
    """Run the adjoints of the live records in reverse, and publish the gradients.

    `replaced` are allocations whose gradient is replaced even where they are leaves; `pulling` makes what
    takes the adjoints through a record; adjoints `retired` with a record are let go of after it; `narrow`
    takes the adjoints of halves that many records add to.
    """
    puller = Pulls(records) if pulling is None else pulling(records)
    leaves = [p.elements for p in plan.all() if p.leaf and p.elements.allocation not in replaced]
    grown = {elements: _gradient_now(elements) for elements in leaves}
    for elements in plan.before:
        _publish(elements, adjoints, None)
    pull, published, dropped = puller.pull, plan.after, {} if retired is None else retired
    for i in range(len(records) - 1, -1, -1):
        if i in live:
            pull(i, adjoints)
            if narrow is not None:
                narrow.take(i, adjoints)
        if i in published:
            for publication in published[i]:
                if publication.elements not in grown:
                    _publish(publication.elements, adjoints, None)
        if i in dropped:
            for memory in dropped[i]:
                adjoints.drop(memory)
    if narrow is not None:
        narrow.give(adjoints)
    for elements, before in grown.items():
        _publish(elements, adjoints, before)


def _gradient_now(elements: array) -> HostArray | array | None:
    if elements.allocation.adjoint is None:
        return None
    assert elements.grad is not None
    if _adds_there(elements):
        return duplicate(elements.grad, False, "clone")
    return elements.grad.seen().copy()


def _adds_there(elements: array) -> bool:
    """Whether gradients grow on the device that they are on, without the host."""
    return elements.allocation.space is not None and elements.__class__ is array and elements.is_contiguous


def _publish(elements: array, adjoints: Buffers, before: HostArray | array | None) -> None:
    """Set the gradient of some elements to their adjoint, and what was `before`."""
    bar = adjoints.known(elements)
    if bar is None and elements.allocation.adjoint is None:
        return
    gradient = elements.grad
    assert gradient is not None
    gradient.allocation.will_write(gradient)
    if before is None and bar is not None and elements.is_contiguous:
        nbytes = elements.size * itemsize(elements.dtype)
        copy_bytes(gradient.allocation, gradient.offset, bar.allocation, bar.offset, nbytes)
        return
    if isinstance(before, array):
        transfer(gradient, before if bar is None else before + bar, "assign")
        return
    values = np.zeros(()) if bar is None else bar.seen()
    if before is None:
        gradient.host()[...] = values
    else:
        np.add(before, values, out=gradient.host())
    gradient.allocation.publish()
