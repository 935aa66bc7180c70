"""Copies between devices, and between a device and pinned memory of the host, which do not wait."""

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import KernelIndexError, LaunchError
from kernelab.runtime.memory.spaces import OPEN
from tests.support.devices import opened
from tests.support.simulated import SimulatedDriver

TEXT = """
def double(x: array[float], y: array[float]):
    i = tid()
    y[i] = 2.0 * x[i]

def beyond(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i + 1]
"""


@pytest.fixture(scope="module")
def kernels() -> dict[str, Any]:
    return kl.compile(TEXT)


@pytest.fixture
def drivers(kernels: dict[str, Any]) -> Iterator[tuple[SimulatedDriver, SimulatedDriver]]:
    made = SimulatedDriver(1 << 20), SimulatedDriver(1 << 20)
    with opened(*made):
        yield made


def copies(drivers: Any) -> list[list[str]]:
    """What the devices were asked to copy, and forget it."""
    found = [list(driver.copies) for driver in drivers]
    for driver in drivers:
        driver.copies.clear()
    return found


def counted(device: str, n: int = 4) -> Any:
    """An array of a device that the host has nothing of."""
    x = kl.array(np.arange(n, dtype=np.float32), device="cpu").to(device)
    x.allocation.flush()
    return x


# ------------------------------------------------------------------------------------------ peers


def test_a_copy_between_devices_does_not_pass_the_host_and_does_not_wait(
    kernels: dict[str, Any], drivers: Any
) -> None:
    x, y = counted("cuda:0"), kl.zeros(4, device="cuda:0")
    copies(drivers)
    kl.launch(kernels["double"], 4, [x, y])
    z, w = y.to("cuda:1"), kl.zeros(4, device="cuda:1")
    y.zero_()  # waits for the copy, as the copy does for the launch
    kl.launch(kernels["double"], 4, [z, w])
    kl.copy(y[2:], w[:2])
    assert copies(drivers) == [["peer"], ["peer"]] and len(OPEN["cuda:0"].backend.pending) == 1
    assert (w.list(), y.list()) == ([0, 4, 8, 12], [0, 0, 0, 4])


def test_streams_on_both_sides_keep_their_order(kernels: dict[str, Any], drivers: Any) -> None:
    x, y, z = counted("cuda:0"), kl.zeros(4, device="cuda:0"), kl.zeros(4, device="cuda:1")
    with kl.ScopedStream(kl.Stream("cuda:0")):
        kl.launch(kernels["double"], 4, [x, y])
    with kl.ScopedStream(kl.Stream("cuda:1")):
        kl.launch(kernels["double"], 4, [kl.ones_like(z), z])
    kl.copy(z, y)
    with kl.ScopedStream(kl.Stream("cuda:0")):
        kl.launch(kernels["double"], 4, [y, x])
        kl.launch(kernels["double"], 4, [x, y])
    assert z.list() == [0, 2, 4, 6] and y.list() == [0, 8, 16, 24]


def test_a_failure_before_a_copy_is_raised_where_the_copy_is_read(
    kernels: dict[str, Any], drivers: Any
) -> None:
    x, y = counted("cuda:0"), kl.zeros(4, device="cuda:0")
    kl.launch(kernels["beyond"], 4, [x, y])
    z = y.to("cuda:1")
    with pytest.raises(KernelIndexError, match="launched in"):
        z.numpy()


def test_devices_that_do_not_reach_each_other_copy_through_the_host(drivers: Any) -> None:
    x = counted("cuda:0")
    drivers[1].reachable = False
    assert not kl.can_access("cuda:1", "cuda:0") and kl.can_access("cuda:0", "cuda:1")
    copies(drivers)
    assert x.to("cuda:1").list() == [0, 1, 2, 3]
    assert all("peer" not in copied for copied in copies(drivers))


def test_views_are_packed_on_their_way_between_devices(drivers: Any) -> None:
    """The elements of views that have gaps, run backwards or stand across."""
    grids = [kl.array(np.arange(12.0, dtype=np.float32).reshape(3, 4), device=f"cuda:{k}") for k in (0, 1)]
    expected = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    for grid in grids:
        grid.allocation.flush()
    copies(drivers)
    kl.copy(grids[1][:, 1], grids[0][:, 2])
    kl.copy(grids[1][::-1, 3], grids[0][:, 0])
    kl.copy(grids[1][:2, :2].transpose(), grids[0][1:, 1:3])
    apart = copies(drivers)
    assert [moved.count("up") + moved.count("down") for moved in apart] == [0, 0] and apart[1].count(
        "peer"
    ) == 3
    expected[:, 1] = expected[:, 2].copy()
    expected[::-1, 3] = [0, 4, 8]
    expected[:2, :2] = [[5, 9], [6, 10]]
    np.testing.assert_array_equal(grids[1].numpy(), expected)


def test_a_cotangent_on_another_device_comes_straight(kernels: dict[str, Any], drivers: Any) -> None:
    x, y = (kl.zeros(4, device="cuda:0", requires_grad=True) for _ in range(2))
    seed = counted("cuda:1")
    with kl.Tape() as tape:
        kl.launch(kernels["double"], 4, [x, y])
    copies(drivers)
    tape.backward(grads={y: seed})
    here, there = copies(drivers)
    assert here.count("peer") == 1 and not {"up", "down"} & {*here, *there}
    assert x.grad.list() == [0, 2, 4, 6]


def test_a_copy_between_devices_cannot_be_captured(drivers: Any) -> None:
    x, y = counted("cuda:0"), counted("cuda:1")
    with pytest.raises(LaunchError, match="copied from cuda:1 to cuda:0 while launches on cuda:0"):  # noqa: SIM117
        with kl.ScopedCapture("cuda:0"):
            kl.copy(x, y)


# ------------------------------------------------------------------------------------------ pinned


def test_copies_to_and_from_pinned_memory_do_not_wait(kernels: dict[str, Any], drivers: Any) -> None:
    here = kl.full(4, 3.0, pinned=True)
    there = kl.zeros(4, device="cuda:0")
    y = kl.empty_like(there)
    back = kl.zeros(4, pinned=True)
    assert here.pinned and back.pinned and not kl.zeros(4).pinned and not there.pinned
    copies(drivers)
    kl.copy(there, here)
    kl.launch(kernels["double"], 4, [there, y])
    kl.copy(back, y)
    assert copies(drivers) == [["pinned up", "pinned down"], []]
    assert len(OPEN["cuda:0"].backend.pending) == 1
    here.fill_(7.0)  # waits: the device has not read it yet
    assert back.list() == [6] * 4 and there.list() == [3] * 4


def test_the_cpu_waits_for_pinned_memory_that_it_uses(kernels: dict[str, Any], drivers: Any) -> None:
    back, y, other = kl.zeros(4, pinned=True), kl.zeros(4), kl.ones(4)
    x = counted("cuda:0")
    kl.copy(back, x)
    kl.launch(kernels["double"], 4, [other, y])
    assert drivers[0].queues[0], "another launch does not wait"
    kl.launch(kernels["double"], 4, [back, y])
    assert y.list() == [0, 2, 4, 6]


def test_devices_wait_for_each_other_at_pinned_memory(drivers: Any) -> None:
    through, x, y = kl.zeros(4, pinned=True), counted("cuda:0"), kl.zeros(4, device="cuda:1")
    kl.copy(through, x)
    kl.copy(y, through)
    kl.copy(through, kl.zeros(4, device="cuda:0"))
    assert y.list() == [0, 1, 2, 3] and through.list() == [0] * 4


def test_while_numpy_looks_at_pinned_memory_copies_wait(drivers: Any) -> None:
    here, there = kl.zeros(4, pinned=True), kl.zeros(4, device="cuda:0")
    seen = here.numpy()
    seen[:] = 5
    kl.copy(there, here)
    seen[:] = 6
    assert there.list() == [5] * 4
    kl.copy(here, counted("cuda:0"))
    assert seen.tolist() == [0, 1, 2, 3]


def test_a_failure_before_a_download_is_raised_where_it_is_read(
    kernels: dict[str, Any], drivers: Any
) -> None:
    x, y, back = counted("cuda:0"), kl.zeros(4, device="cuda:0"), kl.zeros(4, pinned=True)
    kl.launch(kernels["beyond"], 4, [x, y])
    kl.copy(back, y)
    with pytest.raises(KernelIndexError, match="launched in"):
        back.numpy()


def test_pinned_memory_goes_back(drivers: Any) -> None:
    kl.zeros(4, pinned=True)  # lets go of what has landed since
    gc.collect()
    count = len(SimulatedDriver._shared)
    x = counted("cuda:0")
    for _ in range(3):
        kl.copy(kl.zeros(4, pinned=True), x)
        kl.synchronize()
    kl.zeros(4, pinned=True)
    assert len(SimulatedDriver._shared) == count


def test_every_way_to_make_an_array_pins_it(drivers: Any) -> None:
    x = kl.array([1.0, 2.0], pinned=True)
    made = [
        kl.clone(x, pinned=True),
        kl.ones_like(x, pinned=True),
        kl.clone(x.to("cuda"), "cpu", pinned=True),
    ]
    assert x.pinned and all(other.pinned for other in made) and not kl.clone(x).pinned
    assert [other.list() for other in (x, *made)] == [[1, 2], [1, 2], [1, 1], [1, 2]]


def test_without_a_device_pinned_memory_is_plain() -> None:
    x = kl.ones(3, pinned=True)
    assert not x.pinned and x.list() == [1] * 3
