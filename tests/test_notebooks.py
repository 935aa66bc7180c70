"""Every notebook runs from top to bottom, and shows what it promises."""

from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def executed(path: Path) -> Any:
    notebook = nbformat.read(path, 4)
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=240, kernel_name="python3", resources=resources).execute()
    return notebook


def outputs(notebook: Any, kind: str) -> list[Any]:
    return [out for cell in notebook.cells for out in cell.get("outputs", []) if out.output_type == kind]


def test_the_first_notebook_denoises_a_photograph() -> None:
    notebook = executed(ROOT / "notebooks" / "00-ten-minutes.ipynb")
    shown = [out["data"].get("text/plain", "") for out in outputs(notebook, "execute_result")]
    shown += [out["data"].get("text/plain", "") for out in outputs(notebook, "display_data")]
    assert any("u_bar[i, j] +=" in text for text in shown), "the kernel's view shows the adjoint"
    assert any("PASS" in text and "gradcheck of energy" in text for text in shown)
    (error,) = outputs(notebook, "error")
    assert "did you mean length?" in error["evalue"]


def test_there_is_a_test_for_every_notebook() -> None:
    assert [path.name for path in NOTEBOOKS] == ["00-ten-minutes.ipynb"]
