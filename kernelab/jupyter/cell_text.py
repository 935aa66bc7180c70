"""The text of a `%%kernel` cell as an editor has it: lines from 0, columns in UTF-16 units, edits.

Edits are of what the hints of diagnostics mark: «code», «^code» and «/pattern/replacement/».

    write «int(n)»                       in place of what the diagnostic points at
    write «^i = tid()» on a line above   in a line of its own above it
    write elif«/else if/elif/»           in its line, where the regular expression is found first

Knows the text and diagnostics; must not know what they mean.
"""

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import NamedTuple

from kernelab.data_classes import dataclass
from kernelab.data_classes.turns import cached_property
from kernelab.errors import Diagnostic, Source, Span

Position = list[int]
"""A line and a column, both from 0; columns count UTF-16 units, as editors in a browser do."""


class Edit(NamedTuple):
    """Text to be written in place of a span."""

    span: Span
    text: str


class Fix(NamedTuple):
    """What an editor offers: a title, and the edit."""

    title: str
    edit: Edit


@dataclass(frozen=True)
class CellText:
    """The whole text of a cell, of which the magic is a line."""

    text: str

    @cached_property
    def magic_line(self) -> int | None:
        """The line of the magic, from 0; None where the cell is none of ours."""
        match = re.match(r"\s*?(?=[ \t]*%%kernel\b)", self.text)
        return None if match is None else match[0].count("\n")

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the cell, the magic's included."""
        return self.text.split("\n")

    @cached_property
    def options(self) -> str:
        """What stands behind the magic in its line."""
        assert self.magic_line is not None
        return self.lines[self.magic_line].partition("%%kernel")[2].strip()

    @cached_property
    def source(self) -> Source:
        """The text below the magic as the frontend takes it, with the numbers of the cell's lines."""
        assert self.magic_line is not None
        first = self.magic_line + 1
        return Source("\n".join(self.lines[first:]), "this cell", first + 1)

    def position(self, line: int, column: int) -> Position:
        """Where an editor has a place of a span."""
        before = self.lines[line - 1][:column] if line <= len(self.lines) else ""
        return [line - 1, len(before.encode("utf-16-le", "surrogatepass")) // 2]

    def column(self, position: Position) -> int:
        """The column in characters of an editor's position."""
        line = self.lines[position[0]] if position[0] < len(self.lines) else ""
        units = line.encode("utf-16-le", "surrogatepass")[: 2 * position[1]]
        return len(units.decode("utf-16-le", "ignore"))

    def ends(self, span: Span) -> tuple[Position, Position]:
        """Where an editor has the two ends of a span."""
        return self.position(span.line, span.column), self.position(span.end_line, span.end_column)

    def edited(self, edit: Edit) -> "CellText":
        """The cell after an edit."""
        first, last = edit.span.line - 1, edit.span.end_line - 1
        lines = [*self.lines, *[""] * (last + 1 - len(self.lines))]
        text = lines[first][: edit.span.column] + edit.text + lines[last][edit.span.end_column :]
        return CellText("\n".join([*lines[:first], text, *lines[last + 1 :]]))


# ------------------------------------------------------------------------------------------------------ fixes


def fixes_of(diagnostic: Diagnostic) -> Iterator[Fix]:
    """The fixes of a diagnostic, the most likely first; who offers them tries whether they help."""
    span = diagnostic.span
    if span is None:
        return
    for change in diagnostic.changes:
        line = span.source.line(span.line)
        if change.startswith("^"):
            start = span.line, 0, span.line, 0
            indent = line[: len(line) - len(line.lstrip())]
            yield Fix(f"insert {change[1:]}", Edit(Span(span.source, *start), f"{indent}{change[1:]}\n"))
        elif len(change) > 1 and change.startswith("/"):
            pattern, text = change[1:-1].split("/")
            changed = re.sub(pattern, text, line, count=1)
            if changed != line:
                yield Fix(f"write {changed.strip()}", _edit(span, line, changed))
        else:
            yield Fix(f"write {change}", Edit(span, change))


def _edit(span: Span, line: str, changed: str) -> Edit:
    """The smallest edit that makes one line of another."""
    first = _common(line, changed)
    last = _common(line[first:][::-1], changed[first:][::-1])
    place = Span(span.source, span.line, first, span.line, len(line) - last)
    return Edit(place, changed[first : len(changed) - last])


def _common(one: str, other: str) -> int:
    """How many characters two texts begin with in common."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
