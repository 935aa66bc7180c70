"""The mistakes of a first hour in a notebook, as `mistakes.txt` tells them.

! the message after the last cell, whatever the numbers of cells
? its hint, where there is one
a cell, and more behind ---

Knows how they are written down; must not know what is said of them.
"""

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Mistake:
    """Cells, and what is said below the last of them."""

    message: str
    hint: str
    cells: tuple[str, ...]


def mistakes() -> list[Mistake]:
    """All of them, in the order of the file."""
    text = Path(__file__).with_name("mistakes.txt").read_text(encoding="utf-8").strip("\n")
    return [_parsed(part) for part in re.split(r"\n\n+(?=! )", text)]


def _parsed(text: str) -> Mistake:
    match = re.fullmatch(r"! (.+)\n(?:\? (.+)\n)?((?:.*\n)*)", f"{text}\n")
    assert match is not None, f"this is not a mistake:\n{text}"
    message, hint, cells = match.groups(default="")
    return Mistake(message, hint, tuple(cells.strip("\n").split("\n---\n")))
