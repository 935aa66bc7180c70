"""Numbers as pictures: heatmaps and photographs as PNG, curves as SVG, all in plain HTML without scripts.

Pure functions from NumPy arrays to HTML text; knows colours and file formats, not arrays of kernels.
"""

import base64
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

Values = np.ndarray[Any, Any]
Color = tuple[int, int, int, int]
"""Red, green, blue, and how much they cover of the page, to 255."""

# The anchors of viridis, and the ends of ColorBrewer's red and blue: both are read by the colour-blind.
SEQUENTIAL: tuple[Color, ...] = (
    (68, 1, 84, 255),
    (59, 82, 139, 255),
    (33, 145, 140, 255),
    (94, 201, 98, 255),
    (253, 231, 37, 255),
)
# Zero is the page itself, light or dark.
DIVERGING: tuple[Color, ...] = (
    (33, 102, 172, 255),
    (33, 102, 172, 128),
    (105, 63, 108, 0),
    (178, 24, 43, 128),
    (178, 24, 43, 255),
)
NOT_FINITE: Color = (128, 128, 128, 255)
LEVELS = 255
NONE = np.zeros((0, 4), np.uint8)
"""The palette of a picture that has none."""
SIDES = (256, 192, 160, 128, 96, 64, 48, 32)
"""The longest sides, in pixels, that are tried until a picture fits its budget."""

SHOWN, SMALLEST_SIDE, LARGEST_PIXEL = 280, 16, 20
"""In pixels of the page: the longer side of a picture, the shorter at least, an element of a small one."""

LINES = ("--kl-name", "--kl-bad", "--kl-number", "--kl-keyword")
WIDTH, HEIGHT, LEFT, BELOW, POINTS = 400, 110, 68, 14, 480


@dataclass(frozen=True, slots=True)
class Scale:
    """A colour scale: numbers from `low` to `high` along the anchors."""

    low: float
    high: float
    anchors: tuple[Color, ...]

    def levels(self, values: Values) -> Values:
        """The palette index of each number; the last one for what is not finite."""
        span = self.high - self.low or 1.0
        finite = np.isfinite(values)
        share = np.where(finite, (values - self.low) / span, 0.0)
        return np.where(finite, np.clip(share * LEVELS, 0, LEVELS - 1), LEVELS).astype(np.uint8)

    def palette(self) -> Values:
        """The colours of the indices, one in a row."""
        at, anchors = np.linspace(0, len(self.anchors) - 1, LEVELS), range(len(self.anchors))
        channels = [np.interp(at, anchors, channel) for channel in zip(*self.anchors, strict=True)]
        return np.vstack([np.stack(channels, axis=1).round(), NOT_FINITE]).astype(np.uint8)

    def key(self) -> str:
        """The scale itself, with the numbers at its ends."""
        stops = ",".join(f"rgb({r},{g},{b},{cover / 255:.2g})" for r, g, b, cover in self.anchors)
        low, high = escape(number(self.low)), escape(number(self.high))
        bar = f'<i style="background:linear-gradient(90deg,{stops})"></i>'
        return f'<div class="kl-key">{low}{bar}{high}</div>'


def number(value: Any) -> str:
    """A number as views write it: four digits of a float."""
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)


def scale_of(values: Values) -> Scale:
    """Blue and red around zero where there are both signs, else from the least to the greatest."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return Scale(0.0, 0.0, SEQUENTIAL)
    low, high = float(finite.min()), float(finite.max())
    if low < 0 < high:
        reach = max(-low, high)
        return Scale(-reach, reach, DIVERGING)
    return Scale(low, high, SEQUENTIAL)


def heatmap(values: Values, alt: str, budget: int) -> str:
    """A picture of a matrix with the key to its colours, the PNG at most `budget` bytes."""
    scale = scale_of(values)
    image = _image(values, lambda part: (scale.levels(part)[..., None], scale.palette()), alt, budget)
    grey = "<small>grey: not finite</small>" if not np.isfinite(values).all() else ""
    return image + scale.key() + grey


def photograph(values: Values, alt: str, budget: int) -> str:
    """A picture of red, green and blue from 0 to 1 in the last axis, the PNG at most `budget` bytes."""
    return _image(values, lambda part: (np.round(part * 255).astype(np.uint8), NONE), alt, budget)


def _image(values: Values, encode: Callable[[Values], tuple[Values, Values]], alt: str, budget: int) -> str:
    """A picture of what `encode` makes of a matrix, pixels and palette, as large as the budget allows."""
    for side in SIDES:
        pixels, palette = encode(thinned(values, side))
        encoded, shape = png(pixels, palette), pixels.shape
        if len(encoded) <= budget:
            break
    zoom = SHOWN / max(shape[:2])
    if zoom > 2:
        zoom = min(LARGEST_PIXEL, int(zoom))
    height, width = (max(SMALLEST_SIDE, round(extent * zoom)) for extent in shape[:2])
    data = base64.b64encode(encoded).decode()
    size = f'width="{width}" height="{height}"'
    return f'<img class="kl-pixels" {size} alt="{escape(alt)}" src="data:image/png;base64,{data}">'


def thinned(values: Values, side: int) -> Values:
    """A matrix with neighbours averaged, so that its longer side has at most `side` rows or columns."""
    longest = max(values.shape[:2])
    if longest <= side:
        return values
    for axis in (0, 1):
        length = values.shape[axis]
        count = -(-length * side // longest)
        starts = np.arange(count) * length // count
        sizes = np.diff(np.append(starts, length))
        shape = [-1 if k == axis else 1 for k in range(values.ndim)]
        values = np.add.reduceat(values, starts, axis=axis) / sizes.reshape(shape)
    return values


def png(pixels: Values, palette: Values = NONE) -> bytes:
    """A PNG file (ISO/IEC 15948) of 8-bit pixels, rows first: indices of a palette, or three colours."""
    height, width, channels = pixels.shape
    rows = np.zeros((height, 1 + width * channels), np.uint8)
    rows[:, 1:] = pixels.reshape(height, width * channels)
    header = struct.pack(">2I5B", width, height, 8, 3 if len(palette) else 2, 0, 0, 0)
    parts = [
        (b"IHDR", header),
        (b"PLTE", palette[:, :3].tobytes()),
        (b"tRNS", palette[:, 3].tobytes()),
        (b"IDAT", zlib.compress(rows.tobytes(), 9)),
        (b"IEND", b""),
    ]
    file = b"\x89PNG\r\n\x1a\n"
    for kind, data in parts:
        if data or kind == b"IEND":
            file += struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return file


# ------------------------------------------------------------------------------------------ curves


def curves(columns: Values, names: tuple[str, ...], alt: str, last: int) -> str:
    """The columns of a matrix as curves over the row numbers up to `last`, with the range at the left."""
    finite = columns[np.isfinite(columns)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    margin = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    bottom, top = low - margin, high + margin

    def y(value: Any) -> Any:
        return (HEIGHT - BELOW) * (top - value) / (top - bottom)

    parts = []
    if bottom < 0 < top:
        zero = f"{y(0):.1f}"
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH}" y1="{zero}" y2="{zero}" class="kl-zero"/>')
    for k, name in enumerate(names):
        style = f"stroke:{_ink(k)}"
        title = f"<title>{escape(name)}</title>" if name else ""
        parts += [f'<path d="{path}" style="{style}">{title}</path>' for path in _paths(columns[:, k], y)]
    parts += [
        _label(LEFT - 6, y(high) + 4, number(high)),
        _label(LEFT - 6, y(low) + 4, number(low)),
        _label(LEFT + 6, HEIGHT - 2, "0"),
        _label(WIDTH, HEIGHT - 2, str(last)),
    ]
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    svg = f'<svg class="kl-curves" {size} role="img" aria-label="{escape(alt)}">{"".join(parts)}</svg>'
    legend = [f'<b style="color:{_ink(k)}">{escape(name)}</b>' for k, name in enumerate(names) if name]
    return svg + (f'<div class="kl-key">{"".join(legend)}</div>' if legend else "")


def _ink(curve: int) -> str:
    return f"var({LINES[curve % len(LINES)]},currentColor)"


def _label(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="end">{escape(text)}</text>'


def _paths(values: Values, y: Any) -> list[str]:
    """A curve in pieces that are finite; of many points the least and the greatest of neighbours."""
    if len(values) > POINTS:
        starts = np.arange(POINTS // 2) * len(values) // (POINTS // 2)
        ends = [np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)]
        values = np.stack(ends, axis=1).reshape(-1)
    x = LEFT + np.arange(len(values)) * (WIDTH - LEFT) / max(1, len(values) - 1)
    finite = np.flatnonzero(np.isfinite(values))
    pieces = np.split(finite, np.flatnonzero(np.diff(finite) > 1) + 1)
    return ["M" + "L".join(f"{x[i]:.1f} {y(values[i]):.1f}" for i in piece) for piece in pieces if len(piece)]
