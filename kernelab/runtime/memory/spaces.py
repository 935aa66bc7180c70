"""Memory of CUDA devices: allocations whose bytes the host sees through a mirror.

A `Space` is the memory of one device.  An allocation there has its bytes on the device and, once the host has
asked for them, a mirror on the host; it knows which of the two is newer.  What the host changes goes to the
device before the next launch that is given the allocation, what a launch changes comes back when the host
looks.  So whatever the host does to arrays it does on a device too; what can be done there without the host,
copies and clearing, is.  Knows the driver; must not know kernels or launches.
"""

import ctypes
import sys
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

import numpy as np

from kernelab.backend.cuda.faults import LostError
from kernelab.backend.cuda.nvidia import Driver
from kernelab.backend.cuda.synchronisation import Partner
from kernelab.errors import Diagnostic, KernelMemoryError, KernelValueError, LaunchError
from kernelab.runtime.context.recorder import refusal
from kernelab.runtime.memory.address_ranges import Ranges
from kernelab.runtime.memory.memory import Allocation, Bytes, address_of, spanning

OPEN: "dict[str, Space]" = {}
"""The devices in use, by their names."""


class Capture:
    """A graph capture in progress: the memory that it touches, and what of it changes.

    `thread` is the one that has begun it, and alone may put something into the graph.
    """

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.touched: dict[DeviceAllocation, None] = {}
        self.changed: dict[DeviceAllocation, None] = {}


class Space:
    """The memory of a device, and the backend that builds for it."""

    allocated: ClassVar[int] = 0
    """How many allocations there have been, on all devices."""
    kind: "ClassVar[type[DeviceAllocation]]"

    def __init__(self, name: str, driver: Driver) -> None:
        self.name = name
        self.driver = driver
        from kernelab.backend.cuda.cuda_backend import CudaBackend  # with the first device

        self.backend = CudaBackend(driver, name)
        self.stream_sync = self.backend.stream_sync
        self.capture: Capture | None = None
        """The launches that are being captured; None where they run."""
        self._living: Ranges[DeviceAllocation] = Ranges()

    def __repr__(self) -> str:
        return f"<memory of {self.name}>"

    def allocate(self, nbytes: int, *, cleared: bool) -> "DeviceAllocation":
        """New memory, zeros or uninitialised; raises KernelMemoryError."""
        self.backend.pending.require_alive()
        try:
            address = self.driver.allocate(max(nbytes, 1))
        except KernelMemoryError as problem:
            raise KernelMemoryError(self._full(nbytes)) from problem
        allocation = self.adopt(address, nbytes)
        if cleared:
            allocation.clear(0, nbytes)
        return allocation

    @property
    def takes_back(self) -> bool:
        """Whether the driver takes back what it has given: not of a lost device, nor when Python ends."""
        return self.backend.pending.lost is None and not sys.is_finalizing()

    def living(self) -> "list[DeviceAllocation]":
        """Every allocation that there is."""
        return self._living.all()

    def require_free(self, what: str) -> None:
        """Raise LaunchError where launches are being captured; `what` says what cannot be done then."""
        if self.capture is not None:
            message = f"{what} while launches on {self.name} are captured: none of them has run yet"
            hint = "do it behind the capture; kl.capture_launch(capture.graph) runs what was captured"
            raise refusal(LaunchError, message, "capture", hint)

    @property
    def is_captured_elsewhere(self) -> bool:
        """Whether another thread captures launches."""
        return self.capture is not None and self.capture.thread != threading.get_ident()

    def require_mine(self, what: str) -> None:
        """Raise LaunchError where another thread captures launches: `what` would get into its graph."""
        if self.is_captured_elsewhere:
            message = f"{what} while another thread captures launches on {self.name}"
            hint = "it would become a part of that graph: wait for the end of the capture"
            raise refusal(LaunchError, message, "capture", hint)

    def _full(self, nbytes: int) -> Diagnostic:
        free, total = self.driver.memory()
        message = (
            f"there is no memory for an array of {nbytes / 1e9:,.3f} GB on {self.name}: "
            f"{free / 1e9:,.3f} of {total / 1e9:,.3f} GB are free"
        )
        hint = "let go of arrays that are no longer used, or make smaller ones; tapes keep theirs until reset"
        return Diagnostic(message, code="memory", hint=hint)

    def adopt(self, address: int, nbytes: int) -> "DeviceAllocation":
        """The allocation over memory of the driver's, which it gives back at the end."""
        used: set[int] = set()
        return self._register(self.kind(self, address, nbytes, _Owned(self, address, used), used))

    def _register(self, allocation: "DeviceAllocation") -> "DeviceAllocation":
        self._living.add(allocation)
        Space.allocated += 1
        return allocation

    def borrow(
        self, low: int, high: int, owner: object, partners: Iterable[Partner] = (), *, writable: bool = True
    ) -> "DeviceAllocation":
        """The allocation over memory of the device that another library holds, and `owner` keeps alive.

        `partners` are the streams in which the library works with it.  It is the same for all who share
        bytes.  Raises KernelValueError for memory that spans that of several allocations.
        """
        owners = self._living.owners(low, high) if low < high else []
        if not owners:
            memory = self.kind(self, low, high - low, owner, set(), borrowed=True, writable=writable)
            memory.partners = frozenset(partners)
            return self._register(memory) if low < high else memory
        memory = owners[0]
        if len(owners) > 1 or low < memory.address or memory.address + memory.nbytes < high:
            raise KernelValueError(spanning(len(owners)))
        memory.share(partners)
        memory.writable |= writable
        return memory

    def synchronize(self, stream: int | None = None) -> None:
        """Wait for a stream, or for the whole device, and raise what has gone wrong in launches there."""
        self.require_free("a device is waited for")
        self.backend.pending.synchronize(stream)
        try:
            if stream is None:
                self.driver.wait_for_all()
            else:
                self.driver.wait(stream)
        except LostError as problem:
            self.backend.pending.lost = problem.diagnostics[0]
            raise
        if stream is not None:
            self.backend.pending.check()

    def close_stream(self, stream: int) -> None:
        """Give a stream back; what it has to do comes before what the device's own does from now on."""
        self.stream_sync.close(stream)
        self.backend.pending.move(stream)

    def ran(self, owners: Collection["DeviceAllocation"], stream: int) -> None:
        """Say that a launch has been put into a stream, which uses some memory."""
        if self.stream_sync.after(owners, stream):
            self.backend.pending.move(stream)

    def owner(self, address: int) -> "DeviceAllocation | None":
        """The allocation that an address stands in; None if it is no memory of this device."""
        owners = self._living.owners(address, address + 1)
        return owners[0] if owners and owners[0].address <= address else None


class _Owned:
    """Memory of a driver, given back when this object goes, behind what streams do with it."""

    __slots__ = ("_address", "_space", "partners", "used")

    def __init__(self, space: Space, address: int, used: set[int]) -> None:
        self._space = space
        self._address = address
        self.used = used
        self.partners: frozenset[Partner] = frozenset()

    def __del__(self) -> None:
        if self._space.takes_back:
            self._space.stream_sync.before((self,))
            self._space.driver.free(self._address)


Side = Literal["device", "host", "both"]


class DeviceAllocation(Allocation):
    """Memory of a device; `address` is the device's.

    `used` are the streams in which launches use it, `partners` those in which other libraries do: where there
    are any, the mirror is never trusted for longer than a moment.
    """

    __slots__ = ("_filled", "_mirror", "_newer", "partners", "space", "used")

    space: Space

    def __init__(
        self,
        space: Space,
        address: int,
        nbytes: int,
        owner: object,
        used: set[int],
        *,
        borrowed: bool = False,
        writable: bool = True,
    ) -> None:
        super().__init__(address, nbytes, owner, borrowed=borrowed, writable=writable)
        self.space = space
        self.used = used
        self.partners: frozenset[Partner] = frozenset()
        self._mirror: Bytes | None = None
        self._newer: Side = "device"
        self._filled: bytes | None = None
        """What all bytes repeat, where a fill was the last to change them."""

    @property
    def is_exposed(self) -> bool:
        """Whether another library may change the bytes unseen; the host gets copies only."""
        return bool(self.partners)

    def share(self, partners: Iterable[Partner]) -> None:
        """Expose the bytes to another library, which works in those streams."""
        self.flush()
        if not self.partners and (self.watches.starts or self.witnesses):
            self._notify_of_exposure()
        self.partners |= frozenset(partners)
        if isinstance(self.owner, _Owned):
            self.owner.partners = self.partners

    def publish(self) -> None:
        """Bring what the host has written to the device, if others look at it there."""
        if self.partners:
            self.flush()

    def expose(self) -> Any:
        """The bytes of the mirror as a buffer that cannot be written."""
        return self.seen()

    @property
    def host_address(self) -> int:
        """The address of the mirror."""
        return address_of(self._image())

    def image(self) -> Any:
        """The mirror as a buffer, whatever it holds."""
        return (ctypes.c_ubyte * self.nbytes).from_buffer(self._image())

    def buffer(self) -> Any:
        """The mirror as a buffer that holds the bytes, to be written until the next launch."""
        self._fetch()
        return self.blank()

    def blank(self) -> Any:
        """The mirror as a buffer of which every byte is about to be written."""
        capture = self.space.capture
        if capture is not None and self in capture.touched and not self.space.is_captured_elsewhere:
            self._require_no_capture()  # the graph has used it: no later use would find out
        self._newer, self._filled = "host", None
        return self.image()

    def seen(self) -> Any:
        """The mirror as a buffer that holds the bytes, to be read."""
        self._fetch()
        return memoryview(self.image()).toreadonly()

    def flush(self) -> None:
        """Bring to the device what the host has changed."""
        if self._newer == "host":
            self._require_no_capture()
            with self.alone():
                self.space.driver.upload(self.address, self.host_address, self.nbytes)
            self._newer = "both"

    def _require_no_capture(self) -> None:
        """Raise LaunchError where a captured launch would use what the host has written in the block."""
        if self.space.capture is not None:
            message = (
                f"the host has written an array while launches on {self.space.name} are captured, and one of "
                "them uses it: the graph would not write it again"
            )
            hint = "write it before the capture; in the block by a kernel, fill_(), or kl.copy on the device"
            raise refusal(LaunchError, message, "capture", hint)

    def changed_there(self) -> None:
        """The device has changed bytes."""
        if self.space.capture is not None:
            self.space.capture.changed[self] = None
        self._newer, self._filled = "device", None

    def _fetch(self) -> None:
        if self._newer == "device" and self._filled is not None and not self.partners:
            pattern = np.frombuffer(self._filled, f"u{len(self._filled)}")
            self._image()[: self.nbytes].view(pattern.dtype)[...] = pattern
            self._newer = "both"
        elif self._newer == "device" or (self.partners and self._newer == "both"):
            if self.nbytes:
                self.space.require_free("the host looks at an array")
                self.space.backend.pending.synchronize()
                with self.alone():
                    self.space.driver.download(self.host_address, self.address, self.nbytes)
            self._newer = "both"

    @contextmanager
    def alone(self, *others: "DeviceAllocation") -> Iterator[None]:
        """The device's own stream works on the bytes within: after, and before, all others."""
        self.space.backend.pending.require_alive()
        self.space.require_mine("memory is copied or cleared")
        if self.space.capture is not None:
            self.space.capture.touched |= dict.fromkeys((self, *others))
        self.space.stream_sync.before((self, *others))
        yield
        self.space.stream_sync.after((self, *others))

    def _image(self) -> Any:
        if self._mirror is None:
            self._mirror = np.empty(self.nbytes + 8, np.uint8)
        return self._mirror

    # --------------------------------------------------------------------------------- without the host

    def clear(self, start: int, nbytes: int) -> None:
        """Set bytes to zero."""
        self.fill(start, bytes(1), nbytes)

    def fill(self, start: int, pattern: bytes, count: int) -> None:
        """Write one, two or four bytes so often; all bytes before are forgotten where none is left."""
        whole = len(pattern) * count == self.nbytes
        if whole:
            self._newer = "device"
        self.flush()
        if count:
            with self.alone():
                self.space.driver.fill(self.address + start, pattern, count)
        self.changed_there()
        self._filled = pattern if whole else None

    def copy_from(self, start: int, source: "DeviceAllocation", at: int, nbytes: int) -> None:
        """Copy bytes of other memory of the device, or others of this one."""
        self.flush()
        source.flush()
        if nbytes:
            with self.alone(source):
                self.space.driver.copy(self.address + start, source.address + at, nbytes)
        self.changed_there()


Space.kind = DeviceAllocation


def space_of(memory: Allocation) -> Space | None:
    """The device's memory that an allocation is in; None for the host's."""
    space = memory.space
    assert space is None or isinstance(space, Space)
    return space
