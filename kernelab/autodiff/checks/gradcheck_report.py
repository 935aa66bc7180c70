"""What `gradcheck` reports: the worst entry of each Jacobian, and what its failure means."""

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from kernelab.autodiff.checks.screening import Fault
from kernelab.autodiff.checks.tolerance import errors, relative
from kernelab.autodiff.checks.witnesses import Pair
from kernelab.autodiff.jacobians.differences import UNSTEADY
from kernelab.autodiff.jacobians.jacobian import Jacobians
from kernelab.data_classes import dataclass, replace
from kernelab.errors import Diagnostic, GradientError, Related, Span
from kernelab.guidance.missing_names import ReportHints
from kernelab.hooks import ShownOnce
from kernelab.passes.access.dead_ends import DeadEnd
from kernelab.runtime.context.recorder import refusal

Index = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a Jacobian: elements of the output and the input, and its two values."""

    input_index: Index
    output_index: Index
    autodiff: float
    numeric: float

    @property
    def abs_error(self) -> float:
        """The distance of the values; infinite where one of them is not finite and they differ."""
        return float(errors(np.asarray(self.autodiff), np.asarray(self.numeric)))

    @property
    def rel_error(self) -> float:
        """The same, relative to the difference quotient."""
        return relative(self.abs_error, self.numeric)


@dataclass(frozen=True, slots=True)
class PairResult:
    """The result for the Jacobian of one output with respect to one input.

    `autodiff` and `numeric` are the two values of the worst entry, whose element of the output and of the
    input are `output_index` and `input_index` (with the component last, for vectors).  `verdict` says what a
    failure means, as `VERDICTS` lists them; "" where the pair passed, but "sub-gradient" where it did so at a
    kink.  `explanation` says more where more is known, `span` is the source line at fault, and `others` are
    the next worst entries that failed.

    A pair that passed along random directions has no worst entry: `directions` counts the products that were
    compared, the two values are those of the worst, and the indices are empty.  The relative error is then
    that of the product, relative to the root of the sum of the squares of its terms.
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
    verdict: str = ""
    directions: int = 0
    explanation: str = ""
    span: Span | None = None
    others: tuple[Entry, ...] = ()

    def failing(self, fault: Fault) -> "PairResult":
        """The same result, failed by a fault."""
        verdict, explanation, span = fault.verdict, fault.explanation, fault.span
        return replace(self, passed=False, verdict=verdict, explanation=explanation, span=span)

    @property
    def at_fault(self) -> tuple[Related, ...]:
        """The source line at fault, if it is known."""
        return () if self.span is None else (Related(f"{self.explanation}:", self.span),)

    @property
    def advice(self) -> str:
        """The meaning of the verdict."""
        return VERDICTS.get(
            self.verdict, "a kink near the inputs gives this too: try a smaller eps, or other inputs"
        )


VERDICTS = {
    "custom": "the derivative that a user wrote for a function is not its derivative: correct the formula",
    "builtin": "the rule of a builtin is not its derivative: that is a fault of kernelab, please report it",
    "surrogate": "a builtin whose derivative is not that of its value, on purpose, stands in between",
    "precision": "the formula is right: in float64, at the same inputs, the adjoint agrees with the "
    "differences; the kernel's own precision keeps too few digits: compute it in another way, or in float64",
    "kink": "the function has a kink or a jump near these inputs, where it has no derivative",
    "sub-gradient": "it passes by symmetry alone: the function has a kink at these inputs, the slopes of the "
    "two sides differ, and both the adjoint and the differences are a value between them",
    "race": "the result depends on the order in which threads run: several store to one element, or read "
    "what others change, so there is no derivative",
    "host": "the result follows the inputs through values that the host computes, by NumPy or as numbers, "
    "through which no derivative goes: compute them with kernels",
    "nondeterministic": "two runs at the same inputs differ: the function draws random numbers, counts, or "
    "adds to an array from outside; or threads race for an element, or memory is not set",
    "adjoint": "the tangent agrees with the differences: the adjoint is at fault, by an overwritten value, a "
    "race between threads, or a wrong custom gradient",
    "not finite": "a derivative, or the function beside these inputs, is infinite or not a number: choose "
    "inputs inside the domain, away from its border",
    "nonlinear": "the adjoint is not in proportion to the cotangent: a rule that a user wrote clips, rounds "
    "or branches on what it has to multiply by",
    "tangent": "the tangent is not that of the adjoint, which agrees with the differences: correct the jvp "
    "function that a user wrote",
    "both": "adjoint and tangent agree with each other: the inputs are near a kink or a jump, or a custom "
    "derivative is wrong",
    "chaos": "adjoint and tangent agree, and are so large that the next float of the input would change "
    "the output by more than its size, as after many steps of a chaotic loop: differences cannot tell, and a "
    "step along such a gradient says nothing",
    "all differ": "adjoint, tangent and differences all differ: a custom derivative is wrong, or the inputs "
    "are near a kink",
}
"""What each verdict of a failed pair means."""


@dataclass(frozen=True, slots=True, repr=False)
class GradcheckReport(ReportHints, ShownOnce):
    """The outcome of a gradient check; true if every pair passed.

    `zeros` are lines through which values go on with a derivative of 0 by construction, if it passed.
    """

    kernel: str
    pairs: tuple[PairResult, ...]
    shown_in: int | None = None
    compared: tuple[Pair, ...] = ()
    zeros: tuple[DeadEnd, ...] = ()

    @property
    def absolute(self) -> Jacobians:
        """The errors of all entries, as matrices; GradientError where only directions were compared."""
        return self._errors(lambda pair: 1.0)

    @property
    def relative(self) -> Jacobians:
        """The same, relative to the differences."""
        smallest = np.finfo(np.float64).tiny
        return self._errors(lambda pair: np.maximum(np.abs(pair.numeric), smallest))

    def _errors(self, size: Callable[[Pair], Any]) -> Jacobians:
        if any(pair.directions for pair in self.pairs):
            message = f"the gradient of {self.kernel} was compared along directions: no entry has an error"
            hint = "check every entry: gradcheck(..., fast=False)"
            raise refusal(GradientError, message, "gradcheck", hint)
        every = (p.matrix(errors(p.adjoint, p.numeric) / size(p)) for p in self.compared)
        return Jacobians(self.kernel, [*every])

    @property
    def passed(self) -> bool:
        return all(pair.passed for pair in self.pairs)

    @property
    def without_gradient(self) -> Collection[str]:
        """The inputs by which every derivative is 0, in their order."""
        moving = {pair.input for pair in self.pairs if pair.autodiff or not pair.passed}
        moving |= {pair.input.label for pair in self.compared if pair.adjoint.any()}
        return [name for name in dict.fromkeys(pair.input for pair in self.pairs) if name not in moving]

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        return f"<gradcheck of {self.kernel}: {'passed' if self else 'FAILED'}>"

    def worst(self) -> PairResult:
        """The pair with the largest relative error, failures first."""
        return max(self.pairs, key=lambda pair: (not pair.passed, pair.max_rel_error))

    def failure(self, span: Span | None) -> Diagnostic:
        """The error for a check that failed, of a kernel that stands at `span`."""
        worst = self.worst()
        is_explained = worst.verdict in ("race", "nonlinear", "tangent", "nondeterministic")
        explanation = f": {worst.explanation}" * bool(worst.explanation)
        entry = f"d {worst.output}{list(worst.output_index)} / d {worst.input}{list(worst.input_index)}"
        if worst.verdict == "race":
            message = f"the result of {self.kernel} depends on the order of its threads{explanation}"
            span = worst.span or span
        elif worst.verdict in ("nonlinear", "tangent"):
            message = (
                f"a derivative that {self.kernel} uses is wrong where differences cannot tell{explanation}"
            )
            span = worst.span or span
        elif worst.verdict == "nondeterministic":
            message = f"{UNSTEADY.format(self.kernel)}: there is nothing to compare"
        elif worst.verdict == "host":
            message = f"the gradient of {self.kernel} leaves out what the host computes for {worst.output}"
        else:
            lost = worst.verdict == "precision"
            what = "has lost its digits" if lost else "is not its derivative"
            message = f"the gradient of {self.kernel} {what}: {entry} is {worst.autodiff:.6g} by the adjoint "
            message += f"and {worst.numeric:.6g} by differences{' and by the adjoint in float64' * lost}"
        related = () if is_explained else worst.at_fault
        return Diagnostic(message, span, "gradcheck", hint=worst.advice, related=related)
