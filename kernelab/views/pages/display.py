"""How notebooks show objects of other layers, errors, and the progress of long computations.

Objects get their rich display.  An error stands under a cell with its message, location, caret and advice:

    KernelTypeError: cannot add vec3 and float32
      Cell In[12], line 4
        4 |     p = x[i] + dt
          |         ^^^^^^^^^   vec3 + float32
      hint: multiply by a vector, or write vec3(dt, dt, dt)

An error that a launch raises also shows the user's lines that led to it; no frame of kernelab, of the
notebook or of Python's own library is shown, nor the line of the message again.  A progress bar appears
after a second, that of `kl.progress` at once, in a terminal or in the cell's output, and says at the end
how long it took; where neither looks on, nothing is written.  Knows IPython's protocols by name only:
`_repr_mimebundle_` and `_render_traceback_`.
"""

import linecache
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from kernelab import hooks
from kernelab.errors import Diagnosed, label_of, running_shell
from kernelab.hooks import Progress
from kernelab.views.pages import markup, page
from kernelab.views.pages.markup import Drawing, Node, words

Bundle = dict[str, str]

Picture = Callable[[Any], str]
"""An object as the text of an SVG file."""


class View:
    """A view that a notebook shows and a terminal prints."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def __str__(self) -> str:
        return markup.render(self.node)

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Bundle:
        return bundle(self, lambda view: view.node, include=include)


TEXT = frozenset({"text/plain"})
"""The form for terminals."""


def bundle(
    shown: Any, view: Callable[[Any], Node], svg: Picture | None = None, include: Any = None
) -> Bundle:
    """The view of an object as text and HTML, and as a picture where there is one; as text alone for `TEXT`.

    Where the view fails, the object as text and the reason.
    """
    try:
        node = view(shown)
        if include == TEXT:
            return {"text/plain": markup.render(node)}
        pictures = {} if svg is None else {"image/svg+xml": svg(shown)}
        return {"text/plain": markup.render(node), "text/html": page.render(node), **pictures}
    except Exception as error:  # noqa: BLE001  a view must never stand between a user and a result
        name = object.__repr__(shown) if isinstance(shown, View) else repr(shown)
        return {"text/plain": f"{name}\n(it cannot be shown: {type(error).__name__}: {error})"}


def running_notebook() -> Any:
    """IPython's module of displays where a shell is running, else None."""
    return None if running_shell() is None else sys.modules.get("IPython.display")


LISTENERS: list[Callable[[Any, str], None]] = []
"""A listener for what is shown at once, with its text, such as a page that lists the last checks."""


def show(shown: Any) -> None:
    """Show the view of an object now: in the notebook that is running, else on standard output."""
    notebook = running_notebook()
    forms: Bundle = shown._repr_mimebundle_(None if notebook else TEXT)
    if notebook:
        notebook.display(forms, raw=True)
    else:
        _print(forms["text/plain"])
    for listener in LISTENERS:
        listener(shown, forms["text/plain"])


_IN_ASCII = str.maketrans("✓✗⚠│─", "+x!|-")


def _print(text: str) -> None:
    """Print a text; in ASCII where standard output lacks its marks, as a pipe or a console of Windows may."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError as lacking:
        text = text.translate(_IN_ASCII).encode(lacking.encoding, "replace").decode(lacking.encoding)
    sys.stdout.write(text + "\n")


@hooks.show_once.provide
def show_once(shown: Any) -> None:
    """Show the value of a cell, unless that cell has shown it when it was made."""
    if shown.shown_in != cell():
        show(shown)


def cell() -> int | None:
    """The number of the cell that runs, None outside of notebooks."""
    shell = running_shell()
    return None if shell is None else int(shell.execution_count)


def show_now(shown: Any) -> None:
    """Show an object as the value of a cell is shown."""
    if notebook := running_notebook():
        notebook.display(shown)
        return
    forms = shown._repr_mimebundle_(TEXT) if hasattr(shown, "_repr_mimebundle_") else {}
    _print(forms.get("text/plain", repr(shown)))


# ----------------------------------------------------------------------------------------------------- errors


MAX_CALLS = 4
"""How many of the user's calls are shown, the innermost ones."""

# A colour that is bold too is drawn in a darker one, which dark themes hardly show: names are coloured only.
RED, GREEN, BLUE, BOLD, PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[34m", "\x1b[1m", "\x1b[0m"

_NOTEBOOK = frozenset({"kernelab", "IPython", "ipykernel", "traitlets", "tornado"})
_OTHERS = _NOTEBOOK | sys.stdlib_module_names
_COLOURS = (
    (re.compile(r"^\s*\^+"), BOLD),
    (re.compile(r"^\s*hint: "), BLUE),
    (re.compile(r"^  \S.*, line \d+"), GREEN),
)


@hooks.error_lines.provide
def error_lines(error: Diagnosed) -> list[str]:
    """The message as lines for a terminal or a notebook, coloured."""
    titles = {diagnostic.message.split("\n")[0] for diagnostic in error.diagnostics}
    first, *rest = [
        f"{BOLD}{line}{PLAIN}" if line in titles else _coloured(line) for line in str(error).split("\n")
    ]
    return [f"{RED}{type(error).__name__}{PLAIN}: {first}", *rest, *map(_coloured, _calls(error))]


def warning_lines(name: str, text: str) -> list[str]:
    """A warning's name and text as lines, coloured."""
    first, *rest = text.split("\n")
    return [f"{BLUE}{name}{PLAIN}: {first}", *map(_coloured, rest)]


def _coloured(line: str) -> str:
    for pattern, colour in _COLOURS:
        match = pattern.match(line)
        if match:
            return f"{colour}{match[0]}{PLAIN}{line[match.end() :]}"
    return line


def _calls(error: Diagnosed) -> list[str]:
    """The lines of the user's own calls that led to an error of a launch, outermost first, each once."""
    named = {str(diagnostic.span) for diagnostic in error.diagnostics}
    calls = {place: lines for place, lines in _user_calls(error.__traceback__) if place not in named}
    shown = [line for lines in [*calls.values()][-MAX_CALLS:] for line in lines]
    return ["", "  called from", *shown] if shown else []


def _user_calls(trace: TracebackType | None) -> Iterator[tuple[str, list[str]]]:
    """The places of the user's calls, and the lines that show them."""
    for frame, number in traceback.walk_tb(trace):
        module = str(frame.f_globals.get("__name__", ""))
        text = linecache.getline(frame.f_code.co_filename, number, frame.f_globals).rstrip()
        # A cell magic runs its cell: that line is shown by the diagnostic itself.
        is_magic = text.startswith(("%%", "get_ipython().run_cell_magic"))
        if module.partition(".")[0] in _OTHERS or not text or is_magic:
            continue
        place, function = f"{label_of(frame.f_code.co_filename)}, line {number}", frame.f_code.co_name
        inside = "" if function.startswith("<") else f", in {function}"
        yield place, [f"  {place}{inside}", f"{number:>5} | {text}"]


# --------------------------------------------------------------------------------------------------- progress


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
        patience: float = PATIENCE,
    ) -> None:
        self._progress = progress
        self._write = write
        self._clock = clock
        self._started = clock()
        self._next = self._started + patience
        self._is_shown = False

    def __call__(self, is_last: bool = False) -> None:
        now = self._clock()
        is_last |= 0 < self._progress.total <= self._progress.done
        if is_last and self._is_shown:
            self._write(finished(self._progress, now - self._started), True)
        elif now >= self._next and not is_last:
            self._write(running(self._progress, now - self._started), False)
            self._next, self._is_shown = now + PACE, True


def running(progress: Progress, seconds: float) -> Node:
    """The bar of work that goes on since so many seconds."""
    rest = f", {progress.done / seconds:.3g}/s" if progress.done and seconds else ""
    rest += f", {progress.note}" if progress.note else ""
    if not progress.total:
        count = f"{progress.done:,} in {seconds:.0f} s{rest}"
        return Drawing(f"{progress.what}: {count}", "<progress></progress>", (f"{progress.what} {count}",))
    full = WIDTH * progress.done // progress.total
    left = seconds * (progress.total - progress.done) / max(progress.done, 1)  # at the speed so far
    time_left = f"{left:.0f} s" if left < 100 else f"{left / 60:.0f} min"
    count = f"{progress.done:,} of {progress.total:,}, {time_left} left{rest}"
    line = f"{progress.what} {'█' * full}{'░' * (WIDTH - full)} {count}"
    html = f'<progress max="{progress.total}" value="{progress.done}"></progress>'
    return Drawing(f"{progress.what}: {count}", html, (line,))


def finished(progress: Progress, seconds: float) -> Node:
    """The view that remains after the work."""
    of_all = f" of {progress.total:,}" if progress.done < progress.total else ""
    note = f", {progress.note}" if progress.note else ""
    return words(f"{progress.what}: {progress.done:,}{of_all} in {seconds:.1f} s{note}")


@hooks.watch.provide
def bar(progress: Progress, patience: float = PATIENCE) -> Callable[..., Any]:
    """A bar where the user looks: in the notebook that runs, else in the terminal."""
    notebook = running_notebook()
    if notebook is not None and hasattr(running_shell(), "kernel"):
        return Bar(progress, _Output(notebook), patience=patience)
    if sys.stderr is not None and sys.stderr.isatty():
        return Bar(progress, _line, patience=patience)
    return lambda *_: None


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
