"""Cuts: where a chain of gradients ends although values go on, and the messages about them.

An intermediate without gradients, a kernel without an adjoint, an integer between two floats, a launch that
no tape saw: each would leave a gradient too small without a word, as does a detour through the host
(`autodiff.records.detours`).  Every cut on a way from the loss is reported by `backward`: as a warning where
some gradient is left, as the error where none is.  Knows records and what they read; must not compute any
adjoint.
"""

import threading
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from kernelab.autodiff.records.coverage import are_all
from kernelab.autodiff.records.moves import CopyRecord, Flowing, HostCallRecord, OverwriteRecord
from kernelab.autodiff.records.provenance import MOST_PARTS, Cut
from kernelab.autodiff.records.records import LaunchRecord, Record, Step
from kernelab.autodiff.records.zero_chains import ZeroChain, zero_chains
from kernelab.errors import Diagnostic, Related, TapeError
from kernelab.lang.structs import Struct, StructArray, leaves
from kernelab.lang.types import scalar_of
from kernelab.runtime.array.array import DETACHED, array, numbers_of
from kernelab.runtime.array.origins import Origin, origin_of
from kernelab.runtime.context.recorder import Place, called, caller, name_of_memory
from kernelab.runtime.host.struct_instances import Instance, traced_in
from kernelab.runtime.kernel.arguments import Reference, array_of
from kernelab.runtime.memory.memory import Allocation

# ------------------------------------------------------------------------------ no requires_grad between


def passive_cuts(
    steps: Sequence[Step], live: Collection[int], in_place: Collection[Allocation] = ()
) -> dict[int, list[Cut]]:
    """Reads by live records of arrays without gradients that were computed from arrays with gradients.

    Adjoints pass those that launches change `in_place`, where they reach them.
    """
    carrying: Carrying = {}
    by_record: dict[int, list[Cut]] = {}
    if all(target.allocation.requires_grad for step in steps for target in step.written):
        return by_record
    for i, step in enumerate(steps):
        carried, reader = _carry(step, carrying), step.record
        if in_place and isinstance(reader, LaunchRecord):
            passed = {id(source) for source in step.reached if source.allocation in in_place}
            carried = [one for one in carried if id(one.read) not in passed]
        cuts = [_passive(one) for one in carried if i in live and reader.would_reach(one.read)]
        if cuts:
            by_record[i] = cuts
    return by_record


def _passive(found: "Found") -> Cut:
    """The cut at an array without gradients in the middle of a chain that has them."""
    elements, producer, consumer = found.elements, found.producer, found.consumer
    for off in _switched_off(producer):
        return off

    def describe() -> Diagnostic:
        for primal in _late(producer):
            name = called(primal)
            return Diagnostic(
                f"{name} requires gradients, but did not when {producer.title} was recorded: no gradient "
                f"flows from {called(elements)} to it",
                producer.place.span,
                "late",
                hint="set requires_grad=True before that launch; if the gradient is meant to end there, pass "
                f"clone(..., requires_grad=False) of {name}",
                related=(Related(f"{consumer.title} reads {called(elements)} here:", consumer.place.span),),
            )
        name = called_in(producer, elements, "an array")
        return Diagnostic(
            f"no gradient flows through {name}, read by {consumer.title}: it does not require gradients",
            consumer.place.span,
            "cut",
            hint="create it with requires_grad=True; if the gradient is meant to end there, pass "
            "clone(..., requires_grad=False) of it",
            related=(Related(f"{producer.title} computes it here:", producer.place.span),),
        )

    line = consumer.place, producer.place, tuple([one is elements for one in consumer.read])
    return Cut(consumer.place, ("passive", elements.allocation), describe, line=line)


def called_in(record: Record, elements: array, otherwise: str) -> str:
    """The name of an array in a message: the user's, or else that of a parameter of the user's kernel."""
    taken = None
    if isinstance(record, LaunchRecord) and not _is_operator(record):
        taken = next((name for name, value in record.named.items() if value is elements), None)
    return called(elements, f"the argument `{taken}` of {record.title}" if taken else otherwise)


def _is_operator(record: Record) -> bool:
    """Whether a record is the launch of an operator: its result has gradients if an operand has."""
    return isinstance(record, LaunchRecord) and record.kernel.source.label == f"<{record.kernel.name}>"


class Found(NamedTuple):
    """An array that a step has `read`, and the `elements` without gradients that its values come through.

    These are the array itself, or what operators have computed it from: there a user can give it gradients.
    """

    read: array
    elements: array
    producer: Record
    consumer: Record


class Carried(NamedTuple):
    """What computed the values of some memory, and the memory with gradients that these come from.

    They stand in some `parts` of it, None for anywhere; others have been overwritten since.  `through` is
    what an operator that computed them has found among its operands.
    """

    by: Record
    roots: frozenset[Allocation]
    overwritten: tuple[array, ...] = ()
    parts: tuple[array, ...] | None = None
    through: Found | None = None

    def found(self, source: array, consumer: Record) -> Found:
        """What a record finds that reads an array over the memory."""
        if self.through is not None:
            return self.through._replace(read=source)
        return Found(source, source, self.by, consumer)

    def are_in(self, source: array) -> bool:
        """Whether an array over the memory may hold any of the values."""
        is_within = self.parts is None or any(map(source.overlaps, self.parts))
        return is_within and not are_all(self.overwritten, source)

    def and_in(self, target: array) -> tuple[array, ...] | None:
        """The parts, and another one."""
        if self.parts is None or target.is_whole or len(self.parts) == MOST_PARTS:
            return None
        is_new = all(part.packed != target.packed for part in self.parts)
        return (*self.parts, target) if is_new else self.parts


Carrying = dict[Allocation, Carried]
"""Memory without gradients that holds values computed from arrays with gradients."""


def carrying_before(steps: Sequence[Step]) -> Iterator[tuple[int, Carrying]]:
    """What carries such values before each step, and after the last; whoever iterates may add to it."""
    carrying: Carrying = {}
    for i, step in enumerate(steps):
        yield i, carrying
        _carry(step, carrying)
    yield len(steps), carrying


def carriers_in_place(steps: Sequence[Step]) -> Collection[Allocation]:
    """The memory without gradients that carries such values, and that launches change as they read it.

    Their adjoints take its adjoint from launch to launch.
    """
    launches = (step for step in steps if isinstance(step.record, LaunchRecord))
    changed = {one.allocation for step in launches for one in step.reached if not one.requires_grad}
    if not changed:
        return ()
    found = set[Allocation]()
    for _, carrying in carrying_before(steps):
        found |= changed.intersection(carrying)
    return found


def ends_chain(record: Record) -> bool:
    """Whether a record is a clone that was asked to have no gradients, to say that a chain is to end."""
    return isinstance(record, CopyRecord) and record.how == DETACHED and not record.dest.requires_grad


def _carry(step: Step, carrying: Carrying) -> list[Found]:
    """The carriers that a step reads, with the records that computed them; updates `carrying` by the step."""
    passed = [source for source in step.read if source.allocation in carrying and _uses(step.record, source)]
    passed = [source for source in passed if carrying[source.allocation].are_in(source)]
    carried = [carrying[source.allocation].found(source, step.record) for source in passed]
    sources = [*_behind_switched_off(step.record), *_late(step.record), *step.reached]
    sources = [one for one in sources if one.requires_grad]
    roots = {one.allocation for one in sources}
    roots.update(*(carrying[source.allocation].roots for source in passed))
    late = next((one for one in carried if _late(one.producer)), None)
    begin = step.record if late is None else late.producer
    through = late or carried[0] if carried and _is_operator(step.record) else None
    for target in step.written:
        memory = target.allocation
        if not target.requires_grad and _leads(step.record, [*sources, *passed], target):
            before = carrying.get(memory, Carried(begin, frozenset(), parts=(), through=through))
            carrying[memory] = before._replace(
                roots=before.roots | roots, overwritten=(), parts=before.and_in(target)
            )
        elif memory in carrying and _replaces(step.record, target):
            parts = (*carrying[memory].overwritten, target)
            if are_all(parts, numbers_of(memory, scalar_of(target.dtype))):
                del carrying[memory]
            else:
                carrying[memory] = carrying[memory]._replace(overwritten=parts)
    return carried


def _leads(record: Record, sources: Sequence[array], target: array) -> bool:
    """Whether what a record wrote has a derivative by some of what it read."""
    if isinstance(record, LaunchRecord):
        return bool(sources) and record.leads(sources, target)
    is_computed = not isinstance(record, Flowing) or record.computes(target)
    return bool(sources) and is_computed and not ends_chain(record)


def _replaces(record: Record, target: array) -> bool:
    """Whether a record has written all elements of an array, whatever they were."""
    if isinstance(record, LaunchRecord):
        return any(record.arguments[i] is target and record.overwrites_all(i) for i in record.outline.written)
    return isinstance(record, CopyRecord | OverwriteRecord)


def _late(record: Record) -> Sequence[array]:
    return record.late if isinstance(record, LaunchRecord | HostCallRecord) else ()


def _uses(record: Record, source: array) -> bool:
    """Whether what a record computes depends on what it read."""
    if not isinstance(record, LaunchRecord):
        return True
    plan, arguments = record.kernel.plan, record.arguments
    return any(array_of(arguments[i]) is source for i in (*plan.read, *plan.numbers))


# ------------------------------------------------------------------------------ no adjoint


def switched_off(steps: Sequence[Step], live: Collection[int]) -> Iterator[Cut]:
    """The launches on the way from the loss that end it because their kernels have no backward pass."""
    for i in sorted(live):
        yield from _switched_off(steps[i].record)


def _switched_off(record: Record) -> Iterator[Cut]:
    """The cut at a launch that reads arrays with gradients, and whose kernel has no backward pass."""
    sources = _behind_switched_off(record)
    if sources and isinstance(record, LaunchRecord):
        yield Cut(record.place, ("off", record.kernel), partial(_explain_switched_off, record, sources))


def _behind_switched_off(record: Record) -> Sequence[array]:
    if not isinstance(record, LaunchRecord) or not record.outline.switched_off:
        return ()
    return [one for one in record.read if one.requires_grad and _uses(record, one)]


def _explain_switched_off(record: LaunchRecord, sources: Sequence[array]) -> Diagnostic:
    names = " and ".join(dict.fromkeys(called(source) for source in sources))
    remedy = "take enable_backward=False (or --no-backward) away"
    if "enable_backward" not in record.kernel.definition.options:
        remedy = "set kl.config.enable_backward = True"
    return Diagnostic(
        f"no gradient flows through {record.title} to {names}: "
        "the backward pass of the kernel is switched off",
        record.place.span,
        "cut",
        hint=f"{remedy}; if the gradient is meant to end there, pass record_tape=False to the launch",
        related=(Related("the kernel stands here:", record.kernel.span),),
    )


# ------------------------------------------------------------------------------ derivatives that are zero


def zeros_by_construction(
    steps: Sequence[Step], live: Collection[int], on_the_way: Collection[Allocation]
) -> Iterator[Cut]:
    """The arrays with gradients whose values reach the loss only where derivatives are zero."""
    records, passive = [step.record for step in steps], _passive_on_the_way(steps, live)
    ending = {i for i, one in enumerate(records) if isinstance(one, LaunchRecord) and one.dead_ends}
    before = carrying_before(steps) if passive or not ending.isdisjoint(live) else ()
    carried = {i: carrying.copy() for i, carrying in before if i in ending}
    reached = frozenset(on_the_way)

    def roots_of(i: int, source: array) -> Collection[Allocation]:
        if source.requires_grad:
            return (source.allocation,)
        found = carried[i].get(source.allocation)
        return found.roots if found is not None and reached.isdisjoint(found.roots) else ()

    for zero in zero_chains(records, live, on_the_way, lambda i, source: bool(roots_of(i, source)), passive):
        is_condition = zero.end.is_condition
        roots = (*roots_of(zero.position, zero.source),)
        describe = partial(_zero_by_construction, zero)
        key, line = (is_condition, zero.source.allocation), (zero.entry.place, zero.end)
        yield Cut(zero.entry.place, key, describe, roots, is_condition, line=line)


def _passive_on_the_way(steps: Sequence[Step], live: Collection[int]) -> Collection[Allocation]:
    """The memory that records compute and adjoints would reach, did it not lack gradients."""
    lacking = {one.allocation for step in steps for one in step.written if not one.requires_grad}
    found = set[Allocation]()
    for i in range(len(steps) - 1, -1, -1) if lacking else ():
        step = steps[i]
        leads = i in live or any(target.allocation in found for target in step.written)
        if not leads or ends_chain(step.record):
            continue
        sources = [one for one in step.read if one.allocation in lacking and one.allocation not in found]
        found.update(one.allocation for one in sources if step.record.would_reach(one))
    return found


def _zero_by_construction(zero: ZeroChain) -> Diagnostic:
    message = f"no gradient flows to {called(zero.source)}, read by {zero.entry.title}"
    if_meant = "; if the gradient is meant to end there, pass clone(..., requires_grad=False) of it"
    return zero.explain(message, if_meant)


# ------------------------------------------------------------------------------ launches that no tape saw


def unrecorded(steps: Sequence[Step], leaves: Iterable[tuple[int, array]]) -> list[Cut]:
    """The leaves that were computed or copied outside of the tape, and that have not changed since.

    Each of `leaves` stands with the step that reads it first.  What comes from results of the tape itself can
    hardly be meant as a leaf.  What was only copied may be meant, also if the pass reaches nothing else: it
    is not certain.
    """
    cuts: list[Cut] = []
    for i, leaf in leaves:
        record, memory = steps[i].record, leaf.allocation
        if memory.origin is None or (isinstance(record, LaunchRecord) and not record.reads_old(memory)):
            continue
        version = record.version_of(leaf) if isinstance(record, LaunchRecord) else memory.version
        origin = origin_of(memory) if version == memory.origin[0] else None
        if origin is not None and origin.alive:
            describe = partial(_unrecorded, leaf, record.place, origin)
            own = {target.allocation for step in steps[:i] for target in step.written}
            is_leaf = own.isdisjoint(origin.alive)
            key, is_certain = ("unrecorded", memory), not origin.made_by.is_copy
            cuts.append(Cut(record.place, key, describe, origin.alive, is_leaf, is_certain=is_certain))
    return cuts


def _unrecorded(leaf: array, place: Place, origin: Origin) -> Diagnostic:
    return origin.explain(called(leaf), place, threading.get_ident())


def warn_of_inputs_without_gradients(steps: Sequence[Step], live: Collection[int]) -> None:
    """Note with memory that live launches read why it has no gradient: it does not require one."""
    for i in live:
        record = steps[i].record
        if not isinstance(record, LaunchRecord):
            continue
        for k in record.outline.passive:
            argument = record.arguments[k]
            if isinstance(argument, array) and not argument.allocation.requires_grad:
                argument.allocation.missing = partial(_why, record.kernel.name, record.place)


def late_fields(record: LaunchRecord) -> Iterator[str]:
    """The fields of structs that were set to require gradients after they were launched as numbers."""
    structs = iter(record.structs)
    position = 0
    for formal in record.kernel.plan.formals or ():
        struct = next(structs) if isinstance(formal.type, Struct | StructArray) else None
        if isinstance(struct, Instance):
            yield from _late_in(struct, record, position)
        position += len(list(leaves(formal.type, formal.name)))


def _late_in(struct: Instance, record: LaunchRecord, first: int) -> Iterator[str]:
    traced = {id(elements) for elements in traced_in(struct)}
    for position, leaf in enumerate(struct._leaves() if traced else (), first):
        was_number = not isinstance(record.arguments[position], array | Reference)
        if id(leaf) in traced and was_number and record.would_reach_number(position):
            yield f"`{record.kernel.plan.parameters[position].name}`"


def _why(kernel: str, place: Place, memory: Allocation) -> Diagnostic:
    name = name_of_memory(memory)
    name = f"`{name}`" if name else "this array"
    message = f"{name} has no gradient: only what was computed from it requires one"
    hint = f"create it with requires_grad=True, before `{kernel}` is launched"
    return Diagnostic(message, place.span, "no-gradient", "warning", hint=hint)


def distinct(cuts: Iterable[Cut]) -> Iterable[Cut]:
    """One of some cuts for each group that belongs together, and of those at one line the first."""
    lines: dict[Hashable, Cut] = {}
    for key, cut in {cut.key: cut for cut in cuts}.items():
        lines.setdefault(cut.line or key, cut)
    return lines.values()


# --------------------------------------------------------------------------------------------------- refusals


def leads_nowhere(seeds: Iterable[array]) -> Diagnostic:
    """The error for seeds that depend on nothing that requires gradients."""
    names = [called(target, "the loss") for target in seeds]
    verb = "does" if len(names) == 1 else "do"
    message = f"{' and '.join(names)} {verb} not depend on any array that requires gradients"
    hint = "create the inputs of the derivative with requires_grad=True, before they are launched"
    return Diagnostic(message, caller().span, "unreached", hint=hint)


def refuse_lost(reached: Iterable[array], lost: Mapping[Allocation, Record]) -> None:
    """Raise where an adjoint goes to what a function has computed and not returned."""
    for elements in reached:
        record = lost.get(elements.allocation)
        if record is not None:
            message = f"{called(elements)} was computed by {record.title}, but not returned"
            hint = "return it from the function: its gradient has no other way in"
            raise TapeError.of(message, "lost", hint, record.place.span)


def refuse_latecomers(record: Record) -> None:
    """Raise where an array was set to require gradients after it was recorded."""
    for primal in _late(record):
        message = f"{called(primal)} requires gradients, but did not when {record.title} was recorded"
        raise TapeError.of(message, "late", "set requires_grad=True before that line", record.place.span)
    for field in late_fields(record) if isinstance(record, LaunchRecord) else ():
        message = f"{field} requires gradients, but did not when {record.title} was recorded"
        hint = "set requires_grad = True on the struct before the launch"
        raise TapeError.of(message, "late", hint, record.place.span)


def refuse_shared_gradients(shown: Iterable[tuple[array, bool]]) -> None:
    """Raise where one gradient array is to show those of several arrays that do not add up.

    `shown` are arrays and whether they are inputs, which add to it; anything else replaces it.
    """
    first: dict[Allocation, array] = {}
    replacing: set[Allocation] = set()
    shared: dict[Allocation, tuple[array, array]] = {}
    for source, is_input in shown:
        gradient = source.allocation.adjoint
        if gradient is None:
            continue
        if not is_input:
            replacing.add(gradient)
        other = first.setdefault(gradient, source)
        if other.allocation is not source.allocation:
            shared[gradient] = other, source
    for one, other in (pair for gradient, pair in shared.items() if gradient in replacing):
        message = f"{called(one)} and {called(other)} share one gradient array, and not both are inputs, "
        hint = "give each a gradient of its own: x.grad = None, or x.grad = kl.zeros_like(x)"
        problem = Diagnostic(f"{message}whose gradients add up", caller().span, "shared-gradient", hint=hint)
        raise TapeError(problem)
