"""`make bench-gpu`: without a GPU it says so, and what it measures computes the right numbers."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.runtime.memory.spaces import OPEN
from tests.support.devices import WatchfulSpace
from tests.support.simulated import SimulatedDriver

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def worker() -> Iterator[Any]:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    OPEN["cuda:0"] = WatchfulSpace("cuda:0", SimulatedDriver())
    try:
        import gpu_worker

        with kl.ScopedDevice("cuda:0"):
            yield gpu_worker
    finally:
        del OPEN["cuda:0"]
        sys.path.remove(str(ROOT / "benchmarks"))


@pytest.fixture(scope="module")
def system() -> Any:
    return SimpleNamespace(lib=kl, compile=lambda text, name: kl.compile(text)[name])


def test_without_a_gpu_it_says_that_nothing_was_measured() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), "--warp-python", "none"]
    hidden = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=hidden, timeout=100, check=False)
    assert done.returncode == 1 and done.stderr == ""
    assert "NOT RUN: no GPU was found, so nothing was measured" in done.stdout


def test_the_work_is_what_it_says(worker: Any, system: Any) -> None:
    rng = np.random.default_rng(7)
    for _ in range(2):  # the first turn is not timed
        x, y, bar = (rng.random(50, np.float32) for _ in range(3))
    found = worker.work(system, "saxpy", 50, 1)
    assert found["mean"] == pytest.approx(np.mean(0.5 * x + y), rel=1e-5)
    assert found["gradient"] == pytest.approx(np.mean(0.5 * bar), rel=1e-5)
    assert found["primal"] == found["adjoint"] == 1.0  # the simulated device counts launches


def test_all_work_runs_with_its_adjoint(worker: Any, system: Any) -> None:
    for name in worker.TEXTS:
        found = worker.work(system, name, 20, 1)
        assert np.isfinite(list(found.values())).all() and found["gradient"] != 0, name
    assert worker.copy(system, 20, 1).keys() == {"copy"}
    assert worker.banded(system, 30, 1)["banded"] > 0


def test_systems_that_compute_different_numbers_are_told_on(worker: Any) -> None:
    import gpu

    same = {"mean": 1.0, "gradient": 2.0}
    assert gpu.disagreements("loop", same, {"mean": 1.0 + 1e-6, "gradient": 2.0}) == []
    (told,) = gpu.disagreements("loop", same, {"mean": 1.0, "gradient": 2.1})
    assert "DISAGREE, gradient 2 and 2.1" in told


class Simulated:
    """A system whose work is measured in this process; what `broken` names ends it."""

    def __init__(self, worker: Any, system: Any, name: str, broken: str = "") -> None:
        self.name, self._worker, self._system, self._broken = name, worker, system, broken
        self.works = tuple(worker.TEXTS)

    def ask(self, measure: str, **request: Any) -> Any:
        if self._broken and self._broken in (measure, request.get("name")):
            raise RuntimeError(f"{self.name} ended with status -9")
        return self._worker.MEASURES[measure](self._system, **request)


def test_a_row_that_fails_is_told_and_all_others_are_written(
    worker: Any, system: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gpu

    monkeypatch.setattr(gpu, "WORK", {"saxpy": 40, "springs": 40})
    monkeypatch.setitem(worker.MEASURES, "overhead", lambda system: {"backward": 3.0})
    monkeypatch.setattr(worker, "CAPTURED", 3)
    monkeypatch.setattr(gpu, "SIZES", {"4 operations": gpu.SIZES["4 operations"]})
    report = gpu.Report("# On a GPU", ["kernelab", "warp"], tmp_path / "gpu.md")
    peers = [Simulated(worker, system, "kernelab"), Simulated(worker, system, "warp", "springs")]
    assert gpu.measure(report, peers, repeat=1, shrink=1000) == 1
    written = (tmp_path / "gpu.md").read_text()
    assert written == report.markdown()
    assert "| springs, 8, primal | 1 | - |" in written
    assert "* FAILED: springs: warp ended with status -9" in written
    assert "a copy moves" in written and "| 4 operations, with adjoint |" in written
    assert "| launch and adjoint |" in written
    assert "| three bands, n = 1,000 |" in written and "| backward |" in written


def test_no_step_begins_when_the_time_is_up(worker: Any, system: Any) -> None:
    import gpu

    report = gpu.Report("# On a GPU", ["kernelab"])
    assert gpu.measure(report, [Simulated(worker, system, "kernelab")], 1, 1, seconds=-1.0) == 0
    assert not report.figures
    assert all(note.startswith("NOT MEASURED, the time was up: ") for note in report.notes)
    assert len(report.notes) == len(gpu.WORK) + 2 + len(gpu.SIZES) + 1


def test_a_system_that_hangs_is_ended_and_started_again(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import gpu

    class Hanging:
        made = 0

        def __init__(self, *_: str) -> None:
            Hanging.made += 1
            self.process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])

        def greet(self) -> None: ...

        def ask(self, **_: Any) -> Any:
            if Hanging.made > 1:
                self.process.kill()
                self.process.wait()
                return {"primal": 1.0}
            self.process.wait()
            raise RuntimeError("warp ended early")

    monkeypatch.setattr(gpu, "Peer", Hanging)
    monkeypatch.setattr(gpu, "PATIENCE", 0.1)
    system = gpu.Restarted("warp", sys.executable)
    with pytest.raises(RuntimeError, match="warp ended with status -9"):
        system.ask(measure="work")
    assert system.ask(measure="work") == {"primal": 1.0}


@pytest.mark.long
def test_the_whole_program_runs_on_a_simulated_device(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), "--dry", "--shrink", "1000000"]
    command += ["--repeat", "1", "--write", str(tmp_path / "gpu.md")]
    hidden = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=hidden, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    written = (tmp_path / "gpu.md").read_text()
    for row in ("saxpy, 100, adjoint", "loop, 8, primal", "backward", "launch and adjoint", "200 operations"):
        assert f"| {row}" in written
    assert "FAILED" not in written and "NOT MEASURED" not in written
