"""What a reader of a tape asks for by clicking: the values of an array, the kernel of a launch, one thread,
and who added to an element of a gradient.

Pure functions from a digest and a question to markup; must not know who asks.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelab.autodiff.inspect.contributions import Contributions, contributions
from kernelab.autodiff.inspect.thread_run import trace_thread
from kernelab.autodiff.records.records import LaunchRecord
from kernelab.errors import KernelError
from kernelab.runtime.array.array import array
from kernelab.views.kernel.kernel_facts import view
from kernelab.views.pages.markup import Below, Node, Run, Table, cell, words
from kernelab.views.tape.arrays import array_view
from kernelab.views.tape.contributions_view import contributions_view
from kernelab.views.tape.digest import Digest
from kernelab.views.tape.thread_run_view import thread_view, written

NOW = "The arrays are as they are now: what was overwritten since the launch is not what it saw."
GONE = "The kernel that recorded this tape does not hold it any more: run the cell again."

NO_SWEEP = (
    "Nobody noted what the last backward() of this tape started with: run it once more while the tape is "
    "shown, or ask kl.contributions(tape, x, index, loss) in a cell."
)

CLOSE = 1e-4
"""By which share of its parts a gradient may differ from their sum before that is told."""

MOST_THREADS = 2_000_000
"""How many threads at most run again for one question: about ten seconds of a simple kernel."""


def answer(digest: Digest, question: Any) -> Node:
    """The view that a question asks for; a sentence where there is none."""
    match question:
        case {"ask": "array", "number": int(number)}:
            found = digest.held(number)
            return words(GONE) if found is None else array_view(found, asks=True)
        case {"ask": "record", "number": int(number)}:
            return _record(digest, number)
        case {"ask": "thread", "number": int(number), "thread": int(thread)}:
            return _thread(digest, number, thread)
        case {"ask": "element", "number": int(number), "index": [*index]} if all(map(_is_index, index)):
            return _element(digest, number, index)
        case _:
            return words(f"kernelab does not know the question {question!r}")


def _record(digest: Digest, number: int) -> Node:
    tape = digest.tape()
    records = () if tape is None else tape.since(number)
    if number < 0 or not records:
        return words(GONE)
    record = records[0]
    if not isinstance(record, LaunchRecord):
        return words(f"{record.title} at {record.place}")
    rows = tuple((cell(name, "name"), cell(_argument(value))) for name, value in record.arguments.items())
    try:
        shown = view(record.kernel)
    except KernelError as error:
        shown = words(str(error))
    return Below((Table("arguments", ("", ""), rows), shown))


def _thread(digest: Digest, number: int, thread: int) -> Node:
    tape = digest.tape()
    records = () if tape is None else tape.since(number)
    if number < 0 or not records or not isinstance(records[0], LaunchRecord):
        return words(GONE)
    call = records[0].call
    try:
        run = trace_thread(call.kernel.by_leaves, thread, call.grid.extents, call.arguments)
    except KernelError as error:
        return words(str(error))
    return Below((words(Run(NOW, "dim")), thread_view(run)))


def _is_index(value: Any) -> bool:
    return isinstance(value, int)


def _element(digest: Digest, number: int, index: Sequence[int]) -> Node:
    tape, primal = digest.tape(), digest.held(number)
    if tape is None or primal is None:
        return words(GONE)
    if tape.last_cotangents is None and primal.device.is_cpu:
        return words(NO_SWEEP)
    threads = sum(record.grid.threads for record in tape.launches)
    if threads > MOST_THREADS:
        return words(_too_many(threads))
    try:
        found = contributions(tape, primal, index, grads=tape.last_cotangents)
    except KernelError as error:
        return words(error.diagnostics[0].message, _hint(error))
    return Below((contributions_view(found), *_rest(primal, found)))


def _too_many(threads: int) -> str:
    asked = "kl.contributions(tape, x, index, loss)"
    return f"All {threads:,} threads of this tape would run again, one by one: ask {asked} in a cell."


def _hint(error: KernelError) -> str:
    hint = error.diagnostics[0].hint
    return f": {hint}" if hint else ""


def _rest(primal: array, found: Contributions) -> list[Node]:
    """A word where the gradient that the array holds is another number than what the parts add up to."""
    gradient = primal.grad if primal.allocation.adjoint is not None else None
    if gradient is None:
        return []
    held = gradient.host()[found.index]
    sizes = sum((np.abs(part.value) for part in found.parts), np.abs(held))
    if np.all(np.abs(held - found.total) <= CLOSE * sizes) or np.array_equal(
        held, found.total, equal_nan=True
    ):
        return []
    told = f"The gradient that it holds now is {written(held)}: "
    told += "these are the parts of the last backward() alone."
    return [words(Run(told, "dim"))]


def _argument(value: Any) -> str:
    if not isinstance(value, array):
        return str(getattr(value, "array", value))
    extents = " × ".join(map(str, value.shape))
    return f"array of {extents} {value.dtype}{', requires gradients' if value.requires_grad else ''}"
