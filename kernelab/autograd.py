"""Jacobians of kernels and functions, and checks of their derivatives: ``kl.autograd``.

A thin face: the computation is in `kernelab.autodiff`, what is shown in `kernelab.views`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

from kernelab.autodiff.checks import tapecheck
from kernelab.autodiff.checks.gradcheck import Fast, check, require_choice
from kernelab.autodiff.checks.gradcheck_report import GradcheckReport
from kernelab.autodiff.checks.tape_report import Choice, TapeReport
from kernelab.autodiff.checks.taylor import TaylorReport, taylor
from kernelab.autodiff.checks.tolerance import Tolerance, require_step
from kernelab.autodiff.jacobians.differences import (
    STEADY,
    STEP,
    UNSTEADY,
    differences,
    told_apart,
    unsteady_outputs,
)
from kernelab.autodiff.jacobians.jacobian import Jacobian, Jacobians, Selection, explain_zeros
from kernelab.autodiff.jacobians.jacobian import jacobians as by_adjoint
from kernelab.autodiff.jacobians.sparse import sparse_jacobians
from kernelab.autodiff.jacobians.subject import Key, Subject, of_function, of_kernel, outside_transforms
from kernelab.autodiff.transforms.host_numbers import varied_inputs
from kernelab.backend.cuda.launch_config import config_of
from kernelab.data_classes import dataclass, field, replace
from kernelab.errors import GradientError, KernelTypeError, a_thing
from kernelab.guidance.bad_calls import explains_bad_calls
from kernelab.guidance.missing_names import face
from kernelab.runtime.array.array import array
from kernelab.runtime.array.transfers import look_at
from kernelab.runtime.context.recorder import refusal, warn_at
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.memory.device import get_device
from kernelab.runtime.memory.streams import configured
from kernelab.runtime.ops.operands import require_place
from kernelab.views.checks import heatmap, sparsity
from kernelab.views.pages import display, figures

__all__ = [
    "FunctionMetadata",
    "Jacobian",
    "gradcheck",
    "gradcheck_tape",
    "jacobian",
    "jacobian_fd",
    "jacobian_plot",
    "plot_kernel_jacobians",
    "plot_sparsity",
    "taylor_test",
]

__getattr__, __dir__ = face(__name__, __all__)

_PLOTTED = "plot what jacobian gives: J = kl.autograd.jacobian(kernel, dim=n, inputs=[...], outputs=[...])"

Mask = Sequence[tuple[Key, Key]]
Function = Kernel | Callable[..., Any]
R = TypeVar("R", GradcheckReport, TapeReport, TaylorReport)


@dataclass(slots=True)
class FunctionMetadata:
    """Names of a function, its inputs and its outputs for results; empty ones are looked up."""

    key: str | None = None
    input_labels: list[str] = field(default_factory=list)
    output_labels: list[str] = field(default_factory=list)
    input_strides: list[tuple[int, ...]] = field(default_factory=list)
    output_strides: list[tuple[int, ...]] = field(default_factory=list)
    input_dtypes: list[Any] = field(default_factory=list)
    output_dtypes: list[Any] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.key or self.input_labels or self.output_labels)

    def update_from_kernel(self, kernel: Kernel, inputs: Sequence[Any]) -> None:
        """Take the names, strides and types of a kernel's parameters, the first of them for `inputs`."""
        names, count = kernel.loaded.names, len(inputs)
        self.key = kernel.name
        self.input_labels, self.output_labels = list(names[:count]), list(names[count:])
        self.input_strides = [a.strides if isinstance(a, array) else () for a in inputs]
        # Of a generic kernel the inputs say their types, and nobody those of the outputs.
        types = [getattr(a, "type", None) for a in inputs]
        if not kernel.is_generic:
            types = [formal.type for formal in kernel.definition.signature]
        self.input_dtypes, self.output_dtypes = types[:count], types[count:]


@explains_bad_calls()
def jacobian(
    function: Function,
    dim: int | Sequence[int] | None = None,
    inputs: Sequence[Any] | None = None,
    outputs: Sequence[Any] | None = None,
    input_output_mask: Mask | None = None,
    device: Any = None,
    max_blocks: int = 0,
    block_dim: int = 256,
    max_outputs_per_var: int = -1,
    plot_jacobians: bool = False,
    metadata: FunctionMetadata | None = None,
    restore_inputs: bool = True,
    *,
    sparse: bool | Literal["auto"] = False,
) -> Jacobians:
    r"""The Jacobian of each output with respect to each input that has ``requires_grad``, by the adjoint.

    `function` is a kernel, launched over `dim` threads with `inputs`, then `outputs`; or a Python function
    that is called with copies of `inputs`, and returns arrays, or fills copies of `outputs`, which it takes
    behind these.  Of a kernel whose `outputs` are not given, they are the arrays that it changes.
    `input_output_mask` lists pairs of inputs and outputs, by position or name.  With `max_outputs_per_var`,
    only so many rows of each are computed; the others are NaN.  All arguments keep their values and
    gradients, whatever `restore_inputs` says.

    Returns a dict from pairs of positions ``(input, output)``, or names, to matrices: a row for each
    component of the output, a column for each of the input, in the precision of the input.  With `sparse`,
    a matrix is found from few runs by its pattern, which is that of the branches taken, and holds its entries
    only: `tocsr()` hands them to SciPy.  ``sparse="auto"`` does so where it is less work.  Launches have the
    shape of blocks that the function gives them, else `block_dim` and `max_blocks`.  Warns where a Python
    function computes nothing from its inputs.  Raises GradientError where there is nothing to differentiate.

    >>> text = "def square(x: array[float], y: array[float]):\n    y[tid()] = x[tid()] * x[tid()]"
    >>> x, y = kl.array([2.0, 3.0], requires_grad=True), kl.zeros(2)
    >>> kl.autograd.jacobian(kl.compile(text)["square"], 2, [x], [y])[0, 0].numpy()
    array([[4., 0.],
           [0., 6.]], dtype=float32)
    """
    require_choice(sparse, "sparse", "jacobian")
    subject = _subject("jacobian", function, dim, inputs, outputs, device, metadata)
    for source in subject.sources:
        look_at(source.elements)  # the result is the host's: no tape differentiates it
    selection = Selection(input_output_mask, max_outputs_per_var)
    with outside_transforms("jacobian"), configured(config_of(block_dim, max_blocks)):
        if sparse and max_outputs_per_var <= 0:
            jacobians = sparse_jacobians(subject, selection, always=sparse != "auto")
            if len(jacobians) > 1 and unsteady_outputs(subject):
                warn_at(
                    f"{UNSTEADY.format(subject.name)}: these are Jacobians of several runs", "state", STEADY
                )
        else:
            jacobians = by_adjoint(subject, selection)
        explain_zeros(subject, jacobians)
    if plot_jacobians:
        plot_kernel_jacobians(jacobians, title=f"Jacobians of {subject.name}")
    return jacobians


@explains_bad_calls()
def jacobian_fd(
    function: Function,
    dim: int | Sequence[int] | None = None,
    inputs: Sequence[Any] | None = None,
    outputs: Sequence[Any] | None = None,
    input_output_mask: Mask | None = None,
    device: Any = None,
    max_blocks: int = 0,
    block_dim: int = 256,
    max_inputs_per_var: int = -1,
    eps: float = 1e-4,
    plot_jacobians: bool = False,
    metadata: FunctionMetadata | None = None,
    restore_inputs: bool = True,
) -> Jacobians:
    """The same Jacobians by central differences with the step `eps`, of a float64 build, in float64.

    The step is relative to the size of an element of the input where that exceeds 1.  With
    `max_inputs_per_var`, only so many columns of each are computed.  Warns of a Python function that gives
    something else each time.  Otherwise as `jacobian`.
    """
    require_step(eps)
    subject = _subject("jacobian_fd", function, dim, inputs, outputs, device, metadata)
    for source in subject.sources:
        look_at(source.elements)  # the result is the host's: no tape differentiates it
    selection = Selection(input_output_mask, 0, max_inputs_per_var)
    with outside_transforms("jacobian_fd"), configured(config_of(block_dim, max_blocks)):
        jacobians = differences(subject, selection, eps / STEP)
        by_host, unsteady = told_apart(subject)
        if not by_host:
            explain_zeros(subject, jacobians)
    if unsteady:
        warn_at(f"{UNSTEADY.format(subject.name)}: these are differences of one run", "state", STEADY)
    if by_host:
        labels = ", ".join(sorted({label for _, label in by_host}))
        message = f"the differences of {subject.name} leave out what the host computes: "
        message += f"{labels} follows the inputs through NumPy or numbers"
        warn_at(message, "host", "compute with kernels what is to be differentiated")
    if plot_jacobians:
        plot_kernel_jacobians(jacobians, title=f"Jacobians of {subject.name} by differences")
    return jacobians


@explains_bad_calls()
def gradcheck(
    function: Function,
    dim: int | Sequence[int] | None = None,
    inputs: Sequence[Any] | None = None,
    outputs: Sequence[Any] | None = None,
    *,
    eps: float | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    raise_exception: bool = True,
    input_output_mask: Mask | None = None,
    device: Any = None,
    max_blocks: int = 0,
    block_dim: int = 256,
    max_inputs_per_var: int = -1,
    max_outputs_per_var: int = -1,
    plot_relative_error: bool = False,
    plot_absolute_error: bool = False,
    show_summary: bool = True,
    restore_inputs: bool = True,
    fast: Fast = "auto",
) -> GradcheckReport:
    r"""Check that the adjoint of a kernel or Python function is its derivative, entry by entry.

    `function`, `dim`, `inputs`, `outputs`, `input_output_mask` and `restore_inputs` are those of `jacobian`;
    what the outputs begin with is varied too, where they have `requires_grad` and may be read.  The
    differences are taken of a float64 build, with a step of `eps`.  An entry passes if the adjoint in float64
    is within a 100,000th of the difference, or within what differences cannot resolve, measured against the
    row and column of the entry, and if the adjoint as it runs is that in float64 up to the rounding of its
    precision.  With `atol` or `rtol` it passes if ``|adjoint - difference| <= atol + rtol |difference|``.
    `max_inputs_per_var` and `max_outputs_per_var` limit how many elements of an array are checked.  Rules
    that users wrote have to be linear besides, and the tangent that of the adjoint.

    With `fast`, the adjoint and the differences are compared along random directions, both in float64, where
    one wrong entry among thousands shows; only where they do not agree are entries compared, of a sparsity
    pattern, or of the columns and rows that differ.  The default "auto" does so where there are many entries;
    ``fast=False`` always compares every entry.  Asking for a plot of the errors compares every entry too.

    Returns a report that is true if every pair passed; shows it as a table unless `show_summary` is false.
    Where a pair fails, the tangent is asked too, and the report says what disagrees with what.  Raises
    GradientError (a ValueError) if a pair fails and `raise_exception` is true, or if there is nothing to
    compare: no pair, or outputs that a function does not compute from its inputs.

    >>> text = "def square(x: array[float], y: array[float]):\n    y[tid()] = x[tid()] * x[tid()]"
    >>> x, y = kl.array([2.0, 3.0], requires_grad=True), kl.zeros(2, requires_grad=True)
    >>> bool(kl.autograd.gradcheck(kl.compile(text)["square"], 2, [x], [y], show_summary=False))
    True
    """
    subject = _subject("gradcheck", function, dim, inputs, outputs, device, None)
    selection = Selection(input_output_mask, max_outputs_per_var, max_inputs_per_var)
    entries_wanted = plot_relative_error or plot_absolute_error
    with configured(config_of(block_dim, max_blocks)):
        report = check(subject, Tolerance(eps, atol, rtol), selection, fast=False if entries_wanted else fast)
    report = _shown(report) if show_summary else report
    _plot_errors(report, plot_relative_error, plot_absolute_error)
    if raise_exception and not report:
        raise GradientError(report.failure(None if subject.kernel is None else subject.kernel.span))
    return report


@explains_bad_calls()
def gradcheck_tape(
    tape: Any,
    *,
    eps: float | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    raise_exception: bool = True,
    input_output_masks: Mapping[str, Mask] | None = None,
    blacklist_kernels: Sequence[str] | None = None,
    whitelist_kernels: Sequence[str] | None = None,
    max_inputs_per_var: int = -1,
    max_outputs_per_var: int = -1,
    plot_relative_error: bool = False,
    plot_absolute_error: bool = False,
    show_summary: bool = True,
    reverse_launches: bool = False,
    skip_to_launch_index: int = 0,
    fast: Fast = "auto",
) -> TapeReport:
    """Check the gradient of a tape: the whole of it first, then the first launch with which it goes wrong.

    The tape runs again on copies, from what its arrays held at first, in float64: its adjoint is compared
    with differences along random directions, end to end.  Where these do not agree, the tape is halved until
    the first bad launch is found, and that one is checked as `gradcheck` does.  A launch that overwrites what
    an earlier adjoint reads is found so, too, with ``Tape(overwrite="warn")``.  ``fast=False`` also checks
    every entry of every launch.  A launch that reads an array without gradients in the middle of a chain that
    has them, or values of such a chain that came by the host, fails, as `backward` would report it.

    Where launches or entries are chosen, each launch is checked alone, with the values that it read, or,
    where these have been overwritten, reads when the tape runs again.  Masks and lists go by the names of
    kernels; `reverse_launches` checks the last launch first, and `skip_to_launch_index` leaves out so many.
    If the tape cannot run again, such a launch is not checkable; it does not count as failed.  Returns a
    report that is true if nothing failed.  Raises GradientError if a launch fails and `raise_exception` is
    true, or if none was checked.

    >>> x = kl.array([2.0, 3.0], requires_grad=True)
    >>> with kl.Tape() as tape:
    ...     y = kl.sin(kl.sqrt(x))
    >>> bool(kl.autograd.gradcheck_tape(tape, show_summary=False))
    True
    """
    choice = Choice(
        input_output_masks,
        _names(blacklist_kernels),
        _names(whitelist_kernels),
        reverse_launches,
        skip_to_launch_index,
    )
    selection = Selection(None, max_outputs_per_var, max_inputs_per_var)
    fast = False if plot_relative_error or plot_absolute_error else fast
    report = tapecheck.check_tape(tape, Tolerance(eps, atol, rtol), selection, choice, fast)
    report = _shown(report) if show_summary else report
    for launch in report.launches:
        if launch.report is not None:
            _plot_errors(launch.report, plot_relative_error, plot_absolute_error)
    if raise_exception:
        report.require_passed()
    return report


@explains_bad_calls(dim=_PLOTTED, outputs=_PLOTTED)
def plot_kernel_jacobians(
    jacobians: Mapping[Any, Any],
    kernel: Kernel | FunctionMetadata | None = None,
    inputs: Sequence[Any] | None = None,
    show_plot: bool = True,
    show_colorbar: bool = True,
    scale_colors_per_submatrix: bool = False,
    title: str | None = None,
    colormap: str = "coolwarm",
    log_scale: bool = False,
) -> Any:
    """Draw Jacobians as heatmaps, inputs across and outputs down, and return the Matplotlib figure.

    `kernel` (or metadata) with its `inputs` names the arguments where the dict holds plain matrices.  Without
    `title`, what `jacobian` returned is named after its function; ``title=""`` leaves that away.  The figure
    is shown in a notebook unless `show_plot` is false; elsewhere its text form is printed.
    """
    given: object = jacobians
    if not isinstance(given, Mapping):
        message = f"plot_kernel_jacobians draws what jacobian() returns, not {a_thing(given)}"
        raise refusal(KernelTypeError, message, "plot", _PLOTTED)
    parts = heatmap.panels(jacobians, _plot_labels(kernel, inputs))
    if not parts:
        raise refusal(GradientError, "there is no Jacobian to draw", "plot")
    above = title or ""
    if title is None and isinstance(jacobians, Jacobians):
        title = f"Jacobians of {jacobians.subject}"
    style = heatmap.Style(colormap, show_colorbar, scale_colors_per_submatrix, log_scale, title)
    drawn = heatmap.figure(parts, style)
    return figures.finish(drawn, lambda figure: heatmap.figure_view(figure, parts, above), show_plot)


jacobian_plot = plot_kernel_jacobians


@explains_bad_calls()
def plot_sparsity(
    jacobians: Mapping[Any, Jacobian] | Jacobian,
    color_groups: bool = True,
    title: str | None = None,
    show_plot: bool = True,
) -> Any:
    """Draw where Jacobians have entries, and return the Matplotlib figure.

    Columns, or rows, of one colour share no entry, and are computed together by ``jacobian(sparse=True)``.
    The figure is shown in a notebook unless `show_plot` is false; elsewhere its text form is printed.
    """
    if isinstance(jacobians, Jacobian):
        jacobians = {0: jacobians}
    if not isinstance(jacobians, Mapping) or not all(isinstance(j, Jacobian) for j in jacobians.values()):
        message = f"plot_sparsity draws what jacobian() returns, not {a_thing(jacobians)}"
        raise refusal(KernelTypeError, message, "plot", _PLOTTED)
    if not jacobians:
        raise refusal(GradientError, "there is no Jacobian to draw", "plot")
    parts = sparsity.spies(jacobians, color_groups)
    drawn = sparsity.figure(parts, title)
    return figures.finish(drawn, partial(sparsity.figure_view, parts=parts), show_plot)


@explains_bad_calls()
def taylor_test(
    function: Function,
    dim: int | Sequence[int] | None = None,
    inputs: Sequence[Any] | None = None,
    outputs: Sequence[Any] | None = None,
    *,
    device: Any = None,
    show_summary: bool = True,
) -> TaylorReport:
    """Measure how fast a kernel or function leaves the tangent of its adjoint, over steps from 0.1 down.

    `function`, `dim`, `inputs` and `outputs` are those of `jacobian`.  All inputs are moved along one random
    direction, in float64: the remainder falls with the square of the step if the gradient is the derivative,
    else with the step.  The report also holds the errors of central differences over the step; it is true
    if the slope is 2, and rules that users wrote are linear and agree in both modes, and shows two plots and
    a table unless `show_summary` is false.
    """
    report = taylor(_subject("taylor_test", function, dim, inputs, outputs, device, None))
    return _shown(report) if show_summary else report


def _shown(report: R) -> R:
    """Show a report in the cell that runs, and note that there."""
    display.show(report)
    return replace(report, shown_in=display.cell())


def _names(names: str | Sequence[str] | None) -> tuple[str, ...]:
    """Names of kernels, of which one may stand alone."""
    return (names,) if isinstance(names, str) else tuple(names or ())


def _plot_labels(
    kernel: Kernel | FunctionMetadata | None, inputs: Sequence[Any] | None
) -> tuple[Sequence[str], Sequence[str]] | None:
    if isinstance(kernel, Kernel):
        metadata = FunctionMetadata()
        metadata.update_from_kernel(kernel, inputs or ())
        kernel = metadata
    return None if kernel is None else (kernel.input_labels, kernel.output_labels)


def _plot_errors(report: GradcheckReport, relative: bool, absolute: bool) -> None:
    for kind, wanted in (("absolute", absolute), ("relative", relative)):
        if wanted:
            style = heatmap.Style("Reds", title=f"{kind} error of {report.kernel}", positive=True)
            parts = heatmap.panels(getattr(report, kind))
            shown = partial(heatmap.figure_view, parts=parts, title=style.title or "")
            figures.finish(heatmap.figure(parts, style), shown, show=True)


def _subject(
    what: str,
    function: Any,
    dim: int | Sequence[int] | None,
    inputs: Sequence[Any] | None,
    outputs: Sequence[Any] | None,
    device: Any,
    metadata: FunctionMetadata | None,
) -> Subject:
    """The function to differentiate."""
    place = None if device is None else get_device(device)
    if not callable(function):
        message = f"{what} takes a kernel or a Python function, not {a_thing(function)}"
        hint = f"put the launch's kernel and arguments here: {what}(kernel, dim=n, inputs=[...])"
        raise KernelTypeError.of(message, what, hint)
    name = function.name if isinstance(function, Kernel) else getattr(function, "__name__", "the function")
    span = function.span if isinstance(function, Kernel) else None
    if inputs is None:
        raise KernelTypeError.of(f"{what} of {name} needs inputs=", what, "write inputs=[x]", span)
    if dim is None and isinstance(function, Kernel):
        hint = "write dim=n, the number of threads that a launch has"
        raise KernelTypeError.of(f"{what} of {name} needs dim=", what, hint, span)
    sources, targets = _listed(what, name, "inputs", inputs), _listed(what, name, "outputs", outputs)
    require_place(place, [*sources, *targets], what)
    if isinstance(function, Kernel):
        subject = of_kernel(function, dim, sources, targets, what)
    else:
        subject = of_function(function, varied_inputs(function, sources), targets, what)
    return _named(subject, metadata)


def _listed(what: str, name: str, role: str, arguments: Any) -> list[Any]:
    """A list of arguments, of which one array may stand alone."""
    if arguments is None or isinstance(arguments, array):
        return [] if arguments is None else [arguments]
    if isinstance(arguments, str) or not isinstance(arguments, Sequence):
        message = f"{role}= of {what} is a list of the arguments of {name}, not {a_thing(arguments)}"
        raise refusal(KernelTypeError, message, what, f"write {role}=[...]")
    return list(arguments)


def _named(subject: Subject, metadata: FunctionMetadata | None) -> Subject:
    """The subject with the names that its user gives it."""
    given: object = metadata
    if not isinstance(given, FunctionMetadata | None):
        message = f"metadata= is a FunctionMetadata, not {a_thing(metadata)}"
        raise refusal(KernelTypeError, message, "metadata", "write metadata=FunctionMetadata(key=...)")
    if metadata is None or metadata.is_empty:
        return subject

    def renamed(variables: Any, labels: Sequence[str]) -> Any:
        return tuple(
            replace(v, label=labels[v.key]) if isinstance(v.key, int) and v.key < len(labels) else v
            for v in variables
        )

    name, labels = metadata.key or subject.name, metadata.output_labels
    outputs = None if subject.outputs is None else renamed(subject.outputs, labels)
    sources = renamed(subject.sources, metadata.input_labels)
    return replace(subject, name=name, sources=sources, outputs=outputs, labels=labels)
