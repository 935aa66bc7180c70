"""Measure what a frame of ``kl.live(array)`` costs, in a real JupyterLab whose page shows it.

    python benchmarks/live.py [--frames 100] [--write benchmarks/LIVE.md]

Needs what the browser tests need: JupyterLab, Chromium, and node for a front end that is not built yet.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.extension import spent  # noqa: E402 (this checkout is found now)
from tests.conftest import running_chromium, running_lab, show_notebook  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Page

ARRAYS = {
    "a curve of 1,000": "kl.array(np.sin(np.arange(1000) / 90), dtype=float)",
    "64 × 64": "kl.array(wave(64), dtype=float)",
    "256 × 256": "kl.array(wave(256), dtype=float)",
    "256 × 256 in colour": "kl.array(np.stack([wave(256) / 2 + 0.5] * 3, 2), dtype=kl.vec3)",
    "512 × 512": "kl.array(wave(512), dtype=float)",
}
SHOW = """import json, time
import numpy as np
import kernelab as kl

def wave(n):
    return np.sin(np.hypot(*np.mgrid[-9:9:n * 1j, -9:9:n * 1j])).astype(np.float32)

shown = {array}
view = kl.live(shown)
updates, drawings, draw = [], [], view.news

def watched():  # from one frame to the next its thread draws and sends one
    news = draw()
    if news is not None:
        drawings.append(1e3 * time.thread_time())
    return news

view.news = watched"""
RUN = """while len(drawings) < {frames}:
    shown *= 1.0
    began = time.thread_time()
    view.update()
    updates.append(1e3 * (time.thread_time() - began))
    time.sleep(0.005)
print("measured", json.dumps([updates, np.diff(drawings).tolist()]))"""

# The page makes each frame at once, when its image has been decoded.
WATCH = """(() => {
  window.seen = [];
  new MutationObserver(found => {
    const drawn = found.some(({ target }) => target.parentElement?.matches(".klt-frames"));
    if (drawn) window.seen.push(performance.now());
  }).observe(document.body, { subtree: true, childList: true });
})()"""


def measured(page: "Page") -> Iterator[float]:
    """Milliseconds of an update, a drawing and the page for a frame; how many frames it shows a second."""
    run_cell(page, 0)
    page.locator(".klt-frames img, .klt-frames svg").first.wait_for()
    page.evaluate(WATCH)
    session = page.context.new_cdp_session(page)
    before = spent(session)
    run_cell(page, 1)
    printed = page.locator(".jp-OutputArea-output", has_text="measured")
    printed.wait_for()
    used, seen = spent(session) - before, page.evaluate("window.seen")
    yield from map(median, json.loads(printed.inner_text().partition("measured ")[2]))
    yield used / len(seen)
    yield 1e3 * (len(seen) - 1) / (seen[-1] - seen[0])


def run_cell(page: "Page", number: int) -> None:
    """Run one cell, and wait until it has ended."""
    page.evaluate(
        """async number => {
          window.jupyterapp.shell.currentWidget.content.activeCellIndex = number;
          await window.jupyterapp.commands.execute("notebook:run-cell");
        }""",
        number,
    )


def report(frames: int) -> Iterator[str]:
    """The table, as Markdown."""
    with tempfile.TemporaryDirectory() as folder, running_chromium() as browser:
        home, root = Path(folder, "home"), Path(folder, "root")
        root.mkdir()
        yield "# What a frame of a live view costs"
        yield ""
        yield f"JupyterLab {version('jupyterlab')}, Chromium {browser.version} without a window."
        yield f"{os.cpu_count()} cores, shared by all; the load was {os.getloadavg()[0]:.1f} before."
        yield "Times are milliseconds of a processor: of `view.update()`, of the thread that draws and sends,"
        yield "and of the page. Made by `python benchmarks/live.py --write benchmarks/LIVE.md`."
        yield ""
        yield "| `kl.live` of | update | drawing | page | frames a second by the clock |"
        yield "|---|---|---|---|---|"
        with running_lab(home, root) as lab:
            for name, array in ARRAYS.items():
                page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
                page.set_default_timeout(300_000)
                cells = SHOW.format(array=array), RUN.format(frames=frames)
                show_notebook(lab, page, "live.ipynb", cells)
                update, drawing, shown, rate = measured(page)
                yield f"| {name} | {update:.2f} | {drawing:.1f} | {shown:.1f} | {rate:.0f} |"
                page.context.close()


def main() -> None:
    """Measure every size, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--write", type=Path, help="write the table to this file")
    options = parser.parse_args()
    subprocess.run([sys.executable, ROOT / "extension" / "build.py", "require"], check=True)
    os.environ["PYTHONPATH"] = str(ROOT)  # kernels run this checkout
    lines = []
    for line in report(options.frames):
        print(line, flush=True)
        lines.append(f"{line}\n")
    if options.write:
        options.write.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
