"""The comm between pages and the kernel: requests are answered on the thread of their subshell.

JupyterLab opens the comm over a subshell where the kernel has them (ipykernel 7), so that it is answered
while a cell runs; elsewhere it is answered after the cell.
"""

import sys
from typing import Any

from comm import create_comm
from IPython.core.interactiveshell import ExecutionResult, InteractiveShell

from kernelab.jupyter.notebook_state import Checks, State
from kernelab.jupyter.problems import Problems
from kernelab.jupyter.requests import ANSWERS, READY, TARGET, VERSION, Message, reply
from kernelab.jupyter.subshells import answer_beside_cells
from kernelab.views.pages.display import LISTENERS

SWITCH = 0.001
"""Seconds after which a cell that computes in Python lets a waiting answer go on; by itself it is 0.005."""


class Channel:
    """The comms of all pages that show the notebook of one shell."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell
        self.manager: Any = getattr(getattr(shell, "kernel", None), "comm_manager", None)
        self.comms: dict[str, Any] = {}
        self.usual_switch = sys.getswitchinterval()
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
            sys.setswitchinterval(self.usual_switch)
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
        comm.on_close(lambda _: self._closed(comm))
        sys.setswitchinterval(min(SWITCH, self.usual_switch))
        comm.send({"version": VERSION, "event": "ready"})

    def _closed(self, comm: Any) -> None:
        self.comms.pop(comm.comm_id, None)
        if not self.comms:
            sys.setswitchinterval(self.usual_switch)

    def _reply(self, message: Any) -> Message:
        own = {"state": self.state.answer, "checks": self.checks.answer, "where": self.problems.where}
        answers = {**ANSWERS, **own}
        return reply(message["content"]["data"], dict(self.shell.user_ns), answers)
