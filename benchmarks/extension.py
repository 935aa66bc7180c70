"""Measure how fast the JupyterLab extension answers, and what it costs, in a real JupyterLab.

    python benchmarks/extension.py [--repeat 12] [--write benchmarks/EXTENSION.md]

Needs what the browser tests need: JupyterLab, Chromium, and node for a front end that is not built yet.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.conftest import (  # noqa: E402 (this checkout is found now)
    Lab,
    NotebookPage,
    new_page,
    running_chromium,
    running_lab,
    show_notebook,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser, CDPSession, Page

LOAD = "%load_ext kernelab\nimport kernelab as kl"
KERNEL = """%%kernel --quiet
def step(x: array[vec3], v: array[vec3], k: float, dt: float, n: int, energy: array[float]):
    i = tid()
    p = x[i]
    for j in range(n):
        d = length(p - x[j]) + 0.1
        p += dt * (v[i] - k * normalize(p - x[j]) / d)
    atomic_add(energy, 0, sin(length(p)))"""
Row = tuple[str, list[float], float, float]
"""What was measured, the times by the clock, and the processor time of each underline in kernel and page."""

WORD = "sin"
"""One more letter in this word is an error."""

TYPED = "p += dt * v[i] * sin(k)"
"""What is typed in the large notebook."""

CELLS = 100
"""How many kernel cells the large notebook has."""

BUSY = "import pathlib, time\nwhile not pathlib.Path('stop').exists():\n    "
RUNNING = {
    "while a cell waits": BUSY + "time.sleep(0.01)",
    "while a cell computes in Python": BUSY + "sum(range(1000))",
    "while a cell launches kernels": "import pathlib\nx, y = kl.ones(1_000_000), kl.zeros(1_000_000)\n"
    "while not pathlib.Path('stop').exists():\n    kl.launch(square, 1_000_000, [x, y])",
}
SQUARE = """square = kl.compile('''def square(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]
''')['square']"""

# From the press of a key until a wrong word is underlined in the cell of the cursor.
WATCH = """(() => {
  let pressed = 0;
  window.underlined = [];
  document.addEventListener("keydown", ({ key }) => { pressed = key === "e" ? performance.now() : 0; }, true);
  const look = () => {
    const found = document.activeElement?.closest(".jp-CodeCell")?.querySelector(".cm-lintRange-error");
    if (pressed && found) { window.underlined.push(performance.now() - pressed); pressed = 0; }
  };
  new MutationObserver(look).observe(document, { subtree: true, childList: true });
})();"""

# How long each key holds up the page by the clock: the next task begins when all that listens has been heard.
KEYS = """(() => {
  window.keys = [];
  document.addEventListener("keydown", () => {
    const pressed = performance.now(), { port1, port2 } = new MessageChannel();
    port1.onmessage = () => window.keys.push(performance.now() - pressed);
    port2.postMessage(null);
  }, true);
})();"""

# JupyterLab makes the editors of a large notebook one after another, while the page has nothing else to do.
IS_COMPLETE = """() => {
  const { widgets, notebookConfig } = window.jupyterapp.shell.currentWidget.content;
  return notebookConfig.windowingMode === "full" || widgets.every(cell => !cell.isPlaceholder());
}"""

NO_MISTAKE = "!document.activeElement.closest('.jp-CodeCell').querySelector('.cm-lintRange-error')"


class Bench:
    """A JupyterLab and a browser, which show one notebook at a time."""

    def __init__(self, lab: Lab, browser: "Browser", home: Path, repeat: int) -> None:
        self.lab, self.browser, self.home, self.repeat = lab, browser, home, repeat

    def open(self, *cells: str) -> NotebookPage:
        """A page of its own with a new notebook, in which kernelab is loaded."""
        page = new_page(self.browser)
        page.add_init_script(WATCH + KEYS)
        notebook = show_notebook(self.lab, page, "bench.ipynb", cells)
        page.wait_for_function(IS_COMPLETE)
        notebook.run_in_kernel(LOAD)
        notebook.run_in_kernel("import os, pathlib; pathlib.Path('pid').write_text(str(os.getpid()))")
        return notebook

    def offer(self, has_it: bool) -> None:
        """Switch the extension on or off for the next page; another one may be installed, too."""
        off = self.home / "config" / "labconfig" / "page_config.json"
        off.parent.mkdir(parents=True, exist_ok=True)
        off.write_text(json.dumps({"disabledExtensions": {"kernelab": not has_it}}))

    def close(self, notebook: NotebookPage) -> None:
        """Close the page, and end its kernel."""
        page = notebook.page
        page.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.shutdown().then(() => null)")
        page.context.close()


def underlines(page: "Page", cell: int, count: int, pause: int = 150) -> list[float]:
    """Milliseconds from the key that makes a word wrong to its underline, `count` times."""
    into(page, cell, WORD)
    page.evaluate("window.underlined = []")
    for number in range(count):
        page.wait_for_timeout(pause)
        page.keyboard.press("e")
        page.wait_for_function(f"window.underlined.length === {number + 1}")
        page.keyboard.press("Backspace")
        page.wait_for_function(NO_MISTAKE)
    return list(page.evaluate("window.underlined.splice(0)"))


def underlined(
    bench: Bench,
    notebook: NotebookPage,
    name: str,
    cell: int,
    often: Callable[["Page", int, int], list[float]] = underlines,
) -> Row:
    """The row of a number of underlines; each is a key and its Backspace, with a check of both texts."""
    page, file = notebook.page, bench.lab.root / "pid"
    session = page.context.new_cdp_session(page)
    kernel = int(file.read_text())
    answered, shown = answering(kernel), spent(session)
    times = often(page, cell, bench.repeat)
    return name, times, (answering(kernel) - answered) / bench.repeat, (spent(session) - shown) / bench.repeat


def answering(kernel: int) -> float:
    """Milliseconds of the processor that a kernel's threads have used, but for the one that runs cells."""
    threads = psutil.Process(kernel).threads()
    return 1e3 * sum(one.user_time + one.system_time for one in threads if one.id != kernel)


def into(page: "Page", cell: int, word: str) -> None:
    """Put the cursor behind a word of a cell."""
    page.evaluate(
        """async ([cell, word]) => {
          const { content } = window.jupyterapp.shell.currentWidget;
          content.activeCellIndex = cell;
          await content.scrollToItem(cell, "center");
          await content.activeCell.ready;
          content.mode = "edit";
          const { editor } = content.activeCell;
          editor.focus();
          const at = editor.model.sharedModel.getSource().lastIndexOf(word) + word.length;
          editor.setCursorPosition(editor.getPositionAt(at));
        }""",
        [cell, word],
    )


def latency(bench: Bench) -> Iterator[Row]:
    """From a key to its underline, in a notebook of one cell."""
    notebook = bench.open(KERNEL)
    page, stop = notebook.page, bench.lab.root / "stop"
    notebook.run_in_kernel(SQUARE)
    underlines(page, 0, 3)
    yield underlined(bench, notebook, "idle", 0)
    for name, code in RUNNING.items():
        stop.unlink(missing_ok=True)
        page.evaluate(
            "code => { window.running = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel"
            ".requestExecute({ code }).done; }",
            code,
        )
        underlines(page, 0, 1)
        yield underlined(bench, notebook, name, 0)
        stop.touch()
        page.evaluate("window.running.then(() => null)")
    bench.close(notebook)


def large(bench: Bench) -> Iterator[Row]:
    """The same in a notebook of many kernel cells, and what each key costs there."""
    notebook = bench.open(*many())
    page = notebook.page
    page.evaluate("window.jupyterapp.commands.execute('kernelab:show-side').then(() => 0)")
    underlines(page, CELLS // 2, 3)
    yield underlined(bench, notebook, f"idle, {CELLS} kernel cells", CELLS // 2)

    def after_a_run(page: "Page", cell: int, count: int) -> list[float]:
        again = []
        for _ in range(count):
            # What is known of every cell may be another after a run.
            page.evaluate("window.jupyterapp.commands.execute('notebook:run-cell').then(() => 0)")
            again += underlines(page, cell, 1, pause=0)
        return again

    yield underlined(bench, notebook, f"right after a run, {CELLS} kernel cells", CELLS // 2, after_a_run)
    bench.close(notebook)


def many() -> list[str]:
    """Many kernel cells."""
    return [KERNEL.replace("step", f"step{number}") for number in range(CELLS)]


Event = dict[str, Any]
Key = tuple[str, list[float], list[float], float]


def keys(bench: Bench) -> Iterator[Key]:
    """What a key costs in a large notebook: how long it holds up the page by the clock, the processor time of
    that task, and the page's processor time with all that follows.
    """
    for name, has_it in (("with the extension switched off", False), ("with it", True)):
        bench.offer(has_it)
        notebook = bench.open(*many())
        page = notebook.page
        into(page, CELLS // 2, WORD)
        page.keyboard.press("End")
        page.keyboard.press("Enter")
        page.wait_for_timeout(1500)
        page.evaluate("window.keys = []")
        session = page.context.new_cdp_session(page)
        before = spent(session)
        bench.browser.start_tracing(page=page, categories=["devtools.timeline", "toplevel"])
        page.keyboard.type(TYPED, delay=120)
        page.wait_for_timeout(500)
        events = json.loads(bench.browser.stop_tracing())["traceEvents"]
        after = spent(session)
        held = page.evaluate("window.keys")
        assert len(held) == len(TYPED)
        yield name, held, handled(events), (after - before) / len(TYPED)
        bench.close(notebook)


def handled(events: Sequence[Event]) -> list[float]:
    """Milliseconds of the processor that the task of each key has used, from a trace of Chromium."""
    heard = (one for one in events if one["name"] == "EventDispatch")
    pressed = [one for one in heard if one["args"]["data"]["type"] == "keydown"]
    tasks = [one for one in events if one["name"].endswith("RunTask") and "tdur" in one]
    found = []
    for key in pressed:
        around = [one["tdur"] for one in tasks if one["tid"] == key["tid"] and is_within(key, one)]
        found.append(max(around) / 1e3)
    assert len(found) == len(TYPED)
    return found


def is_within(inner: Event, outer: Event) -> bool:
    """Whether an event of a trace began while another one lasted, in the same process."""
    same = inner["pid"] == outer["pid"]
    return same and outer["ts"] <= inner["ts"] < outer["ts"] + outer["dur"]


def spent(session: "CDPSession") -> float:
    """Milliseconds of the processor that the main thread of a page has used since this was first asked."""
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    return 1e3 * sum(map(metrics.__getitem__, ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration")))


def starts(bench: Bench) -> Iterator[tuple[str, list[float], list[float]]]:
    """From the address to the restored JupyterLab, with the extension switched off and on by turns: by the
    clock, and the page's processor time.
    """
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for number in range(bench.repeat + 3 & ~1):
        has_it = number % 2 == 1
        bench.offer(has_it)
        page = new_page(bench.browser)
        session = page.context.new_cdp_session(page)
        before = spent(session)
        page.goto(f"{bench.lab.url}/lab?token={bench.lab.token}&reset")
        page.wait_for_function("window.jupyterapp")
        took = page.evaluate("window.jupyterapp.restored.then(() => performance.now())")
        used = spent(session) - before
        assert page.evaluate("window.jupyterapp.hasPlugin('kernelab:plugin')") == has_it
        page.context.close()
        if number > 1:  # the first ones fill caches
            found[has_it].append((took, used))
    for name, has_it in (("with the extension switched off", False), ("with it", True)):
        yield name, [took for took, _ in found[has_it]], [used for _, used in found[has_it]]


def sizes() -> Iterator[tuple[str, int]]:
    """Bytes of the built files."""
    built = ROOT / "extension" / "labextension"
    yield "the extension", sum(file.stat().st_size for file in built.rglob("*.js"))
    widget = ROOT / "kernelab" / "jupyter" / "static"
    yield "the tape's widget", sum(file.stat().st_size for file in widget.glob("*.[jc]s*"))


def processor() -> str:
    """What Linux calls the processor; elsewhere what Python does."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor())


def spread(values: Sequence[float], digits: int = 0) -> str:
    """The median, and the quartiles around it."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.{digits}f} | {low:.{digits}f} to {high:.{digits}f}"


def report(bench: Bench) -> str:
    """All tables, as Markdown."""
    lines = [
        "# How fast the JupyterLab extension is, and what it costs",
        "",
        f"JupyterLab {version('jupyterlab')}, ipykernel {version('ipykernel')},",
        f"Python {platform.python_version()}, Chromium {bench.browser.version} without a window.",
        f"{processor()}, {os.cpu_count()} cores; the load was {os.getloadavg()[0]:.1f} at the beginning.",
        "All times are in milliseconds.",
        "Made by `python benchmarks/extension.py --write benchmarks/EXTENSION.md`.",
        "",
        "## From a key to the underline",
        "",
        f"A letter makes a word of a kernel of {len(KERNEL.splitlines()) - 1} lines wrong.",
        "The delay between key and check, 30 ms by default, is part of the time.",
        "",
        "The processor time is that of a key and its Backspace: two checks, and marks where there was time,",
        "in the kernel without the thread of the cell.",
        "",
        "| | by the clock: median | quartiles | processor time: kernel | page |",
        "|---|---|---|---|---|",
        *(
            f"| {name} | {spread(times)} | {kernel:.0f} | {page:.0f} |"
            for name, times, kernel, page in (*latency(bench), *large(bench))
        ),
        "",
        f"## A key in a notebook of {CELLS} kernel cells",
        "",
        "The task of a key runs all listeners; the page is drawn in another one.  The last column has the",
        "processor time of all that the page does for a key, answers of the kernel included.",
        "",
        "| | task by the clock: median | quartiles | its processor time: median | quartiles | page, in all |",
        "|---|---|---|---|---|---|",
        *(
            f"| {name} | {spread(held)} | {spread(used, 1)} | {whole:.1f} |"
            for name, held, used, whole in keys(bench)
        ),
        "",
        "## The start of JupyterLab",
        "",
        "| | by the clock: median | quartiles | processor time of the page: median | quartiles |",
        "|---|---|---|---|---|",
        *(f"| {name} | {spread(took)} | {spread(used)} |" for name, took, used in starts(bench)),
        "",
        "## Size",
        "",
        "| | kB |",
        "|---|---|",
        *(f"| {name} | {size / 1000:.0f} |" for name, size in sizes()),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure everything, and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=12)
    parser.add_argument("--write", type=Path, help="write the tables to this file")
    options = parser.parse_args()
    subprocess.run([sys.executable, ROOT / "extension" / "build.py", "require"], check=True)
    os.environ["PYTHONPATH"] = str(ROOT)  # kernels run this checkout
    with tempfile.TemporaryDirectory() as folder, running_chromium() as browser:
        home, root = Path(folder, "home"), Path(folder, "root")
        root.mkdir()
        with running_lab(home, root) as lab:
            text = report(Bench(lab, browser, home, options.repeat))
    print(text)
    if options.write:
        options.write.write_text(text)


if __name__ == "__main__":
    main()
