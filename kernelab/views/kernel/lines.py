"""The effects of each line of a kernel: the arrays it reads, writes and adds to, and its saved values.

Pure functions from programs and savings to a table and to sentences.  A loop is told of at its own line.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelab.codegen.listing.listing import Saving
from kernelab.errors import NOWHERE, Source, Span
from kernelab.lang.ir import Function, Var
from kernelab.passes.ad.loop_savings import LoopStorage
from kernelab.passes.common.effects import Effects, effects_by_line
from kernelab.views.pages.markup import Cell, Table, cell

Place = tuple[Source, int]

NOTHING = "touches no array"
NO_EFFECTS = Effects(frozenset(), frozenset(), frozenset())


@dataclass(frozen=True, slots=True)
class Facts:
    """The effects of a line on the arrays of a kernel, by name, and its saved values, in words."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    adds: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The same as one line of text."""
        verbs = {"reads": self.reads, "writes": self.writes, "adds to": self.adds, "keeps": self.kept}
        return " · ".join(f"{verb} {', '.join(names)}" for verb, names in verbs.items() if names) or NOTHING


def facts_of(
    primal: Function,
    saved: Sequence[Saving],
    residuals: Sequence[Saving],
    loops: Sequence[LoopStorage],
) -> dict[Place, Facts]:
    """The lines that the kernel runs, in order of execution, each with its effects.

    `saved` is kept by the adjoint, `residuals` by a tape; of `loops` those are told of which keep nothing.
    """
    kept: dict[Place, list[str]] = {}
    for saving in (one for one in saved if one.names):
        kept.setdefault(_place(saving.loop or saving.span), []).append(_saving(saving))
    for saving in (one for one in residuals if one.names):
        kept.setdefault(_place(saving.span), []).append(f"{_saving(saving)} by a tape")
    for loop in (one for one in loops if not one.bytes):
        kept.setdefault(_place(loop.span), []).append("nothing of its iterations")
    done = effects_by_line(primal)
    facts = {}
    for place in dict.fromkeys([*done, *kept]):
        if place[0] is not NOWHERE.source:
            at = done.get(place, NO_EFFECTS)
            reads, writes, adds = (_names(primal, some) for some in (at.reads, at.writes, at.accumulates))
            facts[place] = Facts(reads, writes, adds, tuple(kept.get(place, ())))
    return facts


def lines_table(title: str, facts: Mapping[Place, Facts], names: Mapping[Place, str]) -> Table:
    """A row for each line, called by its number in the gutters of the view."""
    head = ("line", "source", "reads", "writes", "adds to", "kept for the sweep")
    return Table(
        title, head, tuple(_row(names[place], place, facts[place]) for place in names if place in facts)
    )


def _row(name: str, place: Place, facts: Facts) -> tuple[Cell, ...]:
    source, line = place
    lists = (facts.reads, facts.writes, facts.adds, facts.kept)
    texts = (source.line(line).strip(), *map(", ".join, lists))
    return (cell(name, is_number=True), *map(cell, texts))


def _names(primal: Function, arrays: frozenset[Var]) -> tuple[str, ...]:
    return tuple(param.hint for param in primal.params if param in arrays)


def _saving(saving: Saving) -> str:
    return f"{', '.join(saving.names)} ({saving.size})"


def _place(span: Span) -> Place:
    return span.source, span.line
