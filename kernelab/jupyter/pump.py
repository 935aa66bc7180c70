"""One thread that looks at everything shown, 60 times a second while something changes, and tells the page.

Recording threads are not told to tell anybody: they pay nothing but the moments in which this thread looks.
Knows time and threads; must not know tapes or widgets.
"""

import threading
from typing import Protocol

ACTIVE, IDLE = 1 / 60, 0.1
"""Seconds between two looks, while things change and otherwise."""

QUIET = 0.3
"""After how many seconds without a change everything is told again, as a page keeps it."""


class Shown(Protocol):
    """Something that a page shows and that may change."""

    def refresh(self) -> bool | None:
        """Tell the page what is new; whether anything was, None when it is never going to change again."""

    def settle(self) -> None:
        """Tell the page everything, so that it can keep it."""


class Pump:
    """Looks after what is shown, in a thread that exists as long as there is any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._quiet: dict[Shown, float] = {}
        self._thread: threading.Thread | None = None

    def add(self, shown: Shown) -> None:
        """Look after it from now on."""
        with self._lock:
            self._quiet[shown] = QUIET
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="kernelab display", daemon=True)
                self._thread.start()

    def flush(self) -> None:
        """Tell everything now: what calls this may end the process next."""
        for shown in self._shown():
            if shown.refresh() or self._quiet.get(shown, QUIET) < QUIET:
                self._quiet[shown] = QUIET
                shown.settle()

    def _shown(self) -> list[Shown]:
        with self._lock:
            return list(self._quiet)

    def _run(self) -> None:
        pause = threading.Event()
        while shown := self._shown():
            busy = sum(self._look(one) for one in shown) > 0
            pause.wait(ACTIVE if busy else IDLE)
        with self._lock:
            self._thread = None
        if self._shown():
            self._revive()

    def _revive(self) -> None:
        """Something came while the thread was ending."""
        for shown in self._shown():
            self.add(shown)

    def _look(self, shown: Shown) -> bool:
        """Whether it may change again at once."""
        changed = shown.refresh()
        with self._lock:
            if changed is None:
                self._quiet.pop(shown, None)
                return False
            before = self._quiet.get(shown, QUIET)
            now = 0.0 if changed else min(QUIET, before + ACTIVE)
            self._quiet[shown] = now
        if before < QUIET <= now:
            shown.settle()
        return now < QUIET


PUMP = Pump()
"""The one of this process."""
