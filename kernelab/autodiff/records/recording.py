"""The recorder of a tape: runs launches so that their adjoints can follow, and makes their records."""

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import replace
from time import perf_counter_ns
from typing import Any
from weakref import WeakKeyDictionary, ref

from kernelab.autodiff.records import records
from kernelab.autodiff.records.hazards import (
    RESULT,
    RUN_AGAIN,
    Guard,
    Marked,
    Reader,
    SavedWhole,
    UnseenRecord,
    Untouched,
    Watch,
    Witness,
    WrittenMemory,
)
from kernelab.autodiff.records.moves import CopyRecord, FunctionRecord, HostCallRecord, overwrite_of
from kernelab.autodiff.records.provenance import BEFORE, LEFT, Provenance
from kernelab.autodiff.records.records import LaunchRecord, Outline, Record, Scope, known_outline, not_kept
from kernelab.autodiff.records.snapshots import SMALL, Snapshot, encloses
from kernelab.errors import KernelMemoryError, TapeError
from kernelab.host.traced import Origins
from kernelab.lang.types import is_differentiable, uint8
from kernelab.passes.access.access_regions import Region
from kernelab.runtime.array.array import array, numbers_of
from kernelab.runtime.array.origins import INTEGERS_OVER_FLOATS, stands_on_floats
from kernelab.runtime.context.recorder import IN_RULE, Place, Recorder, called, caller, warn_at
from kernelab.runtime.host.structarray import leaves_of
from kernelab.runtime.kernel.arguments import Reference
from kernelab.runtime.kernel.dispatch import may_keep
from kernelab.runtime.kernel.program import Pullback
from kernelab.runtime.launch.call import Call
from kernelab.runtime.launch.footprint import box_and_whole, changed_part
from kernelab.runtime.memory.memory import Allocation, Change


class Recording(Witness, Recorder):
    """The recorder of a tape: runs launches so that they can be differentiated, and keeps the records.

    `epoch` counts how often it forgot them; `times`, if wanted, are nanoseconds of launches by record.  While
    it `is_plain`, only an array that requires no gradients can end a chain: no launch does, nor the host.
    """

    copies_again = False
    call_type = LaunchRecord

    def __init__(self, guard: Guard) -> None:
        super().__init__()
        self.guard = guard
        self.epoch = 0
        self.times: dict[int, int] | None = None
        self._outlines: dict[Hashable, Outline] = {}
        self._begin()

    def _begin(self) -> None:
        """Begin without any record."""
        self.records: list[Record] = []
        self.scopes: list[Scope] = []
        self._open: list[tuple[str, Any, int]] = []
        self._watches: dict[Hashable, Watch] = {}
        self._waiting: dict[Allocation, LaunchRecord | list[LaunchRecord]] = {}
        self._marks: list[Marked] = []
        self.lost: WeakKeyDictionary[Allocation, Record] = WeakKeyDictionary()
        self.idle: WeakKeyDictionary[Allocation, tuple[str, Place]] = WeakKeyDictionary()
        # What the last run of a function has left stays alive: the next may bind its name to another array.
        self._left: dict[int, tuple[Any, Sequence[Allocation]]] = {}
        self.provenance = Provenance()
        self.is_plain = all(outline.is_plain for outline in self._outlines.values())
        self.has_large = False
        """Whether the adjoint of a launch may have a program for records that are `leaving`."""
        self.is_checked = False

    def clear(self) -> None:
        """Forget everything."""
        self.epoch += 1
        self.times = None if self.times is None else {}
        self._written.clear()
        self.guard.clear()
        self._begin()

    def ends(self) -> None:
        """Record the writes that nobody has seen since the last record: the ``with`` block ends."""
        for written in self._written.values():
            if written.__class__ is not Untouched:
                self._record_unseen(written, 0)

    def look_for_unseen(self, target: array, own: int = 0) -> None:
        """Record the unseen writes to memory that the tape has written, except its `own` last ones."""
        written = self._written.get(target.allocation)
        if written is not None and written.may_be_unseen(own):
            self._record_unseen(written, own)

    def _record_unseen(self, written: WrittenMemory | Untouched, own: int) -> None:
        unseen = written.unseen(own)
        self.records += [UnseenRecord(leaf, caller()) for changed in unseen for leaf in leaves_of(changed)]
        if unseen:
            written.note()

    # -------------------------------------------------------------------------------------- as a witness

    def alert(self, memory: Allocation, change: Change | None) -> None:
        """Make the records whose adjoints read a memory watch it: it is about to change."""
        if memory in self._waiting:
            self._overwritten(memory, None if change is None else change())

    def _overwritten(self, memory: Allocation, target: array | None) -> None:
        waiting = self._waiting.pop(memory)
        records = waiting if isinstance(waiting, list) else [waiting]
        if target is None or len(records) > 1 or not self._saves_whole(records[0], memory, target):
            self._watch_for(records, memory, target)

    def _saves_whole(self, record: LaunchRecord, memory: Allocation, target: array) -> bool:
        """Save what a record needs of a memory, if that is an array which `target` covers; whether it did.

        What a `Watch` would do, where there is nothing left to watch.
        """
        guard, pullback = self.guard, record.outline.pullback
        if guard.policy != "save" or guard.swept or memory.watches.starts or memory.space is not None:
            return False
        assert isinstance(pullback, Pullback)
        arguments, needed = record.arguments, pullback.needed
        if len(needed) > 1:
            needed = tuple([one for one in needed if arguments[one[0]].allocation is memory])
        (position, region), elements = needed[0], arguments[needed[0][0]]
        if len(needed) > 1 or not (target is elements or encloses(target, elements)):
            return False
        low, high = elements.extent
        nbytes = high - low
        is_small = 0 < nbytes <= SMALL and may_keep(nbytes, guard.held)
        if not (is_small and elements.is_contiguous):
            return False
        if not box_and_whole(region, record.grid.extents, arguments)[1]:
            return False
        copy, place = memory.copied(low, high), guard.writer or caller()
        saved = SavedWhole(elements, copy, ref(record), region, place)
        record.snapshots += ((position, saved),)
        guard.saved_bytes += nbytes
        guard.note(saved)
        return True

    def before_write(self, target: array) -> None:
        if self.guard.writer is None:  # a launch that is recorded knows what it writes
            super().before_write(target)

    def _wait(self, record: LaunchRecord, pullback: Pullback) -> None:
        """Watch what the adjoint of a record reads, as soon as it is about to change."""
        for i, _ in pullback.needed:
            memory = record.arguments[i].allocation
            waiting = self._waiting.get(memory)
            if (memory.borrowed or memory.exposure is not None) and memory.is_exposed:
                self._watch_for([record], memory, None)
            elif waiting is None:
                self._waiting[memory] = record
                if memory not in self._written:
                    memory.witness(self._as_witness)
            elif isinstance(waiting, list):
                waiting.append(record)
            else:
                self._waiting[memory] = [waiting, record]

    def _watch_for(self, records: list[LaunchRecord], memory: Allocation, target: array | None) -> None:
        """Watch what the adjoints of records read of a memory, where `target` is about to be overwritten."""
        new: list[Watch] = []
        for record in records:
            pullback, arguments = record.outline.pullback, record.arguments
            assert isinstance(pullback, Pullback)
            watched = {i for i, _ in record.snapshots} if record.snapshots else ()
            for i, region in pullback.needed:
                if i not in watched and arguments[i].allocation is memory:
                    record.snapshots += ((i, self._watch(record, region, new)),)
        for watch in new:
            watch.begin(target)

    def _watch(self, record: LaunchRecord, region: Region, new: list[Watch]) -> Watch:
        """The watch of the elements that a record needs; appended to `new` if there was none."""
        elements = record.arguments[region.position]
        # There is one object for each type of arrays.
        key: Hashable = elements.packed, id(elements.type), region, record.grid.packed
        if region.uses:
            key = key, *[record.parts[1 + i] for i in region.uses]
        watch = self._watches.get(key)
        if watch is None or watch.spent:
            reader = Reader(record.alone(), region, record.outline.reached, record.place, ref(record))
            watch = self._watches[key] = Watch(self.guard, elements, reader)
            new.append(watch)
        return watch

    # -------------------------------------------------------------------------------------- as a recorder

    def launch(self, call: LaunchRecord) -> None:
        """Run a launch so that its adjoint can follow, and record it."""
        written, plan = self._written, call.kernel.plan
        memories = plan.straight.memories(call.arguments)
        if self.provenance.has_host_reads:
            self.provenance.look_at_arguments(call, len(self.records))
        for memory, is_float, is_input in zip(memories, plan.of_floats, plan.of_inputs, strict=True):
            known = written.get(memory)
            if known is None:
                if is_input and (memory.requires_grad or memory.left == memory.version):
                    self._reads(memory)
            elif is_float and known.__class__ is not Untouched and known.may_be_unseen(0):
                self._record_unseen(known, 0)
        for i in plan.numbers:
            if call.arguments[i].__class__ is Reference:
                self._reads_number(call.arguments[i].array)
        outline = self._outline(call, memories)
        place = self.guard.writer = caller(3)
        try:
            self._will_write(call, plan.written)
        finally:
            self.guard.writer = None
        residuals: tuple[array, ...] = ()
        pullback = outline.pullback
        times, began = self.times, 0  # a page may begin to ask for times while the launch runs
        try:
            if times is not None:
                call.build(pullback)  # a time is that of the launch alone
                began = perf_counter_ns()
            if pullback.__class__ is Pullback and pullback.residuals:
                residuals = self._augmented(call, pullback)
            else:
                call.primal()
        except BaseException:  # also an interrupt: part of the threads may have run
            read = [call.arguments[i] for i in call.kernel.plan.read]
            self.has_failed(f"the launch of `{call.kernel.name}`", call.targets, place, read)
            raise
        if times is not None:
            times[1 + len(self.records)] = perf_counter_ns() - began
        self._record(call, outline, residuals, memories, place)

    def _reads_number(self, single: array) -> None:
        """Note an array that stands for a number: its adjoint does not watch it, as the launch has its value.

        So small ones are compared from here on, also where a view of NumPy's is older than the tape.
        """
        memory = single.allocation
        if memory in self._written:
            self.look_for_unseen(single)
        else:
            self._reads(memory)
            if memory.requires_grad and memory.nbytes <= SMALL:
                self._written[memory].note()

    def _reads(self, memory: Allocation) -> None:
        """Note memory that a record takes as it stands: what gradients reach, or left before the tape."""
        if memory.requires_grad:
            self.has_read(memory)
        elif memory.left == memory.version and not self.provenance.is_made_by_host(memory):
            alive = [(ref(), version) for ref, version in memory.leaves]
            leaves = [leaf for leaf, version in alive if leaf is not None and leaf.version == version]
            if leaves:
                self.is_plain = False
                read = [numbers_of(leaf, uint8) for leaf in leaves]
                self.provenance.derived(read, [memory], len(self.records), BEFORE)

    def _augmented(self, call: LaunchRecord, pullback: Pullback) -> tuple[array, ...]:
        """Run a launch keeping its residuals, within the memory that the tape may hold."""
        guard = self.guard
        try:
            residuals = call.augmented(pullback, guard.held)
        except KernelMemoryError as error:
            if not guard.held:
                raise
            (found,) = error.diagnostics
            message = f"{found.message}; the tape keeps {guard.held:,} bytes already"
            raise KernelMemoryError(replace(found, message=message, hint=RUN_AGAIN)) from None
        guard.residual_bytes += sum([values.allocation.nbytes for values in residuals[::2]])
        return residuals

    def _will_write(self, call: LaunchRecord, positions: tuple[int, ...]) -> None:
        """Announce what a launch overwrites, without notices about memory that only this tape follows."""
        arguments, waiting = call.arguments, self._waiting
        memories = [arguments[i].allocation for i in positions]
        for memory in memories:
            witnesses = memory.witnesses
            is_known = not witnesses or witnesses is self._as_witness or not memory.has_witnesses()
            if memory.watches.starts or not is_known or (memory in waiting and len(positions) > 1):
                call.will_write()
                return
        for memory in memories:
            if memory in waiting:  # the only one
                target = changed_part(call.kernel.program, call.grid.extents, arguments, positions[0])
                self._overwritten(memory, target)
            memory.version += 1

    def has_failed(
        self, title: str, written: Iterable[array], place: Place, read: Iterable[array] = ()
    ) -> None:
        """Record the writes of a launch or function that failed: no adjoint may pass them."""
        for target in written:
            if is_differentiable(target.dtype):
                self.has_written(target.allocation)
                self.records.append(UnseenRecord(target, place, title, tuple(read)))

    def add(self, call: LaunchRecord) -> None:
        """Record a launch that was run elsewhere; raises TapeError if its adjoint needs residuals."""
        memories = call.memories()
        outline = self._outline(call, memories)
        if isinstance(outline.pullback, Pullback) and outline.pullback.residuals:
            raise TapeError(not_kept(call.kernel))
        self._record(call, outline, (), memories, caller())

    def add_function(self, backward: Callable[[], object], arrays: Iterable[array]) -> None:
        """Record a function to call in the backward pass."""
        handled = tuple(leaf for elements in arrays for leaf in leaves_of(elements))
        memories = {elements.allocation for elements in handled}
        marks = (mark for mark in self._marks if mark.elements.allocation in memories)
        keeps = self._kept(handled) or tuple([mark for mark in marks if not mark.has_changed_unseen()])
        self.add_work(FunctionRecord(backward, handled, caller(), keeps))

    def note_host_values(self, arrays: Iterable[array], around: Iterable[Allocation]) -> None:
        """Note what a Python function is given, and finds around it, if the host has made it of values."""
        if self.provenance.has_host_reads:
            for elements in arrays:
                self.provenance.look_again(elements, len(self.records))
            self.provenance.used_around(len(self.records), around)

    def _kept(self, arrays: Iterable[array]) -> tuple[Snapshot, ...]:
        """Snapshots of arrays, if the tape saves what is overwritten."""
        return tuple([Snapshot(one) for one in arrays]) if self.guard.policy == "save" else ()

    def called_host(self, call: Any, arguments: Sequence[array], results: Sequence[array]) -> None:
        """Record a Python function with a derivative of its own, if any of its arguments has gradients.

        One without is recorded, too: a chain may end there, or an argument may be given them later.
        """
        for elements in () if call.in_place else arguments:
            self.look_for_unseen(elements)
        active = [k for k, elements in enumerate(arguments) if elements.requires_grad]
        taken = call.taken if self.provenance.has_host_reads else ()
        self.provenance.passed_on(len(self.records), (), taken)
        self.note_host_values((*arguments, *call.arrays_around()), call.used)
        left = [memory for memory in call.used if self.provenance.is_left(memory)]
        is_stateful = bool(left) and call.is_stateful(arguments, left)
        found = tuple([numbers_of(memory, uint8) for memory in left]) if is_stateful else ()
        for elements in arguments:
            if not elements.requires_grad:
                self._reads(elements.allocation)
                self.is_plain = False
        if not active:
            if taken or found or not call.in_place:
                self.add_work(HostCallRecord(call, (*arguments,), (*results,), (), (), caller(), found))
            return
        needed = (*arguments, *results) if call.takes_results(len(results)) else arguments
        keeps = self._kept(needed) or tuple([Marked(self.guard, one, caller()) for one in needed])
        self.add_work(HostCallRecord(call, (*arguments,), (*results,), keeps, active, caller(), found))
        self.leaves(call.left, [arguments[k] for k in active])
        self._left[id(call.func)] = call.func, tuple(call.left)

    def leaves(self, left: Collection[Allocation], sources: Sequence[array]) -> None:
        """Note what a Python function has computed of arrays and not returned: there is no way back."""
        if left:
            self.is_plain, n = False, len(self.records)
            self.provenance.derived(sources, left, n, n, LEFT)

    def add_work(self, record: Record, lost: Iterable[Allocation] = ()) -> None:
        """Add a record of another kind; `lost` is memory that it computed and that no adjoint can reach."""
        for target in record.written:
            self.has_written(target.allocation)
        self.records.append(record)
        for memory in lost:
            self.lost[memory] = record

    def scope_begin(self, name: str, metadata: Any = None) -> None:
        """Begin a named scope."""
        self._open.append((name, metadata, len(self.records)))

    def scope_end(self, drop_if_empty: bool = True) -> bool:
        """End the innermost scope; False if none is open."""
        if not self._open:
            return False
        name, metadata, begin = self._open.pop()
        if len(self.records) > begin or not drop_if_empty:
            self.scopes.append(Scope(name, metadata, begin, len(self.records)))
        return True

    def _record(
        self,
        record: LaunchRecord,
        outline: Outline,
        residuals: tuple[array, ...],
        memories: Sequence[Allocation],
        place: Place,
    ) -> None:
        pullback = outline.pullback
        plan, arguments = record.kernel.plan, record.arguments
        self.guard.swept = False
        if (plan.numbers or plan.origins) and self.provenance.has_host_reads:
            numbers = [(i, arguments[i]) for i in plan.numbers]
            self.provenance.passed_on(len(self.records), numbers, plan.origins)
        record.outline, record.place, record.residuals = outline, place, residuals
        record.versions = plan.straight.versions(memories)
        record.snapshots, record.known_gathered = (), None
        if record.grid.threads >= records.MANY:
            self.has_large = True
        self.records.append(record)
        if isinstance(pullback, Pullback) and pullback.needed:
            self._wait(record, pullback)
        for i in plan.written:
            memory = arguments[i].allocation
            if INTEGERS_OVER_FLOATS and memory.requires_grad and stands_on_floats(arguments[i]):
                self.records.append(UnseenRecord(arguments[i], place))
            known = self._written.get(memory)
            if known is None and not (memory.witnesses or memory.exposure or memory.borrowed):
                memory.witnesses, self._written[memory] = self._as_witness, RESULT
            elif known is not RESULT:
                self.has_written(memory)
            if memory.borrowed or (memory.exposure is not None and memory.is_exposed):
                self.looked_at(arguments[i])  # the host has the values: in an array or a view of NumPy's

    def _outline(self, call: Call, memories: Sequence[Allocation]) -> Outline:
        kernel, arguments = call.kernel, call.arguments
        plan, wanted = kernel.plan, kernel.plan.straight.wanted(memories)
        shared = call.groups() if len(set(memories)) < len(memories) else ()
        settled = call.settled(shared) if kernel.program.contests else ()
        key: tuple[Hashable, ...] = kernel, wanted
        if shared or settled or plan.numbers:
            indirect = tuple([arguments[i].__class__ is Reference for i in plan.numbers])
            key = kernel, wanted, shared, settled, indirect
        outline = self._outlines.get(key)
        if outline is None:
            outline = self._outlines[key] = known_outline(call, key[1:], shared, settled)
            self.is_plain = self.is_plain and outline.is_plain
        return outline

    def launched_nothing(self, name: str, targets: Sequence[array], arguments: Sequence[Any]) -> None:
        """Remember which kernel wrote nothing here, and where it was launched."""
        self.idle |= dict.fromkeys((target.allocation for target in targets), (name, caller()))

    def copied(self, dest: array, src: array, how: str) -> None:
        """Record a copy."""
        pairs = [*zip(leaves_of(dest), leaves_of(src), strict=True)]
        floats = [(a, b) for a, b in pairs if is_differentiable(a.dtype)]
        integers = [(a, b) for a, b in pairs if not is_differentiable(a.dtype)]
        has_values = bool(floats) or src.allocation in self._written
        if has_values:
            if src.allocation is not dest.allocation:
                self.provenance.look_again(src, len(self.records))
                self.look_for_unseen(src)
                self._reads(src.allocation)
            self.look_for_unseen(dest, own=1)
            self.has_written(dest.allocation)
            self.provenance.replaced(dest, len(self.records))
        self.records += [CopyRecord(a, b, False, caller(), how) for a, b in (*floats, *integers)]
        if INTEGERS_OVER_FLOATS and dest.allocation.requires_grad:
            self.records += [UnseenRecord(a, caller()) for a, _ in integers if stands_on_floats(a)]
        if has_values and dest.allocation.is_exposed:
            self.looked_at(dest)

    def marked_read(self, elements: array) -> None:
        """Report later writes, where they are not saved anyway."""
        if self.guard.policy != "save":
            self._marks += [Marked(self.guard, leaf, caller()) for leaf in leaves_of(elements)]

    def looked_at(self, elements: array) -> Origins:
        """Note what of the tape's leaves and results the host takes."""
        memory = elements.allocation
        if memory in self._written or memory.requires_grad or self.provenance.sources_of(memory):
            self.is_plain = False
            return self.provenance.take(elements, len(self.records))
        self.provenance.watch(memory)
        return ()

    def gone_back(self, sources: Sequence[array], bars: Sequence[Allocation]) -> None:
        """Note gradients that were computed while the tape records: nothing differentiates them."""
        self.is_plain = False
        primals, now = [one for one in sources if is_differentiable(one.dtype)], len(self.records)
        self.provenance.derived(primals, bars, now, now)

    def used_outside(self, elements: array, by_host: bool) -> Origins:
        """Warn where a Python function with a derivative of its own reads more than its arguments."""
        memory, rule = elements.allocation, IN_RULE.get()
        if memory.serial < rule and (memory in self._written or memory.requires_grad):
            message = f"no gradient flows to {called(elements)}: a function of custom_vjp uses it, and "
            hint = "pass it as an argument; if the gradient is meant to end there, use a clone of it: "
            warn_at(f"{message}does not take it", "cut", f"{hint}clone(x, requires_grad=False)")
        return ()

    def made_from_host(self, elements: array, data: Any = None) -> None:
        """Note an array of host values, if these may come from the tape."""
        self.provenance.made_from_host(elements, data, len(self.records))

    def filled(self, memory: Allocation, sources: Origins) -> None:
        """Note what an array with gradients of its own was filled with; of others the order tells."""
        if memory.requires_grad:
            self.provenance.filled(memory, sources, len(self.records))

    def overwritten(self, dest: array, how: str, data: Any = None) -> None:
        """Record an overwrite from the host."""
        self.provenance.made_from_host(dest, data, len(self.records), how)
        targets = [target for target in leaves_of(dest) if is_differentiable(target.dtype)]
        if targets:
            self.look_for_unseen(dest, own=1)
            self.has_written(dest.allocation)
        self.records += [overwrite_of(target, how, caller()) for target in leaves_of(dest)]
