"""Cuts: where a chain of gradients ends although values go on, and the messages about them.

An intermediate without gradients, a kernel without an adjoint, an integer between two floats, a launch that
no tape saw, a detour through the host (`detours`): each would leave a gradient too small without a word.
Every cut on a way from the loss is reported by `backward`: as a warning where some gradient is left, as the
error where none is.  Knows records and what they read; must not compute any adjoint.
"""

import threading
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from kernelab.autodiff.records.moves import CopyRecord, OverwriteRecord
from kernelab.autodiff.records.records import LaunchRecord, Record, Step
from kernelab.errors import Diagnostic, KernelWarning, Related, Span
from kernelab.lang.types import is_differentiable
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import Place, called
from kernelab.runtime.memory.memory import Allocation
from kernelab.runtime.memory.origin import origin_of


class Cut(Protocol):
    """A place where a chain ends."""

    @property
    def place(self) -> Place:
        """The line to warn at."""

    @property
    def key(self) -> object:
        """Equal for cuts that are worth one warning together."""

    def describe(self) -> Diagnostic:
        """The diagnostic of the cut, with advice."""


# ------------------------------------------------------------------------------ no requires_grad between


@dataclass(frozen=True, slots=True, eq=False)
class Passive:
    """An array without gradients in the middle of a chain that has them."""

    elements: array
    producer: Record
    consumer: Record

    @property
    def place(self) -> Place:
        return self.consumer.place

    @property
    def key(self) -> object:
        return self.elements.allocation

    def describe(self) -> Diagnostic:
        return Diagnostic(
            f"no gradient flows through {called(self.elements)}, read by {self.consumer.title}: "
            "it does not require gradients",
            self.place.span,
            "cut",
            hint="create it with requires_grad=True; if the gradient is meant to end there, pass "
            "clone(..., requires_grad=False) of it",
            related=(Related(f"{self.producer.title} computes it here:", self.producer.place.span),),
        )


def suspects(steps: Sequence[Step]) -> dict[int, list[Passive]]:
    """Reads of arrays without gradients that were computed from arrays with gradients."""
    carrying: Carrying = {}
    found: dict[int, list[Passive]] = {}
    if all(target.allocation.requires_grad for step in steps for target in step.written):
        return found
    for i, step in enumerate(steps):
        carried = _carry(step, carrying)
        if carried:
            found[i] = [Passive(source, producer, step.record) for source, producer in carried]
    return found


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


@dataclass(frozen=True, slots=True, eq=False)
class SwitchedOff:
    """A launch of a kernel whose backward pass its user has switched off."""

    record: LaunchRecord
    sources: Sequence[array]

    @property
    def place(self) -> Place:
        return self.record.place

    @property
    def key(self) -> object:
        return self.record.kernel

    def describe(self) -> Diagnostic:
        names = " and ".join(dict.fromkeys(called(source) for source in self.sources))
        remedy = "take enable_backward=False (or --no-backward) away"
        if "enable_backward" not in self.record.kernel.definition.options:
            remedy = "set kl.config.enable_backward = True"
        return Diagnostic(
            f"no gradient flows through {self.record.title} to {names}: "
            "the backward pass of the kernel is switched off",
            self.place.span,
            "cut",
            hint=f"{remedy}; if the gradient is meant to end there, pass record_tape=False to the launch",
            related=(Related("the kernel stands here:", self.record.kernel.span),),
        )


def switched_off(steps: Sequence[Step], live: Collection[int]) -> Iterator[SwitchedOff]:
    """The launches on the way from the loss that end it because their kernels have no backward pass."""
    for i in sorted(live):
        record = steps[i].record
        if isinstance(record, LaunchRecord) and record.outline.switched_off:
            sources = [one for one in record.read if one.requires_grad and _uses(record, one)]
            if sources:
                yield SwitchedOff(record, sources)


# ------------------------------------------------------------------------------ an integer between


@dataclass(frozen=True, slots=True, eq=False)
class Rounded:
    """An array that reaches the loss only as an integer."""

    elements: array
    record: LaunchRecord
    span: Span
    through: LaunchRecord | None

    @property
    def place(self) -> Place:
        return self.record.place

    @property
    def key(self) -> object:
        return self.elements.allocation

    def describe(self) -> Diagnostic:
        related = [Related("it becomes an integer here:", self.span)]
        if self.through is not None:
            related.append(Related("and a float again here:", self.through.place.span))
        return Diagnostic(
            f"no gradient flows to {called(self.elements)}, read by {self.record.title}: "
            "its values go on as integers only, and these have no derivative",
            self.place.span,
            "cut",
            hint="leave them floats; if the gradient is meant to end there, pass "
            "clone(..., requires_grad=False) of it",
            related=tuple(related),
        )


def rounded(
    steps: Sequence[Step], live: Collection[int], on_the_way: Collection[Allocation]
) -> Iterator[Rounded]:
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
                yield Rounded(source, record, cast.span, through)


# ------------------------------------------------------------------------------ launches that no tape saw


@dataclass(frozen=True, slots=True, eq=False)
class Unrecorded:
    """An array that the tape takes for a leaf, though a launch outside of the tape computed it."""

    elements: array
    reader: LaunchRecord

    @property
    def place(self) -> Place:
        return self.reader.place

    @property
    def key(self) -> object:
        return self.elements.allocation

    @property
    def sources(self) -> list[Allocation]:
        """The memory that the launch read and that no gradient has reached."""
        origin = origin_of(self.elements.allocation)
        return [] if origin is None else origin.alive

    def describe(self) -> Diagnostic:
        origin = origin_of(self.elements.allocation)
        assert origin is not None
        return origin.explain(called(self.elements), self.place, threading.get_ident())


def unrecorded(steps: Sequence[Step], leaves: Iterable[tuple[int, array]]) -> list[Unrecorded]:
    """The leaves, each with the step that reads it first, that came from elsewhere and have not changed."""
    found: list[Unrecorded] = []
    for i, leaf in leaves:
        record, origin = steps[i].record, leaf.allocation.origin
        if origin is not None and isinstance(record, LaunchRecord) and record.version_of(leaf) == origin[0]:
            found.append(Unrecorded(leaf, record))
    return [cut for cut in found if cut.sources]


# ------------------------------------------------------------------------------ telling


def described(cuts: Iterable[Cut]) -> tuple[Diagnostic, ...]:
    """The diagnostics of all cuts, one for each group that belongs together."""
    return tuple(cut.describe() for cut in _distinct(cuts))


def _distinct(cuts: Iterable[Cut]) -> Iterable[Cut]:
    return {(type(cut), cut.key): cut for cut in cuts}.values()


def warn_of(cuts: Iterable[Cut]) -> None:
    """Warn of each cut, once for those that belong together."""
    for cut in _distinct(cuts):
        message = cut.describe().render()
        warnings.warn_explicit(message, KernelWarning, cut.place.filename, cut.place.line)


# ------------------------------------------------------------------------------------------------ on the way


def cuts_between(
    steps: Sequence[Step], live: Collection[int], on_the_way: Collection[Allocation]
) -> list[Cut]:
    """The cuts that adjoints meet among the records, of which `live` ones are on their way."""
    passive = suspects(steps)
    met = (cut for i in sorted(passive, reverse=True) if i in live for cut in passive[i])
    cuts: list[Cut] = [cut for cut in met if cut.consumer.would_reach(cut.elements)]
    return [*cuts, *switched_off(steps, live), *rounded(steps, live, on_the_way)]
