"""What the language refuses, as `rejections/*.txt` tell it.

    ! the message, or one line for each; "this is not Python: ..." whatever Python's parser says
    ? a part of the first hint, where there is one
    a cell, or the body of a kernel over the arguments of the rules

Knows the frontend; must not know what the messages mean.
"""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

from kernelab.errors import Diagnostic
from tests.conformance.rule import NOTEBOOK, PARAMETERS
from tests.frontend.helpers import cell

_CELL = re.compile(r"^(async def|def|class|@|from|import|return|del|with|[A-Z]\w* = )", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Rejection:
    """A text, and what is to be said of it."""

    messages: tuple[str, ...]
    hint: str
    text: str

    def fits(self, messages: tuple[str, ...]) -> bool:
        """Whether these are the messages wanted."""
        return len(messages) == len(self.messages) and all(map(_fits, messages, self.messages))

    @property
    def cell(self) -> str:
        """The whole text of the cell."""
        if _CELL.search(self.text):
            return self.text
        return f"def kernel({PARAMETERS}):\n{textwrap.indent(self.text, '    ')}\n"

    def told(self) -> tuple[Diagnostic, ...]:
        """What is said of the cell: mistakes, then warnings and notes."""
        lowered = cell(self.cell, **NOTEBOOK)
        return (*lowered.errors, *lowered.diagnostics)


def rejections() -> dict[str, Rejection]:
    """All of them, by heading, message and number."""
    found: dict[str, Rejection] = {}
    for file in sorted((Path(__file__).parent / "rejections").glob("*.txt")):
        for number, part in enumerate(re.split(r"\n\n+(?=! )", file.read_text().strip("\n"))):
            one = _parsed(part)
            found[f"{file.stem} {number}: {one.messages[0][:60]}"] = one
    return found


def _fits(found: str, wanted: str) -> bool:
    beginning = wanted.removesuffix("...")
    return found == wanted or (beginning != wanted and found.startswith(beginning))


def _parsed(part: str) -> Rejection:
    match = re.fullmatch(r"((?:! .+\n)+)(?:\? (.+)\n)?((?:.*\n)*)", f"{part}\n")
    assert match is not None, f"this is not a rejection:\n{part}"
    messages, hint, text = match.groups(default="")
    return Rejection(tuple(line.removeprefix("! ") for line in messages.splitlines()), hint, text)
