"""What the tests of the assistant share: a page of JupyterLab, as far as a kernel sees one."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.jupyter.conftest import TIMEOUT, Notebook


class Page:
    """Opens the comm over a subshell, asks, and reads the answers as they come."""

    def __init__(self, notebook: Notebook) -> None:
        self.client = notebook.client
        self.comm = uuid4().hex
        self.numbers = itertools.count(1)
        self.subshell = self._control("create_subshell_request")["subshell_id"]
        self.events: list[dict[str, Any]] = []
        self._send("comm_open", {"comm_id": self.comm, "target_name": "kernelab", "data": {}})
        assert self._next() == {"version": 1, "event": "ready"}

    def ask(self, kind: str, **request: Any) -> dict[str, Any]:
        """The reply to a request; events that come before it are kept."""
        number = next(self.numbers)
        data = {"version": 1, "id": number, "kind": kind, **request}
        self._send("comm_msg", {"comm_id": self.comm, "data": data})
        while (got := self._next()).get("id") != number:
            self.events.append(got)
        return got

    def run(self, code: str, cell: str) -> None:
        """Run a cell as JupyterLab does, which says which it is."""
        content = {"code": code, "silent": False, "store_history": True, "stop_on_error": False}
        message = self.client.session.msg("execute_request", content, metadata={"cellId": cell})
        self.client.shell_channel.send(message)
        reply: Any = self.client.get_shell_msg(timeout=TIMEOUT)
        while reply["parent_header"].get("msg_id") != message["header"]["msg_id"]:
            reply = self.client.get_shell_msg(timeout=TIMEOUT)

    def event(self) -> dict[str, Any]:
        """The next event."""
        return self.events.pop(0) if self.events else self._next()

    def close(self) -> None:
        self._send("comm_close", {"comm_id": self.comm, "data": {}})
        self._control("delete_subshell_request", {"subshell_id": self.subshell})

    def _next(self) -> dict[str, Any]:
        while True:
            message = self.client.get_iopub_msg(timeout=TIMEOUT)
            content = message["content"]
            if message["msg_type"] == "comm_msg" and content["comm_id"] == self.comm:
                data: dict[str, Any] = content["data"]
                return data

    def _send(self, kind: str, content: dict[str, Any]) -> None:
        message = self.client.session.msg(kind, content)
        message["header"]["subshell_id"] = self.subshell
        self.client.shell_channel.send(message)

    def _control(self, kind: str, content: dict[str, Any] | None = None) -> dict[str, Any]:
        message = self.client.session.msg(kind, content or {})
        self.client.control_channel.send(message)
        while True:
            reply: Any = self.client.control_channel.get_msg(timeout=TIMEOUT)
            if reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
                answer: dict[str, Any] = reply["content"]
                return answer


@contextmanager
def running(notebook: Notebook, file: Path, body: str = "pass") -> Iterator[None]:
    """Within the block a cell runs `body`, at least once and until the block ends, not for some time."""
    notebook.run("import pathlib, time")
    leave = f"if pathlib.Path({str(file)!r}).exists():\n        break"
    code = f"while True:\n    {body}\n    {leave}\n    time.sleep(0.001)"
    request = notebook.client.execute(code)
    try:
        yield
    finally:
        file.touch()
    reply: Any = notebook.client.get_shell_msg(timeout=TIMEOUT)
    while reply["parent_header"].get("msg_id") != request:
        reply = notebook.client.get_shell_msg(timeout=TIMEOUT)
    assert reply["content"]["status"] == "ok"
