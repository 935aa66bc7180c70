"""Checking the gradients of every launch on a tape, each with the values that it read.

A launch is checked on copies of its arguments.  Where what it read has been overwritten since and was not
saved, it is not checkable, and says so.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernelab.autodiff.gradcheck import Fast, GradcheckReport, Tolerance, check
from kernelab.autodiff.jacobian import Selection
from kernelab.autodiff.records import LaunchRecord
from kernelab.autodiff.subject import Key, Subject, of_kernel
from kernelab.autodiff.tape import Tape
from kernelab.autodiff.trees import refusal
from kernelab.errors import GradientError
from kernelab.runtime.arguments import Reference
from kernelab.runtime.recorder import Place
from kernelab.runtime.strided import array

Mask = Sequence[tuple[Key, Key]]


@dataclass(frozen=True, slots=True)
class LaunchCheck:
    """How a launch came out; `reason` says why it could not be checked."""

    index: int
    kernel: str
    place: Place
    report: GradcheckReport | None
    reason: str = ""

    @property
    def passed(self) -> bool:
        return self.report is None or self.report.passed


@dataclass(frozen=True, slots=True, repr=False)
class TapeReport:
    """The checks of the launches of a tape, in the order in which they were made; true if none failed."""

    launches: tuple[LaunchCheck, ...]
    shown: bool = False

    @property
    def passed(self) -> bool:
        return all(launch.passed for launch in self.launches)

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        return f"<gradcheck of {len(self.launches)} launches: {'passed' if self else 'FAILED'}>"

    def first_bad(self) -> LaunchCheck | None:
        """The launch that ran first of those that failed."""
        return min(
            (launch for launch in self.launches if not launch.passed), key=lambda c: c.index, default=None
        )

    def as_shown(self) -> "TapeReport":
        return replace(self, shown=True)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which launches of a tape are checked, and in which order."""

    masks: Mapping[str, Mask] | None = None
    blacklist: Collection[str] = ()
    whitelist: Collection[str] = ()
    reverse: bool = False
    skip: int = 0

    def of(self, launches: Sequence[LaunchRecord]) -> list[tuple[int, LaunchRecord]]:
        known = {record.kernel.name for record in launches}
        for names, what in (
            (self.blacklist, "blacklist_kernels"),
            (self.whitelist, "whitelist_kernels"),
            (self.masks or {}, "input_output_masks"),
        ):
            for name in names:
                if name not in known:
                    hint = f"its kernels are {', '.join(sorted(known))}"
                    raise refusal(
                        GradientError, f"{what} names {name!r}, which the tape has not run", "tape", hint
                    )
        numbered = [
            (k, record)
            for k, record in enumerate(launches)
            if record.kernel.name not in self.blacklist
            and (not self.whitelist or record.kernel.name in self.whitelist)
        ]
        return (numbered[::-1] if self.reverse else numbered)[self.skip :]


def check_tape(
    tape: Tape, tolerance: Tolerance, selection: Selection, choice: Choice, fast: Fast = "auto"
) -> TapeReport:
    """Check the launches of a tape; GradientError where not one could be checked."""
    checks = [_check(k, record, tolerance, selection, choice, fast) for k, record in choice.of(tape.launches)]
    if not any(launch.report for launch in checks) and all(launch.report is None for launch in checks):
        reasons = "; ".join(f"{c.kernel}: {c.reason}" for c in checks) or "it holds no launch that was chosen"
        hint = "record launches whose inputs require gradients, and check before they are overwritten"
        raise refusal(GradientError, f"0 pairs checked on this tape ({reasons})", "gradcheck", hint)
    return TapeReport(tuple(sorted(checks, key=lambda launch: launch.index)))


def _check(
    k: int, record: LaunchRecord, tolerance: Tolerance, selection: Selection, choice: Choice, fast: Fast
) -> LaunchCheck:
    made = LaunchCheck(k, record.kernel.name, record.place, None)
    lost = _lost(record)
    if lost:
        return replace(made, reason=f"what it read from {lost} has been overwritten")
    try:
        subject = _subject(record)
    except GradientError as error:
        return replace(made, reason=error.diagnostics[0].message)
    mask = (choice.masks or {}).get(record.kernel.name)
    return replace(made, report=check(subject, tolerance, replace(selection, mask=mask), fast=fast))


def _lost(record: LaunchRecord) -> str:
    """The parameter whose values, as the launch read them, are gone; "" if there is none."""
    plan, arguments = record.kernel.plan, record.call.arguments
    after = dict(zip(plan.arrays, record.versions, strict=True))
    saved = {i for i, watch in record.watches if watch.saved is not None}
    for i in plan.read:
        if i in plan.written or (arguments[i].allocation.version != after[i] and i not in saved):
            return f"`{plan.parameters[i].name}`"
    return ""


def _subject(record: LaunchRecord) -> Subject:
    saved = {i: watch.saved for i, watch in record.watches if watch.saved is not None}
    arguments: list[Any] = []
    for i, given in enumerate(record.call.arguments):
        value = given.array if isinstance(given, Reference) else given
        kept = saved.get(i)
        if kept is not None and isinstance(value, array):
            kept.requires_grad = value.requires_grad
            value = kept
        arguments.append(value)
    return of_kernel(record.kernel.by_leaves, record.grid.extents, arguments, (), "gradcheck_tape")
