"""What a launch keeps of what it overwrites is bounded: beyond the bound it ends, and says where."""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.backend.cpu import chunk
from kernelab.backend.cpu.cpu_backend import CpuEntry
from kernelab.backend.cpu.cpu_backend import _Block as Block
from kernelab.errors import KernelInterrupt, KernelMemoryError
from kernelab.runtime.kernel import dispatch

TEXT = """
def endless(a: array[float64]):
    i = tid()
    while a[i] < 2.0:
        a[i] = sin(a[i])

def steps(a: array[float64], n: int):
    i = tid()
    for k in range(n):
        a[i] = sin(a[i]) * a[i] + 0.1

def two_arrays(a: array[float64], b: array[float64]):
    i = tid()
    a[i] *= a[i]
    b[i] *= b[i] * a[i]

def swept_again(a: array[float64], n: int):
    i = tid()
    s = a[i]
    for k in range(n, adjoint="recompute"):
        s = sin(s) * a[i]
    a[i] = s

def forward(trajectory: array2d[float64], t: int):
    i = tid()
    trajectory[t + 1, i] = sin(trajectory[t, i]) * trajectory[t, i]
"""
THREADS = 3
SQUARE = kl.compile("""
def square(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]
""")["square"]


@pytest.fixture(params=["cpu", "interp"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("KERNELAB_BACKEND", request.param)
    return kl.compile(TEXT)


@pytest.fixture
def config() -> Iterator[Any]:
    before = kl.config.kept_memory
    yield kl.config
    kl.config.kept_memory = before


def gradient(kernel: Any, *more: Any) -> Any:
    a = kl.array(np.full(THREADS, 0.5), dtype=kl.float64, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernel, THREADS, [a, *more])
    tape.backward(grads={a: np.ones(THREADS)})
    return a.grad.numpy()


def test_a_loop_that_never_ends_is_ended_at_the_line_that_keeps(kernels: dict[str, Any], config: Any) -> None:
    config.kept_memory = 200_000
    with pytest.raises(KernelMemoryError, match=r"`endless` would take more than 200 kB for values that"):
        gradient(kernels["endless"])
    with pytest.raises(KernelMemoryError, match=r"line 4\n[^\n]*while a\[i\] < 2.0"):
        gradient(kernels["endless"])
    with pytest.raises(
        KernelMemoryError, match=r"hint: write results to another array.*kl\.config\.kept_memory"
    ):
        gradient(kernels["endless"])


def test_a_launch_goes_on_as_before_after_one_that_was_ended(kernels: dict[str, Any], config: Any) -> None:
    expected = gradient(kernels["steps"], 20)
    config.kept_memory = 100
    with pytest.raises(KernelMemoryError):
        gradient(kernels["steps"], 20)
    config.kept_memory = None
    np.testing.assert_array_equal(gradient(kernels["steps"], 20), expected)


def test_what_fits_to_the_last_byte_is_kept(config: Any) -> None:
    kernel = kl.compile(TEXT)["steps"]
    expected = gradient(kernel, 2000)
    config.kept_memory = 8 * THREADS * 2000
    np.testing.assert_array_equal(gradient(kernel, 2000), expected)
    config.kept_memory = 8 * THREADS * 2000 - 1
    with pytest.raises(KernelMemoryError, match=r"ended in thread 2,"):
        gradient(kernel, 2000)


def test_all_residuals_of_a_launch_count_together(config: Any) -> None:
    kernel = kl.compile(TEXT)["two_arrays"]
    a, b = (kl.array(np.full(400, 0.5), dtype=kl.float64, requires_grad=True) for _ in range(2))
    with kl.Tape() as tape:
        kl.launch(kernel, 400, [a, b])
    sizes = [kept.size for kept in tape.launches[0].residuals[::2]]
    assert len(sizes) >= 2
    for room, fits in ((8 * sum(sizes) - 8, False), (16 * sum(sizes), True)):
        config.kept_memory = room
        with kl.Tape() as tape:
            if fits:
                kl.launch(kernel, 400, [a, b])
            else:
                with pytest.raises(KernelMemoryError):
                    kl.launch(kernel, 400, [a, b])


def test_transforms_keep_no_more(kernels: dict[str, Any], config: Any) -> None:
    def f(x: Any) -> Any:
        a = kl.clone(x)
        kernels["steps"][1](a, 50)
        return a

    x = kl.array([0.5], dtype=kl.float64)
    kl.func.hessian(f)(x)
    config.kept_memory = 100
    with pytest.raises(KernelMemoryError, match="would take more than 100 bytes"):
        kl.func.grad(f)(x)


def test_transforms_keep_nothing_of_rows_that_stay_as_they_were(kernels: dict[str, Any], config: Any) -> None:
    def f(x: Any) -> Any:
        trajectory = kl.zeros((4, 1), dtype=kl.float64)
        trajectory[0].assign(x)
        for t in range(3):
            kernels["forward"][1](trajectory, t)
        return trajectory[3]

    x = kl.array([0.7], dtype=kl.float64)
    expected = kl.func.jvp(f, (x,), (kl.ones_like(x),))[1].numpy()
    config.kept_memory = 1
    np.testing.assert_allclose(kl.func.grad(f)(x).numpy(), expected, rtol=1e-12)


def test_a_loop_that_runs_again_to_be_swept_saves_no_more(kernels: dict[str, Any], config: Any) -> None:
    gradient(kernels["swept_again"], 500)
    config.kept_memory = 1000
    with pytest.raises(KernelMemoryError, match=r"(?s)more than 1000 bytes.*for k in range"):
        gradient(kernels["swept_again"], 500)


def overwritten(steps: int) -> kl.Tape:
    x, y = (kl.ones(1000, requires_grad=True) for _ in range(2))
    with kl.Tape() as tape:
        for _ in range(steps):
            kl.launch(SQUARE, dim=1000, inputs=[x], outputs=[y])
            kl.launch(SQUARE, dim=1000, inputs=[y], outputs=[x])
    return tape


def test_what_a_tape_keeps_of_overwritten_arrays_is_bounded(config: Any) -> None:
    config.kept_memory = 40_000
    overwritten(5)
    with pytest.raises(KernelMemoryError, match=r"(?s)`x` is overwritten.*keeps 40,000 bytes.*kl.checkpoint"):
        overwritten(6)
    config.kept_memory = 0
    overwritten(6)


def test_what_launches_in_place_keep_counts_together(config: Any) -> None:
    kernel = kl.compile(TEXT)["steps"]
    config.kept_memory = 8 * THREADS * 50
    a = kl.array(np.full(THREADS, 0.5), dtype=kl.float64, requires_grad=True)
    with kl.Tape() as tape:
        for _ in range(5):
            kl.launch(kernel, THREADS, [a, 10])
        with pytest.raises(
            KernelMemoryError, match=r"the tape keeps 1,200 bytes already(?s:.*)hint: run .* kl.checkpoint"
        ):
            kl.launch(kernel, THREADS, [a, 10])
    tape.reset()
    with tape:
        kl.launch(kernel, THREADS, [a, 50])


def test_half_of_the_free_memory_may_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert dispatch.free_memory() or not Path("/proc/meminfo").exists()
    for free, room in ((None, None), (1 << 30, 1 << 29), (10, dispatch.LEAST)):
        monkeypatch.setattr(dispatch, "_free_memory_at", lambda _, free=free: free)
        assert dispatch.room_to_keep() == room


def interrupt_in_launch(thread: int) -> None:
    """Send an interrupt once the code of a launch runs in a thread: it is found there again and again."""
    inside, seen = (CpuEntry.__call__.__code__, CpuEntry._run_vectors.__code__, Block.run.__code__), 0
    while seen < 5:
        stack = [frame.f_code for frame, _ in traceback.walk_stack(sys._current_frames()[thread])]
        is_inside = stack[0] in inside or any(code.co_filename == chunk.__file__ for code in stack)
        seen = seen + 1 if is_inside else 0
        threading.Event().wait(0.002)
    os.kill(os.getpid(), signal.SIGINT)


def test_a_launch_that_keeps_can_be_interrupted(kernels: dict[str, Any], config: Any) -> None:
    config.kept_memory = 1000
    with pytest.raises(KernelMemoryError):
        gradient(kernels["endless"])  # which builds it: a build that is interrupted says something else
    config.kept_memory = 1 << 31
    other = threading.Thread(target=interrupt_in_launch, args=(threading.get_ident(),))
    # A process in the background ignores interrupts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    other.start()
    try:
        with pytest.raises(KernelInterrupt, match="`endless` was interrupted"):
            gradient(kernels["endless"])
    finally:
        other.join()
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "1 GB"])
def test_a_wrong_bound_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"^kept_memory is a number of bytes, 0 for any number, or None"):
        kl.config.kept_memory = wrong
