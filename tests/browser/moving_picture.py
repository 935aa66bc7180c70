"""The moving picture at the top of the README: a kernel is typed, mended, run, differentiated and checked.

python -m pytest tests/browser/moving_picture.py     (or: make picture)

Writes docs/kernelab.webp from a real JupyterLab.  No part of the test run: what it shows is tested beside it.
"""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Locator, Page, expect

from tests.browser.test_extension import run_cells
from tests.conftest import ROOT

PICTURE = ROOT / "docs" / "kernelab.webp"
LARGEST = 1_000_000

LOAD = "import kernelab as kl\n%load_ext kernelab"
KERNEL = """%%kernel
def relax(x: array[float], n: int, y: array[float]):
i = tid()
s = x[i]
for k in range(n):
s = s - 0.1 * sine(s)
\by[i] = s"""
RECORD = """x = kl.array([0.5, 1.0, 2.0], requires_grad=True)
y, z = kl.zeros(3, requires_grad=True), kl.zeros(3, requires_grad=True)
with kl.Tape(overwrite="warn") as tape:
    relax[3](x, 20, y)
    x.assign(y)
    relax[3](x, 20, z)
tape"""
CHECK = "kl.autograd.gradcheck(relax, dim=3, inputs=[x, 20], outputs=[y])"


class Film:
    """Pictures of a page, each with how long it stays."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.frames: list[Image.Image] = []
        self.durations: list[int] = []

    def take(self, milliseconds: int) -> None:
        """Take a picture of the page as it is now, to be shown for so long."""
        shot = self.page.locator(".jp-NotebookPanel").screenshot(animations="disabled", caret="initial")
        self.frames.append(Image.open(BytesIO(shot)).convert("RGB"))
        self.durations.append(milliseconds)

    def write(self, path: Path) -> None:
        """Write the animation, which begins again when it has ended."""
        first, *others = self.frames
        first.save(
            path,
            save_all=True,
            append_images=others,
            duration=self.durations,
            loop=0,
            lossless=True,
            quality=100,
            method=6,
            minimize_size=True,
        )


def to_the_top(shown: Locator) -> None:
    """Scroll until a part of the page is at the top of the notebook."""
    shown.evaluate("node => node.scrollIntoView({ block: 'start' })")


def test_a_kernel_is_typed_mended_run_and_its_gradient_shown_and_checked(
    open_notebook: Callable[..., Any], front_end: Path
) -> None:
    notebook = open_notebook(LOAD, "", RECORD, CHECK)
    page: Page = notebook.page
    page.set_viewport_size({"width": 1000, "height": 680})
    page.evaluate("window.jupyterapp.commands.execute('application:toggle-left-area').then(() => null)")
    run_cells(page, 0)
    film = Film(page)
    cell = page.locator(".jp-CodeCell").nth(1)

    cell.locator(".cm-content").click()
    for line in KERNEL.splitlines():
        if line.startswith("\b"):
            page.keyboard.press("Backspace")
        page.keyboard.type(line.lstrip("\b"))
        film.take(450)
        if line != KERNEL.splitlines()[-1]:
            page.keyboard.press("Enter")

    wrong = cell.locator(".cm-lintRange-error")
    expect(wrong).to_have_text("sine")
    wrong.hover()
    expect(page.locator(".cm-tooltip .kernelab-message")).to_contain_text("did you mean sin?")
    film.take(2200)
    page.get_by_role("button", name="write sin").click()
    expect(wrong).to_have_count(0)
    film.take(900)

    run_cells(page, 1)
    panes = cell.locator(".kl-code")
    expect(panes.nth(1)).to_contain_text("relax_adjoint")
    to_the_top(cell)
    film.take(1500)
    for line in (5, 6):
        panes.nth(0).locator(f".l{line}").hover()
        film.take(1800)

    run_cells(page, 2)
    third = page.locator(".jp-CodeCell").nth(2)
    expect(third.locator("[role=option]")).to_have_count(3)
    expect(third.locator(".kernelab-warned")).to_have_count(2)
    to_the_top(third)
    film.take(3500)
    to_the_top(third.locator(".klt"))
    film.take(3500)

    run_cells(page, 3)
    checked = page.locator(".jp-CodeCell").nth(3)
    expect(checked.locator("h4")).to_contain_text("PASS")
    to_the_top(checked)
    film.take(3000)

    film.write(PICTURE)
    assert PICTURE.stat().st_size < LARGEST
