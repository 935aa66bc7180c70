"""The sweep: propagates adjoints from the seeds through all records in reverse and publishes gradients."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from kernelab.autodiff.records.adjoint_buffers import Adjoints
from kernelab.autodiff.records.records import Record
from kernelab.autodiff.records.steps import WHOLE, Coverage, Step, Stretch, Written, box_in, stretch
from kernelab.autodiff.transforms.narrow_sums import NarrowSums
from kernelab.errors import Diagnostic, TapeError
from kernelab.passes.access.access_regions import Box
from kernelab.runtime.array import inplace
from kernelab.runtime.array.array import array, duplicate
from kernelab.runtime.array.transfers import transfer
from kernelab.runtime.context.garbage import put_off
from kernelab.runtime.context.recorder import called, caller
from kernelab.runtime.launch.touched import part
from kernelab.runtime.memory.interop import HostArray, itemsize
from kernelab.runtime.memory.memory import Allocation, copy_bytes, duplicate_of


@dataclass(frozen=True, slots=True, eq=False)
class Publication:
    """Elements of `source` whose gradient is to be published, and whether it adds to what was there."""

    elements: array
    leaf: bool
    source: array


@dataclass(slots=True)
class Publications:
    """The gradients to publish: before the sweep, and after the adjoint of each record."""

    before: list[array] = field(default_factory=list)
    after: dict[int, list[Publication]] = field(default_factory=dict)

    def leaves(self) -> Iterator[tuple[int, array]]:
        """The leaves, each with the step that reads it first."""
        return ((i, p.source) for i, group in self.after.items() for p in group if p.leaf)

    def start_from(self, seed: array, steps: Sequence[Step]) -> None:
        """Publish what a sweep starts from: an input adds it to its gradient, a result shows it."""
        # Of elements that no record touches, too, the gradient is that of the value at the end.
        if any(seed.overlaps(target) for step in reversed(steps) for target in step.written):
            self.before.insert(0, seed)
            return
        first = next(i for i, step in enumerate(steps) if any(seed.overlaps(one) for one in step.read))
        self.after.setdefault(first, []).append(Publication(seed, True, seed))

    def all(self) -> Iterator[Publication]:
        for elements in self.before:
            yield Publication(elements, False, elements)
        for group in self.after.values():
            yield from group


@put_off()
def publications(steps: Sequence[Step]) -> Publications:
    """Find where each array with gradients is first read, and which are never read.

    Memory that the tape reads before it writes it holds inputs: an array over it is one piece, which counts
    from its first read on.  Of memory that the tape has made, each box of indices that a launch reads counts
    by itself.
    """
    history = _History()
    settled = history.settled
    for i, step in enumerate(steps):
        for k, source in enumerate(step.read):
            if source not in settled and source.allocation.requires_grad:
                history.read(i, step, k, source)
        for k, target in enumerate(step.written):
            history.write(step, k, target)
    history.publish_what_is_never_read()
    return history.plan


def refuse_shared_gradients(plan: Publications, replaced: Collection[Allocation]) -> None:
    """Raise TapeError where one gradient array is to show those of several arrays that do not add up.

    Leaves add to it, and in `replaced` memory it is what the sweep starts from; anything else replaces it.
    """
    first: dict[Allocation, Publication] = {}
    replacing: dict[Allocation, bool] = {}
    shared: dict[Allocation, tuple[array, array]] = {}
    for one in plan.all():
        memory = one.elements.allocation
        if memory.adjoint is None or memory in replaced:
            continue
        other = first.setdefault(memory.adjoint, one)
        replacing[memory.adjoint] = replacing.get(memory.adjoint, False) or not one.leaf
        if other.elements.allocation is not memory:
            shared[memory.adjoint] = other.source, one.source
    for gradient, (one_of, other_of) in shared.items():
        if replacing[gradient]:
            names = f"{called(one_of)} and {called(other_of)}"
            message = f"{names} share one gradient array, and not both are inputs, whose gradients add up"
            hint = "give each a gradient of its own: x.grad = None, or x.grad = kl.zeros_like(x)"
            raise TapeError(Diagnostic(message, caller().span, "shared-gradient", hint=hint))


class _History:
    """The elements that the steps so far have read and written.

    `settled` are arrays whose further reads change nothing; `inputs` is memory that was read before it was
    written.  What is read as a whole is among `whole`, as a stretch or, if it is all of it, as memory.
    """

    def __init__(self) -> None:
        self.plan = Publications()
        self.settled: set[array] = set()
        self._inputs: set[Allocation] = set()
        self._whole: set[Stretch | Allocation] = set()
        self._boxes: dict[Stretch, Coverage] = {}
        self._written: dict[Allocation, dict[Stretch, Written]] = {}
        self._targets: dict[array, Written] = {}

    def read(self, i: int, step: Step, k: int, source: array) -> None:
        """Count that step `i` has read `source`, its k-th array."""
        memory, key = source.allocation, stretch(source)
        if key in self._whole or memory in self._whole:
            self.settled.add(source)
            return
        if not self._written.get(memory):
            self._inputs.add(memory)
        box = WHOLE if memory in self._inputs else box_in(step.record, "read", k)
        if box is WHOLE:
            self._read_whole(i, source, key)
        elif box is not None:
            self._read_box(i, source, key, box)

    def _read_whole(self, i: int, source: array, key: Stretch) -> None:
        memory = source.allocation
        earlier = self._written.get(memory, {})
        self.settled.add(source)
        self._whole.add(key)
        if is_whole(source):
            self._whole.add(memory)
        is_leaf = key not in earlier and not any(w.target.overlaps(source) for w in earlier.values())
        self._publish(i, Publication(source, is_leaf, source))

    def _read_box(self, i: int, source: array, key: Stretch, box: Box) -> None:
        known = self._boxes.setdefault(key, Coverage())
        if known.covers(box):
            return
        known.add(box)
        elements = part(source, box)
        earlier = self._written.get(source.allocation, {}).values()
        is_leaf = not any(elements.overlaps(one) for several in earlier for one in several.parts())
        self._publish(i, Publication(elements, is_leaf, source))

    def _publish(self, i: int, publication: Publication) -> None:
        self.plan.after.setdefault(i, []).append(publication)

    def write(self, step: Step, k: int, target: array) -> None:
        """Count that a step has written `target`, its k-th array, if that has gradients."""
        found = self._targets.get(target)
        if found is None:
            if not target.allocation.requires_grad:
                return
            here = self._written.setdefault(target.allocation, {})
            found = self._targets[target] = here.setdefault(stretch(target), Written(target))
        found.add(step.record, k)

    def publish_what_is_never_read(self) -> None:
        """Publish, before the sweep, the cotangents of elements that are written and not read."""
        for memory, targets in self._written.items():
            if memory not in self._whole:
                for key, found in targets.items():
                    if key not in self._whole:
                        self.plan.before += found.unread(self._boxes.get(key))


def is_whole(elements: array) -> bool:
    """Whether an array is all of its memory, in order."""
    return elements.is_contiguous and elements.size * itemsize(elements.dtype) == elements.allocation.nbytes


# ----------------------------------------------------------------------------------------------------- sweep


class Puller(Protocol):
    """Takes the adjoints through one record after another."""

    def pull(self, i: int, adjoints: Adjoints) -> None: ...


Pulling = Callable[[Sequence[Record]], Puller]
"""What makes a puller of the records."""


class Pulls:
    """The plain way."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records

    def pull(self, i: int, adjoints: Adjoints) -> None:
        """Take the adjoints through record `i`."""
        self._records[i].pull(adjoints)


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """The plan of a sweep: active records and published gradients.

    `live` are the records that adjoints pass.  `replaced` are allocations whose gradient is replaced even
    where they are leaves; `pulling` makes what takes the adjoints through a record; adjoints `retired` with a
    record are let go of after it; `narrow` takes the adjoints of halves that many records add to.
    """

    records: Sequence[Record]
    live: Collection[int]
    plan: Publications = field(default_factory=Publications)
    replaced: Collection[Allocation] = ()
    retired: Mapping[int, Sequence[Allocation]] = field(default_factory=dict)
    narrow: NarrowSums | None = None
    pulling: Pulling = Pulls

    @put_off()
    def run(self, adjoints: Adjoints) -> None:
        """Run the adjoints of the live records in reverse, and publish the gradients."""
        puller = self.pulling(self.records)
        leaves = [
            p.elements for p in self.plan.all() if p.leaf and p.elements.allocation not in self.replaced
        ]
        grown = {elements: _gradient_now(elements) for elements in leaves}
        for elements in self.plan.before:
            _publish(elements, adjoints, None)
        self._pull_all(puller, adjoints, grown)
        if self.narrow is not None:
            self.narrow.give(adjoints)
        _publish_leaves(grown, adjoints)

    def _pull_all(self, puller: Puller, adjoints: Adjoints, grown: Collection[array]) -> None:
        """The sweep itself; what has `grown` is published when it is over."""
        pull, live, narrow = puller.pull, self.live, self.narrow
        published, retired = self.plan.after, self.retired
        for i in range(len(self.records) - 1, -1, -1):
            if i in live:
                pull(i, adjoints)
                if narrow is not None:
                    narrow.take(i, adjoints)
            if i in published:
                for publication in published[i]:
                    if publication.elements not in grown:
                        _publish(publication.elements, adjoints, None)
            if i in retired:
                for memory in retired[i]:
                    adjoints.drop(memory)


def _publish_leaves(grown: Mapping[array, HostArray | array | None], adjoints: Adjoints) -> None:
    """Add to the gradients of leaves what the sweep gave, to each what was there before.

    Leaves may share one gradient array: what one has added to is there before the next.
    """
    groups: dict[Allocation, list[array]] = {}
    for elements in grown:
        groups.setdefault(elements.allocation, []).append(elements)
    added_to: set[Allocation] = set()
    for memory, leaves in groups.items():
        before = grown if memory.adjoint not in added_to else {one: _gradient_now(one) for one in leaves}
        for elements in leaves:
            _publish(elements, adjoints, before[elements])
        if memory.adjoint is not None:
            added_to.add(memory.adjoint)


def _gradient_now(elements: array) -> HostArray | array | None:
    if elements.allocation.adjoint is None:
        return None
    assert elements.grad is not None
    if _adds_there(elements):
        return duplicate(elements.grad, False, "clone")
    return elements.grad.seen().copy()


def _adds_there(elements: array) -> bool:
    """Whether gradients grow on the device that they are on, without the host."""
    return elements.allocation.space is not None and elements.__class__ is array


def _publish(elements: array, adjoints: Adjoints, before: HostArray | array | None) -> None:
    """Set the gradient of some elements to their adjoint, and what was `before`."""
    bar = adjoints.known(elements)
    memory = elements.allocation
    if memory.adjoint is None and bar is None:
        return
    if memory.adjoint is None and bar is not None and memory.missing is None and is_whole(elements):
        memory.adjoint = duplicate_of(bar.allocation)
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
    if before is None and (inplace.clear(gradient) if bar is None else inplace.copy(gradient, bar)):
        gradient.allocation.publish()
        return
    values = np.zeros(()) if bar is None else bar.seen()
    if before is None:
        gradient.host()[...] = values
    else:
        np.add(before, values, out=gradient.host())
    gradient.allocation.publish()
