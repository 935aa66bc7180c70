"""A real ipykernel for the tests of the notebook's side: cells go in, outputs come back."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

TIMEOUT = 120


@dataclass
class Outcome:
    """What one cell gave: its displays as MIME bundles, its streams, and its error's lines."""

    number: int = 0
    displays: list[dict[str, str]] = field(default_factory=list)
    stream: str = ""
    error_name: str = ""
    traceback: str = ""

    @property
    def html(self) -> str:
        return "\n".join(display.get("text/html", "") for display in self.displays)

    @property
    def text(self) -> str:
        return "\n".join(_uncoloured(display.get("text/plain", "")) for display in self.displays)


class Notebook:
    """Runs cells in a kernel, and asks it what a front end asks."""

    def __init__(self, client: BlockingKernelClient) -> None:
        self.client = client

    def run(self, code: str) -> Outcome:
        """Run a cell and collect everything that it shows."""
        outcome = Outcome()
        reply = self.client.execute_interactive(
            code, timeout=TIMEOUT, output_hook=lambda message: _collect(outcome, message), stop_on_error=False
        )
        outcome.number = reply["content"]["execution_count"]
        return outcome

    def complete(self, code: str) -> dict[str, str]:
        """The words offered at the end of the code, with their kinds."""
        reply: Any = self.client.complete(code, len(code), reply=True, timeout=TIMEOUT)
        kinds = reply["content"]["metadata"].get("_jupyter_types_experimental", [])
        return {kind["text"]: kind["type"] for kind in kinds}

    def inspect(self, code: str, at: int | None = None) -> str:
        """What Shift-Tab shows at a place of the code, or at its end."""
        place = len(code) if at is None else at
        reply: Any = self.client.inspect(code, place, reply=True, timeout=TIMEOUT)
        return _uncoloured(reply["content"]["data"].get("text/plain", ""))


def _collect(outcome: Outcome, message: dict[str, Any]) -> None:
    content = message["content"]
    match message["msg_type"]:
        case "display_data" | "execute_result":
            outcome.displays.append(content["data"])
        case "stream":
            outcome.stream += _uncoloured(content["text"])
        case "error":
            outcome.error_name = content["ename"]
            outcome.traceback = _uncoloured("\n".join(content["traceback"]))


def _uncoloured(text: str) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", text)


@contextmanager
def started() -> Iterator[Notebook]:
    manager, client = start_new_kernel(kernel_name="python3")
    with TemporaryDirectory() as cache:
        # What Jedi keeps on disk is not made for several processes that write it, as those of tests do.
        own = f"import jedi\njedi.settings.cache_directory = {cache!r}\ndel jedi"
        client.execute_interactive(own, silent=True, timeout=TIMEOUT)
        try:
            yield Notebook(client)
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)


@pytest.fixture(scope="session")
def shared() -> Iterator[Notebook]:
    with started() as notebook:
        yield notebook


@pytest.fixture
def fresh() -> Iterator[Notebook]:
    """A notebook of its own kernel, in which kernelab has never been imported."""
    with started() as notebook:
        yield notebook


@pytest.fixture
def bare(shared: Notebook) -> Notebook:
    """A notebook without any names in which kernelab has not been loaded."""
    shared.run("%unload_ext kernelab")
    shared.run("%reset -f")
    return shared


@pytest.fixture
def notebook(bare: Notebook) -> Notebook:
    """A notebook with kernelab loaded."""
    loaded = bare.run("%load_ext kernelab\nimport kernelab as kl\nimport numpy as np")
    assert loaded.error_name == ""
    return bare


@pytest.fixture
def without_jedi(notebook: Notebook) -> Iterator[Notebook]:
    """A notebook whose words come without Jedi, which fails where several processes fill its cache."""
    notebook.run("%config Completer.use_jedi = False")
    yield notebook
    notebook.run("%config Completer.use_jedi = True")
