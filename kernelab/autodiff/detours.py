"""Detours: where a chain that has gradients goes on by the host, which no tape can follow.

The host took numbers out of an array that gradients depend on; what it computed of them came back as an
array, or was given to a launch.  Knows records and what the host has seen; must not compute any adjoint.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernelab.autodiff.cuts import Cut, called, carrying_at
from kernelab.autodiff.fromhost import FromHost, HostValues, PassedOn
from kernelab.autodiff.moves import FunctionRecord, OverwriteRecord
from kernelab.autodiff.records import LaunchRecord, Record
from kernelab.autodiff.steps import Step
from kernelab.errors import Diagnostic, Related
from kernelab.lang.types import bytes_of
from kernelab.runtime.memory import Allocation
from kernelab.runtime.recorder import Place
from kernelab.runtime.strided import array
from kernelab.runtime.taken import Taken


@dataclass(frozen=True, slots=True, eq=False)
class Detour:
    """An array of values that the host computed from those of the tape, and the record that reads them."""

    elements: array
    values: HostValues
    taken: Taken
    reader: Record | None

    @property
    def place(self) -> Place:
        return self.values.place

    @property
    def key(self) -> object:
        return self.values.place, self.taken.place

    def describe(self) -> Diagnostic:
        seen = called(self.taken.elements)
        may, came = ("", "came") if self.values.certain else ("may ", "may have come")
        way = f"from {called(self.elements)} back to {seen}: the values {came} by the host"
        if self.taken.elements.allocation is self.elements.allocation:
            way = f"through {seen} here: its new values {came} by the host"
        related = [Related(f"the host took {seen} here:", self.taken.place.span)]
        if self.reader is not None:
            related.append(Related(f"{self.reader.title} reads them here:", self.reader.place.span))
        verb = "no gradient flows" if not may else "perhaps no gradient flows"
        return Diagnostic(
            f"{verb} {way}",
            self.place.span,
            "cut",
            hint="compute it on the tape (kl.map, operators of arrays, copy, a kernel); if the gradient is "
            "meant to end there, take the values from a clone: clone(x, requires_grad=False).numpy()",
            related=tuple(related),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Number:
    """A number that the host took from an array of the tape, or computed, and gave to a launch."""

    record: Record
    number: PassedOn
    taken: Taken

    @property
    def place(self) -> Place:
        return self.record.place

    @property
    def key(self) -> object:
        return self.record.place, self.taken.place

    def describe(self) -> Diagnostic:
        seen = called(self.taken.elements)
        message = (
            f"no gradient flows from {self.record.title} back to {seen}: the host took a number there and "
            "passed it on"
        )
        if not self.number.certain:
            message = (
                f"perhaps no gradient flows from {self.record.title} back to {seen}: it was given a number "
                "that the host had taken there"
            )
        return Diagnostic(
            message,
            self.place.span,
            "cut",
            hint="pass the array itself to a kernel: one element may stand for a number; if the gradient is "
            "meant to end there, take the number from a clone: clone(x, requires_grad=False).item()",
            related=(Related(f"the host took {seen} here:", self.taken.place.span),),
        )


def detours(
    host: FromHost,
    steps: Sequence[Step],
    live: Collection[int],
    on_the_way: Mapping[Allocation, array],
    seeds: Collection[array],
) -> list[Cut]:
    """Where the chains that lead to the seeds come by the host."""
    if not host.numbers and not host.arrays:
        return []
    live = _leading(steps, seeds, live)
    return [
        *_arrays(host.arrays, steps, live, on_the_way, seeds),
        *_numbers(host.numbers, steps, live, on_the_way),
    ]


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


# ------------------------------------------------------------------------------ arrays


def _arrays(
    values: Mapping[Allocation, Sequence[HostValues]],
    steps: Sequence[Step],
    live: Collection[int],
    on_the_way: Mapping[Allocation, array],
    seeds: Collection[array],
) -> Iterator[Detour]:
    """The arrays on the way from the loss whose values the host has, or seems to have, computed."""
    for memory, several in values.items():
        for k, made in enumerate(several):
            if not made.certain and not memory.requires_grad:
                continue
            after = several[k + 1].record if k + 1 < len(several) else len(steps)
            reader = _reader(memory, made.record, after, steps, live, on_the_way)
            elements = reader[1] if reader else _seed(memory, made, steps, seeds)
            if elements is None:
                continue
            taken = _that_matters(memory, made, steps, live, on_the_way, seeds)
            if taken is not None:
                yield Detour(elements, made, taken, reader[0] if reader else None)


def _reader(
    memory: Allocation,
    begin: int,
    end: int,
    steps: Sequence[Step],
    live: Collection[int],
    on_the_way: Mapping[Allocation, array],
) -> tuple[Record, array] | None:
    """The first record on the way from the loss through which a gradient would reach some memory."""
    for i in range(begin, min(end + 1, len(steps))):
        step = steps[i]
        if i not in live or isinstance(step.record, OverwriteRecord):
            continue
        if isinstance(step.record, FunctionRecord) and any(
            a.allocation is memory for a in step.record.arrays
        ):
            return None  # the user's own function takes the gradient further
        if memory.requires_grad:
            found = [source for source in step.reached if source.allocation is memory]
        else:
            found = [source for source in step.read if source.allocation is memory]
            found = [source for source in found if step.record.would_reach(source)]
        if found and (memory in on_the_way or not memory.requires_grad):
            return step.record, found[0]
    return None


def _seed(
    memory: Allocation, made: HostValues, steps: Sequence[Step], seeds: Collection[array]
) -> array | None:
    """The array that the sweep starts at, if the host made what it holds."""
    later = steps[made.record + 1 :]
    if any(target.allocation is memory for step in later for target in step.written):
        return None
    return next((seed for seed in seeds if seed.allocation is memory), None)


def _that_matters(
    memory: Allocation,
    made: HostValues,
    steps: Sequence[Step],
    live: Collection[int],
    on_the_way: Mapping[Allocation, array],
    seeds: Collection[array],
) -> Taken | None:
    """Where the host took values that gradients should have gone back to."""
    for taken in made.taken:
        source = taken.elements.allocation
        if source is memory:
            lost = (
                _is_used(memory, steps[: taken.record])
                if made.certain
                else _is_replaced(memory, steps, {seed.allocation for seed in seeds})
            )
        else:
            lost = _matters(taken, steps) and (made.certain or source not in on_the_way)
        if lost:
            return taken
    return None


def _is_used(memory: Allocation, steps: Sequence[Step]) -> bool:
    """Whether gradients could reach what some memory held before: a launch read or computed it."""
    return any(
        elements.allocation is memory
        for step in steps
        if not isinstance(step.record, OverwriteRecord)
        for elements in (*step.read, *(step.written if step.reached else ()))
    )


def _is_replaced(memory: Allocation, steps: Sequence[Step], needed: set[Allocation]) -> bool:
    """Whether the host replaced what launches had computed, before anything on the way read it."""
    steps = list(steps)
    while steps and not _replaces(steps[-1], memory):
        _follow(steps.pop(), needed)
    needed.discard(memory)
    computed = False
    for step in reversed(steps):
        computed = computed or (bool(step.reached) and any(w.allocation is memory for w in step.written))
        _follow(step, needed)
    return computed and memory not in needed


def _follow(step: Step, needed: set[Allocation]) -> None:
    if not needed.isdisjoint([target.allocation for target in step.written]):
        needed.update([source.allocation for source in step.reached if source.requires_grad])


def _replaces(step: Step, memory: Allocation) -> bool:
    """Whether the host sets all elements."""
    record = step.record
    if not isinstance(record, OverwriteRecord) or record.dest.allocation is not memory:
        return False
    return record.dest.size * bytes_of(record.dest.dtype) == memory.nbytes


# ------------------------------------------------------------------------------ numbers


def _numbers(
    numbers: Sequence[PassedOn],
    steps: Sequence[Step],
    live: Collection[int],
    on_the_way: Mapping[Allocation, array],
) -> Iterator[Number]:
    """The numbers from the tape on the way from the loss.

    Of those that may have been written by hand, only where nothing else leads back to their arrays.
    """
    for number in numbers:
        record = steps[number.record].record
        if number.record not in live or not isinstance(record, LaunchRecord):
            continue
        for taken in number.taken:
            doubtful = number.written and taken.elements.allocation in on_the_way
            if not doubtful and _matters(taken, steps) and record.would_reach_number(number.position):
                yield Number(record, number, taken)
                break


def _matters(taken: Taken, steps: Sequence[Step]) -> bool:
    """Whether gradients depend on what the host took."""
    if taken.elements.requires_grad:
        return True
    return taken.elements.allocation in carrying_at(steps, taken.record)
