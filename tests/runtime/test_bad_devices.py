"""What goes wrong on a device, provoked through a simulated one: what is said, and whether one can go on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kernelab as kl
from kernelab.backend.cuda import nvrtc
from kernelab.backend.cuda.faults import LostError, fault
from kernelab.errors import BuildError, KernelMemoryError, LaunchError
from kernelab.runtime.memory.spaces import OPEN
from tests.support.devices import WatchfulSpace
from tests.support.simulated import SimulatedDriver


class Failing(SimulatedDriver):
    """A device whose architecture or driver NVRTC's code does not fit."""

    def __init__(self, architecture: str = "sm_80", loading: str = "") -> None:
        super().__init__(1 << 16)
        self.architecture = architecture
        self.loading = loading

    def compile(self, text: str, quickly: bool = False) -> bytes:
        if self.architecture != "sm_80":
            return nvrtc.compile_to_cubin(text, self.architecture)
        return super().compile(text)

    def load(self, code: bytes, symbol: str) -> object:
        if self.loading:
            raise fault(self.loading, "loading a kernel", "cuda:0")
        return super().load(code, symbol)

    def shared(self, nbytes: int) -> tuple[int, int]:
        if nbytes > 1 << 20:
            raise fault("CUDA_ERROR_OUT_OF_MEMORY", "allocating shared memory", "cuda:0")
        return super().shared(nbytes)


@pytest.fixture
def opened(empty_cache: Path) -> Iterator[Any]:
    def open_as(driver: SimulatedDriver) -> SimulatedDriver:
        OPEN["cuda:0"] = WatchfulSpace("cuda:0", driver)
        return driver

    yield open_as
    OPEN.pop("cuda:0", None)


def launched(device: str = "cuda") -> list[float]:
    kernel = kl.compile("""
def twice(x: array[float], y: array[float]):
    i = tid()
    y[i] = 2.0 * x[i]
""")["twice"]
    y = kl.zeros(2, device=device)
    kl.launch(kernel, 2, [kl.ones(2, device=device)], [y])
    found: list[float] = y.list()
    return found


@pytest.mark.parametrize(
    ("driver", "said"),
    [
        (("sm_999",), [r"NVRTC \d+\.\d+ does not compile for sm_999", "install a newer nvidia-cuda-nvrtc"]),
        (("sm_52",), ["sm_52 is too old: it cannot add float64", "sm_60 .* or later", 'device="cpu"']),
        (("sm_80", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"), ["older than NVRTC", "a newer driver"]),
        (("sm_80", "CUDA_ERROR_INVALID_IMAGE"), ["older than NVRTC", "a newer driver"]),
        (("sm_80", "CUDA_ERROR_NO_BINARY_FOR_GPU"), ["cannot run the code", "that fits the driver"]),
    ],
)
def test_a_device_that_kernels_cannot_be_built_for_says_what_to_install(
    driver: tuple[str, ...], said: list[str], opened: Any
) -> None:
    opened(Failing(*driver))
    for _ in range(2):
        with pytest.raises(BuildError) as caught:
            launched()
        for part in said:
            assert caught.match(part)
    assert launched("cpu") == [2, 2]


def test_memory_that_runs_out_says_whose_and_leaves_the_device_usable(opened: Any) -> None:
    opened(Failing())
    with pytest.raises(
        KernelMemoryError, match=r"(?s)no memory for an array of 0.004 GB on cuda:0.*let go of"
    ):
        kl.zeros(1_000_000, device="cuda")
    with pytest.raises(KernelMemoryError, match=r"(?s)locks no 0.004 GB of the host.*pinned=True away"):
        kl.zeros(1_000_000, pinned=True)
    assert launched() == [2, 2]


@pytest.mark.parametrize("code", ["CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_MISALIGNED_ADDRESS"])
def test_a_lost_device_says_so_and_the_cpu_goes_on(code: str, opened: Any) -> None:
    driver = opened(Failing())
    x, y = kl.ones(2, device="cuda"), kl.zeros(2, device="cuda")

    def broken() -> None:
        raise fault(code, "running a kernel", "cuda:0")

    driver.queues[0].insert(0, broken)
    assert launched("cpu") == [2, 2]
    kernel = kl.compile("""
def twice(x: array[float], y: array[float]):
    i = tid()
    y[i] = 2.0 * x[i]
""")["twice"]
    kl.launch(kernel, 2, [x], [y])
    for cause in (y.numpy, y.list, lambda: kl.ones(2, device="cuda")):
        with pytest.raises(LostError, match=r"(?s)running `twice`.*lost.*restart the notebook's kernel"):
            cause()
    assert launched("cpu") == [2, 2]


def test_arrays_of_two_places_are_refused_with_a_way_out(opened: Any) -> None:
    opened(Failing())
    with pytest.raises(LaunchError, match=r'different devices(.|\n)*\.to\("'):
        kl.launch(
            kl.compile("def f(x: array[float], y: array[float]):\n    y[tid()] = x[tid()]\n")["f"],
            2,
            [kl.ones(2, device="cuda"), kl.zeros(2)],
        )


def test_numbers_at_odd_addresses_are_refused_before_they_lose_the_device(opened: Any) -> None:
    opened(SimulatedDriver(1 << 16))
    copied = kl.compile("""
def copied(x: array[vec3], y: array[vec3]):
    i = tid()
    y[i] = x[i]
""")["copied"]
    held, y = kl.zeros(64, dtype=kl.uint8, device="cuda"), kl.zeros(4, dtype=kl.vec3, device="cuda")
    apart = {"begins": (held.ptr + 2, (12,)), "steps": (held.ptr, (14,))}
    for start, strides in apart.values():
        x = kl.array(ptr=start, shape=4, strides=strides, dtype=kl.vec3, device="cuda")
        with pytest.raises(
            LaunchError, match=r"`x` of `copied` stand at .* not multiples of 4: a CUDA device"
        ):
            kl.launch(copied, 4, [x, y])
    kl.launch(copied, 1, [x[:1], y])  # of one element nothing steps
    assert y.numpy().sum() == 0
