"""A tape as one function: its records run again, on copies of the memory that they touched.

What the arrays held before the tape is taken from what the tape saved, and from what they hold now; where a
tape overwrites what it started from, it is run again from what stands there now, and `is_exact` says so.
Knows records and levels; must not know how derivatives are compared.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kernelab.autodiff.hazards import Policy
from kernelab.autodiff.levels import BASE, Level, fresh
from kernelab.autodiff.moves import CopyRecord, OverwriteRecord
from kernelab.autodiff.programs import Program
from kernelab.autodiff.records import LaunchRecord, Record
from kernelab.autodiff.reverse import Keeper, Reverse
from kernelab.lang.types import is_differentiable
from kernelab.runtime.arguments import Reference
from kernelab.runtime.gathered import Gathered
from kernelab.runtime.launch import launch
from kernelab.runtime.memory import Allocation, duplicate_of
from kernelab.runtime.strided import array
from kernelab.runtime.touched import part


class NotReplayableError(Exception):
    """Why a tape cannot run again."""


class Line:
    """The records of a tape, one after another, and the memory that they start from.

    `sources` are the arrays with gradients that are read before anything is written there.  Raises
    NotReplayableError where a record is no launch, copy or known overwrite.
    """

    def __init__(self, records: Sequence[Record], policy: Policy) -> None:
        self.records = records
        self.saves = policy != "warn"
        self._plays = [_play(record) for record in records]
        self._arrays = list(dict.fromkeys(a for record in records for a in touched(record)))
        self._starts = _starts(records, self._arrays)
        self.sources = _sources(records)
        self.is_exact = self._ends_as_it_did()

    def targets(self, count: int) -> list[array]:
        """The arrays of floats that the first `count` records change."""
        found = (a for record in self.records[:count] for a in record.written)
        return [a for a in dict.fromkeys(found) if is_differentiable(a.dtype) and a.size]

    def start(self, elements: array) -> array:
        """What an array held before the tape."""
        return elements.twin(self._starts[elements.allocation])

    @property
    def nbytes(self) -> int:
        """How much memory the tape touched."""
        return sum(memory.nbytes for memory in self._starts)

    @property
    def meets(self) -> bool:
        """Whether threads of any launch may meet."""
        kernels = {record.kernel for record in self.records if isinstance(record, LaunchRecord)}
        return any(Program.of(kernel.by_leaves).meets for kernel in kernels)

    def run(self, count: int, level: Level = BASE) -> "Run":
        """The first `count` records, at a level, over copies of their own."""
        made = Run(self._starts)
        made.go(self._plays[:count], level)
        return made

    def reversed_run(self, count: int, base: Level) -> "tuple[Run, AsTape]":
        """The same, so that adjoints can be taken back as the tape takes them."""
        made, level = Run(self._starts), AsTape(base, self.saves)
        level.tracked.update(made.of(source).allocation for source in self.sources)
        made.go(self._plays[:count], level)
        return made, level

    def moved_run(self, count: int, level: Level, move: "Callable[[Run], None]") -> "Run":
        """The same at a level, once `move` has changed what it starts from."""
        made = Run(self._starts)
        move(made)
        made.go(self._plays[:count], level)
        return made

    def arguments(self, run: "Run", k: int) -> list[Any]:
        """What record `k`, a launch, is given in a run."""
        record = self.records[k]
        assert isinstance(record, LaunchRecord)
        return _arguments(record, run)

    def _ends_as_it_did(self) -> bool:
        """Whether what the records read of each other is what they read when they were recorded."""
        made, seen = self.run(len(self.records)), {a.allocation for r in self.records for a in _loaded(r)}
        changed = (a for record in self.records for a in _changed(record) if a.allocation in seen)
        return all(_same_bytes(made.of(a), a) for a in changed)


class Run:
    """One run over copies of the memories that a line starts from; `at` is the record that runs."""

    def __init__(self, starts: dict[Allocation, Allocation]) -> None:
        self._memories = {memory: _copied(start, memory) for memory, start in starts.items()}
        self._twins: dict[array, array] = {}

    def of(self, elements: array) -> array:
        """The array of this run that stands for one of the tape's."""
        twin = self._twins.get(elements)
        if twin is None:
            twin = self._twins[elements] = elements.twin(self._memories[elements.allocation])
        return twin

    def go(self, plays: "Sequence[Play]", level: Level) -> None:
        with level.active():
            for k, play in enumerate(plays):
                if isinstance(level, AsTape):
                    level.at = k
                play(self, level)


Play = Callable[[Run, Level], None]


def _play(record: Record) -> Play:
    """What a record does in a run, at a level."""
    match record:
        case LaunchRecord():
            if any(isinstance(given, Gathered) for given in record.call.arguments):
                raise NotReplayableError(f"{record.title} takes picked elements")
            kernel, extents = record.kernel.by_leaves, record.grid.extents
            return lambda run, level: launch(kernel, extents, _arguments(record, run))
        case CopyRecord(dest, src):
            if dest.overlaps(src):
                return lambda run, level: _move(level, run.of(dest), _aside(level, run.of(src)))
            return lambda run, level: _move(level, run.of(dest), run.of(src))
        case OverwriteRecord(dest):
            values = _overwriting(record)
            return lambda run, level: _move(level, run.of(dest), _constant(dest, values))
        case _:
            raise NotReplayableError(f"{record.title} is known by its adjoint only")


def _move(level: Level, dest: array, src: array) -> None:
    dest.allocation.will_write(dest)
    level.move(dest, src)


def _aside(level: Level, elements: array) -> array:
    """A copy of elements that are about to be overwritten."""
    made = fresh(elements.shape, elements.dtype)
    level.move(made, elements)
    return made


def _arguments(record: LaunchRecord, run: Run) -> list[Any]:
    given = [value.array if isinstance(value, Reference) else value for value in record.call.arguments]
    return [run.of(value) if isinstance(value, array) else value for value in given]


def _overwriting(record: OverwriteRecord) -> Any:
    """The values that the host wrote, where they are known."""
    if record.value is not None:
        return record.value
    if record.dest.allocation.version != record.version:
        raise NotReplayableError(f"what {record.title} wrote at {record.place} has been overwritten since")
    return record.dest.seen().copy()


def _constant(like: array, values: Any) -> array:
    made = fresh(like.shape, like.dtype, like, cleared=False)
    made.blank()[...] = values
    return made


def touched(record: Record) -> Iterator[array]:
    """The arrays that a record was given."""
    if isinstance(record, LaunchRecord):
        for given in record.call.arguments:
            value = given.array if isinstance(given, Reference) else given
            if isinstance(value, array):
                yield value
    else:
        yield from (*record.read, *record.written)


def _changed(record: Record) -> Sequence[array]:
    if isinstance(record, LaunchRecord):
        return [record.call.arguments[i] for i in record.kernel.plan.written]
    return record.written


def _loaded(record: Record) -> list[array]:
    """The arrays whose values a record uses, not only adds to."""
    if not isinstance(record, LaunchRecord):
        return list(record.read)
    kernel = record.kernel
    given = zip(kernel.primal.params, record.call.arguments, strict=True)
    return [value for var, value in given if var in kernel.effects.reads and isinstance(value, array)]


def _starts(records: Sequence[Record], arrays: Sequence[array]) -> dict[Allocation, Allocation]:
    """For each memory a copy of what it held before the records, as far as that is known."""
    starts = {a.allocation: a.allocation for a in arrays}
    starts = {memory: _copied(memory, memory) for memory in starts}
    written: set[Allocation] = set()
    for record in records:
        for _, watch in record.watches if isinstance(record, LaunchRecord) else ():
            elements, saved, box = watch.elements, watch.saved, watch.reader.box()
            if saved is not None and box is not None and elements.allocation not in written:
                kept = part(elements.twin(starts[elements.allocation]), box)
                kept.host()[...] = part(saved, box).seen()
        written.update(a.allocation for a in _changed(record))
    return starts


def _copied(memory: Allocation, like: Allocation) -> Allocation:
    made = duplicate_of(memory)
    made.requires_grad = like.requires_grad
    return made


def _same_bytes(a: array, b: array) -> bool:
    return a.seen().tobytes() == b.seen().tobytes()


def _sources(records: Sequence[Record]) -> list[array]:
    found: dict[array, None] = {}
    written: list[array] = []
    for record in records:
        for source in record.reached:
            fits = source.requires_grad and source.size and is_differentiable(source.dtype)
            if fits and source not in found and not any(source.overlaps(target) for target in written):
                found[source] = None
        written += record.written
    return list(found)


# ------------------------------------------------------------------------------------------ as a tape


class AsTape(Reverse):
    """Reverse mode that saves what is overwritten only if the tape does; `spoiled` lists what was not.

    Each is the record that reads, the elements, and the record that overwrites them.
    """

    def __init__(self, parent: Level, saves: bool) -> None:
        super().__init__(parent)
        self.saves = saves
        self.at = 0
        self.spoiled: list[tuple[int, array, int]] = []

    def _keeper(self, elements: array) -> Keeper:
        return super()._keeper(elements) if self.saves else _Noting(self, elements)


class _Noting(Keeper):
    """Notes that its elements are overwritten, and lets them go."""

    __slots__ = ("reader", "tape")

    def __init__(self, tape: AsTape, elements: array) -> None:
        self.tape, self.reader = tape, tape.at
        super().__init__(tape.parent, elements)

    def before_write(self, target: array) -> None:
        if target.overlaps(self.elements):
            self.tape.spoiled.append((self.reader, self.elements, self.tape.at))
            self.elements.allocation.unwatch(self, self.elements.extent)

    def exposed(self) -> None:
        """Runs hand out no views."""
