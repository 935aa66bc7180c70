"""Memory of a device shared with other libraries, which are mimicked here: objects that speak as they do."""

import ctypes
import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.backend.cuda.synchronisation import LEGACY
from kernelab.errors import KernelTypeError, KernelValueError, LaunchError
from kernelab.runtime.memory import dlpack
from tests.support.devices import opened
from tests.support.simulated import OWN, SimulatedDriver

TEXT = """
def double(x: array[float], y: array[float]):
    i = tid()
    y[i] = 2.0 * x[i]

def copies(x: array[Any], y: array[Any]):
    i = tid()
    y[i] = x[i]

def lengths(x: array[vec3], y: array[float]):
    i = tid()
    y[i] = dot(x[i], x[i])

def squares(x: array[float], e: array[float]):
    i = tid()
    e[0] += x[i] * x[i]
"""


@pytest.fixture(scope="module")
def driver() -> SimulatedDriver:
    return SimulatedDriver(1 << 20)


@pytest.fixture(scope="module", autouse=True)
def devices(driver: SimulatedDriver) -> Iterator[None]:
    with opened(driver, SimulatedDriver(1 << 20)):
        yield


@pytest.fixture(scope="module")
def kernels(devices: None) -> dict[str, Any]:
    return kl.compile(TEXT)


class Theirs:
    """An array of another library, which works in a stream of its own and says so."""

    def __init__(self, driver: SimulatedDriver, values: Any, read_only: bool = False) -> None:
        self.driver = driver
        self.values = np.array(values)
        self.read_only = read_only
        self.address = driver.allocate(self.values.nbytes)
        self.stream = driver.open_stream()
        self.asked: list[Any] = []
        self.write(self.values)

    def __del__(self) -> None:
        self.driver.free(self.address)

    def write(self, values: Any) -> None:
        """Put values there, when the stream gets to it."""
        taken = np.array(values, self.values.dtype)
        self.driver._put(lambda: ctypes.memmove(self.address, taken.ctypes.data, taken.nbytes), self.stream)

    def read(self) -> Any:
        """The elements, as the stream finds them."""
        found = np.empty_like(self.values)
        work = lambda: ctypes.memmove(found.ctypes.data, self.address, found.nbytes)  # noqa: E731
        self.driver._put(work, self.stream)
        self.driver.wait(self.stream)
        return found

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.values.shape,
            "typestr": self.values.dtype.str,
            "data": (self.address, self.read_only),
            "strides": None,
            "version": 3,
            "stream": self.stream,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, 0

    def __dlpack__(self, stream: Any = None) -> Any:
        self.asked.append(stream)
        event = self.driver.open_event(False)
        self.driver.record(event, self.stream)
        self.driver.hold(stream, event)
        scalar = kl.dtype_from_numpy(self.values.dtype)
        told = self.values.shape, self.values.strides, scalar
        return dlpack.capsule_of(dlpack.Described(self.address, *told, 0, self))


def assert_nothing_is_held() -> None:
    gc.collect()
    dlpack.sweep()
    assert not dlpack._held and not dlpack._waiting


# ------------------------------------------------------------------------------------------ theirs, here


def test_an_object_with_the_interface_is_copied_or_shared(driver: SimulatedDriver) -> None:
    theirs = Theirs(driver, np.arange(6, dtype=np.float32).reshape(3, 2))
    copied, shared = kl.array(theirs), kl.array(theirs, copy=False)
    assert str(copied.device) == str(shared.device) == "cuda:0"
    assert shared.ptr == theirs.address != copied.ptr
    theirs.write(np.ones((3, 2)))
    assert shared.numpy().sum() == 6 and copied.numpy().sum() == 15
    assert kl.array(theirs, device="cpu").device.is_cpu
    assert kl.array(theirs, dtype=kl.vec2, copy=False).shape == (3,)
    assert kl.array(theirs, dtype=int).list() == kl.ones((3, 2), dtype=int).list()


def test_a_launch_waits_for_their_stream_and_their_stream_for_the_launch(
    kernels: dict[str, Any], driver: SimulatedDriver
) -> None:
    theirs, out = Theirs(driver, np.zeros(4, np.float32)), Theirs(driver, np.zeros(4, np.float32))
    x, y = kl.array(theirs, copy=False), kl.from_dlpack(out)
    for turn in (1.0, 2.0):
        theirs.write(np.full(4, turn))  # has not happened when the launch is asked for
        kl.launch(kernels["double"], 4, [x, y])
        assert out.read().tolist() == [2 * turn] * 4
    y[1:] = 7.0
    assert out.read().tolist() == [4, 7, 7, 7]
    out.write([1, 2, 3, 4])
    assert y.list() == [1, 2, 3, 4] and y[3] == 4
    kl.copy(y, kl.full(4, 3.0, device="cuda"))
    assert out.read().tolist() == [3] * 4


class ByInterface:
    """As Numba's arrays are: `__cuda_array_interface__`, and no DLPack."""

    def __init__(self, theirs: Theirs) -> None:
        self.theirs = theirs

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.theirs.__cuda_array_interface__


@pytest.mark.parametrize("wrapped", [lambda theirs: theirs, ByInterface])
def test_a_launch_takes_arrays_of_other_libraries(
    wrapped: Any, kernels: dict[str, Any], driver: SimulatedDriver
) -> None:
    given, out = Theirs(driver, np.arange(4, dtype=np.float32)), Theirs(driver, np.zeros(4, np.float32))
    kl.launch(kernels["double"], 4, [wrapped(given), wrapped(out)])
    assert out.read().tolist() == [0, 2, 4, 6]
    kl.launch(kernels["copies"], 4, [wrapped(given), wrapped(out)])
    assert out.read().tolist() == [0, 1, 2, 3]
    points = wrapped(Theirs(driver, np.ones((2, 3), np.float32)))
    kl.launch(kernels["lengths"], 2, [points, wrapped(out)])
    assert out.read().tolist() == [3, 3, 2, 3]
    with pytest.raises(LaunchError, match=r"expects an array of float32 .* not an array of int64"):
        kl.launch(kernels["double"], 4, [wrapped(Theirs(driver, np.arange(4))), wrapped(out)])
    with pytest.raises(LaunchError, match="on different devices: `x` on cuda:0, `y` on cpu"):
        kl.launch(kernels["double"], 4, [wrapped(given), np.zeros(4, np.float32)])
    fixed = ByInterface(Theirs(driver, np.zeros(4, np.float32), read_only=True))
    with pytest.raises(LaunchError, match="read-only"):
        kl.launch(kernels["double"], 4, [wrapped(given), fixed])


def test_gradients_go_through_shared_memory(kernels: dict[str, Any], driver: SimulatedDriver) -> None:
    theirs = Theirs(driver, np.array([1, 2, 3], np.float32))
    x = kl.array(theirs, copy=False, requires_grad=True)
    e = kl.zeros(1, device="cuda", requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernels["squares"], 3, [x, e])
    tape.backward(e)
    assert x.grad.list() == [2, 4, 6]


def test_who_shares_bytes_shares_an_allocation(driver: SimulatedDriver) -> None:
    theirs = Theirs(driver, np.arange(8, dtype=np.float32))
    whole, again = kl.array(theirs, copy=False), kl.from_dlpack(theirs)
    assert whole.allocation is again.allocation
    part = kl.array(ptr=whole.ptr + 8, shape=2, device="cuda")
    assert part.allocation is whole.allocation and part.list() == [2, 3] and part.overlaps(again)
    own = kl.zeros(4, device="cuda")
    assert kl.from_dlpack(own).allocation is own.allocation
    with pytest.raises(KernelValueError, match="could not tell which gradients belong together"):
        kl.array(ptr=own.ptr + 8, shape=100, device="cuda")


def test_memory_that_is_read_only_stays_so(kernels: dict[str, Any], driver: SimulatedDriver) -> None:
    x = kl.array(Theirs(driver, np.ones(2, np.float32), read_only=True), copy=False)
    with pytest.raises(KernelValueError, match="read-only"):
        x.fill_(2.0)
    with pytest.raises(LaunchError, match="a read-only one"):
        kl.launch(kernels["double"], 2, [x, x])
    with pytest.raises(BufferError, match="read-only"):
        x.__dlpack__()


def test_their_memory_lives_as_long_as_it_is_shared(driver: SimulatedDriver) -> None:
    theirs = Theirs(driver, np.ones(3, np.float32))
    address, shared = theirs.address, kl.from_dlpack(theirs)
    assert theirs.asked == [OWN]
    del theirs
    gc.collect()
    assert address in driver.taken and shared.list() == [1, 1, 1]
    del shared
    gc.collect()
    assert_nothing_is_held()
    assert address not in driver.taken


# ------------------------------------------------------------------------------------------ ours, there


def test_the_interface_of_an_array_tells_of_its_memory_and_stream(driver: SimulatedDriver) -> None:
    x = kl.array(np.arange(12).reshape(3, 4), dtype=float, device="cuda")
    told = x[1:, ::2].__cuda_array_interface__
    assert told == {
        "shape": (2, 2),
        "strides": (16, 8),
        "typestr": "<f4",
        "data": (x.ptr + 16, False),
        "version": 3,
        "stream": OWN,
    }
    assert kl.zeros(2, dtype=kl.vec3, device="cuda").__cuda_array_interface__["shape"] == (2, 3)
    assert not hasattr(kl.zeros(2), "__cuda_array_interface__")
    assert not hasattr(kl.zeros(2, dtype=kl.bfloat16, device="cuda"), "__cuda_array_interface__")


def test_what_others_do_to_our_memory_is_seen(kernels: dict[str, Any], driver: SimulatedDriver) -> None:
    x, y = kl.ones(3, device="cuda"), kl.zeros(3, device="cuda")
    assert x.list() == [1, 1, 1]  # there is a mirror on the host now
    address, _ = x.__cuda_array_interface__["data"]
    stream, values = driver.open_stream(), np.full(3, 5, np.float32)
    driver._put(lambda: ctypes.memmove(address, values.ctypes.data, 12), stream)
    kl.launch(kernels["double"], 3, [x, y])
    assert y.list() == [10] * 3 and x.list() == [5] * 3


@pytest.mark.parametrize("dtype", [float, kl.float64, int, kl.uint8, bool, kl.float16, kl.bfloat16, kl.vec3])
def test_a_capsule_comes_back_as_the_same_memory(dtype: Any, driver: SimulatedDriver) -> None:
    x = kl.ones((4, 3), dtype=dtype, device="cuda")[::2]
    assert x.__dlpack_device__() == (dlpack.CUDA, 0)
    back = kl.from_dlpack(x.__dlpack__(stream=LEGACY, max_version=(1, 0)), dtype=dtype)
    assert (back.ptr, back.shape, back.strides, back.dtype) == (x.ptr, x.shape, x.strides, x.dtype)
    del back
    assert_nothing_is_held()


def test_a_consumers_stream_waits_for_ours(kernels: dict[str, Any], driver: SimulatedDriver) -> None:
    x, y = kl.ones(3, device="cuda"), kl.zeros(3, device="cuda")
    kl.launch(kernels["double"], 3, [x, y])
    stream, seen = driver.open_stream(), np.zeros(3, np.float32)
    capsule = y.__dlpack__(stream=stream)
    driver._put(lambda: ctypes.memmove(seen.ctypes.data, y.ptr, 12), stream)
    driver.wait(stream)
    assert seen.tolist() == [2, 2, 2]
    del capsule
    assert_nothing_is_held()
    with pytest.raises(BufferError, match="no stream 0"):
        y.__dlpack__(stream=0)


def test_a_capsule_for_the_cpu_or_a_copy_is_one() -> None:
    x = kl.ones(3, device="cuda")

    class Asking:
        def __dlpack_device__(self) -> tuple[int, int]:
            return dlpack.CPU, 0

        def __dlpack__(self, **_: Any) -> Any:
            return x.__dlpack__(dl_device=(dlpack.CPU, 0))

    assert np.from_dlpack(Asking()).tolist() == [1, 1, 1]
    assert kl.from_dlpack(x.__dlpack__(copy=True)).ptr != x.ptr
    with pytest.raises(BufferError, match="on cuda:0, and is not copied to device"):
        x.__dlpack__(dl_device=(dlpack.CUDA, 1))


def test_what_cannot_be_shared_says_why(driver: SimulatedDriver) -> None:
    x = kl.ones(3, device="cuda")
    capsule = x.__dlpack__()
    kl.from_dlpack(capsule)
    with pytest.raises(KernelTypeError, match="was used before"):
        kl.from_dlpack(capsule)
    with pytest.raises(KernelTypeError, match="numbers of float32 cannot be shared as int32"):
        kl.from_dlpack(x, dtype=int)
    with pytest.raises(KernelTypeError, match="are not components of vec2"):
        kl.from_dlpack(kl.ones((2, 3), device="cuda"), dtype=kl.vec2)
    with pytest.raises(LaunchError, match="not in the memory of cuda:1"):
        kl.array(ptr=x.ptr, shape=3, device="cuda:1")


# ------------------------------------------------------------------------------------------ PyTorch


class Tensor(Theirs):
    """What PyTorch's tensors have that is asked for."""

    __module__ = "torch"
    device, is_leaf, requires_grad, grad, dtype = "cuda:0", True, False, None, "torch.float32"

    def detach(self) -> "Tensor":
        return self


def test_tensors_share_memory_and_wait_for_each_other(
    kernels: dict[str, Any], driver: SimulatedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = (Tensor(driver, np.zeros(3, np.float32)) for _ in range(2))
    used = x.stream

    class Torch:
        class cuda:  # noqa: N801
            @staticmethod
            def current_stream(ordinal: int) -> Any:
                return type("Stream", (), {"cuda_stream": used if ordinal == 0 else 0})

        class utils:  # noqa: N801
            class dlpack:  # noqa: N801
                from_dlpack = staticmethod(dlpack.taken)

    monkeypatch.setattr("kernelab.runtime.array.exchange.import_module", lambda _: Torch)
    monkeypatch.setattr("kernelab.runtime.host.foreign.import_module", lambda _: Torch)
    monkeypatch.setattr("kernelab.backend.cuda.synchronisation.import_module", lambda _: Torch)
    y.stream = used
    mine, out = kl.from_torch(x), kl.from_torch(y)
    x.write([1, 2, 3])
    kl.launch(kernels["double"], 3, [mine, out])
    assert y.read().tolist() == [2, 4, 6]
    ours = kl.full(3, 4.0, device="cuda")
    assert kl.to_torch(ours).address == ours.ptr
    with pytest.raises(KernelTypeError, match="is on meta"):
        kl.from_torch(type("Tensor", (Tensor,), {"device": "meta"})(driver, np.zeros(1, np.float32)))
