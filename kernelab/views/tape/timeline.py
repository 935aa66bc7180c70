"""A tape as a picture in SVG: time down, arrays across, what each record reads and changes as marks.

    launch          x      y
    1 square        ○──────■ v1
    2 scale                ○──

Needs no script, no Graphviz and no running kernel.  Pure functions from the data of a tape to text; colours
follow the page where it says what they are, else the reader's preference for light or dark.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from kernelab.data_classes import dataclass
from kernelab.views.pages.picture import svg
from kernelab.views.tape.digest import NOBODY, TapeData

ROW, LANE, LABELS, HEAD = 22, 84, 250, 40
FIRST, LAST, LANES = 24, 6, 12
"""Of a long tape, how many records are drawn at its ends; of many arrays, how many."""

CHARACTER = 7.2
"""How wide a character is, about."""

STYLE = """<style>
.klp{--klp-ink:var(--kl-ink,#1b1f24);--klp-dim:var(--kl-dim,#59636e);--klp-edge:var(--kl-edge,#d1d5da);
--klp-paper:var(--kl-paper,#fff);--klp-good:var(--kl-good,#1a7f37);--klp-bad:var(--kl-bad,#cf222e);
font:12px system-ui,sans-serif}
@media (prefers-color-scheme:dark){.klp:root{--klp-ink:#e6e6e6;--klp-dim:#a8b0b8;--klp-edge:#454b52;
--klp-paper:#1e1e1e;--klp-good:#57ab5a;--klp-bad:#f47067}}
.klp text{fill:var(--klp-ink)}.klp .d{fill:var(--klp-dim);font-size:11px}
.klp .c{font-family:ui-monospace,Menlo,Consolas,monospace}.klp .t{font-weight:600}.klp .v{font-size:10px;
paint-order:stroke;stroke:var(--klp-paper);stroke-width:3px;stroke-linejoin:round}
.klp .m{text-anchor:middle}.klp .e{text-anchor:end}.klp .p{fill:var(--klp-paper)}
.klp .l{stroke:var(--klp-edge)}.klp .s{stroke:var(--klp-dim);opacity:.5}
.klp .r{fill:var(--klp-paper);stroke:var(--klp-ink);stroke-width:1.6}.klp .w{fill:var(--klp-ink)}
.klp .saved{fill:none;stroke:var(--klp-good);stroke-width:1.6}
.klp .lost{fill:none;stroke:var(--klp-bad);stroke-width:2.4;stroke-dasharray:5 3}
.klp .g{fill:var(--klp-good);font-size:10px}.klp .b{fill:var(--klp-bad);font-weight:600}
.klp .h{paint-order:stroke;stroke:var(--klp-paper);stroke-width:3px}</style>"""


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
        return HEAD + ROW * (self.rows.get(record, FIRST) + 0.5)

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
        return HEAD + ROW * (len(self.rows) + self.is_cut + 0.5)

    def shape(self, memory: int) -> list[int]:
        """The shape of the first array over a memory."""
        arrays = range(len(self.data.parts["arrays"]))
        return self.data.layout(next(array for array in arrays if self.data.memory(array) == memory))[1]


def timeline(data: TapeData) -> str:
    """The picture of a tape as an SVG file."""
    count, memories = len(data), range(len(data.parts["memories"]))
    rows = {record: record for record in range(count)}
    if count > FIRST + LAST + 1:
        ends = (*range(FIRST), *range(count - LAST, count))
        rows = {record: row + (row >= FIRST) for row, record in enumerate(ends)}
    picture = Picture(data, rows, memories[:LANES], _versions(data))
    left_out = f"⋮ {count - len(rows)} more"
    gap = _text(30, HEAD + ROW * (FIRST + 0.5) + 4, "d", left_out) if picture.is_cut else ""
    body = "".join([*_lanes(picture), gap, *_overwrites(picture), *_rows(picture)])
    paper = '<rect class="p" width="100%" height="100%"/>'
    alt = f"tape of {count} records on {len(memories)} arrays"
    return svg(picture.width, picture.height, 'class="klp"', alt, f"{STYLE}{paper}{body}")


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
        yield f'<line class="l" x1="{x}" x2="{x}" y1="{HEAD}" y2="{picture.height}"/>'
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
        yield f"<g>{title}{_text(24, y + 4, 'd e', str(record + 1))}{_text(30, y + 4, 'c t', name, 130)}"
        yield _text(LABELS - 14, y + 4, "d e", data.grid(record), 90)
        if shown:
            ends = picture.x(min(shown)), picture.x(max(shown))
            yield f'<line class="s" x1="{ends[0]}" x2="{ends[1]}" y1="{y}" y2="{y}"/>'
        for memory in dict.fromkeys(shown):
            yield _mark(picture.x(memory), y, memory in reads, picture.versions.get((record, memory)))
        yield "</g>"


WORDS = {"tainted": "⚠ lost", "refused": "⛔ refused"}


def _mark(x: float, y: float, reads: bool, version: int | None) -> str:
    """A circle reads, a square writes, a square with a hole does both."""
    if version is None:
        return f'<circle class="r" cx="{x}" cy="{y}" r="4.5"/>'
    hole = f'<circle class="p" cx="{x}" cy="{y}" r="2.6"/>' if reads else ""
    square = f'<rect class="w" x="{x - 5}" y="{y - 5}" width="10" height="10" rx="1"/>'
    return square + hole + _text(x - 9, y + 3.5, "d v e", f"v{version}")


def _overwrites(picture: Picture) -> Iterable[str]:
    """Reader, writer and the array between them."""
    drawn: dict[tuple[float, float, float], str] = {}
    for clash, reader, writer, array, nbytes, _ in picture.data.parts["overwrites"]:
        memory = picture.data.memory(array)
        if memory not in picture.memories or picture.rows.keys().isdisjoint({reader, writer}):
            continue
        x, begin = picture.x(memory), picture.y(reader)
        end = picture.height - ROW / 4 if writer == NOBODY else picture.y(writer)
        outcome = picture.data.parts["clashes"][clash]["outcome"]
        saved = outcome == "saved"
        path = f'<path class="{"saved" if saved else "lost"}" d="M{x + 5} {begin}H{x + 18}V{end}H{x + 8}"/>'
        label = f"kept {nbytes} B" if saved else WORDS[outcome]
        drawn[x, begin, end] = path + _text(x + 21, end - ROW / 2 + 4, "g h" if saved else "b h", label)
    return drawn.values()
