"""Messages with cause and remedy as a page: ``python -m tests.conformance.messages > docs/messages.md``.

Written from the texts that the tests provoke each message with, so no message of the language is left out.
"""

import re
import sys
from collections.abc import Iterator
from itertools import groupby

from kernelab.errors import Diagnostic
from tests.conformance.rejection import Rejection, rejections
from tests.conformance.templates import templates
from tests.jupyter.mistake import mistakes

INTRODUCTION = """\
# Messages

What kernelab says, at which line it says it, and what to write instead: each message once, with the names
and types of an example. Every row is a test (`tests/conformance/rejections/`, `tests/jupyter/mistakes.txt`),
and every message of the language has a row.

JupyterLab underlines the mistakes of a kernel while one types (`docs/extension.md`). Of messages about
gradients, `docs/wrong-gradients.md` says what to ask next. If a compiler or a package is missing,
`kernelab doctor` says what to do.
"""
HEAD = "| the message | at | what to do |\n|---|---|---|"


def page() -> str:
    """The introduction, what is said of calls and launches, then what is said of kernels."""
    host = {one.message: _row(one.message, _statement(one.cells[-1]), one.hint) for one in mistakes()}
    sections = [INTRODUCTION, "## A first hour\n", HEAD, *host.values(), ""]
    for heading, found in groupby(_once(), key=lambda item: item[0]):
        rows = (_row(told.message, _line(one, told), told.hint) for _, one, told in found)
        sections += [f"## {heading.capitalize()}\n", HEAD, *rows, ""]
    return "\n".join(sections)


def _once() -> Iterator[tuple[str, Rejection, Diagnostic]]:
    """The first text of each message, with what is said of it, below the heading of its file."""
    seen: set[str] = set()
    known = templates()
    for name, one in rejections().items():
        told = one.told()[0]
        fitting = [each.text for each in known if each.fits(told.message)]
        template = max(fitting, key=lambda text: len(text.replace("\0", "")), default=told.message)
        if template not in seen:
            seen.add(template)
            yield name.partition(":")[0].rpartition(" ")[0], one, told


def _statement(cell: str) -> str:
    """The first line of the last statement of a cell."""
    return next(line for line in reversed(cell.splitlines()) if not line.startswith(" "))


def _line(one: Rejection, told: Diagnostic) -> str:
    """The line of the cell that a message is about."""
    assert told.span is not None
    return one.cell.splitlines()[told.span.line - 1]


def _row(message: str, line: str, hint: str) -> str:
    code = line.strip().replace("|", r"\|")
    return f"| {_escaped(message)} | `` {code} `` | {_escaped(hint)} |"


def _escaped(text: str) -> str:
    """Text as Markdown, in which `code` stays what it is."""
    parts = text.split("`")
    parts[::2] = (re.sub(r"([*_<\[\]|])", r"\\\1", part) for part in parts[::2])
    return "`".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())
