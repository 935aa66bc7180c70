"""Code that commands of JupyterLab insert into a cell to check or to trace a kernel."""

import re
from collections.abc import Mapping
from typing import Any

from kernelab.autodiff.records.records import LaunchRecord
from kernelab.autodiff.tape.tape import Tape
from kernelab.jupyter.cell_text import CellText
from kernelab.jupyter.notebook_state import last_tape


def code(request: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to `code`: the code of a `command` at a line of a cell, or `why` there is none."""
    name, tape = last_tape(names)
    if tape is None:
        return {"why": "no variable holds a tape: record the launches with `with kl.Tape() as tape:` first"}
    kl = next((name for name, value in names.items() if getattr(value, "__name__", "") == "kernelab"), None)
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
    return [i for i, one in enumerate(tape) if isinstance(one, LaunchRecord) and one.kernel.name == kernel]
