"""Detours: chains of gradients that pass through numbers and arrays which the host computed.

Each ends there, since no tape differentiates Python; `backward` names both lines.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

from kernelab.autodiff.records.cuts import carried_at
from kernelab.autodiff.records.moves import FunctionRecord, HostCallRecord, OverwriteRecord
from kernelab.autodiff.records.provenance import (
    Cut,
    HostValues,
    Provenance,
    Taken,
    array_from_host,
    number_from_host,
)
from kernelab.autodiff.records.records import LaunchRecord, Record, Step
from kernelab.runtime.array.array import array
from kernelab.runtime.memory.memory import Allocation


def detours(
    host: Provenance,
    steps: Sequence[Step],
    live: Collection[int],
    on_the_way: Collection[Allocation],
    seeds: Collection[array],
) -> list[Cut]:
    """The places where chains that lead to the seeds pass through the host."""
    if not host.takings and not host.differentiated:
        return []
    sources = _Sources(host, steps)
    arrays = list(_arrays(host, sources))
    if not arrays and not host.numbers:
        return []
    leading = _leading(steps, seeds, live)
    return [*_read(arrays, steps, leading, on_the_way, seeds), *_numbers(host, sources, leading)]


def _leading(steps: Sequence[Step], seeds: Collection[array], live: Collection[int]) -> set[int]:
    """The records on which the seeds depend, through arrays without gradients too."""
    needed = {seed.allocation for seed in seeds}
    leading = set(live)
    for i in range(len(steps) - 1, -1, -1):
        step = steps[i]
        if needed.isdisjoint([target.allocation for target in step.written]):
            continue
        leading.add(i)
        needed.update([source.allocation for source in step.reached])
        others = [source for source in step.read if source.allocation not in needed]
        needed.update([source.allocation for source in others if step.record.would_reach(source)])
    return leading


class _Sources:
    """The sources of host values, certain or possible by order, among arrays on which gradients depend."""

    def __init__(self, host: Provenance, steps: Sequence[Step]) -> None:
        self.steps = steps
        self._takings = host.takings
        all_taken = [*self._takings, *host.differentiated]
        own = set(all_taken).difference(host.outer)
        carrying = carried_at(steps, {taken.record for taken in own})
        self.that_matter = {
            taken
            for taken in all_taken
            if taken.elements.requires_grad
            or (taken in own and taken.elements.allocation in carrying[taken.record])
        }

    def of_array(self, memory: Allocation, values: HostValues) -> Taken | None:
        """The read by the host that yielded the values it wrote to some memory, or preceded the write."""
        if not values.taken:
            return self._before(memory, values)
        for taken in values.taken:
            if taken.elements.allocation is memory:
                if _is_used(memory, self.steps[: taken.record]):
                    return taken
            elif taken in self.that_matter:
                return taken
        return None

    def _before(self, memory: Allocation, values: HostValues) -> Taken | None:
        """The last read by the host before it made an array that has no gradients of its own."""
        if memory.requires_grad or (values.how == "array" and _is_used(memory, self.steps[: values.record])):
            return None
        earlier = reversed(self._takings[: values.earlier])
        return next((taken for taken in earlier if taken in self.that_matter), None)


# ------------------------------------------------------------------------------ arrays


def _arrays(host: Provenance, sources: _Sources) -> Iterator[tuple[Allocation, HostValues, int, Taken]]:
    """The memory that the host wrote, each with its values, until which record, and where they come from."""
    for memory, several in host.arrays.items():
        ends = [*(values.record for values in several[1:]), len(sources.steps)]
        for values, end in zip(several, ends, strict=True):
            taken = sources.of_array(memory, values)
            if taken is not None:
                yield memory, values, end, taken


def _read(
    arrays: Iterable[tuple[Allocation, HostValues, int, Taken]],
    steps: Sequence[Step],
    live: Collection[int],
    on_the_way: Collection[Allocation],
    seeds: Collection[array],
) -> Iterator[Cut]:
    """The cuts at those arrays of the host that lead to the seeds."""
    for memory, values, end, taken in arrays:
        reader = _reader(memory, values.record, end, steps, live, on_the_way)
        elements = reader[1] if reader else _seed(memory, values, steps, seeds)
        if elements is not None:
            by = (reader[0].title, reader[0].place) if reader else None
            yield array_from_host(elements, values, taken, by)


def _reader(
    memory: Allocation,
    begin: int,
    end: int,
    steps: Sequence[Step],
    live: Collection[int],
    on_the_way: Collection[Allocation],
) -> tuple[Record, array] | None:
    """The first record on the way from the loss through which a gradient would reach some memory."""
    for i in range(begin, min(end + 1, len(steps))):
        step = steps[i]
        if i not in live or isinstance(step.record, OverwriteRecord):
            continue
        is_function = isinstance(step.record, FunctionRecord | HostCallRecord)
        if is_function and any(one.allocation is memory for one in (*step.read, *step.written)):
            return None  # the user's own function takes the gradient further
        if memory.requires_grad:
            sources = [source for source in step.reached if source.allocation is memory]
        else:
            sources = [source for source in step.read if source.allocation is memory]
            sources = [source for source in sources if step.record.would_reach(source)]
        if sources and (memory in on_the_way or not memory.requires_grad):
            return step.record, sources[0]
    return None


def _seed(
    memory: Allocation, values: HostValues, steps: Sequence[Step], seeds: Collection[array]
) -> array | None:
    """The array that the sweep starts at, if the host made what it holds."""
    later = steps[values.record + 1 :]
    if any(target.allocation is memory for step in later for target in step.written):
        return None
    return next((seed for seed in seeds if seed.allocation is memory), None)


def _is_used(memory: Allocation, steps: Sequence[Step]) -> bool:
    """Whether gradients could reach what some memory held before: a launch read or computed it."""
    return any(
        elements.allocation is memory
        for step in steps
        if not isinstance(step.record, OverwriteRecord)
        for elements in (*step.read, *(step.written if step.reached else ()))
    )


# ------------------------------------------------------------------------------ numbers


def _numbers(host: Provenance, sources: _Sources, leading: Collection[int]) -> Iterator[Cut]:
    """The numbers from the tape that launches were given on which the seeds depend."""
    for number in host.numbers:
        record = sources.steps[number.record].record
        if number.record not in leading or not isinstance(record, LaunchRecord):
            continue
        taken = next((taken for taken in number.taken if taken in sources.that_matter), None)
        reaches = number.position is None or record.would_reach_number(number.position)
        if taken is not None and reaches:
            yield number_from_host(record.title, record.place, taken)
