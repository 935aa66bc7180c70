"""kernelab in a real JupyterLab: what a person sees after running cells."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import Locator, expect

import kernelab as kl
from kernelab.views.kernel.kernel_facts import view
from kernelab.views.pages import page as html
from tests.browser.test_extension import run_cells

LOAD = "%load_ext kernelab\nimport numpy as np\nimport kernelab as kl"
SPRING = """%%kernel
def spring(x: array[vec3], rest: float, energy: array[float]):
    i = tid()
    d = length(x[i] - x[i + 1]) - rest
    atomic_add(energy, 0, 0.5 * d * d)"""
MISTAKE = """%%kernel
def broken(x: array[vec3], dt: float):
    i = tid()
    p = x[i] + dt
    x[i] = p"""
CHECK = """x = kl.array(np.random.default_rng(0).normal(size=(6, 3)), dtype=kl.vec3, requires_grad=True)
e = kl.zeros(1, dtype=float, requires_grad=True)
kl.autograd.gradcheck(spring, dim=5, inputs=[x, 0.25], outputs=[e])"""
OUTSIDE = "kl.launch(spring, dim=6, inputs=[x, 0.25], outputs=[e])"

Open = Callable[..., Any]


def background(line: Locator) -> str:
    return str(line.evaluate("node => getComputedStyle(node).backgroundColor"))


def alignment(cell: Locator) -> str:
    return str(cell.evaluate("node => getComputedStyle(node).textAlign"))


def output(page: Any, cell: int) -> Locator:
    found: Locator = page.locator(".jp-CodeCell").nth(cell).locator(".jp-OutputArea-output")
    return found


def test_a_cell_shows_its_kernel_and_hovering_a_line_lights_what_comes_from_it(open_notebook: Open) -> None:
    notebook = open_notebook(LOAD, SPRING)
    page = notebook.page
    page.evaluate("window.jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Dark' })")
    notebook.run_all()
    view = output(page, 1)
    panes = view.locator(".kl-code")
    expect(panes.nth(0)).to_contain_text("d = length(x[i] - x[i + 1]) - rest")
    expect(panes.nth(1)).to_contain_text("x_bar[i + 1]")
    derived = panes.nth(1).locator(".l4").first
    before = background(derived)
    panes.nth(0).locator(".l4").hover()
    lit = background(derived)
    assert lit != before
    panes.nth(1).locator(".l5").first.hover()
    assert background(panes.nth(0).locator(".l5")) == lit
    assert background(derived) == before
    told = panes.nth(0).locator(".kl-told")
    expect(told.locator(".d5")).to_be_visible()
    page.mouse.move(1, 1)
    panes.nth(0).locator(".l4").click()
    page.mouse.move(1, 1)
    expect(told.locator(".d4")).to_be_visible()
    assert background(derived) == lit
    page.keyboard.press("Tab")
    expect(told.locator(".d5")).to_be_visible()
    expect(told.locator(".d5")).to_have_text("5 · adds to energy")
    expect(told.locator(".d4")).not_to_be_visible()
    assert background(derived) == before
    derived.focus()
    assert derived.get_attribute("role") == "listitem"
    expect(page.get_by_role("list", name="adjoint").get_by_role("listitem").first).to_contain_text("def ")
    expect(told.locator(".d4")).to_be_visible()
    assert background(panes.nth(0).locator(".l4")) == lit


def test_a_check_shows_its_table_and_a_mistake_and_an_index_outside_show_their_lines_and_no_machinery(
    open_notebook: Open,
) -> None:
    page = open_notebook(LOAD, SPRING, CHECK, OUTSIDE, MISTAKE).page
    run_cells(page, 0, 1, 2, 3, 4)
    table = output(page, 2)
    expect(table.locator("h4")).to_contain_text("PASS")
    expect(table.locator("td").first).to_contain_text("pass")
    sides = {cell: alignment(table.locator(cell).nth(2)) for cell in ("th", "td")}
    assert sides == {"th": "right", "td": "right"}
    assert {alignment(table.locator(cell).nth(1)) for cell in ("th", "td")} == {"left"}
    outside = output(page, 3)
    expect(outside).to_contain_text("KernelIndexError")
    expect(outside).to_contain_text("Cell In[2], line 4")
    expect(outside).to_contain_text("Cell In[4], line 1")
    mistake = output(page, 4)
    expect(mistake).to_contain_text("KernelTypeError")
    expect(mistake).to_contain_text("Cell In[5], line 4")
    expect(mistake).to_contain_text("^^^^^^^^^")
    expect(mistake).not_to_contain_text("Traceback")
    for shown in (outside, mistake):
        assert "site-packages" not in shown.inner_text()


def test_a_saved_notebook_that_nobody_trusts_still_links_lines_by_their_numbers(
    open_notebook: Open, tmp_path: Path
) -> None:
    made = kl.compile(SPRING.removeprefix("%%kernel\n"), label="Cell In[1]")["spring"]
    shown = nbformat.v4.new_output("display_data", {"text/html": html.render(view(made))})
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(SPRING, outputs=[shown])])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, tmp_path / "saved.ipynb")
    pre = output(open_notebook(tmp_path / "saved.ipynb").page, 0).locator("pre")
    expect(pre.nth(0)).to_contain_text("3 │     d = length(x[i] - x[i + 1]) - rest")
    expect(pre.nth(1)).to_contain_text("3 │     x_bar[i + 1] -= ")
