"""Displays of results: checks, Jacobians, runs of threads, contributions.

Apart from those of kernels, arrays and tapes, so that `import kernelab` does not wait for them.
"""

from collections.abc import Callable
from typing import Any

from kernelab.autodiff.checks.gradcheck import GradcheckReport
from kernelab.autodiff.checks.tapecheck import TapeReport
from kernelab.autodiff.checks.taylor import TaylorReport
from kernelab.autodiff.inspect.contributions import Contributions
from kernelab.autodiff.inspect.thread_run import ThreadRun
from kernelab.autodiff.jacobians.jacobian import Jacobians
from kernelab.views.checks.heatmap import jacobians_text, jacobians_view
from kernelab.views.checks.report import gradcheck_view, tape_report_view
from kernelab.views.checks.taylor_view import taylor_view
from kernelab.views.pages import display
from kernelab.views.pages.markup import Node
from kernelab.views.tape.answers import contributions_text, contributions_view, thread_text, thread_view

DISPLAYS: dict[type, Callable[[Any], Node]] = {
    Jacobians: jacobians_view,
    ThreadRun: thread_view,
    Contributions: contributions_view,
}
"""What is shown for what is the value of a cell."""

CHECKS: dict[type, Callable[[Any], Node]] = {
    GradcheckReport: gradcheck_view,
    TapeReport: tape_report_view,
    TaylorReport: taylor_view,
}
"""The same for what may have been shown already when it was made."""


def install() -> None:
    """Attach the displays; doing it again changes nothing."""
    for cls, shown in DISPLAYS.items():
        display.attach(cls, shown)
    for cls, shown in CHECKS.items():
        display.attach_once(cls, shown)
    Jacobians.__str__ = jacobians_text  # type: ignore[method-assign, assignment]
    Jacobians._repr_pretty_ = _pretty  # type: ignore[attr-defined]
    ThreadRun.__str__ = thread_text  # type: ignore[method-assign, assignment]
    Contributions.__str__ = contributions_text  # type: ignore[method-assign, assignment]


def _pretty(shown: Any, printer: Any, cycle: bool) -> None:
    """IPython's text for an object that is also a dict, in place of IPython's own form for dicts."""
    printer.text(str(shown))
