"""Checks derivatives against finite differences, with the tangent as third witness where the two disagree.

The adjoint is taken in float64, where it must agree with differences, and as it runs, in the kernel's own
precision, where it must agree with that in float64.  The differences are taken of a float64 build of the same
IR, central, at two steps, extrapolated: their error is then far below the tolerance, so a kernel in float32
is not blamed for the noise of its differences.  Where they disagree, the tangent program says whose fault it
is.

Of a large Jacobian without a pattern, random directions are compared first; only where these do not agree are
entries looked at: all of a pattern, or those of suspect columns.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from functools import cache, partial
from typing import Literal

import numpy as np

from kernelab.autodiff.checks.blame import blame, blame_infinite
from kernelab.autodiff.checks.gradcheck_report import Entry, GradcheckReport, Index, PairResult
from kernelab.autodiff.checks.lost_digits import parted
from kernelab.autodiff.checks.screening import DIRECTIONS, Products, Screening, faults, require_chain, screen
from kernelab.autodiff.checks.thread_order import Race, racing_outputs
from kernelab.autodiff.checks.tolerance import Tolerance, errors, relative, require_entries, settle
from kernelab.autodiff.checks.witnesses import FINEST, SCALES, Listed, Pair, Witnesses, by_pattern
from kernelab.autodiff.jacobians.differences import SIZES, Floats, numbers, told_apart
from kernelab.autodiff.jacobians.jacobian import Selection, Trace
from kernelab.autodiff.jacobians.subject import Key, Subject, Variable, outside_transforms
from kernelab.autodiff.transforms.base_level import BASE
from kernelab.autodiff.transforms.forward_and_reverse import Reverse, Run
from kernelab.autodiff.transforms.wide_level import Wide
from kernelab.data_classes import replace
from kernelab.errors import Diagnostic, KernelRaceError, KernelValueError
from kernelab.passes.access.dead_ends import DeadEnd
from kernelab.runtime.context.recorder import refusal
from kernelab.runtime.launch.launch import find_races
from kernelab.settings import changed_settings

LARGE = 1 << 14
"""From how many entries on random directions are compared first."""

Fast = bool | Literal["auto"]
"""Whether random directions are compared before entries are: "auto" is where there are many."""

LITTLE = 1e-3
"""Which share of the error of the worst entry says nothing about its cause."""

MOST_NAMED = 5
"""How many entries of a pair that failed are named."""


def require_choice(value: object, name: str, code: str) -> None:
    """Raise KernelValueError unless a value is True, False or "auto"."""
    if not isinstance(value, bool) and value != "auto":
        raise refusal(KernelValueError, f"{name}={value!r} says nothing", code, 'use True, False or "auto"')


def check(
    subject: Subject,
    tolerance: Tolerance | None = None,
    selection: Selection | None = None,
    fast: Fast = "auto",
) -> GradcheckReport:
    """Compare every Jacobian of a subject from its adjoint with differences.

    Every entry, or with `fast` random directions, and entries where these do not agree.  The arguments keep
    their values and gradients, and nothing is recorded.  Raises GradientError if there is no entry to check.
    """
    tolerance, selection = tolerance or Tolerance(), selection or Selection()
    require_choice(fast, "fast", "gradcheck")
    with outside_transforms("gradcheck"):
        report = _compared(subject, tolerance, selection, fast)
        require_entries(subject.name, sum(pair.entries for pair in report.pairs), "gradcheck")
        exact = Trace(subject, Wide(BASE)) if report else None
        if exact is not None:
            report = _with_rules(subject, report, selection, exact)
        by_host, unsteady = told_apart(subject)
        trace = Trace(subject) if by_host else None
    pairs = []
    for pair in report.pairs:
        if trace is not None and (pair.input, pair.output) in by_host:
            span = trace.taken_at(pair.input)
            explanation = "the host takes values here" if span else ""
            pair = replace(pair, passed=False, verdict="host", explanation=explanation, span=span)
        elif pair.output in unsteady and pair.verdict != "race":
            pair = replace(pair, passed=False, verdict="nondeterministic")
        pairs.append(pair)
    report = replace(report, pairs=tuple(pairs))
    if report and exact is not None:
        require_chain(subject, exact, "gradcheck")
    return report


def _with_rules(
    subject: Subject, report: GradcheckReport, selection: Selection, exact: Trace
) -> GradcheckReport:
    """The report, where rules that users wrote fail by what neither entries nor differences show."""
    by_labels = {
        (subject.sources[i].label, exact.targets[j].label): fault
        for (i, j), fault in faults(exact, selection).items()
    }
    pairs = []
    for pair in report.pairs:
        fault = by_labels.get((pair.input, pair.output))
        pairs.append(pair if fault is None else pair.failing(fault))
    zeros = dead_ends_of(exact.level, report.without_gradient if subject.kernel is not None else ())
    return replace(report, pairs=tuple(pairs), zeros=tuple(zeros))


def dead_ends_of(level: Reverse, without_gradient: Collection[str] = ()) -> Iterable[DeadEnd]:
    """The lines through which values of the inputs go on, and their derivatives do not.

    A condition is one where a parameter is `without_gradient`: it may do nothing but decide.
    """
    by_line: dict[str, DeadEnd] = {}
    for entry in level.entries:
        if isinstance(entry, Run):
            for end, source, _ in entry.dead_ends:
                is_all = not end.is_condition or end.source in without_gradient
                if is_all and level.carries(source.allocation):
                    by_line.setdefault(str(end.span), end)
    return by_line.values()


OF_RACES = 4
"""How many numbers of each input are looked at where threads race, which is to be mended first."""


def _compared(subject: Subject, tolerance: Tolerance, selection: Selection, fast: Fast) -> GradcheckReport:
    races, screening = racing_outputs(subject), Screening()
    if fast and not races:
        screening = screen(subject, selection, tolerance.eps, least=0 if fast is True else LARGE)
        if screening.agreed:
            repeated = screening if tolerance.eps is None else screen(subject, selection, None)
            if not repeated.suspects:
                agreed = tuple(_along_directions(selection, *each) for each in screening.agreed)
                return GradcheckReport(subject.name, agreed)
            # Products agree at the step `eps` alone: entries tell whether it says anything.
            screening = repeated
    if races:
        sources = enumerate(subject.sources)
        few = {i: np.arange(min(OF_RACES, selection.columns(source))) for i, source in sources}
        witnesses: Witnesses | None = Listed(subject, selection, tolerance.eps, few)
    else:
        witnesses = by_pattern(subject, selection, tolerance.eps)
    if witnesses is None and screening.suspects:
        suspected = Listed(subject, selection, tolerance.eps, screening.suspects)
        results = _entry_by_entry(subject, suspected, tolerance)
        # Where these pass, others have made the products differ.
        if not all(result.passed for result in results):
            return GradcheckReport(subject.name, tuple(results), compared=tuple(suspected.pairs))
    if witnesses is None:
        witnesses = Listed(subject, selection, tolerance.eps)
    results = _entry_by_entry(subject, witnesses, tolerance, races)
    pairs = zip(witnesses.pairs, results, strict=True)
    results = [_with_race(subject, pair, result, races) for pair, result in pairs]
    return GradcheckReport(subject.name, tuple(results), compared=tuple(witnesses.pairs))


def _entry_by_entry(
    subject: Subject, witnesses: Witnesses, tolerance: Tolerance, races: Collection[Key] = ()
) -> list[PairResult]:
    """Compare the entries, with a verdict for each pair that fails, but for outputs that are raced."""
    if tolerance.eps is None:
        for k, pair in enumerate(witnesses.pairs):
            witnesses.correct_tiny(k, tolerance.excess(pair) <= 1.0)
        judged = ((k, pair) for k, pair in enumerate(witnesses.pairs) if pair.output.key not in races)
        failing = {k: entries for k, pair in judged if (entries := tolerance.excess(pair) > 1.0).any()}
        # The function may bend sharply there: take differences again, with smaller steps.
        estimates = {k: witnesses.estimates(k, entries) for k, entries in failing.items()}
        for k, entries in failing.items():
            settle(
                witnesses.pairs[k], entries, estimates[k], 0.0, partial(witnesses.estimate, k, scale=FINEST)
            )
        # What sums of large terms lose to rounding takes several runs to find, and more may agree by it.
        unsettled = [k for k in failing if (tolerance.excess(witnesses.pairs[k]) > 1.0).any()]
        for k, sizes in zip(unsettled, witnesses.terms(unsettled) if unsettled else (), strict=True):
            settle(
                witnesses.pairs[k],
                failing[k],
                estimates[k],
                sizes,
                partial(witnesses.estimate, k, scale=FINEST),
            )
    else:
        for k, pair in enumerate(witnesses.pairs):
            witnesses.correct_step(k, tolerance.excess(pair) <= 1.0, tolerance.eps)
    results = [_compare(pair, tolerance) for pair in witnesses.pairs]
    pairs = zip(witnesses.pairs, results, strict=True)
    if not all(result.passed or pair.output.key in races for pair, result in pairs):
        return _judged(subject, witnesses, results, tolerance)
    if races:
        return results
    return [_with_kink(subject, witnesses, k, result, tolerance) for k, result in enumerate(results)]


def _with_kink(
    subject: Subject, witnesses: Witnesses, k: int, result: PairResult, tolerance: Tolerance
) -> PairResult:
    """A result that passed, with the slopes of the two sides where they differ."""
    at, pair = witnesses.sharpest_kink(k), witnesses.pairs[k]
    if at is None:
        return result
    entry, half = _entry(pair, at), pair.bend[at] / 2
    text = f"d {pair.output.label}{list(entry.output_index)} / d {pair.input.label}{list(entry.input_index)} "
    text += f"is {entry.autodiff:.6g} by the adjoint; the slope is {entry.numeric - half:.6g} to the left "
    text += f"and {entry.numeric + half:.6g} to the right"
    cause = blame(subject, subject.sources.index(pair.input), pair.place(at)[1], tolerance.eps)
    if cause is not None:
        text += f": {cause.explanation}"
    span = None if cause is None else cause.span
    return replace(result, verdict="sub-gradient", explanation=text, span=span)


def _with_race(subject: Subject, pair: Pair, result: PairResult, races: Mapping[Key, Race]) -> PairResult:
    """The result of a pair whose output may depend on the order of threads: then it has no derivative."""
    first = races.get(pair.output.key)
    if first is None:
        return result
    index = _index(pair.output, first.position)
    name = f"{pair.output.label}[{', '.join(map(str, index))}]"
    usual, turned = f"{first.usual:.6g}", f"{first.turned:.6g}"
    message = f"{name} is {usual} if the first thread runs first, {turned} if the last does"
    collision, span = _collision(subject), None
    if collision is not None:
        message, span = f"{message}; {collision.message}", collision.span
    return replace(result, passed=False, verdict="race", output_index=index, explanation=message, span=span)


def _collision(subject: Subject) -> Diagnostic | None:
    """The first two threads of a launch that meet, None if none are found."""
    if subject.kernel is not None:
        found = find_races(subject.kernel, subject.grid, subject.arguments)
        return found[0].describe() if found else None
    try:
        with changed_settings(check_races=True):
            subject.start().go(BASE)
    except KernelRaceError as error:
        return error.diagnostics[0]
    return None


def _along_directions(
    selection: Selection, source: Variable, target: Variable, products: Products
) -> PairResult:
    adjoint, numeric, scale = products
    error, entries = abs(adjoint - numeric), selection.entries(source, target)
    share = error / scale if scale else 0.0
    return PairResult(
        source.label, target.label, error, share, (), (), adjoint, numeric, entries, True, "", DIRECTIONS**2
    )


def _judged(
    subject: Subject, witnesses: Witnesses, results: Sequence[PairResult], tolerance: Tolerance
) -> list[PairResult]:
    """The results with a verdict for those that failed."""
    repeated, tangents = witnesses.adjoints(BASE, range(len(witnesses.pairs))), cache(witnesses.tangents)
    judged = []
    for k, (pair, result) in enumerate(zip(witnesses.pairs, results, strict=True)):
        if not result.passed:
            if not np.array_equal(pair.adjoint, repeated[k], equal_nan=True):
                result = replace(result, verdict="nondeterministic")
            elif (imprecise := _imprecise(subject, pair, result, tolerance)) is not None:
                result = imprecise
            else:
                by_tangent = tangents()
                verdict = _verdict(pair, None if by_tangent is None else by_tangent[k], tolerance)
                verdict = "chaos" if verdict == "both" and _is_chaotic(witnesses, k, tolerance) else verdict
                result = _explained(subject, pair, replace(result, verdict=verdict), tolerance)
        judged.append(result)
    return judged


def _imprecise(subject: Subject, pair: Pair, result: PairResult, tolerance: Tolerance) -> PairResult | None:
    """The result where the adjoint fails by its precision alone: in float64 it agrees with differences.

    Entries whose error is lost beside the largest one do not count: of them differences may know too little.
    """
    exact, excess = copy(pair), tolerance.excess(pair)
    exact.adjoint = pair.exact
    error, worst = errors(pair.adjoint, pair.numeric), int(np.argmax(excess))
    failing = (excess > 1.0) & (error >= LITTLE * error[worst])
    if not np.isfinite(pair.exact[failing]).all() or (tolerance.excess(exact)[failing] > 1.0).any():
        return None
    loss = parted(subject, pair, worst)
    return None if loss is None else result.failing(loss)


def _explained(subject: Subject, pair: Pair, result: PairResult, tolerance: Tolerance) -> PairResult:
    """The result with the line at fault, where it can be found."""
    i = subject.sources.index(pair.input)
    worst = np.argsort(-tolerance.excess(pair), kind="stable")[: 1 + len(result.others)]
    columns = dict.fromkeys(pair.place(int(k))[1] for k in worst)
    if result.verdict == "not finite":  # then so are the differences by what the value ignores
        tried = (blame_infinite(subject, i, column) for column in columns)
        cause = next((each for each in tried if each is not None), None)
    else:
        cause = blame(subject, i, next(iter(columns)), tolerance.eps)
    if cause is None or (result.verdict == "chaos" and cause.verdict == "kink"):
        return result
    is_known = result.verdict == "adjoint" and cause.verdict != "builtin"
    return result.failing(replace(cause, verdict=result.verdict) if is_known else cause)


def _verdict(pair: Pair, tangent: Floats | None, tolerance: Tolerance) -> str:
    failing = tolerance.excess(pair) > 1.0
    if not np.isfinite([pair.adjoint[failing], pair.numeric[failing]]).all():
        return "not finite"
    if tangent is None:
        return "all differ"
    from_adjoint, from_differences, between = (
        float(np.abs(a - b)[failing].max())
        for a, b in ((tangent, pair.adjoint), (tangent, pair.numeric), (pair.adjoint, pair.numeric))
    )
    if from_adjoint <= 0.01 * between:
        return "both"
    return "adjoint" if from_differences <= 0.1 * between else "all differ"


def _is_chaotic(witnesses: Witnesses, k: int, tolerance: Tolerance) -> bool:
    """Whether, by the worst entry, the next float of the input changes the output by more than its size."""
    pair = witnesses.pairs[k]
    worst = int(np.argmax(tolerance.excess(pair)))
    at = np.zeros(pair.numeric.shape, np.bool_)
    at[worst] = True
    step, size = witnesses.quotients(k, at, SCALES[0], SIZES)[:, worst]
    change = abs(pair.numeric[worst]) * step
    next_float = pair.epsilon * abs(numbers(pair.input.elements)[pair.place(worst)[1]])
    return bool(change > 0.0 and max(change, size) < abs(pair.adjoint[worst]) * next_float)


def _compare(pair: Pair, tolerance: Tolerance) -> PairResult:
    error, excess = errors(pair.adjoint, pair.numeric), tolerance.excess(pair)
    if not error.size:  # a pattern without entries: the adjoint is zero, and so are the differences
        first = _index(pair.input, 0), _index(pair.output, 0)
        return PairResult(pair.input.label, pair.output.label, 0.0, 0.0, *first, 0.0, 0.0, pair.entries, True)
    k = int(np.argmax(excess))
    worst = _entry(pair, k)
    failed = int((excess > 1.0).sum())
    order = np.argsort(-excess, kind="stable")[1 : min(failed, MOST_NAMED)] if failed > 1 else ()
    return PairResult(
        pair.input.label,
        pair.output.label,
        float(error.max()),
        relative(float(error[k]), worst.numeric),
        worst.input_index,
        worst.output_index,
        worst.autodiff,
        worst.numeric,
        pair.entries,
        not failed,
        others=tuple(_entry(pair, int(other)) for other in order),
    )


def _entry(pair: Pair, k: int) -> Entry:
    row, column = pair.place(k)
    values = (float(each[k]) for each in (pair.adjoint, pair.numeric))
    return Entry(_index(pair.input, column), _index(pair.output, row), *values)


def _index(variable: Variable, position: int) -> Index:
    if not variable.count:
        return ()
    return tuple(int(i) for i in np.unravel_index(position, variable.shape))
