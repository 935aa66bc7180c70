"""Problems, arrays, tape and checks of a notebook, what kernels run on, and code to insert, for JupyterLab.

A problem is an overwrite of elements that a gradient needs, a warning, such as that a gradient ends, or a
diagnostic of a cell's error, such as the line where a value turned NaN.  It is sent to pages, and withdrawn
where a cell of one of its lines has run again without it.
"""

import itertools
import linecache
import re
import sys
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from IPython.core.interactiveshell import ExecutionInfo, ExecutionResult, InteractiveShell

from kernelab import hooks
from kernelab.autodiff.checks.gradcheck_report import GradcheckReport
from kernelab.autodiff.checks.tape_report import TapeReport
from kernelab.autodiff.checks.taylor import TaylorReport
from kernelab.autodiff.records.hazards import LISTENERS, Overwrite
from kernelab.autodiff.records.records import LaunchRecord
from kernelab.autodiff.tape.tape import Tape
from kernelab.backend.common.compiler import find_compiler
from kernelab.data_classes import dataclass
from kernelab.errors import WARNED, Diagnosed, Diagnostic, LaunchError, Span, label_of
from kernelab.jupyter.typed_kernels import CellText
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import caller, name_of_memory
from kernelab.runtime.host.structarray import structarray
from kernelab.runtime.memory.device import get_device
from kernelab.settings import settings
from kernelab.views.pages import page
from kernelab.views.tape.arrays import LOOKED_AT, values_view

# -------------------------------------------------------------------------------------------------- problems


Message = dict[str, Any]

MOST_PROBLEMS = 100
"""How many problems are reported at a time."""


@dataclass(frozen=True)
class Place:
    """A line of a cell, from 0; `cell` is the number that JupyterLab has given the cell, if it has.

    `same` is the position of the line among the lines with its text, and the number of these: so it is
    found after lines have been inserted above it.
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

    def __init__(self, shell: InteractiveShell, tell: Callable[[Message], None]) -> None:
        self.shell = shell
        self.tell = tell
        self.cells: dict[str, tuple[str | None, str]] = {}
        """Which cell each label stands for, and the name of its text."""
        self.open: dict[Problem, int] = {}
        self._raised_in: dict[Problem, str] = {}
        """The cell that ended with each problem that was an error: its lines may be in other cells."""
        self._again: set[Problem] = set()
        self._seen: set[object] = set()
        self._running: tuple[str | None, str] = (None, "")
        self._is_kernel = False
        self._keys = itertools.count(1)

    def install(self) -> None:
        self.shell.events.register("pre_run_cell", self.begin)
        LISTENERS.append(self.overwritten)
        WARNED.append(self.warned)

    def remove(self) -> None:
        self.shell.events.unregister("pre_run_cell", self.begin)
        LISTENERS.remove(self.overwritten)
        WARNED.remove(self.warned)

    def begin(self, info: ExecutionInfo) -> None:
        """A cell is about to run."""
        raw = info.raw_cell or ""
        parent: Message = getattr(self.shell, "get_parent", dict)() or {}
        cell = parent.get("metadata", {}).get("cellId")
        self._running = cell, self.shell.compile.get_code_name(raw, raw, self.shell.execution_count)
        self._is_kernel = CellText(raw).magic_line is not None
        self._again = set()
        self._seen.clear()

    def end(self, result: ExecutionResult) -> None:
        """A cell has run: its error is told, and what it did not do again is mended."""
        self._know()
        cell, file = self._running
        error = result.error_before_exec or result.error_in_exec
        label = label_of(file)
        call = self._call_of(error) if isinstance(error, LaunchError) else ()
        for diagnostic in error.diagnostics if isinstance(error, Diagnosed) else ():
            if self._is_typed(diagnostic):
                continue
            problem = self._problem(diagnostic, call)
            self.found(problem)
            self._raised_in[problem] = cell or label
        for problem in [problem for problem in self.open if problem not in self._again]:
            lines = any(place.cell == cell if cell else place.label == label for place in problem.places)
            if lines or self._raised_in.get(problem) == (cell or label):
                self._raised_in.pop(problem, None)
                self.tell({"event": "mended", "key": self.open.pop(problem)})

    def _is_typed(self, diagnostic: Diagnostic) -> bool:
        """Whether it is about the text of the running kernel cell: that is told as it is typed."""
        span = diagnostic.span
        return self._is_kernel and span is not None and span.source.label == label_of(self._running[1])

    def _problem(self, diagnostic: Diagnostic, call: tuple[Place, ...] = ()) -> Problem:
        spans = diagnostic.span, *(other.span for other in diagnostic.related)
        places = tuple(dict.fromkeys((*call, *self.places(*spans))))
        return Problem(diagnostic.code.replace("-", " "), diagnostic.message, places)

    def warned(self, diagnostic: Diagnostic) -> None:
        """A warning is given; of overwrites `overwritten` tells."""
        key = diagnostic.message, diagnostic.span
        if diagnostic.code == "overwrite" or key in self._seen or self._is_typed(diagnostic):
            return
        self._seen.add(key)
        self.found(self._problem(diagnostic))

    def _call_of(self, error: LaunchError) -> tuple[Place, ...]:
        """The line of the running cell at which an error came up, if it came up in a line of it."""
        cell, file = self._running
        frames = traceback.walk_tb(error.__traceback__)
        lines = [number for frame, number in frames if frame.f_code.co_filename == file]
        return tuple(_place(cell, label_of(file), line - 1, linecache.getlines(file)) for line in lines[-1:])

    def overwritten(self, event: Overwrite) -> None:
        """Elements that a gradient needs are overwritten, here and now; kept ones are no problem."""
        if event.outcome == "saved":
            return
        key = event.place, event.reader.place, event.outcome
        if key in self._seen:
            return  # a loop does it again: nothing new, and nothing to wait for
        self._seen.add(key)
        places = self.places(event.place.span, event.reader.place.span)
        called = name_of_memory(event.elements.allocation) or "an array"
        self.found(
            Problem("overwritten", _SAID[event.outcome].format(called, event.reader.call.kernel.name), places)
        )

    def found(self, problem: Problem) -> None:
        """Tell of a problem that is new, and remember that it has come up in this run."""
        if not problem.places:
            return
        self._again.add(problem)
        if problem not in self.open and len(self.open) < MOST_PROBLEMS:
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
    "tainted": "`{}` is overwritten, but the gradient of `{}` needs its old values, and would be wrong",
    "refused": "`{}` must not be overwritten: the gradient of `{}` needs its old values",
}


# ---------------------------------------------------------------------------------------------------- arrays


MOST_ARRAYS = 100
"""How many arrays are listed."""

PIXELS = 2_000
"""How many bytes the picture of an array takes, before it is encoded as text."""


def arrays(_: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to `arrays`: those that variables of the notebook hold, the latest first, and the style."""
    pairs = [(name, value) for name, value in names.items() if issubclass(type(value), array)]
    shown = [pair for pair in reversed(pairs) if not pair[0].startswith("_")]
    return {
        "arrays": list(map(_described, shown[:MOST_ARRAYS])),
        "more": max(0, len(shown) - MOST_ARRAYS),
        "style": page.styles(),
    }


def _described(pair: tuple[str, array]) -> dict[str, Any]:
    name, shown = pair
    gradient = shown.grad if shown.requires_grad and shown.allocation.adjoint is not None else None
    return {
        "name": name,
        "shape": list(shown.shape),
        "dtype": str(shown.dtype),
        "device": str(shown.device),
        "requires_grad": shown.requires_grad,
        "norm": _norm(shown),
        "grad_norm": None if gradient is None else _norm(gradient),
        "picture": page.part(values_view("", shown, PIXELS)) if _may_be_read(shown) else None,
    }


def _may_be_read(shown: array) -> bool:
    """Whether another thread may look at the elements while a cell runs: not those of a device."""
    return shown.device.is_cpu and shown.size <= LOOKED_AT


def _norm(shown: array) -> float | str | None:
    """The root of the sum of squares; text where it is not finite, which JSON cannot say."""
    if not _may_be_read(shown) or isinstance(shown, structarray):
        return None
    with np.errstate(all="ignore"):
        norm = float(np.linalg.norm(np.asarray(shown.host(), np.float64).ravel()))
    return norm if np.isfinite(norm) else str(norm)


def last_tape(names: Mapping[str, Any]) -> tuple[str, Tape | None]:
    """The tape that a variable of the notebook has got last, and its name."""
    tapes = ((name, value) for name, value in reversed(list(names.items())) if issubclass(type(value), Tape))
    return next((pair for pair in tapes if not pair[0].startswith("_")), ("", None))


def tape(_: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to `tape`: the forms of the last one, as a cell would show it, live where that can be."""
    name, last = last_tape(names)
    forms = {} if last is None else hooks.widget(last, {}) or hooks.display(last, None)
    return {"name": name, "forms": forms}


class Checks:
    """The last checks of gradients that cells have shown, the latest first."""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self.told: deque[tuple[str, bool, Place]] = deque(maxlen=MOST_CHECKS)

    def shown(self, report: object, text: str) -> None:
        """Take note of what a cell shows, if that is a check."""
        place = self.problems.place(caller().span)
        if place is not None and isinstance(report, GradcheckReport | TapeReport | TaylorReport):
            entry = text.split("\n")[0], bool(report), place
            if entry not in self.told:
                self.told.appendleft(entry)

    def answer(self, _: object, names: object) -> dict[str, Any]:
        told = [{"verdict": text, "passed": ok, **place.message} for text, ok, place in list(self.told)]
        return {"checks": told}


MOST_CHECKS = 10
"""How many checks are kept."""


class State:
    """What kernels run on, as it was after the last cell: settings belong to the thread of the cells."""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self.look()

    def look(self) -> None:
        """Take note, on the thread of the cells."""
        self.device, self.check = str(get_device()), settings().check
        recorded = last_tape(self.problems.shell.user_ns)[1]
        self.launches = None if recorded is None else len(recorded.launches)

    def answer(self, _: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
        compiler = find_compiler()
        problems = self.problems.messages()
        return {
            "device": self.device,
            "compiler": None if compiler is None else Path(compiler).name,
            "checked": self.check,
            "launches": self.launches,
            "problems": problems,
            "warnings": len(problems),
        }


# ----------------------------------------------------------------------------------- code that is offered


def code(request: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to `code`: what a `command` inserts to check or trace a kernel, or `why` there is none."""
    name, tape = last_tape(names)
    if tape is None:
        return {"why": "no variable holds a tape: record the launches with `with kl.Tape() as tape:` first"}
    kl = next((name for name, value in names.items() if value is sys.modules["kernelab"]), None)
    head = "" if kl else "import kernelab as kl\n"
    if request["command"] == "check-tape":
        return {"code": f"{head}{kl or 'kl'}.autograd.gradcheck_tape({name})"}
    kernel = _kernel_at(CellText(request["text"]), int(request["line"]))
    numbers = _launches(tape, kernel)
    if not numbers:
        none = f"`{name}` holds no launch of `{kernel}`"
        return {"why": none if kernel else "no kernel is at the cursor: put it into one"}
    if request["command"] == "check-kernel":
        only = f"whitelist_kernels=[{kernel!r}]".replace("'", '"')
        return {"code": f"{head}{kl or 'kl'}.autograd.gradcheck_tape({name}, {only})"}
    if tape.last_cotangents is None:
        return {"why": f"a trace starts with the cotangents of a backward pass: call `{name}.backward(...)`"}
    return {"code": f"{head}{kl or 'kl'}.trace({name}, {numbers[-1]}, 0)"}


def _kernel_at(cell: CellText, line: int) -> str:
    """The name of the last def that begins at a line or above, else of the first one."""
    if cell.magic_line is None:
        return ""
    nearest = (*reversed(cell.lines[: line + 1]), *cell.lines[line + 1 :])
    matches = (re.match(r"def +(\w+)", text) for text in nearest)
    return next((match[1] for match in matches if match), "")


def _launches(tape: Tape, kernel: str) -> list[int]:
    """The numbers on the tape, from 1, of the launches of a kernel."""
    return [i for i, one in enumerate(tape, 1) if isinstance(one, LaunchRecord) and one.kernel.name == kernel]
