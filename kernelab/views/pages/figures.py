"""Matplotlib figures that display themselves once, without pyplot and its global state.

A function that draws shows its figure and returns it; as the last line of a cell it must not show again.
"""

import io
from collections.abc import Callable
from functools import cache
from typing import Any

from kernelab.views.pages import display
from kernelab.views.pages.markup import Node

DPI = 110


def new(width: float, height: float) -> Any:
    """An empty `matplotlib.figure.Figure` of some inches."""
    return _class()(figsize=(width, height), layout="constrained")


def whole_ticks(axis: Any) -> None:
    """Place ticks of an axis of rows or columns at whole numbers; one tick where there is but one."""
    for each in (axis.xaxis, axis.yaxis):
        each.get_major_locator().set_params(integer=True, min_n_ticks=1)


def png(drawn: Any) -> bytes:
    """A figure as a PNG."""
    stream = io.BytesIO()
    drawn.savefig(stream, format="png", dpi=DPI)
    return stream.getvalue()


def pixels(drawn: Any) -> tuple[int, int]:
    """The width and height of that PNG."""
    width, height = drawn.get_size_inches()
    return int(width * DPI), int(height * DPI)


def finish(drawn: Any, view: Callable[[Any], Node], show: bool) -> Any:
    """Give a figure its view, and show it now if that is wanted; the figure."""
    drawn.kernelab_view = view
    if show:
        display.show(drawn, view)
        drawn.kernelab_cell = display.cell()
    return drawn


@cache
def _class() -> type:
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        """A figure that a notebook shows by its view, but not twice in one cell."""

        kernelab_view: Callable[[Any], Node] | None = None
        kernelab_cell: int | None = None

        def _ipython_display_(self) -> None:
            if self.kernelab_view is not None and self.kernelab_cell != display.cell():
                display.show(self, self.kernelab_view)

    return ShownFigure
