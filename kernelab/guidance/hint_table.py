r"""The format of the hint tables: an entry a line, ``names: hint`` or ``names: reason => hint``.

    sum|mean: write kl.utils.array_sum(x)
    tile\w*: tiles are not part of the language => write a loop over the elements

A line that is indented goes on with the one before.  ``{name}`` in a hint is the name that was asked for.
"""

import re
from functools import cached_property
from typing import NamedTuple


class Guidance(NamedTuple):
    """Advice on a missing name: the reason, if a table gives one, and what to write instead."""

    reason: str
    hint: str


class Table:
    """Guidance by names, which are alternatives or regular expressions."""

    def __init__(self, text: str) -> None:
        self._text = text

    def find(self, name: str) -> Guidance | None:
        """The guidance for a name; None where nothing is known."""
        text = self._plain.get(name) or next(
            (text for names, text in self._others if names.fullmatch(name)), ""
        )
        if not text:
            return None
        reason, arrow, hint = text.replace("{name}", name).partition(" => ")
        return Guidance(reason, hint) if arrow else Guidance("", reason)

    def hint(self, name: str) -> str:
        """The advice for a name; empty where there is none."""
        guidance = self.find(name)
        return guidance.hint if guidance is not None else ""

    # Read when a name is first missing, not at import.

    @cached_property
    def entries(self) -> list[tuple[str, str]]:
        """Names and text of each entry, in order."""
        lines = self._text.replace("\n    ", " ").strip().splitlines()
        entries = (line.partition(": ") for line in lines)
        return [(names, text) for names, _, text in entries]

    @cached_property
    def _plain(self) -> dict[str, str]:
        return {name: text for names, text in self.entries if _is_plain(names) for name in names.split("|")}

    @cached_property
    def _others(self) -> list[tuple[re.Pattern[str], str]]:
        return [(re.compile(names), text) for names, text in self.entries if not _is_plain(names)]


def _is_plain(names: str) -> bool:
    return all(name.isidentifier() for name in names.split("|"))
