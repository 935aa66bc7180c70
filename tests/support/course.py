"""Runs lessons of the course; ``python -m tests.support.course 3`` runs lesson 3 and stores its outputs."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from nbclient import NotebookClient

from kernelab.settings import LIVE
from kernelab.teach.lessons import lessons, without_solution

WIDGET = "application/vnd.jupyter.widget-view+json"


def executed(path: Path, blanks: list[Any] | None = None) -> Any:
    """The notebook, run from top to bottom; `blanks` gets what each check says to a blank answer."""
    notebook = nbformat.read(path, 4)
    for cell in notebook.cells:
        cell.pop("outputs", None)
        if cell.cell_type == "code":
            cell.outputs = []
    environment = os.environ | {LIVE: "0"}  # what is stored are the static forms
    with client_of(notebook, path.parent) as client, client.setup_kernel(env=environment):
        for index, cell in enumerate(notebook.cells):
            if blanks is not None and is_answer(cell):
                blanks.append(_checked_blank(client, index))
            client.execute_cell(cell, index)
        notebook.metadata.language_info = {"name": "python"}
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not _is_noise(output)]
            for output in cell.outputs:
                output.get("data", {}).pop(WIDGET, None)
    return notebook


@contextmanager
def client_of(notebook: Any, folder: Path) -> Iterator[NotebookClient]:
    """Who runs a notebook in a folder; its kernel has sockets, as another process might take its ports."""
    resources = {"metadata": {"path": str(folder)}}
    client = NotebookClient(
        notebook, timeout=240, coalesce_streams=True, resources=resources, kernel_name="python3"
    )
    manager = client.create_kernel_manager()
    with TemporaryDirectory(prefix="kernel-") as sockets:
        manager.transport, manager.ip = "ipc", f"{sockets}/socket"
        yield client


def _is_noise(output: Any) -> bool:
    """Whether Matplotlib says that a font is not on this machine."""
    return output.output_type == "stream" and output.text.startswith("findfont: ")


def is_answer(cell: Any) -> bool:
    return bool(cell.metadata.get("nbgrader", {}).get("solution"))


def _checked_blank(client: NotebookClient, index: int) -> Any:
    """Run the student's version of an answer, and its check: the error of that, None where it passes."""
    blank, check = (nbformat.from_dict(client.nb.cells[k]) for k in (index, index + 1))
    blank.source = without_solution(blank.source)
    assert "### BEGIN" not in blank.source
    client.execute_cell(blank, index, store_history=False)
    client.allow_errors = True
    client.execute_cell(check, index + 1, store_history=False)
    client.allow_errors = False
    return next((output for output in check.outputs if output.output_type == "error"), None)


def shown(notebook: Any) -> Iterator[tuple[str, str]]:
    """Each cell's printed text, text of results and message of an error, with the cell's source."""
    for cell in notebook.cells:
        if cell.cell_type == "code" and "varies" not in cell.metadata.get("tags", []):
            texts = (
                output.get("text") or output.get("data", {}).get("text/plain") or output.get("evalue", "")
                for output in cell.outputs
            )
            yield cell.source, "\n".join(texts)


NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]\d+)?|-?\d+e[-+]\d+|(?<![\w.])-?\d+(?![\w.])")


def numbers_of(text: str) -> tuple[str, list[float]]:
    """The text with its numbers taken out and blanks made one, and the numbers."""
    return " ".join(NUMBER.sub("#", text).split()), [float(number) for number in NUMBER.findall(text)]


if __name__ == "__main__":
    for number in sys.argv[1:]:
        lesson = lessons()[int(number)]
        print(lesson.stem, flush=True)
        nbformat.write(executed(lesson), lesson)
