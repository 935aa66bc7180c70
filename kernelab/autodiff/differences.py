"""Jacobians of a kernel by central differences, in float64, extrapolated.

Knows how to run the float64 build of a kernel on copies of its arguments; must not know adjoints.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelab.lang.types import Array, Scalar, is_differentiable
from kernelab.passes.widen import widened
from kernelab.runtime.array import array, from_numpy
from kernelab.runtime.kernel import Kernel
from kernelab.runtime.launch import launch

STEP = 1e-3
"""The larger step of the differences, relative to the size of the input element where that exceeds 1."""

Floats = np.ndarray[Any, np.dtype[np.float64]]
Pair = tuple[str, str]
Jacobians = dict[Pair, Floats]


@dataclass(frozen=True, slots=True)
class Problem:
    """A launch, which of its arrays are varied and which are looked at, and how many elements of each."""

    kernel: Kernel
    dim: int | Sequence[int]
    arguments: Mapping[str, Any]
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    max_inputs: int = -1
    max_outputs: int = -1

    @property
    def pairs(self) -> list[Pair]:
        return [(source, target) for source in self.sources for target in self.targets]

    def rows(self, target: str) -> range:
        """The elements of an output that are looked at."""
        return _first(self.count(target), self.max_outputs)

    def columns(self, source: str) -> range:
        """The elements of an input that are varied."""
        return _first(self.count(source), self.max_inputs)

    def count(self, name: str) -> int:
        """How many scalars an argument holds."""
        return int(self.arguments[name].numpy().size)


def _first(count: int, limit: int) -> range:
    return range(count if limit <= 0 else min(limit, count))


UNEVALUATED = np.uint64(0x7FF8_0000_4B4C_0001)
"""The NaN of entries that were left out, told from a NaN that was computed by its bits."""


def blank(problem: Problem, pair: Pair) -> Floats:
    """A Jacobian of which nothing is known: outputs down, inputs across."""
    source, target = pair
    return np.full((problem.count(target), problem.count(source)), UNEVALUATED).view(np.float64)


def unevaluated(jacobian: Floats) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which entries were left out."""
    return np.asarray(jacobian.view(np.uint64) == UNEVALUATED)


def jacobians(
    problem: Problem,
    eps: float | None = None,
    pair: Pair | None = None,
    columns: Sequence[int] | None = None,
    scale: float = 1.0,
) -> Jacobians:
    """The Jacobians, or some columns of one, at the step `eps` or `scale` times the default step."""
    found = {each: blank(problem, each) for each in problem.pairs}
    evaluator = _Evaluator(problem)
    for source in problem.sources if pair is None else (pair[0],):
        for column in problem.columns(source) if columns is None else columns:
            slopes = evaluator.slopes(source, column, eps, scale)
            for target in problem.targets:
                found[source, target][:, column] = slopes[target]
    return found


class _Evaluator:
    """Runs the float64 build of a problem's kernel with one element of one input moved."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.kernel = problem.kernel.widened()
        # An array that was passed twice is one array here too.
        self.start = {id(value): _wide_values(value) for value in problem.arguments.values()}
        self.types = {param.hint: widened(param.type) for param in self.kernel.primal.params}

    def slopes(self, source: str, column: int, eps: float | None, scale: float) -> dict[str, Floats]:
        """The derivative of every output element along one input element, by Richardson extrapolation."""
        value = float(self.start[id(self.problem.arguments[source])].reshape(-1)[column])
        step = scale * STEP * max(1.0, abs(value)) if eps is None else eps
        coarse, fine = self.central(source, column, step), self.central(source, column, step / 2)
        return {target: (4.0 * fine[target] - coarse[target]) / 3.0 for target in self.problem.targets}

    def central(self, source: str, column: int, step: float) -> dict[str, Floats]:
        ahead, behind = (self.outputs(source, column, shift) for shift in (step, -step))
        with np.errstate(invalid="ignore"):
            return {target: (ahead[target] - behind[target]) / (2.0 * step) for target in ahead}

    def outputs(self, source: str, column: int, shift: float) -> dict[str, Floats]:
        values = {key: value.copy() for key, value in self.start.items() if isinstance(value, np.ndarray)}
        named = {name: values.get(id(given), given) for name, given in self.problem.arguments.items()}
        named[source].reshape(-1)[column] += shift
        arguments = [_argument(value, self.types[name]) for name, value in named.items()]
        launch(self.kernel, self.problem.dim, arguments, record_tape=False)
        return {target: named[target].reshape(-1) for target in self.problem.targets}


def _wide_values(value: Any) -> Any:
    if not isinstance(value, array):
        return value
    values = value.numpy()
    return values.astype(np.float64) if is_differentiable(value.dtype) else values.copy()


def _argument(value: Any, type: Any) -> Any:
    """An array over the values, also for a number that an array of one element stands for."""
    if not isinstance(value, np.ndarray) or not isinstance(type, Array | Scalar):
        return value
    return from_numpy(value, dtype=type.elem if isinstance(type, Array) else type)
