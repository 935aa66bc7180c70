"""Steps: what each record of a tape has read, reached and written, taken once for all who follow it.

Knows records; must not compute any adjoint.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from kernelab.autodiff.records.records import LaunchRecord, Record
from kernelab.runtime.array.array import array
from kernelab.runtime.memory.memory import Allocation

Stretch = tuple[Allocation, int, tuple[int, ...], tuple[int, ...]]


def stretch(elements: array) -> Stretch:
    """The stretch of memory that an array looks at; equal for arrays that look at the same."""
    return elements.allocation, elements.offset, elements.shape, elements.strides


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
