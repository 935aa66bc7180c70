"""Checks the gradients of a tape: first as a whole, then for the first launch that is wrong.

Where the tape cannot run again, and where launches are chosen, each is checked alone, on copies of what it
read; if that has been overwritten since and was not saved, on what it reads when the tape runs again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, wraps
from itertools import starmap
from operator import itemgetter
from typing import Any, cast

from kernelab.autodiff.checks.endtoend import (
    ROOM,
    Agreement,
    agreement,
    bends,
    differs_in_sweep,
    first_bent,
    first_disagreeing,
    first_racing,
    is_off,
    spoiled,
)
from kernelab.autodiff.checks.gradcheck import Fast, check
from kernelab.autodiff.checks.gradcheck_report import GradcheckReport
from kernelab.autodiff.checks.tape_replay import Line, NotReplayableError, as_read
from kernelab.autodiff.checks.tape_report import Choice, LaunchCheck, TapeReport
from kernelab.autodiff.checks.tolerance import Tolerance
from kernelab.autodiff.jacobians.jacobian import Selection
from kernelab.autodiff.jacobians.subject import of_function, of_kernel, outside_transforms
from kernelab.autodiff.records.adjoint_buffers import Extents, plain_copy
from kernelab.autodiff.records.backward import BackwardPlan, refuse_late
from kernelab.autodiff.records.cuts import distinct, passive_cuts
from kernelab.autodiff.records.detours import detours, number_by_order
from kernelab.autodiff.records.hazards import ELSEWHERE
from kernelab.autodiff.records.moves import CopyRecord, FunctionRecord, HostCallRecord, OverwriteRecord
from kernelab.autodiff.records.provenance import Cut
from kernelab.autodiff.records.records import LaunchRecord, Record
from kernelab.autodiff.tape.checkpoint import CheckpointRecord
from kernelab.autodiff.tape.finite import lost_inputs
from kernelab.autodiff.tape.seeds import final_arrays
from kernelab.autodiff.tape.tape import Tape
from kernelab.autodiff.transforms.base_level import run_host_call
from kernelab.data_classes import replace
from kernelab.errors import Diagnostic, GradientError, KernelError, KernelTypeError, a_thing
from kernelab.hooks import steps
from kernelab.lang.types import is_differentiable, scalar_of
from kernelab.passes.access.dead_ends import DeadEnd
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import name_of_memory, refusal
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.settings import Policy

WHOLE = Selection(None, -1, -1)


def gradcheck_launch(
    kernel: Kernel,
    grid: Extents,
    arguments: Sequence[Any],
    tolerance: Tolerance,
    selection: Selection,
    fast: Fast,
) -> GradcheckReport | str:
    """The check of a launch by itself, or why it cannot be checked."""
    try:
        subject = of_kernel(kernel.by_leaves, grid, arguments, (), "gradcheck_tape")
    except GradientError as error:
        return error.diagnostics[0].message
    return check(subject, tolerance, selection, fast=fast)


Run = Callable[[Callable[..., Any], Iterator[tuple[Any, ...]]], Iterable[Any]]
"""How a function is called with each of some tuples of arguments: `starmap`, or on other processes."""


def check_tape(
    tape: Any,
    tolerance: Tolerance,
    selection: Selection,
    choice: Choice,
    fast: Fast = "auto",
    run: Run | None = None,
) -> TapeReport:
    """Check a tape; GradientError where not one launch could be checked, KernelTypeError for no tape.

    The whole tape is compared end to end unless launches or entries are chosen; without `fast`, or where
    that does not find the fault, every launch is checked alone.  With `run` each is, through it.
    """
    if not isinstance(tape, Tape):
        hint = "pass the tape that recorded: with kl.Tape() as tape: ..."
        raise KernelTypeError.of(f"gradcheck_tape takes a Tape, not {a_thing(tape)}", "gradcheck", hint)
    report = _checked(tape, tolerance, selection, choice, fast, run)
    if not report or not choice.is_all:
        return report
    # Its launches are right: what is left are values that it has not saved, or a cut.
    faults = [fault for fault in (_tainted(tape), _cut(tape)) if fault is not None]
    if not faults:
        return _with_suspicion(tape, report)
    places = {fault.record for fault in faults}
    others = [c for c in report.launches if c.record not in places]
    return replace(report, launches=tuple(sorted([*faults, *others], key=lambda c: c.record)), whole=None)


def _checked(
    tape: Tape, tolerance: Tolerance, selection: Selection, choice: Choice, fast: Fast, run: Run | None
) -> TapeReport:
    """The report on what the records compute, whether or not gradients flow through all of it."""
    chosen, whole, alone = choice.of(tuple(tape)), None, ""
    if run is None and choice == Choice() and selection == WHOLE and tolerance == Tolerance():
        try:
            with outside_transforms("gradcheck_tape"):
                report = _as_a_whole(tape, fast)
        except NotReplayableError as error:
            report = TapeReport((), None, str(error))
        except KernelError as error:
            first = error.diagnostics[0]
            report = TapeReport((), None, f"{first.message}: {first.hint}" if first.hint else first.message)
        is_settled = report.whole is not None or not report
        if is_settled and (fast is not False or not report or not chosen):
            return report
        whole, alone = report.whole, report.alone
    each = steps("launches of the tape", chosen)
    again = _again(tuple(tape), tape.overwrite)
    checks = _one_by_one(each, again, tolerance, selection, choice, fast, run or starmap)
    if choice.is_all and whole is None:
        checks += _beside_launches(tuple(tape), tape.overwrite, tolerance, selection, fast)
    if all(launch.report is None and (launch.reason or not launch.covered) for launch in checks):
        none = "it holds no launch" + (" that was chosen" if tape.launches else "")
        reasons = "; ".join(f"{c.kernel}: {c.reason}" for c in checks) or none
        hint = "record launches whose inputs require gradients, and check before they are overwritten"
        if alone:
            hint = f"it could not be checked as a whole: {alone}"
        raise refusal(GradientError, f"0 pairs checked on this tape ({reasons})", "gradcheck", hint)
    if choice.is_all:
        functions = [k for k, record in enumerate(tape) if isinstance(record, FunctionRecord)]
        checks += [replace(_unchecked(tuple(tape), k), reason=ADJOINT_ONLY) for k in functions]
    return TapeReport(tuple(sorted(checks, key=lambda launch: launch.record)), whole, alone)


def _beside_launches(
    records: Sequence[Record], policy: str, tolerance: Tolerance, selection: Selection, fast: Fast
) -> list[LaunchCheck]:
    """The checks of functions of the host and of checkpoints, each by itself."""
    several = [k for k, one in enumerate(records) if isinstance(one, CheckpointRecord) or _has_rule(one)]
    if not several:
        return []
    try:
        line = Line(records, cast(Policy, policy))
    except (NotReplayableError, KernelError) as error:
        reason = error.diagnostics[0].message if isinstance(error, KernelError) else str(error)
        return [replace(_unchecked(records, k), reason=reason) for k in several]
    checks: list[LaunchCheck] = []
    for k in several:
        record, unchecked = records[k], _unchecked(records, k)
        if isinstance(record, CheckpointRecord):
            inside = _inside_alone(record, policy, tolerance, selection, fast)
            checks.append(replace(inside or replace(unchecked, covered=True), record=unchecked.record))
            continue
        try:
            checks.append(replace(unchecked, report=_of_host_call(line, k, fast, tolerance, selection)))
        except Exception as error:  # noqa: BLE001 (whatever the user's function raises on other numbers)
            reason = f"it cannot be run again ({type(error).__name__}: {error})"
            checks.append(replace(unchecked, reason=reason))
    return checks


def _has_rule(record: Record) -> bool:
    """Whether it is a function of the host whose derivative a sweep asks for."""
    return isinstance(record, HostCallRecord) and bool(record.active)


def _inside_alone(
    record: CheckpointRecord, policy: str, tolerance: Tolerance, selection: Selection, fast: Fast
) -> LaunchCheck | None:
    """The worst check of what a checkpoint does, None where all passed."""
    with record.again() as (tape, _):
        records = tuple(tape.records)
        chosen, again = Choice().of(records), _again(records, policy)
        checks = _one_by_one(chosen, again, tolerance, selection, Choice(), fast, starmap)
        checks += _beside_launches(records, policy, tolerance, selection, fast)
    failed = (one for one in checks if not one.passed)
    return next(failed, None) or next((one for one in checks if one.is_open), None)


# ------------------------------------------------------------------------------------------ as a whole


def _as_a_whole(tape: Tape, fast: Fast) -> TapeReport:
    """The report on a tape that agrees, or on its first bad record; without launches if neither is found."""
    records = tuple(tape)
    line = Line(records, cast(Policy, tape.overwrite))
    if not line.sources or not line.targets(len(records)):
        return TapeReport(())
    if line.nbytes > ROOM:
        return TapeReport((), None, f"it touched {line.nbytes / 1e6:,.0f} MB: too much to run in many lanes")
    return replace(_compared(line, fast), is_exact=line.is_exact)


def _compared(line: Line, fast: Fast) -> TapeReport:
    """The report on a tape that runs again; without launches where it neither agrees nor has a fault."""
    records, racing = line.records, first_racing(line)
    agreed = agreement(line) if racing is None else None
    if agreed is not None:
        for k in _unmoved(line):
            report = _alone(line, k, fast)
            if report is not None and any(not one.passed and one.verdict != "kink" for one in report.pairs):
                return TapeReport((*_until(records, k), replace(_unchecked(records, k), report=report)))
        checks, bent = _until(records, len(records)), first_bent(line)
        report = None if bent is None else _alone(line, bent, fast)
        if bent is not None and report and any(pair.verdict for pair in report.pairs):
            at_kink = replace(_unchecked(records, bent), report=report)
            checks = [at_kink if one.record == at_kink.record else one for one in checks]
        return TapeReport(tuple(checks), agreed)
    k = first_disagreeing(line) if racing is None else racing
    bad = _fault(line, k, fast)
    if bad is not None and (hidden := _hidden_kink(line, bad)) is not None:
        return TapeReport(tuple(_until(records, len(records))), hidden)
    if bad is None and bends(line, k + 1):
        return TapeReport((), None, f"it has a kink at {records[k].title}")
    if bad is None and is_off(line, k + 1):
        bad = replace(_unchecked(records, k), fault="sweep", reason=PRODUCT, hint=REPORT)
    if bad is None:
        return TapeReport((), None, "differences of the whole tape are too rough to compare")
    return TapeReport((*_until(records, k), bad))


def _unmoved(line: Line) -> Iterable[int]:
    """The launches, one for each line, by which gradients go to what no source moves: the tape has set it."""
    moved, found = {source.allocation for source in line.sources}, dict[tuple[object, ...], int]()
    for k, record in enumerate(line.records):
        mine = {one.allocation for one in record.reached if one.requires_grad}
        if isinstance(record, LaunchRecord) and not mine <= moved:
            found.setdefault((record.kernel, str(record.place)), k)
        written = {one.allocation for one in record.written}
        moved = moved - written if moved.isdisjoint(mine) else moved | written
    return found.values()


def _hidden_kink(line: Line, bad: LaunchCheck) -> Agreement | None:
    """The agreement of what the tape ends with, where all that is wrong is a kink in something on the way."""
    failed = [pair for pair in bad.report.pairs if not pair.passed] if bad.report is not None else []
    if not failed or any(pair.verdict != "kink" for pair in failed):
        return None
    agreed = agreement(line, _ends(line.records))
    if agreed is None:
        return None
    where = f"launch {bad.record}, {bad.kernel}," if bad.is_launch else bad.kernel
    note = f"{where} has a kink or a jump near these values, but not what the tape ends with"
    return replace(agreed, note=f"{failed[0].explanation}: {note}" if failed[0].explanation else note)


def _until(records: Sequence[Record], end: int) -> list[LaunchCheck]:
    """The launches before a record, which agree; of some there is no gradient."""
    launches = [(k, record) for k, record in enumerate(records[:end]) if isinstance(record, LaunchRecord)]
    return [
        replace(_unchecked(records, k), covered=True, reason=_without_adjoint(record))
        for k, record in launches
    ]


def _without_adjoint(record: LaunchRecord) -> str:
    """Why no adjoint passes a launch, "" if one does."""
    if record.reached:
        return ""
    return "its backward pass is switched off" if record.outline.switched_off else PASSIVE


def _fault(line: Line, k: int, fast: Fast) -> LaunchCheck | None:
    """The fault of record `k`, None if there is none."""
    record, unchecked = line.records[k], _unchecked(line.records, k)
    report = _alone(line, k, fast)
    if report is not None and not report:
        return replace(unchecked, report=report)
    if isinstance(record, CheckpointRecord):
        inner = _inside(line, record, fast)
        if inner is not None:
            return replace(inner, record=unchecked.record)
    lost = spoiled(line, k)
    if lost is None:
        # A copy cannot make differences too rough.
        is_linear = isinstance(record, CopyRecord | OverwriteRecord)
        if not is_linear and not differs_in_sweep(line, k + 1):
            return None
        return replace(unchecked, fault="sweep", reason=SWEEP, hint=REPORT)
    reader, elements = line.records[lost[0]], lost[1]
    called = name_of_memory(elements.allocation) or _parameter(reader, elements)
    what = f"it overwrites `{called}`, whose old values the adjoint of {reader.title} at {reader.place} reads"
    return replace(unchecked, fault="overwrite", reason=what, hint=ELSEWHERE)


def _inside(line: Line, record: CheckpointRecord, fast: Fast) -> LaunchCheck | None:
    """The fault of a record of a checkpoint, None if there is none."""
    with record.again() as (tape, _):
        inside = Line(tuple(tape.records), line.policy)
        if not inside.sources or agreement(inside) is not None:
            return None
        return _fault(inside, first_disagreeing(inside), fast)


def _alone(line: Line, k: int, fast: Fast) -> GradcheckReport | None:
    """The check of record `k` by itself, at what it got; None of what runs no code of the user's."""
    record = line.records[k]
    if isinstance(record, LaunchRecord):
        arguments = line.arguments(line.run(k), k)
        subject = of_kernel(record.kernel.by_leaves, record.grid.extents, arguments, (), "gradcheck_tape")
        return check(subject, fast=fast)
    return _of_host_call(line, k, fast) if isinstance(record, HostCallRecord) else None


def _of_host_call(
    line: Line,
    k: int,
    fast: Fast,
    tolerance: Tolerance | None = None,
    selection: Selection | None = None,
) -> GradcheckReport:
    """The check of a Python function with a derivative of its own, at what it got."""
    record = line.records[k]
    assert isinstance(record, HostCallRecord)
    run = line.run(k)
    arguments = [plain_copy(run.of(argument)) for argument in record.read]
    for position in record.active:
        arguments[position].requires_grad = True

    @wraps(record.call.func)
    def function(*arrays: array) -> tuple[array, ...]:
        return tuple(run_host_call(record.call, arrays))

    return check(of_function(function, arguments, (), "gradcheck_tape"), tolerance, selection, fast=fast)


PASSIVE = "nothing that it reads has gradients"
PRODUCT = "each record up to there is right alone, but their product is not the derivative"
SWEEP = "its adjoint is right, but what backward() makes of the records up to there is not their product"
ADJOINT_ONLY = "nothing says what it is the adjoint of"
REPORT = "this is a fault of kernelab and not of the kernels: please report it, with this tape"


def _unchecked(records: Sequence[Record], k: int) -> LaunchCheck:
    record = records[k]
    name = record.kernel.name if isinstance(record, LaunchRecord) else record.title.strip("`")
    return LaunchCheck(k + 1, name, record.place, None)


def _parameter(record: Record, elements: array) -> str:
    named = record.named if isinstance(record, LaunchRecord) else {}
    return next((name for name, argument in named.items() if argument is elements), "an array")


# ---------------------------------------------------------------------------------- faults of the tape


def _tainted(tape: Tape) -> LaunchCheck | None:
    """The first launch whose adjoint reads what has been overwritten, and was not saved."""
    records = tuple(tape)
    lost = {id(one.reader.record()): one for one in tape.overwrites if one.outcome == "tainted"}
    for k, record in enumerate(records):
        one = lost.get(id(record)) if isinstance(record, LaunchRecord) else None
        if one is not None:
            called = name_of_memory(one.elements.allocation) or _parameter(record, one.elements)
            what = f"`{called}`, whose old values its adjoint reads, was overwritten at {one.place}"
            return replace(_unchecked(records, k), fault="overwrite", reason=what, hint=ELSEWHERE)
    return None


def _cut(tape: Tape) -> LaunchCheck | None:
    """The first record at which a chain ends that has gradients on both sides, as `backward` would report."""
    records, plan = tuple(tape), _plan(tape)
    passive = passive_cuts(plan.steps, plan.live, plan.in_place)
    cuts = [(k, several[0]) for k, several in passive.items()]
    cuts += [(k, cut) for k, cut in _by_host(tape, plan) if cut.is_certain]
    ends = [(k, cut.describe()) for k, cut in cuts] + _inner_ends(plan)
    if not ends:
        return None
    k, told = min(ends, key=itemgetter(0))
    return replace(_unchecked(records, k), fault="cut", reason=told.message, hint=told.hint)


def _inner_ends(plan: BackwardPlan) -> list[tuple[int, Diagnostic]]:
    """What `backward` would say of chains that end within checkpoints, without gradients or by the host."""
    ends: list[tuple[int, Diagnostic]] = []
    for k in sorted(plan.live):
        record = plan.steps[k].record
        if not isinstance(record, CheckpointRecord):
            continue
        try:
            with record.again() as (inner, results):
                within = record.planned(inner, results)
                passive = passive_cuts(within.steps, within.live, within.in_place)
                by_host = detours(inner.provenance, within)
                cuts = [several[0] for several in passive.values()]
                told = [cut.describe() for cut in (*cuts, *by_host) if cut.is_certain]
                told += [one for _, one in _inner_ends(within)]
        except KernelError:  # it cannot be run again, which the checks of it tell
            continue
        ends += [(k, one) for one in told]
    return ends


def _plan(tape: Tape) -> BackwardPlan:
    records = tuple(tape)
    plan = BackwardPlan(records, tape.seeds or _ends(records))
    refuse_late(plan)
    return plan


def _by_host(tape: Tape, plan: BackwardPlan) -> list[tuple[int, Cut]]:
    """The chains that pass through the host, each with the number of the record that reads what came back."""
    cuts = detours(tape.provenance, plan)
    position = {id(record): k for k, record in enumerate(tape)}
    return [(position.get(id(cut.reader), len(position) - 1), cut) for cut in cuts]


def _with_suspicion(tape: Tape, report: TapeReport) -> TapeReport:
    """The report on a tape that passes, with what may have come by the host, as the order of looks tells.

    Warns of arrays, as `backward` does; a number is a note alone.
    """
    plan = _plan(tape)
    cuts = _by_host(tape, plan)
    for cut in distinct(cut for _, cut in cuts):
        cut.warn()
    if report.whole is None:
        return report
    if cuts:
        message = min(cuts, key=itemgetter(0))[1].describe().message
    else:
        message = number_by_order(tape.provenance, plan)
    note = "; ".join(filter(None, [report.whole.note, message]))
    return replace(report, whole=replace(report.whole, note=note))


def _ends(records: Sequence[Record]) -> list[array]:
    """The outputs to check: a loss; final arrays with gradients, else any with gradients, else final arrays.

    A loss is the only final array with gradients that holds one number: other branches lead elsewhere.
    """
    written = dict.fromkeys(target for record in records for target in record.written)
    traced = [target for target in written if is_differentiable(target.dtype) and target.requires_grad]
    final = [target for target in final_arrays(records) if is_differentiable(target.dtype)]
    asked = [target for target in final if target.requires_grad]
    losses = [target for target in asked if target.size == 1 and target.dtype == scalar_of(target.dtype)]
    return losses if len(losses) == 1 else asked or traced or final


# ------------------------------------------------------------------------------------------ one by one


Again = Callable[[int], list[Any] | None]
"""The arguments of a record, a launch, in another run of the tape; None where it cannot run again."""


def _again(records: Sequence[Record], policy: str) -> Again:
    @cache
    def line() -> Line | None:
        try:
            return Line(records, cast(Policy, policy))
        except (NotReplayableError, KernelError):
            return None

    def arguments(k: int) -> list[Any] | None:
        found = line()
        return None if found is None or found.nbytes > ROOM else found.arguments(found.run(k), k)

    return arguments


def _one_by_one(
    launches: Iterable[tuple[int, LaunchRecord]],
    again: Again,
    tolerance: Tolerance,
    selection: Selection,
    choice: Choice,
    fast: Fast,
    run: Run,
) -> list[LaunchCheck]:
    """The checks of some launches, each by itself, on what it read or, where that is lost, reads `again`."""
    checks: list[LaunchCheck] = []

    def alone() -> Iterator[tuple[Any, ...]]:
        for k, record in launches:
            if reason := _without_adjoint(record):
                checks.append(LaunchCheck(k, record.kernel.name, record.place, None, reason, covered=True))
                continue
            mask = (choice.masks or {}).get(record.kernel.name)
            lost = [record.kernel.plan.parameters[i].name for i in lost_inputs(record)]
            arguments = again(k - 1) if lost else as_read(record)
            reason = f"what it read from `{lost[0]}` has been overwritten" if arguments is None else ""
            zeros = [end for end, source, _ in record.dead_ends if reason and _is_zero(end, source)]
            checks.append(LaunchCheck(k, record.kernel.name, record.place, None, reason, zeros=tuple(zeros)))
            if arguments is not None:
                chosen = replace(selection, mask=mask)
                yield record.kernel, record.grid.extents, arguments, tolerance, chosen, fast

    reports = iter([*run(gradcheck_launch, alone())])
    for k, one in enumerate(checks):
        if not one.reason:
            report = next(reports)
            checks[k] = replace(one, **{"reason" if isinstance(report, str) else "report": report})
    return checks


def _is_zero(end: DeadEnd, source: array) -> bool:
    """Whether a derivative that is asked for is zero there, whatever the values are."""
    return not end.is_condition and is_differentiable(source.dtype) and source.requires_grad
