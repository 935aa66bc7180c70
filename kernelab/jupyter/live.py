"""Widgets: a tape that is drawn while it records, and a view that follows an array.

The widget of a tape holds a digest of it, never the tape itself: what is shown must not keep arrays alive.
News go out as messages; the whole goes into `snapshot` when nothing is new, which is what a saved notebook
keeps.  Comm callbacks of tapes run on another thread than cells: everything behind `_lock`.
"""

import json
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import ipywidgets
import traitlets
from IPython.core.getipython import get_ipython

from kernelab.autodiff.tape.tape import Tape
from kernelab.errors import KernelWarning
from kernelab.jupyter.subshells import answer_beside_cells
from kernelab.settings import settings
from kernelab.views.live.live_views import LiveView
from kernelab.views.pages import page
from kernelab.views.pages.display import bundle
from kernelab.views.pages.markup import words
from kernelab.views.tape.answers import answer
from kernelab.views.tape.arrays import PIXELS
from kernelab.views.tape.digest import Digest
from kernelab.views.tape.tape_view import names_now

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
            if self._told(shown, shown.refresh) or self._quiet.get(shown, QUIET) < QUIET:
                self._quiet[shown] = QUIET
                self._told(shown, shown.settle)

    def _shown(self) -> list[Shown]:
        with self._lock:
            return list(self._quiet)

    def _run(self) -> None:
        pause = threading.Event()
        while shown := self._shown():
            began = time.monotonic()
            busy = sum(self._look(one) for one in shown) > 0
            spent = time.monotonic() - began
            pause.wait(max(ACTIVE - spent, spent / 2) if busy else IDLE)  # the cell goes on meanwhile
        with self._lock:
            self._thread = None
        for late in self._shown():  # shown while the thread was ending
            self.add(late)

    def _look(self, shown: Shown) -> bool:
        """Whether it may change again at once."""
        changed = self._told(shown, shown.refresh)
        with self._lock:
            if changed is None:
                self._quiet.pop(shown, None)
                return False
            before = self._quiet.get(shown, QUIET)
            now = 0.0 if changed else min(QUIET, before + ACTIVE)
            self._quiet[shown] = now
        if before < QUIET <= now:
            self._told(shown, shown.settle)
        return now < QUIET

    def _told(self, shown: Shown, tell: Callable[[], bool | None]) -> bool | None:
        """What `tell` returns; a view that fails is looked after no more, and no other with it."""
        try:
            return tell()
        except Exception as problem:  # noqa: BLE001 (whatever it is, the other views go on)
            with self._lock:
                self._quiet.pop(shown, None)
            message = f"a live view stopped: {type(problem).__name__}: {problem}; show it again"
            warnings.warn(message, KernelWarning, stacklevel=2)
            return None


PUMP = Pump()
"""The one of this process."""


# ------------------------------------------------------------------------------------------------------ live


STATIC = Path(__file__).with_name("static")
FRONT_END, FRAMES = STATIC / "tape.js", STATIC / "frames.js"
EXTENSION = Path(sys.prefix, "share", "jupyter", "labextensions", "kernelab", "package.json")
NOT_BUILT = (
    "the live view is missing: its front-end was not built when kernelab was installed, because there was no "
    "node with npm (18 or newer). Install node, then kernelab again; in a checkout: make frontend"
)

STILL_EMPTY = (
    "This tape was empty when this cell ran. What was recorded since stands in the live view, which this "
    "page does not show; to have it here, too, show the tape once more after it has recorded."
)
"""What stands for good where a tape was shown before it recorded: a later form would replace the view."""

_SHOWN: "weakref.WeakKeyDictionary[Tape | LiveView, TapeWidget | ViewWidget]" = weakref.WeakKeyDictionary()
"""The widget of each tape or view that is shown: all its views are of one model."""


def is_built() -> bool:
    """Whether the front-ends of the widgets are there."""
    return FRONT_END.is_file() and FRAMES.is_file()


class Script(ipywidgets.Widget):  # type: ignore[misc]
    """The script and the style of the widgets of one kind: a notebook stores them once, not with each."""

    text = traitlets.Unicode("").tag(sync=True)
    css = traitlets.Unicode("").tag(sync=True)


LOADER = """
async function load(model) {
  const script = await model.widget_manager.get_model(model.get("script").slice("IPY_MODEL_".length));
  const style = document.getElementById("kernelab-style") ?? document.createElement("style");
  style.id = "kernelab-style";
  style.textContent = script.get("css");
  document.head.append(style);
  const url = URL.createObjectURL(new Blob([script.get("text")], { type: "text/javascript" }));
  try {
    const widget = (await import(/* webpackIgnore: true */ url)).default;
    return typeof widget === "function" ? widget() : widget;
  } finally {
    URL.revokeObjectURL(url);
  }
}

export default () => {
  let ours;
  const loaded = ({ model }) => (ours ??= load(model));
  return {
    initialize: async (given) => (await loaded(given)).initialize(given),
    render: async (given) => (await loaded(given)).render(given),
  };
};
"""
"""What each widget brings itself."""


def _same(text: str) -> Any:
    return traitlets.Unicode(text).tag(sync=True)


class PlainWidget(ipywidgets.DOMWidget):  # type: ignore[misc]
    """A widget with the state of one of anywidget's, which the extension of JupyterLab can draw alone."""

    _model_name, _view_name = _same("AnyModel"), _same("AnyView")
    _model_module, _view_module = _same("anywidget"), _same("anywidget")
    _model_module_version, _view_module_version = _same("~0.9.*"), _same("~0.9.*")
    _anywidget_id = _same("")

    @traitlets.default("_anywidget_id")
    def _class_name(self) -> str:
        return f"{type(self).__module__}.{type(self).__name__}"


if TYPE_CHECKING:
    AnyWidget = PlainWidget
else:
    try:
        from anywidget import AnyWidget
    except ImportError:
        AnyWidget = PlainWidget


def has_host() -> bool:
    """Whether pages can draw our widgets, as far as this environment tells."""
    return AnyWidget is not PlainWidget or EXTENSION.is_file()


class Scripted(AnyWidget):
    """A widget whose script is that of all of its kind."""

    _esm = traitlets.Unicode(LOADER).tag(sync=True)
    front_end: ClassVar[Path]
    script: Any = traitlets.Instance(Script).tag(sync=True, **ipywidgets.widget_serialization)

    @traitlets.default("script")
    def _shared(self) -> Script:
        return script_of(self.front_end)


def script_of(front_end: Path) -> Script:
    """The script that a bundle holds, made when it is first needed."""
    script = _SCRIPTS.get(front_end)
    if script is None or script.comm is None:  # it has none after Widget.close_all()
        files = (front_end, FRONT_END.with_suffix(".css")) if is_built() else ()
        texts = (path.read_text(encoding="utf-8") for path in files)
        script = _SCRIPTS[front_end] = Script(**dict(zip(("text", "css"), texts, strict=False)))
    return script


_SCRIPTS: dict[Path, Script] = {}


class TapeWidget(Scripted):
    """The widget that shows one tape on a page."""

    front_end = FRONT_END
    snapshot = traitlets.Unicode("").tag(sync=True)

    def __init__(self, tape: Tape) -> None:
        self._lock = threading.RLock()
        self._is_over = False
        self._digest = Digest(tape, names_now)
        self._digest.look()
        self._digest.look_for_names()
        self._digest.news()
        super().__init__(snapshot=self._encoded())
        self.on_msg(self._asked)

    def refresh(self) -> bool | None:
        """Send what is new."""
        with self._lock:
            if self._is_over:
                return None
            is_alive = self._digest.look()
            is_new = self._send_news()
            if not is_alive:  # a page that is opened later finds all in the snapshot
                self.settle()
                self._digest.forget()
                self._is_over = True
        return is_new if is_alive else None

    def close(self) -> None:
        """Close the view, and the layout that ipywidgets made for it."""
        super().close()
        self.layout.close()

    def settle(self) -> None:
        """Put everything into the snapshot."""
        with self._lock:
            if self._is_over:
                self.send_state("snapshot")
                return
            self._digest.look_for_names()
            self._send_news()
            self.snapshot = self._encoded()

    def _send_news(self) -> bool:
        news = self._digest.news()
        if news is not None:
            self.send({"op": "news", "news": news})
        return news is not None

    def _encoded(self) -> str:
        return json.dumps(self._digest.whole(), separators=(",", ":"))

    def _asked(self, _: Any, question: Any, buffers: Any) -> None:
        """Answer a page: `question` is what its `ask` sent, or anything that another page sends."""
        match question:
            case {"op": "settle"}:
                self.settle()
            case {"op": "hello"}:
                self.send({"op": "here"})
            case _:
                with self._lock:
                    node = answer(self._digest, question)
                number = question.get("id") if isinstance(question, dict) else None
                self.send({"op": "answer", "id": number, "html": page.render(node)})


class ViewWidget(Scripted):
    """The widget of a view that follows an array, or numbers that a reader sets by sliders."""

    front_end = FRAMES
    snapshot = traitlets.Unicode("").tag(sync=True)
    version = traitlets.Int(0).tag(sync=True)
    sliders: Any = traitlets.List([]).tag(sync=True)

    def __init__(self, view: LiveView) -> None:
        # A function that a reader explores is called for as long as the page has its sliders.
        self._view: Callable[[], LiveView | None] = (lambda: view) if view.sliders else weakref.ref(view)
        super().__init__(snapshot=page.render(view.node(PIXELS)), sliders=list(view.sliders))
        self.on_msg(self._moved)

    def refresh(self) -> bool | None:
        """Send what is new."""
        view = self._view()
        if view is None:
            return None
        version = view.version
        news = view.news()
        if news is not None:
            self.send({"op": "news", "html": page.render(news), "version": version})
        return news is not None

    def settle(self) -> None:
        """Put the view into the snapshot."""
        view = self._view()
        if view is not None:
            with self.hold_sync():
                self.version = view.version
                self.sliders = list(view.sliders)
                self.snapshot = page.render(view.node(PIXELS))

    def _moved(self, _: Any, question: Any, buffers: Any) -> None:
        view = self._view()
        match question:
            case {"op": "slide", "values": dict(values)} if view is not None:
                view.slide(values)
                self.refresh()
                self.settle()
            case {"op": "settle"}:
                self.settle()
                self.send_state(["version", "snapshot"])
            case {"op": "hello"}:
                self.send({"op": "here"})


def widget_of(shown: Tape | LiveView) -> TapeWidget | ViewWidget:
    """The widget of a tape or a live view, made when it is first shown."""
    widget = _SHOWN.get(shown)
    if widget is None or widget.comm is None:  # it has none after Widget.close_all()
        widget = _SHOWN[shown] = _made(shown)
        PUMP.add(widget)
    return widget


def _made(shown: Tape | LiveView) -> TapeWidget | ViewWidget:
    if isinstance(shown, LiveView):
        return ViewWidget(shown)
    shown.observe()
    widget = TapeWidget(shown)
    answer_beside_cells(widget.comm)
    return widget


@cache
def _threads_start() -> bool:
    """Whether a thread can look after what is shown: in a browser, none can."""
    try:
        threading.Thread(target=int).start()
    except RuntimeError:
        return False
    return True


def _settle(*_: Any) -> None:
    """After the last cell a notebook may be stored and its kernel ended at once."""
    PUMP.flush()
    for shown in list(_KEPT):
        shown.keep()


_KEPT: "weakref.WeakSet[LiveView]" = weakref.WeakSet()
"""The live views, whose static forms are replaced after each cell."""


def live_bundle(shown: Tape | LiveView, static: dict[str, str]) -> dict[str, Any]:
    """The static forms and the widget; the reason where there is no widget to be had.

    The static forms alone where `kl.config.live_tapes` is off, no page can draw widgets, or no thread starts.
    """
    shell = get_ipython()
    if shell is not None and _settle not in shell.events.callbacks["post_run_cell"]:
        shell.events.register("post_run_cell", _settle)
    if isinstance(shown, LiveView):
        _KEPT.add(shown)
    if not (settings().live_tapes and has_host() and _threads_start()):
        return static
    if not is_built():
        return static | {"text/html": f"{static.get('text/html', '')}<small>({NOT_BUILT})</small>"}
    forms = widget_of(shown)._repr_mimebundle_()
    if forms is None:
        return static
    live = forms[0] if isinstance(forms, tuple) else forms
    if isinstance(shown, Tape) and not len(shown):
        static = bundle(shown, lambda _: words(STILL_EMPTY))
    return {**live, **static}  # what is static stays as it is: a page without the widget shows it
