"""Finds the lines at which the gradient of one element became zero, on all ways from the loss.

A sweep of its own, which publishes nothing.  Where a launch adds zero to the element, one of its threads runs
again by the interpreter; a cotangent that it read as zero is followed into the later launches.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from kernelab.autodiff.records.adjoint_buffers import Adjoints
from kernelab.autodiff.records.coverage import may_touch
from kernelab.autodiff.records.provenance import HostRead
from kernelab.autodiff.records.records import LaunchRecord, Record
from kernelab.autodiff.records.zero_chains import loose_ends
from kernelab.autodiff.tape.measures import sweep_on_copies
from kernelab.autodiff.tape.seeds import Seeds
from kernelab.autodiff.transforms.base_level import BASE
from kernelab.backend.cpu.interpreter import can_interpret
from kernelab.backend.cpu.observed_adjoint import UNUSED, Cotangent, births, changes_and_skips, trace_zeros
from kernelab.data_classes import dataclass, replace
from kernelab.errors import Span
from kernelab.lang.ir import Function, Loop
from kernelab.lang.types import scalar_of
from kernelab.passes.access.dead_ends import CONDITION, INDEX
from kernelab.passes.common.copying import inline
from kernelab.passes.common.scalarise import scalarise
from kernelab.runtime.array.array import array
from kernelab.runtime.kernel.program import Pullback
from kernelab.runtime.memory.memory import Allocation

UNREAD = "none of its threads reads the element"

MOST_THREADS, MOST_ELEMENTS = 3, 24
"""How many threads of a launch are looked into, and how many elements on the way to the loss."""


@dataclass(frozen=True, slots=True)
class ZeroLine:
    """A line at which a product with a gradient became zero: in which record and thread, and why.

    `record` is its number on the tape, from 1, None for a line of the host; `component` is the index of the
    one component of a vector or matrix that is zero.
    """

    record: int | None
    title: str
    place: str
    thread: tuple[int, ...] | None
    line: Span | None
    reason: str
    component: tuple[int, ...] = ()


def zero_lines(
    records: Sequence[Record], seeds: Seeds, memory: Allocation, offset: int, size: int
) -> list[ZeroLine]:
    """The lines at which the gradient of some bytes at an offset in a memory became zero, the last first."""
    lines: dict[tuple[object, ...], ZeroLine] = {}
    waiting: list[Element] = [(memory, range(offset, offset + size), -1)]
    visited = {waiting[0][:2]}
    for target, at, reader in waiting:
        for zero in _zeros_of(records, seeds, target, at, reader):
            if isinstance(zero, ZeroLine):
                line = (zero.line.source, zero.line.line) if zero.line else None
                lines.setdefault((zero.record, line, zero.reason), zero)
            elif len(visited) < MOST_ELEMENTS and zero[:2] not in visited:
                visited.add(zero[:2])
                waiting.append(zero)
    told = [zero for zero in lines.values() if zero.reason not in (UNUSED, UNREAD)] or lines.values()
    return sorted(told, key=lambda zero: -(zero.record or 0))


Element = tuple[Allocation, range, int]
"""Some memory, the bytes of an element there, and the record that read its cotangent."""


def _zeros_of(
    records: Sequence[Record], seeds: Seeds, memory: Allocation, bytes: range, reader: int
) -> Iterator[ZeroLine | Element]:
    """What makes the cotangent of an element zero behind record `reader`, or other zeros to look at."""
    results: list[ZeroLine | Element] = []

    def pull(records: Sequence[Record], i: int, adjoints: Adjoints) -> None:
        record = records[i]
        is_read = any(one.allocation is memory for one in record.read)
        if i > reader and isinstance(record, LaunchRecord) and is_read:
            results.extend(_inside(i, record, memory, bytes, adjoints))
        if i > reader:
            record.pull(adjoints, BASE)

    sweep_on_copies(records, seeds, pull)
    yield from results
    if not results and reader >= 0:
        record, is_seed = records[reader], any(one.allocation is memory for one in seeds)
        why = f"{'the cotangent of' if is_seed else 'what comes back to'} its result is 0"
        yield _of_record(reader, record, why)


def _inside(
    i: int, record: LaunchRecord, memory: Allocation, bytes: range, adjoints: Adjoints
) -> Iterator[ZeroLine | Element]:
    """The zeros of one launch."""
    here = _of_record(i, record, "")
    pullback, ends = record.pullback, [*_dead_ends(here, record, memory, conditions=False)]
    active = {one.allocation for one in record.active}
    if memory not in active or not isinstance(pullback, Pullback):
        yield from _dead_ends(here, record, memory)
        return
    adjoint = scalarise(inline(pullback.unmerged.adjoint))
    if not can_interpret(adjoint):
        return
    if not may_touch(record, memory, bytes):
        yield from [*_dead_ends(here, record, memory)] or [replace(here, reason=UNREAD)]
        return
    saved = record.saved()  # alive until the runs are over
    args = b"".join(record.adjoint_parts(adjoints, saved))
    start = adjoints.memory[memory].address
    element = range(start + bytes.start, start + bytes.stop)
    with adjoints.unchanged(active):
        changes, skips = changes_and_skips(adjoint, args, element)
    threads = dict.fromkeys(change.thread for change in changes if not np.any(change.value))
    bars = _owners(record, adjoint, active)
    for thread in _spread([*threads]):
        at = replace(here, thread=record.grid.position(thread))
        with adjoints.unchanged(active):
            cotangents = trace_zeros(adjoint, args, thread, element)
        zeros = [z for one in cotangents for z in _told(at, one, bars, adjoints, i, loops=not ends)]
        yield from zeros
        if came := [zero for zero in zeros if isinstance(zero, tuple)]:
            with adjoints.unchanged(active):
                _fill(came, bars, adjoints)  # as if no zero had come: what would become zero here?
                cotangents = trace_zeros(adjoint, args, thread, element)
            for one in cotangents:
                if one.is_zero:
                    yield from _told(at, one, bars, adjoints, i, loops=not ends)
    for skip in skips:
        where = record.grid.position(skip.thread)
        yield replace(here, thread=where, line=skip.span, reason="the way that was taken does not use it")
    if not (skips or changes):
        ends = [*_dead_ends(here, record, memory)] or [replace(here, reason=UNREAD)]
    yield from ends


_REASONS = {CONDITION: "only a condition hangs on it", INDEX: "it only picks an element"}


def _dead_ends(
    here: ZeroLine, record: LaunchRecord, memory: Allocation, conditions: bool = True
) -> Iterator[ZeroLine]:
    """The lines at which, by the text of a kernel, an array loses its derivative."""
    for end in record.program.dead_ends:
        is_asked = conditions or not end.is_condition
        if is_asked and getattr(record.named[end.source], "allocation", None) is memory:
            why = _REASONS.get(end.word, f"`{end.word}` has derivative 0")
            yield replace(here, line=end.span, reason=why)


def dead_ends_behind(records: Sequence[Record], memory: Allocation) -> Iterator[ZeroLine]:
    """The same, without conditions, for all launches that an array's values come to."""
    reached = {memory}
    for i, record in enumerate(records):
        if reached.isdisjoint(one.allocation for one in record.read):
            continue
        reached.update(one.allocation for one in record.written)
        if isinstance(record, LaunchRecord):
            here = _of_record(i, record, "")
            for source in {one.allocation: None for one in record.read if one.allocation in reached}:
                yield from _dead_ends(here, record, source, conditions=False)


def ends_before(
    records: Sequence[Record], seeds: Seeds, memory: Allocation, taken: Sequence[HostRead]
) -> Iterator[ZeroLine]:
    """Where the values of an array end, if none of them reaches what the sweep starts with.

    `taken` are the host's reads of arrays, in order.
    """
    ends = loose_ends((record.flow() for record in records), {memory}, [one.allocation for one in seeds])
    for i, written in (ends or {}).items():
        record = records[i]
        named = record.named.items() if isinstance(record, LaunchRecord) else ()
        names = [f"its `{name}`" for name, given in named if any(given is one for one in written)]
        reason = f"nothing that leads to the loss reads {' and '.join(names) or 'what it wrote'}"
        yield _of_record(i, record, reason)
    for read in taken:
        if read.elements.allocation is memory:
            span = read.place.span
            yield ZeroLine(None, "the host", str(read.place), None, span, "the host took its values")
    if ends == {}:
        yield ZeroLine(None, "", "", None, None, "nothing on the tape reads it")


def _of_record(i: int, record: Record, reason: str) -> ZeroLine:
    return ZeroLine(i + 1, record.title, str(record.place), None, None, reason)


def _told(
    here: ZeroLine, cotangent: Cotangent, bars: dict[str, array], adjoints: Adjoints, i: int, loops: bool
) -> Iterator[ZeroLine | Element]:
    """The lines at which a zero began, also those of loops; the elements that were zero already."""
    for one, reason in births(cotangent):
        if reason and (loops or not isinstance(one.statement, Loop)):
            yield replace(here, line=one.span, reason=reason)
        elif one.read is not None and one.read[0].hint in bars:
            memory = bars[one.read[0].hint].allocation
            start = one.read[1] - adjoints.memory[memory].address
            yield memory, range(start, start + 1), i


def _fill(elements: Sequence[Element], bars: dict[str, array], adjoints: Adjoints) -> None:
    """Make cotangents 1 that are zero."""
    widths = {bar.allocation: scalar_of(bar.dtype).dtype for bar in bars.values()}
    for memory, bytes, _ in elements:
        held = np.frombuffer(adjoints.memory[memory].buffer(), np.uint8)
        held[bytes.start : bytes.start + widths[memory].itemsize].view(widths[memory])[:] = 1.0


def _owners(record: LaunchRecord, adjoint: Function, active: set[Allocation]) -> dict[str, array]:
    """The arrays of the launch by the names of their adjoints."""
    bars = {param.hint for param in adjoint.params}
    named = ((f"{name}_bar", one) for name, one in record.named.items())
    return {bar: one for bar, one in named if bar in bars and getattr(one, "allocation", None) in active}


def _spread(threads: Sequence[int]) -> Sequence[int]:
    """Some of the threads, from the first to the last: those at a border may say little of the others."""
    if len(threads) <= MOST_THREADS:
        return threads
    return [threads[k * (len(threads) - 1) // (MOST_THREADS - 1)] for k in range(MOST_THREADS)]
