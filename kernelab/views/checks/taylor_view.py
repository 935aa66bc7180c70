"""The Taylor test as a table and two plots: the remainder by step, and the error of differences by step.

Pure functions from a report to markup; figures are Matplotlib's, made without pyplot.
"""

from typing import Any

import numpy as np

from kernelab.autodiff.checks.gradcheck import VERDICTS
from kernelab.autodiff.checks.taylor import TaylorReport
from kernelab.views.pages import figures
from kernelab.views.pages.markup import Below, Drawing, Node, Run, Table, cell, words

HEAD = ("step", "change", "remainder", "error of differences")


def taylor_view(report: TaylorReport) -> Node:
    """The verdict, the plots where Matplotlib is installed, and the numbers."""
    title, meaning = words(*_verdict(report), level=1), words(Run(_meaning(report), "dim"))
    return Below((title, meaning, *_plots(report), table(report)))


def _verdict(report: TaylorReport) -> tuple[Run, ...]:
    mark = Run("✓ PASS", "good") if report else Run("✗ FAIL", "bad")
    result = f"the remainder falls as h^{report.slope:.2f}"
    if not report.is_finite:
        result = "nothing finite to compare"
    elif report.fault:
        result = report.fault
    elif np.isnan(report.slope):
        result = "the remainder is rounding at every step"
    return mark, Run(f"  Taylor test of {report.function}: {result}")


def _meaning(report: TaylorReport) -> str:
    if not report.is_finite:
        return VERDICTS["not finite"]
    if report.fault:
        return "a rule that a user wrote is wrong, though the adjoint is the derivative along this direction"
    off = np.nanmin(report.errors)
    best = f"central differences are best with h = {report.best_step:.0e}, off by {off:.1e}"
    if np.isnan(report.slope):
        return f"the function is linear along the direction; {best}"
    if report:
        return f"h^2 is that of the derivative; {best}"
    return "h^2 would be that of the derivative: the gradient is wrong, or there is a kink near the inputs"


def table(report: TaylorReport) -> Table:
    """The numbers of every other step."""
    rows = zip(report.steps, report.changes, report.remainders, report.errors, strict=True)
    shown = [tuple(cell(f"{value:.1e}", is_number=True) for value in row) for row in rows]
    return Table("", HEAD, tuple(shown[::2]))


def _plots(report: TaylorReport) -> tuple[Node, ...]:
    if not report.is_finite:
        return ()
    try:
        drawn = figure(report)
    except ImportError:
        return ()
    alt = f"Taylor remainder and step-size curve of {report.function}"
    return (Drawing("", figures.picture(drawn, alt), ()),)


def figure(report: TaylorReport) -> Any:
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
