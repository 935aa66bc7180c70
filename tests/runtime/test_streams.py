"""Streams, events and the shape of blocks, on a simulated device that runs nothing before somebody waits."""

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.backend.cuda.launch_config import LAUNCH_CONFIG, STREAMS
from kernelab.errors import LaunchError
from kernelab.runtime.array import transfers
from tests.support.devices import opened
from tests.support.simulated import SimulatedDriver

TEXT = """
def double(x: array[float], y: array[float]):
    i = tid()
    y[i] = 2.0 * x[i]

def total(x: array[float], e: array[float]):
    i = tid()
    e[0] += x[i] * x[i]

def keep(x: array[float], n: int, y: array[float]):
    i = tid()
    v = x[i]
    for k in range(n):
        v = sin(v) + 0.1
    y[i] = v
"""


@pytest.fixture(scope="module")
def driver() -> SimulatedDriver:
    return SimulatedDriver()


@pytest.fixture(scope="module", autouse=True)
def devices(driver: SimulatedDriver) -> Iterator[None]:
    with opened(driver, SimulatedDriver(1 << 20)):
        yield


@pytest.fixture(scope="module")
def kernels(devices: None) -> dict[str, Any]:
    return kl.compile(TEXT)


def ones(n: int) -> Any:
    return kl.ones(n, device="cuda", requires_grad=True)


# ------------------------------------------------------------------------------------------ blocks


@pytest.mark.parametrize(
    "how", [{}, {"block_dim": 32}, {"block_dim": 64, "max_blocks": 2}, {"max_blocks": 1}]
)
def test_blocks_of_any_shape_run_every_thread_once(
    how: dict[str, int], kernels: dict[str, Any], driver: SimulatedDriver
) -> None:
    n = 700
    x, y, e = ones(n), kl.zeros(n, device="cuda"), kl.zeros(1, device="cuda")
    driver.launches.clear()
    kl.launch(kernels["double"], n, [x, y], **how)
    kl.launch(kernels["total"], n, [y, e], **how)
    threads = how.get("block_dim", 256)
    blocks = min(-(-n // threads), how.get("max_blocks", 10**6))
    assert driver.launches == [(blocks, threads)] * 2
    assert np.all(y.numpy() == 2) and e.list() == [4.0 * n]


def test_a_tape_sweeps_in_blocks_of_the_same_shape(kernels: dict[str, Any], driver: SimulatedDriver) -> None:
    x, y = ones(100), kl.zeros(100, device="cuda", requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernels["keep"], 100, [x, 3, y], block_dim=16, max_blocks=3)
        kl.launch(kernels["double"], 100, [y, kl.zeros(100, device="cuda")], block_dim=8)
    driver.launches.clear()
    tape.backward(grads={y: np.ones(100, np.float32)})
    assert (3, 16) in driver.launches
    here, out = kl.ones(100, requires_grad=True), kl.zeros(100, requires_grad=True)
    with kl.Tape() as other:
        kl.launch(kernels["keep"], 100, [here, 3, out], block_dim=16)
    other.backward(grads={out: np.ones(100, np.float32)})
    np.testing.assert_allclose(x.grad.numpy(), here.grad.numpy(), rtol=1e-5)
    assert LAUNCH_CONFIG.get().threads == 256


def test_a_prepared_launch_keeps_its_shape(kernels: dict[str, Any], driver: SimulatedDriver) -> None:
    x, y = ones(50), kl.zeros(50, device="cuda")
    command = kl.launch(kernels["double"], 50, [x, y], record_cmd=True, block_dim=32, max_blocks=1)
    driver.launches.clear()
    command.launch()
    assert driver.launches == [(1, 32)] and y.list() == [2] * 50


def test_maps_jacobians_and_transforms_run_in_the_blocks_that_are_asked_for(
    kernels: dict[str, Any], driver: SimulatedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "_run", lambda *_: False)  # those have blocks of their own
    x, y = ones(40), kl.zeros(40, device="cuda")

    def shapes() -> set[int]:
        found = {threads for _, threads in driver.launches}
        driver.launches.clear()
        return found

    shapes()
    kl.map(lambda a: a * a + 1.0, x, block_dim=8)
    assert shapes() == {8}
    kl.autograd.jacobian(kernels["double"], dim=40, inputs=[x], outputs=[y], block_dim=16)
    assert shapes() == {16}

    def energy(x: Any) -> Any:
        y, e = kl.zeros_like(x), kl.zeros(1, device="cuda")
        kl.launch(kernels["double"], 40, [x, y], block_dim=4)
        kl.launch(kernels["total"], 40, [y, e], block_dim=4)
        return e

    for transform in (kl.func.grad, kl.func.jacfwd, kl.func.jacrev, kl.func.hessian):
        transform(energy)(x)
        assert shapes() - {1} == {4}, transform
    rows = kl.ones((3, 40), device="cuda")
    kl.func.vmap(energy)(rows)
    assert shapes() == {4}
    kl.autograd.jacobian(energy, inputs=[x], block_dim=16)
    assert shapes() == {4}


def test_a_jacobian_says_where_its_arrays_are(kernels: dict[str, Any]) -> None:
    with pytest.raises(LaunchError, match="jacobian is to run on cuda:1, and its array 0 is on cuda:0"):
        kl.autograd.jacobian(kernels["double"], 4, [ones(4)], [kl.zeros(4, device="cuda")], device="cuda:1")


@pytest.mark.parametrize("block_dim", [0, -1, 1025, 2.5, True])
def test_a_block_that_no_device_has_is_refused(block_dim: Any, kernels: dict[str, Any]) -> None:
    with pytest.raises(LaunchError, match="a block cannot have") as caught:
        kl.launch(kernels["double"], 1, [kl.ones(1), kl.zeros(1)], block_dim=block_dim)
    assert f"have {block_dim!r} threads" in str(caught.value)
    assert "block_dim is an int from 1 to 1024" in str(caught.value)
    with pytest.raises(LaunchError, match="max_blocks cannot be 'all'"):
        kl.launch(kernels["double"], 1, [kl.ones(1), kl.zeros(1)], max_blocks="all")  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------ streams


def slow_write(driver: SimulatedDriver, stream: int, y: Any, value: float) -> None:
    """Another library's work: it fills `y` when its stream gets to it."""
    values = np.full(y.size, value, np.float32)

    def work() -> None:
        with driver._working():
            ctypes.memmove(y.ptr, values.ctypes.data, values.nbytes)

    driver.queues[stream].append(work)


def test_a_launch_waits_for_the_events_of_its_stream(
    kernels: dict[str, Any], driver: SimulatedDriver
) -> None:
    x, y = ones(4), kl.zeros(4, device="cuda")
    x.allocation.flush()
    theirs, mine = kl.Stream("cuda"), kl.Stream("cuda")
    slow_write(driver, theirs.number, x, 5.0)
    event = theirs.record_event()
    assert not event.is_complete
    kl.launch(kernels["double"], 4, [x, y], stream=mine)
    assert y.list() == [2] * 4 and not event.is_complete  # nothing said that it had to wait
    mine.wait_event(event)
    kl.launch(kernels["double"], 4, [x, y], stream=mine)
    assert y.list() == [10] * 4 and event.is_complete and mine.is_complete


def test_a_launch_in_a_stream_waits_for_the_devices_own(
    kernels: dict[str, Any], driver: SimulatedDriver
) -> None:
    x, y = ones(4), kl.zeros(4, device="cuda")
    x.allocation.flush()
    slow_write(driver, 0, x, 7.0)
    kl.launch(kernels["double"], 4, [x, y], stream=kl.Stream("cuda"))
    assert y.list() == [14] * 4


def test_a_block_of_a_program_runs_in_its_stream(kernels: dict[str, Any], driver: SimulatedDriver) -> None:
    stream, before = kl.Stream("cuda"), kl.get_stream("cuda")
    slow_write(driver, before.number, kl.zeros(1, device="cuda"), 1.0)
    with kl.ScopedStream(stream, sync_exit=True) as used:
        assert used is stream and kl.get_stream() == stream != before
        assert driver.queues[stream.number]  # it waits for the one before
        x = kl.ones(3)
        y = kl.zeros(3)
        assert str(y.device) == "cuda:0"
        kl.launch(kernels["double"], 3, [x, y])
        assert y.list() == [2] * 3
    assert driver.queues[before.number]
    kl.synchronize()
    assert not any(driver.queues.values())
    assert kl.get_stream("cuda") == before and not STREAMS.get() and kl.zeros(1).device.is_cpu
    with kl.ScopedStream(None) as nothing:
        assert nothing is None


def test_streams_wait_for_streams_and_events_across_devices(driver: SimulatedDriver) -> None:
    one, two, far = kl.Stream("cuda"), kl.Stream("cuda"), kl.Stream("cuda:1")
    x = kl.zeros(2, device="cuda")
    slow_write(driver, one.number, x, 3.0)
    two.wait_stream(one)
    kl.synchronize_stream(two)
    assert one.is_complete
    slow_write(driver, one.number, x, 4.0)
    event = kl.Event("cuda")
    assert one.record_event(event) is event
    kl.synchronize_event(event)
    assert one.is_complete
    with pytest.raises(LaunchError, match="recorded on one device, and these are of cuda:0 and cuda:1"):
        far.record_event(event)


def test_the_functions_of_the_stream_in_use() -> None:
    stream = kl.Stream("cuda")
    with kl.ScopedStream(stream):
        event = kl.record_event()
        kl.wait_event(event)
        kl.wait_stream(kl.Stream("cuda"))
    kl.synchronize_stream("cuda")
    kl.synchronize_stream(stream)
    assert event.is_complete and "of cuda:0" in repr(event) and "of cuda:0" in repr(stream)


def test_a_stream_that_is_set_stays(kernels: dict[str, Any]) -> None:
    before, stream = kl.get_stream("cuda"), kl.Stream("cuda")
    kl.set_stream(stream, "cuda", sync=True)
    try:
        assert kl.get_stream("cuda") == stream
        y = kl.zeros(2, device="cuda")
        kl.launch(kernels["double"], 2, [ones(2), y])
        assert y.list() == [2, 2]
    finally:
        kl.set_stream(before)
    assert kl.get_stream("cuda") == before


def test_events_tell_the_time_between_them(kernels: dict[str, Any]) -> None:
    start, end = (kl.Event("cuda", enable_timing=True) for _ in range(2))
    x, y = ones(2), kl.zeros(2, device="cuda")
    with kl.ScopedDevice("cuda"):
        kl.record_event(start)
        for _ in range(3):
            kl.launch(kernels["double"], 2, [x, y])
        kl.record_event(end)
    assert kl.get_event_elapsed_time(start, end) == 3.0  # the simulated device counts launches
    with pytest.raises(LaunchError, match=r"notes no time.*\n.*enable_timing=True"):
        kl.get_event_elapsed_time(start, kl.Event("cuda"))


def test_what_is_no_stream_or_of_another_device_is_refused(kernels: dict[str, Any]) -> None:
    x, y = ones(2), kl.zeros(2, device="cuda")
    with pytest.raises(LaunchError, match="a stream is of a CUDA device, and the default device is the CPU"):
        kl.Stream()
    with pytest.raises(LaunchError, match="an event is of a CUDA device, and the CPU has none"):
        kl.Event("cpu")
    with pytest.raises(LaunchError, match="a stream is needed here, not an int"):
        kl.launch(kernels["double"], 2, [x, y], stream=5)  # type: ignore[arg-type]
    with pytest.raises(LaunchError, match="is to run on cuda:1, and its argument `x` is on cuda:0"):
        kl.launch(kernels["double"], 2, [x, y], stream=kl.Stream("cuda:1"))
    with pytest.raises(LaunchError, match="is to run on cuda:0, and its argument `x` is on cpu"):
        kl.launch(kernels["double"], 2, [kl.ones(2), kl.zeros(2)], stream=kl.Stream("cuda"))


def test_streams_and_events_are_given_back(driver: SimulatedDriver) -> None:
    kl.Stream("cuda")  # given back at once, behind the first event of the pool
    before = len(driver.queues), len(driver._events)
    stream = kl.Stream("cuda")
    stream.record_event()
    assert len(driver.queues) == before[0] + 1
    del stream
    assert (len(driver.queues), len(driver._events)) == before
    foreign = kl.Stream("cuda", cuda_stream=0)
    assert foreign.cuda_stream == 1  # PyTorch's default stream has a number of its own
