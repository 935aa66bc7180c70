"""Launches on a device that return at once: what waits for them, and what is said when they go wrong."""

import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.backend.common import interrupts
from kernelab.backend.cuda import nvidia, synchronisation
from kernelab.backend.cuda.faults import LostError, fault
from kernelab.errors import KernelIndexError, KernelInterrupt
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

def keep(x: array[float], n: int, y: array[float]):
    i = tid()
    v = x[i]
    for k in range(n):
        v = sin(v) + 0.1
    y[i] = v

def keep_some(x: array[float], n: array[int], y: array[float]):
    i = tid()
    v = x[i]
    for k in range(n[i]):
        v = sin(v) + 0.1
    y[i] = v

def advance(x: array[float], n: int):
    i = tid()
    for k in range(n):
        x[i] = sin(x[i]) + 0.1
"""


@pytest.fixture(scope="module")
def kernels() -> dict[str, Any]:
    return kl.compile(TEXT)


@pytest.fixture
def driver(kernels: dict[str, Any]) -> Iterator[SimulatedDriver]:
    """A device of its own for each test: some of them are lost."""
    made = SimulatedDriver(1 << 20)
    with opened(made):
        yield made


def vectors(n: int = 4) -> Any:
    return kl.ones(n, device="cuda", requires_grad=True), kl.zeros(n, device="cuda", requires_grad=True)


def under_way(driver: SimulatedDriver) -> int:
    return len(OPEN["cuda:0"].backend.pending)


def test_launches_run_when_somebody_looks(kernels: dict[str, Any], driver: SimulatedDriver) -> None:
    x, y = vectors()
    for _ in range(3):
        kl.launch(kernels["double"], 4, [x, y])
        kl.launch(kernels["double"], 4, [y, x])
    assert len(driver.queues[0]) >= 6 and under_way(driver) == 6
    assert x.list() == [64] * 4 and not driver.queues[0] and not under_way(driver)


@pytest.mark.parametrize("how", ["numpy", "element", "print", "synchronize", "stream", "event", "sum"])
def test_whatever_waits_raises_what_went_wrong(how: str, kernels: dict[str, Any], driver: Any) -> None:
    x, y = vectors()
    kl.launch(kernels["double"], 4, [x, y])
    kl.launch(kernels["beyond"], 4, [x, y])
    kl.launch(kernels["double"], 4, [x, y])
    waits = {
        "numpy": lambda: y.numpy(),
        "element": lambda: y[0],
        "print": lambda: str(y),
        "synchronize": kl.synchronize,
        "stream": lambda: kl.synchronize_stream("cuda"),
        "event": lambda: kl.synchronize_event(kl.get_stream("cuda").record_event()),
        "sum": lambda: kl.utils.array_sum(y),
    }
    with pytest.raises(
        KernelIndexError, match=r"axis 0 of array `x` .* in thread 3 of `beyond`, launched in"
    ):
        waits[how]()
    kl.synchronize()  # it is said once, and the device goes on
    kl.launch(kernels["double"], 4, [x, y])
    assert y.list() == [2] * 4


def test_a_sweep_does_not_wait_either(kernels: dict[str, Any], driver: SimulatedDriver) -> None:
    x, y = vectors()
    with kl.Tape() as tape:
        kl.launch(kernels["double"], 4, [x, y])
    tape.backward(grads={y: kl.full(4, 3.0, device="cuda")})
    assert x.grad.list() == [6] * 4


def slope(values: Any, n: int) -> Any:
    """The derivatives of `n` steps of ``x = sin(x) + 0.1``."""
    slopes = np.ones_like(values)
    for _ in range(n):
        slopes *= np.cos(values)
        values = np.sin(values) + 0.1
    return slopes


@pytest.mark.parametrize("in_stream", [False, True])
def test_launches_that_save_for_loops_and_of_overwrites_have_ended_when_they_return(
    in_stream: bool, kernels: dict[str, Any], driver: SimulatedDriver
) -> None:
    stream = kl.Stream("cuda") if in_stream else None
    x, y = vectors(50)
    z = kl.ones(50, device="cuda", requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernels["keep"], 50, [x, 9, y], stream=stream)
        kl.launch(kernels["advance"], 50, [z, 7], stream=stream)
    tape.backward(grads={y: kl.ones(50, device="cuda"), z: kl.ones(50, device="cuda")})
    assert not under_way(driver)
    kl.full(5000, 9.0, device="cuda")  # may stand where the loops keep their values, once they have run
    np.testing.assert_allclose(x.grad.numpy(), slope(np.ones(50), 9), rtol=1e-5)
    np.testing.assert_allclose(z.grad.numpy(), slope(np.ones(50), 7), rtol=1e-5)


def test_a_launch_that_keeps_for_its_gradient_says_what_went_wrong_before_it(
    kernels: dict[str, Any], driver: SimulatedDriver
) -> None:
    x, y = vectors()
    kl.launch(kernels["beyond"], 4, [x, y])
    with kl.Tape() as tape:
        kl.launch(kernels["keep_some"], 4, [x, kl.full(4, 3, dtype=int, device="cuda"), y])
    with pytest.raises(KernelIndexError, match="of `beyond`, launched in"):
        tape.backward(grads={y: np.ones(4, np.float32)})


def test_arrays_may_go_before_what_uses_them_has_run(kernels: dict[str, Any], driver: Any) -> None:
    y = kl.zeros(100, device="cuda")
    for stream in (None, kl.Stream("cuda"), kl.Stream("cuda")):
        a, b = (kl.full(100, value, device="cuda") for value in (1.0, 0.0))
        kl.launch(kernels["double"], 100, [a, b], stream=stream)
        del a
        new = kl.full(100, 7.0, device="cuda")  # may stand where `a` did
        kl.launch(kernels["double"], 100, [b, y], stream=stream)
        assert y.list() == [4] * 100 and new.list() == [7] * 100


def test_streams_that_use_the_same_array_wait_for_each_other(kernels: dict[str, Any], driver: Any) -> None:
    streams = [kl.Stream("cuda") for _ in range(3)]
    x, y = vectors()
    for turn in range(6):
        kl.launch(kernels["double"], 4, [x, y] if turn % 2 == 0 else [y, x], stream=streams[turn % 3])
    del streams
    assert y.list() == [32] * 4 and x.list() == [64] * 4


def test_so_many_launches_as_one_likes_may_be_under_way(
    kernels: dict[str, Any], driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synchronisation, "MOST", 5)
    x, y = vectors()
    for _ in range(12):
        kl.launch(kernels["double"], 4, [x, y])
    assert under_way(driver) <= 5 and y.list() == [2] * 4


def test_an_illegal_address_names_the_launches_and_how_to_go_on(
    kernels: dict[str, Any], driver: SimulatedDriver
) -> None:
    x, y = vectors()

    def broken() -> None:
        raise fault("CUDA_ERROR_ILLEGAL_ADDRESS", "running a kernel", "cuda:0")

    kl.launch(kernels["double"], 4, [x, y])
    driver.queues[0].append(broken)
    with pytest.raises(LostError) as caught:
        kl.synchronize()
    said = str(caught.value)
    assert "running `double` (test_waiting.py, line" in said and "outside of all arrays" in said
    assert "everything on the device is lost" in said and "restart the notebook's kernel" in said
    for again in (
        lambda: kl.launch(kernels["double"], 4, [x, y]),
        y.numpy,
        lambda: kl.zeros(3, device="cuda"),
    ):
        with pytest.raises(LostError, match="running `double`"):
            again()


def test_what_a_lost_device_held_goes_without_a_word(
    kernels: dict[str, Any], driver: SimulatedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver takes nothing back any more: every call fails as the first one did."""

    def broken(*_: object) -> None:
        raise fault("CUDA_ERROR_ILLEGAL_ADDRESS", "giving something back", "cuda:0")

    x, pinned = kl.ones(4, device="cuda", requires_grad=True), kl.zeros(4, pinned=True)
    stream, event, tape = kl.Stream("cuda"), kl.Event("cuda"), kl.Tape()
    with tape:
        kl.launch(kernels["advance"], 4, [x, 3])
    driver.queues[0].append(broken)
    with pytest.raises(LostError):
        kl.synchronize()
    for name in ("free", "unshare", "close_stream", "close_event"):
        monkeypatch.setattr(driver, name, broken)
    del x, pinned, stream, event, tape
    gc.collect()  # what is raised there would fail the test


def test_several_launches_may_have_lost_the_device(kernels: dict[str, Any], driver: SimulatedDriver) -> None:
    x, y = vectors()
    for _ in range(6):
        kl.launch(kernels["double"], 4, [x, y])

    def broken() -> None:
        raise fault("CUDA_ERROR_LAUNCH_FAILED", "running a kernel", "cuda:0")

    driver.queues[0].append(broken)
    with pytest.raises(LostError, match=r"(?s)one of the launches `double`.* and 2 more .*shows which one"):
        y.numpy()


def test_a_thread_of_an_interrupted_cell_stops_its_launches_and_sees_them_end(
    kernels: dict[str, Any], driver: SimulatedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = vectors()
    waits, told = threading.Event(), []

    def wait(stream: int = 0) -> None:  # that of a device on which the launch runs on and on
        waits.set()
        nvidia._wait_until(lambda: False)

    def work() -> None:
        kl.launch(kernels["double"], 4, [x, y])
        with pytest.raises(KernelInterrupt, match="the kernel `double` was interrupted"):
            kl.synchronize()
        told.append(len(driver.queue(0)))

    monkeypatch.setattr(driver, "wait", wait)
    interrupts.cell_begins()
    thread = threading.Thread(target=work)
    thread.start()
    waits.wait()
    interrupts.cell_was_interrupted()
    thread.join()
    interrupts.leave_notebook()
    assert told == [0]
    monkeypatch.undo()
    kl.launch(kernels["double"], 4, [x, y])
    assert y.list() == [2] * 4


def test_an_interrupt_stops_what_is_under_way(
    kernels: dict[str, Any], driver: SimulatedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = vectors()
    kl.launch(kernels["double"], 4, [x, y])
    usual, turns = driver.finished, iter([KeyboardInterrupt])

    def pressed(stream: int = 0) -> bool:
        for key in turns:
            raise key
        return usual(stream)

    monkeypatch.setattr(driver, "finished", pressed)
    with pytest.raises(KernelInterrupt, match="the kernel `double` was interrupted"):
        kl.synchronize()
    monkeypatch.undo()
    kl.launch(kernels["double"], 4, [x, y])
    assert y.list() == [2] * 4
