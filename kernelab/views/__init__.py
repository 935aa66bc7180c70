"""Views: pure functions from kernels, reports and errors to text and HTML.

`install` gives the classes of the layers to the left their displays, without their knowing; those of what is
computed when somebody asks for it, such as checks and Jacobians, wait in `reports`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from kernelab.autodiff.tape.tape import Tape
from kernelab.autodiff.transforms.progress import Progress
from kernelab.errors import Diagnosed
from kernelab.lang.ir import Function
from kernelab.passes.ad.vjp import Vjp
from kernelab.runtime.array.array import array
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.ops.indexed import indexedarray
from kernelab.views.kernel.kernel_facts import program_text, program_view, view, vjp_view
from kernelab.views.pages import display
from kernelab.views.pages.error_view import error_lines
from kernelab.views.pages.markup import Node
from kernelab.views.pages.progress_bar import bar
from kernelab.views.tape.arrays import array_view, picked_view
from kernelab.views.tape.tape_view import svg_of, tape_view

DISPLAYS: dict[type, Callable[[Any], Node]] = {
    Kernel: view,
    Tape: tape_view,
    array: array_view,
    indexedarray: picked_view,
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
    Function.__str__ = program_text  # type: ignore[method-assign, assignment]
    Diagnosed._render_traceback_ = error_lines  # type: ignore[attr-defined]
