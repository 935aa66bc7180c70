"""Each half without the other: the extension without the package, the package without the extension."""

import json
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.test_extension import MISTAKES, type_at_the_end, underlined
from tests.browser.test_tape import KERNELS, LOAD
from tests.conftest import Lab

Open = Callable[..., Any]

# A kernel in which `import kernelab` fails, wherever it is installed.
WITHOUT = """import sys
sys.modules["kernelab"] = None
from ipykernel.kernelapp import launch_new_instance
launch_new_instance()"""
RECORD = """x, y = kl.ones(64, dtype=float, requires_grad=True), kl.zeros(64, dtype=float, requires_grad=True)
loss = kl.zeros(1, dtype=float, requires_grad=True)
with kl.Tape() as tape:
    square[64](x, y)
    total[64](y, loss)
tape"""


@pytest.mark.long
def test_the_extension_is_quiet_beside_a_kernel_that_does_not_know_kernelab(
    open_notebook: Open, lab: Lab, front_end: Path
) -> None:
    spec = lab.home / "data" / "kernels" / "without" / "kernel.json"
    spec.parent.mkdir(parents=True)
    command = [sys.executable, "-c", WITHOUT, "-f", "{connection_file}"]
    spec.write_text(json.dumps({"argv": command, "display_name": "without", "language": "python"}))
    notebook = open_notebook("1 + 1", MISTAKES, kernel="without")
    page, wrong = notebook.page, []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: said.type == "error" and wrong.append(said.text))
    page.evaluate("window.jupyterapp.commands.execute('kernelab:show-side').then(() => 0)")
    side = page.locator(".kernelab-side")
    expect(side.get_by_role("status").first).to_have_text("Nobody answers: run %load_ext kernelab.")
    type_at_the_end(page, 1, "\n    y[i] = sine(x[i])")
    expect(page.locator(".kernelab-magic")).to_have_count(1)
    page.keyboard.press("Control+Alt+k")
    notice = page.locator(".Toastify__toast-body")
    expect(notice).to_have_text("Nobody answers: run %load_ext kernelab.")
    notebook.run_all()
    expect(page.locator(".jp-OutputArea-output").first).to_have_text("2")
    expect(page.locator(".jp-OutputArea-output").last).to_contain_text("%%kernel` not found")
    expect(underlined(page, 1)).to_have_count(0)
    expect(page.locator(".kernelab-gutter [role=img], .kernelab-warning")).to_have_count(0)
    assert not wrong


@pytest.mark.long
def test_everything_essential_works_while_the_extension_is_disabled(
    open_notebook: Open, lab: Lab, front_end: Path
) -> None:
    # What `jupyter labextension list` prints.
    with urllib.request.urlopen(f"{lab.url}/lab/api/extensions?token={lab.token}") as reply:
        (ours,) = [one for one in json.load(reply) if one["name"] == "kernelab"]
    assert (ours["installed"], ours["enabled"], ours["status"]) == (True, True, "ok")
    # As `jupyter labextension disable kernelab` writes it, which takes seconds to start.
    off = lab.home / "config" / "labconfig" / "page_config.json"
    off.parent.mkdir(parents=True, exist_ok=True)
    off.write_text(json.dumps({"disabledExtensions": {"kernelab": True}}))
    try:
        cells = (LOAD, KERNELS.replace(" --quiet", ""), RECORD, MISTAKES)
        notebook = open_notebook(*cells, address="lab/tree")
    finally:
        off.unlink()
    page = notebook.page
    assert not page.evaluate("window.jupyterapp.hasPlugin('kernelab:plugin')")
    notebook.run_all()
    cell = page.locator(".jp-CodeCell")
    expect(cell.nth(1).locator(".jp-OutputArea")).to_contain_text("x_bar[i] +=")
    tape = cell.nth(2).locator(".klt")
    expect(tape.locator("[role=option]")).to_have_count(2)
    tape.locator("[role=option]").first.locator("text.klt-title").click()
    expect(tape.locator(".klt-facts")).to_contain_text("Cell In[3], line 4")
    expect(tape.get_by_role("button", name="Cell In[3], line 4")).to_have_count(0)
    expect(cell.nth(3).locator(".jp-OutputArea")).to_contain_text("did you mean sin?")
    cell.nth(3).locator(".cm-line", has_text="tid").click()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Shift+Tab")
    expect(page.locator(".jp-Tooltip")).to_contain_text("tid")
