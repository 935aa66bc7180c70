"""Records other than launches: copies, overwrites by the host, functions that the user recorded."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from kernelab.autodiff.records.adjoint_buffers import Adjoints
from kernelab.autodiff.records.snapshots import Snapshot
from kernelab.data_classes import dataclass
from kernelab.runtime.array.array import array
from kernelab.runtime.array.transfers import device_add, device_clear
from kernelab.runtime.context.conversion import HostArray
from kernelab.runtime.context.garbage import as_the_user_has_it
from kernelab.runtime.context.recorder import Place
from kernelab.runtime.memory.memory import set_aside


class Flowing:
    """The flow of a record other than a launch."""

    __slots__ = ()

    def __repr__(self: Any) -> str:
        return f"<{self.title} at {self.place}>"

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

    def would_reach(self, primal: array) -> bool:
        return False


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CopyRecord(Simple):
    """A copy, clone or assignment from one array to another."""

    dest: array
    src: array
    how: str
    place: Place

    @property
    def title(self) -> str:
        return f"`{self.how}`"

    @property
    def read(self) -> Sequence[array]:
        return (self.src,)

    def would_reach(self, primal: array) -> bool:
        return True

    def pull(self, adjoints: Adjoints) -> None:
        dest_bar = adjoints.of(self.dest)
        if not self.src.requires_grad:
            cleared(dest_bar)
            return
        src_bar = adjoints.of(self.src)
        if device_add(src_bar, dest_bar):
            cleared(dest_bar)
            return
        moved = dest_bar.host().copy()
        dest_bar.host()[...] = 0
        src_bar.host()[...] += moved


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class OverwriteRecord(Simple):
    """Elements set from the host: what was computed into them before is gone.

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

    def pull(self, adjoints: Adjoints) -> None:
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

    `keeps` are these arrays as they were when it was recorded.  `results` are those that it computed from
    the others; where there are none, each of the arrays may be either.
    """

    backward: Callable[[], object]
    arrays: tuple[array, ...]
    place: Place
    keeps: tuple[Snapshot, ...] = ()
    results: tuple[array, ...] = ()

    @property
    def title(self) -> str:
        return f"the function {getattr(self.backward, '__name__', 'recorded')}"

    @property
    def read(self) -> Sequence[array]:
        return self.arrays[: len(self.arrays) - len(self.results)]

    @property
    def written(self) -> Sequence[array]:
        return self.results or self.arrays

    def pull(self, adjoints: Adjoints) -> None:
        """Call the function while the arrays' `.grad` are the adjoints of the sweep."""
        bars = {primal.allocation: adjoints.show(primal.allocation) for primal in self.arrays}
        published = {memory: memory.adjoint for memory in bars}
        for memory, bar in bars.items():
            memory.adjoint = bar
        try:
            with self._as_it_was(), as_the_user_has_it():
                self.backward()
            _copy_back(self.arrays, adjoints)
        finally:
            for memory, adjoint in published.items():
                memory.adjoint = adjoint

    @contextmanager
    def _as_it_was(self) -> Iterator[None]:
        """Within it the arrays hold what they held when the function was recorded."""
        changed = [keep for keep in self.keeps if keep.spent]
        with ExitStack() as aside:
            for memory in {keep.elements.allocation for keep in changed}:
                aside.enter_context(set_aside(memory))
            for keep in changed:
                keep.restore()
            yield


def _copy_back(arrays: Sequence[array], adjoints: Adjoints) -> None:
    """Take over the gradients of arrays whose `.grad` the user's function has set to another array."""
    for primal in arrays:
        bar = adjoints.of(primal)
        if primal.grad is not None and primal.grad.allocation is not bar.allocation:
            bar.host()[...] = primal.grad.host()
