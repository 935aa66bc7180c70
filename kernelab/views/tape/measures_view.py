"""Norms of adjoints as a plot and a table; the times of kernels as a table."""

from collections.abc import Sequence

import numpy as np

from kernelab.autodiff.tape.measures import KernelTime, Norms, NormStep, Profile
from kernelab.errors import Span
from kernelab.views.pages.markup import Below, Cell, Drawing, Node, Run, Table, cell, counted, left_out, words
from kernelab.views.pages.picture import curves

FIRST, LAST, SHOWN = 12, 6, 40
"""Of many steps, how many have rows at the ends, and how many at most."""

CHARACTERS = 60
"""How many characters a plot in a terminal takes."""


def norms_view(norms: Norms) -> Node:
    """A sentence for each place where the gradient leaves its bounds, the plot, and the table."""
    steps = norms.steps
    if not steps:
        return words("No gradient reaches an array that requires one.")
    title = words(Run("norms of the adjoints", "strong"), f", {counted(len(steps), 'step')}", level=1)
    trends = zip(("", *(step.trend for step in steps)), steps, strict=False)
    turns = [step for before, step in trends if step.trend and step.trend != before]
    said = [words(Run("⚠ ", "bad"), _sentence(step)) for step in turns[:LAST]]
    return Below((title, *said, _plot(steps), _table(steps, turns)))


def _sentence(step: NormStep) -> str:
    verb = step.trend if step.trend in ("vanishes", "explodes") else f"is {step.trend}"
    loop = "" if step.iteration is None else f", iteration {step.iteration}"
    where = str(step.place) if step.line is None else f"{step.line}: {_text(step.line)}"
    return f"the gradient {verb} in record {step.record + 1}, {step.title}{loop} ({where})"


def _text(line: Span) -> str:
    return line.source.line(line.line).strip()


def _plot(steps: Sequence[NormStep]) -> Drawing:
    sizes = np.array([step.norm for step in steps], np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        powers = np.where(np.isfinite(sizes) & (sizes > 0), np.log10(sizes), np.nan)
    alt = "the power of ten of the largest norm of the adjoints after each step, from the loss on"
    title = "log10 of the largest norm of the adjoints, from the loss on"
    return Drawing(title, curves([powers[:, None]], ("",), alt, len(steps) - 1), (_bars(powers),))


def _bars(powers: np.ndarray[tuple[int], np.dtype[np.float64]]) -> str:
    """The same in characters, for a terminal; blank where there is no power."""
    some = powers[np.linspace(0, len(powers) - 1, min(len(powers), CHARACTERS)).astype(int)]
    finite = some[np.isfinite(some)]
    low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 0.0)
    marks = "▁▂▃▄▅▆▇█"
    bars = [" " if np.isnan(one) else marks[int(7 * (one - low) / ((high - low) or 1.0))] for one in some]
    return f"{''.join(bars)}  from 1e{high:+.1f} to 1e{low:+.1f}"


HEAD = ("step", "record", "iteration", "norm", "", "where", "source")


def _table(steps: Sequence[NormStep], turns: Sequence[NormStep]) -> Table:
    kept = [i for i, step in enumerate(steps) if i < FIRST or i >= len(steps) - LAST or step in turns]
    kept = list(range(len(steps))) if len(steps) <= SHOWN else kept
    rows: list[tuple[Cell, ...]] = []
    for before, i in zip((-1, *kept), kept, strict=False):
        if i > before + 1:
            rows.append(left_out(f"{i - before - 1} more", len(HEAD)))
        rows.append(_row(i, steps[i]))
    return Table("", HEAD, tuple(rows))


def _row(i: int, step: NormStep) -> tuple[Cell, ...]:
    name = step.title.removeprefix("the launch of ").strip("`")
    iteration = "" if step.iteration is None else str(step.iteration)
    where, source = (str(step.place), "") if step.line is None else (str(step.line), _text(step.line))
    numbers = cell(str(i + 1), is_number=True), cell(f"{step.record + 1} {name}", "name")
    shown = cell(iteration, is_number=True), cell(f"{step.norm:.4g}", is_number=True)
    return *numbers, *shown, cell(step.trend, "bad"), cell(where, "dim"), cell(source)


# --------------------------------------------------------------------------------------------------- profile


def profile_view(profile: Profile) -> Node:
    """A row for each kernel, the one that takes the longest first."""
    if not profile.kernels:
        return words("This tape has recorded no launches.")
    head = ("kernel", "launches", "forward ms", "backward ms", "bytes", "GB/s")
    return Table("time of the launches, run again on copies", head, tuple(map(_time, profile.kernels)))


def _time(one: KernelTime) -> tuple[Cell, ...]:
    backward = "" if one.backward is None else f"{one.backward * 1e3:.3f}"
    numbers = f"{one.launches:,}", f"{one.forward * 1e3:.3f}", backward, f"{one.nbytes:,}", f"{one.rate:.2f}"
    return cell(one.name, "name"), *(cell(number, is_number=True) for number in numbers)
