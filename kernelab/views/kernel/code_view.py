"""The view of a kernel: source and adjoint side by side, tangent and generated code, lines linked.

    spring   reads x, rest   adds to energy
    Cell In[3]                    │ adjoint
    3 │ d = length(...) - rest    │ 3 │ d = length(...) - rest
    4 │ atomic_add(energy, ...)   │ 4 │ d_bar = ...

Pure functions from what is known of a kernel to markup.  Knows listings and generated text; must not know how
a kernel is compiled, nor HTML.
"""

import keyword
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import cast

from kernelab.codegen.cpp.entry import Line as GeneratedLine
from kernelab.codegen.cpp.entry import Unit
from kernelab.codegen.listing.listing import Derivation, Line, Listing, Saving
from kernelab.data_classes import dataclass, field, replace
from kernelab.errors import NOWHERE, BuildError, Source, Span
from kernelab.frontend.meaning.syntax_trees import module_of
from kernelab.lang.ir import Function, walk
from kernelab.passes.ad.primal_replay import LoopStorage
from kernelab.passes.common.effects import Effects, effects, effects_by_line
from kernelab.runtime.kernel.loading import short
from kernelab.views.pages.markup import (
    Below,
    Beside,
    Code,
    CodeLine,
    Fold,
    Node,
    Run,
    Style,
    Table,
    Words,
    cell,
    words,
)
from kernelab.views.pages.page import link_of

CPP_KEYWORDS = """
    auto bool break case char const continue do double else extern float for goto if int inline long return
    short signed sizeof static struct switch typedef unsigned void volatile while
"""

_NUMBER = r"(?P<number>(?<![\w.])(?:0[xX][\da-fA-F]+|\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)\w*)"
_QUOTED = r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"

_PYTHON = re.compile(
    r"(?P<comment>\#[^\n]*)"
    rf"|(?P<string>\"\"\"[\s\S]*?\"\"\"|'''[\s\S]*?'''|{_QUOTED})"
    rf"|{_NUMBER}"
    rf"|(?P<keyword>\b(?:{'|'.join(keyword.kwlist)})\b)"
    r"|(?<=\bdef )(?P<name>\w+)"
)
_CPP = re.compile(
    r"(?P<comment>//[^\n]*|/\*[\s\S]*?\*/)"
    rf"|(?P<string>{_QUOTED})"
    rf"|(?P<keyword>\b(?:{'|'.join(CPP_KEYWORDS.split())})\b|^\#\w+)",
    re.MULTILINE,
)


def python_runs(text: str) -> list[tuple[Run, ...]]:
    return _highlighted(text, _PYTHON)


def cpp_runs(text: str) -> list[tuple[Run, ...]]:
    return _highlighted(text, _CPP)


def _highlighted(text: str, pattern: re.Pattern[str]) -> list[tuple[Run, ...]]:
    """The runs of each line; the groups of the pattern are styles."""
    runs: list[Run] = []
    done = 0
    for match in pattern.finditer(text):
        runs += Run(text[done : match.start()]), Run(match[0], cast("Style", match.lastgroup))
        done = match.end()
    lines: list[list[Run]] = [[]]
    for run in (*runs, Run(text[done:])):
        first, *others = (Run(part, run.style) for part in run.text.split("\n"))
        lines[-1].append(first)
        lines += [[other] for other in others]
    return [tuple(run for run in line if run.text) for line in lines]


# --------------------------------------------------------------------------------------------------- the view


MAX_GENERATED = 140
"""How many lines of generated text a view folds in, so that notebooks stay small."""

WIDTH, OF_TWO, OF_THREE = 76, 56, 40
"""How many characters of a derived program stand on a line; of two such beside each other, of three panes."""

_BREAK = re.compile(r"(?<=,) | (?=(?:if|else|and|or|[-+*/<>]|[<>=]=) )")

_PARAMETERS = re.compile(r" +\w+: ")

_COMPONENT = re.compile(r"\[\d+\]$")


PANES: dict[str, str] = {
    "source": "source",
    "textbook": "adjoint as in a textbook",
    "adjoint": "adjoint",
    "tangent": "tangent",
    "cpp": "C++ for the CPU",
    "cuda": "CUDA",
    "ptx": "PTX",
    "sass": "SASS",
    "lines": "what each line does",
}
"""The panes of a view, and what their titles are."""

DEFAULT = ("source", "adjoint")

FOLDED = ("tangent", "cpp", "cuda")
"""What can be unfolded below the default ones; the pane of the source shows what each line does, too."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a kernel's view: `refused` says why it has no adjoint, `residuals` lists its saved values.

    `units` are the generated texts by pane, `glimpses` the same of the first programs, enough to fill a fold.
    `loops` are those of the kernel, `spilled` counts the sweeps in which they kept checkpoints instead;
    `is_function` says that the kernel is that of one call of a function.
    """

    name: str
    source: Source
    primal: Function
    adjoint: Listing | None = None
    refused: str = ""
    residuals: tuple[Saving, ...] = ()
    tangent: Callable[[], Listing] | None = None
    textbook: Callable[[], Derivation] | None = None
    units: Mapping[str, Callable[[], Unit]] = field(default_factory=dict)
    glimpses: Mapping[str, Callable[[], Unit]] = field(default_factory=dict)
    captured: Mapping[str, object] = field(default_factory=dict)
    loops: tuple[LoopStorage, ...] = ()
    spilled: int = 0
    is_function: bool = False

    def listing(self, name: str) -> Listing | None:
        """A derived program by the name of its pane; None where there is none."""
        match name:
            case "adjoint":
                return self.adjoint
            case "tangent":
                return None if self.tangent is None else self.tangent()
            case "textbook":
                return None if self.textbook is None else self.textbook().adjoint
            case _:
                return None


def kernel_view(parts: Parts, shown: Sequence[str] = DEFAULT) -> Node:
    """The named panes side by side; with the default ones, the others can be unfolded below."""
    places = Places(parts)
    if "textbook" in shown:
        shown = ("source", "adjoint", *shown)
    width = OF_THREE if "textbook" in shown else WIDTH
    beside = [pane for name in PANES if name in shown for pane in _pane(name, parts, places, width=width)]
    folds: list[Node] = []
    if tuple(shown) == DEFAULT:
        panes = ((PANES[name], pane) for name in FOLDED for pane in _pane(name, parts, places, whole=False))
        folds = [Fold(title, replace(pane, title="")) for title, pane in panes if isinstance(pane, Code)]
    if "textbook" in shown and "tangent" not in shown and parts.textbook is not None:
        folds = [*textbook_folds(parts.textbook())]
    return Below((_title(parts), *_notes(parts), Beside(tuple(beside)), *folds))


def textbook_folds(derivation: Derivation) -> Iterator[Fold]:
    """The tangent as textbooks write it, and the adjoint to copy into slides."""
    if derivation.tangent is not None:
        yield Fold("tangent as in a textbook", replace(listing_view(derivation.tangent), title=""))
    for title, text in (("LaTeX", derivation.latex), ("Markdown", derivation.markdown)):
        yield Fold(title, Code("", tuple(CodeLine((Run(line),)) for line in text.splitlines())))


def _pane(name: str, parts: Parts, places: "Places", whole: bool = True, width: int = WIDTH) -> list[Node]:
    """The pane of that name, if there is such a program; generated text without helpers unless `whole`."""
    match name:
        case "source":
            panes = tuple(places.panes())
            return [Below(panes) if len(panes) > 1 else panes[0]]
        case "lines":
            return [places.table()]
        case _ if name not in parts.units:
            listing = parts.listing(name)
            return [] if listing is None else [_listing(PANES[name], listing, places, width)]
        case _ if not whole:
            return [_glimpse(name, parts, places)]
        case _:
            try:
                unit = parts.units[name]()
            except BuildError as problem:  # of NVIDIA's tools, which make machine code of the CUDA text
                return [words(f"There is no {PANES[name]} to show: {problem}")]
            return [Code(PANES[name], tuple(_generated(unit.lines, places)))]


class Places:
    """Numbers the lines of all sources that went into a kernel: its own first, other cells' with a mark."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.used: dict[Source, set[int]] = {parts.source: {parts.primal.span.line}}
        for span in (stmt.span for stmt in walk(parts.primal.body)):
            if span.source is not NOWHERE.source:
                self.used.setdefault(span.source, set()).add(span.line)
        saved = () if parts.adjoint is None else parts.adjoint.savings
        self.facts = facts_of(parts.primal, saved, parts.residuals, parts.loops)

    @property
    def links(self) -> dict[tuple[Source, int], str]:
        """The class that a page gives to each line."""
        pairs = ((source, n, number) for number, (source, used) in enumerate(self.used.items()) for n in used)
        return {(source, n): link_of(CodeLine((), n, number)) for source, n, number in pairs}

    def line(self, runs: Iterable[Run], span: Span | None, goes_on: bool = False) -> CodeLine:
        if span is None or span.source not in self.used:
            return CodeLine(tuple(runs))
        return CodeLine(tuple(runs), span.line, list(self.used).index(span.source), goes_on)

    def panes(self) -> Iterator[Code]:
        """The text of every definition that went into the kernel, a pane for each cell."""
        for number, (source, used) in enumerate(self.used.items()):
            runs = _runs_of_source(source.text)
            wanted = _definitions(source, used)
            lines = tuple(CodeLine(runs[n - source.first_line], n, number) for n in wanted)
            facts = ((n, self.facts[source, n]) for n in wanted if (source, n) in self.facts)
            yield Code(source.label, lines, tuple(CodeLine((Run(f.sentence),), n, number) for n, f in facts))

    def table(self) -> Table:
        """The effects of each line, the kernel's own cell first, with line numbers as in the gutters."""
        names = {
            (source, n): CodeLine((), n, number).mark
            for number, (source, used) in enumerate(self.used.items())
            for n in sorted(used)
        }
        head = ("line", "source", "reads", "writes", "adds to", "kept for the backward pass")
        rows = []
        for (source, line), name in names.items():
            if (source, line) in self.facts:
                facts = self.facts[source, line]
                lists = map(", ".join, (facts.reads, facts.writes, facts.adds, facts.kept))
                rows.append((cell(name, is_number=True), *map(cell, (source.line(line).strip(), *lists))))
        return Table(PANES["lines"], head, tuple(rows))


def _definitions(source: Source, used: set[int]) -> list[int]:
    """The lines of the top-level definitions that hold the used lines; of all where none does."""
    blocks = _blocks(source.text)
    places = {bisect_right(blocks, line - source.first_line, key=attrgetter("start")) - 1 for line in used}
    ranges = (blocks[place] for place in sorted(places) if place >= 0)
    shown = [lines for lines in ranges if not used.isdisjoint(line + source.first_line for line in lines)]
    every = range(source.text.count("\n") + 1)
    return [line + source.first_line for lines in shown or [every] for line in lines]


@lru_cache(8)
def _blocks(text: str) -> tuple[range, ...]:
    """The lines of each statement at the top of a text, from 0; none if the text is no Python."""
    try:
        tree = module_of(text)
    except SyntaxError:
        return ()
    decorators = ([part.lineno for part in getattr(node, "decorator_list", [])] for node in tree.body)
    firsts = (min([node.lineno, *above]) for node, above in zip(tree.body, decorators, strict=True))
    ends = (node.end_lineno or node.lineno for node in tree.body)
    return tuple(range(first - 1, end) for first, end in zip(firsts, ends, strict=True))


_runs_of_source = lru_cache(8)(python_runs)
"""The runs of a text: the kernels of one cell share it."""


def _listing(title: str, listing: Listing, places: Places, width: int) -> Code:
    """A derived program; the comments that name source lines give way to the numbers in the gutter."""
    lines = _lines(listing, width)
    return Code(title, tuple(places.line(runs, line.span, line.goes_on) for runs, line in lines))


def listing_view(listing: Listing, width: int = WIDTH) -> Code:
    """A program by itself, each line with the number of the source line that it comes from."""
    lines = (CodeLine(runs, line.source_line, 0, line.goes_on) for runs, line in _lines(listing, width))
    return Code(listing.name, tuple(lines))


def _lines(listing: Listing, width: int) -> Iterator[tuple[tuple[Run, ...], Line]]:
    shown = [part for line in listing.lines if not line.is_comment for part in _broken(line, width)]
    return zip(python_runs("\n".join(line.text for line in shown)), shown, strict=True)


def _broken(line: Line, width: int) -> Iterator[Line]:
    """The line in parts that fit next to the source, broken before an operator or after a comma."""
    deeper = 0 if _PARAMETERS.match(line.text) else 8
    indent = len(line.text) - len(line.text.lstrip()) + deeper
    text, goes_on = line.text, line.goes_on
    while len(text) > width:
        places = [place.end() for place in _BREAK.finditer(text, indent, width)]
        if not places:
            break
        yield replace(line, text=text[: places[-1]].rstrip(), goes_on=goes_on)
        text, goes_on = " " * indent + text[places[-1] :], True
    yield replace(line, text=text, goes_on=goes_on)


def _glimpse(name: str, parts: Parts, places: Places) -> Code:
    """The generated text from its first entry on, without the helpers above."""
    unit = parts.glimpses[name]()
    lines = without_helpers(unit)
    shown = [*_generated(lines[:MAX_GENERATED], places)]
    hidden = str(max(len(lines) - MAX_GENERATED, 0) or "")
    if len(unit.entries) <= (parts.adjoint is not None):
        hidden = "many"
    if hidden:
        shown.append(CodeLine((Run(f"... and {hidden} more lines: %%kernel --show {name}", "comment"),)))
    return Code(PANES[name], tuple(shown))


def without_helpers(unit: Unit) -> Sequence[GeneratedLine]:
    """The lines of generated text from its first entry on."""
    return unit.lines[min((entry.lines.start for entry in unit.entries), default=0) :]


def _generated(lines: Sequence[GeneratedLine], places: Places) -> Iterator[CodeLine]:
    runs = cpp_runs("\n".join(line.text for line in lines))
    return (places.line(run, line.span) for run, line in zip(runs, lines, strict=True))


def _title(parts: Parts) -> Words:
    runs = [Run("function " if parts.is_function else "kernel ", "dim"), Run(parts.name, "strong")]
    if parts.is_function:
        runs.append(Run(" · as a kernel of one thread that stores the return value in result", "dim"))
        return Words(tuple(runs), level=1)
    for verb, names in _facts(parts.primal, effects(parts.primal)).verbs.items():
        runs += [Run(f" · {verb} ", "dim"), Run(", ".join(names))]
    return Words(tuple(runs), level=1)


def _notes(parts: Parts) -> Iterator[Words]:
    if parts.captured:
        values = ", ".join(
            f"{name}()" if callable(value) else f"{name} = {short(value)}"
            for name, value in parts.captured.items()
        )
        yield words(Run("captured from outside: ", "dim"), values)
    if parts.adjoint is not None and (parts.adjoint.savings or not parts.residuals):
        saved = _savings(parts.adjoint.savings, parts.loops)
        yield words(Run("saved for the backward pass: ", "dim"), saved)
    if parts.residuals:
        yield words(Run("kept by a tape: ", "dim"), _savings(tuple(_whole(parts.residuals))))
    if parts.spilled:
        yield words(Run("beyond the memory for loops: ", "dim"), spill(parts.spilled))
    if parts.refused:
        yield words(Run("no adjoint: ", "dim"), parts.refused)


def _savings(savings: tuple[Saving, ...], loops: tuple[LoopStorage, ...] = ()) -> str:
    kept = [saving for saving in savings if saving.names]
    idle = [f"loop of line {loop.line}: nothing" for loop in loops if not loop.bytes]
    sizes = []
    for saving in kept:
        where = f"loop of line {saving.loop.line}" if saving.loop else f"line {saving.span.line}"
        sizes.append(f"{where}: {', '.join(saving.names)} ({saving.size})")
    return "; ".join([*sizes, *(idle if kept else [])]) or "nothing"


def _whole(savings: Iterable[Saving]) -> Iterator[Saving]:
    """The savings with the components of one value, which are kept one by one, as that value again."""
    for _, group in groupby(savings, lambda saving: (saving.span, saving.loop, saving.when)):
        parts = tuple(group)
        names = dict.fromkeys(_COMPONENT.sub("", name) for one in parts for name in one.names)
        yield replace(parts[0], names=tuple(names), bytes=sum(one.bytes for one in parts))


def spill(sweeps: int) -> str:
    """The note on an adjoint of a kernel that exceeded the memory for loops."""
    times = "a backward pass" if sweeps == 1 else f"{sweeps} backward passes"
    return f"{times} kept checkpoints, and ran the iterations between them again"


# ----------------------------------------------------------------------------------------- facts of each line


Place = tuple[Source, int]

NOTHING = "touches no array"
NO_EFFECTS = Effects(frozenset(), frozenset(), frozenset())
KEEPS_NOTHING = "nothing of its iterations"
"""What a loop keeps whose adjoint needs none of its values."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The effects of a line on the arrays of a kernel, by name, and its saved values, in words."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    adds: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    @property
    def verbs(self) -> dict[str, tuple[str, ...]]:
        """What the line does, and to what."""
        verbs = {"reads": self.reads, "writes": self.writes, "adds to": self.adds, "keeps": self.kept}
        return {verb: names for verb, names in verbs.items() if names}

    @property
    def sentence(self) -> str:
        """The same as one line of text."""
        return " · ".join(f"{verb} {', '.join(names)}" for verb, names in self.verbs.items()) or NOTHING


def facts_of(
    primal: Function, saved: Sequence[Saving], residuals: Sequence[Saving], loops: Sequence[LoopStorage]
) -> dict[Place, Facts]:
    """The lines that the kernel runs, in order of execution, each with its effects.

    `saved` is kept by the adjoint, `residuals` by a tape; of `loops` those are shown that keep nothing.
    """
    kept: dict[Place, list[str]] = {}
    for saving in (one for one in saved if one.names):
        kept.setdefault(_place(saving.loop or saving.span), []).append(_saving(saving))
    for saving in (one for one in residuals if one.names):
        kept.setdefault(_place(saving.span), []).append(f"{_saving(saving)} by a tape")
    for loop in (one for one in loops if not one.bytes):
        kept.setdefault(_place(loop.span), []).append(KEEPS_NOTHING)
    done = effects_by_line(primal)
    facts = {}
    for place in dict.fromkeys([*done, *kept]):
        if place[0] is not NOWHERE.source:
            facts[place] = _facts(primal, done.get(place, NO_EFFECTS), kept.get(place, ()))
    return facts


def _facts(primal: Function, done: Effects, kept: Sequence[str] = ()) -> Facts:
    """Effects on the parameters of a kernel, by name."""
    kinds = (done.reads, done.writes, done.accumulates)
    reads, writes, adds = (tuple(p.hint for p in primal.params if p in some) for some in kinds)
    return Facts(reads, writes, adds, tuple(kept))


def _saving(saving: Saving) -> str:
    return f"{', '.join(saving.names)} ({saving.size})"


def _place(span: Span) -> Place:
    return span.source, span.line
