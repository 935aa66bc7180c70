"""Views as text and as HTML: the same nodes, linked lines, nothing that a host could execute."""

import re
from html.parser import HTMLParser

import pytest

from kernelab.views.kernel.code_view import python_runs
from kernelab.views.pages import markup, page
from kernelab.views.pages.markup import Below, Beside, Code, CodeLine, Fold, Node, Run, Table, cell, words

SOURCE = Code("Cell In[3]", (CodeLine((Run("y = sin(x)"),), 9), CodeLine((Run("z = y"),), 10)))
ADJOINT = Code("adjoint", (CodeLine((Run("x_bar += "), Run("y_bar", "name")), 9), CodeLine((Run("pass"),))))


class Page(HTMLParser):
    """Collects the tags of a page, and checks that they nest."""

    VOID = frozenset({"br", "hr", "img"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def text_of(html: str) -> str:
    return re.sub(r"<style>.*?</style>|<[^>]*>", "", html, flags=re.DOTALL)


def test_a_terminal_shows_code_with_the_numbers_of_the_source_lines() -> None:
    assert markup.render(SOURCE) == "Cell In[3]\n 9 │ y = sin(x)\n10 │ z = y"
    assert markup.render(ADJOINT).endswith("9 │ x_bar += y_bar\n  │ pass")


def test_a_terminal_shows_parts_one_under_the_other_and_leaves_out_what_is_folded() -> None:
    view = Below((words("a"), words("b"), Beside((SOURCE, ADJOINT)), Fold("C++", SOURCE)))
    shown = markup.render(view)
    assert shown.startswith("a\nb\n\nCell In[3]\n")
    assert "\n\nadjoint\n" in shown
    assert "C++" not in shown


def test_a_table_is_aligned_with_numbers_to_the_right() -> None:
    rows = ((cell("x"), cell("1.5", is_number=True)), (cell("long"), cell("10")))
    table = Table("", ("name", "value"), rows)
    assert markup.render(table).splitlines() == ["name  value", "----  -----", "x       1.5", "long  10"]


def bases(view: Beside) -> list[float]:
    return [float(basis) for basis in re.findall(r"flex-basis:([\d.]+)em", page.render(view))]


def test_scarce_room_goes_first_to_the_code_of_the_source_not_to_signatures_and_prose() -> None:
    long = "x" * 90
    shown = f'def f(x: {long},\n      y: {long}):\n    """{long}"""\n    # {long}\n    y = 1.0'
    source = Code("", tuple(CodeLine(runs) for runs in python_runs(shown)))
    derived = Code("", (CodeLine((Run("y_bar[i] += 1.0 * x_bar[i]"),)),))
    needed = page.CHARACTER * (11 + page.GUTTER)
    assert bases(Beside((source, derived))) == pytest.approx([needed, 2 * page.NARROWEST - needed], abs=0.1)


def test_a_source_of_long_lines_leaves_the_others_some_of_scarce_room() -> None:
    wide = Code("", (CodeLine((Run("y = " + "x" * 80),)),))
    assert bases(Beside((wide, wide))) == pytest.approx([24.0, 16.0])


def test_the_last_of_parts_beside_each_other_leaves_the_room_that_it_does_not_need() -> None:
    derived = Code("", (CodeLine((Run("y_bar[i] += 1.0 * x_bar[i]"),)),))
    widest = re.findall(r"max-width:([\d.]+)em", page.render(Beside((SOURCE, derived))))
    assert [float(width) for width in widest] == [pytest.approx(page.CHARACTER * (26 + page.GUTTER), abs=0.1)]


VIEWS: list[Node] = [
    words("a < b", Run("strong & dim", "dim"), level=1),
    SOURCE,
    Beside((SOURCE, ADJOINT)),
    Fold("more", ADJOINT),
    Table("t", ("a", "b"), ((cell("<x>", "good"), cell("2", "bad", is_number=True)),)),
]


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: type(view).__name__)
def test_html_is_well_formed_static_and_has_the_text_of_the_view(view: Node) -> None:
    html = page.render(view)
    seen = Page(html).seen
    assert not {"script", "iframe", "object", "link"} & {tag for tag, _ in seen}
    assert not [name for _, attributes in seen for name in attributes if name.startswith("on")]
    assert "<x>" not in html
    assert "http" not in html


def test_every_line_that_comes_from_one_source_line_is_lit_by_hovering_any_of_them() -> None:
    html = page.render(Beside((SOURCE, ADJOINT)))
    scope = re.search(r'class="kl (kl-\w+)"', html)
    assert scope is not None
    assert f"{scope[1]}{{&:has(" in html
    assert "&:has(.l9:hover,.l9:focus){.l9{--kl-on" in html
    assert len(re.findall("<span class=l9 tabindex=0 role=listitem>", html)) == 2


def test_the_tab_key_stops_at_a_line_once_in_each_pane_and_a_touch_holds_any() -> None:
    lines = (CodeLine((Run("a"),), 9), CodeLine((Run("b"),), 4), CodeLine((Run("c"),), 9))
    html = page.render(Beside((SOURCE, Code("adjoint", lines))))
    assert re.findall("<span class=(l9 tabindex=-?.)[ >]", html) == ["l9 tabindex=0"] * 2 + ["l9 tabindex=-1"]


def test_a_remark_stands_once() -> None:
    told = Code("Cell In[2]", SOURCE.lines, (CodeLine((Run("reads <x>"),), 9),))
    html = page.render(Beside((told, ADJOINT)))
    assert html.count("<p class=d9>9 · reads &lt;x&gt;</p>") == 1
    assert ".d9{visibility:visible}" in html
    assert "kl-told" not in page.render(SOURCE).partition("</style>")[2]


def test_lines_of_two_cells_with_one_number_are_not_linked() -> None:
    other = Code("Cell In[2]", (CodeLine((Run("helper"),), 9, 1),))
    html = page.render(Beside((SOURCE, other)))
    assert "<span class=l9-1 tabindex=0 role=listitem>" in html
    assert markup.render(other).endswith("9' │ helper")


def test_without_style_the_numbers_still_stand_before_the_lines() -> None:
    assert "9 │ x_bar += y_bar" in text_of(page.render(ADJOINT))


def test_equal_views_are_equal_html_and_different_ones_never_share_a_scope() -> None:
    assert page.render(SOURCE) == page.render(SOURCE)
    scopes = {re.findall(r"kl-[\da-f]{10}", page.render(view))[0] for view in VIEWS}
    assert len(scopes) == len(VIEWS)


def test_colours_come_from_the_host_with_a_fallback_for_light_and_dark() -> None:
    style = page.styles()
    declared = re.findall(r"--kl-(\w+):(.*?);?\n", style)
    assert {"ink", "paper", "good", "bad"} <= {name for name, _ in declared}
    for name, value in declared:
        assert "var(--jp-" in value, name
        assert name == "lit" or "light-dark(" in value, name
