"""A small markup language: what a view shows, as data that becomes text or HTML.

    node ::= Words(run...)                       a sentence
           | Code(title, lines, remarks)         lines of code, linked by the source line they come from
           | Table(title, head, rows)
           | Drawing(title, html, lines)         a picture, and the lines that a terminal shows instead
           | Beside(nodes) | Below(nodes)        next to each other where there is room | one under the other
           | Fold(title, node)                   closed at first in HTML
    run  ::= Run(text, style)

A view builds nodes; `text.render` and `page.render` turn them into what a terminal and a notebook show.  This
module knows neither kernels nor HTML.
"""

from collections.abc import Callable, Iterable
from typing import Any, Literal, assert_never

import numpy as np

from kernelab.data_classes import dataclass

Style = Literal["", "strong", "dim", "keyword", "comment", "number", "string", "name", "good", "bad"]


@dataclass(frozen=True, slots=True)
class Run:
    """A stretch of text in one style."""

    text: str
    style: Style = ""


@dataclass(frozen=True, slots=True)
class Words:
    """A line of prose; `level` 1 is the title of a view, 2 a heading, 0 plain."""

    runs: tuple[Run, ...]
    level: int = 0


@dataclass(frozen=True, slots=True)
class CodeLine:
    """A line of code; `number` is that of its source line, None for generated lines.

    `cell` tells lines of several cells apart: 0 is the cell that the view is of.  A line that goes on with
    the one before shows no number.
    """

    runs: tuple[Run, ...]
    number: int | None = None
    cell: int = 0
    goes_on: bool = False

    @property
    def mark(self) -> str:
        """The number as a gutter shows it, with a stroke for each cell further away."""
        return "" if self.number is None or self.goes_on else f"{self.number}{chr(39) * self.cell}"

    @property
    def text(self) -> str:
        return "".join(run.text for run in self.runs)


@dataclass(frozen=True, slots=True)
class Code:
    """Lines of code under a title; the remarks, on some of the lines, are shown as tooltips."""

    title: str
    lines: tuple[CodeLine, ...]
    remarks: tuple[CodeLine, ...] = ()


@dataclass(frozen=True, slots=True)
class Cell:
    """An entry of a table; numbers stand to the right.

    `asks` is what a live page asks the kernel when a reader clicks it; elsewhere it changes nothing.
    """

    runs: tuple[Run, ...]
    is_number: bool = False
    asks: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a head."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def numbers(self) -> tuple[bool, ...]:
        """Mask of the columns that hold numbers, which are aligned to the right."""
        return tuple(
            bool(self.rows) and all(row[k].is_number for row in self.rows) for k in range(len(self.head))
        )


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture as HTML of our own making, and what a terminal shows instead.

    HTML that takes long to draw is a function, called where it is needed.  `columns` is the room that the
    picture wants beside other parts, in characters.
    """

    title: str
    html: str | Callable[[], str]
    lines: tuple[str, ...]
    columns: int = 1


@dataclass(frozen=True, slots=True)
class Beside:
    """Parts next to each other; under one another where there is no room, and in a terminal."""

    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Below:
    """Parts under one another."""

    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Fold:
    """A part that a reader opens; a terminal shows its title only."""

    title: str
    part: "Node"


Node = Words | Code | Table | Drawing | Beside | Below | Fold


def written(value: Any) -> str:
    """A number with six digits, a vector or matrix by its rows."""
    if np.ndim(value):
        inner = ", ".join(map(written, value))
        return f"({inner})"
    return f"{float(value):.6g}" if np.asarray(value).dtype.kind not in "iub" else str(value)


def words(*parts: str | Run, level: int = 0) -> Words:
    """A sentence of plain text and runs."""
    return Words(tuple(part if isinstance(part, Run) else Run(part) for part in parts), level)


def cell(text: str, style: Style = "", *, is_number: bool = False) -> Cell:
    """An entry of one run."""
    return Cell((Run(text, style),), is_number)


Row = tuple[Cell, ...]


def left_out(text: str, columns: int) -> Row:
    """The row of a table that stands for rows which it does not show."""
    return cell("⋮"), cell(text, "dim"), *(cell("") for _ in range(columns - 2))


def without_empty(table: Table) -> Table:
    """A table without the columns in which nothing stands."""
    kept = [k for k in range(len(table.head)) if any(run.text for row in table.rows for run in row[k].runs)]
    rows = tuple(tuple(row[k] for k in kept) for row in table.rows)
    return Table(table.title, tuple(table.head[k] for k in kept), rows)


def ends_of(count: int, row: Callable[[int], Row], first: int, last: int) -> tuple[Row, ...]:
    """The rows by their numbers; of very many the first and the last, and how many there are between them."""
    hidden = count - first - last
    if hidden <= 1:
        return tuple(map(row, range(count)))
    head, tail = map(row, range(first)), [row(k) for k in range(count - last, count)]
    return *head, left_out(f"{hidden} more", len(tail[0])), *tail


# ------------------------------------------------------------------------------------------------------ text


def render(node: Node) -> str:
    """The view as text, without colours."""
    return "\n".join(_lines(node))


def _lines(node: Node) -> list[str]:
    match node:
        case Words(runs):
            return [_plain(runs)]
        case Code(title):
            return [*filter(None, [title]), *(gutter + line.text for gutter, line in gutters(node))]
        case Table():
            return _table(node)
        case Drawing(title, _, lines):
            return [*filter(None, [title]), *lines]
        case Beside(parts) | Below(parts):
            return _stacked(parts)
        case Fold():
            return []
        case _:
            assert_never(node)


def _stacked(parts: tuple[Node, ...]) -> list[str]:
    """The parts with an empty line between them, sentences directly under one another."""
    lines: list[str] = []
    for before, part in zip((None, *parts), parts, strict=False):
        shown = _lines(part)
        is_apart = not (isinstance(part, Words) and isinstance(before, Words))
        lines += ["", *shown] if lines and shown and is_apart else shown
    return lines


def _plain(runs: tuple[Run, ...]) -> str:
    return "".join(run.text for run in runs)


def gutters(code: Code) -> list[tuple[str, CodeLine]]:
    """The lines, each with its number before it, all as wide as the widest."""
    width = max((len(line.mark) for line in code.lines), default=0)
    return [(f"{line.mark:>{width}} │ ", line) for line in code.lines]


def _table(table: Table) -> list[str]:
    rows = [tuple(_plain(cell.runs) for cell in row) for row in table.rows]
    widths = [max(map(len, column)) for column in zip(table.head, *rows, strict=True)]
    rule = "  ".join("-" * width for width in widths)
    numbers = ([cell.is_number for cell in row] for row in table.rows)
    body = (_row(texts, row, widths) for texts, row in zip(rows, numbers, strict=True))
    return [*filter(None, [table.title]), _row(table.head, table.numbers, widths), rule, *body]


def _row(texts: Iterable[str], numbers: Iterable[bool], widths: list[int]) -> str:
    padded = [
        f"{text:>{width}}" if is_number else f"{text:<{width}}"
        for text, is_number, width in zip(texts, numbers, widths, strict=True)
    ]
    return "  ".join(padded).rstrip()
