"""A tape as a picture and a table, a row for each record; norms of its adjoints; times of its kernels.

Pure functions from a tape to markup; must not know how a tape records or sweeps.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from kernelab import hooks
from kernelab.autodiff.tape.measures import KernelTime, Norms, NormStep, Profile
from kernelab.autodiff.tape.tape import Tape
from kernelab.errors import Span, counted, running_shell
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import names_of_memories
from kernelab.runtime.memory.memory import Allocation
from kernelab.views.kernel.code_view import spill
from kernelab.views.pages import markup
from kernelab.views.pages.markup import Below, Cell, Drawing, Node, Run, Table, Words, cell, words
from kernelab.views.pages.picture import curves
from kernelab.views.tape.digest import TapeData
from kernelab.views.tape.timeline import timeline

MOST = 20_000
"""How many places are looked at in one container."""


def names_of(memories: Iterable[Allocation], namespace: Mapping[str, Any]) -> dict[Allocation, str]:
    """The name of an array over each memory: that of a variable before that of a place in a container."""
    wanted = {id(memory): memory for memory in memories}
    names: dict[int, str] = {}
    for places in (_variables(namespace), _inside(namespace)):
        for name, elements in places:
            key = id(elements.allocation)
            if key in wanted:
                names.setdefault(key, name)
        if len(names) == len(wanted):
            break
    return {wanted[key]: name for key, name in names.items()}


def names_now(memories: Iterable[Allocation]) -> Mapping[Allocation, str]:
    """The variables of arrays in the running notebook; elsewhere, in the code that called kernelab."""
    shell = running_shell()
    return names_of_memories(memories) if shell is None else names_of(memories, shell.user_ns)


def _variables(namespace: Mapping[str, Any]) -> Iterator[tuple[str, array]]:
    for name, value in tuple(namespace.items()):
        if issubclass(type(value), array) and not name.startswith("_"):
            yield name, value


def _inside(namespace: Mapping[str, Any]) -> Iterator[tuple[str, array]]:
    for name, value in tuple(namespace.items()):
        if name.startswith("_") or issubclass(type(value), array | type):
            continue
        # Objects of users may raise whatever they like where they are looked at: they then have no names.
        with contextlib.suppress(Exception):
            yield from [(place, one) for place, one in _places(name, value) if isinstance(one, array)]


def _places(name: str, value: Any) -> list[tuple[str, Any]]:
    """What a variable holds, each with the expression for it."""
    match value:
        case list() | tuple():
            return [(f"{name}[{i}]", one) for i, one in enumerate(value[:MOST])]
        case dict():
            return [(f"{name}[{key!r}]", one) for key, one in tuple(value.items())[:MOST]]
    fields = getattr(value, "__dict__", None)
    if not isinstance(fields, dict):
        return []
    return [(f"{name}.{field}", one) for field, one in tuple(fields.items())[:MOST]]


# ------------------------------------------------------------------------------------------------- tape view


HEAD = ("", "record", "grid", "reads", "changes", "where")
SHOWN_FIRST, SHOWN_LAST = 12, 4
"""Of a long tape, how many records are shown at its ends."""

MOST_WARNINGS = 6
"""How many different warnings are shown."""


def tape_view(tape: Tape) -> Node:
    """The view of a tape."""
    if not len(tape):
        return words("This tape is empty: launch kernels inside `with tape:` to record them.")
    data = TapeData.of(tape, names_now)
    saved = f", {_size(tape.saved_bytes)} saved from being overwritten" if tape.saved_bytes else ""
    title = words(Run(f"tape of {counted(len(data), 'record')}", "strong"), saved, level=1)
    picture = Drawing("", timeline(data), ())
    rows = markup.ends_of(len(data), partial(_row, data), SHOWN_FIRST, SHOWN_LAST)
    spills = (
        words(Run(f"{kernel.name}, beyond the memory for loops: ", "dim"), spill(kernel.spilled))
        for kernel in dict.fromkeys(record.kernel for record in tape.launches)
        if kernel.spilled
    )
    return Below((title, *spills, *_warnings(data), picture, Table("", HEAD, rows)))


@hooks.picture.provide
def svg_of(tape: Tape) -> str:
    """The tape as an SVG file, as `Tape.to_svg` gives it."""
    return timeline(TapeData.of(tape, names_now))


def _warnings(data: TapeData) -> list[Words]:
    """The overwrites of elements that an adjoint needs, and the findings of the last `backward`."""
    sentences: dict[str, None] = {}
    for clash, _, _, overwritten, *_ in data.parts["overwrites"]:
        if data.is_lost(clash):
            read, wrote = (data.parts["clashes"][clash][side][0] for side in ("read", "wrote"))
            name = data.label(data.memory(overwritten))
            sentences[f"{name} is overwritten at {wrote}, but the adjoint of {read} needs its old values"] = (
                None
            )
    sentences |= dict.fromkeys(
        f"{finding['at'][0]}: {finding['message']}" for finding in data.parts["findings"]
    )
    more = [f"and {len(sentences) - MOST_WARNINGS} more"] if len(sentences) > MOST_WARNINGS else []
    return [words(Run("⚠ ", "bad"), sentence) for sentence in (*list(sentences)[:MOST_WARNINGS], *more)]


def _size(count: int) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count} {unit}"
        count = round(count / 1000)
    return f"{count} GB"


def _row(data: TapeData, record: int) -> tuple[Cell, ...]:
    kind, (read, written) = data.kind(record), data.sides(record)
    reads, changes = _arrays(data, kind["reads"], read), _arrays(data, kind["writes"], written)
    number, title = cell(str(record + 1), is_number=True), cell(kind["title"], "name")
    return number, title, cell(data.grid(record)), reads, changes, cell(kind["place"], "dim")


def _arrays(data: TapeData, parameters: Sequence[str], arrays: Sequence[int]) -> Cell:
    """Arrays by their names in the notebook; dim, those without one by their parameters or their shapes."""
    runs: dict[Run, None] = {}
    for parameter, number in zip(parameters, arrays, strict=True):
        name, (dtype, shape) = data.names.get(data.memory(number)), data.layout(number)
        _, dot, field = parameter.partition(".")
        described = parameter or f"{dtype}, shape {' × '.join(map(str, shape))}"
        runs[Run(described, "dim") if name is None else Run(f"{name}{dot}{field}")] = None
    return Cell(tuple(run for one in runs for run in (Run(", "), one))[1:])


# ----------------------------------------------------------------------------------------------------- norms


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
    return Below((title, *said, _norms_plot(steps), _norms_table(steps, turns)))


def _sentence(step: NormStep) -> str:
    verb = step.trend if step.trend in ("vanishes", "explodes") else f"is {step.trend}"
    loop = "" if step.iteration is None else f", iteration {step.iteration}"
    where = str(step.place) if step.line is None else f"{step.line}: {_line_text(step.line)}"
    return f"the gradient {verb} in record {step.record}, {step.title}{loop} ({where})"


def _line_text(line: Span) -> str:
    return line.source.line(line.line).strip()


def _norms_plot(steps: Sequence[NormStep]) -> Drawing:
    sizes = np.array([step.norm for step in steps], np.float64)
    sizes = np.where(np.isfinite(sizes) & (sizes > 0), sizes, np.nan)
    alt = "the largest norm of the adjoints after each step, from the loss on"
    title = f"{alt}, on a logarithmic scale"
    return Drawing(title, curves([sizes[:, None]], ("",), alt, len(steps) - 1, log=True), (_bars(sizes),))


def _bars(sizes: np.ndarray[tuple[int], np.dtype[np.float64]]) -> str:
    """The same in characters, for a terminal; blank where there is no power."""
    some = np.log10(sizes[np.linspace(0, len(sizes) - 1, min(len(sizes), CHARACTERS)).astype(int)])
    finite = some[np.isfinite(some)]
    low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 0.0)
    marks = "▁▂▃▄▅▆▇█"
    bars = [" " if np.isnan(one) else marks[int(7 * (one - low) / ((high - low) or 1.0))] for one in some]
    return f"{''.join(bars)}  from {10**high:.3g} to {10**low:.3g}"


NORMS_HEAD = ("step", "record", "iteration", "norm", "", "where", "source")


def _norms_table(steps: Sequence[NormStep], turns: Sequence[NormStep]) -> Table:
    kept = [i for i, step in enumerate(steps) if i < FIRST or i >= len(steps) - LAST or step in turns]
    kept = list(range(len(steps))) if len(steps) <= SHOWN else kept
    rows: list[tuple[Cell, ...]] = []
    for before, i in zip((-1, *kept), kept, strict=False):
        if i > before + 1:
            rows.append(markup.left_out(f"{i - before - 1} more", len(NORMS_HEAD)))
        rows.append(_step_row(i, steps[i]))
    return Table("", NORMS_HEAD, tuple(rows))


def _step_row(i: int, step: NormStep) -> tuple[Cell, ...]:
    name = step.title.removeprefix("the launch of ").strip("`")
    iteration = "" if step.iteration is None else str(step.iteration)
    where, source = (str(step.place), "") if step.line is None else (str(step.line), _line_text(step.line))
    numbers = cell(str(i + 1), is_number=True), cell(f"{step.record} {name}", "name")
    shown = cell(iteration, is_number=True), cell(f"{step.norm:.4g}", is_number=True)
    return *numbers, *shown, cell(step.trend, "bad"), cell(where, "dim"), cell(source)


# --------------------------------------------------------------------------------------------------- profile


def profile_view(profile: Profile) -> Node:
    """A row for each kernel, the one that takes the longest first."""
    if not profile.kernels:
        return words("This tape has recorded no launches.")
    head = ("kernel", "launches", "forward ms", "backward ms", "bytes", "GB/s")
    return Table("time of the launches, run again on copies", head, tuple(map(_time_row, profile.kernels)))


def _time_row(one: KernelTime) -> tuple[Cell, ...]:
    backward = "" if one.backward is None else f"{one.backward * 1e3:.3f}"
    numbers = f"{one.launches:,}", f"{one.forward * 1e3:.3f}", backward, f"{one.nbytes:,}", f"{one.rate:.2f}"
    return cell(one.name, "name"), *(cell(number, is_number=True) for number in numbers)
