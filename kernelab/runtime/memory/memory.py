"""Memory that arrays share: its owner, a count of its writes, and the observers of writes.

Knows bytes and NumPy; must not know kernels, launches or tapes.  What needs bytes to stay as they are
registers a `Watcher` with the allocation: it is notified before they change, and when the host gets a view
through which they may change unseen.
"""

import ctypes
import itertools
import sys
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import addressof
from typing import Any, Protocol

import numpy as np

from kernelab.backend.common.reach import bounds
from kernelab.errors import Diagnostic, KernelMemoryError, KernelValueError
from kernelab.runtime.context.recorder import Place
from kernelab.runtime.memory.address_ranges import LISTS, Ranges, Watcher, Watches

Elements = Any
"""An array over the memory; its class is built on this module."""

Change = Callable[[], Elements]
"""Finds the array of the elements that are about to change: asked for only where that matters."""

Note = tuple[int, Any, Place, int, "list[weakref.ref[Allocation]]"]
"""What an unrecorded launch leaves (`origin`): version, what it is, line, thread, memory that it read."""

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


_first_byte: Callable[[Any], ctypes.c_ubyte] = ctypes.c_ubyte.from_buffer

_ALIGNMENT, _SMALL = 64, 4096
"""Up to `_SMALL` bytes memory is a `bytearray`, which is made and copied sooner than an array of NumPy's."""

_SERIALS = itertools.count(1)
"""Allocations are numbered in the order in which they are made."""


class MemorySpace(Protocol):
    """The memory of a device, in which allocations are made (`spaces`)."""

    name: str

    def allocate(self, nbytes: int, *, cleared: bool) -> "Allocation":
        """New memory, zeros or uninitialised; raises KernelMemoryError."""


class Witness(Protocol):
    """Someone who hears of every change of any byte, and may make watchers as late as that."""

    def alert(self, memory: "Allocation", change: "Change | None") -> None:
        """Some of the memory is about to change, or, without a change, to be exposed.

        Who needs what it holds watches now, and keeps what the change destroys.
        """

    def before_write(self, target: Elements) -> None:
        """`target` is about to be overwritten."""

    def computed(self, memory: "Allocation") -> bool:
        """Whether the witness has recorded how some of the memory was computed."""

    def is_exposed(self, memory: "Allocation") -> None:
        """The host is about to get a writable view of the memory."""


_NOBODY = Watches()
"""The watchers of an allocation that nobody watches yet."""


UNKNOWN = -1
"""The checksum of bytes that nobody compares."""


class Allocation:
    """A stretch of memory that one or more arrays look at, compared by identity.

    `version` counts the writes.  `begin` is the index of the first byte where the owner is a `bytearray`,
    else -1.  `adjoint` is the memory of the gradients, of the same layout, once there is
    any; `requires_grad` says whether there may be.  `folded` says that an array over it may have elements
    that share bytes.  `serial` says when it was made.  `origin` is the version that a launch outside of tapes
    left, and that launch; `missing` says why a backward pass could not reach what is here.  `unwritten` knows
    which bytes nobody has written, where checked mode asks for that (`memory.unwritten`).  `passes` says
    which backward passes have added up here, and `left` is the version that the last one left, with respect
    to `leaves`, which had the versions that stand beside them (`tape.seeds`); `left_sum` is the checksum of
    its bytes, where the host has a view of them.  `copy_of` says of which bytes this was a copy, and in which
    version.  `began_as_zeros` says what version 0 held.
    """

    __slots__ = (
        "__weakref__",
        "address",
        "adjoint",
        "began_as_zeros",
        "begin",
        "borrowed",
        "copy_of",
        "exposure",
        "folded",
        "leaves",
        "left",
        "left_sum",
        "missing",
        "nbytes",
        "origin",
        "owner",
        "parts",
        "passes",
        "requires_grad",
        "serial",
        "unwritten",
        "version",
        "watches",
        "witnesses",
        "writable",
    )

    def __init__(
        self,
        address: int,
        nbytes: int,
        owner: Any,
        begin: int = -1,
        *,
        borrowed: bool = False,
        writable: bool = True,
        began_as_zeros: bool = False,
    ) -> None:
        self.address = address
        self.began_as_zeros = began_as_zeros
        self.begin = begin
        self.nbytes = nbytes
        self.owner = owner
        self.borrowed = borrowed
        self.folded = False
        self.writable = writable
        self.version = 0
        self.serial = next(_SERIALS)
        self.parts: tuple[Any, ...] = ()
        """The leaves of the structs that it holds, as `array.over` takes them."""
        self.requires_grad = False
        self.adjoint: Allocation | None = None
        self.origin: Note | None = None
        self.missing: Diagnostic | Callable[[Allocation], Diagnostic] | None = None
        self.unwritten: Any = None
        self.passes: Any = None
        self.left = -1
        self.left_sum: int | None = None
        self.leaves: Sequence[tuple[weakref.ref[Allocation], int]] = ()
        self.copy_of: tuple[object, ...] = ()
        self.watches = _NOBODY
        self.witnesses: tuple[weakref.ref[Any], ...] = ()
        self.exposure: Callable[[], Any] | None = None

    def __repr__(self) -> str:
        return f"<{self.nbytes} bytes at {self.address:#x}, version {self.version}>"

    space: MemorySpace | None = None
    """The memory of the device that the bytes are in; None for the host's own."""

    is_pinned = False
    """Whether the bytes are the host's, and locked in place."""

    @property
    def host_address(self) -> int:
        """The host's address of the first byte."""
        return self.address

    @property
    def is_exposed(self) -> bool:
        """Whether the host holds a view through which the bytes may change unseen."""
        return (self.exposure is not None and self.exposure() is not None) or (
            self.borrowed and not self._alone_holds_owner()
        )

    def _alone_holds_owner(self) -> bool:
        """Whether the bytes are those of a NumPy array that nobody else refers to any more."""
        is_array = self.owner.__class__ is np.ndarray and self.owner.flags.owndata
        return is_array and sys.getrefcount(self.owner) == 2  # ours, and that of the question

    @property
    def was_exposed(self) -> bool:
        """Whether the host holds such a view, or ever did."""
        return self.borrowed or self.exposure is not None

    @property
    def is_private(self) -> bool:
        """Whether nobody else may know where the bytes are: they never change unseen."""
        end = self.address + self.nbytes
        return not self.was_exposed and self.space is None and not _SHARED.owners(self.address, end)

    @property
    def has_ended(self) -> bool:
        """Whether `end` was called: what holds the bytes may not be looked at any more."""
        return self.exposure is not None and not isinstance(self.exposure, weakref.ref)

    def expose(self) -> Any:
        """The bytes as a buffer; while it or a view of it lives, the allocation counts as exposed."""
        exposure = self.exposure() if self.exposure is not None else None
        if exposure is None:
            if self.watches.starts or self.witnesses:
                self._notify_of_exposure()
            if self.exposure is None:
                self.register_addresses()
            exposure = self.buffer()
            self.exposure = weakref.ref(exposure)
            self.sum_left()
        return exposure

    def sum_left(self) -> None:
        """Note what a backward pass has left here, if there is a view that may change it unseen."""
        if self.left == self.version and self.left_sum is None and self.is_exposed:
            self.left_sum = zlib.crc32(self.seen())

    @property
    def is_as_left(self) -> bool:
        """Whether nobody has changed the bytes that a backward pass left, not even through a view."""
        if self.left != self.version:
            return False
        return self.left_sum in (None, UNKNOWN) or self.left_sum == zlib.crc32(self.seen())

    def end(self, refuse: Callable[[], Any]) -> None:
        """Leave bytes that are NaN as floats, and call `refuse`, which raises, for a view or its tracking."""
        memoryview(self.blank()).cast("B")[:] = b"\xff" * self.nbytes
        self.exposure = refuse

    def register_addresses(self) -> None:
        """To be called before others learn an address in it: what comes from there is known to be this."""
        self.unwritten = None
        if not self.borrowed and self.nbytes and self.space is None:
            _SHARED.add(self)

    def _notify_of_exposure(self) -> None:
        witnesses = self.alert(None)
        for watcher in self.watches.of(self.address, self.address + self.nbytes):
            watcher.exposed()
        for witness in witnesses:
            witness.is_exposed(self)

    def grow(self, low: int, high: int, owner: object) -> None:
        """Reach over more bytes, which `owner` keeps alive; gradients move along."""
        before, end = self.address, max(high, self.address + self.nbytes)
        self.address = min(low, before)
        self.nbytes = end - self.address
        self.owner = self.owner, owner
        self.exposure = None
        if self.adjoint is not None:
            moved = allocate(self.nbytes, cleared=True)
            ctypes.memmove(moved.address + before - self.address, self.adjoint.address, self.adjoint.nbytes)
            self.adjoint = moved

    def buffer(self) -> Any:
        """The bytes as a buffer, for kernelab's own use."""
        memory: Any = (ctypes.c_ubyte * self.nbytes).from_address(self.address)
        memory.allocation = self  # keeps the bytes alive, and leads back here from any NumPy view
        return memory

    def image(self) -> Any:
        """A buffer like `buffer` for code that reads only addresses: its bytes may be anything."""
        return self.buffer()

    def seen(self) -> Any:
        """The bytes as a buffer that is only read."""
        return self.buffer()

    def blank(self) -> Any:
        """The bytes as a buffer of which every one is about to be written."""
        return self.buffer()

    def copied(self, low: int, high: int) -> bytearray:
        """A copy of the bytes between two addresses, of the host's memory."""
        if self.begin < 0:
            return bytearray(ctypes.string_at(low, high - low))
        first = low - self.address + self.begin
        copy: bytearray = self.owner[first : first + high - low]
        return copy

    def fill_zero(self) -> None:
        """Set all bytes to zero, of the host's memory."""
        if self.begin < 0:
            ctypes.memset(self.address, 0, self.nbytes)
        else:
            self.owner[self.begin : self.begin + self.nbytes] = bytes(self.nbytes)

    def publish(self) -> None:
        """To be called when the host has written: others who read the bytes see what it wrote."""

    def watch(self, watcher: Watcher, extent: tuple[int, int]) -> None:
        """Notify `watcher` before bytes between two addresses change, as long as it lives."""
        if self.watches is _NOBODY:
            self.watches = Watches()
        self.watches.add(watcher, *extent)

    def unwatch(self, watcher: Watcher, extent: tuple[int, int]) -> None:
        """Stop telling `watcher`."""
        self.watches.remove(watcher, extent[0])

    def witness(self, ref: "tuple[weakref.ref[Any]]") -> None:
        """Notify a witness of every change of any byte, as long as it lives."""
        with LISTS.lock:
            if ref[0] not in self.witnesses:
                others = [one for one in self.witnesses if one() is not None]
                self.witnesses = (*others, *ref) if others else ref  # one object for all memory of a witness

    def has_witnesses(self) -> bool:
        """Whether anybody lives who is to hear of changes."""
        if self.witnesses and all(ref() is None for ref in self.witnesses):
            self._forget_dead()
        return bool(self.witnesses)

    def _forget_dead(self) -> None:
        with LISTS.lock:
            self.witnesses = tuple([ref for ref in self.witnesses if ref() is not None])

    def alert(self, change: Change | None) -> "list[Witness]":
        """Alert all witnesses that bytes are about to change, or to be exposed; returns them."""
        if not self.witnesses:
            return []
        alive = [witness for ref in self.witnesses if (witness := ref()) is not None]
        if len(alive) < len(self.witnesses):
            self._forget_dead()
        for witness in alive:
            witness.alert(self, change)
        return alive

    def will_write(self, target: Elements, change: Change | None = None) -> None:
        """To be called before `target`'s elements change: notifies the watchers, then counts the write.

        `change` finds the part of them that does change, if that is not all.
        """
        if len(self.witnesses) == 1 and not self.watches.starts:  # a tape, mostly
            witness = self.witnesses[0]()
            if witness is not None:
                witness.alert(self, change or (lambda: target))
                witness.before_write(target)
                self.version += 1
                return
        self.notify_watchers(target, change)
        self.count_write(target)

    def notify_watchers(self, target: Elements, change: Change | None = None) -> None:
        """Notify the watchers of what is about to change."""
        change = change or (lambda: target)
        told: list[Watcher] = []
        if self.watches.starts:
            part = change()
            told = self.watches.of(*part.extent)
        self.alert(change)  # who begins to watch here knows of this change
        for watcher in told:
            watcher.before_write(part)

    def count_write(self, target: Elements) -> None:
        """Notify the witnesses, once all watchers know of all that changes at a time."""
        for ref in self.witnesses:
            witness = ref()
            if witness is not None:
                witness.before_write(target)
        self.version += 1


def announce(changes: Sequence[tuple[Elements, Change | None]]) -> None:
    """Announce that several arrays are about to change at once: no write counts before all are told."""
    if len(changes) == 1:
        target, change = changes[0]
        target.allocation.will_write(target, change)
        return
    for target, change in changes:
        target.allocation.notify_watchers(target, change)
    for target, _ in changes:
        target.allocation.count_write(target)


HUGE_PAGE = 1 << 21
"""The bytes of a huge page: arrays of a few of them begin on one, and NumPy asks the system for such pages.

Memory that no cache holds is then read in three quarters of the time.  Larger arrays have most of their bytes
in huge pages wherever they begin.
"""

_PAGE = 4096
_LARGE = 1 << 17
_STAGGER = 3 * 512
"""How much later in a page than the one before an array of `_LARGE` bytes or more begins.

Of two arrays that begin at about the same place, elements at the same index compete for the lines of a cache,
and a processor takes a load from one for a load of what it has just stored to the other: a stencil then takes
1.4 times as long.
"""

_turns = itertools.count()


def allocate(nbytes: int, *, cleared: bool, beside: Allocation | None = None) -> Allocation:
    """New memory, zeros or uninitialised, aligned to 64 bytes; raises KernelMemoryError.

    It is the host's, or that of the device that `beside` is in.
    """
    if beside is not None and beside.space is not None:
        return beside.space.allocate(nbytes, cleared=cleared)
    if nbytes <= _SMALL:
        small = bytearray(nbytes + _ALIGNMENT)
        start = address_in(small)
        begin = -start % _ALIGNMENT
        return Allocation(start + begin, nbytes, small, begin, began_as_zeros=cleared)
    unit, begin, more = _ALIGNMENT, 0, _ALIGNMENT
    if nbytes >= _LARGE:
        unit = HUGE_PAGE if HUGE_PAGE <= nbytes < 8 * HUGE_PAGE else _PAGE
        begin = next(_turns) * _STAGGER % _PAGE
        more = 2 * unit + begin  # so that the last page may be a huge one, too
    try:
        raw = (np.zeros if cleared else np.empty)(nbytes + more, np.uint8)
    except (MemoryError, ValueError, OverflowError):
        raise _no_memory(nbytes) from None
    start = address_in(raw)
    return Allocation(start + -start % unit + begin, nbytes, raw, began_as_zeros=cleared)


def address_in(buffer: Any) -> int:
    """The address of the first byte of a buffer that can be written: NumPy takes longer to tell it."""
    return addressof(_first_byte(buffer))


def _no_memory(nbytes: int) -> KernelMemoryError:
    size = f"{nbytes / 1e9:,.1f} GB" if nbytes >= 1e8 else f"{nbytes / 1e6:,.1f} MB"
    message = f"there is no memory for an array of {size}"
    return KernelMemoryError.of(message, "memory", "ask for fewer elements, or a smaller type of numbers")


def point_at(address: int, nbytes: int) -> Allocation:
    """The allocation over memory at an address; raises KernelValueError for address 0."""
    if not nbytes:
        return Allocation(address, 0, None, borrowed=True)
    if not address:
        message = "there is no memory at address 0"
        raise KernelValueError.of(message, "memory", "pass the address of the elements")
    memory: Any = (ctypes.c_ubyte * nbytes).from_address(address)
    return borrow(np.frombuffer(memory, np.uint8))


def zeros_like_memory(memory: Allocation) -> Allocation:
    """New zeros, as many bytes as some memory has, on the device where it is."""
    zeros = allocate(memory.nbytes, cleared=True, beside=memory)
    zeros.parts = memory.parts
    return zeros


def duplicate_of(memory: Allocation) -> Allocation:
    """New memory on the same device with a copy of the bytes."""
    copy = allocate(memory.nbytes, cleared=False, beside=memory)
    copy.parts = memory.parts
    copy_bytes(copy, 0, memory, 0, memory.nbytes)
    if memory.unwritten:
        memory.unwritten.duplicated(copy)
    elif memory.unwritten is False and not memory.version:
        copy.unwritten = False
    return copy


def copy_bytes(dest: Allocation, start: int, source: Allocation, at: int, nbytes: int) -> None:
    """Copy bytes between places that do not overlap, on any devices."""
    if dest.begin >= 0 <= source.begin:
        start, at = start + dest.begin, at + source.begin
        dest.owner[start : start + nbytes] = source.owner[at : at + nbytes]
    elif dest.space is source.space is None:
        ctypes.memmove(dest.address + start, source.address + at, nbytes)
    elif dest.space is source.space:
        dest.copy_from(start, source, at, nbytes)  # type: ignore[attr-defined]
    else:
        dest.buffer()
        source.seen()
        ctypes.memmove(dest.host_address + start, source.host_address + at, nbytes)


def youngest() -> int:
    """A number that no allocation made so far exceeds, and all later ones do."""
    return next(_SERIALS)


@contextmanager
def set_aside(memory: Allocation) -> Iterator[None]:
    """A context in which some memory may change unnoticed; it is restored at the end."""
    if not memory.writable:
        yield
        return
    memory.seen()
    kept = ctypes.string_at(memory.host_address, memory.nbytes)
    version, origin, watches, witnesses = memory.version, memory.origin, memory.watches, memory.witnesses
    memory.watches, memory.witnesses = Watches(), ()
    try:
        yield
    finally:
        memory.blank()
        ctypes.memmove(memory.host_address, kept, memory.nbytes)
        memory.version, memory.origin = version, origin
        memory.watches, memory.witnesses = watches, witnesses


def address_of(values: np.ndarray[Any, Any]) -> int:
    """The address of the first element."""
    address: int = values.__array_interface__["data"][0]
    return address


_SHARED: "Ranges[Allocation]" = Ranges()
"""Allocations whose bytes others may hand to us again: borrowed ones, and those that the host has seen."""


def exposed_memory() -> list[Allocation]:
    """The memory of the host's own that it may change unseen."""
    return [one for one in _SHARED.all() if one.writable and not one.has_ended and one.is_exposed]


def borrow(values: np.ndarray[Any, Any]) -> Allocation:
    """The allocation that holds the elements of a NumPy array, which it keeps alive.

    It is the same for all who share bytes, whatever objects they come through.  Raises KernelValueError for
    memory that spans that of several allocations.
    """
    root = values
    while isinstance(root.base, np.ndarray):
        root = root.base
    mine = getattr(root.base, "allocation", None)
    if isinstance(mine, Allocation):
        return mine
    low, high = bounds(address_of(root), root.shape, root.strides, root.itemsize)
    if low == high:
        return Allocation(low, 0, root, borrowed=True, writable=values.flags.writeable)
    owners = _SHARED.owners(low, high)
    if not owners:
        allocation = Allocation(low, high - low, root, borrowed=True, writable=values.flags.writeable)
        _SHARED.add(allocation)
        return allocation
    allocation = owners[0]
    if low < allocation.address or allocation.address + allocation.nbytes < high:
        if len(owners) > 1 or not allocation.borrowed:
            raise KernelValueError(spanning(len(owners)))
        before = allocation.address
        allocation.grow(low, high, root)
        _SHARED.moved(allocation, before)
    allocation.writable |= values.flags.writeable
    return allocation


def spanning(count: int) -> Diagnostic:
    """The diagnostic for data that reach over the memory of `count` allocations, or past the end of one."""
    several = f"{count} separate stretches of memory that arrays hold" if count > 1 else "an array's memory"
    message = f"these data reach over {several}: kernelab could not tell which gradients belong together"
    hint = "share the whole buffer first and slice that array, or copy the data: kl.array(data)"
    return Diagnostic(message, code="shared", hint=hint)
