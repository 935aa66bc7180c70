"""What a reader of a tape asks for by clicking: the values of an array, the kernel of a launch, one thread.

Pure functions from a digest and a question to markup; must not know who asks.
"""

from typing import Any

from kernelab.autodiff.records import LaunchRecord
from kernelab.autodiff.threadrun import trace_thread
from kernelab.errors import KernelError
from kernelab.runtime.strided import array
from kernelab.views.arrays import array_view
from kernelab.views.digest import Digest
from kernelab.views.kernel import view
from kernelab.views.markup import Below, Node, Run, Table, cell, words
from kernelab.views.threadrun import thread_view

NOW = "The arrays are as they are now: what was overwritten since the launch is not what it saw."
GONE = "The kernel that recorded this tape does not hold it any more: run the cell again."


def answer(digest: Digest, question: Any) -> Node:
    """The view that a question asks for; a sentence where there is none."""
    match question:
        case {"ask": "array", "number": int(number)}:
            found = digest.held(number)
            return words(GONE) if found is None else array_view(found)
        case {"ask": "record", "number": int(number)}:
            return _record(digest, number)
        case {"ask": "thread", "number": int(number), "thread": int(thread)}:
            return _thread(digest, number, thread)
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


def _argument(value: Any) -> str:
    if not isinstance(value, array):
        return str(getattr(value, "array", value))
    extents = " × ".join(map(str, value.shape))
    return f"array of {extents} {value.dtype}{', requires gradients' if value.requires_grad else ''}"
