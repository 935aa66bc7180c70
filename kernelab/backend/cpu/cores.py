"""A thread pool for the parts of one launch: helpers wait for work, and take parts in order.

The thread that has the work takes part itself.  It asks for help at once where there are many parts, else
when the first ones have shown that the rest takes longer than it takes to wake somebody.  It never waits for
a thread that has not begun: so launches from several threads cannot wait for each other, and after a fork
there are no helpers yet, and nobody waits.
Knows nothing of kernels; which part runs where must not matter.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from queue import SimpleQueue

from kernelab.backend.common.interrupts import OURS, end_if_interrupted
from kernelab.data_classes.turns import after_fork

TURN = 0.05
"""The seconds between two looks for an interrupt of another thread."""

WAKING = 5e-5
"""The seconds that the rest of a work has to take for others to help: twice what it takes to wake one."""


def available() -> int:
    """The number of cores that the process may use."""
    if hasattr(os, "sched_getaffinity"):  # as on Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


MANY = 4
"""From so many parts on a work takes long enough to ask for help at once."""


class Work:
    """Parts of a work by number: `stop` makes those that run now, but earlier ones, end soon.

    `do` runs those that it takes from an iterator; each thread that helps calls it once.
    """

    def __init__(self, do: Callable[[Iterator[int]], None], stop: Callable[[int], None], count: int) -> None:
        self._do = do
        self._stop = stop
        self._waiting = deque(range(count))
        self._helpers: list[threading.Event] = []
        self._problems: list[BaseException] = []

    def run(self, helpers: int) -> None:
        """Run all parts, with at most so many other threads; raises what was raised there or by a signal."""
        try:
            self._do(self._asking(helpers) if helpers else self._taken())
            self._wait()
        except BaseException:
            self._give_up()
            raise
        if self._problems:
            raise self._problems[0]

    def end_behind(self, number: int) -> None:
        """Parts behind this one no longer matter: none begins, and those that run end soon."""
        self._waiting.clear()
        self._stop(number)

    def help(self) -> None:
        """Run parts in a thread of the pool as long as there are any."""
        has_left = threading.Event()
        self._helpers.append(has_left)  # before it takes a part
        try:
            self._do(self._taken())
        except BaseException as problem:  # noqa: BLE001  raised again by `run`
            self._problems.append(problem)
            self.end_behind(-1)
        finally:
            has_left.set()

    def _taken(self) -> Iterator[int]:
        """The parts that one thread takes."""
        while self._waiting:
            try:
                number = self._waiting.popleft()
            except IndexError:  # another thread was faster
                return
            yield number

    def _asking(self, helpers: int) -> Iterator[int]:
        """The same; once the rest has turned out to be long, so many threads are asked for help."""
        if len(self._waiting) >= MANY:
            POOL.ask(self, min(helpers, len(self._waiting) - 1))
            helpers = 0
        start = time.perf_counter()
        for done, number in enumerate(self._taken(), 1):
            yield number
            if helpers and (time.perf_counter() - start) / done * len(self._waiting) > WAKING:
                POOL.ask(self, min(helpers, len(self._waiting)))
                helpers = 0

    def _wait(self) -> None:
        """Return when all helpers have left; one that comes later finds nothing to do."""
        for has_left in [*self._helpers]:
            while not has_left.wait(TURN):
                end_if_interrupted()

    def _give_up(self) -> None:
        """Have all helpers leave, whatever signals come meanwhile: they write to the caller's memory."""
        while True:
            try:
                self.end_behind(-1)
                self._wait()
            except BaseException:  # noqa: BLE001  the first one is raised
                continue
            return


class Pool:
    """Threads that wait for work; they never keep the process alive."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew: a forked process has no thread but its own."""
        self._work: SimpleQueue[Work] = SimpleQueue()
        self._count = 0
        self._lock = threading.RLock()

    def ask(self, work: Work, helpers: int) -> None:
        """Have so many threads help."""
        with self._lock:
            try:
                while self._count < helpers:
                    name = f"{OURS}core {self._count + 1}"
                    threading.Thread(target=self._help, args=(self._work,), name=name, daemon=True).start()
                    self._count += 1
            except RuntimeError:  # no more threads can be started: those that there are help
                pass
        for _ in range(min(helpers, self._count)):
            self._work.put(work)

    @staticmethod
    def _help(works: "SimpleQueue[Work]") -> None:
        while True:
            works.get().help()


POOL = Pool()
after_fork(POOL.forget)
