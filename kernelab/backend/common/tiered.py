"""Tiered compilation: a background thread that builds programs early, or optimised, while others run.

A build *ahead* starts at once, so that it is there when it is first needed; a launch that needs it before it
has begun builds it.  A *better* build of what runs already starts when nobody has waited for a build for a
moment, since builds get in each other's way; launches change over when it is there.  Knows no compiler and no
device.
"""

import atexit
import os
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import Any, Generic, TypeVar

from kernelab.data_classes.turns import after_fork
from kernelab.errors import Diagnostic, KernelWarning
from kernelab.settings import SETTINGS, settings

PATIENCE = 10.0
"""For how many seconds the interpreter's end waits for the build that goes on."""

LULL = 0.25
"""The seconds without anybody waiting for a build before an optimised build begins."""

T = TypeVar("T")


class Pending(Generic[T]):
    """A build for the background thread; `was_told` says that its failure needs no further report."""

    __slots__ = ("_begun", "_context", "_done", "_home", "_made", "_make", "problem", "was_told")

    def __init__(self, make: Callable[[], T], was_told: bool = False) -> None:
        self._make = make
        self._context = Context()  # a copy of the current one would keep its tape alive
        self._context.run(SETTINGS.set, settings())
        self._home = os.getpid()
        self._begun = threading.Lock()
        self._done = threading.Event()
        self._made: list[T] = []
        self.problem: BaseException | None = None
        self.was_told = was_told

    @property
    def is_done(self) -> bool:
        """Whether the build has ended."""
        return self._done.is_set()

    def run(self) -> None:
        """Build, unless another thread has begun to."""
        if not self._begun.acquire(blocking=False):
            return
        try:
            self._made.append(self._context.run(self._make))
            del self._make
        except BaseException as problem:  # noqa: BLE001 (raised again where the result is taken)
            self.problem = problem
        del self._context
        self._done.set()

    def result(self) -> T:
        """The result, after building here what has not begun; raises an error once, and then builds again."""
        if not self.is_done and self._home != os.getpid():
            return self._make()  # threads do not live on in a forked process
        self.run()
        self._done.wait()
        self.was_told = True
        if self.problem is not None:
            problem, self.problem = self.problem, None
            raise problem
        return self._made[0] if self._made else self._make()


class Worker:
    """A thread that builds as long as there is something to build; it never keeps the process alive."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew: a forked process has no thread but its own."""
        self._changed = threading.Condition()
        self._urgent = 0
        self._quiet_since = 0.0
        self._waiting: deque[Pending[Any]] = deque()
        self._failed: list[Pending[Any]] = []
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

    def wait_for_urgent_builds(self) -> None:
        """Return when nobody waits for a build."""
        with self._changed:
            while self._urgent:
                self._changed.wait()

    def begin(self, make: Callable[[], T], was_told: bool = False) -> Pending[T]:
        """Build behind all that was begun before; at once where no thread can be started, as in a browser."""
        pending = Pending(make, was_told)
        with self._changed:
            self._waiting.append(pending)
            if self._thread is not None:
                return pending
            self._thread = threading.Thread(target=self._work, name="kernelab builds", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:
                self._thread = None
        if self._thread is None:
            self._work()
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
            if pending.problem is not None:
                self._failed.append(pending)

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
            self._waiting.clear()  # who needs one builds it
            self._changed.notify_all()
        self.wait(PATIENCE)
        for pending in self._failed:
            if not pending.was_told:
                message = f"a build in the background failed: {pending.problem}"
                warnings.warn(message, KernelWarning, stacklevel=2)


AHEAD, BETTER = Worker(), Worker()
for _worker in (AHEAD, BETTER):
    atexit.register(_worker.end)
    after_fork(_worker.forget)


_BESIDE: ContextVar[tuple[list[Callable[[], object]], ...]] = ContextVar("_BESIDE", default=())


@contextmanager
def beside(begin: Callable[[], object]) -> Iterator[None]:
    """Begin another build when the compiler of the build in this block runs, or after the block.

    Two threads that write the texts of two programs at once take turns: both would come late.
    """
    waiting = [begin]
    token = _BESIDE.set((waiting, *_BESIDE.get()))
    try:
        yield
    finally:
        _BESIDE.reset(token)
    if waiting:
        begin()


def compiler_runs() -> None:
    """Begin the builds that wait for the compiler of this one, the innermost block's first."""
    for waiting in _BESIDE.get():
        if waiting:
            waiting.pop()()


class Tiered:
    """A function loaded from code that was built quickly, and the better code that is under way, if any.

    The two compute the same: neither contracts nor reorders arithmetic.
    """

    __slots__ = ("_better", "_function", "_load", "_name")

    def __init__(
        self, name: str, load: Callable[[bytes], object], code: bytes, better: Pending[bytes] | None = None
    ) -> None:
        self._name = name
        self._load = load
        self._better = better
        self._function = load(code)

    def now(self, *, may_load: bool) -> object:
        """The best function that there is; with `may_load`, better code that has come is loaded first.

        Where there will be none, a warning says why, once.
        """
        better = self._better
        if better is not None and better.is_done and may_load:
            self._better = None
            try:
                self._function = self._load(better.result())
            except Exception as problem:  # noqa: BLE001 (the quick build goes on)
                self._warn(problem)
        return self._function

    def _warn(self, problem: Exception) -> None:
        message = f"`{self._name}` could not be built with full optimisation: {problem}"
        hint = "it goes on as it was built at first, with the same results, slower"
        Diagnostic(message, None, "background", "warning", hint=hint).warn()
