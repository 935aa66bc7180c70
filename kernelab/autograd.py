"""Checks of derivatives, as users call them: ``kl.autograd.gradcheck``.

A thin face: the computation is in `kernelab.autodiff`, the table in `kernelab.views`.
"""

from collections.abc import Sequence
from typing import Any

from kernelab.autodiff.gradcheck import GradcheckReport, Tolerance, check_kernel
from kernelab.errors import Diagnostic, GradientError, KernelTypeError
from kernelab.runtime.kernel import Kernel
from kernelab.views import display
from kernelab.views.report import gradcheck_view


def gradcheck(
    function: Kernel,
    dim: int | Sequence[int] | None = None,
    inputs: Sequence[Any] | None = None,
    outputs: Sequence[Any] | None = None,
    *,
    eps: float | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    raise_exception: bool = True,
    max_inputs_per_var: int = -1,
    max_outputs_per_var: int = -1,
    show_summary: bool = True,
) -> GradcheckReport:
    """Check that the adjoint of a kernel is its derivative, entry by entry of every Jacobian.

    `inputs` and `outputs` are the kernel's arguments in order; the arrays of floats among the inputs that
    have ``requires_grad`` are varied, and the outputs (without `outputs`, the arrays that the kernel changes)
    are differentiated.  Arguments keep their values and gradients.  The differences are taken of a float64
    build of the kernel, with a step of `eps`.  An entry passes if ``|adjoint - difference| <= atol + rtol
    |difference|``; the default tolerances are a thousandth of the entry, plus rounding relative to the
    largest entry. `max_inputs_per_var` and `max_outputs_per_var` limit how many elements of an array are
    checked.

    Returns a report that is true if every pair passed; shows it as a table unless `show_summary` is false.
    Raises GradientError (a ValueError) if a pair fails and `raise_exception` is true, or if there is no pair.
    """
    if not isinstance(function, Kernel):
        raise KernelTypeError(_no_kernel(function))
    if dim is None or inputs is None:
        missing = "dim" if dim is None else "inputs"
        raise KernelTypeError(
            Diagnostic(f"gradcheck of {function.name} needs {missing}=", function.span, "gradcheck")
        )
    report = check_kernel(
        function,
        dim,
        inputs,
        outputs or (),
        tolerance=Tolerance(eps, atol, rtol),
        max_inputs_per_var=max_inputs_per_var,
        max_outputs_per_var=max_outputs_per_var,
    )
    if show_summary:
        display.show(report, gradcheck_view)
    if raise_exception and not report:
        raise GradientError(_failure(report, function))
    return report.as_shown() if show_summary else report


def _no_kernel(value: object) -> Diagnostic:
    found = type(value).__name__
    return Diagnostic(
        f"gradcheck takes a kernel, not {found}",
        None,
        "gradcheck",
        hint="put the launch's kernel and arguments here: gradcheck(kernel, dim=n, inputs=[...])",
    )


def _failure(report: GradcheckReport, kernel: Kernel) -> Diagnostic:
    worst = report.worst()
    return Diagnostic(
        f"the gradient of {kernel.name} is not its derivative: d {worst.output}{list(worst.output_index)} / "
        f"d {worst.input}{list(worst.input_index)} is {worst.autodiff:.6g} by the adjoint "
        f"and {worst.numeric:.6g} by differences",
        kernel.span,
        "gradcheck",
        hint="a kink near the inputs gives this too: try a smaller eps, or other inputs",
    )
