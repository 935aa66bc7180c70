"""Builds that go on in a thread of their own, one after another, while a quicker build serves.

They begin when nobody has waited for a build for a moment, since builds get in each other's way.  What goes
wrong there is kept for whoever takes the result, else said at the end of the process.  Knows no compiler and
no device.
"""

import atexit
import os
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kernelab.errors import KernelWarning

PATIENCE = 10.0
"""For how many seconds the interpreter's end waits for the build that goes on."""

LULL = 0.25
"""For how many seconds nobody has waited for a build when one begins here."""


class Pending:
    """What a build in the background will give; `is_done` once it has ended."""

    __slots__ = ("_made", "_make", "_problem", "is_done")

    def __init__(self, make: Callable[[], bytes]) -> None:
        self._make = make
        self._made = b""
        self._problem: BaseException | None = None
        self.is_done = False

    def run(self) -> None:
        """Build."""
        try:
            self._made = self._make()
        except BaseException as problem:  # noqa: BLE001 (it is for whoever takes the result)
            self._problem = problem
        self.is_done = True

    def take(self) -> tuple[bytes, BaseException | None]:
        """What was made, or what went wrong, which is then known."""
        problem, self._problem = self._problem, None
        return self._made, problem


class Worker:
    """A thread that builds as long as there is something to build; it never keeps the process alive."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew: a forked process has no thread but its own."""
        self._changed = threading.Condition()
        self._urgent = 0
        self._quiet_since = 0.0
        self._waiting: deque[Pending] = deque()
        self._ended: list[Pending] = []
        self._thread: threading.Thread | None = None

    @contextmanager
    def urgent(self) -> Iterator[None]:
        """Somebody waits for what is built in this block: nothing begins here meanwhile, nor just after."""
        with self._changed:
            self._urgent += 1
        try:
            yield
        finally:
            with self._changed:
                self._urgent -= 1
                self._quiet_since = time.monotonic()
                self._changed.notify_all()

    def give_way(self) -> None:
        """Return when nobody waits for a build."""
        with self._changed:
            while self._urgent:
                self._changed.wait()

    def begin(self, make: Callable[[], bytes]) -> Pending:
        """Build behind all that was begun before."""
        pending = Pending(make)
        with self._changed:
            self._waiting.append(pending)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="kernelab builds", daemon=True)
                self._thread.start()
        return pending

    def _work(self) -> None:
        while True:
            with self._changed:
                while self._waiting and (delay := self._delay()) != 0.0:
                    self._changed.wait(delay)
                if not self._waiting:
                    self._thread = None
                    return
                pending = self._waiting.popleft()
            pending.run()
            with self._changed:
                self._ended = [each for each in (*self._ended, pending) if each._problem is not None]

    def _delay(self) -> float | None:
        """For how long nothing may begin; None where nobody knows yet."""
        return None if self._urgent else max(self._quiet_since + LULL - time.monotonic(), 0.0)

    def wait(self, patience: float | None = None) -> None:
        """Return when nothing is left to build, or after so many seconds."""
        with self._changed:
            thread = self._thread
        if thread is not None:
            thread.join(patience)

    def end(self) -> None:
        """Begin nothing more, wait a while for what goes on, and say what went wrong unseen."""
        with self._changed:
            self._waiting.clear()
            self._changed.notify_all()
        self.wait(PATIENCE)
        for pending in self._ended:
            _, problem = pending.take()
            if problem is not None:
                warnings.warn(f"a build in the background failed: {problem}", KernelWarning, stacklevel=2)


WORKER = Worker()
atexit.register(WORKER.end)
os.register_at_fork(after_in_child=WORKER.forget)
