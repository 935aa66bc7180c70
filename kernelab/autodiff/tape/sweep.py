"""The sweep: adjoints taken from the seeds through all records in reverse, and published as gradients.

A sweep works on private adjoints, one buffer for each allocation.  What `x.grad` shows afterwards is the
gradient with respect to the value that `x` held when the tape first read it, or at the end if it never did;
of what the tape made, such as the rows of a trajectory, each element counts by itself.
Where nothing was written before that first read, `x` is a leaf and its gradient grows with every sweep; the
gradient of anything else is replaced.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from kernelab.autodiff.records.adjoint_buffers import Adjoints
from kernelab.autodiff.records.records import Record
from kernelab.autodiff.tape.publication import Publications
from kernelab.autodiff.transforms.narrow_sums import NarrowSums
from kernelab.runtime.array import inplace
from kernelab.runtime.array.array import array, duplicate
from kernelab.runtime.array.transfers import transfer
from kernelab.runtime.memory.interop import HostArray, itemsize
from kernelab.runtime.memory.memory import Allocation, copy_bytes


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
    """All that is decided before adjoints are taken through the records: who takes part, and who hears of it.

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
    if before is None and (inplace.clear(gradient) if bar is None else inplace.copy(gradient, bar)):
        gradient.allocation.publish()
        return
    values = np.zeros(()) if bar is None else bar.seen()
    if before is None:
        gradient.host()[...] = values
    else:
        np.add(before, values, out=gradient.host())
    gradient.allocation.publish()
