"""Displays of gradient checks, Taylor tests and lost digits.

Checks have a table with a row for each pair of input and output or step.  A Taylor test has two plots: the
remainder by step, and the error of differences by step.  The digits that a kernel loses are a heat over its
source lines, forwards and backwards.  Pure functions from a report to markup; must not know how the report
was computed.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from html import escape
from importlib.util import find_spec
from typing import Any

import numpy as np

from kernelab.autodiff.checks.gradcheck_report import VERDICTS, Entry, GradcheckReport, Index, PairResult
from kernelab.autodiff.checks.lost_digits import LineDigits, Loss, Precision
from kernelab.autodiff.checks.tape_report import OTHER_VALUES, LaunchCheck, TapeReport
from kernelab.autodiff.checks.taylor import LEAST_SLOPE, TOO_STEADY, TaylorReport
from kernelab.autodiff.inspect.contributions import Contributions
from kernelab.autodiff.inspect.thread_run import ThreadRun
from kernelab.autodiff.jacobians.jacobian import Jacobians
from kernelab.errors import Source, Span, counted
from kernelab.passes.access.dead_ends import CONDITION, INDEX, DeadEnd
from kernelab.views.checks.heatmap import jacobians_view
from kernelab.views.pages import figures
from kernelab.views.pages.markup import (
    Below,
    Cell,
    Code,
    CodeLine,
    Drawing,
    Node,
    Run,
    Style,
    Table,
    Words,
    cell,
    without_empty,
    words,
)
from kernelab.views.pages.picture import svg
from kernelab.views.tape.answers import contributions_view, thread_view

# ----------------------------------------------------------------------------------------------- Taylor tests


TAYLOR_HEAD = ("step", "change", "remainder", "error of differences")


def taylor_view(report: TaylorReport) -> Node:
    """The verdict, the plots where Matplotlib is installed, and the numbers."""
    title, meaning = words(*_taylor_verdict(report), level=1), words(Run(_taylor_meaning(report), "dim"))
    return Below((title, meaning, *_plots(report), taylor_table(report)))


def _taylor_verdict(report: TaylorReport) -> tuple[Run, ...]:
    mark = Run("✓ PASS", "good") if report else Run("✗ FAIL", "bad")
    result = f"the remainder falls as h^{report.slope:.2f}"
    if not report.is_finite:
        result = "nothing finite to compare"
    elif report.fault:
        result = report.fault
    elif np.isnan(report.slope):
        result = "the remainder is rounding at every step"
    return mark, Run(f"  Taylor test of {report.function}: {result}")


def _taylor_meaning(report: TaylorReport) -> str:
    if not report.is_finite:
        return VERDICTS["not finite"]
    if report.fault == TOO_STEADY:
        return "rounding of the results may be as large as a wrong share of their change"
    if report.fault and (np.isnan(report.slope) or report.slope >= LEAST_SLOPE):
        return "the remainder does not show it: it falls as that of the derivative along this direction"
    off = np.nanmin(report.errors)
    best = f"central differences are best with h = {report.best_step:.0e}, off by {off:.1e}"
    if np.isnan(report.slope):
        return f"the function is linear along the direction; {best}"
    if report:
        return f"h^2 is that of the derivative; {best}"
    text = "h^2 would be that of the derivative: the gradient is wrong, there is a kink near the inputs, "
    return text + "or the inputs are far smaller than 1, and the steps too large"


def taylor_table(report: TaylorReport) -> Table:
    """The numbers of every other step."""
    rows = zip(report.steps, report.changes, report.remainders, report.errors, strict=True)
    shown = [tuple(cell(f"{value:.1e}", is_number=True) for value in row) for row in rows]
    return Table("", TAYLOR_HEAD, tuple(shown[::2]))


def _plots(report: TaylorReport) -> tuple[Node, ...]:
    if not report.is_finite or find_spec("matplotlib") is None:
        return ()
    alt = f"Taylor remainder and step-size curve of {report.function}"
    return (Drawing("", lambda: figures.picture(taylor_figure(report), alt), ()),)


@np.errstate(over="ignore")
def taylor_figure(report: TaylorReport) -> Any:
    """A `matplotlib.figure.Figure` of the remainder and of the errors of differences, over the step."""
    drawn = figures.new(8.4, 3.3)
    left, right = drawn.subplots(1, 2)
    h = report.steps
    left.loglog(h, _plain(report.changes), "o-", ms=3, color="0.6", label="|f(x + hv) - f(x)|")
    left.loglog(h, _plain(report.remainders), "o-", ms=3, color="C0", label="... - h Jv")
    _slopes(left, report)
    left.set(title="Taylor remainder", xlabel="step h")
    left.legend(fontsize=8, frameon=False)
    right.loglog(h, _plain(report.errors), "o-", ms=3, color="C3")
    drawn_errors = report.errors[(report.errors > 0) & np.isfinite(report.errors)]
    if drawn_errors.size and drawn_errors.max() < 10 * drawn_errors.min():
        # Errors that hardly differ are a level line, and not a curve between marks of the same name.
        right.set_ylim(drawn_errors.min() / 10, drawn_errors.max() * 10)
    if drawn_errors.size:
        right.axvline(report.best_step, color="0.6", lw=0.8, ls=":")
    right.set(title="error of central differences", xlabel="step h")
    for axis in (left, right):
        axis.grid(True, which="major", lw=0.4, color="0.9")
        axis.spines[["top", "right"]].set_visible(False)
    return drawn


def _plain(values: Any) -> Any:
    """Zeros have no logarithm: they are left out."""
    return np.where(values > 0, values, np.nan)


def _slopes(axis: Any, report: TaylorReport) -> None:
    """Lines of slope 1 and 2 through the first remainder, for the eye."""
    first = report.remainders[0]
    if not first > 0:
        return
    low = max(float(report.remainders[report.remainders > 0].min()), 1e-300)
    for order, dashes in ((1, ":"), (2, "--")):
        line = first * (report.steps / report.steps[0]) ** order
        visible = np.where(line >= low, line, np.nan)
        axis.loglog(report.steps, visible, dashes, lw=0.9, color="0.35", label=f"h^{order}")


# -------------------------------------------------------------------------------------------- gradient checks


HEAD = ("", "derivative", "entries", "worst error", "relative", "worst entry", "adjoint", "differences")


def gradcheck_view(report: GradcheckReport) -> Node:
    """The verdict and the table."""
    table = Table("", HEAD, tuple(row for pair in report.pairs for row in _rows(pair)))
    return Below((_verdict(report), table, *_meanings(report)))


def _meanings(report: GradcheckReport) -> list[Node]:
    """The meanings of the verdicts, and details of each pair that failed."""
    nodes: list[Node] = []
    for verdict in sorted({pair.verdict for pair in report.pairs if pair.verdict}):
        nodes.append(words(Run(f"{verdict}: ", "strong"), VERDICTS[verdict]))
        failed = (pair for pair in report.pairs if pair.verdict == verdict and pair.explanation)
        for explanation, span in dict.fromkeys((pair.explanation, pair.span) for pair in failed):
            nodes.append(words(explanation))
            if span is not None:
                nodes.append(_code(span))
    if report.without_gradient and report:
        names = ", ".join(f"`{name}`" for name in report.without_gradient)
        nodes.append(
            words(Run("zero here: ", "strong"), f"every derivative by {names}; kl.contributions says why")
        )
    return [*nodes, *_zeros(report.zeros)]


def _zeros(ends: Iterable[DeadEnd]) -> Iterator[Node]:
    """The lines through which a gradient is zero by construction."""
    for end in ends:
        word = {CONDITION: "a condition", INDEX: "an index"}.get(end.word, f"`{end.word}`")
        what = f"{word} has derivative 0: what goes on through this line adds nothing to the gradient"
        yield words(Run("zero by construction: ", "strong"), what)
        yield _code(end.span)


def _at_kink(report: GradcheckReport | None) -> bool:
    """Whether a check passed by symmetry alone."""
    return report is not None and report.passed and any(pair.verdict for pair in report.pairs)


def _code(span: Span) -> Code:
    return Code(str(span), (CodeLine((Run(span.source.line(span.line).rstrip()),), span.line),))


def tape_report_view(report: TapeReport) -> Node:
    """A verdict for each launch of a tape, and what is known of those that failed."""
    count = counted(sum(launch.is_launch or not launch.is_open for launch in report.launches), "launch")
    table = without_empty(Table("", TAPE_HEAD, tuple(map(_launch_row, _alike(report.launches)))))
    bent = any(_at_kink(launch.report) for launch in report.launches)
    left = sum(launch.is_open for launch in report.launches)
    verdict = Run("~ PASS", "strong") if bent or left else Run("✓ PASS", "good")
    verdict, outcome = verdict if report else Run("✗ FAIL", "bad"), ""
    if (whole := report.whole) is not None:
        products = counted(whole.products, "product")
        where = f"{products} with random vectors, of {whole.entries:,} entries"
        outcome = f": end to end, adjoints and float64 differences agree in {where}"
        outcome += ", but at a kink" if bent else ""
    elif (bad := report.first_bad()) is not None:
        outcome = f": {_called(bad)}{',' if bad.is_launch else ''} is the first that is wrong"
    elif left:
        outcome = f", but for {counted(left, 'record')} that could not be checked"
    title = words(verdict, f"  gradcheck of {count} on a tape{outcome}", level=1)
    notes = [words(Run(note, "dim")) for note in _notes(report)]
    told = (launch for launch in report.launches if not launch.passed or _at_kink(launch.report))
    details = [
        words(Run(f"{_called(launch)}: ", "strong"), launch.reason)
        if launch.report is None
        else gradcheck_view(launch.report)
        for launch in told
    ]
    passed = (one.report or one for one in report.launches if one.passed and not _at_kink(one.report))
    ends = [*(whole.zeros if whole else ()), *(end for check in passed for end in check.zeros)]
    return Below((title, table, *notes, *details, *_zeros({str(end.span): end for end in ends}.values())))


def _called(launch: LaunchCheck) -> str:
    return f"launch {launch.record}, {launch.kernel}" if launch.is_launch else launch.kernel


def _notes(report: TapeReport) -> list[str]:
    if report.alone:
        return [f"each launch was checked alone: {report.alone}"]
    note = "" if report.whole is None else report.whole.note
    return [each for each in (note, "" if report.is_exact else OTHER_VALUES) if each]


TAPE_HEAD = ("", "launch", "kernel", "where", "entries", "worst error")


def _alike(launches: Iterable[LaunchCheck]) -> Iterable[list[LaunchCheck]]:
    """The launches that passed, those of one kernel at one line together, and each other one by itself."""
    groups: dict[Hashable, list[LaunchCheck]] = {}
    for one in launches:
        is_told = not one.passed or _at_kink(one.report)
        key = one.kernel, one.place, one.covered, one.reason, one.report is None, is_told and one.record
        groups.setdefault(key, []).append(one)
    return groups.values()


def _launch_row(alike: Sequence[LaunchCheck]) -> tuple[Cell, ...]:
    launch, *others = alike
    more = f" and {len(others)} more" if others else ""
    number = cell(f"{launch.record}{more}", is_number=True)
    where = cell(str(launch.place))
    passed = cell("~ kink", "strong") if _at_kink(launch.report) else cell("✓ pass", "good")
    verdict = passed if launch.passed else cell("✗ FAIL", "bad")
    if launch.covered:
        verdict = cell("no gradient", "dim") if launch.reason else verdict
        result = cell(launch.reason or "end to end", "dim"), cell("")
    elif launch.fault:
        result = cell(launch.fault, "bad"), cell("")
    elif launch.report is None:
        verdict = cell("not checkable", "dim")
        result = cell("0", is_number=True), cell(launch.reason, "dim")
    else:
        pairs = [pair for one in alike if one.report is not None for pair in one.report.pairs]
        result = (
            cell(str(sum(pair.entries for pair in pairs)), is_number=True),
            cell(f"{max(pair.max_abs_error for pair in pairs):.1e}", is_number=True),
        )
    return verdict, number, cell(launch.kernel), where, *result


def _verdict(report: GradcheckReport) -> Words:
    title, failed = f"  gradcheck of {report.kernel}: ", sum(not pair.passed for pair in report.pairs)
    if failed:
        rest = f"{failed} of {counted(len(report.pairs), 'pair')} of input and output failed"
        return words(Run("✗ FAIL", "bad"), title + rest, level=1)
    entries = counted(sum(pair.entries for pair in report.pairs), "entry")
    directions = [pair.directions for pair in report.pairs if pair.directions]
    rest = f"adjoint and float64 differences agree in {entries}"
    if directions:
        products = counted(min(directions), "product")
        rest = f"adjoint and float64 differences agree in {products} with random directions, of {entries}"
    if _at_kink(report):
        return words(Run("~ PASS", "strong"), f"{title}{rest}, but at a kink", level=1)
    return words(Run("✓ PASS", "good"), title + rest, level=1)


def _rows(pair: PairResult) -> list[tuple[Cell, ...]]:
    """The worst entry of a pair, and under it the others that are named."""
    directions = f"{pair.directions} random directions" if pair.directions else ""
    first = (
        cell(*_mark(pair)),
        cell(f"d {pair.output} / d {pair.input}"),
        cell(str(pair.entries), is_number=True),
        cell(f"{pair.max_abs_error:.1e}", is_number=True),
        cell(f"{pair.max_rel_error:.1e}", "" if pair.passed else "bad", is_number=True),
        cell(directions or _place(pair, pair)),
        *_values(pair),
    )
    rows: list[tuple[Cell, ...]] = [first]
    for entry in pair.others:
        errors = (cell(f"{error:.1e}", is_number=True) for error in (entry.abs_error, entry.rel_error))
        place = cell(_place(pair, entry))
        rows.append((cell(""), cell(""), cell("", is_number=True), *errors, place, *_values(entry)))
    return rows


def _mark(pair: PairResult) -> tuple[str, Style]:
    if not pair.passed:
        return "✗ FAIL", "bad"
    return ("~ kink", "strong") if pair.verdict else ("✓ pass", "good")


def _values(of: PairResult | Entry) -> tuple[Cell, Cell]:
    return cell(f"{of.autodiff:.6g}", is_number=True), cell(f"{of.numeric:.6g}", is_number=True)


def _place(pair: PairResult, of: PairResult | Entry) -> str:
    return f"d {_element(pair.output, of.output_index)} / d {_element(pair.input, of.input_index)}"


def _element(name: str, index: Index) -> str:
    return f"{name}[{', '.join(map(str, index))}]" if index else name


# ------------------------------------------------------------------------------------------------ lost digits


STEP, WIDE, TEXT = 22, 86, 230
"""The height of a line, the width of a column of heat, and where the text begins, in pixels."""


def precision_view(report: Precision) -> Node:
    """The heat, and the line that loses the most."""
    nodes: list[Node] = [words(Run("digits lost", "strong"), f" by {report.name}, against float64", level=1)]
    for source in dict.fromkeys(line.span.source for line in report.lines):
        lines = [line for line in report.lines if line.span.source is source]
        nodes.append(Drawing("", _svg(source, lines, report.digits), tuple(_text(source, lines))))
    worst = report.worst()
    if not report.lines:
        nodes.append(words(Run("no line was looked at", "strong")))
    elif worst is None:
        nodes.append(words(Run("no line loses a digit", "good")))
    else:
        place = f"{worst.span.source.label}, line {worst.span.line}"
        nodes.append(words(Run(f"{place}: ", "strong"), worst.told))
    if not report.is_complete:
        left_out = "large launches, C++, functions of the host and what computes in float64 alone"
        nodes.append(words(Run(f"not all was looked at: {left_out} are left out", "dim")))
    return Below(tuple(nodes))


def _shown(source: Source, lines: list[LineDigits]) -> list[tuple[int, LineDigits | None]]:
    """The lines from the first to the last that computes floats."""
    by_line = {line.span.line: line for line in lines}
    return [(number, by_line.get(number)) for number in range(min(by_line), max(by_line) + 1)]


def _digits(loss: Loss | None) -> str:
    if loss is None:
        return ""
    return f"{max(loss.lost, 0.0):.1f}, {loss.left:.1f} left"


def _text(source: Source, lines: list[LineDigits]) -> list[str]:
    rows = [
        f"{number:>4}  {_digits(forward):>14}  {_digits(backward):>14}  {source.line(number).rstrip()}"
        for number, line in _shown(source, lines)
        for forward, backward in [(line.forward, line.backward) if line else (None, None)]
    ]
    return [source.label, f"line  {'forward':>14}  {'backward':>14}  source", *rows]


def _svg(source: Source, lines: list[LineDigits], most: float) -> str:
    shown = _shown(source, lines)
    longest = max(len(source.line(number)) for number, _ in shown)
    width, height = TEXT + 8 * (longest + 1), STEP * (len(shown) + 1) + 6
    parts = [_words(8, 0, "line"), _words(50, 0, "forward"), _words(50 + WIDE, 0, "backward")]
    for k, (number, line) in enumerate(shown, 1):
        parts.append(_words(8, k, str(number)))
        for column, loss in enumerate((line.forward, line.backward) if line else ()):
            if loss is not None:
                parts.append(_heat(50 + WIDE * column, k, loss, most))
        parts.append(_words(TEXT, k, source.line(number).rstrip()))
    style = 'style="font:13px ui-monospace,monospace;color:inherit;max-width:100%"'
    return svg(width, height, style, f"digits lost at each line of {source.label}", "".join(parts))


def _words(x: int, k: int, text: str) -> str:
    y = STEP * k + 15
    return f'<text x="{x}" y="{y}" fill="currentColor" xml:space="preserve">{escape(text)}</text>'


def _heat(x: int, k: int, loss: Loss, most: float) -> str:
    """A cell that is the redder the more digits are lost, with the loss and what it does as a tooltip."""
    share = min(max(loss.lost, 0.0) / most, 1.0) if most else 0.0
    box = f'x="{x}" y="{STEP * k}" width="{WIDE - 6}" height="{STEP - 3}" rx="3"'
    fill = f'fill="#d62728" fill-opacity="{0.06 + 0.84 * share:.2f}"'
    number = _words(x + 6, k, f"{max(loss.lost, 0.0):.1f}")
    return f"<g><title>{escape(loss.told)}</title><rect {box} {fill}/>{number}</g>"


# ------------------------------------------------------------------------------------------ displays


RESULTS: dict[type, Callable[[Any], Node]] = {
    Jacobians: jacobians_view,
    Precision: precision_view,
    ThreadRun: thread_view,
    Contributions: contributions_view,
    GradcheckReport: gradcheck_view,
    TapeReport: tape_report_view,
    TaylorReport: taylor_view,
}
"""What is shown for the results of `kl.autograd`, `trace`, `precision` and `contributions`."""
