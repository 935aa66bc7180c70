"""A tape as a picture and a table, a row for each record; norms of its adjoints; times of its kernels.

    launch          x      y
    1 square        ○──────■
    2 scale                ○──

In the picture time goes down and arrays stand side by side; marks say what each record reads and changes.  It
is SVG, and needs no script, no Graphviz and no running kernel; colours follow the page where it says what
they are, else the reader's preference for light or dark.  Pure functions from a tape to markup; must not know
how a tape records or sweeps.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from html import escape
from types import ModuleType
from typing import Any

import numpy as np

from kernelab import hooks
from kernelab.autodiff.tape.measures import KernelTime, Norms, NormStep, Profile
from kernelab.autodiff.tape.tape import Tape
from kernelab.data_classes import dataclass
from kernelab.errors import counted, running_shell
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import names_of_memories
from kernelab.runtime.memory.memory import Allocation
from kernelab.views.kernel.code_view import spill
from kernelab.views.pages import markup, page
from kernelab.views.pages.markup import Below, Cell, Drawing, Node, Run, Table, Words, cell, words
from kernelab.views.pages.picture import curves, svg
from kernelab.views.tape.digest import NOBODY, TapeData, label

# -------------------------------------------------------------------------------------------------- timeline


ROW, LANE, LABELS, HEADER = 22, 84, 250, 40
FIRST_ROWS, LAST_ROWS, LANES = 24, 6, 12
"""Of a long tape, how many records are drawn at its ends; of many arrays, how many."""

CHARACTER = 7.2
"""How wide a character is, about."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A tape to draw: the rows of the records, the memories that have a column, their versions by records."""

    data: TapeData
    rows: Mapping[int, int]
    memories: Sequence[int]
    versions: Mapping[tuple[int, int], int]

    def x(self, memory: int) -> float:
        """The middle of an array's lane."""
        return LABELS + LANE * (self.memories.index(memory) + 0.5)

    def y(self, record: int) -> float:
        """The middle of a record's row; that of the gap for a record that is left out."""
        return HEADER + ROW * (self.rows.get(record, FIRST_ROWS) + 0.5)

    @property
    def is_cut(self) -> bool:
        """Whether records in the middle are left out."""
        return len(self.rows) < len(self.data)

    @property
    def left_out(self) -> int:
        """The number of memories without a column."""
        return len(self.data.parts["memories"]) - len(self.memories)

    @property
    def width(self) -> float:
        """In pixels."""
        return LABELS + LANE * (len(self.memories) + bool(self.left_out))

    @property
    def height(self) -> float:
        """In pixels, with a row for what is written outside of the tape."""
        return HEADER + ROW * (len(self.rows) + self.is_cut + 0.5)

    def shape(self, memory: int) -> list[int]:
        """The shape of the first array over a memory."""
        arrays = range(len(self.data.parts["arrays"]))
        return self.data.layout(next(array for array in arrays if self.data.memory(array) == memory))[1]


def timeline(data: TapeData) -> str:
    """The picture of a tape as an SVG file."""
    count, memories = len(data), range(len(data.parts["memories"]))
    rows = {record: record for record in range(count)}
    if count > FIRST_ROWS + LAST_ROWS + 1:
        ends = (*range(FIRST_ROWS), *range(count - LAST_ROWS, count))
        rows = {record: row + (row >= FIRST_ROWS) for row, record in enumerate(ends)}
    picture = Picture(data, rows, memories[:LANES], _versions(data))
    left_out = f"⋮ {count - len(rows)} more"
    gap = _text(30, HEADER + ROW * (FIRST_ROWS + 0.5) + 4, "d", left_out) if picture.is_cut else ""
    body = "".join([*_lanes(picture), gap, *_overwrites(picture), *_rows(picture)])
    paper = f'<style>{page.styles("timeline")}</style><rect class="p" width="100%" height="100%"/>'
    alt = f"tape of {count} records on {len(memories)} arrays"
    return svg(picture.width, picture.height, 'class="klp"', alt, paper + body)


def _versions(data: TapeData) -> dict[tuple[int, int], int]:
    """The number of writes to a memory after each record that writes it."""
    writes: dict[int, int] = {}
    versions: dict[tuple[int, int], int] = {}
    for record in range(len(data)):
        for memory in set(map(data.memory, data.sides(record)[1])):
            writes[memory] = versions[record, memory] = writes.get(memory, 0) + 1
    return versions


def _text(x: float, y: float, classes: str, text: str, room: float = 1e9) -> str:
    """Text from a notebook is text, whatever it holds; what is longer than its room ends in dots."""
    most = int(room / CHARACTER)
    shown = text if len(text) <= most else text[: most - 1] + "…"
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{classes}">{escape(shown)}</text>'


def _lanes(picture: Picture) -> Iterator[str]:
    yield _text(30, 24, "d", "launch") + _text(LABELS - 14, 24, "d e", "grid")
    for memory in picture.memories:
        x = picture.x(memory)
        gradient = picture.data.parts["memories"][memory][2]
        yield f'<line class="l" x1="{x}" x2="{x}" y1="{HEADER}" y2="{picture.height}"/>'
        yield _text(x, 16, "c m", picture.data.label(memory) + "∇" * gradient, LANE - 4)
        yield _text(x, 31, "d m", " × ".join(map(str, picture.shape(memory))), LANE - 4)
    if picture.left_out:
        yield _text(picture.width - LANE / 2, 24, "d m", f"{picture.left_out} more")


def _rows(picture: Picture) -> Iterator[str]:
    data = picture.data
    lost = [ends for clash, *ends in data.parts["overwrites"] if data.is_lost(clash)]
    wrong = {record for reader, writer, *_ in lost for record in (reader, writer)}
    for record in picture.rows:
        y, kind = picture.y(record), data.kind(record)
        reads, writes = ([data.memory(array) for array in side] for side in data.sides(record))
        shown = [memory for memory in (*reads, *writes) if memory in picture.memories]
        title = f"<title>{escape(kind['place'])}</title>"
        name = ("⚠ " if record in wrong else "") + kind["title"]
        grid = data.grid(record)
        room = LABELS - 52 - min(90, CHARACTER * len(grid))
        yield f"<g>{title}{_text(24, y + 4, 'd e', str(record + 1))}{_text(30, y + 4, 'c t', name, room)}"
        yield _text(LABELS - 14, y + 4, "d e", grid, 90)
        if shown:
            ends = picture.x(min(shown)), picture.x(max(shown))
            yield f'<line class="s" x1="{ends[0]}" x2="{ends[1]}" y1="{y}" y2="{y}"/>'
        for memory in dict.fromkeys(shown):
            yield _mark(picture.x(memory), y, memory in reads, picture.versions.get((record, memory)))
        yield "</g>"


WORDS = {"tainted": "⚠ lost", "refused": "⛔ refused"}


def _mark(x: float, y: float, reads: bool, version: int | None) -> str:
    """A circle reads, a square writes, a square with a hole does both; a number from the second value on."""
    if version is None:
        return f'<circle class="r" cx="{x}" cy="{y}" r="4.5"/>'
    hole = f'<circle class="p" cx="{x}" cy="{y}" r="2.6"/>' if reads else ""
    square = f'<rect class="w" x="{x - 5}" y="{y - 5}" width="10" height="10" rx="1"/>'
    return square + hole + (_text(x - 9, y + 3.5, "d v e", str(version)) if version > 1 else "")


def _overwrites(picture: Picture) -> Iterable[str]:
    """Reader, writer and the array between them."""
    drawn: dict[tuple[float, float, float], str] = {}
    for clash, reader, writer, key, nbytes, _ in picture.data.parts["overwrites"]:
        memory = picture.data.memory(key)
        if memory not in picture.memories or picture.rows.keys().isdisjoint({reader, writer}):
            continue
        x, begin = picture.x(memory), picture.y(reader)
        end = picture.height - ROW / 4 if writer == NOBODY else picture.y(writer)
        outcome = picture.data.parts["clashes"][clash]["outcome"]
        saved = outcome == "saved"
        path = f'<path class="{"saved" if saved else "lost"}" d="M{x + 5} {begin}H{x + 18}V{end}H{x + 8}"/>'
        label = f"kept {_size(nbytes)}".replace("bytes", "B") if saved else WORDS[outcome]
        drawn[x, begin, end] = path + _text(x + 21, end - ROW / 2 + 4, "g h" if saved else "b h", label)
    return drawn.values()


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
        if name.startswith("_") or issubclass(type(value), array | type) or value is namespace.get("_oh"):
            continue  # in the outputs of cells, `Out`, an array has a number and no name
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
    found = [(f"{name}.{field}", one) for field, one in tuple(fields.items())[:MOST]]
    if isinstance(value, ModuleType):
        return found
    # A simulation that is an object keeps its states in lists: `self.x[t]`.
    listed = [pair for pair in found if isinstance(pair[1], list | tuple | dict)]
    return found + [one for pair in listed for one in _places(*pair)]


# ------------------------------------------------------------------------------------------------- tape view


HEAD = ("", "record", "grid", "reads", "changes", "where")
SHOWN_FIRST, SHOWN_LAST = 12, 4
"""Of a long tape, how many records are shown at its ends."""

MOST_WARNINGS = 6
"""How many different warnings are shown."""


def tape_view(tape: Tape) -> Node:
    if not len(tape):
        return words(
            "Nothing was recorded when this was shown: launch inside `with tape:`, then show it again."
        )
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
            sentence = f"{name} is overwritten at {wrote}, but the adjoint of {read} needs its old values"
            sentences[sentence] = None
    sentences |= dict.fromkeys(f"{one['at'][0]}: {one['message']}" for one in data.parts["findings"])
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
    """Arrays by their names in the notebook; dim, those without one by the names that the picture has."""
    runs: dict[Run, None] = {}
    for parameter, number in zip(parameters, arrays, strict=True):
        memory = data.memory(number)
        name, (_, dot, field) = data.names.get(memory), parameter.partition(".")
        runs[Run(data.label(memory), "dim") if name is None else Run(f"{name}{dot}{field}")] = None
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
    where = str(step.place) if step.line is None else f"{step.line}: {step.line.line_text}"
    return f"the gradient {verb} in record {step.record}, {step.title}{loop} ({where})"


def _norms_plot(steps: Sequence[NormStep]) -> Drawing:
    sizes = np.array([step.norm for step in steps], np.float64)
    sizes = np.where(np.isfinite(sizes) & (sizes > 0), sizes, np.nan)
    alt = "the largest norm of the adjoints after each step, from the loss on"
    title = f"{alt}, on a logarithmic scale"
    drawn = curves([sizes[:, None]], ("",), alt, len(steps), first=1, log=True)
    return Drawing(title, drawn, (_bars(sizes),))


def _bars(sizes: np.ndarray[tuple[int], np.dtype[np.float64]]) -> str:
    """The same in characters, for a terminal; blank where there is no power."""
    some = np.log10(sizes[np.linspace(0, len(sizes) - 1, min(len(sizes), CHARACTERS)).astype(int)])
    finite = some[np.isfinite(some)]
    low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 0.0)
    marks = "▁▂▃▄▅▆▇█"
    bars = [" " if np.isnan(one) else marks[int(7 * (one - low) / ((high - low) or 1.0))] for one in some]
    return f"{''.join(bars)}  between {10**low:.3g} and {10**high:.3g}"


NORMS_HEAD = ("step", "record", "iteration", "norm", "", "where", "source")


def _norms_table(steps: Sequence[NormStep], turns: Sequence[NormStep]) -> Table:
    kept = [i for i, step in enumerate(steps) if i < FIRST or i >= len(steps) - LAST or step in turns]
    kept = list(range(len(steps))) if len(steps) <= SHOWN else kept
    rows: list[tuple[Cell, ...]] = []
    for before, i in zip((-1, *kept), kept, strict=False):
        if i > before + 1:
            rows.append(markup.left_out(f"{i - before - 1} more", len(NORMS_HEAD)))
        rows.append(_step_row(i, steps[i]))
    return markup.without_empty(Table("", NORMS_HEAD, tuple(rows)))


def _step_row(i: int, step: NormStep) -> tuple[Cell, ...]:
    iteration = "" if step.iteration is None else str(step.iteration)
    where, source = (str(step.place), "") if step.line is None else (str(step.line), step.line.line_text)
    numbers = cell(str(i + 1), is_number=True), cell(f"{step.record} {label(step.title)}", "name")
    shown = cell(iteration, is_number=True), cell(f"{step.norm:.4g}", is_number=True)
    return *numbers, *shown, cell(step.trend, "bad"), cell(where, "dim"), cell(source)


# --------------------------------------------------------------------------------------------------- profile


def profile_view(profile: Profile) -> Node:
    """A row for each kernel, the one that takes the longest first."""
    if not profile.kernels:
        return words("This tape has recorded no launches.")
    head = ("kernel", "launches", "forward ms", "backward ms", "bytes", "GB/s")
    others = f"; not timed: {counted(profile.others, 'record')} of checkpoints, copies or functions"
    title = f"time of the launches, run again on copies{others if profile.others else ''}"
    return Table(title, head, tuple(map(_time_row, profile.kernels)))


def _time_row(one: KernelTime) -> tuple[Cell, ...]:
    backward = "" if one.backward is None else f"{one.backward * 1e3:.3f}"
    numbers = f"{one.launches:,}", f"{one.forward * 1e3:.3f}", backward, f"{one.nbytes:,}", f"{one.rate:.2f}"
    return cell(one.name, "name"), *(cell(number, is_number=True) for number in numbers)
