"""The outcome of a gradient check as a table: one row for each pair of input and output, its worst entry.

Pure functions from a report to markup; must not know how the report was computed.
"""

from kernelab.autodiff.gradcheck import VERDICTS, GradcheckReport, Index, PairResult
from kernelab.autodiff.tapecheck import LaunchCheck, TapeReport
from kernelab.views.markup import Below, Cell, Node, Run, Table, Words, cell, words

HEAD = ("", "derivative", "entries", "worst error", "relative", "worst entry", "adjoint", "differences")


def gradcheck_view(report: GradcheckReport) -> Node:
    """The verdict and the table; one sentence where the table has been shown already."""
    if report.shown:
        return words(f"gradcheck of {report.kernel}: {'passed' if report else 'FAILED'}, as shown above")
    table = Table("", HEAD, tuple(_row(pair) for pair in report.pairs))
    meaning = [words(VERDICTS[verdict]) for verdict in sorted({p.verdict for p in report.pairs if p.verdict})]
    return Below((_verdict(report), table, *meaning))


def tape_report_view(report: TapeReport) -> Node:
    """A verdict for each launch of a tape, and the tables of those that failed."""
    if report.shown:
        verdict = "passed" if report else "FAILED"
        return words(f"gradcheck of {len(report.launches)} launches: {verdict}, as shown above")
    table = Table("", TAPE_HEAD, tuple(_launch_row(launch) for launch in report.launches))
    failed = [launch.report for launch in report.launches if launch.report and not launch.passed]
    title = words(
        Run("✓ PASS", "good") if report else Run("✗ FAIL", "bad"),
        f"  gradcheck of {_count(len(report.launches), 'launch', 'launches')} on a tape",
        level=1,
    )
    return Below((title, table, *(gradcheck_view(found) for found in failed)))


TAPE_HEAD = ("", "launch", "kernel", "where", "entries", "worst error", "relative")


def _launch_row(launch: LaunchCheck) -> tuple[Cell, ...]:
    where = cell(str(launch.place))
    if launch.report is None:
        return (
            cell("not checkable", "dim"),
            cell(str(launch.index), is_number=True),
            cell(launch.kernel),
            where,
            cell("0", is_number=True),
            cell(launch.reason, "dim"),
            cell(""),
        )
    pairs = launch.report.pairs
    return (
        cell("✓ pass", "good") if launch.passed else cell("✗ FAIL", "bad"),
        cell(str(launch.index), is_number=True),
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
        rest = f"{failed} of {_count(total, 'pair')} differ from the differences in float64"
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


def _row(pair: PairResult) -> tuple[Cell, ...]:
    return (
        cell("✓ pass", "good") if pair.passed else cell("✗ FAIL", "bad"),
        cell(f"d {pair.output} / d {pair.input}"),
        cell(str(pair.entries), is_number=True),
        cell(f"{pair.max_abs_error:.1e}", is_number=True),
        cell(f"{pair.max_rel_error:.1e}", "" if pair.passed else "bad", is_number=True),
        cell(_worst_place(pair)),
        cell(f"{pair.autodiff:.6g}", is_number=True),
        cell(f"{pair.numeric:.6g}", is_number=True),
    )


def _worst_place(pair: PairResult) -> str:
    if pair.directions:
        return f"{pair.directions} random directions"
    return f"d {_element(pair.output, pair.output_index)} / d {_element(pair.input, pair.input_index)}"


def _element(name: str, index: Index) -> str:
    return f"{name}[{', '.join(map(str, index))}]" if index else name
