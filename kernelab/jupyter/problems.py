"""Diagnostics at the lines of cells: sent to pages, and withdrawn where they are fixed.

A problem is an overwrite of elements that a gradient needs, or a diagnostic of a cell's error, such as the
line where a value turned NaN.  It is mended when a cell of one of its lines has run again without it.
"""

import itertools
import linecache
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from IPython.core.interactiveshell import ExecutionInfo, ExecutionResult, InteractiveShell

from kernelab.autodiff.records.hazards import LISTENERS, Overwrite
from kernelab.data_classes import dataclass
from kernelab.errors import Diagnosed, LaunchError, Span, label_of
from kernelab.jupyter.inspection import is_kernel_cell
from kernelab.runtime.context.recorder import name_of_memory

Message = dict[str, Any]
Tell = Callable[[Message], None]

MOST = 100
"""How many problems are reported at a time."""


@dataclass(frozen=True)
class Place:
    """A line of a cell, from 0; `cell` is the number that JupyterLab has given the cell, if it has.

    `same` tells which one the line is of those with its text, and how many these are: so it is found
    where lines have been inserted above it.
    """

    cell: str | None
    label: str
    line: int
    text: str
    same: tuple[int, int]

    @property
    def message(self) -> Message:
        """The place as it travels."""
        named = {"cell": self.cell, "label": self.label, "line": self.line, "text": self.text}
        return {**named, "same": list(self.same)}


def _place(cell: str | None, label: str, line: int, texts: Sequence[str], first: int = 0) -> Place:
    """The place of a line, from 0, of a cell of which these are the lines from `first` on."""
    stripped = [text.strip() for text in texts]
    number = line - first
    text = stripped[number] if 0 <= number < len(stripped) else ""
    same = [k for k, other in enumerate(stripped) if other == text]
    return Place(cell, label, line, text, (sum(k < number for k in same), len(same)))


@dataclass(frozen=True)
class Problem:
    """A problem and its lines, the one where it shows first."""

    kind: str
    text: str
    places: tuple[Place, ...]


class Problems:
    """The problems of the cells of one shell."""

    def __init__(self, shell: InteractiveShell, tell: Tell) -> None:
        self.shell = shell
        self.tell = tell
        self.cells: dict[str, tuple[str | None, str]] = {}
        """Which cell each label stands for, and the name of its text."""
        self.open: dict[Problem, int] = {}
        self._raised_in: dict[Problem, str] = {}
        """Which cell ended with it, for those that were errors: it need not be at one of its lines."""
        self._again: set[Problem] = set()
        self._seen: set[object] = set()
        self._running: tuple[str | None, str] = (None, "")
        self._keys = itertools.count(1)

    def install(self) -> None:
        self.shell.events.register("pre_run_cell", self.begin)
        LISTENERS.append(self.overwritten)

    def remove(self) -> None:
        self.shell.events.unregister("pre_run_cell", self.begin)
        LISTENERS.remove(self.overwritten)

    def begin(self, info: ExecutionInfo) -> None:
        """A cell is about to run."""
        raw = info.raw_cell or ""
        parent: Message = getattr(self.shell, "get_parent", dict)() or {}
        cell = parent.get("metadata", {}).get("cellId")
        self._running = cell, self.shell.compile.get_code_name(raw, raw, self.shell.execution_count)
        self._again = set()
        self._seen.clear()

    def end(self, result: ExecutionResult) -> None:
        """A cell has run: its error is told, and what it did not do again is mended."""
        self._know()
        cell, file = self._running
        error = result.error_before_exec or result.error_in_exec
        label, is_kernel = label_of(file), is_kernel_cell(getattr(result.info, "raw_cell", None) or "")
        call = self._call_of(error) if isinstance(error, LaunchError) else ()
        for diagnostic in error.diagnostics if isinstance(error, Diagnosed) else ():
            span = diagnostic.span
            if is_kernel and span is not None and span.source.label == label:
                continue  # what is wrong with the text of a kernel cell is told as it is typed
            places = dict.fromkeys(self.places(span, *(other.span for other in diagnostic.related)))
            problem = Problem(diagnostic.code.replace("-", " "), diagnostic.message, (*call, *places))
            self.found(problem)
            self._raised_in[problem] = cell or label
        for problem in [problem for problem in self.open if problem not in self._again]:
            lines = any(place.cell == cell if cell else place.label == label for place in problem.places)
            if lines or self._raised_in.get(problem) == (cell or label):
                self._raised_in.pop(problem, None)
                self.tell({"event": "mended", "key": self.open.pop(problem)})

    def _call_of(self, error: LaunchError) -> tuple[Place, ...]:
        """The line of the running cell at which an error came up, if it came up in a line of it."""
        cell, file = self._running
        frames = traceback.walk_tb(error.__traceback__)
        lines = [number for frame, number in frames if frame.f_code.co_filename == file]
        return tuple(_place(cell, label_of(file), line - 1, linecache.getlines(file)) for line in lines[-1:])

    def overwritten(self, event: Overwrite) -> None:
        """Elements that a gradient needs are overwritten, here and now."""
        key = event.place, event.reader.place, event.outcome
        if key in self._seen:
            return  # a loop does it again: nothing new, and nothing to wait for
        self._seen.add(key)
        places = self.places(event.place.span, event.reader.place.span)
        wrong = "kept" if event.outcome == "saved" else "overwritten"
        called = name_of_memory(event.elements.allocation) or "an array"
        self.found(Problem(wrong, _SAID[event.outcome].format(called, event.reader.call.kernel.name), places))

    def found(self, problem: Problem) -> None:
        """Tell of a problem that is new, and remember that it has come up in this run."""
        if not problem.places:
            return
        self._again.add(problem)
        if problem not in self.open and len(self.open) < MOST:
            self.open[problem] = next(self._keys)
            self.tell(self._message(problem))

    def messages(self) -> list[Message]:
        """What there is to tell a page that comes later."""
        return [self._message(problem) for problem in list(self.open)]

    def places(self, *spans: Span | None) -> tuple[Place, ...]:
        """The lines of cells that spans are at."""
        known = (self.place(span) for span in spans if span is not None)
        return tuple(place for place in known if place is not None)

    def place(self, span: Span) -> Place | None:
        """The line of a cell that a span is at; None for text that is in no cell."""
        self._know()
        source, label = span.source, span.source.label
        if label not in self.cells:
            return None
        lines = source.text.split("\n")
        return _place(self.cells[label][0], label, span.line - 1, lines, source.first_line - 1)

    def where(self, request: Mapping[str, Any], _: object) -> Message:
        """The answer to `where`: a line of the cell of that label, as it ran; nothing where none is known."""
        self._know()
        label, line = str(request["label"]), int(request["line"])
        if label not in self.cells:
            return {}
        cell, file = self.cells[label]
        return _place(cell, label, line, linecache.getlines(file)).message

    def _know(self) -> None:
        """Note which cell the label of the running one stands for: its text is registered by now."""
        cell, file = self._running
        self.cells[label_of(file)] = cell, file

    def _message(self, problem: Problem) -> Message:
        first, *others = (place.message for place in problem.places)
        head = {"event": "warning", "key": self.open[problem], "kind": problem.kind}
        return {**head, **first, "message": problem.text, "others": others}


_SAID = {
    "saved": "`{}` is overwritten; the tape has kept what the gradient of `{}` needs",
    "tainted": "`{}` is overwritten, but the gradient of `{}` needs its old values, and would be wrong",
    "refused": "`{}` must not be overwritten: the gradient of `{}` needs its old values",
}
