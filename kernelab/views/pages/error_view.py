"""An error as a notebook shows it under a cell: message, location, caret, advice.

    KernelTypeError: cannot add vec3 and float32
      Cell In[12], line 4
        4 |     p = x[i] + dt
          |         ^^^^^^^^^   vec3 + float32
      hint: multiply by a vector, or write vec3(dt, dt, dt)

An error that a launch raises also shows the user's lines that led to it.  Knows errors and tracebacks; no
frame of kernelab, of the notebook or of Python's own library is shown, nor the line of the message again.
"""

import linecache
import re
import sys
import traceback
from collections.abc import Iterator
from types import TracebackType

from kernelab import hooks
from kernelab.errors import Diagnosed, label_of

MAX_CALLS = 4
"""How many of the user's calls are shown, the innermost ones."""

# A colour that is bold too is drawn in a darker one, which dark themes hardly show: names are coloured only.
RED, GREEN, BLUE, BOLD, PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[34m", "\x1b[1m", "\x1b[0m"

_NOTEBOOK = frozenset({"kernelab", "IPython", "ipykernel", "traitlets", "tornado"})
_OTHERS = _NOTEBOOK | sys.stdlib_module_names
_COLOURS = (
    (re.compile(r"^\s*\^+"), BOLD),
    (re.compile(r"^\s*hint: "), BLUE),
    (re.compile(r"^  \S.*, line \d+"), GREEN),
)


@hooks.error_lines.provide
def error_lines(error: Diagnosed) -> list[str]:
    """The message as lines for a terminal or a notebook, coloured."""
    titles = {diagnostic.message.split("\n")[0] for diagnostic in error.diagnostics}
    first, *rest = [
        f"{BOLD}{line}{PLAIN}" if line in titles else _coloured(line) for line in str(error).split("\n")
    ]
    return [f"{RED}{type(error).__name__}{PLAIN}: {first}", *rest, *map(_coloured, _calls(error))]


def warning_lines(name: str, text: str) -> list[str]:
    """A warning's name and text as lines, coloured."""
    first, *rest = text.split("\n")
    return [f"{BLUE}{name}{PLAIN}: {first}", *map(_coloured, rest)]


def _coloured(line: str) -> str:
    for pattern, colour in _COLOURS:
        match = pattern.match(line)
        if match:
            return f"{colour}{match[0]}{PLAIN}{line[match.end() :]}"
    return line


def _calls(error: Diagnosed) -> list[str]:
    """The user's own calls that led to an error of a launch, outermost first."""
    named = {str(diagnostic.span) for diagnostic in error.diagnostics}
    calls = [lines for place, lines in _user_calls(error.__traceback__) if place not in named]
    shown = [line for lines in calls[-MAX_CALLS:] for line in lines]
    return ["", "  called from", *shown] if shown else []


def _user_calls(trace: TracebackType | None) -> Iterator[tuple[str, list[str]]]:
    """The places of the user's calls, and the lines that show them."""
    for frame, number in traceback.walk_tb(trace):
        module = str(frame.f_globals.get("__name__", ""))
        text = linecache.getline(frame.f_code.co_filename, number, frame.f_globals).rstrip()
        # A cell magic runs its cell: that line is shown by the diagnostic itself.
        is_magic = text.startswith(("%%", "get_ipython().run_cell_magic"))
        if module.partition(".")[0] in _OTHERS or not text or is_magic:
            continue
        place, function = f"{label_of(frame.f_code.co_filename)}, line {number}", frame.f_code.co_name
        inside = "" if function.startswith("<") else f", in {function}"
        yield place, [f"  {place}{inside}", f"{number:>5} | {text}"]
