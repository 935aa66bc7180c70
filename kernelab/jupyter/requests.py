"""The messages between the JupyterLab extension and the kernel: version, kinds, replies.

`extension/protocol/*.json` holds one request of each kind with its reply, which the tests of both sides read.
"""

from collections.abc import Callable, Mapping
from typing import Any

from kernelab.jupyter.checking import check
from kernelab.jupyter.hovering import hover
from kernelab.jupyter.notebook_state import arrays, code, tape
from kernelab.jupyter.typed_kernels import forms, marks

VERSION = 1
TARGET = "kernelab"
"""The comm that a page opens, and asks by."""

READY = "kernelab.ready"
"""The comm that the kernel opens to say that it answers."""

Message = dict[str, Any]
Answer = Callable[[Mapping[str, Any], Mapping[str, Any]], Message]

ANSWERS: Mapping[str, Answer] = {
    "check": check,
    "hover": hover,
    "marks": marks,
    "forms": forms,
    "arrays": arrays,
    "tape": tape,
    "code": code,
}
"""How each kind of request is answered, given the names of the notebook."""


def reply(request: Any, names: Mapping[str, Any], answers: Mapping[str, Answer] = ANSWERS) -> Message:
    """The reply to what a page has sent, whatever that is; mistakes of the request come back as ``error``."""
    number = request.get("id") if isinstance(request, dict) else None
    return {"version": VERSION, "id": number, **_answer(request, names, answers)}


def _answer(request: Any, names: Mapping[str, Any], answers: Mapping[str, Answer]) -> Message:
    if not isinstance(request, dict) or request.get("version") != VERSION:
        return {"error": f"this kernel speaks version {VERSION} of kernelab's messages"}
    answer = answers.get(request.get("kind", ""))
    if answer is None:
        return {"error": f"there is no request {request.get('kind')!r}; there is {', '.join(answers)}"}
    try:
        return answer(request, names)
    except Exception as problem:  # noqa: BLE001 (a page that asks is told, whatever went wrong)
        return {"error": f"{type(problem).__name__}: {problem}"}
