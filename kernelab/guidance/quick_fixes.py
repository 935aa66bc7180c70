"""Edits of what the hints of diagnostics mark: «code», «^code» and «/pattern/replacement/».

    write «int(n)»                       in place of what the diagnostic points at
    write «^i = tid()» on a line above   in a line of its own above it
    write elif«/else if/elif/»           in its line, where the regular expression is found first

Knows diagnostics; must not know what they mean.
"""

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import NamedTuple

from kernelab.errors import Diagnostic, Span


class Edit(NamedTuple):
    """Text to be written in place of a span."""

    span: Span
    text: str


class Fix(NamedTuple):
    """What an editor offers: a title, and the edit."""

    title: str
    edit: Edit


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
            edit = Edit(Span(span.source, *start), f"{indent}{change[1:]}\n")
            yield Fix(f"insert {change[1:]}", edit)
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
