"""Views: pure functions from kernels, reports and errors to text and HTML.

`install` gives the classes of the layers to the left their displays, without their knowing.
"""

from collections.abc import Callable, Mapping
from typing import Any

from kernelab.autodiff.contributions import Contributions
from kernelab.autodiff.gradcheck import GradcheckReport
from kernelab.autodiff.jacobian import Jacobians
from kernelab.autodiff.progress import Progress
from kernelab.autodiff.tape import Tape
from kernelab.autodiff.tapecheck import TapeReport
from kernelab.autodiff.taylor import TaylorReport
from kernelab.autodiff.threadrun import ThreadRun
from kernelab.errors import Diagnosed
from kernelab.lang.ir import Function
from kernelab.passes.vjp import Vjp
from kernelab.runtime.indexed import indexedarray
from kernelab.runtime.kernel import Kernel
from kernelab.runtime.strided import array
from kernelab.views import display
from kernelab.views.arrays import array_view, picked_view
from kernelab.views.contributions import contributions_text, contributions_view
from kernelab.views.errors import error_lines
from kernelab.views.heatmap import jacobians_text, jacobians_view
from kernelab.views.kernel import program_text, program_view, view, vjp_view
from kernelab.views.markup import Node
from kernelab.views.progress import bar
from kernelab.views.report import gradcheck_view, tape_report_view
from kernelab.views.tape import svg_of, tape_view
from kernelab.views.taylor import taylor_view
from kernelab.views.threadrun import thread_text, thread_view

DISPLAYS: dict[type, Callable[[Any], Node]] = {
    Kernel: view,
    Tape: tape_view,
    array: array_view,
    indexedarray: picked_view,
    GradcheckReport: gradcheck_view,
    TapeReport: tape_report_view,
    Jacobians: jacobians_view,
    TaylorReport: taylor_view,
    ThreadRun: thread_view,
    Contributions: contributions_view,
    Function: program_view,
    Vjp: vjp_view,
}
"""What is shown for an object that is the value of a cell."""


PICTURES: dict[type, display.Picture] = {Tape: svg_of}
"""What has a picture of its own, for pages that show pictures only."""


def install(live: Mapping[type, display.Live]) -> None:
    """Attach every display, `live` ones to be used in running notebooks; doing it again changes nothing."""
    Progress.watcher = bar
    for cls, shown in DISPLAYS.items():
        display.attach(cls, shown, live.get(cls), PICTURES.get(cls))
    Tape.to_svg = svg_of  # type: ignore[attr-defined]
    Jacobians.__str__ = jacobians_text  # type: ignore[method-assign, assignment]
    Jacobians._repr_pretty_ = _pretty  # type: ignore[attr-defined]
    Function.__str__ = program_text  # type: ignore[method-assign, assignment]
    ThreadRun.__str__ = thread_text  # type: ignore[method-assign, assignment]
    Contributions.__str__ = contributions_text  # type: ignore[method-assign, assignment]
    Diagnosed._render_traceback_ = error_lines  # type: ignore[attr-defined]


def _pretty(shown: Any, printer: Any, cycle: bool) -> None:
    """What IPython prints for an object that is a dict, too: it would have a way of its own for those."""
    printer.text(str(shown))
