"""Detours: chains of gradients that pass through numbers and arrays which the host computed, and end there.

No tape differentiates Python; both lines are named.  Knows records and what they read; must not compute any
adjoint.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from kernelab.autodiff.records.coverage import WHOLE, boxes_in
from kernelab.autodiff.records.cuts import Carried, Carrying, carrying_before
from kernelab.autodiff.records.moves import FunctionRecord, HostCallRecord, OverwriteRecord
from kernelab.autodiff.records.provenance import (
    BEFORE,
    OVERWRITTEN,
    Cut,
    HostRead,
    HostValues,
    PassedOn,
    Provenance,
    array_from_host,
    number_from_host,
)
from kernelab.autodiff.records.records import LaunchRecord, Record, Step
from kernelab.data_classes import replace
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import called
from kernelab.runtime.launch.footprint import part
from kernelab.runtime.memory.memory import Allocation


class Path(Protocol):
    """What is asked here of a `BackwardPlan`."""

    steps: list[Step]
    live: set[int]
    on_the_way: set[Allocation]
    seeds: Collection[array]


def detours(host: Provenance, plan: Path) -> list[Cut]:
    """The places where chains that lead to the seeds of a pass go through the host."""
    if not host.host_reads and not host.differentiated:
        return []
    sources = _Sources(host, plan.steps, plan.on_the_way)
    arrays = list(_arrays(host, sources))
    if not arrays and not host.numbers:
        return []
    leading = _leading(plan)
    return [*_read(arrays, plan, leading), *_numbers(host, sources, leading)]


def _leading(plan: Path) -> set[int]:
    """The records on which the seeds depend, through arrays without gradients too."""
    needed, steps = {seed.allocation for seed in plan.seeds}, plan.steps
    leading = set(plan.live)
    for i in range(len(steps) - 1, -1, -1):
        step = steps[i]
        if needed.isdisjoint([target.allocation for target in step.written]):
            continue
        leading.add(i)
        needed.update([source.allocation for source in step.reached])
        others = [source for source in step.read if source.allocation not in needed]
        needed.update([source.allocation for source in others if step.record.would_reach(source)])
    return leading


_Change = tuple[Allocation, HostValues | PassedOn]


class _Sources:
    """The sources of host values, certain or possible by order, among arrays on which gradients depend.

    A chain may pass through the host several times, with launches of arrays without gradients in between.
    What a gradient was taken with respect to before the tape matters where this pass reaches it.
    """

    def __init__(self, host: Provenance, steps: Sequence[Step], on_the_way: Collection[Allocation]) -> None:
        self.steps = steps
        self._host_reads = host.host_reads
        every_read = [*self._host_reads, *host.differentiated]
        self.that_matter = {
            source
            for source in every_read
            if source.elements.requires_grad
            and (source.record != BEFORE or source.elements.allocation in on_the_way)
        }
        self._first_use = _first_uses(steps)
        passive = defaultdict[int, list[HostRead]](list)
        for source in set(every_read).difference(host.outer, self.that_matter):
            passive[source.record].append(source)
        changes = self._changes(host) if passive else {}
        for i, carrying in carrying_before(steps) if passive else ():
            for source in passive.get(i, ()):
                carried = carrying.get(source.elements.allocation)
                if carried is not None and carried.are_in(source.elements):
                    self.that_matter.add(source)
            for memory, change in changes.get(i, ()):
                self._carry(carrying, memory, change, steps[i])

    def _changes(self, host: Provenance) -> Mapping[int, Sequence[_Change]]:
        """What the host made before each step, or gave to it, of the memory without gradients."""
        changes = defaultdict[int, list[_Change]](list)
        for memory, values, end in _writes(host, len(self.steps)):
            step = values.record
            if values.how != OVERWRITTEN:  # these are the values after the records of the write itself
                behind = range(step, end)
                step = next((i for i in behind if not isinstance(self.steps[i].record, OverwriteRecord)), end)
            if step < len(self.steps) and not memory.requires_grad:
                changes[step].append((memory, values))
        for number in host.numbers:
            written = [one.allocation for one in self.steps[number.record].written]
            changes[number.record] += [(memory, number) for memory in written if not memory.requires_grad]
        return changes

    def _carry(
        self, carrying: Carrying, memory: Allocation, change: HostValues | PassedOn, step: Step
    ) -> None:
        """Add memory that the host changed before a step to what carries values, or take it away."""
        if isinstance(change, PassedOn):
            source = self.of_number(change)
        else:
            source = self.of_array(memory, change)
            if change.how == OVERWRITTEN and all(one.allocation is not memory for one in step.read):
                carrying.pop(memory, None)
        if source in self.that_matter:
            carrying[memory] = Carried(step.record, frozenset())

    def of_number(self, number: PassedOn) -> HostRead | None:
        """The read by the host that yielded a number which a launch was given and is differentiable in."""
        record = self.steps[number.record].record
        source = next((source for source in number.host_reads if source in self.that_matter), None)
        if source is None or number.position is None:
            return source
        is_reached = isinstance(record, LaunchRecord) and record.would_reach_number(number.position)
        return source if is_reached else None

    def of_array(self, memory: Allocation, values: HostValues) -> HostRead | None:
        """The read by the host that yielded the values it wrote to some memory, or preceded the write."""
        if not values.host_reads:
            return self._before(memory, values)
        for source in values.host_reads:
            if source.elements.allocation is memory:
                if self._is_used(memory, source.record):
                    return source
            elif source in self.that_matter:
                return source
        return None

    def _is_used(self, memory: Allocation, record: int) -> bool:
        """Whether gradients could reach what some memory held before a record."""
        return self._first_use.get(memory, record) < record

    def _before(self, memory: Allocation, values: HostValues) -> HostRead | None:
        """The last read by the host before it made an array that has no gradients of its own."""
        if memory.requires_grad or (values.how == "array" and self._is_used(memory, values.record)):
            return None
        earlier = reversed(self._host_reads[: values.earlier])
        return next((source for source in earlier if source in self.that_matter), None)


# ------------------------------------------------------------------------------ arrays of the host


def _arrays(host: Provenance, sources: _Sources) -> Iterator[tuple[Allocation, HostValues, int, HostRead]]:
    """The memory that the host wrote, each with its values, until which record, and where they come from."""
    for memory, values, end in _writes(host, len(sources.steps)):
        source = sources.of_array(memory, values)
        if source is not None:
            yield memory, values, end, source


def _writes(host: Provenance, count: int) -> Iterator[tuple[Allocation, HostValues, int]]:
    """The values that the host wrote, each with its memory and the record until which they stood there."""
    for memory, several in host.arrays.items():
        for k, values in enumerate(several, 1):  # values in a part leave those of other parts
            later = (other.record for other in several[k:] if other.cover(values))
            yield memory, values, next(later, count)


def _read(
    arrays: Iterable[tuple[Allocation, HostValues, int, HostRead]],
    plan: Path,
    leading: Collection[int],
) -> Iterator[Cut]:
    """The cuts at those arrays of the host that lead to the seeds."""
    for memory, values, end, source in arrays:
        reader = _reader(memory, values, end, plan, leading)
        elements = reader[1] if reader else _seed(memory, values, plan)
        if elements is not None:
            by = (reader[0].title, reader[0].place) if reader else None
            cut = array_from_host(elements, values, source, by)
            yield replace(cut, reader=reader[0]) if reader else cut


def _takes_on(record: Record) -> bool:
    """Whether a record is a function of the user's that takes the gradient of what the host wrote further."""
    return isinstance(record, FunctionRecord) or (isinstance(record, HostCallRecord) and record.may_begin)


def _reader(
    memory: Allocation, values: HostValues, end: int, plan: Path, leading: Collection[int]
) -> tuple[Record, array] | None:
    """The first record on the way from the loss through which a gradient would reach what the host wrote."""
    for i in range(values.record, min(end + 1, len(plan.steps))):
        step = plan.steps[i]
        if i not in leading or isinstance(step.record, OverwriteRecord):
            continue
        if _takes_on(step.record) and any(one.allocation is memory for one in (*step.read, *step.written)):
            return None  # the user's own function takes the gradient further
        if memory.requires_grad:
            sources = [source for source in step.reached if source.allocation is memory]
        else:
            sources = [source for source in step.read if source.allocation is memory]
            sources = [source for source in sources if step.record.would_reach(source)]
        if values.part is not None:
            sources = [source for source in sources if _reads(step, source, array.over(memory, *values.part))]
        if sources and (memory in plan.on_the_way or not memory.requires_grad):
            return step.record, sources[0]
    return None


def _reads(step: Step, source: array, written: array) -> bool:
    """Whether a step reads, of one of its arrays, elements of a part of the memory."""
    k = next((k for k, one in enumerate(step.read) if one is source), None)
    boxes = (WHOLE,) if k is None or not written.overlaps(source) else boxes_in(step.record, "read", k)
    return any(written.overlaps(source if box == WHOLE else part(source, box)) for box in boxes)


def _seed(memory: Allocation, values: HostValues, plan: Path) -> array | None:
    """The array that the sweep starts at, if the host made what it holds."""
    if any(
        target.allocation is memory for step in plan.steps[values.record + 1 :] for target in step.written
    ):
        return None
    return next((seed for seed in plan.seeds if seed.allocation is memory), None)


def _first_uses(steps: Sequence[Step]) -> Mapping[Allocation, int]:
    """The first step for each memory that gradients could leave: a launch that read or computed it."""
    first: dict[Allocation, int] = {}
    for i, step in enumerate(steps):
        if not isinstance(step.record, OverwriteRecord):
            for elements in (*step.read, *(step.written if step.reached else ())):
                first.setdefault(elements.allocation, i)
    return first


# ------------------------------------------------------------------------------ numbers of the host


def _numbers(host: Provenance, sources: _Sources, leading: Collection[int]) -> Iterator[Cut]:
    """The numbers from the tape that launches were given on which the seeds depend."""
    for number in host.numbers:
        source = sources.of_number(number) if number.record in leading else None
        if source is not None:
            record = sources.steps[number.record].record
            yield replace(number_from_host(record.title, record.place, source), reader=record)


def number_by_order(host: Provenance, plan: Path) -> str:
    """Which number of a launch may be of values that the host took before, as the order tells; "" if none.

    What `float()` and `math` return carries no origin.  A number that several launches are given is constant.
    """
    that_matter = _Sources(host, plan.steps, plan.on_the_way).that_matter.difference(host.outer)
    reads = [one for one in host.host_reads if one in that_matter]
    numbers = [
        (i, record, position, str(record.arguments[position]))
        for i in sorted(_leading(plan) if reads else ())
        if isinstance(record := plan.steps[i].record, LaunchRecord)
        for position in record.kernel.plan.numbers
        if record.would_reach_number(position)
    ]
    count = Counter((record.kernel, position, value) for _, record, position, value in numbers)
    for i, record, position, value in numbers:
        source = next((one for one in reads if one.record <= i), None)
        if source is not None and count[record.kernel, position, value] == 1:
            number = f"`{record.kernel.plan.parameters[position].name}` of {record.title} at {record.place}"
            took = f"the host took {called(source.elements)} at {source.place}, before {number}"
            return f"{took}: if it computed that by float() or math, the gradient leaves it out"
    return ""
