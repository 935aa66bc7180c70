"""Syntax highlighting of Python and C++: a whole text in, one line of runs for each line out.

Generated C++ is long, and full of numbers: they stay plain.

Knows what keywords, numbers, strings and comments look like, and nothing else of either language.
"""

import keyword
import re

from kernelab.views.pages.markup import Run, Style

CPP_KEYWORDS = """
    auto bool break case char const continue do double else extern float for goto if int inline long return
    short signed sizeof static struct switch typedef unsigned void volatile while
"""

_NUMBER = r"(?P<number>(?<![\w.])(?:0[xX][\da-fA-F]+|\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)\w*)"
_QUOTED = r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"

_PYTHON = re.compile(
    r"(?P<comment>\#[^\n]*)"
    rf"|(?P<string>\"\"\"[\s\S]*?\"\"\"|'''[\s\S]*?'''|{_QUOTED})"
    rf"|{_NUMBER}"
    rf"|(?P<keyword>\b(?:{'|'.join(keyword.kwlist)})\b)"
    r"|(?<=\bdef )(?P<name>\w+)"
)
_CPP = re.compile(
    r"(?P<comment>//[^\n]*|/\*[\s\S]*?\*/)"
    rf"|(?P<string>{_QUOTED})"
    rf"|(?P<keyword>\b(?:{'|'.join(CPP_KEYWORDS.split())})\b|^\#\w+)",
    re.MULTILINE,
)


def python(text: str) -> list[tuple[Run, ...]]:
    """The runs of each line of Python text."""
    return _lines(text, _PYTHON)


def cpp(text: str) -> list[tuple[Run, ...]]:
    """The runs of each line of C++ text."""
    return _lines(text, _CPP)


_STYLES: dict[str, Style] = {
    "comment": "comment", "string": "string", "number": "number", "keyword": "keyword", "name": "name",
}  # fmt: skip


def _lines(text: str, pattern: re.Pattern[str]) -> list[tuple[Run, ...]]:
    runs: list[Run] = []
    done = 0
    for match in pattern.finditer(text):
        runs += Run(text[done : match.start()]), Run(match[0], _STYLES[match.lastgroup or "name"])
        done = match.end()
    lines: list[list[Run]] = [[]]
    for run in (*runs, Run(text[done:])):
        first, *others = (Run(part, run.style) for part in run.text.split("\n"))
        lines[-1].append(first)
        lines += [[other] for other in others]
    return [tuple(run for run in line if run.text) for line in lines]
