"""The JupyterLab extension in a real JupyterLab: what cells show while one writes them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import expect

Open = Callable[..., Any]

KERNEL = """%%kernel --quiet --quite
def square(x: array[float], y: array[vec3], length: float):
    i = tid()
    # sin(x) in a comment
    y[i] = sin(x[i]) * kl.vec3(length)
"""


def test_a_kernel_cell_is_coloured_and_a_cell_of_python_is_not(open_notebook: Open, front_end: Path) -> None:
    page = open_notebook(KERNEL, "tid = sin = float").page
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
