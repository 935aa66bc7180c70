"""The same in a real Notebook 7, which hosts the widgets of JupyterLab."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from playwright.sync_api import expect

from tests.browser.test_extension import MISTAKES, underlined
from tests.browser.test_lab import background
from tests.browser.test_tape import KERNELS, LOAD

SHOWN = KERNELS.replace(" --quiet", "")
RECORD = """x, y = kl.ones(64, dtype=float, requires_grad=True), kl.zeros(64, dtype=float, requires_grad=True)
loss = kl.zeros(1, dtype=float, requires_grad=True)
with kl.Tape() as tape:
    square[64](x, y)
    total[64](y, loss)
tape"""


def test_notebook_7_underlines_errors_and_shows_kernels_whose_lines_light_up_and_tapes_that_answer(
    open_notebook: Callable[..., Any], front_end: Path
) -> None:
    assert find_spec("notebook") is not None, "Notebook 7 is missing: pip install '.[test]'"
    notebook = open_notebook(LOAD, SHOWN, RECORD, MISTAKES, address="notebooks")
    page = notebook.page
    notebook.run_all()
    panes = page.locator(".jp-CodeCell").nth(1).locator(".kl-code")
    derived = panes.nth(1).locator(".l4").first
    before = background(derived)
    panes.nth(0).locator(".l4").hover()
    assert background(derived) != before
    expect(panes.nth(0).locator(".kl-told .d4")).to_have_text("4 · reads x · writes y")
    tape = page.locator(".klt")
    expect(tape.locator("[role=option]")).to_have_count(2)
    tape.locator("[role=option]").nth(0).locator("text.klt-title").click()
    tape.get_by_role("button", name="kernel and arguments").click()
    expect(tape.locator(".klt-answer")).to_contain_text("y[i] = x[i] * x[i]")
    page.locator(".jp-CodeCell").nth(3).scroll_into_view_if_needed()
    expect(underlined(page, 3)).to_have_text("sine")
