"""The text of a cell that has not run: its mistakes and fixes, and its kernels in every form.

Mistakes and warnings are those of a run, in the same words; kernels have marks at their lines.  Fixes are
what the hints of diagnostics mark: «code», «^code» and «/pattern/replacement/».

    write «int(n)»                       in place of what the diagnostic points at
    write «^i = tid()» on a line above   in a line of its own above it
    write elif«/else if/elif/»           in its line, where the regular expression is found first

Knows the frontend, kernels and their views, and the options of the magic; runs and defines nothing.
"""

import re
import textwrap
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from IPython.core.error import UsageError

from kernelab.autodiff.inspect.thread_run import ThreadRun
from kernelab.autodiff.records.records import LaunchRecord
from kernelab.autodiff.tape.measures import Profile
from kernelab.autodiff.tape.tape import Tape
from kernelab.backend.cpu.interpreter import Seen
from kernelab.codegen.listing.listing import listing
from kernelab.data_classes import dataclass
from kernelab.data_classes.turns import cached_property
from kernelab.errors import BuildError, Diagnostic, KernelError, Source, Span, counted
from kernelab.frontend.definitions.cell import Definition, Lowered, lower_source
from kernelab.frontend.definitions.functions import UserFunction
from kernelab.frontend.definitions.kernels import KernelDefinition
from kernelab.frontend.meaning.trial import NOT_RUN, trial
from kernelab.jupyter.magics import KernelMagics, parsed, uncalled, without_effect
from kernelab.lang.build import is_float
from kernelab.lang.ir import Atom, Block, Const, For, Let, of_kind, walk
from kernelab.lang.operators import SYMBOLS
from kernelab.lang.ops import TRIPS, Zero
from kernelab.lang.types import is_differentiable
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.program import Pullback
from kernelab.runtime.ops.function_calls import stated_kernel
from kernelab.views.kernel.code_view import KEEPS_NOTHING, PANES, Facts, Parts, Places, without_helpers
from kernelab.views.kernel.kernel_facts import parts_of

# ------------------------------------------------------------------------------------------------------ text


Position = list[int]
"""A line and a column, both from 0; columns count UTF-16 units, as editors in a browser do."""


class Fix(NamedTuple):
    """What an editor offers: a title, and the text to be written in place of a span."""

    title: str
    span: Span
    text: str


@dataclass(frozen=True)
class CellText:
    """The whole text of a cell, of which the magic is a line."""

    text: str

    @cached_property
    def magic_line(self) -> int | None:
        """The line of the magic, from 0; None where the cell is none of ours."""
        match = re.match(r"\s*?(?=[ \t]*%%kernel\b)", self.text)
        return None if match is None else match[0].count("\n")

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the cell, the magic's included."""
        return self.text.split("\n")

    @cached_property
    def options(self) -> str:
        """What stands behind the magic in its line."""
        assert self.magic_line is not None
        return self.lines[self.magic_line].partition("%%kernel")[2].strip()

    @cached_property
    def source(self) -> Source:
        """The text below the magic as the frontend takes it, with the numbers of the cell's lines."""
        assert self.magic_line is not None
        first = self.magic_line + 1
        return Source("\n".join(self.lines[first:]), "this cell", first + 1)

    def position(self, line: int, column: int) -> Position:
        """Where an editor has a place of a span."""
        before = self.lines[line - 1][:column] if line <= len(self.lines) else ""
        return [line - 1, len(before.encode("utf-16-le", "surrogatepass")) // 2]

    def column(self, position: Position) -> int:
        """The column in characters of an editor's position."""
        line = self.lines[position[0]] if position[0] < len(self.lines) else ""
        units = line.encode("utf-16-le", "surrogatepass")[: 2 * position[1]]
        return len(units.decode("utf-16-le", "ignore"))

    def ends(self, span: Span) -> tuple[Position, Position]:
        """Where an editor has the two ends of a span."""
        return self.position(span.line, span.column), self.position(span.end_line, span.end_column)

    def edited(self, fix: Fix) -> "CellText":
        """The cell after a fix."""
        first, last = fix.span.line - 1, fix.span.end_line - 1
        lines = [*self.lines, *[""] * (last + 1 - len(self.lines))]
        text = lines[first][: fix.span.column] + fix.text + lines[last][fix.span.end_column :]
        return CellText("\n".join([*lines[:first], text, *lines[last + 1 :]]))


# ------------------------------------------------------------------------------------------------------ fixes


def fixes_of(diagnostic: Diagnostic) -> Iterator[Fix]:
    """The fixes of a diagnostic, the most likely first; who offers them tries whether they help."""
    span = diagnostic.span
    if span is None:
        return
    for change in diagnostic.changes:
        line = span.source.line(span.line)
        if change.startswith("^"):
            start = Span(span.source, span.line, 0, span.line, 0)
            indent = line[: len(line) - len(line.lstrip())]
            yield Fix(f"insert {change[1:]}", start, f"{indent}{change[1:]}\n")
        elif len(change) > 1 and change.startswith("/"):
            pattern, text = change[1:-1].split("/")
            changed = re.sub(pattern, text, line, count=1)
            if changed != line:  # the smallest edit that makes one of the other
                first = _common(line, changed)
                last = _common(line[first:][::-1], changed[first:][::-1])
                place = Span(span.source, span.line, first, span.line, len(line) - last)
                yield Fix(f"write {changed.strip()}", place, changed[first : len(changed) - last])
        else:
            yield Fix(f"write {change}", span, change)


def _common(one: str, other: str) -> int:
    """How many characters two texts begin with in common."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


# ---------------------------------------------------------------------------------------------------- checks


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
    after = checked(cell.edited(fix), names)
    left = sum(one.message == diagnostic.message for one in after.diagnostics)
    was = sum(one.message == diagnostic.message for one in before.diagnostics)
    return left < was and not any(_is_within(one, fix) for one in after.diagnostics)


def _is_within(diagnostic: Diagnostic, fix: Fix) -> bool:
    """Whether a diagnostic speaks of nothing but what a fix has written; what else comes to light may."""
    place, span = fix.span, diagnostic.span
    if span is None:
        return False
    *whole, last = fix.text.split("\n")
    end = place.line + len(whole), len(last) + (0 if whole else place.column)
    return (place.line, place.column) <= (span.line, span.column) and (span.end_line, span.end_column) <= end


def _described(cell: CellText, diagnostic: Diagnostic, fixes: Sequence[Fix]) -> dict[str, Any]:
    """A diagnostic as it travels; one without a place in the cell stands at the line of the magic."""
    start, end = _place(cell, diagnostic)
    notes = [diagnostic.note] if diagnostic.note else []
    if (span := diagnostic.span) is not None and span.source is not cell.source:
        notes.append(f"{span}: {span.line_text}")
    notes += [f"hint: {diagnostic.hint}"] if diagnostic.hint else []
    notes += [f"{other.message} ({other.span})" for other in diagnostic.related]
    return {
        "severity": diagnostic.severity,
        "code": diagnostic.code,
        "start": start,
        "end": end,
        "message": diagnostic.message,
        "notes": notes,
        "fixes": [
            {"title": fix.title, "edits": [{"start": start, "end": end, "text": fix.text}]}
            for fix in fixes
            for start, end in [cell.ends(fix.span)]
        ],
    }


def _place(cell: CellText, diagnostic: Diagnostic) -> tuple[list[int], list[int]]:
    if diagnostic.span is not None and diagnostic.span.source is cell.source:
        return cell.ends(diagnostic.span)
    assert cell.magic_line is not None
    line, text = cell.magic_line + 1, cell.lines[cell.magic_line]
    # Behind the semicolon are the options that there are.
    said = diagnostic.message.partition(";")[0].replace(":", " ").split()
    spans = [word.span() for word in re.finditer(r"(?<!\S)-\S+", text) if word[0] in said]
    first, last = (spans[0][0], spans[-1][1]) if spans else (0, len(text))
    return cell.position(line, first), cell.position(line, last)


# --------------------------------------------------------------------------------------------------- kernels


def typed(cell: CellText, names: Mapping[str, Any]) -> tuple[Checked, list[Kernel]]:
    """The diagnostics of a cell, and its kernels in order; functions that nobody calls stand for theirs."""
    result = checked(cell, names)
    every = result.definitions.values()
    kernels = [Kernel.of(one.name, one) for one in every if isinstance(one, KernelDefinition)]
    functions = uncalled((one for one in every if isinstance(one, UserFunction)), kernels)
    stated = (stated_kernel(function) for function in functions)
    kernels += [kernel for kernel in stated if isinstance(kernel, Kernel)]
    return result, sorted(kernels, key=lambda kernel: kernel.span.line)


# ----------------------------------------------------------------------------------------------------- forms


class FormLine(NamedTuple):
    """A line of a derived program, and the place that it comes from."""

    text: str
    span: Span | None = None


def forms(request: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to `forms`: the text of a form, and the line of the cell that each of its lines comes from.

    `whole` says that the cell has no mistakes: otherwise some of its kernels are missing.
    """
    cell, form = CellText(request["text"]), str(request["form"])
    if form not in FORMS:
        raise ValueError(f"there is no form {form!r}; there is {', '.join(FORMS)}")
    if cell.magic_line is None:
        return {"text": "", "lines": [], "whole": True}
    with trial():
        result, kernels = typed(cell, names)
        shown = [line for kernel in kernels for line in (*form_of(kernel, form), FormLine(""))][:-1]
    source = result.source
    lines = [line.span.line - 1 if line.span and line.span.source is source else None for line in shown]
    return {"text": "\n".join(line.text for line in shown), "lines": lines, "whole": not result.has_errors}


FORMS = tuple(name for name in PANES if name not in ("source", "lines"))
"""The forms of a kernel: the panes of its view but for its own text."""


def form_of(kernel: Kernel, form: str) -> Iterator[FormLine]:
    """The lines of one form of a kernel; a comment that says why where there is none."""
    parts = parts_of(kernel)
    if form in parts.units:
        try:
            unit = parts.units[form]()
        except BuildError as problem:
            yield FormLine(f"// there is no {PANES[form]} of {kernel.name}: {problem.diagnostics[0].message}")
            return
        yield from (FormLine(line.text, line.span) for line in without_helpers(unit))
        return
    shown = parts.listing(form)
    if shown is None:
        why = parts.refused or "a custom derivative has none"
        yield FormLine(f"# {kernel.name} has no {PANES[form]}: {why.partition(chr(10))[0]}", kernel.span)
        return
    yield from (FormLine(line.text, line.span) for line in shown.lines if not line.is_comment)


# ----------------------------------------------------------------------------------------------------- marks


def marks(request: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to `marks`: what lines do to arrays, what they keep, and where derivatives are zero."""
    cell = CellText(request["text"])
    if cell.magic_line is None:
        return {"marks": []}
    with trial():
        result, kernels = typed(cell, names)
        told: dict[tuple[int, str, str], None] = {}
        functions = (one for one in result.definitions.values() if isinstance(one, UserFunction))
        given = {function.span: len(function.signature()) for function in functions}
        for kernel in kernels:
            parts, formals = parts_of(kernel), kernel.definition.signature
            # What a function returns is stored in arrays that its text does not have.
            returned = {formal.name for formal in formals[given.get(kernel.span, len(formals)) :]}
            for (source, line), facts in Places(parts).facts.items():
                if source is result.source:
                    told |= {(line - 1, kind, text): None for kind, text in _said(facts, returned)}
            told |= {(line - 1, kind, text): None for line, kind, text in _of_runs(kernel, parts, names)}
            for span, word in zeros(kernel):
                if span.source is result.source:
                    told[span.line - 1, "zero", f"the derivative of {word} is zero"] = None
    return {"marks": [{"line": line, "kind": kind, "text": text} for line, kind, text in sorted(told)]}


_KINDS = {"reads": "read", "writes": "written", "adds to": "added", "keeps": "saved"}


def _said(facts: Facts, hidden: Collection[str]) -> Iterator[tuple[str, str]]:
    for verb, names in facts.verbs.items():
        told = [name for name in names if name != KEEPS_NOTHING and name not in hidden]
        if told:
            yield _KINDS[verb], f"{verb} {', '.join(told)}"


def zeros(kernel: Kernel) -> Iterator[tuple[Span, str]]:
    """Where a kernel computes of floats what has the derivative zero by construction, and by which word."""
    for stmt in walk(kernel.definition.function.body):
        match stmt:
            case Let(out, op, args) if any(map(is_float, args)):
                if isinstance(op.derivative, Zero) or not is_differentiable(out.type):
                    yield stmt.span, _WRITTEN.get(op.name, op.name)


_WRITTEN = SYMBOLS | {"int32": "int", "bool": "bool"}
"""Operations as they are written."""


def adjoint_lines(kernels: Sequence[Kernel], line: int) -> list[str]:
    """The lines of the adjoints that a line of the cell becomes, without their common indentation."""
    lines = []
    for kernel in kernels:
        adjoint = parts_of(kernel).adjoint
        if adjoint is not None and kernel.span.line != line:
            here = (one for one in adjoint.lines if one.span.line == line and not one.is_comment)
            lines += [one.text for one in here if one.span.source is kernel.source]
    return textwrap.dedent("\n".join(lines)).splitlines()


# -------------------------------------------------------------------------------- the last trace and profile


LEAST = 0.05
"""A line is marked if its share of a run is at least this."""

Said = tuple[int, str, str]
"""A line, from 1, the kind of its mark, and the words."""


def _of_runs(kernel: Kernel, parts: Parts, names: Mapping[str, Any]) -> Iterator[Said]:
    """What runs of this very text tell of a kernel; names hold the results of cells, too."""
    values = list(names.values())[::-1]
    yield from _of_launch(kernel, parts, values)
    run = next((one for one in values if type(one) is ThreadRun and _is_of(one, kernel)), None)
    if run is not None:
        yield from _of_thread(run, parts)
    for profile in [one for one in values if type(one) is Profile][:1]:
        for time in (one for one in profile.kernels if one.name == kernel.name):
            back = "" if time.backward is None else f" and {1e3 * time.backward:.3g} ms back"
            launches = counted(time.launches, "launch")
            text = f"{1e3 * time.forward:.3g} ms forward{back}, in the profile of {launches}"
            yield kernel.span.line, "cost", text


def _of_launch(kernel: Kernel, parts: Parts, values: Sequence[Any]) -> Iterator[Said]:
    """What the last launch on a tape kept, and what its adjoint keeps of loops of a known length."""
    tapes = (one for one in values if type(one) is Tape)
    launches = (one for tape in tapes for one in tape.launches[: -LOOKED_AT - 1 : -1])
    record = next((one for one in launches if _has_text(one, kernel)), None)
    if record is None or not isinstance(record.pullback, Pullback):
        return
    kept: Counter[int] = Counter()
    savings = listing(record.pullback.vjp.primal).savings
    for saving, appended in zip(savings, record.residuals[::2], strict=False):
        source = saving.span.source
        kept[saving.span.line - source.first_line + parts.source.first_line] += appended.allocation.nbytes
    for line, nbytes in kept.items():
        yield line, "saved", f"kept {nbytes:,} bytes in the last launch on a tape"
    trips = dict(_trips(kernel, record))
    for saving in () if parts.adjoint is None or record.kernel.spilled else parts.adjoint.savings:
        count = None if saving.loop is None or saving.when else trips.get(saving.loop)
        if count and saving.loop is not None:
            size = f"{count * saving.bytes:,} bytes a thread in {counted(count, 'iteration')}"
            yield saving.loop.line, "saved", f"its adjoint keeps {size} of the last launch on a tape"


LOOKED_AT = 1000
"""How many launches at the end of a tape are looked at."""


def _has_text(record: LaunchRecord, kernel: Kernel) -> bool:
    ran = record.kernel
    return ran.name == kernel.name and ran.source.text.rstrip() == kernel.source.text.rstrip()


def _trips(kernel: Kernel, record: LaunchRecord) -> Iterator[tuple[Span, int]]:
    """The loops of a kernel whose iterations the arguments of a launch tell, and how many these are."""
    function, given = kernel.definition.function, list(record.named.values())
    known = {param: value for param, value in zip(function.params, given, strict=True) if type(value) is int}
    lets = {stmt.out: stmt for stmt in of_kind(function.body, Let)}

    def value(atom: Atom) -> int | None:
        if isinstance(atom, Const):
            return int(atom.value)
        let = lets.get(atom)
        if let is None or let.op is not TRIPS:
            return known.get(atom)
        bounds = [value(one) for one in let.args]
        return None if None in bounds else len(range(*(bound for bound in bounds if bound is not None)))

    def of(body: Block, times: int) -> Iterator[tuple[Span, int]]:
        for stmt in body.stmts:
            if isinstance(stmt, For) and (count := value(stmt.count)) is not None:
                yield stmt.span, times * max(count, 0)
                yield from of(stmt.body, times * max(count, 0))

    return of(function.body, 1)


def _is_of(run: ThreadRun, kernel: Kernel) -> bool:
    texts = {one.span.source.text.rstrip() for one in run.primal}  # a magic ends what it is given
    return run.kernel == kernel.name and kernel.source.text.rstrip() in texts


def _of_thread(run: ThreadRun, parts: Parts) -> Iterator[Said]:
    def own(values: Sequence[Seen]) -> list[tuple[int, Seen]]:
        """Those of the kernel's own cell, with the lines that these have in it now."""
        text = parts.source.text.rstrip()
        here = (one for one in values if one.span.source.text.rstrip() == text)
        return [(one.span.line - one.span.source.first_line + parts.source.first_line, one) for one in here]

    lines = Counter(line for line, _ in own((*run.primal, *run.adjoint)))
    for line, count in lines.items():
        if count >= LEAST * lines.total():
            yield line, "cost", f"{100 * count / lines.total():.0f}% of the values of the traced thread"
    trips = Counter(line for line, one in own(run.primal) if one.loops and one.name == one.loops[-1][0])
    for saving in () if parts.adjoint is None else parts.adjoint.savings:
        if saving.loop is not None and not saving.when and (count := trips[saving.loop.line]):
            kept = f"kept {count * saving.bytes} bytes in {count} iterations of the traced thread"
            yield saving.loop.line, "saved", kept
