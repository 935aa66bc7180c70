"""The pictures of docs/extension.md, one of each thing that the extension shows.

python -m pytest tests/browser/pictures.py     (or: make picture)

Writes docs/extension-*.png from a real JupyterLab.  No part of the test run: what they show is tested.
"""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Locator, Page, expect

from tests.browser.test_extension import MISTAKES, run_cells, underlined
from tests.conftest import ROOT

Open = Callable[..., Any]

FOLDER = ROOT / "docs"
LOAD = "%load_ext kernelab\nimport kernelab as kl"
RELAX = """%%kernel --quiet
def relax(x: array[float], y: array[float], n: int):
    i = tid()
    s = x[i]
    for k in range(n):
        s = s - 0.1 * sin(s) * floor(s + 2.0)
    y[i] += s"""
RECORD = """x = kl.full(64, 0.5, requires_grad=True)
y, z = kl.zeros(64, requires_grad=True), kl.zeros(64, requires_grad=True)
with kl.Tape() as tape:
    relax[64](x, y, 20)
    relax[64](y, z, 20)
tape.backward(grads={z: kl.ones_like(z)})"""
LOSE = """import warnings; warnings.simplefilter("ignore")
x, y = kl.ones(64, requires_grad=True), kl.zeros(64, requires_grad=True)
with kl.Tape(overwrite="warn") as tape:
    relax[64](x, y, 20)
    x.fill_(3.0)"""
LOG = """%%kernel --quiet
def entropy(x: array[float], loss: array[float]):
    i = tid()
    atomic_add(loss, 0, -x[i] * log(x[i]))"""
NAN = """p, loss = kl.array([0.5, 0.0, 0.5], requires_grad=True), kl.zeros(1, requires_grad=True)
with kl.Tape() as tape:
    entropy[3](p, loss)
tape.backward(loss, check_finite=True)"""
TRACE = "run = kl.trace(tape, 1, 3)"
CHECK = "kl.autograd.gradcheck_tape(tape);"


def command(page: Page, name: str, **arguments: object) -> None:
    page.evaluate(
        "([name, arguments]) => window.jupyterapp.commands.execute(name, arguments).then(() => 0)",
        [name, arguments],
    )


def take(page: Page, name: str, of: Locator | None = None, height: int | None = None) -> None:
    """Write the picture of a part of the page, or of its upper part."""
    box = of.bounding_box() if of else {"x": 0, "y": 0, **(page.viewport_size or {})}
    assert box
    clip = {**box, "height": min(box["height"], height or box["height"])}
    shot = page.screenshot(clip=clip, animations="disabled")
    picture = Image.open(BytesIO(shot)).convert("RGB").quantize(256)
    picture.save(FOLDER / f"extension-{name}.png", optimize=True)


def cell(page: Page, number: int) -> Locator:
    return page.locator(".jp-CodeCell").nth(number)


@pytest.fixture
def opened(open_notebook: Open, front_end: Path) -> Open:
    """A notebook in a page of 1000 pixels without the list of files, in which kernelab is loaded."""

    def open_one(*cells: str) -> Page:
        notebook = open_notebook(LOAD, *cells)
        page: Page = notebook.page
        page.set_viewport_size({"width": 1000, "height": 640})
        page.evaluate("window.jupyterapp.shell.collapseLeft()")
        page.evaluate("window.jupyterapp.shell.currentWidget.title.label = 'relax.ipynb'; 0")
        run_cells(page, 0)
        return page

    return open_one


def test_while_one_types(opened: Open) -> None:
    page = opened(MISTAKES)
    panel = page.locator(".jp-NotebookPanel")
    underlined(page, 1).hover()
    expect(page.locator(".cm-tooltip .kernelab-message")).to_be_visible()
    take(page, "error", panel, 300)


def test_marks_types_and_forms(opened: Open) -> None:
    page = opened(RELAX, RECORD, TRACE)
    run_cells(page, 1, 2, 3)
    expect(cell(page, 1).locator(".kernelab-mark-cost").first).to_be_visible()
    take(page, "marks", cell(page, 1))
    page.mouse.move(0, 0)
    cell(page, 1).locator(".kernelab-operation", has_text="sin").hover()
    expect(page.locator(".kernelab-hover")).to_contain_text("adjoint of line")
    take(page, "hover", page.locator(".jp-NotebookPanel"), 330)
    page.mouse.move(0, 0)
    cell(page, 1).locator(".kernelab-operation", has_text="sin").click()
    page.mouse.move(0, 0)
    expect(page.locator(".kernelab-hover")).to_have_count(0)
    page.keyboard.press("Shift+Tab")
    expect(page.locator(".jp-Tooltip")).to_contain_text("s_bar")
    take(page, "tooltip", page.locator(".jp-NotebookPanel"))
    page.keyboard.press("Escape")
    cell(page, 1).locator(".cm-line").nth(5).click()
    command(page, "kernelab:show-forms")
    expect(page.locator(".kernelab-forms .kernelab-lit").first).to_be_visible()
    take(page, "forms", page.locator("#jp-main-dock-panel"), 400)


def test_warnings(opened: Open) -> None:
    page = opened(RELAX, LOSE, LOG, NAN)
    run_cells(page, 1, 2)
    expect(cell(page, 2).locator(".kernelab-warned")).to_have_count(2)
    take(page, "warning", cell(page, 2))
    run_cells(page, 3, 4)
    expect(cell(page, 3).locator(".kernelab-warning").first).to_be_visible()
    take(page, "nan", cell(page, 3))


def widen(page: Page, width: int) -> None:
    """Drag the edge of the panel at the right."""
    edge = page.locator(
        "#jp-main-split-panel > .lm-SplitPanel-handle:not(.lm-mod-hidden)"
    ).last.bounding_box()
    side = page.locator("#kernelab-side").bounding_box()
    assert edge
    assert side
    page.mouse.move(edge["x"] + 1, 300)
    page.mouse.down()
    page.mouse.move(side["x"] + side["width"] - width, 300, steps=4)
    page.mouse.up()


def test_the_panel(opened: Open) -> None:
    page = opened(RELAX, RECORD, CHECK)
    page.set_viewport_size({"width": 1240, "height": 720})
    command(page, "kernelab:show-side")
    run_cells(page, 1, 2, 3)
    side = page.locator(".kernelab-side")
    expect(side.get_by_role("region", name="Checks")).to_be_visible()
    side.locator(".klt [role=option]").first.locator("text.klt-title").click()
    widen(page, 300)
    take(page, "narrow", page.locator("#kernelab-side"))
    widen(page, 420)
    take(page, "panel")
    command(page, "apputils:change-theme", theme="JupyterLab Dark")
    expect(page.locator("body")).to_have_attribute("data-jp-theme-light", "false")
    take(page, "dark")


def test_frame(opened: Open) -> None:
    page = opened(RELAX, LOSE)
    run_cells(page, 1, 2)
    page.locator(".lm-MenuBar-item", has_text="kernelab").click()
    expect(page.locator(".lm-Menu")).to_be_visible()
    take(page, "menu", height=330)
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(page.locator(".kernelab-status")).to_contain_text("warning")
    take(page, "status", page.locator("#jp-bottom-panel"))
    command(page, "settingeditor:open", query="kernelab")
    page.get_by_text("Zero derivatives").wait_for()
    take(page, "settings", page.locator("#jp-main-dock-panel"), 620)
