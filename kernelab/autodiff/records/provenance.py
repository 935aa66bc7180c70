"""Provenance of host values: which arrays with gradients they came from, and where they came back.

Two rules, no guesses.  Exact: numbers carry their origins (`host.traced`), so what is made of them is known
to come from there.  By order: an array made of other host data, after such numbers were read, may depend on
them.  A tape asks in `backward` what of this matters (`records.cuts`); a transform warns at once.
Knows arrays and lines; must not know records.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np

from kernelab.autodiff.records.hazards import Witness
from kernelab.autodiff.records.moves import FILLS
from kernelab.data_classes import dataclass, replace
from kernelab.errors import Diagnostic, Related
from kernelab.host.traced import Origins, origins
from kernelab.host.values import HostValue
from kernelab.lang.structs import Struct
from kernelab.lang.types import is_differentiable
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import Place, called, caller, name_of_memory, warn
from kernelab.runtime.host.struct_instances import Instance
from kernelab.runtime.kernel.arguments import array_of
from kernelab.runtime.launch.call import Call
from kernelab.runtime.memory.memory import Allocation, exposed_memory


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class HostRead:
    """An origin of numbers: the array and the line where the host took them, after how many records.

    The provenance that made it keeps it alive: when a tape is reset, numbers lose their origins.
    """

    elements: array
    place: Place
    record: int


@dataclass(frozen=True, slots=True)
class HostValues:
    """An array that the host created or changed: after how many records, and how.

    `host_reads` are the origins of the values; `earlier` counts the host reads before.  Gradients that an
    adjoint has computed (`how` is ADJOINT) end a chain in the same way.  `part` is where they stand in the
    memory, as `array.over` takes it; None where they may be anywhere, or are the `whole` of it.
    """

    place: Place
    record: int
    how: str
    host_reads: tuple[HostRead, ...]
    earlier: int
    part: tuple[Any, ...] | None = None
    whole: bool = True

    def cover(self, earlier: "HostValues") -> bool:
        """Whether nothing is left of values that stood there before."""
        return self.whole or (self.part is not None and self.part == earlier.part)

    def say_the_same_as(self, earlier: "HostValues") -> bool:
        """Whether a message about earlier ones, which may be anywhere too, would be the same."""
        if earlier.part is not None or earlier.whole or earlier.place != self.place:
            return False
        return {one.place for one in earlier.host_reads} == {one.place for one in self.host_reads}


ADJOINT, LEFT, OVERWRITTEN = "adjoint", "left", "overwritten"
"""Gradients; what a function with a derivative of its own has computed of its arguments, and not returned;
and what took the place of all that the host had made, and does not come from it."""


@dataclass(frozen=True, slots=True)
class PassedOn:
    """A number with origins that a record, counted from 0, was given for a parameter.

    The position is None where it was captured, or given to a Python function.
    """

    record: int
    position: int | None
    host_reads: tuple[HostRead, ...]


BEFORE = -1
"""The record of what was there when the recording began."""


MOST_PARTS = 16
"""How many parts of a memory are told apart."""


SMALL, LARGE = 1 << 14, 1 << 24
"""How many bytes are compared at every launch; and where a view of them is older than the recording."""


class Provenance(Witness):
    """The host's reads of arrays that gradients depend on, and the places where such values came back.

    It witnesses the other memory that NumPy may change in place.
    """

    def __init__(self, outer: Sequence[HostRead] = ()) -> None:
        super().__init__()
        self.outer = outer
        self.arrays: WeakKeyDictionary[Allocation, list[HostValues]] = WeakKeyDictionary()
        self.numbers: list[PassedOn] = []
        self.differentiated: list[HostRead] = []
        self._host_reads: dict[tuple[Allocation, Place, int], HostRead] = {}
        self._known: set[HostRead] = set(outer)
        self._compared: dict[Allocation, int] = {}
        self._told: set[object] = set()
        if outer:
            self._look_around()

    @property
    def has_host_reads(self) -> bool:
        """Whether the host may hold values that it has read."""
        return bool(self._known)

    @property
    def host_reads(self) -> Sequence[HostRead]:
        """The reads by the host, in order, those before the recording around this one first."""
        return [*self.outer, *self._host_reads.values()]

    def untold(self, memory: Allocation) -> HostRead | None:
        """The first read of some memory by the host that no warning has named."""
        named = {part for key in self._told if isinstance(key, tuple) for part in key}
        reads = (read for read in self._host_reads.values() if read.elements.allocation is memory)
        return next((read for read in reads if read.place not in named), None)

    def take(self, elements: array, record: int = 0) -> Origins:
        """Note that the host takes the values of an array; their origins."""
        came, place = self.sources_of(elements.allocation), caller()
        key = elements.allocation, place, elements.allocation.version
        if came and not elements.requires_grad:
            self._host_reads.setdefault(key, came[-1])
            return (ref(came[-1]),)
        source = self._host_reads.get(key)
        if source is None:
            if not self._known:
                self._look_around()
            source = self._host_reads[key] = HostRead(elements, place, record)
            self._known.add(source)
        return (ref(source),)

    def _look_around(self) -> None:
        """Note what the host may change in place, now that it may do so with values that it has read."""
        for known in self._written.values():
            known.note()
        for memory in exposed_memory():
            if memory.nbytes <= LARGE:
                self.watch(memory)

    def watch(self, memory: Allocation) -> None:
        """Note what some memory holds that does not depend on host reads, and the host may change."""
        if memory not in self._written and memory.space is None:
            self.has_read(memory)
            self._written[memory].note()

    def look_at_arguments(self, call: Call, record: int = 0) -> None:
        """Note the arrays that a launch is about to read and the host has filled in place."""
        for i in (*call.kernel.program.floats, *call.kernel.plan.numbers):
            elements = array_of(call.arguments[i])
            if isinstance(elements, array):
                self.look_again(elements, record)
        for i in call.kernel.plan.written if self.arrays else ():
            if self.is_made_by_host(call.arguments[i].allocation) and call.overwrites_all(i):
                self.replaced(call.arguments[i], record)

    def replaced(self, elements: array, record: int) -> None:
        """Note that an array was overwritten by what the host did not make, if it is all of its memory."""
        memory = elements.allocation
        if not self._known or not elements.is_whole:
            return
        if memory in self._written:
            self._written[memory].note()
        if self.is_made_by_host(memory):
            self.arrays[memory].append(HostValues(caller(), record, OVERWRITTEN, (), 0))

    def is_made_by_host(self, memory: Allocation) -> bool:
        """Whether some memory may hold what the host made after it had read values."""
        several = self.arrays.get(memory)
        return several is not None and several[-1].how != OVERWRITTEN

    def is_left(self, memory: Allocation) -> bool:
        """Whether some memory may hold what a function computed of its arguments, and did not return."""
        several = self.arrays.get(memory)
        return several is not None and several[-1].how == LEFT

    def look_again(self, elements: array, record: int = 0) -> None:
        """Note an array about to be read that the host has filled in place, if it has read anything."""
        memory, earlier = elements.allocation, len(self.outer) + len(self._host_reads)
        known = self._written.get(memory)
        if known is None or not earlier or (memory.nbytes > SMALL and self._compared.get(memory) == earlier):
            return
        self._compared[memory] = earlier
        if known.is_poked:
            known.note()
            self._hold(memory, record, "view")

    def _hold(self, memory: Allocation, record: int, how: str, reads: tuple[HostRead, ...] = ()) -> None:
        """Note that some memory holds values of the host from here on."""
        values = HostValues(caller(), record, how, reads, len(self.outer) + len(self._host_reads))
        self.arrays.setdefault(memory, []).append(values)

    def copied(self, dest: array, src: array) -> None:
        """Note that an array holds what another one held."""
        self.look_again(src)
        if not self.is_made_by_host(src.allocation):
            self.replaced(dest, 0)
        else:
            copies = replace(self.arrays[src.allocation][-1], part=None, whole=dest.is_whole)
            self.arrays.setdefault(dest.allocation, []).append(copies)

    def sources_of(self, memory: Allocation) -> list[HostRead]:
        """The origins of values that some memory holds and the host has made."""
        if not self.is_made_by_host(memory):
            return []
        return [source for values in self.arrays[memory] for source in values.host_reads]

    def made_from_host(
        self, elements: array, data: Any, record: int = 0, how: str = "array"
    ) -> HostValues | None:
        """Note an array that the host has made of data, or changed, if it may depend on what was read."""
        elem: Any = elements.dtype
        if not self._known or not (isinstance(elem, Struct) or is_differentiable(elem)):
            return None
        references = origins(data)
        sources = self.known(references)
        if any(source.elements.allocation is elements.allocation for source in sources) and how == "array":
            return None  # another view of the same memory
        may_depend = _is_array_of_floats(data) or self._holds_arrays_of_host(data, record)
        if not sources and (references or how in FILLS or not may_depend):
            self.replaced(elements, record)
            return None
        several, earlier = self.arrays.setdefault(elements.allocation, []), len(self.host_reads)
        values = HostValues(caller(), record, how, sources, earlier, whole=elements.is_whole)
        if not values.whole and not isinstance(elem, Struct):
            if len(several) < MOST_PARTS:
                part = elements.offset, elements.shape, elements.strides, elem
                values = replace(values, part=part)
            elif values.say_the_same_as(several[-1]):
                return several[-1]
        several.append(values)
        return several[-1]

    def _holds_arrays_of_host(self, data: Any, record: int) -> bool:
        """Whether data are an array that the host has made after it had read values, or hold one."""
        if isinstance(data, list | tuple):
            return any(self._holds_arrays_of_host(part, record) for part in data)
        if not isinstance(data, array):
            return False
        self.look_again(data, record)
        return self.is_made_by_host(data.allocation)

    def filled(self, memory: Allocation, sources: Origins, record: int) -> None:
        """Note that numbers with origins went into some memory through a view of NumPy's."""
        known = tuple(one for one in self.known(sources) if one.elements.allocation is not memory)
        if known:
            self._hold(memory, record, "view", known)

    def derived(
        self,
        primals: Iterable[array],
        bars: Iterable[Allocation],
        record: int,
        since: int,
        how: str = ADJOINT,
    ) -> None:
        """Note, before a record, the memory of gradients that were computed from arrays after another one.

        `how` says what there is in place of gradients.
        """
        place = caller()
        reads = tuple([HostRead(one, place, since) for one in primals])
        self.differentiated += reads
        self._known.update(reads)
        for memory in bars:
            self._hold(memory, record, how, reads)

    def passed_on(self, record: int, numbers: Iterable[tuple[int, Any]], captured: Origins) -> None:
        """Note the numbers with origins among those that a record was given, by position, or has captured."""
        for position, value in numbers:
            sources = self.sources(value)
            if sources:
                self.numbers.append(PassedOn(record, position, sources))
        if known := self.known(captured):
            self.numbers.append(PassedOn(record, None, known))

    def used_around(self, record: int, memories: Iterable[Allocation]) -> None:
        """Note what a Python function uses besides its arguments, if the host has made it of values."""
        for memory in memories:
            values = self.arrays[memory][-1] if self.is_made_by_host(memory) else None
            if values is None or values.how == LEFT:
                continue
            reads = values.host_reads or tuple(self.host_reads[values.earlier - 1 : values.earlier])
            self.numbers.append(PassedOn(record, None, reads))

    def sources(self, data: Any) -> tuple[HostRead, ...]:
        """The arrays known here from which the host took the numbers in data."""
        return self.known(origins(data)) if self._known else ()

    def known(self, references: Origins) -> tuple[HostRead, ...]:
        """Those of some origins that are known here."""
        host_reads = (origin() for origin in references)
        return tuple(source for source in host_reads if source in self._known)

    def tell(self, cut: "Cut") -> None:
        """Warn of a cut, once for those that belong together."""
        if cut.key not in self._told:
            self._told.add(cut.key)
            cut.warn()


def _is_array_of_floats(data: Any) -> bool:
    """Whether these are elements of the host's that can depend on others: integers cannot."""
    if isinstance(data, list | tuple):
        return any(map(_has_floats, data))
    is_container = hasattr(data, "__array__") or hasattr(data, "__len__")
    if not is_container or isinstance(data, array | HostValue | Instance):
        return False
    values = np.asarray(data)
    return values.ndim > 0 and values.dtype.kind not in "biu"


def _has_floats(data: Any) -> bool:
    return isinstance(data, float | np.floating | Instance | HostValue) or _is_array_of_floats(data)


# ------------------------------------------------------------------------------ cuts


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """A place where a chain of gradients ends; of those with the same `key` one is reported.

    `sources` are the memory that gradients do not reach because of it, where that is known.  If it
    `may_be_meant`, it is reported only where their gradient is read, unless the pass reaches nothing else.
    `reader` is the record that reads there, where one does; by order alone a cut is not certain.  The `line`
    tells what a loop repeats, with other arrays each time.
    """

    place: Place
    key: Hashable
    describe: Callable[[], Diagnostic]
    sources: Sequence[Allocation] = ()
    may_be_meant: bool = False
    reader: object = None
    is_certain: bool = True
    line: Hashable = None

    def warn(self) -> None:
        """Warn at the line, with advice."""
        warn(self.describe(), self.place)


_ON_THE_TAPE = "kl.map, operators of arrays (x[0:1] is one, x[0] a number), copy or a kernel"


def array_from_host(
    elements: array,
    values: HostValues,
    source: HostRead,
    reader: tuple[str, Place] | None,
    in_transform: bool = False,
) -> Cut:
    """The cut at an array of values that the host made of those taken, or by order may have.

    `reader` is what reads it, and where.  In a transform `requires_grad` does not count, so no clone ends a
    derivative there.
    """

    def describe() -> Diagnostic:
        related = [] if reader is None else [Related(f"{reader[0]} reads them here:", reader[1].span)]
        name, seen = called(elements), called(source.elements)
        if values.how == ADJOINT:
            leaf = name_of_memory(source.elements.allocation)
            seen = f"`{leaf}`" if leaf and source.record == BEFORE else seen
            message = f"no gradient flows from {called(elements, 'a gradient')} back to {seen}: a tape does "
            message += "not differentiate what a backward pass has computed"
            hint = "take second derivatives with kl.func, as grad of grad; if this one is meant to be a "
            hint += "constant, call backward, and clone the gradient, outside of the `with tape:`"
            return Diagnostic(message, values.place.span, "cut", hint=hint, related=tuple(related))
        if values.how == LEFT:
            message = f"no gradient flows from {name} back to {seen}: a function of custom_vjp computed it "
            message += "here, and did not return it"
            hint = "return it from the function, too, and let its derivative take the cotangent"
            return Diagnostic(message, values.place.span, "cut", hint=hint, related=tuple(related))
        if values.host_reads:
            hint = f"compute it with {_ON_THE_TAPE}{_if_meant('the values', 'numpy', in_transform)}"
            message = f"no gradient flows from {name} back to {seen}: the values came by the host"
            if source.elements.allocation is elements.allocation:
                message = f"no gradient flows through {seen} here: its new values came by the host"
        else:
            message = f"no gradient flows through {name}: the host made its values after it had taken those "
            message += f"of {seen}"
            hint = (
                f"if they depend on those, compute them with {_ON_THE_TAPE}; if not, make the array earlier"
            )
            if not in_transform:
                hint += ", or look at a clone: clone(x, requires_grad=False).numpy()"
        return Diagnostic(message, values.place.span, "cut", hint=hint, related=(_took(source), *related))

    by_origin = source.place if values.host_reads else None
    key, is_certain = ("array", values.place, by_origin), bool(values.host_reads)
    return Cut(values.place, key, describe, is_certain=is_certain)


def number_from_host(title: str, place: Place, source: HostRead, in_transform: bool = False) -> Cut:
    """The cut at a number that the host took, or computed of such, and gave to a launch."""

    def describe() -> Diagnostic:
        hint = "pass the array itself: one element may stand for a number, x[0:1] in place of x[0]"
        return Diagnostic(
            f"no gradient flows from {title} back to {called(source.elements)}: "
            "the host took a number there and passed it on",
            place.span,
            "cut",
            hint=hint + _if_meant("the number", "item", in_transform),
            related=(_took(source),),
        )

    return Cut(place, ("number", place, source.place), describe)


def lost_on_the_host(message: str, source: HostRead) -> Cut:
    """The cut at an argument of a transform whose values the host alone took, as constants."""

    def describe() -> Diagnostic:
        hint = f"compute with {_ON_THE_TAPE}: what goes through math or float() is a constant; "
        hint += "if the derivative is meant to be 0, that is fine"
        text = f"{message}: the host took its value here, as a constant"
        return Diagnostic(text, source.place.span, "cut", hint=hint)

    return Cut(source.place, ("lost", source.place), describe)


def _if_meant(what: str, method: str, in_transform: bool) -> str:
    if in_transform:
        return "; if the derivative is meant to end there, that is fine"
    clone = f"clone(x, requires_grad=False).{method}()"
    return f"; if the gradient is meant to end there, take {what} from a clone: {clone}"


def _took(source: HostRead) -> Related:
    return Related(f"the host took {called(source.elements)} here:", source.place.span)
