"""What `gradcheck_tape` reports, and which launches it is to check.

Knows reports of one launch; must not know how a tape is checked.
"""

from collections.abc import Collection, Mapping, Sequence

from kernelab.autodiff.checks.endtoend import Agreement
from kernelab.autodiff.checks.gradcheck_report import GradcheckReport
from kernelab.autodiff.jacobians.subject import Key
from kernelab.autodiff.records.records import LaunchRecord, Record
from kernelab.data_classes import dataclass, replace
from kernelab.errors import Diagnostic, GradientError, KernelValueError
from kernelab.guidance.missing_names import ReportHints
from kernelab.hooks import ShownOnce
from kernelab.passes.access.dead_ends import DeadEnd
from kernelab.runtime.array.layout import is_integer
from kernelab.runtime.context.recorder import Place, refusal

Mask = Sequence[tuple[Key, Key]]

OTHER_VALUES = "what the tape began with was overwritten: it was checked at the values that stand there now"


@dataclass(frozen=True, slots=True)
class LaunchCheck:
    """The result for a launch; `reason` says why it could not be checked, or what its fault is.

    `covered` says that it passed as a part of the tape, or has no gradient.  `fault` is "overwrite" where the
    launch is right but destroys what an earlier adjoint reads, "cut" where it reads what no gradient flows
    through, what the host computed included, "sweep" where the tape's own backward pass is at fault; `hint`
    says what to do then.  `record` is the number of the record on the tape, from 1; of one that is not a
    launch, `kernel` is its title.  `zeros` are the lines of its kernel at which values lose their derivative,
    where there is no report that has them.
    """

    record: int
    kernel: str
    place: Place
    report: GradcheckReport | None
    reason: str = ""
    covered: bool = False
    fault: str = ""
    hint: str = ""
    zeros: tuple[DeadEnd, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.fault and (self.report is None or self.report.passed)

    @property
    def is_launch(self) -> bool:
        """Whether it is the launch of a kernel, whose name is one word."""
        return self.kernel.isidentifier()

    @property
    def is_open(self) -> bool:
        """Whether it could not be checked."""
        return self.report is None and not self.covered and not self.fault

    def failure(self) -> Diagnostic:
        """The error for a launch that failed."""
        number, name = "", self.kernel
        if self.is_launch:
            number, name = f"launch {self.record}, ", f"`{self.kernel}`,"
        if self.report is None or self.fault:
            message = f"after {number}{name} the gradient of this tape is wrong: {self.reason}"
            return Diagnostic(message, self.place.span, "gradcheck", hint=self.hint)
        what = f"{number}of {name}" if number else name
        message, worst = f"the gradient of {what} is not its derivative", self.report.worst()
        return Diagnostic(message, self.place.span, "gradcheck", hint=worst.advice, related=worst.at_fault)


@dataclass(frozen=True, slots=True, repr=False)
class TapeReport(ReportHints, ShownOnce):
    """The checks of the launches of a tape, in the order in which they were made; true if none failed.

    `whole` is how the tape agreed end to end, None where it did not, or could not run again; `alone` says
    why each launch was then checked alone.  `is_exact` is false where it ran again from other values than it
    began with, as these have been overwritten.
    """

    launches: tuple[LaunchCheck, ...]
    whole: Agreement | None = None
    alone: str = ""
    shown_in: int | None = None
    is_exact: bool = True

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
            (launch for launch in self.launches if not launch.passed), key=lambda c: c.record, default=None
        )

    def require_passed(self) -> None:
        """Raise GradientError for the first launch that failed, if one did."""
        bad = self.first_bad()
        if bad is None:
            return
        failure = bad.failure()
        if not self.is_exact:
            failure = replace(failure, message=f"{failure.message}; {OTHER_VALUES}")
        raise GradientError(failure)


@dataclass(frozen=True, slots=True)
class Choice:
    """The launches of a tape that are checked, and their order."""

    masks: Mapping[str, Mask] | None = None
    blacklist: Collection[str] = ()
    whitelist: Collection[str] = ()
    reverse: bool = False
    skip: int = 0

    def __post_init__(self) -> None:
        if not is_integer(self.skip) or self.skip < 0:
            message = f"skip_to_launch_index={self.skip!r} is not a number of launches"
            raise refusal(KernelValueError, message, "tape", "pass a whole number from 0 up")

    @property
    def is_all(self) -> bool:
        """Whether everything is checked, in whatever order."""
        return replace(self, reverse=False) == Choice()

    def of(self, records: Sequence[Record]) -> list[tuple[int, LaunchRecord]]:
        """The launches that were chosen, each with its number on the tape."""
        launches = [(k, record) for k, record in enumerate(records, 1) if isinstance(record, LaunchRecord)]
        kernels = {record.kernel.name for _, record in launches}
        for names, what in (
            (self.blacklist, "blacklist_kernels"),
            (self.whitelist, "whitelist_kernels"),
            (self.masks or {}, "input_output_masks"),
        ):
            for name in names:
                if name not in kernels:
                    hint = f"its kernels are {', '.join(sorted(kernels))}"
                    raise refusal(
                        GradientError, f"{what} names {name!r}, which the tape has not run", "tape", hint
                    )
        numbered = [
            (k, record)
            for k, record in launches
            if record.kernel.name not in self.blacklist
            and (not self.whitelist or record.kernel.name in self.whitelist)
        ]
        return (numbered[::-1] if self.reverse else numbered)[self.skip :]
