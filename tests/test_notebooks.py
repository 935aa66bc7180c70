"""Every notebook runs from top to bottom, and shows what it promises."""

from pathlib import Path
from typing import Any

import nbformat
import pytest

import kernelab as kl
from kernelab.backend.cuda.nvrtc import compile_to_ptx
from kernelab.codegen.cpp.cuda_target import Cuda
from kernelab.codegen.cpp.emitter import emit
from kernelab.passes.common.scalarise import scalarise
from tests.support.course import client_of

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def executed(path: Path) -> Any:
    notebook = nbformat.read(path, 4)
    with client_of(notebook, path.parent) as client:
        client.execute()
    return notebook


def outputs(notebook: Any, kind: str) -> list[Any]:
    return [out for cell in notebook.cells for out in cell.get("outputs", []) if out.output_type == kind]


def test_the_first_notebook_denoises_a_photograph() -> None:
    notebook = executed(ROOT / "notebooks" / "00-ten-minutes.ipynb")
    shown = [out["data"].get("text/plain", "") for out in outputs(notebook, "execute_result")]
    shown += [out["data"].get("text/plain", "") for out in outputs(notebook, "display_data")]
    assert any("u_bar[i, j] +=" in text for text in shown), "the kernel's view shows the adjoint"
    assert any("PASS" in text and "gradcheck of energy" in text for text in shown)
    (printed,) = outputs(notebook, "stream")
    assert printed["text"].startswith("energy ")
    (error,) = outputs(notebook, "error")
    assert "did you mean length?" in error["evalue"]


def test_the_second_notebook_runs_both_modes_and_finds_where_there_is_no_derivative() -> None:
    notebook = executed(ROOT / "notebooks" / "01-two-modes.ipynb")
    shown = [out["data"].get("text/plain", "") for out in outputs(notebook, "display_data")]
    assert any("def swing_tangent(" in text for text in shown)
    assert any("columns in 3 groups" in text for text in shown)
    (error,) = outputs(notebook, "error")
    assert error["ename"] == "NotFiniteError"
    assert "y[i] = sqrt(inside) + abs(x[i])" in error["evalue"]


@pytest.mark.nvrtc
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_kernel_of_a_notebook_compiles_for_cuda(path: Path) -> None:
    compiled = 0
    for cell in nbformat.read(path, 4).cells:
        magic, _, text = cell.source.partition("\n")
        if magic.startswith("%%kernel") and "raises-exception" not in cell.metadata.get("tags", []):
            kernels = kl.compile(text).values()
            compiled += sum(entries(kernel) for kernel in kernels if isinstance(kernel, kl.Kernel))
    assert compiled >= 6


def entries(kernel: kl.Kernel) -> int:
    """How many of a kernel's programs compile: all, or NVRTC's log is raised."""
    active = kernel.differentiable
    programs = [kernel.primal, kernel.vjp(active).adjoint, kernel.jvp(active)]
    text = compile_to_ptx(emit([scalarise(program) for program in programs], Cuda()).text)
    return text.count(".visible .entry")


def test_there_is_a_test_for_every_notebook() -> None:
    assert [path.name for path in NOTEBOOKS] == ["00-ten-minutes.ipynb", "01-two-modes.ipynb"]
