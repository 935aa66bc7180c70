"""The live tape in a real JupyterLab: while a cell runs, by keyboard, in a dark theme, without its kernel."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.conftest import Lab, reopen

LOAD = "import warnings\nfrom pathlib import Path\nimport time\nimport kernelab as kl"
KERNELS = """%%kernel --quiet
def square(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]

def total(y: array[float], loss: array[float]):
    atomic_add(loss, 0, y[tid()])"""
SHOW = """warnings.simplefilter("ignore")
x, y = kl.ones(64, dtype=float, requires_grad=True), kl.zeros(64, dtype=float, requires_grad=True)
loss = kl.zeros(1, dtype=float, requires_grad=True)
tape = kl.Tape(overwrite="warn")
kl.show(tape)"""
RECORD = """with tape:
    square[64](x, y)
    x.assign(y)
    while not Path("go-on").exists():
        time.sleep(0.02)
    total[64](y, loss)
tape.backward(loss)"""

# ipywidgets gives up a model that is not there after two seconds.
LOST = """
from IPython.display import display
of = {"model_id": "nobody", "version_major": 2, "version_minor": 0}
form = '<div class="kl ">the static form</div>'
display({"application/vnd.jupyter.widget-view+json": of, "text/html": form}, raw=True)"""
LOSE = """view => {
  view.textContent = "Error displaying widget: model not found";
  view.classList.add("jupyter-widgets");
}"""

Open = Callable[..., Any]


def start(notebook: Any) -> None:
    notebook.page.evaluate("window.jupyterapp.commands.execute('notebook:run-all-cells'); 0")


def rows(shown: Locator) -> Locator:
    return shown.locator("[role=option]")


def test_launches_and_an_overwrite_appear_while_the_cell_runs_and_questions_are_answered(
    open_notebook: Open, lab: Lab, front_end: Path
) -> None:
    gate = lab.root / "go-on"
    gate.unlink(missing_ok=True)
    notebook = open_notebook(LOAD, KERNELS, SHOW, RECORD)
    page = notebook.page
    start(notebook)
    shown = page.locator(".klt")
    expect(rows(shown)).to_have_count(2)
    problem = shown.locator(".klt-problem")
    expect(problem).to_contain_text("x is overwritten by 2 (assign), but the adjoint of 1 (square)")
    expect(problem.locator("code")).to_have_text(["square[64](x, y)", "x.assign(y)"])
    expect(problem).to_contain_text("the gradient of x would be wrong")
    expect(shown.locator(".klt-tainted")).to_have_count(1)
    rows(shown).nth(0).locator("text.klt-title").click()
    shown.get_by_role("button", name="kernel and arguments").click()
    expect(shown.locator(".klt-answer")).to_contain_text("y[i] = x[i] * x[i]")
    shown.locator(".klt-questions input").fill("3")
    shown.get_by_role("button", name="trace").click()
    expect(shown.locator(".klt-answer")).to_contain_text("thread 3 of square")
    expect(rows(shown)).to_have_count(2)  # the cell waits for the gate
    # A press ends behind news: a click all the same.
    rows(shown).nth(1).locator("text.klt-code").hover()
    page.mouse.down()
    gate.touch()
    expect(page.locator(".jp-InputArea-prompt").last).to_have_text("[4]:")
    page.mouse.up()
    expect(shown.locator(".klt-facts h5")).to_have_text("2 assign")
    expect(rows(shown)).to_have_count(3)
    shown.get_by_role("tab", name="backward").click()
    expect(shown.locator(".klt-now")).to_contain_text("step 1 of 2: back through launch 3, total")
    expect(shown.locator(".klt-now")).to_contain_text("8.000")


def test_the_keyboard_reaches_everything_in_the_dark_theme_and_a_restart_of_the_kernel_is_told(
    open_notebook: Open, lab: Lab, front_end: Path
) -> None:
    (lab.root / "go-on").touch()
    notebook = open_notebook(LOAD, KERNELS, SHOW, RECORD)
    page = notebook.page
    page.evaluate("window.jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Dark' })")
    notebook.run_all()
    shown = page.locator(".klt")
    expect(rows(shown)).to_have_count(3)
    paper, ink = shown.evaluate(
        "node => [getComputedStyle(node).backgroundColor, getComputedStyle(node).color]"
    )
    assert is_dark(paper)
    assert is_dark(ink) != is_dark(paper)
    shown.get_by_role("tab", name="timeline").focus()
    page.keyboard.press("ArrowRight")
    expect(shown.get_by_role("tab", name="graph")).to_be_focused()
    expect(shown.locator(".klt-node")).to_have_count(6)
    page.keyboard.press("ArrowLeft")
    expect(shown.locator(".klt-problem .klt-link")).to_have_count(3)
    for _ in range(4):  # past the three links of the problem, to the launches
        page.keyboard.press("Tab")
    for key in ("Home", "ArrowRight"):
        page.keyboard.press(key)
    expect(shown.locator(".klt-facts")).to_contain_text("1 square")
    page.keyboard.press("Enter")
    expect(shown.locator(".klt-answer")).to_contain_text("array of 64 float32")
    expect(shown.locator(".klt-offline")).to_be_empty()
    page.evaluate(
        "window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart().then(() => null)"
    )
    expect(shown.locator(".klt-offline")).to_contain_text("the kernel that recorded this tape has ended")
    rows(shown).nth(0).locator("text.klt-title").click()
    shown.get_by_role("button", name="kernel and arguments").click()
    expect(shown.locator(".klt-answer")).to_contain_text("No answer")
    expect(rows(shown)).to_have_count(3)


def test_views_grow_with_the_letters_of_code_and_a_click_still_meets_its_launch(
    open_notebook: Open, lab: Lab, front_end: Path
) -> None:
    (lab.root / "go-on").touch()
    notebook = open_notebook(LOAD, KERNELS.replace(" --quiet", ""), SHOW, RECORD)
    notebook.run_all()
    views = [notebook.page.locator(each) for each in (".klt-title", ".klt-problem code", ".kl-code pre")]
    letters = "node => node.getBoundingClientRect().height / node.textContent.split('\\n').length"
    for view in views:
        expect(view.first).to_be_visible()
    before = [view.first.evaluate(letters) for view in views]
    notebook.page.evaluate("document.documentElement.style.setProperty('--jp-code-font-size', '26px')")
    after = [view.first.evaluate(letters) for view in views]
    notebook.page.locator(".klt-title").last.click()
    expect(notebook.page.locator(".klt-facts")).to_contain_text("3 total")
    notebook.page.evaluate("document.documentElement.style.removeProperty('--jp-code-font-size')")
    assert after == pytest.approx([2 * height for height in before], rel=0.15)


def test_a_click_on_an_element_of_a_gradient_leads_to_the_launch_and_the_thread_that_added_to_it(
    open_notebook: Open, front_end: Path
) -> None:
    small = SHOW.replace("64", "4").replace('"warn"', '"save"').replace("\nkl.show(tape)", "")
    record = "with tape:\n    square[4](x, y)\n    total[4](y, loss)\ntape.backward(loss)\ntape"
    notebook = open_notebook(LOAD, KERNELS, small, record)
    notebook.run_all()
    shown = notebook.page.locator(".klt")
    shown.locator(".klt-name").nth(0).click()
    shown.get_by_role("button", name="values and gradient").click()
    shown.get_by_role("button", name="element [3] is 2: who added to this element?").click()
    answer = shown.locator(".klt-answer")
    expect(answer).to_contain_text("gradient of element [3] = 2")
    expect(answer).to_contain_text("1 part, by 1 thread of 1 launch")
    answer.get_by_role("button", name="3: trace this thread").click()
    expect(shown.locator(".klt-facts h5")).to_contain_text("square")
    expect(answer).to_contain_text("thread 3 of square")
    shown.get_by_role("tab", name="backward").click()
    shown.get_by_role("button", name="measure on copies").click()
    expect(shown.locator(".klt-now")).to_contain_text("step 1 of 2: back through launch 2, total")


@pytest.mark.long
def test_a_view_whose_model_comes_late_is_live_all_the_same(open_notebook: Open, front_end: Path) -> None:
    notebook = open_notebook("import ipywidgets", LOST)
    page = notebook.page
    given_up: list[Any] = []
    page.on("console", lambda told: given_up.append(told) if "model not found" in told.text else None)
    notebook.run_all()
    shown = page.locator(".jp-OutputArea-output").last
    expect(shown).to_have_text("the static form")
    while len(given_up) < 8:
        page.wait_for_event("console")
    notebook.run_in_kernel("late = ipywidgets.HTML('the live one', model_id='nobody')")
    expect(shown).to_have_text("the live one")


def is_dark(color: str) -> bool:
    return sum(map(int, re.findall(r"\d+", color)[:3])) / 3 < 128


def test_a_saved_tape_is_there_again_without_the_kernel_that_recorded_it_and_in_static_form_without_its_model(
    open_notebook: Open, lab: Lab, front_end: Path, tmp_path: Path
) -> None:
    (lab.root / "go-on").touch()
    notebook = open_notebook(LOAD, KERNELS, SHOW, RECORD, LOST)
    page = notebook.page
    notebook.run_all()
    expect(rows(page.locator(".klt"))).to_have_count(3)
    kept = "window.jupyterapp.shell.currentWidget.context.model.getMetadata('widgets')"
    page.wait_for_function(f"JSON.stringify({kept} ?? '').includes('In[4], line 6')")
    page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
    (saved,) = lab.root.glob("test_a_saved_tape*.ipynb")
    stored = json.loads(saved.read_text(encoding="utf-8"))
    output = stored["cells"][2]["outputs"][0]["data"]
    assert {"text/plain", "text/html"} <= output.keys()
    page = reopen(open_notebook, saved).page
    expect(page.locator(".jp-OutputArea-output").last).to_have_text("the static form")
    again = page.locator(".klt")
    page.locator(".jp-OutputArea-output", has=again).evaluate(LOSE)
    expect(rows(again)).to_have_count(3)
    expect(again.locator(".klt-problem code")).to_have_text(["square[64](x, y)", "x.assign(y)"])
    rows(again).nth(0).locator("text.klt-title").click()
    again.get_by_role("button", name="kernel and arguments").click()
    expect(again.locator(".klt-answer")).to_contain_text("No answer")
    expect(again.locator(".klt-offline")).to_contain_text("the kernel that made this view does not answer")
