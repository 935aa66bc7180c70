"""The CUDA driver, through cuda-python.

A device works in its primary context, which PyTorch and CuPy use too, and where nothing else is said in one
stream there.  Memory comes from the device's stream-ordered pool.  cuda-python is loaded when a device is
first asked for, and never before.  Must not know kernels or arrays.

Addresses are numbers, and so are streams and events; the stream 0 is the device's own, in which memory is
handed out, given back, copied and cleared.  An upload has taken the host's bytes when it returns, a download
has brought them; all else is only started.  Events are known to all devices.
"""

import ctypes
import sys
import time
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from kernelab.backend.common.interrupts import end_if_interrupted
from kernelab.backend.cuda import nvrtc
from kernelab.backend.cuda.faults import fault
from kernelab.data_classes import dataclass, replace
from kernelab.errors import BuildError, Diagnostic, KernelError, LaunchError, counted

_INSTALL = "pip install 'kernelab[cuda]' installs cuda-python and NVRTC; until then use device=\"cpu\""
_NO_DRIVER = 'install NVIDIA\'s driver, and look at nvidia-smi; until then use device="cpu"'
_MAPPED = 2
"""Host memory that the device can reach: CU_MEMHOSTALLOC_DEVICEMAP."""

_NON_BLOCKING = 1
"""A stream that does not synchronise with the legacy default stream: CU_STREAM_NON_BLOCKING."""

_UNTIMED = 2
"""An event without a time: CU_EVENT_DISABLE_TIMING."""

_WORD = 4
"""Atomics of numbers of 8 and 16 bits compare and swap the word of so many bytes around them."""

_PATIENCE = 1e-3
"""For how many seconds the host waits without a pause."""


class NoDriverError(KernelError):
    """CUDA devices cannot be used: the message is the reason, the end of a sentence."""


@cache
def api() -> Any:
    """The functions of the driver, initialised; raises NoDriverError."""
    try:
        driver = import_module("cuda.bindings.driver")
    except ImportError:
        raise NoDriverError.of("cuda-python is not installed", "cuda", _INSTALL) from None
    try:
        code = driver.cuInit(0)[0].name
    except RuntimeError as problem:  # cuda-python's way to say that it cannot load the library
        reason = "this machine has no CUDA driver that can be loaded"
        raise NoDriverError.of(reason, "cuda", _NO_DRIVER) from problem
    if code != "CUDA_SUCCESS":
        raise NoDriverError(*fault(code, "starting the CUDA driver", "cuda").diagnostics)
    return driver


def count_devices() -> int:
    """The number of usable CUDA devices; 0 where the driver or cuda-python is missing."""
    try:
        return int(_done(api().cuDeviceGetCount(), "counting devices", "cuda"))
    except NoDriverError:
        return 0


def version() -> tuple[int, int] | None:
    """The version of CUDA that the driver serves; None where there is none."""
    try:
        number = int(_done(api().cuDriverGetVersion(), "asking for the version", "cuda"))
    except NoDriverError:
        return None
    return number // 1000, number % 1000 // 10


def open_driver(ordinal: int) -> "Driver":
    """The device of that number; raises LaunchError that says what is missing."""
    absent = f"there is no device 'cuda:{ordinal}'"
    try:
        count = int(_done(api().cuDeviceGetCount(), "counting devices", "cuda"))
    except NoDriverError as problem:
        (why,) = problem.diagnostics
        raise LaunchError.of(f"{absent}: {why.message}", "device", why.hint) from problem
    if not 0 <= ordinal < count:
        have = "no CUDA device" if not count else counted(count, "CUDA device")
        hint = 'use device="cpu"' if not count else f'use one of "cuda:0" to "cuda:{count - 1}"'
        raise LaunchError(Diagnostic(f"{absent}: this machine has {have}", hint=hint))
    return Driver(ordinal)


def _done(returned: Any, doing: str, device: str) -> Any:
    """The result of a call of the driver without its error code; raises the error of that code."""
    code, *values = returned
    if code.name != "CUDA_SUCCESS":
        raise fault(code.name, doing, device)
    return values[0] if len(values) == 1 else tuple(values)


def _of_versions(problem: BuildError) -> Diagnostic:
    """The error of code that the driver does not load, with the versions that must match."""
    (why,) = problem.diagnostics
    compiler, served = nvrtc.version(), version() or (0, 0)
    message = f"{why.message}; NVRTC is {compiler}, and the driver serves CUDA {served[0]}.{served[1]}"
    if int(compiler.partition(".")[0]) <= served[0]:
        return replace(why, message=message)
    hint = (
        "install a newer driver, or an NVRTC for this one: pip uninstall nvidia-cuda-nvrtc, "
        f"then pip install nvidia-cuda-nvrtc-cu{served[0]}"
    )
    return replace(why, message=message, hint=hint)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A function of a module, which stays loaded: it may be under way; `most` threads are a block at most."""

    function: Any
    most: int


def _wait_until(ended: Callable[[], bool]) -> None:
    """Wait for the device; Python handles signals meanwhile, and a thread of an interrupted cell ends."""
    began = time.monotonic()
    while not ended():
        if time.monotonic() - began > _PATIENCE:
            end_if_interrupted()
            time.sleep(_PATIENCE / 10)


class _Graph:
    """An executable graph, destroyed with this object."""

    __slots__ = ("_driver", "executable")

    def __init__(self, driver: "Driver", executable: Any) -> None:
        self._driver = driver
        self.executable = executable

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self._driver.destroy(self.executable)


class Driver:
    """One CUDA device and the context in which kernelab uses it; tests have a class with the same methods."""

    def __init__(self, ordinal: int) -> None:
        self._api = api()
        self.name = f"cuda:{ordinal}"
        self._ordinal = ordinal
        self._capturing = False
        self._aside: Any = None
        self._device = _done(self._api.cuDeviceGet(ordinal), "opening the device", self.name)
        self._context = _done(
            self._api.cuDevicePrimaryCtxRetain(self._device), "opening the device", self.name
        )
        major, minor, self.processors = map(
            self._attribute, ("COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR", "MULTIPROCESSOR_COUNT")
        )
        self.architecture = f"sm_{major}{minor}"
        self._reads_the_host = bool(self._attribute("PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES"))
        """Whether copies may read the host's pages after they were asked for: both share page tables."""
        self._stream = self._do("opening the device", self._api.cuStreamCreate, _NON_BLOCKING)
        # Asking the system for freed memory again would wait for the device: the pool keeps it.
        attribute = self._api.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        most = self._api.cuuint64_t(2**64 - 1)
        doing = "opening the memory pool"
        self._do(doing, self._api.cuMemPoolSetAttribute, self._pool(doing), attribute, most)

    def _attribute(self, name: str) -> int:
        attribute = getattr(self._api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self._do("asking the device", self._api.cuDeviceGetAttribute, attribute, self._device))

    def _pool(self, doing: str) -> Any:
        return self._do(doing, self._api.cuDeviceGetDefaultMemPool, self._device)

    def _do(self, doing: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a call in the device's context, entered each time: any thread may launch."""
        self._enter()
        return _done(function(*arguments), doing, self.name)

    def _enter(self) -> None:
        _done(self._api.cuCtxSetCurrent(self._context), "entering the device", self.name)

    @property
    def identity(self) -> str:
        """The versions and options that determine, with the text, the result of `compile`."""
        return f"{self.architecture} {nvrtc.version()}"

    @property
    def own_stream(self) -> int:
        """By what number other libraries know the stream 0."""
        return int(self._stream)

    # ---------------------------------------------------------------------------------------- code

    @property
    def hurries(self) -> bool:
        """Whether `compile` has a quick mode that is worth running first."""
        return nvrtc.hurries()

    def compile(self, text: str, quickly: bool = False) -> bytes:
        """Machine code, made in any thread, `quickly` with little optimisation; raises BuildError."""
        return nvrtc.compile_for(text, self.architecture, quickly)

    def load(self, code: bytes, symbol: str) -> object:
        """A function of machine code, to launch; it stays loaded."""
        doing = "loading a kernel"
        try:
            module = self._do(doing, self._api.cuModuleLoadData, code)
        except BuildError as problem:
            raise BuildError(_of_versions(problem)) from problem
        function = self._do(doing, self._api.cuModuleGetFunction, module, symbol.encode())
        attribute = self._api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
        return _Loaded(function, int(self._do(doing, self._api.cuFuncGetAttribute, attribute, function)))

    # ---------------------------------------------------------------------------------------- memory

    def allocate(self, nbytes: int) -> int:
        """The address of new memory of the device; raises KernelMemoryError."""
        doing = f"allocating {nbytes:,} bytes"
        whole = max(-(-nbytes // _WORD) * _WORD, _WORD)
        address = int(self._do(doing, self._api.cuMemAllocAsync, whole, self._for_memory))
        if self._capturing:
            self._do(doing, self._api.cuStreamSynchronize, self._for_memory)
        return address

    @property
    def _for_memory(self) -> Any:
        """The stream for allocations: a separate one while the device's own is captured."""
        if not self._capturing:
            return self._stream
        if self._aside is None:
            self._aside = self._do("opening a stream", self._api.cuStreamCreate, _NON_BLOCKING)
        return self._aside

    def free(self, address: int) -> None:
        """Give memory of the device back."""
        self._do("freeing memory", self._api.cuMemFreeAsync, address, self._for_memory)

    def memory(self) -> tuple[int, int]:
        """The bytes that are free, with those that the pool keeps, and the bytes in total."""
        doing, kinds = "asking for free memory", self._api.CUmemPool_attribute
        free, total = self._do(doing, self._api.cuMemGetInfo)
        pool = self._pool(doing)
        reserved, used = (
            int(self._do(doing, self._api.cuMemPoolGetAttribute, pool, kind))
            for kind in (kinds.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, kinds.CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
        )
        return int(free) + reserved - used, int(total)

    def owns(self, address: int) -> bool:
        """Whether an address is of this device's memory, from any library; pinned memory is not."""
        self._enter()
        kinds, device = self._api.CUpointer_attribute, self._api.CUmemorytype.CU_MEMORYTYPE_DEVICE
        wanted = {
            kinds.CU_POINTER_ATTRIBUTE_MEMORY_TYPE: int(device),
            kinds.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: self._ordinal,
        }
        for kind, value in wanted.items():
            code, answer = self._api.cuPointerGetAttribute(kind, address)
            if code.name != "CUDA_SUCCESS" or int(answer) != value:
                return False
        return True

    def upload(self, address: int, source: int, nbytes: int) -> None:
        """Copy from the host's address `source`, whose bytes the driver has taken when this returns."""
        self._do("copying", self._api.cuMemcpyHtoDAsync, address, source, nbytes, self._stream)
        if self._reads_the_host and not self._capturing:
            self.wait()

    def download(self, target: int, address: int, nbytes: int) -> None:
        """Copy to the host's address `target`."""
        self._do("copying", self._api.cuMemcpyDtoHAsync, target, address, nbytes, self._stream)
        self.wait()

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy within the device, between ranges that do not overlap."""
        self._do("copying", self._api.cuMemcpyDtoDAsync, target, source, nbytes, self._stream)

    def fill(self, address: int, pattern: bytes, count: int) -> None:
        """Write one, two or four bytes so often."""
        ways = {1: self._api.cuMemsetD8Async, 2: self._api.cuMemsetD16Async, 4: self._api.cuMemsetD32Async}
        value = int.from_bytes(pattern, sys.byteorder)
        self._do("filling memory", ways[len(pattern)], address, value, count, self._stream)

    def shared(self, nbytes: int) -> tuple[int, int]:
        """Zeroed memory of the host that the device reads and writes too: its address on either side."""
        nbytes, doing = max(nbytes, 1), "allocating shared memory"
        host = int(self._do(doing, self._api.cuMemHostAlloc, nbytes, _MAPPED))
        ctypes.memset(host, 0, nbytes)
        return host, int(self._do(doing, self._api.cuMemHostGetDevicePointer, host, 0))

    def unshare(self, address: int) -> None:
        """Give memory that `shared` has made back, by the host's address."""
        self._do("freeing memory", self._api.cuMemFreeHost, address)

    # ---------------------------------------------------------------------------------------- running

    def launch(
        self, function: object, blocks: int, threads: int, slots: bytes, status: int, stream: int = 0
    ) -> None:
        """Start a function on a row of blocks; the driver copies its arguments before it returns.

        `status` is the device's address of the status block.  A block has fewer threads where it would need
        more registers than there are: those of the device then run more of the grid's.
        """
        assert isinstance(function, _Loaded)
        packed = ctypes.create_string_buffer(slots, len(slots))
        block = ctypes.c_void_p(status)
        parameters = (ctypes.c_void_p * 2)(ctypes.addressof(packed), ctypes.addressof(block))
        self._do(
            "launching",
            self._api.cuLaunchKernel,
            function.function,
            *(blocks, 1, 1),
            *(min(threads, function.most), 1, 1),
            0,
            stream or self._stream,
            ctypes.addressof(parameters),
            0,
        )

    def finished(self, stream: int = 0) -> bool:
        """Whether all that was started in a stream has ended; raises DriverError if the device failed."""
        ended = self._ready(self._api.cuStreamQuery, stream or self._stream)
        if ended:
            # Nothing is left to wait for, but what kernels have printed is shown by a wait alone.
            self._do("running a kernel", self._api.cuStreamSynchronize, stream or self._stream)
        return ended

    def _ready(self, query: Callable[[Any], Any], asked: Any) -> bool:
        self._enter()
        answer = query(asked)
        if answer[0].name == "CUDA_ERROR_NOT_READY":
            return False
        _done(answer, "running a kernel", self.name)
        return True

    def wait(self, stream: int = 0) -> None:
        """Return when all that was started in a stream has ended; an interrupt ends the wait."""
        _wait_until(lambda: self.finished(stream))

    def wait_for_all(self) -> None:
        """Return when all streams of the device have come to their end, those of other libraries too."""
        self._do("running a kernel", self._api.cuCtxSynchronize)

    # ---------------------------------------------------------------------------------------- graphs

    def begin_capture(self) -> None:
        """Begin to capture the work of the device's own stream; other calls, of any thread, stay possible.

        Memory can be allocated and freed as before; nothing can be waited for or downloaded.
        """
        mode = self._api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self._do("capturing launches", self._api.cuStreamBeginCapture, self._stream, mode)
        self._capturing = True

    def end_capture(self) -> object:
        """End the capture and return an executable graph, which lives as long as it is referenced."""
        self._capturing = False
        graph = self._do("capturing launches", self._api.cuStreamEndCapture, self._stream)
        try:
            return _Graph(self, self._do("making a graph", self._api.cuGraphInstantiate, graph, 0))
        finally:
            self._api.cuGraphDestroy(graph)

    def replay(self, graph: object, stream: int = 0) -> None:
        assert isinstance(graph, _Graph)
        self._do("starting a graph", self._api.cuGraphLaunch, graph.executable, stream or self._stream)

    def destroy(self, executable: Any) -> None:
        """Give a graph back; what has been started of it ends."""
        self._enter()
        self._api.cuGraphExecDestroy(executable)

    # ---------------------------------------------------------------------------------------- order

    def open_stream(self) -> int:
        """A new stream, which does not wait for the legacy default stream."""
        return int(self._do("opening a stream", self._api.cuStreamCreate, _NON_BLOCKING))

    def close_stream(self, stream: int) -> None:
        """Give a stream back, once it has come to its end."""
        self._do("closing a stream", self._api.cuStreamDestroy, stream)

    def open_event(self, timed: bool) -> int:
        """A new event, which has happened; a timed one notes when, and costs more."""
        return int(self._do("opening an event", self._api.cuEventCreate, 0 if timed else _UNTIMED))

    def close_event(self, event: int) -> None:
        """Give an event back."""
        self._do("closing an event", self._api.cuEventDestroy, event)

    def record(self, event: int, stream: int) -> None:
        """Record an event: it happens when the work so far of a stream has ended."""
        self._do("recording an event", self._api.cuEventRecord, event, stream or self._stream)

    def hold(self, stream: int, event: int) -> None:
        """Make the later work of a stream wait for the last record of an event."""
        self._do("waiting for an event", self._api.cuStreamWaitEvent, stream or self._stream, event, 0)

    def happened(self, event: int) -> bool:
        """Whether the work before the last record of an event has ended."""
        return self._ready(self._api.cuEventQuery, event)

    def wait_for(self, event: int) -> None:
        """Return when an event has happened; an interrupt ends the wait."""
        _wait_until(lambda: self.happened(event))

    def elapsed(self, start: int, end: int) -> float:
        """The milliseconds between two timed events, both of which have happened, to half a microsecond."""
        return float(self._do("reading events", self._api.cuEventElapsedTime, start, end))
