"""Detects writes to memory that a tape or a transform follows, and that it did not see.

A launch with ``record_tape=False``, one that failed half way, a host write between two ``with`` blocks, or
one through a NumPy view changes what the tape computed behind its back.  The next record finds out and leaves
a mark on the tape; only if an adjoint has to pass the mark is it an error.
"""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass

from kernelab.autodiff.records.adjoint_buffers import Adjoints
from kernelab.autodiff.records.moves import Simple
from kernelab.errors import Diagnostic, TapeError
from kernelab.lang.types import uint8
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import Place, name_of_memory
from kernelab.runtime.memory.interop import checksum
from kernelab.runtime.memory.memory import Allocation


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class UnseenRecord(Simple):
    """A write that the tape did not see: an adjoint that reaches it has nowhere to go.

    `failed` is the kernel whose launch at `place` wrote it and did not come to its end, if that is known.
    """

    dest: array
    place: Place
    failed: str = ""

    def __repr__(self) -> str:
        return f"<{self.title} before {self.place}>"

    @property
    def title(self) -> str:
        return "a write outside of the tape"

    def pull(self, adjoints: Adjoints) -> None:
        bar = adjoints.known(self.dest)
        if bar is not None and bar.host().any():
            raise TapeError(_unseen(self))


def _unseen(record: UnseenRecord) -> Diagnostic:
    name = name_of_memory(record.dest.allocation)
    if record.failed:
        return Diagnostic(
            f"no gradient flows through the launch of `{record.failed}`, which failed before it had written "
            f"all of {f'`{name}`' if name else 'an array'}",
            record.place.span,
            "failed-launch",
            hint="set the array anew, or launch a kernel that does, before it is read",
        )
    called = f"`{name}`, which this tape uses," if name else "an array that this tape uses"
    return Diagnostic(
        f"{called} was changed before this line, and the tape did not see how",
        record.place.span,
        "unseen-write",
        hint="change it inside `with tape:` by a launch, assign() or fill_(): not through NumPy, nor with "
        "record_tape=False",
    )


class WrittenMemory:
    """Memory whose contents are known, and what was written to it since by others, as its owner is told.

    Of an input, which the owner has read and not written, a change through a NumPy view is looked for only
    where the view is taken later.
    """

    __slots__ = ("_checksum", "_known", "_memory", "_others", "_poked", "_summed", "is_input")

    def __init__(self, memory: Allocation, is_input: bool = False) -> None:
        self._memory = memory
        self.is_input = is_input
        self._others: tuple[array, ...] = ()
        self._checksum: int | None = None  # when the first `_known` of the others had written
        self._known = 0
        self._poked = False
        self._summed = 0, 0

    def note(self) -> None:
        """Note that the tape knows the present contents of the memory."""
        self._others = ()
        self._poked = False
        self._known = 0
        self._checksum = self._first_sum() if self._memory.is_exposed else None

    def exposed(self) -> None:
        """From here on a NumPy view may change the bytes unseen."""
        if self._checksum is None or self._known != len(self._others):
            self._checksum, self._known = self._first_sum(), len(self._others)

    def before_write(self, target: array) -> None:
        """Remember which elements are about to be written, and whether others have changed by now."""
        if self._checksum is not None:
            self._poked = self._has_changed()
        self._others = (*self._others, target)

    def may_be_unseen(self, own: int) -> bool:
        """Whether `unseen` has anything to look at."""
        return self._checksum is not None or len(self._others) != own

    def unseen(self, own: int) -> Sequence[array]:
        """The writes since the last note, without the tape's `own` last writes."""
        if not self._has_changed():
            if not self._others and not self._memory.is_exposed:
                self._checksum = None  # no view is left
            return self._others[: len(self._others) - own]
        memory = self._memory
        return [array.over(memory, 0, (memory.nbytes,), (1,), uint8)]

    def _has_changed(self) -> bool:
        """Whether bytes changed through a NumPy view, as far as announced writes do not hide it."""
        if self._poked or self._checksum is None or self._known != len(self._others):
            return self._poked
        return self._checksum != self._sum()

    def _first_sum(self) -> int:
        self._summed = self._memory.address, self._memory.nbytes
        return self._sum()

    def _sum(self) -> int:
        """The checksum of what was summed at first: borrowed memory may have grown since."""
        start, nbytes = self._summed
        skipped = start - self._memory.address
        return checksum(memoryview(self._memory.seen())[skipped : skipped + nbytes])


class Witness:
    """Tells what a tape or a transform itself has written from what others write to the same memory."""

    def __init__(self) -> None:
        self._written: dict[Allocation, WrittenMemory] = {}
        self._as_witness = (weakref.ref(self),)

    def has_written(self, memory: Allocation) -> None:
        """Note that the present contents of some memory are known."""
        known = self._written.get(memory)
        if known is None:
            known = self._written[memory] = WrittenMemory(memory)
            memory.witness(self._as_witness)
        known.is_input = False
        known.note()

    def has_read(self, memory: Allocation) -> None:
        """Note that an input counts by its present contents."""
        if memory not in self._written:
            self._written[memory] = WrittenMemory(memory, is_input=True)
            memory.witness(self._as_witness)

    def follows(self, memory: Allocation) -> bool:
        """Whether a change of some memory would be noticed."""
        return memory in self._written

    def computed(self, memory: Allocation) -> bool:
        """Whether some of the memory was written where this could see it."""
        known = self._written.get(memory)
        return known is not None and not known.is_input

    def alert(self, memory: Allocation) -> None:
        """A memory is about to change; nobody waits for that here."""

    def before_write(self, target: array) -> None:
        known = self._written.get(target.allocation)
        if known is not None:
            known.before_write(target)

    def is_exposed(self, memory: Allocation) -> None:
        known = self._written.get(memory)
        if known is not None:
            known.exposed()
