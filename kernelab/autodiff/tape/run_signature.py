"""The signature of a run: a checksum of what a function does, which a second run has to match."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kernelab.runtime.array.array import array
from kernelab.runtime.array.layout import is_picked
from kernelab.runtime.context.conversion import checksum
from kernelab.runtime.context.recorder import Recorder
from kernelab.runtime.host.struct_instances import Instance
from kernelab.runtime.host.structarray import leaves_of
from kernelab.runtime.kernel.arguments import array_of
from kernelab.runtime.launch.call import Call
from kernelab.runtime.memory.memory import youngest


class Signature:
    """A checksum of all that a run does: its launches, their numbers, what the host hands in, its results.

    Memory from before the run counts by its address, what the run makes by its layout and its number, since
    of two arrays of one shape either may go on.  What the host may have written through a NumPy view counts
    by its values when it is read.  The second run, the signature `of_first` at hand, counts these where the
    first did: a view may have been taken since.
    """

    def __init__(self, also: "Signature | None" = None, of_first: "Signature | None" = None) -> None:
        self.start = youngest()
        self.sum = 0
        self._exposed: list[bool] = []
        self._exposed_first = iter(of_first._exposed if of_first is not None else ())
        self._also = also
        self._written: set[int] = set()
        self._read: set[bytes] = set()
        self._made: dict[int, int] = {}

    def is_outside(self, elements: array) -> bool:
        """Whether an array is from before the run."""
        return elements.allocation.serial <= self.start

    def launch(self, call: Call) -> None:
        for elements in (*read_by(call), *added_to_by(call)):
            self._look_at(elements)
        self._written |= {call.arguments[i].allocation.serial for i in call.kernel.plan.written}
        self._add(f"{id(call.kernel)}".encode() + call.parts[0])
        for argument, part in zip(call.arguments, call.parts[1:], strict=True):
            elements = array_of(argument)
            self._add(self._layout(elements) if isinstance(elements, array) else part)
        if self._also is not None:
            self._also.launch(call)

    def mark(self, what: bytes) -> None:
        """Add something that is true of the launch."""
        self._add(what)
        if self._also is not None:
            self._also.mark(what)

    def copy(self, dest: array, src: array) -> None:
        self._look_at(src)
        self._written.add(dest.allocation.serial)
        self._add(self._layout(dest) + self._layout(src))
        if self._also is not None:
            self._also.copy(dest, src)

    def values(self, elements: array) -> None:
        """Add values that the host hands in."""
        self._written.add(elements.allocation.serial)
        self._add(self._layout(elements) + elements.host().tobytes())
        if self._also is not None:
            self._also.values(elements)

    def returns(self, arrays: Iterable[array]) -> None:
        """Add which arrays are returned, in order."""
        for elements in arrays:
            self._add(self._layout(elements))

    def hands_over(self, arrays: Sequence[array]) -> None:
        """Add which arrays go to a function of the host, in order."""
        for elements in arrays:
            self._look_at(elements)
        self.returns(arrays)
        if self._also is not None:
            self._also.hands_over(arrays)

    def _look_at(self, elements: array) -> None:
        """Add the values of an array that a NumPy view may have changed in this run.

        Of what the run reads from outside, and has not written, the first read counts: a later change is
        noticed elsewhere (`Snapshot`).
        """
        memory = elements.allocation
        is_own = not self.is_outside(elements) or memory.serial in self._written
        is_first = elements.packed not in self._read
        self._read.add(elements.packed)
        if (is_own or is_first) and memory.space is None:
            is_exposed = next(self._exposed_first, memory.was_exposed)
            self._exposed.append(is_exposed)
            if is_exposed:
                self._add(elements.host().tobytes())

    def _layout(self, elements: array) -> bytes:
        where = f"{elements.ptr}" if self.is_outside(elements) else self._place(elements)
        return f"{where}{elements.shape}{elements.strides}{elements.requires_grad}".encode()

    def _place(self, elements: array) -> str:
        """Where an array that the run made stands: the number of its memory, by first use, and its offset.

        Memory of NumPy's counts by its values: only what records holds on to it from one launch to the next.
        """
        if elements.allocation.borrowed:
            return "borrowed"
        number = self._made.setdefault(elements.allocation.serial, len(self._made))
        return f"{number}.{elements.offset}"

    def _add(self, more: bytes) -> None:
        self.sum = checksum(more, self.sum)


class Signed(Recorder):
    """Signs a run that another recorder, the next of its bases, hears of."""

    signature: Signature

    def launch(self, call: Any) -> None:
        self.signature.launch(call)
        try:
            super().launch(call)
        except BaseException:  # also an interrupt
            self.signature.mark(b"failed")  # a function that catches the error goes on in another way
            raise

    def left_out(self, call: Call) -> None:
        self.signature.launch(call)
        self.signature.mark(b"left out")
        super().left_out(call)

    def copied(self, dest: array, src: array, how: str) -> None:
        self.signature.copy(dest, src)
        super().copied(dest, src, how)

    def overwritten(self, dest: array, how: str, data: Any = None) -> None:
        self.signature.values(dest)
        super().overwritten(dest, how, data)

    def made_from_host(self, elements: array, data: Any = None) -> None:
        self.signature.values(elements)
        super().made_from_host(elements, data)

    def called_host(self, call: Any, arguments: Sequence[array], results: Sequence[array]) -> None:
        self.signature.hands_over([*arrays_in(call.args)])
        for result in results:
            self.signature.values(result)
        super().called_host(call, arguments, results)


def arrays_in(value: Any) -> Iterator[array]:
    """The arrays in nested tuples, lists, dicts and structs, and those that elements are picked from.

    Structs stand for their leaves.
    """
    match value:
        case array():
            yield from leaves_of(value)
        case tuple() | list() | dict():
            for part in value.values() if isinstance(value, dict) else value:
                yield from arrays_in(part)
        case Instance():
            yield from arrays_in(value._leaves())
        case _ if is_picked(value):
            yield from arrays_in((value.data, *value.indices))


def read_by(call: Call) -> Iterator[array]:
    """The arrays that a launch reads, used or not, and those that only its adjoint reads."""
    kernel = call.kernel
    for i in (*kernel.plan.read_in_text, *kernel.plan.numbers, *kernel.read_by_rules):
        elements = array_of(call.arguments[i])
        if isinstance(elements, array):
            yield elements


def added_to_by(call: Call) -> Iterator[array]:
    """The arrays that a launch adds to."""
    effects, params = call.kernel.effects, call.kernel.primal.params
    return (call.arguments[i] for i in call.kernel.plan.written if params[i] in effects.accumulates)
