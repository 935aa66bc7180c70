"""JupyterLab before the first notebook, in the reader's language and with the reader's settings."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.test_extension import DECAY
from tests.conftest import ROOT, Lab, new_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# Every text that the sources give to the translator: one number, and another.
TEXTS = re.compile(r'trans\s*\.(?:__|_n)\(\s*"((?:[^"\\]|\\.)*)"(?:,\s*"((?:[^"\\]|\\.)*)")?')
LOADED = (
    "performance.getEntriesByType('resource').filter(({ name }) => name.includes('/kernelab/static/')).length"
)
LABELS = """() => {
  const { commands } = window.jupyterapp;
  const ours = commands.listCommands().filter(name => name.startsWith("kernelab:"));
  return ours.map(name => commands.label(name));
}"""
COLOUR = "rgb(1, 2, 3)"
SETTINGS = {"marks": False, "colours": {"operation": COLOUR}}


def in_quotes() -> str:
    """A language in which each text stands in quotation marks, as JupyterLab's server gives one."""
    words: dict[str, object] = {
        "": {"domain": "kernelab", "language": "eo", "plural_forms": "nplurals=2; plural=(n != 1);"}
    }
    for source in sorted((ROOT / "extension" / "src" / "lab").glob("*.ts")):
        for one, many in TEXTS.findall(source.read_text(encoding="utf-8")):
            words[one] = [f"«{text}»" for text in (one, many) if text]
    assert len(words) > 40
    return json.dumps({"data": {"kernelab": words}, "message": ""})


HEAR_TOASTS = """() => {
  window.toasts = "";
  const hear = () => document.querySelectorAll(".Toastify__toast")
    .forEach(it => (window.toasts += it.textContent));
  new MutationObserver(hear).observe(document.body, { childList: true, subtree: true });
}"""


@pytest.mark.long
def test_little_is_loaded_before_the_first_notebook_and_every_text_is_the_translators(
    lab: Lab, browser: "Browser", front_end: Path
) -> None:
    path = lab.home / "settings" / "kernelab" / "plugin.jupyterlab-settings"
    path.parent.mkdir()
    path.write_text(json.dumps(SETTINGS))
    page = new_page(browser)
    page.route("**/api/translations/**", lambda route: route.fulfill(body=in_quotes()))
    page.goto(f"{lab.url}/lab?token={lab.token}&reset")
    page.wait_for_function("window.jupyterapp")
    page.evaluate("window.jupyterapp.restored.then(() => null)")
    labels = page.evaluate(LABELS)
    assert len(labels) == 10
    assert all(label.startswith("«") for label in labels)
    at_the_start = page.evaluate(LOADED)

    page.evaluate(HEAR_TOASTS)
    page.locator(".jp-LauncherCard", has_text="«Lessons of kernelab»").click()
    expect(page.locator(".jp-Dialog-header")).to_have_text("«Open which lesson?»")
    assert "«Looking for the lessons»" in page.evaluate("window.toasts")
    expect(page.locator(".Toastify__toast")).to_have_count(0)
    page.locator(".jp-Dialog select").select_option(index=0)
    page.keyboard.press("Enter")
    expect(page.locator(".jp-NotebookPanel .jp-MarkdownOutput h1").first).to_be_visible()
    assert page.evaluate(LOADED) > at_the_start

    page.evaluate(
        "source => window.jupyterapp.shell.currentWidget.model.sharedModel.cells"
        ".find(cell => cell.cell_type === 'code').setSource(source)",
        DECAY,
    )
    expect(page.locator(".kernelab-operation").first).to_have_css("color", COLOUR)
    expect(page.locator(".kernelab-gutter")).to_have_count(0)
    page.evaluate("window.jupyterapp.commands.execute('kernelab:show-side').then(() => 0)")
    page.evaluate("window.jupyterapp.commands.execute('kernelab:show-forms').then(() => 0)")
    side = page.get_by_role("region", name="«kernelab: tape, checks, warnings and arrays»")
    expect(side.get_by_role("status").first).to_have_text("«Nobody answers: run %load_ext kernelab.»")
    forms = page.get_by_label("«form»", exact=True)
    expect(forms.locator("option").first).to_have_text("«adjoint»")
    assert by_tab(page) == {
        "delay": 55,
        "marks": True,
        "colours": {"operation": COLOUR, "warning": "#a05000"},
    }
    page.context.close()
    path.unlink()


SAVED = """async () => {
  const { settings } = window.jupyterapp.serviceManager;
  for (;;) {
    const { raw } = await settings.fetch("kernelab:plugin");
    if (raw.includes("a05000")) return raw;
    await new Promise(resolve => setTimeout(resolve, 50));
  }
}"""


def by_tab(page: "Page") -> dict[str, object]:
    """The settings as they are saved after the Tab key has led through all of them."""
    page.evaluate(
        "window.jupyterapp.commands.execute('settingeditor:open', {query: 'kernelab'}).then(() => 0)"
    )
    delay = page.locator("input[id$='_delay']")
    expect(delay).to_have_accessible_name(re.compile("Delay"))
    delay.focus()
    page.keyboard.press("Control+a")
    page.keyboard.type("55")
    page.keyboard.press("Tab")
    expect(page.locator("input[id$='_marks']")).to_be_focused()
    page.keyboard.press("Space")
    for name in ("type", "operation", "saved", "zero", "warning"):
        page.keyboard.press("Tab")
        field = page.locator(f"input[id$='_colours_{name}']")
        expect(field).to_be_focused()
        expect(field).to_have_accessible_name(re.compile("."))
    page.keyboard.type("#a05000")
    saved: dict[str, object] = json.loads(page.evaluate(SAVED))
    return saved
