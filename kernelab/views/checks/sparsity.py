"""Spy plots of Jacobians: where entries are, and which columns or rows share a run.

Each group of columns, or of rows, has a colour; large matrices are binned.  Pure functions from patterns to
markup; figures are Matplotlib's, made without pyplot.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from kernelab.autodiff.jacobians.jacobian import Jacobian
from kernelab.autodiff.jacobians.pattern import Pattern
from kernelab.autodiff.jacobians.sparse import Compressed
from kernelab.data_classes import dataclass, replace
from kernelab.views.pages import figures
from kernelab.views.pages.markup import Drawing, Node

Values = np.ndarray[Any, Any]

MOST_CELLS = 400
TEXT_CELLS = 48

MOST_UNEVEN = 2
"""How much longer one side of a matrix is than the other where its cells are still squares."""

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Spy:
    """A pattern with the group of each entry, counted from 0; `groups` is 0 where none are shown.

    Of a matrix of which not all was computed, it is the pattern of what was; `whole` is the shape of all.
    """

    input: str
    output: str
    rows: Values
    columns: Values
    shape: tuple[int, int]
    group: Values
    groups: int
    by: str
    whole: tuple[int, int]

    @property
    def title(self) -> str:
        return f"d {self.output} / d {self.input}"

    @property
    def in_groups(self) -> str:
        """A sentence on the entries that are computed together."""
        return f"{self.by} in {self.groups} groups" if self.groups > 1 else f"all {self.by} in one group"

    def binned(self, most: int) -> Values:
        """A picture of at most so many rows and columns: 0 is nothing, else a group counted from 1."""
        rows, columns = self.shape
        high, wide = (max(1, -(-n // most)) for n in self.shape)
        bins = np.zeros((-(-rows // high), -(-columns // wide)), np.int64)
        bins[self.rows[::-1] // high, self.columns[::-1] // wide] = self.group[::-1] + 1
        return bins

    def corner(self, most: int) -> "Spy":
        """The entries of the first rows and columns."""
        near = (self.rows < most) & (self.columns < most)
        shape = min(most, self.shape[0]), min(most, self.shape[1])
        return replace(
            self, rows=self.rows[near], columns=self.columns[near], shape=shape, group=self.group[near]
        )

    def describe(self) -> str:
        """A sentence on the subject of the picture."""
        count = f"{len(self.rows):,} of {self.shape[0] * self.shape[1]:,} entries"
        groups = f", {self.in_groups}" if self.groups else ""
        size = "{} x {}".format(*self.shape) + (
            " of {} x {}".format(*self.whole) if self.shape != self.whole else ""
        )
        return f"{self.title}   {size}, {count}{groups}"


def spies(jacobians: Mapping[Any, Any], color_groups: bool) -> list[Spy]:
    return [_spy(jacobian, color_groups) for jacobian in jacobians.values()]


def _spy(jacobian: Jacobian, color_groups: bool) -> Spy:
    if jacobian.entries is None:
        rows, columns = np.nonzero(jacobian.computed)
    else:
        rows = np.repeat(np.arange(jacobian.shape[0]), np.diff(jacobian.entries.row_starts))
        columns = np.asarray(jacobian.entries.columns, np.int64)
    names, shape = (jacobian.input.label, jacobian.output.label), (jacobian.rows, jacobian.columns)
    if not color_groups or not len(rows):
        return Spy(*names, rows, columns, shape, np.zeros(len(rows), np.int64), 0, "", jacobian.shape)
    runs = Compressed(Pattern(rows.astype(np.int32), columns.astype(np.int32), shape))
    colors, at, by = (runs.columns, columns, "columns") if runs.is_by_columns else (runs.rows, rows, "rows")
    return Spy(*names, rows, columns, shape, colors[at].astype(np.int64), int(runs.lanes), by, jacobian.shape)


def figure(parts: Sequence[Spy], title: str | None = None) -> Any:
    """A `matplotlib.figure.Figure` with a panel for each pattern, and one for its corner if it is binned."""
    panels = [panel for part in parts for panel in _panels(part)]
    drawn = figures.new(0.8 + 3.4 * len(panels), 3.7)
    axes = drawn.subplots(1, len(panels), squeeze=False)[0]
    for axis, (part, head) in zip(axes, panels, strict=True):
        _draw(axis, part, head)
    if title:
        drawn.suptitle(title)
    return drawn


def _panels(part: Spy) -> list[tuple[Spy, str]]:
    """A pattern and, where bins hide which entries belong together, its corner; each with its title."""
    groups = f"\n{part.in_groups}" if part.groups else ""
    whole = part, f"{part.title}: {len(part.rows):,} entries{groups}"
    if not part.groups or max(part.shape) <= MOST_CELLS:
        return [whole]
    corner = part.corner(TEXT_CELLS)
    rows, columns = corner.shape
    return [whole, (corner, f"the first {rows} rows and {columns} columns")]


def _draw(axis: Any, part: Spy, head: str) -> None:
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    colours = colormaps["tab10"](range(10)) if part.groups else [(0.2, 0.2, 0.25)]
    cells = np.ma.masked_equal(part.binned(MOST_CELLS), 0)
    rows, columns = part.shape
    axis.imshow(
        (cells - 1) % len(colours),
        cmap=ListedColormap(colours),
        vmin=-0.5,
        vmax=len(colours) - 0.5,
        extent=(-0.5, columns - 0.5, rows - 0.5, -0.5),
        interpolation="nearest",
        aspect="equal" if max(rows, columns) <= MOST_UNEVEN * min(rows, columns) else "auto",
    )
    axis.set_title(head, fontsize=9)
    axis.set_xlabel(part.input)
    axis.set_ylabel(part.output)
    figures.whole_ticks(axis)


def figure_view(drawn: Any, parts: Sequence[Spy]) -> Node:
    """The figure, with its text form for a terminal."""
    alt = "patterns: " + "; ".join(part.describe() for part in parts)
    return Drawing("", partial(figures.picture, drawn, alt), tuple(text_lines(parts)))


def text_lines(parts: Sequence[Spy]) -> list[str]:
    """The patterns as text: a letter for each group, a point where there is no entry."""
    lines: list[str] = []
    for part in parts:
        lines.append(part.describe())
        letters = ("·", *(LETTERS[k % len(LETTERS)] for k in range(max(part.groups, 1))))
        lines += ["  " + "".join(letters[k] for k in row.tolist()) for row in part.binned(TEXT_CELLS)]
        lines.append("")
    return lines[:-1]
