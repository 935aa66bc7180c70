"""Live views in a real JupyterLab: pictures that follow a loop, sliders, and what a saved notebook keeps."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import expect

from tests.conftest import Lab, reopen

Open = Callable[..., Any]

LOAD = "from pathlib import Path\nimport time\nimport numpy as np\nimport kernelab as kl"
FOLLOW = """x = kl.zeros((64, 64), dtype=float)
view = kl.live(x, "wave")
losses = kl.live.curve("loss", log=True)
for k in kl.progress(range(5), "steps"):
    x.fill_(k)
    x[:32] = kl.full((32, 64), k + 1.0)
    view.update()
    losses.update(0.1**k)
    while k == 3 and not Path("go-on").exists():
        time.sleep(0.02)"""
EXPLORE = """@kl.explore(length=(0.5, 3.0), angle=(0.1, 1.0, 0.4))
def swing(length, angle):
    t = kl.array(np.linspace(0, 5, 300), dtype=float)
    path = kl.map(lambda t, l, a: a * kl.cos(kl.sqrt(9.81 / l) * t), t, length, angle)
    return (path ** 2).mean(), path"""
ANIMATE = """time.sleep(0.2)
frames = [np.sin(np.hypot(*np.mgrid[-8:8:64j, -8:8:64j]) - k / 3) for k in range(20)]
kl.animation(frames, fps=10)"""


def test_pictures_follow_a_loop_while_it_runs_and_a_slider_computes_anew(
    open_notebook: Open, lab: Lab, front_end: Path, tmp_path: Path
) -> None:
    gate = lab.root / "go-on"
    gate.unlink(missing_ok=True)
    notebook = open_notebook(LOAD, FOLLOW, EXPLORE, ANIMATE)
    page = notebook.page
    page.evaluate("window.jupyterapp.commands.execute('notebook:run-all-cells'); 0")
    views = page.locator(".klt-frames")
    expect(views.nth(0)).to_contain_text("3 to 4, mean 3.5")
    expect(views.nth(0)).to_contain_text("wave of 64 × 64 float32")
    expect(views.nth(1)).to_contain_text("loss 0.001 after 4 steps, logarithmic")
    expect(page.locator("progress")).to_have_attribute("max", "5")
    gate.touch()
    expect(views.nth(0)).to_contain_text("4 to 5, mean 4.5")
    expect(page.locator(".jp-OutputArea").nth(1)).to_contain_text("steps: 5 in")
    swing = views.nth(2)
    expect(swing).to_contain_text("-0.4 to 0.4")
    swing.get_by_role("slider", name="angle").fill("1")
    expect(swing).to_contain_text("-1 to 1")
    length = swing.get_by_role("slider", name="length")
    length.press("ArrowRight")
    expect(length).to_have_value("1.7625")
    length.press("Home")
    expect(length).to_have_value("0.5")
    expect(page.locator(".kl-pixels").last).to_be_visible()
    page.set_viewport_size({"width": 1000, "height": 1500})
    page.screenshot(path=tmp_path / "pictures.png")


def test_a_saved_notebook_shows_the_last_picture_with_widgets_and_without(
    open_notebook: Open, lab: Lab, front_end: Path
) -> None:
    (lab.root / "go-on").touch()
    notebook = open_notebook(LOAD, FOLLOW, EXPLORE)
    notebook.run_all()
    views = notebook.page.locator(".klt-frames")
    expect(views.nth(0)).to_contain_text("4 to 5, mean 4.5")
    kept = "window.jupyterapp.shell.currentWidget.context.model.getMetadata('widgets')"
    for part in ("mean 4.5", "0.0001 after 5 steps", "angle"):
        notebook.page.wait_for_function(f"JSON.stringify({kept} ?? '').includes('{part}')")
    notebook.page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
    (saved,) = lab.root.glob("test_a_saved_notebook_shows*.ipynb")
    outputs = json.loads(saved.read_text(encoding="utf-8"))["cells"][1]["outputs"]
    texts = ["".join(output["data"]["text/html"]) for output in outputs]
    assert ["4 to 5, mean 4.5" in texts[0], "after 5 steps" in texts[1], "steps: 5 in" in texts[2]] == [
        True
    ] * 3
    again = reopen(open_notebook, saved).page.locator(".klt-frames")
    expect(again.nth(0)).to_contain_text("4 to 5, mean 4.5")
    expect(again.nth(1)).to_contain_text("loss 0.0001 after 5 steps")
    expect(again.nth(2).get_by_role("slider")).to_have_count(2)
    expect(again.nth(2)).to_contain_text("the kernel that made this view does not answer")
