"""Jacobians as heatmaps: inputs across, outputs down, a colour scale centred on zero.

Thick lines separate elements, thin dashed ones the components of vectors.  A zero is white, what was left out
is hatched grey, an infinity or a NaN that was computed is black; a line below the figure says so, in words
that stay true where a dark theme turns white and black over.  Figures are Matplotlib's, made without pyplot;
the text form needs nothing.  Must not know how the numbers were computed.
"""

import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from kernelab import hooks
from kernelab.autodiff.jacobians.jacobian import Jacobian, Jacobians
from kernelab.data_classes import dataclass
from kernelab.lang.types import size_of
from kernelab.views.pages import figures
from kernelab.views.pages.figures import Panel, Values
from kernelab.views.pages.markup import Drawing, Node

MOST_CELLS = 400
"""How many rows or columns are drawn; larger matrices are binned, each bin shown by its largest entry."""

MOST_LINES = 64
"""How many rows or columns are still separated by lines between elements."""

FEW_LINES = 24
"""Up to how many rows or columns the lines are dark, and components have some, too."""

WIDEST = 9.6
"""How many inches a row of panels takes at most: what fits beside a notebook's prompt."""

LOWEST = 0.4
"""How high the panels of an output of few numbers are, beside those of the output of most."""

FAINT = 100.0
"""By what factor the numbers of panels differ where each panel has a colour scale of its own."""

TEXT_CELLS = 24


@dataclass(frozen=True, slots=True)
class Style:
    """The style of a figure: Matplotlib's colour map, one scale for all panels or one each, exponents.

    `positive` numbers have colours from zero up, others are centred on zero.
    """

    colormap: str = "coolwarm"
    colorbar: bool = True
    scale_each: bool = False
    log_scale: bool = False
    title: str | None = None
    positive: bool = False


Labels = tuple[Sequence[str], Sequence[str]]
"""The names of inputs, and those of outputs."""


def panels(matrices: Mapping[Any, Any], labels: Labels | None = None) -> list[Panel]:
    """The panels of Jacobians, or of plain matrices by pairs of positions."""
    return [_panel(key, value, labels or ((), ())) for key, value in matrices.items()]


def _panel(key: Any, value: Any, labels: Labels) -> Panel:
    if isinstance(value, Jacobian):
        sizes = size_of(value.input.elements.dtype), size_of(value.output.elements.dtype)
        shapes = value.input.shape, value.output.shape
        return Panel(value.input.label, value.output.label, value.numpy(), value.evaluated, *sizes, *shapes)
    values = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
    sides = zip(key, labels, strict=True)
    names = [side[k] if isinstance(k, int) and k < len(side) else str(k) for k, side in sides]
    is_missing = np.isnan(values).all(axis=1, keepdims=True)  # so a Jacobian has rows that were left out
    return Panel(names[0], names[1], values, np.broadcast_to(~is_missing, values.shape))


# ------------------------------------------------------------------------------------------ a figure


def figure(parts: Sequence[Panel], style: Style | None = None) -> Any:
    """A `matplotlib.figure.Figure` of all panels, on a grid of inputs and outputs."""
    style = style or Style()
    inputs = list(dict.fromkeys(panel.input for panel in parts))
    outputs = list(dict.fromkeys(panel.output for panel in parts))
    side = max(1.8, min(3.2, WIDEST / max(1, len(inputs))))
    rows = [max(len(p.values) for p in parts if p.output == output) for output in outputs]
    heights = [max(LOWEST, count / max(1, *rows)) for count in rows]
    drawn = figures.new(1.2 + side * len(inputs), 0.8 + (side - 0.4) * sum(heights))
    axes = drawn.subplots(len(outputs), len(inputs), squeeze=False, height_ratios=heights or None)
    limit = max((_largest(p, style) for p in parts), default=0.0)
    by_place = {(p.output, p.input): p for p in parts}
    images = []
    for place, axis in zip(itertools.product(outputs, inputs), axes.flat, strict=True):
        panel = by_place.get(place)
        if panel is None:
            axis.set_axis_off()
            continue
        images.append(_draw(axis, panel, style, _largest(panel, style) if style.scale_each else limit))
        if style.colorbar and style.scale_each:
            drawn.colorbar(images[-1], ax=axis, shrink=0.85)
    if style.colorbar and images and not style.scale_each:
        drawn.colorbar(images[0], ax=axes, shrink=0.85, label="log10 of the size" if style.log_scale else "")
    if style.title:
        drawn.suptitle(style.title)
    if legend := _legend(parts):
        drawn.supxlabel(legend, fontsize=8)
    return drawn


def _scaled(values: Values, style: Style) -> Values:
    """The values, or the exponents of their sizes."""
    if not style.log_scale:
        return values
    with np.errstate(divide="ignore"):
        return np.asarray(np.log10(np.abs(values)))


def _legend(parts: Sequence[Panel]) -> str:
    """The legend of black and hatched cells, where there are any."""
    lines = []
    if any((p.evaluated & ~np.isfinite(p.values)).any() for p in parts):
        lines.append("in the colour of this text: infinite or not a number")
    if not all(p.evaluated.all() for p in parts):
        lines.append("hatched: not computed")
    return ", ".join(lines)


def _largest(panel: Panel, style: Style) -> float:
    values = _scaled(panel.values.astype(np.float64), style)
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def _draw(axis: Any, panel: Panel, style: Style, limit: float) -> Any:
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    values = panel.values.astype(np.float64)
    rows, columns = values.shape
    binned, evaluated = _binned(np.where(panel.evaluated, values, 0.0), panel.evaluated, MOST_CELLS)
    colours = colormaps[style.colormap].with_extremes(bad="white")
    top = limit or 1.0
    low = 0.0 if style.positive else -top
    drawn = {"extent": (-0.5, columns - 0.5, rows - 0.5, -0.5), "aspect": "auto", "interpolation": "nearest"}
    infinite = evaluated & ~np.isfinite(binned)
    nothing = ~evaluated | (binned == 0) | infinite
    image = axis.imshow(
        np.ma.masked_where(nothing, _scaled(binned, style)), cmap=colours, vmin=low, vmax=top, **drawn
    )
    if infinite.any():
        undefined = np.ma.masked_where(~infinite, np.ones(binned.shape))
        axis.imshow(undefined, cmap="gray", vmin=1, vmax=2, **drawn)
    hatched: dict[str, Any] = {"facecolor": "0.85", "edgecolor": "0.6", "hatch": "///", "lw": 0}
    is_known, is_reached = (np.asarray(panel.evaluated.any(axis)) for axis in (1, 0))
    for row, count in _runs(~is_known):
        axis.add_patch(Rectangle((-0.5, row - 0.5), columns, count, **hatched))
    for row, count in _runs(is_known):
        for column, wide in _runs(~is_reached):
            axis.add_patch(Rectangle((column - 0.5, row - 0.5), wide, count, **hatched))
    _lines(axis, panel)
    figures.whole_ticks(axis)
    axis.set_label(_key(panel))
    axis.set_xlabel(panel.input + " (components)" * (panel.input_size > 1))
    axis.set_ylabel(panel.output + " (components)" * (panel.output_size > 1))
    return image


def _runs(mask: Values) -> list[tuple[int, int]]:
    """Where the stretches of a mask begin, and how long they are."""
    ends = np.flatnonzero(np.diff(mask.astype(np.int8), prepend=0, append=0))
    return [(int(start), int(end - start)) for start, end in ends.reshape(-1, 2)]


def _lines(axis: Any, panel: Panel) -> None:
    """Thick lines between elements, thin dashed ones between components."""
    rows, columns = panel.values.shape
    if max(rows, columns) > MOST_LINES:
        return
    few = max(rows, columns) <= FEW_LINES
    sides = (rows, panel.output_size, axis.axhline), (columns, panel.input_size, axis.axvline)
    for count, size, draw in sides:
        for k in range(1, count):
            if k % size == 0:
                draw(k - 0.5, color="0.25" if few else "0.8", lw=1.1 if few else 0.5)
            elif few:
                draw(k - 0.5, color="0.25", lw=0.5, ls=(0, (4, 4)))


def _binned(values: Values, evaluated: Values, most: int) -> tuple[Values, Values]:
    """A large matrix in bins, each with its entry of the largest size, NaN where there is one."""
    steps = [-(-n // most) for n in values.shape]
    for axis, step in enumerate(steps):
        if step > 1:
            starts = np.arange(0, values.shape[axis], step)
            highest = np.maximum.reduceat(values, starts, axis)
            lowest = np.minimum.reduceat(values, starts, axis)
            values = np.where(-lowest > highest, lowest, highest)
            evaluated = np.logical_or.reduceat(evaluated, starts, axis)
    return values, evaluated


# ------------------------------------------------------------------------------------------ views


def figure_view(drawn: Any, parts: Sequence[Panel], title: str = "") -> Node:
    """A figure as it stands in a notebook, with tooltips, and for a terminal the text form below a title."""
    titles = (f"d {p.output} / d {p.input}, {p.values.shape[0]} x {p.values.shape[1]}" for p in parts)
    by_key = {_key(panel): panel for panel in parts if panel.values.size}
    html = partial(figures.picture, drawn, f"heatmaps: {'; '.join(titles)}", by_key)
    return Drawing("", html, (*([title, ""] if title else []), *text_lines(parts)))


def _key(panel: Panel) -> str:
    return f"{panel.output} by {panel.input}"


def jacobians_view(jacobians: Jacobians) -> Node:
    parts = panels(jacobians)
    return figure_view(figure(parts, style_of(jacobians.subject, parts)), parts)


def style_of(subject: str, parts: Sequence[Panel]) -> Style:
    """One colour scale for all panels, unless the numbers of some would be too faint on it."""
    sizes = [size for part in parts if (size := _largest(part, Style()))]
    scale_each = bool(sizes) and max(sizes) > FAINT * min(sizes)
    return Style(title=f"Jacobians of {subject}", scale_each=scale_each)


@hooks.matrices.provide
def matrices(jacobians: Jacobians) -> str:
    """The text form of a figure of Jacobians."""
    return "\n".join(text_lines(panels(jacobians)))


def text_lines(parts: Sequence[Panel]) -> list[str]:
    """The matrices as text: numbers where they are few, else the sizes of entries as shades."""
    lines: list[str] = []
    for panel in parts:
        rows, columns = panel.values.shape
        nonzero = int(np.count_nonzero(panel.evaluated & (panel.values != 0)))
        lines.append(f"d {panel.output} / d {panel.input}   {rows} x {columns}, {nonzero} not zero")
        lines += _numbers(panel) if max(rows, columns) <= 8 else _shades(panel)
        lines.append("")
    return lines[:-1]


def _numbers(panel: Panel) -> list[str]:
    texts = np.vectorize("{:.4g}".format, otypes=[object])(panel.values)
    texts[~panel.evaluated] = "/"
    texts[panel.values == 0] = "."
    width = max(map(len, texts.flat), default=0)
    return ["  " + "  ".join(f"{text:>{width}}" for text in row) for row in texts]


SHADES = "·░▒▓█"


def _shades(panel: Panel) -> list[str]:
    """A shade a cell: · zero, / not computed, N not a number."""
    values = np.where(panel.evaluated, panel.values, 0.0).astype(np.float64)
    largest = float(np.abs(values[np.isfinite(values)]).max(initial=0.0)) or 1.0
    binned, evaluated = _binned(values, panel.evaluated, TEXT_CELLS)
    return [
        "  " + "".join(_shade(abs(value), done, largest) for value, done in zip(*row, strict=True))
        for row in zip(binned, evaluated, strict=True)
    ]


def _shade(size: float, is_evaluated: bool, largest: float) -> str:
    if not is_evaluated:
        return "/"
    if np.isnan(size):
        return "N"
    return SHADES[0] if size == 0 else SHADES[min(4, 1 + int(3.999 * min(1.0, size / largest)))]
