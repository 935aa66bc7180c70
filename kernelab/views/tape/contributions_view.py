"""Who added to one element of a gradient, as a table: the largest parts first.

Pure functions from contributions to markup; must not know how they were found.
"""

import numpy as np

from kernelab.autodiff.inspect.contributions import Contribution, Contributions
from kernelab.views.pages import text
from kernelab.views.pages.markup import Below, Cell, Node, Run, Table, cell, words
from kernelab.views.tape.thread_run_view import written

SHOWN = 40
"""How many parts have rows."""


def contributions_view(found: Contributions) -> Node:
    """The element, what it came to, and its parts."""
    where = ", ".join(map(str, found.index))
    title = words(
        "gradient of element ",
        Run(f"[{where}]", "strong"),
        " = ",
        Run(written(found.total), "strong"),
        level=1,
    )
    if not found.parts:
        return Below((title, words("nothing was added to it")))
    largest = sorted(found.parts, key=_size, reverse=True)
    threads = {(part.record, part.thread) for part in found.parts if part.thread is not None}
    launches = {record for record, _ in threads}
    counts = f"{_count(len(found.parts), 'part')}, by {_count(len(threads), 'thread')}"
    counts += f" of {_count(len(launches), 'launch', 'launches')}"
    rows = [_row(part) for part in largest[:SHOWN]]
    if len(largest) > SHOWN:
        rows.append((cell("⋮"), cell(f"{len(largest) - SHOWN} smaller", "dim"), cell(""), cell(""), cell("")))
    table = Table("", ("value", "record", "thread", "line", "source"), tuple(rows))
    return Below((title, words(Run(counts, "dim")), table))


def contributions_text(found: Contributions) -> str:
    """The same as text."""
    return text.render(contributions_view(found))


def _row(part: Contribution) -> tuple[Cell, ...]:
    place = f"{part.title.removeprefix('the launch of ').strip('`')}"
    number = "" if part.record is None else f"{part.record + 1} "
    asks = "" if part.record is None else f"record {part.record}"
    record = Cell((Run(f"{number}{place}"), Run(f" {part.place}".rstrip(), "dim")), asks=asks)
    thread = _thread(part)
    line = cell("") if part.line is None else cell(str(part.line))
    source = "" if part.line is None else part.line.source.line(part.line.line).strip()
    return cell(written(part.value)), record, thread, line, cell(source)


def _thread(part: Contribution) -> Cell:
    if part.thread is None:
        return cell("")
    place = ",".join(map(str, part.thread))
    asks = "" if part.record is None else f"thread {part.record} {place}"
    return Cell((Run(place.replace(",", ", ")),), asks=asks)


def _size(part: Contribution) -> float:
    size = float(np.abs(part.value).max(initial=0.0))
    return np.inf if np.isnan(size) else size


def _count(n: int, one: str, several: str = "") -> str:
    return f"{n} {one if n == 1 else several or one + 's'}"
