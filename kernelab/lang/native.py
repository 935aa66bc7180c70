"""Snippets of C++ written by users: their lines, their parameters, and how they access each array.

What a snippet does to an array is read off its text.  An array that is only read is handed over as const, so
that the compiler refuses what the reading has overlooked.
"""

import re
from collections.abc import Iterator
from typing import Literal

from kernelab.data_classes import dataclass
from kernelab.errors import Span
from kernelab.lang.types import Type, Value

Access = Literal["value", "sum", "read", "store", "add", "write", "clear", "absent"]
"""How a snippet uses a parameter: a number that comes in, a sum that starts at 0 and comes out, or an array
that is read, plainly stored to, added to, or anything else.  `clear` sets to 0 what would be stored to, and
`absent` reads as zeros and forgets what is written."""


@dataclass(frozen=True, slots=True)
class SnippetLine:
    """A line of a snippet and where its first character stands."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class SnippetParam:
    """A name that a snippet may use."""

    name: str
    type: Type
    access: Access


@dataclass(frozen=True, slots=True, eq=False)
class Snippet:
    """C++ with its parameters; with `result` it returns a value, with `is_wide` float means double in it."""

    name: str
    lines: tuple[SnippetLine, ...]
    params: tuple[SnippetParam, ...]
    result: Value | None = None
    is_wide: bool = False

    @property
    def text(self) -> str:
        return "\n".join(line.text for line in self.lines)

    @property
    def arguments(self) -> tuple[SnippetParam, ...]:
        """The parameters that a statement passes: all but the sums."""
        return tuple(param for param in self.params if param.access != "sum")

    @property
    def sums(self) -> tuple[SnippetParam, ...]:
        return tuple(param for param in self.params if param.access == "sum")


_BLANKED = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)
_ASSIGNED = re.compile(r"\s*(=(?!=)|\+=|-=|\*=|/=|%=|&=|\|=|\^=|<<=|>>=|\+\+|--)")
_TOUCHED = re.compile(r"(?:\+\+|--|(?<!&)&)\s*$")
_POSTFIX = re.compile(r"\s*(?:\.\s*\w+|\[[^\[\]]*\]|\([^()]*\))")


def plain(text: str) -> str:
    """The text with comments and literals blanked out."""
    return _BLANKED.sub(lambda match: " " * len(match.group()), text)


def mentions(text: str, name: str) -> bool:
    """Whether C++ text uses a name."""
    return next(_uses(plain(text), name), None) is not None


def _uses(text: str, name: str) -> Iterator[re.Match[str]]:
    return re.finditer(rf"(?<![\w.])(?<!::)(?<!->){re.escape(name)}(?!\w)", text)


def access(text: str, name: str) -> Access:
    """The kind of access that a snippet makes to the array `name`."""
    uses = _kinds(text, name) - {None}
    if uses <= {"read"}:
        return "read"
    if uses == {"store"}:
        return "store"
    return "add" if uses == {"add"} else "write"


def stores(text: str, name: str) -> bool:
    """Whether a snippet replaces elements of the array `name`, on any path that shows in its text."""
    return not _kinds(text, name).isdisjoint({"store", "update", "part"})


def takes_pointer(text: str, name: str) -> bool:
    """Whether a snippet takes the array `name` as a pointer, which reaches elements side by side only."""
    return "whole" in _kinds(text, name)


def _kinds(text: str, name: str) -> set[str | None]:
    text = plain(text)
    return {_use(text, use.start(), use.end()) for use in _uses(text, name)}


def _use(text: str, start: int, end: int) -> str | None:
    """One use: read, store, add, update (by `*=`), part (of an element), pointer (to an element), whole
    (a pointer to all of them); None for its shape."""
    before, after = text[:start], text[end:]
    if re.match(r"\s*\.\s*(?:shape|strides|ndim|size)\b", after):
        return None
    addressed = re.search(r"(?:wp::)?address\(\s*$", before)
    if addressed is not None:
        opening = addressed.end() - len(addressed.group()) + addressed.group().index("(")
        close, before = _closing(text, opening), text[: addressed.start()]
    elif after.lstrip().startswith(("[", "(")):
        close = _closing(text, end + len(after) - len(after.lstrip()))
    else:
        return "whole"
    if close is None or _TOUCHED.search(before):
        return "pointer"
    rest = text[close:]
    while postfix := _POSTFIX.match(rest):
        rest = rest[postfix.end() :]
        if _ASSIGNED.match(rest):
            return "part"
    assigned = _ASSIGNED.match(rest)
    if assigned is None:
        return "read"
    return {"=": "store", "+=": "add", "-=": "add"}.get(assigned.group(1), "update")


def _closing(text: str, opening: int) -> int | None:
    """The position behind the bracket that closes the one at `opening`."""
    depth = 0
    for k in range(opening, len(text)):
        depth += (text[k] in "([{") - (text[k] in ")]}")
        if depth == 0:
            return k + 1
    return None
