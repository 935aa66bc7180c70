"""A plugin of pytest in whose sessions cuda-python's functions drive simulated devices.

    KERNELAB_TEST_GPU=1 python -m pytest -p tests.support.fakecuda tests/runtime/test_devices.py

So what `tests.gpu` does on a machine with a GPU is tried without one.  `kernelab.backend.cuda.nvidia` runs,
with its streams, graphs and packed arguments; below the functions of the driver that it calls stand
`SimulatedDriver`s, one a context, which run the CUDA text by the shim.
"""

import ctypes
import re
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

from cuda.bindings import driver as real

from kernelab.backend.cuda import nvidia, nvrtc
from kernelab.errors import KernelError, KernelMemoryError
from tests.support import shim
from tests.support.simulated import SimulatedDriver

RESULT = real.CUresult
OWN = 0x7000
"""The first stream of a context is the one in which a driver hands memory out: 0 to a simulated device."""

Answer = tuple[Any, ...]


def answering(function: Callable[..., Any]) -> Callable[..., Answer]:
    """A function of the driver, of one that returns values or raises."""

    @wraps(function)
    def called(*given: Any) -> Answer:
        try:
            found = function(*given)
        except KernelMemoryError:
            return (RESULT.CUDA_ERROR_OUT_OF_MEMORY, None)
        except KernelError as problem:
            return (next(code for code in RESULT if f"{code.name}" in str(problem)),)
        if isinstance(found, RESULT):
            return (found,)
        if isinstance(found, tuple) and isinstance(found[0], RESULT):
            return found
        return (RESULT.CUDA_SUCCESS,) if found is None else (RESULT.CUDA_SUCCESS, found)

    return called


class FakeCuda:
    """cuda.bindings.driver, of which types and enumerations are the real ones."""

    def __init__(self) -> None:
        self.contexts: list[SimulatedDriver] = []
        self.current = threading.local()
        self.most = 1024
        """The threads of a block for which a kernel has registers."""
        self.kernels: dict[int, tuple[Any, int]] = {}
        self.texts: dict[bytes, str] = {}
        for name in dir(self):
            if name.startswith("cu"):
                setattr(self, name, answering(getattr(self, name)))

    def __getattr__(self, name: str) -> Any:
        found = getattr(real, name)
        assert isinstance(found, type), f"{name} is not simulated"
        return found

    @property
    def sim(self) -> SimulatedDriver:
        return self.contexts[self.here]

    @property
    def here(self) -> int:
        """Which context is that of the calling thread."""
        found = getattr(self.current, "context", None)
        assert found is not None, "no context is current in this thread"
        return int(found)

    def at(self, handle: Any) -> tuple[SimulatedDriver, int]:
        """The device that a stream is of, and the stream as it knows it."""
        assert self.here is not None
        own = int(handle) - OWN
        if 0 <= own < len(self.contexts):
            return self.contexts[own], 0
        return next(sim for sim in self.contexts if int(handle) in sim.queues), int(handle)

    def compiled(self, text: str, *_: Any, **__: Any) -> bytes:
        code = shim.compiled(text)
        self.texts[code] = text
        return code

    # ---------------------------------------------------------------------------------------- devices

    def cuInit(self, flags: int) -> None: ...

    def cuDeviceGetCount(self) -> int:
        return 1

    def cuDriverGetVersion(self) -> int:
        return 13000

    def cuDeviceGet(self, ordinal: int) -> int:
        return ordinal

    def cuDevicePrimaryCtxRetain(self, device: int) -> int:
        self.contexts.append(SimulatedDriver())
        return len(self.contexts) - 1

    def cuCtxSetCurrent(self, context: int) -> None:
        self.current.context = context

    def cuDeviceGetAttribute(self, attribute: Any, device: int) -> int:
        known = {"CAPABILITY_MAJOR": 9, "CAPABILITY_MINOR": 0, "PROCESSOR_COUNT": 2, "PAGE_TABLES": 0}
        return next(value for name, value in known.items() if attribute.name.endswith(name))

    def cuCtxSynchronize(self) -> None:
        self.sim.wait_for_all()

    # ---------------------------------------------------------------------------------------- memory

    def cuDeviceGetDefaultMemPool(self, device: int) -> int:
        return 0

    def cuMemPoolSetAttribute(self, pool: int, attribute: Any, value: Any) -> None: ...

    def cuMemPoolGetAttribute(self, pool: int, attribute: Any) -> int:
        return 0

    def cuMemGetInfo(self) -> tuple[int, int]:
        return self.sim.memory()

    def cuMemAllocAsync(self, nbytes: int, stream: Any) -> int:
        assert nbytes > 0, "the driver allocates no memory of 0 bytes"
        assert self.sim._noted is None or self.at(stream)[1] != 0, "an allocation was captured"
        return self.sim.allocate(nbytes)

    def cuMemFreeAsync(self, address: int, stream: Any) -> None:
        self.sim.free(address)

    def cuMemHostAlloc(self, nbytes: int, flags: int) -> int:
        return self.sim.shared(nbytes)[0]

    def cuMemHostGetDevicePointer(self, host: int, flags: int) -> int:
        return host

    def cuMemFreeHost(self, host: int) -> None:
        self.sim.unshare(host)

    def cuPointerGetAttribute(self, kind: Any, address: int) -> Any:
        locked = any(
            ctypes.addressof(held) <= address < ctypes.addressof(held) + len(held)
            for held in self.sim._shared
        )
        if not locked and not self.sim.owns(address):
            return RESULT.CUDA_ERROR_INVALID_VALUE, None
        types = real.CUmemorytype
        if kind is real.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            return types.CU_MEMORYTYPE_HOST if locked else types.CU_MEMORYTYPE_DEVICE
        return 0

    def cuMemcpyHtoDAsync(self, target: int, source: int, nbytes: int, stream: Any) -> None:
        sim, at = self.at(stream)
        sim._require_mine(target, nbytes)
        taken = ctypes.create_string_buffer(ctypes.string_at(source, nbytes), nbytes)
        locked = any(
            ctypes.addressof(held) <= source < ctypes.addressof(held) + len(held) for held in sim._shared
        )
        assert locked or sim._noted is None, "pageable memory was captured: the graph would read it later"
        given = source if locked else ctypes.addressof(taken)
        sim._put(lambda: (ctypes.memmove(target, given, nbytes), taken), at)

    def cuMemcpyDtoHAsync(self, target: int, source: int, nbytes: int, stream: Any) -> None:
        self.sim._require_mine(source, nbytes)
        sim, at = self.at(stream)
        sim._put(lambda: ctypes.memmove(target, source, nbytes), at)

    def cuMemcpyDtoDAsync(self, target: int, source: int, nbytes: int, stream: Any) -> None:
        self.sim._require_mine(source, nbytes)
        self.cuMemcpyDtoHAsync(target, source, nbytes, stream)

    def cuMemsetD8Async(self, address: int, value: int, count: int, stream: Any) -> None:
        self._set(address, value.to_bytes(1, "little") * count, stream)

    def cuMemsetD16Async(self, address: int, value: int, count: int, stream: Any) -> None:
        self._set(address, value.to_bytes(2, "little") * count, stream)

    def cuMemsetD32Async(self, address: int, value: int, count: int, stream: Any) -> None:
        self._set(address, value.to_bytes(4, "little") * count, stream)

    def _set(self, address: int, data: bytes, stream: Any) -> None:
        self.sim._require_mine(address, len(data))
        sim, at = self.at(stream)
        sim._put(lambda: ctypes.memmove(address, data, len(data)), at)

    # ---------------------------------------------------------------------------------------- running

    def cuModuleLoadData(self, code: bytes) -> bytes:
        return code

    def cuModuleGetFunction(self, module: bytes, symbol: bytes) -> int:
        name = symbol.decode()
        slots = re.search(rf"struct {name}_args {{ i64 slots\[(\d+)\]", self.texts[module])
        assert slots is not None, f"the code has no kernel {name}"
        self.kernels[len(self.kernels)] = self.sim.load(module, name), int(slots[1])
        return len(self.kernels) - 1

    def cuFuncGetAttribute(self, attribute: Any, function: int) -> int:
        assert attribute is real.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
        return self.most

    def cuLaunchKernel(self, function: int, *given: Any) -> Any:
        x, y, z, width, height, depth, shared, stream, parameters, extra = given
        assert (y, z, height, depth, shared, extra) == (1, 1, 1, 1, 0, 0) and 0 < x < 2**31
        assert 0 < width <= 1024
        if width > self.most:
            return RESULT.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
        run, slots = self.kernels[function]
        first, second = (ctypes.c_void_p * 2).from_address(parameters)
        status = ctypes.c_void_p.from_address(second or 0).value
        assert 8 * slots + 8 <= 4096, "more arguments than older devices take"
        packed = ctypes.string_at(first or 0, 8 * slots)
        sim, at = self.at(stream)
        sim.launch(run, x, width, packed, status or 0, at)
        return None

    def cuStreamCreate(self, flags: int) -> int:
        if not getattr(self.sim, "_has_own", False):
            self.sim._has_own = True  # type: ignore[attr-defined]
            return OWN + self.here
        return self.sim.open_stream()

    def cuStreamDestroy(self, stream: Any) -> None:
        sim, at = self.at(stream)
        sim.close_stream(at)

    def cuStreamQuery(self, stream: Any) -> Any:
        sim, at = self.at(stream)
        return None if sim.finished(at) else RESULT.CUDA_ERROR_NOT_READY

    def cuStreamSynchronize(self, stream: Any) -> None:
        sim, at = self.at(stream)
        if sim.queue(at):
            sim.wait(at)

    # ---------------------------------------------------------------------------------------- graphs, events

    def cuStreamBeginCapture(self, stream: Any, mode: Any) -> None:
        assert mode is real.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        sim, at = self.at(stream)
        assert at == 0
        sim.begin_capture()

    def cuStreamEndCapture(self, stream: Any) -> Any:
        return self.at(stream)[0].end_capture()

    def cuGraphInstantiate(self, graph: Any, flags: int) -> Any:
        return graph

    def cuGraphDestroy(self, graph: Any) -> None: ...

    def cuGraphExecDestroy(self, graph: Any) -> None: ...

    def cuGraphLaunch(self, graph: Any, stream: Any) -> None:
        sim, at = self.at(stream)
        sim.replay(graph, at)

    def cuEventCreate(self, flags: int) -> int:
        return self.sim.open_event(not flags)

    def cuEventDestroy(self, event: Any) -> None:
        self.sim.close_event(int(event))

    def cuEventRecord(self, event: Any, stream: Any) -> None:
        sim, at = self.at(stream)
        sim.record(int(event), at)

    def cuStreamWaitEvent(self, stream: Any, event: Any, flags: int) -> None:
        sim, at = self.at(stream)
        sim.hold(at, int(event))

    def cuEventQuery(self, event: Any) -> Any:
        moment = self.sim._events[int(event)]
        if not moment.come:  # a simulated device goes on when it is asked
            moment.driver.finished(moment.stream)
        return None if self.sim.happened(int(event)) else RESULT.CUDA_ERROR_NOT_READY

    def cuEventElapsedTime(self, start: Any, end: Any) -> float:
        return self.sim.elapsed(int(start), int(end))


def pytest_configure() -> None:
    install()


def install() -> FakeCuda:
    """Let `kernelab.backend.cuda.nvidia` find simulated devices, until the process ends."""
    made = FakeCuda()
    nvidia.api.cache_clear()
    nvidia.api = lambda: made  # type: ignore[assignment]
    nvrtc.compile_for = made.compiled  # type: ignore[assignment]
    nvrtc.hurries = lambda: False  # type: ignore[assignment]
    return made
