"""A view as plain text: what a terminal shows, and what tests read."""

from collections.abc import Iterable
from typing import assert_never

from kernelab.views.pages.markup import Below, Beside, Code, CodeLine, Drawing, Fold, Node, Run, Table, Words


def render(node: Node) -> str:
    """The view as text, without colours."""
    return "\n".join(_lines(node))


def _lines(node: Node) -> list[str]:
    match node:
        case Words(runs):
            return [_plain(runs)]
        case Code(title):
            return [*_heading(title), *(gutter + line.text for gutter, line in gutters(node))]
        case Table():
            return _table(node)
        case Drawing(title, _, lines):
            return [*_heading(title), *lines]
        case Beside(parts) | Below(parts):
            return _stacked(parts)
        case Fold():
            return []
        case _:
            assert_never(node)


def _stacked(parts: tuple[Node, ...]) -> list[str]:
    """The parts with an empty line between them, sentences directly under one another."""
    lines: list[str] = []
    before: Node | None = None
    for part in parts:
        shown = _lines(part)
        if lines and shown and not (isinstance(part, Words) and isinstance(before, Words)):
            lines.append("")
        lines += shown
        before = part
    return lines


def _plain(runs: tuple[Run, ...]) -> str:
    return "".join(run.text for run in runs)


def _heading(title: str) -> list[str]:
    return [title] if title else []


def gutters(code: Code) -> list[tuple[str, CodeLine]]:
    """The lines, each with its number before it, all as wide as the widest."""
    width = max((len(line.mark) for line in code.lines), default=0)
    return [(f"{line.mark:>{width}} │ ", line) for line in code.lines]


def _table(table: Table) -> list[str]:
    rows = [tuple(_plain(cell.runs) for cell in row) for row in table.rows]
    widths = [max(map(len, column)) for column in zip(table.head, *rows, strict=True)]
    head = _row(table.head, table.numbers, widths)
    rule = "  ".join("-" * width for width in widths)
    body = [
        _row(texts, [cell.is_number for cell in row], widths)
        for texts, row in zip(rows, table.rows, strict=True)
    ]
    return [*_heading(table.title), head, rule, *body]


def _row(texts: Iterable[str], numbers: Iterable[bool], widths: list[int]) -> str:
    padded = [
        f"{text:>{width}}" if is_number else f"{text:<{width}}"
        for text, is_number, width in zip(texts, numbers, widths, strict=True)
    ]
    return "  ".join(padded).rstrip()
