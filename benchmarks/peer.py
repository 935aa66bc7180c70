"""A system under measurement, in a process of its own."""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).parent


class Peer:
    """A worker process and what it has answered; its caches are empty at first."""

    def __init__(self, name: str, python: str, script: str = "worker.py", *options: str) -> None:
        cache = tempfile.mkdtemp()
        environment = {**os.environ, "KERNELAB_CACHE_DIR": cache, "PYTHONPATH": str(HERE.parent)}
        self.name = name
        self.process = subprocess.Popen(
            [python, str(HERE / script), name, *options],
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.version = ""

    def greet(self) -> None:
        """Wait until it is ready."""
        self.version = self._answer()["version"]

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to a request; raises RuntimeError where the process has ended."""
        _pipe(self.process.stdin).write(json.dumps(request) + "\n")
        _pipe(self.process.stdin).flush()
        return self._answer()

    def end(self) -> None:
        """End the process."""
        _pipe(self.process.stdin).close()
        self.process.wait()

    def _answer(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._json_line())
        return answer

    def _json_line(self) -> str:
        for line in _pipe(self.process.stdout):
            if line.startswith("{"):
                return line
        raise RuntimeError(f"{self.name} ended early")


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
