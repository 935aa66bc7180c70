"""Views: pure functions from kernels, reports and errors to text and HTML.

Objects of the layers to the left ask for their views through `hooks`; those of checks, Jacobians and other
results are in `checks.report`.
"""

from collections.abc import Callable
from typing import Any

from kernelab import hooks
from kernelab.autodiff.inspect.thread_graph import ThreadGraph
from kernelab.autodiff.tape.measures import Norms, Profile
from kernelab.autodiff.tape.tape import Tape
from kernelab.codegen.listing.listing import Derivation
from kernelab.frontend.definitions.functions import UserFunction
from kernelab.lang.ir import Function
from kernelab.passes.ad.vjp import Vjp
from kernelab.runtime.array.array import array
from kernelab.runtime.kernel import decorators
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.ops.indexed import indexedarray
from kernelab.views.kernel.graph_view import graph_svg, graph_view
from kernelab.views.kernel.kernel_facts import derivation_view, function_view, program_view, view, vjp_view
from kernelab.views.pages import display
from kernelab.views.pages.markup import Node
from kernelab.views.tape.arrays import array_view, picked_view
from kernelab.views.tape.tape_view import norms_view, profile_view, svg_of, tape_view

DISPLAYS: dict[type, Callable[[Any], Node]] = {
    Kernel: view,
    UserFunction: function_view,
    decorators.Function: function_view,
    Tape: tape_view,
    Norms: norms_view,
    Profile: profile_view,
    array: array_view,
    indexedarray: picked_view,
    Function: program_view,
    Vjp: vjp_view,
    Derivation: derivation_view,
    ThreadGraph: graph_view,
}
"""What is shown for an object that is the value of a cell."""


PICTURES: dict[type, display.Picture] = {Tape: svg_of, ThreadGraph: graph_svg}
"""What has a picture of its own, for pages that show pictures only."""


@hooks.display.provide
def display_of(shown: Any, include: Any = None) -> dict[str, Any]:
    """The forms in which a notebook shows an object, a tape in a running one as a widget."""
    cls = next((cls for cls in type(shown).__mro__ if cls in DISPLAYS), None)
    if cls is None:
        # Imported late: a notebook that asks for no result need not wait for what shows them.
        from kernelab.views.checks.report import RESULTS

        return dict(display.bundle(shown, RESULTS[type(shown)], include=include))
    static = display.bundle(shown, DISPLAYS[cls], PICTURES.get(cls), include)
    return hooks.widget(shown, static) if cls is Tape and include is None else dict(static)
