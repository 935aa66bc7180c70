"""The outcome of a gradient check as a table: one row for each pair of input and output, its worst entry.

Pure functions from a report to markup; must not know how the report was computed.
"""

from kernelab.autodiff.gradcheck import GradcheckReport, Index, PairResult
from kernelab.views.markup import Below, Cell, Node, Run, Table, Words, cell, words

HEAD = ("", "derivative", "entries", "worst error", "relative", "worst entry", "adjoint", "differences")


def gradcheck_view(report: GradcheckReport) -> Node:
    """The verdict and the table; one sentence where the table has been shown already."""
    if report.shown:
        return words(f"gradcheck of {report.kernel}: {'passed' if report else 'FAILED'}, as shown above")
    table = Table("", HEAD, tuple(_row(pair) for pair in report.pairs))
    return Below((_verdict(report), table))


def _verdict(report: GradcheckReport) -> Words:
    total = len(report.pairs)
    failed = sum(not pair.passed for pair in report.pairs)
    title = f"  gradcheck of {report.kernel}: "
    if failed:
        rest = f"{failed} of {_count(total, 'pair')} differ from the differences in float64"
        return words(Run("✗ FAIL", "bad"), title + rest, level=1)
    entries = sum(pair.entries for pair in report.pairs)
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
        cell(f"d {_element(pair.output, pair.output_index)} / d {_element(pair.input, pair.input_index)}"),
        cell(f"{pair.autodiff:.6g}", is_number=True),
        cell(f"{pair.numeric:.6g}", is_number=True),
    )


def _element(name: str, index: Index) -> str:
    return f"{name}[{', '.join(map(str, index))}]" if index else name
