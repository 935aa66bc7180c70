"""Checkpoints: a function's launches become one record, and run again in the backward pass.

    for _ in range(30):
        state = kl.checkpoint(steps, state)          # the arrays in between are freed, and made again

While the function runs first nothing is recorded; an `Observer` notes which arrays from outside it reads,
keeps what is overwritten of them, and signs what it does.  In the backward pass these arrays hold for a while
what they held, the function runs again on an inner tape, and the adjoints are taken through that.  A second
run that does anything else than the first is an error: no gradient of it could be right.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any
from weakref import WeakSet

from kernelab.autodiff.records.adjoint_buffers import Adjoints, Level
from kernelab.autodiff.records.backward import BackwardPlan, Puller, ends_on_the_way, refuse_late, sweep
from kernelab.autodiff.records.coverage import are_all
from kernelab.autodiff.records.cuts import distinct
from kernelab.autodiff.records.hazards import Guard
from kernelab.autodiff.records.moves import Flowing
from kernelab.autodiff.records.provenance import HostRead, Provenance
from kernelab.autodiff.records.recording import Recording
from kernelab.autodiff.records.snapshots import Snapshot, as_they_were
from kernelab.autodiff.tape.run_signature import Signature, Signed, added_to_by, arrays_in, read_by
from kernelab.data_classes import dataclass
from kernelab.errors import Diagnostic, KernelTypeError, TapeError
from kernelab.host.traced import Origins
from kernelab.lang.types import is_differentiable
from kernelab.runtime.array.array import array
from kernelab.runtime.context.conversion import HostArray, described
from kernelab.runtime.context.garbage import as_the_user_has_it
from kernelab.runtime.context.recorder import RECORDER, Place, Recorder, caller, refusal
from kernelab.runtime.host.structarray import leaves_of
from kernelab.runtime.launch.call import Call
from kernelab.runtime.memory.memory import Allocation
from kernelab.settings import during


def checkpoint(func: Callable[..., Any], *arrays: Any) -> Any:
    """Call ``func(*arrays)`` and return its result, recorded on the tape as one entry.

    The arrays that `func` makes and does not return are freed; `backward` runs `func` again to have them, so
    a simulation of n steps in blocks of about sqrt(n) needs memory for 2 sqrt(n) of them, and its primal runs
    twice.  Checkpoints may be nested.  What `func` depends on has to be the same at the second run: pass what
    changes (a loop's variable, a step size) as arguments.  An array from before the call shows the gradient
    by what it held then if `func` reads that, else by what it holds afterwards.  Without an open tape it is a
    plain call.

    Raises TapeError in `backward` if the second run differs from the first.

    >>> def block(x):
    ...     for _ in range(10):
    ...         x = kl.map(lambda v: 2.0 * v, x)
    ...     return x
    >>> x = kl.ones(1, requires_grad=True)
    >>> with kl.Tape() as tape:
    ...     y = kl.checkpoint(block, kl.checkpoint(block, x))
    >>> tape.backward(y)
    >>> x.grad.list()
    [1048576.0]
    """
    function: Any = func
    if not callable(function):
        message = f"checkpoint takes a function and its arguments, not {described(func)}"
        hint = "write kl.checkpoint(steps, x, v), which calls steps(x, v)"
        raise KernelTypeError.of(message, "argument", hint)
    recording = RECORDER.get()
    if not isinstance(recording, Recording):
        return func(*arrays)
    place = caller()
    observer = Observer(recording, place)
    for passed in arrays_in(arrays):
        observer.reads(passed)
    title = f"the checkpoint of {getattr(func, '__name__', 'a function')}"
    try:
        with during(RECORDER, observer):
            result = func(*arrays)
    except BaseException:  # also an interrupt
        recording.has_failed(title, observer.written_outside(), place, observer.read_outside())
        raise
    finally:
        observer.close()
    observer.record(func, arrays, title, tuple(arrays_in(result)))
    return result


# ------------------------------------------------------------------------------ the first run


class FirstRun(Recorder):
    """Runs launches plainly, and notes what comes from outside."""

    def __init__(self, recording: Recording, place: Place) -> None:
        self._recording = recording
        self._place = place
        self._reads_before = len(recording.provenance.host_reads)
        self.signature = Signature(getattr(recording, "signature", None))
        self._keeps: dict[bytes, Snapshot] = {}
        self._read: set[bytes] = set()
        self._first: dict[bytes, array] = {}
        self._written: dict[bytes, array] = {}
        self._replaced: dict[Allocation, dict[bytes, array]] = {}
        self._computed: set[Allocation] = set()
        self._looked_for: set[Allocation] = set()
        self._followed: dict[Allocation, bool] = {}
        self._left: WeakSet[Allocation] = WeakSet()

    def close(self) -> None:
        """Stop observing."""
        tape, kept = self._recording, [keep.elements for keep in self._keeps.values()]
        touched = {elements.allocation for elements in (*kept, *self._written.values())}
        self._followed = {memory: tape.computed(memory) for memory in touched if tape.follows(memory)}
        for elements in self._first.values():
            if elements.requires_grad:
                tape.has_read(elements.allocation)
        for memory in {target.allocation for target in self._written.values()}:
            if memory.serial <= self.signature.start:
                tape.has_written(memory)

    def written_outside(self) -> list[array]:
        """The arrays from before the run that it has changed."""
        return [target for target in self._written.values() if self.signature.is_outside(target)]

    def read_outside(self) -> tuple[array, ...]:
        """The arrays from before the run that it has read as they were."""
        return tuple(self._first.values())

    def record(
        self, func: Callable[..., Any], arguments: tuple[Any, ...], title: str, results: tuple[array, ...]
    ) -> None:
        """Add the record to the tape."""
        self.signature.returns(results)
        outside = self.written_outside()
        inside = {target.allocation for target in self._written.values()} - {t.allocation for t in outside}
        created = tuple(r for r in results if not self.signature.is_outside(r))
        changed = [target for target in (*created, *outside) if is_differentiable(target.dtype)]
        read = [source for source in self._first.values() if is_differentiable(source.dtype)]
        reached = [keep.elements for keep in self._keeps.values() if is_differentiable(keep.elements.dtype)]
        keeps = tuple(self._keeps.values())
        self._recording.add_work(
            CheckpointRecord(
                func,
                arguments,
                title,
                self._place,
                tuple(read),
                tuple(reached),
                tuple(changed),
                created,
                tuple(outside),
                keeps,
                self.signature,
                self._followed,
                self._recording.provenance,
                self._reads_before,
                self._computed.intersection(target.allocation for target in changed),
            ),
            inside - {r.allocation for r in created},
        )
        self._recording.leaves(self._left, [one for one in reached if one.requires_grad])
        for target in outside:
            if target.allocation.is_exposed:
                self._recording.looked_at(target)  # the host sees what was written

    # -------------------------------------------------------------------------------------- what it notes

    def reads(self, elements: array) -> None:
        """Keep an array from outside as it is now, the first time it is read."""
        if not self.signature.is_outside(elements):
            return
        key = elements.packed
        if key in self._read:
            return
        self._read.add(key)
        replaced = self._replaced.get(elements.allocation)
        if replaced is None or not are_all([*replaced.values()], elements):
            self._look_for_unseen(elements)
            self._recording.provenance.look_again(elements, len(self._recording.records))
            self._first[key] = elements
        self._keep(elements)

    def adds_to(self, elements: array) -> None:
        """Keep an array that is added to; adjoints flow to what it held only if it has some."""
        if elements.requires_grad:
            self.reads(elements)
        elif self.signature.is_outside(elements):
            self._keep(elements)

    def _keep(self, elements: array) -> None:
        if elements.packed not in self._keeps:
            self._keeps[elements.packed] = Snapshot(elements)

    def _look_for_unseen(self, elements: array, own: int = 0) -> None:
        """Make the tape look for unseen writes now: at the end it sees those of the run itself."""
        memory = elements.allocation
        if memory not in self._looked_for and self.signature.is_outside(elements):
            self._looked_for.add(memory)
            self._recording.look_for_unseen(elements, own)

    def writes(self, elements: array) -> None:
        """Note that some elements of an array are about to change, or have just."""
        self._written.setdefault(elements.packed, elements)

    def replaces(self, elements: array) -> None:
        """Note that all elements of an array have changed, whatever they were."""
        self.writes(elements)
        self._replaced.setdefault(elements.allocation, {})[elements.packed] = elements

    def launch(self, call: Call) -> None:
        for elements in read_by(call):
            self.reads(elements)
        for elements in added_to_by(call):
            self.adds_to(elements)
        for target in call.targets:
            self._look_for_unseen(target)
        call.will_write()
        for target in call.targets:  # also where the launch fails: part of the threads may have run
            self.writes(target)
        if any(is_differentiable(source.dtype) for source in read_by(call)):
            self._computed.update(target.allocation for target in call.targets)
        call.primal()
        for i in call.kernel.plan.written:
            if call.overwrites_all(i):
                self.replaces(call.arguments[i])

    def left_out(self, call: Call) -> None:
        """Keep what a launch reads and changes that is not to be recorded: it runs again, too."""
        for elements in (*read_by(call), *call.targets):
            if self.signature.is_outside(elements):
                self._keep(elements)

    def adjoint_alone(self, what: str, arguments: Sequence[array]) -> None:
        """Refuse gradients that the second run would add once more."""
        message = f"{what} cannot run in a checkpoint: its function runs again, and adds the gradients twice"
        raise refusal(TapeError, message, "nested", "go back outside of kl.checkpoint")

    def copied(self, dest: array, src: array, how: str) -> None:
        self._look_for_unseen(dest, own=1)
        for source in leaves_of(src):
            self.reads(source)
        for target in leaves_of(dest):
            self.replaces(target)
            self._computed.add(target.allocation)

    def overwritten(self, dest: array, how: str, data: Any = None) -> None:
        self._look_for_unseen(dest, own=1)
        self._recording.provenance.made_from_host(dest, data, len(self._recording.records), how)
        for target in leaves_of(dest):
            self.replaces(target)

    def made_from_host(self, elements: array, data: Any = None) -> None:
        self._recording.provenance.made_from_host(elements, data, len(self._recording.records))

    def filled(self, memory: Allocation, sources: Origins) -> None:
        self._recording.filled(memory, sources)

    def called_host(self, call: Any, arguments: Sequence[array], results: Sequence[array]) -> None:
        """Note what a Python function with a derivative of its own has read and returned."""
        for elements in arrays_in(call.args):
            self.reads(elements)
        for elements in call.arrays_around():
            if self.signature.is_outside(elements):
                self._keep(elements)
        self._recording.note_host_values(call.arrays_around(), call.used)
        self._left.update(call.left)
        for result in results:
            self.replaces(result)
            self._computed.add(result.allocation)

    def marked_read(self, elements: array) -> None:
        """Reads by other code may decide what the function does."""
        for leaf in leaves_of(elements):
            self.reads(leaf)

    def looked_at(self, elements: array) -> Origins:
        """Values that the host reads may decide what the function does."""
        for leaf in leaves_of(elements):
            self.reads(leaf)
        return self._recording.looked_at(elements)

    def tabulate(self, target: array, sources: Sequence[array], compute: Callable[..., HostArray]) -> None:
        """Note what decides, which the second run reads again."""
        for source in sources:
            self.reads(source)
        super().tabulate(target, sources, compute)


class Observer(Signed, FirstRun):
    """The recorder of a first run, which it signs."""


# ------------------------------------------------------------------------------ the second run


class Replaying(Signed, Recording):
    """The inner tape of a second run, which it signs as the first was signed."""

    copies_again = True

    def __init__(self, host_reads: Sequence[HostRead], of_first: Signature) -> None:
        super().__init__(Guard("save"))
        self.provenance, self.is_plain = Provenance(host_reads), not host_reads
        self.signature = Signature(of_first=of_first)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CheckpointRecord(Flowing):
    """The record of a call of a function, which runs again in the backward pass.

    `results` are new arrays that it returned, `outside` those that it changed, and `computed` the memory that
    it wrote from what it read.

    The tape followed some memory before, which it had computed or only read: that may not change unseen.
    Of the host reads that `host` knows, the first `reads_before` came before.
    """

    func: Callable[..., Any]
    arguments: tuple[Any, ...]
    title: str
    place: Place
    read: tuple[array, ...]
    reached: tuple[array, ...]
    written: tuple[array, ...]
    results: tuple[array, ...]
    outside: tuple[array, ...]
    keeps: tuple[Snapshot, ...]
    signature: Signature
    followed: dict[Allocation, bool]
    host: Provenance
    reads_before: int
    computed: set[Allocation]

    def computes(self, target: array) -> bool:
        return target.allocation in self.computed

    def pull(self, adjoints: Adjoints, level: Level, puller: Puller | None = None) -> None:
        """Run the function again, with all as it was, and take the adjoints through what it records."""
        with self.again() as (inner, results):
            bars = Adjoints()
            for first, second in zip(self.results, results, strict=True):
                bars.share(second.allocation, adjoints.show(first.allocation))
            for elements in (*self.outside, *self.reached):
                bars.share(elements.allocation, adjoints.show(elements.allocation))
            plan = self.planned(inner, results, bars.memory)
            for cut in distinct(cut for cut in ends_on_the_way(plan, inner) if not cut.may_be_meant):
                cut.warn()
            if not inner.is_plain:
                refuse_late(plan)
            sweep(plan, bars, level, puller)

    def planned(
        self, inner: "Replaying", results: Sequence[array], shared: Iterable[Allocation] = ()
    ) -> BackwardPlan:
        """The plan of the adjoints through what it records when it runs again."""
        seeds = [elements for elements in (*results, *self.outside) if is_differentiable(elements.dtype)]
        return BackwardPlan(tuple(inner.records), seeds, shared=frozenset(shared))

    @contextmanager
    def again(self) -> Iterator[tuple["Replaying", list[array]]]:
        """Run the function again on memory as it was; yields its tape and what it returned."""
        with as_they_were(self.keeps, self.outside) as is_known:
            if not is_known:
                reason = "an array that it reads was changed through a view (NumPy, PyTorch)"
                raise TapeError(_differs(self, reason))
            inner, results = self._run()
            layout = attrgetter("offset", "shape", "strides", "dtype", "allocation.nbytes")
            is_alike = [*map(layout, results)] == [*map(layout, self.results)]
            if inner.signature.sum != self.signature.sum or not is_alike:
                raise TapeError(_differs(self, "it did something else than at first"))
            yield inner, results

    def _run(self) -> tuple[Replaying, list[array]]:
        inner = Replaying(self.host.host_reads[: self.reads_before], self.signature)
        for memory, is_computed in self.followed.items():
            (inner.has_written if is_computed else inner.has_read)(memory)
        with during(RECORDER, inner):
            with as_the_user_has_it():
                results = [*arrays_in(self.func(*self.arguments))]
            inner.ends()
        inner.signature.returns(results)
        return inner, [elements for elements in results if not inner.signature.is_outside(elements)]


def _differs(record: CheckpointRecord, reason: str) -> Diagnostic:
    return Diagnostic(
        f"{record.title} cannot be run again for its gradient: {reason}",
        record.place.span,
        "checkpoint",
        hint="pass what changes (the loop's variable, a step size) as arguments of kl.checkpoint, and make "
        "arrays that are kept between calls before the first",
    )
