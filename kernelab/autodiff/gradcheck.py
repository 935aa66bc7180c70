"""Checking the adjoint of a kernel against differences.

The adjoint is taken as it runs, in the kernel's own precision.  The differences are taken of a float64 build
of the same IR, central, at two steps, extrapolated: their error is then far below the tolerance, so a kernel
in float32 is not blamed for the noise of its differences.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernelab.autodiff.differences import Floats, Jacobians, Problem, blank, unevaluated
from kernelab.autodiff.differences import jacobians as differences
from kernelab.autodiff.tape import Tape
from kernelab.errors import Diagnostic, GradientError, TapeError
from kernelab.lang.structs import leaves
from kernelab.lang.types import Array, is_differentiable
from kernelab.runtime.arguments import wrong_count
from kernelab.runtime.array import array, clone, from_numpy, zeros_like
from kernelab.runtime.kernel import Kernel
from kernelab.runtime.launch import launch
from kernelab.runtime.recorder import unrecorded
from kernelab.runtime.signature import flattened

RELATIVE = 1e-3
"""The default tolerance, relative to the entry of the Jacobian."""

NOISE = 1e-5
"""What an entry may be off besides, relative to the largest entry of its Jacobian: rounding in float32."""

Index = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PairResult:
    """How the Jacobian of one output with respect to one input came out.

    `autodiff` and `numeric` are the two values of the worst entry, whose element of the output and of the
    input are `output_index` and `input_index` (with the component last, for vectors).
    """

    input: str
    output: str
    max_abs_error: float
    max_rel_error: float
    input_index: Index
    output_index: Index
    autodiff: float
    numeric: float
    entries: int
    passed: bool


@dataclass(frozen=True, slots=True, repr=False)
class GradcheckReport:
    """The outcome of a gradient check; true if every pair passed."""

    kernel: str
    pairs: tuple[PairResult, ...]
    shown: bool = False

    @property
    def passed(self) -> bool:
        return all(pair.passed for pair in self.pairs)

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        return f"<gradcheck of {self.kernel}: {'passed' if self else 'FAILED'}>"

    def worst(self) -> PairResult:
        """The pair with the largest relative error, failures first."""
        return max(self.pairs, key=lambda pair: (not pair.passed, pair.max_rel_error))

    def as_shown(self) -> "GradcheckReport":
        """The same report, for a caller that has displayed it already."""
        return replace(self, shown=True)


@dataclass(frozen=True, slots=True)
class Tolerance:
    """When an entry passes: ``|ad - fd| <= atol + rtol |fd|``; the defaults are relative to the Jacobian."""

    eps: float | None = None
    atol: float | None = None
    rtol: float | None = None

    def allowed(self, adjoint: Floats, numeric: Floats) -> Floats:
        """How far each entry may be off."""
        largest = min(_largest(adjoint), _largest(numeric))
        atol = NOISE * largest + np.finfo(np.float32).tiny if self.atol is None else self.atol
        rtol = RELATIVE if self.rtol is None else self.rtol
        return np.asarray(atol + rtol * np.abs(numeric))


def check_kernel(
    kernel: Kernel,
    dim: int | Sequence[int],
    inputs: Sequence[Any],
    outputs: Sequence[Any] = (),
    *,
    tolerance: Tolerance | None = None,
    max_inputs_per_var: int = -1,
    max_outputs_per_var: int = -1,
) -> GradcheckReport:
    """Compare every entry of every Jacobian of a kernel from its adjoint with differences.

    Inputs are the arrays of floats with ``requires_grad`` among the arguments, outputs those of `outputs`, or
    the arrays that the kernel changes.  The arguments keep their values and gradients, and nothing is
    recorded.  Raises GradientError if there is no entry to check.
    """
    outputs = [outputs] if isinstance(outputs, array) else outputs
    limit = tolerance or Tolerance()
    problem = _problem(kernel, dim, inputs, outputs, (max_inputs_per_var, max_outputs_per_var))
    with unrecorded():
        adjoint = _adjoint_jacobians(problem)
        numeric = differences(problem, limit.eps)
        if limit.eps is None:
            _look_closer(problem, adjoint, numeric, limit)
    pairs = [_compare(problem, pair, adjoint[pair], numeric[pair], limit) for pair in problem.pairs]
    return GradcheckReport(kernel.name, tuple(pairs))


def _problem(
    kernel: Kernel,
    dim: int | Sequence[int],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    limits: tuple[int, int],
) -> Problem:
    given, count = [*inputs, *outputs], len(inputs)
    formals = kernel.plan.formals
    if formals is not None:
        given = flattened(kernel.name, kernel.span, formals, given)
        count = sum(len(list(leaves(formal.type, ""))) for formal in formals[:count])
        kernel = kernel.by_leaves
    arguments = _arguments(kernel, given)
    names = list(arguments)
    found = kernel.effects
    only_changed = {var.hint for var in found.changed - found.reads}
    sources = [name for name in names[:count] if name not in only_changed]
    sources = [name for name in sources if _has_entries(arguments[name]) and arguments[name].requires_grad]
    listed = names[count:] or [var.hint for var in found.changed]
    targets = [name for name in names if name in listed and _has_entries(arguments[name])]
    if not sources or not targets:
        raise GradientError(_nothing_to_check(kernel, sources))
    return Problem(kernel, dim, arguments, tuple(sources), tuple(targets), *limits)


def _arguments(kernel: Kernel, given: list[Any]) -> dict[str, Any]:
    """The arguments by the names of the parameters; NumPy arrays as arrays, without a copy."""
    if len(given) != len(kernel.plan.parameters):
        raise wrong_count(kernel.name, kernel.plan.parameters, len(given), kernel.span)
    named: dict[str, Any] = {}
    for param, value in zip(kernel.primal.params, given, strict=True):
        borrowed = isinstance(param.type, Array) and isinstance(value, np.ndarray)
        named[param.hint] = from_numpy(value, dtype=param.type.elem) if borrowed else value  # type: ignore[union-attr]
    return named


def _has_entries(value: Any) -> bool:
    return isinstance(value, array) and is_differentiable(value.dtype) and value.size > 0


def _nothing_to_check(kernel: Kernel, sources: list[str]) -> Diagnostic:
    if not sources:
        message = f"0 pairs checked: no argument of {kernel.name} has requires_grad, and elements to vary"
        hint = "create the inputs with requires_grad=True"
    else:
        message = f"0 pairs checked: {kernel.name} changes no element of an array of floats"
        hint = "pass what the kernel writes as outputs="
    return Diagnostic(message, kernel.primal.span, "gradcheck", hint=hint)


def _adjoint_jacobians(problem: Problem) -> Jacobians:
    copies = _working_copies(problem)
    tape = Tape()
    with tape:
        launch(problem.kernel, problem.dim, [copies[name] for name in problem.arguments])
    found = {pair: blank(problem, pair) for pair in problem.pairs}
    for target in problem.targets:
        for row in problem.rows(target):
            tape.zero()
            _backward(tape, copies[target], row)
            for source in problem.sources:
                found[source, target][row] = copies[source].grad.numpy().reshape(-1)
    return found


def _working_copies(problem: Problem) -> dict[str, Any]:
    """Copies of the arguments; what was passed twice is one copy."""
    made: dict[int, Any] = {}
    for name, value in problem.arguments.items():
        if id(value) not in made:
            moved = name in problem.sources or name in problem.targets
            made[id(value)] = clone(value, requires_grad=moved) if isinstance(value, array) else value
        if isinstance(value, array) and (name in problem.sources or name in problem.targets):
            made[id(value)].requires_grad = True
    return {name: made[id(value)] for name, value in problem.arguments.items()}


def _backward(tape: Tape, target: array, row: int) -> None:
    seed = zeros_like(target, requires_grad=False)
    seed.numpy().reshape(-1)[row] = 1.0
    try:
        tape.backward(grads={target: seed})
    except TapeError as error:
        # A kernel without any derivative, such as a step function, has an adjoint of zero.
        if error.diagnostics[0].code != "unreached":
            raise


def _look_closer(problem: Problem, adjoint: Jacobians, numeric: Jacobians, limit: Tolerance) -> None:
    """Take differences that disagree again, much closer: the function may bend sharply there."""
    for pair in problem.pairs:
        off = _excess(adjoint[pair], numeric[pair], limit) > 1.0
        columns = np.flatnonzero(off.any(axis=0))
        if columns.size:
            closer = differences(problem, None, pair, columns.tolist(), scale=SMALLER)[pair]
            better = np.abs(closer - adjoint[pair]) < np.abs(numeric[pair] - adjoint[pair])
            numeric[pair][:] = np.where(off & better, closer, numeric[pair])


SMALLER = 1e-4
"""How much smaller the step is where a first difference disagrees with the adjoint."""


def _excess(adjoint: Floats, numeric: Floats, limit: Tolerance) -> Floats:
    """The error of each entry relative to what is allowed: above 1 it fails."""
    known = ~(unevaluated(adjoint) | unevaluated(numeric))
    allowed = np.maximum(limit.allowed(adjoint, numeric), np.finfo(np.float64).tiny)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, _errors(adjoint, numeric) / allowed, 0.0))


def _largest(jacobian: Floats) -> float:
    return float(np.abs(jacobian[np.isfinite(jacobian)]).max(initial=0.0))


def _errors(adjoint: Floats, numeric: Floats) -> Floats:
    """The absolute errors; an infinite or undefined entry is right only where both say the same."""
    with np.errstate(invalid="ignore"):
        error = np.abs(adjoint - numeric)
    return np.asarray(np.where(adjoint == numeric, 0.0, np.where(np.isfinite(error), error, np.inf)))


def _compare(
    problem: Problem, pair: tuple[str, str], adjoint: Floats, numeric: Floats, limit: Tolerance
) -> PairResult:
    source, target = pair
    known = ~(unevaluated(adjoint) | unevaluated(numeric))
    error, excess = np.where(known, _errors(adjoint, numeric), 0.0), _excess(adjoint, numeric, limit)
    row, column = np.unravel_index(int(np.argmax(excess)), excess.shape)
    scale = np.abs(numeric[row, column])
    relative = error[row, column] / scale if scale > 0 else (np.inf if error[row, column] > 0 else 0.0)
    return PairResult(
        source,
        target,
        float(error.max()),
        float(relative),
        _index(problem.arguments[source], int(column)),
        _index(problem.arguments[target], int(row)),
        float(adjoint[row, column]),
        float(numeric[row, column]),
        int(known.sum()),
        bool(excess.max() <= 1.0),
    )


def _index(value: array, position: int) -> Index:
    return tuple(int(i) for i in np.unravel_index(position, value.numpy().shape))
