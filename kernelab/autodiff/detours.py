"""Detours: where a chain that has gradients goes on by the host, which no tape can follow.

The host took numbers out of an array that gradients depend on; what it computed of them came back as an
array, or was given to a launch.  Knows records and what the host has seen; must not compute any adjoint.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernelab.autodiff.cuts import Cut, carried_at
from kernelab.autodiff.fromhost import FromHost, HostValues, PassedOn
from kernelab.autodiff.hosttext import may_reach
from kernelab.autodiff.moves import FunctionRecord, OverwriteRecord
from kernelab.autodiff.records import LaunchRecord, Record
from kernelab.autodiff.steps import Step
from kernelab.errors import Diagnostic, Related
from kernelab.lang.types import bytes_of
from kernelab.runtime.memory import Allocation
from kernelab.runtime.recorder import Place, called
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

    record: LaunchRecord
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
                f"perhaps no gradient flows from {self.record.title} back to {seen}: the host took numbers "
                "there, and the launch may have been given what came of them"
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
    if not host.takings:
        return []
    sources = _Sources(host, steps, on_the_way, seeds)
    arrays, numbers = list(_arrays(host, sources)), list(_numbers(host, sources))
    if not arrays and not numbers:
        return []
    leading = _leading(steps, seeds, live)
    return [
        *_read(arrays, steps, leading, on_the_way, seeds),
        *(number for number in numbers if _is_needed(number, leading)),
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


class _Sources:
    """What on the tape the host's values come from, or may come from, of that on which gradients depend."""

    def __init__(
        self,
        host: FromHost,
        steps: Sequence[Step],
        on_the_way: Mapping[Allocation, array],
        seeds: Collection[array],
    ) -> None:
        self.steps = steps
        self._on_the_way = on_the_way
        self._seeds = seeds
        carrying = carried_at(steps, {taken.record for taken in host.takings})
        self._places: dict[Place, list[Taken]] = {}
        for taken in host.takings:
            if taken.elements.requires_grad or taken.elements.allocation in carrying[taken.record]:
                self._places.setdefault(taken.place, []).append(taken)
        self._that_matter = {taken for several in self._places.values() for taken in several}

    def of_array(self, memory: Allocation, made: HostValues) -> Taken | None:
        """Where the host took the values that it wrote to some memory."""
        if not made.certain:
            return self._of_text(memory, made)
        for taken in made.taken:
            if taken.elements.allocation is memory:
                if _is_used(memory, self.steps[: taken.record]):
                    return taken
            elif taken in self._that_matter:
                return taken
        return None

    def _of_text(self, memory: Allocation, made: HostValues) -> Taken | None:
        """The same, where the values do not say it, but perhaps the text of the program."""
        unclear = False
        for place, several in self._places.items():
            reaches = may_reach(place, made.place)
            unclear = unclear or reaches is None
            if reaches:
                others = (taken for taken in reversed(several) if taken.elements.allocation is not memory)
                found = next((taken for taken in others if taken.record <= made.record), None)
                if found is not None:
                    return found
        latest = made.latest
        if latest not in self._that_matter or not memory.requires_grad or not unclear:
            return None
        if latest.elements.allocation is memory:
            ends = {seed.allocation for seed in self._seeds}
            return latest if _is_replaced(memory, self.steps, ends) else None
        return latest if latest.elements.allocation not in self._on_the_way else None

    def of_number(self, number: PassedOn, place: Place, count: int) -> Taken | None:
        """Where the host took a number that was given to a launch of so many arguments at a line.

        Of one that is only equal to a number of the tape, and may have been written by hand, the array counts
        only where nothing else leads back to it, or where the text of the program says so.
        """
        if number.certain:
            return next((taken for taken in number.taken if taken in self._that_matter), None)
        equal = number.equal
        doubtful = equal is None or (number.written and equal.elements.allocation in self._on_the_way)
        if not doubtful:
            return equal if equal in self._that_matter else None
        for taken_at, several in self._places.items():
            if several[0].record <= number.record and may_reach(taken_at, place, number.position, count):
                return several[0]
        return None


# ------------------------------------------------------------------------------ arrays


def _arrays(host: FromHost, sources: _Sources) -> Iterator[tuple[Allocation, HostValues, int, Taken]]:
    """The memory that the host wrote, each with its values, until which record, and where they come from."""
    for memory, several in host.arrays.items():
        ends = [*(made.record for made in several[1:]), len(sources.steps)]
        for made, end in zip(several, ends, strict=True):
            taken = sources.of_array(memory, made)
            if taken is not None:
                yield memory, made, end, taken


def _read(
    arrays: Iterable[tuple[Allocation, HostValues, int, Taken]],
    steps: Sequence[Step],
    live: Collection[int],
    on_the_way: Mapping[Allocation, array],
    seeds: Collection[array],
) -> Iterator[Detour]:
    """Those of them that lead to the seeds."""
    for memory, made, end, taken in arrays:
        reader = _reader(memory, made.record, end, steps, live, on_the_way)
        elements = reader[1] if reader else _seed(memory, made, steps, seeds)
        if elements is not None:
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


def _numbers(host: FromHost, sources: _Sources) -> Iterator[Number]:
    """The numbers from the tape that launches were given."""
    for number in host.passed:
        record = sources.steps[number.record].record
        if isinstance(record, LaunchRecord):
            taken = sources.of_number(number, record.place, len(record.call.arguments))
            if taken is not None:
                yield Number(record, number, taken)


def _is_needed(given: Number, live: Collection[int]) -> bool:
    """Whether the launch leads to the seeds, and a gradient would flow to its number."""
    return given.number.record in live and given.record.would_reach_number(given.number.position)
