"""Page-locked host memory for copies to and from devices that run while the host goes on.

Whoever looks at it as the host first waits for the copies under way.  A view that NumPy holds cannot wait:
while there is one, copies end before they return.  Knows spaces; must not know arrays or launches.
"""

import ctypes
from collections.abc import Iterable
from typing import Any

from kernelab.backend.common.specialization import Reach
from kernelab.errors import Diagnostic, KernelMemoryError
from kernelab.runtime.memory.device import get_cuda_devices
from kernelab.runtime.memory.memory import Allocation, copy_bytes
from kernelab.runtime.memory.spaces import OPEN, DeviceAllocation, Space

_BUSY: "dict[PinnedAllocation, None]" = {}
"""Those with copies under way; they live until those are known to have ended."""


class PinnedAllocation(Allocation):
    """Page-locked memory of the host, handed out by the driver of a device and given back to it."""

    __slots__ = ("_copies", "_keeper")

    is_pinned = True
    is_steady = False

    def __init__(self, keeper: Space, nbytes: int) -> None:
        address, _ = keeper.driver.shared(max(nbytes, 1))
        super().__init__(address, nbytes, None)
        self._keeper = keeper
        self._copies: dict[Space, int] = {}

    def __del__(self) -> None:
        if not hasattr(self, "_copies"):
            return  # there was no memory
        if self._keeper.takes_back:
            for space, event in self._copies.items():
                space.driver.close_event(event)
            self._keeper.driver.unshare(self.address)

    @property
    def host_address(self) -> int:
        """The host's address of the first byte, after all copies have ended."""
        self.settle()
        return self.address

    def buffer(self) -> Any:
        """The bytes as a buffer, once nothing is copied any more."""
        self.settle()
        return super().buffer()

    def expose(self) -> Any:
        """The bytes as a buffer for others, likewise."""
        self.settle()
        return super().expose()

    def image(self) -> Any:
        """The bytes as a buffer that nobody reads."""
        return super().buffer()

    def takes_from(self, source: Allocation) -> bool:
        """Whether a device copies its bytes here while the host goes on."""
        return isinstance(source, DeviceAllocation) and not self.is_exposed and source.space.capture is None

    def copy_from(self, start: int, source: DeviceAllocation, at: int, nbytes: int) -> None:
        """Begin to copy bytes of a device to here."""
        source.flush()
        with source.alone():
            self._begin(source.space)
            source.space.driver.start_download(self.address + start, source.address + at, nbytes)
            self._begun(source.space)

    def copy_to(self, dest: DeviceAllocation, start: int, at: int, nbytes: int) -> None:
        """Begin to copy bytes from here to a device."""
        dest.flush()
        with dest.alone():
            self._begin(dest.space)
            dest.space.driver.start_upload(dest.address + start, self.address + at, nbytes)
            self._begun(dest.space)
        dest.changed_there()

    def _begin(self, space: Space) -> None:
        """Make a device wait for other uses of the bytes."""
        for other, event in self._copies.items():
            if other is not space:
                space.driver.hold(0, event)
                space.backend.pending.join(other.backend.pending)

    def _begun(self, space: Space) -> None:
        if space not in self._copies:
            self._copies[space] = space.driver.open_event(timed=False)
        space.driver.record(self._copies[space], 0)
        _BUSY[self] = None

    def settle(self) -> None:
        """Wait for the copies under way, and raise what went wrong in launches before them."""
        while self._copies:
            space, event = next(iter(self._copies.items()))
            space.require_free("the host looks at an array")
            space.backend.pending.require_alive()
            space.backend.pending.synchronize()
            space.driver.wait_for(event)
            del self._copies[space]
            space.driver.close_event(event)
        _BUSY.pop(self, None)

    @property
    def has_landed(self) -> bool:
        """Whether all copies have ended."""
        return all(space.driver.happened(event) for space, event in self._copies.items())


def has_copies() -> bool:
    """Whether copies may be under way."""
    return bool(_BUSY)


def settle_within(reaches: Iterable[Reach]) -> None:
    """Wait for copies under way of some memory: the CPU is about to run a kernel on it."""
    used = list(reaches)
    for memory in list(_BUSY):
        if any(reach.low < memory.address + memory.nbytes and memory.address < reach.high for reach in used):
            memory.settle()


def allocate_pinned(nbytes: int, *, cleared: bool) -> PinnedAllocation | None:
    """New pinned memory, of zeros even where nobody asks; None where there is no CUDA device.

    Raises KernelMemoryError where the system locks no more memory.
    """
    if not OPEN and not get_cuda_devices():
        return None
    for memory in [memory for memory in _BUSY if memory.has_landed]:
        del _BUSY[memory]
    try:
        made = PinnedAllocation(next(iter(OPEN.values())), nbytes)
    except KernelMemoryError as problem:
        message = f"the system locks no {nbytes / 1e9:,.3f} GB of the host's memory in place"
        hint = "make a smaller array, or a usual one: leave pinned=True away"
        raise KernelMemoryError(Diagnostic(message, code="memory", hint=hint)) from problem
    if cleared:
        ctypes.memset(made.address, 0, nbytes)
    return made


def pinned_like(memory: Allocation) -> PinnedAllocation | None:
    """A pinned copy of memory of the host; None for a device's, and where there is no device."""
    made = allocate_pinned(memory.nbytes, cleared=False) if memory.space is None else None
    if made is not None:
        made.folded = memory.folded
        copy_bytes(made, 0, memory, 0, memory.nbytes)
    return made
