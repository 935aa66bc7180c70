"""Views that update while a cell runs: arrays, curves and loops; and animations, which play by themselves.

    view = kl.live(x)               the picture of x
    for k in range(1000):
        step(x)
        view.update()               the picture of x as it is now

A running notebook shows them by the widget of `jupyter.live`, which asks for news some sixty times a second;
what a saved one keeps, and what a page without widgets shows, is the static form after the last cell.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

import numpy as np

from kernelab import hooks
from kernelab.errors import KernelTypeError, KernelValueError, counted
from kernelab.guidance.bad_calls import explains_bad_calls
from kernelab.hooks import Progress
from kernelab.runtime.array.array import array, require_array
from kernelab.runtime.array.transfers import require_readable
from kernelab.runtime.context.conversion import described
from kernelab.runtime.context.recorder import unrecorded
from kernelab.runtime.host.structarray import structarray
from kernelab.views.pages import display, markup
from kernelab.views.pages.display import View, bar
from kernelab.views.pages.markup import Below, Drawing, Node, Run, words
from kernelab.views.pages.picture import curves, number
from kernelab.views.tape.arrays import PIXELS, animation_view, values_view


class LiveView(ABC):
    """A view that a notebook shows at once, and that follows what it is of."""

    sliders: tuple[dict[str, Any], ...] = ()
    """What a reader can change: name, low, high and value of each."""

    def __init__(self) -> None:
        self.version = 0
        self._told = 0
        self._kept = 0
        self._output: Any = None
        self.shown_in: int | None = None
        self.show()

    @abstractmethod
    def node(self, budget: int | None) -> Node:
        """The view as it is now: its pictures of at most so many bytes, or made quickly."""

    def slide(self, values: dict[str, float]) -> None:
        """A reader has moved sliders to these values."""
        raise NotImplementedError

    def news(self) -> Node | None:
        """The view, where it has changed since this was last asked."""
        version = self.version
        if version == self._told:
            return None
        self._told = version
        return self.node(None)

    def changed(self) -> None:
        """Say that there is news."""
        self.version += 1

    def show(self) -> None:
        """Show the view here, where a notebook is running."""
        self.shown_in = display.cell()
        if notebook := display.running_notebook():
            self._output = notebook.display(self._forms(), raw=True, display_id=True)

    def keep(self) -> None:
        """Replace the static form by that of the view as it is now: it stands in a saved notebook."""
        if self._output is not None and self._kept != self.version:
            self._kept = self.version
            self._output.update(self._forms(), raw=True)

    def _forms(self) -> dict[str, Any]:
        return hooks.widget(self, display.bundle(self, lambda view: view.node(PIXELS)))

    def _ipython_display_(self) -> None:
        if self.shown_in != display.cell():
            self.show()

    def __repr__(self) -> str:
        return markup.render(self.node(PIXELS))


class LiveArray(LiveView):
    """The picture of an array, which `update` makes anew."""

    def __init__(self, shown: array, title: str) -> None:
        require_array(shown, "live takes")
        self.array = shown
        self.title = title
        self._frame = self._taken()
        super().__init__()

    def update(self) -> None:
        """Show the elements as they are now; reads them, and is not part of what a tape records."""
        self._frame = self._taken()
        self.changed()

    def _taken(self) -> array:
        require_readable(self.array)
        with unrecorded():
            return array(self.array, device="cpu")

    def node(self, budget: int | None) -> Node:
        frame = self._frame
        extents = " × ".join(map(str, frame.shape))
        heading = words(Run(self.title or "array", "strong"), f" of {extents} {frame.dtype}", level=1)
        return Below((heading, values_view("", frame, budget)))


class LiveCurve(LiveView):
    """Curves to which `update` adds a point each."""

    def __init__(self, names: tuple[str, ...], log: bool) -> None:
        self.names = names
        self.log = log
        self._lock = threading.Lock()
        self._points: list[tuple[float, ...]] = []
        super().__init__()

    def update(self, *values: Any) -> None:
        """Add a number to each curve; arrays of one element will do.  Raises KernelValueError for others."""
        if len(values) != len(self.names):
            given, there = counted(len(values), "number"), counted(len(self.names), "curve")
            message = f"{given} for {there}: {', '.join(self.names)}"
            raise KernelValueError.of(message, "live", "give one for each, in this order")
        point = tuple(_number(name, value) for name, value in zip(self.names, values, strict=True))
        with self._lock:
            self._points.append(point)
        self.changed()

    def node(self, budget: int | None) -> Node:
        with self._lock:
            points = np.array(self._points, float).reshape(-1, len(self.names))
        if not len(points):
            return words(Run(", ".join(self.names), "strong"), ": no numbers yet", level=1)
        last = zip(self.names, points[-1], strict=True)
        latest = ", ".join(f"{name} {number(value)}" for name, value in last)
        scale = ", logarithmic" if self.log else ""
        title = f"{latest} after {len(points):,} step{'s' * (len(points) != 1)}{scale}"
        return Drawing(title, curves([points], self.names, title, len(points) - 1, log=self.log), ())


def _number(name: str, value: Any) -> float:
    with unrecorded():
        if isinstance(value, array) and value.size == 1:
            return float(value.item())
        if np.ndim(value) == 0 and isinstance(value, int | float | np.number):
            return float(value)
    message = f"the curve {name} takes a number at a time, not {described(value)}"
    raise KernelTypeError.of(message, "live", "pass x.sum() or another one number of it")


class Live:
    """Pictures that follow arrays and numbers while a cell runs."""

    def __call__(self, array: Any, title: str = "") -> LiveArray:
        """Show the picture of an array; `update` of what is returned shows its elements as they are then.

        One dimension is a curve, two are an image, and elements of vec3 between 0 and 1 a coloured one.
        Raises KernelTypeError for anything but an array.
        """
        return LiveArray(array, title)

    def curve(self, *names: str, log: bool = False) -> LiveCurve:
        """Show curves; ``update(value, ...)`` of what is returned adds a number to each.

        With `log` the scale is logarithmic.  Raises KernelTypeError for names that are no text.
        """
        if not names or not all(isinstance(name, str) for name in names):
            message = "a curve needs a name" if not names else f"{described(names)} are not names of curves"
            raise KernelTypeError.of(message, "live", 'write kl.live.curve("loss"), then curve.update(loss)')
        return LiveCurve(names, log)


live = Live()


# ------------------------------------------------------------------------------------------------- animations


def animation(frames: Any, fps: float = 25.0) -> View:
    """Frames shown one after another, `fps` a second and again from the start: arrays of one shape and dtype.

    `frames` are arrays, of NumPy too, or one array whose first axis is time.  A frame of one dimension is a
    curve, one of two an image, as when the array is the value of a cell; all have the same scale.  An array
    that changes has to be copied for each frame: ``frames.append(x.copy())``.  The view is a picture without
    scripts (an animated PNG, or SVG).  Raises KernelTypeError or KernelValueError for frames that differ.
    """
    if not isinstance(frames, Iterable):
        message = f"animation takes the frames in a list, not {described(frames)}"
        raise KernelTypeError.of(message, "frames", "write kl.animation([x0, x1, ...])")
    if not (isinstance(fps, int | float) and 0.02 <= fps <= 1000):
        raise KernelValueError.of(f"fps={fps!r} is not a number of frames a second", "fps", "write fps=25")
    pictures = list(frames)
    if len(pictures) > 1 and all(frame is pictures[0] for frame in pictures):
        message = "the frames are one array, which shows its last elements in each"
        raise KernelValueError.of(message, "frames", "append copies: frames.append(x.copy())")
    with unrecorded():
        taken = [array(frame, device="cpu") for frame in pictures]
    kinds = {(frame.shape, frame.dtype) for frame in taken}
    if not taken or len(kinds) > 1:
        kinds_text = " and ".join(f"{dtype} {shape}" for shape, dtype in sorted(kinds, key=str))
        message = f"the frames are {kinds_text}" if taken else "an animation of no frames"
        hint = (
            "all have the same shape and dtype"
            if taken
            else "append a copy in each step: frames.append(x.copy())"
        )
        raise KernelValueError.of(message, "frames", hint)
    first = taken[0]
    if isinstance(first, structarray) or not first.size:
        what = f"arrays of {first.dtype}" if first.size else "arrays without elements"
        raise KernelTypeError.of(f"{what} have no picture", "frames", "pass a field of them")
    return View(animation_view(taken, fps))


# --------------------------------------------------------------------------------------------------- progress


T = TypeVar("T")


class progress(Generic[T]):  # noqa: N801 (called as tqdm is)
    """Go through `iterable` with a progress bar: ``for k in kl.progress(range(200)):``.

    As in tqdm, `desc` stands before the bar, `total` counts the items where `iterable` has no length, and
    with `disable` nothing is shown.  Without an iterable, call `update` after each step, and `close` at the
    end, or use it in a ``with`` statement.  ``set_postfix(loss=loss)`` adds numbers behind the bar.  Raises
    KernelTypeError for what has no items.
    """

    @explains_bad_calls()
    def __init__(
        self,
        iterable: Iterable[T] | None = None,
        desc: str = "steps",
        total: int | None = None,
        *,
        disable: bool = False,
    ) -> None:
        items: Any = iterable
        if not (items is None or isinstance(items, Iterable)):
            message = f"progress goes through items, and {described(items)} has none"
            raise KernelTypeError.of(message, "progress", "write kl.progress(range(200))")
        self._items = iterable
        if total is None and hasattr(iterable, "__len__"):
            total = len(iterable)  # type: ignore[arg-type]
        self._progress = Progress(desc, total or 0)
        self._tell = (lambda *_: None) if disable else bar(self._progress, 0.0)
        self._is_open = True
        self._tell()

    def __iter__(self) -> Iterator[T]:
        """The items, one after another, each a step."""
        try:
            for item in self._items or ():
                yield item
                self.update()
        finally:
            self.close()

    def __len__(self) -> int:
        return self._progress.total

    def update(self, n: int = 1) -> None:
        """Say that so many steps more are done."""
        self._progress.done += n
        self._tell()

    def set_description(self, desc: str) -> None:
        """Change the words before the bar."""
        self._progress.what = desc

    def set_postfix(self, **values: Any) -> None:
        """Show values behind the bar: ``loss=0.0123``; of an array, its one element."""
        texts = ((name, value.item() if hasattr(value, "item") else value) for name, value in values.items())
        self._progress.note = ", ".join(f"{name}={number(value)}" for name, value in texts)

    def close(self) -> None:
        """End the bar: it says how many steps there were, and how long they took."""
        if self._is_open:
            self._is_open = False
            self._tell(True)

    def __enter__(self) -> "progress[T]":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
