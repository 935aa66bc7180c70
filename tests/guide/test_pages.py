"""What README and the pages of docs/ show a newcomer does what they say, output included."""

import contextlib
import io
import linecache
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import kernelab as kl
from kernelab.lang.show import show
from kernelab.views.kernel.kernel_facts import view
from kernelab.views.pages.markup import render

ROOT = Path(__file__).resolve().parents[2]
_CELL = re.compile(
    r"^```(?:\n%%kernel\n(?P<kernels>.*?)|python\n(?P<python>.*?))^```$(?:\n\n```\n(?!%%)(?P<shown>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
"""A kernel cell, or one in Python and, where nothing stands between them, the block of what it shows."""

PAGES = [
    "textbook",
    "functions",
    "wrong-gradients",
    "tape",
    "jacobians",
    "loops",
    "custom-derivatives",
    "races",
    "checked",
    "pictures",
    "editors",
    "teaching",
    "from-pytorch",
    "from-jax",
    "from-numba",
]


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{name}.md" for name in PAGES)])
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
            made = kl.compile(f"\n{cell['kernels']}", names, label)
            names.update(made)
            # Of a kernel's view, a page shows some lines only.
            assert set((cell["shown"] or "").splitlines()) <= set(_views(made.values()))
            continue
        printed = _run(cell["python"], label, names)
        assert cell["shown"] is None or _trimmed(printed) == _trimmed(cell["shown"])
    assert len(cells) >= 2
    return names


def _views(made: Iterable[object]) -> list[str]:
    kernels = (kernel for kernel in made if isinstance(kernel, kl.Kernel))
    return [line for kernel in kernels for line in render(view(kernel)).splitlines()]


def _trimmed(printed: str) -> list[str]:
    """The lines without the spaces at their ends, which no page should hold."""
    return [line.rstrip() for line in printed.strip("\n").splitlines()]


def test_every_page_that_shows_cells_is_run_or_written_by_a_test() -> None:
    written, for_devices, navigation = {"language"}, {"devices"}, {"index"}
    # They need a cluster, PyTorch or JAX: tests/test_distributed.py makes the same calls, and
    # interop/test_page.py runs the cells.
    # Marimo, papermill and the others of notebook-tools were tried by hand, with the versions that it names.
    neighbours = {"distributed", "interop", "notebook-tools"}
    pages = {path.stem for path in (ROOT / "docs").glob("*.md") if "```" in path.read_text(encoding="utf-8")}
    assert pages - written - for_devices - navigation - neighbours == set(PAGES)


def _run(cell: str, label: str, names: dict[str, Any]) -> str:
    linecache.cache[label] = (len(cell), None, cell.splitlines(keepends=True), label)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(cell, label, "exec"), names)
    return printed.getvalue()
