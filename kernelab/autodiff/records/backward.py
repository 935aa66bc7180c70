"""The backward pass in four steps: plan, check, sweep, publish.

    plan       which records adjoints pass, and after which of them gradients are published
    check      every chain of gradients that ends on the way is a warning, or an error
    sweep      run the adjoints of these records, the last first, on buffers of their own
    publish    copy what has arrived to `.grad`; of an input it is added

`Tape.backward` is these four steps.  A level of reverse mode plans and sweeps in the same way; its programs
run at the level where its adjoints are wanted, and nothing is published.  Knows records; must not know how
they are made.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from kernelab.autodiff.records.adjoint_buffers import (
    Adjoints,
    Level,
    Values,
    about_to_change,
    add_to_gradients,
    by_memory,
    gradient_now,
    is_apart,
    lie_apart,
    publish,
    publish_sum,
)
from kernelab.autodiff.records.coverage import WHOLE, History, are_all, boxes_in, rest_of
from kernelab.autodiff.records.cuts import (
    carriers_in_place,
    distinct,
    ends_chain,
    leads_nowhere,
    passive_cuts,
    refuse_latecomers,
    refuse_lost,
    refuse_shared_gradients,
    switched_off,
    unrecorded,
    warn_of_inputs_without_gradients,
    zeros_by_construction,
)
from kernelab.autodiff.records.detours import detours
from kernelab.autodiff.records.narrow_sums import WITHOUT_HALVES, NarrowSums, has_halves, narrow_sums
from kernelab.autodiff.records.provenance import Cut
from kernelab.autodiff.records.recording import Recording
from kernelab.autodiff.records.records import LaunchRecord, Record, Step
from kernelab.data_classes.turns import Turn
from kernelab.errors import TapeError
from kernelab.runtime.array.array import array
from kernelab.runtime.memory.memory import Allocation

# ---------------------------------------------------------------------------------------------------- plan

_NOTHING: Any = object()
"""The history of memory that no record has touched.

Of what was written once, a history is that write; of what has been read as a whole, it is None.
"""


class Publication(NamedTuple):
    """Elements of `source` whose gradient is published, and whether they are an input, where it is added.

    Of an input that was overwritten in parts before it was read, these are `kept` as they are.
    """

    elements: array
    is_input: bool
    source: array
    kept: Sequence[array] = ()


class BackwardPlan:
    """The path of the adjoints from `seeds` back through the records, planned before anything runs.

    `live` are the records and `reached` the arrays on that path; `on_the_way` is all memory with adjoints.
    Gradients are published `before` the sweep, `after` the adjoint of a record, or at the end: those of
    `inputs`, each with the record that reads it first.  These add up.  `mixed` memory has other gradients,
    too: there the sweep begins with a copy of what is `held`.  Adjoints of memory that is `retired` with a
    record are dropped after it, unless they are `shared`: then nothing is published.  `first` has the first
    record that touches a memory.  Memory without gradients through which adjoints pass all the same, as
    launches change it `in_place`, is on the way, too.  At a level, memory with adjoints has `started`, and
    all that records reach takes part, whether it requires gradients or not.
    """

    def __init__(
        self,
        records: Sequence[Record],
        seeds: Collection[array],
        shared: Collection[Allocation] | None = None,
        started: Collection[Allocation] | None = None,
    ) -> None:
        self.records = records
        self.seeds = seeds
        self.steps: list[Step] = []
        self.live: set[int] = set()
        self.reached: list[array] = []
        self.on_the_way = {seed.allocation for seed in seeds}.union(started or ())
        self.before: list[array] = []
        self.after: dict[int, list[Publication]] = {}
        self.inputs: list[tuple[int, Publication]] = []
        self.mixed: set[Allocation] = set()
        self.held: dict[array, Values] = {}
        self.retired: dict[int, list[Allocation]] = {}
        self.computes_passive = False
        self.in_place: Collection[Allocation] = ()
        self.narrow: NarrowSums | None = None
        self.first: dict[Allocation, int] = {}
        self.leaving: set[Record] = set()
        self.settled: set[Allocation] = set()
        self._histories: dict[Allocation, Any] = {}
        self._look_forward(publishes=shared is None)
        self._look_back(takes_all=started is not None)
        if shared is None:
            shared = self._find_inputs()
        for memory, i in self.first.items():
            if memory not in shared:
                self.retired.setdefault(i, []).append(memory)

    def _look_forward(self, publishes: bool) -> None:
        """Collect what each record touches, and the gradients that are published for what it reads first."""
        steps, first, histories = self.steps, self.first, self._histories
        for i, record in enumerate(self.records):
            read, reached, written = record.flow()
            steps.append(tuple.__new__(Step, (record, read, reached, written)))
            for k, source in enumerate(read):
                memory = source.allocation
                if memory not in first:
                    first[memory] = i
                if publishes and memory.requires_grad and histories.get(memory, _NOTHING) is not None:
                    self._read(i, k, source)
            if reached is not read:
                for source in reached:
                    first.setdefault(source.allocation, i)
            for k, target in enumerate(written):
                memory = target.allocation
                if memory not in first:
                    first[memory] = i
                if not memory.requires_grad:
                    self.computes_passive = True
                    continue
                if not publishes:
                    continue
                history = histories.get(memory, _NOTHING)
                if history is _NOTHING:
                    histories[memory] = target, (record, k)
                elif history is not None:
                    self._history(memory).write(record, k, target)
        for history in histories.values():
            if history.__class__ is tuple:
                self.before.append(history[0])
            elif history is not None:
                self.before += history.unread()

    def _read(self, i: int, k: int, source: array) -> None:
        """Publish, after record `i`, the gradients of those elements of its k-th array that it reads first.

        Memory that is read before it is written holds inputs: an array over it is one piece, which counts
        from its first read on.  Of other memory, each box of indices that a launch reads counts by itself.
        """
        memory = source.allocation
        entry = self._histories.get(memory)
        is_input = entry is None or (entry.__class__ is History and entry.is_input)
        boxes = (WHOLE,) if is_input else boxes_in(self.records[i], "read", k)
        if boxes == (WHOLE,) and source.is_whole:
            # Nothing that happens to this memory later is published.
            self._histories[memory] = None
            if entry is None or (
                entry.__class__ is tuple
                and entry[0].is_whole
                and boxes_in(entry[1][0], "written", entry[1][1]) == (WHOLE,)
            ):
                self._publish(i, tuple.__new__(Publication, (source, entry is None, source, ())))
            else:
                written = (entry if entry.__class__ is History else History(entry)).written(source)
                self._publish_parts(i, source, source, written)
            return
        history = self._history(memory)
        if source.packed in history.whole:
            return
        for box in boxes:
            if box is not WHOLE:
                read = history.read_box(source, box)
                if read is not None:
                    self._publish_parts(i, read, source, history.written(read))
            else:
                history.whole.add(source.packed)
                self._publish_parts(i, source, source, history.written(source))

    def _publish_parts(self, i: int, elements: array, source: array, written: Sequence[array]) -> None:
        """Publish the gradients of elements that are read first by record `i`, and were `written` in parts.

        That of what was written is the one after the record; the others are inputs.
        """
        if written:
            self._publish(i, Publication(elements, False, source))
        if not written:
            self._publish(i, Publication(elements, True, source))
        elif not are_all(written, elements):
            rest = rest_of(elements, written)
            for piece in (elements,) if rest is None else rest:
                self._publish(i, Publication(piece, True, source, written if rest is None else ()))

    def _history(self, memory: Allocation) -> "History":
        """The reads and writes of a memory of which no array has been read as a whole."""
        entry = self._histories.get(memory)
        if entry.__class__ is History:
            return entry
        history = self._histories[memory] = History(entry)
        return history

    def _publish(self, i: int, publication: Publication) -> None:
        if publication.is_input:
            self.inputs.append((i, publication))
        else:
            self.after.setdefault(i, []).append(publication)

    def _look_back(self, takes_all: bool) -> None:
        """Follow the adjoints from the last record to the first, without computing any."""
        needed, live, reached = self.on_the_way, self.live, self.reached
        if self.computes_passive and not takes_all:
            self.in_place = carriers_in_place(self.steps)
        in_place = self.in_place
        types: dict[int, array] = {}  # there is one object for each type of arrays
        for i in range(len(self.steps) - 1, -1, -1):
            step = self.steps[i]
            for target in step.written:
                if target.allocation in needed and not (in_place and ends_chain(step.record)):
                    break
            else:
                if not step.record.may_begin:
                    continue
            live.add(i)
            for source in step.reached:
                types[id(source.type)] = source
                if takes_all or source.allocation.requires_grad:
                    needed.add(source.allocation)
                    reached.append(source)
                elif source.allocation in in_place and isinstance(step.record, LaunchRecord):
                    needed.add(source.allocation)
        if any(key not in WITHOUT_HALVES and has_halves(source.type) for key, source in types.items()):
            self.narrow = narrow_sums(self.steps, live)

    def _find_inputs(self) -> set[Allocation]:
        """The memory of inputs, seeds among them; find where the sweep publishes other gradients in it.

        The cotangent of a seed is added to the gradient of an input, and replaces that of a result.
        """
        shown = set(map(id, self.before))
        for seed in self.seeds:
            if not seed.allocation.requires_grad or id(seed) in shown:
                continue
            # The gradient of elements that no record touches is that of their final value, too.
            if any(seed.overlaps(target) for step in reversed(self.steps) for target in step.written):
                self.before.insert(0, seed)
                continue
            i = next(i for i, step in enumerate(self.steps) if any(map(seed.overlaps, step.read)))
            self._publish(i, Publication(seed, True, seed))
        inputs: set[Allocation] = set()
        for _, (elements, _, _, kept) in self.inputs:
            memory = elements.allocation
            if memory in inputs or memory.folded or kept or not elements.is_whole:
                self.mixed.add(memory)
            inputs.add(memory)
        if self.mixed:
            self.mixed -= self._only_added_to()
        self.mixed |= inputs.intersection([elements.allocation for elements in self.before])
        return inputs

    def _only_added_to(self) -> set[Allocation]:
        """The mixed memory that no record writes and whose inputs lie apart, as fields of structs do."""
        written = {target.allocation for step in self.steps for target in step.written}
        only_read = self.mixed.difference(written)
        parts = by_memory(one.elements for _, one in self.inputs if one.elements.allocation in only_read)
        return {memory for memory, some in parts.items() if not memory.folded and lie_apart(some)}

    def leave(self) -> None:
        """Find the records that need not clear the adjoints of what they wrote: these are dropped after them.

        Memory that only such a record changes is `settled`, unless its gradients may be seen elsewhere.
        """
        for i, memories in self.retired.items():
            record = self.records[i]
            if i in self.live and isinstance(record, LaunchRecord) and (left := record.left()):
                if not {elements.allocation for elements in left}.issubset(memories):
                    continue
                self.leaving.add(record)
                self.settled.update(elements.allocation for elements in left)
        if self.settled:
            changes = Counter(target.allocation for step in self.steps for target in step.written)
            gradients = Counter(memory.adjoint for memory in self.on_the_way)
            self.settled = {
                memory
                for memory in self.settled
                if changes[memory] == 1 and is_apart(memory, gradients, self.first)
            }
        if not all(isinstance(self.records[i], LaunchRecord) for i in self.live):
            self.settled.clear()  # a function of the user's may change gradients

    def publications(self) -> list[tuple[int, Publication]]:
        """What is published of arrays that are read, each with the record after whose adjoint it is known."""
        return [*self.inputs, *((i, one) for i, group in self.after.items() for one in group)]

    def leaves(self) -> list[tuple[int, Publication]]:
        """The arrays that are read before they are written, each with the first record that reads it."""
        return [(i, one) for i, one in self.publications() if one.is_input]

    def published(self) -> list[array]:
        """The arrays whose gradients are published, some of them perhaps in several parts."""
        return [*self.before, *(one.elements for _, one in self.publications())]


# --------------------------------------------------------------------------------------------------- check


def check(plan: BackwardPlan, recording: Recording) -> list[Cut]:
    """The cuts to report; those that may be meant are noted with the arrays whose gradients they end."""
    is_made_elsewhere = any(one.source.allocation.origin is not None for _, one in plan.inputs)
    if recording.is_plain and not plan.computes_passive and not is_made_elsewhere:
        return []
    cuts, leaves = ends_on_the_way(plan, recording), plan.leaves()
    on_the_way = [(i, one.source) for i, one in leaves if one.source.allocation in plan.on_the_way]
    strangers = unrecorded(plan.steps, on_the_way)
    cuts += strangers
    if len(strangers) == len(on_the_way) and all(cut.is_certain for cut in strangers):
        return cuts
    for cut in cuts:
        for memory in cut.sources if cut.may_be_meant else ():
            memory.missing = cut.describe()
    return [cut for cut in cuts if not cut.may_be_meant]


def ends_on_the_way(plan: BackwardPlan, recording: Recording) -> list[Cut]:
    """The places among the records and on the host where chains of gradients end."""
    if recording.is_plain and not plan.computes_passive:
        return []
    passive = passive_cuts(plan.steps, plan.live, plan.in_place)
    return [
        *(cut for i in sorted(passive, reverse=True) for cut in passive[i]),
        *switched_off(plan.steps, plan.live),
        *zeros_by_construction(plan.steps, plan.live, plan.on_the_way),
        *detours(recording.provenance, plan),
    ]


def refuse_late(plan: BackwardPlan) -> None:
    """Raise where an array on the path was set to require gradients after it was recorded."""
    for i in sorted(plan.live):
        refuse_latecomers(plan.records[i])


def tell(plan: BackwardPlan, recording: Recording, cuts: Sequence[Cut], own: Sequence[array]) -> None:
    """Warn of chains that end on the way; raise TapeError where none arrives, or one would be wrong.

    The cotangents of `own` arrays are what their gradients hold.
    """
    if not plan.reached:
        raise TapeError(cuts[0].describe() if cuts else leads_nowhere(plan.seeds))
    if recording.lost:
        refuse_lost(plan.reached, recording.lost)
    for cut in distinct(cuts) if cuts else ():
        cut.warn()
    if not recording.is_plain:
        if not plan.leaves():
            warn_of_inputs_without_gradients(plan.steps, plan.live)
        refuse_late(plan)
    shown = [(one, False) for one in plan.before]
    shown += [(one.source, one.is_input) for _, one in plan.publications()]
    gradients = [gradient for one, _ in shown if (gradient := one.allocation.adjoint) is not None]
    if len(set(gradients)) < len(gradients):
        seeded = {elements.allocation for elements in own}
        refuse_shared_gradients(one for one in shown if one[0].allocation not in seeded)


# --------------------------------------------------------------------------------------------------- sweep

Puller = Callable[[Sequence[Record], int, Adjoints], None]
"""Takes the adjoints through a record, by its position, and looks at them."""

ADDING = Turn()
"""Adds to gradients: tapes of several threads of Python may have an input in common."""


def sweep(
    plan: BackwardPlan, adjoints: Adjoints, level: Level, puller: Puller | None = None, end: int = 0
) -> None:
    """Run the adjoints of the live records in reverse, at a level; publish what they are about to change.

    The last one to run is that of record `end`.
    """
    records, live, after, retired, narrow = plan.records, plan.live, plan.after, plan.retired, plan.narrow
    if plan.mixed:
        inputs = (one.elements for _, one in plan.inputs if one.elements.allocation in plan.mixed)
        plan.held = {elements: gradient_now(elements) for elements in inputs}
    for elements in plan.before:
        publish(elements, adjoints)
    last = min(live, default=-1)
    for i in range(len(records) - 1, end - 1, -1):
        if i in live:
            if puller is not None:
                puller(records, i, adjoints)
            elif i == last:
                _pull_last(plan, i, adjoints, level)
            else:
                records[i].pull(adjoints, level)
            if narrow is not None:
                narrow.take(i, adjoints, level)
        if i in after:
            if narrow is not None:
                narrow.give(adjoints, level, {one.elements.allocation for one in after[i]})
            for publication in after[i]:
                publish(publication.elements, adjoints)
        if i in retired:
            for memory in retired[i]:
                adjoints.reuse(memory, level)
    if narrow is not None:
        narrow.give(adjoints, level)


def _pull_last(plan: BackwardPlan, i: int, adjoints: Adjoints, level: Level) -> None:
    """Run the adjoint of the last record, which may add to some gradients directly."""
    own = _added_in_place(plan, i, adjoints)
    if not own or not ADDING.lock.acquire(blocking=False):
        plan.records[i].pull(adjoints, level)
        return
    try:
        for elements in own:
            adjoints.memory[elements.allocation] = about_to_change(elements)
        plan.records[i].pull(adjoints, level)
    except BaseException:  # also an interrupt: some of the threads may have added
        for elements in own:
            adjoints.of(elements).host()[...] = np.nan
        raise
    finally:
        ADDING.lock.release()
    for elements in own:
        adjoints.memory.pop(elements.allocation, None)


def _added_in_place(plan: BackwardPlan, i: int, adjoints: Adjoints) -> list[array]:
    """The inputs of the last record to whose gradients its adjoint may add directly.

    It is their only contribution and adds once to each element, so nothing is rounded in another way.
    """
    step = plan.steps[i]
    if not isinstance(step.record, LaunchRecord) or not any(one.allocation.adjoint for one in step.reached):
        return []
    taken = {*plan.mixed, *adjoints.memory}
    for k, other in enumerate(plan.steps):
        taken.update([elements.allocation for elements in other.written])
        if k != i and k in plan.live:
            taken.update([elements.allocation for elements in other.reached])
    inputs = {one.elements.allocation for _, one in plan.inputs}.difference(taken)
    own = [one for one in step.record.added_once if one.allocation in inputs and one.allocation.adjoint]
    gradients = [*{one.allocation: one.allocation.adjoint for one in own}.values()]
    return [
        elements
        for elements in own
        if (gradient := elements.allocation.adjoint) is not None
        and elements.allocation.space is gradient.space is None
        and gradient.writable
        and gradients.count(gradient) == 1
        and gradient not in plan.first
    ]


# ------------------------------------------------------------------------------------------------- publish


def publish_inputs(plan: BackwardPlan, adjoints: Adjoints) -> None:
    """Add the adjoints of the inputs to what their gradients held before; several may share a gradient."""
    groups: dict[Allocation, list[array]] = {}
    kept = {one.elements: one.kept for _, one in plan.inputs if one.kept}
    for _, publication in plan.inputs:
        memory = publication.elements.allocation
        if memory.adjoint is None and memory.missing is not None and memory not in plan.on_the_way:
            continue  # reading this gradient says why it is zero
        groups.setdefault(memory, []).append(publication.elements)
    added_to: set[Allocation | None] = set()
    for memory, inputs in groups.items():
        if memory not in plan.mixed:
            add_to_gradients(inputs, adjoints)
        else:
            if memory.adjoint in added_to:
                plan.held |= {elements: gradient_now(elements) for elements in inputs}
            for elements in inputs:
                parts = [(part, gradient_now(part)) for part in kept.get(elements, ())]
                publish_sum(elements, plan.held[elements], adjoints)
                for part, values in parts:
                    if values is not None:  # its gradient stays as it is
                        publish_sum(part, values, Adjoints())
        if memory.adjoint is not None:
            added_to.add(memory.adjoint)
