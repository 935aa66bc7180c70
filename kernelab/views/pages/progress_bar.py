"""A progress bar for work longer than a second, in a terminal or in the cell's output.

It appears after a second and says at the end how long it took.  Where neither a notebook nor a terminal
looks on, nothing is written.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

from kernelab import hooks
from kernelab.autodiff.transforms.progress import Progress
from kernelab.errors import running_shell
from kernelab.views.pages import markup, page
from kernelab.views.pages.display import running_notebook
from kernelab.views.pages.markup import Drawing, Node, words

PATIENCE, PACE = 1.0, 0.1
"""After how many seconds the bar appears, and how often it changes."""

WIDTH = 24


class Bar:
    """The display of one piece of work; `write` shows a view and takes whether it is the last."""

    def __init__(
        self,
        progress: Progress,
        write: Callable[[Node, bool], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._progress = progress
        self._write = write
        self._clock = clock
        self._started = clock()
        self._next = self._started + PATIENCE
        self._is_shown = False

    def __call__(self) -> None:
        now = self._clock()
        is_last = self._progress.done >= self._progress.total
        if is_last and self._is_shown:
            self._write(finished(self._progress, now - self._started), True)
        elif now >= self._next and not is_last:
            self._write(running(self._progress, now - self._started), False)
            self._next, self._is_shown = now + PACE, True


def running(progress: Progress, seconds: float) -> Node:
    """The bar of work that goes on since so many seconds."""
    full = WIDTH * progress.done // progress.total
    left = seconds * (progress.total - progress.done) / max(progress.done, 1)  # at the speed so far
    time_left = f"{left:.0f} s" if left < 100 else f"{left / 60:.0f} min"
    count = f"{progress.done:,} of {progress.total:,}, {time_left} left"
    line = f"{progress.what} {'█' * full}{'░' * (WIDTH - full)} {count}"
    html = f'<progress max="{progress.total}" value="{progress.done}"></progress>'
    return Drawing(f"{progress.what}: {count}", html, (line,))


def finished(progress: Progress, seconds: float) -> Node:
    """The view that remains after the work."""
    return words(f"{progress.what}: {progress.done:,} in {seconds:.1f} s")


@hooks.watch.provide
def bar(progress: Progress) -> Callable[[], Any]:
    """A bar where the user looks: in the notebook that runs, else in the terminal."""
    notebook = running_notebook()
    if notebook is not None and hasattr(running_shell(), "kernel"):
        return Bar(progress, _Output(notebook))
    if sys.stderr is not None and sys.stderr.isatty():
        return Bar(progress, _line)
    return lambda: None


class _Output:
    """An output of the cell that is shown again and again."""

    def __init__(self, notebook: Any) -> None:
        self._notebook = notebook
        self._handle: Any = None

    def __call__(self, node: Node, is_last: bool) -> None:
        bundle = {"text/plain": markup.render(node), "text/html": page.render(node)}
        if self._handle is None:
            self._handle = self._notebook.display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)


def _line(node: Node, is_last: bool) -> None:
    """The last line of text form, over the one before."""
    shown = markup.render(node).splitlines()[-1]
    sys.stderr.write(f"\r\x1b[K{shown}" + ("\n" if is_last else ""))
    sys.stderr.flush()
