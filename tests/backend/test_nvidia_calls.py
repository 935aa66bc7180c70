"""The calls that the real driver is asked for, by a stand-in that knows how many arguments each takes."""

from typing import Any

import pytest
from cuda.bindings import driver as real

from kernelab.backend.cuda import nvidia, nvrtc
from kernelab.errors import BuildError

DONE = real.CUresult.CUDA_SUCCESS
GIVES = {
    "cuDeviceGet": [0],
    "cuDevicePrimaryCtxRetain": [0],
    "cuDeviceGetAttribute": [0],
    "cuDeviceGetDefaultMemPool": [0],
    "cuStreamEndCapture": [0x6],
    "cuGraphInstantiate": [0xE],
    "cuMemAllocAsync": [0xA],
    "cuMemHostAlloc": [0],
    "cuModuleLoadData": [0],
    "cuModuleGetFunction": [0],
    "cuFuncGetAttribute": [1024],
}
FAILS: dict[str, Any] = {}
"""What calls answer that fail."""


class Told:
    """cuda-python's functions of the driver, noted and not done; streams are counted from 16."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.streams = 16

    def __getattr__(self, name: str) -> Any:
        found = getattr(real, name)
        if isinstance(found, type):
            return found
        signature = found.__doc__.splitlines()[0]
        takes = signature.partition("(")[2].rpartition(")")[0]

        def call(*given: Any) -> tuple[Any, ...]:
            assert len(given) == (takes.count(",") + 1 if takes else 0), f"{signature} was given {given}"
            self.calls.append((name, *given))
            if name in FAILS:
                return (FAILS[name], None)
            if name == "cuPointerGetAttribute":
                is_type = given[0] is real.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
                return DONE, real.CUmemorytype.CU_MEMORYTYPE_DEVICE if is_type else 0
            if name == "cuStreamCreate":
                self.streams += 1
                return DONE, self.streams
            return (DONE, *GIVES.get(name, ()))

        return call

    def since(self, first: str) -> list[tuple[Any, ...]]:
        """The calls from one on, without those that enter the context."""
        names = [call[0] for call in self.calls]
        return [call for call in self.calls[names.index(first) :] if call[0] != "cuCtxSetCurrent"]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    made = Told()
    monkeypatch.setattr(nvidia, "api", lambda: made)
    return made


def test_a_capture_hands_memory_out_in_a_stream_apart(told: Told) -> None:
    driver = nvidia.Driver(0)
    own = driver.own_stream
    driver.begin_capture()
    address = driver.allocate(256)
    driver.upload(address, 1, 256)
    driver.fill(address, b"\0", 256)
    driver.fill(address, b"\0\0\x80\x3f", 64)
    driver.free(address)
    graph = driver.end_capture()
    driver.replay(graph)
    del graph
    relaxed = real.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    assert told.since("cuStreamBeginCapture") == [
        ("cuStreamBeginCapture", own, relaxed),
        ("cuStreamCreate", 1),
        ("cuMemAllocAsync", 256, own + 1),
        ("cuStreamSynchronize", own + 1),
        ("cuMemcpyHtoDAsync", address, 1, 256, own),
        ("cuMemsetD8Async", address, 0, 256, own),
        ("cuMemsetD32Async", address, 0x3F800000, 64, own),
        ("cuMemFreeAsync", address, own + 1),
        ("cuStreamEndCapture", own),
        ("cuGraphInstantiate", 0x6, 0),
        ("cuGraphDestroy", 0x6),
        ("cuGraphLaunch", 0xE, own),
        ("cuGraphExecDestroy", 0xE),
    ]


@pytest.mark.parametrize(("nbytes", "allocated"), [(0, 4), (2, 4), (4, 4), (9, 12)])
def test_memory_is_of_whole_words_which_atomics_of_narrow_numbers_change(
    told: Told, nbytes: int, allocated: int
) -> None:
    driver = nvidia.Driver(0)
    driver.allocate(nbytes)
    assert told.since("cuMemAllocAsync") == [("cuMemAllocAsync", allocated, driver.own_stream)]


def test_uploads_and_launches_do_not_wait(told: Told) -> None:
    driver = nvidia.Driver(0)
    assert driver.owns(5)
    driver.upload(8, 1, 4)
    event = driver.own_stream
    driver.record(event, 0)
    driver.hold(1, event)
    assert not [call for call in told.calls if call[0] in ("cuStreamQuery", "cuStreamSynchronize")]
    driver.wait()
    names = [call[0] for call in told.calls if call[0] != "cuCtxSetCurrent"]
    assert names[-2:] == ["cuStreamQuery", "cuStreamSynchronize"]


def test_a_wait_ends_with_one_of_the_drivers_which_alone_shows_what_kernels_print(told: Told) -> None:
    driver = nvidia.Driver(0)
    stream = driver.open_stream()
    assert driver.finished(stream)
    assert told.calls[-1] == ("cuStreamSynchronize", stream)


def test_a_block_has_no_more_threads_than_the_kernel_has_registers_for(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(GIVES, "cuFuncGetAttribute", [96])
    driver = nvidia.Driver(0)
    driver.launch(driver.load(b"", "f_entry"), 7, 256, bytes(16), 5)
    (launched,) = [call for call in told.calls if call[0] == "cuLaunchKernel"]
    assert launched[2:8] == (7, 1, 1, 96, 1, 1)
    driver.launch(driver.load(b"", "f_entry"), 7, 64, bytes(16), 5)
    assert told.calls[-1][5] == 64


@pytest.mark.parametrize(
    ("code", "served", "said"),
    [
        ("CUDA_ERROR_INVALID_IMAGE", 12040, "serves CUDA 12.4.*pip install nvidia-cuda-nvrtc-cu12"),
        ("CUDA_ERROR_UNSUPPORTED_PTX_VERSION", 13000, "serves CUDA 13.0.*install a newer driver"),
    ],
)
def test_code_that_the_driver_does_not_load_names_the_versions(
    code: str, served: int, said: str, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvrtc, "version", lambda: "13.5")
    monkeypatch.setitem(GIVES, "cuDriverGetVersion", [served])
    driver = nvidia.Driver(0)
    monkeypatch.setitem(FAILS, "cuModuleLoadData", getattr(real.CUresult, code))
    with pytest.raises(BuildError, match=f"(?s)NVRTC is 13.5, and the driver {said}"):
        driver.load(b"", "f_entry")
