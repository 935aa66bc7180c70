"""Checks the text of a cell that nobody has run: mistakes and warnings in the words of a run, and fixes.

Knows the frontend and the options of the magic; runs nothing, defines nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from IPython.core.error import UsageError

from kernelab.errors import Diagnostic, KernelError, Source
from kernelab.frontend import Definition, Lowered, lower_source
from kernelab.frontend.meaning.trial import NOT_RUN, trial
from kernelab.jupyter.cell_text import CellText, Fix, fixes_of
from kernelab.jupyter.magics import KernelMagics, parsed, without_effect

MOST_TRIED = 12
"""How many fixes are tried for one text: each is checked like the text itself."""


class Checked(NamedTuple):
    """What there is to say of a text, and what its defs are."""

    diagnostics: Sequence[Diagnostic]
    lowered: Lowered
    source: Source

    @property
    def definitions(self) -> Mapping[str, Definition]:
        """What the text defines, as far as it has no mistakes."""
        return self.lowered.definitions

    @property
    def has_errors(self) -> bool:
        """Whether a run of the cell would fail."""
        return any(one.severity == "error" for one in self.diagnostics)


def checked(cell: CellText, names: Mapping[str, Any]) -> Checked:
    """What a run of the cell would say of its text, among the names of the notebook."""
    with trial():
        try:
            lowered = lower_source(cell.source, dict(names))
        except KernelError as error:  # of a decorated function that the text calls, and that has mistakes
            lowered = Lowered({}, {}, (), error.diagnostics)
    told = (*_of_options(cell.options), *lowered.errors, *lowered.diagnostics)
    return Checked([one for one in told if one.code != NOT_RUN], lowered, cell.source)


def _of_options(line: str) -> list[Diagnostic]:
    try:
        return without_effect(parsed(KernelMagics.kernel, line))
    except UsageError as error:
        return [Diagnostic(str(error), code="option")]


def check(request: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to `check`: diagnostics with fixes that help, and the names that the text defines."""
    cell = CellText(request["text"])
    if cell.magic_line is None:
        return {"diagnostics": [], "names": []}
    result = checked(cell, names)
    budget = iter(range(MOST_TRIED))
    said = [
        _described(cell, one, [fix for fix in fixes_of(one) if _helps(cell, one, fix, result, names, budget)])
        for one in result.diagnostics
    ]
    return {"diagnostics": said, "names": list(result.definitions)}


def _helps(
    cell: CellText,
    diagnostic: Diagnostic,
    fix: Fix,
    before: Checked,
    names: Mapping[str, Any],
    budget: Iterator[int],
) -> bool:
    """Whether a fix makes its diagnostic vanish, and what it writes has no mistake itself."""
    if next(budget, None) is None:
        return False
    after = checked(cell.edited(fix.edit), names)
    left = sum(one.message == diagnostic.message for one in after.diagnostics)
    was = sum(one.message == diagnostic.message for one in before.diagnostics)
    return left < was and not any(_is_within(one, fix) for one in after.diagnostics)


def _is_within(diagnostic: Diagnostic, fix: Fix) -> bool:
    """Whether a diagnostic speaks of nothing but what a fix has written; what else comes to light may."""
    place, span = fix.edit.span, diagnostic.span
    if span is None:
        return False
    *whole, last = fix.edit.text.split("\n")
    end = place.line + len(whole), len(last) + (0 if whole else place.column)
    return (place.line, place.column) <= (span.line, span.column) and (span.end_line, span.end_column) <= end


def _described(cell: CellText, diagnostic: Diagnostic, fixes: Sequence[Fix]) -> dict[str, Any]:
    """A diagnostic as it travels; one without a place in the cell stands at the line of the magic."""
    start, end = _place(cell, diagnostic)
    notes = [diagnostic.note] if diagnostic.note else []
    if (span := diagnostic.span) is not None and span.source is not cell.source:
        notes.append(f"{span}: {span.source.line(span.line).strip()}")
    notes += [f"hint: {diagnostic.hint}"] if diagnostic.hint else []
    notes += [f"{other.message} ({other.span})" for other in diagnostic.related]
    return {
        "severity": diagnostic.severity,
        "code": diagnostic.code,
        "start": start,
        "end": end,
        "message": diagnostic.message,
        "notes": notes,
        "fixes": [_fix(cell, fix) for fix in fixes],
    }


def _place(cell: CellText, diagnostic: Diagnostic) -> tuple[list[int], list[int]]:
    if diagnostic.span is not None and diagnostic.span.source is cell.source:
        return cell.ends(diagnostic.span)
    assert cell.magic_line is not None
    line = cell.magic_line + 1
    return cell.position(line, 0), cell.position(line, len(cell.lines[cell.magic_line]))


def _fix(cell: CellText, fix: Fix) -> dict[str, Any]:
    start, end = cell.ends(fix.edit.span)
    return {"title": fix.title, "edits": [{"start": start, "end": end, "text": fix.edit.text}]}
