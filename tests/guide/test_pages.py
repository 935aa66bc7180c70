"""What README and the pages of docs/ show a newcomer does what they say, output included."""

import contextlib
import io
import linecache
import re
from pathlib import Path
from typing import Any

import pytest

import kernelab as kl
from kernelab.lang.show import show

ROOT = Path(__file__).resolve().parents[2]
_CELL = re.compile(
    r"^```\n%%kernel\n(?P<kernels>.*?)^```$|^```python\n(?P<python>.*?)^```$(?:\n\n```\n(?P<printed>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
"""A kernel cell, or one in Python and, where nothing stands between them, the block of what it prints."""


@pytest.mark.parametrize("page", ["README.md", "docs/wrong-gradients.md"])
def test_the_cells_of_a_page_print_what_stands_below_them(page: str) -> None:
    _run_cells((ROOT / page).read_text(encoding="utf-8"))


def test_the_cell_that_the_architecture_follows_becomes_what_stands_there() -> None:
    story, _, _ = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("\n# The hard parts")
    kernel = _run_cells(story)["eighth"]
    shown = re.findall(r"^```\n(eighth.*?)\n```$", story, re.MULTILINE | re.DOTALL)
    assert shown == [show(kernel.primal), show(kernel.vjp(["x", "y"]).adjoint)]


def _run_cells(text: str) -> dict[str, Any]:
    """Run the cells of a page, which print what stands below them; the names that they leave."""
    names: dict[str, Any] = {}
    cells = list(_CELL.finditer(text))
    for number, cell in enumerate(cells, 1):
        label = f"Cell In[{number}]"
        if cell["kernels"]:
            names.update(kl.compile(f"\n{cell['kernels']}", names, label))
            continue
        printed = _run(cell["python"], label, names)
        assert cell["printed"] is None or printed.strip("\n") == cell["printed"].strip("\n")
    assert len(cells) >= 2
    return names


def _run(text: str, label: str, names: dict[str, Any]) -> str:
    linecache.cache[label] = (len(text), None, text.splitlines(keepends=True), label)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(text, label, "exec"), names)
    return printed.getvalue()
