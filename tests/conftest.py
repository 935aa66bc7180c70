"""What every test may count on: a cache of its own, this checkout in child processes, golden files, a Lab.

Knows pytest, JupyterLab and Chromium; must not know kernelab.
"""

import difflib
import gc
import itertools
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import hypothesis
import pytest

from tests.chromium import find_chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, ViewportSize

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"

# A first build takes as long as the compiler does, and others may use the machine: nothing is timed.
untimed = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
# In continuous integration the same programs are tried every time; elsewhere new ones.
hypothesis.settings.register_profile("kernelab", **untimed, print_blob=True, derandomize="CI" in os.environ)
# For planted faults: that a program fails is enough, it need not be small.
found = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
hypothesis.settings.register_profile("unshrunk", **untimed, derandomize=True, database=None, phases=found)
hypothesis.settings.load_profile("kernelab")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write tests/golden/ from what the tests produce"
    )


def pytest_configure(config: pytest.Config) -> None:
    # With it nbformat takes four seconds to load, in every process: it makes parsers of addresses.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    if hasattr(config, "workerinput"):
        return  # a worker of pytest-xdist inherits the environment of its parent, cache included
    os.environ["KERNELAB_CACHE_DIR"] = os.environ.get("KERNELAB_TEST_CACHE") or _cache_of_this_run(config)
    # Kernels of notebooks and other child processes must run this checkout, installed or not.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    # Else each of them compiles the package anew, which takes longer than to load it.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_collection_finish() -> None:
    """Collect garbage rarely: with the trees of all tests and programs alive it takes a tenth of the time."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def _cache_of_this_run(config: pytest.Config) -> str:
    cache = tempfile.mkdtemp(prefix="kernelab-tests-")
    config.add_cleanup(lambda: shutil.rmtree(cache, ignore_errors=True))
    return cache


@pytest.fixture
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache of built kernels in which nothing is, for tests of what is built when."""
    monkeypatch.setenv("KERNELAB_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: tests wait for browsers and child processes. Four need memory enough."""
    return min(4, (os.cpu_count() or 1) + 1)


TOGETHER = {
    "browser": (
        "tests/browser/",
        "tests/jupyter/test_live.py",
        "tests/test_front_end.py",
        "tests/test_misuse.py",
        "tests/test_setup.py::test_the_wheel",
    ),
}
"""Tests of one process, beside those of one file: the first builds the front-end and starts a JupyterLab."""

LONGEST = (
    *TOGETHER["browser"],
    "tests/builtins/test_table.py",
    "tests/lessons/",
    "tests/test_random",
    "tests/test_distributed.py",
    "tests/contract/",
    "tests/autodiff/",
    "tests/passes/",
    "tests/codegen/",
)
"""What takes longest begins first, so that no process is left with it at the end."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of a file together: they share kernels, fixtures and what has been derived of them.

    Under pytest 9.2 the groups of pytest-xdist 3.8 do nothing.
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            shared = (name for name, paths in TOGETHER.items() if nodeid.startswith(paths))
            return next(shared, nodeid.partition("::")[0])

    config.option.loadscopereorder = False
    return Together(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"browser", "lab"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("browser")
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    starts = (turn for turn, path in enumerate(LONGEST) if item.nodeid.startswith(path))
    return next(starts, len(LONGEST))


# ------------------------------------------------------------------------------------------ golden files


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden(name, text)``: ``tests/golden/<name>.txt`` holds ``text``; ``--update-golden`` writes it."""
    update = request.config.getoption("--update-golden")
    command = f"pytest {_shown(request.node.path)} --update-golden"

    def check(name: str, text: str) -> None:
        path = GOLDEN / f"{name}.txt"
        if update:
            _write_golden(path, text)
            return
        if not path.exists():
            pytest.fail(f"there is no {_shown(path)} yet; to write it: {command}", pytrace=False)
        difference = _unified_diff(path, text)
        if difference:
            pytest.fail(f"{difference}\nif the new text is right: {command}", pytrace=False)

    return check


def _shown(path: Path) -> str:
    return os.path.relpath(path, ROOT)


def _write_golden(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_with_final_newline(text), encoding="utf-8")


def _unified_diff(path: Path, text: str) -> str:
    expected = path.read_text(encoding="utf-8").splitlines()
    found = _with_final_newline(text).splitlines()
    return "\n".join(difflib.unified_diff(expected, found, _shown(path), "this run", lineterm=""))


def _with_final_newline(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"


# ------------------------------------------------------------------------------------------ the front-end


@pytest.fixture(scope="session")
def front_end() -> Path:
    """The folder of the widgets' front-end, built with the JupyterLab extension where sources have changed.

    Without node its tests are skipped aloud, and fail if ``CI=true``.
    """
    if shutil.which("npm") is None or shutil.which("node") is None:
        reason = "NOT RUN: no node. Type: make frontend, and put .venv/bin on the path"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    command = [sys.executable, str(ROOT / "extension" / "build.py"), "require"]
    built = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    if built.returncode:
        pytest.fail(built.stderr, pytrace=False)
    return ROOT / "kernelab" / "jupyter" / "static"


# ------------------------------------------------------------------------------------------ JupyterLab


@dataclass(frozen=True, slots=True)
class Lab:
    """A running JupyterLab: its address, the token that opens it, the folders of notebooks and settings."""

    url: str
    token: str
    root: Path
    home: Path


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab of this session alone: none of the user's configuration, workspaces or trust gets in."""
    with running_lab(tmp_path_factory.mktemp("lab-home"), tmp_path_factory.mktemp("lab-root")) as server:
        yield server


@contextmanager
def running_lab(home: Path, root: Path) -> Iterator[Lab]:
    """A JupyterLab that serves ``root`` and keeps what it writes in ``home``; both are empty folders."""
    server = Lab(f"http://127.0.0.1:{_free_port()}", secrets.token_hex(16), root, home)
    _never_ask_about_news(home / "settings")
    offer_our_extension(home)
    log = home / "lab.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            _lab_command(server), env=_lab_environment(home), stdout=output, stderr=subprocess.STDOUT
        )
        try:
            _wait_until_it_answers(server, process, log)
            yield server
        finally:
            _stop(process)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _never_ask_about_news(settings: Path) -> None:
    # A fresh profile asks in a pop-up that covers the notebook; only this settings file silences it.
    file = settings / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"fetchNews": "false", "checkForUpdates": False}))


def offer_our_extension(home: Path) -> Path:
    """Offer that of this checkout, not one that is installed: a link, looked for anew at each page."""
    link = home / "data" / "labextensions" / "kernelab"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(ROOT / "extension" / "labextension")
    return link


def _lab_command(server: Lab) -> list[str]:
    return [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={server.url.rpartition(':')[2]}",
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={server.token}",
        f"--ServerApp.root_dir={server.root}",
        "--LabApp.expose_app_in_browser=True",  # as window.jupyterapp, to run commands
        "--LabApp.extension_manager=readonly",
        "--JupyterNotebookApp.expose_app_in_browser=True",  # Notebook 7 runs in the same server
    ]


def _lab_environment(home: Path) -> dict[str, str]:
    own = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "IPYTHONDIR": "ipython",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
    }
    # In a virtual environment what is installed there would come before our extension.
    first = {"JUPYTER_PREFER_ENV_PATH": "0"}
    return os.environ | first | {variable: str(home / folder) for variable, folder in own.items()}


def _wait_until_it_answers(server: Lab, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE / 1000
    while not _answers(server):
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"JupyterLab did not start:\n{log.read_text()}", pytrace=False)
        time.sleep(0.1)


def _answers(server: Lab) -> bool:
    try:
        with urllib.request.urlopen(f"{server.url}/api/status?token={server.token}", timeout=2):
            return True
    except (urllib.error.URLError, OSError):
        return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# ------------------------------------------------------------------------------------------ Chromium

CHROMIUM_FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    # No host but this one exists: the browser stays quiet, and no test passes because of a far server.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost",
)

# Milliseconds, for a busy machine: what comes is seen at once, and only what never comes takes this long.
PATIENCE = 120_000

# JupyterLab shows a notebook well before its kernel can run a cell.
KERNEL_IS_READY = """async () => {
  const app = window.jupyterapp;
  await app.restored;
  let panel = app.shell.currentWidget;
  while (!panel || !panel.sessionContext) {
    await new Promise(resolve => setTimeout(resolve, 50));
    panel = app.shell.currentWidget;
  }
  await panel.revealed;
  await panel.context.ready;
  await panel.sessionContext.ready;
  await panel.sessionContext.session.kernel.info;
}"""


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    """Chromium without a window; where there is none its tests are skipped aloud, and fail if ``CI=true``."""
    from playwright.sync_api import expect

    expect.set_options(timeout=PATIENCE)
    with running_chromium() as chromium:
        yield chromium


@contextmanager
def running_chromium() -> Iterator["Browser"]:
    """Chromium without a window."""
    from playwright.sync_api import sync_playwright

    path = find_chromium()
    if path is None:
        _browser_is_missing()
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=list(CHROMIUM_FLAGS))
        yield chromium
        chromium.close()


def _browser_is_missing() -> NoReturn:
    reason = (
        "NOT RUN: no Chromium. Type: sudo apt-get install chromium "
        "(on Ubuntu: playwright install --with-deps chromium), or set CHROMIUM to the path of one"
    )
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@dataclass(frozen=True, slots=True)
class NotebookPage:
    """One notebook, open in JupyterLab with its kernel ready; ``page`` is Playwright's."""

    page: "Page"

    def run_all(self) -> None:
        """Run every cell and wait until the last has finished."""
        self.page.evaluate("window.jupyterapp.commands.execute('notebook:run-all-cells')")

    def has_lost_widgets(self) -> bool:
        """Whether JupyterLab gave up a saved widget, once each has come or was given up.

        Its widget manager (jupyterlab_widgets 3.0) calls itself restored when the kernel connects.  What is
        drawn before it has read the notebook's states stays an error until the notebook is loaded anew.
        """
        self.page.wait_for_function(WIDGETS_ARE_SETTLED)
        return self.page.get_by_text("Error displaying widget: model not found").count() > 0

    def run_in_kernel(self, code: str) -> None:
        """Run ``code`` in the notebook's kernel, without a cell, and wait for it."""
        self.page.evaluate(
            "code => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel"
            ".requestExecute({ code }).done.then(() => null)",
            code,
        )


WIDGETS_ARE_SETTLED = """() => {
  const outputs = document.querySelectorAll(".jp-Notebook .jp-OutputArea-output");
  const shown = [...outputs].map(node => node.textContent);
  return shown.some(text => text) && !shown.some(text => text.includes("Loading widget..."));
}"""

# Nothing of a test stays in the page: its documents and views, its kernels, an open side panel, a dark theme.
EMPTY_THE_PAGE = """async () => {
  const { shell, commands, serviceManager: { sessions } } = window.jupyterapp;
  for (const widget of [...shell.widgets("main")]) widget.dispose();
  const next = await window.next;
  await sessions.refreshRunning();
  for (const { id } of [...sessions.running()]) if (id !== next?.id) void sessions.shutdown(id);
  shell.collapseRight();
  const theme = "JupyterLab Light";
  if (document.body.dataset.jpThemeName !== theme) await commands.execute("apputils:change-theme", { theme });
}"""

# A kernel takes longer to start than most tests: that of the next notebook starts while this one is shown.
# It answers before its notebook is open, for saved widgets are given up where that takes seconds.
OPEN_WITH_A_KERNEL = """async ([path, kernel]) => {
  const { commands, serviceManager: { sessions } } = window.jupyterapp;
  const start = name =>
    sessions.startNew({ path: `${performance.now()}`, name: "", type: "notebook", kernel: { name } });
  // A kernel whose ports another process has taken never answers: then another is started.
  const answers = session =>
    Promise.race([session.kernel.info.then(() => true), new Promise(resolve => setTimeout(resolve, 60000))]);
  let session = await (kernel === "python3" && window.next || start(kernel));
  while (!(await answers(session))) {
    void session.shutdown();
    session = await start(kernel);
  }
  await session.setPath(path);
  session.dispose();
  if (kernel === "python3") window.next = start(kernel);
  // Not awaited: Chromium may collect the promise of a command, and what it opens is waited for anyway.
  void commands.execute("docmanager:open", { path });
}"""


class LabPage:
    """JupyterLab in a page that tests use one after another: to load it takes longer than most tests.

    A test finds it empty, whatever was there before; behind one that failed it is loaded anew.
    """

    def __init__(self, lab: Lab, browser: "Browser") -> None:
        self.lab, self.browser = lab, browser
        self.page: Page | None = None

    def empty(self) -> "Page":
        """The page, without documents."""
        if self.page is None:
            self.page = new_page(self.browser)
            self.page.goto(f"{self.lab.url}/lab?token={self.lab.token}&reset")
            self.page.wait_for_function("window.jupyterapp")
            self.page.evaluate("window.jupyterapp.restored.then(() => null)")
        self.page.set_viewport_size(SIZE)
        self.page.mouse.move(0, 0)
        self.page.evaluate(EMPTY_THE_PAGE)
        return self.page

    def discard(self) -> None:
        """Load another page for the next test."""
        if self.page is not None:
            self.page.context.close()
        self.page = None


SIZE: "ViewportSize" = {"width": 1280, "height": 900}


def new_page(browser: "Browser") -> "Page":
    """A page that shares nothing with others."""
    page = browser.new_context(viewport=SIZE).new_page()
    page.set_default_timeout(PATIENCE)
    return page


@pytest.fixture(scope="session")
def lab_page(lab: Lab, browser: "Browser") -> Iterator[LabPage]:
    """The page of this session."""
    shared = LabPage(lab, browser)
    yield shared
    shared.discard()


@pytest.fixture
def open_notebook(
    lab_page: LabPage, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., NotebookPage]]:
    """``open_notebook(*cells)`` opens a new notebook of code cells, ``open_notebook(path)`` a copy of a file.

    They open in JupyterLab, in place of what is open there, or in a page of their own at another ``address``
    of the server: "notebooks" is Notebook 7.  A picture of every page is left in the test's temporary folder.
    """
    lab, own, count = lab_page.lab, [], itertools.count()
    failed = request.session.testsfailed

    def open_one(*cells: str | Path, address: str = "", kernel: str = "python3") -> NotebookPage:
        name = f"{request.node.name}-{next(count)}.ipynb"
        if not address:
            return _open_in(lab_page.empty(), lab, name, cells, kernel)
        own.append(new_page(lab_page.browser))
        return show_notebook(lab, own[-1], name, cells, address)

    yield open_one
    for number, page in enumerate(filter(None, [lab_page.page, *own])):
        page.screenshot(path=tmp_path / f"page-{number}.png")
    for page in own:
        page.context.close()
    if request.session.testsfailed > failed:
        lab_page.discard()


def _open_in(page: "Page", lab: Lab, name: str, cells: tuple[str | Path, ...], kernel: str) -> NotebookPage:
    _write_notebook(lab.root / name, cells, kernel)
    page.evaluate(OPEN_WITH_A_KERNEL, [name, kernel])
    return _ready(page)


def reopen(open_notebook: Callable[..., NotebookPage], saved: Path) -> NotebookPage:
    """A saved notebook, opened with the widgets that its metadata keeps."""
    for _ in range(5):
        again = open_notebook(saved)
        if not again.has_lost_widgets():
            return again
    raise AssertionError("JupyterLab lost the saved widgets of a notebook five times")


def show_notebook(
    lab: Lab, page: "Page", name: str, cells: tuple[str | Path, ...], address: str = "lab/tree"
) -> NotebookPage:
    """Show a new notebook of these cells in a page, or a copy of a file, and wait for its kernel."""
    _write_notebook(lab.root / name, cells)
    page.goto(f"{lab.url}/{address}/{name}?token={lab.token}&reset")
    return _ready(page)


def _ready(page: "Page") -> NotebookPage:
    page.locator(".jp-Notebook .jp-CodeCell").first.wait_for()
    page.evaluate(KERNEL_IS_READY)
    return NotebookPage(page)


def _write_notebook(path: Path, cells: tuple[str | Path, ...], kernel: str = "python3") -> None:
    match cells:
        case (Path() as copied,):
            shutil.copy(copied, path)
        case _:
            import nbformat  # takes two seconds: its validator loads a parser of addresses

            made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(str(cell)) for cell in cells])
            made.metadata["kernelspec"] = {"name": kernel, "display_name": kernel, "language": "python"}
            nbformat.write(made, path)
