"""The computation graph in a real JupyterLab: a reader steps through it, lines and boxes light up."""

from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

from tests.browser.test_lab import background

KERNELS = """%%kernel --quiet
def inner(a: float, b: float):
    c = a * b
    d = sin(c) + cos(a)
    return c / (1.0 + d * d)

def outer(a: float, b: float):
    p = inner(a, b)
    return p * inner(b, p)
"""


def test_a_reader_steps_through_a_computation_graph(open_notebook: Callable[..., Any]) -> None:
    notebook = open_notebook(
        "%load_ext kernelab\nimport kernelab as kl", KERNELS, "kl.graph(outer, 0.5, 1.2)"
    )
    page = notebook.page
    notebook.run_all()
    graph = page.locator(".klg-all")
    says, phase = graph.locator(".klg-says"), graph.locator(".klg-bar span")
    product = graph.locator(".klg").first.locator("[data-node] >> nth=-1")
    expect(product).to_contain_text("bar 1")

    graph.get_by_title("to the end of the primal").click()
    expect(product).not_to_contain_text("bar")
    for _ in range(4):
        graph.get_by_title("one step", exact=True).click()
    expect(phase).to_have_text("backwards 4 of 25")
    expect(says).to_contain_text("_bar += ")
    expect(graph.locator("details[open]")).to_have_count(1)  # the call that the step is in
    expect(page.locator("pre .klg-lit")).to_have_count(1)
    graph.get_by_role("slider").press("ArrowLeft")
    expect(phase).to_have_text("backwards 3 of 25")
    graph.get_by_title("to the beginning").click()
    expect(says).to_have_text("nothing has run yet")

    source, box = page.locator("pre .l9").first, graph.locator("g.l9 rect.r").first
    before = box.evaluate("rect => getComputedStyle(rect).fill")
    source.hover()
    assert box.evaluate("rect => getComputedStyle(rect).fill") != before
    page.mouse.move(0, 0)
    plain = background(source)
    graph.locator("g.l9").first.hover()
    assert background(source) != plain

    # Where there is less room than the picture needs, it shrinks a little before it scrolls.
    scrolls = """(room, share) => {
      room.style.width = `${share * room.firstChild.getAttribute("width")}px`;
      return room.scrollWidth > room.clientWidth;
    }"""
    room = graph.locator(".klg-room").first
    assert [room.evaluate(scrolls, share) for share in (0.9, 0.6)] == [False, True]
