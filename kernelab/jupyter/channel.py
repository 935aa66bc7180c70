"""The messages between the JupyterLab extension and the kernel, and the comm that carries them.

`extension/protocol/*.json` holds one request of each kind with its reply, which the tests of both sides read.
JupyterLab opens the comm over a subshell where the kernel has them (ipykernel 7), so that it is answered
while a cell runs; elsewhere it is answered after the cell.
"""

from collections.abc import Callable, Mapping
from typing import Any

from comm import create_comm
from IPython.core.interactiveshell import ExecutionResult, InteractiveShell

from kernelab.frontend.meaning.name_lookup import sound
from kernelab.jupyter.inspection import hover
from kernelab.jupyter.notebook_state import Checks, Problems, State, arrays, code, tape
from kernelab.jupyter.subshells import answer_beside_cells
from kernelab.jupyter.typed_kernels import check, forms, marks
from kernelab.views.pages.display import LISTENERS

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
        return answer(request, sound(names))
    except Exception as problem:  # noqa: BLE001 (a page that asks is told, whatever went wrong)
        return {"error": f"{type(problem).__name__}: {problem}"}


# ----------------------------------------------------------------------------------------------- the channel


class Channel:
    """The comms of all pages that show the notebook of one shell."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell
        self.manager: Any = getattr(getattr(shell, "kernel", None), "comm_manager", None)
        self.comms: dict[str, Any] = {}
        self.problems = Problems(shell, self.tell)
        self.state = State(self.problems)
        self.checks = Checks(self.problems)

    def install(self) -> None:
        """Answer pages from now on, and tell those that are open."""
        if self.manager is not None:
            self.manager.register_target(TARGET, self._opened)
            self.ready = create_comm(target_name=READY, data={"version": VERSION})
            self.problems.install()
            LISTENERS.append(self.checks.shown)

    def remove(self) -> None:
        """Answer no more."""
        if self.manager is not None:
            self.manager.unregister_target(TARGET, self._opened)
            for comm in (*self.comms.values(), self.ready):
                comm.close()
            self.comms.clear()
            self.problems.remove()
            LISTENERS.remove(self.checks.shown)

    def look(self, result: ExecutionResult) -> None:
        """Tell what a cell has changed."""
        if self.manager is not None:
            self.problems.end(result)
            self.state.look()
            self.tell({"event": "state"})

    def tell(self, event: Message) -> None:
        """Send an event to every page."""
        for comm in list(self.comms.values()):
            comm.send({"version": VERSION, **event})

    def _opened(self, comm: Any, _: Any) -> None:
        answer_beside_cells(comm)
        self.comms[comm.comm_id] = comm
        comm.on_msg(lambda message: comm.send(self._reply(message)))
        comm.on_close(lambda _: self.comms.pop(comm.comm_id, None))
        comm.send({"version": VERSION, "event": "ready"})

    def _reply(self, message: Any) -> Message:
        own = {"state": self.state.answer, "checks": self.checks.answer, "where": self.problems.where}
        return reply(message["content"]["data"], dict(self.shell.user_ns), {**ANSWERS, **own})
