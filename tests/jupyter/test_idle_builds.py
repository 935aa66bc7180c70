"""Kernels of a cell are built while the notebook waits; a launch that comes before builds what it needs."""

import asyncio
import importlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kernelab as kl
from kernelab.backend.common.tiered import AHEAD
from kernelab.jupyter.magics import IdleBuilds
from kernelab.runtime.kernel.kernel import Kernel
from tests.jupyter.conftest import Notebook
from tests.support.waiting import wait_for


@pytest.fixture
def kernels(empty_cache: Path) -> dict[str, Kernel]:
    return dict(
        kl.compile("""
def twice(x: array[float], y: array[float]):
    i = tid()
    y[i] = 2.0 * x[i]

def square(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]
""")
    )


def built(kernels: dict[str, Kernel], act: Callable[[IdleBuilds, Any], None] | None = None) -> list[str]:
    """The programs that are built, in order, until nothing is left; `act` comes before the first."""
    order: list[str] = []
    shell: Any = SimpleNamespace(user_ns=dict(kernels))

    async def wait() -> None:
        builds = IdleBuilds(shell)
        builds.add(kernels)
        builds.start()
        if act is not None:
            act(builds, shell)
        while builds.timer is not None:
            await asyncio.sleep(0.01)

    begin = AHEAD.begin

    def note(make: Any, was_told: bool) -> Any:
        order.append(make.args[0].name)
        return begin(make, was_told)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AHEAD, "begin", note)
        # A browser's test may have left a loop that runs in this thread.
        with ThreadPoolExecutor(1) as pool:
            pool.submit(copy_context().run, asyncio.run, wait()).result()
    return order


def test_primals_are_built_before_adjoints(kernels: dict[str, Kernel]) -> None:
    assert built(kernels) == ["twice", "square", "twice_adjoint", "square_adjoint"]


def test_nothing_begins_while_a_cell_runs(kernels: dict[str, Kernel]) -> None:
    assert built(kernels, lambda builds, _: builds.stop()) == []


def test_a_kernel_that_was_defined_again_is_left_out(kernels: dict[str, Kernel]) -> None:
    def define(_: IdleBuilds, shell: Any) -> None:
        shell.user_ns["twice"] = None

    assert built(kernels, define) == ["square", "square_adjoint"]


@pytest.mark.parametrize("setting", ["idle_builds", "live_tapes"])
def test_settings_leave_builds_to_launches(
    setting: str, kernels: dict[str, Kernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kl.config, setting, False)
    assert built(kernels) == []


def test_a_notebook_that_waits_imports_what_comes_next_without_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def imported(module: str) -> Any:
        asked.append(module)
        if module == "matplotlib.colors":
            raise ImportError(module)
        return importlib.import_module(module)

    async def wait() -> None:
        kl._import_when_idle(SimpleNamespace(kernel=True))
        while asked[-1:] != kl._FIRST_USED.split()[-1:]:
            await asyncio.sleep(0.01)

    monkeypatch.setattr(kl, "_imported", imported)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, wait()).result()
    assert asked == kl._FIRST_USED.split()


def test_a_notebook_builds_while_it_waits(notebook: Notebook, tmp_path: Path) -> None:
    log = tmp_path / "builds"
    notebook.run(f"""
import logging
import os
import kernelab as kl
os.environ["KERNELAB_CACHE_DIR"] = {str(tmp_path / "cache")!r}
logging.getLogger("kernelab").addHandler(logging.FileHandler({str(log)!r}))
logging.getLogger("kernelab").setLevel("DEBUG")
""")
    notebook.run("""%%kernel --quiet
def cube(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i] * x[i]
""")
    wait_for(lambda: log.read_text().count("build of") == 2)
    outcome = notebook.run("""
x, y = kl.array([2.0], requires_grad=True), kl.zeros(1, requires_grad=True)
with kl.Tape() as tape:
    kl.launch(cube, 1, [x], [y])
tape.backward(grads={y: [1.0]})
print(x.grad.list())
""")
    assert outcome.stream == "[12.0]\n"
    assert log.read_text().count("build of") == 2
