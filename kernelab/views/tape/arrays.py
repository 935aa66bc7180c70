"""The display of an array: a table if it is small, a picture if it is large, its gradient at its side.

Pure functions from an array to markup; must not change or expose its memory.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kernelab.autodiff.tape.seeds import passes_in
from kernelab.lang.structs import placed
from kernelab.lang.types import Scalar, Transform, Vec, scalar_of, shape_of
from kernelab.runtime.array.array import array
from kernelab.runtime.array.transfers import require_readable
from kernelab.runtime.context.recorder import unrecorded
from kernelab.runtime.host.structarray import structarray
from kernelab.runtime.ops.indexed import indexedarray
from kernelab.views.pages.markup import Below, Beside, Cell, Drawing, Node, Run, Table, cell, words
from kernelab.views.pages.picture import LEFT, WIDTH, Values, curves, heatmap, number, photograph

LONGEST_ROW, LARGEST_SIDE = 12, 8
"""Up to how many elements a table shows them all."""

PIXELS = 36_000
"""How many bytes the pictures of one view take together, before they are encoded as text."""

MOVING = 1_000_000
"""The same of a picture that moves."""

LOOKED_AT = 2**22
"""Of an array with more elements, only every n-th is looked at, so that it shows at once."""

COMPONENTS = ("x", "y", "z", "w")
OF_TRANSFORM = ("p.x", "p.y", "p.z", "q.x", "q.y", "q.z", "q.w")


def array_view(shown: array, *, asks: bool = False) -> Node:
    """The view of an array's values, and of its gradient where it has one.

    With `asks`, the elements of the gradient are marked for a live page, which asks who added to them.
    """
    require_readable(shown)
    traced = ", requires gradients" if shown.requires_grad else ""
    described = f" of {_extents(shown)} {shown.dtype} on {shown.device}{traced}"
    heading = words(Run("array", "strong"), described, level=1)
    gradient = shown.grad if shown.allocation.adjoint is not None else None
    note = [words(Run(said, "dim")) for said in _passes(shown)]
    if gradient is None:
        return Below((heading, *note, values_view("", shown, PIXELS)))
    asked = asks and not isinstance(shown, structarray)
    sides = values_view("values", shown, PIXELS // 2), values_view("gradient", gradient, PIXELS // 2, asked)
    return Below((heading, Beside(sides), *note))


def _passes(shown: array) -> Iterator[str]:
    """Of which backward passes the gradient is the sum, or that none has reached it."""
    gradient = shown.allocation.adjoint
    passes = None if gradient is None else passes_in(gradient)
    if gradient is None or (gradient.passes is None and not gradient.version):
        yield from ["no backward pass has reached it"] if shown.requires_grad else []
    elif passes is not None and passes.count > 1:
        yield f"sum of {passes.count} backward passes, not zeroed since {passes.since}"


def picked_view(shown: indexedarray) -> Node:
    """The view of the elements of an `indexedarray`."""
    with unrecorded():
        elements = shown.contiguous()
    described = f" of an array of {_extents(shown.data)} {shown.dtype} on {shown.device}"
    heading = words(Run(f"{_extents(shown)} picked elements", "strong"), described, level=1)
    return Below((heading, values_view("", elements, PIXELS)))


def _extents(shown: array | indexedarray) -> str:
    return " × ".join(map(str, shown.shape))


def values_view(title: str, shown: array, budget: int | None, asks: bool = False) -> Node:
    """The values of an array, in pictures of at most `budget` bytes; for None quickly, and without text."""
    values = shown.host()
    if not shown.size:
        return words("no elements")
    if isinstance(shown, structarray):
        return _structs(title, shown)
    if _is_small(shown):
        table = _table(title, shown, values)
        return _asking(table, shown) if asks else table
    step = math.ceil((shown.size / LOOKED_AT) ** (1 / shown.ndim))
    some: array = shown[(slice(None, None, step),) * shown.ndim]
    heading = _title(title, shown, some.host())
    if step > 1:
        heading += f", of one element in {step**shown.ndim}"
    picture = _picture(some, [some.host()], budget, shown.shape[0] - 1)
    if budget is None:
        return Drawing(heading, picture, ())
    with np.printoptions(precision=4, threshold=60, edgeitems=3, linewidth=100):
        lines = tuple(str(_last_axes(shown, values)).splitlines())
    return Drawing(heading, _clickable(picture, some, step) if asks else picture, lines)


def animation_view(frames: Sequence[array], fps: float) -> Node:
    """Arrays of one shape and dtype, one after another: a picture that moves, curves that change."""
    first = frames[0]
    step = math.ceil((first.size / LOOKED_AT) ** (1 / first.ndim))
    some = [frame[(slice(None, None, step),) * frame.ndim].host() for frame in frames]
    picture = _picture(first, some, MOVING, first.shape[0] - 1, fps)
    described = f"{len(frames)} frames of {_extents(first)} {first.dtype}, {number(fps)} a second"
    return Drawing(described, picture, (_range(np.stack(some)),))


def _is_small(shown: array) -> bool:
    if shown.ndim == 1:
        return shown.size <= LONGEST_ROW
    largest = LARGEST_SIDE if isinstance(shown.dtype, Scalar) else LARGEST_SIDE // 2
    return shown.ndim == 2 and max(shown.shape) <= largest


# ------------------------------------------------------------------------------------------ tables


def _table(title: str, shown: array, values: Values) -> Table:
    if shown.ndim == 1 and not isinstance(shown.dtype, Vec):
        return Table(title, tuple(map(str, range(shown.size))), (tuple(map(_cell, values)),))
    count = shown.dtype.n if isinstance(shown.dtype, Vec) and shown.ndim == 1 else shown.shape[1]
    names = COMPONENTS[:count] if shown.ndim == 1 and count <= len(COMPONENTS) else map(str, range(count))
    names = OF_TRANSFORM if shown.ndim == 1 and isinstance(shown.dtype, Transform) else names
    return Table(title, ("", *names), tuple(_row(str(i), row) for i, row in enumerate(values)))


def _structs(title: str, shown: structarray) -> Table:
    """A row for each of the first structs, a column for each field."""
    fields = [leaf.host() for leaf in shown.leaves]
    names = [leaf.name.removeprefix(".") for leaf in placed(shown.dtype)]
    first = itertools.islice(np.ndindex(shown.shape), LONGEST_ROW)
    rows = tuple(_row(", ".join(map(str, place)), [values[place] for values in fields]) for place in first)
    parts = [title] if title else []
    if shown.size > LONGEST_ROW:
        parts.append(f"the first {LONGEST_ROW} of {shown.size}")
    return Table(", ".join(parts), ("", *names), rows)


def _row(name: str, entries: Iterable[Any]) -> tuple[Cell, ...]:
    return (cell(name, "dim", is_number=True), *map(_cell, entries))


def _cell(value: Any) -> Cell:
    return cell(_written(value), is_number=True)


def _written(value: Any) -> str:
    """A number, or a vector or matrix by its rows."""
    if np.ndim(value) == 0:
        return number(value)
    inner = ", ".join(map(_written, value))
    return f"({inner})" if np.ndim(value) == 1 else inner


def _asking(table: Table, shown: array) -> Table:
    """The table with its numbers marked: a vector or matrix is one element, with all its components."""

    def asked(entry: Cell, row: int, column: int) -> Cell:
        by_rows = shown.ndim == 1 and len(table.rows) == shown.size and isinstance(shown.dtype, Vec)
        place = f"{row}" if by_rows else f"{column}" if shown.ndim == 1 else f"{row},{column}"
        return replace(entry, asks=f"element {place}")

    first = 0 if table.head[0] else 1
    rows = (
        (*row[:first], *(asked(entry, i, j) for j, entry in enumerate(row[first:])))
        for i, row in enumerate(table.rows)
    )
    return replace(table, rows=tuple(rows))


# ------------------------------------------------------------------------------------------ pictures


def _picture(shown: array, frames: Sequence[Values], budget: int | None, last: int, fps: float = 0.0) -> str:
    """The picture of one frame of the values of `shown`, or of several of such arrays."""
    alt = f"{shown.dtype} of shape {shown.shape}"
    components = shape_of(shown.dtype)
    if shown.ndim == 1 and len(components) <= 1 and np.prod(components, dtype=int) <= len(COMPONENTS):
        columns = [values.reshape(len(values), -1).astype(np.float64) for values in frames]
        names = COMPONENTS[: columns[0].shape[1]] if components else ("",)
        return curves(columns, names, alt, last, fps)
    matrices = [_matrix(shown, values) for values in frames]
    if all(_is_photograph(shown, matrix) for matrix in matrices):
        return photograph(matrices, alt, budget, fps)
    matrices = [matrix.astype(np.float64) for matrix in matrices]
    if components:
        matrices = [np.sqrt((matrix.reshape(*matrix.shape[:2], -1) ** 2).sum(axis=2)) for matrix in matrices]
    note = f"<small>the norm of each {shown.dtype}</small>" if components else ""
    return heatmap(matrices, alt, budget, fps) + note


def _clickable(picture: str, shown: array, step: int) -> str:
    """The picture, with what tells a page which element of `shown`, every `step`-th of an array, is where."""
    extents = ",".join(map(str, shown.shape))
    left = LEFT / WIDTH if 'class="kl-curves"' in picture else 0
    return f'<div data-elements="{extents}" data-step="{step}" data-left="{left:.4f}">{picture}</div>'


def _matrix(shown: array, values: Values) -> Values:
    """The rows and columns that a picture shows: of more dimensions the last two, of one a single row."""
    return values[None] if shown.ndim == 1 else _last_axes(shown, values)


def _last_axes(shown: array, values: Values) -> Values:
    """The values at the first index of every axis but the last two."""
    return np.asarray(values[(0,) * (shown.ndim - 2)])


def _is_photograph(shown: array, matrix: Values) -> bool:
    is_color = isinstance(shown.dtype, Vec) and shown.dtype.n == 3 and scalar_of(shown.dtype).is_float
    return is_color and shown.ndim > 1 and bool(((matrix >= 0) & (matrix <= 1)).all())


def _title(title: str, shown: array, values: Values) -> str:
    parts = [title] if title else []
    if shown.ndim > 2:
        place = ", ".join(["0"] * (shown.ndim - 2))
        parts.append(f"only [{place}] of {math.prod(shown.shape[:-2])} is shown")
    if isinstance(shown.dtype, Scalar):
        parts.append(f"in all {_range(values)}" if shown.ndim > 2 else _range(values))
    return ": ".join(parts)


def _range(values: Values) -> str:
    finite = values[np.isfinite(values)]
    if not finite.size:
        return "no finite number"
    mean = number(float(finite.mean(dtype=np.float64)))
    rest = f", {values.size - finite.size} not finite" if values.size > finite.size else ""
    return f"{number(finite.min())} to {number(finite.max())}, mean {mean}{rest}"
