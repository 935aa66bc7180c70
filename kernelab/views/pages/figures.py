"""Matplotlib figures that display themselves once, without pyplot and its global state.

A function that draws shows its figure and returns it; as the last line of a cell it must not show again.
Tooltips need no scripts: an SVG of invisible cells lies over the picture, each of which tells its element and
its value, or the largest of a block where there are too many.
"""

import base64
import io
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from html import escape
from types import MappingProxyType
from typing import Any

import numpy as np

from kernelab.data_classes import dataclass
from kernelab.errors import MissingPackageError, missing
from kernelab.hooks import ShownOnce
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
        display.show(drawn)
        drawn.shown_in = display.cell()
    return drawn


@cache
def _class() -> type:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingPackageError(missing("a plot", "matplotlib", "jupyter")) from None

    class ShownFigure(ShownOnce, Figure):
        """A figure that a notebook shows by its view, but not twice in one cell."""

        kernelab_view: Callable[[Any], Node]
        shown_in: int | None = None

        def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> display.Bundle:
            return display.bundle(self, self.kernelab_view, include=include)

    return ShownFigure


# --------------------------------------------------------------------------------------------------- tooltips


Values = np.ndarray[Any, Any]

MOST_CELLS = 900
"""How many cells one picture gets: their text is a part of the saved notebook."""

STYLE = (
    ".kl .kl-over{position:relative;display:inline-block;line-height:0;max-width:100%}"
    ".kl .kl-drawing .kl-over>img,.kl .kl-over>img{max-width:100%;height:auto}"
    ".kl .kl-over>.kl-hover{position:absolute;left:0;top:0;width:100%;height:100%}"
    ".kl .kl-hover rect{fill:transparent}"
    ".kl .kl-hover rect:hover{fill:rgba(128,128,128,.35)}"
)

# In a dark theme the lightness of a figure turns over while hues stay: paper as dark as the page, large
# entries bright.  The file stays what Matplotlib drew, so a saved notebook is right in either theme.
_DARK = ".kl-over>img{filter:invert(.93) hue-rotate(180deg)}"
STYLE += "".join(
    f"{page} {_DARK}"
    for page in ("[data-jp-theme-light=false] .kl", "body.vscode-dark .kl", "body.vscode-high-contrast .kl")
)


@dataclass(frozen=True, slots=True)
class Panel:
    """One matrix with its labels, which entries were computed, and how many components elements have.

    The shapes are those of input and output with components as last axes; None counts numbers only.
    """

    input: str
    output: str
    values: Values
    evaluated: Values
    input_size: int = 1
    output_size: int = 1
    input_shape: tuple[int, ...] | None = None
    output_shape: tuple[int, ...] | None = None


def picture(drawn: Any, alt: str, panels: Mapping[str, Panel] = MappingProxyType({})) -> str:
    """A figure as HTML, with the tooltips of panels by the labels of their axes."""
    width, height = size = pixels(drawn)
    data = base64.b64encode(png(drawn)).decode()
    # At their places, now that it is drawn.
    axes = [axis for axis in drawn.axes if axis.get_label() in panels]
    image = f'<img alt="{escape(alt)}" width="{width}" height="{height}" src="data:image/png;base64,{data}">'
    side = int((MOST_CELLS / max(1, len(axes))) ** 0.5)
    layers = "".join(_layer(panels[axis.get_label()], axis.get_position(), size, side) for axis in axes)
    over = f'<svg class="kl-hover" viewBox="0 0 {width} {height}" aria-hidden="true">{layers}</svg>'
    return f'<div class="kl-over"><style>{STYLE}</style>{image}{over}</div>'


def _layer(panel: Panel, box: Any, size: tuple[int, int], side: int) -> str:
    shares = (box.x0, 1.0 - box.y1, box.width, box.height)
    left, top, width, height = (share * size[k % 2] for k, share in enumerate(shares))
    rows, columns = panel.values.shape
    place = f'x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}"'
    cells = "".join(_cells(panel, side))
    return f'<svg {place} viewBox="0 0 {columns} {rows}" preserveAspectRatio="none">{cells}</svg>'


def _cells(panel: Panel, side: int) -> Iterator[str]:
    high, wide = (max(1, -(-n // side)) for n in panel.values.shape)
    rows, columns = panel.values.shape
    for i in range(0, rows, high):
        for j in range(0, columns, wide):
            block = np.s_[i : i + high, j : j + wide]
            shape = panel.values[block].shape
            tooltip = _tooltip(panel, block, i, j)
            if tooltip:
                box = f'x="{j}" y="{i}" width="{shape[1]}" height="{shape[0]}"'
                yield f"<rect {box}><title>{escape(tooltip)}</title></rect>"


def _tooltip(panel: Panel, block: Any, i: int, j: int) -> str:
    """The tooltip of a block; "" for a block of zeros."""
    values, evaluated = panel.values[block], panel.evaluated[block]
    if values.size == 1:
        value = f"{values[0, 0]:.6g}" if evaluated.all() else "not computed"
        return f"{_entry(panel, i, j)} = {value}"
    where = f"{panel.output} {i}-{i + values.shape[0] - 1}, {panel.input} {j}-{j + values.shape[1] - 1}"
    if not evaluated.any():
        return f"{where}: not computed"
    sizes = np.where(evaluated, np.abs(values), -1.0)
    sizes = np.where(np.isnan(sizes), np.inf, sizes)
    row, column = np.unravel_index(int(np.argmax(sizes)), values.shape)
    if not sizes[row, column]:
        return ""
    entry = _entry(panel, i + int(row), j + int(column))
    count = int(np.count_nonzero(sizes > 0))
    return f"{where}: {count} not zero, the largest {entry} = {values[row, column]:.6g}"


def _entry(panel: Panel, row: int, column: int) -> str:
    output = _element(panel.output, panel.output_shape, row)
    return f"d {output} / d {_element(panel.input, panel.input_shape, column)}"


def _element(name: str, shape: tuple[int, ...] | None, position: int) -> str:
    place = (position,) if shape is None else np.unravel_index(position, shape)
    index = ", ".join(str(int(k)) for k in place)
    return f"{name}[{index}]" if index else name
