"""Replays a tape as one function: its records run again on copies of their memory.

What the arrays held before the tape is taken from how they were made, from what the tape saved, and from
what they hold now; where a tape overwrites what it started from, it is run again from what stands there now,
and `is_exact` says so.  Knows records, levels and tapes; must not know how derivatives are compared.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from kernelab.autodiff.jacobians.subject import Started
from kernelab.autodiff.records.coverage import WHOLE, boxes_in
from kernelab.autodiff.records.hazards import SavedWhole, Watch
from kernelab.autodiff.records.moves import CopyRecord, HostCallRecord, OverwriteRecord
from kernelab.autodiff.records.records import LaunchRecord, Record
from kernelab.autodiff.tape.checkpoint import CheckpointRecord, checkpoint
from kernelab.autodiff.tape.finite import lost_inputs
from kernelab.autodiff.tape.tape import Tape
from kernelab.autodiff.transforms.base_level import BASE, run_host_call
from kernelab.autodiff.transforms.forward_and_reverse import Reverse
from kernelab.autodiff.transforms.levels import Level
from kernelab.data_classes import dataclass
from kernelab.errors import KernelError
from kernelab.lang.ir import Atomic, Custom, Store, Var, of_kind, walk
from kernelab.lang.types import (
    HALVES,
    Value,
    bfloat16,
    float16,
    float64,
    is_differentiable,
    scalar_of,
    shape_of,
)
from kernelab.runtime.array.array import array
from kernelab.runtime.array.transfers import transfer, write
from kernelab.runtime.kernel.arguments import array_of, arrays_in
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.launch.footprint import part
from kernelab.runtime.launch.launch import launch
from kernelab.runtime.memory.memory import Allocation, duplicate_of
from kernelab.settings import Policy

DISTANCES = {bfloat16: 2**-7, float16: 2**-10}
"""The relative distance of neighbours among halves."""


class NotReplayableError(Exception):
    """The reason why a tape cannot run again."""


class Line:
    """The records of a tape, one after another, and the memory that they start from.

    `sources` are the arrays with gradients that are read before anything is written there, those by which
    there is a derivative if there are such, `between` those that are written as a whole, each with the record
    that reads it first, or None.  Raises NotReplayableError where a record is not a launch, copy, known
    overwrite, checkpoint or function of `custom_vjp` that returns the same twice.
    """

    def __init__(self, records: Sequence[Record], policy: Policy) -> None:
        self.records = records
        self.policy = policy
        self._plays = [_play(record) for record in records]
        self._arrays = list(dict.fromkeys(a for play in self._plays for a in play.arrays))
        self._starts = _starts(records, self._arrays)
        self.sources = _sources(records, _varied) or _sources(records, lambda record: record.read)
        self.between = _between(records, self._arrays)
        self._require_repeats()
        self.is_exact = self._ends_as_it_did() and not _is_overwritten_since(records)

    def targets(self, count: int) -> list[array]:
        """The arrays of floats that the first `count` records change."""
        written = (a for record in self.records[:count] for a in record.written)
        return [a for a in dict.fromkeys(written) if is_differentiable(a.dtype) and a.size]

    def start(self, elements: array) -> array:
        """The value of an array before the tape."""
        return elements.twin(self._starts[elements.allocation])

    @property
    def nbytes(self) -> int:
        """The number of bytes that the tape touched."""
        return sum(memory.nbytes for memory in self._starts)

    @property
    def precision(self) -> float:
        """The relative distance of neighbours among the halves that it computes with; 0 if there are none."""
        scalars = {scalar_of(a.dtype) for a in self._arrays if is_differentiable(a.dtype)}
        return max((DISTANCES[scalar] for scalar in HALVES if scalar in scalars), default=0.0)

    @property
    def smallest(self) -> float:
        """Below what a gradient may be lost: the smallest normal number of its floats, 0 of float64."""
        scalars = {scalar_of(a.dtype) for a in self._arrays if is_differentiable(a.dtype)}
        return 0.0 if scalars <= {float64} else float(np.finfo(np.float32).tiny)

    @property
    def meets(self) -> bool:
        """Whether threads of any launch may meet."""
        kernels = {kernel for play in self._plays for kernel in play.kernels}
        launches = (record for record in self.records if isinstance(record, LaunchRecord))
        shared = any(record.kernel.program.sharing(record.arguments) for record in launches)
        return shared or any(kernel.program.meets for kernel in kernels)

    def run(self, count: int) -> "Run":
        """The first `count` records, over copies."""
        run = Run(self._starts)
        with BASE.active():
            run.go(self._plays[:count])
        return run

    def start_run(self, count: int) -> Started:
        """A run of the first `count` records, from the sources to the targets."""
        run = Run(self._starts)

        def go(level: Level) -> list[array]:
            with level.active():
                run.go(self._plays[:count])
            return [run.of(target) for target in self.targets(count)]

        return Started([run.of(source) for source in self.sources], go)

    def reversed_run(self, count: int, base: Level) -> "tuple[Run, Reverse, list[int]]":
        """The first records in reverse mode, and the first entry of each there, with the end of the last."""
        run = Run(self._starts)
        level = Reverse(base, map(run.of, self.sources))
        begins = [0]
        with level.active():
            for play in self._plays[:count]:
                play.run(run)
                begins.append(len(level.entries))
        return run, level, begins

    def taped_run(self, count: int) -> "tuple[Run, Tape]":
        """The same on a tape of its own; whatever the records write has gradients there."""
        run, tape = Run(self._starts), Tape("warn" if self.policy == "warn" else "save")
        tape._recording.guard.heard = False
        for play in self._plays:
            play.require_gradients(run)
        with tape:
            run.go(self._plays[:count])
        return run, tape

    def arguments(self, run: "Run", k: int) -> list[Any]:
        """The arguments of record `k`, a launch, in a run."""
        record = self.records[k]
        assert isinstance(record, LaunchRecord)
        return _arguments(record, run)

    def _require_repeats(self) -> None:
        """Raise NotReplayableError where a Python function returns something else each time."""
        calls = [k for k, record in enumerate(self.records) if isinstance(record, HostCallRecord)]
        first, second = (self.run(calls[-1] + 1 if calls else 0) for _ in range(2))
        for record in (self.records[k] for k in calls):
            if any(first.of(a).seen().tobytes() != second.of(a).seen().tobytes() for a in record.written):
                what = f"{record.title}, of {record.place}, returns something else each time"
                raise NotReplayableError(what)

    def _ends_as_it_did(self) -> bool:
        """Whether what the records read of each other is what they read when they were recorded."""
        run, seen = self.run(len(self.records)), {a.allocation for r in self.records for a in _loaded(r)}
        changed = (a for record in self.records for a in _changed(record) if a.allocation in seen)
        return all(run.of(a).seen().tobytes() == a.seen().tobytes() for a in changed)


class Run:
    """One run over copies of the memories that it starts from; other memory is that of the run `around`."""

    def __init__(self, starts: Mapping[Allocation, Allocation], around: "Run | None" = None) -> None:
        self._memories = {memory: _copied(start, memory) for memory, start in starts.items()}
        self._around = around
        self._twins: dict[array, array] = {}

    def of(self, elements: array) -> array:
        """The array of this run that stands for one of the tape's."""
        if self._around is not None and elements.allocation not in self._memories:
            return self._around.of(elements)
        twin = self._twins.get(elements)
        if twin is None:
            twin = self._twins[elements] = elements.twin(self._memories[elements.allocation])
        return twin

    def adopt(self, memory: Allocation, replacement: Allocation) -> None:
        """Use memory that a part of the run allocated in place of one of the tape's."""
        if self._around is not None and memory not in self._memories:
            self._around.adopt(memory, replacement)
            return
        self._memories[memory] = replacement
        self._twins = {a: twin for a, twin in self._twins.items() if a.allocation is not memory}

    def forget_gradients(self) -> None:
        """Drop the gradients of all copies."""
        for memory in self._memories.values():
            memory.adjoint = None

    def forget_passes(self) -> None:
        """Let the gradients of all copies no longer count as the sum of earlier passes."""
        for memory in self._memories.values():
            if memory.adjoint is not None:
                memory.adjoint.passes = None

    def go(self, plays: "Sequence[Play]") -> None:
        """Run records on the copies; the recorder that is active records them."""
        for play in plays:
            play.run(self)


# ------------------------------------------------------------------------------------------ records


@dataclass(frozen=True, slots=True)
class Play:
    """The replay of one record: its arrays, those that it writes, its kernels."""

    run: Callable[[Run], None]
    arrays: tuple[array, ...]
    written: tuple[array, ...]
    kernels: tuple[Kernel, ...] = ()

    def require_gradients(self, run: Run) -> None:
        """Make the arrays that the record writes require gradients in a run."""
        for target in self.written:
            run.of(target).allocation.requires_grad = True


def _play(record: Record) -> Play:
    arrays, written = tuple(touched(record)), tuple(record.written)
    match record:
        case LaunchRecord():
            kernel, extents = record.kernel.by_leaves, record.grid.extents
            return Play(
                lambda run: launch(kernel, extents, _arguments(record, run)), arrays, written, (kernel,)
            )
        case CopyRecord(dest=dest, src=src, how=how):
            return Play(lambda run: transfer(run.of(dest), run.of(src), how), arrays, written)
        case OverwriteRecord() if not written and not _is_known(record):
            return Play(lambda run: None, arrays, written)  # it ends otherwise, which is told
        case OverwriteRecord(dest, how):
            values = _overwriting(record)
            return Play(lambda run: write(run.of(dest), values, how, None), arrays, written)
        case HostCallRecord():
            return Play(lambda run: _call_again(record, run), arrays, written)
        case CheckpointRecord():
            block = Block(record)
            return Play(block.play, (*block.outside, *arrays, *record.outside), written, block.kernels)
        case _:
            what = f"{record.title}, of {record.place}, is known by its adjoint only"
            raise NotReplayableError(f"{what}; a function of kl.func.custom_vjp(f, back) is checked")


def _call_again(record: HostCallRecord, run: Run) -> None:
    """Call a Python function with a derivative of its own on the copies; its results are new arrays."""
    try:
        results = run_host_call(record.call, [run.of(argument) for argument in record.read])
    except KernelError:
        raise
    except Exception as error:  # noqa: BLE001 (the user's function may raise anything)
        why = f"{type(error).__name__}: {error}"
        raise NotReplayableError(f"{record.title}, of {record.place}, fails on float64 ({why})") from None
    for original, result in zip(record.written, results, strict=True):
        if (result.shape, shape_of(result.dtype)) != (original.shape, shape_of(original.dtype)):
            raise NotReplayableError(f"{record.title}, of {record.place}, returns arrays of other shapes")
        run.adopt(original.allocation, result.allocation)


class Block:
    """The replay of a checkpoint: `outside` are the arrays that it finds, `kernels` what it launches."""

    def __init__(self, record: CheckpointRecord) -> None:
        self.record = record
        with record.again() as (inner, results):
            records = tuple(inner.records)
            self._plays = [_play(each) for each in records]
            self._results = results
            arrays = list(dict.fromkeys((*results, *(a for play in self._plays for a in play.arrays))))
            self._starts = _starts(records, [a for a in arrays if not inner.signature.is_outside(a)])
        self.outside = tuple(a for a in arrays if a.allocation not in self._starts)
        self.kernels = tuple(kernel for play in self._plays for kernel in play.kernels)

    def play(self, run: Run) -> None:
        """Run it as a part of a run, on a tape as a checkpoint again."""
        results = checkpoint(lambda *_: self._run(run), *(run.of(source) for source in self.record.read))
        for original, result in zip(self.record.results, results, strict=True):
            run.adopt(original.allocation, result.allocation)

    def _run(self, around: Run) -> list[array]:
        """Run the records of the checkpoint; its results."""
        run = Run(self._starts, around)
        for play in self._plays:
            play.require_gradients(run)
        run.go(self._plays)
        return [run.of(result) for result in self._results]


def _arguments(record: LaunchRecord, run: Run) -> list[Any]:
    return [run.of(value) if isinstance(value, array) else value for value in map(array_of, record.arguments)]


def _overwriting(record: OverwriteRecord) -> Any:
    """The values that the host wrote, where they are known."""
    if record.value is not None:
        return record.value
    if not _is_known(record):
        raise NotReplayableError(f"what {record.title} wrote at {record.place} has been overwritten since")
    return record.dest.seen().copy()


def _is_known(record: OverwriteRecord) -> bool:
    """Whether what the host wrote is remembered, or still there."""
    return record.value is not None or record.dest.allocation.version == record.version


def touched(record: Record) -> Iterator[array]:
    """The arrays that a record takes."""
    if isinstance(record, LaunchRecord):
        yield from arrays_in(record.arguments)
    else:
        yield from (*_loaded(record), *_changed(record))


def _changed(record: Record) -> Sequence[array]:
    if isinstance(record, LaunchRecord):
        return [record.arguments[i] for i in record.kernel.plan.written]
    return [record.dest] if isinstance(record, CopyRecord | OverwriteRecord) else record.written


def _loaded(record: Record) -> list[array]:
    """The arrays whose values a record uses, not only adds to."""
    if isinstance(record, CopyRecord):
        return [record.src]
    if not isinstance(record, LaunchRecord):
        return list(record.read)
    return [record.arguments[i] for i in record.kernel.plan.read]


def as_read(record: LaunchRecord) -> list[Any]:
    """The arguments of a launch as it read them, as far as that is known: copies of its arrays."""
    starts = _starts((record,), [*arrays_in(record.arguments)])
    arguments = map(array_of, record.arguments)
    return [one.twin(starts[one.allocation]) if isinstance(one, array) else one for one in arguments]


def _starts(records: Sequence[Record], arrays: Sequence[array]) -> dict[Allocation, Allocation]:
    """For each memory a copy of what it held before the records, as far as that is known."""
    writes = Counter(target.allocation for record in records for target in _changed(record))
    # What began as zeros does so here, unless another write counts in its version, too.
    zeros = {one for one, count in writes.items() if one.began_as_zeros and one.version == count}
    starts = {a.allocation: _copied(a.allocation, a.allocation) for a in arrays}
    for memory in zeros:
        starts[memory].fill_zero()
    known = set(starts) - zeros  # of which not all has been written yet
    written: dict[Allocation, dict[array, None]] = {memory: {} for memory in starts}
    for record in records:
        if isinstance(record, LaunchRecord):
            for _, watch in record.snapshots:
                memory = watch.elements.allocation
                if memory in known:
                    with _kept(watch.elements, written[memory], starts[memory]):
                        _put_back(watch, watch.elements.twin(starts[memory]))
            for i, sign in _extrema(record.kernel).items():
                target = record.arguments[i]
                if target.allocation in known:
                    with _kept(target, written[target.allocation], starts[target.allocation]):
                        _move_away(target.twin(starts[target.allocation]), sign)
        for target in _changed(record):
            if target.is_whole:
                known.discard(target.allocation)
            elif target.allocation in known:
                written[target.allocation][target] = None
    return starts


def _is_overwritten_since(records: Sequence[Record]) -> bool:
    """Whether memory that no record writes has changed since a launch read it, and was not saved."""
    written = {target.allocation for record in records for target in _changed(record)}
    launches = (record for record in records if isinstance(record, LaunchRecord))
    return any(
        record.arguments[i].allocation not in written for record in launches for i in lost_inputs(record)
    )


@contextmanager
def _kept(elements: array, written: Iterable[array], start: Allocation) -> Iterator[None]:
    """Within it, what an array shares with those that were written before may change, but is set back."""
    shared = [one.twin(start) for one in written if one.overlaps(elements)]
    before = [one.seen().copy() for one in shared]
    yield
    for one, values in zip(shared, before, strict=True):
        one.host()[...] = values


def _put_back(watch: Watch | SavedWhole, copy: array) -> None:
    """Set those elements of a copy that the tape has saved."""
    saved, box = watch.saved, watch.reader.box()[0]
    if saved is not None and box is not None:
        part(copy, box).host()[...] = part(saved, box).seen()


def _extrema(kernel: Kernel) -> dict[int, int]:
    """The arrays of which a kernel only takes extrema with what they hold: -1 for maxima, 1 for minima.

    What stands there after a launch is the extremum itself: to start from it would be to start at a tie.
    """
    kinds: dict[Var, set[str]] = {}
    for stmt in walk(kernel.primal.body):
        if isinstance(stmt, Atomic | Store):
            kinds.setdefault(stmt.array, set()).add(stmt.kind if isinstance(stmt, Atomic) else "store")
    signs = {frozenset({"max"}): -1, frozenset({"min"}): 1}
    params, floats = kernel.primal.params, kernel.program.floats
    by_array = {i: signs.get(frozenset(kinds.get(params[i], ()))) for i in floats}
    return {i: sign for i, sign in by_array.items() if sign and i not in kernel.plan.read}


def _move_away(elements: array, sign: int) -> None:
    """Make numbers smaller, or larger, by amounts that are no round numbers."""
    values = elements.host()
    values[...] = values + sign * (1.6180339 + 0.5772157 * abs(values))


def _copied(memory: Allocation, like: Allocation) -> Allocation:
    copy = duplicate_of(memory)
    copy.requires_grad = like.requires_grad
    return copy


def _sources(records: Sequence[Record], taken: Callable[[Record], Sequence[array]]) -> list[array]:
    sources: dict[array, None] = {}
    written: list[array] = []
    for record in records:
        for source in taken(record):
            fits = source.requires_grad and source.size and is_differentiable(source.dtype)
            if fits and source not in sources and not any(source.overlaps(target) for target in written):
                sources[source] = None
        written += record.written
    return list(sources)


def _varied(record: Record) -> Sequence[array]:
    """The arrays by which a record has a derivative, also those that a rule of its user leaves out."""
    if not isinstance(record, LaunchRecord):
        return record.reached
    function = record.kernel.program.function
    if not any(of_kind(function.body, Custom)):
        return record.reached
    led = record.kernel.program.leads
    ahead = {id(a) for position, a in enumerate(record.arguments) if led[position]}
    return [*record.reached, *(a for a in record.read if id(a) in ahead)]


def _between(records: Sequence[Record], arrays: Sequence[array]) -> list[tuple[array, int | None]]:
    """What is written before it is read, and seen through arrays that are alike, each read as a whole."""
    views: dict[Allocation, set[tuple[bytes, Value]]] = {}
    for a in arrays:
        views.setdefault(a.allocation, set()).add((a.packed, a.dtype))
    between: dict[Allocation, tuple[array, int | None]] = {}
    read: set[Allocation] = set()
    for k, record in enumerate(records):
        for j, source in enumerate(record.read):
            memory = source.allocation
            if memory in between and memory not in read:
                between[memory] = between[memory][0], k
                if boxes_in(record, "read", j) != (WHOLE,):
                    del between[memory]
            read.add(memory)
        for target in record.written:
            memory = target.allocation
            if memory not in read and len(views.get(memory, ())) == 1 and target.size:
                between.setdefault(memory, (target, None))
    return [each for each in between.values() if is_differentiable(each[0].dtype)]
