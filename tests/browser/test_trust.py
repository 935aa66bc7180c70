"""A JupyterLab without anywidget: tapes and live views are as with it, and no script of a stranger runs."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import expect

from tests.browser.test_tape import KERNELS, LOAD, RECORD, SHOW, rows
from tests.conftest import Lab, NotebookPage, reopen

Open = Callable[..., NotebookPage]

STATE = "application/vnd.jupyter.widget-state+json"
VIEW = "application/vnd.jupyter.widget-view+json"
HIDE = "import sys\nsys.modules['anywidget'] = None"
EXPLORE = "kl.explore(a=(0.0, 2.0))(lambda a: a * a)"
MARK = "globalThis.strangers = true; export default { render({ el }) { el.textContent = 'drawn' } }"
KEPT = "window.jupyterapp.shell.currentWidget.context.model.getMetadata('widgets')"


@pytest.fixture
def open_without_anywidget(open_notebook: Open, lab: Lab, front_end: Path) -> Iterator[Open]:
    """Open notebooks in pages whose JupyterLab, or Notebook 7, does not have anywidget's extension."""
    settings = lab.home / "config" / "labconfig" / "page_config.json"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(json.dumps({"disabledExtensions": {"anywidget": True}}))
    yield lambda *cells, address="lab/tree": open_notebook(*cells, address=address)
    settings.unlink()


@pytest.fixture
def of_a_stranger(tmp_path: Path) -> Path:
    """A notebook whose metadata hold a widget of anywidget's, with a script that leaves a mark."""
    model = {"_model_module": "anywidget", "_model_name": "AnyModel", "_model_module_version": "~0.11.*"}
    view = {"_view_module": "anywidget", "_view_name": "AnyView", "_view_module_version": "~0.11.*"}
    state = {**model, **view, "_esm": MARK, "_anywidget_id": "stranger", "layout": "IPY_MODEL_room"}
    room = {
        "model_module": "@jupyter-widgets/base",
        "model_name": "LayoutModel",
        "model_module_version": "2.0.0",
    }
    widget = {"model_module": "anywidget", "model_name": "AnyModel", "model_module_version": "~0.11.*"}
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("show()")])
    shown = {VIEW: {"model_id": "stranger", "version_major": 2, "version_minor": 0}, "text/plain": "static"}
    made.cells[0].outputs = [nbformat.v4.new_output("display_data", shown)]
    states = {"stranger": widget | {"state": state}, "room": room | {"state": {}}}
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "python3", "language": "python"}
    made.metadata["widgets"] = {STATE: {"version_major": 2, "version_minor": 0, "state": states}}
    path = tmp_path / "stranger.ipynb"
    nbformat.write(made, path)
    return path


@pytest.mark.parametrize(
    "address", [pytest.param("lab/tree", id="lab"), pytest.param("notebooks", id="seven")]
)
def test_a_tape_and_a_slider_live_without_anywidget_and_are_there_again_without_their_kernel(
    open_without_anywidget: Open, lab: Lab, address: str
) -> None:
    (lab.root / "go-on").touch()
    notebook = open_without_anywidget(HIDE, LOAD, KERNELS, SHOW, RECORD, EXPLORE, address=address)
    page = notebook.page
    notebook.run_all()
    shown = page.get_by_label("tape", exact=True)
    expect(rows(shown)).to_have_count(3)
    rows(shown).nth(0).locator("text.klt-title").click()
    shown.get_by_role("button", name="kernel and arguments").click()
    expect(shown.locator(".klt-answer")).to_contain_text("y[i] = x[i] * x[i]")
    page.get_by_role("slider", name="a").focus()
    page.keyboard.press("End")
    expect(page.get_by_label("live view")).to_contain_text("4")
    expect(shown).to_have_css("display", "block")
    for part in ("In[5], line 6", '"value":2'):
        page.wait_for_function(f"JSON.stringify({KEPT} ?? '').includes('{part}')")
    page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
    saved = lab.root / page.evaluate("window.jupyterapp.shell.currentWidget.context.path")
    again = reopen(lambda path: open_without_anywidget(path, address=address), saved).page
    expect(rows(again.get_by_label("tape", exact=True))).to_have_count(3)
    expect(again.get_by_label("live view")).to_contain_text("4")


def test_where_anywidget_is_missing_a_notebook_runs_no_script_of_its_own(
    open_without_anywidget: Open, of_a_stranger: Path
) -> None:
    page = open_without_anywidget(of_a_stranger).page
    page.evaluate("window.jupyterapp.commands.execute('notebook:trust'); 0")
    page.get_by_role("button", name="Trust").click()
    expect(page.locator(".jp-OutputArea-output")).to_contain_text("which only anywidget runs")
    assert page.evaluate("globalThis.strangers") is None
