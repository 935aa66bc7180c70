"""The sweep: adjoints taken from the seeds through all records in reverse, and published as gradients.

A sweep works on private adjoints, one buffer for each allocation.  What `x.grad` shows afterwards is the
gradient with respect to the value that `x` held when the tape first read it, or at the end if it never did.
Where nothing was written before that first read, `x` is a leaf and its gradient grows with every sweep; the
gradient of anything else is replaced.
"""

import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kernelab.autodiff.records import CopyRecord, OverwriteRecord, Record
from kernelab.errors import Diagnostic, KernelWarning, Related
from kernelab.runtime.interop import HostArray
from kernelab.runtime.memory import Allocation, allocate
from kernelab.runtime.recorder import name_in_caller
from kernelab.runtime.strided import array

Region = tuple[Allocation, int, tuple[int, ...], tuple[int, ...]]


def region(elements: array) -> Region:
    """The stretch of memory that an array looks at; equal for arrays that look at the same."""
    return elements.allocation, elements.offset, elements.shape, elements.strides


class Buffers:
    """The private adjoints of one sweep."""

    def __init__(self) -> None:
        self._memory: dict[Allocation, Allocation] = {}
        self._arrays: dict[array, array] = {}

    def of(self, primal: array) -> array:
        """The adjoint of an array: the same elements of a buffer that starts as zeros."""
        bar = self._arrays.get(primal)
        if bar is None:
            memory = self._memory.get(primal.allocation)
            if memory is None:
                memory = self._memory[primal.allocation] = allocate(primal.allocation.nbytes, cleared=True)
            bar = self._arrays[primal] = primal.twin(memory)
        return bar

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
    return [Step(record, record.read, record.reached, record.written) for record in records]


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """An array without gradients in the middle of a chain that has them."""

    elements: array
    producer: Record
    consumer: Record


@dataclass(frozen=True, slots=True)
class Flow:
    """Through which records adjoints pass on their way from the seeds, and what they meet."""

    live: frozenset[int]
    reached: tuple[array, ...]
    cuts: tuple[Cut, ...]


def flow(steps: Sequence[Step], seeds: Iterable[array]) -> Flow:
    """Follow the adjoints of the seeds backwards, without computing any."""
    needed = {seed.allocation for seed in seeds}
    suspects = _suspects(steps)
    live: set[int] = set()
    reached: list[array] = []
    cuts: list[Cut] = []
    for i in range(len(steps) - 1, -1, -1):
        step = steps[i]
        if needed.isdisjoint([target.allocation for target in step.written]):
            continue
        live.add(i)
        found = [source for source in step.reached if source.allocation.requires_grad]
        needed.update([source.allocation for source in found])
        reached += found
        cuts += [cut for cut in suspects.get(i, ()) if step.record.would_reach(cut.elements)]
    return Flow(frozenset(live), tuple(reached), tuple(cuts))


def _suspects(steps: Sequence[Step]) -> dict[int, list[Cut]]:
    """Where records read arrays without gradients that were computed from arrays with gradients."""
    carrying: dict[Allocation, Record] = {}
    found: dict[int, list[Cut]] = {}
    if all(target.allocation.requires_grad for step in steps for target in step.written):
        return found
    for i, (record, read, reached, written) in enumerate(steps):
        carried = [source for source in read if source.allocation in carrying]
        if carried:
            found[i] = [Cut(source, carrying[source.allocation], record) for source in carried]
        depends = bool(carried) or any(source.requires_grad for source in reached)
        for target in written:
            if depends and not target.requires_grad and not _detaches(record):
                carrying.setdefault(target.allocation, record)
            elif isinstance(record, CopyRecord | OverwriteRecord):
                carrying.pop(target.allocation, None)
    return found


def _detaches(record: Record) -> bool:
    """Cloning without gradients is how one says that a chain is to end."""
    return isinstance(record, CopyRecord) and record.how == "clone"


def warn_of_cuts(cuts: Iterable[Cut]) -> None:
    """Warn of each array that cuts a chain, once."""
    for cut in {cut.elements.allocation: cut for cut in cuts}.values():
        place = cut.consumer.place
        warnings.warn_explicit(describe_cut(cut).render(), KernelWarning, place.filename, place.line)


def describe_cut(cut: Cut) -> Diagnostic:
    """What is wrong with an array that cuts a chain."""
    name = name_in_caller(cut.elements)
    called = f"`{name}`" if name else "an array"
    written = Related(f"{cut.producer.title} computes it here:", cut.producer.place.span)
    return Diagnostic(
        f"no gradient flows through {called}, read by {cut.consumer.title}: it does not require gradients",
        cut.consumer.place.span,
        "cut",
        hint="create it with requires_grad=True; if the gradient is meant to end there, pass "
        "clone(..., requires_grad=False) of it",
        related=(written,),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Publication:
    """Elements whose gradient is to be published, and whether it adds to what was there."""

    elements: array
    leaf: bool


@dataclass(slots=True)
class Publications:
    """What is published when: before the sweep, and after the adjoint of each record."""

    before: list[array] = field(default_factory=list)
    after: dict[int, list[Publication]] = field(default_factory=dict)

    def all(self) -> Iterator[Publication]:
        for elements in self.before:
            yield Publication(elements, False)
        for group in self.after.values():
            yield from group


def publications(steps: Sequence[Step]) -> Publications:
    """Find where each array with gradients is first read, and which are never read."""
    plan = Publications()
    read: set[Region | Allocation] = set()
    written: dict[Allocation, dict[Region, array]] = {}
    seen: set[array] = set()
    for i, step in enumerate(steps):
        for source in step.read:
            if source in seen or not source.requires_grad:
                continue
            seen.add(source)
            key = region(source)
            if key in read or source.allocation in read:
                continue
            read |= {key, source.allocation} if _is_whole(source) else {key}
            earlier = written.get(source.allocation, {})
            leaf = key not in earlier and not any(source.overlaps(target) for target in earlier.values())
            plan.after.setdefault(i, []).append(Publication(source, leaf))
        for target in step.written:
            if target.allocation.requires_grad:
                written.setdefault(target.allocation, {})[region(target)] = target
    for memory, targets in written.items():
        if memory not in read:
            plan.before += [target for key, target in targets.items() if key not in read]
    return plan


def _is_whole(elements: array) -> bool:
    return elements.is_contiguous and elements.host().nbytes == elements.allocation.nbytes


def sweep(
    records: Sequence[Record],
    live: Collection[int],
    adjoints: Buffers,
    plan: Publications,
    replaced: Collection[Allocation] = (),
) -> None:
    """Run the adjoints of the live records in reverse, and publish the gradients.

    `replaced` are allocations whose gradient is replaced even where they are leaves.
    """
    leaves = [p.elements for p in plan.all() if p.leaf and p.elements.allocation not in replaced]
    grown = {elements: _gradient_now(elements) for elements in leaves}
    for elements in plan.before:
        _publish(elements, adjoints, None)
    for i in range(len(records) - 1, -1, -1):
        if i in live:
            records[i].pull(adjoints)
        for publication in plan.after.get(i, ()):
            if publication.elements not in grown:
                _publish(publication.elements, adjoints, None)
    for elements, before in grown.items():
        _publish(elements, adjoints, before)


def _gradient_now(elements: array) -> HostArray | None:
    if elements.allocation.adjoint is None:
        return None
    assert elements.grad is not None
    return elements.grad.host().copy()


def _publish(elements: array, adjoints: Buffers, before: HostArray | None) -> None:
    """Set the gradient of some elements to their adjoint, and what was `before`."""
    bar = adjoints.known(elements)
    if bar is None and elements.allocation.adjoint is None:
        return
    gradient = elements.grad
    assert gradient is not None
    gradient.allocation.will_write(gradient)
    values = np.zeros(()) if bar is None else bar.host()
    if before is None:
        gradient.host()[...] = values
    else:
        np.add(before, values, out=gradient.host())
