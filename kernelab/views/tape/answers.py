"""Answers to clicks on a tape: an array's values, a launch's kernel, one thread, contributions to a gradient.

Pure functions from a digest and a question to markup; must not know who asks.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from kernelab.autodiff.inspect.contributions import EXACTNESS, Contribution, Contributions, contributions
from kernelab.autodiff.inspect.thread_run import MOST, ThreadRun, trace_record, trace_thread
from kernelab.autodiff.inspect.zero_lines import ZeroLine
from kernelab.autodiff.records.records import LaunchRecord, Record
from kernelab.backend.cpu.interpreter import Seen
from kernelab.errors import NOWHERE, KernelError, counted
from kernelab.runtime.array.array import array
from kernelab.runtime.kernel.program import Pullback
from kernelab.views.kernel.kernel_facts import view
from kernelab.views.pages import markup
from kernelab.views.pages.markup import Below, Cell, Node, Run, Style, Table, cell, words, written
from kernelab.views.tape.arrays import array_view
from kernelab.views.tape.digest import Digest, label
from kernelab.views.tape.tape_view import norms_view

FEW = 3.0
"""Of so few digits that are left a reader is warned."""

FIRST, LAST = 120, 30
"""Of a long run, how many values are shown at its ends."""


def thread_view(run: ThreadRun) -> Node:
    """The tables of a run."""
    place = run.thread[0] if len(run.thread) == 1 else run.thread
    how, primal = "run alone on copies", "primal"
    if run.record is not None:
        how = f"launch {run.record} of the tape, run again"
        primal += ", as far as the adjoint repeats it"
    title = words(Run(f"thread {place}", "strong"), f" of {run.kernel}, {how}", level=1)
    lost = [words(Run("⚠ ", "bad"), sentence) for sentence in run.lost]
    parts: list[Node] = [title, *lost, _table(primal, run.primal)]
    if run.note:
        parts.append(words(Run("no adjoint: ", "dim"), run.note))
    elif run.adjoint:
        parts.append(_table("adjoint, from the last line to the first", run.adjoint))
    else:
        parts.append(words(Run("no adjoint: ", "dim"), "no gradient is handed on here"))
    return Below(tuple(parts))


def _table(title: str, seen: Sequence[Seen]) -> Node:
    if not seen:
        return words(f"{title}: nothing is read, computed or written here")
    several = len({one.span.source for one in seen if one.span != NOWHERE}) > 1

    def row(i: int) -> markup.Row:
        return _row(seen[i], seen[i - 1] if i else None, several)

    rows = markup.ends_of(len(seen), row, FIRST, LAST)
    if len(seen) >= MOST:
        title += f", its first {MOST:,} values"
    head: tuple[str, ...] = ("line", "source", "", "value")
    if any(one.left is not None for one in seen):
        head = (*head, "in float64", "digits")
        empty = cell("", is_number=True)
        rows = tuple(row if len(row) == len(head) else (*row, cell(""), empty) for row in rows)
    return Table(title, head, rows)


def _row(one: Seen, before: Seen | None, several: bool) -> tuple[Cell, ...]:
    span = one.span
    goes_on = before is not None and (before.span.source, before.span.line) == (span.source, span.line)
    line = "" if goes_on or span == NOWHERE else str(span) if several else str(span.line)
    source = "" if goes_on else span.line_text
    verb = f"reads {one.name}" if one.is_read else f"{one.name} {one.sign}"
    style: Style = "dim" if one.is_read else "name"
    row = cell(line, is_number=not several), cell(source), cell(verb, style), cell(written(one.value))
    if one.left is None:
        return row
    few: Style = "bad" if one.left < FEW else ""
    return *row, cell(written(one.wide)), cell(f"{one.left:.1f}", few, is_number=True)


# ---------------------------------------------------------------------------------------- contributions view


PARTS = ("value", "record", "thread", "line", "source")
SHOWN = 40
"""How many parts have rows."""


def contributions_view(gradient: Contributions) -> Node:
    """The element, what it came to, and its parts."""
    element = Run(f"[{', '.join(map(str, gradient.index))}]", "strong")
    title = words("gradient of element ", element, " = ", Run(written(gradient.total), "strong"), level=1)
    by_line: dict[tuple[str, object], list[ZeroLine]] = {}
    for zero in gradient.zeros:
        by_line.setdefault((_why(zero), zero.line), []).append(zero)
    # The first zero of a line, and how many there are: a loop of launches has one in each.
    zeros = [
        _part_row(found[0], cell(f"{why}, {len(found)} times" if len(found) > 1 else why))
        for (why, _), found in islice(by_line.items(), SHOWN)
    ]
    first = "where it is zero, too" if gradient.parts else "where it became zero"
    tables = (Table("", (first, "record", "thread", "line", "source"), tuple(zeros)),) if zeros else ()
    if not gradient.parts:
        return Below((title, words("nothing was added to it"), *tables))
    largest = sorted(gradient.parts, key=_size, reverse=True)
    threads = {(part.record, part.thread) for part in gradient.parts if part.thread is not None}
    launches = {record for record, _ in threads}
    counts = f"{counted(len(gradient.parts), 'part')}, by {counted(len(threads), 'thread')}"
    counts += f" of {counted(len(launches), 'launch')}"
    rows = [_part_row(part, cell(written(part.value))) for part in largest[:SHOWN]]
    if len(largest) > SHOWN:
        rows.append(markup.left_out(f"{len(largest) - SHOWN} smaller", len(PARTS)))
    return Below((title, words(Run(counts, "dim")), Table("", PARTS, tuple(rows)), *tables))


def _why(zero: ZeroLine) -> str:
    at = "xyzw"[zero.component[0]] if len(zero.component) == 1 and zero.component[0] < 4 else zero.component
    return f"component {at}: {zero.reason}" if zero.component else zero.reason


def _part_row(part: Contribution | ZeroLine, first: Cell) -> tuple[Cell, ...]:
    title, asks, thread = label(part.title), "", cell("")
    if part.record is not None:
        title, asks = f"{part.record} {title}", f"record {part.record - 1}"
    if part.thread is not None:
        place = ",".join(map(str, part.thread))
        thread_asks = "" if part.record is None else f"thread {part.record - 1} {place}"
        thread = Cell((Run(place.replace(",", ", ")),), asks=thread_asks)
    record = Cell((Run(title), Run(f" {part.place}".rstrip(), "dim")), asks=asks)
    line = "" if part.line is None else str(part.line)
    source = "" if part.line is None else part.line.line_text
    return first, record, thread, cell(line), cell(source)


def _size(part: Contribution) -> float:
    size = float(np.abs(part.value).max(initial=0.0))
    return np.inf if np.isnan(size) else size


# --------------------------------------------------------------------------------------------------- answers


NOW = (
    "No backward() is known yet: the arrays are as they are now, which is not what the launch saw where they "
    "were overwritten, and the adjoint starts with 1."
)
GONE = "The kernel that recorded this tape does not hold it any more: run the cell again."

NO_SWEEP = (
    "Nobody noted what the last backward() of this tape started with: run it once more while the tape is "
    "shown, or ask kl.contributions(tape, x, index, loss) in a cell."
)

MOST_THREADS = 2_000_000
"""How many threads at most run again for one question: about ten seconds of a simple kernel."""


def answer(digest: Digest, question: Any) -> Node:
    """The view that a question asks for; a sentence where there is none."""
    match question:
        case {"ask": "measure"}:
            return _measured(digest)
        case {"ask": "array", "number": int(number)}:
            array = digest.held(number)
            return words(GONE) if array is None else array_view(array, asks=True)
        case {"ask": "record", "number": int(number)}:
            return _record(digest, number)
        case {"ask": "thread", "number": int(number), "thread": int(thread)}:
            return _thread(digest, number, thread)
        case {"ask": "element", "number": int(number), "index": [*index]} if all(
            isinstance(i, int) for i in index
        ):
            return _element(digest, number, index)
        case _:
            return words(f"kernelab does not know the question {question!r}")


def _measured(digest: Digest) -> Node:
    """Measure a sweep on copies, whose steps the page gets as it gets those of `backward`."""
    tape = digest.tape()
    if tape is None:
        return words(GONE)
    try:
        return norms_view(tape.measure())
    except KernelError as error:
        return _refused(error)


def _refused(error: KernelError) -> Node:
    first = error.diagnostics[0]
    return words(first.message, f": {first.hint}" if first.hint else "")


def _record_of(digest: Digest, number: int) -> Record | None:
    tape = digest.tape()
    records = () if tape is None or number < 0 else tape.since(number)
    return records[0] if records else None


def _record(digest: Digest, number: int) -> Node:
    record = _record_of(digest, number)
    if record is None:
        return words(GONE)
    if not isinstance(record, LaunchRecord):
        return words(f"{record.title} at {record.place}")
    rows = tuple((cell(name, "name"), cell(_argument(value))) for name, value in record.named.items())
    try:
        shown = view(record.kernel)
    except KernelError as error:
        shown = words(str(error))
    return Below((Table("arguments", ("", ""), rows), shown))


def _thread(digest: Digest, number: int, thread: int) -> Node:
    tape, record = digest.tape(), _record_of(digest, number)
    if tape is None or not isinstance(record, LaunchRecord):
        return words(GONE)
    try:
        if tape.last_cotangents is not None and isinstance(record.pullback, Pullback):
            return thread_view(trace_record(tape, record, thread))
        run = trace_thread(record.kernel.by_leaves, thread, record.grid.extents, record.arguments)
    except KernelError as error:
        return words(str(error))
    return Below((words(Run(NOW, "dim")), thread_view(run)))


def _element(digest: Digest, number: int, index: Sequence[int]) -> Node:
    tape, primal = digest.tape(), digest.held(number)
    if tape is None or primal is None:
        return words(GONE)
    if tape.last_cotangents is None and primal.device.is_cpu:
        return words(NO_SWEEP)
    threads = sum(record.grid.threads for record in tape.launches)
    if threads > MOST_THREADS:
        again = f"All {threads:,} threads of this tape would run again, one by one"
        return words(f"{again}: ask kl.contributions(tape, x, index, loss) in a cell.")
    try:
        parts = contributions(tape, primal, index, grads=tape.last_cotangents)
    except KernelError as error:
        return _refused(error)
    return Below((contributions_view(parts), *_rest(primal, parts)))


def _rest(primal: array, parts: Contributions) -> list[Node]:
    """A word where the gradient that the array holds is another number than what the parts add up to."""
    gradient = primal.grad if primal.allocation.adjoint is not None else None
    if gradient is None:
        return []
    value = gradient.host()[parts.index]
    sizes = sum((np.abs(part.value) for part in parts.parts), np.abs(value))
    is_close = np.all(np.abs(value - parts.total) <= EXACTNESS * sizes)
    if is_close or np.array_equal(value, parts.total, equal_nan=True):
        return []
    sentence = f"The gradient that it holds now is {written(value)}: "
    return [words(Run(f"{sentence}these are the parts of the last backward() alone.", "dim"))]


def _argument(value: Any) -> str:
    if not isinstance(value, array):
        return str(getattr(value, "array", value))
    gradient = ", requires gradients" if value.requires_grad else ""
    return f"array of {' × '.join(map(str, value.shape))} {value.dtype}{gradient}"
