"""Cuts: where a chain of gradients ends although values go on, and the messages about them.

An intermediate without gradients, a kernel without an adjoint, an integer between two floats, a launch that
no tape saw, a detour through the host (`detours`): each would leave a gradient too small without a word.
Every cut on a way from the loss is reported by `backward`: as a warning where some gradient is left, as the
error where none is.  Knows records and what they read; must not compute any adjoint.
"""

import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial

from kernelab.autodiff.records.moves import CopyRecord, OverwriteRecord
from kernelab.autodiff.records.provenance import Cut
from kernelab.autodiff.records.records import LaunchRecord, Record, Step
from kernelab.errors import Diagnostic, Related, Span
from kernelab.lang.types import is_differentiable
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import Place, called
from kernelab.runtime.memory.memory import Allocation
from kernelab.runtime.memory.origin import Origin, origin_of

# ------------------------------------------------------------------------------ no requires_grad between


def passive_cuts(steps: Sequence[Step], live: Collection[int]) -> dict[int, list[Cut]]:
    """Reads by live records of arrays without gradients that were computed from arrays with gradients."""
    carrying: Carrying = {}
    found: dict[int, list[Cut]] = {}
    if all(target.allocation.requires_grad for step in steps for target in step.written):
        return found
    for i, step in enumerate(steps):
        carried, reader = _carry(step, carrying), step.record
        cuts = [_passive(*one, reader) for one in carried if i in live and reader.would_reach(one[0])]
        if cuts:
            found[i] = cuts
    return found


def _passive(elements: array, producer: Record, consumer: Record) -> Cut:
    """The cut at an array without gradients in the middle of a chain that has them."""

    def describe() -> Diagnostic:
        return Diagnostic(
            f"no gradient flows through {called(elements)}, read by {consumer.title}: "
            "it does not require gradients",
            consumer.place.span,
            "cut",
            hint="create it with requires_grad=True; if the gradient is meant to end there, pass "
            "clone(..., requires_grad=False) of it",
            related=(Related(f"{producer.title} computes it here:", producer.place.span),),
        )

    return Cut(consumer.place, ("passive", elements.allocation), describe)


Carrying = dict[Allocation, Record]
"""Memory without gradients that holds values computed from arrays with gradients, and what computed them."""


def carried_at(steps: Sequence[Step], records: Collection[int]) -> dict[int, Collection[Allocation]]:
    """The arrays that carry such values after a number of records."""
    carrying: Carrying = {}
    found: dict[int, Collection[Allocation]] = {0: ()}
    for i, step in enumerate(steps, 1):
        _carry(step, carrying)
        if i in records:
            found[i] = frozenset(carrying)
    return found


def _carry(step: Step, carrying: Carrying) -> list[tuple[array, Record]]:
    """The carriers that a step reads, with the records that computed them; updates `carrying` by the step."""
    passed = [source for source in step.read if source.allocation in carrying and _uses(step.record, source)]
    carried = [(source, carrying[source.allocation]) for source in passed]
    depends = bool(carried) or any(source.requires_grad for source in step.reached)
    for target in step.written:
        if depends and not target.requires_grad and not _detaches(step.record):
            carrying.setdefault(target.allocation, step.record)
        elif isinstance(step.record, CopyRecord | OverwriteRecord):
            carrying.pop(target.allocation, None)
    return carried


def _uses(record: Record, source: array) -> bool:
    """Whether what a record computes depends on what it read."""
    if not isinstance(record, LaunchRecord):
        return True
    plan, arguments = record.kernel.plan, record.call.arguments
    used = (arguments[i] for i in (*plan.read, *plan.numbers))
    return any(getattr(argument, "array", argument) is source for argument in used)


def _detaches(record: Record) -> bool:
    """Cloning without gradients is how one says that a chain is to end."""
    return isinstance(record, CopyRecord) and record.how == "clone"


# ------------------------------------------------------------------------------ no adjoint


def switched_off(steps: Sequence[Step], live: Collection[int]) -> Iterator[Cut]:
    """The launches on the way from the loss that end it because their kernels have no backward pass."""
    for i in sorted(live):
        record = steps[i].record
        if isinstance(record, LaunchRecord) and record.outline.switched_off:
            sources = [one for one in record.read if one.requires_grad and _uses(record, one)]
            if sources:
                yield Cut(record.place, ("off", record.kernel), partial(_switched_off, record, sources))


def _switched_off(record: LaunchRecord, sources: Sequence[array]) -> Diagnostic:
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


# ------------------------------------------------------------------------------ an integer between


def rounded(
    steps: Sequence[Step], live: Collection[int], on_the_way: Collection[Allocation]
) -> Iterator[Cut]:
    """The arrays with gradients whose values reach the loss as integers, and in no other way."""
    integers: dict[Allocation, LaunchRecord] = {}  # those that become floats on the way, and where
    for i in range(max(live, default=-1), -1, -1):
        record = steps[i].record
        if not isinstance(record, LaunchRecord) or not record.call.kernel.casts:
            continue
        arguments = record.arguments
        for cast in record.kernel.casts:
            source, target = arguments[cast.source], arguments[cast.target]
            through = integers.get(target.allocation)
            if through is None and not (i in live and target.allocation in on_the_way):
                continue
            if not is_differentiable(source.dtype):
                integers.setdefault(source.allocation, through or record)
            elif source.requires_grad and source.allocation not in on_the_way:
                describe = partial(_rounded, source, record, cast.span, through)
                yield Cut(record.place, ("rounded", source.allocation), describe)


def _rounded(elements: array, record: LaunchRecord, span: Span, through: LaunchRecord | None) -> Diagnostic:
    related = [Related("it becomes an integer here:", span)]
    if through is not None:
        related.append(Related("and a float again here:", through.place.span))
    return Diagnostic(
        f"no gradient flows to {called(elements)}, read by {record.title}: "
        "its values go on as integers only, and these have no derivative",
        record.place.span,
        "cut",
        hint="leave them floats; if the gradient is meant to end there, pass "
        "clone(..., requires_grad=False) of it",
        related=tuple(related),
    )


# ------------------------------------------------------------------------------ launches that no tape saw


def unrecorded(steps: Sequence[Step], leaves: Iterable[tuple[int, array]]) -> list[Cut]:
    """The leaves that a launch outside of the tape computed, and that have not changed since.

    Each of `leaves` stands with the step that reads it first.
    """
    cuts: list[Cut] = []
    for i, leaf in leaves:
        record, memory = steps[i].record, leaf.allocation
        if memory.origin is None or not isinstance(record, LaunchRecord):
            continue
        origin = origin_of(memory) if record.version_of(leaf) == memory.origin[0] else None
        if origin is not None and origin.alive:
            describe = partial(_unrecorded, leaf, record.place, origin)
            cuts.append(Cut(record.place, ("unrecorded", memory), describe, origin.alive))
    return cuts


def _unrecorded(leaf: array, place: Place, origin: Origin) -> Diagnostic:
    return origin.explain(called(leaf), place, threading.get_ident())


# ------------------------------------------------------------------------------ telling


def described(cuts: Iterable[Cut]) -> tuple[Diagnostic, ...]:
    """The diagnostics of all cuts, one for each group that belongs together."""
    return tuple(cut.describe() for cut in _distinct(cuts))


def _distinct(cuts: Iterable[Cut]) -> Iterable[Cut]:
    return {cut.key: cut for cut in cuts}.values()


def warn_of(cuts: Iterable[Cut]) -> None:
    """Warn of each cut, once for those that belong together."""
    for cut in _distinct(cuts):
        cut.warn()


# ------------------------------------------------------------------------------------------------ on the way


def cuts_between(
    steps: Sequence[Step], live: Collection[int], on_the_way: Collection[Allocation]
) -> list[Cut]:
    """The cuts that adjoints meet among the records, of which `live` ones are on their way."""
    passive = passive_cuts(steps, live)
    cuts = [cut for i in sorted(passive, reverse=True) for cut in passive[i]]
    return [*cuts, *switched_off(steps, live), *rounded(steps, live, on_the_way)]
