"""The JupyterLab extension in a real JupyterLab: what cells show while one writes them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.conftest import Lab

Open = Callable[..., Any]

KERNEL_OF_PAGE = "window.jupyterapp.shell.currentWidget.sessionContext.session.kernel"
NOTEBOOK = "window.jupyterapp.shell.currentWidget.content"
RUN_ALL = "window.jupyterapp.commands.execute('notebook:run-all-cells')"
# JupyterLab writes the layout to its server some time after it has changed.
LAYOUT_IS_SAVED = """async () => {
  const { path } = window.jupyterapp.shell.currentWidget.context;
  let layout = "";
  while (!layout.includes("kernelab-forms") || !layout.includes(path)) {
    await new Promise(resolve => setTimeout(resolve, 50));
    const workspace = await fetch("/lab/api/workspaces/default").then(reply => reply.json());
    layout = JSON.stringify(workspace.data["layout-restorer:data"] ?? "");
  }
}"""

# What screen readers are told: CodeMirror takes it away again a little later.
LISTEN = """() => {
  window.heard = [];
  const hear = changes => changes.forEach(({ target }) =>
    target.matches(".cm-announced") && window.heard.push(target.textContent));
  new MutationObserver(hear).observe(document.body, { subtree: true, childList: true });
}"""
IS_HEARD = "words => window.heard.some(one => one.includes(words))"

KERNEL = """%%kernel --quiet --quite
def square(x: array[float], y: array[vec3], length: float):
    i = tid()
    # sin(x) in a comment
    y[i] = sin(x[i]) * kl.vec3(length)
"""


MISTAKES = """%%kernel --quiet
def square(x: array[float], y: array[float]):
    i = tid()
    y[i] = sine(x[i])"""
WAIT = "import pathlib, time\nwhile not pathlib.Path('go-on').exists():\n    time.sleep(0.01)"


def underlined(page: Any, cell: int) -> Any:
    return page.locator(".jp-CodeCell").nth(cell).locator(".cm-lintRange-error")


def type_at_the_end(page: Any, cell: int, text: str) -> None:
    page.locator(".jp-CodeCell").nth(cell).locator(".cm-content").click()
    page.keyboard.press("Control+End")
    page.keyboard.type(text)


# What screen readers get of each view.
FIXES = """
- list:
  - listitem:
    - text: "the name sine is not known here hint: did you mean sin?"
    - 'button "Action: write sin."'
    - text: kernelab
"""
FORMS = """
- tabpanel "Forms of the kernel":
  - combobox "form":
    - option "adjoint" [selected]
  - status
  - textbox "derived form of the kernel cell"
"""
SIDE = """
- 'region "kernelab: tape, checks, warnings and arrays"':
  - status
  - region "Warnings":
    - heading "Warnings (1)" [level=2]
    - list:
      - listitem:
        - paragraph: /`x` is overwritten/
        - button "Cell In[3], line 5 x.fill_(3.0)"
        - button "Cell In[3], line 4 square[2](x, y)"
  - region "Tape":
    - 'heading "Tape: tape" [level=2]'
    - region "tape":
      - tablist "views of the tape":
        - tab "timeline" [selected]
        - tab "graph"
        - tab "backward"
      - log "warnings":
        - paragraph:
          - text: /the gradient of x would be wrong/
          - button "show"
      - tabpanel "timeline":
        - listbox "launches on the tape, in order; arrow keys move, Enter shows more":
          - 'option /1: square; 2 threads/'
      - region "what is picked"
  - region "Arrays":
    - heading "Arrays (2)" [level=2]
    - list:
      - listitem:
        - group:
          - text: y float32[2] ∇ norm 1.414 no gradient yet
"""


def test_kernel_cells_are_coloured_and_an_error_is_underlined_as_one_types_and_fixed_by_click_and_keyboard(
    open_notebook: Open, front_end: Path
) -> None:
    notebook = open_notebook(KERNEL, "tid = sin = float", MISTAKES)
    page = notebook.page
    assert page.evaluate("window.jupyterapp.isPluginActivated('kernelab:plugin')")
    cell = page.locator(".jp-CodeCell").first
    expect(cell.locator(".kernelab-magic")).to_have_text("%%kernel")
    expect(cell.locator(".kernelab-option")).to_have_text("--quiet")
    expect(cell.locator(".kernelab-unknown-option")).to_have_text("--quite")
    expect(cell.locator(".kernelab-type")).to_have_text(["array", "float", "array", "vec3", "float", "vec3"])
    expect(cell.locator(".kernelab-operation")).to_have_text(["tid", "sin"])
    expect(page.locator(".jp-CodeCell").nth(1).locator("[class*=kernelab]")).to_have_count(0)
    page.locator(".jp-CodeCell").nth(1).locator(".cm-content").click()
    page.keyboard.press("Control+Home")
    page.keyboard.type("%%kernel\n")
    expect(page.locator(".jp-CodeCell").nth(1).locator(".kernelab-magic")).to_have_count(1)
    notebook.run_in_kernel("%load_ext kernelab")
    expect(underlined(page, 2)).to_have_text("sine")
    underlined(page, 2).hover()
    message = page.locator(".cm-tooltip .kernelab-message")
    expect(message).to_contain_text("the name sine is not known here")
    expect(message).to_contain_text("did you mean sin?")
    expect(page.locator(".cm-tooltip")).to_match_aria_snapshot(FIXES)
    page.get_by_role("button", name="write sin").click()
    expect(underlined(page, 2)).to_have_count(0)
    type_at_the_end(page, 2, "\ny[i] = cosi(x[i])")
    expect(underlined(page, 2)).to_have_text("cosi")
    page.keyboard.press("Control+Home")
    page.evaluate(LISTEN)
    page.keyboard.press("F8")
    page.wait_for_function(IS_HEARD, arg="the name cosi is not known here")
    page.keyboard.press("Control+.")
    expect(underlined(page, 2)).to_have_count(0)
    expect(page.locator(".jp-CodeCell").nth(2)).to_contain_text("y[i] = cos(x[i])")


def test_cells_are_checked_while_another_runs_and_after_the_kernel_has_been_restarted(
    open_notebook: Open, lab: Lab, front_end: Path
) -> None:
    gate = lab.root / "go-on"
    gate.unlink(missing_ok=True)
    notebook = open_notebook(WAIT, MISTAKES.replace("sine", "sin"))
    page = notebook.page
    notebook.run_in_kernel("%load_ext kernelab")
    page.evaluate(f"window.ended = false; {RUN_ALL}.then(() => window.ended = true); 0")
    type_at_the_end(page, 1, "\ny[i] = sine(x[i])")
    expect(underlined(page, 1)).to_have_text("sine")
    assert not page.evaluate("window.ended")
    gate.touch()
    page.wait_for_function("window.ended")
    page.evaluate(f"{KERNEL_OF_PAGE}.restart().then(() => null)")
    notebook.run_in_kernel("%load_ext kernelab")
    type_at_the_end(page, 1, "\ny[i] = cosi(x[i])")
    expect(underlined(page, 1)).to_have_text(["sine", "cosi"])


DECAY = """%%kernel --quiet
def decay(x: array[float], y: array[float], n: int):
    i = tid()
    s = x[i]
    for k in range(n):
        s = s * sin(s) + floor(s)
    y[i] += s"""


@pytest.mark.long
def test_hovering_tells_types_lines_have_marks_and_the_adjoint_beside_follows_the_cursor_and_what_is_typed(
    open_notebook: Open, front_end: Path
) -> None:
    notebook = open_notebook("%load_ext kernelab", DECAY)
    page = notebook.page
    notebook.run_in_kernel("%load_ext kernelab")
    cell = page.locator(".jp-CodeCell").nth(1)
    marks = cell.locator(".kernelab-gutter [role=img]")
    expect(marks).to_have_count(4)
    labels = [marks.nth(number).get_attribute("aria-label") for number in range(4)]
    assert labels[0] == "reads x"
    assert (labels[1] or "").startswith("keeps s")
    assert labels[2:] == ["the derivative of floor is zero", "adds to y"]
    cell.locator(".cm-line").nth(3).click()
    page.keyboard.press("Control+Alt+m")
    expect(page.get_by_role("alert")).to_have_text("reads x")
    page.get_by_role("button", name="Hide notification").click()
    expect(page.get_by_role("alert")).to_have_count(0)
    cell.locator(".kernelab-operation", has_text="sin").hover()
    told = page.locator(".kernelab-hover")
    expect(told).to_contain_text("x_bar += v1_bar * cos(x)")
    expect(told).to_contain_text("adjoint of line 6")
    page.mouse.move(0, 0)
    expect(told).to_have_count(0)
    page.locator(".jp-CodeCell").nth(1).locator(".cm-line").nth(6).click()
    page.evaluate("window.jupyterapp.commands.execute('kernelab:show-forms')")
    forms = page.locator(".kernelab-forms")
    lit = forms.locator(".kernelab-lit")
    expect(lit).to_have_text("    s_bar = y_bar[i]")
    expect(forms).to_match_aria_snapshot(FORMS)
    page.keyboard.press("ArrowUp")
    expect(lit.last).to_contain_text("s_bar = s_bar * sin(s) + s_bar * s * cos(s)")
    forms.locator(".cm-line", has_text="x_bar[i] +=").click()
    expect(lit).to_contain_text(["s = x[i]", "x_bar[i] +="])
    page.locator(".jp-CodeCell").nth(1).locator(".cm-line").nth(6).click()
    page.keyboard.press("End")
    page.keyboard.type(" * 3.0")
    expect(forms).to_contain_text("y_bar[i] * 3.0")
    forms.get_by_label("form", exact=True).select_option("cpp")
    expect(forms).to_contain_text("float")


OVERWRITE = """import warnings; warnings.simplefilter("ignore")
x, y = kl.ones(2, dtype=float, requires_grad=True), kl.zeros(2, dtype=float, requires_grad=True)
with kl.Tape(overwrite="warn") as tape:
    square[2](x, y)
    x.fill_(3.0)"""
GROW = """p, q = kl.array([1e30, 1.0], requires_grad=True), kl.zeros(2, requires_grad=True)
with kl.Tape() as tape:
    square[2](p, q)
tape.backward(grads={q: kl.ones_like(q)}, check_finite=True)"""


def test_an_overwrite_and_an_infinite_value_are_told_at_their_lines_and_the_panel_leads_there_with_arrays(
    open_notebook: Open, front_end: Path
) -> None:
    kernel = MISTAKES.replace("sine(x[i])", "x[i] * x[i]")
    notebook = open_notebook("%load_ext kernelab\nimport kernelab as kl", kernel, OVERWRITE, "del y, x", GROW)
    page = notebook.page
    page.evaluate("window.jupyterapp.commands.execute('kernelab:show-side')")
    side = page.get_by_role("region", name="kernelab: tape, checks, warnings and arrays")
    expect(side.get_by_role("status").first).to_have_text("Nobody answers: run %load_ext kernelab.")
    page.evaluate(LISTEN)
    run_cells(page, 0, 1, 2)
    page.wait_for_function(IS_HEARD, arg="Cell In[3], line 5: `x` is overwritten")
    cell = page.locator(".jp-CodeCell").nth(2)
    expect(cell.locator(".kernelab-warned")).to_have_count(2)
    expect(cell.locator(".kernelab-warning").first).to_contain_text(", line 5: `x` is overwritten")
    expect(cell.locator(".kernelab-warning").last).to_contain_text(
        "`x` is overwritten, but the gradient of `square` needs its old values"
    )
    facts = side.locator(".kernelab-facts")
    expect(facts).to_have_text(
        ["y float32[2] ∇norm 1.414 no gradient yet", "x float32[2] ∇norm 4.243 no gradient yet"]
    )
    expect(page.locator("#kernelab-side")).to_match_aria_snapshot(SIDE)
    expect(side.get_by_role("status").first).to_have_text("")
    expect(side.locator(".kernelab-picture td")).to_have_text(["1", "1", "3", "3"])
    places = side.get_by_role("region", name="Warnings").get_by_role("button")
    expect(places).to_contain_text(["Cell In[3], line 5", "Cell In[3], line 4"])
    status = page.locator(".kernelab-status")
    expect(status).to_contain_text("cpu")
    expect(status).to_match_aria_snapshot("- button /∇ cpu .* 1 launch on the tape ⚠ 1 warning/")
    page.locator(".jp-CodeCell").nth(2).locator(".cm-content").click()
    page.keyboard.press("Control+Alt+o")
    open_and_close_forms(page)
    page.keyboard.press("Tab")
    expect(places.first).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator(".jp-Notebook :focus")).to_have_count(1)
    places.last.focus()
    page.keyboard.press("Enter")
    page.wait_for_function(f"{NOTEBOOK}.activeCell.editor.getCursorPosition().line === 3")
    expect(page.locator(".jp-CodeCell").nth(2).locator(".cm-content")).to_be_focused()
    page.keyboard.type("# ")
    places.last.click()
    expect(places.last).to_contain_text("edited since")
    expect(cell.locator(".kernelab-warned")).to_have_count(2)
    run_cells(page, 2, 3)
    expect(cell.locator(".kernelab-warned")).to_have_count(0)
    expect(places).to_have_count(0)
    expect(facts).to_have_count(0)
    expect(status).not_to_contain_text("warning")
    run_cells(page, 4)
    turned = page.locator(".jp-CodeCell").nth(1).get_by_role("note")
    expect(turned).to_have_text("⚠ a value turns inf here, in thread 0 of the launch of `square`")
    expect(page.locator(".jp-CodeCell").nth(4).get_by_role("note")).to_contain_text("Cell In[2], line 4: a")
    page.evaluate(f"{KERNEL_OF_PAGE}.restart().then(() => null)")
    expect(side.get_by_role("status").first).to_have_text("Nobody answers: run %load_ext kernelab.")
    expect(status).to_be_hidden()


def open_and_close_forms(page: Any) -> None:
    """Open the view from the panel, by a shortcut that JupyterLab has, too; then again, from the notebook."""
    expect(page.locator("#kernelab-side")).to_be_focused()
    page.keyboard.press("Control+Alt+a")
    forms = page.locator(".lm-TabBar-tab").filter(has_text="Forms of the kernel")
    for key in ("a", "o"):
        expect(forms).to_be_visible()
        forms.locator(".lm-TabBar-tabCloseIcon").click()
        expect(forms).to_have_count(0)
        page.locator(".jp-CodeCell").nth(2).locator(".cm-content").click()
        page.keyboard.press(f"Control+Alt+{key}")
    expect(page.locator("#kernelab-side")).to_be_focused()


RECORD = """tape = kl.Tape()
with tape:
    square[2](x, y)
    while not Path("go-on").exists():
        time.sleep(0.02)
    square[2](x, y)
tape.backward(grads={y: kl.ones_like(y)})"""


@pytest.mark.long
def test_the_panel_shows_the_tape_of_a_running_cell_and_checks_and_follows_notebook_and_reload(
    open_notebook: Open, lab: Lab, front_end: Path, tmp_path: Path
) -> None:
    gate = lab.root / "go-on"
    gate.unlink(missing_ok=True)
    made = "x, y = (kl.ones(2, dtype=float, requires_grad=True) for _ in range(2))"
    load = "import time\nfrom pathlib import Path\nimport kernelab as kl\n" + made
    kernel = MISTAKES.replace("sine(x[i])", "x[i] * x[i]")
    notebook = open_notebook("%load_ext kernelab\n" + load, kernel, RECORD)
    page = notebook.page
    page.evaluate("window.jupyterapp.commands.execute('kernelab:show-side')")
    side = page.locator(".kernelab-side")
    page.evaluate(f"window.ended = false; {RUN_ALL}.then(() => window.ended = true); 0")
    rows = side.locator(".klt [role=option]")
    expect(rows).to_have_count(1)
    assert not page.evaluate("window.ended")
    gate.touch()
    page.wait_for_function("window.ended")
    expect(rows).to_have_count(2)
    expect(page.locator(".kernelab-status")).to_contain_text("2 launches on the tape")
    rows.first.locator("text.klt-title").click()
    side.get_by_role("button", name="Cell In[3], line 3").click()
    page.wait_for_function(f"{NOTEBOOK}.activeCell?.editor?.getCursorPosition().line === 2")
    page.locator(".jp-CodeCell").nth(1).locator(".cm-line").nth(3).click()
    page.keyboard.press("Control+Alt+k")
    check = side.get_by_role("region", name="Checks").get_by_role("listitem")
    expect(check).to_contain_text("PASS  gradcheck of 2 launches on a tape")
    expect(check.get_by_role("button")).to_contain_text("gradcheck_tape(tape, whitelist_kernels")
    page.locator(".jp-CodeCell").nth(1).locator(".cm-line").nth(3).click()
    page.keyboard.press("Control+Alt+i")
    marks = page.locator(".jp-CodeCell").nth(1).locator(".kernelab-mark-cost")
    expect(marks.last).to_be_visible()
    page.screenshot(path=tmp_path / "tape.png")
    page.evaluate("window.jupyterapp.commands.execute('kernelab:show-forms').then(() => 0)")
    page.evaluate("window.jupyterapp.commands.execute('notebook:create-new', {kernelName: 'python3'}); 0")
    expect(side.get_by_role("status").first).to_contain_text("Nobody answers")
    expect(rows).to_have_count(0)
    page.locator(".lm-TabBar-tab", has_text="test_the_panel").click()
    expect(rows).to_have_count(2)
    page.evaluate(f"{KERNEL_OF_PAGE}.reconnect().then(() => null)")
    run_cells(page, 0)
    expect(rows).to_have_count(2)
    page.evaluate("window.jupyterapp.commands.execute('docmanager:save').then(() => 0)")
    page.evaluate(LAYOUT_IS_SAVED)
    page.screenshot(path=tmp_path / "before.png")
    page.goto(page.url.split("?")[0])
    expect(rows).to_have_count(2)
    expect(page.locator("#jp-main-dock-panel .kernelab-forms")).to_be_visible()
    page.evaluate("window.jupyterapp.commands.execute('kernelab:restart-checked'); 0")
    page.locator(".jp-Dialog").get_by_role("button", name="Confirm Kernel Restart").click()
    expect(page.locator(".kernelab-status")).to_contain_text("checked: full")


def run_cells(page: Any, *cells: int) -> None:
    for cell in cells:
        page.evaluate(f"{NOTEBOOK}.activeCellIndex = {cell}")
        page.evaluate("window.jupyterapp.commands.execute('notebook:run-cell')")
