"""A quick build serves first, a better one as soon as it is there: on a simulated device, and by NVRTC."""

import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

import kernelab as kl
from kernelab.backend.common.tiered import BETTER, LULL, Worker, beside, compiler_runs
from kernelab.backend.cuda import nvrtc
from kernelab.backend.cuda.faults import fault
from kernelab.errors import BuildError, Diagnostic, KernelWarning
from kernelab.runtime.memory.spaces import OPEN
from kernelab.settings import changed_settings, settings
from tests.support.devices import WatchfulSpace
from tests.support.simulated import SimulatedDriver


class Hurrying(SimulatedDriver):
    """A device that notes how it was asked to build; better builds wait for `go`, and fail for `problem`."""

    hurries = True

    def __init__(self) -> None:
        super().__init__(1 << 20)
        self.builds: list[str] = []
        self.builders: set[int] = set()
        self.quick = threading.Semaphore(0)
        self.launched: list[object] = []
        self.go = threading.Event()
        self.problem: Exception | None = None

    def compile(self, text: str, quickly: bool = False) -> bytes:
        self.builds.append("quick" if quickly else "full")
        if not quickly:
            assert self.go.wait(60)
            if self.problem is not None:
                raise self.problem
        made = super().compile(text)
        self.builders.add(threading.get_ident())
        if quickly:
            self.quick.release()
        return made

    def load(self, code: bytes, symbol: str) -> object:
        function = super().load(code, symbol)
        return lambda *given: function(*given)  # another object for each time it is loaded

    def launch(self, function: object, *given: Any) -> None:
        self.launched.append(function)
        super().launch(function, *given)


@pytest.fixture
def driver(empty_cache: Path) -> Iterator[Hurrying]:
    made = Hurrying()
    OPEN["cuda:0"] = WatchfulSpace("cuda:0", made)
    yield made
    made.go.set()
    BETTER.wait(60)
    del OPEN["cuda:0"]


def scaled(factor: float) -> Any:
    """A kernel that no test has built before."""
    return kl.compile(f"""
def scale(x: array[float], y: array[float]):
    i = tid()
    y[i] = {factor} * x[i]
""")["scale"]


def launched(kernel: Any) -> list[float]:
    y = kl.zeros(3, device="cuda")
    kl.launch(kernel, 3, [kl.ones(3, device="cuda")], [y])
    found: list[float] = y.list()
    return found


def test_launches_run_the_better_build_once_it_is_there(driver: Hurrying) -> None:
    kernel = scaled(2.5)
    assert launched(kernel) == launched(kernel) == [2.5] * 3
    assert driver.builds[0] == "quick" and driver.launched[0] is driver.launched[1]
    driver.go.set()
    BETTER.wait(60)
    assert launched(kernel) == launched(kernel) == [2.5] * 3
    assert driver.builds == ["quick", "full"]
    assert driver.launched[2] is driver.launched[3] is not driver.launched[0]


def test_the_adjoint_is_built_while_the_primal_runs(driver: Hurrying) -> None:
    kernel, here = scaled(8.5), threading.get_ident()
    x, y = (kl.ones(3, device="cuda", requires_grad=True) for _ in range(2))
    with kl.Tape() as tape:
        kl.launch(kernel, 3, [x], [y])
    assert driver.quick.acquire(timeout=60) and driver.quick.acquire(timeout=60)
    assert driver.builders - {here}
    driver.builds.clear()
    tape.backward(grads={y: kl.ones(3, device="cuda")})
    assert x.grad is not None and x.grad.list() == [8.5] * 3 and "quick" not in driver.builds


def test_better_builds_begin_when_nobody_waits_for_one() -> None:
    worker, begun = Worker(), threading.Event()

    def build() -> bytes:
        begun.set()
        return b"code"

    with worker.urgent():
        pending = worker.begin(build)
        assert not begun.wait(2 * LULL)
    released = time.monotonic()
    assert begun.wait(60) and time.monotonic() - released > 0.9 * LULL
    worker.wait(60)
    assert pending.result() == b"code"


def test_who_needs_a_build_that_has_not_begun_builds_it() -> None:
    worker, begun, go = Worker(), threading.Event(), threading.Event()

    def wait() -> bool:
        begun.set()
        return go.wait(60)

    first, second = worker.begin(wait), worker.begin(threading.get_ident)
    assert begun.wait(60)
    assert second.result() == second.result() == threading.get_ident()
    go.set()
    assert first.result()


def test_what_waits_beside_a_build_begins_when_its_compiler_runs_the_innermost_first() -> None:
    begun: list[str] = []
    with beside(lambda: begun.append("adjoint")):
        with beside(lambda: begun.append("vectors")):
            assert not begun
            compiler_runs()
            assert begun == ["vectors", "adjoint"]
        with beside(lambda: begun.append("cached")):
            pass  # no compiler ran
    assert begun == ["vectors", "adjoint", "cached"]


def test_what_was_built_well_before_is_not_built_quickly(driver: Hurrying) -> None:
    driver.go.set()
    launched(scaled(3.5))
    BETTER.wait(60)
    driver.builds.clear()
    assert launched(scaled(3.5)) == [3.5] * 3 and driver.builds == []


def test_on_request_there_is_one_build_only(driver: Hurrying, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.go.set()
    monkeypatch.setattr(kl.config, "quick_builds", False)
    assert launched(scaled(4.5)) == [4.5] * 3 and driver.builds == ["full"]
    monkeypatch.undo()
    assert kl.config.quick_builds


def test_a_better_build_that_fails_is_told_once_and_the_quick_one_goes_on(driver: Hurrying) -> None:
    driver.problem = BuildError(Diagnostic("no space left", code="no-room"))
    kernel = scaled(5.5)
    launched(kernel)
    driver.go.set()
    BETTER.wait(60)
    with pytest.warns(KernelWarning, match="could not be built with full optimisation: .*no space left"):
        assert launched(kernel) == [5.5] * 3
    assert launched(kernel) == [5.5] * 3


def test_a_better_build_that_the_driver_refuses_is_told_too(
    driver: Hurrying, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = scaled(6.5)
    launched(kernel)
    driver.go.set()
    BETTER.wait(60)

    def refuse(code: bytes, symbol: str) -> object:
        raise fault("CUDA_ERROR_NO_BINARY_FOR_GPU", "loading a kernel", "cuda:0")

    monkeypatch.setattr(driver, "load", refuse)
    with pytest.warns(KernelWarning, match="full optimisation: .*cannot run the code"):
        assert launched(kernel) == [6.5] * 3


def test_nothing_is_swapped_while_launches_are_captured(driver: Hurrying) -> None:
    kernel = scaled(7.5)
    x, y = kl.ones(3, device="cuda"), kl.zeros(3, device="cuda")
    kl.launch(kernel, 3, [x], [y])
    driver.go.set()
    BETTER.wait(60)
    with kl.ScopedCapture("cuda") as capture:
        kl.launch(kernel, 3, [x], [y])
    assert driver.launched[1] is driver.launched[0]
    y.zero_()
    kl.capture_launch(capture.graph)
    assert y.list() == [7.5] * 3
    launched(kernel)
    assert driver.launched[2] is not driver.launched[0]


def test_the_end_drops_what_has_not_begun_and_says_what_nobody_has_seen() -> None:
    worker, begun, go = Worker(), threading.Event(), threading.Event()

    def fail() -> bytes:
        begun.set()
        go.wait(60)
        raise BuildError(Diagnostic("out of ideas"))

    first, second = worker.begin(fail), worker.begin(lambda: b"")
    begun.wait(60)
    threading.Timer(0.05, go.set).start()
    with pytest.warns(KernelWarning, match="in the background failed: .*out of ideas"):
        worker.end()
    assert first.is_done and not second.is_done and second.result() == b""


def test_a_process_ends_although_a_build_goes_on() -> None:
    text = """
import threading
import time
from kernelab.backend.common import tiered
tiered.PATIENCE = 0.1
tiered.BETTER.begin(lambda: threading.Event().wait())
"""
    done = subprocess.run([sys.executable, "-c", text], timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_end_of_a_process_leaves_the_folder_of_a_build_that_goes_on(empty_cache: Path) -> None:
    text = """
import threading
import weakref
from pathlib import Path
from kernelab.backend.common.build_cache import Cache
from kernelab.backend.common.tiered import BETTER
cache, begun, finalized = Cache(), threading.Event(), threading.Event()
weakref.finalize(cache, finalized.set)  # of all finalizers the first is called last
def build(path):
    begun.set()
    finalized.wait()
    path.write_text("code")
BETTER.begin(lambda: cache.library("key", build, Path.read_bytes))
begun.wait()
"""
    done = subprocess.run([sys.executable, "-c", text], timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert [path.name for path in empty_cache.iterdir()] == ["key.so"]


def test_a_forked_process_builds_itself_what_a_thread_of_its_parent_builds() -> None:
    text = """
import os
import threading
from kernelab.backend.common.tiered import Worker
home, go = os.getpid(), threading.Event()
def build():
    return go.wait() if os.getpid() == home else "built here"
pending = Worker().begin(build)
child = os.fork()
if not child:
    os._exit(pending.result() != "built here")
go.set()
assert pending.result() is True and os.waitpid(child, 0)[1] == 0
"""
    done = subprocess.run([sys.executable, "-c", text], timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_build_has_the_settings_of_who_began_it_and_keeps_nothing_else_alive() -> None:
    class Held:
        pass

    other: ContextVar[Held | None] = ContextVar("other", default=None)
    token, held = other.set(Held()), weakref.ref(other.get())
    with changed_settings(loop_memory=12_345):
        pending = Worker().begin(lambda: (settings().loop_memory, other.get()))
    other.reset(token)
    del token
    assert held() is None
    assert pending.result() == (12_345, None)


def test_nvrtc_builds_quickly() -> None:
    text = 'extern "C" __global__ void f(float* x) { x[0] = 1.0f; }'
    assert nvrtc.hurries()
    assert nvrtc.compile_to_cubin(text, "sm_80", quickly=True)[:4] == b"\x7fELF"
