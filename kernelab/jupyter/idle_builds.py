"""Builds of the kernels of ``%%kernel`` cells while the notebook waits for the next cell.

Primals are built first, then adjoints, one at a time.  What has not begun when a cell runs waits until that
has ended; a launch that needs it builds it at once.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from IPython.core.interactiveshell import InteractiveShell

from kernelab.backend.common.tiered import LULL, Pending
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.program import Program
from kernelab.runtime.memory.device import get_device
from kernelab.settings import settings
from kernelab.views.kernel.kernel_facts import differentiable, refusal


def derived(kernel: Kernel) -> Iterator[Program]:
    """The programs that a recorded launch and its adjoint need beside the primal, derived when asked for."""
    active = differentiable(kernel)
    if active and not refusal(kernel):
        pullback = kernel.program.pullback(kernel.positions(active))
        if pullback.residuals:
            yield pullback.primal
        yield pullback.adjoint


class IdleBuilds:
    """The kernels of a notebook that are left to build, and the timer that begins the next build."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell
        self._left: deque[tuple[str, Kernel, Iterator[Program]]] = deque()
        self._pending: Pending[Any] | None = None
        self.timer: asyncio.TimerHandle | None = None

    def add(self, kernels: Mapping[str, Kernel]) -> None:
        """Build these kernels of a cell, by name, when the notebook waits."""
        self._left.extend((name, kernel, iter([kernel.program])) for name, kernel in kernels.items())
        self._left.extend((name, kernel, derived(kernel)) for name, kernel in kernels.items())

    def stop(self, *_: object) -> None:
        """Begin nothing more: a cell runs."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def start(self, *_: object) -> None:
        """Go on in a moment, unless another cell runs by then, as in a notebook that runs in batch."""
        self.stop()  # a cell may run another one
        chosen = settings()
        if chosen.idle_builds and chosen.live_tapes:
            self._wait(LULL)

    def _wait(self, seconds: float) -> None:
        if self._left:
            with suppress(RuntimeError):  # in a terminal nothing would run what is put off
                self.timer = asyncio.get_running_loop().call_later(seconds, self._step)

    def _step(self) -> None:
        self.timer = None
        if self._pending is None or self._pending.is_done:
            self._pending = self._begin()
        self._wait(LULL / 10)

    def _begin(self) -> Pending[Any] | None:
        """Begin the next build; kernels that the notebook has not any more are left out."""
        while self._left:
            name, kernel, programs = self._left[0]
            program = next(programs, None) if self.shell.user_ns.get(name) is kernel else None
            if program is not None:
                return program.build_ahead(get_device().space)
            self._left.popleft()
        return None
