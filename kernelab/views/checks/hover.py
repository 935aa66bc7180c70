"""Tooltips of a heatmap, without scripts: the elements and the value at the pointer.

An SVG of invisible cells lies over the picture.  Where a matrix has too many entries, a cell stands for a
block of them and tells the largest.  Knows matrices and where they stand in a picture, not how it was drawn.
"""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

Values = np.ndarray[Any, Any]

MOST_CELLS = 900
"""How many cells one picture gets: their text is a part of the saved notebook."""

STYLE = (
    ".kl .kl-over{position:relative;display:inline-block;line-height:0;max-width:100%}"
    ".kl .kl-over>img{max-width:100%;height:auto}"
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
class Matrix:
    """A part of a picture: values, a mask of the computed ones, and the names of elements.

    `place` is where it stands: left, top, width and height as shares of the picture.
    """

    input: str
    output: str
    values: Values
    evaluated: Values
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    place: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0)


def picture(png: bytes, size: tuple[int, int], alt: str, matrices: Sequence[Matrix]) -> str:
    """A PNG of some pixels as HTML, with its tooltips."""
    width, height = size
    data = base64.b64encode(png).decode()
    image = f'<img alt="{escape(alt)}" width="{width}" height="{height}" src="data:image/png;base64,{data}">'
    side = int((MOST_CELLS / max(1, len(matrices))) ** 0.5)
    layers = "".join(_layer(matrix, size, side) for matrix in matrices)
    over = f'<svg class="kl-hover" viewBox="0 0 {width} {height}" aria-hidden="true">{layers}</svg>'
    return f'<div class="kl-over"><style>{STYLE}</style>{image}{over}</div>'


def _layer(matrix: Matrix, size: tuple[int, int], side: int) -> str:
    left, top, width, height = (share * size[k % 2] for k, share in enumerate(matrix.place))
    rows, columns = matrix.values.shape
    box = f'x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}"'
    cells = "".join(_cells(matrix, side))
    return f'<svg {box} viewBox="0 0 {columns} {rows}" preserveAspectRatio="none">{cells}</svg>'


def _cells(matrix: Matrix, side: int) -> Iterator[str]:
    high, wide = (max(1, -(-n // side)) for n in matrix.values.shape)
    rows, columns = matrix.values.shape
    for i in range(0, rows, high):
        for j in range(0, columns, wide):
            block = np.s_[i : i + high, j : j + wide]
            shape = matrix.values[block].shape
            tooltip = _tooltip(matrix, block, i, j)
            if tooltip:
                box = f'x="{j}" y="{i}" width="{shape[1]}" height="{shape[0]}"'
                yield f"<rect {box}><title>{escape(tooltip)}</title></rect>"


def _tooltip(matrix: Matrix, block: Any, i: int, j: int) -> str:
    """The tooltip of a block; "" for a block of zeros."""
    values, evaluated = matrix.values[block], matrix.evaluated[block]
    if values.size == 1:
        value = f"{values[0, 0]:.6g}" if evaluated.all() else "not computed"
        return f"{_entry(matrix, i, j)} = {value}"
    where = f"{matrix.output} {i}-{i + values.shape[0] - 1}, {matrix.input} {j}-{j + values.shape[1] - 1}"
    if not evaluated.any():
        return f"{where}: not computed"
    sizes = np.where(evaluated, np.abs(values), -1.0)
    sizes = np.where(np.isnan(sizes), np.inf, sizes)
    row, column = np.unravel_index(int(np.argmax(sizes)), values.shape)
    if not sizes[row, column]:
        return ""
    entry = _entry(matrix, i + int(row), j + int(column))
    count = int(np.count_nonzero(sizes > 0))
    return f"{where}: {count} not zero, the largest {entry} = {values[row, column]:.6g}"


def _entry(matrix: Matrix, row: int, column: int) -> str:
    output = _element(matrix.output, matrix.output_shape, row)
    return f"d {output} / d {_element(matrix.input, matrix.input_shape, column)}"


def _element(name: str, shape: tuple[int, ...], position: int) -> str:
    index = ", ".join(str(int(k)) for k in np.unravel_index(position, shape)) if shape else ""
    return f"{name}[{index}]" if index else name
