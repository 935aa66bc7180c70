"""The run of one thread as tables: what each line read, computed and wrote, then every adjoint on the way.

Pure functions from a run to markup; must not know how it was run.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelab.autodiff.inspect.thread_run import MOST, ThreadRun
from kernelab.backend.interpreter.watch import Seen
from kernelab.errors import NOWHERE
from kernelab.views.pages import text
from kernelab.views.pages.markup import Below, Cell, Node, Run, Style, Table, cell, words

FIRST, LAST = 120, 30
"""Of a long run, how many values are shown at its ends."""


def thread_view(run: ThreadRun) -> Node:
    """The tables of a run."""
    place = run.thread[0] if len(run.thread) == 1 else run.thread
    title = words(Run(f"thread {place}", "strong"), f" of {run.kernel}, run alone on copies", level=1)
    parts: list[Node] = [title, _table("primal", run.primal)]
    if run.note:
        parts.append(words(Run("no adjoint: ", "dim"), run.note))
    elif run.adjoint:
        parts.append(_table("adjoint, from the last line to the first", run.adjoint))
    else:
        parts.append(words(Run("no adjoint: ", "dim"), "this thread hands no gradient on"))
    return Below(tuple(parts))


def thread_text(run: ThreadRun) -> str:
    """The same as text."""
    return text.render(thread_view(run))


def _table(title: str, seen: Sequence[Seen]) -> Node:
    if not seen:
        return words(f"{title}: this thread does nothing")
    several = len({one.span.source for one in seen if one.span != NOWHERE}) > 1
    rows = [_row(one, seen[i - 1] if i else None, several) for i, one in enumerate(seen)]
    if len(rows) > FIRST + LAST + 1:
        left_out = len(rows) - FIRST - LAST
        rows[FIRST:-LAST] = [(cell("⋮"), cell(f"{left_out} more", "dim"), cell(""), cell(""))]
    if len(seen) >= MOST:
        title += f", its first {MOST:,} values"
    return Table(title, ("line", "source", "", "value"), tuple(rows))


def _row(one: Seen, before: Seen | None, several: bool) -> tuple[Cell, ...]:
    span = one.span
    goes_on = before is not None and (before.span.source, before.span.line) == (span.source, span.line)
    line = "" if goes_on or span == NOWHERE else str(span) if several else str(span.line)
    source = "" if goes_on else span.source.line(span.line).strip()
    verb = f"reads {one.name}" if one.is_read else f"{one.name} {one.sign}"
    style: Style = "dim" if one.is_read else "name"
    return cell(line, is_number=not several), cell(source), cell(verb, style), cell(written(one.value))


def written(value: Any) -> str:
    """A number with six digits, a vector or matrix by its rows."""
    if np.ndim(value):
        inner = ", ".join(map(written, value))
        return f"({inner})"
    return f"{float(value):.6g}" if np.asarray(value).dtype.kind not in "iub" else str(value)
