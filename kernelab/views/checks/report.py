"""The result of a gradient check as a table: one row for each pair of input and output, its worst entry.

Pure functions from a report to markup; must not know how the report was computed.
"""

from kernelab.autodiff.checks.gradcheck import VERDICTS, Entry, GradcheckReport, Index, PairResult
from kernelab.autodiff.checks.tapecheck import LaunchCheck, TapeReport
from kernelab.views.pages.markup import Below, Cell, Code, CodeLine, Node, Run, Table, Words, cell, words

HEAD = ("", "derivative", "entries", "worst error", "relative", "worst entry", "adjoint", "differences")


def gradcheck_view(report: GradcheckReport) -> Node:
    """The verdict and the table."""
    table = Table("", HEAD, tuple(row for pair in report.pairs for row in _rows(pair)))
    return Below((_verdict(report), table, *_meanings(report)))


def _meanings(report: GradcheckReport) -> list[Node]:
    """The meanings of the verdicts, and details of each pair that failed."""
    found: list[Node] = []
    for verdict in sorted({pair.verdict for pair in report.pairs if pair.verdict}):
        found.append(words(Run(f"{verdict}: ", "strong"), VERDICTS[verdict]))
        told = {(p.explanation, p.span): p for p in report.pairs if p.verdict == verdict and p.explanation}
        for explanation, span in told:
            found.append(words(explanation))
            if span is not None:
                line = CodeLine((Run(span.source.line(span.line).rstrip()),), span.line)
                found.append(Code(str(span), (line,)))
    return found


def tape_report_view(report: TapeReport) -> Node:
    """A verdict for each launch of a tape, and what is known of those that failed."""
    count = _count(len(report.launches), "launch", "launches")
    table = Table("", TAPE_HEAD, tuple(_launch_row(launch) for launch in report.launches))
    failed = [launch for launch in report.launches if not launch.passed]
    verdict = Run("✓ PASS", "good") if report else Run("✗ FAIL", "bad")
    title = words(verdict, f"  gradcheck of {count} on a tape{_end_to_end(report)}", level=1)
    notes = [words(Run(note, "dim")) for note in _notes(report)]
    return Below((title, table, *notes, *(part for launch in failed for part in _about(launch))))


def _end_to_end(report: TapeReport) -> str:
    whole = report.whole
    if whole is not None:
        products, entries = _count(whole.products, "product"), _count(whole.entries, "entry", "entries")
        return f": end to end, {products} of its adjoint agree with float64 differences, of {entries}"
    bad = report.first_bad()
    return "" if bad is None else f": launch {bad.index + 1}, {bad.kernel}, is the first that is wrong"


def _notes(report: TapeReport) -> list[str]:
    if report.alone:
        return [f"each launch was checked alone: {report.alone}"]
    if report.whole is not None and not report.whole.is_exact:
        return ["the tape overwrote what it began with: it was checked at the values that stand there now"]
    return []


def _about(launch: LaunchCheck) -> tuple[Node, ...]:
    """The details of a launch that failed."""
    if launch.report is not None:
        return (gradcheck_view(launch.report),)
    return (words(Run(f"launch {launch.index + 1}, {launch.kernel}: ", "strong"), launch.reason),)


TAPE_HEAD = ("", "launch", "kernel", "where", "entries", "worst error", "relative")


def _launch_row(launch: LaunchCheck) -> tuple[Cell, ...]:
    number, where = cell(str(launch.index + 1), is_number=True), cell(str(launch.place))
    verdict = cell("✓ pass", "good") if launch.passed else cell("✗ FAIL", "bad")
    if launch.covered:
        return verdict, number, cell(launch.kernel), where, cell("end to end", "dim"), cell(""), cell("")
    if launch.fault:
        return verdict, number, cell(launch.kernel), where, cell(launch.fault, "bad"), cell(""), cell("")
    if launch.report is None:
        verdict, reason = cell("not checkable", "dim"), cell(launch.reason, "dim")
        return verdict, number, cell(launch.kernel), where, cell("0", is_number=True), reason, cell("")
    pairs = launch.report.pairs
    return (
        verdict,
        number,
        cell(launch.kernel),
        where,
        cell(str(sum(pair.entries for pair in pairs)), is_number=True),
        cell(f"{max(pair.max_abs_error for pair in pairs):.1e}", is_number=True),
        cell(f"{max(pair.max_rel_error for pair in pairs):.1e}", is_number=True),
    )


def _verdict(report: GradcheckReport) -> Words:
    total = len(report.pairs)
    failed = sum(not pair.passed for pair in report.pairs)
    title = f"  gradcheck of {report.kernel}: "
    if failed:
        rest = f"{failed} of {_count(total, 'pair')} of input and output failed"
        return words(Run("✗ FAIL", "bad"), title + rest, level=1)
    entries = sum(pair.entries for pair in report.pairs)
    if any(pair.directions for pair in report.pairs):
        number = _count(min(pair.directions for pair in report.pairs if pair.directions), "product")
        rest = f"adjoint and float64 differences agree in {number} with random directions"
        return words(
            Run("✓ PASS", "good"), f"{title}{rest}, of {_count(entries, 'entry', 'entries')}", level=1
        )
    rest = f"adjoint and float64 differences agree in {_count(entries, 'entry', 'entries')}"
    return words(Run("✓ PASS", "good"), title + rest, level=1)


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _rows(pair: PairResult) -> list[tuple[Cell, ...]]:
    """The worst entry of a pair, and under it the others that are named."""
    first = (
        cell("✓ pass", "good") if pair.passed else cell("✗ FAIL", "bad"),
        cell(f"d {pair.output} / d {pair.input}"),
        cell(str(pair.entries), is_number=True),
        cell(f"{pair.max_abs_error:.1e}", is_number=True),
        cell(f"{pair.max_rel_error:.1e}", "" if pair.passed else "bad", is_number=True),
        cell(_worst_place(pair)),
        cell(f"{pair.autodiff:.6g}", is_number=True),
        cell(f"{pair.numeric:.6g}", is_number=True),
    )
    return [first, *(_other(pair, entry) for entry in pair.others)]


def _other(pair: PairResult, entry: Entry) -> tuple[Cell, ...]:
    return (
        cell(""),
        cell(""),
        cell("", is_number=True),
        cell(f"{entry.abs_error:.1e}", is_number=True),
        cell(f"{entry.rel_error:.1e}", is_number=True),
        cell(_place(pair, entry.output_index, entry.input_index)),
        cell(f"{entry.autodiff:.6g}", is_number=True),
        cell(f"{entry.numeric:.6g}", is_number=True),
    )


def _worst_place(pair: PairResult) -> str:
    if pair.directions:
        return f"{pair.directions} random directions"
    return _place(pair, pair.output_index, pair.input_index)


def _place(pair: PairResult, output_index: Index, input_index: Index) -> str:
    return f"d {_element(pair.output, output_index)} / d {_element(pair.input, input_index)}"


def _element(name: str, index: Index) -> str:
    return f"{name}[{', '.join(map(str, index))}]" if index else name
