"""The adjoints of a backward pass: one buffer for each memory and each residual, allocated on first use.

Residuals are among the arguments of programs, as arrays and packed numbers are.  A buffer may be the memory
of a gradient; else what has arrived in it is published: copied to `.grad`, or added.  Knows these and memory;
must not know records or tapes.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import combinations
from typing import Any

import numpy as np

from kernelab.data_classes import dataclass
from kernelab.lang.types import Value, bytes_of, scalar_of, shape_of
from kernelab.runtime.array.array import array, duplicate
from kernelab.runtime.array.layout import contiguous_strides
from kernelab.runtime.array.transfers import device_clear, device_copy, transfer
from kernelab.runtime.context.conversion import HostArray, itemsize
from kernelab.runtime.context.recorder import made_from_host
from kernelab.runtime.launch.footprint import Residual
from kernelab.runtime.memory.memory import Allocation, allocate, copy_bytes, duplicate_of, zeros_like_memory
from kernelab.runtime.memory.spaces import Space

Extents = tuple[int, ...]


class Kept:
    """The residual that a program appends to while it runs, one for each lane where lanes differ.

    `extents` counts the lanes of the levels through which the program came, the outermost first.
    """

    def __init__(self, elem: Value) -> None:
        self.elem = elem
        self.residual: Residual | None = None
        self.levels: list[object] = []
        self.extents: list[int] = []

    def arrays(self, inner: int = 0) -> tuple[array, array]:
        """The values, and where those of each thread of each lane begin.

        To a program that came through the `inner` innermost levels already, their lanes are threads.
        """
        assert self.residual is not None
        values, starts = self.residual.arrays()
        return values, starts.reshape(*self.extents[: len(self.extents) - inner], -1)


@dataclass(frozen=True, slots=True)
class KeptValues:
    kept: Kept


@dataclass(frozen=True, slots=True)
class KeptStarts:
    kept: Kept
    inner: int = 0


Argument = array | bytes | Kept | KeptValues | KeptStarts
"""An array, a number packed as a launch wants it, or what another program has kept."""


def packed(argument: Argument, threads: int, space: Space | None) -> bytes:
    """An argument as an entry takes it, for a launch of some threads."""
    match argument:
        case array():
            return argument.packed
        case bytes():
            return argument
        case Kept():
            argument.residual = Residual(argument.elem, threads, space)
            return argument.residual.packed
        case KeptValues(kept):
            return kept.arrays()[0].packed
        case KeptStarts(kept, inner):
            return kept.arrays(inner)[1].packed


Level = Any
"""Where programs run: a level of `transforms.levels`."""


def fresh(shape: Sequence[int], dtype: Value, beside: array | None = None, cleared: bool = True) -> array:
    """A new array of any number of dimensions, on the device where `beside` is, else in the host's memory."""
    strides = contiguous_strides(tuple(shape), bytes_of(dtype))
    near = None if beside is None else beside.allocation
    memory = allocate(math.prod(shape) * bytes_of(dtype), cleared=cleared, beside=near)
    return array.over(memory, 0, tuple(shape), strides, dtype)


def filled(shape: Sequence[int], dtype: Value, values: HostArray, beside: array | None = None) -> array:
    """A new array like `fresh` with values of the host, which have its shape and that of its components."""
    elements = fresh(shape, dtype, beside, cleared=False)
    elements.blank()[...] = values
    made_from_host(elements, values)
    return elements


def plain_copy(elements: array) -> array:
    """The same values in memory of their own, which no level knows yet."""
    if elements.__class__ is array and elements.is_whole:
        return elements.twin(duplicate_of(elements.allocation))
    copy = fresh(elements.shape, elements.dtype, elements, cleared=False)
    if not device_copy(copy, elements):
        copy.blank()[...] = elements.seen()
    return copy


def scalars(elements: array) -> array:
    """A view of an array's numbers: the components of its elements are the last axes."""
    scalar, inner = scalar_of(elements.dtype), shape_of(elements.dtype)
    strides = (*elements.strides, *contiguous_strides(inner, bytes_of(scalar)))
    return array.over(elements.allocation, elements.offset, (*elements.shape, *inner), strides, scalar)


Spare = dict[int, list[Allocation]]
"""Buffers on the host that are not in use any more, by their size in bytes."""


class _Buffers(dict[Allocation, Allocation]):
    """The buffer of each memory: zeros at first, in a spare buffer if there is one."""

    spare: Spare

    def __missing__(self, primal: Allocation) -> Allocation:
        spare = self.spare.get(primal.nbytes)
        if spare and primal.space is None:
            buffer = self[primal] = spare.pop()
            buffer.fill_zero()
        else:
            buffer = self[primal] = zeros_like_memory(primal)
        return buffer


class Adjoints:
    """The adjoints of one backward pass: of memory, and of the residuals that programs have appended to.

    A buffer that is not needed any more serves again, here and in the backward pass that gets `spare` next,
    unless a function of the user's may have seen it (`show`).  Records that are `leaving` do not clear
    the adjoints of what they wrote.  Nothing changes those of `settled` memory once they are published: their
    buffer may be that of its gradients.
    """

    def __init__(
        self,
        spare: Spare | None = None,
        leaving: Collection[object] = (),
        settled: Collection[Allocation] = (),
    ) -> None:
        self.leaving, self.settled = leaving, settled
        self.memory = _Buffers()
        self.memory.spare = {} if spare is None else spare
        self._residuals: dict[Kept, array] = {}
        self._is_shown = False

    def of(self, primal: array) -> array:
        """The adjoint of an array: the same elements of a buffer that starts as zeros."""
        return primal.twin(self.memory[primal.allocation])

    def of_residual(self, residual: Kept) -> array:
        """The adjoint of what a program has appended."""
        if residual not in self._residuals:
            values, _ = residual.arrays()
            self._residuals[residual] = values.twin(zeros_like_memory(values.allocation))
        return self._residuals[residual]

    def of_argument(self, argument: Argument) -> array:
        """The adjoint of an argument of a program, which is an array or the values of a residual."""
        match argument:
            case array():
                return self.of(argument)
            case Kept():
                return self.of_residual(argument)
            case KeptValues(residual):
                return self.of_residual(residual)
            case _:
                raise AssertionError("neither numbers nor starts have adjoints")

    def reach(self, argument: Argument) -> bool:
        """Whether there is an adjoint of an argument of a program."""
        if isinstance(argument, array):
            return argument.allocation in self.memory
        return argument in self._residuals

    def known(self, primal: array) -> array | None:
        """The adjoint of an array, None while it is zero everywhere."""
        return self.of(primal) if primal.allocation in self.memory else None

    def start(self, primal: Allocation) -> Allocation:
        """A new buffer for the adjoints of a memory, every byte of which is about to be written."""
        spare = self.memory.spare.get(primal.nbytes)
        reused = spare.pop() if spare and primal.space is None else None
        buffer = self.memory[primal] = reused or allocate(primal.nbytes, cleared=False, beside=primal)
        buffer.parts = primal.parts
        return buffer

    def share(self, primal: Allocation, bar: Allocation) -> None:
        """Make `bar` the adjoint of some memory."""
        self.memory[primal] = bar

    def show(self, primal: Allocation) -> Allocation:
        """The buffer of a memory for a function of the user's, who may keep it."""
        self._is_shown = True
        return self.memory[primal]

    def reuse(self, primal: Allocation, level: Level) -> None:
        """Drop an adjoint, and let its buffer serve again, unless programs above the base know it."""
        buffer = self.memory.pop(primal, None)
        if buffer is primal.adjoint:
            return
        if buffer is not None and level.parent is not level:
            level.forget(buffer)
        elif buffer is not None and buffer.space is None and not self._is_shown:
            self.memory.spare.setdefault(buffer.nbytes, []).append(buffer)

    def kept(self, memories: Iterable[Allocation]) -> Callable[[], None]:
        """Copy the adjoints of some memories; the function puts them back, and drops what is new."""
        before = set(self.memory)
        copies = {primal: duplicate_of(self.memory[primal]) for primal in before.intersection(memories)}

        def restore() -> None:
            for primal, copy in copies.items():
                copy_bytes(self.memory[primal], 0, copy, 0, copy.nbytes)
            for primal in set(self.memory) - before:  # zeros until now, and so again
                del self.memory[primal]

        return restore

    @contextmanager
    def unchanged(self, memories: Iterable[Allocation]) -> Iterator[None]:
        """Restore the adjoints of some memories when the block ends."""
        restore = self.kept(memories)
        try:
            yield
        finally:
            restore()

    def end(self, level: Level) -> Spare:
        """Drop all adjoints; returns the buffers that may serve again."""
        for primal in list(self.memory):
            self.reuse(primal, level)
        return self.memory.spare


# ----------------------------------------------------------------------------------------------- of gradients


def about_to_change(elements: array) -> Allocation:
    """The gradients of the memory of some elements, which are about to be written."""
    gradient = elements.allocation.adjoint
    if gradient is None or gradient.watches.starts or gradient.witnesses:
        shown = elements.grad
        assert shown is not None
        gradient = shown.allocation
        gradient.will_write(shown)
    else:
        gradient.version += 1
    return gradient


MOST_PARTS = 32
"""The arrays in one memory from which it takes too long to compare each with each."""


def by_memory(arrays: Iterable[array]) -> dict[Allocation, list[array]]:
    """The arrays in each memory."""
    parts: dict[Allocation, list[array]] = {}
    for elements in arrays:
        parts.setdefault(elements.allocation, []).append(elements)
    return parts


def lie_apart(some: Sequence[array]) -> bool:
    """Whether some arrays in one memory, as the fields of structs, have no bytes in common."""
    return len(some) <= MOST_PARTS and not any(a.overlaps(b) for a, b in combinations(some, 2))


def is_apart(
    memory: Allocation, gradients: Mapping[Allocation | None, int], others: Collection[Allocation]
) -> bool:
    """Whether what a memory has as gradients, if anything, is of no other use in a backward pass.

    Of each memory, `gradients` counts how often it holds gradients.
    """
    gradient = memory.adjoint
    if gradient is None or not memory.requires_grad:
        return memory.requires_grad
    return (
        gradients[gradient] == 1
        and gradient not in others
        and gradient.nbytes == memory.nbytes
        and gradient.writable
        and gradient.space is memory.space is None
    )


# ------------------------------------------------------------------------------------------------- publish

Values = HostArray | array | None
"""The gradients of some elements, if there are any."""


def publish(elements: array, adjoints: Adjoints) -> None:
    """Set the gradient of some elements to their adjoint."""
    memory = elements.allocation
    buffer, gradient = adjoints.memory.get(memory), memory.adjoint
    is_whole = elements.is_whole
    if gradient is buffer:  # both are None, or what has arrived is there
        return
    if gradient is None and buffer is not None and memory.missing is None and is_whole:
        memory.adjoint = buffer if memory in adjoints.settled else duplicate_of(buffer)
        memory.adjoint.passes = ()  # a pass has been here, though its gradients do not add up
        return
    gradient = about_to_change(elements)
    if buffer is not None and is_whole:
        copy_bytes(gradient, 0, buffer, 0, buffer.nbytes)
        return
    if buffer is not None and elements.is_contiguous:
        nbytes = elements.size * itemsize(elements.dtype)
        copy_bytes(gradient, elements.offset, buffer, elements.offset, nbytes)
        return
    target, bar = elements.twin(gradient), adjoints.known(elements)
    if not (device_clear(target) if bar is None else device_copy(target, bar)):
        target.host()[...] = 0 if bar is None else bar.seen()
    gradient.publish()


def add_to_gradients(inputs: Sequence[array], adjoints: Adjoints) -> None:
    """Add the adjoints of elements that lie apart in one memory to their gradients."""
    memory = inputs[0].allocation
    buffer = adjoints.memory.get(memory)
    if buffer is None:
        return
    if memory.adjoint is None and memory.missing is None:
        memory.adjoint = adjoints.memory.pop(memory)
        return
    if memory.adjoint is None or memory.space is not None or memory.adjoint.space is not None:
        for elements in inputs:
            publish_sum(elements, gradient_now(elements), adjoints)
        return
    for elements in inputs:
        gradient = about_to_change(elements)
    first = inputs[0]
    for like, offset in _outlines(inputs) if len(inputs) > 1 else [(first.outline(), first.offset)]:
        values, more = (
            np.ndarray(like.shape, like.dtype, one.buffer(), offset, like.strides)
            for one in (gradient, buffer)
        )
        if values.ndim == 1 or values.flags.c_contiguous or values.shape[-1] > MOST_PARTS:
            np.add(values, more, out=values)
            continue
        for k in range(values.shape[-1]):  # NumPy's inner loop would go over the components of a vector
            np.add(values[..., k], more[..., k], out=values[..., k])
    gradient.publish()


def _outlines(parts: Sequence[array]) -> list[tuple[HostArray, int]]:
    """Outlines of elements that lie apart, with their offsets; of fields that fill a memory, a single one."""
    outlines, memory = [(elements.outline(), elements.offset) for elements in parts], parts[0].allocation
    dtypes = {like.dtype for like, _ in outlines}
    if len(dtypes) == 1 and sum(like.nbytes for like, _ in outlines) == memory.nbytes:
        return [(np.frombuffer(memory.buffer(), dtypes.pop()), 0)]
    return outlines


def publish_sum(elements: array, before: Values, adjoints: Adjoints) -> None:
    """Set the gradient of some elements to their adjoint and what was `before`."""
    if before is None:
        publish(elements, adjoints)
        return
    gradient, bar = about_to_change(elements), adjoints.known(elements)
    target = elements.twin(gradient)
    if isinstance(before, array):
        transfer(target, before if bar is None else before + bar, "assign")
        return
    np.add(before, 0 if bar is None else bar.seen(), out=target.host())
    gradient.publish()


def gradient_now(elements: array) -> Values:
    """A copy of the gradient of some elements, on the device that they are on."""
    if elements.allocation.adjoint is None:
        return None
    assert elements.grad is not None
    if elements.allocation.space is not None and elements.__class__ is array:
        return duplicate(elements.grad, False, "clone")
    return elements.grad.seen().copy()
