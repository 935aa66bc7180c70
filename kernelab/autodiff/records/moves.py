"""Records other than launches: copies, overwrites by the host, and Python functions with derivatives."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kernelab.autodiff.records.adjoint_buffers import Adjoints, Level
from kernelab.autodiff.records.snapshots import Snapshot, as_they_were
from kernelab.data_classes import dataclass
from kernelab.errors import TapeError
from kernelab.lang.types import is_differentiable
from kernelab.runtime.array.array import array
from kernelab.runtime.array.transfers import device_clear
from kernelab.runtime.context.conversion import HostArray
from kernelab.runtime.context.garbage import as_the_user_has_it
from kernelab.runtime.context.recorder import Place, called
from kernelab.runtime.memory.memory import Allocation


class Flowing:
    """What a record answers unless it says otherwise."""

    __slots__ = ()

    def __repr__(self: Any) -> str:
        return f"<{self.title} at {self.place}>"

    @property
    def may_begin(self) -> bool:
        return False

    def would_reach(self, primal: array) -> bool:
        return True

    def computes(self, target: array) -> bool:
        """Whether what it wrote to an array may depend on what it read."""
        return True

    def flow(self: Any) -> tuple[Sequence[array], Sequence[array], Sequence[array]]:
        """What it read, reached and wrote."""
        return self.read, self.reached, self.written


class Simple(Flowing):
    """Base of the records through which adjoints flow to all that they read; by itself it reads nothing."""

    __slots__ = ()

    @property
    def read(self) -> Sequence[array]:
        return ()

    @property
    def reached(self) -> Sequence[array]:
        return self.read

    @property
    def written(self: Any) -> Sequence[array]:
        return (self.dest,)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Move(Simple):
    """A copy from one array to another, or an addition."""

    dest: array
    src: array
    add: bool
    place: Place

    @property
    def read(self) -> Sequence[array]:
        return (self.src,)

    def pull(self, adjoints: Adjoints, level: Level) -> None:
        bar = adjoints.known(self.dest)
        if bar is None:
            return
        source = adjoints.of(self.src)
        if self.add:
            level.move(source, bar, add=True)
        elif self.dest.allocation is self.src.allocation:  # the two may overlap
            moved = level.copy(bar)
            level.clear(bar)
            level.move(source, moved, add=True)
        else:
            level.move(source, bar, add=True)
            level.clear(bar)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CopyRecord(Move):
    """A copy, clone or assignment on a tape; of integers, no adjoint passes it, but values of floats may."""

    how: str

    @property
    def read(self) -> Sequence[array]:
        return _floats(self.src)

    @property
    def written(self) -> Sequence[array]:
        return _floats(self.dest)

    @property
    def title(self) -> str:
        return f"`{self.how}`"

    def pull(self, adjoints: Adjoints, level: Level) -> None:
        if self.src.requires_grad:
            Move.pull(self, adjoints, level)
        else:
            level.clear(adjoints.of(self.dest))


def _floats(elements: array) -> tuple[array, ...]:
    return (elements,) if is_differentiable(elements.dtype) else ()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class OverwriteRecord(Simple):
    """Elements set from the host, floats or integers: what was computed into them before is gone.

    `value` is what they were set to, None where these are many; `version` is that of their memory then.
    """

    dest: array
    how: str
    place: Place
    value: HostArray | None = None
    version: int = 0

    @property
    def title(self) -> str:
        return f"`{self.how}`"

    @property
    def written(self) -> Sequence[array]:
        return _floats(self.dest)

    def pull(self, adjoints: Adjoints, level: Level) -> None:
        dest_bar = adjoints.known(self.dest)
        if dest_bar is not None:
            cleared(dest_bar)


def cleared(bar: array) -> None:
    """Set an adjoint to zero."""
    if not device_clear(bar):
        bar.host()[...] = 0


FILLS = ("fill_", "zero_")
"""Overwrites by one number, which is rarely computed from an array."""

FEW = 1 << 12
"""Of how many elements that the host writes the values are remembered, so that the tape can run again."""


def overwrite_of(dest: array, how: str, place: Place) -> OverwriteRecord:
    """The record of an overwrite that has just happened."""
    value = None
    if how in FILLS and dest.size:
        value = dest.seen()[(0,) * dest.ndim].copy()
    elif dest.size <= FEW:
        value = dest.seen().copy()
    return OverwriteRecord(dest, how, place, value, dest.allocation.version)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FunctionRecord(Simple):
    """A function of the user's to call in the backward pass, and the arrays whose gradients it handles.

    `keeps` are these arrays as they were when it was recorded, or those of them that are marked as read.
    """

    backward: Callable[[], object]
    arrays: tuple[array, ...]
    place: Place
    keeps: tuple[Snapshot, ...] = ()
    may_begin = True  # a penalty is a gradient that comes from no seed

    @property
    def title(self) -> str:
        return f"the function {getattr(self.backward, '__name__', 'recorded')}"

    @property
    def read(self) -> Sequence[array]:
        return self.arrays

    @property
    def written(self) -> Sequence[array]:
        return self.arrays

    def would_reach(self, primal: array) -> bool:
        return False

    def pull(self, adjoints: Adjoints, level: Level) -> None:
        """Call the function while the arrays' `.grad` are the adjoints of the sweep."""
        _refuse_lost(self, self.keeps)
        memories = [primal.allocation for primal in self.arrays if primal.requires_grad]
        with published({memory: adjoints.show(memory) for memory in memories}):
            with as_they_were(self.keeps), as_the_user_has_it():
                self.backward()
            for primal in self.arrays:
                bar = adjoints.of(primal)
                if primal.grad is not None and primal.grad.allocation is not bar.allocation:
                    bar.host()[...] = primal.grad.host()  # the function has set `.grad` to another array


NOTICED = (
    "record again for another backward pass; otherwise change it after backward(), or with assign() or "
    "fill_(), which are noticed"
)
"""What to write in place of a change through a view that an adjoint does not bear."""


def _refuse_lost(function: Any, keeps: Sequence[Snapshot]) -> None:
    """Raise TapeError where values that a function may need have changed unseen."""
    for keep in keeps:
        if keep.has_changed_unseen():
            message = (
                f"{called(keep.elements)} was changed through a view (NumPy, PyTorch), "
                f"but {function.title} may need its old values"
            )
            raise TapeError.of(message, "host-write", NOTICED, function.place.span)


PUBLISHED: list[Allocation] = []
"""The memory whose adjoints the function that runs now finds in `.grad`."""


@contextmanager
def published(bars: Mapping[Allocation, Allocation]) -> Iterator[None]:
    """Within it, the gradients of each memory are other ones."""
    before = [(memory, memory.requires_grad, memory.adjoint) for memory in bars]
    for memory, bar in bars.items():
        memory.requires_grad, memory.adjoint = True, bar
    try:
        PUBLISHED.extend(bars)
        yield
    finally:
        del PUBLISHED[len(PUBLISHED) - len(bars) :]
        for memory, required, adjoint in before:
            memory.requires_grad, memory.adjoint = required, adjoint


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HostCallRecord(Flowing):
    """A Python function with a derivative of its own that ran, a `HostCall`: its arguments and results.

    `keeps` are those that the derivative takes as they were then, where they are kept; `active` are the
    positions of the arguments whose adjoints are wanted; `found` is what it computed with that such a
    function had left around it.
    """

    call: Any
    read: tuple[array, ...]
    written: tuple[array, ...]
    keeps: tuple[Snapshot, ...]
    active: Sequence[int]
    place: Place
    found: tuple[array, ...] = ()

    @property
    def title(self) -> str:
        title: str = self.call.title
        return title

    def flow(self) -> tuple[Sequence[array], Sequence[array], Sequence[array]]:
        return (*self.read, *self.found), self.read, self.written

    @property
    def late(self) -> Sequence[array]:
        """The arguments that were set to require gradients only afterwards."""
        passive = (one for k, one in enumerate(self.read) if k not in self.active)
        return [one for one in passive if one.requires_grad and is_differentiable(one.dtype)]

    @property
    def may_begin(self) -> bool:
        return bool(self.call.in_place)

    @property
    def reached(self) -> Sequence[array]:
        return self.read

    def pull(self, adjoints: Adjoints, level: Level) -> None:
        if not (self.may_begin or any(map(adjoints.reach, self.written))):
            return
        _refuse_lost(self, self.keeps)
        bars = [adjoints.of(result) for result in self.written]
        seeds = [level.copy(bar) for bar in bars]
        for bar in bars:
            level.clear(bar)
        values = [*self.read, *self.written]
        for i, keep in enumerate(self.keeps):
            saved = keep.saved
            values[i] = values[i] if saved is None else saved
        with as_the_user_has_it():
            shares = level.call_host(self.call.reversed(len(bars), self.active), [*values, *seeds])
        for i in self.active:
            level.move(adjoints.of(self.read[i]), shares[i], add=not self.call.in_place)
