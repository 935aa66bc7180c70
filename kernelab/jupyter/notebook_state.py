"""The arrays, tape and checks of a notebook, what kernels run on, and code to insert, for JupyterLab."""

import re
import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kernelab import hooks
from kernelab.autodiff.checks.gradcheck import GradcheckReport
from kernelab.autodiff.checks.tapecheck import TapeReport
from kernelab.autodiff.checks.taylor import TaylorReport
from kernelab.autodiff.records.records import LaunchRecord
from kernelab.autodiff.tape.tape import Tape
from kernelab.backend.common.compiler import find_compiler
from kernelab.jupyter.cell_text import CellText
from kernelab.jupyter.problems import Place, Problems
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import caller
from kernelab.runtime.host.structarray import structarray
from kernelab.runtime.memory.device import get_device
from kernelab.settings import settings
from kernelab.views.pages import page
from kernelab.views.tape.arrays import LOOKED_AT, values_view

MOST = 100
"""How many arrays are listed."""

PIXELS = 2_000
"""How many bytes the picture of an array takes, before it is encoded as text."""


def arrays(_: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to `arrays`: those that variables of the notebook hold, the latest first, and the style."""
    pairs = [(name, value) for name, value in names.items() if issubclass(type(value), array)]
    shown = [pair for pair in reversed(pairs) if not pair[0].startswith("_")]
    return {
        "arrays": list(map(_described, shown[:MOST])),
        "more": max(0, len(shown) - MOST),
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
        """The answer to `checks`."""
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
        """The answer to `state`."""
        compiler = find_compiler()
        problems = self.problems.messages()
        return {
            "device": self.device,
            "compiler": None if compiler is None else Path(compiler).name,
            "checked": self.check,
            "launches": self.launches,
            "problems": problems,
            "warnings": sum(problem["kind"] != "kept" for problem in problems),
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
        return {"why": f"`{name}` holds no launch of {f'`{kernel}`' if kernel else 'a kernel at the cursor'}"}
    if request["command"] == "check-kernel":
        only = f"whitelist_kernels=[{kernel!r}]".replace("'", '"')
        return {"code": f"{head}{kl or 'kl'}.autograd.gradcheck_tape({name}, {only})"}
    if tape.last_cotangents is None:
        return {"why": f"a trace starts with the cotangents of a backward pass: call `{name}.backward(...)`"}
    return {"code": f"{head}{kl or 'kl'}.trace({name}, {numbers[-1]}, 0)"}


def _kernel_at(cell: CellText, line: int) -> str:
    """The name of the last def that begins at a line or above."""
    if cell.magic_line is None:
        return ""
    matches = (re.match(r"def +(\w+)", text) for text in reversed(cell.lines[: line + 1]))
    return next((match[1] for match in matches if match), "")


def _launches(tape: Tape, kernel: str) -> list[int]:
    """The numbers on the tape, from 1, of the launches of a kernel."""
    return [i for i, one in enumerate(tape, 1) if isinstance(one, LaunchRecord) and one.kernel.name == kernel]
