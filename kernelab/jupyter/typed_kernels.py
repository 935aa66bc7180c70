"""Compiles the kernels of a text that has not run, and shows each in every form, with marks at its lines.

Knows kernels and their views; runs and defines nothing, and is called in a trial.
"""

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kernelab.autodiff.inspect.thread_run import ThreadRun
from kernelab.autodiff.tape.measures import Profile
from kernelab.backend.cpu.interpreter import Seen
from kernelab.errors import BuildError, Span, counted
from kernelab.frontend import KernelDefinition, UserFunction
from kernelab.frontend.meaning.name_lookup import SYMBOLS
from kernelab.frontend.meaning.trial import trial
from kernelab.jupyter.cell_text import CellText
from kernelab.jupyter.checking import Checked, checked
from kernelab.jupyter.magics import uncalled
from kernelab.lang.build import is_float
from kernelab.lang.ir import Let, walk
from kernelab.lang.ops import Zero
from kernelab.lang.types import is_differentiable
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.ops.function_calls import stated_kernel
from kernelab.views.kernel.code_view import KEEPS_NOTHING, PANES, Facts, Parts, Places, without_helpers
from kernelab.views.kernel.kernel_facts import parts_of


def typed(cell: CellText, names: Mapping[str, Any]) -> tuple[Checked, list[Kernel]]:
    """The diagnostics of a cell, and its kernels in order; functions that nobody calls stand for theirs."""
    result = checked(cell, names)
    kernels = [_kernel(one) for one in result.definitions.values() if isinstance(one, KernelDefinition)]
    functions = uncalled(
        (one for one in result.definitions.values() if isinstance(one, UserFunction)), kernels
    )
    stated = (stated_kernel(function) for function in functions)
    kernels += [kernel for kernel in stated if isinstance(kernel, Kernel)]
    return result, sorted(kernels, key=lambda kernel: kernel.span.line)


def _kernel(definition: KernelDefinition) -> Kernel:
    kernel = Kernel.of(definition.name, lambda: definition)
    kernel.definition = definition
    return kernel


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
        for kernel in kernels:
            parts = parts_of(kernel)
            for (source, line), facts in Places(parts).facts.items():
                if source is result.source:
                    told |= {(line - 1, kind, text): None for kind, text in _said(facts)}
            told |= {(line - 1, kind, text): None for line, kind, text in _of_runs(kernel, parts, names)}
            for span, word in zeros(kernel):
                if span.source is result.source:
                    told[span.line - 1, "zero", f"the derivative of {word} is zero"] = None
    return {"marks": [{"line": line, "kind": kind, "text": text} for line, kind, text in sorted(told)]}


_KINDS = {"reads": "read", "writes": "written", "adds to": "added", "keeps": "saved"}


def _said(facts: Facts) -> Iterator[tuple[str, str]]:
    for verb, names in facts.verbs.items():
        told = [name for name in names if name != KEEPS_NOTHING]
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
    run = next((one for one in values if type(one) is ThreadRun and _is_of(one, kernel)), None)
    if run is not None:
        yield from _of_thread(run, parts)
    for profile in [one for one in values if type(one) is Profile][:1]:
        for time in (one for one in profile.kernels if one.name == kernel.name):
            back = "" if time.backward is None else f" and {1e3 * time.backward:.3g} ms back"
            launches = counted(time.launches, "launch")
            text = f"{1e3 * time.forward:.3g} ms forward{back}, in the profile of {launches}"
            yield kernel.span.line, "cost", text


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
