"""Finds the launch, thread and line where a value or an adjoint first became NaN or infinite.

`backward(check_finite=True)` looks at the adjoints after every record.  Where one is not finite, the guilty
launch alone is run again, by a program in which every float is accompanied by where it turned
(`passes.common.shadow_values`), on copies of what it writes.  As long as the loss and all adjoints are
finite there is no message, whatever other arrays hold.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kernelab.autodiff.records.adjoint_buffers import Adjoints
from kernelab.autodiff.records.backward import BackwardPlan
from kernelab.autodiff.records.records import LaunchRecord, Record
from kernelab.autodiff.tape.checkpoint import CheckpointRecord
from kernelab.autodiff.tape.seeds import Seeds, values_of
from kernelab.autodiff.transforms.base_level import BASE
from kernelab.backend.common.backends import thread_text
from kernelab.errors import Diagnostic, NotFiniteError, Related
from kernelab.lang.types import shape_of
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import called, caller, refusal
from kernelab.runtime.kernel.dispatch import Culprit
from kernelab.runtime.kernel.program import Program, Pullback
from kernelab.runtime.launch.checked import turned_here
from kernelab.runtime.memory.memory import duplicate_of, zeros_like_memory


def check_seeds(records: Sequence[Record], live: Iterable[int], seeds: Seeds) -> None:
    """Raise NotFiniteError if a cotangent is not finite, or the loss itself."""
    for target, cotangent in seeds.items():
        word = _first(np.broadcast_to(values_of(cotangent), target.outline().shape), target)
        if word:
            raise refusal(NotFiniteError, f"the cotangent of {called(target)} is {word}", "not-finite")
    for target in seeds:
        word = _first(target.host(), target)
        if word:
            raise NotFiniteError(_primal_culprit(records, sorted(live)) or _lost(target, word))


def check_sums(leaves: Iterable[array]) -> None:
    """Raise NotFiniteError if a gradient that a sweep is going to add to is not finite already."""
    for leaf in leaves:
        gradient = leaf.allocation.adjoint
        word = "" if gradient is None else _first(leaf.twin(gradient).host(), leaf)
        if word:
            message = f"the gradient of {called(leaf)} is {word} since an earlier backward pass"
            message += ", and this one would add to it"
            hint = "clear it first: tape.zero(), or x.grad.zero_()"
            raise refusal(NotFiniteError, message, "not-finite", hint)


# ------------------------------------------------------------------------------ in the primal


def _primal_culprit(records: Sequence[Record], live: Sequence[int]) -> Diagnostic | None:
    """The diagnostic for the first launch on the path to the loss that computed a NaN or an infinity."""
    for i in live:
        record = records[i]
        if isinstance(record, CheckpointRecord):
            with record.again() as (inner, results):  # its launches run again for it
                plan = BackwardPlan(tuple(inner.records), [*results, *record.outside], shared=())
                diagnostic = _primal_culprit(inner.records, sorted(plan.live))
            if diagnostic is not None:
                return diagnostic
        if not isinstance(record, LaunchRecord):
            continue
        wrong = [(a, _first(a.host(), a)) for a in record.written if _is_current(record, a)]
        if len(wrong) == len(record.written) and not any(word for _, word in wrong):
            continue
        culprit = _culprit(record)
        if culprit is not None:
            return _told(records[:i], record, culprit)
        for elements, word in wrong:
            if word:
                return _by_output(record, elements, word)
    return None


def _culprit(record: LaunchRecord) -> Culprit | None:
    """The place in a launch where a value became NaN or infinite; None if none did or inputs are lost."""
    arguments = as_launched(record)
    if arguments is not None:
        return record.trace_by(record.kernel.program.tracing(), arguments)
    again = record.pullback.again if isinstance(record.pullback, Pullback) else None
    if again is None:
        return None
    arguments = as_launched(record, again)
    return None if arguments is None else record.trace_by(again.tracing(), arguments, record.residuals)


def _is_current(record: LaunchRecord, elements: array) -> bool:
    """Whether an array still holds what a launch left in it."""
    return any(
        record.arguments[i].allocation is elements.allocation and elements.allocation.version == version
        for i, version in zip(record.program.arrays, record.versions, strict=True)
    )


def lost_inputs(record: LaunchRecord, again: Program | None = None) -> Iterator[int]:
    """The positions of arrays that a launch, or the program `again` of it, reads and whose values are gone.

    What `again` reads the launch has not changed itself.
    """
    plan, arguments = record.kernel.plan, record.arguments
    saved = {i for i, watch in record.snapshots if watch.saved is not None}
    # Of a struct, one field may have been overwritten, and memory has one version for all of them.
    spent = {i for i, watch in record.snapshots if watch.spent}
    intact = {i for i, _ in getattr(record.pullback, "needed", ()) if i not in spent}
    written = [arguments[i] for i in plan.written] if again is None else ()
    for i in plan.read if again is None else again.reads.intersection(plan.read):
        is_there = i in intact or _is_current(record, arguments[i])
        if i not in saved and (any(map(arguments[i].overlaps, written)) or not is_there):
            yield i


def as_launched(record: LaunchRecord, again: Program | None = None) -> dict[int, array] | None:
    """Arguments to run a launch, or `again`, as it ran, on copies of what it writes; None if one is lost."""
    if any(True for _ in lost_inputs(record, again)):
        return None
    read = [i for i in record.kernel.plan.read if again is None or i in again.reads]
    pairs = ((i, watch.saved) for i, watch in record.snapshots if i in read)
    return _with_copies(record, {i: saved for i, saved in pairs if saved is not None}, read)


def _with_copies(record: LaunchRecord, inputs: Mapping[int, array], reads: Iterable[int]) -> dict[int, array]:
    """The inputs, and memory to write to; what shared memory shares it still.  `reads` are positions.

    What is only added to starts from zero: what it was added to is not known any more.
    """
    plan, arguments = record.kernel.plan, record.arguments
    read = {arguments[i].allocation for i in reads if i not in inputs}
    written = {arguments[i].allocation for i in plan.written}
    copies = {one: duplicate_of(one) if one in read else zeros_like_memory(one) for one in written}
    moved = [i for i in record.program.arrays if i not in inputs and arguments[i].allocation in copies]
    return {**inputs, **{i: arguments[i].twin(copies[arguments[i].allocation]) for i in moved}}


def _told(before: Sequence[Record], record: LaunchRecord, culprit: Culprit) -> Diagnostic:
    thread = thread_text(culprit.thread, record.grid.extents, record.kernel.plan.coordinates)
    launched = Related("it was launched here:", record.place.span)
    if culprit.value:
        message = f"the argument `{culprit.value}` of {record.title} is {culprit.word}"
        return Diagnostic(message, record.place.span, "not-finite", hint="pass a finite number")
    if not culprit.array:
        return turned_here(culprit, thread, record.title, launched)
    source = record.named[culprit.array]
    writes = ((record, w) for record in reversed(before) for w in record.written)
    maker = next((one for one, w in writes if source.allocation is w.allocation and source.overlaps(w)), None)
    place = maker.place if maker is not None else None
    origin = "an input of the tape: no launch computed it" if maker is None else f"set by {maker.title}"
    is_changed = any(map(source.overlaps, record.written))
    word = (not is_changed and _first(source.host(), source)) or culprit.word
    return Diagnostic(
        f"{called(source)} is {word} when {record.title} reads it, in thread {thread}; it is {origin}",
        culprit.span,
        "not-finite",
        hint="look at where its values come from",
        related=(launched, *((Related("it was set here:", place.span),) if place else ())),
    )


def _by_output(record: LaunchRecord, written: array, word: str) -> Diagnostic:
    return Diagnostic(
        f"{record.title} leaves {called(written)} {word}",
        record.place.span,
        "not-finite",
        hint="what it read is overwritten by now, so the line is not known: launch it into another array",
        related=(Related("the kernel stands here:", record.kernel.span),),
    )


def _lost(target: array, word: str) -> Diagnostic:
    return Diagnostic(
        f"{called(target)} is {word}; what it was computed from is overwritten by now",
        caller().span,
        "not-finite",
        hint="call backward(check_finite=True) right after the launches, or write into other arrays",
    )


# ------------------------------------------------------------------------------ in the adjoint


def pull_finite(records: Sequence[Record], i: int, adjoints: Adjoints) -> None:
    """Take the adjoints through record `i`; raises NotFiniteError if one is not finite afterwards."""
    record = records[i]
    restore = adjoints.kept(a.allocation for a in (*record.reached, *record.written))
    if isinstance(record, CheckpointRecord):
        record.pull(adjoints, BASE, pull_finite)
    else:
        if isinstance(record, LaunchRecord):
            record.check(adjoints)
        record.pull(adjoints, BASE)
    for primal in dict.fromkeys(record.reached):
        bar = adjoints.known(primal)
        word = "" if bar is None else _first(bar.host(), primal)
        if not word:
            continue
        restore()
        raise NotFiniteError(_turned(records[:i], record, primal, word, adjoints))


def _turned(
    before: Sequence[Record], record: Record, primal: array, word: str, adjoints: Adjoints
) -> Diagnostic:
    """The diagnostic for a record whose adjoint, run on these adjoints, makes one that is not finite."""
    culprit, turns = None, f"the gradient of {called(primal)} turns {word}"
    if isinstance(record, LaunchRecord) and isinstance(record.pullback, Pullback):
        culprit = record.trace(adjoints)
    if culprit is None:
        return Diagnostic(f"{turns} in the adjoint of {record.title}", record.place.span, "not-finite")
    assert isinstance(record, LaunchRecord)
    if culprit.value or culprit.array in record.named:
        return _told(before, record, culprit)
    thread = thread_text(culprit.thread, record.grid.extents, record.kernel.plan.coordinates)
    return Diagnostic(
        f"{turns}: it begins at this line, where the adjoint of {record.title} computes {culprit.word} "
        f"in thread {thread}",
        culprit.span,
        "not-finite",
        hint="its slope is infinite there: keep the argument away from the edge of its domain, or guard "
        "the line by where(...)",
        related=(Related("it was launched here:", record.place.span),),
    )


def _first(values: Any, elements: array) -> str:
    """The first element that is not finite, with its index; "" if there is none."""
    wrong = np.argwhere(~np.isfinite(np.asarray(values, np.float64)))
    if not len(wrong):
        return ""
    position = tuple(int(i) for i in wrong[0])
    index = position[: len(position) - len(shape_of(elements.dtype))]
    return f"{np.asarray(values)[position]} at {list(index)}"
