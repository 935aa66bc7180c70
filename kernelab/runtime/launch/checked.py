"""Checked mode: a launch runs on copies first, and an error names what is wrong before anything is changed.

One run with marks (`races`) finds races and reads of elements that nobody has written.  Where it leaves what
is not finite, a second one (`passes.common.shadow_values`) finds the line.  Adjoints are checked alike.
Knows programs and arrays; must not know kernels, recorders or tapes.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from kernelab.backend.common.backends import thread_text
from kernelab.data_classes import dataclass, replace
from kernelab.errors import Diagnostic, KernelIndexError, KernelValueError, NotFiniteError, Related, Span
from kernelab.lang.ir import ArrayAccess, Const, Native, walk
from kernelab.lang.types import int32
from kernelab.passes.common.race_marks import UNMARKED, unseen
from kernelab.runtime.array.array import array
from kernelab.runtime.context.conversion import HostArray
from kernelab.runtime.context.recorder import caller, refusal, warn_at
from kernelab.runtime.kernel.arguments import Reference
from kernelab.runtime.kernel.dispatch import Culprit, Tracing
from kernelab.runtime.kernel.facts import Positions
from kernelab.runtime.kernel.program import Program
from kernelab.runtime.launch.footprint import Grid
from kernelab.runtime.launch.races import MarkedRun, copies_of, refuse, run_marked, with_copies
from kernelab.runtime.memory.device import CPU, Device
from kernelab.runtime.memory.unwritten import Unwritten, unwritten
from kernelab.settings import settings


@dataclass(frozen=True, slots=True)
class Checked:
    """A launch that has passed the checks: what it will write of arrays that are not wholly written."""

    run: MarkedRun
    unset: dict[str, array]
    states: dict[Unwritten, HostArray]

    def has_run(self) -> None:
        """Note what the launch has written: before it ran, all that it might write counted as written."""
        for one, state in self.states.items():
            one.restore(state)
        for name, elements in self.unset.items():
            mask = unwritten(elements.allocation)
            if mask is not None:
                mask.has_written(elements, _set(self.run, name))
        for name in self.unset.keys() & unseen(self.run.program.flat):
            self.unset[name].allocation.unwritten = None


def check_launch(
    program: Program, name: str, grid: Grid, arguments: Sequence[Any], parts: Sequence[bytes]
) -> Checked:
    """Check a launch that is bound but has not run; `name` is what messages call the program.

    Raises KernelRaceError, KernelValueError for what is read and was never written, NotFiniteError, and what
    the launch would raise.
    """
    checked = run_on_copies(program, name, grid, arguments, parts)
    _refuse_turned(checked.run, grid, arguments, parts)
    return checked


def run_on_copies(
    program: Program,
    name: str,
    grid: Grid,
    arguments: Sequence[Any],
    parts: Sequence[bytes],
    in_turn: frozenset[str] = frozenset(),
) -> Checked:
    """The same, but for what is not finite, and for races at arrays to which threads come `in_turn`."""
    _refuse_unwritten_numbers(program, name, arguments)
    arrays = {i: arguments[i] for i in program.arrays}
    names = dict(zip(arrays, program.names(program.arrays), strict=True))
    unset = {names[i]: one for i, one in arrays.items() if unwritten(one.allocation) is not None}
    try:
        run = run_marked(program, name, grid.extents, arguments, parts, frozenset(unset))
    except KernelIndexError as error:
        raise _with_sizes(error, program, grid, arguments) from None
    refuse(run.races(in_turn))
    _refuse_unwritten(run, unset)
    masks: set[Unwritten] = {one.allocation.unwritten for one in unset.values()}
    return Checked(run, unset, {mask: mask.state() for mask in masks})


# ---------------------------------------------------------------------------------------- unwritten elements


def _set(run: MarkedRun, name: str) -> HostArray:
    """Which scalars of an array the launch sets."""
    marks = run.marks.known(name, "set")
    if marks is None:
        return np.zeros(run.marks.elements[name].outline().shape, bool)
    return np.asarray(marks[0] != UNMARKED[0])


def _refuse_unwritten_numbers(program: Program, name: str, arguments: Sequence[Any]) -> None:
    """Raise KernelValueError where an array stands for a number and nobody has written it."""
    for i, argument in enumerate(arguments):
        mask = unwritten(argument.array.allocation) if isinstance(argument, Reference) else None
        if mask is not None and mask.scalars(argument.array).any():
            (parameter,) = program.names((i,))
            message = f"`{name}` takes {parameter} from an array that nobody has written"
            raise refusal(KernelValueError, message, "unwritten", "make it by kl.zeros")


def require_written(elements: array, what: str) -> None:
    """Raise KernelValueError in checked mode where nobody has written some element of an array."""
    mask = unwritten(elements.allocation) if settings().check is not None else None
    if mask is not None and mask.scalars(elements).any():
        raise refusal(KernelValueError, f"nobody has written all elements of {what}", "unwritten", _HINT)


def _refuse_unwritten(run: MarkedRun, unset: dict[str, array]) -> None:
    diagnostics: dict[tuple[str, Span], Diagnostic] = {}
    for mark, name, index in sorted(_early_reads(run, unset)):
        visit, thread = run.visit(mark, "early")
        message = f"thread {thread} of `{run.name}` reads {name}{list(index)}, which nobody has written"
        diagnostics.setdefault((name, visit.span), Diagnostic(message, visit.span, "unwritten", hint=_HINT))
    if diagnostics:
        raise KernelValueError(*diagnostics.values())


_HINT = (
    "kl.empty leaves in an array whatever the memory held: write its elements first, or make it by kl.zeros"
)


def _early_reads(run: MarkedRun, unset: dict[str, array]) -> Iterator[tuple[int, str, tuple[int, ...]]]:
    """A mark, its array and its index for each place where the text reads what nobody has written."""
    for name, elements in unset.items():
        marks = run.marks.known(name, "early")
        if marks is None:
            continue
        hits = np.argwhere((marks[0] != UNMARKED[0]) & elements.allocation.unwritten.scalars(elements))
        values = marks[0][tuple(hits.T)]
        order = np.argsort(values, kind="stable")  # the first thread of each place counts
        for k in order[np.unique(values[order] % run.marked.count, return_index=True)[1]]:
            yield int(values[k]), name, tuple(map(int, hits[k][: elements.ndim]))


# ---------------------------------------------------------------------------------------- what is not finite


def trace(tracing: Tracing, parts: Sequence[bytes], threads: int, place: Device) -> Culprit | None:
    """Run a program that finds where values turn, on packed arguments; None if none does."""
    marks = array(shape=(threads,), dtype=int32, device=place)
    tracing.entry(b"".join([*parts, marks.packed]))
    return tracing.culprit(marks.seen())


def turned_here(culprit: Culprit, thread: str, title: str, *related: Related) -> Diagnostic:
    """The diagnostic for a line that computes what is not finite of what is."""
    message = f"a value turns {culprit.word} here, in thread {thread} of {title}"
    hint = "what it is computed from is finite: keep that in the domain, with where(...) or clamp(...)"
    return Diagnostic(message, culprit.span, "not-finite", hint=hint, related=related)


def _refuse_turned(run: MarkedRun, grid: Grid, arguments: Sequence[Any], parts: Sequence[bytes]) -> None:
    """Raise NotFiniteError where a value turns NaN or infinite; infinities that come in are data."""
    program = run.program
    left = (arguments[i] for i in program.floats if i in program.changed)
    if all(np.isfinite(one.twin(run.copies[one.allocation]).seen()).all() for one in left):
        return
    copies = copies_of(program, arguments)  # alive until the run is over
    slots = with_copies(program, arguments, parts, copies)
    place = next((arguments[i].device for i in program.arrays), CPU)
    culprit = trace(program.tracing(data=True), slots, grid.threads, place)
    if culprit is not None:
        raise NotFiniteError(_turned(run, culprit))


def _turned(run: MarkedRun, culprit: Culprit) -> Diagnostic:
    thread = thread_text(culprit.thread, run.extents, len(run.program.flat.threads))
    title = f"the launch of `{run.name}`"
    if culprit.value:
        message = f"the argument `{culprit.value}` of {title} is {culprit.word}"
        return Diagnostic(message, caller().span, "not-finite", hint="pass another number")
    if not culprit.array:
        return turned_here(culprit, thread, title)
    message = (
        f"{culprit.array} holds {culprit.word} where thread {thread} of {title} reads it, and passes it on"
    )
    hint = "look at where its values come from, or leave it out with isnan(...)"
    return Diagnostic(message, culprit.span, "not-finite", hint=hint)


# ---------------------------------------------------------------------------------------- sizes


def warn_of_sizes(program: Program, name: str, grid: Grid, arguments: Sequence[Any]) -> None:
    """Warn, once for a size, of a launch that leaves out elements of all that its threads take by index."""
    taken = [(program.names((i,))[0], arguments[i].shape) for i in _by_thread(program)]
    if not taken or not all(_is_beyond(shape, grid.extents) for _, shape in taken):
        return
    what, shape = taken[0]
    sizes = f"{_many(grid.extents, 'thread')}, and {what} has {_many(shape, 'element')}"
    hint = f"launch it with dim={_dim(shape)}, or pass the part of {what} that is meant"
    message = f"the launch of `{name}` has {sizes}: the others are left out"
    program.once(("leaves out", sizes), partial(warn_at, message, "grid", hint))


def _with_sizes(
    error: KernelIndexError, program: Program, grid: Grid, arguments: Sequence[Any]
) -> KernelIndexError:
    """The error, with the number of threads and of elements where there are more threads than elements."""
    for i in _by_thread(program):
        shape = arguments[i].shape
        if _is_beyond(grid.extents, shape) and 0 not in shape:
            what = program.names((i,))[0]
            sizes = f"{_many(grid.extents, 'thread')}, and {what} has {_many(shape, 'element')}"
            hint = f"the launch has {sizes}: launch it with dim={_dim(shape)}, or test the index first"
            first, *others = error.diagnostics
            told = KernelIndexError(replace(first, hint=hint), *others)
            told.failed = error.failed
            return told
    return error


def _by_thread(program: Program) -> Positions:
    """The arrays of which each thread takes the element of its indices, and no other.

    None where a kernel computes other indices, too: then fewer threads than elements may be meant.
    """

    def find() -> Positions:
        threads, body = program.flat.threads, program.flat.body
        taken = set[Any]()
        for stmt in walk(body):
            if isinstance(stmt, Native) and stmt.arrays:
                return ()
            if not isinstance(stmt, ArrayAccess) or stmt.array not in program.flat.params:
                continue
            if stmt.indices == threads:
                taken.add(stmt.array)
            elif not all(isinstance(index, Const) for index in stmt.indices):
                return ()
        return tuple(i for i in program.arrays if program.flat.params[i] in taken)

    return program.once("by thread", find)


def _is_beyond(larger: Sequence[int], smaller: Sequence[int]) -> bool:
    """Whether a grid or shape reaches beyond another one of the same rank."""
    return len(larger) == len(smaller) and any(a > b for a, b in zip(larger, smaller, strict=True))


def _dim(shape: tuple[int, ...]) -> int | tuple[int, ...]:
    return shape[0] if len(shape) == 1 else shape


def _many(extents: Sequence[int], what: str) -> str:
    count = math.prod(extents)
    shown = str(count) if len(extents) == 1 else " x ".join(map(str, extents))
    return f"{shown} {what}{'s' * (count != 1)}"
