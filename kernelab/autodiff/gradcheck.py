"""Checking the adjoint of a kernel against differences.

The adjoint is taken as it runs, in the kernel's own precision.  The differences are taken of a float64 build
of the same IR, central, at two steps, extrapolated: their error is then far below the tolerance, so a kernel
in float32 is not blamed for the noise of its differences.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernelab.autodiff.tape import Tape
from kernelab.errors import Diagnostic, GradientError
from kernelab.lang.types import Array, is_differentiable
from kernelab.passes.widen import widened
from kernelab.runtime.array import array, clone, from_numpy, zeros_like
from kernelab.runtime.kernel import Kernel
from kernelab.runtime.launch import launch

STEP = 1e-3
"""The larger step of the differences, relative to the size of the input element where that exceeds 1."""

RELATIVE = 1e-3
"""The default tolerance, relative to the entry of the Jacobian."""

NOISE = 1e-5
"""What an entry may be off besides, relative to the largest entry of its Jacobian: rounding in float32."""

Index = tuple[int, ...]
Floats = np.ndarray[Any, np.dtype[np.float64]]


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

    def allowed(self, numeric: Floats) -> Floats:
        finite = numeric[np.isfinite(numeric)]
        largest = float(np.abs(finite).max()) if finite.size else 0.0
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
    the arrays that the kernel changes.  The arguments keep their values and gradients.  Raises GradientError
    if there is no pair to check.
    """
    arguments = dict(zip((p.hint for p in kernel.primal.params), (*inputs, *outputs), strict=True))
    sources = _sources(kernel, arguments, len(inputs))
    targets = _outputs(kernel, arguments, len(inputs))
    if not sources or not targets:
        raise GradientError(_nothing_to_check(kernel, sources))
    limit = tolerance or Tolerance()
    adjoint = _adjoint_jacobians(kernel, dim, arguments, sources, targets, max_outputs_per_var)
    numeric = _numeric_jacobians(kernel, dim, arguments, sources, targets, max_inputs_per_var, limit.eps)
    return GradcheckReport(
        kernel.name,
        tuple(
            _compare(arguments, source, target, adjoint[source, target], numeric[source, target], limit)
            for source in sources
            for target in targets
        ),
    )


def _is_checked(value: Any) -> bool:
    return isinstance(value, array) and is_differentiable(value.dtype)


def _sources(kernel: Kernel, arguments: Mapping[str, Any], input_count: int) -> list[str]:
    only_changed = {var.hint for var in kernel.effects.changed - kernel.effects.reads}
    listed = [name for name in list(arguments)[:input_count] if name not in only_changed]
    return [name for name in listed if _is_checked(arguments[name]) and arguments[name].requires_grad]


def _outputs(kernel: Kernel, arguments: Mapping[str, Any], input_count: int) -> list[str]:
    listed = list(arguments)[input_count:] or [var.hint for var in kernel.effects.changed]
    return [name for name in arguments if name in listed and _is_checked(arguments[name])]


def _nothing_to_check(kernel: Kernel, sources: list[str]) -> Diagnostic:
    if not sources:
        return Diagnostic(
            f"0 pairs checked: no argument of {kernel.name} has requires_grad",
            kernel.primal.span,
            "gradcheck",
            hint="create the inputs with requires_grad=True",
        )
    return Diagnostic(
        f"0 pairs checked: {kernel.name} changes no array of floats",
        kernel.primal.span,
        "gradcheck",
        hint="pass what the kernel writes as outputs=",
    )


Jacobians = dict[tuple[str, str], Floats]


def _adjoint_jacobians(
    kernel: Kernel,
    dim: int | Sequence[int],
    arguments: Mapping[str, Any],
    sources: list[str],
    targets: list[str],
    max_outputs: int,
) -> Jacobians:
    copies = {
        name: _working_copy(value, name in sources or name in targets) for name, value in arguments.items()
    }
    tape = Tape()
    with tape:
        launch(kernel, dim, list(copies.values()))
    jacobians = {(s, t): _empty(arguments[t], arguments[s]) for s in sources for t in targets}
    for target in targets:
        for row in _chosen(_count(arguments[target]), max_outputs):
            tape.zero()
            tape.backward(grads={copies[target]: _unit(copies[target], row)})
            for source in sources:
                jacobians[source, target][row] = copies[source].grad.numpy().reshape(-1)
    return jacobians


def _working_copy(value: Any, requires_grad: bool) -> Any:
    return clone(value, requires_grad=requires_grad) if isinstance(value, array) else value


def _unit(like: array, position: int) -> array:
    seed = zeros_like(like, requires_grad=False)
    seed.numpy().reshape(-1)[position] = 1.0
    return seed


def _numeric_jacobians(
    kernel: Kernel,
    dim: int | Sequence[int],
    arguments: Mapping[str, Any],
    sources: list[str],
    targets: list[str],
    max_inputs: int,
    eps: float | None,
) -> Jacobians:
    wide = kernel.widened()
    start = {
        name: _wide_values(value, param.type)
        for (name, value), param in zip(arguments.items(), kernel.primal.params, strict=True)
    }
    jacobians = {(s, t): _empty(arguments[t], arguments[s]) for s in sources for t in targets}
    for source in sources:
        for column in _chosen(_count(arguments[source]), max_inputs):
            slopes = _differences(wide, dim, start, source, column, targets, eps)
            for target in targets:
                jacobians[source, target][:, column] = slopes[target]
    return jacobians


def _wide_values(value: Any, type: Any) -> Any:
    if not isinstance(type, Array):
        return value
    values = value.numpy() if isinstance(value, array) else np.asarray(value)
    return values.astype(np.float64) if is_differentiable(type) else values.copy()


def _differences(
    wide: Kernel,
    dim: int | Sequence[int],
    start: Mapping[str, Any],
    source: str,
    column: int,
    targets: list[str],
    eps: float | None,
) -> dict[str, Floats]:
    """The derivative of every output element along one input element, by Richardson extrapolation."""
    value = float(start[source].reshape(-1)[column])
    step = STEP * max(1.0, abs(value)) if eps is None else eps
    coarse, fine = (_central(wide, dim, start, source, column, targets, h) for h in (step, step / 2))
    return {target: (4.0 * fine[target] - coarse[target]) / 3.0 for target in targets}


def _central(
    wide: Kernel,
    dim: int | Sequence[int],
    start: Mapping[str, Any],
    source: str,
    column: int,
    targets: list[str],
    step: float,
) -> dict[str, Floats]:
    ahead, behind = (_evaluate(wide, dim, start, source, column, targets, h) for h in (step, -step))
    return {target: (ahead[target] - behind[target]) / (2.0 * step) for target in targets}


def _evaluate(
    wide: Kernel,
    dim: int | Sequence[int],
    start: Mapping[str, Any],
    source: str,
    column: int,
    targets: list[str],
    shift: float,
) -> dict[str, Floats]:
    values = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in start.items()}
    values[source].reshape(-1)[column] += shift
    types = {param.hint: widened(param.type) for param in wide.primal.params}
    arguments = [_array_of(values[name], types[name]) for name in values]
    launch(wide, dim, arguments, record_tape=False)
    return {target: values[target].reshape(-1) for target in targets}


def _array_of(value: Any, type: Any) -> Any:
    return from_numpy(value, dtype=type.elem) if isinstance(type, Array) else value


def _compare(
    arguments: Mapping[str, Any], source: str, target: str, adjoint: Floats, numeric: Floats, limit: Tolerance
) -> PairResult:
    known = ~(_unevaluated(adjoint) | _unevaluated(numeric))
    error = np.where(known, np.abs(adjoint - numeric), 0.0)
    # An infinite or undefined entry passes only where both say the same.
    alike = (adjoint == numeric) & known
    error = np.where(alike, 0.0, np.where(np.isfinite(error), error, np.inf))
    excess = np.where(known, error / np.maximum(limit.allowed(numeric), np.finfo(np.float64).tiny), 0.0)
    row, column = np.unravel_index(int(np.argmax(excess)), excess.shape)
    scale = np.abs(numeric[row, column])
    relative = error[row, column] / scale if scale > 0 else (np.inf if error[row, column] > 0 else 0.0)
    return PairResult(
        source,
        target,
        float(error.max()),
        float(relative),
        _index(arguments[source], int(column)),
        _index(arguments[target], int(row)),
        float(adjoint[row, column]),
        float(numeric[row, column]),
        int(known.sum()),
        bool(excess.max() <= 1.0),
    )


UNEVALUATED = np.uint64(0x7FF8_0000_4B4C_0001)
"""The NaN of entries that were left out, told from a NaN that was computed by its bits."""


def _unevaluated(jacobian: Floats) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.asarray(jacobian.view(np.uint64) == UNEVALUATED)


def _empty(output: array, input: array) -> Floats:
    return np.full((_count(output), _count(input)), UNEVALUATED).view(np.float64)


def _count(value: array) -> int:
    return int(value.numpy().size)


def _chosen(count: int, limit: int) -> Iterator[int]:
    yield from range(count if limit <= 0 else min(limit, count))


def _index(value: array, position: int) -> Index:
    return tuple(int(i) for i in np.unravel_index(position, value.numpy().shape))
