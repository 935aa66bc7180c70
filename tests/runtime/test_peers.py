"""Copies between devices, and pinned memory of the host."""

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import KernelIndexError, LaunchError
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


def counted(device: str, n: int = 4) -> Any:
    """An array of a device that the host has nothing of."""
    x = kl.array(np.arange(n, dtype=np.float32), device="cpu").to(device)
    x.allocation.flush()
    return x


# ------------------------------------------------------------------------------------------ devices


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


def test_a_failure_before_a_copy_is_raised_by_the_copy(kernels: dict[str, Any], drivers: Any) -> None:
    x, y = counted("cuda:0"), kl.zeros(4, device="cuda:0")
    kl.launch(kernels["beyond"], 4, [x, y])
    with pytest.raises(KernelIndexError, match="launched in"):
        y.to("cuda:1")


def test_views_are_copied_between_devices(drivers: Any) -> None:
    """The elements of views that have gaps, run backwards or stand across."""
    grids = [kl.array(np.arange(12.0, dtype=np.float32).reshape(3, 4), device=f"cuda:{k}") for k in (0, 1)]
    expected = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    kl.copy(grids[1][:, 1], grids[0][:, 2])
    kl.copy(grids[1][::-1, 3], grids[0][:, 0])
    kl.copy(grids[1][:2, :2].transpose(), grids[0][1:, 1:3])
    expected[:, 1] = expected[:, 2].copy()
    expected[::-1, 3] = [0, 4, 8]
    expected[:2, :2] = [[5, 9], [6, 10]]
    np.testing.assert_array_equal(grids[1].numpy(), expected)


def test_a_cotangent_may_be_on_another_device(kernels: dict[str, Any], drivers: Any) -> None:
    x, y = (kl.zeros(4, device="cuda:0", requires_grad=True) for _ in range(2))
    with kl.Tape() as tape:
        kl.launch(kernels["double"], 4, [x, y])
    tape.backward(grads={y: counted("cuda:1")})
    assert x.grad.list() == [0, 2, 4, 6]


def test_a_copy_between_devices_cannot_be_captured(kernels: dict[str, Any], drivers: Any) -> None:
    x, y, z = counted("cuda:0"), kl.zeros(4, device="cuda:0"), kl.zeros(4, device="cuda:1")
    kl.launch(kernels["double"], 4, [x, y])
    with kl.ScopedCapture("cuda:0"):
        kl.launch(kernels["double"], 4, [x, y])
        with pytest.raises(LaunchError, match="looks at an array while launches on cuda:0"):
            kl.copy(z, y)


def test_a_device_reaches_itself_alone(drivers: Any) -> None:
    assert kl.can_access("cuda:1", "cuda:1") and not kl.can_access("cuda:1", "cuda:0")


# ------------------------------------------------------------------------------------------ pinned


def test_copies_to_and_from_pinned_memory(kernels: dict[str, Any], drivers: Any) -> None:
    here, there = kl.full(4, 3.0, pinned=True), kl.zeros(4, device="cuda:0")
    y, back = kl.empty_like(there), kl.zeros(4, pinned=True)
    assert here.pinned and back.pinned and not kl.zeros(4).pinned and not there.pinned
    kl.copy(there, here)
    kl.launch(kernels["double"], 4, [there, y])
    kl.copy(back, y)
    here.fill_(7.0)
    assert back.list() == [6] * 4 and there.list() == [3] * 4
    kl.launch(kernels["double"], 4, [back, here])
    assert here.list() == [12] * 4


def test_pinned_memory_goes_back(drivers: Any) -> None:
    gc.collect()
    count = len(SimulatedDriver._shared)
    x = counted("cuda:0")
    for _ in range(3):
        kl.copy(kl.zeros(4, pinned=True), x)
    gc.collect()
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
