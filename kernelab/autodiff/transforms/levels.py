"""Levels: each transform replaces the programs that a function runs, and hands them to the next level.

A transform runs the user's function at a level of its own.  The level replaces every program by one derived
of it, over more arrays, and hands that to its parent; the last parent, `Base`, runs it:

    Forward    beside each array stands its tangent; a program becomes its tangent program
    Reverse    a program runs and is remembered, and `Pullback` takes adjoints back through all of them
    Batch      an array that differs between lanes stands in memory once a lane; a program gets an axis

So transforms compose: the levels of ``jacfwd(jacrev(f))`` are a batch, a forward, a batch and a reverse one,
and a program goes through all of them, innermost first.  Nothing here knows which kernel a program is of.
"""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from threading import get_ident
from typing import Any, TypeVar

import numpy as np

from kernelab.autodiff.records.adjoint_buffers import Argument, Extents, fresh, plain_copy
from kernelab.autodiff.records.hazards import Witness
from kernelab.autodiff.records.moves import PUBLISHED
from kernelab.autodiff.records.provenance import (
    LEFT,
    Cut,
    HostRead,
    HostValues,
    Provenance,
    array_from_host,
)
from kernelab.autodiff.transforms.host_calls import HostCall, of_recorded
from kernelab.autodiff.transforms.host_warnings import warn_of_arguments, warn_of_arrays, warn_of_numbers
from kernelab.autodiff.transforms.kept_arrays import led_to, look_at_kept, note_ended
from kernelab.errors import Diagnostic, GradientError, KernelError, Related
from kernelab.host.traced import Origins
from kernelab.lang.types import uint8
from kernelab.runtime.array.array import numbers_of
from kernelab.runtime.context.conversion import HostArray
from kernelab.runtime.context.recorder import (
    ENTERED,
    IN_RULE,
    RECORDER,
    Place,
    Recorder,
    called,
    caller,
    name_of_memory,
    refusal,
)
from kernelab.runtime.host.create import array
from kernelab.runtime.host.structarray import leaves_of
from kernelab.runtime.kernel.arguments import (
    Reference,
    arrays_in,
    require_arguments_readable,
    row_of_one,
)
from kernelab.runtime.kernel.facts import Positions
from kernelab.runtime.kernel.program import Program
from kernelab.runtime.launch.call import Call
from kernelab.runtime.memory.memory import Allocation, youngest

Key = TypeVar("Key")


class Level(Witness, Recorder):
    """The place where programs run; also the recorder of a user's launches and copies."""

    takes_derivatives = False
    has_lanes = False

    def __init__(self, parent: "Level") -> None:
        super().__init__()
        self.parent = parent
        self.returned: set[Allocation] = set()
        self.dependent: set[Allocation] = set()  # on what is differentiated, now or in another run
        self._provenance: Provenance | None = None
        self._untold: dict[Allocation, Cut] = {}  # until the function has run: `record_func` may follow
        self._drawn_on: set[Allocation] = set()  # those of them that something was computed from
        self._unchanged: dict[Allocation, Place | None] = {}  # what is not to change, and where it first did
        self._thread = self._rule = 0
        is_outermost = parent.parent is parent
        # By launches that failed, and not replaced since; nested levels share it.
        self._half_written: dict[Allocation, Diagnostic] = {} if is_outermost else parent._half_written
        self._failure: Diagnostic | None = None
        # The numbers and arrays of the host that a run computes with, where another run is to have the same.
        self.host_inputs: list[HostArray] | None = None

    def run(self, program: Program, grid: Extents, arguments: Sequence[Argument]) -> None:
        """Run a program; raises GradientError where an argument has changed unseen."""
        self.look_at_arguments(arguments)
        try:
            self._run(program, grid, arguments)
        finally:
            for i in program.changed:
                argument = arguments[i]
                if isinstance(argument, array):
                    self.note(argument.allocation)

    def _run(self, program: Program, grid: Extents, arguments: Sequence[Argument]) -> None:
        raise NotImplementedError

    def move(self, dest: array, src: array, add: bool = False) -> None:
        """Copy the elements of `src` to `dest`, or add them; extents may be repeated by strides of zero."""
        self.look_at_arguments((dest, src))
        self._move(dest, src, add)
        self.note(dest.allocation)

    def _move(self, dest: array, src: array, add: bool) -> None:
        raise NotImplementedError

    def copy(self, elements: array) -> array:
        """The same values, as they are computed here, in memory of their own."""
        copied = fresh(elements.shape, elements.dtype, elements)
        self.move(copied, elements)
        return copied

    def clear(self, elements: array) -> None:
        """Set elements to zero."""
        self.move(elements, fresh(elements.shape, elements.dtype, elements))

    def call_host(self, call: HostCall, arguments: Sequence[array]) -> list[array]:
        """Run a Python function of arrays that has a derivative of its own; its results, in new arrays."""
        self.draw_on(arguments)
        if not call.in_place:
            self.look_at_arguments(arguments)
        if self._provenance is not None:
            warn_of_arrays(self._provenance, arguments, call.title)
        results = self._call_host(call, arguments)
        for result in results:
            self.note(result.allocation)
        if self._provenance is not None:
            warn_of_numbers(self._provenance, call.title, call.taken)
            if call.back is not None:
                warn_of_arrays(self._provenance, call.arrays_used(), call.title)
        return results

    def _call_host(self, call: HostCall, arguments: Sequence[array]) -> list[array]:
        if not any(self.carries(elements.allocation) for elements in arguments):
            results = self.parent.call_host(call, arguments)
            self._note_state_found(call, arguments)
            return results
        if call.back is None:
            if call.rule_of is not None:
                self.parent.compare_rule(call, arguments)
            with self.active():
                results = call.run(arguments)
                self.warn_of_constants(results)
                return results
        results = self.parent.call_host(call, arguments)
        self._called_host(call, arguments, results)
        self._note_state_found(call, arguments)
        if call.left:
            self._note_left(call, arguments)
        return results

    def _note_state_found(self, call: HostCall, arguments: Sequence[array]) -> None:
        """Note that a function computes with what such a function has left around it before."""
        found = [one for one in self._untold if one in call.used and self._host.is_left(one)]
        if found and call.is_stateful([self.first(one) for one in arguments], found):
            self._drawn_on.update(found)

    def _note_left(self, call: HostCall, arguments: Sequence[array]) -> None:
        """Note what a Python function computed of its arguments, and did not return: it is a constant."""
        carried = [one for one in arguments if self.carries(one.allocation)]
        self._host.derived(carried, call.left, 0, 0, LEFT)
        for memory in call.left:
            self._note_untold(numbers_of(memory, uint8), self._host.arrays[memory][-1])

    def compare_rule(self, call: HostCall, arguments: Sequence[array]) -> None:
        """Compare the rule that a call runs with differences, at the values that its arguments have here."""
        self.parent.compare_rule(call, arguments)

    def _called_host(self, call: HostCall, arguments: Sequence[array], results: Sequence[array]) -> None:
        """Follow the results of a Python function by its derivative."""
        raise NotImplementedError

    def record_func(self, backward: Callable[[], object], arrays: tuple[array, ...]) -> None:
        """Note a function that takes adjoints back through what the host computed: see `Tape.record_func`.

        Raises GradientError where the host cannot have computed it.
        """
        for elements in arrays:
            self._untold.pop(elements.allocation, None)
            reason = self.unreadable(elements)
            if reason is not None:
                hint = "write both as functions of arrays: kl.func.custom_vjp(f, back) runs them lane by lane"
                raise self.refusing(GradientError(replace(reason, hint=hint)))
            if self._provenance is not None:
                self._provenance.arrays.pop(elements.allocation, None)
        if self.parent is not self:
            self.parent.record_func(backward, arrays)
        if any(self.carries(elements.allocation) for elements in arrays):
            self._called_host(of_recorded(backward, arrays, self.base), arrays, arrays)

    def stand_in(self, elements: array) -> array:
        """The array with which programs compute here in place of another."""
        return elements

    def first(self, elements: array) -> array:
        """The array in memory that has the values as they are computed here, in the first lane."""
        return self.parent.first(elements)

    def forget(self, memory: Allocation) -> None:
        """Drop the data of a memory that no program will touch any more."""
        self.unfollow(memory)
        if self.parent is not self:
            self.parent.forget(memory)

    # -------------------------------------------------------------------------------------- unseen writes

    def followed(self) -> Collection[Allocation]:
        """The memories with which this level keeps derivatives or lanes."""
        return ()

    def look(self, memory: Allocation, own: int = 0) -> None:
        """Raise GradientError where a memory has changed unseen, not counting its `own` last writes."""
        if self.has_changed(memory, own):
            name = name_of_memory(memory)
            what = (
                f"`{name}`, which is followed through this function," if name else "an array of this function"
            )
            message = f"{what} was changed before this line, and the transform did not see how"
            hint = "change it by a recorded launch, assign() or fill_(): not through NumPy, nor with "
            raise self.refusing(refusal(GradientError, message, "unseen-write", f"{hint}record_tape=False"))

    def look_at_arguments(self, arguments: Sequence[Argument]) -> None:
        """The same for all arguments of a program."""
        for argument in arguments if self._written else ():
            if isinstance(argument, array):
                self.look(argument.allocation)

    def note(self, memory: Allocation) -> None:
        """Note that this level wrote the present contents of a memory."""
        if memory in self.followed():
            self.has_written(memory)
        if self._unchanged.get(memory, self) is None:
            self._unchanged[memory] = caller()

    @contextmanager
    def unchanged(
        self, func: str, arrays: Mapping[Key, array], name: Callable[[Key], str], hint: str
    ) -> Iterator[None]:
        """A context in which a function runs; GradientError, with the line, if an array changed in it."""
        memories = {key: each.allocation for key, each in arrays.items()}
        before = {key: memory.version for key, memory in memories.items()}
        self._unchanged.update(dict.fromkeys(memories.values()))
        yield
        for key, memory in memories.items():
            if memory.version != before[key]:
                place, message = self._unchanged.get(memory), f"{func} changes its argument {name(key)}"
                related = () if place is None else (Related("it is changed here:", place.span),)
                raise GradientError(Diagnostic(message, caller().span, "changed", hint=hint, related=related))

    @property
    def base(self) -> "Level":
        """The last of the levels around this one, which runs programs as they are."""
        return self if self.parent is self else self.parent.base

    def outwards(self) -> "Iterator[Level]":
        """This level and those around it, but for the base."""
        level = self
        while level.parent is not level:
            yield level
            level = level.parent

    def unfollow(self, memory: Allocation) -> None:
        """Stop watching a memory for changes."""
        self._written.pop(memory, None)

    def _has_changed(self, dest: array) -> None:
        """The host has made a write that it announced; all levels learn of it next."""
        for level in self.outwards():
            level.look(dest.allocation, own=1)
            level.note(dest.allocation)

    # -------------------------------------------------------------------------------------- as a recorder

    @contextmanager
    def active(self) -> Iterator[None]:
        """A context in which launches of the user run at this level."""
        for memory in tuple(self.followed()):
            self.note(memory)
        token, first = RECORDER.set(self), youngest()
        self.dependent |= {*self.followed()}
        self._thread, self._rule = get_ident(), IN_RULE.get()
        ENTERED.append(self)
        try:
            yield
        finally:
            ENTERED.remove(self)
            RECORDER.reset(token)
            self._tell()
            note_ended(self.dependent, first, self.returned, has_lanes=False)
            note_ended(self.followed() if self.has_lanes else (), first, self.returned, has_lanes=True)
        if self._failure is not None:  # the function has caught the error, and gone on in another way
            raise GradientError(self._failure)
        for memory in tuple(self._written):
            self.look(memory)

    def refused(self, reason: Diagnostic) -> None:
        """Note why something was refused: without the transform the function would not see that error."""
        said = f"{reason.message}; the function has caught this error, and went on"
        self._failure = self._failure or replace(reason, message=said)

    def _tell(self) -> None:
        """Warn of values of the host that came from what is differentiated, and were not replaced unused."""
        while self._untold:
            memory = next(iter(self._untold))
            cut = self._untold.pop(memory)
            if memory in self._drawn_on or (not cut.may_be_meant and self._host.is_made_by_host(memory)):
                self._host.tell(cut)

    def draw_on(self, sources: Sequence[Argument]) -> None:
        """Note that something is computed from arrays, or returned."""
        for source in sources if self._untold or self._half_written else ():
            if isinstance(source, array):
                self._failure = self._failure or self._half_written.get(source.allocation)
                if self._untold and self._host.is_made_by_host(source.allocation):
                    self._drawn_on.add(source.allocation)
        if self.parent is not self:
            self.parent.draw_on(sources)

    @property
    def has_host_reads(self) -> bool:
        """Whether the host may hold values of what is differentiated."""
        return any(host.has_host_reads for host in self._hosts())

    def warn_of_constants(self, arrays: Iterable[array]) -> None:
        """Warn of arrays to be differentiated that the host has made after it took values."""
        for host in self._hosts():
            warn_of_arrays(host, arrays, None)

    @property
    def has_half_written(self) -> bool:
        """Whether there may be memory that a launch which failed has written in part."""
        return bool(self._half_written)

    def _replaced(self, elements: array) -> None:
        if elements.is_whole:
            self._half_written.pop(elements.allocation, None)

    def _has_failed(self, call: Call) -> None:
        """Note that a launch has failed after a part of its threads had run.

        The function may go on without what it wrote, unless the host has a view of that, or the launch may
        not have failed in other lanes.
        """
        failure = _failure_of(call.kernel.name)
        is_seen = any(target.allocation.is_exposed for target in call.targets)
        if is_seen or any(self.unreadable(elements) is not None for elements in arrays_in(call.arguments)):
            self._failure = failure
        self._half_written.update((target.allocation, failure) for target in call.targets)

    def launch(self, call: Call) -> None:
        plan = call.kernel.plan
        for host in self._hosts():
            host.look_at_arguments(call)
            warn_of_arguments(host, call)
        look_at_kept(call, self._is_carried)
        arguments = list(map(_argument, call.arguments, call.parts[1:]))
        for i in plan.written if self._half_written else ():
            if call.overwrites_all(i):
                self._replaced(call.arguments[i])
        self.draw_on(arguments)
        self._note_host_inputs(call.arguments)
        references = tuple(i for i in plan.numbers if isinstance(call.arguments[i], Reference))
        try:
            self.run(call.kernel.program.reading(references), call.grid.extents, arguments)
        except KernelError as error:
            if error.failed is not None:  # a part of the threads, of all lanes, has run
                self._has_failed(call)
            raise
        for level in self.outwards():
            level.dependent.update(led_to(call, level.dependent))
        for target in call.targets:
            self._show_exposed(target)

    def _show_exposed(self, target: array) -> None:
        """Note that the host sees what was written to memory that it lent, such as an array of NumPy's."""
        if not target.allocation.is_exposed:
            return
        reason = self.unreadable(target)
        if reason is not None:
            hint = "copy: kl.array(data) for kl.from_numpy(data), y.numpy().copy() for y.numpy()"
            shared = replace(reason, message=f"{reason.message}; NumPy shares its memory", hint=hint)
            raise self.refusing(GradientError(shared))
        self.looked_at(target)

    def left_out(self, call: Call) -> None:
        """Refuse an unrecorded launch on arrays that do not hold what the function computed."""
        require_arguments_readable(call.arguments)
        if self.parent is not self:
            self.parent.left_out(call)

    def adjoint_alone(self, what: str, arguments: Sequence[array]) -> None:
        require_arguments_readable(arguments)
        if any(self._is_carried(argument.allocation) for argument in arguments):
            message = f"{what} is not differentiated in a transform"
            hint = "differentiate the function itself: kl.func.vjp, and grad of grad"
            raise self.refusing(refusal(GradientError, message, "nested", hint))

    def copied(self, dest: array, src: array, how: str) -> None:
        self._has_changed(dest)
        self.draw_on(leaves_of(src))
        for host in self._hosts():
            host.copied(dest, src)
        for target, source in zip(leaves_of(dest), leaves_of(src), strict=True):
            self._replaced(target)
            self.move(target, source)
            self._show_exposed(target)
            if source.allocation in self.dependent:
                self.dependent.add(target.allocation)

    def overwritten(self, dest: array, how: str, data: Any = None) -> None:
        self._has_changed(dest)
        for target in leaves_of(dest):
            self._replaced(target)
            self.move(target, plain_copy(target))
        self._warn_of_host_data(dest, data, how)

    def carries(self, memory: Allocation) -> bool:
        """Whether the values of a memory carry derivatives."""
        return False

    def unreadable(self, elements: array) -> Diagnostic | None:
        return self.parent.unreadable(elements)

    def tabulate(self, target: array, sources: Sequence[array], compute: Callable[..., HostArray]) -> None:
        self.parent.tabulate(target, sources, compute)

    def looked_at(self, elements: array) -> Origins:
        self.draw_on([elements])
        reason = self.unreadable(elements)
        if reason is not None:
            for level in self.outwards():
                if level.unreadable(elements) is not None:
                    level.refused(reason)
            raise GradientError(reason)
        if not self._is_carried(elements.allocation):
            self._host.watch(elements.allocation)
            return ()
        levels = [level for level in self.outwards() if level._is_carried(elements.allocation)]
        return tuple(chain.from_iterable([level._host.take(elements) for level in levels]))

    def untold(self, memory: Allocation) -> HostRead | None:
        """The first read of some memory by the host while the function ran that no warning has named."""
        return None if self._provenance is None else self._provenance.untold(memory)

    @property
    def host_reads(self) -> Sequence[HostRead]:
        """The places where the host took values of what is differentiated, in order."""
        return self._host.host_reads

    def _hosts(self) -> "Iterator[Provenance]":
        """What the host has read at this level and those around it: a number may be used further inside."""
        return (level._provenance for level in self.outwards() if level._provenance is not None)

    @property
    def _host(self) -> Provenance:
        if self._provenance is None:
            self._provenance = Provenance()
        return self._provenance

    def tells(self, other: Recorder) -> bool:
        return other is self or (self.parent is not self and self.parent.tells(other))

    def used_outside(self, elements: array, by_host: bool) -> Origins:
        """Refuse arrays of the function in a rule or another thread: their derivatives would end there.

        A look by the host of another thread harms only where lanes differ, or its values come back.
        """
        is_rule = self._thread == get_ident()
        if is_rule and (IN_RULE.get() == self._rule or elements.allocation in PUBLISHED):
            return ()  # kernelab itself looks, or a function at its own arrays
        matters = self._is_carried(elements.allocation) and (is_rule or not by_host)
        if not matters and self.unreadable(elements) is None:
            if by_host and not is_rule:
                return self.looked_at(elements)
            if by_host:
                self._host.watch(elements.allocation)  # what the rule finds there its call tells
            return ()
        where, hint = "another thread", "compute with it in the thread that runs the function"
        if is_rule:
            where = "a function of custom_vjp or record_func that is not given it"
            hint = "pass it as an argument, or name it in arrays="
        message = (
            f"{called(elements, 'an array')} of this transform is used in {where}: no derivative follows"
        )
        raise self.refusing(refusal(GradientError, message, "outside", hint))

    def _is_carried(self, memory: Allocation) -> bool:
        return any(level.carries(memory) for level in self.outwards())

    def holds_apart(self, memory: Allocation) -> bool:
        """Whether this level holds the floats of a memory elsewhere, in another precision."""
        return False

    def follows_floats(self, memory: Allocation) -> bool:
        return any(level.carries(memory) or level.holds_apart(memory) for level in self.outwards())

    def made_from_host(self, elements: array, data: Any = None) -> None:
        """Values of the host are constants; warns where they come from what is differentiated."""
        if not self._is_carried(elements.allocation):  # else it is memory that this function has computed
            self._warn_of_host_data(elements, data, "array")

    def made_outside(self, elements: array, data: Any) -> None:
        """Warn of an array that another thread makes of values taken here, as of one made here.

        It may come from another process, too.  Such arrays are no inputs that each run has to have: those
        of another thread may be for something else.
        """
        if self._thread != get_ident():
            self._note_made(elements, data, "array")

    def _warn_of_host_data(self, elements: array, data: Any, how: str) -> None:
        self._note_host_inputs((), made=(elements,))
        self._note_made(elements, data, how)

    def _note_made(self, elements: array, data: Any, how: str) -> None:
        for level in self.outwards():
            values = level._provenance and level._provenance.made_from_host(elements, data, how=how)
            if values and values.host_reads:
                level._note_untold(elements, values)

    def _note_host_inputs(self, numbers: Iterable[Any], made: Sequence[array] = ()) -> None:
        for level in self.outwards():
            if level.host_inputs is not None:
                level.host_inputs += [np.array(one) for one in numbers if isinstance(one, _NUMBERS)]
                level.host_inputs += [one.seen().copy() for one in made if one.allocation.nbytes <= _COMPARED]

    def _note_untold(self, elements: array, values: HostValues) -> None:
        cut = array_from_host(elements, values, values.host_reads[0], None, in_transform=True)
        told = cut.describe()  # while the variables have their names
        cut = replace(cut, describe=lambda: told, may_be_meant=values.how == LEFT)
        self._untold.setdefault(elements.allocation, cut)


_NUMBERS = int | float | np.generic | np.ndarray
"""Numbers, and the vectors and matrices of the host."""

_COMPARED = 1 << 24
"""The bytes of an array of the host up to which runs are compared by it."""


def _argument(argument: Any, packed: bytes) -> Argument:
    if isinstance(argument, Reference):
        return row_of_one(argument.array)
    return argument if isinstance(argument, array) else packed


def _failure_of(kernel: str) -> Diagnostic:
    message = f"this launch of `{kernel}` failed, and the function went on: what it wrote has no derivative"
    hint = "replace all that it wrote, test before the launch, or let the error end the function"
    return Diagnostic(message, caller().span, "failed", hint=hint)


def within(arguments: Sequence[Argument], among: Iterable[int], memories: Container[Allocation]) -> Positions:
    """The positions `among` the arguments of arrays in one of the memories."""
    pairs = ((i, arguments[i]) for i in among)
    return tuple(i for i, a in pairs if isinstance(a, array) and a.allocation in memories)
