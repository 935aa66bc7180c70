"""The benchmark compares the same mathematics: gradients of kernelab are those of the C++ written by hand."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.backend.cpu.cpu_backend import CpuBackend
from kernelab.codegen.cpp.emitter import emit
from kernelab.codegen.cpp.targets import Cpu
from kernelab.passes.common.scalarise import scalarise
from tests.support.lowering import lowered

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def benchmark_modules() -> Iterator[dict[str, Any]]:
    sys.path.insert(0, str(FOLDER))
    try:
        yield {
            name: importlib.import_module(name)
            for name in ("kernels", "worker", "bench", "bounds", "checked", "simulations")
        }
    finally:
        sys.path.remove(str(FOLDER))


def test_every_kernel_and_its_adjoint_are_those_written_by_hand(benchmark_modules: dict[str, Any]) -> None:
    kernels, worker, bench, *_ = benchmark_modules.values()
    ours, by_hand = worker.Throughput(worker.Kernelab()), worker.Throughput(worker.Cxx())
    for name in kernels.texts():
        wanted = by_hand(name, shrink=10_000 if name != "bodies" else 16)["gradients"]
        found = ours(name, shrink=10_000 if name != "bodies" else 16)["gradients"]
        assert bench._agree(found, wanted), name
        off = {key: [x + 0.1 * max(map(abs, values)) for x in values] for key, values in found.items()}
        assert not bench._agree(off, wanted), name
        assert {*ours(name)} == {"primal", "adjoint"}


SMOOTH = ("tetrahedra", "fall", "torus", "convolve", "product", "arms", "spin", "network", "doubles", "turn")


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_of_programs_agree_with_differences(benchmark_modules: dict[str, Any], name: str) -> None:
    simulations, worker = benchmark_modules["simulations"], benchmark_modules["worker"]
    title = next(title for title, text in simulations.TEXTS.items() if f"def {name}(" in text)
    ready = simulations.ready(worker.Kernelab(), title, shrink=10_000)
    assert kl.autograd.gradcheck(ready.kernel, ready.dim, ready.given, ready.made, show_summary=False)


def test_every_program_runs_with_its_adjoint(benchmark_modules: dict[str, Any]) -> None:
    measured = benchmark_modules["worker"].Throughput(benchmark_modules["worker"].Kernelab())
    for title in benchmark_modules["simulations"].TEXTS:
        gradients = measured(title, shrink=10_000)["gradients"]
        assert gradients and all(np.isfinite(values).all() for values in gradients.values()), title
        assert any(np.any(values) for values in gradients.values()), title
        assert {*measured(title)} == {"primal", "adjoint"}


def test_a_kernel_is_built_without_its_bounds_checks(benchmark_modules: dict[str, Any]) -> None:
    function = scalarise(lowered(benchmark_modules["kernels"].texts()["stencil"], "stencil"))
    with ExitStack() as stack:
        for change in benchmark_modules["bounds"].unchecked():
            stack.enter_context(change)
        assert "fail_index" not in emit([function], Cpu()).text
        CpuBackend().build([function])
    assert "fail_index" in emit([function], Cpu()).text


def test_the_other_measurements_answer(benchmark_modules: dict[str, Any]) -> None:
    worker = benchmark_modules["worker"]
    system = worker.Kernelab()
    for kind in ("new", "made", "two"):
        assert {*worker.chain(system, 10, kind)} == {"record", "backward", "memory"}
    assert worker.jacobian(system, 50).keys() == {"first", "repeated"}
    assert len(worker.checks(system)) == 3
    assert worker.statements(system, 20).keys() == {"front end", "first launch", "backward"}


def test_what_checked_mode_costs_is_measured_for_each_row(benchmark_modules: dict[str, Any]) -> None:
    checked = benchmark_modules["checked"]
    rows = checked.table(1, 1000).splitlines()[2:]
    assert [row.split(" | ")[0] for row in rows[:-2]] == [f"| {title}" for title in checked.ROWS]
    assert len(rows) == len(checked.ROWS) + 2


def test_a_table_has_medians_ratios_and_the_spread(benchmark_modules: dict[str, Any]) -> None:
    results = benchmark_modules["bench"].Results()
    for value in (1.0, 2.0, 9.0):
        results.add("Table", "row", "kernelab", value)
        results.add("Table", "row", "warp", 3.0 * value)
    results.wrong.add(("row", "warp"))
    assert results.markdown("Table", "ms", "kernelab").splitlines()[-1] == (
        "| row | 2 | 3.00 (wrong gradient) | 1 to 9 |"
    )
