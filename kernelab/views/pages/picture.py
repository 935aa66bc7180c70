"""Numbers as pictures: heatmaps and photographs as PNG, curves as SVG, all in plain HTML without scripts.

Several frames make a picture that moves: an animated PNG, or an SVG whose curves change.

Pure functions from NumPy arrays to HTML text; knows colours and file formats, not arrays of kernels.
"""

import base64
import math
import struct
import zlib
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import numpy as np

from kernelab.data_classes import dataclass

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

DENSE, QUICK = 6, 1
"""How much zlib tries: for a file that is kept, and for one that the next replaces at once."""

UP = 2
"""The filter of PNG that stores differences to the row above: smooth pictures become much smaller by it."""

LINES = ("--kl-name", "--kl-bad", "--kl-number", "--kl-dim")
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


def heatmap(frames: Sequence[Values], alt: str, budget: int | None, fps: float = 0.0) -> str:
    """A picture of matrices, one after another, with the key to its colours, of at most `budget` bytes.

    Without a budget it is as large as a picture gets, and made quickly.
    """
    scale = scale_of(frames[0] if len(frames) == 1 else np.stack(frames))
    image = _image(frames, lambda part: (scale.levels(part)[..., None], scale.palette()), alt, budget, fps)
    is_finite = all(np.isfinite(frame).all() for frame in frames)
    return image + scale.key() + ("" if is_finite else "<small>grey: not finite</small>")


def photograph(frames: Sequence[Values], alt: str, budget: int | None, fps: float = 0.0) -> str:
    """A picture of red, green and blue from 0 to 1 in the last axis, as `heatmap`."""
    return _image(frames, lambda part: (np.round(part * 255).astype(np.uint8), NONE), alt, budget, fps)


def _image(
    frames: Sequence[Values],
    encode: Callable[[Values], tuple[Values, Values]],
    alt: str,
    budget: int | None,
    fps: float,
) -> str:
    """A picture of what `encode` makes of matrices, pixels and palette, as large as the budget allows."""
    most, level = (math.inf, QUICK) if budget is None else (budget, DENSE)
    wanted = SIDES[0]
    for side in SIDES:
        if side > wanted and side > SIDES[-1]:
            continue
        encoded = [encode(thinned(frame, side)) for frame in frames]
        shape = encoded[0][0].shape
        file = png([pixels for pixels, _ in encoded], encoded[0][1], fps, level)
        if len(file) <= most:
            break
        wanted = int(side * (most / len(file)) ** 0.5 * 1.3)  # a smaller picture takes a little more a pixel
    zoom = SHOWN / max(shape[:2])
    if zoom > 2:
        zoom = min(LARGEST_PIXEL, int(zoom))
    height, width = (max(SMALLEST_SIDE, round(extent * zoom)) for extent in shape[:2])
    data = base64.b64encode(file).decode()
    size = f'width="{width}" height="{height}"'
    return f'<img class="kl-pixels" {size} alt="{escape(alt)}" src="data:image/png;base64,{data}">'


def thinned(values: Values, side: int) -> Values:
    """A matrix with neighbours averaged, so that its longer side has at most `side` rows or columns."""
    longest = max(values.shape[:2])
    if longest <= side:
        return values
    for axis in (0, 1):
        rows = values.swapaxes(0, axis)
        count = -(-len(rows) * side // longest)
        starts = np.arange(count) * len(rows) // count
        sizes = np.diff(np.append(starts, len(rows)))
        total = rows[starts]
        for k in range(1, int(sizes.max())):  # far quicker than `np.add.reduceat`
            total[sizes > k] += rows[starts[sizes > k] + k]
        values = (total / sizes.reshape(-1, *[1] * (values.ndim - 1))).swapaxes(0, axis)
    return values


def png(frames: Sequence[Values], palette: Values = NONE, fps: float = 0.0, level: int = DENSE) -> bytes:
    """A PNG file (ISO/IEC 15948) of 8-bit pixels, rows first: indices of a palette, or three colours.

    Several frames, `fps` a second, make an animated PNG (W3C, PNG 3rd edition), of which old readers show the
    first.
    """
    height, width, channels = frames[0].shape
    file = b"\x89PNG\r\n\x1a\n"
    file += _chunk(b"IHDR", struct.pack(">2I5B", width, height, 8, 3 if len(palette) else 2, 0, 0, 0))
    if len(frames) > 1:
        file += _chunk(b"acTL", struct.pack(">2I", len(frames), 0))
    if len(palette):
        file += _chunk(b"PLTE", palette[:, :3].tobytes()) + _chunk(b"tRNS", palette[:, 3].tobytes())
    for k, pixels in enumerate(frames):
        flat = pixels.reshape(height, width * channels)
        rows = np.zeros((height, 1 + width * channels), np.uint8)
        rows[0, 1:], rows[1:, 0] = flat[0], UP
        np.subtract(flat[1:], flat[:-1], out=rows[1:, 1:])
        data = zlib.compress(rows.tobytes(), level)
        if len(frames) > 1:  # two chunks a frame, but one of the first, whose data are those of the still
            number, pause = max(2 * k - 1, 0), round(1000 / fps)
            file += _chunk(b"fcTL", struct.pack(">5I2H2B", number, width, height, 0, 0, pause, 1000, 0, 0))
        file += _chunk(b"fdAT", struct.pack(">I", 2 * k) + data) if k else _chunk(b"IDAT", data)
    return file + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


# ------------------------------------------------------------------------------------------ curves


def curves(
    frames: Sequence[Values],
    names: tuple[str, ...],
    alt: str,
    last: int,
    fps: float = 0.0,
    *,
    first: int = 0,
    log: bool = False,
) -> str:
    """The columns of a matrix as curves over row numbers from `first` to `last`, with the range at the left.

    Several matrices follow each other, `fps` a second.  With `log` the scale is logarithmic, and shows what
    is greater than 0.
    """
    if log:
        frames = [np.log10(np.where(frame > 0, frame, np.nan)) for frame in frames]
    finite = np.concatenate([frame[np.isfinite(frame)] for frame in frames])
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    margin = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    bottom, top = low - margin, high + margin

    def y(value: Any) -> Any:
        return (HEIGHT - BELOW) * (top - value) / (top - bottom)

    parts = []
    if bottom < 0 < top and not log:
        zero = f"{y(0):.1f}"
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH}" y1="{zero}" y2="{zero}" class="kl-zero"/>')
    for k, name in enumerate(names):
        paths = [_path(frame[:, k], y) for frame in frames]
        inner = f"<title>{escape(name)}</title>" if name else ""
        if len(frames) > 1:
            timing = f'dur="{len(frames) / fps:.3f}s" calcMode="discrete" repeatCount="indefinite"'
            inner += f'<animate attributeName="d" {timing} values="{";".join(paths)}"/>'
        parts.append(f'<path d="{paths[0]}" style="stroke:{_ink(k)}">{inner}</path>')
    parts += [
        _label(LEFT - 6, y(high) + 4, number(10**high if log else high)),
        _label(LEFT - 6, y(low) + 4, number(10**low if log else low)),
        _label(LEFT + 6, HEIGHT - 2, str(first)),
        _label(WIDTH, HEIGHT - 2, str(last)),
    ]
    drawn = svg(WIDTH, HEIGHT, 'class="kl-curves"', alt, "".join(parts))
    legend = [f'<b style="color:{_ink(k)}">{escape(name)}</b>' for k, name in enumerate(names) if name]
    return drawn + (f'<div class="kl-key">{"".join(legend)}</div>' if legend else "")


def svg(width: float, height: float, attributes: str, alt: str, body: str) -> str:
    """A drawing of so many pixels: a part of a page, or a file."""
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    space = 'xmlns="http://www.w3.org/2000/svg"'
    return f'<svg {space} {attributes} {size} role="img" aria-label="{escape(alt)}">{body}</svg>'


def _ink(curve: int) -> str:
    return f"var({LINES[curve % len(LINES)]},currentColor)"


def _label(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="end">{escape(text)}</text>'


def _path(values: Values, y: Any) -> str:
    """A curve in pieces that are finite; of many points the least and the greatest of neighbours."""
    if len(values) > POINTS:
        starts = np.arange(POINTS // 2) * len(values) // (POINTS // 2)
        ends = [np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)]
        values = np.stack(ends, axis=1).reshape(-1)
    x = LEFT + np.arange(len(values)) * (WIDTH - LEFT) / max(1, len(values) - 1)
    finite = np.flatnonzero(np.isfinite(values))
    pieces = np.split(finite, np.flatnonzero(np.diff(finite) > 1) + 1)
    return "".join(
        "M" + "L".join(f"{x[i]:.1f} {y(values[i]):.1f}" for i in piece) for piece in pieces if len(piece)
    )
