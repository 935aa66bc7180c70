"""The table of a gradient check: verdict, worst entry, and words as well as colours."""

from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest

from kernelab.autodiff.checks.gradcheck_report import Entry, GradcheckReport, PairResult
from kernelab.autodiff.checks.tape_report import LaunchCheck, TapeReport
from kernelab.runtime.context.recorder import Place
from kernelab.views.checks.report import gradcheck_view, tape_report_view
from kernelab.views.pages import display, markup, page

RIGHT = PairResult("x", "out", 1.5e-7, 1e-7, (3, 0), (0,), -1.25, -1.25, 18, True)
WRONG = PairResult("rest", "out", 0.125, 0.5, (), (0,), 0.125, 0.25, 1, False)


def test_a_report_that_passed_says_so_and_shows_the_worst_entry_of_each_pair() -> None:
    assert markup.render(gradcheck_view(GradcheckReport("f", (RIGHT,)))).splitlines() == [
        "✓ PASS  gradcheck of f: adjoint and float64 differences agree in 18 entries",
        "",
        "        derivative   entries  worst error  relative  worst entry           adjoint  differences",
        "------  -----------  -------  -----------  --------  --------------------  -------  -----------",
        "✓ pass  d out / d x       18      1.5e-07   1.0e-07  d out[0] / d x[3, 0]    -1.25        -1.25",
    ]


def test_a_report_with_a_failure_says_fail_in_words_and_shows_both_values() -> None:
    shown = markup.render(gradcheck_view(GradcheckReport("f", (RIGHT, WRONG))))
    assert shown.startswith("✗ FAIL  gradcheck of f: 1 of 2 pairs")
    (line,) = [line for line in shown.splitlines() if line.startswith("✗ FAIL  d out / d rest")]
    assert "d out[0] / d rest " in line
    assert line.endswith("0.125         0.25")


@pytest.mark.parametrize(
    ("autodiff", "numeric"), [(nan, nan), (1.0, nan), (inf, 1.0), (1.0, inf), (2.0, 0.0)]
)
def test_the_next_worst_entries_have_errors_as_the_worst_has(autodiff: float, numeric: float) -> None:
    entry = Entry((1,), (0,), autodiff, numeric)
    assert entry.abs_error == (2.0 if numeric == 0.0 else inf)
    assert entry.rel_error == inf
    first = PairResult("x", "out", entry.abs_error, inf, (0,), (0,), autodiff, numeric, 4, False)
    shown = markup.render(gradcheck_view(GradcheckReport("f", (replace(first, others=(entry,)),))))
    worst, other = (line.split() for line in shown.splitlines() if "d out[0] / d x[" in line)
    assert worst[:8] == ["✗", "FAIL", "d", "out", "/", "d", "x", "4"]
    assert worst[8:10] == other[:2]


def test_launches_of_one_line_that_passed_share_a_row_and_one_that_failed_has_its_own() -> None:
    here = Place("cell.py", 4)
    checks = [LaunchCheck(k, "step", here, GradcheckReport("step", (RIGHT,))) for k in (1, 2, 4)]
    checks.append(LaunchCheck(3, "step", here, GradcheckReport("step", (WRONG,))))
    rows = markup.render(tape_report_view(TapeReport(tuple(checks)))).split("\n\n")[1].splitlines()
    assert [row.split()[:6] for row in rows[2:]] == [
        ["✓", "pass", "1", "and", "2", "more"],
        ["✗", "FAIL", "3", "step", "cell.py,", "line"],
    ]
    assert rows[2].split()[-2:] == ["54", "1.5e-07"]


def test_pass_and_fail_differ_without_colours() -> None:
    html = page.render(gradcheck_view(GradcheckReport("f", (RIGHT, WRONG))))
    assert ">✓ pass</span>" in html
    assert ">✗ FAIL</span>" in html


def test_a_report_that_its_cell_has_shown_is_shown_again_by_a_later_cell_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report: Any = GradcheckReport("f", (RIGHT,), shown_in=3)
    monkeypatch.setattr(display, "cell", lambda: 3)
    report._ipython_display_()
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(display, "cell", lambda: 4)
    report._ipython_display_()
    assert "✓ PASS  gradcheck of f" in capsys.readouterr().out
