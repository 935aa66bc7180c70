"""Hazards: bytes that a recorded adjoint needs and that are about to be overwritten; writes that nobody saw.

A `Watch` is the snapshot of elements that a recorded launch read.  What happens when they are about to
change is the tape's policy: they are saved for the adjoint, or there is a warning or an error at that line.

A launch with ``record_tape=False``, one that failed half way, a host write between two ``with`` blocks, or
one through a NumPy view changes what the tape computed behind its back.  The next record finds out and
leaves a mark on the tape; only if an adjoint has to pass the mark is it an error.
"""

import weakref
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

from kernelab.autodiff.records.adjoint_buffers import Adjoints, Level
from kernelab.autodiff.records.moves import NOTICED, Simple
from kernelab.autodiff.records.snapshots import Copied, Snapshot
from kernelab.data_classes import dataclass, field, replace
from kernelab.errors import Diagnostic, KernelMemoryError, Related, TapeError
from kernelab.lang.types import uint8
from kernelab.passes.access.access_regions import Box, Region
from kernelab.runtime.array.array import array, numbers_of
from kernelab.runtime.context.conversion import checksum, itemsize
from kernelab.runtime.context.recorder import Place, called, caller, name_in_caller, name_of_memory, warn
from kernelab.runtime.kernel.arguments import array_of
from kernelab.runtime.kernel.dispatch import may_keep
from kernelab.runtime.launch.call import Call
from kernelab.runtime.launch.footprint import box_and_whole, overwrites
from kernelab.runtime.memory.memory import Allocation, Change
from kernelab.settings import Policy

POLICIES: tuple[Policy, ...] = ("save", "warn", "error")

ELSEWHERE = 'write into another array, or use Tape(overwrite="save"), which keeps the old values'
"""What to write in place of an overwrite that an adjoint does not bear."""


@dataclass(slots=True, eq=False)
class Reader:
    """A launch that needs elements for its adjoint: its place, and the arrays that the adjoint reaches.

    `reached` are positions of arguments.  `record` is that of the launch on the tape, held weakly.  Nothing
    changes it; like calls it is not declared frozen.
    """

    call: Call
    region: Region
    reached: tuple[int, ...]
    place: Place
    record: weakref.ref[Any]

    def __str__(self) -> str:
        return f"the adjoint of `{self.call.kernel.name}` (launched at {self.place})"

    def box(self) -> tuple[Box | None, bool]:
        """The indices of the elements, None if there are none, and whether they are the whole array."""
        return box_and_whole(self.region, self.call.grid.extents, self.call.arguments)

    def loses(self, target: array, elements: array) -> bool:
        """Whether a write to `target` changes any of the elements, which may be less than the box."""
        return overwrites(target, elements, self.region, self.call.grid.extents, self.call.arguments)

    @property
    def argument(self) -> str:
        """The name of the argument in messages, if the array has none of its own."""
        kernel = self.call.kernel
        return f"the argument `{kernel.plan.parameters[self.region.position].name}` of `{kernel.name}`"

    def affected(self) -> Sequence[array]:
        """The arrays whose gradients depend on the elements."""
        return [array_of(self.call.arguments[i]) for i in self.reached]


Outcome = Literal["saved", "tainted", "refused"]


@dataclass(slots=True, eq=False)
class WatchedOverwrite:
    """Elements that an adjoint needs, the line that overwrote them, and what the policy made of it.

    Of ``"saved"`` ones `nbytes` were kept; where they were not, gradients are ``"tainted"``, or the write was
    ``"refused"``.  Nothing changes it; like calls it is not declared frozen.
    """

    elements: array
    reader: Reader
    place: Place
    outcome: Outcome
    nbytes: int


@dataclass(slots=True, eq=False)
class SavedWhole(Copied):
    """An overwrite of a whole array that one launch has read, and what a `Watch` would have kept of it.

    Programs that go to and fro between arrays make one a launch, so a single object holds what matters.
    `record` is that of the launch, held weakly: it holds this among its snapshots.
    """

    record: weakref.ref[Any]
    region: Region
    place: Place
    outcome: ClassVar[Outcome] = "saved"
    spent: ClassVar[bool] = True

    @property
    def nbytes(self) -> int:
        return len(self.memory)

    @property
    def reader(self) -> Reader:
        record = self.record()
        assert record is not None  # the tape holds it as long as this
        return Reader(record.alone(), self.region, record.outline.reached, record.place, self.record)


RUN_AGAIN = (
    "run stretches of the loop in kl.checkpoint(...), which keeps what enters them "
    "and runs them again, or allow more: kl.config.kept_memory = ..."
)
"""What to do where a tape may keep no more."""

Overwrite = WatchedOverwrite | SavedWhole

LISTENERS: list[Callable[[Overwrite], None]] = []
"""A listener that is called at each overwrite, such as a page that shows the cell."""


@dataclass(slots=True)
class Guard:
    """The policy of a tape, how many bytes it has saved, and what was overwritten while they mattered.

    Once a tape is `swept`, few will sweep it again: what is overwritten then is not kept, and an error comes
    with the next sweep only, if it needs the old values.  `writer` is the line of a launch that the tape
    records, while it announces its writes.  One that is not `heard` runs again what its user has seen run.
    """

    policy: Policy
    saved_bytes: int = 0
    residual_bytes: int = 0
    swept: bool = False
    overwrites: list[Overwrite] = field(default_factory=list)
    writer: Place | None = None
    heard: bool = True

    @property
    def held(self) -> int:
        """The bytes of what it has saved and of the residuals of its launches."""
        return self.saved_bytes + self.residual_bytes

    def clear(self) -> None:
        """Forget what was saved and overwritten."""
        self.saved_bytes = self.residual_bytes = 0
        self.swept = False
        self.overwrites.clear()

    def note(self, event: Overwrite) -> None:
        """Note an overwrite, and tell the listeners."""
        self.overwrites.append(event)
        for listener in LISTENERS if self.heard else ():
            listener(event)


class Watch(Snapshot):
    """The elements that a recorded adjoint needs, under the policy of its tape."""

    __slots__ = ("_lost", "_taken", "guard", "reader")

    def __init__(self, guard: Guard, elements: array, reader: Reader) -> None:
        self.guard = guard
        self.reader = reader
        self._lost: Place | None = None
        self._taken: Place | None = None
        super().__init__(elements, begin=False)

    def exposed(self) -> None:
        super().exposed()
        if self._checksum is not None:
            self._taken = caller()

    def box(self) -> tuple[Box | None, bool]:
        return self.reader.box()

    def overwritten(self, target: array, needed: array) -> None:
        loses = target is needed or self._checksum is not None or self.reader.loses(target, self.elements)
        if not loses:
            return
        if self.guard.policy == "error" and not self.guard.swept:
            self._note_overwrite("refused")
            raise TapeError(self._overwritten())
        self.look_for_change()
        self.spent = True
        if self.guard.swept:
            self._lost = caller()
            self.release()
        elif self.guard.policy == "warn":
            self._note_overwrite("tainted")
            self.release()
            warn(self._overwritten())
        else:
            size, kept = itemsize(needed.dtype), self.guard.held
            if not (may_keep(self._left * size, kept) or may_keep(target.size * size, kept)):
                raise KernelMemoryError(self._too_much())
            saved = self.keep(target, needed)
            self.guard.saved_bytes += saved
            self._note_overwrite("saved", saved)

    def check(self) -> None:
        """Raise TapeError if the elements changed unseen."""
        self.look_for_change()
        if self._changed:
            raise TapeError(self._changed_unseen())
        if self._lost is None:
            return
        overwritten = self._overwritten_since(self._lost)
        if self.guard.policy != "warn":
            raise TapeError(overwritten)
        warn(overwritten, self._lost)

    def _note_overwrite(self, outcome: Outcome, nbytes: int = 0) -> None:
        place = self.guard.writer or caller()
        self.guard.note(WatchedOverwrite(self.elements, self.reader, place, outcome, nbytes))

    def _name(self) -> str:
        name = name_in_caller(self.elements)
        if name:
            return f"`{name}`"
        whole = name_of_memory(self.elements.allocation)
        within = f", a part of `{whole}`," if whole else ""
        return f"{self.reader.argument}{within}"

    def _overwritten(self) -> Diagnostic:
        return self._told(
            f"{self._name()} is overwritten here, but {self.reader} needs its old values",
            caller(),
            self._consequence(),
            ELSEWHERE,
        )

    def _too_much(self) -> Diagnostic:
        told = self._told(
            f"{self._name()} is overwritten here, and there is no room to keep its old values: "
            f"the tape keeps {self.guard.held:,} bytes already",
            caller(),
            "",
            RUN_AGAIN,
        )
        return replace(told, code="out-of-memory")

    def _overwritten_since(self, place: Place) -> Diagnostic:
        return self._told(
            f"{self._name()} was overwritten at {place}, after backward() had run: a second backward pass "
            f"cannot run, since {self.reader} needs its old values",
            place,
            self._consequence(),
            "ask for gradients, norms or contributions before you overwrite it, or record again",
        )

    def _told(self, message: str, place: Place, note: str, hint: str) -> Diagnostic:
        related = (Related("it was read by this launch:", self.reader.place.span),)
        return Diagnostic(message, place.span, "overwrite", note=note, hint=hint, related=related)

    def _changed_unseen(self) -> Diagnostic:
        taken, related = self._taken, tuple[Related, ...]()
        if taken is not None and taken != self.reader.place:
            related = (Related("the view was taken here:", taken.span),)
        return Diagnostic(
            f"{self._name()} was changed through a view (NumPy, PyTorch), "
            f"but {self.reader} needs its old values",
            self.reader.place.span,
            "host-write",
            note=self._consequence(),
            hint=NOTICED,
            related=related,
        )

    def _consequence(self) -> str:
        """The gradients that are wrong without the old values, in words."""
        affected = self.reader.affected()
        names = dict.fromkeys(name_in_caller(one) or name_of_memory(one.allocation) for one in affected)
        quoted = [f"`{name}`" for name in names if name]
        if not quoted:
            return "the gradients of what the launch read would be wrong"
        plural = "s" if len(quoted) > 1 else ""
        return f"the gradient{plural} of {' and '.join(quoted)} would be wrong"


class Marked(Snapshot):
    """An array that other code has read: a tape that does not save reports later writes to it."""

    __slots__ = ("_guard", "_place")

    def __init__(self, guard: Guard, elements: array, place: Place) -> None:
        self._guard = guard
        self._place = place
        super().__init__(elements)

    def overwritten(self, target: array, needed: array) -> None:
        if self._guard.policy == "error":
            raise TapeError(self._overwritten())
        self.release()
        warn(self._overwritten())

    def _overwritten(self) -> Diagnostic:
        return Diagnostic(
            f"{called(self.elements)} is overwritten here, but a function recorded on the tape "
            "has read it and may need its old values",
            caller().span,
            "overwrite",
            hint=ELSEWHERE,
            related=(Related("it was marked as read here:", self._place.span),),
        )


# ---------------------------------------------------------------------------------------------- unseen writes


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class UnseenRecord(Simple):
    """A write that the tape did not see: an adjoint that reaches it has nowhere to go.

    `failed` is the launch or checkpoint at `place` that wrote it and did not come to its end, if that is
    known, and `read` what it read.
    """

    dest: array
    place: Place
    failed: str = ""
    read: tuple[array, ...] = ()

    def __repr__(self) -> str:
        return f"<{self.title} before {self.place}>"

    @property
    def title(self) -> str:
        return self.failed or "a write outside of the tape"

    def pull(self, adjoints: Adjoints, level: Level) -> None:
        bar = adjoints.known(self.dest)
        if bar is None or not bar.host().any():
            return
        name = name_of_memory(self.dest.allocation)
        if self.failed:
            code, whole = "failed-launch", f"`{name}`" if name else "an array"
            message = (
                f"no gradient flows through {self.failed}, which failed before it had written all of {whole}"
            )
            hint = "record a new tape without the failed launch, or set the array anew before it is read"
        else:
            changed = f"`{name}`, which this tape uses," if name else "an array that this tape uses"
            code = "unseen-write"
            message = f"{changed} was changed before this line, and the tape did not see how"
            hint = (
                "change it inside `with tape:` by a launch, assign() or fill_(): not through NumPy, nor with "
            )
            hint += "record_tape=False; for a step in NumPy there is kl.func.custom_vjp"
            hint += "" if name else "; a field of a struct is set as a whole: s.v = ..."
            if name and "." in name:
                hint = f"set the field of the struct as a whole: {name} = ..."
        raise TapeError.of(message, code, hint, self.place.span)


class WrittenMemory:
    """Memory whose contents its owner knows, and what others have written to it since.

    Of an input, which the owner has read and not written, a change through a NumPy view is looked for only
    where the view is taken later.  `others` are the writes since the last note.
    """

    __slots__ = ("_known", "_memory", "_poked", "_summed", "checksum", "is_input", "others")

    def __init__(self, memory: Allocation, is_input: bool = False) -> None:
        self._memory = memory
        self.is_input = is_input
        self.others: list[array] = []
        self.checksum: int | None = None  # when the first `_known` of the others had written
        self._known = 0
        self._poked = False
        self._summed = 0, 0

    def note(self) -> None:
        """Note that the tape knows the present contents of the memory."""
        self.others = []
        self._poked = False
        self._known = 0
        self.checksum = self._first_sum() if self._memory.is_exposed else None

    def exposed(self) -> None:
        """From here on a NumPy view may change the bytes unseen."""
        if self.checksum is None or self._known != len(self.others):
            self.checksum, self._known = self._first_sum(), len(self.others)

    def before_write(self, target: array) -> None:
        """Remember which elements are about to be written, and whether others have changed by now."""
        if self.checksum is not None:
            self._poked = self.is_poked
        elif len(self.others) > 1 and self.others[-2] is self.others[-1] is target:
            return  # a write of others and one that may be the tape's own say all
        self.others.append(target)

    def may_be_unseen(self, own: int) -> bool:
        """Whether `unseen` has anything to look at."""
        return self.checksum is not None or len(self.others) != own

    def unseen(self, own: int) -> Sequence[array]:
        """The writes since the last note, without the tape's `own` last writes."""
        if not self.is_poked:
            if not self.others and not self._memory.is_exposed:
                self.checksum = None  # no view is left
            return self.others[: len(self.others) - own]
        return [numbers_of(self._memory, uint8)]

    @property
    def is_poked(self) -> bool:
        """Whether bytes changed through a NumPy view, as far as announced writes do not hide it."""
        if self._poked or self.checksum is None or self._known != len(self.others):
            return self._poked
        return self.checksum != self._sum()

    def _first_sum(self) -> int:
        self._summed = self._memory.address, self._memory.nbytes
        return self._sum()

    def _sum(self) -> int:
        """The checksum of what was summed at first: borrowed memory may have grown since."""
        start, nbytes = self._summed
        skipped = start - self._memory.address
        return checksum(memoryview(self._memory.seen())[skipped : skipped + nbytes])


class Untouched:
    """Memory that nobody else has written, nor can unseen: one object stands for all of it."""

    __slots__ = ("is_input",)

    others: ClassVar[Sequence[array]] = ()
    checksum: ClassVar[int | None] = None
    is_poked: ClassVar[bool] = False

    def __init__(self, is_input: bool) -> None:
        self.is_input = is_input

    def note(self) -> None:
        """Nothing is to be noted."""

    def may_be_unseen(self, own: int) -> bool:
        """Whether the tape has announced a write of its own that did not come here."""
        return own != 0

    def unseen(self, own: int) -> Sequence[array]:
        """No writes."""
        return ()


RESULT, _INPUT = Untouched(is_input=False), Untouched(is_input=True)


class Witness:
    """Distinguishes the writes of a tape or a transform from those of others to the same memory."""

    def __init__(self) -> None:
        self._written: dict[Allocation, WrittenMemory | Untouched] = {}
        self._as_witness = (weakref.ref(self),)

    def has_written(self, memory: Allocation) -> None:
        """Note that the present contents of some memory are known."""
        written = self._written.get(memory)
        if written is None:
            memory.witness(self._as_witness)
        if memory.is_exposed:
            written = self._touched(memory)
            written.is_input = False
            written.note()
        else:
            self._written[memory] = RESULT

    def has_read(self, memory: Allocation) -> None:
        """Note that an input counts by its present contents."""
        if memory not in self._written:
            memory.witness(self._as_witness)
            self._written[memory] = _INPUT
            if memory.is_exposed:
                self._touched(memory)

    def _touched(self, memory: Allocation) -> WrittenMemory:
        """What is known of memory that others write, or can write unseen."""
        written = self._written.get(memory, RESULT)
        if isinstance(written, Untouched):
            written = self._written[memory] = WrittenMemory(memory, written.is_input)
        return written

    def has_changed(self, memory: Allocation, own: int = 0) -> bool:
        """Whether others have written to a memory since it was noted, not counting the `own` last writes."""
        written = self._written.get(memory)
        return written is not None and written.may_be_unseen(own) and len(written.unseen(own)) > 0

    def follows(self, memory: Allocation) -> bool:
        """Whether a change of some memory would be noticed."""
        return memory in self._written

    def computed(self, memory: Allocation) -> bool:
        """Whether a write to the memory was seen."""
        written = self._written.get(memory)
        return written is not None and not written.is_input

    def alert(self, memory: Allocation, change: Change | None) -> None:
        """Called when a memory is about to change."""

    def before_write(self, target: array) -> None:
        if target.allocation in self._written:
            self._touched(target.allocation).before_write(target)

    def is_exposed(self, memory: Allocation) -> None:
        if memory in self._written:
            self._touched(memory).exposed()
