"""The driver protocol: the operations that kernelab needs of a CUDA device, which tests simulate.

Addresses are numbers, and so are streams and events; the stream 0 is the device's own, in which memory is
handed out, given back, copied and cleared.  An upload has taken the host's bytes when it returns, a download
has brought them; all else is only started.  Events are known to all devices.  Knows no kernels and no arrays.
"""

import time
from collections.abc import Callable
from typing import Protocol

from kernelab.errors import BuildError, Diagnostic, KernelError, KernelMemoryError


class DriverError(KernelError):
    """A device or its driver refused; the diagnostic says what to do."""


class LostError(DriverError):
    """A kernel has made the device's context unusable: nothing on it can be had any more."""


class Driver(Protocol):
    """One CUDA device and the context in which kernelab uses it."""

    @property
    def name(self) -> str:
        """The name of the device."""

    @property
    def architecture(self) -> str:
        """The architecture to compile for, such as ``sm_90``."""

    @property
    def processors(self) -> int:
        """The number of multiprocessors."""

    @property
    def own_stream(self) -> int:
        """By what number other libraries know the stream 0."""

    @property
    def identity(self) -> str:
        """The versions and options that determine, with the text, the result of `compile`."""

    @property
    def hurries(self) -> bool:
        """Whether `compile` has a quick mode that is worth running first."""

    def compile(self, text: str, quickly: bool = False) -> bytes:
        """Machine code, made in any thread, `quickly` with little optimisation; raises BuildError."""

    def load(self, code: bytes, symbol: str) -> object:
        """A function of machine code, to launch; it stays loaded."""

    def allocate(self, nbytes: int) -> int:
        """The address of new memory of the device; raises KernelMemoryError."""

    def free(self, address: int) -> None:
        """Give memory of the device back."""

    def memory(self) -> tuple[int, int]:
        """The bytes that are free, and the bytes in total."""

    def owns(self, address: int) -> bool:
        """Whether an address is one of this device's memory, whoever has allocated it."""

    def upload(self, address: int, source: int, nbytes: int) -> None:
        """Copy from the host's address `source`."""

    def download(self, target: int, address: int, nbytes: int) -> None:
        """Copy to the host's address `target`."""

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy within the device, between ranges that do not overlap."""

    def fill(self, address: int, pattern: bytes, count: int) -> None:
        """Write one, two or four bytes so often."""

    def shared(self, nbytes: int) -> tuple[int, int]:
        """Zeroed memory of the host that the device reads and writes too: its address on either side."""

    def launch(
        self, function: object, blocks: int, threads: int, slots: bytes, status: int, stream: int = 0
    ) -> None:
        """Start a function on a row of blocks; `status` is the device's address of the status block."""

    def unshare(self, address: int) -> None:
        """Give memory that `shared` has made back, by the host's address."""

    def begin_capture(self) -> None:
        """Begin to capture the work of the device's own stream.

        Memory can be allocated and freed as before; nothing can be waited for or downloaded.
        """

    def end_capture(self) -> object:
        """End the capture and return an executable graph, which lives as long as it is referenced."""

    def replay(self, graph: object, stream: int = 0) -> None:
        """Launch a graph."""

    def finished(self, stream: int = 0) -> bool:
        """Whether all that was started in a stream has ended; raises DriverError if the device failed."""

    def wait(self, stream: int = 0) -> None:
        """Return when all that was started in a stream has ended; raises DriverError if the device failed."""

    def wait_for_all(self) -> None:
        """Return when all streams of the device have come to their end, those of other libraries too."""

    # ---------------------------------------------------------------------------------------- order

    def open_stream(self) -> int:
        """A new stream: its work runs in order, and concurrently with other streams."""

    def close_stream(self, stream: int) -> None:
        """Give a stream back, once it has come to its end."""

    def open_event(self, timed: bool) -> int:
        """A new event, which has happened; a timed one notes when."""

    def close_event(self, event: int) -> None:
        """Give an event back."""

    def record(self, event: int, stream: int) -> None:
        """Record an event: it happens when the work so far of a stream has ended."""

    def hold(self, stream: int, event: int) -> None:
        """Make the later work of a stream wait for the last record of an event."""

    def happened(self, event: int) -> bool:
        """Whether the work before the last record of an event has ended."""

    def wait_for(self, event: int) -> None:
        """Return when an event has happened."""

    def elapsed(self, start: int, end: int) -> float:
        """The milliseconds between two timed events, both of which have happened."""


PATIENCE = 1e-3
"""For how many seconds the host waits without a pause."""


def wait_until(ended: Callable[[], bool]) -> None:
    """Wait for the device so that Python handles signals meanwhile."""
    began = time.monotonic()
    while not ended():
        if time.monotonic() - began > PATIENCE:
            time.sleep(PATIENCE / 10)


FAULTS = {
    "CUDA_ERROR_OUT_OF_MEMORY": (
        "there is no memory left on the device",
        "free arrays that are no longer used, or make smaller ones",
    ),
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": (
        "the kernel needs more registers than a block of so many threads has",
        "launch with a smaller block_dim",
    ),
    "CUDA_ERROR_NO_BINARY_FOR_GPU": (
        "the driver cannot run the code that NVRTC made for the device",
        "install the nvidia-cuda-nvrtc that fits the driver, or a newer driver",
    ),
    "CUDA_ERROR_INVALID_IMAGE": (
        "the driver does not know the form of the code that NVRTC made: it is older than NVRTC",
        "install a newer driver, or an older nvidia-cuda-nvrtc",
    ),
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": (
        "the driver is older than NVRTC",
        "install a newer driver, or an older nvidia-cuda-nvrtc",
    ),
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": (
        "the driver's library and the driver that the system runs are of different versions",
        "restart the machine: that is so after the driver was updated",
    ),
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": (
        "the compatibility libraries of CUDA do not serve this device",
        "remove them from LD_LIBRARY_PATH, or install a newer driver",
    ),
    "CUDA_ERROR_NOT_INITIALIZED": (
        "CUDA cannot be used in a process that was forked from one that uses it",
        'start processes anew: multiprocessing.get_context("spawn")',
    ),
    "CUDA_ERROR_NO_DEVICE": ("there is no CUDA device on this machine", 'use device="cpu"'),
}
"""The failures that a user can do something about, and what."""

_ADDRESS = "; a snippet of C++ or an array over a pointer is the likely cause"

LOST = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": ("a kernel used an address outside of all arrays", _ADDRESS),
    "CUDA_ERROR_MISALIGNED_ADDRESS": (
        "a kernel read or wrote a number at an address that is no multiple of its size",
        _ADDRESS,
    ),
    "CUDA_ERROR_LAUNCH_FAILED": ("a kernel crashed on the device", ""),
    "CUDA_ERROR_LAUNCH_TIMEOUT": (
        "the system ended a kernel that ran for too long",
        ", and launch over fewer threads, or on a device without a display",
    ),
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": ("a kernel met an instruction that the device does not know", ""),
    "CUDA_ERROR_HARDWARE_STACK_ERROR": (
        "a kernel ran out of its stack",
        "; arrays that kernels make for themselves may be too large",
    ),
    "CUDA_ERROR_INVALID_PC": ("a kernel lost its way", ""),
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": (
        "a kernel used an address of another kind of memory",
        "; a snippet of C++ is the likely cause",
    ),
    "CUDA_ERROR_ASSERT": ("an assert in a snippet of C++ did not hold", ""),
    "CUDA_ERROR_ECC_UNCORRECTABLE": (
        "the device's memory is damaged",
        ", and look at nvidia-smi if it comes again",
    ),
}
"""After these the context is of no use any more, so every later call would fail alike: restarting helps."""


def fault(code: str, doing: str, device: str) -> KernelError:
    """The error that a driver's code stands for; `doing` says what was asked of the device."""

    def diagnostic(problem: str, hint: str) -> Diagnostic:
        return Diagnostic(f"{device}: {doing} failed{problem}", code="cuda", hint=hint)

    if code in LOST:
        message, more = LOST[code]
        lost = f": {message}; everything on the device is lost ({code})"
        return LostError(diagnostic(lost, f"restart the notebook's kernel{more}"))
    if code not in FAULTS:
        hint = "this is what the CUDA driver says; if it stays, restart the notebook's kernel"
        return DriverError(diagnostic(f" with {code}", hint))
    message, hint = FAULTS[code]
    explained = diagnostic(f": {message} ({code})", hint)
    if code == "CUDA_ERROR_OUT_OF_MEMORY":
        return KernelMemoryError(explained)
    return (BuildError if doing == "loading a kernel" else DriverError)(explained)
