"""Launches captured as a graph on a simulated device, and run again."""

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import KernelIndexError, KernelMemoryError, LaunchError
from kernelab.runtime.memory.spaces import OPEN
from tests.support.devices import opened
from tests.support.hardware import Watched, open_device

TEXT = """
def double(x: array[float], y: array[float]):
    i = tid()
    y[i] = 2.0 * x[i]

def step(x: array[float], v: array[float], dt: float):
    i = tid()
    v[i] = v[i] - dt * x[i]
    x[i] = x[i] + dt * v[i]

def keep(x: array[float], n: int, y: array[float]):
    i = tid()
    v = x[i]
    for k in range(n):
        v = sin(v) + 0.1
    y[i] = v

def advance(x: array[float], n: int):
    i = tid()
    for k in range(n):
        x[i] = sin(x[i]) + 0.1

def advance_some(x: array[float], n: array[int]):
    i = tid()
    for k in range(n[i]):
        x[i] = sin(x[i]) + 0.1

def energy(y: array[float], e: array[float]):
    i = tid()
    e[0] += y[i] * y[i]

def pick(x: array[float], at: array[int], y: array[float]):
    i = tid()
    y[i] = x[at[i]]

def never(x: array[float]):
    i = tid()
    x[i] = 0.0
"""


@pytest.fixture(scope="module", autouse=True)
def driver() -> Iterator[Watched]:
    made = open_device(1 << 20)
    with opened(made):
        yield made


@pytest.fixture(scope="module")
def kernels(driver: Watched) -> dict[str, Any]:
    """The kernels, of which some have been launched on the device."""
    made = kl.compile(TEXT)
    x, y = kl.zeros(2, device="cuda"), kl.zeros(2, device="cuda")
    kl.launch(made["double"], 2, [x, y])
    return made


def on_device(*values: float) -> Any:
    return kl.array(list(values), dtype=float, device="cuda", requires_grad=True)


def test_what_is_captured_runs_whenever_the_graph_does(kernels: dict[str, Any], driver: Any) -> None:
    x, v = on_device(1.0, 2.0), on_device(0.0, 0.0)
    kl.launch(kernels["step"], 2, [x, v, 0.5])
    expected, speed = x.numpy(), v.numpy()
    x[0] = expected[0]  # what the host has written before goes to the device before
    with kl.ScopedCapture("cuda") as capture:
        for _ in range(3):
            kl.launch(kernels["step"], 2, [x, v, 0.5])
    assert len(capture.graph) == 3 and "3 launches on cuda:0" in repr(capture.graph)
    np.testing.assert_array_equal(x.numpy(), expected)
    driver.launches.clear()
    for _ in range(2):
        kl.capture_launch(capture.graph)
    assert not driver.launches and driver.replays >= 2
    for _ in range(6):
        speed = speed - np.float32(0.5) * expected
        expected = expected + np.float32(0.5) * speed
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-5)
    x.fill_(1.0)  # and what it writes between, too
    v.fill_(0.0)
    kl.capture_launch(capture.graph)
    assert v.list() == [-0.5 - 0.375 - 0.15625] * 2


def forward_and_back(kernels: dict[str, Any], x: Any, y: Any, e: Any) -> None:
    e.zero_()
    with kl.Tape() as tape:
        kl.launch(kernels["keep"], x.size, [x, 3, y])
        kl.launch(kernels["energy"], x.size, [y, e])
    tape.backward(e)


@pytest.mark.parametrize("in_stream", [False, True])
def test_a_tape_and_its_sweep_are_one_graph(in_stream: bool, kernels: dict[str, Any], driver: Any) -> None:
    x, y, e = on_device(0.1, 0.2, 0.3), on_device(0, 0, 0), on_device(0)
    stream = kl.Stream("cuda") if in_stream else None
    for _ in range(2):  # builds what it takes: the second sweep adds to gradients
        forward_and_back(kernels, x, y, e)
    with kl.ScopedCapture("cuda", stream=stream) as capture:
        forward_and_back(kernels, x, y, e)
    gc.collect()
    driver.launches.clear()
    for values in ([0.1, 0.2, 0.3], [0.5, -0.4, 1.0]):
        x.assign(np.array(values, np.float32))
        x.grad.zero_()
        kl.capture_launch(capture.graph, stream)
        kl.capture_launch(capture.graph)  # gradients of leaves grow
        here = kl.array(values, dtype=float, requires_grad=True)
        there, loss = kl.zeros(3, requires_grad=True), kl.zeros(1, requires_grad=True)
        forward_and_back(kernels, here, there, loss)
        np.testing.assert_allclose(e.numpy(), loss.numpy(), rtol=1e-5)
        np.testing.assert_allclose(x.grad.numpy(), 2 * here.grad.numpy(), rtol=1e-5)
    assert not driver.launches


def test_gradients_that_a_tape_sets_to_zero_are_zero_in_each_run_of_a_graph(kernels: dict[str, Any]) -> None:
    x, y, e = on_device(1.0, 2.0, 3.0), on_device(0, 0, 0), on_device(0)
    optimizer = kl.optim.SGD([x], lr=0.25)  # with state, where there is any, on the device of the parameter

    def train() -> None:
        e.zero_()
        with kl.Tape() as tape:
            kl.launch(kernels["double"], 3, [x, y])
            kl.launch(kernels["energy"], 3, [y, e])
        tape.backward(e)  # 8 x
        optimizer.step()
        tape.zero()

    train(), train()
    with kl.ScopedCapture("cuda") as capture:
        train()
    for _ in range(3):
        kl.capture_launch(capture.graph)
    assert x.list() == [(-1.0) ** 5, 2.0 * (-1.0) ** 5, 3.0 * (-1.0) ** 5]


FILLS = {
    "float64": (2.5, [2.5, 2.5]),
    "int64": (3, [3, 3]),
    "vec3": (kl.vec3(1.0, 2.0, 3.0), [[1.0, 2.0, 3.0]] * 2),
    "mat22d": (kl.mat22d(1.0, 2.0, 3.0, 4.0), [[[1.0, 2.0], [3.0, 4.0]]] * 2),
}


@pytest.mark.parametrize("dtype", FILLS)
def test_a_graph_fills_arrays_with_any_value(dtype: str, driver: Watched) -> None:
    value, expected = FILLS[dtype]
    x, every_other = (kl.zeros(n, dtype=getattr(kl, dtype), device="cuda") for n in (2, 4))

    def fill() -> None:
        x.fill_(value)
        every_other[::2].fill_(value)

    fill()
    with kl.ScopedCapture("cuda") as capture:
        fill()
    x.zero_()
    every_other.zero_()
    kl.capture_launch(capture.graph)
    assert x.numpy().tolist() == every_other.numpy()[::2].tolist() == expected
    assert not every_other.numpy()[1::2].any()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_cotangent_of_a_captured_loss_is_set_in_each_run(dtype: str, driver: Watched) -> None:
    text = f"def total(x: array[{dtype}], l: array[{dtype}]):\n    i = tid()\n    l[0] += x[i] * x[i]\n"
    total, made = kl.compile(text)["total"], {"dtype": getattr(kl, dtype), "device": "cuda"}
    x, loss = kl.array([1.0, 2.0], requires_grad=True, **made), kl.zeros(1, requires_grad=True, **made)

    def step() -> None:
        x.grad.zero_()
        loss.zero_()
        with kl.Tape() as tape:
            kl.launch(total, 2, [x, loss])
        tape.backward(loss)

    step()
    with kl.ScopedCapture("cuda") as capture:
        step()
    kl.capture_launch(capture.graph)
    assert x.grad.list() == [2.0, 4.0]


def test_what_the_host_writes_behind_a_captured_use_is_refused(kernels: dict[str, Any]) -> None:
    x, y = on_device(1, 2), on_device(0, 0)

    def write_behind() -> None:
        kl.launch(kernels["double"], 2, [x, y])
        x.assign(np.ones(2, np.float32))

    capture = kl.ScopedCapture("cuda")
    with pytest.raises(LaunchError, match="the graph would not write it again"):
        _captured(capture, write_behind)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda x: kl.optim.Adam([x]), "Adam counts a step on the host while"),
        (lambda x: kl.optim.SGD([x], momentum=0.5), "SGD takes its first step while"),
    ],
)
def test_steps_that_a_graph_would_count_as_one_are_refused(make: Any, said: str) -> None:
    x = on_device(1, 2)
    x.grad.zero_()
    optimizer = make(x)
    with pytest.raises(LaunchError, match=said):
        _captured(kl.ScopedCapture("cuda"), optimizer.step)
    optimizer.step()
    assert all(state.device.is_cuda for states in optimizer._state for state in states)


def test_a_graph_holds_what_its_launches_keep_of_what_they_overwrite(
    kernels: dict[str, Any], driver: Any
) -> None:
    x, y = on_device(0.1, 0.2, 0.3), on_device(0, 0, 0)

    def step() -> None:
        kl.copy(y, x)
        with kl.Tape() as tape:
            kl.launch(kernels["advance"], 3, [y, 4])
        tape.backward(grads={y: kl.ones(3, device="cuda")})

    step(), step()
    with kl.ScopedCapture("cuda") as capture:
        step()
    gc.collect()
    others = [kl.full(300, 9.0, device="cuda") for _ in range(4)]
    for values in ([0.1, 0.2, 0.3], [0.5, -0.4, 1.0]):
        x.assign(np.array(values, np.float32))
        y.grad.zero_()
        kl.capture_launch(capture.graph)
        found, slopes = np.array(values), np.ones(3)
        for _ in range(4):
            slopes *= np.cos(found)
            found = np.sin(found) + 0.1
        np.testing.assert_allclose(y.numpy(), found, rtol=1e-5)
        np.testing.assert_allclose(y.grad.numpy(), slopes, rtol=1e-5)
    assert all(other.list() == [9] * 300 for other in others)


def advanced(values: Any, steps: int) -> tuple[Any, Any]:
    """So many steps of ``x = sin(x) + 0.1``, and the derivatives."""
    found, slopes = np.array(values), np.ones(len(values))
    for _ in range(steps):
        slopes *= np.cos(found)
        found = np.sin(found) + 0.1
    return found, slopes


def test_a_graph_has_room_for_as_many_overwritten_values_as_there_were(kernels: dict[str, Any]) -> None:
    x, y = on_device(0.1, 0.2, 0.3), on_device(0, 0, 0)
    n, ones = kl.full(3, 4, dtype=int, device="cuda"), kl.ones(3, device="cuda")

    def step() -> None:
        kl.copy(y, x)
        with kl.Tape() as tape:
            kl.launch(kernels["advance_some"], 3, [y, n])
        tape.backward(grads={y: ones})

    step(), step()
    with kl.ScopedCapture("cuda") as capture:
        step()
    for steps in (4, 2):
        n.fill_(steps)
        y.grad.zero_()
        kl.capture_launch(capture.graph)
        found, slopes = advanced([0.1, 0.2, 0.3], steps)
        np.testing.assert_allclose(y.numpy(), found, rtol=1e-5)
        np.testing.assert_allclose(y.grad.numpy(), slopes, rtol=1e-5)
    n.fill_(9)
    kl.capture_launch(capture.graph)
    with pytest.raises(KernelMemoryError, match=r"keeps more values .* than when it was captured") as caught:
        y.numpy()
    assert "x[i] = sin(x[i]) + 0.1" in str(caught.value) and "make its loops longest" in str(caught.value)
    step(), step()
    with kl.ScopedCapture("cuda") as again:
        step()
    kl.capture_launch(again.graph)
    np.testing.assert_allclose(y.numpy(), advanced([0.1, 0.2, 0.3], 9)[0], rtol=1e-5)


def test_cotangents_that_a_graph_computes_are_those_of_each_run(kernels: dict[str, Any]) -> None:
    x, y, factor, seed = on_device(1, 2, 3), on_device(0, 0, 0), on_device(1, 1, 1), on_device(0, 0, 0)

    def step() -> None:
        with kl.Tape() as tape:
            kl.launch(kernels["double"], 3, [x, y])
        kl.launch(kernels["double"], 3, [factor, seed])
        tape.backward(grads={y: seed})

    step(), step()
    with kl.ScopedCapture("cuda") as capture:
        step()
    for value in (1.0, 5.0):
        factor.fill_(value)
        x.grad.zero_()
        kl.capture_launch(capture.graph)
        assert x.grad.list() == [4 * value] * 3


def test_a_graph_keeps_what_a_tape_kept_that_nobody_went_back(kernels: dict[str, Any]) -> None:
    x = on_device(0.1, 0.2, 0.3)

    def forward() -> None:
        with kl.Tape():
            kl.launch(kernels["advance"], 3, [x, 4])

    forward()
    with kl.ScopedCapture("cuda") as capture:
        forward()
    gc.collect()
    ones, others = kl.ones(300, device="cuda"), [kl.zeros(300, device="cuda") for _ in range(8)]
    for other in others:
        kl.launch(kernels["double"], 300, [ones, other])
    kl.capture_launch(capture.graph)
    assert all(other.list() == [2] * 300 for other in others)


def test_a_graph_keeps_the_memory_that_it_uses(kernels: dict[str, Any], driver: Any) -> None:
    gc.collect()
    before = set(driver.taken)
    x, y = on_device(1, 2, 3), on_device(0, 0, 0)
    with kl.ScopedCapture("cuda") as capture:
        between = kl.zeros(3, device="cuda")
        kl.launch(kernels["double"], 3, [x, between])
        kl.launch(kernels["double"], 3, [between, y])
    del between
    others = [kl.full(3, 9.0, device="cuda") for _ in range(4)]
    kl.capture_launch(capture.graph)
    assert y.list() == [4, 8, 12] and all(other.list() == [9] * 3 for other in others)
    graph = capture.graph
    del capture, others, x, y
    kl.capture_launch(graph)
    del graph
    kl.synchronize()
    gc.collect()
    assert set(driver.taken) == before


def test_launches_of_a_capture_come_one_after_another_whatever_their_streams(kernels: dict[str, Any]) -> None:
    x, y, z = on_device(1, 2), on_device(0, 0), on_device(0, 0)
    one, two = kl.Stream("cuda"), kl.Stream("cuda")
    with kl.ScopedCapture("cuda") as capture:
        kl.launch(kernels["double"], 2, [x, y], stream=one)
        kl.launch(kernels["double"], 2, [y, z], stream=two)
        del one
        kl.launch(kernels["double"], 2, [z, x])
    kl.capture_launch(capture.graph, two)
    assert x.list() == [8, 16] and z.list() == [4, 8]


def test_streams_of_a_capture_wait_for_each_other_by_events(kernels: dict[str, Any]) -> None:
    """Also those into which nothing comes, and for what was recorded before."""
    x, y, z = on_device(1, 2), on_device(0, 0), on_device(0, 0)
    one, two, idle = (kl.Stream("cuda") for _ in range(3))
    before = one.record_event()
    with kl.ScopedCapture("cuda") as capture:
        two.wait_event(before)
        with kl.ScopedStream(one):
            kl.launch(kernels["double"], 2, [x, y])
            done = one.record_event()
        two.wait_event(done)
        idle.wait_stream(one)
        two.wait_stream(idle)
        kl.launch(kernels["double"], 2, [y, z], stream=two)
    kl.capture_launch(capture.graph)
    assert z.list() == [4, 8]
    for cause in (lambda: done.is_complete, done.synchronize, lambda: two.wait_event(done)):
        with pytest.raises(LaunchError, match=r"recorded while launches were captured(.|\n)*kl.record_event"):
            cause()
    two.record_event(done)
    done.synchronize()
    assert done.is_complete and two.is_complete


def test_a_failure_in_a_graph_names_the_launch(kernels: dict[str, Any]) -> None:
    x, y, at = on_device(1, 2), on_device(0, 0), kl.array([0, 1], dtype=int, device="cuda")
    kl.launch(kernels["pick"], 2, [x, at, y])
    with kl.ScopedCapture("cuda") as capture:
        kl.launch(kernels["pick"], 2, [x, at, y])
    kl.capture_launch(capture.graph)
    assert y.list() == [1, 2]
    at.fill_(7)
    kl.capture_launch(capture.graph)
    with pytest.raises(KernelIndexError, match=r"index 7 .* of `pick`, launched in test_capture.py"):
        y.numpy()
    at.fill_(1)
    kl.capture_launch(capture.graph)
    assert y.list() == [2, 2]


def test_a_tape_that_needs_what_a_graph_overwrites_is_told(kernels: dict[str, Any]) -> None:
    x, y, e = on_device(1, 2), on_device(0, 0), on_device(0)
    with kl.ScopedCapture("cuda") as capture:
        kl.launch(kernels["double"], 2, [x, y])
    kl.launch(kernels["energy"], 2, [y, e])
    with kl.Tape(overwrite="save") as tape:
        y.fill_(3.0)
        kl.launch(kernels["energy"], 2, [y, e])
    kl.capture_launch(capture.graph)
    tape.backward(e)
    assert y.grad.list() == [6, 6] and y.list() == [2, 4]
    with kl.Tape(), pytest.raises(LaunchError, match="a tape cannot see what the launches of a graph do"):
        kl.capture_launch(capture.graph)


def _captured(capture: Any, cause: Any) -> None:
    with capture:
        cause()


def test_what_cannot_be_captured_says_what_to_do(kernels: dict[str, Any], driver: Any) -> None:
    x, y = on_device(1, 2), on_device(0, 0)
    kl.launch(kernels["step"], 2, [x, y, 0.0])
    x.list()
    refusals = {
        "looks at an array while launches on cuda:0 are captured": lambda: y.numpy(),
        "a device is waited for while": kl.synchronize,
        "a stream is looked at while": lambda: kl.get_stream("cuda").is_complete,
        "in a stream of another library while": lambda: kl.Stream("cuda", cuda_stream=0x99).record_event(),
        "an array is shared with another library while": lambda: y.__dlpack__(),
        "the host has written an array while": lambda: kl.copy(y, kl.array([1.0, 2.0], device="cuda")),
        "a capture begins while": lambda: kl.capture_begin("cuda"),
        r"`never` is not built for cuda:0 yet(.|\n)*run the block before": lambda: kl.launch(
            kernels["never"], 2, [x]
        ),
        "`double` runs on the CPU while": lambda: kl.launch(kernels["double"], 2, [kl.ones(2), kl.ones(2)]),
    }
    kl.launch(kernels["double"], 2, [x, y])
    for said, cause in refusals.items():
        capture = kl.ScopedCapture("cuda")
        with pytest.raises(LaunchError, match=said):
            _captured(capture, cause)
        assert capture.graph is None and OPEN["cuda:0"].capture is None
    assert y.list() == [2, 4]


def test_a_launch_that_needs_another_build_is_refused_until_it_has_run(kernels: dict[str, Any]) -> None:
    x, y = on_device(1, 2, 3), on_device(0, 0, 0)
    capture = kl.ScopedCapture("cuda")
    with pytest.raises(
        LaunchError, match=r"`double`, launched in test_capture\.py.*takes another build"
    ) as caught:
        _captured(capture, lambda: kl.launch(kernels["double"], 3, [x[::-1], y]))
    assert "run the block once with these arrays" in str(caught.value)
    kl.launch(kernels["double"], 3, [x[::-1], y])
    with kl.ScopedCapture("cuda") as again:
        kl.launch(kernels["double"], 3, [x[::-1], y])
    y.zero_()
    kl.capture_launch(again.graph)
    assert y.list() == [6, 4, 2]


def _in_a_thread(cause: Any) -> BaseException | None:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(cause).exception()


def test_other_threads_stay_out_of_a_capture(kernels: dict[str, Any]) -> None:
    x, y, z = on_device(1, 2), on_device(0, 0), on_device(5, 5)
    here, there = kl.ones(2), kl.zeros(2)
    event = kl.get_stream("cuda").record_event()
    causes = {
        "an event is recorded while another": lambda: kl.get_stream("cuda").record_event(),
        "a stream is to wait while another": lambda: kl.get_stream("cuda").wait_event(event),
        "`double` is launched while another": lambda: kl.launch(kernels["double"], 2, [x, z]),
        "memory is copied or cleared while another": lambda: kl.copy(z, x),
        "a capture ends while another": lambda: kl.capture_end("cuda"),
        "a device is waited for while": kl.synchronize,
    }
    with kl.ScopedCapture("cuda") as capture:
        for said, cause in causes.items():
            problem = _in_a_thread(cause)
            assert isinstance(problem, LaunchError) and said in str(problem)
        assert _in_a_thread(lambda: kl.launch(kernels["double"], 2, [here, there])) is None
        kl.launch(kernels["double"], 2, [x, y])
    assert there.list() == [2, 2] and len(capture.graph) == 1
    kl.capture_launch(capture.graph)
    assert y.list() == [2, 4] and z.list() == [5, 5]
    assert _in_a_thread(lambda: kl.launch(kernels["double"], 2, [x, z])) is None and z.list() == [2, 4]


def test_what_is_no_graph_or_on_the_cpu_is_refused(driver: Any) -> None:
    with pytest.raises(LaunchError, match="captured on a CUDA device, and this is the CPU"):
        kl.capture_begin()
    with pytest.raises(LaunchError, match="no launches are being captured on cuda:0"):
        kl.capture_end("cuda")
    with pytest.raises(LaunchError, match="takes a graph, not None"):
        kl.capture_launch(None)
    with pytest.raises(LaunchError, match="cannot join a capture"):
        kl.capture_begin("cuda", external=True)
